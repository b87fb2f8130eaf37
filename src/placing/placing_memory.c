/* What a device has for an instance: the rule is in placing.h. */
#include "placing/placing_impl.h"

#include "base/mem.h"
#include "clusterfile/cluster_file.h"
#include "model/model.h"
#include "placement/cost.h"
#include "plan/plan_devices.h"

#include <string.h>

struct counted { /* bytes of one device, or of others in the same memory */
    uint64_t given_back, to_come, others;
};

struct counting {
    const struct placing_view *view;
    struct placing_gathered *gathered;
    struct counted *devices; /* [n_devices] */
    bool embedding_counts;
    /* of the instance that is looked at */
    const Cluster__Instance *instance;
    struct placing_cost cost;
    bool has_cost;
};

/* ---- stages ---------------------------------------------------------------------------------- */

static bool node_tells(const Node__Now *now, const char *instance, uint64_t epoch, uint32_t stage)
{
    for (size_t i = 0; i < now->n_held; i++) {
        const Node__Held *held = now->held[i];
        if (held->epoch == epoch && held->stage == stage && held->instance &&
            !strcmp(held->instance, instance))
            return true;
    }
    return false;
}

static bool placing_memory_is_held(const struct counting *c, const Cluster__Placement *placement,
                                   size_t index)
{
    const Cluster__Stage *stage = placement->stages[index];
    const struct placing_node *node = placing_find_node(c->gathered, stage->node);
    const Node__Now *now = node && node->seen ? node->seen->now : NULL;
    if (now && now->tells_held)
        return node_tells(now, c->instance->id, placement->epoch, (uint32_t)index);
    return stage->state == CLUSTER__STAGE_STATE__READY;
}

/* Another placement's stage of the same layers on the same device, which is or will be taken over;
 * n_stages: none. */
static size_t placing_memory_find_twin(const Cluster__Placement *in, const Cluster__Stage *stage)
{
    size_t i = 0;
    for (; in && i < in->n_stages; i++) {
        const Cluster__Stage *other = in->stages[i];
        if (other->first_layer == stage->first_layer && other->n_layers == stage->n_layers &&
            !strcmp(other->node, stage->node) && !strcmp(other->device, stage->device))
            break;
    }
    return i;
}

static bool has_twin(const Cluster__Placement *in, const Cluster__Stage *stage)
{
    return in && placing_memory_find_twin(in, stage) < in->n_stages;
}

