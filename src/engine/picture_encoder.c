#include "engine/picture_encoder.h"

#include "base/mem.h"
#include "base/size_text.h"
#include "engine/picture_graph.h"
#include "engine/weights_load.h"
#include "gpu/device_ggml.h"
#include "gpu/gpu.h"

#include <ggml-alloc.h>
#include <string.h>

struct picture_encoder {
    const struct projector *projector;
    const struct projector_form *form;
    struct device *device;
    struct picture_encoder_options options;
    struct picture_graph_source source;
    struct ggml_context *weights; /* their tensors */
    ggml_backend_buffer_type_t weights_type;
    ggml_backend_buffer_t weights_buffer;
    struct tensor_copy *copies;
    uint32_t n_copies;
    ggml_backend_sched_t sched;
    ggml_backend_t backends[2];
    int n_backends;
    struct stage_memory memory;
    uint64_t reserved_bytes;
    struct picture_graph graph; /* for the size of the last picture */
};

static bool picture_on_host(const struct picture_encoder *encoder)
{
    return device_ggml_backend(encoder->device) == device_ggml_fallback(encoder->device);
}

/* ---- declaring ------------------------------------------------------------------------------ */

static struct ggml_tensor *picture_declare(struct picture_encoder *encoder,
                                           enum projector_role role, uint32_t block)
{
    const struct gguf_tensor *stored = projector_tensor(encoder->projector, role, block);
    if (!stored)
        return NULL;
    struct ggml_tensor *tensor = ggml_new_tensor(encoder->weights, (enum ggml_type)stored->type,
                                                 (int)stored->n_dims, stored->ne);
    ggml_set_name(tensor, stored->name);
    encoder->copies[encoder->n_copies++] =
        (struct tensor_copy){.tensor = tensor, .source = stored, .stored = stored};
    return tensor;
}

static enum error_code picture_declare_weights(struct picture_encoder *encoder, struct error *err)
{
    const uint32_t n_blocks = encoder->form->n_blocks;
    const size_t n = PROJECTOR_BLOCK_FIRST + (size_t)n_blocks * PROJECTOR_ROLES;
    struct ggml_init_params params = {.mem_size = n * ggml_tensor_overhead(), .no_alloc = true};
    encoder->weights = ggml_init(params);
    encoder->copies = mem_new_array(n, sizeof *encoder->copies);
    encoder->source.blocks = mem_new_array(n_blocks, sizeof *encoder->source.blocks);
    if (!encoder->weights || !encoder->copies || !encoder->source.blocks)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the projector's tensors");
    for (int i = 0; i < PROJECTOR_BLOCK_FIRST; i++)
        encoder->source.outside[i] = picture_declare(encoder, (enum projector_role)i, 0);
    for (uint32_t block = 0; block < n_blocks; block++) {
        for (int i = PROJECTOR_BLOCK_FIRST; i < PROJECTOR_ROLES; i++)
            encoder->source.blocks[block][i] =
                picture_declare(encoder, (enum projector_role)i, block);
    }
    encoder->weights_type =
        ggml_backend_get_default_buffer_type(device_ggml_backend(encoder->device));
    encoder->memory.weights =
        ggml_backend_alloc_ctx_tensors_from_buft_size(encoder->weights, encoder->weights_type);
    return ERROR_NONE;
}

/* Asks the device whether it has flash attention for heads of this size. */
static bool picture_has_flash(const struct picture_encoder *encoder)
{
    struct ggml_init_params params = {.mem_size = 8 * ggml_tensor_overhead(), .no_alloc = true};
    struct ggml_context *ctx = ggml_init(params);
    const int64_t n_head = encoder->form->n_head, dim = encoder->form->n_embd / n_head, n = 256;
    const enum ggml_type type = encoder->source.flash_type;
    struct ggml_tensor *q = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, dim, n, n_head);
    struct ggml_tensor *k = ggml_new_tensor_3d(ctx, type, dim, n, n_head);
    struct ggml_tensor *v = ggml_new_tensor_3d(ctx, type, dim, n, n_head);
    struct ggml_tensor *o = ggml_flash_attn_ext(ctx, q, k, v, NULL, 1.0f, 0.0f, 0.0f);
    const bool yes = ggml_backend_dev_supports_op(device_ggml_dev(encoder->device), o);
    ggml_free(ctx);
    return yes;
}

