/* Constrained output: what an answer's bytes may be, and which tokens may come next.
 *
 * A grammar is compiled from a JSON schema, "any JSON object", a regular expression, a choice of
 * texts, a GBNF grammar, or from what calls of tools look like. All become one program: a pushdown
 * automaton over bytes whose loops have counters. It is read-only: any thread, shared by any number
 * of users.
 *
 * A vocabulary is the bytes of a model's tokens as a trie. Read-only, too.
 *
 * A matcher is one grammar with one vocabulary, and the memory of what was computed: states (sets
 * of threads that share their stacks, made when they are first met), steps and masks. One thread
 * at a time. Its memory is bounded by LIMIT_MATCHER_BYTES or so; beyond that it forgets all and
 * begins again, which its runs do not notice.
 *
 * A run is how far one answer has come: a value that is advanced by bytes or tokens. It keeps the
 * bytes that it took, so it can be told to another node and rebuilt there by taking the same
 * tokens again: the state is a function of grammar and bytes alone.
 *
 *     struct grammar *grammar;
 *     struct grammar_source source = {.kind = GRAMMAR_JSON_SCHEMA, .text = schema, .size = size};
 *     enum error_code code = grammar_compile(&source, &grammar, err);
 *     …
 *     grammar_matcher_new(grammar, vocabulary, &matcher, err);
 *     struct grammar_run run = {0};
 *     loop: grammar_mask(matcher, &run, &bits, err); pick a token whose bit is set;
 *           if it is none of those that end: grammar_take_token(matcher, &run, token, err)
 *
 * Exactness. A schema is honoured exactly or refused with the path of the keyword (ERROR_INVALID:
 * it is no schema; ERROR_UNSUPPORTED: it cannot be honoured; ERROR_BUSY: it would take more states
 * than a limit below). Honoured means: what the grammar generates is valid, and each valid value is
 * accepted in the text that serialisers write, its members in any order:
 *   - Between JSON's tokens stands nothing, one blank, or a line end and up to 32 blanks or tabs;
 *     before a comma or colon nothing.
 *   - A string has printable ASCII as it is, all else as UTF-8 or as \u and four digits; the short
 *     escapes are taken, a lone surrogate is not.
 *   - A number has an exponent only where nothing but its type is said of it; a whole number is
 *     written without a fraction where an integer is asked for; constants have no needless zeros.
 *   - A member stands once if the schema names it.
 * Draft 2020-12. `format` is asserted for the formats of grammar_format.h, unless `annotate`.
 *
 * Regular expressions are ECMAScript's with the u flag, but without look-around, back references,
 * \b, \B and \p: those are refused by position. Quantifiers' laziness changes nothing here.
 * `pattern` finds anywhere (unless anchored), GRAMMAR_REGEX matches the whole answer.
 *
 * GBNF is llama.cpp's: rules `name ::= …`, literals, [classes], ".", groups, |, ?, *, +, {m,n},
 * comments. The rule `root` begins. Left recursion is refused by the rule's name.
 *
 * GRAMMAR_CALLS takes any bytes until a mark; then a call must follow, in one of some forms; then
 * any text again. Its source is an object:
 *   begin    marks that begin a call, at most 7 of 64 bytes
 *   tokens   optional: special tokens that marks are made of, at most 4 of 64 bytes
 *   forms    how a call goes on behind such a mark: a text in which %n is the tool's name, %a its
 *            arguments, %c a call as JSON of any tool, %l a list of these, %s a blank, a line end
 *            or nothing, %d a number, %w a word, %( … %) a mark, and %. a place where all may end
 *   tools    objects with `name`, and the schemas `arguments` (for %a) and `call` (for %c and %l)
 *   many     calls and text may follow a call; else it ends the answer
 *   think    optional: the marks around reasoning, which stands first and in which no call begins;
 *            where `thinks` is true it has begun already
 *   ends_thought  optional: true where a call may begin in the reasoning, which it ends
 *   headers  optional: calls begin in headers only, with which the answer begins: the marks that
 *            open a header, and last the one that ends it
 * Special tokens may stand in free text, and marks may be special tokens (GRAMMAR_SPECIAL).
 *
 * Sources: Earley (1970) and Tomita (1985) for stacks that share; Thompson (1968) for expressions;
 * Koo, Liu, He (arXiv:2407.08103) for automata over tokens' bytes. */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    LIMIT_GRAMMAR_BYTES = 256 * 1024, /* of a source */
    LIMIT_GRAMMAR_NODES = 400 * 1000, /* of a program */
    LIMIT_GRAMMAR_DEPTH = 128,        /* nesting of a schema, an expression, a GBNF group */
    LIMIT_GRAMMAR_CHOICES = 4096,     /* texts of a choice */
    LIMIT_GRAMMAR_DFA_STATES = 20000, /* of one expression or set of texts */
    LIMIT_GRAMMAR_BRANCHES = 1024,    /* alternatives of one place of a schema */
    LIMIT_GRAMMAR_SHAPES = 20000,     /* places of a schema, and meetings of several */
    LIMIT_MATCHER_BYTES = 64 << 20,
    LIMIT_MATCHER_THREADS = 16384, /* of one state: beyond that the grammar is too ambiguous */
};

