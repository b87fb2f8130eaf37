/* A node's copy of the log: what its replica asks for is carried out, by the rules of
 * agreement/agreement.h. */
#include "sim/world.h"

#include "base/mem.h"
#include "base/random.h"

#include <string.h>

static void send_raft(struct world *w, struct node *node, struct replica_effect *e)
{
    const struct node *to = world_member(w, e->to);
    if (!to || to == node)
        return;
    struct message *message = message_new(MESSAGE_RAFT, node, to->index);
    if (message) {
        message->member = node->member;
        message->a = e->to;
        message->bytes = e->bytes;
        message->size = e->size;
        e->bytes = NULL;
    }
    net_send(w, message);
}

static void note_event(struct world *w, struct node *node, const struct replica_effect *e)
{
    Cluster__Event *event;
    if (event_decode(e->bytes, e->size, &event, NULL))
        return;
    const bool is_new = e->index > w->result->entries;
    if (is_new && w->options->say) {
        struct buffer text = {0};
        event_describe(event, &text);
        world_say(w, "entry %llu (%s): %s", (unsigned long long)e->index,
                  event->by ? event->by : "?", text.data ? text.data : "");
        buffer_deinit(&text);
    }
    nonces_applied(&node->nonces, event->nonce);
    propose_applied(w, node, event->nonce, e->index);
    event_free(event);
}

static void note_placed(struct world *w, struct node *node, const struct replica_effect *e,
                        bool is_new)
{
    Cluster__Event *event;
    if (event_decode(e->bytes, e->size, &event, NULL))
        return;
    if (event->kind_case == CLUSTER__EVENT__KIND_INSTANCE_PLACED) {
        check_placed(w, node, e->lineage, event->instance_placed);
        w->result->placements += is_new;
    }
    event_free(event);
}

static void apply_now(struct world *w, struct node *node, const struct replica_effect *e)
{
    struct state_outcome outcome = {0};
    struct state *state;
    const bool is_new = e->index > w->result->applied;
    const uint64_t chain = view_chain(&e->lineage, e->index);
    if (view_share(w, node, chain) || !view_own(w, node, chain))
        return;
    state = &node->view->state;
    w->out_of_memory |=
        (e->entry == LOG_MEMBERS
             ? state_apply_members(state, e->index, e->bytes, e->size, &outcome, NULL)
             : state_apply(state, e->index, e->bytes, e->size, &outcome, NULL)) != ERROR_NONE;
    if (outcome.applied && e->entry == LOG_EVENT)
        note_placed(w, node, e, is_new);
    if (is_new)
        w->result->applied = e->index;
}

static void concluded(struct world *w, struct node *node, const struct replica_effect *e)
{
    view_advance(w, node, e->index);
    check_state(w, node, e->lineage, e->index);
}

/* What a node of many has applied in one turn: another may have come as far before. */
static void catch_up(struct world *w, struct node *node)
{
    const uint32_t n = node->n_unapplied;
    if (!n)
        return;
    const struct replica_effect *last = &node->unapplied[n - 1];
    if (!view_share(w, node, view_chain(&last->lineage, last->index))) {
        for (uint32_t i = 0; i < n; i++)
            apply_now(w, node, &node->unapplied[i]);
    }
    concluded(w, node, last);
    for (uint32_t i = 0; i < n; i++)
        replica_effect_clear(&node->unapplied[i]);
    node->n_unapplied = 0;
}

static void apply_later(struct world *w, struct node *node, struct replica_effect *e)
{
    if (node->n_unapplied == node->unapplied_capacity) {
        const uint32_t capacity = node->unapplied_capacity ? 2 * node->unapplied_capacity : 32;
        struct replica_effect *grown = mem_resize(node->unapplied, capacity, sizeof *grown);
        if (!grown) {
            w->out_of_memory = true;
            return;
        }
        node->unapplied = grown;
        node->unapplied_capacity = capacity;
    }
    node->unapplied[node->n_unapplied++] = *e;
    node->applied = e->index;
    *e = (struct replica_effect){0};
}

static void apply(struct world *w, struct node *node, struct replica_effect *e)
{
    if (e->entry == LOG_EVENT)
        note_event(w, node, e);
    check_applied(w, node, e);
    if (e->entry == LOG_MEMBERS)
        node->members_ms = 0;
    if (w->shares) {
        apply_later(w, node, e);
    } else {
        apply_now(w, node, e);
        concluded(w, node, e);
    }
}

static void restore(struct world *w, struct node *node, const struct replica_effect *e)
{
    struct error err;
    const struct lineage lineage = replica_status(node->replica).lineage;
    const uint64_t chain = view_chain(&lineage, e->index);
    w->result->snapshots++;
    if (!view_share(w, node, chain) && view_own(w, node, chain) &&
        state_decode(&node->view->state, e->bytes, e->size, &err))
        world_violated(w, "%s cannot read the state of entry %llu: %s", node->id,
                       (unsigned long long)e->index, err.text);
    view_advance(w, node, e->index);
    check_state(w, node, lineage, e->index);
}