static enum error_code picture_choose_flash(struct picture_encoder *encoder, struct error *err)
{
    const enum flash_mode flash = encoder->options.flash;
    encoder->source.flash_type = picture_on_host(encoder) ? GGML_TYPE_F32 : GGML_TYPE_F16;
    encoder->source.flash = flash != FLASH_OFF && picture_has_flash(encoder);
    if (flash == FLASH_ON && !encoder->source.flash)
        return error_set(err, ERROR_UNSUPPORTED,
                         "%s has no flash attention for this projector; use --flash auto",
                         device_info(encoder->device)->id);
    return ERROR_NONE;
}

static enum error_code picture_declare_all(struct picture_encoder *encoder, struct error *err)
{
    encoder->source.form = encoder->form;
    enum error_code code = picture_choose_flash(encoder, err);
    if (!code)
        code = picture_declare_weights(encoder, err);
    if (code)
        return code;
    encoder->backends[encoder->n_backends++] = device_ggml_backend(encoder->device);
    if (!picture_on_host(encoder))
        encoder->backends[encoder->n_backends++] = device_ggml_fallback(encoder->device);
    encoder->sched = ggml_backend_sched_new(encoder->backends, NULL, encoder->n_backends,
                                            picture_graph_nodes(encoder->form), false, false);
    return encoder->sched
               ? ERROR_NONE
               : error_set(err, ERROR_NO_MEMORY, "not enough memory for the graph scheduler");
}

static enum error_code picture_encoder_new(const struct projector *projector, struct device *device,
                                           const struct picture_encoder_options *options,
                                           struct picture_encoder **out, struct error *err)
{
    struct picture_encoder *encoder = mem_new(sizeof *encoder);
    if (!encoder)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for an encoder of pictures");
    encoder->projector = projector;
    encoder->form = projector_form(projector);
    encoder->device = device;
    encoder->options = *options;
    const enum error_code code = picture_declare_all(encoder, err);
    if (code)
        picture_encoder_close(encoder);
    else
        *out = encoder;
    return code;
}

void picture_encoder_close(struct picture_encoder *encoder)
{
    if (!encoder)
        return;
    picture_graph_deinit(&encoder->graph);
    ggml_backend_sched_free(encoder->sched);
    ggml_backend_buffer_free(encoder->weights_buffer);
    ggml_free(encoder->weights);
    if (encoder->reserved_bytes)
        device_release(encoder->device, encoder->reserved_bytes);
    mem_free(encoder->copies);
    mem_free(encoder->source.blocks);
    mem_free(encoder);
}

/* ---- memory --------------------------------------------------------------------------------- */

static void picture_place_weights(struct picture_encoder *encoder, ggml_backend_buffer_t buffer)
{
    for (uint32_t i = 0; i < encoder->n_copies; i++)
        encoder->copies[i].tensor->buffer = buffer;
}

/* What the graph of one size takes is kept where it is the most so far. */
static enum error_code picture_measure_grid(struct picture_encoder *encoder,
                                            const struct picture_grid *grid, struct error *err)
{
    struct picture_graph graph;
    size_t sizes[2] = {0};
    const enum error_code code = picture_graph_build(&graph, &encoder->source, grid, err);
    if (code)
        return code;
    ggml_backend_sched_reserve_size(encoder->sched, graph.cgraph, sizes);
    ggml_backend_sched_reset(encoder->sched);
    picture_graph_deinit(&graph);
    struct stage_memory *m = &encoder->memory;
    m->compute = sizes[0] > m->compute ? sizes[0] : m->compute;
    m->host = sizes[1] > m->host ? sizes[1] : m->host;
    return ERROR_NONE;
}

/* Builds the graphs of the largest pictures over weights whose buffer has no memory, and asks
 * ggml's allocator. */
