/* A model that fits nowhere: by how much, and the smallest changes that would make it fit.
 *
 * Every remedy is a changed problem that was really solved, and that placement_check() accepted;
 * each comes with the rates it would give. They are in this order, and each is there only if it
 * works:
 *
 *     KV_TYPE      another type of KV cache: the first of the caller's list that is enough
 *     STREAMS      fewer at once: the most that fit
 *     CONTEXT      a shorter one: the longest that fits, rounded down (placement_context_step())
 *     COMBINED     where none of these three is enough: the smallest KV type, one stream, the
 *                  longest context
 *     FREE_MEMORY  more memory on one device that is there (programs to close, a larger card): the
 *                  device that lacks least. Its bytes are what is missing under the best packing of
 *                  all others.
 *     ADD_DEVICE   one more device, linked as the best one is: the least memory
 *
 * "Least" and "most" are found by halving (changing less never makes room where changing more does
 * not); a remedy says whether the next smaller change was proved not to be enough
 * (`least`), or whether the search gave up there (PLACEMENT_REMEDY_NODES each). Buffers for
 * computing shrink with the context by compute_bytes_per_context, which is what is sure to go, and
 * else stay as they are.
 *
 * Pure; any thread. The problem must have passed placement_problem_check(). */
#pragma once

#include "placement/whatif.h"

enum { PLACEMENT_REMEDY_NODES = 1000, PLACEMENT_KV_TYPES_MAX = 16 };
#define PLACEMENT_REMEDY_UNIT (UINT64_C(1) << 20) /* bytes; what memory is rounded up to */

/* A type's blocks, as ggml has them: F16 is 1 element in 2 bytes, Q8_0 32 in 34, Q4_0 32 in 18. */
struct placement_kv_type {
    char name[16];
    uint32_t elements_per_block;
    uint32_t bytes_per_block;
};

/* What the user may choose from. Layers' kv_bytes_per_token are of the type `current`; those of
 * another are theirs times the ratio of bytes per element, rounded up. */
struct placement_kv_types {
    struct placement_kv_type current;
    uint32_t n; /* 0: there is no choice */
    struct placement_kv_type
        others[PLACEMENT_KV_TYPES_MAX]; /* best first; those that are not smaller are passed over */
};

enum placement_remedy_kind {
    PLACEMENT_REMEDY_KV_TYPE,
    PLACEMENT_REMEDY_STREAMS,
    PLACEMENT_REMEDY_CONTEXT,
    PLACEMENT_REMEDY_COMBINED,
    PLACEMENT_REMEDY_FREE_MEMORY,
    PLACEMENT_REMEDY_ADD_DEVICE,
    PLACEMENT_REMEDY_KINDS,
};
const char *placement_remedy_name(enum placement_remedy_kind kind); /* "kv_type" … */

/* All fields hold what the changed problem has, changed or not. */
struct placement_remedy {
    enum placement_remedy_kind kind;
    bool least;
    char kv_type[16]; /* empty: as it was */
    uint32_t streams;
    uint32_t context_tokens;
    uint32_t device; /* FREE_MEMORY: which; ADD_DEVICE: whose links and rates it has */
    uint64_t bytes;  /* FREE_MEMORY: more than are there; ADD_DEVICE: beside its reserve */
    struct placement_rates
        rates; /* of decoding; ADD_DEVICE: the placement's device n_devices is the new one */
};

struct placement_remedies {
    bool fits;      /* nothing is wrong: all else is empty */
    bool undecided; /* the time was over before it was proved that nothing holds it: all else is
                       empty */
    uint64_t
        needed_bytes;     /* all layers with their KV caches, without the stages' compute buffers */
    uint64_t there_bytes; /* on devices that may be used, without one compute buffer each */
    uint64_t missing_bytes;   /* FREE_MEMORY's; 0: more memory alone is not what is missing */
    char why[ERROR_TEXT_MAX]; /* in the solver's words */
    uint32_t n;
    struct placement_remedy list[PLACEMENT_REMEDY_KINDS];
};

/* 1024 tokens from 8192 on, 256 from 2048 on, else 64 (1 below 64); the least context that is
 * offered, too. */
uint32_t placement_context_step(uint32_t context_tokens);

/* options->go_on ends it early: what was found until then is there. ERROR_INVALID: a KV type
 * without elements or bytes, too many, or a name without an end. ERROR_NO_MEMORY. */
enum error_code placement_remedies(const struct placement_problem *problem,
                                   const struct placement_kv_types *kv_types,
                                   const struct placement_options *options,
                                   struct placement_remedies *out, struct error *err);

/* For people; on lack of memory text->failed. */
void placement_remedies_text(const struct placement_problem *problem,
                             const struct placement_kv_types *kv_types,
                             const struct placement_remedies *remedies, struct buffer *text);
