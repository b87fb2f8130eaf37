/* The members that this node has heard of, and the frames between them and the daemon's parts. */
#include "node/peers.h"

#include "agreement/agreement.h"
#include "agreement/claims.h"
#include "base/fnv.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/random.h"
#include "cluster/event.h"
#include "hosting/carrier.h"
#include "hosting/hosting.h"
#include "join/book.h"
#include "node/daemon_alerts.h"
#include "node/daemon_audit.h"
#include "node/daemon_state.h"
#include "node/disk_speed.h"
#include "node/gathering.h"
#include "node/lead.h"
#include "node/lend.h"
#include "node/live.h"
#include "node/served.h"
#include "node/spreading.h"
#include "placing/placing.h"
#include "relay/relay.h"
#include "weights/weights.h"

#include <string.h>

uint64_t daemon_member_of(const struct daemon *daemon, const char *node, uint64_t member)
{
    const bool agreed = agreement_has_agreed_on(daemon->agreement, member);
    return member ? claims_member(daemon_state(daemon), node, member, agreed) : 0;
}

uint64_t daemon_member_of_peer(const struct daemon *daemon, const struct peer *peer)
{
    return peer->about ? daemon_member_of(daemon, peer->id, peer->about->member) : 0;
}

/* ---- what is told ------------------------------------------------------------------------ */

void daemon_post(struct link *link, uint16_t type, const void *bytes, size_t size)
{
    const struct frame_header header = {.type = type, .length = (uint32_t)size};
    struct error err;
    if (link_post(link, LINK_CONTROL, &header, bytes, &err))
        log_line(LOG_DEBUG, "node", "could not send a message of type %u: %s", type, err.text);
}

enum { USES_MAX = 64 };

/* Instances that this node's users are in, or wait for. */
static size_t links_gather_uses(struct daemon *daemon, Node__Use *uses, Node__Use **list)
{
    const Cluster__State *root = daemon_state(daemon)->root;
    const uint64_t now = daemon_now_ms(daemon);
    struct relay_uses own;
    size_t n = 0;
    relay_use_report(daemon->relay, &own);
    for (size_t i = 0; root && i < root->n_instances && n < USES_MAX; i++) {
        const char *id = root->instances[i]->id;
        const struct relay_use use = relay_use_of(&own, id);
        if (!use.used_ms && !use.waits)
            continue;
        node__use__init(&uses[n]);
        uses[n].instance = (char *)(uintptr_t)id;
        uses[n].has_idle_ms = uses[n].has_wanted = uses[n].has_live = uses[n].has_tokens = true;
        uses[n].live = use.live;
        uses[n].tokens = (uint64_t)use.tokens;
        uses[n].idle_ms = use.used_ms && now > use.used_ms ? now - use.used_ms : 0;
        uses[n].wanted = use.waits;
        list[n] = &uses[n];
        n++;
    }
    return n;
}

/* Models whose every layer is on this disk. */
static size_t gather_models(struct daemon *daemon, char **list)
{
    const Cluster__State *root = daemon_state(daemon)->root;
    size_t n = 0;
    for (size_t i = 0; root && i < root->n_models && n < LIMIT_CLUSTER_MODELS; i++) {
        if (daemon_has_model(daemon, root->models[i]))
            list[n++] = root->models[i]->name;
    }
    return n;
}

static size_t gather_problems(struct daemon *daemon, Node__Problem *problems, Node__Problem **list)
{
    struct lead_problem known[USES_MAX];
    const uint32_t n = lead_problems(daemon->lead, known, USES_MAX);
    for (uint32_t i = 0; i < n; i++) {
        node__problem__init(&problems[i]);
        problems[i].instance = (char *)(uintptr_t)known[i].instance;
        problems[i].text = (char *)(uintptr_t)known[i].text;
        list[i] = &problems[i];
    }
    return n;
}

enum { STAGES_MAX = 256 };

static uint32_t gather_stages(struct daemon *daemon, struct worker_stage *stages)
{
    static struct hosting_stage list[STAGES_MAX];
    uint32_t n = hosting_stage_list(daemon->hosting, list, STAGES_MAX);
    if (n > STAGES_MAX)
        n = STAGES_MAX;
    for (uint32_t i = 0; i < n; i++)
        stages[i] = (struct worker_stage){.instance = list[i].instance,
                                          .device = list[i].device,
                                          .epoch = list[i].epoch,
                                          .stage = list[i].stage,
                                          .first_layer = list[i].first_layer,
                                          .n_layers = list[i].n_layers,
                                          .state = list[i].state,
                                          .problem = list[i].problem};
    return n;
}

