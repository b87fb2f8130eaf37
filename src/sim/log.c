/* A node's copy of the log: the replica, its disk, the state, and events on their way into it, by the rules of
 * node/agreement.h. */
#include "sim/world.h"

#include "base/mem.h"
#include "base/random.h"

#include <string.h>

/* ---- states, which nodes with one log may share ---- */

static void drop_view(struct world *w, struct view *view)
{
    if (!view || --view->refs)
        return;
    for (struct view **at = &w->views[view->chain % 4096]; *at; at = &(*at)->next) {
        if (*at == view) {
            *at = view->next;
            break;
        }
    }
    state_deinit(&view->state);
    buffer_deinit(&view->encoded);
    mem_free(view);
}

static void set_chain(struct world *w, struct view *view, uint64_t chain)
{
    view->chain = chain;
    view->next = w->views[chain % 4096];
    w->views[chain % 4096] = view;
}

static struct view *new_view(struct world *w, uint64_t chain)
{
    struct view *view = mem_new(sizeof *view);
    if (!view) {
        w->out_of_memory = true;
        return NULL;
    }
    view->refs = 1;
    set_chain(w, view, chain);
    return view;
}

static uint64_t chain_of(const struct lineage *lineage, uint64_t index)
{
    return random_mix(lineage->generation ^ random_mix(lineage->founder ^ random_mix(index)));
}

static bool share(struct world *w, struct node *node, uint64_t chain)
{
    for (struct view *view = w->views[chain % 4096]; view && w->shares; view = view->next) {
        if (view->chain != chain)
            continue;
        view->refs++;
        drop_view(w, node->view);
        node->view = view;
        return true;
    }
    return false;
}

/* The node's own, to be changed. */
static bool own_view(struct world *w, struct node *node, uint64_t chain)
{
    struct view *old = node->view, *view = new_view(w, chain);
    if (!view)
        return false;
    if (old->refs == 1) {
        view->state = old->state;
        old->state = (struct state){0};
    } else if (old->state.root) {
        struct buffer bytes = {0};
        state_encode(&old->state, &bytes);
        w->out_of_memory |= bytes.failed || state_decode(&view->state, (const uint8_t *)bytes.data, bytes.size, NULL);
        buffer_deinit(&bytes);
    }
    drop_view(w, old);
    node->view = view;
    return true;
}

const struct state *node_state(const struct node *node)
{
    return node->keeps ? &node->kept->state : &node->view->state;
}

static void keep_state(struct world *w, struct node *node, uint64_t until)
{
    struct view *empty = new_view(w, world_draw(w, UINT64_MAX));
    if (!empty)
        return;
    if (node->keeps || !node->view->state.root) {
        drop_view(w, node->view);
    } else {
        node->kept = node->view;
        node->keeps = true;
    }
    node->view = empty;
    node->kept_until = until;
    node->applied = 0;
}

static void advance(struct world *w, struct node *node, uint64_t index)
{
    node->applied = index;
    if (node->keeps && index >= node->kept_until) {
        drop_view(w, node->kept);
        node->kept = NULL;
        node->keeps = false;
    }
    node->changed |= !node->keeps;
}

/* ---- proposals ---- */

static void free_proposal(struct proposal **link)
{
    struct proposal *p = *link;
    *link = p->next;
    buffer_deinit(&p->event);
    mem_free(p);
}

/* `key`: of what it says, so that it is not said twice at once; 0: none. */
void log_propose(struct world *w, struct node *node, Cluster__Event *event, uint64_t key, bool client)
{
    struct proposal **end = &node->proposals;
    for (; *end; end = &(*end)->next) {
        if (key && (*end)->key == key)
            return;
    }
    struct proposal *p = mem_new(sizeof *p);
    if (!p) {
        w->out_of_memory = true;
        return;
    }
    *p = (struct proposal){.nonce = world_draw(w, UINT64_MAX - 1) + 1,
                           .key = key,
                           .deadline_ms = w->now_ms + PROPOSAL_MS,
                           .client = client};
    event->has_nonce = event->has_time_ms = true;
    event->nonce = p->nonce;
    event->time_ms = world_wall_ms(w, node);
    event->by = node->id;
    event_encode(event, &p->event);
    w->out_of_memory |= p->event.failed;
    *end = p;
}

static bool submit(struct world *w, struct node *node, uint64_t nonce, const struct buffer *event)
{
    uint64_t index;
    if (nonces_has(&node->nonces, nonce) || !nonces_has_room(&node->nonces) ||
        replica_submit(node->replica, w->now_ms, (const uint8_t *)event->data, event->size, &index, NULL))
        return false;
    nonces_submitted(&node->nonces, nonce);
    return true;
}

