#include "base/log.h"
#include "base/mem.h"
#include "base/size_text.h"
#include "engine/kv_gather.h"
#include "engine/stage_state.h"
#include "engine/weight_unit.h"
#include "gpu/device_ggml.h"
#include "model/model_precision.h"

#include <assert.h>
#include <stdio.h>

enum { BACKENDS_MAX = 8 };

/* Opening goes step by step: declare, measure, load. Nothing is allocated on the device before
 * stage_load(). */

static enum error_code check_options(const struct model *model, const struct stage_options *o,
                                     struct error *err)
{
    uint32_t n_layers = model_hyperparameters(model)->n_layers;
    if (o->n_layers < 1 || o->first_layer >= n_layers || o->n_layers > n_layers - o->first_layer)
        return error_set(err, ERROR_INVALID, "layers %u to %u of a model that has %u",
                         o->first_layer, o->first_layer + o->n_layers - 1, n_layers);
    if (o->n_slots < 1 || o->n_slots > LIMIT_SEQUENCES)
        return error_set(err, ERROR_INVALID, "%u sequences; 1 to %d are possible", o->n_slots,
                         LIMIT_SEQUENCES);
    if (o->context < 1 || o->context > LIMIT_CONTEXT)
        return error_set(err, ERROR_INVALID, "a context of %u tokens; 1 to %d are possible",
                         o->context, LIMIT_CONTEXT);
    const uint32_t most = model_hyperparameters(model)->n_context_max;
    if (most && o->context > most)
        return error_set(err, ERROR_UNSUPPORTED,
                         "a context of %u tokens: this model computes %u at most; use a shorter "
                         "--context",
                         o->context, most);
    if (o->cells && (o->cells < o->context || o->cells > LIMIT_POOL_CELLS))
        return error_set(err, ERROR_INVALID, "%u cells; a context of %u to %d are possible",
                         o->cells, o->context, LIMIT_POOL_CELLS);
    if (o->rows_max < 1 || o->rows_max > LIMIT_BATCH_ROWS)
        return error_set(err, ERROR_INVALID, "batches of %u rows; 1 to %d are possible",
                         o->rows_max, LIMIT_BATCH_ROWS);
    return ERROR_NONE;
}

/* Asks the device whether it has flash attention for this model's heads and this cache. */
static bool has_flash(const struct stage *stage)
{
    const struct hyperparameters *h = stage->h;
    struct ggml_init_params params = {.mem_size = 8 * ggml_tensor_overhead(), .no_alloc = true};
    struct ggml_context *ctx = ggml_init(params);
    enum ggml_type type = kv_ggml_type(stage->options.kv_type);
    struct ggml_tensor *q =
        ggml_new_tensor_4d(ctx, GGML_TYPE_F32, h->n_head_dim_k, 1, h->n_head, 1);
    struct ggml_tensor *k =
        ggml_new_tensor_4d(ctx, type, h->n_head_dim_k, KV_PADDING, h->n_head_kv, 1);
    struct ggml_tensor *v =
        ggml_new_tensor_4d(ctx, type, h->n_head_dim_v, KV_PADDING, h->n_head_kv, 1);
    struct ggml_tensor *mask = ggml_new_tensor_4d(ctx, GGML_TYPE_F16, KV_PADDING, 1, 1, 1);
    struct ggml_tensor *o = ggml_flash_attn_ext(ctx, q, k, v, mask, h->attention_scale,
                                                h->alibi_max, h->attention_softcap);
    bool yes = ggml_backend_dev_supports_op(device_ggml_dev(stage->device), o);
    ggml_free(ctx);
    return yes;
}

static bool has_own_attention(struct device *device, enum flash_mode flash)
{
    return flash != FLASH_OFF && weights_on_host(device);
}

bool stage_has_pool(struct device *device, enum flash_mode flash)
{
    return !device_lacks(device, "cells") &&
           (has_own_attention(device, flash) || kv_gather_is_supported(device_ggml_dev(device)));
}

static enum attention_type attention_type_of(enum kv_type type)
{
    switch (type) {
    case KV_F16:
        return ATTENTION_F16;
    case KV_F32:
        return ATTENTION_F32;
    case KV_Q8_0:
        return ATTENTION_Q8_0;
    case KV_Q4_0:
        return ATTENTION_Q4_0;
    case KV_TYPES:
        break;
    }
    return ATTENTION_F16;
}

