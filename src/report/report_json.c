/* The JSON of `medley plan --json`. What is not known is null. docs/planning.md lists the
 * fields. */
#include "report/report_words.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <yyjson.h>

/* Adding to a NULL or full document is a no-op; writing it then fails, which is where it is
 * noticed. */
static void add_known(yyjson_mut_doc *doc, yyjson_mut_val *object, const char *key, double value,
                      bool known)
{
    if (known && isfinite(value))
        yyjson_mut_obj_add_real(doc, object, key, value);
    else
        yyjson_mut_obj_add_null(doc, object, key);
}

static void add_words(yyjson_mut_doc *doc, yyjson_mut_val *object, const char *key,
                      const char *text)
{
    if (text[0])
        yyjson_mut_obj_add_strcpy(doc, object, key, text);
    else
        yyjson_mut_obj_add_null(doc, object, key);
}

/* ---- placements ------------------------------------------------------------------------------ */

static void report_json_add_stages(yyjson_mut_doc *doc, yyjson_mut_val *object,
                                   const struct report *report, const struct placement *placement,
                                   const struct placement_forecast *forecast)
{
    const struct placement_problem *problem = &report->cluster_problem.problem;
    yyjson_mut_val *list = yyjson_mut_obj_add_arr(doc, object, "stages");
    for (uint32_t i = 0; i < placement->n_stages; i++) {
        const struct placement_stage *stage = &placement->stages[i];
        const struct placement_stage_forecast *said = &forecast->stages[i];
        const uint32_t next = placement->stages[i + 1 < placement->n_stages ? i + 1 : 0].device;
        const struct placement_device *device = &problem->devices[stage->device];
        yyjson_mut_val *item = yyjson_mut_arr_add_obj(doc, list);
        yyjson_mut_obj_add_str(doc, item, "node", device->node);
        yyjson_mut_obj_add_str(doc, item, "device", device->id);
        yyjson_mut_obj_add_uint(doc, item, "first_layer", stage->first_layer);
        yyjson_mut_obj_add_uint(doc, item, "layers", stage->n_layers);
        yyjson_mut_obj_add_uint(doc, item, "memory_bytes", said->bytes);
        yyjson_mut_obj_add_uint(doc, item, "memory_available_bytes",
                                placement_device_bytes(device));
        yyjson_mut_obj_add_real(doc, item, "decode_s", said->decode_s);
        yyjson_mut_obj_add_real(doc, item, "part_of_round", said->part_of_round);
        yyjson_mut_obj_add_real(doc, item, "hop_s", said->hop_s);
        yyjson_mut_obj_add_bool(doc, item, "measured", said->measured);
        if (placement->n_stages > 1)
            yyjson_mut_obj_add_strcpy(doc, item, "link",
                                      report_link_words(report, stage->device, next).text);
        else
            yyjson_mut_obj_add_null(doc, item, "link");
    }
}

static void add_forecast(yyjson_mut_doc *doc, yyjson_mut_val *object, const struct report *report,
                         const struct placement *placement,
                         const struct placement_forecast *forecast)
{
    yyjson_mut_obj_add_real(doc, object, "decode_tokens_per_s", forecast->decode_tokens_per_s);
    add_known(doc, object, "decode_spread", forecast->decode_spread, forecast->decode_spread > 0);
    add_known(doc, object, "prefill_tokens_per_s", forecast->prefill_tokens_per_s,
              forecast->prefill_tokens_per_s > 0);
    yyjson_mut_obj_add_real(doc, object, "round_s", forecast->cost.round_s);
    yyjson_mut_obj_add_real(doc, object, "period_s", forecast->cost.period_s);
    report_json_add_stages(doc, object, report, placement, forecast);
}

