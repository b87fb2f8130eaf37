#include "node/agreement_impl.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

enum { STEP_MS = 1000, REOPEN_MS = 5000, REOPEN_SLOWER = 12, READY_STEPS = 10 };

uint64_t agreement_now_ms(void)
{
    return clock_now_ns() / 1000000;
}

/* ---- the replica comes and goes ---- */

enum error_code agreement_begin_replica(struct agreement *a, const struct log_saved *saved, struct error *err)
{
    struct replica_options options = a->options.replica;
    options.id = a->member = store_member(a->store);
    a->last = (struct replica_status){0};
    return replica_open(&options, saved, agreement_now_ms(), &a->replica, err);
}

void agreement_end_replica(struct agreement *a)
{
    replica_close(a->replica);
    a->replica = NULL;
    a->ready = false;
    a->changed = true;
    agreement_drop_writes(a);
    agreement_drop_foreign(a);
    nonces_lost(&a->nonces);
    pieces_deinit(&a->pieces);
}

/* Without the event, which is not raised again for a failure that goes on. */
static void note_failure(struct agreement *a, const struct error *why)
{
    agreement_end_replica(a);
    a->failed = true;
    a->wrote = false;
    a->failure = *why;
    a->may_reopen = why->code != ERROR_INVALID;
    a->reopen_at_ms = agreement_now_ms() + a->reopen_wait_ms;
    if (a->reopen_wait_ms < (uint64_t)REOPEN_SLOWER * a->options.reopen_ms)
        a->reopen_wait_ms *= 2;
}

void agreement_fail(struct agreement *a, const struct error *why)
{
    const bool known = a->failure.code == why->code && !a->wrote;
    const struct error copy = *why;
    note_failure(a, &copy);
    if (known || a->closing)
        return;
    log_line(LOG_ERROR, "cluster", "this node takes no part any more: %s", copy.text);
    if (a->options.events.failed)
        a->options.events.failed(a->options.events.self, &copy);
}

/* ---- the turn ---- */

/* What follows from who leads now. */
static void notice_leader(struct agreement *a)
{
    const struct replica_status now = agreement_status(a), last = a->last;
    const bool began = now.leads && (!last.leads || now.term != last.term);
    a->last = now;
    if (now.leads != last.leads || now.leader != last.leader || lineage_compare(now.lineage, last.lineage) ||
        now.failed != last.failed) {
        a->changed = true;
        agreement_proposals_now(a);
    }
    if (began || !now.leads) {
        if (last.leads || began)
            nonces_lost(&a->nonces);
        if (!now.leads)
            agreement_drop_foreign(a);
        a->ready = false;
        a->lead_from = now.last;
        a->ready_by_ms = agreement_now_ms() + (uint64_t)READY_STEPS * a->options.step_ms;
        a->members_due = true;
    }
}

/* A new leader does not know yet which events the rest of its log has. They count soon; then it takes others. Should
 * they not, rather an event twice than none. */
static void notice_ready(struct agreement *a)
{
    if (a->ready || !a->last.leads || (a->last.applied < a->lead_from && agreement_now_ms() < a->ready_by_ms))
        return;
    a->ready = true;
    agreement_proposals_now(a);
}

static uint64_t min(uint64_t x, uint64_t y)
{
    return x < y ? x : y;
}

static void on_timer(uv_timer_t *timer)
{
    agreement_turn(timer->data);
}

static void set_timer(struct agreement *a)
{
    uint64_t due = min(agreement_proposals_timer(a), agreement_members_timer(a));
    const uint64_t now_ms = agreement_now_ms();
    if (a->replica)
        due = min(due, replica_timer(a->replica));
    if (a->last.leads && !a->ready)
        due = min(due, a->ready_by_ms);
    if (a->failed && a->may_reopen && a->job.type == JOB_NONE)
        due = min(due, a->reopen_at_ms);
    if (due == UINT64_MAX || a->closing) {
        uv_timer_stop(&a->timer);
        return;
    }
    uv_update_time(a->options.loop);
    uv_timer_start(&a->timer, on_timer, due > now_ms ? due - now_ms : 0, 0);
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct agreement *a = handle->data;
    if (--a->n_handles)
        return;
    void (*closed)(void *) = a->closed;
    void *arg = a->closed_arg;
    buffer_deinit(&a->frame);
    mem_free(a->views);
    mem_free(a->path);
    mem_free(a->node);
    mem_free(a);
    if (closed)
        closed(arg);
}

