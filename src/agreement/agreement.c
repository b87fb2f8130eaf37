#include "agreement/agreement_impl.h"

#include "base/clock.h"
#include "base/log.h"

enum { REOPEN_SLOWER = 12, READY_STEPS = 10 };

uint64_t agreement_now_ms(void)
{
    return clock_now_ns() / 1000000;
}

/* ---- the replica comes and goes ---- */

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

void agreement_note_failure(struct agreement *a, const struct error *why)
{
    agreement_end_replica(a);
    a->failed = true;
    a->wrote = false;
    a->failure = *why;
    a->may_reopen = why->code != ERROR_INVALID && why->code != ERROR_UNSUPPORTED;
    a->reopen_at_ms = agreement_now_ms() + a->reopen_wait_ms;
    if (a->reopen_wait_ms < (uint64_t)REOPEN_SLOWER * a->options.reopen_ms)
        a->reopen_wait_ms *= 2;
}

/* A failure that goes on is told once. */
void agreement_fail(struct agreement *a, const struct error *why)
{
    const bool known = a->failure.code == why->code && !a->wrote;
    const struct error copy = *why;
    agreement_note_failure(a, &copy);
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
    if (now.leads != last.leads || now.leader != last.leader ||
        lineage_compare(now.lineage, last.lineage) || now.failed != last.failed) {
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

/* A new leader does not know yet which events the rest of its log has. They count soon; then it
 * takes others. Should they not, rather an event twice than none. */
static void notice_ready(struct agreement *a)
{
    if (a->ready || !a->last.leads ||
        (a->last.applied < a->lead_from && agreement_now_ms() < a->ready_by_ms))
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
        agreement_end(a);
}

void agreement_wake(struct agreement *a)
{
    if (!a->handles_closing)
        uv_async_send(&a->wake);
}

/* ---- messages and questions ---- */

void agreement_receive(struct agreement *a, uint64_t from, const void *bytes, size_t size)
{
    const uint8_t *message;
    size_t message_size;
    struct error err;
    if (!a->replica || !from)
        return;
    enum error_code code =
        pieces_take(&a->pieces, from, bytes, size, &message, &message_size, &err);
    if (!code && message)
        code = replica_receive(a->replica, agreement_now_ms(), from, message, message_size, &err);
    if (code)
        log_line(LOG_WARN, "cluster", "a message of member %016llx was dropped: %s",
                 (unsigned long long)from, err.text);
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
