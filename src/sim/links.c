/* Links between nodes: how they come, end, and how silence on them is found, by the rules of mesh/link.h and
 * node/daemon_links.h. One whose process dies ends at once; else only silence tells. Nodes that run an instance
 * together, and the leader all that do, ask each other again and again, and mesh/pulse.h says of the gaps between the
 * answers when one is suspected. Answers are drawn with their delay and losses. On other links, where silence counts
 * after SILENT_MS alone, no question is simulated: silence is there while nothing can pass. */
#include "sim/world.h"

#include "base/limits.h"
#include "base/mem.h"

#include <string.h>

enum {
    SILENT_MS = 5000, /* mesh_options: silence_ms, dead_ms, watch_ms */
    DEAD_MS = 10000,
    WATCH_MS = 200,
    LOOK_MS = WATCH_MS / 2,
    AGAIN_MAX_MS = 60000,
};
enum { SILENCE_TOLD = 1, SILENCE_LONG = 2 }; /* event.b */

static const uint64_t MS_NS = 1000000;

struct end *net_end(const struct world *w, uint32_t at, uint32_t to)
{
    return &w->ends[(size_t)at * w->n + to];
}

static void push(struct world *w, enum event_type type, uint64_t after_ms, uint32_t at, uint32_t to, uint64_t b)
{
    world_push(w, (struct event){.at_ms = w->now_ms + after_ms,
                                 .type = type,
                                 .node = at,
                                 .other = to,
                                 .a = net_end(w, at, to)->link,
                                 .b = b});
}

/* ---- they come ---- */

/* The end of a cut tries by itself. */
static void try_later(struct world *w, uint32_t a, uint32_t b)
{
    if (w->nodes[a].up && w->nodes[b].up && !net_is_cut(w, a, b) && !net_is_cut(w, b, a))
        push(w, EVENT_LINK, 500 + world_draw(w, 500), a, b, 0);
}

/* Who is dialled anew by a node that has no link looks whether it has one still. */
static void doubt(struct world *w, uint32_t at, uint32_t to)
{
    if (net_end(w, at, to)->link && net_end(w, at, to)->link != net_end(w, to, at)->link)
        push(w, EVENT_SILENCE, LIMIT_LINK_DOUBT_MS, at, to, SILENCE_TOLD);
}

void net_try_link(struct world *w, uint32_t a, uint32_t b)
{
    struct end *one = net_end(w, a, b), *other = net_end(w, b, a);
    if (a == b || (one->link && one->link == other->link))
        return;
    if (one->link || other->link || !net_reaches(w, a, b) || !net_reaches(w, b, a)) {
        if (net_reaches(w, a, b) && net_reaches(w, b, a)) {
            doubt(w, a, b);
            doubt(w, b, a);
        }
        try_later(w, a, b);
        return;
    }
    one->link = other->link = ++w->n_links + 1;
    one->sent = one->received = other->sent = other->received = 0;
    one->heard_ms = other->heard_ms = w->now_ms;
    one->silent = other->silent = false;
    w->nodes[a].changed = w->nodes[b].changed = true;
}

void net_links_soon(struct world *w, uint32_t node)
{
    for (uint32_t i = 0; i < w->n; i++) {
        if (i != node && w->nodes[i].up && !net_link(w, node, i))
            push(w, EVENT_LINK, 20 + world_draw(w, 400), node, i, 0);
    }
}

/* ---- they end ---- */

static void unwatch(struct end *end)
{
    mem_free(end->watched);
    end->watched = NULL;
}

static void end_down(struct world *w, uint32_t at, uint32_t to)
{
    struct end *end = net_end(w, at, to);
    end->link = 0;
    end->silent = false;
    unwatch(end);
    if (!w->nodes[at].up)
        return;
    serve_link_down(w, &w->nodes[at], to);
    ask_link_down(w, &w->nodes[at], to);
    w->nodes[at].changed = true;
    push(w, EVENT_LINK, 200 + world_draw(w, 800), at, to, 0);
}

