#include "engine/recurrent_state.h"

#include "base/bytes.h"
#include "base/mem.h"
#include "engine/weights_load.h"

#include <assert.h>
#include <ggml-alloc.h>
#include <string.h>

enum { RECURRENT_MAGIC = 0x3153524d }; /* "MRS1" */

static struct ggml_tensor *state_tensor(struct recurrent_state *state, const char *name,
                                        uint32_t layer, uint32_t n_values, uint32_t n_slots)
{
    if (!n_values)
        return NULL;
    struct ggml_tensor *tensor =
        ggml_new_tensor_2d(state->context, GGML_TYPE_F32, n_values, n_slots);
    ggml_format_name(tensor, "%s.%u", name, layer);
    return tensor;
}

enum error_code recurrent_state_declare(struct recurrent_state *state,
                                        ggml_backend_buffer_type_t type,
                                        const struct hyperparameters *hyperparameters,
                                        const struct stage_options *options, struct error *err)
{
    const struct recurrent_form *form = &hyperparameters->recurrent;
    *state = (struct recurrent_state){
        .type = type, .n_layers = options->n_layers, .n_slots = options->n_slots};
    state->convolutions = mem_new_array(state->n_layers, sizeof *state->convolutions);
    state->matrices = mem_new_array(state->n_layers, sizeof *state->matrices);
    state->unpacked =
        mem_new_array((size_t)state->n_layers * state->n_slots, sizeof *state->unpacked);
    struct ggml_init_params params = {
        .mem_size = 2 * (size_t)state->n_layers * ggml_tensor_overhead(), .no_alloc = true};
    state->context = ggml_init(params);
    if (!state->convolutions || !state->matrices || !state->unpacked || !state->context) {
        recurrent_state_deinit(state);
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the index of %u layers",
                         options->n_layers);
    }
    for (uint32_t i = 0; i < state->n_layers; i++) {
        if (!hyperparameters->layers[options->first_layer + i].is_recurrent)
            continue;
        state->n_recurrent++;
        state->convolutions[i] = state_tensor(state, "convolution", i,
                                              recurrent_convolution_values(form), options->n_slots);
        state->matrices[i] =
            state_tensor(state, "state", i, recurrent_matrix_values(form), options->n_slots);
    }
    return ERROR_NONE;
}

uint64_t recurrent_state_bytes(const struct recurrent_state *state)
{
    return state->n_recurrent
               ? ggml_backend_alloc_ctx_tensors_from_buft_size(state->context, state->type)
               : 0;
}

enum error_code recurrent_state_alloc(struct recurrent_state *state, struct error *err)
{
    if (!state->n_recurrent)
        return ERROR_NONE;
    state->buffer = ggml_backend_alloc_ctx_tensors_from_buft(state->context, state->type);
    if (!state->buffer)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the states of %u layers",
                         state->n_recurrent);
    weights_clear(state->buffer);
    return ERROR_NONE;
}

void recurrent_state_deinit(struct recurrent_state *state)
{
    if (!state)
        return;
    ggml_backend_buffer_free(state->buffer);
    ggml_free(state->context);
    mem_free(state->convolutions);
    mem_free(state->matrices);
    mem_free(state->unpacked);
    *state = (struct recurrent_state){0};
}

static uint64_t state_row_bytes(const struct ggml_tensor *tensor) /* NULL: none */
{
    return tensor ? tensor->nb[1] : 0;
}

void recurrent_state_clear(struct recurrent_state *state, uint32_t slot)
{
    for (uint32_t i = 0; i < state->n_layers; i++) {
        struct ggml_tensor *const both[] = {state->convolutions[i], state->matrices[i]};
        for (int k = 0; k < 2; k++) {
            const uint64_t row = state_row_bytes(both[k]);
            if (row)
                ggml_backend_tensor_memset(both[k], 0, slot * row, row);
        }
    }
}