static void take_snapshot(struct world *w, struct node *node, uint64_t index)
{
    struct buffer *bytes = &node->view->encoded;
    if (!bytes->data)
        state_encode(&node->view->state, bytes);
    w->out_of_memory |= bytes->failed;
    replica_snapshot(node->replica, w->now_ms, index, (const uint8_t *)bytes->data, bytes->size);
}

static void carry_out(struct world *w, struct node *node, struct replica_effect *e)
{
    if (e->type == REPLICA_RESTORE || e->type == REPLICA_SNAPSHOT || e->type == REPLICA_EMPTY)
        catch_up(w, node);
    switch (e->type) {
    case REPLICA_SEND:
        send_raft(w, node, e);
        break;
    case REPLICA_WRITE:
        disk_queue(w, node, e);
        break;
    case REPLICA_APPLY:
        apply(w, node, e);
        break;
    case REPLICA_RESTORE:
        restore(w, node, e);
        break;
    case REPLICA_SNAPSHOT:
        take_snapshot(w, node, e->index);
        break;
    case REPLICA_EMPTY:
        world_say(w, "%s drops its log for a higher lineage", node->id);
        view_keep(w, node, 0);
        nonces_clear(&node->nonces);
        break;
    case REPLICA_FAILED:
        world_violated(w, "%s: %s", node->id, e->failure.text);
        break;
    }
}

/* ---- messages, time ---- */

void log_receive(struct world *w, struct node *node, const struct message *m)
{
    struct error err;
    if (!node->replica || m->a != node->member)
        return;
    if (replica_receive(node->replica, w->now_ms, m->member, m->bytes, m->size, &err))
        world_violated(w, "%s: a message of n%u: %s", node->id, m->from, err.text);
}

static void carry_out_all(struct world *w, struct node *node)
{
    struct replica_effect effect;
    while (node->replica && replica_next(node->replica, &effect)) {
        carry_out(w, node, &effect);
        replica_effect_clear(&effect);
        if (w->over)
            return;
    }
    if (node->view)
        catch_up(w, node);
}

static void notice_leader(struct world *w, struct node *node, const struct replica_status *status)
{
    const bool began = status->leads && (!node->leads || status->term != node->term);
    if (began) {
        world_say(w, "%s leads, term %llu, generation %llu", node->id,
                  (unsigned long long)status->term, (unsigned long long)status->lineage.generation);
        w->result->elections++;
        nonces_lost(&node->nonces);
        node->ready = false;
        node->lead_from = status->last;
        node->ready_by_ms = w->now_ms + 10 * PROPOSAL_AGAIN_MS;
        if (!node->leads)
            w->out_of_memory |= !lead_open(w, node);
        node->changed = true;
    } else if (!status->leads && node->leads) {
        nonces_lost(&node->nonces);
        propose_foreign(w, node, false);
        lead_lost(node);
        node->ready = false;
        node->changed = true;
    }
    node->term = status->term;
    if (status->leads && !node->ready &&
        (status->applied >= node->lead_from || w->now_ms >= node->ready_by_ms)) {
        node->ready = true;
        for (struct proposal *p = node->proposals; p; p = p->next)
            p->again_ms = 0;
    }
    if (status->lineage.generation > w->result->generations)
        w->result->generations = status->lineage.generation;
}

void log_turn(struct world *w, struct node *node)
{
    if (!node->replica && node->reopen_ms && node->reopen_ms <= w->now_ms) {
        view_keep(w, node, node->applied);
        if (!disk_open_replica(w, node))
            return;
        node->epoch_lineage = (struct lineage){0};
    }
    if (!node->replica)
        return;
    if (replica_timer(node->replica) <= w->now_ms)
        replica_tick(node->replica, w->now_ms);
    carry_out_all(w, node);
    if (!node->replica || w->over)
        return;
    const struct replica_status status = replica_status(node->replica);
    check_leader(w, node, &status);
    notice_leader(w, node, &status);
    propose_step(w, node, &status);
    carry_out_all(w, node);
}

uint64_t log_timer(const struct world *w, const struct node *node)
{
    uint64_t due = UINT64_MAX;
    if (!node->replica)
        return node->reopen_ms ? node->reopen_ms : UINT64_MAX;
    due = replica_timer(node->replica);
    for (const struct proposal *p = node->proposals; p; p = p->next) {
        due = p->again_ms < due ? p->again_ms : due;
        due = p->deadline_ms < due ? p->deadline_ms : due;
    }
    if (node->leads && !node->ready && node->ready_by_ms < due)
        due = node->ready_by_ms;
    return due > w->now_ms ? due : w->now_ms + 1;
}
