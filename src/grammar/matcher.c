#include "grammar/grammar.h"

#include "base/mem.h"
#include "grammar/matcher_state.h"

#include <stdatomic.h>
#include <string.h>

/* No two beginnings of any matchers have the same, so no run takes one for the other. */
static _Atomic uint64_t matcher_epochs;

static void matcher_forget(struct grammar_matcher *matcher)
{
    for (uint32_t i = 0; i < matcher->state_names.count && i < matcher->states_room; i++) {
        mem_free(matcher->states[i].next);
        mem_free(matcher->states[i].mask);
    }
    mem_free(matcher->states);
    matcher->states = NULL;
    matcher->states_room = 0;
    matcher->next_bytes = matcher->mask_bytes = 0;
    word_table_deinit(&matcher->stacks);
    word_table_deinit(&matcher->registers);
    word_table_deinit(&matcher->state_names);
    word_table_deinit(&matcher->seen);
    word_table_deinit(&matcher->unions);
    word_table_deinit(&matcher->lows);
}

void grammar_matcher_free(struct grammar_matcher *matcher)
{
    if (!matcher)
        return;
    matcher_forget(matcher);
    mem_free(matcher->pending);
    mem_free(matcher->found);
    mem_free(matcher->union_results);
    mem_free(matcher->low_results);
    mem_free(matcher->words);
    mem_free(matcher->path);
    mem_free(matcher);
}

size_t grammar_matcher_bytes(const struct grammar_matcher *matcher)
{
    return word_table_bytes(&matcher->stacks) + word_table_bytes(&matcher->registers) +
           word_table_bytes(&matcher->state_names) + word_table_bytes(&matcher->unions) +
           word_table_bytes(&matcher->lows) + matcher->next_bytes + matcher->mask_bytes +
           (size_t)matcher->states_room * sizeof *matcher->states;
}

/* State 0 is dead, stack 0 the bottom. */
static enum error_code matcher_begin(struct grammar_matcher *matcher, struct error *err)
{
    const uint32_t dead = 2;
    matcher->epoch = atomic_fetch_add(&matcher_epochs, 1) + 1;
    matcher->code = ERROR_NONE;
    if (word_table_add(&matcher->stacks, NULL, 0, 1) != 0 ||
        word_table_add(&matcher->state_names, &dead, 1, 1) != 0)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for a grammar's states");
    matcher->start = matcher_start(matcher);
    return matcher->code ? error_set(err, matcher->code, "the grammar is too ambiguous")
                         : ERROR_NONE;
}

enum error_code grammar_matcher_new(const struct grammar *grammar,
                                    const struct grammar_vocabulary *vocabulary,
                                    struct grammar_matcher **out, struct error *err)
{
    struct grammar_matcher *matcher = mem_new(sizeof *matcher);
    if (!matcher)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for a matcher");
    matcher->grammar = grammar;
    matcher->vocabulary = vocabulary;
    matcher->path = mem_new_array(VOCABULARY_TOKEN_MAX + 1, sizeof *matcher->path);
    enum error_code code = ERROR_NONE;
    if (!matcher->path)
        code = error_set(err, ERROR_NO_MEMORY, "not enough memory for a matcher");
    if (!code)
        code = matcher_begin(matcher, err);
    if (code) {
        grammar_matcher_free(matcher);
        return code;
    }
    *out = matcher;
    return ERROR_NONE;
}

/* ---- runs ---- */

void grammar_run_deinit(struct grammar_run *run)
{
    mem_free(run->bytes);
    *run = (struct grammar_run){0};
}

void grammar_run_clear(struct grammar_run *run)
{
    run->n_bytes = 0;
    run->epoch = 0;
}

static enum error_code grammar_run_reserve(struct grammar_run *run, size_t more, struct error *err)
{
    if (run->n_bytes + more <= run->room)
        return ERROR_NONE;
    const size_t room = (run->n_bytes + more) * 2 + 256;
    char *bytes = mem_resize(run->bytes, room, 1);
    if (!bytes)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for a grammar's run");
    run->bytes = bytes;
    run->room = room;
    return ERROR_NONE;
}

enum error_code grammar_run_copy(const struct grammar_run *from, struct grammar_run *to,
                                 struct error *err)
{
    struct grammar_run copy = *from;
    copy.bytes = NULL;
    copy.n_bytes = copy.room = 0;
    const enum error_code code = grammar_run_reserve(&copy, from->n_bytes, err);
    if (code)
        return code;
    if (from->n_bytes)
        memcpy(copy.bytes, from->bytes, from->n_bytes);
    copy.n_bytes = from->n_bytes;
    *to = copy;
    return ERROR_NONE;
}

static enum error_code matcher_error(struct grammar_matcher *matcher, struct error *err)
{
    const enum error_code code = matcher->code;
    if (code == ERROR_NO_MEMORY)
        return error_set(err, code, "not enough memory for a grammar's states");
    return error_set(err, code, "the grammar is too ambiguous here");
}

static uint32_t matcher_walk(struct grammar_matcher *matcher, uint32_t state, const char *bytes,
                             size_t size)
{
    for (size_t i = 0; i < size && state; i++)
        state = matcher_step(matcher, state, (uint8_t)bytes[i]);
    return state;
}

/* Forgets what is too much, and brings a run of before to where it was. */
static enum error_code matcher_enter(struct grammar_matcher *matcher, struct grammar_run *run,
                                     struct error *err)
{
    if (matcher->code || grammar_matcher_bytes(matcher) > LIMIT_MATCHER_BYTES) {
        matcher_forget(matcher);
        const enum error_code code = matcher_begin(matcher, err);
        if (code)
            return code;
    }
    if (run->epoch == matcher->epoch)
        return ERROR_NONE;
    run->state = matcher_walk(matcher, matcher->start, run->bytes, run->n_bytes);
    if (matcher->code)
        return matcher_error(matcher, err);
    run->epoch = matcher->epoch;
    return ERROR_NONE;
}

