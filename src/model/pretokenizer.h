/* How BPE text is cut into words before merging: one rule a family, found by tokenizer.ggml.pre.
 *
 * A rule is a list of patterns, applied one after another: each cuts the pieces that the one
 * before left. What a pattern matches becomes a piece, and so does what lies between matches.
 * The rules and their names follow libllama (src/llama-vocab.cpp, src/unicode.cpp); the table is in
 * pretokenizer_table.c.
 *
 * Most patterns are regexes over classes: every character is one byte, itself for ASCII and an
 * enum unicode_class otherwise, so PCRE2 needs no Unicode and matching is fast. Patterns that
 * name characters beyond ASCII are regexes over the code points themselves. */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum split_kind {
    SPLIT_CLASSES = 1,   /* regex over classes */
    SPLIT_CODE_POINTS,   /* regex over UTF-8; \s and \d are ASCII's, spaces beyond it are vertical
                            tabs */
    SPLIT_DIGIT_GROUPS,  /* cuts after each group of three digits, counted from the right of their
                            run */
    SPLIT_BEFORE_GROUPS, /* cuts before each whole group of three ASCII digits, counted from the
                            right */
};

enum { PRETOKENIZER_PATTERNS = 6 };

enum pretokenizer_flags {
    PRE_IGNORE_MERGES = 1, /* a word that is a token as it stands is that token */
    PRE_ADD_BOS = 2,       /* unless the file says otherwise */
    PRE_KEEP_SPACES = 4,   /* decoding leaves " ." and " 's" as they are */
    PRE_NO_BOS = 8,        /* there is no BOS unless the file names one */
    PRE_HAN = 16,          /* Han letters are CLASS_HAN, not CLASS_LETTER */
    PRE_RAW_UTF8 =
        32, /* tokens are plain UTF-8 with U+2581 for a space, not GPT-2's byte alphabet */
    PRE_WHOLE_NEWLINES = 64, /* a run of newlines that is a token is that token */
    PRE_NO_MERGES = 128,     /* the file may have no merges */
    PRE_ALWAYS_BOS = 256,    /* BOS is added whatever the file says */
};

struct pretokenizer_rule {
    const char *names; /* separated by single spaces */
    unsigned flags;
    struct {
        enum split_kind kind;
        const char *regex;
    } patterns[PRETOKENIZER_PATTERNS]; /* kind 0 ends the list */
};

const struct pretokenizer_rule *pretokenizer_rule_find(const char *name,
                                                       size_t size); /* NULL: unknown */
const struct pretokenizer_rule *pretokenizer_rule_at(size_t index);  /* NULL past the end */

struct pretokenizer; /* a rule with its patterns compiled; read-only: any thread */

enum error_code pretokenizer_open(const struct pretokenizer_rule *rule, struct pretokenizer **out,
                                  struct error *err);
void pretokenizer_close(struct pretokenizer *pretokenizer);

/* Room for the work of one thread, kept from call to call. Zeroed is empty. */
struct pretokenizer_scratch {
    char *text; /* the text to tokenize: the input with invalid bytes as U+FFFD */
    size_t size;
    size_t *ends; /* of word i in `text`, in bytes; words follow each other without gaps */
    size_t n_words;
    /* private from here on */
    size_t text_capacity, ends_capacity;
    size_t *next_ends;
    size_t n_next, next_capacity;
    uint8_t *classes;
    size_t n_chars, classes_capacity;
    char *wide;
    size_t wide_capacity;
    void *match; /* pcre2_match_data */
};
void pretokenizer_scratch_deinit(struct pretokenizer_scratch *scratch);

/* Cuts the text; the words are scratch->text and scratch->ends until the next call. */
enum error_code pretokenizer_split(const struct pretokenizer *pretokenizer, const char *text,
                                   size_t size, struct pretokenizer_scratch *scratch,
                                   struct error *err);