static void add_bottleneck(yyjson_mut_doc *doc, yyjson_mut_val *object, const struct report *report)
{
    static const char *const limits[] = {"bandwidth", "compute", "launch", "link", "streams"};
    const struct report_bottleneck *bottleneck = &report->bottleneck;
    yyjson_mut_val *item = yyjson_mut_obj_add_obj(doc, object, "bottleneck");
    yyjson_mut_obj_add_str(doc, item, "limit", limits[bottleneck->limit]);
    yyjson_mut_obj_add_uint(doc, item, "stage", bottleneck->stage);
    yyjson_mut_obj_add_real(doc, item, "part", bottleneck->part);
    yyjson_mut_obj_add_strcpy(doc, item, "text", report_bottleneck_words(report).text);
}

static void add_draft(yyjson_mut_doc *doc, yyjson_mut_val *best, const struct report *report)
{
    const struct report_draft *draft = &report->draft;
    const double drafted = report->forecast.guessed.drafted;
    if (!draft->name)
        return;
    yyjson_mut_val *object = yyjson_mut_obj_add_obj(doc, best, "draft");
    yyjson_mut_obj_add_strcpy(doc, object, "model", draft->name);
    yyjson_mut_obj_add_uint(doc, object, "memory_bytes", draft->memory_bytes);
    add_known(doc, object, "guess_s", draft->guess_s, draft->guess_s > 0);
    yyjson_mut_val *stages = yyjson_mut_obj_add_arr(doc, object, "stages");
    for (uint32_t i = 0; i < draft->n_devices; i++) {
        const struct report_draft_device *device = &draft->devices[i];
        yyjson_mut_val *stage = yyjson_mut_arr_add_obj(doc, stages);
        yyjson_mut_obj_add_strcpy(doc, stage, "node",
                                  report->ask.here ? report->ask.cluster->nodes[0].name
                                                   : device->node);
        yyjson_mut_obj_add_strcpy(doc, stage, "device", device->id);
        yyjson_mut_obj_add_uint(doc, stage, "layers", device->n_layers);
    }
    add_known(doc, object, "drafted_tokens_per_s", drafted, drafted > 0);
    yyjson_mut_obj_add_real(doc, object, "drafted_right", PLACEMENT_DRAFTED_SHARE);
}

static void add_best(yyjson_mut_doc *doc, yyjson_mut_val *root, const struct report *report)
{
    const struct placement_solution *solution = &report->solution;
    yyjson_mut_val *best = yyjson_mut_obj_add_obj(doc, root, "best");
    const double gap = placement_gap(solution);
    add_forecast(doc, best, report, &solution->placement, &report->forecast);
    const struct placement_guessed *guessed = &report->forecast.guessed;
    add_known(doc, best, "one_stream_tokens_per_s", guessed->without, guessed->without > 0);
    add_known(doc, best, "repeating_tokens_per_s", guessed->repeating,
              report_may_guess(report) && placement_guesses_gain(guessed));
    add_draft(doc, best, report);
    yyjson_mut_obj_add_str(doc, best, "speeds", cluster_speed_name(report_speed(report)));
    yyjson_mut_obj_add_bool(doc, best, "proved_optimal", solution->proved);
    add_known(doc, best, "gap", gap, true);
    add_known(doc, best, "solve_s", report->solve_s, report->ask.now_s != NULL);
    yyjson_mut_obj_add_uint(doc, best, "searched_nodes", solution->nodes);
    add_known(doc, best, "greedy_period_s", solution->greedy_s, true);
    add_bottleneck(doc, best, report);
}

/* ---- several groups -------------------------------------------------------------------------- */

static void report_json_add_group(yyjson_mut_doc *doc, yyjson_mut_val *list,
                                  const struct report *report, uint32_t index)
{
    const struct placement_group *group = &report->replicas.groups.groups[index];
    struct placement_forecast forecast;
    yyjson_mut_val *item = yyjson_mut_arr_add_obj(doc, list);
    const struct placement_problem problem = report_group(report, index, &forecast);
    yyjson_mut_obj_add_uint(doc, item, "streams", group->streams);
    yyjson_mut_obj_add_uint(doc, item, "micro_batches", placement_micro_batches(&problem));
    add_forecast(doc, item, report, &group->placement, &forecast);
}

