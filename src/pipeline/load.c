#include "pipeline/load.h"

#include "base/mem.h"

#include <pthread.h>

/* Counts jobs that are still to come back. */
struct latch {
    pthread_mutex_t lock;
    pthread_cond_t zero;
    uint32_t left;
};

struct stage_job {
    struct device_job job;
    struct latch *latch;
    struct pipeline_stage *stage;
    const struct model *model;
    struct stage_options options;
    enum error_code code;
    struct error error;
};

static void latch_arrive(struct latch *latch)
{
    pthread_mutex_lock(&latch->lock);
    if (--latch->left == 0)
        pthread_cond_signal(&latch->zero);
    pthread_mutex_unlock(&latch->lock);
}

static void open_one(struct device_job *job)
{
    struct stage_job *one = (struct stage_job *)job; /* its first member */
    one->code =
        stage_open(one->stage->device, one->model, &one->options, &one->stage->stage, &one->error);
    latch_arrive(one->latch);
}

static void close_one(struct device_job *job)
{
    struct stage_job *one = (struct stage_job *)job;
    stage_close(one->stage->stage);
    one->stage->stage = NULL;
    latch_arrive(one->latch);
}

/* Runs the jobs, each on its stage's device, and waits for all of them. */
static void run_all(struct stage_job *jobs, uint32_t n_jobs, void (*run)(struct device_job *job))
{
    struct latch latch = {.left = n_jobs};
    pthread_mutex_init(&latch.lock, NULL);
    pthread_cond_init(&latch.zero, NULL);
    for (uint32_t i = 0; i < n_jobs; i++) {
        jobs[i].latch = &latch;
        jobs[i].job = (struct device_job){.run = run};
        device_submit(jobs[i].stage->device, &jobs[i].job);
    }
    pthread_mutex_lock(&latch.lock);
    while (latch.left)
        pthread_cond_wait(&latch.zero, &latch.lock);
    pthread_mutex_unlock(&latch.lock);
    pthread_cond_destroy(&latch.zero);
    pthread_mutex_destroy(&latch.lock);
}

static struct stage_options options_of(const struct driver_options *options, uint32_t first_layer,
                                       uint32_t n_layers)
{
    return (struct stage_options){
        .first_layer = first_layer,
        .n_layers = n_layers,
        .n_slots = options->n_slots,
        .context = options->context,
        .rows_max = options->batch_rows,
        .kv_type = options->kv_type,
        .flash = options->flash,
        .no_repack = options->no_repack,
    };
}

enum error_code pipeline_load(struct pipeline *pipeline, const struct model *model,
                              const struct stage_plan *plan, const struct driver_options *options,
                              struct error *err)
{
    struct stage_job *jobs = mem_new_array(pipeline->n_stages, sizeof *jobs);
    if (!jobs)
        return error_set(err, ERROR_NO_MEMORY, "no memory to load %u stages", pipeline->n_stages);
    uint32_t first_layer = 0, n_jobs = 0;
    for (uint32_t i = 0; i < pipeline->n_stages; i++) {
        struct pipeline_stage *stage = &pipeline->stages[i];
        stage->device = plan[i].device;
        stage->n_layers = plan[i].n_layers;
        if (stage->device) {
            struct stage_options stage_options = options_of(options, first_layer, plan[i].n_layers);
            jobs[n_jobs++] =
                (struct stage_job){.stage = stage, .model = model, .options = stage_options};
        }
        first_layer += plan[i].n_layers;
    }
    run_all(jobs, n_jobs, open_one);
    enum error_code code = ERROR_NONE;
    for (uint32_t i = 0; i < n_jobs && !code; i++) {
        if (!jobs[i].code)
            continue;
        code = jobs[i].code;
        error_set(err, code, "%s", jobs[i].error.text);
        error_wrap(err, "stage %td (layers %u-%u on %s)", jobs[i].stage - pipeline->stages,
                   jobs[i].options.first_layer,
                   jobs[i].options.first_layer + jobs[i].options.n_layers - 1,
                   device_info(jobs[i].stage->device)->id);
    }
    mem_free(jobs);
    if (code)
        pipeline_unload(pipeline);
    return code;
}

void pipeline_unload(struct pipeline *pipeline)
{
    /* One at a time and from the stack: closing must not depend on memory that may be gone. */
    for (uint32_t i = 0; i < pipeline->n_stages; i++) {
        if (!pipeline->stages[i].stage)
            continue;
        struct stage_job job = {.stage = &pipeline->stages[i]};
        run_all(&job, 1, close_one);
    }
}
