/* Free text in which marks are looked for: nodes that take any bytes, and lead on where a mark ends
 * (Aho and Corasick, 1975). A special token stands in a vocabulary as GRAMMAR_SPECIAL, its text,
 * GRAMMAR_SPECIAL: one whose text is a mark leads where the mark does, one of `tokens` is read as
 * its text, and all others may stand anywhere, also within a mark, which they do not end.
 *
 * Two steps, so that texts may lead to each other: watch_init() makes the nodes, watch_fill() their
 * edges. Failures stay in the program (program.h). */
#pragma once

#include "grammar/program.h"

enum {
    LIMIT_WATCH_MARKS = 8,
    LIMIT_WATCH_TOKENS = 4,
    LIMIT_WATCH_MARK_BYTES = 64,
    WATCH_STATES_MAX = 513
};

struct watch_mark {
    const char *text; /* 1 to LIMIT_WATCH_MARK_BYTES bytes */
    uint32_t target;
};

struct watch_state {
    const char *text; /* its first `size` bytes are the part of a mark that was read */
    uint32_t size;
    uint32_t bytes, node; /* the node that reads on, and it or the end */
};

struct watch {
    struct grammar *program;
    struct watch_mark marks[LIMIT_WATCH_MARKS];
    uint32_t n_marks;
    const char *tokens[LIMIT_WATCH_TOKENS]; /* that marks are made of; as long as a mark at most */
    uint32_t n_tokens;
    struct watch_state states[WATCH_STATES_MAX]; /* the first: nothing read */
    uint32_t n_states;
};

/* `program`, the tokens and the marks' texts are set. `end`: where the text may end, anywhere. */
void watch_init(struct watch *watch, uint32_t end);
/* The marks' targets are set. */
void watch_fill(struct watch *watch);
uint32_t watch_root(const struct watch *watch);
/* The entry of a text that may begin with `begin`, after which it goes on at `target`, else as the
 * watched text: `begin` counts only there, behind some blanks at most. */
uint32_t watch_opening(const struct watch *watch, const char *begin, uint32_t target, uint32_t end);
/* A mark as text, or as a special token. */
uint32_t watch_mark_text(struct grammar *program, const char *mark, uint32_t target);
