#include "node/solving.h"

#include "base/clock.h"
#include "base/fnv.h"
#include "base/log.h"
#include "base/mem.h"
#include "placement/as_run.h"
#include "placement/check.h"
#include "placement/cost.h"
#include "placement/replan.h"

#include <assert.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* Whether an instance should move: replan()'s arguments and its answer. */
struct solving_move {
    struct replan_input input;
    struct replan_device *devices;
    struct replan_layout layout;
    struct replan_options options;
    struct replan_state state; /* before, then after */
    struct replan_decision decision;
};

/* Where nothing fits: what streams from which disks. */
struct solving_streams {
    struct plan_stream_disk *disks;
    struct plan_stream_placement found;
};

struct solving_job {
    uv_work_t work; /* first */
    struct solving_job *next;
    struct solving *solving; /* NULL: nobody waits for it */
    char instance[LIMIT_CLUSTER_ID_BYTES + 1];
    uint64_t key, ended_ns; /* 0: it is under way */
    atomic_bool is_unwanted;
    uint64_t until_ns;
    struct placement_problem problem; /* its arrays are the job's */
    struct placement_solution solution;
    struct solving_move *move;       /* NULL: a placement is asked for; */
    struct solving_streams *streams; /* NULL: of which nothing streams */
    enum error_code code;
    struct error err;
};

struct solving {
    uv_loop_t *loop;
    void (*solved)(void *arg, const char *instance);
    void *arg;
    struct solving_job *jobs;
};

struct solving *solving_new(uv_loop_t *loop, void (*solved)(void *arg, const char *instance),
                            void *arg)
{
    struct solving *solving = mem_new(sizeof *solving);
    if (solving)
        *solving = (struct solving){.loop = loop, .solved = solved, .arg = arg};
    return solving;
}

/* ---- jobs ------------------------------------------------------------------------------------ */

static void solving_job_free(struct solving_job *job)
{
    mem_free((void *)(uintptr_t)job->problem.devices);
    mem_free((void *)(uintptr_t)job->problem.links);
    mem_free((void *)(uintptr_t)job->problem.model.layers);
    if (job->move)
        mem_free(job->move->devices);
    mem_free(job->move);
    if (job->streams)
        mem_free(job->streams->disks);
    mem_free(job->streams);
    mem_free(job);
}

static void solving_drop(struct solving *solving, struct solving_job *job)
{
    struct solving_job **at = &solving->jobs;
    while (*at != job)
        at = &(*at)->next;
    *at = job->next;
    job->solving = NULL;
    atomic_store(&job->is_unwanted, true);
    if (job->ended_ns)
        solving_job_free(job); /* else it frees itself */
}

void solving_free(struct solving *solving)
{
    if (!solving)
        return;
    while (solving->jobs)
        solving_drop(solving, solving->jobs);
    mem_free(solving);
}

static void *solving_copy(const void *from, size_t n, size_t size)
{
    void *copy = mem_new_array(n + 1, size);
    if (copy && n)
        memcpy(copy, from, n * size);
    return copy;
}

static bool solving_copy_problem(const struct placement_problem *from, struct placement_problem *to)
{
    const size_t n = from->n_devices;
    *to = *from;
    to->devices = solving_copy(from->devices, n, sizeof *from->devices);
    to->links = solving_copy(from->links, n * n, sizeof *from->links);
    to->model.layers =
        solving_copy(from->model.layers, from->model.n_layers, sizeof *from->model.layers);
    return to->devices && to->links && to->model.layers;
}

/* ---- on the pool ------------------------------------------------------------------------ */

static bool solving_goes_on(void *self)
{
    struct solving_job *job = self;
    return !atomic_load(&job->is_unwanted) && clock_now_ns() < job->until_ns;
}

static enum error_code solving_run_move(struct solving_job *job)
{
    struct solving_move *move = job->move;
    struct placement_options *options = &move->options.solve;
    options->max_nodes = SOLVING_MOVE_NODES;
    options->go_on = solving_goes_on;
    options->self = job;
    return replan(&move->input, &move->options, &move->state, &move->state, &move->decision,
                  &job->err);
}

static enum error_code solving_run_streams(struct solving_job *job)
{
    struct placement_options options = plan_stream_options(&job->problem);
    options.go_on = solving_goes_on;
    options.self = job;
    return plan_stream_place(&job->problem, job->streams->disks, &options, &job->streams->found)
               ? ERROR_NONE
               : ERROR_NOT_FOUND;
}