static void add_groups(yyjson_mut_doc *doc, yyjson_mut_val *root, const struct report *report)
{
    const struct placement_replicas *replicas = &report->replicas;
    if (!report->divided) {
        yyjson_mut_obj_add_null(doc, root, "groups");
        return;
    }
    const bool several = replicas->groups.n_groups > 1;
    yyjson_mut_val *object = yyjson_mut_obj_add_obj(doc, root, "groups");
    yyjson_mut_obj_add_bool(doc, object, "faster", several);
    yyjson_mut_obj_add_bool(doc, object, "run", false);
    yyjson_mut_obj_add_real(doc, object, "times_as_fast", replicas->rate / replicas->one_rate);
    yyjson_mut_obj_add_bool(doc, object, "proved_optimal", replicas->proved);
    yyjson_mut_obj_add_bool(doc, object, "every_division", replicas->all);
    add_known(doc, object, "gap", replicas->most_rate / replicas->rate - 1, replicas->rate > 0);
    yyjson_mut_obj_add_uint(doc, object, "memory_holds", replicas->copies);
    yyjson_mut_obj_add_uint(doc, object, "solved", replicas->solves);
    yyjson_mut_val *list = yyjson_mut_obj_add_arr(doc, object, "list");
    for (uint32_t i = 0; several && i < replicas->groups.n_groups; i++)
        report_json_add_group(doc, list, report, i);
}

/* ---- devices --------------------------------------------------------------------------------- */

static void report_json_add_device(yyjson_mut_doc *doc, yyjson_mut_val *list,
                                   const struct report *report, uint32_t index)
{
    static const char *const reasons[] = {"used",    "excluded",   "no_memory", "no_types",
                                          "no_link", "costs_time", "no_place"};
    const struct placement_problem *problem = &report->cluster_problem.problem;
    const struct placement_device *device = &problem->devices[index];
    const uint32_t memory_of = report->cluster_problem.memory_of[index];
    yyjson_mut_val *item = yyjson_mut_arr_add_obj(doc, list);
    yyjson_mut_obj_add_str(doc, item, "node", device->node);
    yyjson_mut_obj_add_str(doc, item, "device", device->id);
    yyjson_mut_obj_add_uint(doc, item, "memory_bytes", device->memory_free_bytes);
    yyjson_mut_obj_add_uint(doc, item, "reserve_bytes", device->reserve_bytes);
    add_words(doc, item, "shares_memory_of",
              memory_of == index ? "" : problem->devices[memory_of].id);
    yyjson_mut_obj_add_str(doc, item, "speed",
                           cluster_speed_name(report->ask.cluster->devices[index].speed));
    add_known(doc, item, "spread", device->spread, device->spread > 0);
    yyjson_mut_obj_add_real(doc, item, "launch_s", device->launch_s);
    yyjson_mut_obj_add_real(doc, item, "share", device->share);
    yyjson_mut_val *types = yyjson_mut_obj_add_obj(doc, item, "types");
    for (uint32_t type = 0; type < problem->model.n_types; type++) {
        yyjson_mut_val *rates = yyjson_mut_obj_add_obj(doc, types, problem->model.type_names[type]);
        yyjson_mut_obj_add_real(doc, rates, "decode_bytes_per_s", device->decode_bytes_per_s[type]);
        add_known(doc, rates, "prefill_flops", device->prefill_flops[type],
                  device->prefill_flops[type] > 0);
    }
    if (index >= report->n_reasons) {
        yyjson_mut_obj_add_null(doc, item, "state");
        return;
    }
    const struct placement_reason *reason = &report->reasons[index];
    yyjson_mut_obj_add_str(doc, item, "state", reasons[reason->why]);
    add_words(doc, item, "why", report_reason_words(report, index).text);
    add_known(doc, item, "more_s", reason->more_s, reason->why == PLACEMENT_COSTS_TIME);
}

/* ---- what if --------------------------------------------------------------------------------- */

