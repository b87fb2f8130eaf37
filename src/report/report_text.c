#include "report/report_words.h"

#include "topology/text.h"

#include <math.h>
#include <string.h>

enum { LEFT_OUT_MAX = 8 }; /* that are listed without --explain */

static void say_ask(const struct report *report, struct buffer *out)
{
    const struct report_ask *ask = &report->ask;
    const struct placement_demand *demand = &ask->demand;
    if (!ask->model_name)
        return;
    buffer_printf(out, "%s: %u layers, %s; context %u, %u stream%s, KV cache %s\n", ask->model_name,
                  ask->model->n_layers, size_text(ask->weight_bytes).text, demand->context_tokens,
                  demand->streams, demand->streams == 1 ? "" : "s", ask->kv_types.current.name);
}

/* ---- the best -------------------------------------------------------------------------------- */

/* Of more devices the search itself looks at a part; the bound is of all (placement/exact.h). */
static void say_search_limit(const struct report *report, struct buffer *out)
{
    const struct placement_problem *problem = &report->cluster_problem.problem;
    uint32_t n = 0;
    for (uint32_t i = 0; i < problem->n_devices; i++)
        n += placement_device_usable(&problem->devices[i]);
    if (report->solution.proved || n <= LIMIT_PLACEMENT_EXACT_DEVICES)
        return;
    buffer_printf(out,
                  "Of %u devices, the search looks at the %d that are cheapest for the work; what "
                  "is said of the best holds for all.\n",
                  n, LIMIT_PLACEMENT_EXACT_DEVICES);
}

static void say_proof(const struct report *report, struct buffer *out)
{
    const double gap = placement_gap(&report->solution);
    buffer_text(out, report->solution.proved ? "proved optimal" : "");
    if (!report->solution.proved && gap < INFINITY)
        buffer_printf(out, "at most %.1f %% slower than the best", 100 * gap);
    else if (!report->solution.proved)
        buffer_text(out, "how far from the best is unknown");
    if (report->ask.now_s)
        buffer_printf(out, " in %.0f ms", ceil(1e3 * report->solve_s));
    buffer_text(out, "\n");
    say_search_limit(report, out);
}

static void say_rates(const struct placement_forecast *forecast, struct buffer *out)
{
    buffer_printf(out, "%u device%s, %s decode", forecast->n_stages,
                  forecast->n_stages == 1 ? "" : "s",
                  report_rate_words(forecast->decode_tokens_per_s).text);
    if (forecast->decode_spread > 0)
        buffer_printf(out, " (±%.0f %%)", fmax(1, 100 * forecast->decode_spread));
    if (forecast->prefill_tokens_per_s > 0)
        buffer_printf(out, ", %s prefill", report_rate_words(forecast->prefill_tokens_per_s).text);
    else
        buffer_text(out, ", prefill unknown");
}

static int report_text_digits(uint32_t n)
{
    return n > 999 ? 4 : n > 99 ? 3 : n > 9 ? 2 : 1;
}

/* The stage before is in the same node. */
static bool is_beside(const struct report *report, const struct placement_stage *stage)
{
    const struct cluster_device *devices = report->ask.cluster->devices;
    return devices[stage[-1].device].node == devices[stage->device].node;
}

/* The rows of a placement, in columns. */
static void say_stages(const struct report *report, const struct placement *placement,
                       const struct placement_forecast *forecast, struct buffer *out)
{
    const struct placement_problem *problem = &report->cluster_problem.problem;
    const int wide = report_text_digits(problem->model.n_layers - 1);
    int widest = 0;
    for (uint32_t i = 0; i < placement->n_stages; i++) {
        const int width = (int)strlen(report_device_name(report, placement->stages[i].device).text);
        widest = width > widest ? width : widest;
    }
    for (uint32_t i = 0; i < placement->n_stages; i++) {
        const struct placement_stage *stage = &placement->stages[i];
        const uint64_t there = problem->devices[stage->device].memory_free_bytes;
        buffer_printf(out, "  stage %-*u  %-*s  layers %*u–%-*u  %9s of %-9s  %8s",
                      report_text_digits(placement->n_stages - 1), i, widest,
                      report_device_name(report, stage->device).text, wide, stage->first_layer,
                      wide, stage->first_layer + stage->n_layers - 1,
                      size_text(forecast->stages[i].bytes).text, size_text(there).text,
                      time_text(forecast->stages[i].decode_s).text);
        if (i && is_beside(report, stage))
            buffer_text(out, "   same machine");
        else if (i)
            buffer_printf(out, "   link %s (%s%s)", time_text(forecast->stages[i - 1].hop_s).text,
                          report_link_words(report, stage[-1].device, stage->device).text,
                          report_link_assumed(report, stage[-1].device, stage->device) ? ", assumed"
                                                                                       : "");
        buffer_text(out, "\n");
    }
}

