/* What tensors are for: their names and shapes. */
#include "model/architecture.h"

#include <stdio.h>
#include <string.h>

/* Sizes that shapes are made of. */
enum tensor_dim {
    DIM_NONE,
    DIM_ONE,
    DIM_EMBD,
    DIM_VOCAB,
    DIM_POSITIONS,
    DIM_TOKEN_TYPES,
    DIM_LABELS,
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
    DIM_FF_EXPERT_TWICE,
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
    DIM_INDEX_HEADS,
    DIM_INDEX_KEY,
    DIM_INDEX_IN,     /* what its queries are made of */
    DIM_INDEX_QUERY,  /* of all its heads */
    DIM_EXPERT_IN,    /* what routed experts take and give */
    DIM_LAYER_INPUT,  /* a token's embedding of one layer */
    DIM_LAYER_INPUTS, /* of all of them */
    DIM_KERNEL,
    DIM_CHANNELS,
    DIM_CHANNELS_IN, /* a short convolution's, thrice */
    DIM_STATE_IN,    /* gate, channels and step of a Mamba-2 layer */
    DIM_STATE_HEADS,
    DIM_STATE_HEADS_TWICE,
    DIM_STATE_BIAS, /* a step's: of a head, or of every channel */
    DIM_STATE_VALUES,
    DIM_STATE_VALUES_THRICE,
    DIM_STATE_NORM,
    DIM_STATE_NORM_GROUPS,
    DIM_STATE_LOW,  /* between the two matrices of Kimi's decay */
    DIM_STATE_GATE, /* … and gate */
    DIM_SUMMARY,    /* tokens of a summary */
    DIM_SUMMARY_K,  /* a head's key, twice where summaries overlap */
    DIM_SUMMARY_INDEX,
    DIM_SUMMARY_INDEX_KEY,
    DIM_OUT_GROUP, /* values of the heads of a group */
    DIM_OUT_GROUPS,
    DIM_HEAD,
    DIM_EXPERTS_USED,
    DIM_STREAMS,
    DIM_STREAMS_ALL,   /* n_embd of each */
    DIM_STREAMS_MIXES, /* weights of a layer's input, of what it gives, and of streams by streams */
    DIM_THREE,
};

