/* Who is watched closely, and what is made of the answers. Nodes that run an instance together, and
 * the leader all that do, ask each other every WATCH_MS, and mesh/pulse.h says of the gaps between
 * the answers when one is suspected. An answer is drawn with the delays and losses of its way there
 * and back. */
#include "sim/world.h"

#include "base/mem.h"

#include <assert.h>
#include <string.h>

enum { WATCH_MS = 200, LOOK_MS = WATCH_MS / 2, AGAIN_MAX_MS = 60000 }; /* mesh_options: watch_ms */

static const uint64_t MS_NS = 1000000;

void net_heard(struct world *w, struct node *node, uint32_t from)
{
    assert(node->up);
    struct end *end = net_end(w, node->index, from);
    if (!end->link)
        return;
    end->heard_ms = w->now_ms;
    if (end->silent)
        world_say(w, "%s hears n%u again", node->name, from);
    node->changed |= end->silent;
    end->silent = false;
}

bool net_silent(const struct world *w, uint32_t at, uint32_t to)
{
    return at != to && net_end(w, at, to)->silent;
}

bool net_misses(const struct world *w, uint32_t at, uint32_t to)
{
    const struct end *end = net_end(w, at, to);
    return at != to &&
           (end->link ? end->silent : end->down_ms && w->now_ms - end->down_ms >= GONE_MS);
}

void net_say(const struct world *w, const struct node *node, struct said *out)
{
    for (uint32_t i = 0; i < w->n && out->n_missed < MISSED_MAX; i++) {
        if (net_misses(w, node->index, i))
            out->missed[out->n_missed++] = w->nodes[i].id;
    }
}

static void watch_begin(struct world *w, struct node *node, uint32_t to)
{
    assert(node->n_watches <= WATCHES);
    struct end *end = net_end(w, node->index, to);
    if (to == node->index || !end->link || end->watched || node->n_watches == WATCHES)
        return;
    end->watched = mem_new(sizeof *end->watched);
    if (!end->watched) {
        w->out_of_memory = true;
        return;
    }
    if (net_reaches(w, to, node->index)) /* its rare questions were answered until now */
        end->heard_ms = w->now_ms;
    end->watched->key = ++w->n_keys;
    node->watches[node->n_watches++] = (uint16_t)to;
    net_push(w, EVENT_LOOK, 1 + world_draw(w, LOOK_MS), node->index, to, end->watched->key);
}

static bool has_stages(struct world *w, const Cluster__Placement *placement,
                       const struct node *node)
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
        const Cluster__Placement *const own[] = {root->instances[i]->current,
                                                 root->instances[i]->next};
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
        net_unwatch(end);
        node->watches[i] = node->watches[--node->n_watches];
    }
    for (uint32_t i = 0; i < w->n; i++) {
        if (wanted[i])
            watch_begin(w, node, i);
    }
}

/* ---- questions and answers ---- */

/* The answer comes after all that came before it. */
static void watch_ask(struct world *w, uint32_t at, uint32_t to)
{
    assert(net_end(w, at, to)->watched);
    struct watched *watched = net_end(w, at, to)->watched;
    const uint64_t back_ms = w->now_ms + net_way_ms(w) + net_way_ms(w);
    watched->asked_ms = w->now_ms;
    watched->answer_ms = back_ms > watched->answer_ms ? back_ms : watched->answer_ms;
    net_push(w, EVENT_ANSWER, watched->answer_ms - w->now_ms, at, to, watched->key);
}

/* Nothing passes: what was sent is sent again after a timeout that doubles. */
static uint64_t later_ms(const struct world *w, struct watched *watched)
{
    assert(watched->timeout_ms <= AGAIN_MAX_MS);
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
    assert(event->type == EVENT_ANSWER);
    const uint32_t at = event->node, to = event->other;
    struct end *end = net_end(w, at, to);
    struct node *node = &w->nodes[at], *peer = &w->nodes[to];
    if (end->link != event->a || !end->watched || end->watched->key != event->b ||
        net_link(w, to, at) != end->link)
        return;
    if (peer->paused_until_ms > w->now_ms) {
        net_push(w, EVENT_ANSWER, peer->paused_until_ms - w->now_ms + net_way_ms(w), at, to,
                 event->b);
        return;
    }
    if (net_is_cut(w, at, to) || net_is_cut(w, to, at)) {
        net_push(w, EVENT_ANSWER, later_ms(w, end->watched), at, to, event->b);
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
    assert(event->type == EVENT_LOOK);
    const uint32_t at = event->node, to = event->other;
    struct end *end = net_end(w, at, to);
    if (end->link != event->a || !end->watched || end->watched->key != event->b || !w->nodes[at].up)
        return;
    if (w->now_ms - end->watched->asked_ms > WATCH_MS - WATCH_MS / 4 || !end->watched->asked_ms)
        watch_ask(w, at, to);
    const uint64_t silent_ms = w->now_ms - end->heard_ms;
    const bool suspects =
        pulse_suspects(&end->watched->pulse, end->heard_ms * MS_NS, w->now_ms * MS_NS);
    if (silent_ms >= DEAD_MS) {
        net_give_up(w, at, to);
        return;
    }
    net_push(w, EVENT_LOOK, LOOK_MS, at, to, event->b);
    if (suspects || silent_ms >= SILENT_MS) {
        net_become_silent(w, at, to);
        if (w->nodes[at].changed)
            world_turn(w, &w->nodes[at]);
    }
}
