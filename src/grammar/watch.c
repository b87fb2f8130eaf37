#include "grammar/watch.h"

#include "grammar/vocabulary.h"

#include <assert.h>
#include <string.h>

enum {
    WATCH_BLANKS = 4, /* before a text's opening */
    WATCH_SPECIALS = LIMIT_WATCH_MARKS + LIMIT_WATCH_TOKENS + 1,
};

/* The edges of a node, by bytes. */
struct watch_edges {
    uint32_t to[256];
};

static void watch_set_edges(struct grammar *program, uint32_t node, const struct watch_edges *edges)
{
    struct grammar_edge ranges[256];
    uint32_t n = 0;
    for (unsigned byte = 0; byte < 256; byte++) {
        if (n && ranges[n - 1].target == edges->to[byte])
            ranges[n - 1].high = (uint8_t)byte;
        else
            ranges[n++] = (struct grammar_edge){(uint8_t)byte, (uint8_t)byte, edges->to[byte]};
    }
    program_set_edges(program, node, ranges, n);
}

static void watch_all(struct watch_edges *edges, uint32_t target)
{
    for (unsigned byte = 0; byte < 256; byte++)
        edges->to[byte] = target;
}

/* ---- special tokens ---- */

struct watch_name { /* the beginning of a mark's text */
    const char *text;
    uint32_t size, node;
};

static uint32_t watch_names(struct grammar *program, const struct watch_mark *marks, uint32_t n,
                            struct watch_name *names)
{
    uint32_t n_names = 0;
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t size = 0; size <= strlen(marks[i].text); size++) {
            bool is_new = true;
            for (uint32_t k = 0; k < n_names; k++)
                is_new &= names[k].size != size || memcmp(names[k].text, marks[i].text, size) != 0;
            if (is_new)
                names[n_names++] =
                    (struct watch_name){marks[i].text, size, program_node(program, NODE_BYTES)};
        }
    }
    return n_names;
}

/* Behind GRAMMAR_SPECIAL: the token's text, and where it leads; `back`: it is no mark. */
static uint32_t watch_special(struct grammar *program, const struct watch_mark *marks, uint32_t n,
                              uint32_t back)
{
    struct watch_name names[WATCH_SPECIALS * (LIMIT_WATCH_MARK_BYTES + 1)];
    struct watch_edges edges;
    const uint32_t n_names = watch_names(program, marks, n, names);
    const uint32_t other = program_node(program, NODE_BYTES);
    watch_all(&edges, other);
    edges.to[GRAMMAR_SPECIAL] = back;
    watch_set_edges(program, other, &edges);
    for (uint32_t i = 0; i < n_names; i++) {
        const struct watch_name *name = &names[i];
        watch_all(&edges, other);
        for (uint32_t k = 0; k < n_names; k++) {
            if (names[k].size == name->size + 1 &&
                memcmp(names[k].text, name->text, name->size) == 0)
                edges.to[(uint8_t)names[k].text[name->size]] = names[k].node;
        }
        edges.to[GRAMMAR_SPECIAL] = back;
        for (uint32_t k = 0; k < n; k++) {
            if (strlen(marks[k].text) == name->size &&
                memcmp(marks[k].text, name->text, name->size) == 0)
                edges.to[GRAMMAR_SPECIAL] = marks[k].target;
        }
        watch_set_edges(program, name->node, &edges);
    }
    return n_names ? names[0].node : other;
}

uint32_t watch_mark_text(struct grammar *program, const char *mark, uint32_t target)
{
    const uint32_t close = program_byte(program, (char)GRAMMAR_SPECIAL, target);
    const uint32_t special =
        program_byte(program, (char)GRAMMAR_SPECIAL, program_text(program, mark, close));
    return program_either(program, program_text(program, mark, target), special);
}

/* ---- text ---- */

static bool watch_has_state(const struct watch *watch, const char *text, uint32_t size)
{
    for (uint32_t i = 0; i < watch->n_states; i++) {
        if (watch->states[i].size == size && memcmp(watch->states[i].text, text, size) == 0)
            return true;
    }
    return false;
}

static void watch_add_state(struct watch *watch, const char *text, uint32_t size, uint32_t end)
{
    const uint32_t bytes = program_node(watch->program, NODE_BYTES);
    assert(watch->n_states < WATCH_STATES_MAX);
    watch->states[watch->n_states++] =
        (struct watch_state){text, size, bytes, program_either(watch->program, bytes, end)};
}

void watch_init(struct watch *watch, uint32_t end)
{
    assert(watch->n_marks <= LIMIT_WATCH_MARKS);
    watch->n_states = 0;
    watch_add_state(watch, "", 0, end);
    for (uint32_t i = 0; i < watch->n_marks; i++) {
        const char *text = watch->marks[i].text;
        assert(*text && strlen(text) <= LIMIT_WATCH_MARK_BYTES);
        for (uint32_t size = 1; size < strlen(text); size++) {
            if (!watch_has_state(watch, text, size))
                watch_add_state(watch, text, size, end);
        }
    }
}

uint32_t watch_root(const struct watch *watch)
{
    return watch->states[0].node;
}

/* Where the text goes on that ends with these bytes: behind a mark that they end with, or at the
 * longest part of one. */
