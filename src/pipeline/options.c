#include "pipeline/driver.h"

#include "base/limits.h"
#include "engine/batch_shape.h"
#include "model/model.h"

#include <string.h>

enum { CONTEXT_USUAL = 4096, CONTEXT_USUAL_WHOLE = 2048, BATCH_ROWS_USUAL = 512 };

const char *speculate_name(enum speculate speculate)
{
    return speculate == SPECULATE_LOOKUP ? "lookup" : speculate == SPECULATE_OFF ? "off" : NULL;
}

bool speculate_find(const char *name, enum speculate *out)
{
    static const enum speculate said[] = {SPECULATE_LOOKUP, SPECULATE_OFF};
    for (uint32_t i = 0; i < sizeof said / sizeof *said; i++) {
        if (strcmp(name, speculate_name(said[i])) == 0) {
            *out = said[i];
            return true;
        }
    }
    return false;
}

/* A text that is read at once is one micro-batch. */
static enum error_code driver_options_fit_whole(struct driver_options *options, struct error *err)
{
    if (options->context > LIMIT_BATCH_ROWS)
        return error_set(err, ERROR_INVALID,
                         "a context of %u tokens; this model reads a text at once, of %d tokens at "
                         "most",
                         options->context, LIMIT_BATCH_ROWS);
    if (options->batch_rows < options->context)
        options->batch_rows = options->context;
    return ERROR_NONE;
}

/* A turn of a chat leaves two or three (checkpoints.h). All of them take no more than a sixteenth
 * of what the weights do. */
static uint32_t usual_checkpoints(const struct model *model, uint32_t n_slots)
{
    const uint32_t wanted = 2 * n_slots + 4,
                   most = wanted < LIMIT_CHECKPOINTS ? wanted : LIMIT_CHECKPOINTS;
    uint64_t each = 0;
    for (uint32_t i = 0; i < model_hyperparameters(model)->n_layers; i++)
        each += sizeof(float) * hyperparameters_state_values(model_hyperparameters(model), i);
    const uint64_t fit = each ? model_weight_bytes(model) / 16 / each : 0;
    return fit < most ? (uint32_t)fit : most;
}

enum error_code driver_options_fill(const struct driver_options *given, const struct model *model,
                                    struct driver_options *out, struct error *err)
{
    const struct hyperparameters *h = model_hyperparameters(model);
    const uint32_t n_context_train = h->n_context_train;
    const uint32_t usual = h->reads_whole ? CONTEXT_USUAL_WHOLE : CONTEXT_USUAL;
    *out = *given;
    if (!out->n_slots)
        out->n_slots = 1;
    if (!out->context)
        out->context = n_context_train < usual ? n_context_train : usual;
    if (!out->batch_rows)
        out->batch_rows = BATCH_ROWS_USUAL;
    if (!out->queue_max)
        out->queue_max = LIMIT_QUEUED_REQUESTS;
    if (out->n_slots > LIMIT_SEQUENCES)
        return error_set(err, ERROR_INVALID, "%u sequences at once; the limit is %d", out->n_slots,
                         LIMIT_SEQUENCES);
    if (out->context > LIMIT_CONTEXT)
        return error_set(err, ERROR_INVALID, "a context of %u tokens; the limit is %d",
                         out->context, LIMIT_CONTEXT);
    if (given->cells > LIMIT_POOL_CELLS)
        return error_set(err, ERROR_INVALID, "%u cells; the limit is %d", given->cells,
                         LIMIT_POOL_CELLS);
    if (out->batch_rows > LIMIT_BATCH_ROWS)
        return error_set(err, ERROR_INVALID, "a batch of %u rows; the limit is %d", out->batch_rows,
                         LIMIT_BATCH_ROWS);
    if (h->reads_whole && driver_options_fit_whole(out, err))
        return err->code;
    if (!hyperparameters_has_states(h) || out->no_prefix_reuse || out->no_checkpoints)
        out->checkpoints = 0;
    else if (!out->checkpoints)
        out->checkpoints = usual_checkpoints(model, out->n_slots);
    if (out->checkpoints > LIMIT_CHECKPOINTS)
        return error_set(err, ERROR_INVALID, "%u checkpoints; the limit is %d", out->checkpoints,
                         LIMIT_CHECKPOINTS);
    if (out->cells)
        out->cells = kv_cells(out->cells);
    if (out->cells && out->cells < kv_cells(out->context))
        return error_set(err, ERROR_INVALID,
                         "%u cells; one sequence of the context takes %u: more --cells, or "
                         "a shorter --context",
                         given->cells, kv_cells(out->context));
    uint64_t rows = (uint64_t)out->n_slots * out->context;
    if (rows < out->batch_rows) /* more can never come together */
        out->batch_rows = (uint32_t)rows;
    return ERROR_NONE;
}

enum error_code driver_check_context(const struct model *model, uint32_t context, struct error *err)
{
    const uint32_t reach = model_hyperparameters(model)->n_context_train;
    if (context <= reach)
        return ERROR_NONE;
    return error_set(
        err, ERROR_INVALID,
        "a context of %u tokens; the model reaches %u: ask for no more (-c %u), or stretch it "
        "with --rope-scaling yarn --rope-scale %u, which answers worse",
        context, reach, reach, (context + reach - 1) / reach);
}
