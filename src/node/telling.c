#include "node/telling.h"

#include "agreement/agreement.h"
#include "base/fnv.h"
#include "base/mem.h"
#include "cluster/event.h"
#include "heat/heat.h"
#include "mesh/frames.h"
#include "node/daemon_state.h"
#include "node/live.h"
#include "node/peers.h"
#include "node/working.h"
#include "vitals/vitals_sample.h"

#include <assert.h>
#include <string.h>

struct telling {
    struct daemon *daemon;
    uv_timer_t timer;
    struct heat_snapshot snapshot; /* large */
    struct vitals own;
    struct buffer work;   /* this node's, encoded … */
    Node__Work *own_work; /* … and decoded */
    uint64_t sampled_ns, leader, asked_ms, looked_ms;
    bool asks_anew;
    void (*closed)(struct daemon *daemon);
};

void told_peer_clear(struct told_peer *peer)
{
    mem_free(peer->told);
    mem_free(peer->heard);
    message_free(peer->work ? &peer->work->base : NULL);
    *peer = (struct told_peer){0};
}

/* ---- this node's ----------------------------------------------------------------------------- */

static void telling_keep_work(struct telling *telling)
{
    ProtobufCMessage *message = NULL;
    buffer_clear(&telling->work);
    working_gather(telling->daemon, &telling->work);
    if (telling->work.failed ||
        message_decode(&node__work__descriptor, (const uint8_t *)telling->work.data,
                       telling->work.size, &message, NULL))
        return;
    message_free(telling->own_work ? &telling->own_work->base : NULL);
    telling->own_work = (Node__Work *)message;
}

/* False: as before. */
static bool telling_sample(struct telling *telling)
{
    struct daemon *daemon = telling->daemon;
    if (daemon->options.heat)
        heat_latest(daemon->options.heat, &telling->snapshot);
    const uint64_t now_ms = daemon_now_ms(daemon);
    const uint64_t time_ns =
        daemon->options.heat ? telling->snapshot.time_ns : now_ms / TELL_WATCHER_MS;
    if (time_ns == telling->sampled_ns)
        return false;
    telling->sampled_ns = time_ns;
    vitals_sample(&telling->snapshot, (now_ms - daemon->opened_ms) / 1000, &telling->own);
    telling_keep_work(telling);
    live_touch(daemon->live);
    return true;
}

/* ---- telling --------------------------------------------------------------------------------- */

static bool telling_make_told(struct told_peer *to)
{
    if (to->told)
        return true;
    to->told = mem_new(sizeof *to->told);
    if (to->told)
        vitals_clear(to->told);
    to->wants_anew = true;
    return to->told;
}

static void telling_tell(struct telling *telling, struct peer *peer)
{
    static struct vitals_room room; /* large, and the loop's alone */
    struct told_peer *to = &peer->told;
    Node__Vitals said;
    struct buffer bytes = {0};
    if (!telling_make_told(to))
        return;
    const uint64_t sign =
        fnv(FNV_BASIS, telling->work.data ? telling->work.data : "", telling->work.size);
    const bool has_work = to->wants_anew || sign != to->told_work;
    const bool any = vitals_tell(to->told, &telling->own, to->wants_anew, &room, &said);
    to->told_ms = daemon_now_ms(telling->daemon);
    if (!any && !has_work)
        return;
    said.work = has_work ? telling->own_work : NULL;
    to->told_work = sign;
    to->wants_anew = false;
    message_encode(&said.base, &bytes);
    if (!bytes.failed)
        daemon_post(peer->link, FRAME_VITALS, bytes.data ? bytes.data : "", bytes.size);
    to->wants_anew = bytes.failed;
    buffer_deinit(&bytes);
}

static bool telling_is_due(const struct telling *telling, const struct peer *peer, uint64_t now)
{
    const bool leads =
        telling->leader && daemon_member_of_peer(telling->daemon, peer) == telling->leader;
    const bool watches = peer->told.watches_until_ms > now;
    const uint64_t period = watches ? TELL_WATCHER_MS : TELL_LEADER_MS + TELL_LATE_MS;
    return peer->link && (leads || watches) &&
           (peer->told.wants_anew || now - peer->told.told_ms >= period);
}