static void say_draft(const struct report *report, struct buffer *out)
{
    const struct report_draft *draft = &report->draft;
    if (!draft->name)
        return;
    buffer_printf(out, "Draft model: %s, %s", draft->name, size_text(draft->memory_bytes).text);
    for (uint32_t i = 0; i < draft->n_devices; i++) {
        const struct report_draft_device *device = &draft->devices[i];
        buffer_text(out, i ? ", " : " on ");
        if (!report->ask.here)
            buffer_printf(out, "%s/", device->node);
        buffer_text(out, device->id);
    }
    if (draft->guess_s > 0)
        buffer_printf(out, ", %s a guess", time_text(draft->guess_s).text);
    if (report->outcome)
        buffer_text(out, ", which is counted, too");
    else if (!report_may_guess(report))
        buffer_text(out, "; guesses nothing for these devices (docs/speculation.md)");
    else if (report->forecast.guessed.drafted <= 0)
        buffer_text(out, "; what it brings is not known");
    buffer_text(out, "\n");
}

/* What is not known beforehand is a range. */
static void say_guesses(const struct report *report, struct buffer *out)
{
    const struct placement_guessed *guessed = &report->forecast.guessed;
    const bool repeats = report_may_guess(report) && placement_guesses_gain(guessed);
    if (!repeats && guessed->drafted <= 0)
        return;
    buffer_printf(out, "One stream: %s without guesses", report_rate_words(guessed->without).text);
    if (repeats)
        buffer_printf(out, ", up to %s where its text repeats itself",
                      report_rate_words(guessed->repeating).text);
    if (guessed->drafted > 0)
        buffer_printf(out, ", %s if %.0f %% of its draft model's guesses are right",
                      report_rate_words(guessed->drafted).text, 100 * PLACEMENT_DRAFTED_SHARE);
    buffer_text(out, "\n");
}

static void say_best(const struct report *report, struct buffer *out)
{
    static const char *const words[] = {"Best, by a guess", "Best, by estimate", "Best", "Best"};
    const size_t begin = out->size;
    buffer_printf(out, "%s: ", words[report_speed(report)]);
    say_rates(&report->forecast, out);
    const size_t used = out->size - begin;
    buffer_printf(out, "%*s", used < 72 ? (int)(74 - used) : 2, "");
    say_proof(report, out);
    say_stages(report, &report->solution.placement, &report->forecast, out);
    say_draft(report, out);
    say_guesses(report, out);
}

static void say_bottleneck(const struct report *report, struct buffer *out)
{
    const struct report_bottleneck *bottleneck = &report->bottleneck;
    const bool one = placement_micro_batches(&report->cluster_problem.problem) == 1;
    buffer_printf(out, "Bottleneck: %s", report_bottleneck_words(report).text);
    if (bottleneck->limit == REPORT_BY_STREAMS)
        buffer_printf(out, " (the busiest works %.0f %% of the time)\n", 100 * bottleneck->part);
    else if (one)
        buffer_printf(out, " (%.0f %% of a token's time)\n", 100 * bottleneck->part);
    else
        buffer_printf(out, " (busy %.0f %% of the time)\n", 100 * bottleneck->part);
}

/* ---- several groups -------------------------------------------------------------------------- */

