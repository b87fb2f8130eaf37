/* What a replica wants done: messages, writes, and the state that follows from what counts. */
#include "agreement/party_impl.h"

#include "base/mem.h"
#include "base/version.h"

#include <assert.h>

/* ---- whose states they are ---- */

static struct state *own_state(struct party *p, struct lineage lineage, uint64_t index)
{
    const struct party_states *shared = p->options.states;
    if (shared)
        return shared->own(shared->self, p->state, lineage, index);
    return p->state ? p->state : mem_new(sizeof *p->state);
}

static bool find_state(struct party *p, struct lineage lineage, uint64_t index)
{
    const struct party_states *shared = p->options.states;
    struct state *found = shared ? shared->find(shared->self, p->state, lineage, index) : NULL;
    p->state = found ? found : p->state;
    return found != NULL;
}

static void give_back_state(struct party *p, struct state **state)
{
    const struct party_states *shared = p->options.states;
    if (*state && shared) {
        shared->give_back(shared->self, *state);
    } else if (*state) {
        state_deinit(*state);
        mem_free(*state);
    }
    *state = NULL;
}

/* ---- the state that is shown ---- */

static const struct state empty_state;

const struct state *party_applied(const struct party *p)
{
    return p->state ? p->state : &empty_state;
}

const struct state *party_state(const struct party *p)
{
    return p->keeps ? p->kept : party_applied(p);
}

void party_keep_state(struct party *p, uint64_t until)
{
    if (p->keeps || !p->state || !p->state->root) {
        give_back_state(p, &p->state);
    } else {
        p->kept = p->state;
        p->state = NULL;
        p->keeps = true;
    }
    p->kept_until = until;
    p->applied = p->ahead_until = 0;
}

void party_drop_state(struct party *p)
{
    give_back_state(p, &p->state);
    give_back_state(p, &p->kept);
    p->keeps = false;
    p->applied = p->ahead_until = 0;
}

static void advance_state(struct party *p, uint64_t index)
{
    assert(index > p->applied); /* entries count in order, once (Raft, figure 3.2: lastApplied) */
    p->applied = index;
    if (p->keeps && index >= p->kept_until) {
        give_back_state(p, &p->kept);
        p->keeps = false;
    }
    p->changed |= !p->keeps;
}

/* ---- effects ---- */

void party_clear_effect(struct party *p)
{
    replica_effect_clear(&p->effect);
    event_free(p->event);
    p->event = NULL;
    p->cut = (struct pieces_cut){0};
}

bool party_next_frame(struct party *p, struct party_effect *out)
{
    if (!p->replica || p->effect.type != REPLICA_SEND || !p->cut.bytes ||
        !pieces_next(&p->cut, &p->frame))
        return false;
    *out = (struct party_effect){.type = PARTY_SEND,
                                 .to = p->effect.to,
                                 .bytes = (const uint8_t *)p->frame.data,
                                 .size = p->frame.size};
    return true;
}

void party_skip_frames(struct party *p)
{
    p->cut = (struct pieces_cut){0};
}

static void begin_frames(struct party *p)
{
    assert(!p->cut.bytes);
    p->cut = (struct pieces_cut){.number = p->message_number++,
                                 .frame_bytes_max = p->options.frame_bytes_max,
                                 .bytes = p->effect.bytes,
                                 .size = p->effect.size};
}

/* Going on without it would be another state than the others'. */
static enum error_code check_event_known(const Cluster__Event *event, struct error *err)
{
    const uint32_t level = event_level(event);
    if (level <= event_level_known())
        return ERROR_NONE;
    return error_set(
        err, ERROR_UNSUPPORTED,
        "the log has changes of a kind (%u) that medley %s does not know: update the medley here",
        level, MEDLEY_VERSION);
}

/* A shared state may be ahead by what else has come with this entry. */
static bool state_is_ahead(struct party *p)
{
    assert(p->replica);
    const struct replica_effect *entry = &p->effect;
    if (p->ahead_until >= entry->index || !p->options.states)
        return p->ahead_until >= entry->index;
    const uint64_t last = replica_status(p->replica).applied;
    if (last >= entry->index && find_state(p, entry->lineage, last))
        p->ahead_until = last;
    else if (find_state(p, entry->lineage, entry->index))
        p->ahead_until = entry->index;
    return p->ahead_until >= entry->index;
}

static enum error_code apply_entry(struct party *p, struct error *err)
{
    assert(p->effect.type == REPLICA_APPLY);
    const struct replica_effect *entry = &p->effect;
    struct state *own = own_state(p, entry->lineage, entry->index);
    if (!own)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the state");
    p->state = own;
    return entry->entry == LOG_MEMBERS
               ? state_apply_members(own, entry->index, entry->bytes, entry->size, &p->outcome, err)
               : state_apply(own, entry->index, entry->bytes, entry->size, &p->outcome, err);
}