static void forward(struct world *w, struct node *node, const struct proposal *p, uint64_t leader)
{
    const struct node *to = world_member(w, leader);
    if (!to || to == node)
        return;
    struct message *message = message_new(MESSAGE_PROPOSE, node, to->index);
    if (message)
        message->bytes = mem_new(p->event.size + 1);
    if (!message || !message->bytes) {
        w->out_of_memory = true;
        mem_free(message);
        return;
    }
    memcpy(message->bytes, p->event.data, p->event.size);
    message->size = p->event.size;
    net_send(w, message);
}

void log_receive_proposal(struct world *w, struct node *node, const struct message *message)
{
    struct foreign **end = &node->foreign;
    if (!node->replica || !replica_status(node->replica).leads)
        return;
    struct foreign *foreign = mem_new(sizeof *foreign);
    if (!foreign) {
        w->out_of_memory = true;
        return;
    }
    buffer_append(&foreign->event, message->bytes, message->size);
    while (*end)
        end = &(*end)->next;
    *end = foreign;
}

static void take_foreign(struct world *w, struct node *node, bool use)
{
    for (struct foreign *foreign; (foreign = node->foreign) != NULL;) {
        Cluster__Event *event = NULL;
        node->foreign = foreign->next;
        if (use && !event_decode((const uint8_t *)foreign->event.data, foreign->event.size, &event, NULL))
            submit(w, node, event->nonce, &foreign->event);
        event_free(event);
        buffer_deinit(&foreign->event);
        mem_free(foreign);
    }
}

static void step_proposals(struct world *w, struct node *node, const struct replica_status *status)
{
    for (struct proposal **link = &node->proposals; *link;) {
        struct proposal *p = *link;
        if (w->now_ms >= p->deadline_ms) {
            free_proposal(link);
            continue;
        }
        if (w->now_ms >= p->again_ms) {
            p->again_ms = w->now_ms + PROPOSAL_AGAIN_MS;
            if (node->ready)
                submit(w, node, p->nonce, &p->event);
            else if (!status->leads && status->leader)
                forward(w, node, p, status->leader);
        }
        link = &p->next;
    }
    if (node->ready)
        take_foreign(w, node, true);
}

static void proposal_applied(struct world *w, struct node *node, uint64_t nonce, uint64_t index)
{
    for (struct proposal **link = &node->proposals; *link && nonce; link = &(*link)->next) {
        if ((*link)->nonce != nonce)
            continue;
        if ((*link)->client)
            check_acknowledged(w, node, index);
        free_proposal(link);
        return;
    }
}

/* ---- effects ---- */

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
        world_say(w, "entry %llu (%s): %s", (unsigned long long)e->index, event->by ? event->by : "?",
                  text.data ? text.data : "");
        buffer_deinit(&text);
    }
    nonces_applied(&node->nonces, event->nonce);
    proposal_applied(w, node, event->nonce, e->index);
    event_free(event);
}

static void note_placed(struct world *w, struct node *node, const struct replica_effect *e, bool is_new)
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
    const uint64_t chain = chain_of(&e->lineage, e->index);
    if (share(w, node, chain) || !own_view(w, node, chain))
        return;
    state = &node->view->state;
    w->out_of_memory |=
        (e->entry == LOG_MEMBERS ? state_apply_members(state, e->index, e->bytes, e->size, &outcome, NULL)
                                 : state_apply(state, e->index, e->bytes, e->size, &outcome, NULL)) != ERROR_NONE;
    if (outcome.applied && e->entry == LOG_EVENT)
        note_placed(w, node, e, is_new);
    if (is_new)
        w->result->applied = e->index;
}

static void concluded(struct world *w, struct node *node, const struct replica_effect *e)
{
    advance(w, node, e->index);
    check_state(w, node, e->lineage, e->index);
}

