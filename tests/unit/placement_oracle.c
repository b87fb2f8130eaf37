/* A stage is a column, so that memory, types and the order of layers are in what columns there are:
 *     stage[d][a][b]   0 or 1: layers a … b-1 are on device d, all of them or none
 *     hop[b][i][j]     0 … 1: the stage that ends before layer b is on i, the one that begins with
 *                      it on j
 *     back[i][j]       0 … 1: the last stage is on i, the first on j        (as hop[L])
 *     period           of several micro-batches
 * One stage begins with layer 0; what ends before a layer goes on with it; a device has one stage
 * at most. Seconds are divided by a scale. */
#include "placement_oracle.h"

#include "placement/cost.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <interfaces/highs_c_api.h>

struct program {
    const struct placement_problem *problem;
    uint32_t n_devices, n_layers;
    struct placement_stage *stages; /* of the first columns */
    HighsInt n_stages, n_columns, n_rows, n_values;
    double *cost, *lower, *upper, *round, *row_lower, *row_upper,
        *values; /* round: what a column adds to it */
    HighsInt *integer, *starts, *indices;
    double scale;
    double limit; /* of a stage */
};

static void *zeroed(size_t n, size_t size)
{
    void *memory = calloc(n, size);
    assert_non_null(memory);
    return memory;
}

static HighsInt hop(const struct program *program, uint32_t boundary, uint32_t from, uint32_t to)
{
    const uint32_t n = program->n_devices;
    return program->n_stages + (HighsInt)(((boundary - 1) * n + from) * n + to);
}

static HighsInt period(const struct program *program)
{
    return hop(program, program->n_layers + 1, 0, 0);
}

/* ---- columns ----------------------------------------------------------------------------- */

static bool stage_possible(const struct program *program, const struct placement_stage *stage)
{
    const struct placement_problem *problem = program->problem;
    for (uint32_t layer = stage->first_layer; layer < stage->first_layer + stage->n_layers;
         layer++) {
        if (!placement_layer_allowed(problem, stage->device, layer))
            return false;
    }
    return placement_stage_bytes(problem, stage) <=
               placement_device_bytes(&problem->devices[stage->device]) &&
           placement_stage_s(problem, stage, placement_decode_load(problem)) <= program->limit;
}

static void list_stages(struct program *program)
{
    const uint32_t n_layers = program->n_layers;
    program->stages =
        zeroed((size_t)program->n_devices * n_layers * n_layers, sizeof *program->stages);
    for (uint32_t d = 0; d < program->n_devices; d++) {
        for (uint32_t first = 0; first < n_layers; first++) {
            for (uint32_t n = 1; first + n <= n_layers; n++) {
                const struct placement_stage stage = {d, first, n};
                if (stage_possible(program, &stage))
                    program->stages[program->n_stages++] = stage;
            }
        }
    }
}

static void set_hop(struct program *program, HighsInt column, uint32_t from, uint32_t to,
                    double seconds)
{
    program->upper[column] = placement_linked(program->problem, from, to);
    if (program->upper[column] > 0)
        program->round[column] = seconds / program->scale;
}

static void set_columns(struct program *program)
{
    const struct placement_problem *problem = program->problem;
    const struct placement_load load = placement_decode_load(problem);
    for (HighsInt column = 0; column < program->n_stages; column++) {
        program->integer[column] = 1;
        program->upper[column] = 1;
        program->round[column] =
            placement_stage_s(problem, &program->stages[column], load) / program->scale;
    }
    for (uint32_t i = 0; i < program->n_devices; i++) {
        for (uint32_t j = 0; j < program->n_devices; j++) {
            for (uint32_t boundary = 1; boundary < program->n_layers; boundary++) {
                set_hop(program, hop(program, boundary, i, j), i, j,
                        placement_hop_s(problem, i, j, load.rows));
                if (i == j)
                    program->upper[hop(program, boundary, i, j)] = 0;
            }
            set_hop(program, hop(program, program->n_layers, i, j), i, j,
                    placement_back_s(problem, i, j, load.rows));
        }
    }
    const double m = placement_micro_batches(problem), busy = m > 1 ? placement_busy(problem) : 0;
    for (HighsInt column = 0; column < period(program); column++)
        program->cost[column] = (1 - busy) * program->round[column] / m;
    program->cost[period(program)] = busy;
    program->upper[period(program)] = program->limit / program->scale;
}

