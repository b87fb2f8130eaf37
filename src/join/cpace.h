/* CPace: two that know the same short code agree on a strong key, and whoever does not know it gets
 * one guess a run.
 *
 * CPACE-RISTR255-SHA512 of draft-irtf-cfrg-cpace, in its initiator-responder setting: over
 * ristretto255 (RFC 9496, from libsodium) with SHA-512; the draft's test vectors are tests. A run:
 *     both   g = cpace_generator(code, channel, session)
 *     A      Ya = cpace_share(g, ya)  ->  Yb = cpace_share(g, yb)  B
 *     both   key = cpace_key(own scalar, other's share, session, transcript)
 * and then each proves that it has the key (cpace_tag) before it is used: section "Key
 * confirmation".
 *
 * Pure but for cpace_scalar(). Comparisons of tags must take the same time whatever they find:
 * sodium_memcmp(). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CPACE_POINT_BYTES = 32,
    CPACE_SCALAR_BYTES = 32,
    CPACE_KEY_BYTES = 64,
    CPACE_TAG_BYTES = 32
};

struct cpace_text {
    const void *bytes;
    size_t size;
};

/* What one side said: its share, and the data that it is bound to. */
struct cpace_turn {
    uint8_t share[CPACE_POINT_BYTES];
    struct cpace_text data;
};

void cpace_scalar(uint8_t scalar[CPACE_SCALAR_BYTES]); /* random; sodium_init() has been called */

void cpace_generator(struct cpace_text code, struct cpace_text channel, struct cpace_text session,
                     uint8_t generator[CPACE_POINT_BYTES]);

/* False when the scalar is 0, which cpace_scalar() does not make. */
bool cpace_share(const uint8_t generator[CPACE_POINT_BYTES],
                 const uint8_t scalar[CPACE_SCALAR_BYTES], uint8_t share[CPACE_POINT_BYTES]);

/* False when `other` is not the encoding of a point, or the neutral one: the run must be given up.
 * `a` spoke first. */
bool cpace_key(const uint8_t scalar[CPACE_SCALAR_BYTES], const uint8_t other[CPACE_POINT_BYTES],
               struct cpace_text session, const struct cpace_turn *a, const struct cpace_turn *b,
               uint8_t key[CPACE_KEY_BYTES]);

/* The proof, by who said `turn`, that it has the key. */
void cpace_tag(const uint8_t key[CPACE_KEY_BYTES], struct cpace_text session,
               const struct cpace_turn *turn, uint8_t tag[CPACE_TAG_BYTES]);
