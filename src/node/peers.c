#include "node/peers.h"

#include "agreement/agreement.h"
#include "base/log.h"
#include "base/mem.h"
#include "cluster/event.h"
#include "join/book.h"
#include "node/daemon_state.h"
#include "node/lead.h"
#include "placing/placing.h"
#include "relay/relay.h"

#include <string.h>

/* ---- peers ------------------------------------------------------------------------------ */

struct peer *daemon_peer(const struct daemon *daemon, const char *id)
{
    for (struct peer *peer = daemon->peers; peer; peer = peer->next) {
        if (strcmp(peer->id, id) == 0)
            return peer;
    }
    return NULL;
}

struct peer *daemon_peer_of_link(struct daemon *daemon, const struct link *link)
{
    char id[NODE_ID_TEXT];
    id_text(link_peer(link), NODE_ID_BYTES, id);
    struct peer *peer = daemon_peer(daemon, id);
    if (peer)
        return peer;
    peer = mem_new(sizeof *peer);
    if (!peer)
        return NULL;
    memcpy(peer->node_id, link_peer(link), NODE_ID_BYTES);
    memcpy(peer->id, id, sizeof id);
    peer->next = daemon->peers;
    daemon->peers = peer;
    return peer;
}

static void peer_free(struct peer *peer)
{
    message_free(peer->about ? &peer->about->base : NULL);
    message_free(peer->now ? &peer->now->base : NULL);
    told_peer_clear(&peer->told);
    mem_free(peer);
}

void daemon_free_peers(struct daemon *daemon)
{
    while (daemon->peers) {
        struct peer *peer = daemon->peers;
        daemon->peers = peer->next;
        peer_free(peer);
    }
}

static const struct peer *linked_peer(const struct daemon *daemon,
                                      const uint8_t node_id[NODE_ID_BYTES])
{
    const struct peer *peer = daemon->peers;
    while (peer &&
           (!peer->link || peer->is_silent || memcmp(peer->node_id, node_id, NODE_ID_BYTES) != 0))
        peer = peer->next;
    return peer;
}

bool daemon_is_linked(void *self, const uint8_t node_id[NODE_ID_BYTES])
{
    return linked_peer(self, node_id) != NULL;
}

uint64_t daemon_link_bytes_per_s(void *self, const uint8_t node_id[NODE_ID_BYTES])
{
    const struct peer *peer = linked_peer(self, node_id);
    const struct topology_link measured =
        peer ? link_measured(peer->link) : (struct topology_link){0};
    return measured.bandwidth_bytes_per_s.valid ? (uint64_t)measured.bandwidth_bytes_per_s.value
                                                : 0;
}

void daemon_drop_strangers(struct daemon *daemon)
{
    struct error why;
    error_set(&why, ERROR_CANCELLED, "it is no longer a member of the cluster");
    for (struct peer **at = &daemon->peers; *at;) {
        struct peer *peer = *at;
        const bool is_stranger = !book_admits(daemon->book, peer->node_id);
        if (is_stranger && !peer->n_links) {
            *at = peer->next;
            peer_free(peer);
            continue;
        }
        if (is_stranger && peer->link) {
            log_line(LOG_INFO, "node", "%.8s is no longer a member: its link is cut", peer->id);
            link_abort(peer->link, &why);
        }
        at = &peer->next;
    }
}

bool daemon_has_link(const struct daemon *daemon)
{
    for (const struct peer *peer = daemon->peers; peer; peer = peer->next) {
        if (peer->link)
            return true;
    }
    return false;
}

bool daemon_is_gone(const struct daemon *daemon, const struct peer *peer)
{
    return peer->down_ms && daemon_now_ms(daemon) - peer->down_ms >= GONE_MS;
}

bool daemon_was_stopped(const struct peer *peer)
{
    return peer && peer->now && peer->now->stops;
}

/* ---- who may reach a node that this one does not hear ---------------------------------------- */

static const struct peer *find_peer(const struct daemon *daemon,
                                    const uint8_t node_id[NODE_ID_BYTES])
{
    const struct peer *peer = daemon->peers;
    while (peer && memcmp(peer->node_id, node_id, NODE_ID_BYTES) != 0)
        peer = peer->next;
    return peer;
}

/* A link that broke for a moment is back before another way is worth it. */
static bool is_missed_for_long(const struct daemon *daemon, const struct peer *peer)
{
    const uint64_t since_ms = !peer ? 0 : peer->link ? peer->silent_ms : peer->down_ms;
    return daemon_now_ms(daemon) - since_ms >= THROUGH_MS;
}

