/* The problems that a leader's master has solved, from the agreed state and what nodes say; as
 * placing/placing.c. */
#include "sim/world.h"

#include "base/mem.h"
#include "placement/problem.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PLAN_NODES_MAX = 2000 };

struct world_planner {
    struct world *w;
    struct node *node; /* whom it plans for, now */
    uint32_t capacity;
    struct placement_device *devices;
    struct master_device *names;
    uint32_t *nodes; /* by device */
    struct placement_link *links;
    struct placement_layer layers[LIMIT_LAYERS];
    struct placement_problem problem;
};

enum error_code planner_init(struct world *w)
{
    struct world_planner *p = w->planner = mem_new(sizeof *p);
    if (!p)
        return ERROR_NO_MEMORY;
    p->w = w;
    for (uint32_t i = 0; i < w->n; i++)
        p->capacity += (uint32_t)w->scenario->nodes[i].devices;
    if (p->capacity > LIMIT_PLACEMENT_DEVICES)
        p->capacity = LIMIT_PLACEMENT_DEVICES;
    p->devices = mem_new_array(p->capacity, sizeof *p->devices);
    p->names = mem_new_array(p->capacity, sizeof *p->names);
    p->nodes = mem_new_array(p->capacity, sizeof *p->nodes);
    p->links = mem_new_array((size_t)p->capacity * p->capacity, sizeof *p->links);
    return p->devices && p->names && p->nodes && p->links ? ERROR_NONE : ERROR_NO_MEMORY;
}

void planner_deinit(struct world *w)
{
    if (!w->planner)
        return;
    mem_free(w->planner->devices);
    mem_free(w->planner->names);
    mem_free(w->planner->nodes);
    mem_free(w->planner->links);
    mem_free(w->planner);
}

static uint64_t planner_taken_bytes(const struct world *w, const struct state *state,
                                    const Cluster__Instance *but, const char *node,
                                    const char *device)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < state->root->n_instances; i++) {
        const Cluster__Instance *instance = state->root->instances[i];
        const Cluster__Placement *const own[] = {instance->current, instance->next};
        for (int k = 0; k < 2 && instance != but; k++) {
            for (size_t s = 0; own[k] && s < own[k]->n_stages; s++) {
                if (strcmp(own[k]->stages[s]->node, node) == 0 &&
                    strcmp(own[k]->stages[s]->device, device) == 0)
                    bytes += own[k]->stages[s]->n_layers *
                                 w->scenario->instances[instance_index(instance->id)].layer_mib
                             << 20;
            }
        }
    }
    return bytes;
}

/* What it says itself is no older than the leader's own step. */
static bool planner_misses(const struct world_planner *p, uint32_t at, uint32_t to)
{
    assert(at < p->w->n && to < p->w->n);
    const struct said *said = &p->node->said[at];
    if (at == p->node->index)
        return net_misses(p->w, at, to);
    for (uint32_t i = 0; i < said->n_missed; i++) {
        if (said->missed[i] == p->w->nodes[to].id)
            return true;
    }
    return false;
}

static struct placement_link link_of(const struct world_planner *p, uint32_t from, uint32_t to)
{
    if (from == to)
        return (struct placement_link){1e-5, 1e10};
    return planner_misses(p, from, to) || planner_misses(p, to, from)
               ? (struct placement_link){0}
               : (struct placement_link){3e-4, 1.1e8};
}

static void fill_links(struct world_planner *p, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < n; k++)
            p->links[(size_t)i * n + k] = link_of(p, p->nodes[i], p->nodes[k]);
    }
}

static struct said own_words(const struct world *w, const struct node *node)
{
    struct said said = {.others_bytes = node->others_bytes};
    heat_say(w, node, &said);
    return said;
}

/* As placing/placing_cluster.c. */
static void fill_heat(const struct said *said, uint32_t k, struct placement_device *device)
{
    const struct thermal_prospect *prospect = &said->prospects[k];
    device->share = said->share[k];
    device->thermal_headroom = said->headroom[k];
    if (!prospect->share.valid)
        return;
    if (device->share >= 1) {
        device->full_s = fmin(prospect->full_s, PLACEMENT_SECONDS_MAX);
        device->share_error = prospect->share_error;
    }
    device->share = fmin(device->share, prospect->share.value);
}

static void fill_device(struct world_planner *p, const struct master_view *view,
                        const Cluster__Instance *instance, const Cluster__NodeRecord *record,
                        const Cluster__Device *from, struct placement_device *device)
{
    const uint32_t index = world_node(p->w, record->node->id)->index,
                   k = (uint32_t)(from->id[1] - '0');
    const struct said said =
        index == p->node->index ? own_words(p->w, p->node) : p->node->said[index];
    const uint64_t used =
        planner_taken_bytes(p->w, view->state, instance, record->node->id, from->id) +
        said.others_bytes;
    *device = (struct placement_device){.measured = true};
    fill_heat(&said, k, device);
    snprintf(device->id, sizeof device->id, "%s", from->id);
    snprintf(device->node, sizeof device->node, "%s", record->node->id);
    device->memory_free_bytes = from->memory_bytes > used ? from->memory_bytes - used : 0;
    device->decode_bytes_per_s[0] = 1e9 * (double)p->w->scenario->nodes[index].gb_per_s;
}

static uint32_t fill_devices(struct world_planner *p, const struct master_view *view,
                             const Cluster__Instance *instance, const bool *allowed)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < view->n_nodes; i++) {
        const Cluster__NodeRecord *record =
            allowed[i] ? state_node(view->state, view->nodes[i].id) : NULL;
        for (size_t k = 0; record && k < record->node->n_devices && n < p->capacity; k++) {
            const Cluster__Device *from = record->node->devices[k];
            fill_device(p, view, instance, record, from, &p->devices[n]);
            p->nodes[n] = world_node(p->w, record->node->id)->index;
            p->names[n++] = (struct master_device){record->node->id, from->id, true};
        }
    }
    return n;
}

static enum error_code make_problem(void *self, const struct master_view *view,
                                    const Cluster__Instance *instance, const bool *allowed,
                                    const struct placement_problem **problem,
                                    const struct master_device **devices, struct error *err)
{
    struct world_planner *p = self;
    const struct scenario_instance *is = &p->w->scenario->instances[instance_index(instance->id)];
    const uint32_t n = fill_devices(p, view, instance, allowed);
    if (!n)
        return error_set(err, ERROR_NOT_FOUND, "there is no device left");
    fill_links(p, n);
    for (uint32_t i = 0; i < is->layers; i++) {
        p->layers[i] = (struct placement_layer){0};
        p->layers[i].bytes[0] = p->layers[i].bytes_per_token[0] = is->layer_mib << 20;
    }
    p->problem = (struct placement_problem){
        .n_devices = n,
        .devices = p->devices,
        .links = p->links,
        .model = {.n_types = 1,
                  .type_names = {"q4_0"},
                  .n_layers = (uint32_t)is->layers,
                  .layers = p->layers,
                  .activation_bytes_per_token = 8192,
                  .output_bytes_per_token = 4},
        .demand = {.goal = PLACEMENT_LATENCY, .context_tokens = 4096, .streams = 1}};
    *problem = &p->problem;
    *devices = p->names;
    return ERROR_NONE;
}

struct master_planner planner_of(struct world *w, struct node *node)
{
    w->planner->node = node;
    return (struct master_planner){
        .problem = make_problem, .self = w->planner, .max_nodes = PLAN_NODES_MAX};
}

bool planner_has_weights(void *world, const char *node, const char *model)
{
    struct world *w = world;
    return world_node(w, node)->has_weights[instance_index(model)];
}
