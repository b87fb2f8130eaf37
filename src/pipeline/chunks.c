#include "pipeline/chunks.h"

#include <assert.h>
#include <math.h>

static const double CHUNK_KEPT = 0.95; /* of what was measured before: 20 micro-batches count */
/* What is expected weighs so much, beside a micro-batch's 1. A fixed cost is within some rows of
 * what is expected, and a micro-batch's time within a third of that: with less weight, prompts in
 * chunks of one length were measured as if there was no fixed cost, and so stayed short. */
static const double CHUNK_EXPECTED_FIXED = 0.1, CHUNK_EXPECTED_TOKEN = 0.02;

void chunk_costs_note(struct chunk_costs *costs, uint32_t device, uint32_t n_rows, double n_before,
                      uint64_t ns)
{
    assert(device < LIMIT_STAGES && n_rows);
    struct chunk_sums *sums = &costs->devices[device];
    const double r = n_rows, b = n_before / 1e3, t = (double)ns / 1e6;
    *sums = (struct chunk_sums){
        .weight = CHUNK_KEPT * sums->weight + 1,
        .r = CHUNK_KEPT * sums->r + r,
        .b = CHUNK_KEPT * sums->b + b,
        .t = CHUNK_KEPT * sums->t + t,
        .rr = CHUNK_KEPT * sums->rr + r * r,
        .rb = CHUNK_KEPT * sums->rb + r * b,
        .bb = CHUNK_KEPT * sums->bb + b * b,
        .rt = CHUNK_KEPT * sums->rt + r * t,
        .bt = CHUNK_KEPT * sums->bt + b * t,
    };
}

/* The determinant of three columns. */
static double chunk_determinant(const double x[3], const double y[3], const double z[3])
{
    return x[0] * (y[1] * z[2] - y[2] * z[1]) - y[0] * (x[1] * z[2] - x[2] * z[1]) +
           z[0] * (x[1] * y[2] - x[2] * y[1]);
}

/* The normal equations of t = fixed + row r + thousand b, solved by Cramer's rule. */
static struct chunk_line chunk_costs_line(const struct chunk_sums *sums)
{
    static const double first = CHUNK_COST_FIRST;
    if (sums->t <= 0)
        return (struct chunk_line){.fixed = first, .row = 1};
    const double mean = sums->t / (sums->r + first * sums->weight), w = CHUNK_EXPECTED_FIXED,
                 token = CHUNK_EXPECTED_TOKEN * sums->bb / sums->weight + 1e-6;
    const double x[3] = {sums->weight + w, sums->r - w * first, sums->b},
                 y[3] = {sums->r - w * first, sums->rr + w * first * first, sums->rb},
                 z[3] = {sums->b, sums->rb, sums->bb + token}, t[3] = {sums->t, sums->rt, sums->bt};
    const double all = chunk_determinant(x, y, z);
    const double fixed = chunk_determinant(t, y, z) / all, row = chunk_determinant(x, t, z) / all,
                 thousand = chunk_determinant(x, y, t) / all;
    if (!(row > mean / 4)) /* noise; or no number */
        return (struct chunk_line){.fixed = first * mean, .row = mean};
    return (struct chunk_line){.fixed = fmin(fmax(fixed, row), CHUNK_COST_MAX * row),
                               .row = row,
                               .row_token = fmax(thousand, 0) / 1e3};
}

void chunk_costs_lines(const struct chunk_costs *costs, uint32_t n_devices,
                       struct chunk_line *lines)
{
    for (uint32_t i = 0; i < n_devices; i++)
        lines[i] = chunk_costs_line(&costs->devices[i]);
}

/* Its micro-batches had different lengths. */
static bool chunk_costs_know(const struct chunk_sums *sums)
{
    const double mean = sums->weight > 0 ? sums->r / sums->weight : 0;
    return sums->weight > 0 && sums->rr / sums->weight - mean * mean >= mean * mean / 64;
}

uint32_t chunk_rows(const struct chunk_costs *costs, const struct chunk_prompts *prompts,
                    uint32_t n_devices, uint32_t rows_max)
{
    struct chunk_line lines[LIMIT_STAGES];
    struct chunk_plan plan;
    assert(n_devices && n_devices <= LIMIT_STAGES && rows_max);
    if (n_devices == 1 || !prompts->n_left)
        return rows_max;
    chunk_costs_lines(costs, n_devices, lines);
    const struct chunk_work work = {.lines = lines,
                                    .n_devices = n_devices,
                                    .rows_max = rows_max,
                                    .n_before = prompts->n_before,
                                    .n_rows = prompts->n_rows};
    chunk_plan(&work, &plan);
    uint32_t rows = chunk_plan_next(&plan, &work, prompts->n_left);
    if (!chunk_costs_know(&costs->devices[0]) && prompts->n_left <= prompts->n_rows / 2)
        rows = rows / 2 > CHUNK_ROWS_MIN ? rows / 2 : CHUNK_ROWS_MIN;
    return rows < rows_max ? rows : rows_max;
}