static enum error_code set_attention(struct stage *stage, struct error *err)
{
    const struct hyperparameters *h = stage->h;
    stage->attention = mem_new_array(stage->options.n_layers, sizeof *stage->attention);
    if (!stage->attention)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for %u layers' attention",
                         stage->options.n_layers);
    const uint32_t window_cells =
        kv_window_cells(h->window, stage->options.rows_max, stage->options.context);
    const bool is_whole = window_cells == kv_cells(stage->options.context);
    for (uint32_t i = 0; i < stage->options.n_layers; i++) {
        const struct layer_form *form = &h->layers[stage->options.first_layer + i];
        stage->attention[i] = (struct graph_attention){
            .kernel = attention_kernel_best(),
            .n_threads = device_threads(stage->device),
        };
        if (!form->n_head_kv)
            continue;
        stage->attention[i].form = (struct attention_form){
            .n_head = form->n_head,
            .n_head_kv = form->n_head_kv,
            .dim_k = form->dim_k,
            .dim_v = form->dim_v,
            .window = form->is_windowed ? h->window : 0,
            .ring = form->is_windowed && !is_whole ? window_cells : 0,
            .scale = h->attention_scale,
            .softcap = h->attention_softcap,
            .type = attention_type_of(stage->options.kv_type),
        };
        if (stage->options.cells && !stage->attention[i].form.ring)
            stage->attention[i].map = &stage->kv.map;
    }
    stage->source.attention = stage->attention;
    return ERROR_NONE;
}

static enum error_code choose_flash(struct stage *stage, struct error *err)
{
    if (stage->options.cells && !stage_has_pool(stage->device, stage->options.flash))
        return error_set(err, ERROR_UNSUPPORTED,
                         "%s: caches cannot share cells on this device; leave --cells out",
                         device_info(stage->device)->id);
    if (has_own_attention(stage->device, stage->options.flash) && !stage->h->reads_whole &&
        !stage->h->indexer.n_head) {
        stage->source.flash = true;
        return set_attention(stage, err);
    }
    bool has = stage->options.flash != FLASH_OFF && has_flash(stage);
    if (stage->options.flash == FLASH_ON && !has)
        return error_set(
            err, ERROR_UNSUPPORTED,
            "%s has no flash attention for this model with this KV cache; use --flash auto",
            device_info(stage->device)->id);
    stage->source.flash = has;
    return ERROR_NONE;
}

/* Long and short factors of LongRoPE (Ding et al. 2024, arXiv:2402.13753): by the context in
 * use. */
static struct ggml_tensor *rope_factors(const struct stage *stage)
{
    struct ggml_tensor *const *outside = stage->weights.outside;
    if (outside[TENSOR_ROPE_FREQS])
        return outside[TENSOR_ROPE_FREQS];
    bool is_long = stage->options.context > stage->h->n_context_original;
    return outside[is_long ? TENSOR_ROPE_FACTORS_LONG : TENSOR_ROPE_FACTORS_SHORT];
}

/* In order of preference: accelerators (BLAS …) ride with the CPU; what a GPU cannot do falls back
 * to the CPU. */
static uint32_t list_backends(const struct stage *stage, ggml_backend_t out[BACKENDS_MAX])
{
    ggml_backend_t own = device_ggml_backend(stage->device),
                   fallback = device_ggml_fallback(stage->device);
    uint32_t n = 0;
    if (!weights_on_host(stage->device))
        out[n++] = own;
    else
        n = device_ggml_accelerators(stage->device, out, BACKENDS_MAX - 1);
    out[n++] = fallback;
    return n;
}

/* Cells with equal scores (a ReLU makes many of them zero) are chosen in another order by each
 * backend. Where the scores come from the CPU, for want of the operation on the device, the choice
 * stays there: it is the CPU's, and only positions travel. */