/* Which stages take memory: what the figures of free memory must be read with. */
static uint64_t sign_stages(const struct worker_stage *stages, uint32_t n)
{
    uint64_t sign = n;
    for (uint32_t i = 0; i < n; i++) {
        const bool holds = stages[i].state == WORKER_READY || stages[i].state == WORKER_UNLOADING;
        const uint64_t own = random_mix(stages[i].epoch) ^ random_mix(~(uint64_t)stages[i].stage);
        sign += holds ? random_mix(own ^ (uint64_t)stages[i].device[0]) : 0;
    }
    return sign;
}

static void keep_own(struct daemon *daemon, const struct buffer *bytes)
{
    ProtobufCMessage *message = NULL;
    if (bytes->failed || message_decode(&node__now__descriptor, (const uint8_t *)bytes->data,
                                        bytes->size, &message, NULL))
        return;
    message_free(daemon->now ? &daemon->now->base : NULL);
    daemon->now = (Node__Now *)message;
}

/* The leader plans with it; others only show it. What has not changed but for noise needs
 * no telling, but now and then. */
static bool links_needs_now(const struct daemon *daemon, const struct peer *peer, uint64_t sign,
                            bool all)
{
    const uint64_t leader = agreement_status(daemon->agreement).leader;
    const bool leads = !leader || daemon_member_of_peer(daemon, peer) == leader;
    const uint64_t since_ms = daemon_now_ms(daemon) - peer->told_ms;
    const bool is_due = (leads || since_ms >= NOW_OTHERS_MS) && sign != peer->told_now;
    return peer->link && (all || is_due || since_ms >= NOW_ANEW_MS);
}

/* Its seven highest bits. */
static uint64_t links_roughly(uint64_t value)
{
    uint32_t shift = 0;
    while (value >> shift > 127)
        shift++;
    return value >> shift << shift;
}

/* A hash of what is said, to within noise: free memory, heat and the time are never
 * quite the same. */
static uint64_t links_sign_now(Node__Now *now)
{
    struct buffer bytes = {0};
    now->has_wall_ms = false;
    now->disk_room_bytes = links_roughly(now->disk_room_bytes);
    for (size_t i = 0; i < now->n_devices; i++) {
        Node__DeviceNow *device = now->devices[i];
        device->free_bytes = links_roughly(device->free_bytes);
        device->headroom_ppm -= device->headroom_ppm % 50000;
        device->sustained_ppm -= device->sustained_ppm % 50000;
        device->sustained_error_ppm -= device->sustained_error_ppm % 50000;
        device->throttles_in_ms = links_roughly(device->throttles_in_ms);
    }
    message_encode(&now->base, &bytes);
    const uint64_t sign = fnv(FNV_BASIS, bytes.data ? bytes.data : "", bytes.size);
    buffer_deinit(&bytes);
    return sign;
}

/* What everybody acts on or shows, and should hear at once: what is to be copied, what is survived,
 * whether this node lends anything. */
static uint64_t links_sign_news(const Node__Now *now)
{
    uint64_t sign = now->lends_nothing ? fnv_text(FNV_BASIS, now->lends_nothing) : 0;
    for (size_t i = 0; i < now->n_spare_copies; i++) {
        const Node__SpareCopy *copy = now->spare_copies[i];
        const uint32_t range[] = {copy->first_layer, copy->n_layers};
        sign = fnv_text(sign, copy->node);
        sign = fnv(sign, range, sizeof range);
    }
    for (size_t i = 0; i < now->n_survivals; i++)
        sign = fnv(sign, &now->survivals[i]->losses, sizeof now->survivals[i]->losses);
    return sign;
}

static void tell_now_to_those_who_need_it(struct daemon *daemon, const struct buffer *bytes,
                                          uint64_t sign, bool all)
{
    for (struct peer *peer = daemon->peers; peer && !bytes->failed; peer = peer->next) {
        if (!links_needs_now(daemon, peer, sign, all))
            continue;
        daemon_post(peer->link, FRAME_NOW, bytes->data ? bytes->data : "", bytes->size);
        peer->told_ms = daemon_now_ms(daemon);
        peer->told_now = sign;
    }
}

/* Not linked (any more), or it does not answer. */
static bool is_missed(const struct daemon *daemon, const char *id)
{
    const struct peer *peer = daemon_peer(daemon, id);
    if (!peer)
        return strcmp(id, daemon->id) != 0 &&
               daemon_now_ms(daemon) - daemon->opened_ms >= FIRST_LINK_MS;
    return peer->link ? peer->is_silent : daemon_is_gone(daemon, peer);
}