static enum error_code picture_measure_graphs(struct picture_encoder *encoder, struct error *err)
{
    struct picture_grid grids[PICTURE_LARGEST];
    enum error_code code = ERROR_NONE;
    picture_grid_largest(encoder->form, grids);
    ggml_backend_buffer_t empty = ggml_backend_buft_alloc_buffer(encoder->weights_type, 0);
    ggml_backend_buffer_set_usage(empty, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    picture_place_weights(encoder, empty);
    for (int i = 0; i < PICTURE_LARGEST && !code; i++)
        code = picture_measure_grid(encoder, &grids[i], err);
    picture_place_weights(encoder, NULL);
    ggml_backend_buffer_free(empty);
    return code;
}

enum error_code picture_encoder_measure(const struct projector *projector, struct device *device,
                                        const struct picture_encoder_options *options,
                                        struct stage_memory *out, struct error *err)
{
    struct picture_encoder *encoder = NULL;
    enum error_code code = picture_encoder_new(projector, device, options, &encoder, err);
    if (!code)
        code = picture_measure_graphs(encoder, err);
    if (!code)
        *out = encoder->memory;
    picture_encoder_close(encoder);
    return code;
}

struct stage_memory picture_encoder_memory(const struct picture_encoder *encoder)
{
    struct stage_memory memory = encoder->memory;
    memory.compute = ggml_backend_sched_get_buffer_size(encoder->sched, encoder->backends[0]);
    memory.host = encoder->n_backends < 2
                      ? 0
                      : ggml_backend_sched_get_buffer_size(encoder->sched, encoder->backends[1]);
    return memory;
}

/* ---- loading -------------------------------------------------------------------------------- */

static enum error_code picture_check_fits(const struct picture_encoder *encoder, struct error *err)
{
    const struct stage_memory *m = &encoder->memory;
    const struct device_memory now = device_memory(encoder->device);
    const uint64_t needed = m->weights + m->compute;
    if (!now.total_bytes || needed <= now.free_bytes)
        return ERROR_NONE;
    return error_set(err, ERROR_NO_MEMORY,
                     "%s: the encoder of pictures needs %s (weights %s, compute %s), %s is free",
                     device_info(encoder->device)->id, size_text(needed).text,
                     size_text(m->weights).text, size_text(m->compute).text,
                     size_text(now.free_bytes).text);
}

/* The CPU computes from the mapped file where the file's alignment is good enough. */
static bool picture_map_weights(struct picture_encoder *encoder)
{
    const struct gguf_file *file = projector_file(encoder->projector);
    const uint64_t alignment = ggml_backend_buft_get_alignment(encoder->weights_type);
    if (!picture_on_host(encoder) || !gguf_file_is_mapped(file))
        return false;
    for (uint32_t i = 0; i < encoder->n_copies; i++) {
        if (encoder->copies[i].source->offset % alignment)
            return false;
    }
    uint8_t *bytes = (uint8_t *)(uintptr_t)gguf_file_bytes(
        file); /* ggml asks for a writable pointer; weights are only read */
    encoder->weights_buffer = ggml_backend_dev_buffer_from_host_ptr(
        device_ggml_dev(encoder->device), bytes, gguf_file_size(file), 0);
    for (uint32_t i = 0; encoder->weights_buffer && i < encoder->n_copies; i++) {
        struct tensor_copy *copy = &encoder->copies[i];
        ggml_backend_tensor_alloc(encoder->weights_buffer, copy->tensor,
                                  bytes + copy->source->offset);
        copy->mapped = true;
    }
    return encoder->weights_buffer;
}

static enum error_code picture_load_weights(struct picture_encoder *encoder, struct error *err)
{
    if (!picture_map_weights(encoder))
        encoder->weights_buffer =
            ggml_backend_alloc_ctx_tensors_from_buft(encoder->weights, encoder->weights_type);
    if (!encoder->weights_buffer)
        return error_set(err, ERROR_NO_MEMORY,
                         "%s could not allocate %s for the projector's weights",
                         device_info(encoder->device)->id, size_text(encoder->memory.weights).text);
    ggml_backend_buffer_set_usage(encoder->weights_buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    return weights_copy(encoder->copies, encoder->n_copies, projector_file(encoder->projector),
                        picture_on_host(encoder) ? device_threads(encoder->device) : 1, false, NULL,
                        err);
}

/* Compute memory for the largest pictures, taken once. */
static enum error_code picture_reserve_graphs(struct picture_encoder *encoder, struct error *err)
{
    struct picture_grid grids[PICTURE_LARGEST];
    enum error_code code = ERROR_NONE;
    picture_grid_largest(encoder->form, grids);
    for (int i = 0; i < PICTURE_LARGEST && !code; i++) {
        struct picture_graph graph;
        code = picture_graph_build(&graph, &encoder->source, &grids[i], err);
        if (code)
            break;
        if (!ggml_backend_sched_reserve(encoder->sched, graph.cgraph))
            code = error_set(err, ERROR_NO_MEMORY, "%s could not allocate %s to compute pictures",
                             device_info(encoder->device)->id,
                             size_text(encoder->memory.compute).text);
        ggml_backend_sched_reset(encoder->sched);
        picture_graph_deinit(&graph);
    }
    return code;
}

static enum error_code picture_load(struct picture_encoder *encoder, struct error *err)
{
    const uint64_t needed = encoder->memory.weights + encoder->memory.compute;
    enum error_code code = picture_check_fits(encoder, err);
    if (!code)
        code = device_reserve(encoder->device, needed, err);
    if (code)
        return code;
    encoder->reserved_bytes = needed;
    code = picture_load_weights(encoder, err);
    return code ? code : picture_reserve_graphs(encoder, err);
}

enum error_code picture_encoder_open(const struct projector *projector, struct device *device,
                                     const struct picture_encoder_options *options,
                                     struct picture_encoder **out, struct error *err)
{
    struct picture_encoder *encoder = NULL;
    enum error_code code = picture_encoder_new(projector, device, options, &encoder, err);
    if (!code)
        code = picture_measure_graphs(encoder, err);
    if (!code)
        code = picture_load(encoder, err);
    if (code)
        picture_encoder_close(encoder);
    else
        *out = encoder;
    return code;
}

/* ---- computing ------------------------------------------------------------------------------ */

static enum error_code picture_prepare_graph(struct picture_encoder *encoder,
                                             const struct picture_grid *grid, struct error *err)
{
    struct picture_graph *graph = &encoder->graph;
    if (graph->cgraph && graph->grid.columns == grid->columns && graph->grid.rows == grid->rows)
        return ERROR_NONE;
    picture_graph_deinit(graph);
    ggml_backend_sched_reset(encoder->sched);
    enum error_code code = picture_graph_build(graph, &encoder->source, grid, err);
    if (!code && !ggml_backend_sched_alloc_graph(encoder->sched, graph->cgraph))
        code = error_set(err, ERROR_NO_MEMORY, "%s: not enough memory for a picture of %u patches",
                         device_info(encoder->device)->id, picture_grid_patches(grid));
    if (code)
        picture_graph_deinit(graph);
    return code;
}

static enum error_code picture_set_turns(const struct picture_graph *graph, const uint32_t *order,
                                         struct error *err)
{
    const uint32_t n = picture_grid_patches(&graph->grid), columns = graph->grid.columns;
    if (!graph->turns)
        return ERROR_NONE;
    int32_t *turns = mem_new_array(n, 4 * sizeof *turns);
    if (!turns)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for a picture of %u patches", n);
    for (uint32_t i = 0; i < 2 * n; i++) {
        turns[i / n * 2 * n + i % n] = (int32_t)(order[i % n] / columns);
        turns[i / n * 2 * n + n + i % n] = (int32_t)(order[i % n] % columns);
    }
    ggml_backend_tensor_set(graph->turns, turns, 0, ggml_nbytes(graph->turns));
    mem_free(turns);
    return ERROR_NONE;
}

/* `order`: [patches], of the graph's grid */
static enum error_code picture_set_inputs(struct picture_encoder *encoder,
                                          const struct picture *picture, const uint32_t *order,
                                          struct error *err)
{
    const struct picture_graph *graph = &encoder->graph;
    float *patches = mem_new_array(ggml_nbytes(graph->patches), 1);
    if (!patches)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for a picture of %u patches",
                         picture_grid_patches(&graph->grid));
    enum error_code code = picture_fit(encoder->form, picture, &graph->grid, order, patches, err);
    if (!code) {
        ggml_backend_tensor_set(graph->patches, patches, 0, ggml_nbytes(graph->patches));
        if (graph->places)
            ggml_backend_tensor_set(graph->places, order, 0, ggml_nbytes(graph->places));
        code = picture_set_turns(graph, order, err);
    }
    mem_free(patches);
    return code;
}

static enum error_code picture_compute(struct picture_encoder *encoder, struct error *err)
{
    const enum ggml_status status =
        ggml_backend_sched_graph_compute(encoder->sched, encoder->graph.cgraph);
    if (status != GGML_STATUS_SUCCESS)
        return error_set(err, status == GGML_STATUS_ALLOC_FAILED ? ERROR_NO_MEMORY : ERROR_DEVICE,
                         "%s: computing a picture failed (%s)", device_info(encoder->device)->id,
                         ggml_status_to_string(status));
    return gguf_file_check_whole(projector_file(encoder->projector), err);
}

/* From the order of patches into that of the picture; both [n_rows x width]. */
static void picture_sort_rows(const struct picture_encoder *encoder, const uint32_t *order,
                              const float *computed, const struct picture_rows *out)
{
    const uint32_t merge = encoder->form->merge * encoder->form->merge;
    for (uint32_t i = 0; i < out->n_rows; i++) {
        const uint32_t to =
            picture_grid_row_of(encoder->form, &encoder->graph.grid, order[i * merge]);
        memcpy(out->rows + (size_t)to * out->width, computed + (size_t)i * out->width,
               out->width * sizeof *computed);
    }
}

static enum error_code picture_read_rows(struct picture_encoder *encoder, const uint32_t *order,
                                         struct picture_rows *out, struct error *err)
{
    const struct ggml_tensor *result = encoder->graph.result;
    const bool is_sorted = encoder->form->image_size > 0;
    float *computed = is_sorted ? NULL : mem_new_array(ggml_nbytes(result), 1);
    out->rows = mem_new_array(ggml_nbytes(result), 1);
    if (!out->rows || (!is_sorted && !computed)) {
        mem_free(computed);
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for a picture's %u rows",
                         out->n_rows);
    }
    ggml_backend_tensor_get(result, is_sorted ? out->rows : computed, 0, ggml_nbytes(result));
    if (!is_sorted)
        picture_sort_rows(encoder, order, computed, out);
    mem_free(computed);
    return ERROR_NONE;
}

