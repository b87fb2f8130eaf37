/* A stage: a run of consecutive layers of a model on one device, with its KV cache.
 *
 * The first stage takes token ids, the others hidden rows (f32, row major): a hidden state, and in
 * families whose layers take more than that, what it carries beside (graph_carried.c).
 * The last gives logits (f32, n_outputs x n_vocab) or, for embeddings, the normed hidden
 * states; the others hidden states. A stage knows nothing of other stages.
 *
 * Layers with a recurrence keep a state (recurrent_state.h) with the same life as the KV cache.
 *
 * KV cache: `n_slots` slots of `context` tokens, allocated when the stage opens, or a pool that
 * they share. A slot holds one sequence from position 0 on, without gaps: the rows of a batch must
 * continue it.
 *
 * Memory is computed before anything is allocated (stage_measure), and what it says is what
 * stage_open() takes.
 *
 * Threading: one thread at a time, the device's own (gpu.h, device_submit). */
#pragma once

#include "base/error.h"
#include "model/picture.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct device;
struct model;
struct stage;

enum kv_type { KV_F16, KV_F32, KV_Q8_0, KV_Q4_0, KV_TYPES };
enum flash_mode { FLASH_AUTO, FLASH_ON, FLASH_OFF }; /* auto: on where the device has it */

/* Of so many cached values, whole blocks of the type. */
uint64_t kv_type_bytes(enum kv_type type, uint64_t n_values);

struct stage_options {
    uint32_t first_layer;
    uint32_t n_layers;
    uint32_t n_slots;     /* sequences at once */
    uint32_t context;     /* tokens per slot */
    uint32_t cells;       /* tokens of all slots together, rounded up to 256: a pool (kv_map.h); at
                             least a context. 0: each slot has its own */
    uint32_t rows_max;    /* rows of one batch */
    uint32_t checkpoints; /* places for states that are kept in host memory (state_checkpoint.h) */
    enum kv_type kv_type;
    enum flash_mode flash;
    bool no_repack;       /* keep the CPU's weights as stored: slower, for comparisons */
    uint64_t weights_max; /* bytes of the device that weights may take; 0: all. Layers beyond that
                             are read from the file for every batch (weight_stream.h) */
    int precision;        /* enum ggml_type of the matrices where that is smaller than the file's
                             (model/model_precision.h); 0: as stored. Excludes streaming */
    const _Atomic bool *stop; /* once it is set, loading ends with ERROR_CANCELLED after the
                                 tensors under way, one a thread. NULL: never */
};

struct stage_memory { /* bytes on the device */
    uint64_t weights;
    uint64_t kv;
    uint64_t compute;
    uint64_t host; /* host memory beside, for a device that is not the host */
};

/* Whether slots can share cells on the device (`cells`): its attention is Medley's own, or it can
 * copy them side by side. */
bool stage_has_pool(struct device *device, enum flash_mode flash);

/* What stage_open() would take; allocates nothing on the device. */
enum error_code stage_measure(struct device *device, const struct model *model,
                              const struct stage_options *options, struct stage_memory *out,
                              struct error *err);

/* Loads the layers. ERROR_NO_MEMORY says what is needed, what is free and what would fit. */
enum error_code stage_open(struct device *device, const struct model *model,
                           const struct stage_options *options, struct stage **out,
                           struct error *err);
void stage_close(struct stage *stage);

/* The weights of some of its layers stay loaded when it is closed, for the next stage that uses
 * them on this device, while its model is open. Any thread. NULL: no memory. */
struct stage_pin;
struct stage_pin *stage_pin(const struct stage *stage, uint32_t first_layer, uint32_t n_layers);
void stage_unpin(struct stage_pin *pin); /* NULL is fine */

/* How layers that are not in memory come in. */
struct stage_streaming {
    uint32_t n_layers;  /* 0: none is streamed */
    uint64_t bytes;     /* read for every batch */
    uint64_t disk_bps;  /* as measured when it was opened; 0: too little to measure */
    bool is_direct;     /* past the page cache */
    uint64_t n_read;    /* bytes so far */
    uint64_t waited_ns; /* that batches waited for the disk so far */
};
struct stage_streaming stage_streaming(const struct stage *stage);

