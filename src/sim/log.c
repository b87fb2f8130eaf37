/* A node's part in the log: the product's own party (agreement/party.h), whose effects are carried
 * out on the simulated network and disk, and looked at. */
#include "sim/world.h"

#include "agreement/claims.h"
#include "base/mem.h"

#include <assert.h>
#include <string.h>

/* ---- what it says ---- */

static void log_send(struct world *w, struct node *node, const struct party_effect *e,
                     enum message_kind kind)
{
    assert(e->to && e->size);
    const struct node *to = world_member(w, e->to);
    if (!to || to == node)
        return;
    struct message *message = message_new(kind, node, to->index);
    if (message)
        message->bytes = mem_new(e->size + 1);
    if (!message || !message->bytes) {
        w->out_of_memory = true;
        message_free_one(message);
        return;
    }
    memcpy(message->bytes, e->bytes, e->size);
    message->size = e->size;
    message->member = party_member(node->party);
    message->a = e->to;
    net_send(w, message);
}

/* Between nodes of one version, which send what they may, nothing is refused. A hostile one may be
 * refused, and named. */
void log_party_says(void *self, enum log_level level, const char *text)
{
    const struct node *node = self;
    world_say(node->world, "%s says: %s", node->name, text);
    if (level == LOG_WARN && node->world->has_roles)
        node->world->result->refused++;
    else if (level == LOG_WARN || level == LOG_ERROR)
        world_violated(node->world, "%s: %s", node->name, text);
}

/* ---- what counts ---- */

static void log_note_entry(struct world *w, struct node *node, const struct party_effect *e)
{
    assert(e->entry && e->entry->index == e->index);
    const Cluster__Event *event = e->event;
    if (e->index > w->result->entries && w->options->say && event) {
        struct buffer text = {0};
        event_describe(event, &text);
        world_say(w, "entry %llu (%s): %s", (unsigned long long)e->index,
                  event->by ? event->by : "?", text.data ? text.data : "");
        buffer_deinit(&text);
    }
    if (node->hostile) { /* nobody knows what it makes of it */
        node->applied = e->index;
        return;
    }
    check_applied(w, node, e->entry);
    node->applied = e->index;
    if (e->outcome) {
        if (event && e->outcome->applied)
            check_signed(w, node, event);
        const bool is_new = e->index > w->result->applied;
        if (event && e->outcome->applied &&
            event->kind_case == CLUSTER__EVENT__KIND_INSTANCE_PLACED) {
            check_placed(w, node, e->entry->lineage, event->instance_placed);
            w->result->placements += is_new;
        }
        w->result->applied = is_new ? e->index : w->result->applied;
    }
    check_state(w, node, e->entry->lineage, e->index);
}

static void log_note_failed(struct world *w, struct node *node, const struct error *why)
{
    assert(!party_takes_part(node->party));
    if (why->code != ERROR_IO && !node->hostile) /* the disk is full */
        world_violated(w, "%s: %s", node->name, why->text);
    world_say(w, "%s takes no part any more: %s", node->name, why->text);
    disk_drop_writes(w, node, 0);
    lead_lost(node);
}

static void log_carry_out(struct world *w, struct node *node, struct party_effect *e)
{
    switch (e->type) {
    case PARTY_SEND:
        log_send(w, node, e, MESSAGE_RAFT);
        break;
    case PARTY_FORWARD:
        log_send(w, node, e, MESSAGE_PROPOSE);
        break;
    case PARTY_WRITE:
        disk_queue(w, node, e->write);
        break;
    case PARTY_REOPEN:
        disk_begin_party(w, node);
        break;
    case PARTY_ENTRY:
        log_note_entry(w, node, e);
        break;
    case PARTY_RESTORED:
        w->result->snapshots++;
        world_say(w, "%s has the state as of entry %llu", node->name, (unsigned long long)e->index);
        node->applied = e->index;
        if (!node->hostile)
            check_state(w, node, party_status(node->party).lineage, e->index);
        break;
    case PARTY_DROPPED:
        world_say(w, "%s drops its log for a higher lineage", node->name);
        node->applied = 0;
        break;
    case PARTY_DONE:
        e->done(e->arg, e->err.code, e->outcome, &e->err);
        break;
    case PARTY_FAILED:
        log_note_failed(w, node, &e->err);
        break;
    case PARTY_CHANGED:
        node->changed = true;
        break;
    }
}

const struct state *node_state(const struct node *node)
{
    return party_state(node->party);
}

/* ---- events on their way into the log ---- */

static void wish_free(struct wish *wish)
{
    assert(wish->node->wishes);
    struct wish **link = &wish->node->wishes;
    while (*link != wish)
        link = &(*link)->next;
    *link = wish->next;
    mem_free(wish);
}