static size_t gather_unreached(struct daemon *daemon, char **list)
{
    const Cluster__State *root = daemon_state(daemon)->root;
    size_t n = 0;
    for (size_t i = 0; root && i < root->n_nodes && n < LIMIT_CLUSTER_NODES; i++) {
        if (root->nodes[i]->admitted && is_missed(daemon, root->nodes[i]->node->id))
            list[n++] = root->nodes[i]->node->id;
    }
    return n;
}

/* What NOW says and points into; large, and the loop's alone. */
struct told_now {
    struct worker_stage stages[STAGES_MAX];
    Node__Use uses[USES_MAX], *use_list[USES_MAX];
    Node__Problem problems[USES_MAX], *problem_list[USES_MAX];
    char *models[LIMIT_CLUSTER_MODELS], *unreached[LIMIT_CLUSTER_NODES];
    struct spreading_told spreading;
    struct served_told served;
};

static void links_fill_now(struct daemon *daemon, struct told_now *told, Node__Now *now)
{
    now->n_uses = links_gather_uses(daemon, told->uses, told->use_list);
    now->uses = told->use_list;
    now->n_problems = gather_problems(daemon, told->problems, told->problem_list);
    now->problems = told->problem_list;
    now->n_models = gather_models(daemon, told->models);
    now->models = told->models;
    now->n_unreached = gather_unreached(daemon, told->unreached);
    now->unreached = told->unreached;
    now->disk_bytes_per_s = disk_speed_bytes_per_s(daemon->disk_speed);
    now->has_disk_bytes_per_s = now->disk_bytes_per_s != 0;
    lend_tell(daemon, now);
    spreading_tell(daemon, &told->spreading, now);
    served_tell(daemon, &told->served, now);
    daemon_alerts_tell(daemon, now);
    now->has_stops = now->stops = daemon->stopping;
    now->has_takes_no_part = now->takes_no_part = agreement_failure(daemon->agreement) != NULL;
}

void daemon_tell_now(struct daemon *daemon)
{
    static struct told_now told;
    Node__Now now = NODE__NOW__INIT;
    struct buffer bytes = {0};
    struct error err;
    const uint32_t n_stages = gather_stages(daemon, told.stages);
    const uint64_t held = sign_stages(told.stages, n_stages);
    if (placing_now(daemon->options.gpu, daemon->options.heat, told.stages, n_stages, &now, &err))
        log_line(LOG_WARN, "node", "this node's devices: %s", err.text);
    links_fill_now(daemon, &told, &now);
    message_encode(&now.base, &bytes);
    const uint64_t sign = links_sign_now(&now), news = links_sign_news(&now);
    now.n_uses = now.n_problems = now.n_models = now.n_unreached = now.n_tells = now.n_served =
        0; /* not its own */
    now.models = now.unreached = NULL;
    now.uses = NULL;
    now.problems = NULL;
    now.tells = NULL;
    now.served = NULL;
    now.lends_nothing = NULL;
    spreading_untell(&now);
    placing_now_clear(&now);
    tell_now_to_those_who_need_it(daemon, &bytes, sign,
                                  held != daemon->held || news != daemon->news || daemon->stopping);
    daemon->held = held;
    daemon->news = news;
    keep_own(daemon, &bytes);
    buffer_deinit(&bytes);
    daemon->told_ms = daemon_now_ms(daemon);
}

void daemon_tell_held(struct daemon *daemon)
{
    static struct worker_stage stages[STAGES_MAX];
    const uint64_t since_ms = daemon_now_ms(daemon) - daemon->told_ms;
    const uint32_t n = gather_stages(daemon, stages);
    if (sign_stages(stages, n) == daemon->held)
        return;
    if (since_ms < HELD_MS)
        daemon_tick_within(daemon, HELD_MS - since_ms);
    else
        daemon_tell_now(daemon);
}

/* ---- what is heard ------------------------------------------------------------------------ */

static enum error_code take_about(struct peer *peer, const uint8_t *bytes, size_t size,
                                  struct error *err)
{
    ProtobufCMessage *message = NULL;
    enum error_code code = message_decode(&cluster__node__descriptor, bytes, size, &message, err);
    if (code)
        return code;
    code = claims_about((Cluster__Node *)message, size, peer->id, err);
    if (code) {
        message_free(message);
        return code;
    }
    message_free(peer->about ? &peer->about->base : NULL);
    peer->about = (Cluster__Node *)message;
    return ERROR_NONE;
}

