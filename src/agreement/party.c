#include "agreement/party_impl.h"

#include "base/mem.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { STEP_MS = 1000, REOPEN_MS = 5000, REOPEN_SLOWER = 12, READY_STEPS = 10 };

void party_say(const struct party *p, enum log_level level, const char *format, ...)
{
    char text[sizeof p->failure.text];
    va_list args;
    if (!p->options.say)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    p->options.say(p->options.self, level, text);
}

void party_clock(struct party *p, uint64_t now_ms)
{
    if (now_ms > p->now_ms)
        p->now_ms = now_ms;
}

/* What must be so whenever nothing is under way inside. */
static void party_check(const struct party *p)
{
    assert(!p->replica || (!p->failed && !p->stopped && !p->forgetting));
    assert(!p->ready || (p->replica && p->last.leads));
    assert(!p->keeps || p->kept);
    assert(p->n_proposals || !p->proposals);
    assert(p->n_foreign <= LIMIT_PROPOSALS && (p->n_foreign || !p->foreign_bytes));
}

/* ---- beginning and end ---- */

static void set_party_default(uint32_t *value, uint32_t standard)
{
    if (!*value)
        *value = standard;
}

/* The state says which lineage it last knew itself in: that of the log or, where the log was
 * founded anew and the new leader has not said so yet, an older one. */
static enum error_code party_check_state(void *self, struct lineage lineage, const uint8_t *bytes,
                                         size_t size, struct error *err)
{
    struct state state = {0};
    const enum error_code code = state_decode(&state, bytes, size, err);
    const struct lineage own = state_lineage(&state);
    (void)self; /* any party's */
    state_deinit(&state);
    if (!code && own.generation > lineage.generation)
        return error_set(err, ERROR_INVALID, "a state of generation %llu in a log of %llu",
                         (unsigned long long)own.generation,
                         (unsigned long long)lineage.generation);
    return code;
}

static void set_replica_defaults(struct replica_options *o, uint64_t seed)
{
    const struct replica_options standard = replica_options_default();
    set_party_default(&o->election_ms, standard.election_ms);
    set_party_default(&o->heartbeat_ms, standard.heartbeat_ms);
    set_party_default(&o->snapshot_after, standard.snapshot_after);
    set_party_default(&o->trailing, standard.trailing);
    o->status_ms = o->status_ms ? o->status_ms : standard.status_ms;
    o->grace_ms = o->grace_ms ? o->grace_ms : standard.grace_ms;
    o->minority_grace_ms = o->minority_grace_ms ? o->minority_grace_ms : standard.minority_grace_ms;
    if (o->minority_grace_ms < o->grace_ms)
        o->minority_grace_ms = o->grace_ms;
    o->seed = o->seed ? o->seed : seed;
}

enum error_code party_new(const struct party_options *options, struct party **out,
                          struct error *err)
{
    struct party *p = mem_new(sizeof *p);
    *out = NULL;
    if (p && options->node)
        p->node = mem_copy_text(options->node, strlen(options->node));
    if (!p || (options->node && !p->node)) {
        mem_free(p);
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the cluster's log");
    }
    p->options = *options;
    set_replica_defaults(&p->options.replica, options->seed);
    p->options.replica.check_state = party_check_state;
    set_party_default(&p->options.proposal_ms, LIMIT_PROPOSAL_MS);
    set_party_default(&p->options.step_ms, STEP_MS);
    set_party_default(&p->options.reopen_ms, REOPEN_MS);
    set_party_default(&p->options.frame_bytes_max, LIMIT_FRAME_CONTROL_BYTES);
    p->message_number = (uint32_t)options->seed;
    p->reopen_wait_ms = p->options.reopen_ms;
    p->told_last = &p->told_first;
    p->last_foreign = &p->first_foreign;
    *out = p;
    return ERROR_NONE;
}

static void party_end_replica(struct party *p)
{
    replica_close(p->replica);
    p->replica = NULL;
    p->ready = false;
    p->changed = true;
    p->cut = (struct pieces_cut){0};
    party_drop_foreign(p);
    nonces_lost(&p->nonces);
    pieces_deinit(&p->pieces);
}

