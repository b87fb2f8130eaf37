/* The clock, the events, the faults. */
#include "sim/world.h"

#include "base/mem.h"
#include "base/random.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

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

static bool before(const struct event *a, const struct event *b)
{
    return a->at_ms != b->at_ms ? a->at_ms < b->at_ms : a->order < b->order;
}

void world_push(struct world *w, struct event event)
{
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
    for (; i && before(&event, &w->heap[(i - 1) / 2]); i = (i - 1) / 2)
        w->heap[i] = w->heap[(i - 1) / 2];
    w->heap[i] = event;
}

static struct event pop(struct world *w)
{
    const struct event top = w->heap[0], last = w->heap[--w->n_events];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < w->n_events; i = child) {
        if (child + 1 < w->n_events && before(&w->heap[child + 1], &w->heap[child]))
            child++;
        if (!before(&w->heap[child], &last))
            break;
        w->heap[i] = w->heap[child];
    }
    if (w->n_events)
        w->heap[i] = last;
    return top;
}

/* ---- a node ---- */

bool node_runs(const struct world *w, const struct node *node)
{
    return node->up && node->paused_until_ms <= w->now_ms;
}

static void pulse(struct world *w, struct node *node)
{
    if (!node->replica)
        return;
    const struct replica_status status = replica_status(node->replica);
    uint32_t to = 0;
    while (to < w->n && w->nodes[to].member != status.leader)
        to++;
    if (!status.leader || to == w->n || to == node->index)
        return;
    struct message *message = message_new(MESSAGE_PULSE, node, to);
    if (message) {
        message->value = ask_wanted(node);
        for (const struct ask *ask = node->asks; ask; ask = ask->next)
            message->a |= UINT64_C(1) << ask->instance;
    }
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

static void tick(struct world *w, struct node *node)
{
    node->tick_ms = w->now_ms + TICK_MS;
    node->changed = true;
    pulse(w, node);
    change_setting(w, node);
}

static void set_wake(struct world *w, struct node *node)
{
    uint64_t due = log_timer(w, node);
    due = node->tick_ms < due ? node->tick_ms : due;
    if (node->leads && node->lead_ms + LEAD_MS > w->now_ms && node->changed && node->lead_ms + LEAD_MS < due)
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
        tick(w, node);
    log_turn(w, node);
    if (node->changed && !w->over) {
        node->changed = false;
        host_turn(w, node);
        serve_turn(w, node);
        ask_turn(w, node);
        lead_turn(w, node);
    }
    if (!w->over)
        set_wake(w, node);
}

static void start(struct world *w, struct node *node)
{
    if (node->up)
        return;
    world_say(w, "%s starts", node->id);
    node->up = true;
    node->boots++;
    node->up_ms = w->now_ms;
    node->wake_ms = 0;
    node->tick_ms = w->now_ms + 1 + world_draw(w, TICK_MS);
    node->changed = true;
    if (!log_start(w, node)) {
        w->out_of_memory |= !w->over;
        return;
    }
    net_links_soon(w, node->index);
    world_turn(w, node);
}

static void stop(struct world *w, struct node *node, bool told, bool lost)
{
    if (!node->up)
        return;
    log_stop(w, node, lost);
    node->up = false;
    node->paused_until_ms = 0;
    host_drop_all(node);
    serve_drop_all(node);
    ask_drop_all(w, node);
    memset(node->used_ms, 0, sizeof node->used_ms);
    if (lost)
        memset(node->has_weights, 0, sizeof node->has_weights);
    net_node_gone(w, node->index, told);
}

/* ---- faults ---- */

static bool splits(const struct scenario_fault *fault, uint32_t node)
{
    return random_at(fault->amount, node) & 1;
}

static void cut_as(struct world *w, const struct scenario_fault *fault, int by)
{
    const uint32_t node = (uint32_t)fault->node, other = (uint32_t)fault->other;
    if (fault->kind == FAULT_CUT || fault->kind == FAULT_CUT_ONE)
        net_cut(w, node, other, by);
    if (fault->kind == FAULT_CUT)
        net_cut(w, other, node, by);
    for (uint32_t i = 0; i < w->n && fault->kind == FAULT_ISOLATE; i++) {
        net_cut(w, node, i, by);
        net_cut(w, i, node, by);
    }
    for (uint32_t i = 0; i < w->n && fault->kind == FAULT_SPLIT; i++) {
        for (uint32_t k = 0; k < w->n; k++) {
            if (splits(fault, i) != splits(fault, k))
                net_cut(w, i, k, by);
        }
    }
}

static void pause_node(struct world *w, struct node *node, uint64_t until_ms)
{
    if (!node->up)
        return;
    if (node->paused_until_ms < until_ms)
        node->paused_until_ms = until_ms;
    for (uint32_t i = 0; i < w->n; i++)
        net_watch(w, i, node->index);
}

/* Only harm that a cluster can survive: the last copy of its log is not lost. */
static bool has_log_elsewhere(const struct world *w, const struct node *but)
{
    for (uint32_t i = 0; i < w->n; i++) {
        const struct log_saved *disk = &w->nodes[i].disk;
        if (&w->nodes[i] != but && (disk->log.n || disk->snapshot.index))
            return true;
    }
    return false;
}

static uint64_t fault_end(const struct world *w, const struct scenario_fault *fault)
{
    const uint64_t ms = fault->at_ms + fault->for_ms;
    return ms < w->scenario->chaos_ms ? ms : w->scenario->chaos_ms;
}

static void begin_fault(struct world *w, const struct scenario_fault *fault)
{
    struct node *node = &w->nodes[fault->node];
    const uint64_t until_ms = fault_end(w, fault);
    const enum scenario_fault_type kind = (enum scenario_fault_type)fault->kind;
    world_say(w, "fault: %s, n%llu, n%llu, %llu, for %llu ms", scenario_fault_name(kind),
              (unsigned long long)fault->node, (unsigned long long)fault->other, (unsigned long long)fault->amount,
              (unsigned long long)fault->for_ms);
    switch (kind) {
    case FAULT_KILL:
    case FAULT_POWER:
    case FAULT_LOST_DISK:
        stop(w, node, kind == FAULT_KILL, kind == FAULT_LOST_DISK && has_log_elsewhere(w, node));
        break;
    case FAULT_PAUSE:
        pause_node(w, node, until_ms);
        break;
    case FAULT_CUT:
    case FAULT_CUT_ONE:
    case FAULT_ISOLATE:
    case FAULT_SPLIT:
        cut_as(w, fault, 1);
        break;
    case FAULT_LOSS:
        w->loss_ppm = fault->amount;
        break;
    case FAULT_DOUBLE:
        w->double_ppm = fault->amount;
        break;
    case FAULT_SLOW:
        w->slow_ms = fault->amount;
        break;
    case FAULT_SLOW_DISK:
        node->slow_ms = fault->amount;
        node->slow_until_ms = until_ms;
        break;
    case FAULT_FULL_DISK:
        node->full_until_ms = until_ms;
        break;
    case FAULT_DEVICE:
    case FAULT_RUNNER:
        node->devices_gone[fault->amount] |= kind == FAULT_DEVICE;
        host_device_gone(w, node, (uint32_t)fault->amount,
                         kind == FAULT_DEVICE ? "the device is gone" : "its runner ended");
        break;
    case FAULT_TYPES:
        break;
    }
    world_turn(w, node);
}

static void end_fault(struct world *w, const struct scenario_fault *fault)
{
    struct node *node = &w->nodes[fault->node];
    switch ((enum scenario_fault_type)fault->kind) {
    case FAULT_KILL:
    case FAULT_POWER:
    case FAULT_LOST_DISK:
        start(w, node);
        break;
    case FAULT_CUT:
    case FAULT_CUT_ONE:
    case FAULT_ISOLATE:
    case FAULT_SPLIT:
        cut_as(w, fault, -1);
        break;
    case FAULT_LOSS:
        w->loss_ppm = 0;
        break;
    case FAULT_DOUBLE:
        w->double_ppm = 0;
        break;
    case FAULT_SLOW:
        w->slow_ms = 0;
        break;
    case FAULT_DEVICE:
        node->devices_gone[fault->amount] = false;
        break;
    case FAULT_PAUSE:
    case FAULT_SLOW_DISK:
    case FAULT_FULL_DISK:
    case FAULT_RUNNER:
    case FAULT_TYPES:
        break;
    }
    world_turn(w, node);
}

/* ---- events ---- */

static void check(struct world *w)
{
    char why[400];
    if (check_converged(w, why, sizeof why)) {
        w->over = true;
        w->result->at_ms = w->now_ms;
        w->result->converged_ms = w->now_ms - w->healed_ms;
    } else if (w->now_ms - w->healed_ms > w->scenario->settle_ms) {
        world_violated(w, "%llu ms after the last fault: %s", (unsigned long long)(w->now_ms - w->healed_ms), why);
    } else {
        world_push(w, (struct event){.at_ms = w->now_ms + 250, .type = EVENT_CHECK});
    }
}

static void heal(struct world *w, const struct event *event)
{
    if (event->a < w->scenario->n_faults) {
        end_fault(w, &w->scenario->faults[event->a]);
        return;
    }
    world_say(w, "all is well again");
    w->healed = true;
    w->healed_ms = w->now_ms;
    memset(w->stream_left, 0, w->scenario->n_streams * sizeof *w->stream_left);
    world_push(w, (struct event){.at_ms = w->now_ms + 5000, .type = EVENT_CHECK});
}

static void on_stream(struct world *w, struct node *node, const struct event *event)
{
    if (!w->stream_left[event->other])
        return;
    if (node->up) {
        ask_begin(w, node, event->other);
        world_turn(w, node);
    } else {
        world_push(w, (struct event){
                          .at_ms = w->now_ms + 1000, .type = EVENT_STREAM, .node = event->node, .other = event->other});
    }
}

/* What a node that stands still does not do. */
static bool is_deferred(struct world *w, const struct node *node, struct event *event)
{
    const bool own = event->type == EVENT_WAKE || event->type == EVENT_DISK || event->type == EVENT_STAGE ||
                     event->type == EVENT_STEP || event->type == EVENT_STREAM;
    if (!own || node->paused_until_ms <= w->now_ms)
        return false;
    struct event later = *event;
    later.at_ms = node->paused_until_ms;
    event->message = NULL;
    world_push(w, later);
    return true;
}

static void handle(struct world *w, struct event *event)
{
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
        world_turn(w, node);
        message_free_one(event->message);
        break;
    case EVENT_FAULT:
        begin_fault(w, &w->scenario->faults[event->a]);
        break;
    case EVENT_HEAL:
        heal(w, event);
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
    case EVENT_CHECK:
        check(w);
        break;
    case EVENT_JOIN:
        node->joined = true;
        break;
    }
}