static void add_rates(yyjson_mut_doc *doc, yyjson_mut_val *item,
                      const struct placement_rates *rates)
{
    static const char *const answers[] = {"undecided", "possible", "impossible"};
    const bool possible = rates->answer == PLACEMENT_POSSIBLE;
    yyjson_mut_obj_add_str(doc, item, "answer", answers[rates->answer]);
    yyjson_mut_obj_add_bool(doc, item, "proved", rates->proved);
    add_known(doc, item, "decode_tokens_per_s", rates->decode_tokens_per_s, possible);
    add_known(doc, item, "prefill_tokens_per_s", rates->prefill_tokens_per_s,
              possible && rates->prefill_tokens_per_s > 0);
}

static void add_whatifs(yyjson_mut_doc *doc, yyjson_mut_val *root, const struct report *report)
{
    yyjson_mut_val *list = yyjson_mut_obj_add_arr(doc, root, "what_if");
    for (uint32_t i = 0; i < report->whatifs.n; i++) {
        const struct placement_whatif *what = &report->whatifs.list[i];
        yyjson_mut_val *item = yyjson_mut_arr_add_obj(doc, list);
        yyjson_mut_obj_add_str(doc, item, "change",
                               what->change == PLACEMENT_WITHOUT_NODE ? "without_node"
                                                                      : "without_device");
        yyjson_mut_obj_add_str(doc, item, "node", what->node);
        add_words(doc, item, "device", what->device);
        add_rates(doc, item, &what->rates);
    }
    for (uint32_t i = 0; i < report->ask.n_extras; i++) {
        const struct report_extra *extra = &report->ask.extras[i];
        yyjson_mut_val *item = yyjson_mut_arr_add_obj(doc, list);
        yyjson_mut_obj_add_str(doc, item, "change", "with_device");
        yyjson_mut_obj_add_str(doc, item, "node", report->ask.cluster->nodes[extra->node].name);
        yyjson_mut_obj_add_strcpy(doc, item, "device", extra->words);
        add_rates(doc, item, &report->extras[i]);
    }
}

static void add_policies(yyjson_mut_doc *doc, yyjson_mut_val *root, const struct report *report)
{
    yyjson_mut_val *list = yyjson_mut_obj_add_arr(doc, root, "policies");
    for (uint32_t i = 0; i < REPORT_POLICIES; i++) {
        const struct report_policy *policy = &report->policies[i];
        if (!policy->asked)
            continue;
        yyjson_mut_val *item = yyjson_mut_arr_add_obj(doc, list);
        yyjson_mut_obj_add_str(doc, item, "policy",
                               placement_policy_name((enum placement_policy)i));
        yyjson_mut_obj_add_bool(doc, item, "found", policy->found);
        add_words(doc, item, "why_not", policy->why);
        if (policy->found)
            add_forecast(doc, item, report, &policy->placement, &policy->forecast);
    }
}

