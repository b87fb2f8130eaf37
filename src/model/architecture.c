/* What tensors are for, and which of them a layer has. */
#include "model/architecture.h"

#include <stdio.h>
#include <string.h>

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
    ROLE_BIT(TENSOR_SHARED_GATE) | ROLE_BIT(TENSOR_SHARED_UP) | ROLE_BIT(TENSOR_SHARED_DOWN) |
    ROLE_BIT(TENSOR_CHOICE_BIAS) | ROLE_BIT(TENSOR_ROUTER_BIAS) |
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
