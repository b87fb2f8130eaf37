#include "placement/chunk_plan.h"

#include "base/limits.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum {
    CHUNK_COUNTS = 4, /* up and down from the number of equal chunks, each by CHUNK_COUNT_RATIO */
    CHUNK_ENDS = 8    /* lengths of the first and of the last chunk, each by CHUNK_END_RATIO */
};
static const double CHUNK_COUNT_RATIO = 1.26, CHUNK_END_RATIO = 0.7937;
static const double CHUNK_WORTH = 0.99; /* of equal chunks' time, for others to be taken */

double chunk_line_time(const struct chunk_line *line, double n_rows, double n_before)
{
    return line->fixed + n_rows * (line->row + line->row_token * (n_before + n_rows / 2));
}

/* The rows that take the device that long. */
static double chunk_line_rows(const struct chunk_line *line, double time, double n_before)
{
    return (time - line->fixed) / (line->row + line->row_token * n_before);
}

/* ---- playing a plan ---------------------------------------------------------------------- */

static double chunk_plan_play(const struct chunk_work *work, const struct chunk_plan *plan)
{
    double free_at[LIMIT_STAGES] = {0}, left_at[LIMIT_STAGES + 1] = {0};
    const uint32_t n_under_way = work->n_devices + 1;
    double before = (double)work->n_before, ends = 0;
    for (uint32_t i = 0; i < plan->n_chunks; i++) {
        ends = left_at[i % n_under_way];
        for (uint32_t d = 0; d < work->n_devices; d++)
            ends = free_at[d] =
                fmax(ends, free_at[d]) + chunk_line_time(&work->lines[d], plan->rows[i], before);
        left_at[i % n_under_way] = ends;
        before += plan->rows[i];
    }
    return ends;
}

/* ---- making one -------------------------------------------------------------------------- */

struct chunk_shape {
    double longest, first, last;
    uint32_t slowest; /* device, for the longest */
};

static void chunk_plan_push(struct chunk_plan *plan, uint32_t rows)
{
    assert(rows && plan->n_chunks < CHUNK_PLAN_MAX);
    plan->rows[plan->n_chunks++] = rows;
}

/* Of the next chunk away from the slowest device's side, behind (or before) one of `rows`: as long
 * as no device from `begin` to before `end` makes the slowest wait. */
static double chunk_plan_grow(const struct chunk_work *work, const struct chunk_shape *shape,
                              double rows, uint32_t begin, uint32_t end)
{
    const double before = (double)work->n_before + (double)work->n_rows / 2,
                 time = chunk_line_time(&work->lines[shape->slowest], rows, before);
    double most = shape->longest;
    for (uint32_t d = begin; d < end; d++)
        most = fmin(most, chunk_line_rows(&work->lines[d], time, before));
    return most > rows + 1 ? most : shape->longest;
}

static uint32_t chunk_plan_step(double rows)
{
    const uint32_t steps = (uint32_t)(rows / CHUNK_ROWS_STEP + 0.5);
    return (steps ? steps : 1) * CHUNK_ROWS_STEP;
}

/* From one end on, until chunks are as long as the longest, at most n_rows; how many rows. */
static uint32_t chunk_plan_ramp(const struct chunk_work *work, const struct chunk_shape *shape,
                                double rows, uint32_t begin, uint32_t end, uint32_t n_rows,
                                struct chunk_plan *plan)
{
    uint32_t sum = 0;
    while (rows < shape->longest && plan->n_chunks < CHUNK_PLAN_MAX / 4) {
        const uint32_t next = chunk_plan_step(rows);
        if (sum + next > n_rows)
            break;
        chunk_plan_push(plan, next);
        sum += next;
        rows = chunk_plan_grow(work, shape, rows, begin, end);
    }
    return sum;
}

/* In equal chunks, as far as the steps allow it. */
static void chunk_plan_fill(const struct chunk_work *work, uint32_t n_rows, double longest,
                            struct chunk_plan *plan)
{
    const double least = fmin(ceil((double)n_rows / work->rows_max), CHUNK_PLAN_MAX / 2.0);
    const uint32_t n_chunks = (uint32_t)fmax(round(n_rows / longest), fmax(least, 1));
    for (uint32_t i = 0, at = 0; i < n_chunks && at < n_rows; i++) {
        const double end = (double)n_rows * (i + 1) / n_chunks;
        const uint32_t stepped = chunk_plan_step(end),
                       to = i + 1 == n_chunks || stepped > n_rows ? n_rows : stepped;
        if (to > at)
            chunk_plan_push(plan, to - at);
        at = to;
    }
}

static void chunk_plan_make(const struct chunk_work *work, const struct chunk_shape *shape,
                            struct chunk_plan *out)
{
    struct chunk_plan back = {0};
    const uint32_t n_rows = (uint32_t)work->n_rows;
    out->n_chunks = 0;
    const uint32_t n_back = chunk_plan_ramp(work, shape, shape->last, shape->slowest + 1,
                                            work->n_devices, n_rows, &back),
                   n_front = chunk_plan_ramp(work, shape, shape->first, 0, shape->slowest,
                                             n_rows - n_back, out);
    if (n_rows > n_back + n_front)
        chunk_plan_fill(work, n_rows - n_back - n_front, shape->longest, out);
    while (back.n_chunks)
        chunk_plan_push(out, back.rows[--back.n_chunks]);
    out->ends = chunk_plan_play(work, out);
}

/* ---- the best ---------------------------------------------------------------------------- */

