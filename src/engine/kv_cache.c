#include "engine/kv_cache.h"

#include "base/mem.h"
#include "engine/batch_shape.h"
#include "engine/kv_away.h"
#include "engine/weights_load.h"

#include <assert.h>
#include <ggml-alloc.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum ggml_type kv_ggml_type(enum kv_type type)
{
    switch (type) {
    case KV_F16:
        return GGML_TYPE_F16;
    case KV_F32:
        return GGML_TYPE_F32;
    case KV_Q8_0:
        return GGML_TYPE_Q8_0;
    case KV_Q4_0:
        return GGML_TYPE_Q4_0;
    case KV_TYPES:
        break;
    }
    return GGML_TYPE_F16;
}

bool kv_cache_is_pool(const struct kv_cache *kv)
{
    return kv->map.n_extents > 0;
}

bool kv_cache_is_ring(const struct kv_cache *kv, uint32_t layer)
{
    return kv->layers[layer].is_windowed && kv->window_cells < kv->cells;
}

bool kv_cache_part_is_ring(const struct kv_cache *kv, uint32_t layer, int part)
{
    const bool is_whole =
        kv->layers[layer].summary && (part == KV_PART_INDEX || part == KV_PART_SUMMARIES);
    return kv_cache_is_ring(kv, layer) && !is_whole;
}

static bool kv_is_shared(const struct kv_cache *kv, uint32_t layer, int part)
{
    return kv_cache_is_pool(kv) && !kv_cache_part_is_ring(kv, layer, part);
}

static struct ggml_tensor **kv_part_of(const struct kv_cache *kv, uint32_t layer, int part)
{
    struct ggml_tensor **const parts[KV_PARTS] = {kv->k, kv->v, kv->index, kv->summaries,
                                                  kv->drafts};
    return &parts[part][layer];
}

/* Values of a cell; 0: the layer has no such part. */
static int64_t kv_part_width(const struct kv_cache *kv, uint32_t layer, int part)
{
    const struct layer_form *form = &kv->layers[layer];
    /* it keeps a state instead (recurrent_state.h), or nothing, or sees another's */
    if (!form->n_head_kv || kv->sources[layer] != layer)
        return 0;
    switch (part) {
    case KV_PART_K:
        return (int64_t)form->n_head_kv * form->dim_k;
    case KV_PART_V:
        return kv->v_in_k ? 0 : (int64_t)form->n_head_kv * form->dim_v;
    case KV_PART_INDEX:
        return !form->has_indexer ? 0
               : form->summary    ? summary_width(form->summary, kv->index_dim)
                                  : kv->index_dim;
    case KV_PART_SUMMARIES:
        return form->summary ? summary_width(form->summary, form->dim_k) : 0;
    default:
        return form->summary ? hyperparameters_draft_values(kv->summarised, form) : 0;
    }
}

/* Of all slots; `shared`: the parts whose cells are a pool's, of so many extents. */
static void kv_declare_layers(struct kv_cache *kv, struct ggml_context *context, bool shared,
                              uint32_t n_extents)
{
    static const char *const names[KV_PARTS] = {"k", "v", "index", "summaries", "drafts"};
    for (uint32_t i = 0; i < kv->n_layers; i++) {
        for (int part = 0; part < KV_PARTS; part++) {
            const int64_t width = kv_part_width(kv, i, part);
            const int64_t n_cells = shared ? (int64_t)n_extents * KV_PADDING
                                    : kv_cache_part_is_ring(kv, i, part)
                                        ? (int64_t)kv->window_cells * kv->n_slots
                                        : (int64_t)kv->cells * kv->n_slots;
            if (!width || kv_is_shared(kv, i, part) != shared)
                continue;
            const enum ggml_type type = part == KV_PART_DRAFTS ? GGML_TYPE_F32 : kv->ggml_type;
            struct ggml_tensor *rows = ggml_new_tensor_2d(context, type, width, n_cells);
            ggml_format_name(rows, "kv_%s.%u", names[part], i);
            *kv_part_of(kv, i, part) = rows;
        }
    }
}

