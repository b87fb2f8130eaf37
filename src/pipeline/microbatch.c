#include "pipeline/microbatch.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#include <string.h>

enum error_code microbatch_init(struct microbatch *microbatch, struct pipeline *pipeline,
                                const struct microbatch_sizes *sizes, struct error *err)
{
    *microbatch = (struct microbatch){.pipeline = pipeline};
    microbatch->rows = mem_new_array(sizes->rows, sizeof *microbatch->rows);
    microbatch->shares = mem_new_array(sizes->shares, sizeof *microbatch->shares);
    microbatch->operations = mem_new_array(sizes->operations, sizeof *microbatch->operations);
    microbatch->setups = mem_new_array(sizes->shares, sizeof *microbatch->setups);
    microbatch->picks = mem_new_array(sizes->shares, sizeof *microbatch->picks);
    microbatch->outputs = mem_new_array(sizes->output_floats, sizeof(float));
    bool ok = microbatch->rows && microbatch->shares && microbatch->operations &&
              microbatch->setups && microbatch->picks && microbatch->outputs;
    size_t hidden = (size_t)sizes->rows * sizes->hidden_width;
    if (ok && hidden)
        ok = (microbatch->hidden[0] = mem_new_array(hidden, sizeof(float))) != NULL;
    if (ok && hidden && sizes->second_hidden)
        ok = (microbatch->hidden[1] = mem_new_array(hidden, sizeof(float))) != NULL;
    if (ok && hidden)
        ok = (microbatch->scratch = mem_new_array(sizes->hidden_width, sizeof(float))) != NULL;
    if (ok)
        return ERROR_NONE;
    microbatch_deinit(microbatch);
    return error_set(err, ERROR_NO_MEMORY,
                     "no memory for a micro-batch of %u rows and %llu output values", sizes->rows,
                     (unsigned long long)sizes->output_floats);
}

void microbatch_deinit(struct microbatch *microbatch)
{
    mem_free(microbatch->rows);
    mem_free(microbatch->shares);
    mem_free(microbatch->operations);
    mem_free(microbatch->setups);
    mem_free(microbatch->picks);
    mem_free(microbatch->outputs);
    mem_free(microbatch->hidden[0]);
    mem_free(microbatch->hidden[1]);
    mem_free(microbatch->scratch);
    buffer_deinit(&microbatch->message);
    *microbatch = (struct microbatch){0};
}

void microbatch_clear(struct microbatch *microbatch)
{
    microbatch->n_setups = microbatch->n_operations = microbatch->n_shares = microbatch->n_rows = 0;
    microbatch->embeddings = false;
    microbatch->at = 0;
    microbatch->slowest_ns = 0;
    microbatch->error = (struct error){0};
}

static void operate(struct pipeline_stage *stage, const struct cache_operation *operation)
{
    if (!operation->copy) {
        stage_kv_truncate(stage->stage, operation->slot, operation->length);
        if (operation->length == 0)
            stage->poisoned[operation->slot] = false;
        return;
    }
    struct error err = {0};
    if (stage->poisoned[operation->from]) {
        stage->poisoned[operation->slot] = true;
    } else if (stage_kv_copy(stage->stage, operation->from, operation->slot, operation->length,
                             &err)) {
        /* The sequence starts over without the copy when its rows come back as dropped. */
        log_line(LOG_WARN, "pipeline", "a prefix could not be copied and is computed anew: %s",
                 err.text);
        stage->poisoned[operation->slot] = true;
    }
}

static struct share *share_of(struct microbatch *microbatch, uint32_t slot)
{
    struct share *share = microbatch->shares;
    while (share->slot != slot)
        share++;
    return share;
}

/* Closes the gaps that void shares leave in the rows and in the hidden states beside them. */
static void remove_void_rows(struct microbatch *microbatch, float *hidden, uint32_t width)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < microbatch->n_rows; i++) {
        if (share_is_void(share_of(microbatch, microbatch->rows[i].slot)))
            continue;
        if (kept != i) {
            microbatch->rows[kept] = microbatch->rows[i];
            if (hidden)
                memcpy(hidden + (size_t)kept * width, hidden + (size_t)i * width,
                       width * sizeof(float));
        }
        kept++;
    }
    microbatch->n_rows = kept;
}

/* Drops the rows of poisoned slots, and poisons the slots of rows dropped or failed before this
 * stage. */
static void drop_poisoned(struct microbatch *microbatch, struct pipeline_stage *stage,
                          float *hidden)
{
    bool dropped = false;
    for (uint32_t i = 0; i < microbatch->n_shares; i++) {
        struct share *share = &microbatch->shares[i];
        if (share_is_void(share)) {
            stage->poisoned[share->slot] = true;
        } else if (stage->poisoned[share->slot]) {
            share->dropped = dropped = true;
        }
    }
    if (dropped)
        remove_void_rows(microbatch, hidden, stage_width(stage->stage));
}