static const struct {
    const char *name;
    bool per_layer;
    uint8_t dims[3];
    const char *other_name; /* NULL: all files agree */
    bool is_of_experts;
    bool is_elementwise; /* F32, and dimensions of 1 may be anywhere in its shape */
} roles[TENSOR_ROLE_COUNT] = {
    [TENSOR_TOKEN_EMBEDDING] = {"token_embd.weight", false, {DIM_EMBD, DIM_VOCAB}},
    [TENSOR_POSITION_EMBEDDING] = {"position_embd.weight", false, {DIM_EMBD, DIM_POSITIONS}},
    [TENSOR_TYPE_EMBEDDING] = {"token_types.weight", false, {DIM_EMBD, DIM_TOKEN_TYPES}},
    [TENSOR_EMBEDDING_NORM] = {"token_embd_norm.weight", false, {DIM_EMBD}},
    [TENSOR_EMBEDDING_NORM_BIAS] = {"token_embd_norm.bias", false, {DIM_EMBD}},
    [TENSOR_OUTPUT_NORM] = {"output_norm.weight", false, {DIM_EMBD}, "token_embd_norm.weight"},
    [TENSOR_OUTPUT_NORM_BIAS] = {"output_norm.bias", false, {DIM_EMBD}},
    [TENSOR_OUTPUT] = {"output.weight", false, {DIM_EMBD, DIM_VOCAB}},
    [TENSOR_OUTPUT_BIAS] = {"output.bias", false, {DIM_VOCAB}},
    [TENSOR_INPUTS_EMBEDDING] = {"per_layer_token_embd.weight",
                                 false,
                                 {DIM_LAYER_INPUTS, DIM_VOCAB}},
    [TENSOR_INPUTS_PROJECTION] = {"per_layer_model_proj.weight",
                                  false,
                                  {DIM_EMBD, DIM_LAYER_INPUTS}},
    [TENSOR_INPUTS_NORM] = {"per_layer_proj_norm.weight", false, {DIM_LAYER_INPUT}},
    [TENSOR_RANK_DENSE] = {"cls.weight", false, {DIM_EMBD, DIM_EMBD}},
    [TENSOR_RANK_DENSE_BIAS] = {"cls.bias", false, {DIM_EMBD}},
    [TENSOR_RANK_NORM] = {"cls.norm.weight", false, {DIM_EMBD}},
    [TENSOR_RANK_OUT] = {"cls.output.weight", false, {DIM_EMBD, DIM_LABELS}},
    [TENSOR_RANK_OUT_BIAS] = {"cls.output.bias", false, {DIM_LABELS}},
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
    [TENSOR_ATTENTION_POST_NORM_BIAS] = {"blk.%u.attn_output_norm.bias", true, {DIM_EMBD}},
    [TENSOR_ATTENTION_SECOND_NORM] = {"blk.%u.attn_norm_2.weight", true, {DIM_EMBD}},
    [TENSOR_ATTENTION_SECOND_NORM_BIAS] = {"blk.%u.attn_norm_2.bias", true, {DIM_EMBD}},
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
    [TENSOR_INDEX_Q] = {"blk.%u.indexer.attn_q_b.weight",
                        true,
                        {DIM_INDEX_IN, DIM_INDEX_QUERY},
                        "blk.%u.indexer.q_proj.weight"},
    [TENSOR_INDEX_Q_NORM] = {"blk.%u.indexer.q_norm.weight", true, {DIM_INDEX_KEY}},
    [TENSOR_INDEX_K] = {"blk.%u.indexer.attn_k.weight",
                        true,
                        {DIM_EMBD, DIM_INDEX_KEY},
                        "blk.%u.indexer.k_proj.weight"},
    [TENSOR_INDEX_K_NORM] = {"blk.%u.indexer.k_norm.weight", true, {DIM_INDEX_KEY}},
    [TENSOR_INDEX_K_NORM_BIAS] = {"blk.%u.indexer.k_norm.bias", true, {DIM_INDEX_KEY}},
    [TENSOR_INDEX_WEIGHTS] = {"blk.%u.indexer.proj.weight", true, {DIM_EMBD, DIM_INDEX_HEADS}},
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
    [TENSOR_FFN_POST_NORM_BIAS] = {"blk.%u.layer_output_norm.bias", true, {DIM_EMBD}},
    [TENSOR_ROUTER] = {"blk.%u.ffn_gate_inp.weight", true, {DIM_EMBD, DIM_EXPERTS}},
    [TENSOR_ROUTER_BIAS] = {"blk.%u.ffn_gate_inp.bias", true, {DIM_EXPERTS}},
    [TENSOR_CHOICE_BIAS] = {"blk.%u.exp_probs_b.bias", true, {DIM_EXPERTS}, "blk.%u.exp_probs_b"},
    [TENSOR_EXPERTS_GATE] = {"blk.%u.ffn_gate_exps.weight",
                             true,
                             {DIM_EXPERT_IN, DIM_FF_EXPERT, DIM_EXPERTS},
                             NULL,
                             true},
    [TENSOR_EXPERTS_UP] = {"blk.%u.ffn_up_exps.weight",
                           true,
                           {DIM_EXPERT_IN, DIM_FF_EXPERT, DIM_EXPERTS},
                           NULL,
                           true},
    [TENSOR_EXPERTS_DOWN] = {"blk.%u.ffn_down_exps.weight",
                             true,
                             {DIM_FF_EXPERT, DIM_EXPERT_IN, DIM_EXPERTS},
                             NULL,
                             true},
    [TENSOR_EXPERTS_GATE_BIAS] = {"blk.%u.ffn_gate_exps.bias", true, {DIM_FF_EXPERT, DIM_EXPERTS}},
    [TENSOR_EXPERTS_UP_BIAS] = {"blk.%u.ffn_up_exps.bias", true, {DIM_FF_EXPERT, DIM_EXPERTS}},
    [TENSOR_EXPERTS_DOWN_BIAS] = {"blk.%u.ffn_down_exps.bias", true, {DIM_EMBD, DIM_EXPERTS}},
    [TENSOR_SHARED_GATE] = {"blk.%u.ffn_gate_shexp.weight", true, {DIM_EMBD, DIM_FF_SHARED}},
    [TENSOR_SHARED_UP] = {"blk.%u.ffn_up_shexp.weight", true, {DIM_EMBD, DIM_FF_SHARED}},
    [TENSOR_SHARED_DOWN] = {"blk.%u.ffn_down_shexp.weight", true, {DIM_FF_SHARED, DIM_EMBD}},
    [TENSOR_SHARED_ROUTER] =
        {"blk.%u.ffn_gate_inp_shexp.weight", true, {DIM_EMBD}, NULL, false, true},
    [TENSOR_EXPERTS_LATENT_DOWN] = {"blk.%u.ffn_latent_down.weight",
                                    true,
                                    {DIM_EMBD, DIM_EXPERT_IN},
                                    "blk.%u.ffn_routed_down.weight"},
    [TENSOR_EXPERTS_LATENT_UP] = {"blk.%u.ffn_latent_up.weight",
                                  true,
                                  {DIM_EXPERT_IN, DIM_EMBD},
                                  "blk.%u.ffn_routed_up.weight"},
    [TENSOR_EXPERTS_LATENT_NORM] = {"blk.%u.ffn_routed_norm.weight", true, {DIM_EXPERT_IN}},
    [TENSOR_ATTENTION_RESIDUALS] = {"blk.%u.attn_res_score.weight", true, {DIM_EMBD}},
    [TENSOR_FFN_RESIDUALS] = {"blk.%u.ffn_res_score.weight", true, {DIM_EMBD}},
    [TENSOR_OUTPUT_RESIDUALS] = {"output_res_score.weight", false, {DIM_EMBD}},
    [TENSOR_EXPERTS_GATE_UP] = {"blk.%u.ffn_gate_up_exps.weight",
                                true,
                                {DIM_EXPERT_IN, DIM_FF_EXPERT_TWICE, DIM_EXPERTS},
                                NULL,
                                true},
    [TENSOR_EXPERTS_DOWN_SCALE] = {"blk.%u.ffn_down_exps.scale", true, {DIM_EXPERTS}},
    [TENSOR_EXPERTS_NORM] = {"blk.%u.pre_ffw_norm_2.weight", true, {DIM_EMBD}},
    [TENSOR_EXPERTS_POST_NORM] = {"blk.%u.post_ffw_norm_2.weight", true, {DIM_EMBD}},
    [TENSOR_DENSE_POST_NORM] = {"blk.%u.post_ffw_norm_1.weight", true, {DIM_EMBD}},
    [TENSOR_ROUTER_SCALE] = {"blk.%u.ffn_gate_inp.scale", true, {DIM_EMBD}},
    [TENSOR_LAYER_SCALE] = {"blk.%u.layer_output_scale.weight", true, {DIM_ONE}},
    [TENSOR_LAYER_INPUT_GATE] = {"blk.%u.inp_gate.weight", true, {DIM_EMBD, DIM_LAYER_INPUT}},
    [TENSOR_LAYER_INPUT_OUT] = {"blk.%u.proj.weight", true, {DIM_LAYER_INPUT, DIM_EMBD}},
    [TENSOR_LAYER_INPUT_NORM] = {"blk.%u.post_norm.weight", true, {DIM_EMBD}},
    [TENSOR_CONVOLUTION_IN] = {"blk.%u.shortconv.in_proj.weight",
                               true,
                               {DIM_EMBD, DIM_CHANNELS_IN}},
    [TENSOR_CONVOLUTION] =
        {"blk.%u.shortconv.conv.weight", true, {DIM_KERNEL, DIM_CHANNELS}, NULL, false, true},
    [TENSOR_CONVOLUTION_OUT] = {"blk.%u.shortconv.out_proj.weight", true, {DIM_CHANNELS, DIM_EMBD}},
    [TENSOR_STATE_IN] = {"blk.%u.ssm_in.weight", true, {DIM_EMBD, DIM_STATE_IN}},
    [TENSOR_STATE_CONVOLUTION] =
        {"blk.%u.ssm_conv1d.weight", true, {DIM_KERNEL, DIM_CHANNELS}, NULL, false, true},
    [TENSOR_STATE_CONVOLUTION_BIAS] =
        {"blk.%u.ssm_conv1d.bias", true, {DIM_CHANNELS}, NULL, false, true},
    [TENSOR_STATE_STEP_BIAS] = {"blk.%u.ssm_dt.bias", true, {DIM_STATE_BIAS}, NULL, false, true},
    [TENSOR_STATE_DECAY] = {"blk.%u.ssm_a", true, {DIM_STATE_HEADS}, NULL, false, true},
    [TENSOR_STATE_SKIP] = {"blk.%u.ssm_d", true, {DIM_STATE_HEADS}, NULL, false, true},
    [TENSOR_STATE_NORM] = {"blk.%u.ssm_norm.weight",
                           true,
                           {DIM_STATE_NORM, DIM_STATE_NORM_GROUPS},
                           NULL,
                           false,
                           true},
    [TENSOR_STATE_OUT] = {"blk.%u.ssm_out.weight", true, {DIM_STATE_VALUES, DIM_EMBD}},
    [TENSOR_DELTA_QKV] = {"blk.%u.attn_qkv.weight", true, {DIM_EMBD, DIM_CHANNELS}},
    [TENSOR_DELTA_GATE] = {"blk.%u.attn_gate.weight", true, {DIM_EMBD, DIM_STATE_VALUES}},
    [TENSOR_DELTA_BETA_ALPHA] = {"blk.%u.ssm_ba.weight", true, {DIM_EMBD, DIM_STATE_HEADS_TWICE}},
    [TENSOR_DELTA_BETA] = {"blk.%u.ssm_beta.weight", true, {DIM_EMBD, DIM_STATE_HEADS}},
    [TENSOR_DELTA_ALPHA] = {"blk.%u.ssm_alpha.weight", true, {DIM_EMBD, DIM_STATE_HEADS}},
    [TENSOR_DELTA_Q] = {"blk.%u.attn_q.weight", true, {DIM_EMBD, DIM_STATE_VALUES}},
    [TENSOR_DELTA_K] = {"blk.%u.attn_k.weight", true, {DIM_EMBD, DIM_STATE_VALUES}},
    [TENSOR_DELTA_V] = {"blk.%u.attn_v.weight", true, {DIM_EMBD, DIM_STATE_VALUES}},
    [TENSOR_DELTA_Q_CONVOLUTION] =
        {"blk.%u.ssm_conv1d_q.weight", true, {DIM_KERNEL, DIM_STATE_VALUES}, NULL, false, true},
    [TENSOR_DELTA_K_CONVOLUTION] =
        {"blk.%u.ssm_conv1d_k.weight", true, {DIM_KERNEL, DIM_STATE_VALUES}, NULL, false, true},
    [TENSOR_DELTA_V_CONVOLUTION] =
        {"blk.%u.ssm_conv1d_v.weight", true, {DIM_KERNEL, DIM_STATE_VALUES}, NULL, false, true},
    [TENSOR_DELTA_DECAY_DOWN] = {"blk.%u.ssm_f_a.weight", true, {DIM_EMBD, DIM_STATE_LOW}},
    [TENSOR_DELTA_DECAY_UP] = {"blk.%u.ssm_f_b.weight", true, {DIM_STATE_LOW, DIM_STATE_VALUES}},
    [TENSOR_DELTA_GATE_DOWN] = {"blk.%u.ssm_g_a.weight",
                                true,
                                {DIM_EMBD, DIM_STATE_GATE},
                                "blk.%u.ssm_g.weight"},
    [TENSOR_DELTA_GATE_UP] = {"blk.%u.ssm_g_b.weight", true, {DIM_STATE_GATE, DIM_STATE_VALUES}},
    [TENSOR_DELTA_OUT] = {"blk.%u.attn_output.weight", true, {DIM_STATE_VALUES, DIM_EMBD}},
    [TENSOR_LIGHTNING_QKV] = {"blk.%u.attn_qkv.weight", true, {DIM_EMBD, DIM_STATE_VALUES_THRICE}},
    [TENSOR_LIGHTNING_NORM] =
        {"blk.%u.attn_norm_2.weight", true, {DIM_STATE_VALUES}, NULL, false, true},
    [TENSOR_EXPERTS_OF_TOKEN] = {"blk.%u.ffn_gate_tid2eid.weight",
                                 true,
                                 {DIM_EXPERTS_USED, DIM_VOCAB}},
    [TENSOR_SUMMARIES_K] = {"blk.%u.attn_compressor_kv.weight", true, {DIM_EMBD, DIM_SUMMARY_K}},
    [TENSOR_SUMMARIES_GATE] = {"blk.%u.attn_compressor_gate.weight",
                               true,
                               {DIM_EMBD, DIM_SUMMARY_K}},
    [TENSOR_SUMMARIES_PHASE] = {"blk.%u.attn_compressor_ape.weight",
                                true,
                                {DIM_SUMMARY_K, DIM_SUMMARY}},
    [TENSOR_SUMMARIES_NORM] = {"blk.%u.attn_compressor_norm.weight", true, {DIM_HEAD}},
    [TENSOR_INDEX_SUMMARIES_K] = {"blk.%u.indexer_compressor_kv.weight",
                                  true,
                                  {DIM_EMBD, DIM_SUMMARY_INDEX}},
    [TENSOR_INDEX_SUMMARIES_GATE] = {"blk.%u.indexer_compressor_gate.weight",
                                     true,
                                     {DIM_EMBD, DIM_SUMMARY_INDEX}},
    [TENSOR_INDEX_SUMMARIES_PHASE] = {"blk.%u.indexer_compressor_ape.weight",
                                      true,
                                      {DIM_SUMMARY_INDEX, DIM_SUMMARY}},
    [TENSOR_INDEX_SUMMARIES_NORM] = {"blk.%u.indexer_compressor_norm.weight",
                                     true,
                                     {DIM_SUMMARY_INDEX_KEY}},
    [TENSOR_SINGLE_KV] = {"blk.%u.attn_kv.weight", true, {DIM_EMBD, DIM_HEAD}},
    [TENSOR_SINGLE_KV_NORM] = {"blk.%u.attn_kv_a_norm.weight",
                               true,
                               {DIM_HEAD},
                               "blk.%u.attn_kv_norm.weight"},
    [TENSOR_OUT_GROUPS] = {"blk.%u.attn_output_a.weight", true, {DIM_OUT_GROUP, DIM_OUT_GROUPS}},
    [TENSOR_OUT_OF_GROUPS] = {"blk.%u.attn_output_b.weight", true, {DIM_OUT_GROUPS, DIM_EMBD}},
    [TENSOR_STREAMS_ATTENTION] = {"blk.%u.hc_attn_fn.weight",
                                  true,
                                  {DIM_STREAMS_ALL, DIM_STREAMS_MIXES}},
    [TENSOR_STREAMS_ATTENTION_BASE] = {"blk.%u.hc_attn_base.weight", true, {DIM_STREAMS_MIXES}},
    [TENSOR_STREAMS_ATTENTION_SCALE] = {"blk.%u.hc_attn_scale.weight", true, {DIM_THREE}},
    [TENSOR_STREAMS_FFN] = {"blk.%u.hc_ffn_fn.weight", true, {DIM_STREAMS_ALL, DIM_STREAMS_MIXES}},
    [TENSOR_STREAMS_FFN_BASE] = {"blk.%u.hc_ffn_base.weight", true, {DIM_STREAMS_MIXES}},
    [TENSOR_STREAMS_FFN_SCALE] = {"blk.%u.hc_ffn_scale.weight", true, {DIM_THREE}},
    [TENSOR_STREAMS_OUTPUT] = {"output_hc_fn.weight", false, {DIM_STREAMS_ALL, DIM_STREAMS}},
    [TENSOR_STREAMS_OUTPUT_BASE] = {"output_hc_base.weight", false, {DIM_STREAMS}},
    [TENSOR_STREAMS_OUTPUT_SCALE] = {"output_hc_scale.weight", false, {DIM_ONE}},
};
_Static_assert(ROLE_BITS <= 128, "a set of roles is 128 bits");

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