/* Everything has ended when no job runs and the store is closed. */
static void end(struct agreement *a)
{
    if (a->job.type != JOB_NONE || a->store || a->handles_closing)
        return;
    a->handles_closing = true;
    if (a->forgotten) {
        struct error err;
        error_set(&err, ERROR_CANCELLED, "the node is stopping");
        a->forgotten(a->forgotten_arg, err.code, &err);
    }
    agreement_proposals(a); /* what was proposed since */
    agreement_drop_state(a);
    uv_close((uv_handle_t *)&a->timer, on_handle_closed);
    uv_close((uv_handle_t *)&a->wake, on_handle_closed);
}

static void raise_changed(struct agreement *a)
{
    if (!a->changed || a->closing)
        return;
    a->changed = false;
    if (a->options.events.changed)
        a->options.events.changed(a->options.events.self);
}

void agreement_turn(struct agreement *a)
{
    const uint64_t now_ms = agreement_now_ms();
    if (a->handles_closing)
        return;
    if (a->replica && replica_timer(a->replica) <= now_ms)
        replica_tick(a->replica, now_ms);
    agreement_carry_out(a);
    notice_leader(a);
    notice_ready(a);
    agreement_proposals(a);
    agreement_step_members(a);
    agreement_carry_out(a);
    agreement_next_job(a);
    raise_changed(a);
    set_timer(a);
    if (a->closing)
        end(a);
}

void agreement_wake(struct agreement *a)
{
    if (!a->handles_closing)
        uv_async_send(&a->wake);
}

static void on_wake(uv_async_t *wake)
{
    agreement_turn(wake->data);
}

/* ---- opening and closing ---- */

static void set_default(uint32_t *value, uint32_t standard)
{
    if (!*value)
        *value = standard;
}

static void set_replica_defaults(struct replica_options *o, uint64_t seed)
{
    const struct replica_options standard = replica_options_default();
    set_default(&o->election_ms, standard.election_ms);
    set_default(&o->heartbeat_ms, standard.heartbeat_ms);
    set_default(&o->snapshot_after, standard.snapshot_after);
    set_default(&o->trailing, standard.trailing);
    o->status_ms = o->status_ms ? o->status_ms : standard.status_ms;
    o->grace_ms = o->grace_ms ? o->grace_ms : standard.grace_ms;
    o->minority_grace_ms = o->minority_grace_ms ? o->minority_grace_ms : standard.minority_grace_ms;
    if (o->minority_grace_ms < o->grace_ms)
        o->minority_grace_ms = o->grace_ms;
    o->seed = o->seed ? o->seed : seed;
}

static enum error_code take_options(struct agreement *a, const struct agreement_options *options, struct error *err)
{
    uint64_t random[2];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return error_set(err, ERROR_IO, "no random numbers: %s", strerror(errno));
    a->options = *options;
    a->path = mem_copy_text(options->path, strlen(options->path));
    a->node = options->node ? mem_copy_text(options->node, strlen(options->node)) : NULL;
    if (!a->path || (options->node && !a->node))
        return error_set(err, ERROR_NO_MEMORY, "no memory for the cluster's log");
    set_replica_defaults(&a->options.replica, random[0]);
    set_default(&a->options.proposal_ms, LIMIT_PROPOSAL_MS);
    set_default(&a->options.step_ms, STEP_MS);
    set_default(&a->options.reopen_ms, REOPEN_MS);
    set_default(&a->options.frame_bytes_max, LIMIT_FRAME_CONTROL_BYTES);
    a->nonce_seed = random[1];
    a->message_number = (uint32_t)random[1];
    a->reopen_wait_ms = a->options.reopen_ms;
    a->last_write = &a->first_write;
    a->last_foreign = &a->first_foreign;
    return ERROR_NONE;
}

static enum error_code open_handles(struct agreement *a, struct error *err)
{
    a->wake.data = a->timer.data = a;
    const int problem = uv_async_init(a->options.loop, &a->wake, on_wake);
    if (problem)
        return error_set(err, ERROR_IO, "cannot wake the event loop: %s", uv_strerror(problem));
    uv_timer_init(a->options.loop, &a->timer);
    a->n_handles = 2;
    uv_async_send(&a->wake);
    return ERROR_NONE;
}