/* One that begins to lead needs all of it: it may have followed when another did. */
static void telling_look_at_leader(struct telling *telling)
{
    struct daemon *daemon = telling->daemon;
    const uint64_t leader = agreement_status(daemon->agreement).leader;
    if (leader == telling->leader)
        return;
    telling->leader = leader;
    for (struct peer *peer = daemon->peers; peer; peer = peer->next)
        peer->told.wants_anew |= leader && daemon_member_of_peer(daemon, peer) == leader;
}

static bool telling_is_watched(const struct telling *telling, uint64_t now)
{
    for (const struct peer *peer = telling->daemon->peers; peer; peer = peer->next) {
        if (peer->link && peer->told.watches_until_ms > now)
            return true;
    }
    return false;
}

static void telling_round(struct telling *telling)
{
    struct daemon *daemon = telling->daemon;
    const uint64_t now = daemon_now_ms(daemon);
    bool any = false;
    for (struct peer *peer = daemon->peers; peer; peer = peer->next)
        any |= telling_is_due(telling, peer, now);
    if (!any)
        return;
    telling_sample(telling);
    for (struct peer *peer = daemon->peers; peer; peer = peer->next) {
        if (telling_is_due(telling, peer, now))
            telling_tell(telling, peer);
    }
}

void telling_tick(struct daemon *daemon)
{
    if (!daemon->telling)
        return;
    telling_look_at_leader(daemon->telling);
    telling_sample(daemon->telling);
    telling_round(daemon->telling);
}

void telling_along(struct daemon *daemon, uint64_t member, struct peer *peer)
{
    struct telling *telling = daemon->telling;
    if (!telling || !peer || !peer->link || !member || member != telling->leader ||
        daemon_now_ms(daemon) - peer->told.told_ms < TELL_LEADER_MS)
        return;
    telling_sample(telling);
    telling_tell(telling, peer);
}

static void telling_on_time(uv_timer_t *timer)
{
    struct telling *telling = timer->data;
    if (!telling->daemon->is_member || telling->daemon->stopping ||
        !telling_is_watched(telling, daemon_now_ms(telling->daemon)))
        uv_timer_stop(timer);
    else if (telling_sample(telling))
        telling_round(telling);
}

/* ---- watching others ------------------------------------------------------------------------- */

static void telling_send_watch(struct telling *telling, struct peer *peer, uint32_t lease_ms)
{
    Node__Watch watch = NODE__WATCH__INIT;
    struct buffer bytes = {0};
    watch.has_lease_ms = watch.has_anew = true;
    watch.lease_ms = lease_ms;
    watch.anew = lease_ms && (telling->asks_anew || !peer->told.heard);
    message_encode(&watch.base, &bytes);
    if (peer->link && !bytes.failed)
        daemon_post(peer->link, FRAME_WATCH, bytes.data, bytes.size);
    buffer_deinit(&bytes);
}

void telling_begin(struct daemon *daemon)
{
    if (!daemon->telling || !daemon->is_member)
        return;
    daemon->telling->asks_anew = true;
    daemon->telling->asked_ms = 0;
    telling_ask(daemon);
}

void telling_ask(struct daemon *daemon)
{
    struct telling *telling = daemon->telling;
    const uint64_t now = daemon_now_ms(daemon);
    if (!telling || !daemon->is_member)
        return;
    telling_sample(telling);
    const bool all = now - telling->asked_ms >= WATCH_RENEW_MS;
    const bool some = now - telling->looked_ms >= TELL_WATCHER_MS; /* for links that are new */
    if (!all && !some)
        return;
    telling->looked_ms = now;
    for (struct peer *peer = daemon->peers; peer; peer = peer->next) {
        if (all || (peer->link && !peer->told.heard && now - peer->up_ms < WATCH_RENEW_MS))
            telling_send_watch(telling, peer, WATCH_LEASE_MS);
    }
    if (!all)
        return;
    telling->asked_ms = now;
    telling->asks_anew = false;
}

/* What is not told any more is not known any more. */
void telling_end(struct daemon *daemon)
{
    const bool leads = daemon->is_member && agreement_status(daemon->agreement).leads;
    for (struct peer *peer = daemon->telling ? daemon->peers : NULL; peer; peer = peer->next) {
        telling_send_watch(daemon->telling, peer, 0);
        if (leads)
            continue;
        mem_free(peer->told.heard);
        peer->told.heard = NULL;
    }
}

/* ---- what is heard --------------------------------------------------------------------------- */

