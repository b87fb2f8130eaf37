#include "report/report.h"

#include "base/mem.h"
#include "placement/as_run.h"
#include "placement/check.h"
#include "placement/prefill.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- time ------------------------------------------------------------------------------------ */

struct deadline {
    const struct report_ask *ask;
    double end_s;
};

static bool report_before(void *self)
{
    const struct deadline *deadline = self;
    return deadline->ask->now_s(deadline->ask->self) < deadline->end_s;
}

static double now_s(const struct report_ask *ask)
{
    return ask->now_s ? ask->now_s(ask->self) : 0;
}

static struct placement_options options_until(struct deadline *deadline,
                                              const struct report_ask *ask)
{
    struct placement_options options = placement_options_default();
    if (placement_weights_are_set(&ask->weights))
        options.weights = ask->weights;
    *deadline = (struct deadline){ask, now_s(ask) + ask->limit_s};
    if (ask->now_s && ask->limit_s > 0) {
        options.go_on = report_before;
        options.self = deadline;
    }
    return options;
}

/* ---- the bottleneck -------------------------------------------------------------------------- */

/* Which part of a stage's time would go if the device computed in no time, or were launched in
 * none. */
static enum report_limit limit_of_stage(const struct placement_problem *problem,
                                        const struct placement_stage *stage)
{
    const struct placement_load load = placement_decode_load(problem);
    struct placement_device device = problem->devices[stage->device];
    const double seconds = placement_stage_s(problem, stage, load);
    const double launch_s = placement_launch_s(problem, stage->device, load.rows);
    for (uint32_t type = 0; type < problem->model.n_types; type++) {
        if (device.prefill_flops[type] > 0)
            device.prefill_flops[type] = PLACEMENT_RATE_MAX;
    }
    struct placement_problem alone = *problem; /* the cost of a stage looks at its device only */
    alone.n_devices = 1;
    alone.devices = &device;
    const struct placement_stage same = {0, stage->first_layer, stage->n_layers};
    const double reading_s = placement_stage_s(&alone, &same, load);
    if (launch_s > seconds / 2)
        return REPORT_BY_LAUNCH;
    return reading_s < 0.9 * seconds ? REPORT_BY_COMPUTE : REPORT_BY_BANDWIDTH;
}

/* One micro-batch: what takes the largest part of its round. Several: what is busy the longest,
 * unless the round is too long for so few of them. */
static struct report_bottleneck find_bottleneck(const struct report *report)
{
    const struct placement_problem *problem = &report->cluster_problem.problem;
    const struct placement_forecast *forecast = &report->forecast;
    const struct placement_cost *cost = &forecast->cost;
    struct report_bottleneck out = {.limit = REPORT_BY_BANDWIDTH};
    const bool one = placement_micro_batches(problem) == 1;
    double longest_s = 0;
    for (uint32_t i = 0; one && i < forecast->n_stages; i++) {
        const struct placement_stage_forecast *stage = &forecast->stages[i];
        const double most_s = fmax(stage->decode_s, stage->hop_s);
        if (most_s <= longest_s)
            continue;
        longest_s = most_s;
        out.stage = i;
        out.limit = stage->hop_s > stage->decode_s ? REPORT_BY_LINK : REPORT_BY_BANDWIDTH;
    }
    if (!one && cost->longest_s < 0.999 * cost->period_s)
        return (struct report_bottleneck){.limit = REPORT_BY_STREAMS,
                                          .part = cost->longest_s / cost->period_s};
    if (!one) {
        longest_s = cost->longest_s;
        out.stage = cost->longest;
        out.limit = cost->link_is_longest ? REPORT_BY_LINK : REPORT_BY_BANDWIDTH;
    }
    out.part = cost->period_s > 0 ? longest_s / cost->period_s : 0;
    if (out.limit != REPORT_BY_LINK)
        out.limit = limit_of_stage(problem, &report->solution.placement.stages[out.stage]);
    return out;
}

/* ---- solving --------------------------------------------------------------------------------- */