static struct ggml_context *kv_context(const struct kv_cache *kv)
{
    return ggml_init((struct ggml_init_params){
        .mem_size = KV_PARTS * (size_t)kv->n_layers * ggml_tensor_overhead(), .no_alloc = true});
}

static size_t kv_row_bytes(const struct ggml_tensor *rows) /* NULL: none */
{
    return rows ? rows->nb[1] : 0;
}

struct ggml_tensor *kv_cache_part(const struct kv_cache *kv, uint32_t layer, int part)
{
    return *kv_part_of(kv, layer, part);
}

static uint64_t kv_layer_row_bytes(const struct kv_cache *kv, uint32_t layer)
{
    uint64_t bytes = 0;
    for (int part = 0; part < KV_PARTS; part++)
        bytes += kv_row_bytes(kv_cache_part(kv, layer, part));
    return bytes;
}

/* All that one cell has of the layer that has most of them. */
static uint64_t kv_widest_row(const struct kv_cache *kv)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < kv->n_layers; i++) {
        const uint64_t bytes = kv_layer_row_bytes(kv, i);
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* Of the stage's layers, the first that is the layer whose keys and values layer `i` sees, or that
 * sees them, too: where they come from another stage, it has a copy. */
static uint32_t kv_source(const struct layer_form *layers, uint32_t first_layer, uint32_t i)
{
    const uint32_t seen = layers[i].kv_layer;
    for (uint32_t k = 0; k < i; k++) {
        if (first_layer + k == seen || layers[k].kv_layer == seen)
            return k;
    }
    return i;
}

enum error_code kv_cache_declare(struct kv_cache *kv, ggml_backend_buffer_type_t type,
                                 struct kv_heads heads, const struct stage_options *options,
                                 struct error *err)
{
    enum ggml_type ggml_type = kv_ggml_type(options->kv_type);
    int64_t block = ggml_blck_size(ggml_type);
    if (heads.summaries && block > 1)
        return error_set(err, ERROR_UNSUPPORTED,
                         "summaries of tokens cannot be kept in a %s KV cache; use --kv f16",
                         ggml_type_name(ggml_type));
    for (uint32_t i = 0; i < options->n_layers; i++) {
        const struct layer_form *form = &heads.layers[i];
        if (form->dim_k % block == 0 && form->dim_v % block == 0 && heads.index_dim % block == 0)
            continue;
        return error_set(err, ERROR_UNSUPPORTED,
                         "a %s KV cache needs heads of a multiple of %lld values, and this model's "
                         "have %u (K) and %u (V); use --kv f16",
                         ggml_type_name(ggml_type), (long long)block, form->dim_k, form->dim_v);
    }
    *kv = (struct kv_cache){.type = type,
                            .n_layers = options->n_layers,
                            .n_slots = options->n_slots,
                            .cells = kv_cells(options->context)};
    kv->layers = heads.layers;
    kv->ggml_type = ggml_type;
    kv->v_in_k = heads.v_in_k;
    kv->index_dim = heads.index_dim;
    kv->summarised = heads.summaries;
    kv->window_cells = kv_window_cells(heads.window, options->rows_max, options->context);
    kv->window = heads.window;
    kv->k = mem_new_array(kv->n_layers, sizeof *kv->k);
    kv->v = mem_new_array(kv->n_layers, sizeof *kv->v);
    kv->index = mem_new_array(kv->n_layers, sizeof *kv->index);
    kv->summaries = mem_new_array(kv->n_layers, sizeof *kv->summaries);
    kv->drafts = mem_new_array(kv->n_layers, sizeof *kv->drafts);
    kv->sources = mem_new_array(kv->n_layers, sizeof *kv->sources);
    kv->lengths = mem_new_array(kv->n_slots, sizeof *kv->lengths);
    kv->starts = mem_new_array(kv->n_slots, sizeof *kv->starts);
    if (!kv->k || !kv->v || !kv->index || !kv->summaries || !kv->drafts || !kv->sources ||
        !kv->lengths || !kv->starts) {
        kv_cache_deinit(kv);
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the KV cache's index");
    }
    if (options->cells) {
        enum error_code code =
            kv_map_init(&kv->map, kv->n_slots, options->context, kv_cells(options->cells), err);
        if (!code && !(kv->is_given = mem_new_array(kv->map.n_extents, sizeof *kv->is_given)))
            code = error_set(err, ERROR_NO_MEMORY, "not enough memory for the KV cache's index");
        if (code) {
            kv_cache_deinit(kv);
            return code;
        }
    }
    for (uint32_t i = 0; i < kv->n_layers; i++)
        kv->sources[i] = kv_source(heads.layers, options->first_layer, i);
    kv->context = kv_context(kv);
    kv->pool = kv_context(kv);
    kv_declare_layers(kv, kv->context, false, 0);
    kv_declare_layers(kv, kv->pool, true, kv->map.n_extents);
    kv->row_bytes = kv_widest_row(kv);
    if (kv->row_bytes < heads.row_bytes_min)
        kv->row_bytes = heads.row_bytes_min;
    if (!kv->row_bytes) /* its layers keep nothing */
        kv->row_bytes = KV_STATE_ROW_BYTES;
    return ERROR_NONE;
}

static uint64_t kv_context_bytes(const struct kv_cache *kv, struct ggml_context *context)
{
    return ggml_get_first_tensor(context)
               ? ggml_backend_alloc_ctx_tensors_from_buft_size(context, kv->type)
               : 0;
}

uint64_t kv_cache_bytes(const struct kv_cache *kv)
{
    return kv_context_bytes(kv, kv->context) + kv_context_bytes(kv, kv->pool);
}

/* False: no memory. */
static bool kv_alloc_context(const struct kv_cache *kv, struct ggml_context *context,
                             ggml_backend_buffer_t *buffer)
{
    if (!ggml_get_first_tensor(context))
        return true;
    *buffer = ggml_backend_alloc_ctx_tensors_from_buft(context, kv->type);
    if (!*buffer)
        return false;
    /* masked cells are multiplied by zero, and zero times a stray NaN would not be zero */
    weights_clear(*buffer);
    /* Sequences beside each other come to a new page each in every layer, all of them in the same
     * token. One alone is rather not kept waiting, at its start, for pages of 2 MiB to be zeros. */
    if (kv->n_slots > 1)
        weights_advise_large_pages(*buffer);
    return true;
}

enum error_code kv_cache_alloc(struct kv_cache *kv, struct error *err)
{
    if (!kv_alloc_context(kv, kv->context, &kv->buffer) ||
        !kv_alloc_context(kv, kv->pool, &kv->pool_buffer))
        return error_set(err, ERROR_NO_MEMORY,
                         "not enough memory for a KV cache of %u slots of %u tokens", kv->n_slots,
                         kv->cells);
    if (kv_cache_is_pool(kv) && !(kv->spare = mem_new(KV_PADDING * kv->row_bytes)))
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for an extent of a KV cache");
    return kv->pool_buffer && !ggml_backend_buffer_is_host(kv->pool_buffer) ? kv_away_init(kv, err)
                                                                            : ERROR_NONE;
}

bool kv_cache_alloc_pool(struct kv_cache *kv, uint32_t n_extents)
{
    ggml_backend_buffer_free(kv->pool_buffer);
    kv->pool_buffer = NULL;
    ggml_free(kv->pool);
    kv->pool = kv_context(kv);
    kv_declare_layers(kv, kv->pool, true, n_extents);
    return kv_alloc_context(kv, kv->pool, &kv->pool_buffer);
}

void kv_cache_deinit(struct kv_cache *kv)
{
    if (!kv)
        return;
    kv_away_deinit(kv);
    ggml_backend_buffer_free(kv->buffer);
    ggml_backend_buffer_free(kv->pool_buffer);
    ggml_free(kv->context);
    ggml_free(kv->pool);
    mem_free(kv->k);
    mem_free(kv->v);
    mem_free(kv->index);
    mem_free(kv->summaries);
    mem_free(kv->drafts);
    mem_free(kv->sources);
    mem_free(kv->lengths);
    mem_free(kv->starts);
    mem_free(kv->spare);
    mem_free(kv->is_given);
    kv_map_deinit(&kv->map);
    *kv = (struct kv_cache){0};
}

uint64_t kv_cache_pool_bytes(const struct kv_cache *kv)
{
    return kv_cache_is_pool(kv)
               ? (uint64_t)kv->map.n_extents * KV_PADDING * kv_cache_bytes_per_cell(kv)
               : 0;
}

uint64_t kv_cache_bytes_per_cell(const struct kv_cache *kv)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < kv->n_layers; i++) {
        for (int part = 0; part < KV_PARTS; part++) {
            if (!kv_cache_part_is_ring(kv, i, part))
                bytes += kv_row_bytes(kv_cache_part(kv, i, part));
        }
    }
    return kv_cache_is_pool(kv) ? bytes : bytes * kv->n_slots;
}

