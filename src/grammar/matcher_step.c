/* From a state to the next: each thread takes the byte, then all that needs no byte is followed. */
#include "grammar/matcher_state.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

uint32_t matcher_fail(struct grammar_matcher *matcher, enum error_code code)
{
    if (!matcher->code)
        matcher->code = code;
    return MATCHER_DEAD;
}

bool matcher_room(void **array, uint32_t *room, uint32_t n, size_t size)
{
    if (n <= *room)
        return true;
    const uint32_t wanted = n < 32 ? 64 : n * 2;
    void *resized = mem_resize(*array, wanted, size);
    if (!resized)
        return false;
    *array = resized;
    *room = wanted;
    return true;
}

uint32_t *matcher_words(struct grammar_matcher *matcher, size_t n)
{
    if (n > matcher->words_room) {
        uint32_t *words = mem_resize(matcher->words, n * 2, sizeof *words);
        if (!words) {
            matcher_fail(matcher, ERROR_NO_MEMORY);
            return NULL;
        }
        matcher->words = words;
        matcher->words_room = n * 2;
    }
    return matcher->words;
}

const struct matcher_thread *matcher_threads(const struct grammar_matcher *matcher, uint32_t state,
                                             uint32_t *n)
{
    size_t words;
    const uint32_t *name = word_table_get(&matcher->state_names, state, &words);
    *n = (uint32_t)(words / THREAD_WORDS);
    return (const struct matcher_thread *)(name + 1);
}

bool matcher_may_end(const struct grammar_matcher *matcher, uint32_t state)
{
    size_t n;
    return word_table_get(&matcher->state_names, state, &n)[0] == 1;
}

bool matcher_must_end(const struct grammar_matcher *matcher, uint32_t state)
{
    uint32_t n;
    matcher_threads(matcher, state, &n);
    return n == 0;
}

/* ---- the closure ---- */

static void matcher_push(struct grammar_matcher *matcher, uint32_t node, uint32_t reg,
                         uint32_t stack)
{
    if (!matcher->grammar->nodes[node].is_live || matcher->code)
        return;
    if (matcher->n_pending >= LIMIT_MATCHER_THREADS * 4 ||
        !matcher_room((void **)&matcher->pending, &matcher->pending_room, matcher->n_pending + 1,
                      sizeof *matcher->pending)) {
        matcher_fail(matcher, ERROR_BUSY);
        return;
    }
    matcher->pending[matcher->n_pending++] = (struct matcher_thread){node, reg, stack};
}

static void matcher_call(struct grammar_matcher *matcher, const struct grammar_node *node,
                         const struct matcher_thread *at)
{
    const struct grammar *program = matcher->grammar;
    uint32_t stack = at->stack;
    if (program->nodes[node->then].kind != NODE_RETURN) { /* else what is below is what follows */
        const uint32_t entry[THREAD_WORDS] = {node->then, at->reg, at->stack};
        stack = word_table_add(&matcher->stacks, entry, THREAD_WORDS, 1u << 24);
        if (stack == WORD_TABLE_NONE) {
            matcher_fail(matcher, ERROR_NO_MEMORY);
            return;
        }
    }
    matcher_push(matcher, program->rules[node->n], 0, stack);
}

static void matcher_return(struct grammar_matcher *matcher, uint32_t stack, bool *may_end)
{
    size_t n;
    const uint32_t *entries = word_table_get(&matcher->stacks, stack, &n);
    if (stack == 0)
        *may_end = true;
    for (size_t i = 0; i < n; i += THREAD_WORDS)
        matcher_push(matcher, entries[i], entries[i + 1], entries[i + 2]);
}

static void matcher_keep(struct grammar_matcher *matcher, const struct grammar_node *node,
                         const struct matcher_thread *at)
{
    if (node->guard) {
        const struct grammar_guard *guard = &matcher->grammar->guards[node->guard - 1];
        if (!matcher_object_takes(matcher, guard->object, at->reg, guard->labels))
            return;
    }
    if (!matcher_room((void **)&matcher->found, &matcher->found_room, matcher->n_found + 1,
                      sizeof *matcher->found)) {
        matcher_fail(matcher, ERROR_NO_MEMORY);
        return;
    }
    matcher->found[matcher->n_found++] = *at;
}

