/* A hostile member: a node like any other, which now and then sends what it should not: what it
 * made up (forge.c), and what it has overheard, to others than it was for, again, or with bytes
 * changed. It has its own links and key, and all knowledge of the world. When the faults are over
 * it is switched off, and the others remove it.
 *
 * What the protocol leaves to a member whatever it is (docs/cluster-log.md) is not tried, since
 * everything that follows may be wrong: to speak as a leader where none is heard, and to make up
 * the whole of a higher log. Nor does it ever get a vote (lead.c). */
#include "sim/world.h"

#include "base/mem.h"
#include "cluster/wire.h"

#include <assert.h>
#include <string.h>

enum {
    OVERHEARD = 24,
    HOSTILE_MS = 300, /* between two of its moments, at most; */
    MESSAGES = 8,     /* at most, in each; */
    FLOOD = 300,      /* but seldom so many */
    FLOOD_PPM = 10000,
    COVERED_MS = 2900, /* STRANGER_ELECTIONS (cluster/replica_sender.c) less 2 s: `leader` lasts */
};

struct overheard {
    enum message_kind kind;
    enum node_frame frame;
    uint8_t *bytes;
    size_t size;
};

struct hostile {
    struct overheard list[OVERHEARD];
    uint32_t n, at;
};

static void hostile_wait(struct world *w, const struct node *node)
{
    world_push(w, (struct event){.at_ms = w->now_ms + 1 + world_draw(w, HOSTILE_MS),
                                 .type = EVENT_HOSTILE,
                                 .node = node->index});
}

bool hostile_init(struct world *w, struct node *node)
{
    assert(!node->hostile && node->index);
    node->hostile = mem_new(sizeof *node->hostile);
    if (node->hostile)
        hostile_wait(w, node);
    return node->hostile != NULL;
}

void hostile_deinit(struct node *node)
{
    for (uint32_t i = 0; node->hostile && i < node->hostile->n; i++)
        mem_free(node->hostile->list[i].bytes);
    mem_free(node->hostile);
    node->hostile = NULL;
}

void hostile_overhear(struct node *node, const struct message *m)
{
    struct hostile *h = node->hostile;
    if (!h || !m->size ||
        (m->kind != MESSAGE_RAFT && m->kind != MESSAGE_PROPOSE && m->kind != MESSAGE_FRAME))
        return;
    uint8_t *bytes = mem_new(m->size);
    if (!bytes)
        return;
    memcpy(bytes, m->bytes, m->size);
    struct overheard *one = &h->list[h->at];
    if (h->n == OVERHEARD)
        mem_free(one->bytes);
    else
        h->n++;
    *one = (struct overheard){m->kind, m->frame, bytes, m->size};
    h->at = (h->at + 1) % OVERHEARD;
}

/* A snapshot of a higher log, with a state that can be read. */
static bool hostile_makes_up_log(const struct node *to, const struct wire_message *m)
{
    struct state state = {0};
    if (m->type != WIRE_INSTALL ||
        lineage_compare(m->lineage, party_status(to->party).lineage) <= 0)
        return false;
    const struct log_snapshot *snapshot = &m->install.snapshot;
    const bool reads = !state_decode(&state, snapshot->state, snapshot->state_size, NULL);
    state_deinit(&state);
    return reads;
}

/* From entries and snapshots more may follow than that they are refused. */
bool hostile_is_left_out(const struct world *w, const struct node *to, const struct message *m)
{
    struct wire_message message;
    assert(m->kind == MESSAGE_RAFT);
    if (!m->is_forged || !m->size)
        return false;
    if (m->bytes[0]) /* a piece of a message (agreement/pieces.h) */
        return true;
    if (wire_decode(m->bytes + 1, m->size - 1, &message, NULL))
        return false;
    const bool speaks = message.type == WIRE_APPEND || message.type == WIRE_INSTALL;
    const bool is_covered =
        party_status(to->party).leads || (to->leader_ms && w->now_ms - to->leader_ms <= COVERED_MS);
    const bool left_out = (speaks && !is_covered) || hostile_makes_up_log(to, &message);
    wire_clear(&message);
    return left_out;
}

/* ---- what it sends ---- */

static void hostile_bend(struct world *w, uint8_t *bytes, size_t size)
{
    for (uint64_t n = world_draw(w, 4); n > 0 && size; n--)
        bytes[world_draw(w, size)] = (uint8_t)world_draw(w, 256);
}

/* In the name of its own log, mostly; of another's; of one that is gone. */
static uint64_t hostile_member(struct world *w, const struct node *node)
{
    const struct node *other = &w->nodes[world_draw(w, w->n)];
    const uint64_t how = world_draw(w, 8);
    if (how == 0)
        return other->member;
    return how == 1 && other->former_member ? other->former_member : node->member;
}