uint32_t kv_cache_layer_start(const struct kv_cache *kv, uint32_t layer, uint32_t slot)
{
    return kv_cache_is_ring(kv, layer) && !kv->layers[layer].summary ? kv->starts[slot] : 0;
}

void kv_cache_advance(struct kv_cache *kv, uint32_t slot, uint32_t end)
{
    const uint32_t start = end > kv->window_cells ? end - kv->window_cells : 0;
    if (!end || start > kv->starts[slot])
        kv->starts[slot] = start;
}

bool kv_cache_can_go_on(const struct kv_cache *kv, uint32_t slot)
{
    const uint32_t length = kv->lengths[slot];
    return kv->starts[slot] <= (length ? kv_window_start(kv->window, length + 1) : 0);
}

/* ---- rows --------------------------------------------------------------------------------- */

/* Rows of one slot and a layer's part that stand together. */
struct kv_piece {
    size_t cell; /* in the tensor; of a pool that all of which is on the device */
    size_t at;   /* row of the run */
    size_t n;
};

uint32_t kv_cache_cell(const struct kv_cache *kv, uint32_t slot, uint32_t position)
{
    if (!kv_cache_is_pool(kv))
        return slot * kv->cells + position;
    const uint32_t cell = kv_map_cell(&kv->map, slot, position);
    return kv_away_place(kv, cell / KV_PADDING) * KV_PADDING + cell % KV_PADDING;
}

