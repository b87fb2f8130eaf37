/* What a stage is made of; shared by stage.c (running) and stage_open.c (opening). */
#pragma once

#include "engine/graph.h"
#include "engine/kv_cache.h"
#include "engine/recurrent_state.h"
#include "engine/stage.h"
#include "engine/stage_stream.h"
#include "engine/stage_work.h"
#include "engine/state_checkpoint.h"
#include "engine/weights.h"
#include "gpu/thread_choice.h"

#include <ggml-backend.h>

struct stage {
    struct device *device;
    const struct model *model;
    const struct hyperparameters *h;
    struct stage_options options;
    struct stage_weights weights;
    struct kv_cache kv;
    struct recurrent_state state;
    struct state_checkpoints checkpoints;
    struct graph_source source;
    struct graph_attention *attention; /* source.attention, where it is ours */
    ggml_backend_sched_t sched;
    const void *in_large_pages; /* the scheduler's memory that was last advised */
    struct graph graph;         /* of the last batch; reused while the shape stays */
    struct stage_memory memory;
    uint64_t reserved_bytes;
    struct stage_stream_run run; /* of the batch that is computed, … */
    const struct batch *batch;   /* … which is this one */
    struct stage_cost cost;
    struct thread_choice few_threads, many_threads; /* of batches of a few rows, of more */
    bool has_stable_bits;
};

/* Computes has_stable_bits, of a stage that is declared (stage_bits.c). */
bool stage_find_stable_bits(const struct stage *stage);

/* Before a graph is allocated: which of its operations are not computed where the scheduler would
 * put them. */
void stage_assign(const struct stage *stage, struct ggml_cgraph *graph);

/* What a batch that stops is answered: ERROR_CANCELLED. */
enum error_code stage_refuse_stopped(const struct stage *stage, const struct batch *batch,
                                     struct error *err);

/* Its layers take what pictures give: the first, and those after which parts are added. */
bool stage_takes_given(const struct stage *stage);

/* Its slots share cells, and its attention is ggml's, which wants a slot's side by side. */
static inline bool stage_gathers(const struct stage *stage)
{
    return stage->options.cells && !stage->source.attention;
}
