#include "cluster_world.h"

#include "cluster_facts.h"

#include "base/mem.h"
#include "base/random.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct message {
    uint64_t at_ms, order, from, to;
    uint8_t *bytes;
    size_t size;
};

struct world_messages {
    struct message *list; /* a heap by (at_ms, order) */
    size_t n, capacity;
    uint64_t order;
};

/* ---- randomness ---- */

uint64_t world_draw(struct world *w, uint64_t below)
{
    return below ? random_at(w->seed, w->draws++) % below : 0;
}

bool world_chance(struct world *w, double probability)
{
    return random_unit_at(w->seed, w->draws++) < probability;
}

/* ---- messages ---- */

static bool before(const struct message *a, const struct message *b)
{
    return a->at_ms != b->at_ms ? a->at_ms < b->at_ms : a->order < b->order;
}

static void push_message(struct world *w, struct message message)
{
    struct world_messages *m = w->messages;
    if (m->n == m->capacity) {
        m->capacity = m->capacity ? 2 * m->capacity : 256;
        m->list = realloc(m->list, m->capacity * sizeof *m->list);
    }
    message.order = m->order++;
    size_t i = m->n++;
    for (; i && before(&message, &m->list[(i - 1) / 2]); i = (i - 1) / 2)
        m->list[i] = m->list[(i - 1) / 2];
    m->list[i] = message;
}

static struct message pop_message(struct world *w)
{
    struct world_messages *m = w->messages;
    const struct message top = m->list[0], last = m->list[--m->n];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < m->n; i = child) {
        if (child + 1 < m->n && before(&m->list[child + 1], &m->list[child]))
            child++;
        if (!before(&m->list[child], &last))
            break;
        m->list[i] = m->list[child];
    }
    if (m->n)
        m->list[i] = last;
    return top;
}

static uint32_t index_of(const struct world *w, uint64_t id)
{
    for (uint32_t i = 0; i < w->n; i++) {
        if (w->nodes[i].id == id)
            return i;
    }
    return w->n;
}

static void send(struct world *w, const struct world_node *from,
                 const struct replica_effect *effect)
{
    const uint32_t f = (uint32_t)(from - w->nodes), t = index_of(w, effect->to);
    w->sent++;
    if (t == w->n || w->cut[f][t] || world_chance(w, w->loss))
        return;
    for (int copies = world_chance(w, w->twice) ? 2 : 1; copies > 0; copies--) {
        struct message message = {.from = from->id, .to = effect->to, .size = effect->size};
        const uint64_t slow = world_chance(w, w->slow) ? 3000 : 0;
        message.at_ms = w->now_ms + 1 + world_draw(w, w->delay_ms + slow);
        message.bytes = malloc(effect->size + 1);
        memcpy(message.bytes, effect->bytes, effect->size);
        push_message(w, message);
    }
}

/* ---- a node ---- */

static uint64_t hash_bytes(uint64_t hash, const uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        hash = random_mix(hash ^ bytes[i]);
    return hash;
}

static void apply(struct world *w, struct world_node *node, const struct replica_effect *e)
{
    if (e->index <= node->applied)
        world_broken(w, "node %" PRIu64 " applies entry %" PRIu64 " after %" PRIu64, node->id,
                     e->index, node->applied);
    const uint64_t hash =
        hash_bytes(random_mix(e->term ^ (uint64_t)e->entry << 60), e->bytes, e->size);
    node->state = random_mix(node->state ^ random_mix(e->index) ^ hash);
    node->applied = e->index;
    if (e->entry == LOG_EVENT && e->index > w->committed)
        w->committed = e->index;
    world_facts_check(w, (struct fact){e->lineage, e->index, hash, node->id, FACT_ENTRY},
                      "an entry");
    world_facts_check(w, (struct fact){e->lineage, e->index, node->state, node->id, FACT_STATE},
                      "the state");
}

static void restore(struct world *w, struct world_node *node, const struct replica_effect *e)
{
    uint64_t state[2];
    if (e->size != sizeof state)
        world_broken(w, "node %" PRIu64 " gets a state of %zu bytes", node->id, e->size);
    memcpy(state, e->bytes, sizeof state);
    node->state = state[0];
    node->applied = e->index;
    w->restored++;
    /* Entries that mean nothing leave no trace: the state is that of the last entry that did. */
    if (state[1])
        world_facts_check(w,
                          (struct fact){replica_status(node->replica).lineage, state[1],
                                        node->state, node->id, FACT_STATE},
                          "the restored state");
}

static void write_later(struct world *w, struct world_node *node, struct replica_effect *e)
{
    if (node->n_writes == WORLD_WRITES)
        world_broken(w, "node %" PRIu64 " has too many writes", node->id);
    const uint64_t earliest = node->n_writes ? node->writes[node->n_writes - 1].done_ms : w->now_ms;
    node->writes[node->n_writes++] =
        (struct world_write){e->write, earliest + world_draw(w, w->disk_ms + 1)};
    e->write = (struct log_write){0};
}

