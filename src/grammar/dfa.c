#include "grammar/dfa.h"

#include "base/mem.h"
#include "grammar/grammar.h"
#include "grammar/word_table.h"

#include <stdlib.h>
#include <string.h>

void dfa_free(struct dfa *dfa)
{
    if (!dfa)
        return;
    mem_free(dfa->bounds);
    mem_free(dfa->next);
    mem_free(dfa->labels);
    mem_free(dfa);
}

static enum error_code dfa_no_memory(struct error *err)
{
    return error_set(err, ERROR_NO_MEMORY, "not enough memory for an automaton");
}

/* ---- exploring: states as words, then as numbers from 1 on (0 is dead) ---- */

struct dfa_exploration {
    const struct dfa_source *source;
    struct word_table names;
    uint32_t *next, *labels;
    uint32_t room;
};

static bool dfa_reserve(struct dfa_exploration *all, uint32_t n)
{
    if (n <= all->room)
        return true;
    const uint32_t room = n < 16 ? 16 : n * 2;
    uint32_t *next = mem_resize(all->next, (size_t)room * all->source->n_ranges, sizeof *next);
    if (next)
        all->next = next;
    uint32_t *labels = mem_resize(all->labels, room, sizeof *labels);
    if (labels)
        all->labels = labels;
    if (!next || !labels)
        return false;
    all->room = room;
    return true;
}

static enum error_code dfa_expand(struct dfa_exploration *all, uint32_t state, uint32_t states_max,
                                  uint32_t *from, uint32_t *to, struct error *err)
{
    const struct dfa_source *source = all->source;
    size_t n;
    memcpy(from, word_table_get(&all->names, state - 1, &n), source->n_words * sizeof *from);
    if (!dfa_reserve(all, state + 1))
        return dfa_no_memory(err);
    all->labels[state] = source->label(source->context, from);
    for (uint32_t range = 0; range < source->n_ranges; range++) {
        uint32_t target = 0;
        if (source->step(source->context, from, range, to)) {
            target = word_table_add(&all->names, to, source->n_words, states_max) + 1;
            if (target == 0)
                return all->names.count >= states_max
                           ? error_set(err, ERROR_BUSY, "needs more than %u states", states_max)
                           : dfa_no_memory(err);
        }
        all->next[(size_t)state * source->n_ranges + range] = target;
    }
    return ERROR_NONE;
}

/* States from which nothing is accepted become 0, the others are numbered without gaps. */
static enum error_code dfa_trim(struct dfa *dfa, struct error *err)
{
    uint32_t *number = mem_new_array(dfa->n_states, sizeof *number);
    if (!number)
        return dfa_no_memory(err);
    for (uint32_t state = 1; state < dfa->n_states; state++)
        number[state] = dfa->labels[state] != 0;
    for (bool more = true; more;) {
        more = false;
        for (uint32_t state = dfa->n_states - 1; state; state--) {
            const uint32_t *next = dfa->next + (size_t)state * dfa->n_ranges;
            for (uint32_t range = 0; !number[state] && range < dfa->n_ranges; range++)
                more |= (number[state] = number[next[range]]) != 0;
        }
    }
    uint32_t n = 1;
    for (uint32_t state = 1; state < dfa->n_states; state++)
        number[state] = number[state] ? n++ : 0;
    for (uint32_t state = 1; state < dfa->n_states; state++) {
        if (!number[state])
            continue;
        const uint32_t *from = dfa->next + (size_t)state * dfa->n_ranges;
        uint32_t *to = dfa->next + (size_t)number[state] * dfa->n_ranges;
        for (uint32_t range = 0; range < dfa->n_ranges; range++)
            to[range] = number[from[range]];
        dfa->labels[number[state]] = dfa->labels[state];
    }
    dfa->start = number[dfa->start];
    dfa->n_states = n;
    mem_free(number);
    return ERROR_NONE;
}

