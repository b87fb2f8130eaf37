#include "trust/digest.h"

#include "base/mem.h"
#include "trust/openssl_error.h"

#include <assert.h>
#include <errno.h>
#include <openssl/evp.h>
#include <string.h>
#include <unistd.h>

enum { PIECE_BYTES = 256 * 1024 };

enum error_code digest_run_begin(struct digest_run *run, struct error *err)
{
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    *run = (struct digest_run){context};
    if (context && EVP_DigestInit_ex(context, EVP_sha256(), NULL) == 1)
        return ERROR_NONE;
    digest_run_end(run, NULL, NULL);
    return openssl_error(err, "SHA-256");
}

enum error_code digest_run_add(struct digest_run *run, const void *bytes, size_t size,
                               struct error *err)
{
    return EVP_DigestUpdate(run->context, bytes, size) == 1 ? ERROR_NONE
                                                            : openssl_error(err, "SHA-256");
}

enum error_code digest_run_end(struct digest_run *run, struct digest *out, struct error *err)
{
    unsigned size = DIGEST_BYTES;
    bool good = !out || EVP_DigestFinal_ex(run->context, out->bytes, &size) == 1;
    EVP_MD_CTX_free(run->context);
    *run = (struct digest_run){0};
    assert(size == DIGEST_BYTES);
    return good ? ERROR_NONE : openssl_error(err, "SHA-256");
}

enum error_code digest_of(const void *bytes, size_t size, struct digest *out, struct error *err)
{
    struct digest_run run;
    enum error_code code = digest_run_begin(&run, err);
    if (code)
        return code;
    code = digest_run_add(&run, bytes, size, err);
    if (!code)
        return digest_run_end(&run, out, err);
    digest_run_end(&run, NULL, NULL);
    return code;
}

struct range {
    int fd;
    uint64_t offset, size;
};

static enum error_code add_range(struct digest_run *run, struct range range, uint8_t *piece,
                                 bool (*part_done)(void *, uint64_t), void *arg, struct error *err)
{
    while (range.size) {
        size_t want = range.size < PIECE_BYTES ? (size_t)range.size : PIECE_BYTES;
        ssize_t got = pread(range.fd, piece, want, (off_t)range.offset);
        if (got == 0)
            return error_set(err, ERROR_INVALID, "the file ends early");
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return error_set(err, ERROR_IO, "reading: %s", strerror(errno));
        enum error_code code = digest_run_add(run, piece, (size_t)got, err);
        if (code)
            return code;
        range.offset += (uint64_t)got;
        range.size -= (uint64_t)got;
        if (part_done && !part_done(arg, (uint64_t)got))
            return error_set(err, ERROR_CANCELLED, "cancelled");
    }
    return ERROR_NONE;
}

enum error_code digest_file(int fd, uint64_t offset, uint64_t size,
                            bool (*part_done)(void *, uint64_t), void *arg, struct digest *out,
                            struct error *err)
{
    uint8_t *piece = mem_new(PIECE_BYTES);
    if (!piece)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    struct digest_run run;
    enum error_code code = digest_run_begin(&run, err);
    if (!code)
        code = add_range(&run, (struct range){fd, offset, size}, piece, part_done, arg, err);
    if (!code)
        code = digest_run_end(&run, out, err);
    else if (run.context)
        digest_run_end(&run, NULL, NULL);
    mem_free(piece);
    return code;
}

bool digest_equal(const struct digest *a, const struct digest *b)
{
    return memcmp(a->bytes, b->bytes, DIGEST_BYTES) == 0;
}

const char *digest_text(const struct digest *digest, char out[DIGEST_TEXT])
{
    static const char letters[] = "0123456789abcdef";
    for (int i = 0; i < DIGEST_BYTES; i++) {
        out[2 * i] = letters[digest->bytes[i] >> 4];
        out[2 * i + 1] = letters[digest->bytes[i] & 15];
    }
    out[DIGEST_TEXT - 1] = 0;
    return out;
}

bool digest_parse(const char *text, struct digest *out)
{
    static const char letters[] = "0123456789abcdef";
    if (strlen(text) != DIGEST_TEXT - 1)
        return false;
    for (int i = 0; i < DIGEST_BYTES; i++) {
        const char *high = strchr(letters, text[2 * i]), *low = strchr(letters, text[2 * i + 1]);
        if (!high || !low)
            return false;
        out->bytes[i] = (uint8_t)((high - letters) << 4 | (low - letters));
    }
    return true;
}