void party_free(struct party *p)
{
    if (!p)
        return;
    party_end_replica(p);
    party_clear_effect(p);
    party_free_proposals(p);
    party_drop_state(p);
    buffer_deinit(&p->frame);
    mem_free(p->views);
    mem_free(p->node);
    mem_free(p);
}

enum error_code party_begin(struct party *p, uint64_t now_ms, uint64_t member,
                            const struct log_saved *saved, struct error *err)
{
    assert(member && !p->stopped);
    party_clock(p, now_ms);
    if (p->replica)
        party_end_replica(p);
    struct replica_options options = p->options.replica;
    options.id = p->member = member;
    p->last = (struct replica_status){0};
    p->forgetting = p->reopening = false;
    const enum error_code code = replica_open(&options, saved, p->now_ms, &p->replica, err);
    if (code)
        return code;
    p->failed = false;
    p->changed = p->due = true;
    party_keep_state(p, p->keeps ? p->kept_until : p->applied);
    party_check(p);
    return ERROR_NONE;
}

/* A failure that goes on is told once. */
void party_fail(struct party *p, uint64_t now_ms, const struct error *why, enum party_failing how)
{
    const struct error copy = *why;
    party_clock(p, now_ms);
    p->knows_failure = p->failure.code == copy.code && !p->wrote;
    p->tells_failure = how != PARTY_RETRIES_TOLD;
    party_end_replica(p);
    p->failed = p->due = true;
    p->wrote = p->reopening = p->forgetting = false;
    p->failure = copy;
    p->may_reopen =
        how != PARTY_GIVES_UP && copy.code != ERROR_INVALID && copy.code != ERROR_UNSUPPORTED;
    p->reopen_at_ms = p->now_ms + p->reopen_wait_ms;
    if (p->reopen_wait_ms < (uint64_t)REOPEN_SLOWER * p->options.reopen_ms)
        p->reopen_wait_ms *= 2;
    party_check(p);
}

void party_forget(struct party *p)
{
    assert(!p->stopped && !p->forgetting);
    p->forgetting = p->due = true;
    p->failed = p->reopening = p->tells_failure = false;
    p->failure = (struct error){0};
    p->member = 0;
    p->n_views = 0;
    party_end_proposals(p, ERROR_CANCELLED, "the node has left its cluster");
    party_end_replica(p);
    party_drop_state(p);
    nonces_clear(&p->nonces);
    party_check(p);
}

void party_stop(struct party *p)
{
    p->stopped = p->due = true;
    party_end_proposals(p, ERROR_CANCELLED, "the node is stopping");
    party_end_replica(p);
    party_check(p);
}

/* ---- the step ---- */

/* What follows from who leads now. */
static void notice_party_leader(struct party *p)
{
    const struct replica_status now = party_status(p), last = p->last;
    const bool began = now.leads && (!last.leads || now.term != last.term);
    p->last = now;
    if (now.leads != last.leads || now.leader != last.leader ||
        lineage_compare(now.lineage, last.lineage) || now.failed != last.failed) {
        p->changed = true;
        party_send_proposals_now(p);
    }
    if (!began && now.leads)
        return;
    /* What was submitted in an older term may be replaced by another leader (Raft, figure 3.7). */
    if (last.leads || began)
        nonces_lost(&p->nonces);
    if (!now.leads)
        party_drop_foreign(p);
    p->ready = false;
    p->lead_from = now.last;
    p->ready_by_ms = p->now_ms + (uint64_t)READY_STEPS * p->options.step_ms;
    p->members_due = true;
}

/* A new leader does not know yet which events the rest of its log has (Ongaro, section 6.4). They
 * count soon; then it takes others. Should they not, rather an event twice than none. */
static void notice_party_ready(struct party *p)
{
    if (p->ready || !p->last.leads ||
        (p->last.applied < p->lead_from && p->now_ms < p->ready_by_ms))
        return;
    p->ready = true;
    party_send_proposals_now(p);
}

static void party_step(struct party *p)
{
    assert(p->due);
    p->due = false;
    notice_party_leader(p);
    notice_party_ready(p);
    party_step_proposals(p);
    party_step_members(p);
    party_check(p);
}

void party_tick(struct party *p, uint64_t now_ms)
{
    party_clock(p, now_ms);
    p->due = true;
    if (p->replica && replica_timer(p->replica) <= p->now_ms)
        replica_tick(p->replica, p->now_ms);
}

