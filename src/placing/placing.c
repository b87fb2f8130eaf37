#include "placing/placing_impl.h"

#include "base/mem.h"
#include "hosting/part_options.h"
#include "model/model.h"
#include "placement/check.h"
#include "placement/cost.h"
#include "plan/plan_devices.h"

#include <assert.h>
#include <string.h>

/* ---- an instance ----------------------------------------------------------------------------- */

struct driver_options placing_driver_options(const Cluster__Demand *demand,
                                             const struct model *model)
{
    struct driver_options options = part_options(demand, true);
    options.weights_max = demand->weights_bytes;
    if (model_hyperparameters(model)->reads_whole)
        options.cells = 0;
    return options;
}

/* Every stream has some of these to itself, shared cells or not. */
static bool placing_has_own_parts(const struct placement_model *model, uint32_t context)
{
    for (uint32_t i = 0; i < model->n_layers; i++) {
        const struct placement_layer *layer = &model->layers[i];
        const uint32_t ring = layer->kv_tokens_max, beside = layer->ring_tokens_max;
        if ((ring && ring < context) || (beside && beside < context) || layer->state_bytes)
            return true;
    }
    return false;
}

uint32_t placing_streams(const Cluster__Demand *demand, const struct placement_model *model)
{
    return placing_has_own_parts(model, demand->context_tokens) ? demand->streams
                                                                : part_whole_streams(demand);
}

struct placement_weights placing_weights(const Cluster__ScoreWeights *said)
{
    return said ? (struct placement_weights){said->compute / 1e3, said->memory / 1e3,
                                             said->network / 1e3, said->thermal / 1e3,
                                             said->bandwidth / 1e3}
                : (struct placement_weights){0};
}

static enum error_code demand_of(const Cluster__Demand *said, const struct driver_options *options,
                                 struct placement_demand *out, struct error *err)
{
    *out = plan_demand(options);
    out->weights = placing_weights(said->score_weights);
    out->limit_s = said->time_limit_s;
    if (!said->has_goal)
        return ERROR_NONE;
    if (said->goal > PLACEMENT_MIX)
        return error_set(err, ERROR_UNSUPPORTED, "this version does not know goal %u", said->goal);
    out->goal = (enum placement_goal)said->goal;
    out->busy = out->goal == PLACEMENT_MIX ? 0.5 : 0;
    return ERROR_NONE;
}

enum error_code placing_cost_of_model(const Cluster__Demand *demand, const struct model *model,
                                      bool embedding_counts, struct placing_cost *out,
                                      struct error *err)
{
    const struct driver_options given = placing_driver_options(demand, model);
    struct driver_options options;
    struct plan_compute compute;
    if (demand->kv_type >= KV_TYPES)
        return error_set(err, ERROR_UNSUPPORTED, "this version does not know KV cache type %u",
                         demand->kv_type);
    enum error_code code = driver_options_fill(&given, model, &options, err);
    if (!code)
        code = demand_of(demand, &options, &out->demand, err);
    if (code)
        return code;
    plan_compute_estimate(model, &options, &compute);
    code = plan_model_init(&out->model, model, &options, &compute, embedding_counts, err);
    if (!demand->precision_allowed)
        out->model.is_converted = false; /* nodes keep a file of that type: weights.md */
    return code;
}

enum error_code placing_cost_of(const struct placing_view *view, const Cluster__Instance *instance,
                                bool embedding_counts, struct placing_cost *out, struct error *err)
{
    const Cluster__Model *said = state_model(view->state, instance->model);
    struct error why = {0};
    *out = (struct placing_cost){0};
    if (!said)
        return error_set(err, ERROR_NOT_FOUND, "instance %.64s: there is no model '%.64s'",
                         instance->id, instance->model);
    const struct model *model = view->model(view->self, said);
    if (!model)
        return error_set(err, ERROR_BUSY, "the header of %.64s is still being fetched",
                         instance->model);
    const uint32_t n_layers = model_hyperparameters(model)->n_layers;
    if (n_layers != said->n_layers)
        return error_set(err, ERROR_INVALID,
                         "%.64s has %u layers, not %u as it was registered with", instance->model,
                         n_layers, said->n_layers);
    enum error_code code =
        placing_cost_of_model(instance->demand, model, embedding_counts, out, &why);
    if (!code)
        code = placing_add_draft(view, instance, embedding_counts, out, &why);
    if (code)
        plan_model_deinit(&out->model);
    return code ? error_set(err, code, "instance %.64s: %s", instance->id, why.text) : ERROR_NONE;
}

/* ---- the problem ----------------------------------------------------------------------------- */

static bool is_linked(const struct cluster_problem *posed, uint32_t from, uint32_t to)
{
    const struct topology_link *link = topology_link(&posed->topology, from, to);
    return link && link->up;
}