/* The run's rows from `at` on, as far as they stand together: a ring ends somewhere, and so does an
 * extent. */
static struct kv_piece kv_piece_at(const struct kv_cache *kv, uint32_t layer, int part,
                                   const struct kv_run *run, uint32_t at)
{
    const uint32_t position = run->first + at, left = run->n_rows - at;
    const bool ring = kv_cache_part_is_ring(kv, layer, part);
    const uint32_t cells = ring ? kv->window_cells : kv_cache_is_pool(kv) ? KV_PADDING : kv->cells;
    const uint32_t together = cells - position % cells;
    return (struct kv_piece){
        .cell = ring                   ? (size_t)run->slot * cells + position % cells
                : kv_cache_is_pool(kv) ? kv_map_cell(&kv->map, run->slot, position)
                                       : (size_t)run->slot * kv->cells + position,
        .at = at,
        .n = left < together ? left : together,
    };
}

static void kv_rows_get(const struct kv_cache *kv, uint32_t layer, int part, size_t cell, size_t n,
                        void *out)
{
    const struct ggml_tensor *rows = kv_cache_part(kv, layer, part);
    const size_t row = kv_row_bytes(rows);
    if (row && kv_is_shared(kv, layer, part))
        kv_away_get(kv, layer, part, (uint32_t)(cell / KV_PADDING), cell % KV_PADDING, (uint32_t)n,
                    out);
    else if (row)
        ggml_backend_tensor_get(rows, out, cell * row, n * row);
}

