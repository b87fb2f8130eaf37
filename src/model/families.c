#include "model/architecture.h"

#include <string.h>

#define QK_NORM (ROLE_BIT(TENSOR_Q_NORM) | ROLE_BIT(TENSOR_K_NORM))
#define GATED_SHARED_EXPERT (SHARED_EXPERT | ROLE_BIT(TENSOR_SHARED_ROUTER))
#define SHARED_EXPERT                                                                              \
    (ROLE_BIT(TENSOR_SHARED_GATE) | ROLE_BIT(TENSOR_SHARED_UP) | ROLE_BIT(TENSOR_SHARED_DOWN))

/* The families, a row each; architecture.h says what the fields mean. What is not said is as in
 * llama: RMS norm before attention and FFN, rotary positions on pairs (2i, 2i+1), SwiGLU, softmax
 * gating of experts. Biases are used wherever the file has them. */
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
    {
        .name = "lfm2",
        .description = "LFM 2",
        .rope = ROPE_NEOX,
        .needs = QK_NORM,
        .recurrence = RECURRENCE_SHORT_CONVOLUTION,
    },
    {
        .name = "lfm2moe",
        .description = "LFM 2, mixture of experts",
        .rope = ROPE_NEOX,
        .needs = QK_NORM,
        .may_have = ROLE_BIT(TENSOR_CHOICE_BIAS),
        .gating = GATE_SIGMOID,
        .recurrence = RECURRENCE_SHORT_CONVOLUTION,
    },
    {
        .name = "granitehybrid",
        .description = "Granite 4 H",
        .rope = ROPE_NORM,
        .may_have = SHARED_EXPERT,
        .logit_scale_divides = true,
        .rotates_if_finetuned = true,
        .recurrence = RECURRENCE_MAMBA2,
    },
    {
        .name = "nemotron_h",
        .description = "Nemotron H, Nemotron Nano 2",
        .never_rotates = true,
        .activation = ACT_RELU_SQUARED,
        .has_no_gate = true,
        .is_one_branch = true,
        .recurrence = RECURRENCE_MAMBA2,
    },
    {
        .name = "nemotron_h_moe",
        .description = "Nemotron 3, mixture of experts",
        .may_have = ROLE_BIT(TENSOR_SHARED_UP) | ROLE_BIT(TENSOR_SHARED_DOWN) |
                    ROLE_BIT(TENSOR_CHOICE_BIAS) | ROLE_BIT(TENSOR_EXPERTS_LATENT_DOWN) |
                    ROLE_BIT(TENSOR_EXPERTS_LATENT_UP),
        .gating = GATE_SIGMOID,
        .never_rotates = true,
        .activation = ACT_RELU_SQUARED,
        .has_no_gate = true,
        .is_one_branch = true,
        .recurrence = RECURRENCE_MAMBA2,
    },
    {
        .name = "qwen3next",
        .description = "Qwen 3 Next",
        .rope = ROPE_NEOX,
        .needs = QK_NORM | ROLE_BIT(TENSOR_ATTENTION_POST_NORM) | ROLE_BIT(TENSOR_DELTA_BETA_ALPHA),
        .may_have = GATED_SHARED_EXPERT,
        .ffn_norm_is_post = true,
        .has_query_gate = true,
        .recurrence = RECURRENCE_DELTA,
        .attention_period = 4,
    },
    {
        .name = "qwen35",
        .description = "Qwen 3.5",
        .rope = ROPE_NEOX,
        .needs = QK_NORM | ROLE_BIT(TENSOR_ATTENTION_POST_NORM) | ROLE_BIT(TENSOR_DELTA_BETA) |
                 ROLE_BIT(TENSOR_DELTA_ALPHA),
        .ffn_norm_is_post = true,
        .has_query_gate = true,
        .recurrence = RECURRENCE_DELTA,
        .attention_period = 4,
        .delta_heads_tile = true,
    },
    {
        .name = "qwen35moe",
        .description = "Qwen 3.5, mixture of experts",
        .rope = ROPE_NEOX,
        .needs = QK_NORM | ROLE_BIT(TENSOR_ATTENTION_POST_NORM) | ROLE_BIT(TENSOR_DELTA_BETA) |
                 ROLE_BIT(TENSOR_DELTA_ALPHA),
        .may_have = GATED_SHARED_EXPERT,
        .ffn_norm_is_post = true,
        .has_query_gate = true,
        .recurrence = RECURRENCE_DELTA,
        .attention_period = 4,
        .delta_heads_tile = true,
    },
    {
        .name = "kimi-linear",
        .description = "Kimi Linear",
        .rope = ROPE_NORM,
        .needs = ROLE_BIT(TENSOR_DELTA_DECAY_UP) | ROLE_BIT(TENSOR_DELTA_GATE_UP),
        .may_have = SHARED_EXPERT | ROLE_BIT(TENSOR_CHOICE_BIAS),
        .gating = GATE_SIGMOID,
        .has_latent_attention = true,
        .never_rotates = true,
        .recurrence = RECURRENCE_DELTA_CHANNELS,
    },
    {
        .name = "bailingmoe3",
        .description = "Ling 3, Ring 3",
        .rope = ROPE_NORM,
        .may_have =
            SHARED_EXPERT | ROLE_BIT(TENSOR_CHOICE_BIAS) | ROLE_BIT(TENSOR_ATTENTION_HEAD_GATE),
        .gating = GATE_SIGMOID,
        .has_latent_attention = true,
        .recurrence = RECURRENCE_DELTA_CHANNELS,
        .delta_decay_is_bounded = true,
    },
    {
        .name = "minimax-01",
        .description = "MiniMax Text 01, M1",
        .rope = ROPE_NEOX,
        .is_residual_normed = true,
        .recurrence = RECURRENCE_LIGHTNING,
        .attention_period = 8,
    },
};

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
