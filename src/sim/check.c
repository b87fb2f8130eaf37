/* What must be so: facts that were seen once are so for ever. */
#include "sim/world.h"

#include "base/mem.h"
#include "base/random.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum fact_kind { FACT_LEADER = 1, FACT_ENTRY, FACT_STATE, FACT_EPOCH };

struct fact {
    struct lineage lineage;
    uint64_t key, value; /* a term, an index or an epoch */
    uint32_t node;
    enum fact_kind kind;
};

struct acknowledged {
    struct lineage lineage;
    uint64_t index;
};

struct facts {
    struct fact *table;
    size_t n, capacity;           /* a power of two */
    struct acknowledged last[64]; /* the highest of a lineage */
    uint32_t n_lineages;
    struct buffer scratch;
};

uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t size)
{
    const uint8_t *at = bytes;
    uint64_t word;
    for (; size >= sizeof word; size -= sizeof word, at += sizeof word) {
        memcpy(&word, at, sizeof word);
        hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
    }
    for (word = size; size; size--)
        word = word << 8 | *at++;
    return random_mix(hash ^ word);
}

static bool facts_grow(struct facts *facts);

static struct fact *slot_of(const struct facts *facts, const struct fact *f)
{
    assert(facts->capacity > facts->n);
    uint64_t hash = random_mix(f->lineage.generation ^
                               random_mix(f->lineage.founder ^ (f->key << 3) ^ f->kind));
    for (;; hash++) {
        struct fact *slot = &facts->table[hash & (facts->capacity - 1)];
        if (!slot->kind || (slot->kind == f->kind && slot->key == f->key &&
                            lineage_compare(slot->lineage, f->lineage) == 0))
            return slot;
    }
}

static bool facts_grow(struct facts *facts)
{
    struct facts bigger = {.capacity = facts->capacity ? 2 * facts->capacity : 1024};
    bigger.table = mem_new_array(bigger.capacity, sizeof *bigger.table);
    if (!bigger.table)
        return false;
    for (size_t i = 0; i < facts->capacity; i++) {
        if (facts->table[i].kind)
            *slot_of(&bigger, &facts->table[i]) = facts->table[i];
    }
    mem_free(facts->table);
    facts->table = bigger.table;
    facts->capacity = bigger.capacity;
    return true;
}

static void check_fact(struct world *w, struct fact fact, const char *what)
{
    assert(fact.kind);
    struct facts *facts = w->facts;
    if (2 * facts->n >= facts->capacity && !facts_grow(facts)) {
        w->out_of_memory = true;
        return;
    }
    struct fact *slot = slot_of(facts, &fact);
    if (!slot->kind) {
        *slot = fact;
        facts->n++;
    } else if (slot->value != fact.value) {
        world_violated(w, "%s %" PRIu64 " of generation %" PRIu64 " differs between n%u and n%u",
                       what, fact.key, fact.lineage.generation, slot->node, fact.node);
    }
}

bool check_init(struct world *w)
{
    w->facts = mem_new(sizeof *w->facts);
    return w->facts && facts_grow(w->facts);
}

void check_deinit(struct world *w)
{
    while (w->asked) {
        struct wanted_change *asked = w->asked;
        w->asked = asked->next;
        mem_free(asked);
    }
    if (!w->facts)
        return;
    mem_free(w->facts->table);
    buffer_deinit(&w->facts->scratch);
    mem_free(w->facts);
}

void check_leader(struct world *w, const struct node *node, const struct replica_status *status)
{
    if (status->applied > status->commit || status->commit > status->last)
        world_violated(w, "%s has applied %" PRIu64 ", committed %" PRIu64 " of %" PRIu64,
                       node->name, status->applied, status->commit, status->last);
    if (status->leads)
        check_fact(w,
                   (struct fact){status->lineage, status->term,
                                 (uint64_t)node->index << 32 | node->life, node->index,
                                 FACT_LEADER},
                   "the leader of term");
}

void check_applied(struct world *w, struct node *node, const struct replica_effect *e)
{
    if (e->index <= node->applied)
        world_violated(w, "%s applies entry %" PRIu64 " after %" PRIu64, node->name, e->index,
                       node->applied);
    check_fact(w,
               (struct fact){e->lineage, e->index,
                             hash_bytes(e->term << 2 | e->entry, e->bytes, e->size), node->index,
                             FACT_ENTRY},
               "entry");
    w->result->entries += e->index > w->result->entries ? e->index - w->result->entries : 0;
}