static void matcher_follow(struct grammar_matcher *matcher, const struct matcher_thread *at,
                           bool *may_end)
{
    const struct grammar *program = matcher->grammar;
    const struct grammar_node *node = &program->nodes[at->node];
    const struct grammar_loop *loop = node->loop ? &program->loops[node->loop - 1] : NULL;
    uint32_t reg;
    switch ((enum node_kind)node->kind) {
    case NODE_BYTES:
        matcher_keep(matcher, node, at);
        break;
    case NODE_SPLIT:
        for (uint32_t i = 0; i < node->n; i++)
            matcher_push(matcher, program->targets[node->first + i], at->reg, at->stack);
        break;
    case NODE_CALL:
        matcher_call(matcher, node, at);
        break;
    case NODE_RETURN:
        matcher_return(matcher, at->stack, may_end);
        break;
    case NODE_LOOP:
        if (at->reg < loop->n_max)
            matcher_push(matcher, loop->again, at->reg, at->stack);
        if (at->reg >= loop->n_min)
            matcher_push(matcher, loop->exit, 0, at->stack);
        break;
    case NODE_COUNT:
        reg = loop->n_max == GRAMMAR_MANY && at->reg >= loop->n_min ? at->reg : at->reg + 1;
        matcher_push(matcher, loop->head, reg, at->stack);
        break;
    case NODE_OBJECT:
        if (matcher_object_may_end(matcher, node->object, at->reg))
            matcher_push(matcher, node->then, at->reg, at->stack);
        if (matcher_object_takes(matcher, node->object, at->reg,
                                 program->objects[node->object].live))
            matcher_push(matcher, node->first, at->reg, at->stack);
        break;
    case NODE_MEMBER:
        reg = matcher_object_add(matcher, node->object, at->reg, node->label);
        if (reg != WORD_TABLE_NONE)
            matcher_push(matcher, node->then, reg, at->stack);
        break;
    }
}

static int matcher_thread_compare(const void *a, const void *b)
{
    const struct matcher_thread *first = a, *second = b;
    if (first->node != second->node)
        return first->node < second->node ? -1 : 1;
    if (first->reg != second->reg)
        return first->reg < second->reg ? -1 : 1;
    return (first->stack > second->stack) - (first->stack < second->stack);
}

/* Characters that the threads take without an end. */
static uint32_t matcher_plain(const struct grammar *program, const struct matcher_thread *threads,
                              uint32_t n)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct grammar_node *node = &program->nodes[threads[i].node];
        if (!node->is_plain)
            continue;
        const uint32_t n_max = node->loop ? program->loops[node->loop - 1].n_max : GRAMMAR_MANY;
        const uint32_t left = n_max == GRAMMAR_MANY ? UINT32_MAX : n_max - threads[i].reg;
        most = left > most ? left : most;
    }
    return most;
}

static bool matcher_is_calm(const struct grammar *program, const struct matcher_thread *threads,
                            uint32_t n)
{
    bool is_calm = false;
    for (uint32_t i = 0; i < n; i++)
        is_calm |= program->nodes[threads[i].node].is_calm;
    return is_calm;
}