void stage_assign(const struct stage *stage, struct ggml_cgraph *graph)
{
    ggml_backend_t own = device_ggml_backend(stage->device);
    for (int i = 0; i < ggml_graph_n_nodes(graph); i++) {
        struct ggml_tensor *node = ggml_graph_node(graph, i), *scores = node->src[0];
        if (node->op == GGML_OP_TOP_K && scores->op == GGML_OP_LIGHTNING_INDEXER &&
            !ggml_backend_supports_op(own, scores))
            ggml_backend_sched_set_tensor_backend(stage->sched, node,
                                                  device_ggml_fallback(stage->device));
    }
}

static enum error_code new_scheduler(struct stage *stage, struct error *err)
{
    ggml_backend_t backends[BACKENDS_MAX];
    uint32_t n_backends = list_backends(stage, backends);
    size_t n_nodes = 64 + (graph_nodes_per_layer(&stage->source) +
                           graph_nodes_per_group(&stage->source) * stage->options.n_slots +
                           2 * (size_t)stage->h->n_experts_used) *
                              stage->options.n_layers;
    stage->sched = ggml_backend_sched_new(backends, NULL, (int)n_backends, n_nodes, false, false);
    return stage->sched
               ? ERROR_NONE
               : error_set(err, ERROR_NO_MEMORY, "not enough memory for the graph scheduler");
}

/* What rows of the cache have at least: see stage_kv_row_bytes(). */
static uint64_t stage_row_bytes_min(const struct stage *stage)
{
    uint64_t most = KV_STATE_ROW_BYTES;
    for (uint32_t i = 0; i < stage->h->n_layers; i++) {
        const struct layer_cost cost = model_layer_cost(stage->model, i);
        const uint64_t n = cost.kv_elements_per_token + cost.kv_elements_windowed;
        const uint64_t bytes = kv_type_bytes(stage->options.kv_type, n) + cost.draft_bytes;
        most = bytes > most ? bytes : most;
    }
    const bool may_lack_the_widest = hyperparameters_has_states(stage->h) ||
                                     hyperparameters_shares_kv(stage->h) ||
                                     stage->h->summaries.is_there;
    return may_lack_the_widest ? most : 0;
}

static enum error_code stage_declare(struct stage *stage, struct error *err)
{
    const struct hyperparameters *h = stage->h;
    stage->source.architecture = model_architecture(stage->model);
    stage->source.hyperparameters = h;
    enum error_code code = choose_flash(stage, err);
    if (!code)
        code = weights_declare(&stage->weights, stage->device, stage->model, &stage->options, err);
    if (!code)
        code = kv_cache_declare(
            &stage->kv, ggml_backend_get_default_buffer_type(device_ggml_backend(stage->device)),
            (struct kv_heads){&h->layers[stage->options.first_layer], h->window, h->indexer.dim,
                              h->is_latent_absorbed || h->summaries.is_there,
                              stage_row_bytes_min(stage), h->summaries.is_there ? h : NULL},
            &stage->options, err);
    if (!code)
        code = recurrent_state_declare(
            &stage->state, ggml_backend_get_default_buffer_type(device_ggml_backend(stage->device)),
            h, &stage->options, err);
    if (!code)
        code = state_checkpoints_init(&stage->checkpoints, &stage->state,
                                      stage->options.checkpoints, err);
    if (!code)
        code = new_scheduler(stage, err);
    stage->source.weights = &stage->weights;
    stage->source.kv = &stage->kv;
    stage->source.state = &stage->state;
    stage->source.products = device_ggml_products(stage->device);
    stage->source.first = stage->options.first_layer == 0;
    stage->source.last = stage->options.first_layer + stage->options.n_layers == h->n_layers;
    if (!code)
        stage->source.rope_factors = rope_factors(stage);
    stage_cost_read(stage->model, &stage->options, &stage->cost);
    stage->has_stable_bits = !code && stage_find_stable_bits(stage);
    return code;
}

enum { WORST_SHAPES = 3 };

/* Batches that need the most compute memory: one long chunk, one that is cut into many groups, and
 * for ggml's attention the most slots at once, each of them full. */
