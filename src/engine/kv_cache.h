/* The KV cache of one stage: for each layer K and V of every slot, allocated when it opens.
 *
 * Layout: one tensor each for K and V per layer, [row width, cells x n_slots]; cell p of slot
 * s is row s * cells + p, so that a sequence is contiguous and a batch's new rows are
 * written by one set_rows. A slot's cells beyond its length hold old values that no mask lets
 * in.
 *
 * Or, with stage_options.cells: a pool, [row width, cells], of which slots have extents
 * (kv_map.h). Our own attention reads those; for ggml's they are brought side by side where they
 * are not (kv_gather.h).
 *
 * Layers with summaries of n tokens keep what a window needs like windowed ones, and each summary
 * beside, in the n cells of its tokens: so many values in each that the n have room for it.
 *
 * Windowed layers have fewer cells a slot, n <= cells (kv_window_cells()): position p is row
 * s * n + p % n, over what was n positions before. `starts` says from which position on they have a
 * slot's rows. */
#pragma once

#include "base/error.h"
#include "engine/kv_map.h"
#include "engine/stage.h"
#include "model/architecture.h"

#include <ggml-backend.h>
#include <ggml.h>

struct kv_away;

struct kv_cache {
    struct ggml_context *context, *pool; /* pool: tensors whose cells slots share */
    ggml_backend_buffer_t buffer, pool_buffer;
    ggml_backend_buffer_type_t type;
    enum ggml_type ggml_type;
    bool v_in_k;
    uint32_t index_dim;
    const struct hyperparameters *summarised; /* kv_heads.summaries */
    struct ggml_tensor **k;                   /* [n_layers] */
    struct ggml_tensor **v; /* [n_layers]; each NULL where a value is the beginning of its key */
    struct ggml_tensor **index; /* [n_layers]: an indexer's keys, [dim, cells]; or NULL. Of a layer
                                   with summaries: those of summaries, [summary_width(), cells] */
    struct ggml_tensor **summaries; /* [n_layers]: [summary_width(), cells]; or NULL */
    struct ggml_tensor **drafts;    /* [n_layers]: F32, what summaries are made of; or NULL */
    uint32_t *sources; /* [n_layers]: whose cache the layer sees: its own, or an earlier one's,
                          and then it has none */
    const struct layer_form *layers; /* [n_layers] */
    uint32_t n_layers, n_slots, cells;
    uint64_t row_bytes;   /* of a row that is read or written: the widest layer's at least */
    struct kv_map map;    /* of a pool; zeroed: each slot has its cells to itself */
    void *spare;          /* of a pool: room for an extent of a layer */
    bool *is_given;       /* of a pool, [n_extents]: the system has its pages */
    struct kv_away *away; /* of a pool in memory of the device's own; else NULL */
    uint32_t window, window_cells; /* of the model's windowed layers; 0 and `cells`: it has none */
    uint32_t *lengths;             /* [n_slots] */
    uint32_t *starts;              /* [n_slots]: the first position that windowed layers have */
};

enum ggml_type kv_ggml_type(enum kv_type type);

/* Of a cell of a layer, in the order of its bytes. */
enum { KV_PART_K, KV_PART_V, KV_PART_INDEX, KV_PART_SUMMARIES, KV_PART_DRAFTS, KV_PARTS };
struct ggml_tensor *kv_cache_part(const struct kv_cache *kv, uint32_t layer,
                                  int part); /* NULL: the layer has none */

struct kv_heads {
    const struct layer_form *layers; /* [n_layers of the stage] */
    uint32_t window;
    uint32_t index_dim;                      /* of an indexer's key */
    bool v_in_k;                             /* latent attention */
    uint64_t row_bytes_min;                  /* kv_cache.row_bytes */
    const struct hyperparameters *summaries; /* of layers with summaries; NULL: there are none */
};

/* ERROR_UNSUPPORTED when a head is not whole blocks of a quantised cache type. */
enum error_code kv_cache_declare(struct kv_cache *kv, ggml_backend_buffer_type_t type,
                                 struct kv_heads heads, const struct stage_options *options,
                                 struct error *err);
uint64_t kv_cache_bytes(const struct kv_cache *kv);
enum error_code kv_cache_alloc(struct kv_cache *kv, struct error *err);
void kv_cache_deinit(struct kv_cache *kv);

/* What one more token of context takes, in all slots; in a pool, what one more cell takes. */
uint64_t kv_cache_bytes_per_cell(const struct kv_cache *kv);

bool kv_cache_is_pool(const struct kv_cache *kv);
uint64_t kv_cache_pool_bytes(const struct kv_cache *kv); /* of all its extents */
/* The layer keeps a window of each slot, but for its summaries. */
bool kv_cache_is_ring(const struct kv_cache *kv, uint32_t layer);
bool kv_cache_part_is_ring(const struct kv_cache *kv, uint32_t layer, int part);
/* Where the slot's row of this position is on the device, in parts that are no rings. */
uint32_t kv_cache_cell(const struct kv_cache *kv, uint32_t slot, uint32_t position);
/* Gives the slot the extents for positions `first` to `end` - 1, and they are on the device.
 * ERROR_NO_MEMORY: the pool has too few, or the device no memory for them. Without a pool there is
 * nothing to do, here and in kv_cache_cut(). */
enum error_code kv_cache_claim(struct kv_cache *kv, uint32_t slot, uint32_t first, uint32_t end,
                               struct error *err);
/* The slot has no more than its present length. */
void kv_cache_cut(struct kv_cache *kv, uint32_t slot);
/* For kv_away.h: a pool's tensors anew, with memory for so many extents. False: there is none. */
bool kv_cache_alloc_pool(struct kv_cache *kv, uint32_t n_extents);
/* Of a pool in host memory: the pages of unused extents go back to the system, which fills them
 * with zeros when they are used again. The bytes. */
uint64_t kv_cache_give_back(struct kv_cache *kv);
/* The first position of the slot that the layer has; 0 where a part of it has all. */
uint32_t kv_cache_layer_start(const struct kv_cache *kv, uint32_t layer, uint32_t slot);
/* The slot's rows up to `end` - 1 are about to be written; 0: it is emptied. */
void kv_cache_advance(struct kv_cache *kv, uint32_t slot, uint32_t end);
/* Whether windowed layers have what the next token sees. */
bool kv_cache_can_go_on(const struct kv_cache *kv, uint32_t slot);

/* Cells of one layer, counted from this cache's first, as bytes: K rows, then V rows, then an
 * indexer's, then summaries and what they are made of, then zeros where other layers have wider
 * rows. What a windowed layer would have written over is not written, and what it has written over
 * is read as something else: runs are written in order of position. Of a layer that sees another's:
 * that one's, or the copy here. */
void kv_cache_read(const struct kv_cache *kv, uint32_t layer, const struct kv_run *run, void *out);
void kv_cache_write(struct kv_cache *kv, uint32_t layer, const struct kv_run *run, const void *in);
/* Positions 0 .. length - 1 of a slot; of windowed layers all that they have. In a pool, whole
 * extents are shared. */
enum error_code kv_cache_copy(struct kv_cache *kv, uint32_t from, uint32_t to, uint32_t length,
                              struct error *err);