/* Shared states are the same by their logs. */
void check_state(struct world *w, struct node *node, struct lineage lineage, uint64_t index)
{
    assert(index);
    const Cluster__State *root = party_applied(node->party)->root;
    const uint64_t epoch = root ? root->last_epoch : 0;
    if (lineage_compare(node->epoch_lineage, lineage) == 0 && epoch < node->last_epoch)
        world_violated(w, "%s: the last epoch falls from %" PRIu64 " to %" PRIu64, node->name,
                       node->last_epoch, epoch);
    node->epoch_lineage = lineage;
    node->last_epoch = epoch;
    if (w->shares)
        return;
    struct buffer *bytes = &w->facts->scratch;
    buffer_clear(bytes);
    state_encode(party_applied(node->party), bytes);
    if (bytes->failed) {
        w->out_of_memory = true;
        return;
    }
    w->result->state_bytes =
        bytes->size > w->result->state_bytes ? bytes->size : w->result->state_bytes;
    check_fact(w,
               (struct fact){lineage, index, hash_bytes(0, bytes->data, bytes->size), node->index,
                             FACT_STATE},
               "the state at entry");
}

/* Only where it was taken: then the state has it as it was proposed. Who founds the log anew
 * applies what was not agreed on in the old lineage; it counts in the new one. */
void check_placed(struct world *w, struct node *node, struct lineage lineage,
                  const Cluster__InstancePlaced *placed)
{
    assert(placed->placement);
    const Cluster__Instance *instance = state_instance(party_applied(node->party), placed->id);
    uint64_t hash = hash_bytes(0, placed->id, strlen(placed->id));
    for (size_t i = 0; i < placed->placement->n_stages; i++) {
        const Cluster__Stage *stage = placed->placement->stages[i];
        hash = hash_bytes(hash ^ stage->n_layers, stage->node, strlen(stage->node));
        hash = hash_bytes(hash, stage->device, strlen(stage->device));
    }
    if (instance && state_epoch(instance) != placed->placement->epoch)
        world_violated(w, "%s: %s has another epoch than it was just placed with", node->name,
                       placed->id);
    check_fact(w,
               (struct fact){lineage, placed->placement->epoch, hash ^ placed->after_epoch,
                             node->index, FACT_EPOCH},
               "the placement with epoch");
}

void check_acknowledged(struct world *w, struct node *node, uint64_t index)
{
    assert(index);
    const struct lineage lineage = party_status(node->party).lineage;
    struct facts *facts = w->facts;
    uint32_t i = 0;
    w->acked++;
    while (i < facts->n_lineages && lineage_compare(facts->last[i].lineage, lineage))
        i++;
    if (i == sizeof facts->last / sizeof *facts->last)
        return;
    if (i == facts->n_lineages)
        facts->last[facts->n_lineages++] = (struct acknowledged){.lineage = lineage};
    if (facts->last[i].index < index)
        facts->last[i].index = index;
}

/* ---- what needs an admin ---- */

/* 0: nobody here asks for such a thing. */
static uint64_t hash_asked(const Cluster__Event *event)
{
    const uint64_t kind = (uint64_t)event->kind_case << 8;
    const char *id = NULL;
    uint64_t more = 0;
    if (event->kind_case == CLUSTER__EVENT__KIND_NODE_JOINED)
        id = event->node_joined->id, more = event->node_joined->member;
    else if (event->kind_case == CLUSTER__EVENT__KIND_NODE_ADMITTED)
        id = event->node_admitted->id;
    else if (event->kind_case == CLUSTER__EVENT__KIND_NODE_REMOVED)
        id = event->node_removed->id;
    else if (event->kind_case == CLUSTER__EVENT__KIND_NODE_ROLE)
        id = event->node_role->id, more = event->node_role->role;
    return id ? hash_bytes(kind ^ random_mix(more), id, strlen(id)) | 1 : 0;
}

static const struct wanted_change *find_asked(const struct world *w, uint64_t hash)
{
    const struct wanted_change *asked = w->asked;
    while (asked && asked->hash != hash)
        asked = asked->next;
    return asked;
}

