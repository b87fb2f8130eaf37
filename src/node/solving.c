#include "node/solving.h"

#include "base/clock.h"
#include "base/fnv.h"
#include "base/log.h"
#include "base/mem.h"
#include "placement/as_run.h"
#include "placement/check.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

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

static void solving_run(uv_work_t *work)
{
    struct solving_job *job = (struct solving_job *)work;
    struct placement_options options = placement_options_default();
    job->until_ns = clock_now_ns() + UINT64_C(1000000) * SOLVING_LIMIT_MS;
    options.go_on = solving_goes_on;
    options.self = job;
    job->code = placement_solve_as_run(&job->problem, &options, &job->solution, &job->err);
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
static uint64_t solving_key(const char *instance, bool beside,
                            const struct placement_problem *problem)
{
    uint64_t key = fnv_text(fnv_text(FNV_BASIS, instance), beside ? "beside" : "alone");
    char text[2 * PLACEMENT_NAME_MAX + 64];
    for (uint32_t i = 0; i < problem->n_devices; i++) {
        const struct placement_device *device = &problem->devices[i];
        snprintf(text, sizeof text, "%s/%s %d %d", device->node, device->id, device->excluded,
                 device->share > 0);
        key = fnv_text(key, text);
    }
    snprintf(text, sizeof text, "%u %u %u %d", problem->model.n_layers,
             problem->demand.context_tokens, problem->demand.streams, (int)problem->demand.goal);
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

static enum error_code solving_begin(struct solving *solving, const char *instance, uint64_t key,
                                     const struct placement_problem *problem, struct error *err)
{
    struct solving_job *job = mem_new(sizeof *job);
    if (!job || !solving_copy_problem(problem, &job->problem))
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
    return placement_solve_as_run(&as_run, &options, out, err);
}

enum error_code solving_solve(void *self, const char *instance, bool beside,
                              const struct placement_problem *problem,
                              struct placement_solution *out, struct error *err)
{
    struct solving *solving = self;
    assert(problem->n_devices && instance);
    if (problem->n_devices <= SOLVING_SMALL_DEVICES)
        return solving_at_once(problem, out, err);
    const uint64_t key = solving_key(instance, beside, problem);
    const uint32_t n = solving_sweep(solving);
    struct solving_job *job = solving_find(solving, key);
    if (job && job->ended_ns && !job->code &&
        placement_check(problem, &job->solution.placement, NULL)) {
        solving_drop(solving, job); /* the memory has changed */
        job = NULL;
    }
    if (!job && n < SOLVING_JOBS_MAX)
        return solving_begin(solving, instance, key, problem, err);
    if (!job || !job->ended_ns)
        return error_set(err, ERROR_BUSY, "its placement is being computed");
    *out = job->solution;
    if (job->code && err)
        *err = job->err;
    return job->code;
}
