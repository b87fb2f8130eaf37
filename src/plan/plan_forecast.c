#include "plan/plan_forecast.h"

#include "pipeline/chunks.h"
#include "pipeline/schedule.h"
#include "placement/cost.h"
#include "placement/forecast.h"

#include <math.h>

/* ---- reading a prompt ------------------------------------------------------------------- */

/* The rows of the driver's next chunk. */
static uint32_t next_chunk(const struct placement_problem *problem, uint32_t n_stages,
                           uint32_t n_prompt, uint32_t waiting)
{
    const struct chunk_costs costs = {.fixed_rows = CHUNK_COST_FIRST};
    const struct schedule_item item = {.waiting = waiting};
    const struct schedule_limits limits = {
        .rows = placement_chunk_tokens(problem),
        .devices = n_stages,
        .chunk_rows = chunk_rows(&costs, n_prompt, waiting, n_stages),
        .prefill_rows_mixed = 1, /* nobody is decoding */
        .output_all_rows = 1,
        .embedding_rows = 1,
    };
    struct schedule schedule;
    schedule_next(&item, 1, &limits, &schedule);
    return schedule.n_rows;
}

/* When the chunks leave the stages. */
struct forecast_line {
    double ends[LIMIT_STAGES];     /* of the last chunk, by stage */
    double done[LIMIT_STAGES + 1]; /* of the last n_stages + 1, as many as are under way, in turn */
};

static void plan_forecast_send(const struct placement_problem *problem,
                               const struct placement *placement, uint32_t chunk,
                               struct placement_load load, struct forecast_line *line)
{
    double arrives = line->done[chunk % (placement->n_stages + 1)];
    for (uint32_t i = 0; i < placement->n_stages; i++) {
        const struct placement_stage *stage = &placement->stages[i];
        line->ends[i] = fmax(arrives, line->ends[i]) + placement_stage_s(problem, stage, load);
        arrives = line->ends[i];
        if (i + 1 < placement->n_stages)
            arrives += placement_hop_s(problem, stage->device, stage[1].device, load.rows);
    }
    line->done[chunk % (placement->n_stages + 1)] = arrives;
}

static double prefill_s(const struct placement_problem *problem, const struct placement *placement,
                        const struct plan_work *work)
{
    struct placement_problem headless = *problem; /* chunks but the last have no results */
    headless.model.output = (struct placement_layer){0};
    headless.model.output_bytes_per_token = 0;
    struct forecast_line line = {0};
    uint32_t at = 0;
    for (uint32_t chunk = 0; at < work->n_prompt; chunk++) {
        const uint32_t rows =
            next_chunk(problem, placement->n_stages, work->n_prompt, work->n_prompt - at);
        const struct placement_load load = {rows, 1, work->n_cached + at + rows / 2.0};
        at += rows;
        plan_forecast_send(at < work->n_prompt ? &headless : problem, placement, chunk, load,
                           &line);
    }
    return line.ends[placement->n_stages - 1];
}

/* ---- the whole -------------------------------------------------------------------------- */

void plan_forecast(const struct placement_problem *problem, const struct placement *placement,
                   const struct plan_work *work, struct plan_forecast *out)
{
    struct placement_problem one = *problem;
    const uint32_t before = work->n_cached + work->n_prompt;
    one.demand.goal = PLACEMENT_LATENCY;
    one.demand.streams = 1;
    one.demand.context_tokens = 2 * before + work->n_generated; /* half of it is behind a token */
    one.demand.prompt_tokens = work->n_prompt;
    struct placement_forecast forecast;
    placement_forecast(&one, placement, &forecast);
    *out = (struct plan_forecast){.decode_tokens_per_s = forecast.decode_tokens_per_s,
                                  .decode_spread = forecast.decode_spread,
                                  .measured = true};
    for (uint32_t i = 0; i < forecast.n_stages; i++)
        out->measured = out->measured && forecast.stages[i].measured;
    if (forecast.prefill_tokens_per_s <= 0)
        return;
    out->prefill_s = prefill_s(&one, placement, work);
    out->prefill_tokens_per_s = work->n_prompt / out->prefill_s;
}