enum error_code dfa_explore(const struct dfa_source *source, uint32_t states_max, struct dfa **out,
                            struct error *err)
{
    struct dfa_exploration all = {.source = source};
    uint32_t *from = mem_new_array(source->n_words * 2, sizeof *from);
    struct dfa *dfa = mem_new(sizeof *dfa);
    uint32_t *bounds = mem_new_array(source->n_ranges, sizeof *bounds);
    enum error_code code = ERROR_NONE;
    if (!from || !dfa || !bounds || !dfa_reserve(&all, 2) ||
        word_table_add(&all.names, source->start, source->n_words, 1) != 0)
        code = dfa_no_memory(err);
    if (!code) {
        memset(all.next, 0, source->n_ranges * sizeof *all.next);
        all.labels[0] = 0;
    }
    for (uint32_t state = 1; !code && state <= all.names.count; state++)
        code = dfa_expand(&all, state, states_max, from, from + source->n_words, err);
    if (!code) {
        memcpy(bounds, source->bounds, source->n_ranges * sizeof *bounds);
        *dfa = (struct dfa){.n_states = all.names.count + 1,
                            .n_ranges = source->n_ranges,
                            .start = 1,
                            .bounds = bounds,
                            .next = all.next,
                            .labels = all.labels};
        code = dfa_trim(dfa, err);
    }
    word_table_deinit(&all.names);
    mem_free(from);
    if (code) {
        mem_free(all.next);
        mem_free(all.labels);
        mem_free(bounds);
        mem_free(dfa);
        return code;
    }
    *out = dfa;
    return ERROR_NONE;
}

/* ---- the alphabet ---- */

uint32_t *dfa_merge_bounds(const uint32_t *a, uint32_t n_a, const uint32_t *b, uint32_t n_b,
                           uint32_t *n)
{
    uint32_t *bounds = mem_new_array((size_t)n_a + n_b + 1, sizeof *bounds);
    if (!bounds)
        return NULL;
    *n = 0;
    for (uint32_t i = 0, j = 0; i < n_a || j < n_b;) {
        const uint32_t from_a = i < n_a ? a[i] : UINT32_MAX, from_b = j < n_b ? b[j] : UINT32_MAX;
        const uint32_t bound = from_a < from_b ? from_a : from_b;
        i += from_a == bound;
        j += from_b == bound;
        bounds[(*n)++] = bound;
    }
    return bounds;
}

uint32_t dfa_range_of(const struct dfa *dfa, uint32_t code_point)
{
    uint32_t low = 0, high = dfa->n_ranges;
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if (dfa->bounds[middle] <= code_point)
            low = middle;
        else
            high = middle;
    }
    return low;
}

uint32_t dfa_read_code_point(const char **at, const char *end)
{
    const unsigned char *byte = (const unsigned char *)*at;
    const size_t left = (size_t)(end - *at);
    const unsigned n = byte[0] < 0x80   ? 1
                       : byte[0] < 0xc2 ? 0
                       : byte[0] < 0xe0 ? 2
                       : byte[0] < 0xf0 ? 3
                       : byte[0] < 0xf5 ? 4
                                        : 0;
    uint32_t code_point = n > 1 ? byte[0] & (0x7fu >> n) : byte[0];
    bool is_valid = n && n <= left;
    for (unsigned i = 1; is_valid && i < n; i++) {
        is_valid = (byte[i] & 0xc0) == 0x80;
        code_point = code_point << 6 | (byte[i] & 0x3f);
    }
    *at += is_valid ? n : 1;
    return is_valid ? code_point : 0xfffd;
}

uint32_t dfa_label_of(const struct dfa *dfa, const char *text, size_t size)
{
    uint32_t state = dfa->start;
    for (const char *at = text; at < text + size;) {
        const uint32_t code_point = dfa_read_code_point(&at, text + size);
        state = dfa->next[(size_t)state * dfa->n_ranges + dfa_range_of(dfa, code_point)];
    }
    return dfa->labels[state];
}

bool dfa_is_empty(const struct dfa *dfa)
{
    return dfa->start == 0;
}

/* ---- two at once ---- */

struct dfa_pair {
    const struct dfa *a, *b;
    bool a_inverted, b_inverted;
    const uint32_t *bounds;
};