enum tensor_place tensor_role_place(enum tensor_role role)
{
    switch ((int)role) {
    case TENSOR_ROPE_FREQS:
    case TENSOR_ROPE_FACTORS_LONG:
    case TENSOR_ROPE_FACTORS_SHORT:
        return PLACE_EVERYWHERE;
    case TENSOR_TOKEN_EMBEDDING:
    case TENSOR_POSITION_EMBEDDING:
    case TENSOR_TYPE_EMBEDDING:
    case TENSOR_EMBEDDING_NORM:
    case TENSOR_EMBEDDING_NORM_BIAS:
    case TENSOR_INPUTS_EMBEDDING:
    case TENSOR_INPUTS_PROJECTION:
    case TENSOR_INPUTS_NORM:
        return PLACE_FIRST;
    default:
        return roles[role].per_layer ? PLACE_LAYER : PLACE_LAST;
    }
}

bool tensor_role_is_elementwise(enum tensor_role role)
{
    return roles[role].is_elementwise;
}

bool tensor_role_is_of_experts(enum tensor_role role)
{
    return roles[role].is_of_experts;
}

static int64_t recurrent_dim_size(const struct architecture *a, const struct recurrent_form *form,
                                  enum tensor_dim dim)
{
    const int64_t heads = form->n_head, values = heads * form->dim_v;
    const bool is_mamba = a->recurrence == RECURRENCE_MAMBA2;
    const bool by_channel = a->recurrence == RECURRENCE_DELTA_CHANNELS;
    switch ((int)dim) {
    case DIM_KERNEL:
        return form->kernel;
    case DIM_CHANNELS:
        return form->channels;
    case DIM_CHANNELS_IN:
        return 3 * (int64_t)form->channels;
    case DIM_STATE_IN:
        return values + form->channels + heads;
    case DIM_STATE_HEADS:
        return heads;
    case DIM_STATE_HEADS_TWICE:
        return 2 * heads;
    case DIM_STATE_BIAS:
        return by_channel ? values : heads;
    case DIM_STATE_VALUES:
        return values;
    case DIM_STATE_VALUES_THRICE:
        return 3 * values;
    case DIM_STATE_NORM:
        return is_mamba ? values / form->n_group : form->dim_v;
    case DIM_STATE_NORM_GROUPS:
        return is_mamba ? form->n_group : 1;
    case DIM_STATE_LOW:
        return a->needs & ROLE_BIT(TENSOR_DELTA_DECAY_UP) ? form->dim_v : values;
    case DIM_STATE_GATE:
        return a->needs & ROLE_BIT(TENSOR_DELTA_GATE_UP) ? form->dim_v : values;
    default:
        return 0;
    }
}