static double scale_of(const struct placement_problem *problem)
{
    const struct placement_load load = placement_decode_load(problem);
    double least = 0;
    for (uint32_t layer = 0; layer < problem->model.n_layers; layer++) {
        double seconds = INFINITY;
        for (uint32_t d = 0; d < problem->n_devices; d++) {
            if (placement_layer_allowed(problem, d, layer))
                seconds = fmin(seconds, placement_layer_s(problem, d, layer, load));
        }
        least += seconds < INFINITY ? seconds : 0;
    }
    return least > 0 ? least / 10 : 1;
}

/* ---- rows -------------------------------------------------------------------------------- */

static void begin_row(struct program *program, double lower, double upper)
{
    program->row_lower[program->n_rows] = lower;
    program->row_upper[program->n_rows] = upper;
    program->starts[program->n_rows++] = program->n_values;
}

static void add(struct program *program, HighsInt column, double value)
{
    if (value == 0)
        return;
    program->indices[program->n_values] = column;
    program->values[program->n_values++] = value;
}

/* Those of the device (UINT32_MAX: any) that end before `end` or, if that is 0, begin with
 * `begin`. */
static void add_stages(struct program *program, uint32_t device, uint32_t begin, uint32_t end,
                       double value)
{
    for (HighsInt column = 0; column < program->n_stages; column++) {
        const struct placement_stage *stage = &program->stages[column];
        const bool fits =
            end ? stage->first_layer + stage->n_layers == end : stage->first_layer == begin;
        if (fits && (device == UINT32_MAX || stage->device == device))
            add(program, column, value);
    }
}

static void add_path(struct program *program)
{
    begin_row(program, 1, 1);
    add_stages(program, UINT32_MAX, 0, 0, 1);
    for (uint32_t boundary = 1; boundary <= program->n_layers; boundary++) {
        for (uint32_t d = 0; d < program->n_devices; d++) {
            begin_row(program, 0, 0);
            add_stages(program, d, 0, boundary, -1);
            for (uint32_t to = 0; to < program->n_devices; to++)
                add(program, hop(program, boundary, d, to), 1);
            begin_row(program, 0, 0);
            add_stages(program, d, boundary < program->n_layers ? boundary : 0, 0, -1);
            for (uint32_t from = 0; from < program->n_devices; from++)
                add(program, hop(program, boundary, from, d), 1);
        }
    }
    for (uint32_t d = 0; d < program->n_devices; d++) {
        begin_row(program, -INFINITY, 1);
        for (uint32_t first = 0; first < program->n_layers; first++)
            add_stages(program, d, first, 0, 1);
    }
}

static void add_periods(struct program *program)
{
    const struct placement_problem *problem = program->problem;
    const uint32_t rows = placement_rows(problem);
    for (uint32_t d = 0; d < program->n_devices; d++) {
        begin_row(program, -INFINITY, 0);
        add(program, period(program), -1);
        for (HighsInt column = 0; column < program->n_stages; column++) {
            if (program->stages[column].device == d)
                add(program, column, program->round[column]);
        }
        for (uint32_t to = 0; to < program->n_devices; to++) {
            if (to == d || !placement_linked(problem, d, to))
                continue;
            begin_row(program, -INFINITY, 0);
            add(program, period(program), -1);
            for (uint32_t boundary = 1; boundary < program->n_layers; boundary++)
                add(program, hop(program, boundary, d, to),
                    placement_occupation_s(problem, d, to, rows) / program->scale);
        }
    }
    begin_row(program, -INFINITY, 0);
    add(program, period(program), -(double)placement_micro_batches(problem));
    for (HighsInt column = 0; column < period(program); column++)
        add(program, column, program->round[column]);
}

/* ---- HiGHS ------------------------------------------------------------------------------- */

static void read_solution(const struct program *program, void *highs, struct placement *out)
{
    double *columns = zeroed((size_t)program->n_columns, sizeof *columns);
    double *rows = zeroed((size_t)program->n_rows, sizeof *rows);
    double *duals = zeroed((size_t)(program->n_columns + program->n_rows), sizeof *duals);
    assert_int_equal(Highs_getSolution(highs, columns, duals, rows, duals + program->n_columns),
                     kHighsStatusOk);
    *out = (struct placement){0};
    for (uint32_t layer = 0; layer < program->n_layers; layer++) {
        for (HighsInt column = 0; column < program->n_stages; column++) {
            if (columns[column] > 0.5 && program->stages[column].first_layer == layer &&
                out->n_stages < LIMIT_STAGES)
                out->stages[out->n_stages++] = program->stages[column];
        }
    }
    free(columns);
    free(rows);
    free(duals);
}

