/* OpenSSL gives the state out by its older functions alone, which run the same assembly as EVP. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include "trust/digest_chain.h"

#include "base/bytes.h"
#include "base/mem.h"

#include <assert.h>
#include <errno.h>
#include <openssl/sha.h>
#include <string.h>
#include <unistd.h>

enum { CHAIN_BLOCK = 64, CHAIN_FORMAT = 1, CHAIN_PIECE_BYTES = 256 * 1024 };
#define CHAIN_LENGTH_MAX (UINT64_C(1) << 60) /* SHA-256 counts bits in 64 */

static void chain_load(const struct digest_chain *chain, SHA256_CTX *context)
{
    const uint64_t bits = chain->length * 8;
    SHA256_Init(context);
    memcpy(context->h, chain->words, sizeof context->h);
    context->Nl = (SHA_LONG)(bits & UINT32_MAX);
    context->Nh = (SHA_LONG)(bits >> 32);
    context->num = (unsigned)(chain->length % CHAIN_BLOCK);
    memcpy(context->data, chain->rest, sizeof context->data);
}

void digest_chain_begin(struct digest_chain *chain)
{
    SHA256_CTX context;
    SHA256_Init(&context);
    *chain = (struct digest_chain){0};
    memcpy(chain->words, context.h, sizeof chain->words);
}

void digest_chain_add(struct digest_chain *chain, const void *bytes, size_t size)
{
    SHA256_CTX context;
    assert(chain->length + size <= CHAIN_LENGTH_MAX);
    chain_load(chain, &context);
    SHA256_Update(&context, bytes, size);
    chain->length += size;
    memcpy(chain->words, context.h, sizeof chain->words);
    memset(chain->rest, 0, sizeof chain->rest);
    memcpy(chain->rest, context.data, chain->length % CHAIN_BLOCK);
    assert(context.num == chain->length % CHAIN_BLOCK);
}

void digest_chain_end(const struct digest_chain *chain, struct digest *out)
{
    SHA256_CTX context;
    chain_load(chain, &context);
    SHA256_Final(out->bytes, &context);
}

enum error_code digest_chain_add_file(struct digest_chain *chain, int fd, uint64_t offset,
                                      uint64_t size, bool (*part_done)(void *, uint64_t), void *arg,
                                      struct error *err)
{
    enum error_code code = ERROR_NONE;
    uint8_t *piece = mem_new(CHAIN_PIECE_BYTES);
    if (!piece)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    while (size && !code) {
        const size_t want = size < CHAIN_PIECE_BYTES ? (size_t)size : CHAIN_PIECE_BYTES;
        const ssize_t got = pread(fd, piece, want, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            code = error_set(err, ERROR_IO, "reading: %s", strerror(errno));
        else if (got == 0)
            code = error_set(err, ERROR_INVALID, "the file ends early");
        if (code)
            break;
        digest_chain_add(chain, piece, (size_t)got);
        offset += (uint64_t)got;
        size -= (uint64_t)got;
        if (part_done && !part_done(arg, (uint64_t)got))
            code = error_set(err, ERROR_CANCELLED, "cancelled");
    }
    mem_free(piece);
    return code;
}

/* ---- as bytes -------------------------------------------------------------------------------- */

void digest_chain_write(const struct digest_chain *chain, uint8_t out[static DIGEST_CHAIN_BYTES])
{
    memset(out, 0, DIGEST_CHAIN_BYTES);
    for (int i = 0; i < 8; i++) {
        for (int byte = 0; byte < 4; byte++)
            out[4 * i + byte] = (uint8_t)(chain->words[i] >> (24 - 8 * byte));
    }
    bytes_store(out + 32, 8, chain->length);
    memcpy(out + 40, chain->rest, chain->length % CHAIN_BLOCK);
    bytes_store(out + 104, 8, CHAIN_FORMAT);
}

enum error_code digest_chain_read(const void *bytes, size_t size, struct digest_chain *out,
                                  struct error *err)
{
    const uint8_t *in = bytes;
    *out = (struct digest_chain){0};
    if (size != DIGEST_CHAIN_BYTES || bytes_load(in + 104, 8) != CHAIN_FORMAT)
        return error_set(err, ERROR_INVALID, "not the state of a SHA-256 (%zu bytes)", size);
    for (int i = 0; i < 8; i++)
        out->words[i] = (uint32_t)in[4 * i] << 24 | (uint32_t)in[4 * i + 1] << 16 |
                        (uint32_t)in[4 * i + 2] << 8 | in[4 * i + 3];
    out->length = bytes_load(in + 32, 8);
    memcpy(out->rest, in + 40, sizeof out->rest);
    bool holds = out->length <= CHAIN_LENGTH_MAX;
    for (size_t i = out->length % CHAIN_BLOCK; i < CHAIN_BLOCK; i++)
        holds = holds && !out->rest[i];
    return holds ? ERROR_NONE
                 : error_set(err, ERROR_INVALID, "the state of a SHA-256 does not hold together");
}
