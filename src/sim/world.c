/* The clock and the events. */
#include "sim/world.h"

#include "base/mem.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* ---- a node ---- */

bool node_runs(const struct world *w, const struct node *node)
{
    return node->up && node->paused_until_ms <= w->now_ms;
}

static void node_tell(struct world *w, struct node *node)
{
    assert(node->up && node->party);
    const struct replica_status status = party_status(node->party);
    const struct node *leader = status.leader ? world_member(w, status.leader) : NULL;
    if (!leader || leader == node)
        return;
    struct said said = {.others_bytes = node->others_bytes};
    seat_say(w, node, &said);
    heat_say(w, node, &said);
    net_say(w, node, &said);
    struct message *message = message_new(MESSAGE_NOW, node, leader->index);
    if (message)
        message->bytes = mem_new(sizeof said);
    if (!message || !message->bytes) {
        message_free_one(message);
        w->out_of_memory = true;
        return;
    }
    memcpy(message->bytes, &said, sizeof said);
    message->size = sizeof said;
    net_send(w, message);
}

/* Somebody changes a setting, and is told when that counts. */
static void change_setting(struct world *w, struct node *node)
{
    char key[16], value[24];
    Cluster__Setting setting = CLUSTER__SETTING__INIT;
    Cluster__Event event = CLUSTER__EVENT__INIT;
    if (w->healed || w->n > 64 || !world_chance_ppm(w, 20000))
        return;
    snprintf(key, sizeof key, "key%u", (unsigned)world_draw(w, 20));
    snprintf(value, sizeof value, "%llu", (unsigned long long)w->now_ms);
    setting.key = key;
    setting.value = value;
    event.kind_case = CLUSTER__EVENT__KIND_SETTING_CHANGED;
    event.setting_changed = &setting;
    log_propose(w, node, &event, 0, true);
}

static void node_tick(struct world *w, struct node *node)
{
    node->tick_ms = w->now_ms + (w->n > 64 ? TICK_OF_MANY_MS : TICK_MS);
    node->changed = true;
    node_tell(w, node);
    change_setting(w, node);
    if (w->has_roles)
        record_members(w, node);
}

static void node_set_wake(struct world *w, struct node *node)
{
    assert(node->party);
    uint64_t due = log_timer(w, node);
    due = node->tick_ms < due ? node->tick_ms : due;
    if (node->leads && node->lead_ms + LEAD_MS > w->now_ms && node->changed &&
        node->lead_ms + LEAD_MS < due)
        due = node->lead_ms + LEAD_MS;
    if (due <= w->now_ms)
        due = w->now_ms + 1;
    if (node->wake_ms > w->now_ms && node->wake_ms <= due)
        return;
    node->wake_ms = due;
    world_push(w, (struct event){.at_ms = due, .type = EVENT_WAKE, .node = node->index});
}

void world_turn(struct world *w, struct node *node)
{
    if (!node_runs(w, node) || w->over)
        return;
    if (node->tick_ms <= w->now_ms)
        node_tick(w, node);
    log_turn(w, node);
    if (node->changed && !w->over) {
        node->changed = false;
        host_turn(w, node);
        serve_turn(w, node);
        seat_turn(w, node);
        lead_turn(w, node);
        net_watch_peers(w, node);
    }
    if (!w->over)
        node_set_wake(w, node);
}

void world_turn_beside_log(struct world *w, struct node *node)
{
    assert(!node->changed || node->up);
    if (node->changed || node->wake_ms <= w->now_ms)
        world_turn(w, node);
}

/* ---- events ---- */

/* Requests that are under way may take their time: as long as tokens come, nothing is late. */
static void world_check(struct world *w)
{
    assert(w->healed);
    char why[400];
    const uint64_t since_ms = w->token_ms > w->healed_ms ? w->token_ms : w->healed_ms;
    if (check_converged(w, why, sizeof why)) {
        w->over = true;
        w->result->at_ms = w->now_ms;
        w->result->converged_ms = w->now_ms - w->healed_ms;
    } else if (w->now_ms - since_ms > w->scenario->settle_ms) {
        world_violated(w, "%llu ms after the last fault: %s",
                       (unsigned long long)(w->now_ms - w->healed_ms), why);
    } else {
        world_push(w, (struct event){.at_ms = w->now_ms + 250, .type = EVENT_CHECK});
    }
}