static void kv_rows_set(const struct kv_cache *kv, uint32_t layer, int part, size_t cell, size_t n,
                        const void *in)
{
    struct ggml_tensor *rows = kv_cache_part(kv, layer, part);
    const size_t row = kv_row_bytes(rows);
    if (kv_is_shared(kv, layer, part))
        cell = (size_t)kv_away_place(kv, (uint32_t)(cell / KV_PADDING)) * KV_PADDING +
               cell % KV_PADDING;
    if (row)
        ggml_backend_tensor_set(rows, in, cell * row, n * row);
}

/* The run's rows of one part; `out` begins with them. */
static void kv_part_read(const struct kv_cache *kv, uint32_t layer, int part,
                         const struct kv_run *run, char *out)
{
    const size_t row = kv_row_bytes(kv_cache_part(kv, layer, part));
    for (uint32_t at = 0; row && at < run->n_rows;) {
        const struct kv_piece piece = kv_piece_at(kv, layer, part, run, at);
        kv_rows_get(kv, layer, part, piece.cell, piece.n, out + piece.at * row);
        at += (uint32_t)piece.n;
    }
}

static void kv_part_write(struct kv_cache *kv, uint32_t layer, int part, const struct kv_run *run,
                          const char *in)
{
    const size_t row = kv_row_bytes(kv_cache_part(kv, layer, part));
    const uint32_t cells = kv_cache_part_is_ring(kv, layer, part) ? kv->window_cells : kv->cells;
    for (uint32_t at = run->n_rows > cells ? run->n_rows - cells : 0; row && at < run->n_rows;) {
        const struct kv_piece piece = kv_piece_at(kv, layer, part, run, at);
        kv_rows_set(kv, layer, part, piece.cell, piece.n, in + piece.at * row);
        at += (uint32_t)piece.n;
    }
}

void kv_cache_read(const struct kv_cache *kv, uint32_t layer, const struct kv_run *run, void *out)
{
    layer = kv->sources[layer];
    const uint64_t all = kv_layer_row_bytes(kv, layer), n = run->n_rows;
    char *at = out;
    for (int part = 0; part < KV_PARTS; part++) {
        kv_part_read(kv, layer, part, run, at);
        at += n * kv_row_bytes(kv_cache_part(kv, layer, part));
    }
    memset((char *)out + n * all, 0, n * (kv->row_bytes - all));
}

void kv_cache_write(struct kv_cache *kv, uint32_t layer, const struct kv_run *run, const void *in)
{
    layer = kv->sources[layer];
    const char *at = in;
    for (int part = 0; part < KV_PARTS; part++) {
        kv_part_write(kv, layer, part, run, at);
        at += run->n_rows * kv_row_bytes(kv_cache_part(kv, layer, part));
    }
}

/* ---- a pool ------------------------------------------------------------------------------- */

static void kv_copy_extent(struct kv_cache *kv, const struct kv_claim *claim)
{
    for (uint32_t i = 0; i < kv->n_layers && claim->from != claim->to; i++) {
        for (int part = 0; part < KV_PARTS; part++) {
            if (!kv_is_shared(kv, i, part))
                continue;
            kv_rows_get(kv, i, part, (size_t)claim->from * KV_PADDING, KV_PADDING, kv->spare);
            kv_rows_set(kv, i, part, (size_t)claim->to * KV_PADDING, KV_PADDING, kv->spare);
        }
    }
}

