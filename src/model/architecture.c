#include "model/architecture.h"

#include <stdio.h>
#include <string.h>

#define QK_NORM (ROLE_BIT(TENSOR_Q_NORM) | ROLE_BIT(TENSOR_K_NORM))
#define SHARED_EXPERT                                                                              \
    (ROLE_BIT(TENSOR_SHARED_GATE) | ROLE_BIT(TENSOR_SHARED_UP) | ROLE_BIT(TENSOR_SHARED_DOWN))

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
        .expert_sum = EXPERT_SUM_KEPT,
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
        .may_have = SHARED_EXPERT,
        .logit_scale_divides = true,
    },
    {
        .name = "deepseek2",
        .description = "DeepSeek V2, V3 and R1, Kimi K2, GLM 4.7 Flash, Mistral Large 3",
        .rope = ROPE_NORM,
        .may_have = SHARED_EXPERT | ROLE_BIT(TENSOR_CHOICE_BIAS),
        .has_latent_attention = true,
        .keeps_yarn_length = true,
        .yarn_log_unit = 0.1f,
        .expert_sum = EXPERT_SUM_KEPT,
    },
    {
        .name = "mistral4",
        .description = "Mistral Small 4",
        .rope = ROPE_NORM,
        .may_have = SHARED_EXPERT,
        .has_latent_attention = true,
        .yarn_log_unit = 0.1f,
        .expert_sum = EXPERT_SUM_KEPT,
    },
    {
        .name = "mistral3",
        .description = "Ministral 3, Mistral Medium 3",
        .rope = ROPE_NORM,
        .yarn_log_unit = 1.0f,
    },
    {
        .name = "llama4",
        .description = "Llama 4",
        .rope = ROPE_NORM,
        .needs = SHARED_EXPERT,
        .gating = GATE_SIGMOID,
        .expert_sum = EXPERT_SUM_KEPT,
        .qk_norm_unweighted = true,
        .unrotated_period = 4,
        .context_max = 8192,
        .weighs_input = true,
    },
    {
        .name = "glm4moe",
        .description = "GLM 4.5 to 4.7, mixture of experts",
        .rope = ROPE_NEOX,
        .needs = ROLE_BIT(TENSOR_ATTENTION_POST_NORM) | ROLE_BIT(TENSOR_CHOICE_BIAS),
        .may_have = SHARED_EXPERT | QK_NORM,
        .ffn_norm_is_post = true,
        .gating = GATE_SIGMOID,
    },
    {
        .name = "minimax-m2",
        .description = "MiniMax M2",
        .rope = ROPE_NEOX,
        .needs = QK_NORM | ROLE_BIT(TENSOR_CHOICE_BIAS),
        .qk_norm_whole = true,
        .gating = GATE_SIGMOID,
    },
    {
        .name = "qwen3vl",
        .description = "Qwen 3 VL, text",
        .rope = ROPE_NEOX,
        .needs = QK_NORM,
    },
    {
        .name = "qwen3vlmoe",
        .description = "Qwen 3 VL, mixture of experts, text",
        .rope = ROPE_NEOX,
        .needs = QK_NORM,
    },
    {
        .name = "hunyuan-dense",
        .description = "Hunyuan",
        .rope = ROPE_NEOX,
        .needs = QK_NORM,
        .qk_norm_after_rope = true,
    },
    {
        .name = "hunyuan-moe",
        .description = "Hunyuan A13B, mixture of experts",
        .rope = ROPE_NEOX,
        .needs = QK_NORM | SHARED_EXPERT,
        .qk_norm_after_rope = true,
    },
    {
        .name = "hy_v3",
        .description = "Hunyuan 3, mixture of experts",
        .rope = ROPE_NEOX,
        .needs = QK_NORM | SHARED_EXPERT | ROLE_BIT(TENSOR_CHOICE_BIAS),
        .gating = GATE_SIGMOID,
    },
    {
        .name = "ernie4_5",
        .description = "ERNIE 4.5",
        .rope = ROPE_NORM,
    },
    {
        .name = "ernie4_5-moe",
        .description = "ERNIE 4.5, mixture of experts",
        .rope = ROPE_NORM,
        .may_have = SHARED_EXPERT | ROLE_BIT(TENSOR_CHOICE_BIAS),
    },
    {
        .name = "bailingmoe2",
        .description = "Ling and Ring 2, mixture of experts",
        .rope = ROPE_NEOX,
        .needs = QK_NORM | SHARED_EXPERT,
        .may_have = ROLE_BIT(TENSOR_CHOICE_BIAS),
        .gating = GATE_SIGMOID,
        .expert_sum = EXPERT_SUM_KEPT,
    },
    {
        .name = "dots1",
        .description = "dots.llm1, mixture of experts",
        .rope = ROPE_NEOX,
        .needs = QK_NORM | SHARED_EXPERT,
        .may_have = ROLE_BIT(TENSOR_CHOICE_BIAS),
        .expert_sum = EXPERT_SUM_KEPT,
    },
    {
        .name = "afmoe",
        .description = "Trinity, mixture of experts",
        .rope = ROPE_NEOX,
        .needs = QK_NORM | ROLE_BIT(TENSOR_ATTENTION_GATE) | ROLE_BIT(TENSOR_ATTENTION_POST_NORM) |
                 ROLE_BIT(TENSOR_FFN_POST_NORM),
        .may_have = SHARED_EXPERT | ROLE_BIT(TENSOR_CHOICE_BIAS),
        .gating = GATE_SIGMOID,
        .expert_sum = EXPERT_SUM_KEPT,
        .window_period = 4,
        .rotates_only_windowed = true,
        .embedding_scale_sqrt = true,
    },
    {
        .name = "exaone4",
        .description = "EXAONE 4",
        .rope = ROPE_NEOX,
        .needs = QK_NORM | ROLE_BIT(TENSOR_ATTENTION_POST_NORM) | ROLE_BIT(TENSOR_FFN_POST_NORM),
        .post_norm_only = true,
        .window_period = 4,
        .window_needs_layers = 64,
        .rotates_only_windowed = true,
    },
    {
        .name = "exaone-moe",
        .description = "K-EXAONE, mixture of experts",
        .rope = ROPE_NEOX,
        .needs = QK_NORM,
        .may_have = SHARED_EXPERT | ROLE_BIT(TENSOR_CHOICE_BIAS),
        .gating = GATE_SIGMOID,
        .expert_sum = EXPERT_SUM_KEPT,
        .window_period = 4,
        .rotates_only_windowed = true,
    },
    {
        .name = "cohere2",
        .description = "Command A and R7B",
        .rope = ROPE_NORM,
        .norm = NORM_LAYER,
        .is_parallel = true,
        .window_period = 4,
        .rotates_only_windowed = true,
    },
    {
        .name = "smollm3",
        .description = "SmolLM 3",
        .rope = ROPE_NORM,
        .unrotated_period = 4,
    },
    {
        .name = "seed_oss",
        .description = "Seed-OSS",
        .rope = ROPE_NEOX,
        .needs = ROLE_BIT(TENSOR_ATTENTION_POST_NORM),
        .ffn_norm_is_post = true,
    },
    {
        .name = "grok",
        .description = "Grok 1 and 2",
        .rope = ROPE_NEOX,
        .needs = ROLE_BIT(TENSOR_ATTENTION_POST_NORM) | ROLE_BIT(TENSOR_FFN_POST_NORM),
        .may_have = ROLE_BIT(TENSOR_FFN_GATE) | ROLE_BIT(TENSOR_FFN_UP) | ROLE_BIT(TENSOR_FFN_DOWN),
        .activation = ACT_GELU,
        .attention_scale_key = "attention.output_scale",
        .attention_softcap = 30.0f,
        .has_dense_beside = true,
        .embedding_scale = 78.38367176906169f,
        .logit_scale = 0.5773502691896257f,
    },
    {
        .name = "phi2",
        .description = "Phi 2",
        .rope = ROPE_NEOX,
        .norm = NORM_LAYER,
        .needs = ROLE_BIT(TENSOR_OUTPUT_NORM_BIAS) | ROLE_BIT(TENSOR_ATTENTION_NORM_BIAS),
        .may_have = ROLE_BIT(TENSOR_OUTPUT_BIAS),
        .is_parallel = true,
        .activation = ACT_GELU,
        .has_no_gate = true,
    },
    {
        .name = "phimoe",
        .description = "Phi 3.5, mixture of experts",
        .rope = ROPE_NEOX,
        .needs = ROLE_BIT(TENSOR_OUTPUT_NORM_BIAS) | ROLE_BIT(TENSOR_ATTENTION_NORM_BIAS) |
                 ROLE_BIT(TENSOR_FFN_NORM_BIAS),
        .may_have = ROLE_BIT(TENSOR_OUTPUT_BIAS),
        .ignore_window = true,
    },
    {
        .name = "mimo2",
        .description = "MiMo V2 Flash, mixture of experts",
        .rope = ROPE_NEOX,
        .may_have = ROLE_BIT(TENSOR_ATTENTION_SINKS) | ROLE_BIT(TENSOR_CHOICE_BIAS),
        .gating = GATE_SIGMOID,
        .window_period = WINDOW_AS_FILE,
    },
    {
        .name = "step35",
        .description = "Step 3.5 Flash, mixture of experts",
        .rope = ROPE_NEOX,
        .needs = QK_NORM,
        .may_have =
            SHARED_EXPERT | ROLE_BIT(TENSOR_ATTENTION_HEAD_GATE) | ROLE_BIT(TENSOR_CHOICE_BIAS),
        .gating = GATE_SIGMOID,
        .expert_sum = EXPERT_SUM_KEPT,
        .window_period = WINDOW_AS_FILE,
        .full_layers_rotate_half = true,
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
    DIM_FF_SHARED,
    DIM_EXPERTS,
    DIM_ROT_PAIRS,
    DIM_LATENT_Q,
    DIM_LATENT_Q_HEADS, /* n_head x a head's key, unpacked */
    DIM_LATENT_KV,
    DIM_LATENT_KV_ROT,   /* and the rotated part of the key beside it */
    DIM_LATENT_KV_HEADS, /* n_head x (unrotated key, value) */
    DIM_LATENT_K_PLAIN,  /* the unrotated part of a head's key */
    DIM_LATENT_V,
};