static void say_groups(const struct report *report, struct buffer *out)
{
    const struct placement_replicas *replicas = &report->replicas;
    const uint32_t n = replicas->groups.n_groups;
    struct placement_forecast forecast;
    double rate = 0;
    if (n < 2)
        return;
    for (uint32_t i = 0; i < n; i++) {
        report_group(report, i, &forecast);
        rate += forecast.decode_tokens_per_s;
    }
    buffer_printf(
        out,
        "As %u groups, each with the whole model: %s decode together, %.2f times as fast; %s\n", n,
        report_rate_words(rate).text, replicas->rate / replicas->one_rate,
        replicas->proved ? "proved the best division" : "the best division found");
    for (uint32_t i = 0; i < n; i++) {
        const struct placement_group *group = &replicas->groups.groups[i];
        report_group(report, i, &forecast);
        buffer_printf(out, " group %u: %u stream%s, %s\n", i, group->streams,
                      group->streams == 1 ? "" : "s",
                      report_rate_words(forecast.decode_tokens_per_s).text);
        say_stages(report, &group->placement, &forecast, out);
    }
    buffer_text(out, " (Medley runs one group, the one above this; several it only forecasts.)\n");
}

static uint32_t most_stages(const struct placement_groups *groups)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < groups->n_groups; i++)
        most = groups->groups[i].placement.n_stages > most ? groups->groups[i].placement.n_stages
                                                           : most;
    return most;
}

static void explain_groups(const struct report *report, struct buffer *out)
{
    const struct placement_replicas *replicas = &report->replicas;
    if (!report->divided)
        return;
    if (replicas->copies < 2) {
        buffer_text(out, "Several groups: all memory together does not hold the model twice.\n");
        return;
    }
    buffer_printf(out, "Several groups: in bytes alone all memory holds the model %u times; ",
                  replicas->copies);
    const uint32_t most = most_stages(&replicas->groups), now = report->solution.placement.n_stages;
    if (replicas->groups.n_groups > 1 && most < now)
        buffer_printf(out,
                      "a token goes through %u stage%s at most instead of %u, and groups do not "
                      "wait for each other. ",
                      most, most == 1 ? "" : "s", now);
    else if (replicas->groups.n_groups > 1)
        buffer_text(out, "groups compute at the same time, and none waits for another. ");
    else
        buffer_text(out, "none that was considered is faster than one. ");
    if (replicas->all)
        buffer_text(out, "Every division of devices and streams was considered");
    else
        buffer_text(out, "Devices near each other, or streams, were kept together, so not every "
                         "division was considered");
    if (replicas->proved)
        buffer_text(out, ": this is proved the best of them");
    else if (replicas->most_rate < INFINITY)
        buffer_printf(out, "; none is more than %.1f %% faster",
                      100 * (replicas->most_rate / replicas->rate - 1));
    buffer_printf(out, " (%u groups solved).\n", replicas->solves);
}

/* ---- left out -------------------------------------------------------------------------------- */

static bool is_left_out(const struct report *report, uint32_t device)
{
    return device >= report->n_reasons || report->reasons[device].why != PLACEMENT_USED;
}

static void say_left_out(const struct report *report, bool all, struct buffer *out)
{
    const uint32_t n_devices = report->cluster_problem.problem.n_devices;
    uint32_t n = 0, n_said = 0;
    for (uint32_t d = 0; d < n_devices; d++)
        n += is_left_out(report, d);
    for (uint32_t d = 0; d < n_devices; d++) {
        const struct report_words why = report_reason_words(report, d);
        if (!why.text[0] || (n_said == LEFT_OUT_MAX && !all))
            continue;
        buffer_printf(out, "%s%s: %s.",
                      !n_said ? "Left out: "
                      : n > 2 ? "\n          "
                              : " ",
                      report_device_name(report, d).text, why.text);
        n_said++;
    }
    if (n > n_said)
        buffer_printf(out, "%s%u %s.", n_said ? "\n          " : "Left out: ", n - n_said,
                      all ? "others, for which there was no time" : "more (--explain)");
    if (n)
        buffer_text(out, "\n");
}

/* ---- what if --------------------------------------------------------------------------------- */

static void say_answer(const struct placement_rates *rates, struct buffer *out)
{
    switch (rates->answer) {
    case PLACEMENT_UNDECIDED:
        buffer_text(out, "ran out of time");
        return;
    case PLACEMENT_IMPOSSIBLE:
        buffer_text(out, "the model does not fit");
        return;
    case PLACEMENT_POSSIBLE:
        buffer_printf(out, "%s%s", rates->proved ? "" : "at least ",
                      report_rate_words(rates->decode_tokens_per_s).text);
        return;
    }
}

