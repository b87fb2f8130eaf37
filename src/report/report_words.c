#include "report/report_words.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- numbers --------------------------------------------------------------------------------- */

struct report_words report_rate_words(double tokens_per_s)
{
    struct report_words out;
    snprintf(out.text, sizeof out.text, "%.*f tok/s",
             tokens_per_s < 9.995   ? 2
             : tokens_per_s < 999.5 ? 1
                                    : 0,
             tokens_per_s);
    return out;
}

/* ---- links ----------------------------------------------------------------------------------- */

static uint32_t report_words_node_of(const struct report *report, uint32_t device)
{
    return report->ask.cluster->devices[device].node;
}

struct report_words report_link_words(const struct report *report, uint32_t from, uint32_t to)
{
    struct report_words out = {"same machine"};
    const struct cluster_problem *problem = &report->cluster_problem;
    const uint32_t first = report_words_node_of(report, from),
                   last = report_words_node_of(report, to);
    if (first == last)
        return out;
    const struct topology_link *narrowest =
        topology_paths_bottleneck(&problem->paths, &problem->topology, first, last);
    if (!narrowest)
        return (struct report_words){"no link"};
    const struct topology_link *link =
        topology_link(&problem->topology, first, topology_paths_next(&problem->paths, first, last));
    const uint32_t hops = topology_paths_hops(&problem->paths, first, last);
    int used = snprintf(out.text, sizeof out.text, "%s%s%s",
                        link->class ? topology_class_name(link->class) : "", link->class ? " " : "",
                        bandwidth_text((double)topology_link_bandwidth(narrowest).value).text);
    if (hops == 2)
        snprintf(out.text + used, sizeof out.text - (size_t)used, ", through %s",
                 report->ask.cluster->nodes[link->to].name);
    else if (hops > 2)
        snprintf(out.text + used, sizeof out.text - (size_t)used, ", through %u nodes", hops - 1);
    return out;
}

bool report_link_assumed(const struct report *report, uint32_t from, uint32_t to)
{
    const struct cluster *cluster = report->ask.cluster;
    const uint32_t last = report_words_node_of(report, to);
    for (uint32_t at = report_words_node_of(report, from), next; at != last; at = next) {
        next = topology_paths_next(&report->cluster_problem.paths, at, last);
        if (next == TOPOLOGY_NO_NODE)
            return false;
        for (uint32_t i = 0; i < cluster->n_links; i++) {
            if (cluster->links[i].from == at && cluster->links[i].to == next &&
                cluster->link_assumed[i])
                return true;
        }
    }
    return false;
}

/* ---- the bottleneck -------------------------------------------------------------------------- */

struct report_words report_bottleneck_words(const struct report *report)
{
    struct report_words out = {0};
    const struct report_bottleneck *bottleneck = &report->bottleneck;
    const struct placement *placement = &report->solution.placement;
    const uint32_t stage = bottleneck->stage,
                   next = stage + 1 < placement->n_stages ? stage + 1 : 0;
    const struct report_name name = report_device_name(report, placement->stages[stage].device);
    switch (bottleneck->limit) {
    case REPORT_BY_BANDWIDTH:
        snprintf(out.text, sizeof out.text, "%s's memory bandwidth", name.text);
        break;
    case REPORT_BY_COMPUTE:
        snprintf(out.text, sizeof out.text, "%s's computing", name.text);
        break;
    case REPORT_BY_LAUNCH:
        snprintf(out.text, sizeof out.text, "calls to %s", name.text);
        break;
    case REPORT_BY_LINK:
        if (snprintf(out.text, sizeof out.text, "the link from %s to %s", name.text,
                     report_device_name(report, placement->stages[next].device).text) >=
            (int)sizeof out.text)
            snprintf(out.text, sizeof out.text, "the link from stage %u to %u", stage, next);
        break;
    case REPORT_BY_STREAMS:
        snprintf(out.text, sizeof out.text, "too few streams for %u stages", placement->n_stages);
        break;
    }
    return out;
}

