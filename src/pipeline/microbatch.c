#include "pipeline/microbatch.h"

#include "base/clock.h"
#include "base/mem.h"
#include "pipeline/pipeline_impl.h"

#include <assert.h>

enum error_code microbatch_init(struct microbatch *microbatch, struct pipeline *pipeline,
                                const struct microbatch_sizes *sizes, struct error *err)
{
    *microbatch = (struct microbatch){.pipeline = pipeline};
    assert(sizes->rows && sizes->shares && sizes->operations && sizes->picks >= sizes->shares);
    microbatch->rows = mem_new_array(sizes->rows, sizeof *microbatch->rows);
    microbatch->shares = mem_new_array(sizes->shares, sizeof *microbatch->shares);
    microbatch->operations = mem_new_array(sizes->operations, sizeof *microbatch->operations);
    microbatch->setups_room = sizes->shares;
    microbatch->setups = mem_new_array(sizes->shares, sizeof *microbatch->setups);
    microbatch->picks = mem_new_array(sizes->picks, sizeof *microbatch->picks);
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
    if (ok && sizes->given_width) {
        microbatch->given = mem_new_array((size_t)sizes->rows * sizes->given_width, sizeof(float));
        microbatch->places = mem_new_array(sizes->rows, sizeof *microbatch->places);
        ok = microbatch->given && microbatch->places;
    }
    if (ok)
        return ERROR_NONE;
    microbatch_deinit(microbatch);
    return error_set(err, ERROR_NO_MEMORY,
                     "not enough memory for a micro-batch of %u rows and %llu output values",
                     sizes->rows, (unsigned long long)sizes->output_floats);
}

void microbatch_deinit(struct microbatch *microbatch)
{
    mem_free(microbatch->rows);
    mem_free(microbatch->shares);
    mem_free(microbatch->operations);
    for (uint32_t i = 0; microbatch->setups && i < microbatch->setups_room; i++)
        pick_setup_deinit(&microbatch->setups[i]);
    mem_free(microbatch->setups);
    mem_free(microbatch->picks);
    mem_free(microbatch->outputs);
    mem_free(microbatch->hidden[0]);
    mem_free(microbatch->hidden[1]);
    mem_free(microbatch->scratch);
    mem_free(microbatch->given);
    mem_free(microbatch->places);
    buffer_deinit(&microbatch->message);
    *microbatch = (struct microbatch){0};
}

void microbatch_clear(struct microbatch *microbatch)
{
    assert(!microbatch->away);
    microbatch->n_setups = microbatch->n_operations = microbatch->n_shares = microbatch->n_rows = 0;
    microbatch->embeddings = microbatch->has_stable_bits = microbatch->knows_checkpoints = false;
    microbatch->n_picks = microbatch->at = microbatch->n_given = 0;
    microbatch->has_places = false;
    microbatch->slowest_ns = microbatch->held_up_ns = 0;
    microbatch->times = (struct request_times){0};
    microbatch->since_ns = 0;
    microbatch->was_short = microbatch->is_ahead = microbatch->is_crowded = false;
    atomic_store_explicit(&microbatch->is_halted, false, memory_order_relaxed);
    microbatch->error = (struct error){0};
}

void microbatch_fail(struct microbatch *microbatch)
{
    for (uint32_t i = 0; i < microbatch->n_shares; i++)
        microbatch->shares[i].failed |= !microbatch->shares[i].dropped;
    microbatch->n_rows = microbatch->n_given = 0;
}

void microbatch_end_halted(struct microbatch *microbatch)
{
    microbatch_fail(microbatch);
    if (!microbatch->error.code)
        error_set(&microbatch->error, ERROR_CANCELLED, "a micro-batch was cancelled");
}

void microbatch_go_on(struct microbatch *microbatch)
{
    struct pipeline *pipeline = microbatch->pipeline;
    assert(microbatch->at <= pipeline->n_stages);
    if (microbatch->at == pipeline->n_stages)
        pipeline->owner->done(pipeline->arg, microbatch);
    else
        pipeline->stages[microbatch->at].impl->send(pipeline, microbatch);
}

void microbatch_send(struct microbatch *microbatch)
{
    assert(!microbatch->away && !microbatch->error.code);
    microbatch->at = 0;
    microbatch->times.n_stages = microbatch->pipeline->n_stages;
    microbatch->has_stable_bits = true; /* until a stage says otherwise */
    microbatch->knows_checkpoints = true;
    microbatch->sent_ns = microbatch->since_ns = clock_now_ns();
    microbatch_go_on(microbatch);
}