/* ---- the beginning and the end ---- */

static bool found(struct world *w)
{
    struct log_write first;
    struct error err;
    if (replica_found(w->nodes[0].member, &first, &err))
        return false;
    const enum error_code code = log_saved_write(&w->nodes[0].disk, &first, &err);
    log_write_clear(&first);
    return code == ERROR_NONE;
}

static void plan_events(struct world *w)
{
    const struct scenario *s = w->scenario;
    for (uint32_t i = 0; i < s->n_faults; i++) {
        world_push(w,
                   (struct event){
                       .at_ms = s->faults[i].at_ms, .type = EVENT_FAULT, .node = (uint32_t)s->faults[i].node, .a = i});
        world_push(w, (struct event){.at_ms = fault_end(w, &s->faults[i]),
                                     .type = EVENT_HEAL,
                                     .node = (uint32_t)s->faults[i].node,
                                     .a = i});
    }
    world_push(w, (struct event){.at_ms = s->chaos_ms, .type = EVENT_HEAL, .a = UINT64_MAX});
    for (uint32_t i = 0; i < s->n_streams; i++) {
        w->stream_left[i] = s->streams[i].requests;
        world_push(w, (struct event){.at_ms = s->streams[i].start_ms,
                                     .type = EVENT_STREAM,
                                     .node = (uint32_t)s->streams[i].node,
                                     .other = i});
    }
}