void net_watch(struct world *w, uint32_t at, uint32_t to)
{
    if (at != to && net_link(w, at, to))
        push(w, EVENT_SILENCE, SILENT_MS + world_draw(w, 300), at, to, 0);
}

static void become_silent(struct world *w, uint32_t at, uint32_t to)
{
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
static void give_up(struct world *w, uint32_t at, uint32_t to)
{
    const uint64_t link = net_link(w, at, to);
    end_down(w, at, to);
    world_turn(w, &w->nodes[at]);
    if (net_link(w, to, at) != link)
        return;
    if (net_reaches(w, at, to))
        push(w, EVENT_SILENCE, net_way_ms(w), to, at, SILENCE_TOLD);
    else
        net_watch(w, to, at);
}

void net_silence(struct world *w, const struct event *event)
{
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
        give_up(w, at, to);
    } else if (event->b == 0) {
        become_silent(w, at, to);
        push(w, EVENT_SILENCE, DEAD_MS - SILENT_MS, at, to, SILENCE_LONG);
        world_turn(w, node);
    }
}

void net_node_gone(struct world *w, uint32_t gone, bool told)
{
    for (uint32_t i = 0; i < w->n; i++) {
        const uint64_t link = net_link(w, i, gone);
        struct end *own = net_end(w, gone, i);
        if (i == gone)
            continue;
        own->link = 0;
        own->silent = false;
        unwatch(own);
        if (!link)
            continue;
        if (told && !net_is_cut(w, gone, i))
            push(w, EVENT_SILENCE, net_way_ms(w), i, gone, SILENCE_TOLD);
        else
            net_watch(w, i, gone);
    }
    w->nodes[gone].n_watches = 0;
}

void net_cut(struct world *w, uint32_t from, uint32_t to, int by)
{
    uint16_t *cut = &w->cuts[(size_t)from * w->n + to];
    if (from == to)
        return;
    *cut = (uint16_t)(*cut + by);
    if (by > 0) {
        net_watch(w, to, from);
        net_watch(w, from, to);
    } else if (!*cut && !net_link(w, from, to)) {
        push(w, EVENT_LINK, 50 + world_draw(w, 1000), from, to, 0);
    }
}

/* ---- silence ---- */

void net_heard(struct world *w, struct node *node, uint32_t from)
{
    struct end *end = net_end(w, node->index, from);
    if (!end->link)
        return;
    end->heard_ms = w->now_ms;
    if (end->silent)
        world_say(w, "%s hears n%u again", node->id, from);
    node->changed |= end->silent;
    end->silent = false;
}

bool net_silent(const struct world *w, uint32_t at, uint32_t to)
{
    return at != to && net_end(w, at, to)->silent;
}

static void watch(struct world *w, struct node *node, uint32_t to)
{
    struct end *end = net_end(w, node->index, to);
    if (to == node->index || !end->link || end->watched || node->n_watches == WATCHES)
        return;
    end->watched = mem_new(sizeof *end->watched);
    if (!end->watched) {
        w->out_of_memory = true;
        return;
    }
    end->watched->key = ++w->n_keys;
    node->watches[node->n_watches++] = (uint16_t)to;
    push(w, EVENT_LOOK, 1 + world_draw(w, LOOK_MS), node->index, to, end->watched->key);
}

static bool has_stages(struct world *w, const Cluster__Placement *placement, const struct node *node)
{
    for (size_t i = 0; placement && i < placement->n_stages; i++) {
        if (world_node(w, placement->stages[i]->node) == node)
            return true;
    }
    return false;
}