void placing_adapt(const struct cluster *cluster, enum activation_type wire,
                   struct cluster_problem *posed)
{
    const uint32_t n = cluster->n_devices;
    const uint64_t plain = posed->problem.model.activation_bytes_per_token;
    const uint32_t width = (uint32_t)(plain / sizeof(float));
    const enum activation_type type = activation_type_fits(wire, width) ? wire : ACTIVATION_F32;
    const double packed = (double)plain / (double)activation_bytes(type, width, 1);
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t j = 0; j < n; j++) {
            const uint32_t from = cluster->devices[i].node, to = cluster->devices[j].node;
            struct placement_link *link = &posed->links[(size_t)i * n + j];
            if (from == to)
                continue;
            link->bytes_per_s = is_linked(posed, from, to) ? link->bytes_per_s * packed : 0;
        }
    }
}

static enum error_code placing_pose(struct placing *p, struct error *err)
{
    cluster_problem_deinit(&p->posed);
    const enum error_code code =
        cluster_problem_init(&p->posed, &p->cluster, &p->model.model, &p->demand, err);
    if (!code)
        placing_adapt(&p->cluster, p->view.wire, &p->posed);
    return code;
}

static void placing_clear(struct placing *p)
{
    cluster_problem_deinit(&p->posed);
    plan_model_deinit(&p->model);
    cluster_deinit(&p->cluster);
    mem_free(p->names);
    *p = (struct placing){
        .view = p->view, .search_streams = p->search_streams, .searcher = p->searcher};
}

void placing_deinit(struct placing *placing)
{
    if (placing)
        placing_clear(placing);
}

/* A node that knows nothing of cells would open something else than the others. */
static void placing_leave_out_older(const struct placing_view *view, struct placing *p)
{
    for (uint32_t i = 0; i < p->cluster.n_devices; i++) {
        const Cluster__Device *said =
            state_device(state_node(view->state, p->names[i].node), p->names[i].device);
        if (said && !said->has_shares_cells)
            p->cluster.devices[i].share = 0;
    }
}

static enum error_code placing_build(struct placing *p, const struct placing_view *view,
                                     const Cluster__Instance *instance, struct error *err)
{
    struct placing_gathered gathered = {0};
    struct placing_cost cost = {0};
    placing_clear(p);
    enum error_code code = placing_gather(view, &gathered, err);
    if (!code && !gathered.cluster.n_devices)
        code = error_set(err, ERROR_NOT_FOUND, "no node of the cluster has a device");
    if (!code)
        code = placing_cost_of(view, instance, plan_devices_count_embedding(&gathered.cluster),
                               &cost, err);
    if (!code)
        code = placing_count_memory(view, &gathered, instance->id, err);
    if (code) {
        plan_model_deinit(&cost.model);
        placing_gathered_deinit(&gathered);
        return code;
    }
    p->cluster = gathered.cluster;
    p->names = gathered.names;
    gathered.cluster = (struct cluster){0};
    gathered.names = NULL;
    placing_gathered_deinit(&gathered);
    if (instance->demand->cells)
        placing_leave_out_older(view, p);
    p->model = cost.model;
    p->demand = cost.demand;
    p->stands_by = plan_devices_stand_by(&p->cluster, &p->model.model);
    p->demand.streams = placing_streams(instance->demand, &p->model.model);
    return placing_pose(p, err);
}

/* ---- for the master -------------------------------------------------------------------------- */

static const Node__Now *now_of(const struct placing_view *view, const char *node)
{
    for (uint32_t i = 0; i < view->n_seen; i++) {
        if (!strcmp(view->seen[i].node, node))
            return view->seen[i].now;
    }
    return NULL;
}

enum error_code placing_problem(void *self, const struct master_view *view,
                                const Cluster__Instance *instance, const bool *allowed,
                                const struct placement_problem **problem,
                                const struct master_device **devices, struct error *err)
{
    struct placing *p = self;
    struct placing_seen *seen = mem_new_array((size_t)view->n_nodes + 1, sizeof *seen);
    if (!seen)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for a cluster of %u nodes",
                         view->n_nodes);
    struct placing_view own = p->view;
    own.state = view->state;
    own.seen = seen;
    own.n_seen = view->n_nodes;
    for (uint32_t i = 0; i < view->n_nodes; i++)
        seen[i] = (struct placing_seen){view->nodes[i].id, allowed[i],
                                        now_of(&p->view, view->nodes[i].id)};
    const enum error_code code = placing_build(p, &own, instance, err);
    mem_free(seen);
    if (code)
        return code;
    *problem = &p->posed.problem;
    *devices = p->names;
    return ERROR_NONE;
}

bool placing_call_in(void *self)
{
    struct placing *p = self;
    if (!p->stands_by)
        return false;
    p->stands_by = false;
    plan_devices_call_in(&p->cluster);
    return !placing_pose(p, NULL);
}

