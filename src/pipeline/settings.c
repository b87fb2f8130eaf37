#include "pipeline/settings.h"

#include "base/limits.h"
#include "model/model.h"

#include <assert.h>

static enum error_code pipeline_check_stages(const struct stage_plan *stages, uint32_t n_stages,
                                             uint32_t n_layers, struct error *err)
{
    if (!n_stages || n_stages > LIMIT_STAGES)
        return error_set(err, ERROR_INVALID, "%u stages; 1 to %d are possible", n_stages,
                         LIMIT_STAGES);
    uint32_t sum = 0;
    for (uint32_t i = 0; i < n_stages; i++) {
        if (!stages[i].n_layers || stages[i].n_layers > n_layers)
            return error_set(err, ERROR_INVALID, "stage %u has %u layers; the model has %u", i,
                             stages[i].n_layers, n_layers);
        sum += stages[i].n_layers;
    }
    if (sum != n_layers)
        return error_set(err, ERROR_INVALID, "the stages have %u layers; the model has %u", sum,
                         n_layers);
    return ERROR_NONE;
}

enum error_code pipeline_check(const struct model *model, const struct stage_plan *stages,
                               uint32_t n_stages, const struct driver_options *given,
                               struct driver_options *options, struct error *err)
{
    enum error_code code =
        pipeline_check_stages(stages, n_stages, model_hyperparameters(model)->n_layers, err);
    return code ? code : driver_options_fill(given, model, options, err);
}

/* Different ones; every stage elsewhere counts as one. */
static void pipeline_count_devices(struct pipeline_settings *settings,
                                   const struct stage_plan *stages, uint32_t n_stages)
{
    settings->n_devices = 0;
    for (uint32_t i = 0; i < n_stages; i++) {
        uint32_t before = 0;
        while (before < i && (!stages[i].device || stages[before].device != stages[i].device))
            before++;
        settings->stage_devices[i] =
            before < i ? settings->stage_devices[before] : settings->n_devices++;
    }
}

static bool pipeline_has_elsewhere(const struct stage_plan *stages, uint32_t n_stages)
{
    for (uint32_t i = 0; i < n_stages; i++) {
        if (!stages[i].device)
            return true;
    }
    return false;
}

/* The first ones, up to that with the last layer that takes a part of a picture's rows. */
static uint32_t pipeline_given_stages(const struct hyperparameters *h,
                                      const struct stage_plan *stages, uint32_t n_stages)
{
    uint32_t n = 0;
    for (uint32_t layer = 0; h->given_width && n < n_stages && layer < h->given_layers; n++)
        layer += stages[n].n_layers;
    return n;
}

void pipeline_settings_init(struct pipeline_settings *settings, const struct model *model,
                            const struct stage_plan *stages, uint32_t n_stages,
                            const struct driver_options *options)
{
    const struct hyperparameters *hyperparameters = model_hyperparameters(model);
    assert(options->n_slots && options->context && options->batch_rows); /* filled in */
    uint32_t n_vocab = hyperparameters->n_vocab, n_embd = hyperparameters->n_embd;
    uint64_t outputs = options->n_slots + OUTPUT_ALL_ROWS;
    if (outputs > options->batch_rows)
        outputs = options->batch_rows;
    if (hyperparameters->reads_whole) /* every row of a text may come out */
        outputs = options->batch_rows;
    const uint32_t widest =
        !hyperparameters->gives_no_logits && n_vocab > n_embd ? n_vocab : n_embd;
    pipeline_count_devices(settings, stages, n_stages);
    assert(settings->n_devices && settings->n_devices <= n_stages);
    settings->n_microbatches = settings->n_devices + (settings->n_devices > 1);
    settings->shape = (struct wire_shape){
        .n_stages = n_stages,
        .n_slots = options->n_slots,
        .context = options->context,
        .n_vocab = n_vocab,
        .n_embd = n_embd,
        .n_carried = hyperparameters->n_carried,
        .given_width = hyperparameters->given_width,
        .given_stages = pipeline_given_stages(hyperparameters, stages, n_stages),
        .rows = options->batch_rows,
        .operations = 7 * options->n_slots + 4,
        .picks = options->n_slots + OUTPUT_ALL_ROWS,
        .checkpoints = options->checkpoints,
        .output_floats = outputs * widest,
    };
    settings->sizes = (struct microbatch_sizes){
        .rows = options->batch_rows,
        .shares = options->n_slots,
        .operations = settings->shape.operations,
        .picks = settings->shape.picks,
        .hidden_width = n_stages > 1 ? n_embd + hyperparameters->n_carried : 0,
        .given_width = hyperparameters->given_width,
        .second_hidden = n_stages > 2 || pipeline_has_elsewhere(stages, n_stages),
        .output_floats = settings->shape.output_floats,
    };
    settings->n_small = settings->n_devices > 1 && pipeline_has_elsewhere(stages, n_stages)
                            ? SMALL_MICROBATCHES
                            : 0;
    settings->small_sizes = settings->sizes;
    if (settings->small_sizes.rows > SMALL_ROWS) {
        settings->small_sizes.rows = SMALL_ROWS;
        settings->small_sizes.output_floats = (uint64_t)SMALL_ROWS * widest;
    }
    if (settings->small_sizes.output_floats > settings->sizes.output_floats)
        settings->small_sizes.output_floats = settings->sizes.output_floats;
}