static bool world_init(struct world *w)
{
    const struct scenario *s = w->scenario;
    w->n = s->n_nodes;
    w->shares = w->n > 16;
    w->seed = s->seed;
    w->nodes = mem_new_array(w->n, sizeof *w->nodes);
    w->ends = mem_new_array((size_t)w->n * w->n, sizeof *w->ends);
    w->cuts = mem_new_array((size_t)w->n * w->n, sizeof *w->cuts);
    w->stream_left = mem_new_array(s->n_streams + 1, sizeof *w->stream_left);
    if (!w->nodes || !w->ends || !w->cuts || !w->stream_left || planner_init(w) || !check_init(w))
        return false;
    for (uint32_t i = 0; i < w->n; i++) {
        struct node *node = &w->nodes[i];
        node->index = i;
        snprintf(node->id, sizeof node->id, "n%u", i);
        node->member = world_draw(w, UINT64_MAX - 1) + 1;
        for (uint32_t k = 0; k < s->n_instances; k++)
            node->has_weights[k] = s->nodes[i].has_weights;
        world_push(w, (struct event){.at_ms = s->nodes[i].joins_ms, .type = EVENT_JOIN, .node = i});
    }
    if (!found(w))
        return false;
    for (uint32_t i = 0; i < w->n; i++)
        start(w, &w->nodes[i]);
    plan_events(w);
    return !w->out_of_memory;
}

