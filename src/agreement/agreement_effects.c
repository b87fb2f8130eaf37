/* What a replica wants done: messages, writes, and the state that follows from what counts. */
#include "agreement/agreement_impl.h"

#include "base/log.h"

#include <string.h>

/* ---- the state that is shown ---- */

void agreement_keep_state(struct agreement *a, uint64_t until)
{
    if (a->keeps || !a->state.root) {
        state_deinit(&a->state);
    } else {
        a->kept = a->state;
        a->state = (struct state){0};
        a->keeps = true;
    }
    a->kept_until = until;
    a->applied = 0;
}

void agreement_drop_state(struct agreement *a)
{
    state_deinit(&a->state);
    state_deinit(&a->kept);
    a->keeps = false;
    a->applied = 0;
}

static void advance(struct agreement *a, uint64_t index)
{
    a->applied = index;
    if (a->keeps && index >= a->kept_until) {
        state_deinit(&a->kept);
        a->keeps = false;
    }
    a->changed |= !a->keeps;
}

/* ---- effects ---- */

static void send_message(struct agreement *a, const struct replica_effect *effect)
{
    struct pieces_cut cut = {.number = a->message_number++,
                             .frame_bytes_max = a->options.frame_bytes_max,
                             .bytes = effect->bytes,
                             .size = effect->size};
    while (a->replica && pieces_next(&cut, &a->frame)) {
        if (!a->options.events.send(a->options.events.self, effect->to, a->frame.data,
                                    a->frame.size))
            return; /* messages may be lost */
    }
}

/* Going on without it would be another state than the others'. */
static enum error_code check_known(const Cluster__Event *event, struct error *err)
{
    const uint32_t level = event_level(event);
    if (level <= event_level_known())
        return ERROR_NONE;
    return error_set(
        err, ERROR_UNSUPPORTED,
        "the log has changes of a kind (%u) that medley %s does not know: update the medley here",
        level, MEDLEY_VERSION);
}

static enum error_code apply_event(struct agreement *a, const struct replica_effect *effect,
                                   struct error *err)
{
    Cluster__Event *event;
    struct state_outcome outcome;
    const bool seen = a->keeps && effect->index <= a->kept_until;
    enum error_code code = event_decode(effect->bytes, effect->size, &event, err);
    if (!code)
        code = check_known(event, err);
    if (code != ERROR_NO_MEMORY && code != ERROR_UNSUPPORTED)
        code = state_apply(&a->state, effect->index, effect->bytes, effect->size, &outcome, err);
    if (!code) {
        advance(a, effect->index);
        const uint64_t nonce = event ? event->nonce : 0;
        nonces_applied(&a->nonces, nonce);
        if (event && !seen && a->options.events.applied)
            a->options.events.applied(a->options.events.self, effect->index, event, &outcome);
        agreement_proposal_applied(a, nonce, &outcome);
    }
    event_free(event);
    return code;
}

static enum error_code apply_members(struct agreement *a, const struct replica_effect *effect,
                                     struct error *err)
{
    struct state_outcome outcome;
    const enum error_code code =
        state_apply_members(&a->state, effect->index, effect->bytes, effect->size, &outcome, err);
    if (!code)
        advance(a, effect->index);
    a->members_due = true;
    return code;
}

static enum error_code restore(struct agreement *a, const struct replica_effect *effect,
                               struct error *err)
{
    const enum error_code code = state_decode(&a->state, effect->bytes, effect->size, err);
    if (!code)
        advance(a, effect->index);
    return code;
}

/* A snapshot that nobody could read again must not take the place of the log that it would cut
 * off. */
static enum error_code take_snapshot(struct agreement *a, uint64_t index, struct error *err)
{
    struct buffer bytes = {0};
    enum error_code code = ERROR_NONE;
    state_encode(&a->state, &bytes);
    if (bytes.failed)
        code = error_set(err, ERROR_NO_MEMORY, "no memory for a snapshot");
    else if (bytes.size > LIMIT_CLUSTER_SNAPSHOT_BYTES)
        log_line(LOG_ERROR, "cluster",
                 "the state has become %zu bytes large, a snapshot may have %d: the log only grows",
                 bytes.size, LIMIT_CLUSTER_SNAPSHOT_BYTES);
    else
        replica_snapshot(a->replica, agreement_now_ms(), index, (const uint8_t *)bytes.data,
                         bytes.size);
    buffer_deinit(&bytes);
    return code;
}

static enum error_code carry_out(struct agreement *a, struct replica_effect *effect,
                                 struct error *err)
{
    switch (effect->type) {
    case REPLICA_SEND:
        send_message(a, effect);
        break;
    case REPLICA_WRITE:
        agreement_queue_write(a, &effect->write);
        break;
    case REPLICA_APPLY:
        return effect->entry == LOG_MEMBERS ? apply_members(a, effect, err)
                                            : apply_event(a, effect, err);
    case REPLICA_RESTORE:
        return restore(a, effect, err);
    case REPLICA_SNAPSHOT:
        return take_snapshot(a, effect->index, err);
    case REPLICA_EMPTY:
        agreement_keep_state(a, 0);
        nonces_clear(&a->nonces);
        break;
    case REPLICA_FAILED:
        return error_set(err, effect->failure.code, "%s", effect->failure.text);
    }
    return ERROR_NONE;
}

void agreement_carry_out(struct agreement *a)
{
    struct replica_effect effect;
    struct error err;
    while (a->replica && replica_next(a->replica, &effect)) {
        const enum error_code code = carry_out(a, &effect, &err);
        replica_effect_clear(&effect);
        if (code)
            agreement_fail(a, &err);
    }
}