static enum error_code solving_run_placement(struct solving_job *job)
{
    struct placement_options options = placement_options_default();
    options.go_on = solving_goes_on;
    options.self = job;
    options.enough_gap = job->problem.demand.limit_s ? 0 : SOLVING_ENOUGH;
    return master_answer_ended(
        placement_solve_as_run(&job->problem, &options, &job->solution, &job->err), &job->err);
}

static void solving_run(uv_work_t *work)
{
    struct solving_job *job = (struct solving_job *)work;
    const uint32_t given_s = job->problem.demand.limit_s;
    job->until_ns =
        clock_now_ns() + UINT64_C(1000000) * (given_s ? 1000 * given_s : SOLVING_LIMIT_MS);
    job->code = job->move      ? solving_run_move(job)
                : job->streams ? solving_run_streams(job)
                               : solving_run_placement(job);
}

static void solving_ended(uv_work_t *work, int status)
{
    struct solving_job *job = (struct solving_job *)work;
    struct solving *solving = job->solving;
    job->ended_ns = clock_now_ns();
    if (!solving) {
        solving_job_free(job);
        return;
    }
    if (status && !job->code)
        job->code = error_set(&job->err, ERROR_INTERNAL, "the search did not run");
    solving->solved(solving->arg, job->instance);
}

/* ---- asking ----------------------------------------------------------------------------- */

/* What does not change from second to second. */
static uint64_t solving_key(const char *instance, const char *what,
                            const struct placement_problem *problem)
{
    uint64_t key = fnv_text(fnv_text(FNV_BASIS, instance), what);
    char text[2 * PLACEMENT_NAME_MAX + 64];
    for (uint32_t i = 0; i < problem->n_devices; i++) {
        const struct placement_device *device = &problem->devices[i];
        snprintf(text, sizeof text, "%s/%s %d %d", device->node, device->id, device->excluded,
                 device->share > 0);
        key = fnv_text(key, text);
    }
    const struct placement_demand *demand = &problem->demand;
    uint64_t bytes = 0; /* of its weights, which are others in another type */
    for (uint32_t i = 0; i < problem->model.n_layers; i++)
        bytes += placement_layer_bytes(problem, i);
    snprintf(text, sizeof text, "%u %u %u %d %u %" PRIu64 " %" PRIu64, problem->model.n_layers,
             demand->context_tokens, demand->streams, (int)demand->goal, demand->limit_s, bytes,
             demand->weights_max);
    key = fnv_text(key, text);
    const struct placement_weights *weights = &demand->weights;
    snprintf(text, sizeof text, "%g %g %g %g %g", weights->compute, weights->memory,
             weights->network, weights->thermal, weights->bandwidth);
    return fnv_text(key, text);
}

static struct solving_job *solving_find(struct solving *solving, uint64_t key)
{
    struct solving_job *job = solving->jobs;
    while (job && job->key != key)
        job = job->next;
    return job;
}

/* Old answers go; how many searches are under way. */
static uint32_t solving_sweep(struct solving *solving)
{
    const uint64_t now_ns = clock_now_ns();
    uint32_t n = 0;
    for (struct solving_job *job = solving->jobs, *next; job; job = next) {
        next = job->next;
        if (!job->ended_ns)
            n++;
        else if (now_ns - job->ended_ns > UINT64_C(1000000) * SOLVING_GOOD_MS)
            solving_drop(solving, job);
    }
    return n;
}

static bool solving_copy_move(const struct solving_move *from, struct solving_job *job)
{
    struct solving_move *move = job->move = mem_new(sizeof *job->move);
    if (!move)
        return false;
    *move = *from;
    move->devices =
        solving_copy(from->input.devices, job->problem.n_devices, sizeof *from->input.devices);
    move->input.problem = &job->problem;
    move->input.devices = move->devices;
    move->input.current = &move->layout;
    return move->devices;
}

static bool solving_copy_disks(const struct plan_stream_disk *disks, struct solving_job *job)
{
    struct solving_streams *streams = job->streams = mem_new(sizeof *job->streams);
    if (streams)
        streams->disks = solving_copy(disks, job->problem.n_devices, sizeof *disks);
    return streams && streams->disks;
}

/* All of it is copied. move, disks: NULL for a placement. */
static enum error_code solving_begin(struct solving *solving, const char *instance, uint64_t key,
                                     const struct placement_problem *problem,
                                     const struct solving_move *move,
                                     const struct plan_stream_disk *disks, struct error *err)
{
    struct solving_job *job = mem_new(sizeof *job);
    if (!job || !solving_copy_problem(problem, &job->problem) ||
        (move && !solving_copy_move(move, job)) || (disks && !solving_copy_disks(disks, job)))
        goto no_memory;
    snprintf(job->instance, sizeof job->instance, "%s", instance);
    job->key = key;
    job->solving = solving;
    if (uv_queue_work(solving->loop, &job->work, solving_run, solving_ended))
        goto no_memory;
    job->next = solving->jobs;
    solving->jobs = job;
    return error_set(err, ERROR_BUSY, "its placement is being computed");

no_memory:
    if (job)
        solving_job_free(job);
    return error_set(err, ERROR_NO_MEMORY, "not enough memory to place it on %u devices",
                     problem->n_devices);
}