/* As placement_rate(). */
static enum error_code rate_problem(struct placement_problem problem,
                                    const struct placement_options *options,
                                    struct placement_rates *out, struct error *err)
{
    struct placement_options bounded = *options;
    struct placement_solution solution = {0};
    *out = (struct placement_rates){0};
    bounded.max_nodes = PLACEMENT_WHATIF_NODES;
    if (options->go_on && !options->go_on(options->self))
        return ERROR_NONE;
    const enum error_code code = placement_solve_as_run(&problem, &bounded, &solution, err);
    if (code == ERROR_NOT_FOUND)
        *out = (struct placement_rates){.answer = PLACEMENT_IMPOSSIBLE, .proved = true};
    if (code)
        return code == ERROR_NOT_FOUND || code == ERROR_BUSY ? ERROR_NONE : code;
    const struct placement_cost cost = placement_decode_cost(&problem, &solution.placement);
    *out = (struct placement_rates){
        .answer = PLACEMENT_POSSIBLE,
        .proved = solution.proved,
        .decode_tokens_per_s = placement_decode_tokens_per_s(&problem, &cost),
        .prefill_tokens_per_s = placement_prefill_tokens_per_s(&problem, &solution.placement),
        .placement = solution.placement,
    };
    return ERROR_NONE;
}

/* ---- questions ------------------------------------------------------------------------------- */

static void report_exclude(struct cluster_problem *problem, const struct report_ask *ask)
{
    for (uint32_t d = 0; d < problem->problem.n_devices; d++) {
        for (uint32_t i = 0; i < ask->n_without; i++)
            problem->devices[d].excluded |= !strcmp(problem->devices[d].node, ask->without[i]);
    }
}

/* The best placement on another cluster. */
static enum error_code rate_cluster(const struct report_ask *ask, const struct cluster *cluster,
                                    const struct placement_options *options,
                                    struct placement_rates *out, struct error *err)
{
    struct cluster_problem problem;
    enum error_code code = cluster_problem_init(&problem, cluster, ask->model, &ask->demand, err);
    if (code)
        return code;
    report_exclude(&problem, ask);
    code = rate_problem(problem.problem, options, out, err);
    cluster_problem_deinit(&problem);
    return code;
}

static enum error_code report_ask_extras(struct report *report,
                                         const struct placement_options *options, struct error *err)
{
    const struct report_ask *ask = &report->ask;
    enum error_code code = ERROR_NONE;
    for (uint32_t i = 0; i < ask->n_extras && !code; i++) {
        struct cluster more;
        code = cluster_with_device(ask->cluster, ask->extras[i].node, &ask->extras[i].device, &more,
                                   err);
        if (!code)
            code = rate_cluster(ask, &more, options, &report->extras[i], err);
        cluster_deinit(&more);
    }
    return code;
}

/* Without a node, or one device of it; not by placement_without_device(): without the device
 * another one has the memory that both live in. */
static enum error_code rate_without(const struct report_ask *ask, uint32_t node, uint32_t device,
                                    bool whole_node, const struct placement_options *options,
                                    struct placement_rates *out, struct error *err)
{
    struct cluster less = *ask->cluster;
    less.devices = mem_new_array(less.n_devices, sizeof *less.devices);
    if (!less.devices)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for a cluster of %u devices",
                         less.n_devices);
    memcpy(less.devices, ask->cluster->devices, less.n_devices * sizeof *less.devices);
    for (uint32_t d = 0; d < less.n_devices; d++) {
        if (whole_node ? less.devices[d].node == node : d == device)
            less.devices[d].share = 0;
    }
    const enum error_code code = rate_cluster(ask, &less, options, out, err);
    mem_free(less.devices);
    return code;
}

static bool node_is_new(const struct report *report, uint32_t stage)
{
    const struct cluster_device *devices = report->ask.cluster->devices;
    const struct placement_stage *stages = report->solution.placement.stages;
    for (uint32_t i = 0; i < stage; i++) {
        if (devices[stages[i].device].node == devices[stages[stage].device].node)
            return false;
    }
    return true;
}

/* Without each node in use, then without each device whose node has others. */
static enum error_code ask_without(struct report *report, const struct placement_options *options,
                                   struct error *err)
{
    const struct placement_problem *problem = &report->cluster_problem.problem;
    const struct placement *placement = &report->solution.placement;
    struct placement_whatifs *whatifs = &report->whatifs;
    enum error_code code = ERROR_NONE;
    whatifs->list = mem_new_array(2 * placement->n_stages, sizeof *whatifs->list);
    if (!whatifs->list)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for %u questions",
                         2 * placement->n_stages);
    for (uint32_t i = 0; i < 2 * placement->n_stages && !code; i++) {
        const bool is_node = i < placement->n_stages;
        const uint32_t stage = is_node ? i : i - placement->n_stages,
                       d = placement->stages[stage].device;
        const struct cluster_node *node =
            &report->ask.cluster->nodes[report->ask.cluster->devices[d].node];
        if (is_node ? !node_is_new(report, stage) : node->n_devices == 1)
            continue;
        struct placement_whatif *what = &whatifs->list[whatifs->n++];
        what->change = is_node ? PLACEMENT_WITHOUT_NODE : PLACEMENT_WITHOUT_DEVICE;
        memcpy(what->node, problem->devices[d].node, sizeof what->node);
        if (!is_node)
            memcpy(what->device, problem->devices[d].id, sizeof what->device);
        code = rate_without(&report->ask, report->ask.cluster->devices[d].node, d, is_node, options,
                            &what->rates, err);
    }
    return code;
}