struct stage_memory stage_memory(const struct stage *stage);
bool stage_is_last(const struct stage *stage);
/* Whether a row's output has the same bits alone and beside any others, of its own sequence too:
 * our attention and products, and ggml's where tests/unit/test_same_bits.c compares them. False
 * where that is not known: on GPUs, with ggml's own attention, BLAS, AMX or other types of weights,
 * and on processors where ggml multiplies quantised weights. */
bool stage_has_stable_bits(const struct stage *stage);
/* A text's rows must come in one batch, from its first on: each sees those behind it. */
bool stage_reads_whole(const struct stage *stage);
/* Floats of a picture's row, unscaled; 0: the stage takes none, for its model does not, or another
 * stage has the layers that do. */
uint32_t stage_given_width(const struct stage *stage);
uint32_t stage_width(const struct stage *stage);        /* floats of one hidden row */
uint32_t stage_vector_width(const struct stage *stage); /* n_embd: of an embedding */
uint32_t
stage_output_width(const struct stage *stage); /* floats of one output row: n_vocab on the last */

struct batch_row {
    uint32_t slot;
    uint32_t position; /* in its sequence, from 0 */
    int32_t token;     /* used by the first stage */
    bool output;       /* the last stage gives this row's output */
};

/* How a row differs from text; zeroed: not at all. */
struct row_place {
    uint32_t ahead;     /* rows behind it in its batch, of its slot, that it sees, too; they all see
                           as far as the last of them */
    uint32_t behind[3]; /* on each axis (time, height, width) the position by which it is turned is
                           so much smaller than `position` */
};

/* Rows of one slot stand together, in order of position, and the first of them is at the
 * slot's present length. Any mix of prompt chunks and single decode rows is fine. */
struct batch {
    const struct batch_row *rows;
    uint32_t n_rows;
    bool embeddings; /* the last stage gives normed hidden states instead of logits */
    /* Rows whose token is PICTURE_TOKEN_FIRST or beyond have these values in place of an embedding,
     * stage_given_width() each, in the order of the rows. NULL for a stage that takes none. */
    const float *given;
    const struct row_place *places; /* [n_rows]; NULL: all is text */
    /* Optional: whether the batch is wanted no more. Asked before it begins, and then at each safe
     * point: between two operations on the CPU, a hundredth or less of a long batch; where layers
     * are streamed, between two layers; what a GPU has begun goes to the end of its graph. On the
     * thread of stage_forward(). */
    bool (*stops)(void *arg);
    void *stops_arg;
};
static inline bool batch_stops(const struct batch *batch)
{
    return batch->stops && batch->stops(batch->stops_arg);
}
/* Its rows that are a picture's. */
static inline uint32_t batch_given_count(const struct batch *batch)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < batch->n_rows; i++)
        count += batch->rows[i].token >= PICTURE_TOKEN_FIRST;
    return count;
}
uint32_t batch_output_count(const struct batch *batch);

/* Computes the batch. `in`: hidden rows, NULL for the first stage. `out`: room for n_rows x
 * stage_width() floats, or on the last stage batch_output_count() x stage_output_width()
 * (x stage_vector_width() for embeddings); NULL when there is nothing to give. On failure the slots
 * keep their length; those of a stage with recurrent layers are empty then, unless nothing was
 * computed yet (stage_kv_length() tells). Cells beyond the length may hold anything, and are
 * written before they are read. ERROR_NO_MEMORY also when a pool has no cells left.
 * ERROR_CANCELLED: `stops` said so. */
enum error_code stage_forward(struct stage *stage, const struct batch *batch, const float *in,
                              float *out, struct error *err);

