/* Events on their way into the log: of this node, and, where it leads, of others. */
#include "agreement/agreement_impl.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/random.h"

#include <string.h>
#include <time.h>

/* ---- of this node ---- */

static void finish(struct proposal *p, enum error_code code, const struct state_outcome *outcome,
                   const struct error *err)
{
    if (p->done)
        p->done(p->arg, code, outcome, err);
    buffer_deinit(&p->event);
    mem_free(p);
}

static uint64_t wall_clock_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static uint64_t new_nonce(struct agreement *a)
{
    uint64_t nonce = 0;
    while (!nonce)
        nonce = random_at(a->nonce_seed, a->n_nonces++);
    return nonce;
}

/* The log has nothing in it that an admitted node, whether it is up or not, could not read. */
static enum error_code check_level(const struct agreement *a, uint32_t level, struct error *err)
{
    const struct state *state = agreement_state(a);
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
    return error_set(err, ERROR_UNSUPPORTED, "no node is known to know this");
}

static void encode(struct agreement *a, Cluster__Event *event, struct proposal *p)
{
    char *const by = event->by;
    if (!by)
        event->by = a->node;
    if (!event->has_time_ms) {
        event->has_time_ms = true;
        event->time_ms = wall_clock_ms();
    }
    event_encode(event, &p->event);
    event->by = by;
    if (p->event.failed)
        error_set(&p->refused, ERROR_NO_MEMORY, "no memory for an event");
    else if (p->event.size > LIMIT_CLUSTER_ENTRY_BYTES)
        error_set(&p->refused, ERROR_INVALID, "an event of %zu bytes, at most %d are possible",
                  p->event.size, LIMIT_CLUSTER_ENTRY_BYTES);
    else
        check_level(a, p->level = event_level(event), &p->refused);
}

void agreement_propose(struct agreement *a, Cluster__Event *event, agreement_done_fn done,
                       void *arg)
{
    struct proposal *p = mem_new(sizeof *p), **end = &a->proposals;
    struct error err;
    if (!p) {
        error_set(&err, ERROR_NO_MEMORY, "no memory for an event");
        if (done)
            done(arg, err.code, NULL, &err);
        return;
    }
    *p = (struct proposal){.nonce = new_nonce(a),
                           .deadline_ms = agreement_now_ms() + a->options.proposal_ms,
                           .done = done,
                           .arg = arg};
    event->has_nonce = true;
    event->nonce = p->nonce;
    if (a->closing)
        error_set(&p->refused, ERROR_CANCELLED, "the node is stopping");
    else if (a->n_proposals >= LIMIT_PROPOSALS)
        error_set(&p->refused, ERROR_BUSY, "%d events wait already", LIMIT_PROPOSALS);
    else
        encode(a, event, p);
    while (*end)
        end = &(*end)->next;
    *end = p;
    a->n_proposals++;
    agreement_wake(a);
}

void agreement_proposals_now(struct agreement *a)
{
    for (struct proposal *p = a->proposals; p; p = p->next)
        p->again_ms = 0;
}

void agreement_proposals_end(struct agreement *a, enum error_code code, const char *why)
{
    for (struct proposal *p = a->proposals; p; p = p->next)
        error_set(&p->refused, code, "%s", why);
}

/* What is new comes to the end of the list, so `link` stays good whatever `done` does. */
static void take_out(struct agreement *a, struct proposal **link)
{
    *link = (*link)->next;
    a->n_proposals--;
}

void agreement_proposal_applied(struct agreement *a, uint64_t nonce,
                                const struct state_outcome *outcome)
{
    for (struct proposal **link = &a->proposals; *link && nonce; link = &(*link)->next) {
        struct proposal *p = *link;
        if (p->nonce != nonce || p->refused.code)
            continue;
        take_out(a, link);
        finish(p, ERROR_NONE, outcome, NULL);
        return;
    }
}

/* Why nothing came of it. */
static void late(const struct agreement *a, struct error *err)
{
    if (a->failed)
        error_set(err, ERROR_BUSY, "this node takes no part in the cluster now: %s",
                  a->failure.text);
    else if (!a->last.leader && !a->last.leads)
        error_set(err, ERROR_BUSY,
                  "the cluster has no leader now: too few of its voting nodes are reached");
    else
        error_set(err, ERROR_BUSY,
                  "the cluster did not agree in time; the change may still come about");
}