static void add_remedies(yyjson_mut_doc *doc, yyjson_mut_val *root, const struct report *report)
{
    const struct placement_remedies *remedies = &report->remedies;
    const struct placement_problem *problem = &report->cluster_problem.problem;
    yyjson_mut_val *object = yyjson_mut_obj_add_obj(doc, root, "infeasible");
    add_words(doc, object, "why", remedies->why);
    yyjson_mut_obj_add_uint(doc, object, "needed_bytes", remedies->needed_bytes);
    yyjson_mut_obj_add_uint(doc, object, "available_bytes", remedies->there_bytes);
    if (remedies->missing_bytes)
        yyjson_mut_obj_add_uint(doc, object, "missing_bytes", remedies->missing_bytes);
    else
        yyjson_mut_obj_add_null(doc, object, "missing_bytes");
    yyjson_mut_val *list = yyjson_mut_obj_add_arr(doc, object, "remedies");
    for (uint32_t i = 0; i < remedies->n; i++) {
        const struct placement_remedy *remedy = &remedies->list[i];
        const bool of_device = remedy->kind == PLACEMENT_REMEDY_FREE_MEMORY ||
                               remedy->kind == PLACEMENT_REMEDY_ADD_DEVICE;
        yyjson_mut_val *item = yyjson_mut_arr_add_obj(doc, list);
        yyjson_mut_obj_add_str(doc, item, "remedy", placement_remedy_name(remedy->kind));
        add_words(doc, item, "kv_type", remedy->kv_type);
        yyjson_mut_obj_add_uint(doc, item, "streams", remedy->streams);
        yyjson_mut_obj_add_uint(doc, item, "context", remedy->context_tokens);
        add_words(doc, item, "node", of_device ? problem->devices[remedy->device].node : "");
        add_words(doc, item, "device", of_device ? problem->devices[remedy->device].id : "");
        yyjson_mut_obj_add_uint(doc, item, "memory_bytes", of_device ? remedy->bytes : 0);
        yyjson_mut_obj_add_bool(doc, item, "least", remedy->least);
        add_rates(doc, item, &remedy->rates);
    }
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void add_ask(yyjson_mut_doc *doc, yyjson_mut_val *root, const struct report *report)
{
    const struct report_ask *ask = &report->ask;
    const struct placement_problem *problem = &report->cluster_problem.problem;
    yyjson_mut_val *model = yyjson_mut_obj_add_obj(doc, root, "model");
    add_words(doc, model, "name", ask->model_name ? ask->model_name : "");
    yyjson_mut_obj_add_uint(doc, model, "layers", ask->model->n_layers);
    yyjson_mut_obj_add_uint(doc, model, "weight_bytes", ask->weight_bytes);
    yyjson_mut_val *demand = yyjson_mut_obj_add_obj(doc, root, "demand");
    yyjson_mut_obj_add_str(doc, demand, "goal", placement_goal_name(ask->demand.goal));
    if (ask->demand.goal == PLACEMENT_MIX)
        yyjson_mut_obj_add_real(doc, demand, "busy", ask->demand.busy);
    else
        yyjson_mut_obj_add_null(doc, demand, "busy");
    yyjson_mut_obj_add_uint(doc, demand, "context", ask->demand.context_tokens);
    yyjson_mut_obj_add_uint(doc, demand, "streams", ask->demand.streams);
    yyjson_mut_obj_add_uint(doc, demand, "micro_batches", placement_micro_batches(problem));
    yyjson_mut_obj_add_uint(doc, demand, "prompt", placement_prompt_tokens(problem));
    yyjson_mut_obj_add_uint(doc, demand, "chunk", placement_chunk_tokens(problem));
    yyjson_mut_obj_add_str(doc, demand, "kv_type", ask->kv_types.current.name);
}

void report_json(const struct report *report, struct buffer *out)
{
    static const char *const outcomes[] = {"placed", "infeasible", "undecided"};
    yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *root = yyjson_mut_obj(doc);
    yyjson_mut_doc_set_root(doc, root);
    yyjson_mut_obj_add_str(doc, root, "outcome",
                           outcomes[report->outcome == ERROR_NOT_FOUND ? 1
                                    : report->outcome                  ? 2
                                                                       : 0]);
    add_ask(doc, root, report);
    if (!report->outcome)
        add_best(doc, root, report);
    if (!report->outcome)
        add_groups(doc, root, report);
    if (report->outcome == ERROR_NOT_FOUND)
        add_remedies(doc, root, report);
    yyjson_mut_val *list = yyjson_mut_obj_add_arr(doc, root, "devices");
    for (uint32_t d = 0; d < report->cluster_problem.problem.n_devices; d++)
        report_json_add_device(doc, list, report, d);
    add_whatifs(doc, root, report);
    add_policies(doc, root, report);
    char *text = yyjson_mut_write(doc, YYJSON_WRITE_PRETTY | YYJSON_WRITE_NEWLINE_AT_END, NULL);
    if (text)
        buffer_text(out, text);
    else
        out->failed = true;
    free(text);
    yyjson_mut_doc_free(doc);
}
