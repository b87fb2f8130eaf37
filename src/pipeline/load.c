/* Opening and closing a pipeline's stages, different devices at the same time. */
#include "pipeline/pipeline_impl.h"

#include "base/mem.h"

#include <assert.h>

/* Where a stage is follows from its plan; NULL: there is no way to it. */
static const struct pipeline_impl *pipeline_impl_of(const struct stage_plan *plan,
                                                    const struct far *far)
{
    if (plan->device)
        return &pipeline_on_device;
    if (plan->lane)
        return far->lanes.impl;
    return far->send ? &pipeline_far : NULL;
}

static enum error_code pipeline_note_stages(struct pipeline *pipeline,
                                            const struct stage_plan *plan, struct error *err)
{
    const struct far *far = &pipeline->far;
    for (uint32_t i = 0; i < pipeline->n_stages; i++) {
        struct pipeline_stage *stage = &pipeline->stages[i];
        assert(!stage->stage && !stage->lane);
        stage->impl = pipeline_impl_of(&plan[i], far);
        stage->device = plan[i].device;
        stage->n_layers = plan[i].n_layers;
        /* Between processes of one machine values cost nothing and stay exact. */
        stage->type = plan[i].lane ? ACTIVATION_F32 : far->types ? far->types[i] : far->type;
        if (!stage->impl)
            return error_set(err, ERROR_INVALID, "stage %u has no device", i);
    }
    return ERROR_NONE;
}

void pipeline_opened(struct pipeline_opening *opening)
{
    assert(opening->pipeline->stages[opening->at].impl->open);
    latch_arrive(opening->latch);
}

static void pipeline_open_all(struct pipeline_opening *openings, uint32_t n)
{
    struct latch latch;
    latch_init(&latch, n);
    for (uint32_t i = 0; i < n; i++) {
        const struct pipeline *pipeline = openings[i].pipeline;
        openings[i].latch = &latch;
        pipeline->stages[openings[i].at].impl->open(&openings[i]);
    }
    latch_wait(&latch);
    for (uint32_t i = 0; i < n; i++) {
        if (openings[i].has_thread)
            pthread_join(openings[i].thread, NULL);
    }
}

enum error_code pipeline_load(struct pipeline *pipeline, const struct model *model,
                              const struct stage_plan *plan, const struct driver_options *options,
                              struct error *err)
{
    assert(pipeline->owner && pipeline->shape.n_stages == pipeline->n_stages);
    assert(!atomic_load(&pipeline->serves));
    enum error_code code = pipeline_note_stages(pipeline, plan, err);
    if (code)
        return code;
    struct pipeline_opening *openings = mem_new_array(pipeline->n_stages, sizeof *openings);
    if (!openings)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory to load %u stages",
                         pipeline->n_stages);
    uint32_t n = 0, first_layer = 0;
    for (uint32_t i = 0; i < pipeline->n_stages; i++) {
        if (pipeline->stages[i].impl->open)
            openings[n++] = (struct pipeline_opening){.pipeline = pipeline,
                                                      .at = i,
                                                      .first_layer = first_layer,
                                                      .model = model,
                                                      .plan = plan,
                                                      .options = options};
        first_layer += plan[i].n_layers;
    }
    pipeline_open_all(openings, n);
    for (uint32_t i = 0; i < n && !code; i++) {
        if (openings[i].code)
            code = error_set(err, openings[i].code, "%s", openings[i].error.text);
    }
    mem_free(openings);
    if (code)
        pipeline_unload(pipeline);
    else
        atomic_store_explicit(&pipeline->serves, true, memory_order_release);
    return code;
}

void pipeline_disconnect(struct pipeline *pipeline)
{
    atomic_store(&pipeline->serves, false);
    for (uint32_t i = 0; i < pipeline->n_stages; i++) {
        const struct pipeline_impl *impl = pipeline->stages[i].impl;
        if (impl && impl->disconnect)
            impl->disconnect(pipeline, i);
    }
}

/* All lanes are disconnected before the first is closed: each may be sending to any other. */
void pipeline_unload(struct pipeline *pipeline)
{
    pipeline_disconnect(pipeline);
    for (uint32_t i = 0; i < pipeline->n_stages; i++) {
        const struct pipeline_impl *impl = pipeline->stages[i].impl;
        if (impl && impl->close)
            impl->close(pipeline, i);
        assert(!pipeline->stages[i].stage && !pipeline->stages[i].lane);
    }
}