static void carry_out(struct world *w, struct world_node *node, struct replica_effect *e)
{
    switch (e->type) {
    case REPLICA_SEND:
        send(w, node, e);
        break;
    case REPLICA_WRITE:
        write_later(w, node, e);
        break;
    case REPLICA_APPLY:
        apply(w, node, e);
        break;
    case REPLICA_RESTORE:
        restore(w, node, e);
        break;
    case REPLICA_SNAPSHOT: {
        const uint64_t state[2] = {node->state, node->applied};
        replica_snapshot(node->replica, w->now_ms, e->index, (const uint8_t *)state, sizeof state);
        break;
    }
    case REPLICA_EMPTY:
        node->state = node->applied = 0;
        break;
    case REPLICA_FAILED:
        world_broken(w, "node %" PRIu64 ": %s", node->id, e->failure.text);
    }
}

static void look(struct world *w, struct world_node *node)
{
    struct replica_effect effect;
    while (replica_next(node->replica, &effect)) {
        carry_out(w, node, &effect);
        replica_effect_clear(&effect);
    }
    const struct replica_status status = replica_status(node->replica);
    if (status.applied > status.commit || status.commit > status.last)
        world_broken(w,
                     "node %" PRIu64 " has applied %" PRIu64 ", committed %" PRIu64 " of %" PRIu64,
                     node->id, status.applied, status.commit, status.last);
    if (status.leads)
        world_facts_check(w,
                          (struct fact){status.lineage, status.term, node->id << 20 | node->life,
                                        node->id, FACT_LEADER},
                          "the leader");
}

void world_start(struct world *w, uint32_t i)
{
    struct world_node *node = &w->nodes[i];
    struct replica_options options = w->options;
    struct error err;
    if (node->up)
        return;
    options.id = node->id;
    options.seed = world_draw(w, UINT64_MAX);
    node->state = node->applied = 0;
    node->life++;
    if (replica_open(&options, &node->disk, w->now_ms, &node->replica, &err))
        world_broken(w, "node %" PRIu64 " does not start: %s", node->id, err.text);
    node->up = true;
    look(w, node);
}

static void disk_write(struct world *w, struct world_node *node, struct world_write *write)
{
    struct error err;
    if (log_saved_write(&node->disk, &write->write, &err))
        world_broken(w, "node %" PRIu64 ", write: %s", node->id, err.text);
}

static void drop_writes(struct world_node *node, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        log_write_clear(&node->writes[i].write);
    node->n_writes -= n;
    memmove(node->writes, node->writes + n, node->n_writes * sizeof node->writes[0]);
}

/* Of the writes under way some of the first may have reached the disk. */
void world_crash(struct world *w, uint32_t i)
{
    struct world_node *node = &w->nodes[i];
    if (!node->up)
        return;
    const uint64_t kept = world_draw(w, node->n_writes + 1);
    for (uint32_t k = 0; k < kept; k++)
        disk_write(w, node, &node->writes[k]);
    drop_writes(node, node->n_writes);
    replica_close(node->replica);
    node->replica = NULL;
    node->up = false;
}

void world_init(struct world *w, uint64_t seed, uint32_t n, uint64_t grace_ms)
{
    *w = (struct world){.seed = seed, .n = n, .delay_ms = 20, .disk_ms = 10, .now_ms = 1000};
    w->messages = calloc(1, sizeof *w->messages);
    w->facts = world_facts_new();
    w->options = replica_options_default();
    w->options.snapshot_after = 20;
    w->options.trailing = 5;
    w->options.grace_ms = grace_ms;
    w->options.minority_grace_ms = 3 * grace_ms;
    for (uint32_t i = 0; i < n; i++)
        w->nodes[i].id = 1 + random_at(seed, ~(uint64_t)i) % 1000000 * WORLD_NODES + i;
    struct log_write first;
    struct error err;
    if (replica_found(w->nodes[0].id, &first, &err) ||
        log_saved_write(&w->nodes[0].disk, &first, &err))
        world_broken(w, "%s", err.text);
    log_write_clear(&first);
    w->nodes[0].admitted = true;
    for (uint32_t i = 0; i < n; i++)
        world_start(w, i);
}

void world_deinit(struct world *w)
{
    for (uint32_t i = 0; i < w->n; i++) {
        struct world_node *node = &w->nodes[i];
        drop_writes(node, node->n_writes);
        replica_close(node->replica);
        log_saved_clear(&node->disk);
    }
    while (w->messages->n)
        free(pop_message(w).bytes);
    free(w->messages->list);
    free(w->messages);
    world_facts_free(w->facts);
}

/* ---- time ---- */

