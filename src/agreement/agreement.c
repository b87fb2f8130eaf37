#include "agreement/agreement_impl.h"

#include "base/clock.h"
#include "base/log.h"

#include <assert.h>
#include <time.h>

uint64_t agreement_now_ms(void)
{
    return clock_now_ns() / 1000000;
}

static uint64_t wall_clock_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* ---- the turn ---- */

static void raise_failed(struct agreement *a, const struct party_effect *effect)
{
    assert(effect->err.code);
    const struct error why = effect->err;
    agreement_drop_writes(a);
    if (effect->known || a->closing)
        return;
    log_line(LOG_ERROR, "cluster", "this node no longer takes part in the cluster: %s", why.text);
    if (a->events.failed)
        a->events.failed(a->events.self, &why);
}

static void carry_out_effect(struct agreement *a, struct party_effect *effect)
{
    const struct agreement_events *events = &a->events;
    switch (effect->type) {
    case PARTY_SEND:
        if (!events->send(events->self, effect->to, effect->bytes, effect->size))
            party_skip_frames(a->party);
        break;
    case PARTY_FORWARD:
        events->forward(events->self, effect->to, effect->bytes, effect->size);
        break;
    case PARTY_WRITE:
        agreement_queue_write(a, effect->write);
        break;
    case PARTY_REOPEN:
        a->reopens = true;
        break;
    case PARTY_ENTRY:
        if (effect->event && !effect->seen && events->applied)
            events->applied(events->self, effect->index, effect->event, effect->outcome);
        break;
    case PARTY_DONE:
        if (effect->done)
            effect->done(effect->arg, effect->err.code, effect->outcome,
                         effect->err.code ? &effect->err : NULL);
        break;
    case PARTY_FAILED:
        raise_failed(a, effect);
        break;
    case PARTY_CHANGED:
        if (events->changed && !a->closing)
            events->changed(events->self);
        break;
    case PARTY_RESTORED:
    case PARTY_DROPPED:
        break;
    }
}

void agreement_carry_out(struct agreement *a)
{
    assert(!a->handles_closing || a->closing);
    struct party_effect effect;
    party_tick(a->party, agreement_now_ms());
    while (party_next(a->party, &effect))
        carry_out_effect(a, &effect);
}

static void on_agreement_timer(uv_timer_t *timer)
{
    agreement_turn(timer->data);
}

static void set_agreement_timer(struct agreement *a)
{
    const uint64_t due = party_timer(a->party), now_ms = agreement_now_ms();
    if (due == UINT64_MAX || a->closing) {
        uv_timer_stop(&a->timer);
        return;
    }
    uv_update_time(a->loop);
    uv_timer_start(&a->timer, on_agreement_timer, due > now_ms ? due - now_ms : 0, 0);
}

void agreement_turn(struct agreement *a)
{
    if (a->handles_closing)
        return;
    agreement_carry_out(a);
    agreement_next_job(a);
    set_agreement_timer(a);
    assert(a->job.type == JOB_NONE || !a->store); /* who runs has it */
    if (a->closing)
        agreement_end(a);
}

void agreement_wake(struct agreement *a)
{
    if (!a->handles_closing)
        uv_async_send(&a->wake);
}

/* ---- messages, wishes and questions ---- */

void agreement_receive(struct agreement *a, uint64_t from, const void *bytes, size_t size)
{
    if (party_receive(a->party, agreement_now_ms(), from, bytes, size))
        agreement_wake(a);
}

void agreement_receive_proposal(struct agreement *a, const void *bytes, size_t size)
{
    if (party_receive_proposal(a->party, bytes, size))
        agreement_wake(a);
}

void agreement_propose(struct agreement *a, Cluster__Event *event, agreement_done_fn done,
                       void *arg)
{
    struct error err;
    if (!party_propose(a->party, agreement_now_ms(), wall_clock_ms(), event, done, arg, &err))
        agreement_wake(a);
    else if (done)
        done(arg, err.code, NULL, &err);
}

void agreement_set_members(struct agreement *a, const struct member_view *views, uint32_t n)
{
    party_set_members(a->party, views, n);
    if (party_status(a->party).leads)
        agreement_wake(a);
}

const struct state *agreement_state(const struct agreement *a)
{
    return party_state(a->party);
}

uint64_t agreement_member(const struct agreement *a)
{
    return party_member(a->party);
}

bool agreement_has_agreed_on(const struct agreement *a, uint64_t member)
{
    return party_has_agreed_on(a->party, member);
}

struct replica_status agreement_status(const struct agreement *a)
{
    return party_status(a->party);
}

const struct error *agreement_failure(const struct agreement *a)
{
    return party_failure(a->party);
}
