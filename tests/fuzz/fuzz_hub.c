/* What hubs, registries and servers answer, the state of an earlier pull, and names that a user
 * gives: any bytes. The first byte says which. What is read can be no path that leads elsewhere. */
#include "fuzz.h"

#include "base/mem.h"
#include "hub/http.h"
#include "hub/hub_answer.h"
#include "hub/quant.h"
#include "hub/shelf.h"

#include <stdlib.h>
#include <string.h>

static void fuzz_hub_check_path(const char *path)
{
    FUZZ_CHECK(path[0] && path[0] != '/' && path[0] != '.' && !strstr(path, "/."));
}

static void fuzz_hub_tree(const char *text, size_t size)
{
    struct hub_files files = {0};
    struct error err = {0};
    if (hub_tree_read(text, size, &files, &err))
        FUZZ_CHECK(err.text[0]);
    struct hub_model_entry *models = mem_new_array(QUANT_MODELS, sizeof *models);
    FUZZ_CHECK(models);
    const uint32_t n = quant_models(&files, models);
    for (uint32_t i = 0; i < files.n; i++) {
        fuzz_hub_check_path(files.files[i].path);
        FUZZ_CHECK(files.files[i].size > 0);
        FUZZ_CHECK(!files.files[i].sha256[0] || hub_is_sha256(files.files[i].sha256));
    }
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t part = 0; part < models[i].n_files; part++)
            FUZZ_CHECK(models[i].files[part] < files.n);
    }
    mem_free(models);
    hub_files_deinit(&files);
}

static void fuzz_hub_manifest(const char *text, size_t size)
{
    struct hub_file file;
    struct error err = {0};
    if (hub_manifest_read(text, size, &file, &err))
        FUZZ_CHECK(err.text[0]);
    else
        FUZZ_CHECK(file.size > 0 && hub_is_sha256(file.sha256));
}

/* What was read is written as what is read as the same. */
static void fuzz_hub_state(const char *text, size_t size)
{
    struct pull_state *state = mem_new(sizeof *state), *again = mem_new(sizeof *again);
    struct buffer bytes = {0};
    FUZZ_CHECK(state && again);
    if (!pull_state_read(text, size, state, NULL)) {
        pull_state_write(state, &bytes);
        FUZZ_CHECK(!bytes.failed && !pull_state_read(bytes.data, bytes.size, again, NULL));
        FUZZ_CHECK(memcmp(state, again, sizeof *state) == 0);
        FUZZ_CHECK(pull_state_done(state) <= state->size);
    }
    buffer_deinit(&bytes);
    mem_free(again);
    mem_free(state);
}

static void fuzz_hub_head(const char *text, size_t size)
{
    struct http_head head = {0};
    while (size > 0) {
        const char *end = memchr(text, '\n', size);
        const size_t n = end ? (size_t)(end - text) + 1 : size;
        http_head_line(&head, text, n);
        text += n;
        size -= n;
    }
    FUZZ_CHECK(!head.has_range || (head.from < head.to && head.to <= head.total));
    FUZZ_CHECK(head.retry_after_s <= HTTP_RETRY_AFTER_S);
}

static void fuzz_hub_name(const char *text)
{
    struct hub_name name;
    struct error err = {0};
    if (hub_name_parse(text, &name, &err)) {
        FUZZ_CHECK(err.text[0]);
        return;
    }
    if (name.kind == HUB_PATH)
        return;
    if (name.kind != HUB_URL) {
        fuzz_hub_check_path(name.owner);
        fuzz_hub_check_path(name.model);
    }
    if (name.file[0])
        fuzz_hub_check_path(name.file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    char *text = mem_copy_text((const char *)data + 1, size - 1);
    FUZZ_CHECK(text);
    switch (data[0] % 5) {
    case 0:
        fuzz_hub_tree(text, size - 1);
        break;
    case 1:
        fuzz_hub_manifest(text, size - 1);
        break;
    case 2:
        fuzz_hub_state(text, size - 1);
        break;
    case 3:
        fuzz_hub_head(text, size - 1);
        break;
    default:
        fuzz_hub_name(text);
        break;
    }
    mem_free(text);
    return 0;
}
