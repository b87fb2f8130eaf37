/* Deterministic automata over code points: sets of strings, and of numbers as they are written.
 *
 * An automaton is complete. State 0 is dead: nothing is accepted from there, and it is the only
 * such state. A state's label is 0 where it does not accept; other labels tell kinds of accepted
 * strings apart (which member, which pattern). The alphabet is cut into ranges of code points that
 * no state tells apart.
 *
 * All are made by exploring: a source names states by sequences of words and says where a range
 * leads. Pure. */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CODE_POINT_END = 0x110000 };

struct dfa {
    uint32_t n_states, n_ranges, start;
    uint32_t *bounds; /* [n_ranges] where a range begins, ascending, the first at 0 */
    uint32_t *next;   /* [n_states x n_ranges] */
    uint32_t *labels; /* [n_states] */
};

struct dfa_source {
    const void *context;
    const uint32_t *bounds;
    uint32_t n_ranges;
    size_t n_words; /* of a state's name */
    const uint32_t *start;
    /* False: dead. */
    bool (*step)(const void *context, const uint32_t *from, uint32_t range, uint32_t *to);
    uint32_t (*label)(const void *context, const uint32_t *state);
};

/* ERROR_BUSY: more than states_max. */
enum error_code dfa_explore(const struct dfa_source *source, uint32_t states_max, struct dfa **out,
                            struct error *err);
void dfa_free(struct dfa *dfa); /* NULL is fine */

/* Strings that are accepted, told by any label, of both (`a_inverted`: of those that `a` does not
 * accept, …). Label 1. */
enum error_code dfa_both(const struct dfa *a, bool a_inverted, const struct dfa *b, bool b_inverted,
                         struct dfa **out, struct error *err);
enum error_code dfa_inverted(const struct dfa *dfa, struct dfa **out, struct error *err);
/* Those of n_min to n_max code points; UINT32_MAX: no bound. */
enum error_code dfa_with_length(const struct dfa *dfa, uint32_t n_min, uint32_t n_max,
                                struct dfa **out, struct error *err);
/* The texts, UTF-8; text i has the label i + 1, the first of equal ones. */
struct dfa_text {
    const char *data;
    size_t size;
};
enum error_code dfa_of_texts(const struct dfa_text *texts, uint32_t n, struct dfa **out,
                             struct error *err);
uint32_t dfa_label_of(const struct dfa *dfa, const char *text, size_t size);
bool dfa_is_empty(const struct dfa *dfa);

/* The next code point of valid UTF-8; what is not valid reads as U+FFFD, a byte long. */
uint32_t dfa_read_code_point(const char **at, const char *end);
/* The range that has it. */
uint32_t dfa_range_of(const struct dfa *dfa, uint32_t code_point);
/* The bounds of both together; the caller frees. NULL: no memory. */
uint32_t *dfa_merge_bounds(const uint32_t *a, uint32_t n_a, const uint32_t *b, uint32_t n_b,
                           uint32_t *n);