static void forecast_as_run(struct placement_problem problem, const struct placement *placement,
                            struct placement_forecast *out)
{
    if (problem.demand.micro_batches)
        problem.demand.micro_batches = placement->n_stages;
    placement_forecast(&problem, placement, out);
}

static enum error_code ask_policies(struct report *report, struct error *err)
{
    const struct placement_problem *problem = &report->cluster_problem.problem;
    for (uint32_t i = 0; i < REPORT_POLICIES; i++) {
        struct report_policy *policy = &report->policies[i];
        struct error why = {0};
        policy->asked = report->ask.policies[i];
        if (!policy->asked)
            continue;
        const enum error_code code =
            placement_by_policy(problem, (enum placement_policy)i, &policy->placement, &why);
        if (code && code != ERROR_NOT_FOUND)
            return error_set(err, code, "%s", why.text);
        policy->found = !code;
        memcpy(policy->why, why.text, sizeof policy->why);
        if (policy->found)
            forecast_as_run(*problem, &policy->placement, &policy->forecast);
    }
    return ERROR_NONE;
}

static enum error_code ask_reasons(struct report *report, const struct placement_options *options,
                                   struct error *err)
{
    const struct placement_problem *problem = &report->cluster_problem.problem;
    report->reasons = mem_new_array(problem->n_devices, sizeof *report->reasons);
    if (!report->reasons)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for %u reasons",
                         problem->n_devices);
    enum error_code code = ERROR_NONE;
    while (!code && report->n_reasons < problem->n_devices &&
           (!options->go_on || options->go_on(options->self))) {
        code = placement_why_left_out(problem, &report->solution.placement, report->n_reasons,
                                      &report->reasons[report->n_reasons], err);
        report->n_reasons++;
    }
    return code;
}

/* Whether several groups are faster, of the demand as it was before a number of micro-batches was
 * chosen. */
static enum error_code ask_groups(struct report *report, const struct placement_options *options,
                                  struct error *err)
{
    struct placement_problem problem = report->cluster_problem.problem;
    const struct placement_group one = {report->solution.placement, problem.demand.streams,
                                        placement_micro_batches(&problem)};
    problem.demand.micro_batches = report->ask.demand.micro_batches;
    report->divided =
        problem.demand.replicas && problem.demand.goal != PLACEMENT_LATENCY && one.streams > 1;
    return report->divided ? placement_replicate(&problem, options, &one, report->solution.proved,
                                                 &report->replicas, err)
                           : ERROR_NONE;
}

