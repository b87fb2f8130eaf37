/* The draft model of a report. */
#include "placement/cost.h"
#include "placement/draft_device.h"
#include "report/report.h"

#include <stdio.h>

/* Other devices of the first stage's node, of which the placement uses none. */
static void report_draft_find_free(const struct report *report, bool *may)
{
    const struct placement *placement = &report->solution.placement;
    const struct cluster *cluster = report->ask.cluster;
    const uint32_t node = cluster->devices[placement->stages[0].device].node;
    for (uint32_t i = 0; i < cluster->n_devices; i++)
        may[i] = cluster->devices[i].node == node;
    for (uint32_t i = 0; i < placement->n_stages; i++)
        may[placement->stages[i].device] = false;
}

static void report_draft_choose(struct report *report, const struct placement_problem *draft,
                                struct placement *out)
{
    bool may[LIMIT_PLACEMENT_DEVICES] = {false};
    report_draft_find_free(report, may);
    const uint32_t device =
        placement_draft_device(draft, &report->cluster_problem.problem, &report->solution.placement,
                               may, &report->forecast.guessed);
    if (device != UINT32_MAX)
        *out = (struct placement){1, {{device, 0, draft->model.n_layers}}};
}

static void report_draft_name(const struct placement_problem *draft,
                              const struct placement *placement, struct report_draft *out)
{
    out->n_devices = placement->n_stages;
    for (uint32_t i = 0; i < placement->n_stages; i++) {
        const struct placement_device *device = &draft->devices[placement->stages[i].device];
        struct report_draft_device *to = &out->devices[i];
        snprintf(to->node, sizeof to->node, "%s", device->node);
        snprintf(to->id, sizeof to->id, "%s", device->id);
        to->n_layers = placement->stages[i].n_layers;
    }
}

void report_add_draft(struct report *report, const char *name,
                      const struct placement_problem *draft, const struct placement *at)
{
    struct report_draft *out = &report->draft;
    struct placement placement = at ? *at : (struct placement){0};
    struct placement_guessed own = {0};
    const bool is_placed = !report->outcome && report->solution.placement.n_stages;
    *out = (struct report_draft){.name = name, .memory_bytes = placement_draft_bytes(draft, 0)};
    for (uint32_t i = 0; at && i < at->n_stages; i++)
        out->memory_bytes =
            placement_stage_bytes(draft, &at->stages[i]) + (i ? out->memory_bytes : 0);
    if (at && is_placed)
        placement_draft_given(draft, at, &report->cluster_problem.problem,
                              &report->solution.placement, &report->forecast.guessed);
    else if (is_placed)
        report_draft_choose(report, draft, &placement);
    if (placement.n_stages)
        placement_guessed(draft, &placement, &own);
    report_draft_name(draft, &placement, out);
    out->guess_s = own.without > 0 ? 1 / own.without : 0;
    if (!report_may_guess(report) ||
        report->forecast.guessed.repeating <= report->forecast.guessed.without)
        report->forecast.guessed.drafted = 0;
}