enum error_code kv_cache_claim(struct kv_cache *kv, uint32_t slot, uint32_t first, uint32_t end,
                               struct error *err)
{
    struct kv_claim claim;
    const uint32_t held = kv_cache_is_pool(kv) ? kv->map.n_held[slot] : 0;
    if (!kv_cache_is_pool(kv) || first == end)
        return ERROR_NONE;
    if (first > held * KV_PADDING)
        first = held * KV_PADDING;
    const uint32_t n_new = kv_map_need(&kv->map, slot, first, end);
    if (n_new > kv->map.n_unused)
        return error_set(err, ERROR_NO_MEMORY,
                         "the KV cache's %u cells are taken: slot %u has no room for %u tokens",
                         kv->map.n_extents * KV_PADDING, slot, end);
    kv_away_pin(kv, slot, first / KV_PADDING, kv_map_extents(end));
    const enum error_code code = kv_away_reserve(kv, n_new, err);
    if (code)
        return code;
    for (uint32_t i = first / KV_PADDING; i < kv_map_extents(end); i++) {
        const bool is_next = i == kv->map.n_held[slot];
        const bool there = kv_map_claim(&kv->map, slot, i, &claim);
        assert(there); /* as counted */
        kv->is_given[claim.to] = false;
        if (is_next || claim.from != claim.to)
            kv_away_take(kv, claim.to);
        kv_copy_extent(kv, &claim);
    }
    return kv_away_fetch(kv, slot, err);
}

void kv_cache_cut(struct kv_cache *kv, uint32_t slot)
{
    if (kv_cache_is_pool(kv))
        kv_map_cut(&kv->map, slot, kv->lengths[slot]);
}

/* Whole pages of it alone. */
static uint64_t kv_give_cells(struct ggml_tensor *rows, size_t first)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t from = rows ? (uintptr_t)rows->data + first * kv_row_bytes(rows) : 0;
    const uintptr_t start = (from + page - 1) / page * page,
                    end = (from + KV_PADDING * kv_row_bytes(rows)) / page * page;
    return rows && end > start && madvise((void *)start, end - start, MADV_DONTNEED) == 0
               ? end - start
               : 0;
}

uint64_t kv_cache_give_back(struct kv_cache *kv)
{
    const bool can =
        kv_cache_is_pool(kv) && kv->pool_buffer && ggml_backend_buffer_is_host(kv->pool_buffer);
    uint64_t bytes = 0;
    for (uint32_t extent = 0; can && extent < kv->map.n_extents; extent++) {
        if (kv->map.n_refs[extent])
            continue;
        for (uint32_t i = 0; i < kv->n_layers && !kv->is_given[extent]; i++) {
            for (int part = 0; part < KV_PARTS; part++) {
                if (kv_is_shared(kv, i, part))
                    bytes += kv_give_cells(kv_cache_part(kv, i, part), (size_t)extent * KV_PADDING);
            }
        }
        kv->is_given[extent] = true;
    }
    return bytes;
}

/* Whole extents are shared; the first position that is still to be copied. */
static enum error_code kv_cache_share(struct kv_cache *kv, uint32_t from, uint32_t to,
                                      uint32_t length, uint32_t *copied_from, struct error *err)
{
    *copied_from = 0;
    if (!kv_cache_is_pool(kv))
        return ERROR_NONE;
    kv_map_share(&kv->map, from, to, length);
    *copied_from = length / KV_PADDING * KV_PADDING;
    const enum error_code code = kv_cache_claim(kv, to, *copied_from, length, err);
    if (code)
        kv_map_cut(&kv->map, to, 0);
    return code;
}

/* ---- copies of slots ---------------------------------------------------------------------- */

enum error_code kv_cache_copy(struct kv_cache *kv, uint32_t from, uint32_t to, uint32_t length,
                              struct error *err)
{
    uint32_t copied_from;
    void *bytes = mem_new((length ? length : 1) * kv->row_bytes);
    if (!bytes)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory to copy %u tokens of KV cache",
                         length);
    const enum error_code code = kv_cache_share(kv, from, to, length, &copied_from, err);
    for (uint32_t i = 0; i < kv->n_layers && !code; i++) {
        for (int part = 0; part < KV_PARTS; part++) {
            const uint32_t first =
                kv_cache_part_is_ring(kv, i, part) ? kv->starts[from] : copied_from;
            struct kv_run run = {.slot = from, .first = first};
            run.n_rows = length > first ? length - first : 0;
            kv_part_read(kv, i, part, &run, bytes);
            run.slot = to;
            kv_part_write(kv, i, part, &run, bytes);
        }
    }
    if (!code)
        kv->starts[to] = kv->starts[from];
    mem_free(bytes);
    return code;
}