/* ---- left out -------------------------------------------------------------------------------- */

/* The node in use to which its link is down; UINT32_MAX: none. */
static uint32_t down_to(const struct report *report, uint32_t device)
{
    const struct topology *topology = &report->cluster_problem.topology;
    const struct placement *placement = &report->solution.placement;
    for (uint32_t i = 0; i < placement->n_stages; i++) {
        const uint32_t own = report_words_node_of(report, device),
                       other = report_words_node_of(report, placement->stages[i].device);
        const struct topology_link *there = topology_link(topology, own, other),
                                   *back = topology_link(topology, other, own);
        if ((there && !there->up) || (back && !back->up))
            return other;
    }
    return UINT32_MAX;
}

/* The least a device must have for a stage: its buffers and the smallest layer. */
static uint64_t least_bytes(const struct placement_problem *problem)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t layer = 0; layer < problem->model.n_layers; layer++) {
        const uint64_t bytes = placement_layer_bytes(problem, layer);
        least = bytes < least ? bytes : least;
    }
    return least + problem->model.compute_bytes;
}

static void say_no_memory(const struct report *report, uint32_t device, struct report_words *out)
{
    const struct placement_problem *problem = &report->cluster_problem.problem;
    const uint32_t other = report->cluster_problem.memory_of[device];
    if (other != device)
        snprintf(out->text, sizeof out->text, "shares the memory of %s, which is faster",
                 report_device_name(report, other).text);
    else
        snprintf(out->text, sizeof out->text, "%s for it, buffers and a layer need %s",
                 size_text(placement_device_bytes(&problem->devices[device])).text,
                 size_text(least_bytes(problem)).text);
}

static void say_cost(const struct report *report, const struct placement_reason *reason,
                     struct report_words *out)
{
    const bool one = placement_micro_batches(&report->cluster_problem.problem) == 1;
    if (reason->more_s < 1e-3 * report->forecast.cost.period_s)
        snprintf(out->text, sizeof out->text, "would gain nothing");
    else
        snprintf(out->text, sizeof out->text, "would cost %s per %s for %u layer%s",
                 time_text(reason->more_s).text, one ? "token" : "micro-batch", reason->n_layers,
                 reason->n_layers == 1 ? "" : "s");
}

static void say_no_link(const struct report *report, uint32_t device, struct report_words *out)
{
    const uint32_t down = down_to(report, device);
    if (down == UINT32_MAX)
        snprintf(out->text, sizeof out->text, "no link to a device in use");
    else
        snprintf(out->text, sizeof out->text, "link to %s is down",
                 report->ask.cluster->nodes[down].name);
}

struct report_words report_reason_words(const struct report *report, uint32_t device)
{
    struct report_words out = {0};
    if (device >= report->n_reasons)
        return out;
    const struct placement_reason *reason = &report->reasons[device];
    switch (reason->why) {
    case PLACEMENT_USED:
        break;
    case PLACEMENT_EXCLUDED:
        snprintf(out.text, sizeof out.text, "%s",
                 report->ask.cluster->devices[device].spare
                     ? "stands by for need: not all speeds were measured"
                 : report->ask.cluster->devices[device].share > 0 ? "not to be used"
                                                                  : "its share of time is 0");
        break;
    case PLACEMENT_NO_MEMORY:
        say_no_memory(report, device, &out);
        break;
    case PLACEMENT_NO_TYPES:
        snprintf(out.text, sizeof out.text, "cannot use the types of these weights");
        break;
    case PLACEMENT_NO_LINK:
        say_no_link(report, device, &out);
        break;
    case PLACEMENT_COSTS_TIME:
        say_cost(report, reason, &out);
        break;
    case PLACEMENT_NO_PLACE:
        snprintf(out.text, sizeof out.text, "no place for it in this order of stages");
        break;
    }
    return out;
}