static bool dfa_pair_step(const void *context, const uint32_t *from, uint32_t range, uint32_t *to)
{
    const struct dfa_pair *pair = context;
    const uint32_t first = pair->bounds[range];
    const struct dfa *a = pair->a, *b = pair->b;
    to[0] = a->next[(size_t)from[0] * a->n_ranges + dfa_range_of(a, first)];
    to[1] = b->next[(size_t)from[1] * b->n_ranges + dfa_range_of(b, first)];
    return (to[0] || pair->a_inverted) && (to[1] || pair->b_inverted);
}

static uint32_t dfa_pair_label(const void *context, const uint32_t *state)
{
    const struct dfa_pair *pair = context;
    return (pair->a->labels[state[0]] != 0) != pair->a_inverted &&
           (pair->b->labels[state[1]] != 0) != pair->b_inverted;
}

enum error_code dfa_both(const struct dfa *a, bool a_inverted, const struct dfa *b, bool b_inverted,
                         struct dfa **out, struct error *err)
{
    uint32_t n;
    uint32_t *bounds = dfa_merge_bounds(a->bounds, a->n_ranges, b->bounds, b->n_ranges, &n);
    if (!bounds)
        return dfa_no_memory(err);
    const struct dfa_pair pair = {a, b, a_inverted, b_inverted, bounds};
    const uint32_t start[2] = {a->start, b->start};
    const struct dfa_source source = {&pair, bounds, n, 2, start, dfa_pair_step, dfa_pair_label};
    const enum error_code code = dfa_explore(&source, LIMIT_GRAMMAR_DFA_STATES, out, err);
    mem_free(bounds);
    return code;
}

enum error_code dfa_inverted(const struct dfa *dfa, struct dfa **out, struct error *err)
{
    return dfa_both(dfa, true, dfa, true, out, err);
}

/* ---- counted ---- */

struct dfa_counted {
    const struct dfa *dfa;
    uint32_t n_min, n_max;
};

static bool dfa_counted_step(const void *context, const uint32_t *from, uint32_t range,
                             uint32_t *to)
{
    const struct dfa_counted *counted = context;
    to[0] = counted->dfa->next[(size_t)from[0] * counted->dfa->n_ranges + range];
    /* Without an upper bound all that are long enough are alike. */
    const bool is_enough = counted->n_max == UINT32_MAX && from[1] >= counted->n_min;
    to[1] = is_enough ? from[1] : from[1] + 1;
    return to[0] && to[1] <= counted->n_max;
}

static uint32_t dfa_counted_label(const void *context, const uint32_t *state)
{
    const struct dfa_counted *counted = context;
    return counted->dfa->labels[state[0]] && state[1] >= counted->n_min;
}

enum error_code dfa_with_length(const struct dfa *dfa, uint32_t n_min, uint32_t n_max,
                                struct dfa **out, struct error *err)
{
    const struct dfa_counted counted = {dfa, n_min, n_max};
    const uint32_t start[2] = {dfa->start, 0};
    const struct dfa_source source = {&counted, dfa->bounds,      dfa->n_ranges,    2,
                                      start,    dfa_counted_step, dfa_counted_label};
    return dfa_explore(&source, LIMIT_GRAMMAR_DFA_STATES, out, err);
}

/* ---- a list of texts: the state is the run of sorted texts with a prefix, and its length ---- */

struct dfa_texts {
    const struct dfa_text *texts; /* sorted by `order` */
    uint32_t *order;
    uint32_t n;
    const uint32_t *bounds;
};

static const struct dfa_text *dfa_text_at(const struct dfa_texts *all, uint32_t i)
{
    return &all->texts[all->order[i]];
}

/* The first of those texts whose next code point is `wanted` or more. They are sorted, and UTF-8
 * sorts as code points do. */
