/* SHA-256 that is continued elsewhere: what it has after some bytes, as 112 bytes that travel.
 *
 * SHA-256 (FIPS 180-4) is a chain over blocks of 64 bytes: eight words after each block, the
 * length, and the bytes of a block that is not full yet are all of it. So of a file that lies in
 * pieces on several machines each adds its piece in turn, and the last has the hash of the whole.
 *
 *     byte 0  32 the words H0 … H7, big-endian as in the digest
 *         32  8  bytes hashed so far, little-endian
 *         40  64 the last length % 64 of them, then zeros
 *        104  8  format: 1, little-endian
 *
 * Pure but for digest_chain_add_file(); any thread. */
#pragma once

#include "trust/digest.h"

enum { DIGEST_CHAIN_BYTES = 112 };

struct digest_chain {
    uint32_t words[8];
    uint64_t length; /* bytes */
    uint8_t rest[64];
};

void digest_chain_begin(struct digest_chain *chain); /* of no bytes */
void digest_chain_add(struct digest_chain *chain, const void *bytes, size_t size);
/* As digest_file(). Where it fails, the chain is as far as it came. */
enum error_code digest_chain_add_file(struct digest_chain *chain, int fd, uint64_t offset,
                                      uint64_t size, bool (*part_done)(void *arg, uint64_t bytes),
                                      void *arg, struct error *err);
/* The digest of all that was added; the chain may go on. */
void digest_chain_end(const struct digest_chain *chain, struct digest *out);

void digest_chain_write(const struct digest_chain *chain, uint8_t out[static DIGEST_CHAIN_BYTES]);
/* Foreign bytes. ERROR_INVALID: not what digest_chain_write() writes. */
enum error_code digest_chain_read(const void *bytes, size_t size, struct digest_chain *out,
                                  struct error *err);