void check_asked(struct world *w, const Cluster__Event *event)
{
    const uint64_t hash = hash_asked(event);
    if (find_asked(w, hash))
        return;
    struct wanted_change *asked = mem_new(sizeof *asked);
    if (!asked) {
        w->out_of_memory = true;
        return;
    }
    *asked = (struct wanted_change){.next = w->asked, .hash = hash};
    w->asked = asked;
}

/* Not by the proofs, which are under test, but by what was asked for. */
void check_signed(struct world *w, const struct node *node, const Cluster__Event *event)
{
    if (w->has_roles && event_needs_admin(event) && !find_asked(w, hash_asked(event)))
        world_violated(w, "%s applies what no admin asked for, a change of kind %u by %.8s",
                       node->name, (unsigned)event->kind_case, event->by ? event->by : "?");
    const bool in_its_name = event->kind_case == CLUSTER__EVENT__KIND_STAGE_REPORTED &&
                             strcmp(event->stage_reported->node, event->by) != 0;
    if (w->has_roles && in_its_name)
        world_violated(w, "%s applies what %.8s reports of another's stage", node->name, event->by);
}

/* ---- the end ---- */

static bool is_all_placed(const struct world *w, const struct node *node, char *why, size_t size)
{
    const Cluster__State *root = party_applied(node->party)->root;
    for (size_t i = 0; w->scenario->fits && root && i < root->n_instances; i++) {
        const Cluster__Instance *instance = root->instances[i];
        if (!instance->active)
            continue;
        if (instance->next || !state_is_ready(instance->current)) {
            snprintf(why, size, "%s is not placed and ready (%s)", instance->id,
                     node->master && master_problem(node->master, instance->id)
                         ? master_problem(node->master, instance->id)
                         : "no reason is known");
            return false;
        }
    }
    return true;
}

static bool acknowledged_is_there(const struct world *w, const struct replica_status *status,
                                  char *why, size_t size)
{
    for (uint32_t i = 0; i < w->facts->n_lineages; i++) {
        const struct acknowledged *last = &w->facts->last[i];
        if (lineage_compare(last->lineage, status->lineage) == 0 && status->applied < last->index) {
            snprintf(why, size, "entry %" PRIu64 " was acknowledged and is not there", last->index);
            return false;
        }
    }
    return true;
}

static bool nodes_agree(struct world *w, const struct node **leader, char *why, size_t size)
{
    assert(!*leader);
    struct replica_status first = {0};
    uint32_t leaders = 0;
    for (uint32_t i = 0; i < w->n; i++) {
        struct node *node = &w->nodes[i];
        if (node->hostile)
            continue;
        if (!node->joined || !node->party || !party_takes_part(node->party)) {
            snprintf(why, size, "%s is not there", node->name);
            return false;
        }
        const struct replica_status status = party_status(node->party);
        if (!i)
            first = status;
        if (lineage_compare(status.lineage, first.lineage) || status.applied != first.applied ||
            status.last != status.applied) {
            snprintf(why, size,
                     "%s has generation %" PRIu64 ", entry %" PRIu64 " of %" PRIu64
                     "; n0 has generation %" PRIu64 ", entry %" PRIu64,
                     node->name, status.lineage.generation, status.applied, status.last,
                     first.lineage.generation, first.applied);
            return false;
        }
        leaders += status.leads;
        if (status.leads)
            *leader = node;
    }
    if (leaders == 1)
        return acknowledged_is_there(w, &first, why, size);
    snprintf(why, size, "%u leaders", leaders);
    return false;
}

bool check_converged(struct world *w, char *why, size_t size)
{
    const struct node *leader = NULL;
    if (!nodes_agree(w, &leader, why, size) || !is_all_placed(w, leader, why, size))
        return false;
    const Cluster__State *root = party_applied(leader->party)->root;
    uint32_t n = 0; /* the hostile ones are removed in the end */
    for (uint32_t i = 0; i < w->n; i++)
        n += !w->nodes[i].hostile;
    const bool all = root && root->n_nodes >= n && root->n_members >= n;
    if (!all || (w->has_roles && (root->n_nodes > n || root->n_members > n))) {
        snprintf(why, size, "%zu of %u nodes are let in, %zu are members", root ? root->n_nodes : 0,
                 n, root ? root->n_members : 0);
        return false;
    }
    if (w->open_requests) {
        snprintf(why, size, "%u requests have no end", w->open_requests);
        return false;
    }
    return true;
}