static uint64_t next_time(const struct world *w)
{
    uint64_t next = w->messages->n ? w->messages->list[0].at_ms : UINT64_MAX;
    for (uint32_t i = 0; i < w->n; i++) {
        const struct world_node *node = &w->nodes[i];
        if (!node->up)
            continue;
        if (replica_timer(node->replica) < next)
            next = replica_timer(node->replica);
        if (node->n_writes && node->writes[0].done_ms < next)
            next = node->writes[0].done_ms;
    }
    return next;
}

static void deliver(struct world *w)
{
    struct message message = pop_message(w);
    const uint32_t f = index_of(w, message.from), t = index_of(w, message.to);
    struct world_node *node = &w->nodes[t];
    struct error err;
    if (node->up && !w->cut[f][t] && !w->nodes[f].removed && !node->removed) {
        const enum error_code refused = replica_receive(node->replica, w->now_ms, message.from,
                                                        message.bytes, message.size, &err);
        /* Lists of members differ, and messages are late; but nobody here lies. */
        if (refused && refused != ERROR_BUSY)
            world_broken(w, "node %" PRIu64 ": %s", node->id, err.text);
        w->refused += refused == ERROR_BUSY;
        look(w, node);
    }
    free(message.bytes);
}

static void finish_write(struct world *w, struct world_node *node)
{
    const uint64_t sequence = node->writes[0].write.sequence;
    disk_write(w, node, &node->writes[0]);
    drop_writes(node, 1);
    replica_written(node->replica, w->now_ms, sequence);
    look(w, node);
}

static void advance(struct world *w, uint64_t to_ms)
{
    for (;;) {
        const uint64_t next = next_time(w);
        if (next > to_ms)
            break;
        if (next > w->now_ms)
            w->now_ms = next;
        while (w->messages->n && w->messages->list[0].at_ms <= w->now_ms)
            deliver(w);
        for (uint32_t i = 0; i < w->n; i++) {
            struct world_node *node = &w->nodes[i];
            while (node->up && node->n_writes && node->writes[0].done_ms <= w->now_ms)
                finish_write(w, node);
            if (node->up && replica_timer(node->replica) <= w->now_ms) {
                replica_tick(node->replica, w->now_ms);
                look(w, node);
            }
        }
    }
    w->now_ms = to_ms;
}

/* ---- what the nodes want ---- */

bool world_submit(struct world *w)
{
    for (uint32_t i = 0; i < w->n; i++) {
        struct world_node *node = &w->nodes[i];
        if (!node->up || !replica_status(node->replica).leads)
            continue;
        uint8_t bytes[64];
        uint64_t index;
        const size_t size = world_draw(w, sizeof bytes);
        for (size_t k = 0; k < size; k++)
            bytes[k] = (uint8_t)world_draw(w, 256);
        const bool taken =
            replica_submit(node->replica, w->now_ms, bytes, size, &index, NULL) == ERROR_NONE;
        w->submitted += taken;
        look(w, node);
        if (taken)
            return true;
    }
    return false;
}

/* As the master will do it: a leader asks the policy and takes its step. */
static void reconcile_members(struct world *w, struct world_node *leader)
{
    static struct members now, next;
    struct member_view views[WORLD_NODES];
    uint32_t n = 0;
    const uint64_t last = replica_status(leader->replica).last;
    for (uint32_t i = 0; i < w->n; i++) {
        const struct world_node *node = &w->nodes[i];
        const uint32_t l = (uint32_t)(leader - w->nodes);
        if (!node->admitted || node->removed)
            continue;
        const bool reachable = node->up && !w->cut[l][i] && !w->cut[i][l];
        const bool near = node == leader || replica_match(leader->replica, node->id) + 5 >= last;
        views[n++] = (struct member_view){node->id, reachable, near, reachable};
    }
    uint64_t hand_over = 0;
    replica_members(leader->replica, &now);
    if (members_next(&now, views, n, leader->id, &next, &hand_over))
        replica_change_members(leader->replica, w->now_ms, &next, NULL);
    else if (hand_over)
        replica_hand_over(leader->replica, w->now_ms, hand_over, NULL);
    look(w, leader);
}

static void cut_at_random(struct world *w)
{
    memset(w->cut, 0, sizeof w->cut);
    switch (world_draw(w, 4)) {
    case 0: /* two halves */
        for (uint32_t i = 0; i < w->n; i++) {
            for (uint32_t j = 0; j < w->n; j++)
                w->cut[i][j] =
                    random_at(w->seed, w->draws + i) % 2 != random_at(w->seed, w->draws + j) % 2;
        }
        w->draws += w->n;
        break;
    case 1: { /* one is alone */
        const uint32_t one = (uint32_t)world_draw(w, w->n);
        for (uint32_t i = 0; i < w->n; i++)
            w->cut[i][one] = w->cut[one][i] = i != one;
        break;
    }
    case 2: /* some links, one way */
        for (uint32_t i = 0; i < w->n; i++)
            w->cut[world_draw(w, w->n)][world_draw(w, w->n)] = true;
        break;
    default: /* all is well */
        break;
    }
    for (uint32_t i = 0; i < w->n; i++)
        w->cut[i][i] = false;
}