/* ---- KV cache, by slot ----
 * Windowed layers keep a ring: the window and rows_max rows more (kv_window_cells()). A slot that
 * is cut off further back than that cannot go on: stage_forward() refuses, and it is to be emptied.
 */
uint32_t stage_kv_length(const struct stage *stage, uint32_t slot);
void stage_kv_truncate(
    struct stage *stage, uint32_t slot,
    uint32_t length); /* no-op when already shorter; 0 frees the sequence. A stage
                         with recurrent layers cannot cut: the slot is empty */
/* Where slots share cells in host memory: what of it no slot has goes back to the system; it is
 * taken again as slots grow, without a check that there is memory. On a device with memory of its
 * own (stage_kv_moves()): what was not used of late goes to host memory, and comes back with the
 * same bits when a batch needs it (kv_away.h). The bytes that are free then. */
uint64_t stage_kv_give_back(struct stage *stage);
bool stage_kv_moves(const struct stage *stage);
/* All of it is the device's again. False: there is too little memory for that, or no
 * stage_kv_moves().
 */
bool stage_kv_take_back(struct stage *stage);
uint64_t stage_kv_bytes_away(const struct stage *stage);         /* in host memory */
bool stage_kv_is_away(const struct stage *stage, uint32_t slot); /* a part of it is there */
/* With recurrent layers `length` must be all that `from` has. */
enum error_code stage_kv_copy(struct stage *stage, uint32_t from, uint32_t to, uint32_t length,
                              struct error *err);

/* A slot's states at its present length are kept, and a slot goes on from there later
 * (state_checkpoint.h). Of a stage without states, the keys and values alone are cut or copied. */
struct stage_checkpoint {
    uint32_t index, id; /* of the place; of what is kept there, never 0 */
    uint32_t length;    /* tokens that it is of */
};
/* Nothing is kept where the slot has another length, or there is no memory. */
void stage_checkpoint_keep(struct stage *stage, uint32_t slot,
                           const struct stage_checkpoint *checkpoint);
/* Slot `to` has the first tokens of slot `from`, which may be itself, and their states.
 * ERROR_NOT_FOUND: that is not kept here; all stays as it is. */
enum error_code stage_checkpoint_take(struct stage *stage, uint32_t from, uint32_t to,
                                      const struct stage_checkpoint *checkpoint, struct error *err);
/* All of them go; the bytes that are free then. */
uint64_t stage_checkpoints_drop(struct stage *stage);

/* Cells of one layer of a slot, exactly as they are: K rows, then V rows, then an indexer's keys.
 * Writing leaves the slot's
 * length as it is, which stage_kv_set_length() then sets for all layers at once. Of windowed layers
 * the rows from kv_window_start() on are enough, and those before may be gone: to read them is an
 * error.
 *
 * Of a layer with a recurrence, rows are pieces of its packed state (recurrent_state.h),
 * kv_state_rows() of them, the first one first. They say how many tokens they are of, and a slot's
 * length can be set to that alone. */
struct kv_run {
    uint32_t layer; /* of the model */
    uint32_t slot, first, n_rows;
};
enum {
    RECURRENT_HEAD_BYTES = 24, /* before a packed state */
    KV_STATE_ROW_BYTES = 64,   /* of a row, where no layer has wider ones */
};
/* K and V of one cell of the widest layer of the stage; where the model has states, or layers that
 * see another's, of the model, so that rows are as long on every stage. Never 0. */
uint64_t stage_kv_row_bytes(const struct stage *stage);
static inline uint64_t kv_state_rows(uint64_t state_bytes, uint64_t row_bytes)
{
    return (RECURRENT_HEAD_BYTES + state_bytes + row_bytes - 1) / row_bytes;
}
enum error_code stage_kv_read(const struct stage *stage, const struct kv_run *run, void *out,
                              struct error *err);
enum error_code stage_kv_write(struct stage *stage, const struct kv_run *run, const void *in,
                               struct error *err);
enum error_code stage_kv_set_length(struct stage *stage, uint32_t slot, uint32_t length,
                                    struct error *err);
