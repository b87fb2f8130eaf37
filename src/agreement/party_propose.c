/* Events on their way into the log: of this node, and, where it leads, of others. */
#include "agreement/party_impl.h"

#include "base/mem.h"
#include "base/random.h"
#include "cluster/proof.h"

#include <assert.h>
#include <string.h>

/* ---- of this node ---- */

static void free_proposal(struct proposal *proposal)
{
    buffer_deinit(&proposal->event);
    mem_free(proposal);
}

void party_free_done(struct party *p)
{
    if (p->done)
        free_proposal(p->done);
    p->done = NULL;
}

static uint64_t new_nonce(struct party *p)
{
    uint64_t nonce = 0;
    while (!nonce)
        nonce = random_at(p->options.seed, p->n_nonces++);
    return nonce;
}

/* The log has nothing in it that an admitted node, whether it is up or not, could not read. */
static enum error_code check_event_level(const struct party *p, uint32_t level, struct error *err)
{
    const struct state *state = party_state(p);
    if (level <= EVENT_LEVEL_FIRST || level <= state_level(state))
        return ERROR_NONE;
    for (size_t i = 0; state->root && i < state->root->n_nodes; i++) {
        const Cluster__NodeRecord *record = state->root->nodes[i];
        if (record->admitted && record->node->level < level)
            return error_set(err, ERROR_UNSUPPORTED,
                             "%.64s has an older medley (%.32s) that does not know this: update it",
                             record->node->name,
                             record->node->version ? record->node->version : "?");
    }
    return error_set(err, ERROR_UNSUPPORTED, "no node is known to support this");
}

/* What was agreed on before decides which number the signature takes. A cluster without roles takes
 * no signatures but that of the event which begins them. */
static void sign_proposal(struct party *p, const Cluster__Event *event, struct proposal *proposal)
{
    const bool begins = event->kind_case == CLUSTER__EVENT__KIND_NODE_ROLE;
    if (!p->options.signer || !event_needs_admin(event) ||
        (!begins && !state_has_roles(party_state(p))))
        return;
    proposal->body_size = proposal->event.size;
    proof_add(party_state(p), p->options.signer, &proposal->event, &proposal->refused);
}

/* As another event: who has seen the old one's nonce would not take it again. */
static void sign_proposal_again(struct party *p, struct proposal *proposal)
{
    assert(proposal->body_size && proposal->body_size < proposal->event.size);
    Cluster__Event *event = NULL;
    if (event_decode((const uint8_t *)proposal->event.data, proposal->body_size, &event,
                     &proposal->refused))
        return;
    event->nonce = proposal->nonce = new_nonce(p);
    buffer_clear(&proposal->event);
    event_encode(event, &proposal->event);
    if (proposal->event.failed)
        error_set(&proposal->refused, ERROR_NO_MEMORY, "not enough memory for an event");
    else
        sign_proposal(p, event, proposal);
    event_free(event);
    proposal->again_ms = 0;
    p->due = true;
}

static void encode_proposal(struct party *p, Cluster__Event *event, uint64_t wall_ms,
                            struct proposal *proposal)
{
    assert(event->has_nonce && event->nonce == proposal->nonce);
    char *const by = event->by;
    if (!by)
        event->by = p->node;
    if (!event->has_time_ms) {
        event->has_time_ms = true;
        event->time_ms = wall_ms;
    }
    event_encode(event, &proposal->event);
    if (!proposal->event.failed)
        sign_proposal(p, event, proposal);
    event->by = by;
    if (proposal->refused.code)
        return;
    if (proposal->event.failed)
        error_set(&proposal->refused, ERROR_NO_MEMORY, "not enough memory for an event");
    else if (proposal->event.size > LIMIT_CLUSTER_ENTRY_BYTES)
        error_set(&proposal->refused, ERROR_INVALID,
                  "an event of %zu bytes; at most %d are possible", proposal->event.size,
                  LIMIT_CLUSTER_ENTRY_BYTES);
    else
        check_event_level(p, proposal->level = event_level(event), &proposal->refused);
}