void microbatch_fail(struct microbatch *microbatch)
{
    for (uint32_t i = 0; i < microbatch->n_shares; i++)
        microbatch->shares[i].failed |= !microbatch->shares[i].dropped;
    microbatch->n_rows = 0;
}

static void fail_on_stage(struct microbatch *microbatch, struct pipeline_stage *stage)
{
    for (uint32_t i = 0; i < microbatch->n_shares; i++)
        stage->poisoned[microbatch->shares[i].slot] = true; /* void ones are already */
    microbatch_fail(microbatch);
}

static void forward(struct microbatch *microbatch, struct pipeline_stage *stage, const float *in,
                    bool last)
{
    struct batch batch = {microbatch->rows, microbatch->n_rows, microbatch->embeddings};
    float *out = microbatch->hidden[microbatch->at & 1];
    if (last)
        out = batch_output_count(&batch) ? microbatch->outputs : NULL;
    uint64_t start_ns = clock_now_ns();
    enum error_code code = stage_forward(stage->stage, &batch, in, out, &microbatch->error);
    uint64_t spent_ns = clock_now_ns() - start_ns;
    atomic_fetch_add_explicit(&stage->busy_ns, spent_ns, memory_order_relaxed);
    if (spent_ns > microbatch->slowest_ns)
        microbatch->slowest_ns = spent_ns;
    if (!code)
        return;
    error_wrap(&microbatch->error, "stage %u on %s", microbatch->at,
               device_info(stage->device)->id);
    fail_on_stage(microbatch, stage);
}

/* What the picker must know before it picks; the tokens of void rows are right, too. */
static void tell_picker(const struct microbatch *microbatch, struct picker *picker)
{
    for (uint32_t i = 0; i < microbatch->n_setups; i++)
        picker_setup(picker, &microbatch->setups[i]);
    for (uint32_t i = 0; i < microbatch->n_operations; i++) {
        const struct cache_operation *operation = &microbatch->operations[i];
        if (operation->copy)
            picker_copy(picker, operation->from, operation->slot, operation->length);
    }
    for (uint32_t i = 0; i < microbatch->n_rows; i++)
        picker_note(picker, microbatch->rows[i].slot, microbatch->rows[i].position,
                    microbatch->rows[i].token);
}

static void pick_tokens(struct microbatch *microbatch, struct picker *picker, uint32_t width)
{
    const float *outputs = microbatch->outputs;
    for (uint32_t i = 0; i < microbatch->n_shares; i++) {
        const struct share *share = &microbatch->shares[i];
        if (share_is_void(share))
            continue;
        outputs += (size_t)share->n_outputs * width;
        if (share->pick)
            picker_pick(picker, share->slot, share->position + share->n_rows, outputs - width,
                        &microbatch->picks[i]);
    }
}

static void run_on_stage(struct microbatch *microbatch)
{
    struct pipeline *pipeline = microbatch->pipeline;
    struct pipeline_stage *stage = &pipeline->stages[microbatch->at];
    for (uint32_t i = 0; i < microbatch->n_operations; i++)
        operate(stage, &microbatch->operations[i]);
    float *in = microbatch->at ? microbatch->hidden[(microbatch->at - 1) & 1] : NULL;
    drop_poisoned(microbatch, stage, in);
    bool last = microbatch->at + 1 == pipeline->n_stages;
    if (last)
        tell_picker(microbatch, pipeline->picker);
    if (microbatch->n_rows)
        forward(microbatch, stage, in, last);
    if (last && microbatch->n_rows && !microbatch->embeddings)
        pick_tokens(microbatch, pipeline->picker, stage_output_width(stage->stage));
}

static void run(struct device_job *job)
{
    struct microbatch *microbatch = (struct microbatch *)job; /* its first member */
    struct pipeline *pipeline = microbatch->pipeline;
    struct device *here = pipeline->stages[microbatch->at].device;
    do {
        run_on_stage(microbatch);
        microbatch->at++;
    } while (microbatch->at < pipeline->n_stages &&
             pipeline->stages[microbatch->at].device == here);
    microbatch_go_on(microbatch);
}

void microbatch_go_on(struct microbatch *microbatch)
{
    struct pipeline *pipeline = microbatch->pipeline;
    if (microbatch->at == pipeline->n_stages) {
        pipeline->done(pipeline->arg, microbatch);
        return;
    }
    struct device *device = pipeline->stages[microbatch->at].device;
    microbatch->job.run = run;
    if (device)
        device_submit(device, &microbatch->job);
    else
        pipeline->forward(pipeline->arg, microbatch);
}

void microbatch_send(struct microbatch *microbatch)
{
    microbatch->at = 0;
    microbatch_go_on(microbatch);
}