static int64_t summary_dim_size(const struct hyperparameters *h, const struct layer_form *form,
                                enum tensor_dim dim)
{
    const struct summary_form *own = &h->summaries;
    const int64_t n_streams = h->streams.n, ways = form->has_indexer ? 2 : 1;
    switch ((int)dim) {
    case DIM_SUMMARY:
        return form->summary;
    case DIM_SUMMARY_K:
        return ways * form->dim_k;
    case DIM_SUMMARY_INDEX:
        return ways * h->indexer.dim;
    case DIM_SUMMARY_INDEX_KEY:
        return h->indexer.dim;
    case DIM_OUT_GROUP:
        return own->out_groups ? (int64_t)form->n_head * form->dim_k / own->out_groups : 0;
    case DIM_OUT_GROUPS:
        return (int64_t)own->out_groups * own->out_rank;
    case DIM_HEAD:
        return form->dim_k;
    case DIM_EXPERTS_USED:
        return h->n_experts_used;
    case DIM_STREAMS:
        return n_streams;
    case DIM_STREAMS_ALL:
        return n_streams * h->n_embd;
    case DIM_STREAMS_MIXES:
        return n_streams * (2 + n_streams);
    case DIM_THREE:
        return 3;
    default:
        return 0;
    }
}

static int64_t dim_size(const struct architecture *a, const struct hyperparameters *h,
                        const struct layer_form *form, enum tensor_dim dim)
{
    const int64_t n_head = form->n_head, plain = (int64_t)h->n_latent_dim_k - h->n_rot;
    int64_t q = n_head * form->dim_k, k = (int64_t)form->n_head_kv * form->dim_k;
    int64_t v = (int64_t)form->n_head_kv * form->dim_v;
    switch (dim) {
    case DIM_NONE:
        return 0;
    case DIM_ONE:
        return 1;
    case DIM_EMBD:
        return h->n_embd;
    case DIM_VOCAB:
        return h->n_vocab;
    case DIM_POSITIONS:
        return h->n_context_train;
    case DIM_TOKEN_TYPES:
        return h->n_token_types;
    case DIM_LABELS:
        return h->n_labels;
    case DIM_Q:
        return h->n_latent_kv ? n_head * h->n_latent_dim_k : a->has_query_gate ? 2 * q : q;
    case DIM_K:
        return k;
    case DIM_V:
        return v;
    case DIM_QKV:
        return q + k + v;
    case DIM_O:
        return n_head * (h->n_latent_kv ? h->n_latent_dim_v : form->dim_v);
    case DIM_Q_NORM:
        return a->qk_norm_whole ? q : form->dim_k;
    case DIM_K_NORM:
        return a->qk_norm_whole ? k : form->dim_k;
    case DIM_HEADS:
        return n_head;
    case DIM_FF:
        return form->n_ff;
    case DIM_FF_UP:
        return h->has_fused_gate ? 2 * (int64_t)form->n_ff : form->n_ff;
    case DIM_FF_EXPERT:
        return h->n_ff_expert;
    case DIM_FF_EXPERT_TWICE:
        return 2 * (int64_t)h->n_ff_expert;
    case DIM_FF_SHARED:
        return h->n_ff_shared;
    case DIM_EXPERTS:
        return h->n_experts;
    case DIM_ROT_PAIRS:
        return h->n_rot / 2;
    case DIM_LATENT_Q:
        return h->n_latent_q;
    case DIM_LATENT_Q_HEADS:
        return n_head * (h->n_latent_dim_k ? h->n_latent_dim_k : form->dim_k);
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
    case DIM_INDEX_HEADS:
        return h->indexer.n_head;
    case DIM_INDEX_IN:
        return h->n_latent_q ? h->n_latent_q : h->n_embd;
    case DIM_INDEX_KEY:
        return h->indexer.dim;
    case DIM_INDEX_QUERY:
        return (int64_t)h->indexer.n_head * h->indexer.dim;
    case DIM_EXPERT_IN:
        return h->n_latent_expert ? h->n_latent_expert : h->n_embd;
    case DIM_LAYER_INPUT:
        return h->n_layer_input;
    case DIM_LAYER_INPUTS:
        return (int64_t)h->n_layer_input * h->n_layers;
    case DIM_KERNEL:
    case DIM_CHANNELS:
    case DIM_CHANNELS_IN:
    case DIM_STATE_IN:
    case DIM_STATE_HEADS:
    case DIM_STATE_HEADS_TWICE:
    case DIM_STATE_BIAS:
    case DIM_STATE_VALUES:
    case DIM_STATE_VALUES_THRICE:
    case DIM_STATE_NORM:
    case DIM_STATE_NORM_GROUPS:
    case DIM_STATE_LOW:
    case DIM_STATE_GATE:
        return recurrent_dim_size(a, &h->recurrent, dim);
    case DIM_SUMMARY:
    case DIM_SUMMARY_K:
    case DIM_SUMMARY_INDEX:
    case DIM_SUMMARY_INDEX_KEY:
    case DIM_OUT_GROUP:
    case DIM_OUT_GROUPS:
    case DIM_HEAD:
    case DIM_EXPERTS_USED:
    case DIM_STREAMS:
    case DIM_STREAMS_ALL:
    case DIM_STREAMS_MIXES:
    case DIM_THREE:
        return summary_dim_size(h, form, dim);
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