static enum error_code links_take_now(struct peer *peer, const uint8_t *bytes, size_t size,
                                      struct error *err)
{
    ProtobufCMessage *message = NULL;
    enum error_code code = message_decode(&node__now__descriptor, bytes, size, &message, err);
    if (code)
        return code;
    code = claims_now((Node__Now *)message, err);
    if (code) {
        message_free(message);
        return code;
    }
    message_free(peer->now ? &peer->now->base : NULL);
    peer->now = (Node__Now *)message;
    peer->has_clock = peer->now->has_wall_ms;
    peer->clock_off_ms = (int64_t)(peer->now->wall_ms - daemon_wall_ms());
    return ERROR_NONE;
}

/* A node that led until now may forward what only a leader says; its successor finds out by
 * itself. */
static enum error_code take_proposal(struct daemon *daemon, struct peer *peer, const uint8_t *bytes,
                                     size_t size, struct error *err)
{
    Cluster__Event *event = NULL;
    enum error_code code = event_decode(bytes, size, &event, err);
    if (code)
        return code;
    const bool is_update = event->kind_case == CLUSTER__EVENT__KIND_NODE_UPDATED;
    const uint64_t member = is_update ? event->node_updated->member : 0;
    if (claims_event(event, peer->id) && member == daemon_member_of(daemon, peer->id, member))
        agreement_receive_proposal(daemon->agreement, bytes, size);
    else {
        log_line(LOG_WARN, "node", "%.8s proposed what it may not propose: dropped", peer->id);
        daemon_note(daemon, AUDIT_PROPOSAL_REFUSED, peer->id, peer->id, "an event",
                    "only a leader says that, or it spoke in another's name");
    }
    event_free(event);
    return ERROR_NONE;
}

static struct link *link_of_member(struct daemon *daemon, uint64_t member)
{
    for (struct peer *peer = daemon->peers; peer; peer = peer->next) {
        if (member && peer->link && daemon_member_of_peer(daemon, peer) == member)
            return peer->link;
    }
    return NULL;
}

bool daemon_send_raft(void *self, uint64_t member, const void *bytes, size_t size)
{
    struct link *link = link_of_member(self, member);
    if (link) {
        daemon_post(link, FRAME_RAFT, bytes, size);
        telling_along(self, member, link_data(link));
    }
    return link;
}

bool daemon_forward(void *self, uint64_t member, const void *event, size_t size)
{
    struct link *link = link_of_member(self, member);
    if (link)
        daemon_post(link, FRAME_PROPOSE, event, size);
    return link;
}

static enum error_code take_control(struct daemon *daemon, struct peer *peer,
                                    const struct frame_header *header, const uint8_t *payload,
                                    struct error *err)
{
    switch (header->type) {
    case FRAME_RAFT:
        if (daemon_member_of_peer(daemon, peer))
            agreement_receive(daemon->agreement, daemon_member_of_peer(daemon, peer), payload,
                              header->length);
        return ERROR_NONE;
    case FRAME_ABOUT: {
        enum error_code code = take_about(peer, payload, header->length, err);
        daemon_lead(daemon);
        return code;
    }
    case FRAME_PROPOSE:
        return take_proposal(daemon, peer, payload, header->length, err);
    case FRAME_NOW: {
        enum error_code code = links_take_now(peer, payload, header->length, err);
        daemon_lead(daemon);
        control_changed(daemon);
        return code;
    }
    case FRAME_VITALS:
    case FRAME_WATCH:
        return telling_take(daemon, peer, header, payload, err);
    case FRAME_HISTORY_ASK:
    case FRAME_HISTORY:
        return history_take(daemon, peer, header, payload, err);
    case FRAME_GATHER:
    case FRAME_GATHERED:
        return gathering_take(daemon, peer, header, payload, err);
    case FRAME_SIGN:
    case FRAME_SIGNED:
        return sign_take(daemon, peer, header, payload, err);
    default:
        return ERROR_NONE; /* of a newer version */
    }
}

void daemon_tell_about(struct daemon *daemon)
{
    buffer_clear(&daemon->self_bytes);
    message_encode(&daemon->self->base, &daemon->self_bytes);
    for (struct peer *peer = daemon->peers; peer && !daemon->self_bytes.failed; peer = peer->next) {
        if (peer->link)
            daemon_post(peer->link, FRAME_ABOUT, daemon->self_bytes.data, daemon->self_bytes.size);
    }
}

/* ---- the mesh's events --------------------------------------------------------------------- */