static enum error_code telling_hear(struct peer *peer, Node__Vitals *said, struct error *err)
{
    struct told_peer *from = &peer->told;
    enum error_code code = working_check(said->work, err);
    if (code)
        return code;
    if (!from->heard && !(said->has_anew && said->anew))
        return ERROR_NONE; /* of one whose beginning was let go of: it is asked for anew */
    if (!from->heard && !(from->heard = mem_new(sizeof *from->heard)))
        return ERROR_NONE;
    code = vitals_hear(from->heard, said, err);
    if (code || !said->work)
        return code;
    message_free(from->work ? &from->work->base : NULL);
    from->work = said->work;
    said->work = NULL; /* the message's no more */
    return ERROR_NONE;
}

static void telling_hear_watch(struct telling *telling, struct peer *peer, const Node__Watch *watch)
{
    const uint32_t lease_ms = watch->has_lease_ms ? watch->lease_ms : 0;
    const uint64_t now = daemon_now_ms(telling->daemon);
    peer->told.watches_until_ms =
        now + (lease_ms < 2 * WATCH_LEASE_MS ? lease_ms : 2 * WATCH_LEASE_MS);
    /* However often it is asked, at most once in a period. */
    peer->told.wants_anew |= watch->has_anew && watch->anew;
    if (lease_ms && !uv_is_active((uv_handle_t *)&telling->timer))
        uv_timer_start(&telling->timer, telling_on_time, 0, TELL_LOOK_MS);
}

enum error_code telling_take(struct daemon *daemon, struct peer *peer,
                             const struct frame_header *header, const uint8_t *payload,
                             struct error *err)
{
    ProtobufCMessage *message = NULL;
    const bool is_watch = header->type == FRAME_WATCH;
    if (!daemon->telling)
        return ERROR_NONE; /* it is closing */
    enum error_code code =
        message_decode(is_watch ? &node__watch__descriptor : &node__vitals__descriptor, payload,
                       header->length, &message, err);
    if (code)
        return code;
    if (is_watch)
        telling_hear_watch(daemon->telling, peer, (Node__Watch *)message);
    else
        code = telling_hear(peer, (Node__Vitals *)message, err);
    live_touch(is_watch ? NULL : daemon->live);
    message_free(message);
    return code;
}

const struct vitals *telling_vitals(const struct daemon *daemon, const char *node)
{
    const struct peer *peer = daemon_peer(daemon, node);
    if (strcmp(node, daemon->id) == 0)
        return daemon->telling && daemon->telling->sampled_ns ? &daemon->telling->own : NULL;
    return peer && peer->link ? peer->told.heard : NULL;
}

const Node__Work *telling_work(const struct daemon *daemon, const char *node)
{
    const struct peer *peer = daemon_peer(daemon, node);
    if (strcmp(node, daemon->id) == 0)
        return daemon->telling ? daemon->telling->own_work : NULL;
    return peer && peer->link ? peer->told.work : NULL;
}

const Node__Driving *telling_driving(const struct daemon *daemon, const Cluster__Instance *instance)
{
    const Cluster__Placement *current = instance->current;
    const Node__Work *work =
        current && current->n_stages ? telling_work(daemon, current->stages[0]->node) : NULL;
    for (size_t i = 0; work && i < work->n_driving; i++) {
        if (work->driving[i]->instance && strcmp(work->driving[i]->instance, instance->id) == 0)
            return work->driving[i];
    }
    return NULL;
}

/* ---- opening and closing --------------------------------------------------------------------- */

enum error_code telling_open(struct daemon *daemon, struct telling **out, struct error *err)
{
    struct telling *telling = mem_new(sizeof *telling);
    if (!telling)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for a node");
    telling->daemon = daemon;
    vitals_clear(&telling->own);
    uv_timer_init(daemon->loop, &telling->timer);
    telling->timer.data = telling;
    *out = telling;
    return ERROR_NONE;
}

static void telling_on_closed(uv_handle_t *handle)
{
    struct telling *telling = handle->data;
    struct daemon *daemon = telling->daemon;
    void (*closed)(struct daemon *) = telling->closed;
    message_free(telling->own_work ? &telling->own_work->base : NULL);
    buffer_deinit(&telling->work);
    mem_free(telling);
    closed(daemon);
}

void telling_close(struct telling *telling, void (*closed)(struct daemon *daemon))
{
    telling->closed = closed;
    uv_close((uv_handle_t *)&telling->timer, telling_on_closed);
}