static enum error_code picture_encode(struct picture_encoder *encoder,
                                      const struct picture *picture,
                                      const struct picture_grid *grid, struct picture_rows *out,
                                      struct error *err)
{
    enum error_code code = picture_prepare_graph(encoder, grid, err);
    if (code)
        return code;
    uint32_t *order = mem_new_array(picture_grid_patches(grid), sizeof *order);
    if (!order)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for a picture of %u patches",
                         picture_grid_patches(grid));
    picture_grid_order(encoder->form, grid, order);
    code = picture_set_inputs(encoder, picture, order, err);
    if (!code)
        code = picture_compute(encoder, err);
    if (!code)
        code = picture_read_rows(encoder, order, out, err);
    mem_free(order);
    return code;
}

enum error_code picture_encoder_rows(struct picture_encoder *encoder, const struct picture *picture,
                                     struct picture_rows *out, struct error *err)
{
    struct picture_grid grid;
    struct projector_rows about;
    *out = (struct picture_rows){0};
    enum error_code code =
        picture_grid_make(encoder->form, picture->width, picture->height, &grid, err);
    if (!code)
        code = projector_rows(encoder->projector, picture->width, picture->height, &about, err);
    if (code)
        return code;
    *out = (struct picture_rows){.n_rows = about.n_rows,
                                 .width = about.width,
                                 .grid_width = about.grid_width,
                                 .grid_height = about.grid_height,
                                 .is_whole = about.is_whole};
    code = picture_encode(encoder, picture, &grid, out, err);
    if (code)
        picture_rows_deinit(out);
    return code;
}

void picture_rows_deinit(struct picture_rows *rows)
{
    mem_free(rows->rows);
    *rows = (struct picture_rows){0};
}