static void submit(struct agreement *a, struct proposal *p)
{
    uint64_t index;
    struct error err;
    if (nonces_has(&a->nonces, p->nonce) || !nonces_has_room(&a->nonces) ||
        check_level(a, p->level, &p->refused))
        return;
    const enum error_code code =
        replica_submit(a->replica, agreement_now_ms(), (const uint8_t *)p->event.data,
                       p->event.size, &index, &err);
    if (!code)
        nonces_submitted(&a->nonces, p->nonce);
    else
        log_line(LOG_DEBUG, "cluster", "an event has to wait: %s", err.text);
}

static void send_on(struct agreement *a, struct proposal *p, uint64_t now_ms)
{
    const struct agreement_events *events = &a->options.events;
    if (!a->replica || now_ms < p->again_ms)
        return;
    p->again_ms = now_ms + a->options.step_ms;
    if (a->ready)
        submit(a, p);
    else if (!a->last.leads && a->last.leader)
        events->forward(events->self, a->last.leader, p->event.data, p->event.size);
}

/* ---- of others ---- */

static bool look_at(const void *bytes, size_t size, uint64_t *nonce, uint32_t *level)
{
    Cluster__Event *event;
    struct error err;
    if (event_decode(bytes, size, &event, &err)) {
        log_line(LOG_WARN, "cluster", "a proposal was dropped: %s", err.text);
        return false;
    }
    *nonce = event->nonce;
    *level = event_level(event);
    event_free(event);
    if (!*nonce)
        log_line(LOG_WARN, "cluster", "a proposal without a nonce was dropped");
    return *nonce != 0;
}

/* Taken up in the turn, when what the log has before is known. */
void agreement_receive_proposal(struct agreement *a, const void *bytes, size_t size)
{
    uint64_t nonce;
    uint32_t level;
    if (!a->replica || !replica_status(a->replica).leads || a->n_foreign >= LIMIT_PROPOSALS ||
        size > LIMIT_CLUSTER_MESSAGE_BYTES - a->foreign_bytes ||
        !look_at(bytes, size, &nonce, &level))
        return;
    struct foreign *foreign = mem_new(sizeof *foreign + size);
    if (!foreign)
        return; /* it is sent again */
    *foreign = (struct foreign){.nonce = nonce, .level = level, .size = size};
    memcpy(foreign->bytes, bytes, size);
    *a->last_foreign = foreign;
    a->last_foreign = &foreign->next;
    a->n_foreign++;
    a->foreign_bytes += size;
    agreement_wake(a);
}

static struct foreign *take_foreign(struct agreement *a)
{
    struct foreign *foreign = a->first_foreign;
    if (!foreign)
        return NULL;
    a->first_foreign = foreign->next;
    if (!a->first_foreign)
        a->last_foreign = &a->first_foreign;
    a->n_foreign--;
    a->foreign_bytes -= foreign->size;
    return foreign;
}

void agreement_drop_foreign(struct agreement *a)
{
    for (struct foreign *foreign; (foreign = take_foreign(a)) != NULL;)
        mem_free(foreign);
}

/* What is refused now comes again in a second. */
static void submit_foreign(struct agreement *a)
{
    struct foreign *foreign;
    struct error err;
    uint64_t index;
    while (a->replica && (foreign = take_foreign(a)) != NULL) {
        if (check_level(a, foreign->level, &err))
            log_line(LOG_WARN, "cluster", "an event was not taken up: %s", err.text);
        else if (!nonces_has(&a->nonces, foreign->nonce) && nonces_has_room(&a->nonces) &&
                 replica_submit(a->replica, agreement_now_ms(), foreign->bytes, foreign->size,
                                &index, NULL) == ERROR_NONE)
            nonces_submitted(&a->nonces, foreign->nonce);
        mem_free(foreign);
    }
}

/* ---- all ---- */

void agreement_proposals(struct agreement *a)
{
    struct error err;
    const uint64_t now_ms = agreement_now_ms();
    for (struct proposal **link = &a->proposals; *link;) {
        struct proposal *p = *link;
        err = p->refused;
        if (!err.code && now_ms >= p->deadline_ms)
            late(a, &err);
        if (err.code) {
            take_out(a, link);
            finish(p, err.code, NULL, &err);
            continue;
        }
        send_on(a, p, now_ms);
        link = &p->next;
    }
    if (a->ready)
        submit_foreign(a);
}

uint64_t agreement_proposals_timer(const struct agreement *a)
{
    uint64_t due = UINT64_MAX;
    for (const struct proposal *p = a->proposals; p; p = p->next) {
        if (p->deadline_ms < due)
            due = p->deadline_ms;
        if (a->replica && p->again_ms < due)
            due = p->again_ms;
        if (p->refused.code)
            due = 0;
    }
    return due;
}
