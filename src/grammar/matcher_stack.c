/* Stacks that share: two that meet become one. And their like with low counters. */
#include "grammar/matcher_state.h"

#include "base/mem.h"

#include <string.h>

enum { STACK_DEPTH_MAX = 4096 };

/* The results of a function of words, each computed once. */
static bool matcher_remember(struct grammar_matcher *matcher, struct word_table *names,
                             uint32_t **results, uint32_t *room, const uint32_t *words, size_t n,
                             uint32_t result)
{
    const uint32_t number = word_table_add(names, words, n, 1u << 24);
    if (number == WORD_TABLE_NONE || !matcher_room((void **)results, room, number + 1, 4)) {
        matcher_fail(matcher, ERROR_NO_MEMORY);
        return false;
    }
    (*results)[number] = result;
    return true;
}

static uint32_t matcher_recall(const struct word_table *names, const uint32_t *results,
                               const uint32_t *words, size_t n)
{
    const uint32_t number = word_table_add((struct word_table *)names, words, n, names->count);
    return number == WORD_TABLE_NONE ? WORD_TABLE_NONE : results[number];
}

static int matcher_entry_compare(const uint32_t *a, const uint32_t *b)
{
    if (a[0] != b[0])
        return a[0] < b[0] ? -1 : 1;
    return (a[1] > b[1]) - (a[1] < b[1]);
}

static uint32_t matcher_join_deep(struct grammar_matcher *matcher, uint32_t a, uint32_t b,
                                  unsigned depth)
{
    if (a == b || matcher->code)
        return a;
    if (depth > STACK_DEPTH_MAX)
        return matcher_fail(matcher, ERROR_BUSY);
    const uint32_t name[2] = {a < b ? a : b, a < b ? b : a};
    const uint32_t known = matcher_recall(&matcher->unions, matcher->union_results, name, 2);
    if (known != WORD_TABLE_NONE)
        return known;
    size_t n_a, n_b, n = 0, i = 0, j = 0;
    word_table_get(&matcher->stacks, a, &n_a);
    word_table_get(&matcher->stacks, b, &n_b);
    uint32_t *out = mem_new_array(n_a + n_b + 1, sizeof *out);
    if (!out)
        return matcher_fail(matcher, ERROR_NO_MEMORY);
    while (i < n_a || j < n_b) { /* the tables may move below: read them anew */
        const uint32_t *from_a = word_table_get(&matcher->stacks, a, &n_a) + i;
        const uint32_t *from_b = word_table_get(&matcher->stacks, b, &n_b) + j;
        const int order = i == n_a ? 1 : j == n_b ? -1 : matcher_entry_compare(from_a, from_b);
        memcpy(out + n, order <= 0 ? from_a : from_b, THREAD_WORDS * sizeof *out);
        if (order == 0)
            out[n + 2] = matcher_join_deep(matcher, from_a[2], from_b[2], depth + 1);
        i += order <= 0 ? THREAD_WORDS : 0;
        j += order >= 0 ? THREAD_WORDS : 0;
        n += THREAD_WORDS;
    }
    const uint32_t joined = word_table_add(&matcher->stacks, out, n, 1u << 24);
    mem_free(out);
    if (joined == WORD_TABLE_NONE)
        return matcher_fail(matcher, ERROR_NO_MEMORY);
    matcher_remember(matcher, &matcher->unions, &matcher->union_results, &matcher->unions_room,
                     name, 2, joined);
    return joined;
}

uint32_t matcher_join(struct grammar_matcher *matcher, uint32_t a, uint32_t b)
{
    return matcher_join_deep(matcher, a, b, 0);
}

/* ---- counters that no single token brings to a bound ---- */

static uint32_t matcher_low_register(const struct grammar_matcher *matcher, uint32_t node,
                                     uint32_t reg)
{
    const uint32_t loop = matcher->grammar->nodes[node].loop;
    if (!loop)
        return reg;
    const struct grammar_loop *bounds = &matcher->grammar->loops[loop - 1];
    const uint64_t reach = (uint64_t)reg + matcher->vocabulary->longest + 1;
    if (reach < bounds->n_min)
        return 0;
    if (reg >= bounds->n_min && reach < bounds->n_max)
        return bounds->n_min;
    return reg;
}

static uint32_t matcher_low_stack(struct grammar_matcher *matcher, uint32_t stack, unsigned depth)
{
    if (stack == 0 || matcher->code)
        return stack;
    if (depth > STACK_DEPTH_MAX)
        return stack;
    const uint32_t known = matcher_recall(&matcher->lows, matcher->low_results, &stack, 1);
    if (known != WORD_TABLE_NONE)
        return known;
    size_t n;
    word_table_get(&matcher->stacks, stack, &n);
    uint32_t low = 0;
    for (size_t i = 0; i < n; i += THREAD_WORDS) {
        uint32_t entry[THREAD_WORDS];
        memcpy(entry, word_table_get(&matcher->stacks, stack, &n) + i, sizeof entry);
        entry[1] = matcher_low_register(matcher, entry[0], entry[1]);
        entry[2] = matcher_low_stack(matcher, entry[2], depth + 1);
        const uint32_t one = word_table_add(&matcher->stacks, entry, THREAD_WORDS, 1u << 24);
        if (one == WORD_TABLE_NONE)
            return matcher_fail(matcher, ERROR_NO_MEMORY);
        low = i ? matcher_join(matcher, low, one) : one;
    }
    matcher_remember(matcher, &matcher->lows, &matcher->low_results, &matcher->lows_room, &stack, 1,
                     low);
    return low;
}

uint32_t matcher_alike(struct grammar_matcher *matcher, uint32_t state)
{
    if (matcher->states[state].like != MATCHER_UNKNOWN)
        return matcher->states[state].like;
    uint32_t n;
    matcher_threads(matcher, state, &n);
    struct matcher_thread *threads = mem_new_array((size_t)n + 1, sizeof *threads);
    if (!threads)
        return matcher_fail(matcher, ERROR_NO_MEMORY);
    if (n)
        memcpy(threads, matcher_threads(matcher, state, &n), n * sizeof *threads);
    for (uint32_t i = 0; i < n; i++) {
        threads[i].reg = matcher_low_register(matcher, threads[i].node, threads[i].reg);
        threads[i].stack = matcher_low_stack(matcher, threads[i].stack, 0);
    }
    const uint32_t like = matcher_state_of(matcher, threads, n, matcher_may_end(matcher, state));
    mem_free(threads);
    if (matcher->code)
        return state;
    matcher->states[state].like = like;
    return like;
}