enum error_code agreement_open(const struct agreement_options *options, struct agreement **out, struct error *err)
{
    struct log_saved saved = {0};
    struct agreement *a = mem_new(sizeof *a);
    *out = NULL;
    if (!a)
        return error_set(err, ERROR_NO_MEMORY, "no memory for the cluster's log");
    enum error_code code = take_options(a, options, err);
    if (!code)
        code = agreement_open_store(a->path, &a->store, &saved, err);
    if (!code)
        code = agreement_begin_replica(a, &saved, err);
    log_saved_clear(&saved);
    if (!code)
        code = open_handles(a, err);
    if (!code) {
        *out = a;
        return ERROR_NONE;
    }
    replica_close(a->replica);
    store_close(a->store);
    mem_free(a->path);
    mem_free(a->node);
    mem_free(a);
    return code;
}

void agreement_close(struct agreement *a, void (*closed)(void *arg), void *arg)
{
    a->closing = true;
    a->closed = closed;
    a->closed_arg = arg;
    agreement_proposals_end(a, ERROR_CANCELLED, "the node is stopping");
    agreement_end_replica(a);
    agreement_wake(a);
}

/* ---- founding and leaving ---- */

static enum error_code write_first(struct agreement *a, struct log_saved *saved, struct error *err)
{
    struct log_write write;
    enum error_code code = replica_found(a->member, &write, err);
    if (code)
        return code;
    code = store_write(a->store, &write, err);
    log_write_clear(&write);
    return code ? code : store_load(a->store, saved, err);
}

enum error_code agreement_found(struct agreement *a, struct error *err)
{
    struct log_saved saved = {0};
    struct error why;
    if (a->replica && replica_status(a->replica).lineage.generation)
        return error_set(err, ERROR_INVALID, "this node is in a cluster already");
    if (!a->replica || a->job.type != JOB_NONE)
        return error_set(err, ERROR_BUSY, "this node's log is not at hand now");
    enum error_code code = write_first(a, &saved, &why);
    if (!code) {
        agreement_end_replica(a);
        code = agreement_begin_replica(a, &saved, &why);
    }
    if (code)
        note_failure(a, &why);
    log_saved_clear(&saved);
    agreement_wake(a);
    return code ? error_set(err, code, "%s", why.text) : code;
}

enum error_code agreement_forget(struct agreement *a, agreement_forgotten_fn done, void *arg, struct error *err)
{
    if (a->closing || a->forgetting)
        return error_set(err, ERROR_BUSY, "this node is leaving its cluster already");
    a->forgetting = true;
    a->forgotten = done;
    a->forgotten_arg = arg;
    a->failed = false;
    a->failure = (struct error){0};
    a->member = 0;
    a->n_views = 0;
    agreement_proposals_end(a, ERROR_CANCELLED, "the node has left its cluster");
    agreement_end_replica(a);
    agreement_drop_state(a);
    nonces_clear(&a->nonces);
    agreement_wake(a);
    return ERROR_NONE;
}

/* ---- messages and questions ---- */

void agreement_receive(struct agreement *a, uint64_t from, const void *bytes, size_t size)
{
    const uint8_t *message;
    size_t message_size;
    struct error err;
    if (!a->replica || !from)
        return;
    enum error_code code = pieces_take(&a->pieces, from, bytes, size, &message, &message_size, &err);
    if (!code && message)
        code = replica_receive(a->replica, agreement_now_ms(), from, message, message_size, &err);
    if (code)
        log_line(LOG_WARN, "cluster", "a message of member %016llx was dropped: %s", (unsigned long long)from,
                 err.text);
    if (message)
        agreement_wake(a);
}

const struct state *agreement_state(const struct agreement *a)
{
    return a->keeps ? &a->kept : &a->state;
}

uint64_t agreement_member(const struct agreement *a)
{
    return a->member;
}

struct replica_status agreement_status(const struct agreement *a)
{
    return a->replica ? replica_status(a->replica) : (struct replica_status){.failed = a->failed};
}

const struct error *agreement_failure(const struct agreement *a)
{
    return a->failed ? &a->failure : NULL;
}
