/* What all parts use: chance, words, the heap of events, and who a member is. */
#include "sim/world.h"

#include "base/mem.h"
#include "base/random.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

/* ---- chance, words ---- */

uint64_t world_draw(struct world *w, uint64_t below)
{
    return below ? random_at(w->seed, w->draws++) % below : 0;
}

bool world_chance_ppm(struct world *w, uint64_t ppm)
{
    return ppm && world_draw(w, 1000000) < ppm;
}

void world_say(struct world *w, const char *format, ...)
{
    char text[512];
    va_list args;
    if (!w->options->say)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    w->options->say(w->options->self, w->now_ms, text);
}

/* The first counts. */
void world_violated(struct world *w, const char *format, ...)
{
    va_list args;
    if (w->result->violated)
        return;
    va_start(args, format);
    vsnprintf(w->result->what, sizeof w->result->what, format, args);
    va_end(args);
    w->result->violated = w->over = true;
    w->result->at_ms = w->now_ms;
    world_say(w, "VIOLATED: %s", w->result->what);
}

/* ---- the heap ---- */

static bool event_before(const struct event *a, const struct event *b)
{
    return a->at_ms != b->at_ms ? a->at_ms < b->at_ms : a->order < b->order;
}

void world_push(struct world *w, struct event event)
{
    assert(event.type && event.at_ms >= w->now_ms);
    if (w->n_events == w->capacity) {
        const size_t capacity = w->capacity ? 2 * w->capacity : 1024;
        struct event *grown = mem_resize(w->heap, capacity, sizeof *grown);
        if (!grown) {
            message_free_one(event.message);
            w->out_of_memory = true;
            return;
        }
        w->heap = grown;
        w->capacity = capacity;
    }
    event.order = w->order++;
    size_t i = w->n_events++;
    for (; i && event_before(&event, &w->heap[(i - 1) / 2]); i = (i - 1) / 2)
        w->heap[i] = w->heap[(i - 1) / 2];
    w->heap[i] = event;
}

struct event world_pop(struct world *w)
{
    assert(w->n_events);
    const struct event top = w->heap[0], last = w->heap[--w->n_events];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < w->n_events; i = child) {
        if (child + 1 < w->n_events && event_before(&w->heap[child + 1], &w->heap[child]))
            child++;
        if (!event_before(&w->heap[child], &last))
            break;
        w->heap[i] = w->heap[child];
    }
    if (w->n_events)
        w->heap[i] = last;
    return top;
}

/* ---- members ---- */

void world_new_member(struct world *w, struct node *node)
{
    node->former_member = node->member;
    node->member = world_draw(w, UINT64_MAX - 1) + 1;
    uint64_t at = node->member;
    while (w->by_member[at % WORLD_MEMBERS])
        at++;
    w->by_member[at % WORLD_MEMBERS] = (uint16_t)(node->index + 1);
}

struct node *world_member(const struct world *w, uint64_t member)
{
    for (uint64_t at = member; w->by_member[at % WORLD_MEMBERS]; at++) {
        struct node *node = &w->nodes[w->by_member[at % WORLD_MEMBERS] - 1];
        if (node->member == member)
            return node;
    }
    return NULL;
}