static void hostile_send(struct world *w, struct node *node, const struct node *to,
                         enum message_kind kind, const uint8_t *bytes, size_t size, bool bends)
{
    struct message *m = message_new(kind, node, to->index);
    if (m)
        m->bytes = mem_new(size + 1);
    if (!m || !m->bytes) {
        w->out_of_memory = true;
        message_free_one(m);
        return;
    }
    if (size)
        memcpy(m->bytes, bytes, size);
    m->size = size;
    m->is_forged = true;
    m->member = hostile_member(w, node);
    m->a = to->member;
    if (bends)
        hostile_bend(w, m->bytes, size);
    w->result->forged++;
    net_send(w, m);
}

static void hostile_send_frame(struct world *w, struct node *node, const struct node *to,
                               const struct overheard *one)
{
    struct message *m = message_new(MESSAGE_FRAME, node, to->index);
    if (m)
        m->bytes = mem_new(one->size + 1);
    if (!m || !m->bytes) {
        w->out_of_memory = true;
        message_free_one(m);
        return;
    }
    memcpy(m->bytes, one->bytes, one->size);
    m->size = one->size;
    m->frame = one->frame;
    m->is_forged = true;
    if (world_draw(w, 3))
        hostile_bend(w, m->bytes, m->size);
    w->result->forged++;
    net_send_link(w, m);
}

static void hostile_repeat(struct world *w, struct node *node, const struct node *to)
{
    const struct hostile *h = node->hostile;
    if (!h->n)
        return;
    const struct overheard *one = &h->list[world_draw(w, h->n)];
    if (one->kind == MESSAGE_FRAME)
        hostile_send_frame(w, node, to, one);
    else
        hostile_send(w, node, to, one->kind, one->bytes, one->size, world_draw(w, 2));
}

/* Of itself it may say what it likes, within what a node can have (agreement/claims.h). */
static void hostile_lie(struct world *w, struct node *node, const struct node *to)
{
    struct said said = {.wanted = (uint32_t)world_draw(w, 4)};
    for (uint32_t i = 0; i < SCENARIO_INSTANCES; i++) {
        said.live[i] = (uint32_t)world_draw(w, 1000);
        said.used_ms[i] = world_draw(w, w->now_ms + 1);
        said.tokens[i] = (double)world_draw(w, 1000000);
    }
    for (uint32_t i = 0; i < SCENARIO_DEVICES; i++) {
        said.share[i] = (double)world_draw(w, 1001) / 1000;
        said.headroom[i] = (double)world_draw(w, 1001) / 1000;
    }
    said.others_bytes = world_draw(w, UINT64_C(1) << 40);
    for (uint32_t i = 0; i < w->n && said.n_missed < MISSED_MAX; i++) {
        if (i != node->index && world_draw(w, 2))
            said.missed[said.n_missed++] = w->nodes[i].id;
    }
    hostile_send(w, node, to, MESSAGE_NOW, (const uint8_t *)&said, sizeof said, false);
}

static void hostile_forge(struct world *w, struct node *node, const struct node *to,
                          enum message_kind kind)
{
    struct buffer bytes = {0};
    if (kind == MESSAGE_RAFT)
        forge_log_message(w, node, to, &bytes);
    else
        forge_event(w, node, &bytes);
    w->out_of_memory |= bytes.failed;
    if (bytes.size && !bytes.failed)
        hostile_send(w, node, to, kind, (const uint8_t *)bytes.data, bytes.size,
                     world_draw(w, 4) == 0);
    buffer_deinit(&bytes);
}

/* Only with members there are links. Who knows none hears everybody. */
static bool hostile_is_linked(const struct node *node, const struct node *to)
{
    const Cluster__NodeRecord *record = state_node(node_state(to), node->id);
    return !node_state(to)->root || (record && record->admitted);
}

static void hostile_do_one(struct world *w, struct node *node)
{
    const struct node *to = forge_honest(w);
    if (!to->party || !hostile_is_linked(node, to))
        return;
    switch (world_draw(w, 8)) {
    case 0:
    case 1:
    case 2:
        hostile_forge(w, node, to, MESSAGE_RAFT);
        break;
    case 3:
    case 4:
        hostile_forge(w, node, to, MESSAGE_PROPOSE);
        break;
    case 5:
        hostile_lie(w, node, to);
        break;
    default:
        hostile_repeat(w, node, to);
        break;
    }
}

void hostile_act(struct world *w, struct node *node)
{
    assert(node->hostile);
    if (w->healed)
        return;
    const bool floods = world_chance_ppm(w, FLOOD_PPM);
    const uint64_t n = floods ? FLOOD : 1 + world_draw(w, MESSAGES);
    for (uint64_t i = 0; i < n && node_runs(w, node) && !w->over; i++)
        hostile_do_one(w, node);
    hostile_wait(w, node);
}
