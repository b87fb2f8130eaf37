/* The second kind of cache: what layers with a recurrence keep of a sequence. Its size does not
 * depend on the sequence's length, and it stands for one length alone: that of the last token that
 * went in. It cannot be cut back. So a sequence goes on from where its state stands, or begins
 * anew.
 *
 * Layout: for each such layer two F32 tensors, one row a slot: the last inputs of the convolution,
 * [(kernel - 1) x channels, n_slots], and the heads' matrices, [dim_k x dim_v x n_head, n_slots]. A
 * graph computes on views of them in place, so neighbouring slots are one operation.
 *
 * Life: declared, measured and allocated with the KV cache (kv_cache.h). A slot's row is cleared
 * when its first token comes. Threading: as the stage's.
 *
 * Packed, for a stage elsewhere (stage_kv_read()): a head of RECURRENT_HEAD_BYTES with the number
 * of tokens that the state is of and its form, then convolution and matrices, then zeros up to
 * whole rows. Little-endian. */
#pragma once

#include "base/error.h"
#include "engine/stage.h"
#include "model/architecture.h"

#include <ggml-backend.h>
#include <ggml.h>

struct recurrent_state {
    struct ggml_context *context;
    ggml_backend_buffer_t buffer; /* NULL where no layer has a state */
    ggml_backend_buffer_type_t type;
    struct ggml_tensor **convolutions; /* [n_layers]; NULL: the layer has none */
    struct ggml_tensor **matrices;     /* [n_layers]; likewise */
    uint32_t n_layers, n_recurrent;    /* of the stage; of those with a state */
    uint32_t n_slots;
    uint32_t *unpacked; /* [n_layers x n_slots]: the tokens that an unpacked state is of, until it
                           is settled; 0: none was unpacked */
};

/* `layers`: the stage's first. */
enum error_code recurrent_state_declare(struct recurrent_state *state,
                                        ggml_backend_buffer_type_t type,
                                        const struct hyperparameters *hyperparameters,
                                        const struct stage_options *options, struct error *err);
uint64_t recurrent_state_bytes(const struct recurrent_state *state);
enum error_code recurrent_state_alloc(struct recurrent_state *state, struct error *err);
void recurrent_state_deinit(struct recurrent_state *state);

/* As before the first token. */
void recurrent_state_clear(struct recurrent_state *state, uint32_t slot);

/* A layer's state of a slot as bytes: convolution, then matrices. `layer` counts from the stage's
 * first. */
uint64_t recurrent_state_layer_bytes(const struct recurrent_state *state, uint32_t layer);
void recurrent_state_read(const struct recurrent_state *state, uint32_t layer, uint32_t slot,
                          uint64_t offset, uint64_t size, void *out);
void recurrent_state_write(struct recurrent_state *state, uint32_t layer, uint32_t slot,
                           uint64_t offset, uint64_t size, const void *in);

/* Bytes `offset` to `offset` + `size` - 1 of a packed state; `n_tokens` is the slot's length. */
void recurrent_state_pack(const struct recurrent_state *state, uint32_t layer, uint32_t slot,
                          uint32_t n_tokens, uint64_t offset, uint64_t size, void *out);
/* The other way, the head in one piece. ERROR_INVALID: a head that is not of this layer's form, or
 * that has not come yet. */
enum error_code recurrent_state_unpack(struct recurrent_state *state, uint32_t layer, uint32_t slot,
                                       uint64_t offset, uint64_t size, const void *in,
                                       struct error *err);
/* What was unpacked for the slot becomes its state. ERROR_INVALID: a layer's is not there, or is of
 * another number of tokens. */
enum error_code recurrent_state_settle(struct recurrent_state *state, uint32_t slot,
                                       uint32_t n_tokens, struct error *err);

enum error_code recurrent_state_copy(struct recurrent_state *state, uint32_t from, uint32_t to,
                                     struct error *err);