static double solve(struct program *program, struct placement *out)
{
    void *highs = Highs_create();
    double objective = INFINITY;
    assert_non_null(highs);
    assert_int_equal(Highs_setBoolOptionValue(highs, "output_flag", 0), kHighsStatusOk);
    assert_int_equal(Highs_setIntOptionValue(highs, "threads", 1), kHighsStatusOk);
    assert_int_equal(Highs_setDoubleOptionValue(highs, "mip_rel_gap", 1e-8), kHighsStatusOk);
    assert_int_equal(Highs_setDoubleOptionValue(highs, "mip_abs_gap", 1e-8), kHighsStatusOk);
    assert_int_equal(Highs_setDoubleOptionValue(highs, "mip_feasibility_tolerance", 1e-9),
                     kHighsStatusOk);
    assert_int_equal(Highs_setDoubleOptionValue(highs, "primal_feasibility_tolerance", 1e-9),
                     kHighsStatusOk);
    assert_int_equal(Highs_passMip(highs, program->n_columns, program->n_rows, program->n_values,
                                   kHighsMatrixFormatRowwise, kHighsObjSenseMinimize, 0,
                                   program->cost, program->lower, program->upper,
                                   program->row_lower, program->row_upper, program->starts,
                                   program->indices, program->values, program->integer),
                     kHighsStatusOk);
    assert_int_not_equal(Highs_run(highs), kHighsStatusError);
    const HighsInt status = Highs_getModelStatus(highs);
    if (status == kHighsModelStatusOptimal) {
        objective = Highs_getObjectiveValue(highs) * program->scale;
        read_solution(program, highs, out);
    } else if (status != kHighsModelStatusInfeasible) {
        fail_msg("HiGHS says neither optimal nor infeasible, but %d", (int)status);
    }
    Highs_destroy(highs);
    return objective;
}

double placement_oracle(const struct placement_problem *problem, double known_s,
                        struct placement *out)
{
    struct program program = {.problem = problem,
                              .n_devices = problem->n_devices,
                              .n_layers = problem->model.n_layers,
                              .limit = INFINITY};
    const double m = placement_micro_batches(problem), busy = placement_busy(problem);
    const size_t n = problem->n_devices, layers = problem->model.n_layers;
    program.scale = scale_of(problem);
    /* With a longer stage the objective is above it. */
    program.limit = known_s * (1 + 1e-6) / (m > 1 ? busy + (1 - busy) / m : 1);
    list_stages(&program);
    program.n_columns = period(&program) + 1;
    const size_t columns = (size_t)program.n_columns, rows = 3 + 2 * layers * n + n * (2 + n);
    const size_t values = 8 * columns + 16 * rows;
    double *doubles = zeroed(4 * columns + 2 * rows, sizeof *doubles);
    program.cost = doubles;
    program.lower = doubles + columns;
    program.upper = doubles + 2 * columns;
    program.round = doubles + 3 * columns;
    program.row_lower = doubles + 4 * columns;
    program.row_upper = program.row_lower + rows;
    program.integer = zeroed(columns, sizeof *program.integer);
    program.starts = zeroed(rows + 1, sizeof *program.starts);
    program.values = zeroed(values, sizeof *program.values);
    program.indices = zeroed(values, sizeof *program.indices);
    set_columns(&program);
    add_path(&program);
    if (m > 1)
        add_periods(&program);
    begin_row(&program, -INFINITY, known_s * (1 + 1e-6) / program.scale);
    for (HighsInt column = 0; column < program.n_columns; column++)
        add(&program, column, program.cost[column]);
    assert_true((size_t)program.n_rows <= rows && (size_t)program.n_values <= values);
    const double objective_s = solve(&program, out);
    free(program.stages);
    free(doubles);
    free(program.integer);
    free(program.starts);
    free(program.values);
    free(program.indices);
    return objective_s;
}