static uint32_t watch_next(const struct watch *watch, const char *text, uint32_t size)
{
    for (uint32_t i = 0; i < watch->n_marks; i++) {
        const size_t length = strlen(watch->marks[i].text);
        if (length <= size && memcmp(text + size - length, watch->marks[i].text, length) == 0)
            return watch->marks[i].target;
    }
    const struct watch_state *longest = &watch->states[0];
    for (uint32_t i = 1; i < watch->n_states; i++) {
        const struct watch_state *state = &watch->states[i];
        if (state->size > longest->size && state->size <= size &&
            memcmp(text + size - state->size, state->text, state->size) == 0)
            longest = state;
    }
    return longest->node;
}

static void watch_edges_after(const struct watch *watch, const char *text, uint32_t size,
                              struct watch_edges *edges)
{
    char read[LIMIT_WATCH_MARK_BYTES + 1];
    memcpy(read, text, size);
    for (unsigned byte = 0; byte < 256; byte++) {
        read[size] = (char)byte;
        edges->to[byte] = watch_next(watch, read, size + 1);
    }
}

/* What special tokens do behind these bytes: the marks, and then the tokens that marks are made of.
 * How many. */
static uint32_t watch_specials(const struct watch *watch, const char *text, uint32_t size,
                               struct watch_mark specials[WATCH_SPECIALS])
{
    char read[2 * LIMIT_WATCH_MARK_BYTES + 1];
    uint32_t n = watch->n_marks;
    memcpy(specials, watch->marks, n * sizeof *specials);
    memcpy(read, text, size);
    for (uint32_t i = 0; i < watch->n_tokens; i++) {
        const uint32_t length = (uint32_t)strlen(watch->tokens[i]);
        memcpy(read + size, watch->tokens[i], length);
        specials[n++] =
            (struct watch_mark){watch->tokens[i], watch_next(watch, read, size + length)};
    }
    return n;
}

static bool watch_is_calm(const struct watch *watch)
{
    bool is_calm = true;
    for (uint32_t i = 0; i < watch->n_marks; i++)
        is_calm &= !vocabulary_byte_is_calm((uint8_t)watch->marks[i].text[0]);
    return is_calm;
}

void watch_fill(struct watch *watch)
{
    struct watch_mark specials[WATCH_SPECIALS];
    struct watch_edges edges;
    if (!watch->program->code)
        watch->program->nodes[watch->states[0].bytes].is_calm = watch_is_calm(watch);
    for (uint32_t i = 0; i < watch->n_states && !watch->program->code; i++) {
        const struct watch_state *state = &watch->states[i];
        watch_edges_after(watch, state->text, state->size, &edges);
        const uint32_t n = watch_specials(watch, state->text, state->size, specials);
        edges.to[GRAMMAR_SPECIAL] = watch_special(watch->program, specials, n, state->node);
        watch_set_edges(watch->program, state->bytes, &edges);
    }
}

/* ---- what a text may begin with ---- */

struct watch_opening {
    const struct watch *watch;
    const char *begin;
    uint32_t target, end;
    uint32_t nodes[LIMIT_WATCH_MARK_BYTES + 1]; /* that have read so many bytes of it */
};

/* The node that has read `read` bytes of the opening; behind a blank it goes on at `blank`. */
static uint32_t watch_opening_node(const struct watch_opening *opening, uint32_t read,
                                   uint32_t blank)
{
    const struct watch *watch = opening->watch;
    struct grammar *program = watch->program;
    const char *begin = opening->begin;
    const uint32_t bytes = program_node(program, NODE_BYTES);
    const uint32_t node = program_either(program, bytes, opening->end);
    struct watch_mark specials[WATCH_SPECIALS];
    struct watch_edges edges;
    uint32_t n = watch_specials(watch, begin, read, specials);
    for (uint32_t i = watch->n_marks; i < n; i++) {
        const size_t size = strlen(specials[i].text);
        if (strncmp(begin + read, specials[i].text, size) == 0)
            specials[i].target = opening->nodes[read + size];
    }
    specials[n++] = (struct watch_mark){begin, opening->target};
    watch_edges_after(watch, begin, read, &edges);
    if (blank)
        edges.to[' '] = edges.to['\n'] = edges.to['\r'] = edges.to['\t'] = blank;
    edges.to[(uint8_t)begin[read]] = opening->nodes[read + 1];
    edges.to[GRAMMAR_SPECIAL] = watch_special(program, specials, n, node);
    watch_set_edges(program, bytes, &edges);
    return node;
}

uint32_t watch_opening(const struct watch *watch, const char *begin, uint32_t target, uint32_t end)
{
    const uint32_t size = (uint32_t)strlen(begin);
    struct watch_opening opening = {.watch = watch, .begin = begin, .target = target, .end = end};
    uint32_t entry = 0;
    assert(size && size <= LIMIT_WATCH_MARK_BYTES);
    opening.nodes[size] = target;
    for (uint32_t read = size; read-- > 1;)
        opening.nodes[read] = watch_opening_node(&opening, read, 0);
    for (int i = 0; i <= WATCH_BLANKS; i++)
        entry = watch_opening_node(&opening, 0, entry);
    return entry;
}