uint64_t recurrent_state_layer_bytes(const struct recurrent_state *state, uint32_t layer)
{
    return state_row_bytes(state->convolutions[layer]) + state_row_bytes(state->matrices[layer]);
}

/* The part of [offset, offset + size) that lies in `tensor`, whose row begins at `begin` of the
 * layer's bytes. */
struct state_span {
    struct ggml_tensor *tensor;
    uint64_t at, size;  /* in the tensor */
    uint64_t in_caller; /* … and in the caller's bytes */
};

static struct state_span state_span_of(struct ggml_tensor *tensor, uint64_t begin, uint32_t slot,
                                       uint64_t offset, uint64_t size)
{
    const uint64_t row = state_row_bytes(tensor), end = begin + row;
    const uint64_t from = offset > begin ? offset : begin;
    const uint64_t to = offset + size < end ? offset + size : end;
    if (from >= to)
        return (struct state_span){0};
    return (struct state_span){tensor, slot * row + from - begin, to - from, from - offset};
}

static void state_spans(const struct recurrent_state *state, uint32_t layer, uint32_t slot,
                        uint64_t offset, uint64_t size, struct state_span out[2])
{
    assert(offset + size <= recurrent_state_layer_bytes(state, layer));
    const uint64_t first = state_row_bytes(state->convolutions[layer]);
    out[0] = state_span_of(state->convolutions[layer], 0, slot, offset, size);
    out[1] = state_span_of(state->matrices[layer], first, slot, offset, size);
}

void recurrent_state_read(const struct recurrent_state *state, uint32_t layer, uint32_t slot,
                          uint64_t offset, uint64_t size, void *out)
{
    struct state_span spans[2];
    state_spans(state, layer, slot, offset, size, spans);
    for (int i = 0; i < 2; i++) {
        if (spans[i].size)
            ggml_backend_tensor_get(spans[i].tensor, (char *)out + spans[i].in_caller, spans[i].at,
                                    spans[i].size);
    }
}

void recurrent_state_write(struct recurrent_state *state, uint32_t layer, uint32_t slot,
                           uint64_t offset, uint64_t size, const void *in)
{
    struct state_span spans[2];
    state_spans(state, layer, slot, offset, size, spans);
    for (int i = 0; i < 2; i++) {
        if (spans[i].size)
            ggml_backend_tensor_set(spans[i].tensor, (const char *)in + spans[i].in_caller,
                                    spans[i].at, spans[i].size);
    }
}

/* ---- packed --------------------------------------------------------------------------------- */

static void recurrent_head_write(const struct recurrent_state *state, uint32_t layer,
                                 uint32_t n_tokens, unsigned char out[RECURRENT_HEAD_BYTES])
{
    bytes_store(out, 4, RECURRENT_MAGIC);
    bytes_store(out + 4, 4, n_tokens);
    bytes_store(out + 8, 8, state_row_bytes(state->convolutions[layer]));
    bytes_store(out + 16, 8, state_row_bytes(state->matrices[layer]));
}

/* Of [offset, offset + size) of a packed state, what is behind its head and before its padding: in
 * the state's bytes, and in the caller's. False: nothing. */
static bool recurrent_body(const struct recurrent_state *state, uint32_t layer, uint64_t offset,
                           uint64_t size, uint64_t *at, uint64_t *n, uint64_t *in_caller)
{
    const uint64_t end = RECURRENT_HEAD_BYTES + recurrent_state_layer_bytes(state, layer);
    const uint64_t from = offset > RECURRENT_HEAD_BYTES ? offset : RECURRENT_HEAD_BYTES;
    const uint64_t to = offset + size < end ? offset + size : end;
    *at = from - RECURRENT_HEAD_BYTES;
    *n = to > from ? to - from : 0;
    *in_caller = from - offset;
    return *n > 0;
}

