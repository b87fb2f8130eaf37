#include "model/architecture.h"

#include <stdio.h>
#include <string.h>

/* The families. What is not said is as in llama: RMS norm before attention and FFN, rotary
 * positions on pairs (2i, 2i+1), SwiGLU, softmax gating of experts. Biases are used wherever
 * the file has them. */
static const struct architecture families[] = {
    {
        .name = "llama",
        .description = "Llama 1-3, Mistral, Mixtral and their kin",
        .rope = ROPE_NORM,
    },
    {
        .name = "qwen2",
        .description = "Qwen 2 and 2.5",
        .rope = ROPE_NEOX,
        .needs = ROLE_BIT(TENSOR_Q_BIAS) | ROLE_BIT(TENSOR_K_BIAS) | ROLE_BIT(TENSOR_V_BIAS),
    },
    {
        .name = "qwen3",
        .description = "Qwen 3",
        .rope = ROPE_NEOX,
        .needs = ROLE_BIT(TENSOR_Q_NORM) | ROLE_BIT(TENSOR_K_NORM),
    },
    {
        .name = "qwen3moe",
        .description = "Qwen 3, mixture of experts",
        .rope = ROPE_NEOX,
        .needs = ROLE_BIT(TENSOR_Q_NORM) | ROLE_BIT(TENSOR_K_NORM),
    },
    {
        .name = "gemma",
        .description = "Gemma 1",
        .rope = ROPE_NEOX,
        .activation = ACT_GELU,
        .embedding_scale_sqrt = true,
    },
    {
        .name = "gemma2",
        .description = "Gemma 2",
        .rope = ROPE_NEOX,
        .activation = ACT_GELU,
        .needs = ROLE_BIT(TENSOR_ATTENTION_POST_NORM) | ROLE_BIT(TENSOR_FFN_POST_NORM),
        .embedding_scale_sqrt = true,
        .window_period = 2,
        .layers_of_wide_scale = 46,
        .attention_softcap = 50.0f,
        .final_softcap = 30.0f,
    },
    {
        .name = "gemma3",
        .description = "Gemma 3, text",
        .rope = ROPE_NEOX,
        .activation = ACT_GELU,
        .needs = ROLE_BIT(TENSOR_ATTENTION_POST_NORM) | ROLE_BIT(TENSOR_FFN_POST_NORM) |
                 ROLE_BIT(TENSOR_Q_NORM) | ROLE_BIT(TENSOR_K_NORM),
        .embedding_scale_sqrt = true,
        .window_period = 6,
        .window_rope_base = 10000.0f,
        .layers_of_wide_scale = 62,
    },
    {
        .name = "phi3",
        .description = "Phi 3 and 4",
        .rope = ROPE_NEOX,
        .fused_gate_up = true,
        .ignore_window = true,
    },
    {
        .name = "olmo2",
        .description = "OLMo 2",
        .rope = ROPE_NEOX,
        .needs = ROLE_BIT(TENSOR_ATTENTION_POST_NORM) | ROLE_BIT(TENSOR_FFN_POST_NORM) |
                 ROLE_BIT(TENSOR_Q_NORM) | ROLE_BIT(TENSOR_K_NORM),
        .post_norm_only = true,
        .qk_norm_whole = true,
    },
    {
        .name = "olmoe",
        .description = "OLMoE, mixture of experts",
        .rope = ROPE_NEOX,
        .needs = ROLE_BIT(TENSOR_Q_NORM) | ROLE_BIT(TENSOR_K_NORM),
        .qk_norm_whole = true,
        .keep_expert_sum = true,
    },
    {
        .name = "gpt-oss",
        .description = "gpt-oss, mixture of experts",
        .rope = ROPE_NEOX,
        .activation = ACT_SWIGLU_OAI,
        .gating = GATE_SOFTMAX_OF_CHOSEN,
        .needs = ROLE_BIT(TENSOR_ATTENTION_POST_NORM) | ROLE_BIT(TENSOR_ATTENTION_SINKS) |
                 ROLE_BIT(TENSOR_Q_BIAS) | ROLE_BIT(TENSOR_K_BIAS) | ROLE_BIT(TENSOR_V_BIAS) |
                 ROLE_BIT(TENSOR_ATTENTION_OUT_BIAS) | ROLE_BIT(TENSOR_ROUTER_BIAS) |
                 ROLE_BIT(TENSOR_EXPERTS_GATE_BIAS) | ROLE_BIT(TENSOR_EXPERTS_UP_BIAS) |
                 ROLE_BIT(TENSOR_EXPERTS_DOWN_BIAS),
        .ffn_norm_is_post = true,
        .window_period = 2,
    },
    {
        .name = "glm4",
        .description = "GLM 4",
        .rope = ROPE_NORM,
        .needs = ROLE_BIT(TENSOR_ATTENTION_POST_NORM) | ROLE_BIT(TENSOR_FFN_POST_NORM),
        .fused_gate_up = true,
    },
    {
        .name = "granite",
        .description = "Granite 3",
        .rope = ROPE_NORM,
        .logit_scale_divides = true,
    },
    {
        .name = "granitemoe",
        .description = "Granite 3, mixture of experts",
        .rope = ROPE_NORM,
        .logit_scale_divides = true,
    },
};