/* ---- the forecast ---------------------------------------------------------------------------- */

uint32_t placing_stage_device(const struct placing *p, const Cluster__Stage *stage)
{
    uint32_t device = 0;
    while (device < p->cluster.n_devices && (strcmp(p->names[device].node, stage->node) != 0 ||
                                             strcmp(p->names[device].device, stage->device) != 0))
        device++;
    return device;
}

static enum error_code placing_take_stages(const struct placing *p, const Cluster__Placement *said,
                                           struct placement *out, struct error *err)
{
    *out = (struct placement){0};
    for (size_t i = 0; i < said->n_stages && i < LIMIT_STAGES; i++) {
        const Cluster__Stage *stage = said->stages[i];
        const uint32_t device = placing_stage_device(p, stage);
        if (device == p->cluster.n_devices)
            return error_set(err, ERROR_NOT_FOUND, "stage %zu: there is no such device", i);
        out->stages[out->n_stages++] =
            (struct placement_stage){device, stage->first_layer, stage->n_layers};
    }
    return ERROR_NONE;
}

/* What is loaded fits; and what stood by is in use where it is. */
static void placing_grant(struct placing *p)
{
    for (uint32_t i = 0; i < p->cluster.n_devices; i++) {
        p->posed.devices[i].memory_free_bytes = PLACEMENT_BYTES_MAX;
        p->posed.devices[i].reserve_bytes = 0;
        p->posed.devices[i].excluded = false;
    }
}

/* What a streamed stage waits for its disk is added to what launching it takes. */
static enum error_code placing_wait_for_disks(struct placing *p, const struct placement *placement,
                                              const Cluster__Placement *said, struct error *err)
{
    struct placement_problem problem = p->posed.problem;
    struct plan_stream_placement of = {.placement = *placement};
    struct plan_stream_disk *disks = placing_disks(&p->cluster);
    if (!disks)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for a cluster of %u devices",
                         p->cluster.n_devices);
    problem.demand.micro_batches = placement->n_stages;
    for (uint32_t i = 0; i < placement->n_stages; i++) {
        if (said->stages[i]->weights_max)
            plan_stream_stage_of(&problem, &placement->stages[i], said->stages[i]->weights_max,
                                 &of.stages[i]);
    }
    plan_stream_waits(&problem, disks, &of);
    for (uint32_t i = 0; i < placement->n_stages; i++) {
        struct placement_device *device = &p->posed.devices[placement->stages[i].device];
        device->launch_s += device->share * of.stages[i].wait_s;
    }
    mem_free(disks);
    return ERROR_NONE;
}

/* `draft`: the device of its draft model, if that is known. */
static enum error_code placing_forecast_with(const struct placing_view *view,
                                             const Cluster__Instance *instance,
                                             const Cluster__Placement *said,
                                             struct placement_forecast *out,
                                             char draft[CLUSTER_ID_MAX], struct error *err)
{
    struct placing placing = {.view = *view};
    struct placement placement;
    struct error why = {0};
    Cluster__Demand demand = *instance->demand;
    Cluster__Instance as_placed = *instance;
    as_placed.demand = &demand;
    demand.precision = said->precision ? said->precision : demand.precision;
    enum error_code code = placing_build(&placing, view, &as_placed, err);
    if (!code)
        code = placing_take_stages(&placing, said, &placement, err);
    if (!code) {
        placing_grant(&placing);
        if (placement_check(&placing.posed.problem, &placement, NULL) == ERROR_NONE)
            code = placing_wait_for_disks(&placing, &placement, said, err);
        struct placement_problem problem = placing.posed.problem;
        problem.demand.micro_batches = placement.n_stages;
        if (!code && placement_check(&problem, &placement, &why))
            code = error_set(err, ERROR_NOT_FOUND, "%s", why.text);
        if (!code) {
            placement_forecast(&problem, &placement, out);
            placing_forecast_draft(&placing, &as_placed, &problem, &placement, &out->guessed,
                                   draft);
        }
    }
    placing_deinit(&placing);
    return code;
}

enum error_code placing_forecast(const struct placing_view *view, const Cluster__Instance *instance,
                                 const Cluster__Placement *said, struct placement_forecast *out,
                                 struct error *err)
{
    char draft[CLUSTER_ID_MAX] = "";
    return placing_forecast_with(view, instance, said, out, draft, err);
}

bool placing_draft_place(const struct placing_view *view, const Cluster__Instance *instance,
                         const Cluster__Placement *said, struct placing_draft *out)
{
    struct placement_forecast forecast;
    *out = (struct placing_draft){0};
    if (placing_forecast_with(view, instance, said, &forecast, out->device, NULL) ||
        forecast.guessed.drafted <= 0)
        return false;
    out->share = forecast.guessed.guess_s * forecast.guessed.without;
    return true;
}