/* Everything beside the placement itself. */
static enum error_code ask_rest(struct report *report, struct error *err)
{
    const struct placement_problem *problem = &report->cluster_problem.problem;
    struct deadline deadline;
    const struct placement_options options = options_until(&deadline, &report->ask);
    if (!report->outcome && !report->ask.given && ask_groups(report, &options, err))
        return err->code;
    if (report->outcome == ERROR_NOT_FOUND) {
        enum error_code code =
            placement_remedies(problem, &report->ask.kv_types, &options, &report->remedies, err);
        return code ? code : report_ask_extras(report, &options, err);
    }
    if (report->outcome)
        return ERROR_NONE;
    placement_forecast(problem, &report->solution.placement, &report->forecast);
    report->bottleneck = find_bottleneck(report);
    enum error_code code = ask_policies(report, err);
    if (!code && !report->ask.given)
        code = ask_without(report, &options, err);
    if (!code)
        code = report_ask_extras(report, &options, err);
    return code ? code : ask_reasons(report, &options, err);
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* With a micro-batch for each stage in flight, as the driver runs it (placement/as_run.h). */
static enum error_code report_take_given(struct report *report, struct error *err)
{
    struct placement_problem *problem = &report->cluster_problem.problem;
    const struct placement *given = report->ask.given;
    if (problem->demand.goal != PLACEMENT_LATENCY && !problem->demand.micro_batches)
        problem->demand.micro_batches = given->n_stages;
    const enum error_code code = placement_check(problem, given, err);
    if (code)
        return code;
    const struct placement_cost cost = placement_decode_cost(problem, given);
    report->solution = (struct placement_solution){
        .placement = *given, .period_s = cost.objective_s, .greedy_s = INFINITY};
    return ERROR_NONE;
}

static enum error_code report_solve(struct report *report, struct error *err)
{
    if (report->ask.given)
        return report_take_given(report, err);
    struct deadline deadline;
    const struct placement_options options = options_until(&deadline, &report->ask);
    const double begin_s = now_s(&report->ask);
    struct error why = {0};
    report->outcome =
        placement_solve_as_run(&report->cluster_problem.problem, &options, &report->solution, &why);
    report->solve_s = now_s(&report->ask) - begin_s;
    if (report->outcome && report->outcome != ERROR_NOT_FOUND && report->outcome != ERROR_BUSY)
        return error_set(err, report->outcome, "%s", why.text);
    return ERROR_NONE;
}

enum error_code report_init(struct report *report, const struct report_ask *ask, struct error *err)
{
    struct error own;
    err = err ? err : &own;
    *report = (struct report){.ask = *ask};
    enum error_code code =
        cluster_problem_init(&report->cluster_problem, ask->cluster, ask->model, &ask->demand, err);
    for (uint32_t i = 0; !code && i < ask->n_without; i++) {
        if (cluster_find_node(ask->cluster, ask->without[i]) == UINT32_MAX)
            code = error_set(err, ERROR_INVALID, "there is no node '%s'", ask->without[i]);
    }
    if (!code)
        report_exclude(&report->cluster_problem, ask);
    if (!code)
        code = report_solve(report, err);
    if (!code)
        code = ask_rest(report, err);
    if (code)
        report_deinit(report);
    return code;
}

void report_deinit(struct report *report)
{
    if (!report)
        return;
    cluster_problem_deinit(&report->cluster_problem);
    placement_whatifs_deinit(&report->whatifs);
    mem_free(report->reasons);
    *report = (struct report){0};
}

struct placement_problem report_group(const struct report *report, uint32_t group,
                                      struct placement_forecast *out)
{
    const struct placement_group *of = &report->replicas.groups.groups[group];
    const struct placement_problem problem =
        placement_of_group(&report->cluster_problem.problem, of);
    placement_forecast(&problem, &of->placement, out);
    return problem;
}

struct report_name report_device_name(const struct report *report, uint32_t device)
{
    struct report_name name;
    const struct placement_device *of = &report->cluster_problem.devices[device];
    if (report->ask.here)
        snprintf(name.text, sizeof name.text, "%s", of->id);
    else
        snprintf(name.text, sizeof name.text, "%s/%s", of->node, of->id);
    return name;
}

enum cluster_speed report_speed(const struct report *report)
{
    enum cluster_speed least = CLUSTER_MEASURED;
    const struct placement *placement = &report->solution.placement;
    for (uint32_t i = 0; i < placement->n_stages; i++) {
        const uint32_t d = placement->stages[i].device;
        const enum cluster_speed speed = report->ask.cluster->devices[d].speed;
        least = speed < least ? speed : least;
        if (least > CLUSTER_DATASHEET && !report->cluster_problem.devices[d].measured)
            least = CLUSTER_DATASHEET;
    }
    return least;
}

/* CPUs promise a row the same bits alone and among others, and simulated devices are such. */
bool report_may_guess(const struct report *report)
{
    const struct placement *placement = &report->solution.placement;
    for (uint32_t i = 0; i < placement->n_stages; i++) {
        const struct cluster_device *device =
            &report->ask.cluster->devices[placement->stages[i].device];
        if (device->kind != CLUSTER_CPU && strncmp(device->id, "sim:", 4) != 0)
            return false;
    }
    return placement->n_stages > 0;
}

void report_placement_text(const struct cluster *cluster, const struct cluster_problem *problem,
                           const struct placement_solution *solution, struct buffer *out)
{
    struct report report = {
        .ask = {.cluster = cluster,
                .model = &problem->problem.model,
                .demand = problem->problem.demand,
                .here = true},
        .cluster_problem = *problem,
        .solution = *solution,
    };
    const struct placement_options options = placement_options_default();
    placement_forecast(&problem->problem, &solution->placement, &report.forecast);
    report.bottleneck = find_bottleneck(&report);
    if (ask_reasons(&report, &options, NULL))
        out->failed = true;
    else
        report_text(&report, false, out);
    mem_free(report.reasons);
}