enum grammar_kind {
    GRAMMAR_NONE = 0,
    GRAMMAR_JSON_OBJECT, /* any JSON object; no text */
    GRAMMAR_JSON_SCHEMA, /* the schema's JSON */
    GRAMMAR_REGEX,
    GRAMMAR_CHOICE, /* a JSON array of strings */
    GRAMMAR_GBNF,
    GRAMMAR_CALLS, /* free text with calls of tools in it: JSON as below */
};

/* What is compiled; also how a grammar travels between nodes. */
struct grammar_source {
    enum grammar_kind kind;
    bool annotate; /* a schema's `format` says nothing */
    const char *text;
    size_t size;
};

struct grammar;
/* The error's text begins with the place: a schema's path ("#/properties/a/pattern: …"), an
 * expression's position, a GBNF line. */
enum error_code grammar_compile(const struct grammar_source *source, struct grammar **out,
                                struct error *err);
void grammar_free(struct grammar *grammar); /* NULL is fine */

/* For the record: how large the program is. */
struct grammar_size {
    uint32_t n_rules, n_nodes, n_edges;
};
struct grammar_size grammar_size(const struct grammar *grammar);

/* ---- tokens ---- */

/* A special token's bytes are this, its text, and this again: text of no kind has the byte, so only
 * free text and marks of GRAMMAR_CALLS take such a token. */
enum { GRAMMAR_SPECIAL = 0xff };

struct grammar_vocabulary;
/* The tokens' bytes one after another: token i has those from starts[i] to starts[i + 1]. Empty
 * tokens (control tokens among them) are never allowed. `ends`: tokens that end an answer, allowed
 * where the grammar may end. All is copied. */
enum error_code grammar_vocabulary_new(const char *bytes, const uint64_t *starts, uint32_t n_vocab,
                                       const int32_t *ends, uint32_t n_ends,
                                       struct grammar_vocabulary **out, struct error *err);
void grammar_vocabulary_free(struct grammar_vocabulary *vocabulary); /* NULL is fine */

/* ---- matching ---- */

struct grammar_matcher;
/* Both are borrowed and outlive it. `vocabulary` may be NULL: then there are bytes only. */
enum error_code grammar_matcher_new(const struct grammar *grammar,
                                    const struct grammar_vocabulary *vocabulary,
                                    struct grammar_matcher **out, struct error *err);
void grammar_matcher_free(struct grammar_matcher *matcher);          /* NULL is fine */
size_t grammar_matcher_bytes(const struct grammar_matcher *matcher); /* that it holds now */

/* Zeroed: nothing taken yet. */
struct grammar_run {
    uint64_t epoch; /* of the matcher for which `state` is; another: it is computed again */
    uint32_t state;
    char *bytes; /* taken so far */
    size_t n_bytes, room;
};
void grammar_run_deinit(struct grammar_run *run);
void grammar_run_clear(struct grammar_run *run); /* nothing taken, memory kept */
/* ERROR_NO_MEMORY. */
enum error_code grammar_run_copy(const struct grammar_run *from, struct grammar_run *to,
                                 struct error *err);

/* ERROR_INVALID: the grammar does not allow them, and the run is as before. ERROR_BUSY, too
 * ambiguous; ERROR_NO_MEMORY. A token that ends is taken where the grammar may end, and changes
 * nothing. */
enum error_code grammar_take(struct grammar_matcher *matcher, struct grammar_run *run,
                             const char *bytes, size_t size, struct error *err);
enum error_code grammar_take_token(struct grammar_matcher *matcher, struct grammar_run *run,
                                   int32_t token, struct error *err);

/* Whether the answer may end here, and whether it must (no byte may follow). */
enum error_code grammar_may_end(struct grammar_matcher *matcher, struct grammar_run *run,
                                bool *may_end, bool *must_end, struct error *err);

/* One bit for each token, (n_vocab + 63) / 64 words, valid until the matcher's next call. No bit
 * is set where the grammar must go on and the vocabulary has no token for it. */
enum error_code grammar_mask(struct grammar_matcher *matcher, struct grammar_run *run,
                             const uint64_t **bits, struct error *err);