uint32_t matcher_state_of(struct grammar_matcher *matcher, struct matcher_thread *threads,
                          uint32_t n, bool may_end)
{
    uint32_t kept = 0;
    if (n > 1)
        qsort(threads, n, sizeof *threads, matcher_thread_compare);
    for (uint32_t i = 0; i < n; i++) {
        if (kept && threads[kept - 1].node == threads[i].node &&
            threads[kept - 1].reg == threads[i].reg)
            threads[kept - 1].stack =
                matcher_join(matcher, threads[kept - 1].stack, threads[i].stack);
        else
            threads[kept++] = threads[i];
    }
    if (!kept && !may_end)
        return MATCHER_DEAD;
    uint32_t *words = matcher_words(matcher, (size_t)kept * THREAD_WORDS + 1);
    if (!words || matcher->code)
        return MATCHER_DEAD;
    words[0] = may_end;
    if (kept)
        memcpy(words + 1, threads, kept * sizeof *threads);
    const uint32_t state = word_table_add(&matcher->state_names, words,
                                          (size_t)kept * THREAD_WORDS + 1, MATCHER_STATES_MAX);
    if (state == WORD_TABLE_NONE || kept > LIMIT_MATCHER_THREADS ||
        grammar_matcher_bytes(matcher) > (size_t)LIMIT_MATCHER_BYTES * 4)
        return matcher_fail(matcher, ERROR_BUSY);
    const uint32_t before = matcher->states_room;
    if (!matcher_room((void **)&matcher->states, &matcher->states_room, state + 1,
                      sizeof *matcher->states))
        return matcher_fail(matcher, ERROR_NO_MEMORY);
    for (uint32_t i = before; i < matcher->states_room; i++)
        matcher->states[i] = (struct matcher_state){.like = MATCHER_UNKNOWN};
    matcher->states[state].n_plain = matcher_plain(matcher->grammar, threads, kept);
    matcher->states[state].is_calm = matcher_is_calm(matcher->grammar, threads, kept);
    return state;
}

/* What is pending, followed to the threads that wait for a byte. */
static uint32_t matcher_close(struct grammar_matcher *matcher)
{
    bool may_end = false;
    matcher->n_found = 0;
    word_table_clear(&matcher->seen);
    while (matcher->n_pending && !matcher->code) {
        const struct matcher_thread at = matcher->pending[--matcher->n_pending];
        const uint32_t before = matcher->seen.count;
        const uint32_t number = word_table_add(&matcher->seen, (const uint32_t *)&at, THREAD_WORDS,
                                               LIMIT_MATCHER_THREADS * 4);
        if (number == WORD_TABLE_NONE)
            matcher_fail(matcher, ERROR_BUSY);
        else if (number == before)
            matcher_follow(matcher, &at, &may_end);
    }
    if (matcher->code)
        return MATCHER_DEAD;
    return matcher_state_of(matcher, matcher->found, matcher->n_found, may_end);
}

uint32_t matcher_start(struct grammar_matcher *matcher)
{
    const struct grammar *program = matcher->grammar;
    matcher->n_pending = 0;
    matcher_push(matcher, program->rules[program->root], 0, 0);
    return matcher_close(matcher);
}

static uint32_t matcher_step_new(struct grammar_matcher *matcher, uint32_t state, uint8_t byte)
{
    const struct grammar *program = matcher->grammar;
    uint32_t n;
    const struct matcher_thread *threads = matcher_threads(matcher, state, &n);
    matcher->n_pending = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct grammar_node *node = &program->nodes[threads[i].node];
        const struct grammar_edge *edge = &program->edges[node->first];
        for (uint32_t k = 0; k < node->n; k++, edge++) {
            if (edge->low <= byte && byte <= edge->high)
                matcher_push(matcher, edge->target, threads[i].reg, threads[i].stack);
        }
    }
    return matcher->n_pending ? matcher_close(matcher) : MATCHER_DEAD;
}

uint32_t matcher_step(struct grammar_matcher *matcher, uint32_t state, uint8_t byte)
{
    const struct grammar *program = matcher->grammar;
    const uint8_t class = program->class_of[byte];
    if (state == MATCHER_DEAD || matcher->code)
        return MATCHER_DEAD;
    if (!matcher->states[state].next) {
        uint32_t *next = mem_new_array(program->n_classes, sizeof *next);
        if (!next)
            return matcher_fail(matcher, ERROR_NO_MEMORY);
        memset(next, 0xff, program->n_classes * sizeof *next);
        matcher->states[state].next = next;
        matcher->next_bytes += program->n_classes * sizeof *next;
    }
    const uint32_t known = matcher->states[state].next[class];
    if (known != MATCHER_UNKNOWN)
        return known;
    const uint32_t next = matcher_step_new(matcher, state, byte);
    if (matcher->code)
        return MATCHER_DEAD;
    return matcher->states[state].next[class] = next;
}