static uint32_t chunk_plan_slowest(const struct chunk_work *work, double rows)
{
    const double before = (double)work->n_before + (double)work->n_rows / 2;
    uint32_t slowest = 0;
    for (uint32_t d = 1; d < work->n_devices; d++) {
        if (chunk_line_time(&work->lines[d], rows, before) >
            chunk_line_time(&work->lines[slowest], rows, before))
            slowest = d;
    }
    return slowest;
}

/* Those with shorter chunks at one end or at both. */
static void chunk_plan_try_ends(const struct chunk_work *work, struct chunk_shape *shape,
                                double worth, struct chunk_plan *best)
{
    struct chunk_plan plan;
    const uint32_t n_first = shape->slowest ? CHUNK_ENDS : 1,
                   n_last = shape->slowest + 1 < work->n_devices ? CHUNK_ENDS : 1;
    for (uint32_t i = 0; i < n_first * n_last; i++) {
        shape->first = shape->longest * pow(CHUNK_END_RATIO, i % n_first);
        shape->last = shape->longest * pow(CHUNK_END_RATIO, i / n_first); /* NOLINT: whole */
        if (!i || shape->first < fmin(CHUNK_ROWS_MIN, shape->longest) ||
            shape->last < fmin(CHUNK_ROWS_MIN, shape->longest))
            continue;
        chunk_plan_make(work, shape, &plan);
        if (plan.ends < best->ends && plan.ends < worth)
            *best = plan;
    }
}

/* How many equal chunks, where all devices were as slow as the slowest. */
static double chunk_plan_count(const struct chunk_work *work)
{
    const uint32_t slowest = chunk_plan_slowest(work, CHUNK_ROWS_MIN);
    const struct chunk_line *line = &work->lines[slowest];
    const double rows = (double)work->n_rows, least = rows / CHUNK_ROWS_MIN;
    const double row =
        (chunk_line_time(line, rows, (double)work->n_before) - line->fixed) / fmax(rows, 1);
    const double n =
        line->fixed > 0 ? sqrt((work->n_devices - 1) * rows * row / line->fixed) : least;
    return fmin(fmax(n, 1), fmax(least, 1));
}

/* One device: as few as can be. */
static void chunk_plan_alone(const struct chunk_work *work, struct chunk_plan *out)
{
    const uint32_t n_rows = (uint32_t)work->n_rows,
                   most = work->rows_max > CHUNK_ROWS_MIN ? work->rows_max : CHUNK_ROWS_MIN;
    out->n_chunks = 0;
    for (uint32_t at = 0; at < n_rows; at += most)
        chunk_plan_push(out, n_rows - at < most ? n_rows - at : most);
    out->ends = chunk_plan_play(work, out);
}

static void chunk_plan_search(const struct chunk_work *work, struct chunk_plan *out)
{
    struct chunk_shape shapes[2 * CHUNK_COUNTS + 1];
    struct chunk_plan plan;
    const double rows = (double)work->n_rows, least = fmin(CHUNK_ROWS_MIN, rows),
                 most = fmax(fmin(work->rows_max, rows), least), count = chunk_plan_count(work);
    for (int i = -CHUNK_COUNTS; i <= CHUNK_COUNTS; i++) {
        struct chunk_shape *shape = &shapes[i + CHUNK_COUNTS];
        const double n = fmax(round(count * pow(CHUNK_COUNT_RATIO, i)), 1);
        shape->longest = fmin(fmax(rows / n, least), most);
        shape->slowest = chunk_plan_slowest(work, shape->longest);
        shape->first = shape->last = shape->longest;
        chunk_plan_make(work, shape, &plan);
        if (plan.ends < out->ends)
            *out = plan;
    }
    const double worth = CHUNK_WORTH * out->ends;
    for (int i = 0; i <= 2 * CHUNK_COUNTS; i++)
        chunk_plan_try_ends(work, &shapes[i], worth, out);
}

void chunk_plan(const struct chunk_work *given, struct chunk_plan *out)
{
    struct chunk_work work = *given;
    assert(work.n_devices && work.n_devices <= LIMIT_STAGES && work.rows_max);
    if (work.n_rows > CHUNK_PLAN_ROWS)
        work.n_rows = CHUNK_PLAN_ROWS;
    *out = (struct chunk_plan){.ends = INFINITY};
    if (!work.n_rows)
        out->ends = 0;
    else if (work.n_devices == 1)
        chunk_plan_alone(&work, out);
    else
        chunk_plan_search(&work, out);
}

uint32_t chunk_plan_next(const struct chunk_plan *plan, const struct chunk_work *work,
                         uint64_t n_left)
{
    assert(n_left <= work->n_rows);
    uint64_t done = work->n_rows - n_left, end = 0;
    if (n_left <= CHUNK_PLAN_ROWS / 2 && work->n_rows > CHUNK_PLAN_ROWS)
        done = CHUNK_PLAN_ROWS - n_left;
    else if (done > CHUNK_PLAN_ROWS / 2 && work->n_rows > CHUNK_PLAN_ROWS)
        done = CHUNK_PLAN_ROWS / 2; /* a long prompt's middle is as a shorter one's */
    for (uint32_t i = 0; i < plan->n_chunks; i++) {
        end += plan->rows[i];
        if (done + plan->rows[i] / 2 < end)
            break;
    }
    const uint64_t rows = end > done ? end - done : 1;
    return (uint32_t)(rows < work->rows_max ? rows : work->rows_max);
}