static enum error_code take_entry(struct party *p, struct party_effect *out, struct error *err)
{
    assert(p->effect.entry != LOG_BARRIER);
    const struct replica_effect *entry = &p->effect;
    enum error_code code = ERROR_NONE;
    if (entry->entry == LOG_EVENT)
        code = event_decode(entry->bytes, entry->size, &p->event, err);
    if (!code && p->event)
        code = check_event_known(p->event, err);
    /* Bytes that are no event change the count of such events, on every node. */
    if (code == ERROR_NO_MEMORY || code == ERROR_UNSUPPORTED)
        return code;
    *out = (struct party_effect){.type = PARTY_ENTRY,
                                 .index = entry->index,
                                 .entry = entry,
                                 .event = p->event,
                                 .seen = p->keeps && entry->index <= p->kept_until};
    p->outcome = (struct state_outcome){.applied = true};
    if (!state_is_ahead(p)) {
        code = apply_entry(p, err);
        if (code)
            return code;
        out->outcome = &p->outcome;
    }
    advance_state(p, entry->index);
    if (entry->entry == LOG_MEMBERS)
        p->members_due = true;
    const uint64_t nonce = p->event ? p->event->nonce : 0;
    nonces_applied(&p->nonces, nonce);
    party_proposal_applied(p, nonce);
    return ERROR_NONE;
}

static enum error_code restore_state(struct party *p, struct error *err)
{
    assert(p->effect.type == REPLICA_RESTORE);
    const struct replica_effect *e = &p->effect;
    const struct lineage lineage = replica_status(p->replica).lineage;
    if (!find_state(p, lineage, e->index)) {
        struct state *own = own_state(p, lineage, e->index);
        if (!own)
            return error_set(err, ERROR_NO_MEMORY, "not enough memory for the state");
        p->state = own;
        const enum error_code code = state_decode(own, e->bytes, e->size, err);
        if (code)
            return code;
    }
    p->ahead_until = e->index;
    advance_state(p, e->index);
    return ERROR_NONE;
}

/* A snapshot that nobody could read again must not take the place of the log that it would cut
 * off. */
static enum error_code take_snapshot(struct party *p, struct error *err)
{
    assert(p->applied == p->effect.index || p->effect.index > p->applied);
    struct buffer bytes = {0};
    enum error_code code = ERROR_NONE;
    state_encode(party_applied(p), &bytes);
    if (bytes.failed)
        code = error_set(err, ERROR_NO_MEMORY, "not enough memory for a snapshot");
    else if (bytes.size > LIMIT_CLUSTER_SNAPSHOT_BYTES)
        party_say(
            p, LOG_ERROR,
            "the state has become %zu bytes large, a snapshot may have %d: the log only grows",
            bytes.size, LIMIT_CLUSTER_SNAPSHOT_BYTES);
    else
        replica_snapshot(p->replica, p->now_ms, p->effect.index, (const uint8_t *)bytes.data,
                         bytes.size);
    buffer_deinit(&bytes);
    return code;
}

static enum error_code take_effect(struct party *p, struct party_effect *out, struct error *err)
{
    switch (p->effect.type) {
    case REPLICA_SEND:
        begin_frames(p);
        break;
    case REPLICA_WRITE:
        *out = (struct party_effect){.type = PARTY_WRITE, .write = &p->effect.write};
        break;
    case REPLICA_APPLY:
        return take_entry(p, out, err);
    case REPLICA_RESTORE:
        *out = (struct party_effect){.type = PARTY_RESTORED, .index = p->effect.index};
        return restore_state(p, err);
    case REPLICA_SNAPSHOT:
        return take_snapshot(p, err);
    case REPLICA_EMPTY:
        party_say(p, LOG_INFO,
                  "generation %llu takes the place of generation %llu of the log, which is kept "
                  "aside (docs/cluster-log.md)",
                  (unsigned long long)replica_status(p->replica).lineage.generation,
                  (unsigned long long)p->last.lineage.generation);
        party_keep_state(p, 0);
        nonces_clear(&p->nonces);
        *out = (struct party_effect){.type = PARTY_DROPPED};
        break;
    case REPLICA_FAILED:
        return error_set(err, p->effect.failure.code, "%s", p->effect.failure.text);
    }
    return ERROR_NONE;
}

bool party_carry_out(struct party *p, struct party_effect *out)
{
    struct error err;
    assert(p->replica && !p->event);
    if (take_effect(p, out, &err)) {
        *out = (struct party_effect){0};
        party_fail(p, p->now_ms, &err, PARTY_RETRIES);
    }
    return out->type != 0;
}
