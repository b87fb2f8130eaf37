/* Jobs on the thread pool; the lane of those that change the shelf. */
#include "weights/weights_state.h"

static void weights_jobs_run(uv_work_t *work)
{
    struct weights_job *job = work->data;
    if (weights_is_closing(job->weights) && !job->must_run)
        error_set(&job->err, ERROR_CANCELLED, "this node is stopping");
    else
        job->run(job);
}

static void run_lane(struct weights *weights);

static void weights_jobs_done(uv_work_t *work, int status)
{
    (void)status; /* nobody calls uv_cancel() */
    struct weights_job *job = work->data;
    struct weights *weights = job->weights;
    weights->n_jobs--;
    if (job->in_lane) {
        weights->lane_running = NULL;
        run_lane(weights);
    }
    job->done(job);
    weights_close_when_done(weights);
}

static void weights_jobs_start(struct weights_job *job)
{
    job->work.data = job;
    uv_queue_work(job->weights->options.loop, &job->work, weights_jobs_run,
                  weights_jobs_done); /* which fails without a function only */
}

static void run_lane(struct weights *weights)
{
    struct weights_job *job = weights->lane_first;
    if (!job || weights->lane_running)
        return;
    weights->lane_first = job->next;
    if (!weights->lane_first)
        weights->lane_last = &weights->lane_first;
    weights->lane_running = job;
    weights_jobs_start(job);
}

void weights_job_start(struct weights *weights, struct weights_job *job)
{
    job->weights = weights;
    weights->n_jobs++;
    weights_jobs_start(job);
}

void weights_lane_add(struct weights *weights, struct weights_job *job)
{
    job->weights = weights;
    job->in_lane = true;
    job->next = NULL;
    weights->n_jobs++;
    *weights->lane_last = job;
    weights->lane_last = &job->next;
    run_lane(weights);
}