static const struct {
    const char *name;
    bool per_layer;
    uint8_t dims[3];
    const char *other_name; /* NULL: all files agree */
    bool is_of_experts;
} roles[TENSOR_ROLE_COUNT] = {
    [TENSOR_TOKEN_EMBEDDING] = {"token_embd.weight", false, {DIM_EMBD, DIM_VOCAB}},
    [TENSOR_OUTPUT_NORM] = {"output_norm.weight", false, {DIM_EMBD}},
    [TENSOR_OUTPUT_NORM_BIAS] = {"output_norm.bias", false, {DIM_EMBD}},
    [TENSOR_OUTPUT] = {"output.weight", false, {DIM_EMBD, DIM_VOCAB}},
    [TENSOR_OUTPUT_BIAS] = {"output.bias", false, {DIM_VOCAB}},
    [TENSOR_ROPE_FREQS] = {"rope_freqs.weight", false, {DIM_ROT_PAIRS}},
    [TENSOR_ROPE_FACTORS_LONG] = {"rope_factors_long.weight", false, {DIM_ROT_PAIRS}},
    [TENSOR_ROPE_FACTORS_SHORT] = {"rope_factors_short.weight", false, {DIM_ROT_PAIRS}},
    [TENSOR_ATTENTION_NORM] = {"blk.%u.attn_norm.weight", true, {DIM_EMBD}},
    [TENSOR_ATTENTION_NORM_BIAS] = {"blk.%u.attn_norm.bias", true, {DIM_EMBD}},
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
    [TENSOR_ATTENTION_GATE] = {"blk.%u.attn_gate.weight", true, {DIM_EMBD, DIM_O}},
    [TENSOR_ATTENTION_HEAD_GATE] = {"blk.%u.attn_gate.weight", true, {DIM_EMBD, DIM_HEADS}},
    [TENSOR_ATTENTION_POST_NORM] = {"blk.%u.post_attention_norm.weight",
                                    true,
                                    {DIM_EMBD},
                                    "blk.%u.attn_output_norm.weight"},
    [TENSOR_LATENT_Q_DOWN] = {"blk.%u.attn_q_a.weight", true, {DIM_EMBD, DIM_LATENT_Q}},
    [TENSOR_LATENT_Q_NORM] = {"blk.%u.attn_q_a_norm.weight", true, {DIM_LATENT_Q}},
    [TENSOR_LATENT_Q_UP] = {"blk.%u.attn_q_b.weight", true, {DIM_LATENT_Q, DIM_LATENT_Q_HEADS}},
    [TENSOR_LATENT_KV_DOWN] = {"blk.%u.attn_kv_a_mqa.weight", true, {DIM_EMBD, DIM_LATENT_KV_ROT}},
    [TENSOR_LATENT_KV_NORM] = {"blk.%u.attn_kv_a_norm.weight", true, {DIM_LATENT_KV}},
    [TENSOR_LATENT_KV_UP] = {"blk.%u.attn_kv_b.weight", true, {DIM_LATENT_KV, DIM_LATENT_KV_HEADS}},
    [TENSOR_LATENT_K_UP] = {"blk.%u.attn_k_b.weight",
                            true,
                            {DIM_LATENT_K_PLAIN, DIM_LATENT_KV, DIM_HEADS}},
    [TENSOR_LATENT_V_UP] = {"blk.%u.attn_v_b.weight",
                            true,
                            {DIM_LATENT_KV, DIM_LATENT_V, DIM_HEADS}},
    [TENSOR_FFN_NORM] = {"blk.%u.ffn_norm.weight", true, {DIM_EMBD}},
    [TENSOR_FFN_NORM_BIAS] = {"blk.%u.ffn_norm.bias", true, {DIM_EMBD}},
    [TENSOR_FFN_GATE] = {"blk.%u.ffn_gate.weight", true, {DIM_EMBD, DIM_FF}},
    [TENSOR_FFN_UP] = {"blk.%u.ffn_up.weight", true, {DIM_EMBD, DIM_FF_UP}},
    [TENSOR_FFN_DOWN] = {"blk.%u.ffn_down.weight", true, {DIM_FF, DIM_EMBD}},
    [TENSOR_FFN_GATE_BIAS] = {"blk.%u.ffn_gate.bias", true, {DIM_FF}},
    [TENSOR_FFN_UP_BIAS] = {"blk.%u.ffn_up.bias", true, {DIM_FF_UP}},
    [TENSOR_FFN_DOWN_BIAS] = {"blk.%u.ffn_down.bias", true, {DIM_EMBD}},
    [TENSOR_FFN_POST_NORM] = {"blk.%u.post_ffw_norm.weight",
                              true,
                              {DIM_EMBD},
                              "blk.%u.layer_output_norm.weight"},
    [TENSOR_ROUTER] = {"blk.%u.ffn_gate_inp.weight", true, {DIM_EMBD, DIM_EXPERTS}},
    [TENSOR_ROUTER_BIAS] = {"blk.%u.ffn_gate_inp.bias", true, {DIM_EXPERTS}},
    [TENSOR_CHOICE_BIAS] = {"blk.%u.exp_probs_b.bias", true, {DIM_EXPERTS}, "blk.%u.exp_probs_b"},
    [TENSOR_EXPERTS_GATE] =
        {"blk.%u.ffn_gate_exps.weight", true, {DIM_EMBD, DIM_FF_EXPERT, DIM_EXPERTS}, NULL, true},
    [TENSOR_EXPERTS_UP] =
        {"blk.%u.ffn_up_exps.weight", true, {DIM_EMBD, DIM_FF_EXPERT, DIM_EXPERTS}, NULL, true},
    [TENSOR_EXPERTS_DOWN] =
        {"blk.%u.ffn_down_exps.weight", true, {DIM_FF_EXPERT, DIM_EMBD, DIM_EXPERTS}, NULL, true},
    [TENSOR_EXPERTS_GATE_BIAS] = {"blk.%u.ffn_gate_exps.bias", true, {DIM_FF_EXPERT, DIM_EXPERTS}},
    [TENSOR_EXPERTS_UP_BIAS] = {"blk.%u.ffn_up_exps.bias", true, {DIM_FF_EXPERT, DIM_EXPERTS}},
    [TENSOR_EXPERTS_DOWN_BIAS] = {"blk.%u.ffn_down_exps.bias", true, {DIM_EMBD, DIM_EXPERTS}},
    [TENSOR_SHARED_GATE] = {"blk.%u.ffn_gate_shexp.weight", true, {DIM_EMBD, DIM_FF_SHARED}},
    [TENSOR_SHARED_UP] = {"blk.%u.ffn_up_shexp.weight", true, {DIM_EMBD, DIM_FF_SHARED}},
    [TENSOR_SHARED_DOWN] = {"blk.%u.ffn_down_shexp.weight", true, {DIM_FF_SHARED, DIM_EMBD}},
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

bool tensor_role_other_name(enum tensor_role role, uint32_t layer, char *out, size_t out_size)
{
    if (roles[role].other_name)
        snprintf(out, out_size, roles[role].other_name, layer);
    return roles[role].other_name;
}
#pragma GCC diagnostic pop

bool tensor_role_per_layer(enum tensor_role role)
{
    return roles[role].per_layer;
}

bool tensor_role_is_of_experts(enum tensor_role role)
{
    return roles[role].is_of_experts;
}

static int64_t dim_size(const struct architecture *a, const struct hyperparameters *h,
                        const struct layer_form *form, enum tensor_dim dim)
{
    const int64_t n_head = form->n_head, plain = (int64_t)h->n_latent_dim_k - h->n_rot;
    int64_t q = n_head * h->n_head_dim_k, k = (int64_t)form->n_head_kv * h->n_head_dim_k;
    int64_t v = (int64_t)form->n_head_kv * h->n_head_dim_v;
    switch (dim) {
    case DIM_NONE:
        return 0;
    case DIM_EMBD:
        return h->n_embd;
    case DIM_VOCAB:
        return h->n_vocab;
    case DIM_Q:
        return h->n_latent_kv ? n_head * h->n_latent_dim_k : q;
    case DIM_K:
        return k;
    case DIM_V:
        return v;
    case DIM_QKV:
        return q + k + v;
    case DIM_O:
        return n_head * (h->n_latent_kv ? h->n_latent_dim_v : h->n_head_dim_v);
    case DIM_Q_NORM:
        return a->qk_norm_whole ? q : h->n_head_dim_k;
    case DIM_K_NORM:
        return a->qk_norm_whole ? k : h->n_head_dim_k;
    case DIM_HEADS:
        return n_head;
    case DIM_FF:
        return h->n_ff;
    case DIM_FF_UP:
        return a->fused_gate_up ? 2 * (int64_t)h->n_ff : h->n_ff;
    case DIM_FF_EXPERT:
        return h->n_ff_expert;
    case DIM_FF_SHARED:
        return h->n_ff_shared;
    case DIM_EXPERTS:
        return h->n_experts;
    case DIM_ROT_PAIRS:
        return h->n_rot / 2;
    case DIM_LATENT_Q:
        return h->n_latent_q;
    case DIM_LATENT_Q_HEADS:
        return n_head * h->n_latent_dim_k;
    case DIM_LATENT_KV:
        return h->n_latent_kv;
    case DIM_LATENT_KV_ROT:
        return (int64_t)h->n_latent_kv + h->n_rot;
    case DIM_LATENT_KV_HEADS:
        return n_head * (plain + h->n_latent_dim_v);
    case DIM_LATENT_K_PLAIN:
        return plain;
    case DIM_LATENT_V:
        return h->n_latent_dim_v;
    }
    return 0;
}

void tensor_role_shape(const struct architecture *architecture,
                       const struct hyperparameters *hyperparameters, enum tensor_role role,
                       uint32_t layer, int64_t ne[3])
{
    for (int i = 0; i < 3; i++)
        ne[i] = dim_size(architecture, hyperparameters, &hyperparameters->layers[layer],
                         (enum tensor_dim)roles[role].dims[i]);
}

static uint64_t roles_of_attention(const struct hyperparameters *h)
{
    uint64_t needed = ROLE_BIT(TENSOR_ATTENTION_OUT);
    if (!h->n_latent_kv)
        return needed;
    needed |= ROLE_BIT(TENSOR_LATENT_KV_DOWN) | ROLE_BIT(TENSOR_LATENT_KV_NORM);
    needed |= h->n_latent_q ? ROLE_BIT(TENSOR_LATENT_Q_DOWN) | ROLE_BIT(TENSOR_LATENT_Q_NORM) |
                                  ROLE_BIT(TENSOR_LATENT_Q_UP)
                            : ROLE_BIT(TENSOR_Q);
    return needed |
           (h->is_latent_absorbed ? ROLE_BIT(TENSOR_LATENT_K_UP) | ROLE_BIT(TENSOR_LATENT_V_UP)
                                  : ROLE_BIT(TENSOR_LATENT_KV_UP));
}

static uint64_t roles_of_dense(const struct architecture *a)
{
    uint64_t needed = ROLE_BIT(TENSOR_FFN_UP) | ROLE_BIT(TENSOR_FFN_DOWN);
    return a->fused_gate_up || a->has_no_gate ? needed : needed | ROLE_BIT(TENSOR_FFN_GATE);
}

/* Those of a mixture that families name in `needs` and `may_have`. */
static const uint64_t roles_of_mixture =
    SHARED_EXPERT | ROLE_BIT(TENSOR_CHOICE_BIAS) | ROLE_BIT(TENSOR_ROUTER_BIAS) |
    ROLE_BIT(TENSOR_EXPERTS_GATE_BIAS) | ROLE_BIT(TENSOR_EXPERTS_UP_BIAS) |
    ROLE_BIT(TENSOR_EXPERTS_DOWN_BIAS);

uint64_t architecture_roles_needed(const struct architecture *architecture,
                                   const struct hyperparameters *hyperparameters, uint32_t layer)
{
    uint64_t needed = architecture->needs | ROLE_BIT(TENSOR_TOKEN_EMBEDDING) |
                      ROLE_BIT(TENSOR_OUTPUT_NORM) | roles_of_attention(hyperparameters);
    if (!architecture->post_norm_only)
        needed |= ROLE_BIT(TENSOR_ATTENTION_NORM);
    if (!architecture->post_norm_only && !architecture->ffn_norm_is_post &&
        !architecture->is_parallel)
        needed |= ROLE_BIT(TENSOR_FFN_NORM);
    if (!hyperparameters->layers[layer].is_mixture)
        return (needed & ~roles_of_mixture) | roles_of_dense(architecture);
    return needed | ROLE_BIT(TENSOR_ROUTER) | ROLE_BIT(TENSOR_EXPERTS_GATE) |
           ROLE_BIT(TENSOR_EXPERTS_UP) | ROLE_BIT(TENSOR_EXPERTS_DOWN);
}

uint64_t architecture_roles_allowed(const struct architecture *architecture,
                                    const struct hyperparameters *hyperparameters, uint32_t layer)
{
    uint64_t allowed = ROLE_BIT(TENSOR_OUTPUT) | ROLE_BIT(TENSOR_ROPE_FREQS) |
                       ROLE_BIT(TENSOR_ROPE_FACTORS_LONG) | ROLE_BIT(TENSOR_ROPE_FACTORS_SHORT) |
                       ROLE_BIT(TENSOR_ATTENTION_OUT_BIAS) | architecture->may_have;
    if (!hyperparameters->n_latent_kv)
        allowed |= ROLE_BIT(TENSOR_Q) | ROLE_BIT(TENSOR_K) | ROLE_BIT(TENSOR_V) |
                   ROLE_BIT(TENSOR_QKV) | ROLE_BIT(TENSOR_Q_BIAS) | ROLE_BIT(TENSOR_K_BIAS) |
                   ROLE_BIT(TENSOR_V_BIAS) | ROLE_BIT(TENSOR_QKV_BIAS);
    if (hyperparameters->layers[layer].is_mixture)
        allowed |= ROLE_BIT(TENSOR_ROUTER_BIAS) | ROLE_BIT(TENSOR_EXPERTS_GATE_BIAS) |
                   ROLE_BIT(TENSOR_EXPERTS_UP_BIAS) | ROLE_BIT(TENSOR_EXPERTS_DOWN_BIAS);
    else
        allowed = (allowed & ~roles_of_mixture) | ROLE_BIT(TENSOR_FFN_GATE_BIAS) |
                  ROLE_BIT(TENSOR_FFN_UP_BIAS) | ROLE_BIT(TENSOR_FFN_DOWN_BIAS);
    return allowed | architecture_roles_needed(architecture, hyperparameters, layer);
}

bool hyperparameters_layer_windowed(const struct hyperparameters *hyperparameters, uint32_t layer)
{
    return hyperparameters->layers[layer].is_windowed;
}

uint32_t hyperparameters_period(const struct hyperparameters *hyperparameters)
{
    uint32_t period = hyperparameters->window_period > 2 ? hyperparameters->window_period : 2;
    return period > hyperparameters->mixture_period ? period : hyperparameters->mixture_period;
}