static void world_heal(struct world *w, const struct event *event)
{
    if (event->a < w->scenario->n_faults) {
        fault_end(w, (uint32_t)event->a);
        return;
    }
    world_say(w, "all is well again");
    w->healed = true;
    w->healed_ms = w->now_ms;
    for (uint32_t i = 0; i < w->n; i++) {
        if (w->nodes[i].hostile) /* it is switched off, for good */
            node_stop(w, &w->nodes[i], true, false);
    }
    memset(w->stream_left, 0, w->scenario->n_streams * sizeof *w->stream_left);
    world_push(w, (struct event){.at_ms = w->now_ms + 5000, .type = EVENT_CHECK});
}

static void on_stream(struct world *w, struct node *node, const struct event *event)
{
    assert(event->other < w->scenario->n_streams);
    if (!w->stream_left[event->other])
        return;
    if (node->up) {
        client_begin(w, node, event->other);
        world_turn(w, node);
    } else {
        world_push(w, (struct event){.at_ms = w->now_ms + 1000,
                                     .type = EVENT_STREAM,
                                     .node = event->node,
                                     .other = event->other});
    }
}

/* What a node that stands still does not do. */
static bool is_deferred(struct world *w, const struct node *node, struct event *event)
{
    const bool own = event->type == EVENT_WAKE || event->type == EVENT_DISK ||
                     event->type == EVENT_STAGE || event->type == EVENT_STEP ||
                     event->type == EVENT_STREAM || event->type == EVENT_RELAY ||
                     event->type == EVENT_LOOK || event->type == EVENT_ANSWER;
    if (!own || node->paused_until_ms <= w->now_ms)
        return false;
    struct event later = *event;
    later.at_ms = node->paused_until_ms;
    event->message = NULL;
    world_push(w, later);
    return true;
}

static void world_handle(struct world *w, struct event *event)
{
    assert(event->node < w->n);
    struct node *node = &w->nodes[event->node];
    if (is_deferred(w, node, event))
        return;
    switch (event->type) {
    case EVENT_MESSAGE:
        net_deliver(w, event);
        break;
    case EVENT_WAKE:
        if (node->wake_ms <= w->now_ms)
            world_turn(w, node);
        break;
    case EVENT_DISK:
        if (node->up && event->a == node->life) {
            log_disk(w, node);
            world_turn(w, node);
        }
        break;
    case EVENT_STAGE:
        if (node->up)
            host_event(w, node, event);
        world_turn(w, node);
        break;
    case EVENT_STEP:
        if (node->up)
            serve_event(w, node, event);
        world_turn_beside_log(w, node);
        message_free_one(event->message);
        break;
    case EVENT_FAULT:
        fault_begin(w, (uint32_t)event->a);
        break;
    case EVENT_HEAL:
        world_heal(w, event);
        break;
    case EVENT_STREAM:
        on_stream(w, node, event);
        break;
    case EVENT_LINK:
        net_try_link(w, event->node, event->other);
        break;
    case EVENT_SILENCE:
        net_silence(w, event);
        break;
    case EVENT_LOOK:
        net_look(w, event);
        break;
    case EVENT_ANSWER:
        net_answer(w, event);
        break;
    case EVENT_HEAT:
        heat_sample(w, node);
        break;
    case EVENT_CHECK:
        world_check(w);
        break;
    case EVENT_RELAY:
        if (node->up && event->a == node->boots)
            seat_turn(w, node);
        break;
    case EVENT_HOSTILE:
        hostile_act(w, node);
        break;
    case EVENT_JOIN:
        node->joined = true;
        break;
    }
}

void world_step(struct world *w)
{
    struct event event = world_pop(w);
    if (event.at_ms > w->now_ms)
        w->now_ms = event.at_ms;
    w->result->events++;
    world_handle(w, &event);
}