void log_drop_wishes(struct node *node)
{
    while (node->wishes)
        wish_free(node->wishes);
}

static void log_wish_done(void *arg, enum error_code code, const struct state_outcome *outcome,
                          const struct error *err)
{
    struct wish *wish = arg;
    struct node *node = wish->node;
    assert((code == ERROR_NONE) == (outcome != NULL));
    (void)err;
    if (!code && wish->client && !node->hostile)
        check_acknowledged(node->world, node, node->applied);
    wish_free(wish);
}

/* `key`: of what it says, so that it is not said twice at once; 0: none. */
void log_propose(struct world *w, struct node *node, Cluster__Event *event, uint64_t key,
                 bool client)
{
    assert(node->party);
    if (w->has_roles && !node->hostile && event_needs_admin(event))
        check_asked(w, event);
    for (const struct wish *wish = node->wishes; wish && key; wish = wish->next) {
        if (wish->key == key)
            return;
    }
    struct wish *wish = mem_new(sizeof *wish);
    if (!wish) {
        w->out_of_memory = true;
        return;
    }
    *wish = (struct wish){.next = node->wishes, .node = node, .key = key, .client = client};
    node->wishes = wish;
    w->out_of_memory |= party_propose(node->party, w->now_ms, world_wall_ms(w, node), event,
                                      log_wish_done, wish, NULL) != ERROR_NONE;
}

/* As node/daemon_links.c. */
static uint64_t log_member_of(const struct node *node, const struct node *from, uint64_t member)
{
    const bool agreed = party_has_agreed_on(node->party, member);
    return member ? claims_member(node_state(node), from->id, member, agreed) : 0;
}

/* As a daemon does: what is not the sender's to say is not taken up. */
void log_receive_proposal(struct world *w, struct node *node, const struct message *m)
{
    assert(node->party && m->kind == MESSAGE_PROPOSE);
    const struct node *from = &w->nodes[m->from];
    Cluster__Event *event = NULL;
    struct error err;
    if (event_decode(m->bytes, m->size, &event, &err)) {
        if (!m->is_forged)
            world_violated(w, "%s: a proposal of n%u: %s", node->name, m->from, err.text);
        return;
    }
    const bool is_update = event->kind_case == CLUSTER__EVENT__KIND_NODE_UPDATED;
    const uint64_t member = is_update ? event->node_updated->member : 0;
    if (claims_event(event, from->id) && member == log_member_of(node, from, member))
        party_receive_proposal(node->party, m->bytes, m->size);
    event_free(event);
}

/* ---- messages, time ---- */

void log_receive(struct world *w, struct node *node, const struct message *m)
{
    assert(node->party && m->kind == MESSAGE_RAFT);
    const struct node *from = &w->nodes[m->from];
    const uint64_t member = log_member_of(node, from, m->member);
    if (m->a != node->member || !member || hostile_is_left_out(w, node, m))
        return;
    party_receive(node->party, w->now_ms, member, m->bytes, m->size);
    if (!from->hostile && party_status(node->party).leader == member)
        node->leader_ms = w->now_ms;
}

static void log_notice_leader(struct world *w, struct node *node,
                              const struct replica_status *status)
{
    assert(!status->leads || status->term);
    const bool began = status->leads && (!node->leads || status->term != node->term);
    if (began) {
        world_say(w, "%s leads, term %llu, generation %llu", node->name,
                  (unsigned long long)status->term, (unsigned long long)status->lineage.generation);
        w->result->elections++;
        if (!node->leads)
            w->out_of_memory |= !lead_open(w, node);
        node->changed = true;
    } else if (!status->leads && node->leads) {
        lead_lost(node);
        node->changed = true;
    }
    node->term = status->term;
    if (status->lineage.generation > w->result->generations)
        w->result->generations = status->lineage.generation;
}

void log_turn(struct world *w, struct node *node)
{
    assert(node->up && node->party);
    struct party_effect effect;
    party_tick(node->party, w->now_ms);
    while (!w->over && party_next(node->party, &effect))
        log_carry_out(w, node, &effect);
    if (w->over || !party_takes_part(node->party))
        return;
    const struct replica_status status = party_status(node->party);
    if (status.leads && node->hostile)
        world_violated(w, "%s leads, and has no vote", node->name);
    if (!node->hostile)
        check_leader(w, node, &status);
    log_notice_leader(w, node, &status);
}

uint64_t log_timer(const struct world *w, const struct node *node)
{
    const uint64_t due = party_timer(node->party);
    return due > w->now_ms ? due : w->now_ms + 1;
}