/* As daemon_watch(). */
void net_watch_peers(struct world *w, struct node *node)
{
    const Cluster__State *root = node_state(node)->root;
    bool wanted[SCENARIO_NODES] = {false};
    bool any = node->n_watches > 0;
    for (size_t i = 0; root && i < root->n_instances; i++) {
        const Cluster__Placement *const own[] = {root->instances[i]->current, root->instances[i]->next};
        if (!root->instances[i]->active ||
            (!node->leads && !has_stages(w, own[0], node) && !has_stages(w, own[1], node)))
            continue;
        for (int k = 0; k < 2; k++) {
            for (size_t s = 0; own[k] && s < own[k]->n_stages; s++)
                any |= wanted[world_node(w, own[k]->stages[s]->node)->index] = true;
        }
    }
    if (!any)
        return;
    for (uint32_t i = node->n_watches; i-- > 0;) {
        struct end *end = net_end(w, node->index, node->watches[i]);
        if (end->watched && wanted[node->watches[i]])
            continue;
        unwatch(end);
        node->watches[i] = node->watches[--node->n_watches];
    }
    for (uint32_t i = 0; i < w->n; i++) {
        if (wanted[i])
            watch(w, node, i);
    }
}

/* ---- questions and answers ---- */

/* The answer comes after all that came before it. */
static void ask(struct world *w, uint32_t at, uint32_t to)
{
    struct watched *watched = net_end(w, at, to)->watched;
    const uint64_t back_ms = w->now_ms + net_way_ms(w) + net_way_ms(w);
    watched->asked_ms = w->now_ms;
    watched->answer_ms = back_ms > watched->answer_ms ? back_ms : watched->answer_ms;
    push(w, EVENT_ANSWER, watched->answer_ms - w->now_ms, at, to, watched->key);
}

/* Nothing passes: what was sent is sent again after a timeout that doubles. */
static uint64_t later_ms(const struct world *w, struct watched *watched)
{
    if (watched->again_ms <= w->now_ms) {
        watched->timeout_ms = watched->timeout_ms ? 2 * watched->timeout_ms : RETRANSMIT_MS;
        if (watched->timeout_ms > AGAIN_MAX_MS)
            watched->timeout_ms = AGAIN_MAX_MS;
        watched->again_ms = w->now_ms + watched->timeout_ms;
    }
    return watched->again_ms - w->now_ms;
}

void net_answer(struct world *w, const struct event *event)
{
    const uint32_t at = event->node, to = event->other;
    struct end *end = net_end(w, at, to);
    struct node *node = &w->nodes[at], *peer = &w->nodes[to];
    if (end->link != event->a || !end->watched || end->watched->key != event->b || net_link(w, to, at) != end->link)
        return;
    if (peer->paused_until_ms > w->now_ms) {
        push(w, EVENT_ANSWER, peer->paused_until_ms - w->now_ms + net_way_ms(w), at, to, event->b);
        return;
    }
    if (net_is_cut(w, at, to) || net_is_cut(w, to, at)) {
        push(w, EVENT_ANSWER, later_ms(w, end->watched), at, to, event->b);
        return;
    }
    end->watched->timeout_ms = 0;
    pulse_beat(&end->watched->pulse, w->now_ms * MS_NS);
    net_heard(w, node, to);
    if (node->changed)
        world_turn(w, node);
}

void net_look(struct world *w, const struct event *event)
{
    const uint32_t at = event->node, to = event->other;
    struct end *end = net_end(w, at, to);
    if (end->link != event->a || !end->watched || end->watched->key != event->b || !w->nodes[at].up)
        return;
    if (w->now_ms - end->watched->asked_ms > WATCH_MS - WATCH_MS / 4 || !end->watched->asked_ms)
        ask(w, at, to);
    const uint64_t silent_ms = w->now_ms - end->heard_ms;
    const bool suspects = pulse_suspects(&end->watched->pulse, end->heard_ms * MS_NS, w->now_ms * MS_NS);
    if (silent_ms >= DEAD_MS) {
        give_up(w, at, to);
        return;
    }
    push(w, EVENT_LOOK, LOOK_MS, at, to, event->b);
    if (suspects || silent_ms >= SILENT_MS) {
        become_silent(w, at, to);
        if (w->nodes[at].changed)
            world_turn(w, &w->nodes[at]);
    }
}
