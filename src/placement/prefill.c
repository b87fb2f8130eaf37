#include "placement/prefill.h"

#include "placement/chunk_plan.h"

#include <assert.h>
#include <math.h>

enum { LINE_ROWS = 256, LINE_TOKENS = 1024 }; /* between which a stage's line is drawn */

static bool placement_prefill_known(const struct placement_problem *problem,
                                    const struct placement_stage *stage)
{
    const struct placement_device *device = &problem->devices[stage->device];
    for (uint32_t i = 0; i < stage->n_layers; i++) {
        const struct placement_layer *layer = &problem->model.layers[stage->first_layer + i];
        for (uint32_t type = 0; type < problem->model.n_types; type++) {
            if (layer->flops_per_token[type] > 0 && device->prefill_flops[type] <= 0)
                return false;
        }
    }
    return true;
}

static struct chunk_line placement_prefill_line(const struct placement_problem *problem,
                                                const struct placement_stage *stage)
{
    const struct placement_load few = {CHUNK_ROWS_MIN, 1, 0}, many = {LINE_ROWS, 1, 0},
                                behind = {LINE_ROWS, 1, LINE_TOKENS};
    const double few_s = placement_stage_s(problem, stage, few),
                 many_s = placement_stage_s(problem, stage, many),
                 behind_s = placement_stage_s(problem, stage, behind);
    const double row = fmax((many_s - few_s) / (LINE_ROWS - CHUNK_ROWS_MIN),
                            1e-3 * many_s / LINE_ROWS); /* where reading is all that it does */
    return (struct chunk_line){
        .fixed = fmax(many_s - LINE_ROWS * row, 0),
        .row = row,
        .row_token = fmax(behind_s - many_s, 0) / LINE_ROWS / LINE_TOKENS,
    };
}

/* When the chunks leave the stages. */
struct prefill_line {
    double ends[LIMIT_STAGES];     /* of the last chunk, by stage */
    double done[LIMIT_STAGES + 1]; /* of the last n_stages + 1, as many as are under way, in turn */
};

static void placement_prefill_send(const struct placement_problem *problem,
                                   const struct placement *placement, uint32_t chunk,
                                   struct placement_load load, struct prefill_line *line)
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

double placement_prefill_s(const struct placement_problem *problem,
                           const struct placement *placement, uint32_t n_before, uint32_t n_prompt)
{
    struct placement_problem headless = *problem; /* chunks but the last have no results */
    headless.model.output = (struct placement_layer){0};
    headless.model.output_bytes_per_token = 0;
    struct chunk_line lines[LIMIT_STAGES];
    struct prefill_line line = {0};
    struct chunk_plan plan;
    assert(placement->n_stages && placement->n_stages <= LIMIT_STAGES);
    for (uint32_t i = 0; i < placement->n_stages; i++) {
        if (!placement_prefill_known(problem, &placement->stages[i]))
            return 0;
        lines[i] = placement_prefill_line(&headless, &placement->stages[i]);
        if (!(lines[i].row > 0)) /* all of it at once, by this problem */
            lines[i].row = 1e-12;
    }
    const struct chunk_work work = {.lines = lines,
                                    .n_devices = placement->n_stages,
                                    .rows_max = placement_chunk_tokens(problem),
                                    .n_before = n_before,
                                    .n_rows = n_prompt};
    chunk_plan(&work, &plan);
    for (uint32_t chunk = 0, at = 0; at < n_prompt; chunk++) {
        const uint32_t rows = chunk_plan_next(&plan, &work, n_prompt - at);
        const struct placement_load load = {rows, 1, n_before + at + rows / 2.0};
        at += rows;
        placement_prefill_send(at < n_prompt ? &headless : problem, placement, chunk, load, &line);
    }
    return line.ends[placement->n_stages - 1];
}

double placement_prefill_tokens_per_s(const struct placement_problem *problem,
                                      const struct placement *placement)
{
    const uint32_t n_prompt = placement_prompt_tokens(problem);
    const double seconds =
        placement->n_stages ? placement_prefill_s(problem, placement, 0, n_prompt) : 0;
    return seconds > 0 ? n_prompt / seconds : 0;
}