static void world_deinit(struct world *w)
{
    struct sim_result unused = {0};
    w->result = &unused;
    w->over = true;
    for (uint32_t i = 0; w->nodes && i < w->n; i++) {
        struct node *node = &w->nodes[i];
        stop(w, node, false, false);
        lead_lost(node);
        log_saved_clear(&node->disk);
    }
    for (size_t i = 0; i < w->n_events; i++)
        message_free_one(w->heap[i].message);
    mem_free(w->heap);
    mem_free(w->nodes);
    mem_free(w->ends);
    mem_free(w->cuts);
    mem_free(w->stream_left);
    planner_deinit(w);
    check_deinit(w);
    mem_free(w);
}

enum error_code sim_run(const struct scenario *scenario, const struct sim_options *options, struct sim_result *out,
                        struct error *err)
{
    static const struct sim_options silent;
    *out = (struct sim_result){0};
    if (scenario_check(scenario, err))
        return ERROR_INVALID;
    struct world *w = mem_new(sizeof *w);
    if (!w)
        return error_set(err, ERROR_NO_MEMORY, "no memory for a simulation");
    w->scenario = scenario;
    w->options = options ? options : &silent;
    w->result = out;
    w->out_of_memory = !world_init(w);
    while (!w->over && !w->out_of_memory && w->n_events) {
        struct event event = pop(w);
        if (event.at_ms > w->now_ms)
            w->now_ms = event.at_ms;
        out->events++;
        handle(w, &event);
    }
    const bool failed = w->out_of_memory && !out->violated;
    world_deinit(w);
    return failed ? error_set(err, ERROR_NO_MEMORY, "no memory for the simulation") : ERROR_NONE;
}

bool sim_as_expected(const struct scenario *scenario, const struct sim_result *r, char *why, size_t size)
{
    const struct scenario_expect *e = &scenario->expect;
    if (r->violated != (e->violation != 0))
        snprintf(why, size, "%s", r->violated ? r->what : "a violation was expected, there was none");
    else if (r->answered < e->answered_min)
        snprintf(why, size, "%llu requests were answered, %llu are expected", (unsigned long long)r->answered,
                 (unsigned long long)e->answered_min);
    else if (e->failed_max && r->failed >= e->failed_max)
        snprintf(why, size, "%llu requests failed, fewer than %llu are expected", (unsigned long long)r->failed,
                 (unsigned long long)e->failed_max);
    else if (e->pause_ms_max && r->longest_pause_ms > e->pause_ms_max)
        snprintf(why, size, "the longest pause was %llu ms, %llu are allowed", (unsigned long long)r->longest_pause_ms,
                 (unsigned long long)e->pause_ms_max);
    else
        return true;
    return false;
}