/* What a node of many has applied in one turn: another may have come as far before. */
static void catch_up(struct world *w, struct node *node)
{
    const uint32_t n = node->n_unapplied;
    if (!n)
        return;
    const struct replica_effect *last = &node->unapplied[n - 1];
    if (!share(w, node, chain_of(&last->lineage, last->index))) {
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
    const uint64_t chain = chain_of(&lineage, e->index);
    w->result->snapshots++;
    if (!share(w, node, chain) && own_view(w, node, chain) && state_decode(&node->view->state, e->bytes, e->size, &err))
        world_violated(w, "%s cannot read the state of entry %llu: %s", node->id, (unsigned long long)e->index,
                       err.text);
    advance(w, node, e->index);
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

static void begin_write(struct world *w, struct node *node)
{
    if (node->disk_busy || !node->writes)
        return;
    const uint64_t slow = node->slow_until_ms > w->now_ms ? node->slow_ms : 0;
    node->disk_busy = true;
    node->batch = 0;
    for (const struct queued_write *write = node->writes; write; write = write->next)
        node->batch++;
    world_push(w, (struct event){.at_ms = w->now_ms + 1 + world_draw(w, w->scenario->nodes[node->index].disk_ms + slow),
                                 .type = EVENT_DISK,
                                 .node = node->index,
                                 .a = node->life});
}

static void queue_write(struct world *w, struct node *node, struct replica_effect *e)
{
    struct queued_write *write = mem_new(sizeof *write);
    if (!write) {
        w->out_of_memory = true;
        return;
    }
    write->write = e->write;
    e->write = (struct log_write){0};
    *node->last_write = write;
    node->last_write = &write->next;
    begin_write(w, node);
}

static void end_replica(struct world *w, struct node *node, uint64_t kept_writes);

static void fail(struct world *w, struct node *node, const char *why)
{
    world_say(w, "%s takes no part any more: %s", node->id, why);
    end_replica(w, node, 0);
    node->reopen_ms = w->now_ms + 1000 + world_draw(w, 1000);
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
        queue_write(w, node, e);
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
        keep_state(w, node, 0);
        nonces_clear(&node->nonces);
        break;
    case REPLICA_FAILED:
        world_violated(w, "%s: %s", node->id, e->failure.text);
        break;
    }
}

/* ---- the disk ---- */

static void drop_first_write(struct node *node)
{
    struct queued_write *write = node->writes;
    node->writes = write->next;
    if (!node->writes)
        node->last_write = &node->writes;
    log_write_clear(&write->write);
    mem_free(write);
}

static void write_first(struct world *w, struct node *node)
{
    struct error err;
    if (log_saved_write(&node->disk, &node->writes->write, &err))
        world_violated(w, "%s, write: %s", node->id, err.text);
}

void log_disk(struct world *w, struct node *node)
{
    node->disk_busy = false;
    if (!node->replica || !node->writes)
        return;
    if (node->full_until_ms > w->now_ms) {
        fail(w, node, "its disk is full");
        return;
    }
    uint64_t sequence = 0;
    for (; node->batch && node->writes; node->batch--) {
        sequence = node->writes->write.sequence;
        write_first(w, node);
        drop_first_write(node);
    }
    replica_written(node->replica, w->now_ms, sequence);
    begin_write(w, node);
}

/* Of the writes under way some of the first may have reached the disk, each of them whole. */
static void end_replica(struct world *w, struct node *node, uint64_t kept_writes)
{
    for (; node->writes && kept_writes; kept_writes--) {
        write_first(w, node);
        drop_first_write(node);
    }
    while (node->writes)
        drop_first_write(node);
    replica_close(node->replica);
    node->replica = NULL;
    node->disk_busy = node->ready = false;
    node->life++;
    take_foreign(w, node, false);
    nonces_lost(&node->nonces);
    lead_lost(node);
}

static bool open_replica(struct world *w, struct node *node)
{
    struct replica_options options = replica_options_default();
    struct error err;
    options.id = node->member;
    options.seed = world_draw(w, UINT64_MAX);
    options.grace_ms = w->scenario->grace_ms;
    options.minority_grace_ms = 3 * w->scenario->grace_ms;
    options.snapshot_after = (uint32_t)w->scenario->snapshot_after;
    options.trailing = options.snapshot_after / 4;
    node->reopen_ms = 0;
    node->term = 0;
    if (replica_open(&options, &node->disk, w->now_ms, &node->replica, &err)) {
        world_violated(w, "%s does not start: %s", node->id, err.text);
        return false;
    }
    return true;
}

bool log_start(struct world *w, struct node *node)
{
    node->last_write = &node->writes;
    node->view = new_view(w, world_draw(w, UINT64_MAX));
    nonces_clear(&node->nonces);
    node->applied = 0;
    node->epoch_lineage = (struct lineage){0};
    return node->view && open_replica(w, node);
}

void log_stop(struct world *w, struct node *node, bool lost)
{
    uint64_t n = 0;
    for (const struct queued_write *write = node->writes; write; write = write->next)
        n++;
    if (node->replica)
        end_replica(w, node, world_draw(w, n + 1));
    while (node->proposals)
        free_proposal(&node->proposals);
    while (node->n_unapplied)
        replica_effect_clear(&node->unapplied[--node->n_unapplied]);
    mem_free(node->unapplied);
    node->unapplied = NULL;
    node->unapplied_capacity = 0;
    drop_view(w, node->view);
    drop_view(w, node->kept);
    node->view = node->kept = NULL;
    node->keeps = false;
    if (lost) {
        log_saved_clear(&node->disk);
        world_new_member(w, node);
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
        world_say(w, "%s leads, term %llu, generation %llu", node->id, (unsigned long long)status->term,
                  (unsigned long long)status->lineage.generation);
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
        take_foreign(w, node, false);
        lead_lost(node);
        node->ready = false;
        node->changed = true;
    }
    node->term = status->term;
    if (status->leads && !node->ready && (status->applied >= node->lead_from || w->now_ms >= node->ready_by_ms)) {
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
        keep_state(w, node, node->applied);
        if (!open_replica(w, node))
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
    step_proposals(w, node, &status);
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
