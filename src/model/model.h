/* A model: the checked file, its architecture, its hyper-parameters and what it costs.
 *
 * model_open() reads no weights: it maps the file, finds the architecture's row in the table
 * (model/architecture.h), reads and checks every hyper-parameter, and checks that every
 * tensor which the architecture needs is there with the right shape. Read-only after open:
 * any thread. */
#pragma once

#include "base/error.h"
#include "model/architecture.h"
#include "model/gguf_file.h"
#include "model/rope_stretch.h"

#include <stdint.h>

struct model;

enum error_code model_open(const char *path, struct model **out, struct error *err);
enum error_code model_open_file(struct gguf_file *file, struct model **out,
                                struct error *err); /* takes the file, also on failure */
/* With other rotations than the file's (model/rope_stretch.h): before anything is made of it. */
enum error_code model_stretch(struct model *model, const struct rope_stretch *stretch,
                              struct error *err);
/* The same in a copy, which shares the file and the tensors: it is closed before the model. */
enum error_code model_stretch_copy(const struct model *model, const struct rope_stretch *stretch,
                                   struct model **out, struct error *err);
/* Of such a copy, what it was made of; else the model itself. Weights of both are the same. */
const struct model *model_origin(const struct model *model);
void model_close(struct model *model);

const struct gguf_file *model_file(const struct model *model);
const struct architecture *model_architecture(const struct model *model);
const struct hyperparameters *model_hyperparameters(const struct model *model);
const char *
model_name(const struct model *model); /* general.name, else the file's name without .gguf */

/* The tensor of a role; NULL when the model has none (optional roles only).
 * `layer` is ignored for the roles outside the layers. */
const struct gguf_tensor *model_tensor(const struct model *model, enum tensor_role role,
                                       uint32_t layer);
/* What makes logits of hidden states, which may be the token embedding; NULL: the model generates
 * nothing. */
const struct gguf_tensor *model_head(const struct model *model);

/* The file's tensors by its order; at another precision as that has them (model_precision.h). */
const struct gguf_tensor *model_tensor_at(const struct model *model, uint64_t index);

/* "Q4_K", "F32", …: the type that most of the weights' bytes have. */
const char *model_type_name(const struct model *model);

/* ---- cost ----
 * bytes: of the weights as stored. A decode step reads `bytes_per_token` of them (all, but only the
 * experts in use of a mixture: n_used/n of the experts' bytes).
 * flops: 2 x weights used per token, plus attention: 4 x n_head x head_dim for each token of
 * context (Q.K and P.V, 2 FLOP each; Kaplan et al. 2020, appendix B, without the backward pass).
 * A layer with a state (arXiv:2405.21060, arXiv:2412.06464): 8 FLOP a value of its matrices.
 * kv: keys and values of one token, in elements (multiply by the cache type's size). */
struct layer_cost {
    uint64_t bytes;
    uint64_t bytes_per_token;
    uint64_t flops_per_token;
    uint64_t flops_per_token_per_context; /* add this times the tokens already there */
    uint64_t kv_elements_per_token;
    uint64_t kv_elements_seen; /* instead, of an earlier layer: the first that sees it has a copy in
                                  a stage that begins behind that layer */
    /* beside, of as many tokens as windowed layers keep: elements, and bytes of what summaries are
     * made of */
    uint64_t kv_elements_windowed, draft_bytes;
    uint64_t state_bytes; /* of a layer with a state, for each sequence whatever its length; a token
                             reads and writes them */
};
/* One weight tensor's part in it: a matrix is multiplied once per token, a mixture's experts only
 * the share in use. */
struct layer_cost model_tensor_cost(const struct model *model, enum tensor_role role,
                                    const struct gguf_tensor *tensor);
struct layer_cost model_layer_cost(const struct model *model, uint32_t layer);
struct layer_cost
model_input_cost(const struct model *model); /* embeddings: one row of each per token */
struct layer_cost model_output_cost(
    const struct model *model); /* output norm and head (the embedding again when tied) */
uint64_t model_weight_bytes(const struct model *model);
uint64_t model_parameter_count(const struct model *model);