void recurrent_state_pack(const struct recurrent_state *state, uint32_t layer, uint32_t slot,
                          uint32_t n_tokens, uint64_t offset, uint64_t size, void *out)
{
    uint64_t at, n, in_caller;
    assert(slot < state->n_slots && (offset || size >= RECURRENT_HEAD_BYTES));
    assert(!offset || offset >= RECURRENT_HEAD_BYTES);
    memset(out, 0, size);
    if (!offset)
        recurrent_head_write(state, layer, n_tokens, out);
    if (recurrent_body(state, layer, offset, size, &at, &n, &in_caller))
        recurrent_state_read(state, layer, slot, at, n, (char *)out + in_caller);
}

static uint32_t *recurrent_unpacked(const struct recurrent_state *state, uint32_t layer,
                                    uint32_t slot)
{
    assert(layer < state->n_layers && slot < state->n_slots);
    return &state->unpacked[(size_t)layer * state->n_slots + slot];
}

static enum error_code recurrent_head_read(const struct recurrent_state *state, uint32_t layer,
                                           uint32_t slot, const unsigned char *in,
                                           struct error *err)
{
    unsigned char own[RECURRENT_HEAD_BYTES];
    const uint32_t n_tokens = (uint32_t)bytes_load(in + 4, 4);
    recurrent_head_write(state, layer, n_tokens, own);
    if (!n_tokens || memcmp(own, in, sizeof own) != 0)
        return error_set(err, ERROR_INVALID, "slot %u: a state that is not of this layer's form",
                         slot);
    *recurrent_unpacked(state, layer, slot) = n_tokens;
    return ERROR_NONE;
}

enum error_code recurrent_state_unpack(struct recurrent_state *state, uint32_t layer, uint32_t slot,
                                       uint64_t offset, uint64_t size, const void *in,
                                       struct error *err)
{
    uint64_t at, n, in_caller;
    assert((offset || size >= RECURRENT_HEAD_BYTES) && (!offset || offset >= RECURRENT_HEAD_BYTES));
    const enum error_code code =
        offset ? ERROR_NONE : recurrent_head_read(state, layer, slot, in, err);
    if (code)
        return code;
    if (!*recurrent_unpacked(state, layer, slot))
        return error_set(err, ERROR_INVALID, "slot %u: a state without its beginning", slot);
    if (recurrent_body(state, layer, offset, size, &at, &n, &in_caller))
        recurrent_state_write(state, layer, slot, at, n, (const char *)in + in_caller);
    return ERROR_NONE;
}

enum error_code recurrent_state_settle(struct recurrent_state *state, uint32_t slot,
                                       uint32_t n_tokens, struct error *err)
{
    uint32_t wrong = 0, other = 0;
    for (uint32_t i = 0; i < state->n_layers; i++) {
        uint32_t *unpacked = recurrent_unpacked(state, i, slot);
        const bool is_wrong = recurrent_state_layer_bytes(state, i) && *unpacked != n_tokens;
        wrong += is_wrong;
        other = is_wrong ? *unpacked : other;
        *unpacked = 0;
    }
    return wrong ? error_set(err, ERROR_INVALID,
                             "slot %u: the state of a layer is of %u tokens, not of %u", slot,
                             other, n_tokens)
                 : ERROR_NONE;
}

/* ---- copies of slots --------------------------------------------------------------------------
 */

enum error_code recurrent_state_copy(struct recurrent_state *state, uint32_t from, uint32_t to,
                                     struct error *err)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < state->n_layers; i++) {
        const uint64_t bytes = recurrent_state_layer_bytes(state, i);
        most = bytes > most ? bytes : most;
    }
    void *bytes = most ? mem_new(most) : NULL;
    if (most && !bytes)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory to copy %llu bytes of state",
                         (unsigned long long)most);
    for (uint32_t i = 0; i < state->n_layers; i++) {
        const uint64_t size = recurrent_state_layer_bytes(state, i);
        if (size) {
            recurrent_state_read(state, i, from, 0, size, bytes);
            recurrent_state_write(state, i, to, 0, size, bytes);
        }
    }
    mem_free(bytes);
    return ERROR_NONE;
}