static void on_up(void *self, struct link *link)
{
    struct daemon *daemon = self;
    struct error err;
    if (!daemon->is_member || daemon->stopping) { /* without a peer, nothing of it is heard */
        link_close(link);
        return;
    }
    struct peer *peer = daemon_peer_of_link(daemon, link);
    if (!peer) {
        error_set(&err, ERROR_NO_MEMORY, "not enough memory for a peer");
        link_abort(link, &err);
        return;
    }
    told_peer_clear(&peer->told);
    peer->link = link;
    peer->n_links++;
    peer->is_silent = false;
    peer->heard_ms = peer->up_ms = daemon_now_ms(daemon);
    peer->told_ms = peer->told_now = peer->down_ms = 0;
    if (peer->now) /* it has started again */
        peer->now->stops = false;
    link_set_data(link, peer);
    const Cluster__Node *known = book_find(daemon->book, peer->id);
    log_line(LOG_INFO, "node", "link to %s is up", known && known->name ? known->name : peer->id);
    daemon_post(link, FRAME_ABOUT, daemon->self_bytes.data, daemon->self_bytes.size);
    daemon_tell_now(daemon);
    weights_up(daemon->weights, link);
    live_touch(daemon->live);
    daemon_changed(daemon);
}

static void on_down(void *self, struct link *link, const struct error *why)
{
    struct daemon *daemon = self;
    struct peer *peer = link_data(link);
    if (!peer)
        return;
    peer->n_links--;
    if (peer->link == link) {
        peer->link = NULL;
        told_peer_clear(&peer->told);
        history_lost(daemon, peer);
        log_line(LOG_INFO, "node", "link to %.8s is down: %s", peer->id, why->text);
    }
    if (!peer->n_links) {
        peer->down_ms = daemon_now_ms(daemon);
        gathering_down(daemon, peer);
        daemon_tick_within(daemon, GONE_MS + 20);
    }
    if (daemon->carrier)
        carrier_down(daemon->carrier, link, why);
    if (daemon->weights)
        weights_down(daemon->weights, link);
    if (daemon->relay)
        relay_down(daemon->relay, link);
    daemon_drop_strangers(daemon);
    live_touch(daemon->live);
    daemon_changed(daemon);
}

static void *links_on_memory(void *self, struct link *link, uint32_t channel,
                             const struct frame_header *header)
{
    struct daemon *daemon = self;
    const bool is_weights = header->type == FRAME_WEIGHTS && daemon->weights && link_data(link);
    return is_weights ? weights_memory(daemon->weights, link, channel, header) : NULL;
}

/* While the node stops, its parts go one after another. */
static void on_frame(void *self, struct link *link, uint32_t channel,
                     const struct frame_header *header, const uint8_t *payload)
{
    struct daemon *daemon = self;
    struct peer *peer = link_data(link);
    struct error err;
    if (!peer)
        return;
    peer->heard_ms = daemon_now_ms(daemon);
    peer->is_silent = false;
    if (header->type == FRAME_PIPELINE || header->type == FRAME_CACHE ||
        header->type == FRAME_HALT) {
        if (daemon->carrier)
            carrier_frame(daemon->carrier, link, header, payload);
    } else if (header->type == FRAME_REQUEST) {
        if (daemon->relay)
            relay_frame(daemon->relay, link, header, payload);
    } else if (header->type == FRAME_WEIGHTS) {
        if (daemon->weights)
            weights_frame(daemon->weights, link, header, payload);
    } else if (header->type == FRAME_VITALS && link != peer->link) {
        /* What it continues was told on that link, and forgotten with it. */
    } else if (take_control(daemon, peer, header, payload, &err)) {
        log_line(LOG_WARN, "node", "%.8s broke the protocol: %s", peer->id, err.text);
        link_abort(link, &err);
    }
}

static void on_drained(void *self, struct link *link, uint32_t channel)
{
    struct daemon *daemon = self;
    if (daemon->weights && channel == NODE_CHANNEL_WEIGHTS)
        weights_drained(daemon->weights, link, channel);
}

static void on_silent(void *self, struct link *link)
{
    struct daemon *daemon = self;
    struct peer *peer = link_data(link);
    if (!peer)
        return;
    peer->is_silent = true;
    peer->silent_ms = daemon_now_ms(daemon);
    log_line(LOG_INFO, "node", "%.8s does not answer", peer->id);
    live_touch(daemon->live);
    if (!daemon->stopping && daemon->is_member)
        daemon_changed(daemon);
}

struct link_events daemon_link_events(struct daemon *daemon)
{
    return (struct link_events){.up = on_up,
                                .down = on_down,
                                .memory = links_on_memory,
                                .frame = on_frame,
                                .drained = on_drained,
                                .silent = on_silent,
                                .self = daemon};
}