static enum error_code solving_at_once(const struct placement_problem *problem,
                                       struct placement_solution *out, struct error *err)
{
    struct placement_problem as_run = *problem;
    struct placement_options options = placement_options_default();
    options.max_nodes = SOLVING_SMALL_NODES;
    return master_answer_ended(placement_solve_as_run(&as_run, &options, out, err), err);
}

enum error_code solving_solve(void *self, const char *instance, bool beside,
                              const struct placement_problem *problem,
                              struct placement_solution *out, struct error *err)
{
    struct solving *solving = self;
    assert(problem->n_devices && instance);
    if (problem->n_devices <= SOLVING_SMALL_DEVICES)
        return solving_at_once(problem, out, err);
    const uint64_t key = solving_key(instance, beside ? "beside" : "alone", problem);
    const uint32_t n = solving_sweep(solving);
    struct solving_job *job = solving_find(solving, key);
    if (job && job->ended_ns && !job->code &&
        placement_check(problem, &job->solution.placement, NULL)) {
        solving_drop(solving, job); /* the memory has changed */
        job = NULL;
    }
    if (!job && n < SOLVING_JOBS_MAX)
        return solving_begin(solving, instance, key, problem, NULL, NULL, err);
    if (!job || !job->ended_ns)
        return error_set(err, ERROR_BUSY, "its placement is being computed");
    *out = job->solution;
    if (job->code && err)
        *err = job->err;
    return job->code;
}

enum error_code solving_streams(void *self, const char *instance,
                                const struct placement_problem *problem,
                                const struct plan_stream_disk *disks,
                                struct plan_stream_placement *out, struct error *err)
{
    struct solving *solving = self;
    assert(problem->n_devices && instance && disks);
    const uint64_t key = solving_key(instance, "streams", problem);
    const uint32_t n = solving_sweep(solving);
    struct solving_job *job = solving_find(solving, key);
    if (job && job->ended_ns && !job->code && !plan_stream_fits(problem, &job->streams->found)) {
        solving_drop(solving, job); /* the memory has changed */
        job = NULL;
    }
    if (!job && n < SOLVING_JOBS_MAX)
        return solving_begin(solving, instance, key, problem, NULL, disks, err);
    if (!job || !job->ended_ns)
        return error_set(err, ERROR_BUSY, "what to stream from which disks is being computed");
    *out = job->streams->found;
    return job->code;
}

/* ---- moves ------------------------------------------------------------------------------ */

static uint64_t solving_move_key(const char *instance, const struct solving_move *move)
{
    uint64_t key = solving_key(instance, "move", move->input.problem);
    char text[2 * PLACEMENT_NAME_MAX + 64];
    for (uint32_t i = 0; i < move->layout.n_runs; i++) {
        const struct replan_run *run = &move->layout.runs[i];
        snprintf(text, sizeof text, "%.*s/%.*s %u", PLACEMENT_NAME_MAX, run->node,
                 PLACEMENT_NAME_MAX, run->device, run->n_layers);
        key = fnv_text(key, text);
    }
    return key;
}

enum error_code solving_replan(void *self, const char *instance, const struct replan_input *input,
                               const struct replan_options *options, struct replan_state *state,
                               struct replan_decision *out, struct error *err)
{
    struct solving *solving = self;
    assert(instance && input->problem->n_devices);
    if (input->problem->n_devices <= SOLVING_SMALL_DEVICES)
        return replan(input, options, state, state, out, err);
    const struct solving_move move = {
        .input = *input, .layout = *input->current, .options = *options, .state = *state};
    const uint64_t key = solving_move_key(instance, &move);
    const uint32_t n = solving_sweep(solving);
    struct solving_job *job = solving_find(solving, key);
    if (!job && n == 0)
        return solving_begin(solving, instance, key, input->problem, &move, NULL, err);
    if (!job || !job->ended_ns)
        return error_set(err, ERROR_BUSY, "whether it should move is being computed");
    const enum error_code code = job->code;
    if (code && err)
        *err = job->err;
    if (!code) {
        *state = job->move->state;
        *out = job->move->decision;
    }
    solving_drop(solving, job);
    return code;
}