/* Sizes that shapes are made of. */
enum tensor_dim {
    DIM_NONE,
    DIM_EMBD,
    DIM_VOCAB,
    DIM_Q,   /* n_head x head_dim_k */
    DIM_K,   /* n_head_kv x head_dim_k */
    DIM_V,   /* n_head_kv x head_dim_v */
    DIM_QKV, /* the three beside each other */
    DIM_O,   /* n_head x head_dim_v */
    DIM_Q_NORM,
    DIM_K_NORM,
    DIM_HEADS,
    DIM_FF,
    DIM_FF_UP, /* twice n_ff where gate and up are fused */
    DIM_FF_EXPERT,
    DIM_EXPERTS,
    DIM_ROT_PAIRS,
};

static const struct {
    const char *name;
    bool per_layer;
    uint8_t dims[3];
} roles[TENSOR_ROLE_COUNT] = {
    [TENSOR_TOKEN_EMBEDDING] = {"token_embd.weight", false, {DIM_EMBD, DIM_VOCAB}},
    [TENSOR_OUTPUT_NORM] = {"output_norm.weight", false, {DIM_EMBD}},
    [TENSOR_OUTPUT] = {"output.weight", false, {DIM_EMBD, DIM_VOCAB}},
    [TENSOR_ROPE_FREQS] = {"rope_freqs.weight", false, {DIM_ROT_PAIRS}},
    [TENSOR_ROPE_FACTORS_LONG] = {"rope_factors_long.weight", false, {DIM_ROT_PAIRS}},
    [TENSOR_ROPE_FACTORS_SHORT] = {"rope_factors_short.weight", false, {DIM_ROT_PAIRS}},
    [TENSOR_ATTENTION_NORM] = {"blk.%u.attn_norm.weight", true, {DIM_EMBD}},
    [TENSOR_Q] = {"blk.%u.attn_q.weight", true, {DIM_EMBD, DIM_Q}},
    [TENSOR_K] = {"blk.%u.attn_k.weight", true, {DIM_EMBD, DIM_K}},
    [TENSOR_V] = {"blk.%u.attn_v.weight", true, {DIM_EMBD, DIM_V}},
    [TENSOR_QKV] = {"blk.%u.attn_qkv.weight", true, {DIM_EMBD, DIM_QKV}},
    [TENSOR_Q_BIAS] = {"blk.%u.attn_q.bias", true, {DIM_Q}},
    [TENSOR_K_BIAS] = {"blk.%u.attn_k.bias", true, {DIM_K}},
    [TENSOR_V_BIAS] = {"blk.%u.attn_v.bias", true, {DIM_V}},
    [TENSOR_QKV_BIAS] = {"blk.%u.attn_qkv.bias", true, {DIM_QKV}},
    [TENSOR_Q_NORM] = {"blk.%u.attn_q_norm.weight", true, {DIM_Q_NORM}},
    [TENSOR_K_NORM] = {"blk.%u.attn_k_norm.weight", true, {DIM_K_NORM}},
    [TENSOR_ATTENTION_OUT] = {"blk.%u.attn_output.weight", true, {DIM_O, DIM_EMBD}},
    [TENSOR_ATTENTION_OUT_BIAS] = {"blk.%u.attn_output.bias", true, {DIM_EMBD}},
    [TENSOR_ATTENTION_SINKS] = {"blk.%u.attn_sinks.weight", true, {DIM_HEADS}},
    [TENSOR_ATTENTION_POST_NORM] = {"blk.%u.post_attention_norm.weight", true, {DIM_EMBD}},
    [TENSOR_FFN_NORM] = {"blk.%u.ffn_norm.weight", true, {DIM_EMBD}},
    [TENSOR_FFN_GATE] = {"blk.%u.ffn_gate.weight", true, {DIM_EMBD, DIM_FF}},
    [TENSOR_FFN_UP] = {"blk.%u.ffn_up.weight", true, {DIM_EMBD, DIM_FF_UP}},
    [TENSOR_FFN_DOWN] = {"blk.%u.ffn_down.weight", true, {DIM_FF, DIM_EMBD}},
    [TENSOR_FFN_GATE_BIAS] = {"blk.%u.ffn_gate.bias", true, {DIM_FF}},
    [TENSOR_FFN_UP_BIAS] = {"blk.%u.ffn_up.bias", true, {DIM_FF_UP}},
    [TENSOR_FFN_DOWN_BIAS] = {"blk.%u.ffn_down.bias", true, {DIM_EMBD}},
    [TENSOR_FFN_POST_NORM] = {"blk.%u.post_ffw_norm.weight", true, {DIM_EMBD}},
    [TENSOR_ROUTER] = {"blk.%u.ffn_gate_inp.weight", true, {DIM_EMBD, DIM_EXPERTS}},
    [TENSOR_ROUTER_BIAS] = {"blk.%u.ffn_gate_inp.bias", true, {DIM_EXPERTS}},
    [TENSOR_EXPERTS_GATE] = {"blk.%u.ffn_gate_exps.weight",
                             true,
                             {DIM_EMBD, DIM_FF_EXPERT, DIM_EXPERTS}},
    [TENSOR_EXPERTS_UP] = {"blk.%u.ffn_up_exps.weight",
                           true,
                           {DIM_EMBD, DIM_FF_EXPERT, DIM_EXPERTS}},
    [TENSOR_EXPERTS_DOWN] = {"blk.%u.ffn_down_exps.weight",
                             true,
                             {DIM_FF_EXPERT, DIM_EMBD, DIM_EXPERTS}},
    [TENSOR_EXPERTS_GATE_BIAS] = {"blk.%u.ffn_gate_exps.bias", true, {DIM_FF_EXPERT, DIM_EXPERTS}},
    [TENSOR_EXPERTS_UP_BIAS] = {"blk.%u.ffn_up_exps.bias", true, {DIM_FF_EXPERT, DIM_EXPERTS}},
    [TENSOR_EXPERTS_DOWN_BIAS] = {"blk.%u.ffn_down_exps.bias", true, {DIM_EMBD, DIM_EXPERTS}},
};
_Static_assert(TENSOR_ROLE_COUNT <= 64, "a set of roles is 64 bits");

