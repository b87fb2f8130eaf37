/* Links between nodes: how they come and end, by the rules of mesh/link.h and node/daemon_links.c.
 * One whose process dies ends at once; else only silence tells. On links that nobody watches
 * closely (watch.c) no question is simulated: silence is there while nothing can pass. */
#include "sim/world.h"

#include "base/limits.h"
#include "base/mem.h"

#include <assert.h>
#include <string.h>

enum { SILENCE_TOLD = 1, SILENCE_LONG = 2 }; /* event.b */

struct end *net_end(const struct world *w, uint32_t at, uint32_t to)
{
    assert(at < w->n && to < w->n);
    return &w->ends[(size_t)at * w->n + to];
}

void net_push(struct world *w, enum event_type type, uint64_t after_ms, uint32_t at, uint32_t to,
              uint64_t b)
{
    assert(at != to);
    world_push(w, (struct event){.at_ms = w->now_ms + after_ms,
                                 .type = type,
                                 .node = at,
                                 .other = to,
                                 .a = net_end(w, at, to)->link,
                                 .b = b});
}

/* ---- they come ---- */

/* The end of a cut tries by itself. */
static void link_try_later(struct world *w, uint32_t a, uint32_t b)
{
    if (w->nodes[a].up && w->nodes[b].up && !net_is_cut(w, a, b) && !net_is_cut(w, b, a))
        net_push(w, EVENT_LINK, 500 + world_draw(w, 500), a, b, 0);
}

/* Who is dialled anew by a node that has no link looks whether it has one still. */
static void link_doubt(struct world *w, uint32_t at, uint32_t to)
{
    if (net_end(w, at, to)->link && net_end(w, at, to)->link != net_end(w, to, at)->link)
        net_push(w, EVENT_SILENCE, LIMIT_LINK_DOUBT_MS, at, to, SILENCE_TOLD);
}

void net_try_link(struct world *w, uint32_t a, uint32_t b)
{
    struct end *one = net_end(w, a, b), *other = net_end(w, b, a);
    if (a == b || (one->link && one->link == other->link))
        return;
    if (one->link || other->link || !net_reaches(w, a, b) || !net_reaches(w, b, a)) {
        if (net_reaches(w, a, b) && net_reaches(w, b, a)) {
            link_doubt(w, a, b);
            link_doubt(w, b, a);
        }
        link_try_later(w, a, b);
        return;
    }
    one->link = other->link = ++w->n_links + 1;
    one->sent = one->received = other->sent = other->received = 0;
    one->heard_ms = other->heard_ms = w->now_ms;
    one->silent = other->silent = false;
    one->down_ms = other->down_ms = 0;
    w->nodes[a].changed = w->nodes[b].changed = true;
}

void net_links_soon(struct world *w, uint32_t node)
{
    for (uint32_t i = 0; i < w->n; i++) {
        if (i != node && w->nodes[i].up && !net_link(w, node, i))
            net_push(w, EVENT_LINK, 20 + world_draw(w, 400), node, i, 0);
    }
}

/* ---- they end ---- */

void net_unwatch(struct end *end)
{
    assert(end);
    mem_free(end->watched);
    end->watched = NULL;
}

static void end_down(struct world *w, uint32_t at, uint32_t to)
{
    assert(at != to);
    struct end *end = net_end(w, at, to);
    const uint64_t link = end->link;
    end->down_ms = end->link ? w->now_ms : end->down_ms;
    end->link = 0;
    end->silent = false;
    net_unwatch(end);
    if (!w->nodes[at].up)
        return;
    serve_link_down(w, &w->nodes[at], to);
    if (link)
        seat_link_down(w, &w->nodes[at], to, link);
    w->nodes[at].changed = true;
    net_push(w, EVENT_LINK, 200 + world_draw(w, 800), at, to, 0);
}

void net_watch(struct world *w, uint32_t at, uint32_t to)
{
    if (at != to && net_link(w, at, to))
        net_push(w, EVENT_SILENCE, SILENT_MS + world_draw(w, 300), at, to, 0);
}

void net_become_silent(struct world *w, uint32_t at, uint32_t to)
{
    assert(net_link(w, at, to));
    struct end *end = net_end(w, at, to);
    if (end->silent)
        return;
    end->silent = true;
    w->nodes[at].changed = true;
    w->result->suspicions++;
    const bool there = net_reaches(w, at, to) && net_reaches(w, to, at);
    w->result->false_alarms += there;
    world_say(w, "%s suspects n%u%s", w->nodes[at].id, to, there ? ", which is there" : "");
}

/* The end at `at` is closed; the other is told where anything passes. */
void net_give_up(struct world *w, uint32_t at, uint32_t to)
{
    const uint64_t link = net_link(w, at, to);
    end_down(w, at, to);
    world_turn(w, &w->nodes[at]);
    if (net_link(w, to, at) != link)
        return;
    if (net_reaches(w, at, to))
        net_push(w, EVENT_SILENCE, net_way_ms(w), to, at, SILENCE_TOLD);
    else
        net_watch(w, to, at);
}

void net_silence(struct world *w, const struct event *event)
{
    assert(event->type == EVENT_SILENCE);
    const uint32_t at = event->node, to = event->other;
    const uint64_t link = net_link(w, at, to);
    struct node *node = &w->nodes[at];
    if (!link || link != event->a || !node->up)
        return;
    if (node->paused_until_ms > w->now_ms) {
        struct event later = *event;
        later.at_ms = node->paused_until_ms;
        world_push(w, later);
        return;
    }
    const bool there = net_link(w, to, at) == link;
    if (there && net_reaches(w, to, at) && net_reaches(w, at, to))
        return;
    if (event->b == SILENCE_TOLD ? !there : event->b == SILENCE_LONG) {
        net_give_up(w, at, to);
    } else if (event->b == 0) {
        net_become_silent(w, at, to);
        net_push(w, EVENT_SILENCE, DEAD_MS - SILENT_MS, at, to, SILENCE_LONG);
        world_turn(w, node);
    }
}

void net_node_gone(struct world *w, uint32_t gone, bool told)
{
    assert(!w->nodes[gone].up);
    for (uint32_t i = 0; i < w->n; i++) {
        const uint64_t link = net_link(w, i, gone);
        struct end *own = net_end(w, gone, i);
        if (i == gone)
            continue;
        own->link = own->down_ms = 0;
        own->silent = false;
        net_unwatch(own);
        if (!link)
            continue;
        if (told && !net_is_cut(w, gone, i))
            net_push(w, EVENT_SILENCE, net_way_ms(w), i, gone, SILENCE_TOLD);
        else
            net_watch(w, i, gone);
    }
    w->nodes[gone].n_watches = 0;
}

void net_cut(struct world *w, uint32_t from, uint32_t to, int by)
{
    assert(by == 1 || by == -1);
    uint16_t *cut = &w->cuts[(size_t)from * w->n + to];
    if (from == to)
        return;
    *cut = (uint16_t)(*cut + by);
    if (by > 0) {
        net_watch(w, to, from);
        net_watch(w, from, to);
    } else if (!*cut && !net_link(w, from, to)) {
        net_push(w, EVENT_LINK, 50 + world_draw(w, 1000), from, to, 0);
    }
}