static bool has_held_twin(const struct counting *c, const Cluster__Placement *in,
                          const Cluster__Stage *stage)
{
    return has_twin(in, stage) &&
           placing_memory_is_held(c, in, placing_memory_find_twin(in, stage));
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* Of a stage, and all devices that live in its memory; `which` is the count that it adds to. */
static enum error_code placing_memory_add(struct counting *c, const Cluster__Stage *stage,
                                          size_t which, struct error *err)
{
    const struct cluster *cluster = &c->gathered->cluster;
    const uint32_t device = placing_find_device(c->gathered, stage);
    if (device == UINT32_MAX || cluster->devices[device].share <= 0)
        return ERROR_NONE; /* it is not there now: nothing will be placed there either */
    if (!c->has_cost) {
        const enum error_code code =
            placing_cost_of(c->view, c->instance, c->embedding_counts, &c->cost, err);
        if (code)
            return code;
        c->has_cost = true;
    }
    const struct placement_problem problem = {.model = c->cost.model.model,
                                              .demand = c->cost.demand};
    const struct placement_stage of = {device, stage->first_layer, stage->n_layers};
    uint64_t bytes = placement_stage_bytes(&problem, &of);
    const uint64_t weights = placement_shared_bytes(&problem, &of, &of);
    if (stage->weights_max && stage->weights_max < weights) /* the rest is streamed */
        bytes -= weights - stage->weights_max;
    const struct cluster_node *node = &cluster->nodes[cluster->devices[device].node];
    for (uint32_t i = node->first_device; i < node->first_device + node->n_devices; i++) {
        if (cluster_share_memory(cluster, device, i))
            *(uint64_t *)(void *)((char *)&c->devices[i] + which) += bytes;
    }
    return ERROR_NONE;
}

#define ADD(stage, field) placing_memory_add(c, (stage), offsetof(struct counted, field), err)

/* ---- instances ------------------------------------------------------------------------------- */

static enum error_code count_own(struct counting *c, struct error *err)
{
    const Cluster__Placement *current = c->instance->current, *next = c->instance->next;
    enum error_code code = ERROR_NONE;
    for (size_t i = 0; current && i < current->n_stages && !code; i++) {
        if (placing_memory_is_held(c, current, i))
            code = ADD(current->stages[i], given_back);
    }
    for (size_t i = 0; next && i < next->n_stages && !code; i++) {
        if (placing_memory_is_held(c, next, i) &&
            !(next->replaces && has_held_twin(c, current, next->stages[i])))
            code = ADD(next->stages[i], given_back);
    }
    return code;
}

/* A stage that is wanted where it is. */
static enum error_code count_wanted(struct counting *c, const Cluster__Placement *placement,
                                    size_t index, bool held, struct error *err)
{
    const Cluster__Stage *stage = placement->stages[index];
    if (!held && stage->state == CLUSTER__STAGE_STATE__FAILED)
        return ERROR_NONE;
    enum error_code code = ADD(stage, others);
    return code || held ? code : ADD(stage, to_come);
}

static enum error_code count_others(struct counting *c, struct error *err)
{
    const Cluster__Placement *current = c->instance->current, *next = c->instance->next;
    const bool replaced = next && next->replaces;
    enum error_code code = ERROR_NONE;
    for (size_t i = 0; current && i < current->n_stages && !code; i++) {
        const bool held = placing_memory_is_held(c, current, i);
        if (!replaced)
            code = count_wanted(c, current, i, held, err);
        else if (held && !has_twin(next, current->stages[i]))
            code = ADD(current->stages[i], given_back);
    }
    for (size_t i = 0; next && i < next->n_stages && !code; i++) {
        const bool taken_over = replaced && has_held_twin(c, current, next->stages[i]);
        code = count_wanted(c, next, i, taken_over || placing_memory_is_held(c, next, i), err);
    }
    return code;
}

static enum error_code count_instances(struct counting *c, const char *own, struct error *err)
{
    const Cluster__State *root = c->view->state->root;
    enum error_code code = ERROR_NONE;
    for (size_t i = 0; root && i < root->n_instances && !code; i++) {
        c->instance = root->instances[i];
        code = own && !strcmp(c->instance->id, own) ? count_own(c, err) : count_others(c, err);
        if (c->has_cost)
            plan_model_deinit(&c->cost.model);
        c->has_cost = false;
    }
    return code;
}

/* ---- the rule -------------------------------------------------------------------------------- */

static uint64_t placing_memory_minus(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static uint64_t placing_memory_smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t placing_memory_larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static const Cluster__Device *said_of(const struct placing_gathered *g, uint32_t index)
{
    const Cluster__Node *node = g->nodes[g->cluster.devices[index].node].node;
    for (size_t i = 0; i < node->n_devices; i++) {
        if (node->devices[i]->id == g->names[index].device)
            return node->devices[i];
    }
    return NULL;
}

static void placing_memory_settle(struct placing_gathered *g, uint32_t index,
                                  const struct counted *counted)
{
    struct cluster_device *device = &g->cluster.devices[index];
    const Node__DeviceNow *now = placing_device_now(&g->nodes[device->node], device->id);
    const Cluster__Device *said = said_of(g, index);
    const uint64_t described = device->memory_bytes;
    const uint64_t all = said->has_memory_bytes
                             ? placing_memory_smaller(said->memory_bytes, PLACEMENT_BYTES_MAX)
                             : PLACEMENT_BYTES_MAX;
    const uint64_t free = now && now->has_free_bytes ? placing_memory_smaller(now->free_bytes, all)
                                                     : placing_memory_smaller(described, all);
    device->memory_bytes = placing_memory_smaller(
        placing_memory_minus(free + counted->given_back, counted->to_come), all);
    if (!device->own_memory)
        device->memory_bytes = placing_memory_smaller(
            device->memory_bytes,
            placing_memory_minus(placing_memory_larger(free, described), counted->others));
    if (now && now->has_lent_bytes)
        device->memory_bytes = placing_memory_smaller(
            device->memory_bytes, placing_memory_minus(now->lent_bytes, counted->others));
    device->reserve_bytes = said->has_reserve_bytes ? said->reserve_bytes
                                                    : cluster_default_reserve(device->memory_bytes);
    device->reserve_bytes = placing_memory_smaller(device->reserve_bytes, device->memory_bytes);
}

static bool is_over_lent(const struct placing_gathered *g, uint32_t index,
                         const struct counted *counted)
{
    const struct cluster_device *device = &g->cluster.devices[index];
    const Node__DeviceNow *now = placing_device_now(&g->nodes[device->node], device->id);
    return now && now->has_lent_bytes && counted->given_back &&
           counted->given_back > placing_memory_minus(now->lent_bytes, counted->others);
}

static enum error_code counting_begin(const struct placing_view *view,
                                      struct placing_gathered *gathered, struct counting *out,
                                      struct error *err)
{
    const uint32_t n_devices = gathered->cluster.n_devices;
    *out = (struct counting){.view = view,
                             .gathered = gathered,
                             .devices = mem_new_array((size_t)n_devices + 1, sizeof *out->devices),
                             .embedding_counts = plan_devices_count_embedding(&gathered->cluster)};
    return out->devices ? ERROR_NONE
                        : error_set(err, ERROR_NO_MEMORY,
                                    "not enough memory for a cluster of %u devices", n_devices);
}

enum error_code placing_count_memory(const struct placing_view *view,
                                     struct placing_gathered *gathered, const char *instance,
                                     struct error *err)
{
    struct counting c;
    enum error_code code = counting_begin(view, gathered, &c, err);
    if (!code)
        code = count_instances(&c, instance, err);
    for (uint32_t i = 0; i < gathered->cluster.n_devices && !code; i++)
        placing_memory_settle(gathered, i, &c.devices[i]);
    mem_free(c.devices);
    return code;
}

enum error_code placing_over_lent(const struct placing_view *view, const char *instance, bool *over,
                                  struct error *err)
{
    struct placing_gathered gathered;
    struct counting c = {0};
    *over = false;
    enum error_code code = placing_gather(view, &gathered, err);
    if (code)
        return code;
    code = counting_begin(view, &gathered, &c, err);
    if (!code)
        code = count_instances(&c, instance, err);
    for (uint32_t i = 0; i < gathered.cluster.n_devices && !code; i++)
        *over = *over || is_over_lent(&gathered, i, &c.devices[i]);
    mem_free(c.devices);
    placing_gathered_deinit(&gathered);
    return code;
}