enum error_code grammar_take(struct grammar_matcher *matcher, struct grammar_run *run,
                             const char *bytes, size_t size, struct error *err)
{
    enum error_code code = matcher_enter(matcher, run, err);
    if (!code)
        code = grammar_run_reserve(run, size, err);
    if (code)
        return code;
    const uint32_t state = matcher_walk(matcher, run->state, bytes, size);
    if (matcher->code)
        return matcher_error(matcher, err);
    if (state == MATCHER_DEAD)
        return error_set(err, ERROR_INVALID, "the grammar does not allow this text here");
    if (size)
        memcpy(run->bytes + run->n_bytes, bytes, size);
    run->n_bytes += size;
    run->state = state;
    return ERROR_NONE;
}

enum error_code grammar_take_token(struct grammar_matcher *matcher, struct grammar_run *run,
                                   int32_t token, struct error *err)
{
    const struct grammar_vocabulary *vocabulary = matcher->vocabulary;
    if (token < 0 || (uint32_t)token >= vocabulary->n_vocab)
        return error_set(err, ERROR_INVALID, "token %d is not in the vocabulary", token);
    const uint64_t start = vocabulary->starts[token], end = vocabulary->starts[token + 1];
    const bool is_end = vocabulary->is_end[token / 64] >> (token % 64) & 1;
    bool may_end = false, must_end;
    if (is_end) {
        enum error_code code = grammar_may_end(matcher, run, &may_end, &must_end, err);
        if (code || may_end)
            return code;
    }
    if (is_end || start == end)
        return error_set(err, ERROR_INVALID, "the grammar does not allow token %d here", token);
    return grammar_take(matcher, run, vocabulary->bytes + start, (size_t)(end - start), err);
}

enum error_code grammar_may_end(struct grammar_matcher *matcher, struct grammar_run *run,
                                bool *may_end, bool *must_end, struct error *err)
{
    const enum error_code code = matcher_enter(matcher, run, err);
    if (code)
        return code;
    *may_end = run->state && matcher_may_end(matcher, run->state);
    *must_end = matcher_must_end(matcher, run->state);
    return ERROR_NONE;
}

/* ---- masks ---- */

static void mask_add(uint64_t *mask, const int32_t *ids, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        mask[ids[i] / 64] |= UINT64_C(1) << (ids[i] % 64);
}

/* `is_plain`: below a state that takes any characters, all of the trie is allowed; and below one
 * that takes any calm bytes, what has no others. */
static void matcher_walk_trie(struct grammar_matcher *matcher, const struct token_trie *trie,
                              uint32_t state, bool is_plain, uint64_t *mask)
{
    uint32_t *path = matcher->path;
    path[0] = state;
    for (uint32_t node = 1; node < trie->n_nodes && !matcher->code;) {
        const uint32_t depth = trie->depths[node];
        const uint32_t next = matcher_step(matcher, path[depth - 1], trie->bytes[node]);
        if (next == MATCHER_DEAD) {
            node = trie->ends[node];
            continue;
        }
        path[depth] = next;
        if ((is_plain && matcher->states[next].n_plain >= matcher->vocabulary->longest_plain) ||
            (matcher->states[next].is_calm && trie->calm[node])) {
            const uint32_t end = trie->ends[node];
            mask_add(mask, trie->ids + trie->tokens[node], trie->tokens[end] - trie->tokens[node]);
            node = end;
            continue;
        }
        /* A node's own tokens are those before the next node's. */
        const uint32_t from = trie->tokens[node];
        mask_add(mask, trie->ids + from, trie->tokens[node + 1] - from);
        node++;
    }
}

static uint64_t *matcher_make_mask(struct grammar_matcher *matcher, uint32_t state)
{
    const struct grammar_vocabulary *vocabulary = matcher->vocabulary;
    const size_t n = vocabulary->n_mask_words;
    uint64_t *mask = mem_new_array(n + 1, sizeof *mask);
    if (!mask) {
        matcher_fail(matcher, ERROR_NO_MEMORY);
        return NULL;
    }
    if (matcher->states[state].n_plain >= vocabulary->longest_plain)
        memcpy(mask, vocabulary->all_plain, n * sizeof *mask);
    else
        matcher_walk_trie(matcher, &vocabulary->plain, state, true, mask);
    matcher_walk_trie(matcher, &vocabulary->others, state, false, mask);
    if (matcher_may_end(matcher, state))
        mask_add(mask, vocabulary->end_tokens, vocabulary->n_ends);
    if (matcher->code) {
        mem_free(mask);
        return NULL;
    }
    matcher->mask_bytes += n * sizeof *mask;
    return mask;
}

enum error_code grammar_mask(struct grammar_matcher *matcher, struct grammar_run *run,
                             const uint64_t **bits, struct error *err)
{
    const enum error_code code = matcher_enter(matcher, run, err);
    if (code)
        return code;
    const uint32_t like = matcher_alike(matcher, run->state);
    if (!matcher->code && !matcher->states[like].mask) {
        uint64_t *mask = matcher_make_mask(matcher, like);
        if (mask)
            matcher->states[like].mask = mask;
    }
    if (matcher->code)
        return matcher_error(matcher, err);
    *bits = matcher->states[like].mask;
    return ERROR_NONE;
}