enum error_code party_propose(struct party *p, uint64_t now_ms, uint64_t wall_ms,
                              Cluster__Event *event, party_done_fn done, void *arg,
                              struct error *err)
{
    struct proposal *proposal = mem_new(sizeof *proposal), **end = &p->proposals;
    if (!proposal)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for an event");
    party_clock(p, now_ms);
    *proposal = (struct proposal){.nonce = new_nonce(p),
                                  .deadline_ms = p->now_ms + p->options.proposal_ms,
                                  .done = done,
                                  .arg = arg};
    event->has_nonce = true;
    event->nonce = proposal->nonce;
    if (p->stopped)
        error_set(&proposal->refused, ERROR_CANCELLED, "the node is stopping");
    else if (p->n_proposals >= LIMIT_PROPOSALS)
        error_set(&proposal->refused, ERROR_BUSY, "%d events are already waiting", LIMIT_PROPOSALS);
    else
        encode_proposal(p, event, wall_ms, proposal);
    while (*end)
        end = &(*end)->next;
    *end = proposal;
    p->n_proposals++;
    p->due = true;
    return ERROR_NONE;
}

void party_send_proposals_now(struct party *p)
{
    for (struct proposal *proposal = p->proposals; proposal; proposal = proposal->next)
        proposal->again_ms = 0;
}

void party_end_proposals(struct party *p, enum error_code code, const char *why)
{
    for (struct proposal *proposal = p->proposals; proposal; proposal = proposal->next)
        error_set(&proposal->refused, code, "%s", why);
}

/* ---- what is to be told of them ---- */

static void queue_telling(struct party *p, struct proposal *proposal)
{
    proposal->told_next = NULL;
    *p->told_last = proposal;
    p->told_last = &proposal->told_next;
}

bool party_tell_proposal(struct party *p, struct party_effect *out)
{
    struct proposal *proposal = p->told_first;
    if (!proposal)
        return false;
    assert(proposal->over || proposal->forward_to);
    p->told_first = proposal->told_next;
    if (!p->told_first)
        p->told_last = &p->told_first;
    if (proposal->over) {
        p->done = proposal;
        *out = (struct party_effect){.type = PARTY_DONE,
                                     .done = proposal->done,
                                     .arg = proposal->arg,
                                     .outcome = proposal->counts ? &proposal->outcome : NULL,
                                     .err = proposal->refused};
    } else {
        *out = (struct party_effect){.type = PARTY_FORWARD,
                                     .to = proposal->forward_to,
                                     .bytes = (const uint8_t *)proposal->event.data,
                                     .size = proposal->event.size};
        proposal->forward_to = 0;
    }
    return true;
}

/* Out of the list, to be told. */
static void end_proposal(struct party *p, struct proposal **link)
{
    struct proposal *proposal = *link;
    assert(!proposal->over && !proposal->forward_to && p->n_proposals);
    *link = proposal->next;
    p->n_proposals--;
    proposal->over = true;
    queue_telling(p, proposal);
}

/* Nothing waits to be told here: party_next() tells that before it looks at the next entry. */
void party_proposal_applied(struct party *p, uint64_t nonce)
{
    assert(!p->told_first);
    for (struct proposal **link = &p->proposals; *link && nonce; link = &(*link)->next) {
        struct proposal *proposal = *link;
        if (proposal->nonce != nonce || proposal->refused.code)
            continue;
        if (p->outcome.reason == proof_is_late && proposal->body_size) {
            sign_proposal_again(p, proposal);
            return;
        }
        proposal->counts = true;
        proposal->outcome = p->outcome;
        end_proposal(p, link);
        return;
    }
}

void party_free_proposals(struct party *p)
{
    party_free_done(p);
    while (p->proposals) /* those that are to be forwarded are here, too */
    {
        struct proposal *proposal = p->proposals;
        p->proposals = proposal->next;
        proposal->next = NULL;
        if (!proposal->forward_to)
            free_proposal(proposal);
    }
    while (p->told_first) {
        struct proposal *proposal = p->told_first;
        p->told_first = proposal->told_next;
        free_proposal(proposal);
    }
    p->n_proposals = 0;
    p->told_last = &p->told_first;
}

/* ---- on their way ---- */

/* Why nothing came of it. */
static void set_why_late(const struct party *p, struct error *err)
{
    if (p->failed)
        error_set(err, ERROR_BUSY, "this node takes no part in the cluster at the moment: %s",
                  p->failure.text);
    else if (!p->last.leader && !p->last.leads)
        error_set(err, ERROR_BUSY,
                  "the cluster has no leader now: too few of its voting nodes can be reached");
    else
        error_set(err, ERROR_BUSY,
                  "the cluster did not agree in time; the change may still happen");
}

static void submit_proposal(struct party *p, struct proposal *proposal)
{
    assert(p->ready && !proposal->refused.code);
    uint64_t index;
    struct error err;
    if (nonces_has(&p->nonces, proposal->nonce) || !nonces_has_room(&p->nonces) ||
        check_event_level(p, proposal->level, &proposal->refused))
        return;
    const enum error_code code =
        replica_submit(p->replica, p->now_ms, (const uint8_t *)proposal->event.data,
                       proposal->event.size, &index, &err);
    if (!code)
        nonces_submitted(&p->nonces, proposal->nonce);
    else
        party_say(p, LOG_DEBUG, "an event has to wait: %s", err.text);
}