static void say_extras(const struct report *report, struct buffer *out)
{
    for (uint32_t i = 0; i < report->ask.n_extras; i++) {
        const struct report_extra *extra = &report->ask.extras[i];
        const char *node =
            report->ask.here ? "this machine" : report->ask.cluster->nodes[extra->node].name;
        const struct placement_rates *rates = &report->extras[i];
        bool used = false;
        const uint32_t index = report->ask.cluster->nodes[extra->node].first_device +
                               report->ask.cluster->nodes[extra->node].n_devices;
        for (uint32_t s = 0; s < rates->placement.n_stages; s++)
            used = used || rates->placement.stages[s].device == index;
        buffer_printf(out, "If you add %s to %s: ", extra->words, node);
        say_answer(rates, out);
        if (rates->answer == PLACEMENT_POSSIBLE && !used)
            buffer_text(out, " (it would not be used)");
        else if (rates->answer == PLACEMENT_POSSIBLE && extra->device.speed < CLUSTER_GIVEN)
            buffer_text(out, " (an estimate)");
        buffer_text(out, "\n");
    }
}

static void say_whatifs(const struct report *report, bool all, struct buffer *out)
{
    uint32_t n_said = 0;
    for (uint32_t i = 0; i < report->whatifs.n; i++) {
        const struct placement_whatif *what = &report->whatifs.list[i];
        const bool is_node = what->change == PLACEMENT_WITHOUT_NODE;
        if (is_node ? report->ask.here : !(all || report->ask.here))
            continue;
        buffer_printf(out, "%sWithout %s%s%s: ", n_said ? (n_said % 3 ? "   " : "\n") : "",
                      is_node || report->ask.here ? "" : what->node,
                      is_node || report->ask.here ? "" : "/", is_node ? what->node : what->device);
        say_answer(&what->rates, out);
        n_said++;
    }
    if (n_said)
        buffer_text(out, "\n");
}

/* The reason without the policy's name in front. */
static const char *after_colon(const char *text)
{
    const char *colon = strstr(text, ": ");
    return colon ? colon + 2 : text;
}

static void say_policies(const struct report *report, struct buffer *out)
{
    static const char *const whose[] = {"exo, llama.cpp", "cake", "distributed-llama",
                                        "the weighted score"};
    for (uint32_t i = 0; i < REPORT_POLICIES; i++) {
        const struct report_policy *policy = &report->policies[i];
        if (!policy->asked)
            continue;
        buffer_printf(out, "By %s (%s): ", placement_policy_name((enum placement_policy)i),
                      whose[i]);
        if (!policy->found) {
            buffer_printf(out, "no valid placement: %s\n", after_colon(policy->why));
            continue;
        }
        say_rates(&policy->forecast, out);
        if (policy->forecast.decode_tokens_per_s > 0)
            buffer_printf(out, "; the best is %.2f times as fast",
                          report->forecast.decode_tokens_per_s /
                              policy->forecast.decode_tokens_per_s);
        buffer_text(out, "\n");
        say_stages(report, &policy->placement, &policy->forecast, out);
    }
}

/* ---- what it stands on ----------------------------------------------------------------------- */

/* Devices in use whose speed is from there; of the measured ones those of which it was other
 * types. */
static bool list_speed(const struct report *report, enum cluster_speed speed, const char *title,
                       struct buffer *out)
{
    const struct placement *placement = &report->solution.placement;
    bool any = false;
    for (uint32_t i = 0; i < placement->n_stages; i++) {
        const uint32_t d = placement->stages[i].device;
        if (report->ask.cluster->devices[d].speed != speed ||
            report->cluster_problem.devices[d].measured)
            continue;
        buffer_printf(out, "%s%s", any ? ", " : title, report_device_name(report, d).text);
        any = true;
    }
    if (any)
        buffer_text(out, ".\n");
    return any;
}