/* As far as it has told: who has lost the node a moment ago refuses what is to be handed on. */
static bool may_reach(const struct daemon *daemon, const struct peer *third, const char *id)
{
    const Cluster__NodeRecord *record = state_node(daemon_state(daemon), third->id);
    if (!third->link || third->is_silent || !record || !record->admitted ||
        strcmp(third->id, id) == 0)
        return false;
    for (size_t i = 0; third->now && i < third->now->n_unreached; i++) {
        if (strcmp(third->now->unreached[i], id) == 0)
            return false;
    }
    return true;
}

bool daemon_find_detour(void *self, const uint8_t node_id[NODE_ID_BYTES], uint8_t *out)
{
    struct daemon *daemon = self;
    char id[NODE_ID_TEXT];
    uint32_t n = 0, at = 0;
    id_text(node_id, NODE_ID_BYTES, id);
    if (!is_missed_for_long(daemon, find_peer(daemon, node_id)))
        return false;
    for (const struct peer *peer = daemon->peers; peer; peer = peer->next)
        n += may_reach(daemon, peer, id);
    const uint32_t chosen = n && out ? daemon->n_detours++ % n : 0;
    for (const struct peer *peer = daemon->peers; peer && out; peer = peer->next) {
        if (may_reach(daemon, peer, id) && at++ == chosen)
            memcpy(out, peer->node_id, NODE_ID_BYTES);
    }
    return n > 0;
}

/* ---- who is watched closely ------------------------------------------------------------------ */

static bool has_stages_on(const Cluster__Placement *placement, const char *node)
{
    for (size_t i = 0; placement && i < placement->n_stages; i++) {
        if (strcmp(placement->stages[i]->node, node) == 0)
            return true;
    }
    return false;
}

static bool runs_on(const Cluster__Instance *instance, const char *node)
{
    return instance->active &&
           (has_stages_on(instance->current, node) || has_stages_on(instance->next, node));
}

/* Nodes that run an instance together watch each other, and the leader, who would have to place
 * anew, all of them. */
void daemon_watch(struct daemon *daemon)
{
    const Cluster__State *root = daemon_state(daemon)->root;
    struct relay_uses own;
    relay_use_report(daemon->relay, &own);
    for (struct peer *peer = daemon->peers; peer; peer = peer->next) {
        bool closely = false;
        for (size_t i = 0; peer->link && root && i < root->n_instances && !closely; i++) {
            const Cluster__Instance *instance = root->instances[i];
            closely = runs_on(instance, peer->id) &&
                      (lead_is(daemon->lead) || runs_on(instance, daemon->id) ||
                       relay_use_of(&own, instance->id).live);
        }
        if (peer->link)
            link_watch(peer->link, closely);
    }
}

/* ---- this node's links ----------------------------------------------------------------------- */

static uint64_t measure_wait_ms(const struct daemon *daemon, const char *to)
{
    const Cluster__State *root = daemon_state(daemon)->root;
    for (size_t i = 0; root && i < root->n_links; i++) {
        const Cluster__Link *link = root->links[i];
        if (strcmp(link->from, daemon->id) == 0 && strcmp(link->to, to) == 0)
            return link->has_bytes_per_s ? MEASURE_MS : NEW_LINK_MS;
    }
    return 0;
}

/* A link of which nothing is known yet is looked at in every tick, since who places wants to know
 * soon; one that is known rarely, since the log is for rare facts. */
void daemon_measure_links(struct daemon *daemon)
{
    const uint64_t now = daemon_now_ms(daemon);
    for (struct peer *peer = daemon->peers; peer; peer = peer->next) {
        Cluster__Link link = CLUSTER__LINK__INIT, *list[] = {&link};
        Cluster__Links links = CLUSTER__LINKS__INIT;
        Cluster__Event event = CLUSTER__EVENT__INIT;
        if (!peer->link || !state_node(daemon_state(daemon), peer->id) ||
            (peer->measured_ms && now - peer->measured_ms < measure_wait_ms(daemon, peer->id)))
            continue;
        const struct topology_link measured = link_measured(peer->link);
        if (!placing_link_changed(daemon_state(daemon), daemon->id, peer->id, &measured, &link) ||
            !measured.latency_ns.valid)
            continue;
        peer->measured_ms = now;
        links.n_links = 1;
        links.links = list;
        event.kind_case = CLUSTER__EVENT__KIND_LINKS_MEASURED;
        event.links_measured = &links;
        agreement_propose(daemon->agreement, &event, NULL, NULL);
    }
}
