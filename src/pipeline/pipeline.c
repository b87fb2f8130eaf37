#include "pipeline/pipeline.h"

#include "pipeline/pipeline_impl.h"

#include <assert.h>

bool pipeline_post(struct pipeline *pipeline, struct microbatch *microbatch, uint64_t number)
{
    const struct far *far = &pipeline->far;
    struct buffer *bytes = &microbatch->message;
    const uint32_t at = microbatch->at;
    const bool behind = at == pipeline->n_stages;
    struct microbatch_message message = {
        .route = {.instance = far->instance, .epoch = far->epoch, .number = number},
        .at = at,
        .own = bytes,
    };
    assert(at <= pipeline->n_stages);
    if (!behind && atomic_load(&microbatch->is_halted))
        microbatch_end_halted(microbatch);
    message.n_rows = microbatch->n_rows;
    buffer_clear(bytes);
    wire_write(microbatch, &message.route, behind ? far->type : pipeline->stages[at].type,
               &pipeline->shape, microbatch->scratch, bytes);
    if (bytes->failed)
        return false;
    message.bytes = bytes->data;
    message.size = bytes->size;
    if (behind)
        far->send(far->arg, at, bytes);
    else
        pipeline->stages[at].impl->pass(pipeline, &message, NULL);
    return true;
}

enum error_code pipeline_receive(struct pipeline *pipeline,
                                 const struct microbatch_message *message, struct error *err)
{
    if (message->route.instance != pipeline->far.instance ||
        message->route.epoch != pipeline->far.epoch)
        return error_set(
            err, ERROR_INVALID,
            "a micro-batch of instance %llu, placement %llu; here is %llu, %llu",
            (unsigned long long)message->route.instance, (unsigned long long)message->route.epoch,
            (unsigned long long)pipeline->far.instance, (unsigned long long)pipeline->far.epoch);
    if (message->at > pipeline->n_stages)
        return error_set(err, ERROR_INVALID, "a micro-batch for stage %u of %u", message->at,
                         pipeline->n_stages);
    if (message->at == pipeline->n_stages)
        return pipeline->owner->arrive(pipeline->arg, message, err);
    return pipeline->stages[message->at].impl->pass(pipeline, message, err);
}

void pipeline_halt(struct pipeline *pipeline, uint64_t number)
{
    assert(number);
    for (uint32_t i = 0; i < pipeline->n_stages; i++) {
        const struct pipeline_impl *impl = pipeline->stages[i].impl;
        if (impl && impl->halt)
            impl->halt(pipeline, i, number);
    }
}

/* ---- questions ------------------------------------------------------------------------ */

bool pipeline_take_loss(struct pipeline *pipeline, struct error *why)
{
    bool is_lost = false;
    for (uint32_t i = 0; i < pipeline->n_stages; i++) {
        const struct pipeline_impl *impl = pipeline->stages[i].impl;
        assert(impl); /* loaded */
        if (impl->take_loss)
            is_lost |= impl->take_loss(pipeline, i, why);
    }
    return is_lost;
}

enum pipeline_look pipeline_look(struct pipeline *pipeline, struct error *why)
{
    enum pipeline_look worst = PIPELINE_LOADED;
    for (uint32_t i = 0; i < pipeline->n_stages; i++) {
        const struct pipeline_impl *impl = pipeline->stages[i].impl;
        assert(impl);
        struct error problem = {0};
        const enum pipeline_look look =
            impl->look ? impl->look(pipeline, i, &problem) : PIPELINE_LOADED;
        if (look <= worst)
            continue;
        worst = look;
        *why = problem;
    }
    return worst;
}

uint64_t pipeline_stage_bytes(struct pipeline *pipeline, uint32_t at)
{
    assert(at < pipeline->n_stages);
    const struct pipeline_impl *impl = pipeline->stages[at].impl;
    return impl->bytes ? impl->bytes(pipeline, at) : 0;
}

uint64_t pipeline_row_bytes(struct pipeline *pipeline, uint32_t at)
{
    assert(at < pipeline->n_stages);
    const struct pipeline_impl *impl = pipeline->stages[at].impl;
    return impl->row_bytes ? impl->row_bytes(pipeline, at) : 0;
}

bool pipeline_memory_step(struct pipeline *pipeline, uint32_t at, struct memory_step *out)
{
    assert(at < pipeline->n_stages);
    const struct pipeline_impl *impl = pipeline->stages[at].impl;
    if (!impl->memory_step)
        return false;
    impl->memory_step(pipeline, at, out);
    return true;
}

static uint32_t pipeline_count_caches(const struct pipeline *pipeline, bool moves)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < pipeline->n_stages; i++) {
        const struct stage *stage = pipeline->stages[i].stage;
        n += stage && stage_kv_moves(stage) == moves;
    }
    return n;
}

bool pipeline_caches_move(const struct pipeline *pipeline)
{
    return pipeline_count_caches(pipeline, true) > 0;
}

bool pipeline_caches_all_move(const struct pipeline *pipeline)
{
    return pipeline_caches_move(pipeline) && !pipeline_count_caches(pipeline, false);
}

void pipeline_give_back(struct pipeline *pipeline, const struct memory_terms *terms)
{
    atomic_store_explicit(&pipeline->drops, terms->drops, memory_order_relaxed);
    atomic_store_explicit(&pipeline->gives_back, terms->gives_back, memory_order_relaxed);
}
