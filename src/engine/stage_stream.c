#include "engine/stage_stream.h"

#include "engine/stage_state.h"
#include "engine/weight_stream.h"

#include <stdlib.h>
#include <string.h>

static bool is_streamed(const struct stage *stage, uint32_t layer)
{
    return layer < stage->weights.n_layers && stage->weights.units[layer]->is_streamed;
}

/* Waits for the layer that is next, where it is streamed and still wanted. */
static void run_take(struct stage *stage)
{
    struct stage_stream_run *run = &stage->run;
    if (!run->code && batch_stops(stage->batch))
        run->code = stage_refuse_stopped(stage, stage->batch, &run->error);
    if (run->code || !is_streamed(stage, run->next))
        return;
    run->code = weight_stream_take(stage->weights.stream, &run->error);
    run->taken += !run->code;
}

static void run_release(struct stage *stage)
{
    if (!stage->run.code && is_streamed(stage, stage->run.next))
        weight_stream_release(stage->weights.stream);
}

/* The index of the layer that ends here; -1: none does. */
static long layer_that_ends(const struct ggml_tensor *node)
{
    const size_t length = sizeof GRAPH_LAYER_END - 1;
    return strncmp(node->name, GRAPH_LAYER_END, length) == 0 ? strtol(node->name + length, NULL, 10)
                                                             : -1;
}

/* ggml_backend_sched_eval_callback: asked before a node is computed whether to stop after it, and
 * told when it was. */
static bool stage_stream_node(struct ggml_tensor *node, bool asks, void *arg)
{
    struct stage *stage = arg;
    struct stage_stream_run *run = &stage->run;
    const long layer = layer_that_ends(node);
    if (layer != (long)run->next || run->next + 1 == stage->weights.n_layers)
        return !asks;
    if (asks && (is_streamed(stage, run->next) || is_streamed(stage, run->next + 1)))
        return true;
    run_release(stage);
    run->next++;
    run_take(stage);
    return !asks && !run->code;
}

void stage_stream_watch(struct stage *stage)
{
    if (stage->weights.stream)
        ggml_backend_sched_set_eval_callback(stage->sched, stage_stream_node, stage);
}

enum error_code stage_stream_begin(struct stage *stage, struct error *err)
{
    struct stage_stream_run *run = &stage->run;
    if (!stage->weights.stream)
        return ERROR_NONE;
    *run = (struct stage_stream_run){0};
    run_take(stage);
    if (run->code) { /* read ahead a while ago, perhaps from a disk that works again: once more */
        weight_stream_end(stage->weights.stream);
        *run = (struct stage_stream_run){0};
        run_take(stage);
    }
    if (!run->code)
        return ERROR_NONE;
    weight_stream_end(stage->weights.stream);
    return error_set(err, run->code, "%s", run->error.text);
}

enum error_code stage_stream_end(struct stage *stage, bool computed, struct error *err)
{
    struct stage_stream_run *run = &stage->run;
    if (!stage->weights.stream)
        return ERROR_NONE;
    if (computed && !run->code && run->taken != stage->weights.n_streamed)
        run->code = error_set(&run->error, ERROR_INTERNAL, "%u of %u streamed layers were computed",
                              run->taken, stage->weights.n_streamed);
    if (computed && !run->code) {
        run_release(stage);
        return ERROR_NONE;
    }
    weight_stream_end(stage->weights.stream);
    return run->code ? error_set(err, run->code, "%s", run->error.text) : ERROR_NONE;
}

struct stage_streaming stage_streaming(const struct stage *stage)
{
    const struct stage_weights *weights = &stage->weights;
    if (!weights->stream)
        return (struct stage_streaming){0};
    const struct weight_stream_facts facts = weight_stream_facts(weights->stream);
    return (struct stage_streaming){.n_layers = weights->n_streamed,
                                    .bytes = facts.bytes,
                                    .disk_bps = facts.disk_bps,
                                    .is_direct = facts.is_direct,
                                    .n_read = facts.n_read,
                                    .waited_ns = facts.waited_ns};
}