static void send_proposal(struct party *p, struct proposal *proposal)
{
    if (!p->replica || p->now_ms < proposal->again_ms)
        return;
    proposal->again_ms = p->now_ms + p->options.step_ms;
    if (p->ready) {
        submit_proposal(p, proposal);
    } else if (!p->last.leads && p->last.leader && !proposal->forward_to) {
        proposal->forward_to = p->last.leader;
        queue_telling(p, proposal);
    }
}

/* ---- of others ---- */

static bool look_at_proposal(const struct party *p, const void *bytes, size_t size, uint64_t *nonce,
                             uint32_t *level)
{
    Cluster__Event *event;
    struct error err;
    if (event_decode(bytes, size, &event, &err)) {
        party_say(p, LOG_WARN, "a proposal was dropped: %s", err.text);
        return false;
    }
    *nonce = event->nonce;
    *level = event_level(event);
    event_free(event);
    if (!*nonce)
        party_say(p, LOG_WARN, "a proposal without a nonce was dropped");
    return *nonce != 0;
}

/* Taken up in the step, when what the log has before is known. */
bool party_receive_proposal(struct party *p, const void *bytes, size_t size)
{
    uint64_t nonce;
    uint32_t level;
    if (!p->replica || !replica_status(p->replica).leads || p->n_foreign >= LIMIT_PROPOSALS ||
        size > LIMIT_CLUSTER_MESSAGE_BYTES - p->foreign_bytes ||
        !look_at_proposal(p, bytes, size, &nonce, &level))
        return false;
    struct foreign_proposal *foreign = mem_new(sizeof *foreign + size);
    if (!foreign)
        return false; /* it is sent again */
    *foreign = (struct foreign_proposal){.nonce = nonce, .level = level, .size = size};
    memcpy(foreign->bytes, bytes, size);
    *p->last_foreign = foreign;
    p->last_foreign = &foreign->next;
    p->n_foreign++;
    p->foreign_bytes += size;
    return true;
}

static struct foreign_proposal *take_foreign(struct party *p)
{
    struct foreign_proposal *foreign = p->first_foreign;
    if (!foreign)
        return NULL;
    assert(p->n_foreign && p->foreign_bytes >= foreign->size);
    p->first_foreign = foreign->next;
    if (!p->first_foreign)
        p->last_foreign = &p->first_foreign;
    p->n_foreign--;
    p->foreign_bytes -= foreign->size;
    return foreign;
}

void party_drop_foreign(struct party *p)
{
    for (struct foreign_proposal *foreign; (foreign = take_foreign(p)) != NULL;)
        mem_free(foreign);
}

/* What is refused now comes again in a second. */
static void submit_foreign(struct party *p)
{
    assert(p->ready);
    struct foreign_proposal *foreign;
    struct error err;
    uint64_t index;
    while (p->replica && (foreign = take_foreign(p)) != NULL) {
        if (check_event_level(p, foreign->level, &err))
            party_say(p, LOG_WARN, "an event was not taken up: %s", err.text);
        else if (!nonces_has(&p->nonces, foreign->nonce) && nonces_has_room(&p->nonces) &&
                 replica_submit(p->replica, p->now_ms, foreign->bytes, foreign->size, &index,
                                NULL) == ERROR_NONE)
            nonces_submitted(&p->nonces, foreign->nonce);
        mem_free(foreign);
    }
}

/* ---- all ---- */

void party_step_proposals(struct party *p)
{
    for (struct proposal **link = &p->proposals; *link;) {
        struct proposal *proposal = *link;
        if (!proposal->refused.code && p->now_ms >= proposal->deadline_ms)
            set_why_late(p, &proposal->refused);
        if (proposal->refused.code) {
            end_proposal(p, link);
            continue;
        }
        send_proposal(p, proposal);
        link = &proposal->next;
    }
    if (p->ready)
        submit_foreign(p);
}

uint64_t party_proposals_timer(const struct party *p)
{
    uint64_t due = UINT64_MAX;
    for (const struct proposal *proposal = p->proposals; proposal; proposal = proposal->next) {
        if (proposal->deadline_ms < due)
            due = proposal->deadline_ms;
        if (p->replica && proposal->again_ms < due)
            due = proposal->again_ms;
        if (proposal->refused.code)
            due = 0;
    }
    return due;
}