static void disturb(struct world *w)
{
    const uint32_t node = (uint32_t)world_draw(w, w->n);
    if (world_chance(w, 0.02))
        world_crash(w, node);
    if (world_chance(w, 0.06))
        world_start(w, node);
    if (world_chance(w, 0.02))
        cut_at_random(w);
    if (world_chance(w, 0.01)) {
        w->loss = world_chance(w, 0.5) ? 0 : 0.3 * random_unit_at(w->seed, w->draws++);
        w->twice = world_chance(w, 0.5) ? 0 : 0.1;
        w->slow = world_chance(w, 0.5) ? 0 : 0.05;
        w->delay_ms = world_chance(w, 0.5) ? 5 : 200;
        w->disk_ms = world_chance(w, 0.5) ? 2 : 300;
    }
}

void world_heal(struct world *w)
{
    memset(w->cut, 0, sizeof w->cut);
    w->loss = w->twice = w->slow = 0;
    w->delay_ms = 10;
    w->disk_ms = 5;
    for (uint32_t i = 0; i < w->n; i++)
        world_start(w, i);
}

void world_run(struct world *w, uint64_t ms, bool chaos)
{
    const uint64_t end = w->now_ms + ms;
    while (w->now_ms < end) {
        const uint64_t step = w->now_ms + 100;
        advance(w, step < end ? step : end);
        if (chaos)
            disturb(w);
        if (chaos && world_chance(w, 0.05)) {
            struct world_node *node = &w->nodes[world_draw(w, w->n)];
            node->admitted = true;
        }
        if (chaos && world_chance(w, 0.3))
            world_submit(w);
        for (uint32_t i = 0; i < w->n; i++) {
            struct world_node *node = &w->nodes[i];
            if (node->up && replica_status(node->replica).leads && world_chance(w, 0.2))
                reconcile_members(w, node);
        }
    }
}

/* ---- the end ---- */

uint32_t world_leaders(const struct world *w)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->n; i++)
        n += w->nodes[i].up && replica_status(w->nodes[i].replica).leads;
    return n;
}

bool world_agrees(const struct world *w, char *why, size_t size)
{
    const struct world_node *first = NULL;
    struct replica_status reference = {0};
    for (uint32_t i = 0; i < w->n; i++) {
        const struct world_node *node = &w->nodes[i];
        if (!node->up || !node->admitted || node->removed)
            continue;
        const struct replica_status status = replica_status(node->replica);
        if (!first)
            first = node, reference = status;
        if (lineage_compare(status.lineage, reference.lineage) ||
            status.applied != reference.applied || status.last != status.applied ||
            node->state != first->state) {
            snprintf(why, size,
                     "node %" PRIu64 ": generation %" PRIu64 ", applied %" PRIu64 " of %" PRIu64
                     ", state %" PRIx64 "; node %" PRIu64 ": generation %" PRIu64
                     ", applied %" PRIu64 ", state %" PRIx64,
                     node->id, status.lineage.generation, status.applied, status.last, node->state,
                     first->id, reference.lineage.generation, reference.applied, first->state);
            return false;
        }
    }
    if (world_leaders(w) != 1) {
        snprintf(why, size, "%u leaders", world_leaders(w));
        return false;
    }
    return true;
}

void world_describe(const struct world *w, FILE *out)
{
    static struct members members;
    for (uint32_t i = 0; i < w->n; i++) {
        const struct world_node *node = &w->nodes[i];
        if (!node->up)
            continue;
        const struct replica_status s = replica_status(node->replica);
        fprintf(out,
                "node %" PRIu64 "%s: generation %" PRIu64 " of %" PRIu64 ", term %" PRIu64
                "%s, leader %" PRIu64 ", commit %" PRIu64 ", applied %" PRIu64 ", last %" PRIu64
                ", snapshot %" PRIu64 ", timer %" PRIu64 "%s:",
                node->id, node->admitted ? "" : " (not admitted)", s.lineage.generation,
                s.lineage.founder, s.term, s.leads ? " leads" : "", s.leader, s.commit, s.applied,
                s.last, s.snapshot, replica_timer(node->replica),
                s.members_pending ? ", members pending" : "");
        replica_members(node->replica, &members);
        for (uint32_t k = 0; k < members.n; k++)
            fprintf(out, " %" PRIu64 "%s", members.list[k].id, members.list[k].votes ? "*" : "");
        fprintf(out, "\n");
    }
}