const struct architecture *architecture_find(const char *name)
{
    for (uint32_t i = 0; i < architecture_count(); i++) {
        if (strcmp(families[i].name, name) == 0)
            return &families[i];
    }
    return NULL;
}

uint32_t architecture_count(void)
{
    return sizeof families / sizeof families[0];
}

const struct architecture *architecture_at(uint32_t index)
{
    return &families[index];
}

/* The names are the table's own literals, so a format that is not a literal is safe here. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
void tensor_role_name(enum tensor_role role, uint32_t layer, char *out, size_t out_size)
{
    snprintf(out, out_size, roles[role].name, layer);
}
#pragma GCC diagnostic pop

bool tensor_role_per_layer(enum tensor_role role)
{
    return roles[role].per_layer;
}

static int64_t dim_size(const struct architecture *a, const struct hyperparameters *h,
                        enum tensor_dim dim)
{
    int64_t q = (int64_t)h->n_head * h->n_head_dim_k, k = (int64_t)h->n_head_kv * h->n_head_dim_k;
    int64_t v = (int64_t)h->n_head_kv * h->n_head_dim_v;
    switch (dim) {
    case DIM_NONE:
        return 0;
    case DIM_EMBD:
        return h->n_embd;
    case DIM_VOCAB:
        return h->n_vocab;
    case DIM_Q:
        return q;
    case DIM_K:
        return k;
    case DIM_V:
        return v;
    case DIM_QKV:
        return q + k + v;
    case DIM_O:
        return (int64_t)h->n_head * h->n_head_dim_v;
    case DIM_Q_NORM:
        return a->qk_norm_whole ? q : h->n_head_dim_k;
    case DIM_K_NORM:
        return a->qk_norm_whole ? k : h->n_head_dim_k;
    case DIM_HEADS:
        return h->n_head;
    case DIM_FF:
        return h->n_ff;
    case DIM_FF_UP:
        return a->fused_gate_up ? 2 * (int64_t)h->n_ff : h->n_ff;
    case DIM_FF_EXPERT:
        return h->n_ff_expert;
    case DIM_EXPERTS:
        return h->n_experts;
    case DIM_ROT_PAIRS:
        return h->n_rot / 2;
    }
    return 0;
}

void tensor_role_shape(const struct architecture *architecture,
                       const struct hyperparameters *hyperparameters, enum tensor_role role,
                       int64_t ne[3])
{
    for (int i = 0; i < 3; i++)
        ne[i] = dim_size(architecture, hyperparameters, (enum tensor_dim)roles[role].dims[i]);
}

uint64_t architecture_roles_needed(const struct architecture *architecture,
                                   const struct hyperparameters *hyperparameters)
{
    uint64_t needed = architecture->needs | ROLE_BIT(TENSOR_TOKEN_EMBEDDING) |
                      ROLE_BIT(TENSOR_OUTPUT_NORM) | ROLE_BIT(TENSOR_ATTENTION_OUT);
    if (!architecture->post_norm_only)
        needed |= ROLE_BIT(TENSOR_ATTENTION_NORM);
    if (!architecture->post_norm_only && !architecture->ffn_norm_is_post)
        needed |= ROLE_BIT(TENSOR_FFN_NORM);
    if (hyperparameters->n_experts) {
        needed |= ROLE_BIT(TENSOR_ROUTER) | ROLE_BIT(TENSOR_EXPERTS_GATE) |
                  ROLE_BIT(TENSOR_EXPERTS_UP) | ROLE_BIT(TENSOR_EXPERTS_DOWN);
    } else {
        needed |= ROLE_BIT(TENSOR_FFN_UP) | ROLE_BIT(TENSOR_FFN_DOWN);
        if (!architecture->fused_gate_up)
            needed |= ROLE_BIT(TENSOR_FFN_GATE);
    }
    return needed;
}

uint64_t architecture_roles_allowed(const struct architecture *architecture,
                                    const struct hyperparameters *hyperparameters)
{
    uint64_t allowed = ROLE_BIT(TENSOR_OUTPUT) | ROLE_BIT(TENSOR_ROPE_FREQS) |
                       ROLE_BIT(TENSOR_ROPE_FACTORS_LONG) | ROLE_BIT(TENSOR_ROPE_FACTORS_SHORT) |
                       ROLE_BIT(TENSOR_Q) | ROLE_BIT(TENSOR_K) | ROLE_BIT(TENSOR_V) |
                       ROLE_BIT(TENSOR_QKV) | ROLE_BIT(TENSOR_Q_BIAS) | ROLE_BIT(TENSOR_K_BIAS) |
                       ROLE_BIT(TENSOR_V_BIAS) | ROLE_BIT(TENSOR_QKV_BIAS) |
                       ROLE_BIT(TENSOR_ATTENTION_OUT_BIAS);
    if (hyperparameters->n_experts)
        allowed |= ROLE_BIT(TENSOR_ROUTER_BIAS) | ROLE_BIT(TENSOR_EXPERTS_GATE_BIAS) |
                   ROLE_BIT(TENSOR_EXPERTS_UP_BIAS) | ROLE_BIT(TENSOR_EXPERTS_DOWN_BIAS);
    else
        allowed |= ROLE_BIT(TENSOR_FFN_GATE_BIAS) | ROLE_BIT(TENSOR_FFN_UP_BIAS) |
                   ROLE_BIT(TENSOR_FFN_DOWN_BIAS);
    return allowed | architecture_roles_needed(architecture, hyperparameters);
}

bool hyperparameters_layer_windowed(const struct hyperparameters *hyperparameters, uint32_t layer)
{
    uint32_t period = hyperparameters->window_period;
    if (!hyperparameters->window || !period)
        return false;
    return period == 1 || layer % period < period - 1;
}