static uint32_t worst_shapes(const struct stage *stage, struct batch_shape shapes[WORST_SHAPES])
{
    uint32_t n_groups = stage->options.n_slots < 4 ? stage->options.n_slots : 4;
    const bool gathers = stage_gathers(stage);
    batch_shape_worst(&stage->options, 1, gathers, &shapes[0]);
    if (stage->h->given_width) {
        shapes[0].n_given = stage_takes_given(stage) ? shapes[0].n_rows : 0;
        shapes[0].sees_ahead = true;
        shapes[0].has_axes = stage->h->rope_axes != AXES_NONE;
    }
    batch_shape_worst(&stage->options, n_groups, gathers, &shapes[1]);
    if (stage->source.attention)
        return 2;
    batch_shape_widest(&stage->options, gathers, &shapes[2]);
    return 3;
}

/* Gives (or takes away) the tensors of a context a buffer without memory, so that a graph can be
 * measured. */
static void set_placeholder(struct ggml_context *context, ggml_backend_buffer_t buffer)
{
    for (struct ggml_tensor *t = ggml_get_first_tensor(context); t;
         t = ggml_get_next_tensor(context, t))
        t->buffer = buffer;
}

/* `sizes`: compute memory by backend, in list_backends()'s order. All of a CPU's backends take host
 * memory. */
static void keep_largest(struct stage *stage, const size_t sizes[BACKENDS_MAX])
{
    uint64_t compute = sizes[0], host = weights_on_host(stage->device) ? 0 : sizes[1];
    for (int i = 1; weights_on_host(stage->device) && i < BACKENDS_MAX; i++)
        compute += sizes[i];
    stage->memory.compute = compute > stage->memory.compute ? compute : stage->memory.compute;
    stage->memory.host = host > stage->memory.host ? host : stage->memory.host;
}

struct placeholders { /* one for each buffer type */
    ggml_backend_buffer_t list[WEIGHT_POOLS_MAX + 3];
    uint32_t n;
};

