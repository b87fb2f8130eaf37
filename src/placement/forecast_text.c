#include "placement/forecast.h"

#include "base/size_text.h"
#include <math.h>

static void say_head(const struct placement_solution *solution, const struct placement_forecast *forecast,
                     struct buffer *out)
{
    buffer_printf(out, "%u device%s, %.1f tok/s decode", forecast->n_stages, forecast->n_stages == 1 ? "" : "s",
                  forecast->decode_tokens_per_s);
    if (forecast->decode_spread > 0)
        buffer_printf(out, " (±%.0f %%)", 100 * forecast->decode_spread);
    if (forecast->prefill_tokens_per_s > 0)
        buffer_printf(out, ", %.0f tok/s prefill", forecast->prefill_tokens_per_s);
    else
        buffer_text(out, ", prefill unknown");
    const double gap = placement_gap(solution);
    if (solution->proved)
        buffer_text(out, "; proved optimal\n");
    else if (gap < INFINITY)
        buffer_printf(out, "; at most %.1f %% slower than the best\n", 100 * gap);
    else
        buffer_text(out, "; how far from the best is unknown\n");
}

static void say_stages(const struct placement_problem *problem, const struct placement *placement,
                       const struct placement_forecast *forecast, struct buffer *out)
{
    for (uint32_t i = 0; i < placement->n_stages; i++) {
        const struct placement_stage *stage = &placement->stages[i];
        const struct placement_stage_forecast *said = &forecast->stages[i];
        buffer_printf(out, "  stage %u  %s  layers %u-%u  %s of %s  %.2f ms%s", i, problem->devices[stage->device].id,
                      stage->first_layer, stage->first_layer + stage->n_layers - 1, size_text(said->bytes).text,
                      size_text(placement_device_bytes(&problem->devices[stage->device])).text, 1e3 * said->decode_s,
                      said->measured ? "" : " (estimated, not measured)");
        if (placement->n_stages > 1)
            buffer_printf(out, "  %s %.2f ms", i + 1 < placement->n_stages ? "link" : "way back", 1e3 * said->hop_s);
        buffer_text(out, "\n");
    }
}

static void say_bottleneck(const struct placement_problem *problem, const struct placement *placement,
                           const struct placement_forecast *forecast, struct buffer *out)
{
    const struct placement_stage *stage = &placement->stages[forecast->cost.longest];
    const char *id = problem->devices[stage->device].id;
    if (forecast->cost.link_is_longest)
        buffer_printf(out, "Bottleneck: the link from %s to %s\n", id, problem->devices[stage[1].device].id);
    else
        buffer_printf(out, "Bottleneck: %s (%.0f %% of a token's time)\n", id,
                      100 * forecast->stages[forecast->cost.longest].part_of_round);
}

static void say_left_out(const struct placement_problem *problem, const struct placement *placement, uint32_t device,
                         struct buffer *out)
{
    struct placement_reason reason;
    const char *id = problem->devices[device].id;
    if (placement_why_left_out(problem, placement, device, &reason, NULL)) {
        out->failed = true;
        return;
    }
    switch (reason.why) {
    case PLACEMENT_USED:
        return;
    case PLACEMENT_EXCLUDED:
        buffer_printf(out, "Left out: %s: not to be used\n", id);
        return;
    case PLACEMENT_NO_MEMORY:
        buffer_printf(out, "Left out: %s: too little memory for a layer (%s)\n", id,
                      size_text(placement_device_bytes(&problem->devices[device])).text);
        return;
    case PLACEMENT_NO_TYPES:
        buffer_printf(out, "Left out: %s: cannot use the types of these weights\n", id);
        return;
    case PLACEMENT_NO_LINK:
        buffer_printf(out, "Left out: %s: no link to a device in use\n", id);
        return;
    case PLACEMENT_NO_PLACE:
        buffer_printf(out, "Left out: %s: no place for it in this order of stages\n", id);
        return;
    case PLACEMENT_COSTS_TIME:
        buffer_printf(out, "Left out: %s: would cost %.2f ms per token for %u layer%s\n", id, 1e3 * reason.more_s,
                      reason.n_layers, reason.n_layers == 1 ? "" : "s");
        return;
    }
}

void placement_explain(const struct placement_problem *problem, const struct placement_solution *solution,
                       struct buffer *out)
{
    struct placement_forecast forecast;
    const struct placement *placement = &solution->placement;
    if (placement->n_stages == 0)
        return;
    placement_forecast(problem, placement, &forecast);
    say_head(solution, &forecast, out);
    say_stages(problem, placement, &forecast, out);
    say_bottleneck(problem, placement, &forecast, out);
    for (uint32_t d = 0; d < problem->n_devices; d++)
        say_left_out(problem, placement, d, out);
}
