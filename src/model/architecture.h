/* The architecture table: what Medley knows of each model family.
 *
 * One row of architecture.c a family. A row says how the family differs from the plain
 * llama block; the graph (engine/graph.c) is built from the row and the hyper-parameters and has
 * no family's name in it. docs/adding-a-model.md shows how to add one. */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gguf_file;

enum rope_kind { ROPE_NORM, ROPE_NEOX }; /* rotated pairs (2i, 2i+1), or (i, i + n/2) */
enum activation { ACT_SILU, ACT_GELU, ACT_SWIGLU_OAI };
enum gating {
    GATE_SOFTMAX,
    GATE_SOFTMAX_OF_CHOSEN
}; /* experts' weights: softmax over all then chosen, or over the chosen */
enum rope_scaling {
    ROPE_SCALING_NONE,
    ROPE_SCALING_LINEAR,
    ROPE_SCALING_YARN,
    ROPE_SCALING_LONGROPE
};

/* Every tensor that a family may have. Names and shapes are in the role table of architecture.c. */
enum tensor_role {
    TENSOR_TOKEN_EMBEDDING,
    TENSOR_OUTPUT_NORM,
    TENSOR_OUTPUT,
    TENSOR_ROPE_FREQS,
    TENSOR_ROPE_FACTORS_LONG,
    TENSOR_ROPE_FACTORS_SHORT,
    TENSOR_ATTENTION_NORM,
    TENSOR_Q,
    TENSOR_K,
    TENSOR_V,
    TENSOR_QKV,
    TENSOR_Q_BIAS,
    TENSOR_K_BIAS,
    TENSOR_V_BIAS,
    TENSOR_QKV_BIAS,
    TENSOR_Q_NORM,
    TENSOR_K_NORM,
    TENSOR_ATTENTION_OUT,
    TENSOR_ATTENTION_OUT_BIAS,
    TENSOR_ATTENTION_SINKS,
    TENSOR_ATTENTION_POST_NORM,
    TENSOR_FFN_NORM,
    TENSOR_FFN_GATE,
    TENSOR_FFN_UP,
    TENSOR_FFN_DOWN,
    TENSOR_FFN_GATE_BIAS,
    TENSOR_FFN_UP_BIAS,
    TENSOR_FFN_DOWN_BIAS,
    TENSOR_FFN_POST_NORM,
    TENSOR_ROUTER,
    TENSOR_ROUTER_BIAS,
    TENSOR_EXPERTS_GATE,
    TENSOR_EXPERTS_UP,
    TENSOR_EXPERTS_DOWN,
    TENSOR_EXPERTS_GATE_BIAS,
    TENSOR_EXPERTS_UP_BIAS,
    TENSOR_EXPERTS_DOWN_BIAS,
    TENSOR_ROLE_COUNT,
};

/* A set of roles: bit `role` is set. */
#define ROLE_BIT(role) (UINT64_C(1) << (role))

struct architecture {
    const char *name;        /* general.architecture */
    const char *description; /* for people */
    enum rope_kind rope;
    enum activation activation;
    enum gating gating;
    uint64_t needs;            /* roles that this family has beyond the plain block's (ROLE_BIT) */
    bool post_norm_only;       /* olmo2: attention and FFN are normed after, not before */
    bool ffn_norm_is_post;     /* gpt-oss: the FFN's input norm is stored as post_attention_norm */
    bool qk_norm_whole;        /* olmo2: Q/K norm over all heads at once, not per head */
    bool embedding_scale_sqrt; /* gemma: embeddings times sqrt(n_embd) */
    bool fused_gate_up;        /* phi3, glm4: ffn_up holds gate and up */
    bool keep_expert_sum;      /* olmoe: the chosen experts' weights are not divided by their sum */
    bool ignore_window;        /* phi3: the file's window is not applied, as in llama.cpp */
    bool logit_scale_divides;  /* granite: logits are divided by logit_scale */
    uint32_t window_period;    /* sliding window: of every `period` layers the last is full; 0: no
                                  window, 1: all windowed */
    uint32_t layers_of_wide_scale; /* gemma: with so many layers the attention scale is
                                      1/sqrt(n_embd/n_head) */
    float window_rope_base; /* rope base of windowed layers, which then are not scaled; 0: as the
                               others */
    float attention_softcap, final_softcap; /* where the file does not say */
};

struct hyperparameters {
    uint32_t n_layers, n_embd, n_vocab, n_context_train;
    uint32_t n_head, n_head_kv, n_head_dim_k, n_head_dim_v;
    uint32_t n_ff, n_ff_expert, n_experts, n_experts_used;
    uint32_t n_rot, n_context_original;
    uint32_t window; /* tokens; 0: none */
    uint32_t window_period;
    float rms_epsilon;
    float rope_base, rope_base_window;
    float rope_frequency_scale; /* 1 / factor for linear and yarn */
    enum rope_scaling rope_scaling;
    float yarn_ext_factor, yarn_attn_factor, yarn_beta_fast, yarn_beta_slow;
    float attention_softcap, final_softcap; /* 0: none */
    float attention_scale;                  /* multiplied into Q.K */
    float embedding_scale, residual_scale,
        logit_scale;           /* 1: none; logits are multiplied by logit_scale */
    float expert_weight_scale; /* 1: none */
};

const struct architecture *architecture_find(const char *name); /* NULL: unknown */
uint32_t architecture_count(void);
const struct architecture *architecture_at(uint32_t index);

/* Reads and checks every hyper-parameter of the family from the file. */
enum error_code hyperparameters_read(const struct architecture *architecture,
                                     const struct gguf_file *file, struct hyperparameters *out,
                                     struct error *err);

/* True when the layer attends only to the last `window` tokens. */
bool hyperparameters_layer_windowed(const struct hyperparameters *hyperparameters, uint32_t layer);

/* The role's name in the file, written out for `layer`. */
void tensor_role_name(enum tensor_role role, uint32_t layer, char *out, size_t out_size);
bool tensor_role_per_layer(enum tensor_role role);

/* The shape that the role's tensor must have: ne[0..2], 0 where there is no such dimension. */
void tensor_role_shape(const struct architecture *architecture,
                       const struct hyperparameters *hyperparameters, enum tensor_role role,
                       int64_t ne[3]);

/* Roles that a model of this family must have, and those that it may have. Q, K, V and QKV
 * are in neither: a layer has the three or the one. */
uint64_t architecture_roles_needed(const struct architecture *architecture,
                                   const struct hyperparameters *hyperparameters);
uint64_t architecture_roles_allowed(const struct architecture *architecture,
                                    const struct hyperparameters *hyperparameters);