static uint64_t earlier(uint64_t x, uint64_t y)
{
    return x < y ? x : y;
}

uint64_t party_timer(const struct party *p)
{
    uint64_t due = earlier(party_proposals_timer(p), party_members_timer(p));
    if (p->replica)
        due = earlier(due, replica_timer(p->replica));
    if (p->last.leads && !p->ready && p->replica)
        due = earlier(due, p->ready_by_ms);
    if (p->failed && p->may_reopen && !p->reopening)
        due = earlier(due, p->reopen_at_ms);
    return p->stopped ? UINT64_MAX : due;
}

static bool tell_party_failure(struct party *p, struct party_effect *out)
{
    if (!p->tells_failure)
        return false;
    p->tells_failure = false;
    *out = (struct party_effect){
        .type = PARTY_FAILED, .err = p->failure, .known = p->knows_failure || p->stopped};
    return true;
}

/* Last of all: what the others have led to. */
static bool tell_party_rest(struct party *p, struct party_effect *out)
{
    if (p->failed && p->may_reopen && !p->reopening && !p->stopped &&
        p->now_ms >= p->reopen_at_ms) {
        p->reopening = true;
        *out = (struct party_effect){.type = PARTY_REOPEN};
    } else if (p->changed && !p->stopped) {
        p->changed = false;
        *out = (struct party_effect){.type = PARTY_CHANGED};
    } else {
        return false;
    }
    return true;
}

bool party_next(struct party *p, struct party_effect *out)
{
    out->type = 0; /* who sets it sets all: an effect has room for an error's text */
    party_free_done(p);
    for (;;) {
        if (party_tell_proposal(p, out) || tell_party_failure(p, out) || party_next_frame(p, out))
            return true;
        party_clear_effect(p);
        if (p->replica && replica_next(p->replica, &p->effect)) {
            if (party_carry_out(p, out))
                return true;
        } else if (p->due) {
            party_step(p);
        } else {
            return tell_party_rest(p, out);
        }
    }
}

/* ---- messages and questions ---- */

/* Whoever sends nonsense does not fill the disk with what is said of it. */
static void party_say_dropped(struct party *p, uint64_t from, const struct error *err)
{
    enum { SAY_MS = 1000 };
    p->n_dropped++;
    if (p->dropped_said_ms && p->now_ms - p->dropped_said_ms < SAY_MS)
        return;
    party_say(p, err->code == ERROR_BUSY ? LOG_INFO : LOG_WARN,
              "a message of member %016llx was dropped: %s (%llu since the last word)",
              (unsigned long long)from, err->text, (unsigned long long)p->n_dropped);
    p->dropped_said_ms = p->now_ms;
    p->n_dropped = 0;
}

bool party_receive(struct party *p, uint64_t now_ms, uint64_t from, const void *bytes, size_t size)
{
    const uint8_t *message;
    size_t message_size;
    struct error err;
    party_clock(p, now_ms);
    if (!p->replica || !from)
        return false;
    enum error_code code =
        pieces_take(&p->pieces, from, bytes, size, &message, &message_size, &err);
    if (!code && message)
        code = replica_receive(p->replica, p->now_ms, from, message, message_size, &err);
    if (code)
        party_say_dropped(p, from, &err);
    return message != NULL;
}

void party_written(struct party *p, uint64_t now_ms, uint64_t sequence)
{
    party_clock(p, now_ms);
    if (!p->replica)
        return;
    p->reopen_wait_ms = p->options.reopen_ms;
    p->wrote = p->due = true;
    replica_written(p->replica, p->now_ms, sequence);
}

uint64_t party_member(const struct party *p)
{
    return p->member;
}

bool party_has_agreed_on(const struct party *p, uint64_t member)
{
    return p->replica && replica_has_agreed_on(p->replica, member);
}

struct replica_status party_status(const struct party *p)
{
    return p->replica ? replica_status(p->replica) : (struct replica_status){.failed = p->failed};
}

const struct error *party_failure(const struct party *p)
{
    return p->failed ? &p->failure : NULL;
}

bool party_takes_part(const struct party *p)
{
    return p->replica != NULL;
}