static ggml_backend_buffer_t placeholder_of(struct placeholders *all,
                                            ggml_backend_buffer_type_t type, bool weights)
{
    for (uint32_t i = 0; i < all->n && weights; i++) {
        if (ggml_backend_buffer_get_type(all->list[i]) == type)
            return all->list[i];
    }
    assert(all->n < WEIGHT_POOLS_MAX + 3);
    ggml_backend_buffer_t buffer = all->list[all->n++] = ggml_backend_buft_alloc_buffer(type, 0);
    if (weights)
        ggml_backend_buffer_set_usage(buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    return buffer;
}

/* What other stages have loaded has its buffers. */
static void set_placeholders(struct stage *stage, struct placeholders *all, bool there)
{
    for (uint32_t i = 0; i < stage->weights.n_units; i++) {
        const struct weight_unit *unit = stage->weights.units[i];
        for (uint32_t k = 0; k < unit->n_pools && !unit->is_loaded; k++)
            set_placeholder(unit->pools[k].context,
                            there ? placeholder_of(all, unit->pools[k].type, true) : NULL);
    }
    set_placeholder(stage->kv.context, there ? placeholder_of(all, stage->kv.type, false) : NULL);
    set_placeholder(stage->kv.pool, there ? placeholder_of(all, stage->kv.type, false) : NULL);
    set_placeholder(stage->state.context,
                    there ? placeholder_of(all, stage->state.type, false) : NULL);
}

static enum error_code measure_compute(struct stage *stage, struct error *err)
{
    struct placeholders placeholders = {.n = 0};
    struct batch_shape shapes[WORST_SHAPES];
    enum error_code code = ERROR_NONE;
    set_placeholders(stage, &placeholders, true);
    const uint32_t n_shapes = worst_shapes(stage, shapes);
    for (uint32_t i = 0; i < n_shapes && !code; i++) {
        struct graph graph;
        size_t sizes[BACKENDS_MAX] = {0};
        code = graph_build(&graph, &stage->source, &shapes[i], err);
        if (code)
            break;
        stage_assign(stage, graph.cgraph);
        ggml_backend_sched_reserve_size(stage->sched, graph.cgraph, sizes);
        ggml_backend_sched_reset(stage->sched);
        graph_deinit(&graph);
        keep_largest(stage, sizes);
    }
    set_placeholders(stage, &placeholders, false);
    for (uint32_t i = 0; i < placeholders.n; i++)
        ggml_backend_buffer_free(placeholders.list[i]);
    return code;
}

static enum error_code stage_measure_graphs(struct stage *stage, struct error *err)
{
    uint64_t host;
    enum error_code code = measure_compute(stage, err);
    if (!code && stage->options.weights_max)
        code = weights_limit(&stage->weights, stage->options.weights_max, err);
    weights_bytes(&stage->weights, false, &stage->memory.weights, &host);
    stage->memory.host += host;
    stage->memory.kv = kv_cache_bytes(&stage->kv) + recurrent_state_bytes(&stage->state);
    *(ggml_backend_buft_is_host(stage->state.type) ? &stage->memory.kv : &stage->memory.host) +=
        state_checkpoints_bytes_max(&stage->checkpoints);
    return code;
}

/* Refuses what does not fit, with the numbers and what would. */
static enum error_code check_fits(const struct stage *stage, struct error *err)
{
    const struct stage_memory *m = &stage->memory;
    const struct stage_options *o = &stage->options;
    struct device_memory now = device_memory(stage->device);
    uint64_t weights, host;
    weights_bytes(&stage->weights, true, &weights, &host);
    uint64_t needed = weights + m->kv + m->compute;
    if (!now.total_bytes || needed <= now.free_bytes)
        return ERROR_NONE;
    char advice[160];
    uint64_t fixed = weights + m->compute;
    uint64_t room = fixed < now.free_bytes ? now.free_bytes - fixed : 0;
    const uint64_t per_cell = kv_cache_bytes_per_cell(&stage->kv),
                   rings = m->kv - per_cell * (o->cells ? kv_cells(o->cells) : stage->kv.cells);
    uint64_t cells =
        per_cell && room > rings ? (room - rings) / per_cell / KV_PADDING * KV_PADDING : 0;
    if (cells) {
        snprintf(advice, sizeof advice,
                 o->cells ? "%llu cells would fit (--cells)"
                          : "a context of %llu tokens would fit (--context, or fewer --slots)",
                 (unsigned long long)cells);
    } else {
        uint64_t per_layer = needed / stage->options.n_layers;
        snprintf(advice, sizeof advice,
                 "about %llu of these %u layers would fit: use more devices (--devices, --split) "
                 "or a smaller model",
                 (unsigned long long)(now.free_bytes / (per_layer ? per_layer : 1)),
                 stage->options.n_layers);
    }
    return error_set(
        err, ERROR_NO_MEMORY,
        "%s: layers %u-%u need %s (weights %s, KV cache %s, compute %s), %s is free; %s",
        device_info(stage->device)->id, stage->options.first_layer,
        stage->options.first_layer + stage->options.n_layers - 1, size_text(needed).text,
        size_text(weights).text, size_text(m->kv).text, size_text(m->compute).text,
        size_text(now.free_bytes).text, advice);
}

static enum error_code reserve_compute(struct stage *stage, struct error *err)
{
    struct batch_shape shapes[WORST_SHAPES];
    enum error_code code = ERROR_NONE;
    const uint32_t n_shapes = worst_shapes(stage, shapes);
    for (uint32_t i = 0; i < n_shapes && !code; i++) {
        struct graph graph;
        code = graph_build(&graph, &stage->source, &shapes[i], err);
        if (code)
            break;
        stage_assign(stage, graph.cgraph);
        if (!ggml_backend_sched_reserve(stage->sched, graph.cgraph))
            code = error_set(
                err, ERROR_NO_MEMORY, "%s could not allocate %llu bytes of compute buffers",
                device_info(stage->device)->id, (unsigned long long)stage->memory.compute);
        ggml_backend_sched_reset(stage->sched);
        graph_deinit(&graph);
    }
    return code;
}

static enum error_code stage_reserve(struct stage *stage, struct error *err)
{
    uint64_t needed = stage->memory.kv + stage->memory.compute;
    enum error_code code = device_reserve(stage->device, needed, err);
    if (!code)
        stage->reserved_bytes = needed;
    return code ? code : weights_reserve(&stage->weights, err);
}

/* Better refused than other bits. */
static enum error_code stage_check_gather(const struct stage *stage, struct error *err)
{
    enum error_code code = ERROR_NONE;
    struct ggml_tensor *rows = NULL;
    for (uint32_t i = 0; i < KV_PARTS * stage->kv.n_layers && !rows; i++) {
        const uint32_t layer = i / KV_PARTS;
        const int part = (int)(i % KV_PARTS);
        if (!kv_cache_part_is_ring(&stage->kv, layer, part))
            rows = kv_cache_part(&stage->kv, layer, part);
    }
    if (rows)
        code = kv_gather_check(device_ggml_backend(stage->device), rows, err);
    if (code)
        error_wrap(err, "%s", device_info(stage->device)->id);
    return code;
}

static enum error_code stage_load(struct stage *stage, struct error *err)
{
    enum error_code code = check_fits(stage, err);
    if (!code)
        code = stage_reserve(stage, err);
    if (!code)
        code = weights_load(&stage->weights, err);
    if (!code)
        code = kv_cache_alloc(&stage->kv, err);
    if (!code && stage_gathers(stage))
        code = stage_check_gather(stage, err);
    if (!code)
        code = recurrent_state_alloc(&stage->state, err);
    if (!code)
        code = reserve_compute(stage, err);
    if (!code)
        stage_stream_watch(stage);
    return code;
}

static enum error_code stage_new(struct device *device, const struct model *model,
                                 const struct stage_options *options, struct stage **out,
                                 struct error *err)
{
    enum error_code code = check_options(model, options, err);
    if (code)
        return code;
    code = model_at_precision(model, options->precision, &model, err);
    if (code)
        return code;
    struct stage *stage = mem_new(sizeof *stage);
    if (!stage)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for a stage");
    stage->device = device;
    stage->model = model;
    stage->h = model_hyperparameters(model);
    stage->options = *options;
    code = stage_declare(stage, err);
    if (!code)
        code = stage_measure_graphs(stage, err);
    if (code) {
        stage_close(stage);
        return code;
    }
    *out = stage;
    return ERROR_NONE;
}

enum error_code stage_measure(struct device *device, const struct model *model,
                              const struct stage_options *options, struct stage_memory *out,
                              struct error *err)
{
    struct stage *stage;
    enum error_code code = stage_new(device, model, options, &stage, err);
    if (code)
        return code;
    *out = stage->memory;
    stage_close(stage);
    return ERROR_NONE;
}

static void log_streaming(const struct stage *stage)
{
    const struct stage_streaming streaming = stage_streaming(stage);
    if (streaming.n_layers)
        log_line(LOG_INFO, "engine",
                 "%s: %u of %u layers are streamed: %llu MiB for every batch, from a disk of "
                 "%llu MB/s, %s the page cache",
                 device_info(stage->device)->id, streaming.n_layers, stage->options.n_layers,
                 (unsigned long long)(streaming.bytes >> 20),
                 (unsigned long long)(streaming.disk_bps / 1000000),
                 streaming.is_direct ? "past" : "through");
}

enum error_code stage_open(struct device *device, const struct model *model,
                           const struct stage_options *options, struct stage **out,
                           struct error *err)
{
    struct stage *stage;
    enum error_code code = stage_new(device, model, options, &stage, err);
    if (code)
        return code;
    code = stage_load(stage, err);
    if (code) {
        stage_close(stage);
        return code;
    }
    log_line(
        LOG_INFO, "engine",
        "%s: layers %u-%u, %llu MiB weights, %llu MiB KV, %llu MiB compute, flash attention %s",
        device_info(device)->id, options->first_layer, options->first_layer + options->n_layers - 1,
        (unsigned long long)(stage->memory.weights >> 20),
        (unsigned long long)(stage->memory.kv >> 20),
        (unsigned long long)(stage->memory.compute >> 20), stage->source.flash ? "on" : "off");
    log_streaming(stage);
    *out = stage;
    return ERROR_NONE;
}

void stage_close(struct stage *stage)
{
    if (!stage)
        return;
    graph_deinit(&stage->graph);
    ggml_backend_sched_free(stage->sched);
    kv_cache_deinit(&stage->kv);
    state_checkpoints_deinit(&stage->checkpoints);
    recurrent_state_deinit(&stage->state);
    weights_deinit(&stage->weights);
    device_release(stage->device, stage->reserved_bytes);
    mem_free(stage->attention);
    mem_free(stage);
}