static uint32_t dfa_texts_find(const struct dfa_texts *all, const uint32_t *from, uint32_t wanted)
{
    uint32_t low = from[0], high = from[1];
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        const struct dfa_text *text = dfa_text_at(all, middle);
        const char *at = text->data + from[2];
        if (text->size <= from[2] || dfa_read_code_point(&at, text->data + text->size) < wanted)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool dfa_texts_step(const void *context, const uint32_t *from, uint32_t range, uint32_t *to)
{
    const struct dfa_texts *all = context;
    const uint32_t wanted = all->bounds[range];
    to[0] = dfa_texts_find(all, from, wanted);
    if (to[0] == from[1])
        return false;
    const struct dfa_text *text = dfa_text_at(all, to[0]);
    const char *at = text->data + from[2];
    const uint32_t found = dfa_read_code_point(&at, text->data + text->size);
    to[1] = dfa_texts_find(all, from, wanted + 1);
    to[2] = (uint32_t)(at - text->data);
    return found == wanted;
}

static uint32_t dfa_texts_label(const void *context, const uint32_t *state)
{
    const struct dfa_texts *all = context;
    uint32_t label = 0;
    for (uint32_t i = state[0]; i < state[1]; i++) {
        const uint32_t number = all->order[i] + 1;
        if (dfa_text_at(all, i)->size == state[2] && (!label || number < label))
            label = number;
    }
    return label;
}

static int dfa_text_compare(const struct dfa_text *a, const struct dfa_text *b)
{
    const size_t n = a->size < b->size ? a->size : b->size;
    const int order = n ? memcmp(a->data, b->data, n) : 0;
    return order ? order : (a->size > b->size) - (a->size < b->size);
}

/* Merge sort: a list that is already sorted, and one that somebody chose, both take n log n. */
static void dfa_texts_sort(const struct dfa_text *texts, uint32_t *order, uint32_t n,
                           uint32_t *scratch)
{
    if (n < 2)
        return;
    const uint32_t half = n / 2;
    dfa_texts_sort(texts, order, half, scratch);
    dfa_texts_sort(texts, order + half, n - half, scratch);
    uint32_t i = 0, j = half;
    for (uint32_t k = 0; k < n; k++) {
        const bool is_left =
            j == n || (i < half && dfa_text_compare(&texts[order[i]], &texts[order[j]]) <= 0);
        scratch[k] = is_left ? order[i++] : order[j++];
    }
    memcpy(order, scratch, n * sizeof *order);
}

static int dfa_bound_compare(const void *a, const void *b)
{
    const uint32_t first = *(const uint32_t *)a, second = *(const uint32_t *)b;
    return (first > second) - (first < second);
}

/* A range for each code point that occurs, and for those between. */
static uint32_t *dfa_texts_bounds(const struct dfa_text *texts, uint32_t n, uint32_t *n_bounds)
{
    size_t size = 0, count = 1, kept = 1;
    for (uint32_t i = 0; i < n; i++)
        size += texts[i].size;
    uint32_t *bounds = mem_new_array(size * 2 + 1, sizeof *bounds);
    if (!bounds)
        return NULL;
    for (uint32_t i = 0; i < n; i++) {
        const char *end = texts[i].data + texts[i].size;
        for (const char *at = texts[i].data; at < end;) {
            const uint32_t code_point = dfa_read_code_point(&at, end);
            bounds[count++] = code_point;
            bounds[count++] = code_point + 1;
        }
    }
    qsort(bounds, count, sizeof *bounds, dfa_bound_compare);
    for (size_t i = 1; i < count; i++) {
        if (bounds[i] != bounds[kept - 1] && bounds[i] < CODE_POINT_END)
            bounds[kept++] = bounds[i];
    }
    *n_bounds = (uint32_t)kept;
    return bounds;
}

enum error_code dfa_of_texts(const struct dfa_text *texts, uint32_t n, struct dfa **out,
                             struct error *err)
{
    uint32_t n_bounds = 0;
    uint32_t *bounds = dfa_texts_bounds(texts, n, &n_bounds);
    uint32_t *order = mem_new_array((size_t)n * 2 + 1, sizeof *order);
    enum error_code code = ERROR_NONE;
    if (!bounds || !order)
        code = dfa_no_memory(err);
    for (uint32_t i = 0; !code && i < n; i++)
        order[i] = i;
    if (!code) {
        dfa_texts_sort(texts, order, n, order + n);
        const struct dfa_texts all = {texts, order, n, bounds};
        const uint32_t start[3] = {0, n, 0};
        const struct dfa_source source = {&all,  bounds,         n_bounds,       3,
                                          start, dfa_texts_step, dfa_texts_label};
        code = dfa_explore(&source, LIMIT_GRAMMAR_DFA_STATES, out, err);
    }
    mem_free(bounds);
    mem_free(order);
    return code;
}
