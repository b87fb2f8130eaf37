/* The file of tokens of `medley serve`: any bytes. What is taken has good entries only, and is the
 * same when it was listed. */
#include "fuzz.h"

#include "base/mem.h"
#include "cli/token_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/fuzz-tokens-XXXXXX", path[64], lock[64];

static void remove_files(void)
{
    unlink(path);
    unlink(lock);
    rmdir(folder);
}

static void make_folder(void)
{
    FUZZ_CHECK(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/tokens.json", folder);
    snprintf(lock, sizeof lock, "%s.lock", path);
    atexit(remove_files);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct token_file *file = NULL;
    struct access_grant grant;
    struct error err = {0};
    yyjson_doc *doc = NULL;
    const uint8_t hash[ACCESS_TOKEN_HASH_BYTES] = {1};
    if (!path[0])
        make_folder();
    FILE *out = fopen(path, "wb");
    FUZZ_CHECK(out && fwrite(data, 1, size, out) == size && fclose(out) == 0);
    FUZZ_CHECK(chmod(path, 0600) == 0);
    const enum error_code code = token_file_open(path, &file, &err);
    FUZZ_CHECK(!code == (file != NULL));
    FUZZ_CHECK(token_file_list(path, &doc, &err) == code);
    if (file) {
        const struct api_access tokens = token_file_access(file);
        if (tokens.find(tokens.self, hash, &grant))
            FUZZ_CHECK(grant.id && grant.scopes && access_token_name_is_valid(grant.name));
        FUZZ_CHECK(tokens.is_required(tokens.self));
        tokens.may_use(tokens.self, hash, "model", false, &err);
    }
    yyjson_doc_free(doc);
    token_file_close(file);
    return 0;
}