static void say_speeds(const struct report *report, struct buffer *out)
{
    list_speed(report, CLUSTER_MEASURED,
               "Measured with other types of weights, of which the slowest counts: ", out);
    const bool datasheets =
        list_speed(report, CLUSTER_DATASHEET, "Not measured, but reckoned from a datasheet: ", out);
    const bool guesses = list_speed(
        report, CLUSTER_ASSUMED, "Not measured; the speed is a guess by the kind of device: ", out);
    if ((datasheets || guesses) && report->ask.here)
        buffer_text(
            out, "`medley devices --calibrate` measures, in seconds; then this is a forecast.\n");
    else if (datasheets || guesses)
        buffer_text(out, "`medley devices --calibrate` on that machine and the output of `medley "
                         "devices --json` as its\n"
                         "\"devices\" in the file make a forecast of it.\n");
}

static void explain_demand(const struct report *report, struct buffer *out)
{
    const struct placement_problem *problem = &report->cluster_problem.problem;
    const struct placement_solution *solution = &report->solution;
    const struct placement_cost *cost = &report->forecast.cost;
    buffer_printf(out,
                  "Decoding is forecast with the context half full: %.0f tokens, %u row%s in a "
                  "micro-batch, %u of them"
                  " in flight.\n",
                  placement_decode_load(problem).context_tokens, placement_rows(problem),
                  placement_rows(problem) == 1 ? "" : "s", placement_micro_batches(problem));
    buffer_printf(out, "Prefill: a prompt of %u tokens in chunks of %u.\n",
                  placement_prompt_tokens(problem), placement_chunk_tokens(problem));
    buffer_printf(out, "A round takes %s, a micro-batch comes every %s.",
                  time_text(cost->round_s).text, time_text(cost->period_s).text);
    if (solution->placement.n_stages > 1)
        buffer_printf(
            out, " The token's way back takes %s.",
            time_text(report->forecast.stages[solution->placement.n_stages - 1].hop_s).text);
    buffer_printf(
        out, "\nSearched %llu nodes; greedy had found %s per micro-batch, the bound is %s.\n",
        (unsigned long long)solution->nodes,
        solution->greedy_s < INFINITY ? time_text(solution->greedy_s).text : "nothing",
        solution->lower_bound_s > 0 ? time_text(solution->lower_bound_s).text : "unknown");
}

static void explain_devices(const struct report *report, struct buffer *out)
{
    const struct placement_problem *problem = &report->cluster_problem.problem;
    buffer_text(out, "Devices:\n");
    for (uint32_t d = 0; d < problem->n_devices; d++) {
        const struct placement_device *device = &problem->devices[d];
        const enum cluster_speed speed = report->ask.cluster->devices[d].speed;
        buffer_printf(out, "  %s  %s, %s kept free; %s:", report_device_name(report, d).text,
                      size_text(device->memory_free_bytes).text,
                      size_text(device->reserve_bytes).text, cluster_speed_name(speed));
        for (uint32_t type = 0; type < problem->model.n_types; type++) {
            buffer_printf(out, "%s %s %.3g GB/s", type ? "," : "", problem->model.type_names[type],
                          1e-9 * device->decode_bytes_per_s[type]);
            if (device->prefill_flops[type] > 0)
                buffer_printf(out, " %.3g GFLOP/s", 1e-9 * device->prefill_flops[type]);
        }
        buffer_printf(out, "; launch %s\n", time_text(device->launch_s).text);
    }
}

/* ---- all of it ------------------------------------------------------------------------------- */

void report_text(const struct report *report, bool explain, struct buffer *out)
{
    say_ask(report, out);
    if (report->outcome == ERROR_BUSY) {
        buffer_text(out, "The time ran out before a placement was found or proved impossible; "
                         "--time-limit gives more.\n");
        return;
    }
    if (report->outcome == ERROR_NOT_FOUND) {
        placement_remedies_text(&report->cluster_problem.problem, &report->ask.kv_types,
                                &report->remedies, out);
        say_draft(report, out);
        say_extras(report, out);
        return;
    }
    say_best(report, out);
    say_bottleneck(report, out);
    say_groups(report, out);
    say_left_out(report, explain, out);
    say_extras(report, out);
    say_whatifs(report, explain, out);
    say_policies(report, out);
    if (explain) {
        explain_demand(report, out);
        explain_groups(report, out);
        explain_devices(report, out);
        if (!report->ask.here) {
            buffer_text(out, "Links:\n");
            topology_summary(out, &report->cluster_problem.topology,
                             &report->cluster_problem.paths);
        }
    }
    say_speeds(report, out);
}
