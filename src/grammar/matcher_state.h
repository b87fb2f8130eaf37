/* What a matcher keeps.
 *
 * A stack is a set of entries (node to go on at, its frame's register, the stack below): all ways
 * in which its top could have been called, so that threads that meet share what lies below. Stack 0
 * is the bottom. A register is a count, or an object's number in `registers`. A state is a sorted
 * list of threads (node, register, stack), in front of which stands whether the text may end. */
#pragma once

#include "grammar/program.h"
#include "grammar/vocabulary.h"

enum { MATCHER_DEAD = 0, MATCHER_UNKNOWN = UINT32_MAX };
enum { THREAD_WORDS = 3 };
enum { MATCHER_STATES_MAX = 1 << 20 };

struct matcher_state {
    uint32_t *next;   /* [n_classes], MATCHER_UNKNOWN where it was not asked for; may be NULL */
    uint64_t *mask;   /* NULL: not made yet */
    uint32_t like;    /* the state with the same mask whose counters are as low as they can be */
    bool is_calm;     /* calm bytes lead back to it */
    uint32_t n_plain; /* characters that may come without an end or escape, UINT32_MAX: any */
};

struct matcher_thread {
    uint32_t node, reg, stack;
};

struct grammar_matcher {
    const struct grammar *grammar;
    const struct grammar_vocabulary *vocabulary;
    uint64_t epoch;
    struct word_table stacks, registers, state_names;
    struct matcher_state *states; /* of each state's name */
    uint32_t states_room;
    size_t next_bytes, mask_bytes;
    uint32_t start;
    struct word_table seen; /* of the closure at work */
    struct matcher_thread *pending, *found;
    uint32_t n_pending, pending_room, n_found, found_room;
    struct word_table unions;
    uint32_t *union_results, unions_room;
    struct word_table lows; /* stacks whose counters are as low as they can be */
    uint32_t *low_results, lows_room;
    uint32_t *words; /* scratch */
    size_t words_room;
    uint32_t *path; /* states on the way down the trie */
    enum error_code code;
};

/* The state after a byte; MATCHER_DEAD, also when `code` is set. */
uint32_t matcher_step(struct grammar_matcher *matcher, uint32_t state, uint8_t byte);
uint32_t matcher_start(struct grammar_matcher *matcher);
bool matcher_may_end(const struct grammar_matcher *matcher, uint32_t state);
bool matcher_must_end(const struct grammar_matcher *matcher, uint32_t state);
/* The state with the same mask; makes masks of states that differ in far counters one. */
uint32_t matcher_alike(struct grammar_matcher *matcher, uint32_t state);
/* A sorted list of threads as a state. */
uint32_t matcher_state_of(struct grammar_matcher *matcher, struct matcher_thread *threads,
                          uint32_t n, bool may_end);
const struct matcher_thread *matcher_threads(const struct grammar_matcher *matcher, uint32_t state,
                                             uint32_t *n);
uint32_t *matcher_words(struct grammar_matcher *matcher, size_t n);
uint32_t matcher_fail(struct grammar_matcher *matcher, enum error_code code);
uint32_t matcher_join(struct grammar_matcher *matcher, uint32_t a, uint32_t b);
bool matcher_room(void **array, uint32_t *room, uint32_t n, size_t size);

/* matcher_object.c: what an object's register says. */
bool matcher_object_may_end(const struct grammar_matcher *matcher, uint32_t object, uint32_t reg);
bool matcher_object_takes(const struct grammar_matcher *matcher, uint32_t object, uint32_t reg,
                          uint32_t labels); /* any of them, a set in the program's words */
/* The register with one label more; WORD_TABLE_NONE: it may not come. */
uint32_t matcher_object_add(struct grammar_matcher *matcher, uint32_t object, uint32_t reg,
                            uint32_t label);
