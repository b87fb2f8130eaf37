/* Which tensors a layer has. */
#include "model/architecture.h"

#include <string.h>

const struct architecture *architecture_find(const char *name)
{
    for (uint32_t i = 0; i < architecture_count(); i++) {
        if (strcmp(architecture_at(i)->name, name) == 0)
            return architecture_at(i);
    }
    return NULL;
}

/* Of a layer that sees a window and, where it has them, summaries. */
static role_set roles_of_summaries(const struct layer_form *form)
{
    role_set needed = ROLE_BIT(TENSOR_LATENT_Q_DOWN) | ROLE_BIT(TENSOR_LATENT_Q_NORM) |
                      ROLE_BIT(TENSOR_LATENT_Q_UP) | ROLE_BIT(TENSOR_SINGLE_KV);
    if (form->summary)
        needed |= ROLE_BIT(TENSOR_SUMMARIES_K);
    if (form->has_indexer)
        needed |= ROLE_BIT(TENSOR_INDEX_Q) | ROLE_BIT(TENSOR_INDEX_WEIGHTS) |
                  ROLE_BIT(TENSOR_INDEX_SUMMARIES_K);
    return needed;
}

static role_set roles_of_attention(const struct hyperparameters *h, const struct layer_form *form)
{
    if (h->summaries.is_there)
        return roles_of_summaries(form);
    role_set needed = ROLE_BIT(TENSOR_ATTENTION_OUT);
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

/* What a layer with a state has in every family that keeps such a state. */
static const role_set roles_of_recurrence[] = {
    [RECURRENCE_NONE] = 0,
    [RECURRENCE_SHORT_CONVOLUTION] = ROLE_BIT(TENSOR_CONVOLUTION_IN) |
                                     ROLE_BIT(TENSOR_CONVOLUTION) |
                                     ROLE_BIT(TENSOR_CONVOLUTION_OUT),
    [RECURRENCE_MAMBA2] = ROLE_BIT(TENSOR_STATE_IN) | ROLE_BIT(TENSOR_STATE_CONVOLUTION) |
                          ROLE_BIT(TENSOR_STATE_CONVOLUTION_BIAS) |
                          ROLE_BIT(TENSOR_STATE_STEP_BIAS) | ROLE_BIT(TENSOR_STATE_DECAY) |
                          ROLE_BIT(TENSOR_STATE_SKIP) | ROLE_BIT(TENSOR_STATE_NORM) |
                          ROLE_BIT(TENSOR_STATE_OUT),
    [RECURRENCE_DELTA] = ROLE_BIT(TENSOR_DELTA_QKV) | ROLE_BIT(TENSOR_DELTA_GATE) |
                         ROLE_BIT(TENSOR_STATE_CONVOLUTION) | ROLE_BIT(TENSOR_STATE_STEP_BIAS) |
                         ROLE_BIT(TENSOR_STATE_DECAY) | ROLE_BIT(TENSOR_STATE_NORM) |
                         ROLE_BIT(TENSOR_STATE_OUT),
    [RECURRENCE_DELTA_CHANNELS] =
        ROLE_BIT(TENSOR_DELTA_Q) | ROLE_BIT(TENSOR_DELTA_K) | ROLE_BIT(TENSOR_DELTA_V) |
        ROLE_BIT(TENSOR_DELTA_Q_CONVOLUTION) | ROLE_BIT(TENSOR_DELTA_K_CONVOLUTION) |
        ROLE_BIT(TENSOR_DELTA_V_CONVOLUTION) | ROLE_BIT(TENSOR_DELTA_DECAY_DOWN) |
        ROLE_BIT(TENSOR_DELTA_GATE_DOWN) | ROLE_BIT(TENSOR_DELTA_BETA) |
        ROLE_BIT(TENSOR_STATE_STEP_BIAS) | ROLE_BIT(TENSOR_STATE_DECAY) |
        ROLE_BIT(TENSOR_STATE_NORM) | ROLE_BIT(TENSOR_DELTA_OUT),
    [RECURRENCE_LIGHTNING] = ROLE_BIT(TENSOR_LIGHTNING_QKV) | ROLE_BIT(TENSOR_LIGHTNING_NORM) |
                             ROLE_BIT(TENSOR_DELTA_GATE) | ROLE_BIT(TENSOR_DELTA_OUT),
};

/* Those of a state that families name in `needs` and `may_have`. */
static const role_set roles_of_some_states =
    ROLE_BIT(TENSOR_DELTA_BETA_ALPHA) | ROLE_BIT(TENSOR_DELTA_BETA) | ROLE_BIT(TENSOR_DELTA_ALPHA) |
    ROLE_BIT(TENSOR_DELTA_DECAY_UP) | ROLE_BIT(TENSOR_DELTA_GATE_UP);

static const role_set roles_of_layer_inputs =
    ROLE_BIT(TENSOR_INPUTS_EMBEDDING) | ROLE_BIT(TENSOR_INPUTS_PROJECTION) |
    ROLE_BIT(TENSOR_INPUTS_NORM) | ROLE_BIT(TENSOR_LAYER_INPUT_GATE) |
    ROLE_BIT(TENSOR_LAYER_INPUT_OUT) | ROLE_BIT(TENSOR_LAYER_INPUT_NORM);

static const role_set roles_of_block_indexer =
    ROLE_BIT(TENSOR_INDEX_Q) | ROLE_BIT(TENSOR_INDEX_Q_NORM) | ROLE_BIT(TENSOR_INDEX_K) |
    ROLE_BIT(TENSOR_INDEX_K_NORM);

static const role_set roles_of_indexer =
    ROLE_BIT(TENSOR_INDEX_Q) | ROLE_BIT(TENSOR_INDEX_K) | ROLE_BIT(TENSOR_INDEX_K_NORM) |
    ROLE_BIT(TENSOR_INDEX_K_NORM_BIAS) | ROLE_BIT(TENSOR_INDEX_WEIGHTS);

/* Those of attention likewise. */
static const role_set roles_of_heads =
    ROLE_BIT(TENSOR_Q_BIAS) | ROLE_BIT(TENSOR_K_BIAS) | ROLE_BIT(TENSOR_V_BIAS) |
    ROLE_BIT(TENSOR_Q_NORM) | ROLE_BIT(TENSOR_K_NORM) | ROLE_BIT(TENSOR_ATTENTION_SINKS) |
    ROLE_BIT(TENSOR_ATTENTION_GATE) | ROLE_BIT(TENSOR_ATTENTION_HEAD_GATE);

static role_set roles_of_dense(const struct architecture *a, const struct hyperparameters *h)
{
    role_set needed = ROLE_BIT(TENSOR_FFN_UP) | ROLE_BIT(TENSOR_FFN_DOWN);
    return h->has_fused_gate || a->has_no_gate ? needed : needed | ROLE_BIT(TENSOR_FFN_GATE);
}

/* Those of a mixture that families name in `needs` and `may_have`. */
static const role_set roles_of_mixture =
    ROLE_BIT(TENSOR_SHARED_GATE) | ROLE_BIT(TENSOR_SHARED_UP) | ROLE_BIT(TENSOR_SHARED_DOWN) |
    ROLE_BIT(TENSOR_SHARED_ROUTER) | ROLE_BIT(TENSOR_EXPERTS_LATENT_DOWN) |
    ROLE_BIT(TENSOR_EXPERTS_LATENT_UP) | ROLE_BIT(TENSOR_EXPERTS_LATENT_NORM) |
    ROLE_BIT(TENSOR_CHOICE_BIAS) | ROLE_BIT(TENSOR_ROUTER_BIAS) |
    ROLE_BIT(TENSOR_EXPERTS_GATE_BIAS) | ROLE_BIT(TENSOR_EXPERTS_UP_BIAS) |
    ROLE_BIT(TENSOR_EXPERTS_DOWN_BIAS) | ROLE_BIT(TENSOR_EXPERTS_NORM) |
    ROLE_BIT(TENSOR_EXPERTS_POST_NORM) | ROLE_BIT(TENSOR_DENSE_POST_NORM) |
    ROLE_BIT(TENSOR_ROUTER_SCALE) | ROLE_BIT(TENSOR_EXPERTS_DOWN_SCALE);

static role_set roles_of_experts(const struct architecture *a, const struct hyperparameters *h)
{
    role_set needed = ROLE_BIT(TENSOR_ROUTER) | ROLE_BIT(TENSOR_EXPERTS_DOWN);
    if (a->has_normed_dense_beside)
        needed |= roles_of_dense(a, h);
    if (h->has_fused_experts)
        return needed | ROLE_BIT(TENSOR_EXPERTS_GATE_UP);
    needed |= ROLE_BIT(TENSOR_EXPERTS_UP);
    return a->has_no_gate ? needed : needed | ROLE_BIT(TENSOR_EXPERTS_GATE);
}

static role_set roles_of_norms(const struct architecture *a, const struct layer_form *form)
{
    if (a->is_sum_normed)
        return ROLE_BIT(TENSOR_EMBEDDING_NORM) | ROLE_BIT(TENSOR_ATTENTION_POST_NORM) |
               ROLE_BIT(TENSOR_FFN_POST_NORM);
    role_set needed =
        ROLE_BIT(TENSOR_OUTPUT_NORM) | (a->post_norm_only ? 0 : ROLE_BIT(TENSOR_ATTENTION_NORM));
    if (!a->post_norm_only && !a->ffn_norm_is_post && !a->is_parallel && !a->is_one_branch &&
        !form->has_no_ffn)
        needed |= ROLE_BIT(TENSOR_FFN_NORM);
    return needed;
}

role_set architecture_roles_needed(const struct architecture *architecture,
                                   const struct hyperparameters *hyperparameters, uint32_t layer)
{
    const struct layer_form *form = &hyperparameters->layers[layer];
    role_set needed = architecture->needs;
    needed &= form->is_recurrent ? ~roles_of_heads : ~roles_of_some_states;
    needed &= form->has_no_mixer ? ~(roles_of_heads | roles_of_some_states) : ~(role_set)0;
    needed |= ROLE_BIT(TENSOR_TOKEN_EMBEDDING) | roles_of_norms(architecture, form);
    if (architecture->window_is_centred && layer == 0) /* its input is normed already */
        needed &= ~ROLE_BIT(TENSOR_ATTENTION_NORM);
    if (hyperparameters->n_layer_input)
        needed |= roles_of_layer_inputs;
    if (form->has_indexer && architecture->has_indexer)
        needed |= architecture->picks_blocks ? roles_of_block_indexer : roles_of_indexer;
    if (form->kv_layer != layer)
        needed &= ~ROLE_BIT(TENSOR_K_NORM);
    if (hyperparameters->pooling == POOLING_RANK)
        needed |= ROLE_BIT(TENSOR_RANK_OUT);
    if (form->is_recurrent)
        needed |= roles_of_recurrence[architecture->recurrence];
    else if (!form->has_no_mixer)
        needed |= roles_of_attention(hyperparameters, form);
    if (architecture->has_summaries)
        needed |=
            ROLE_BIT(layer < hyperparameters->summaries.n_token_routed ? TENSOR_EXPERTS_OF_TOKEN
                                                                       : TENSOR_CHOICE_BIAS);
    if (form->has_no_ffn || !form->is_mixture)
        needed &= ~roles_of_mixture;
    if (form->has_no_ffn)
        return needed;
    return needed | (form->is_mixture ? roles_of_experts(architecture, hyperparameters)
                                      : roles_of_dense(architecture, hyperparameters));
}

static role_set roles_allowed_in_ffn(const struct layer_form *form)
{
    if (form->has_no_ffn)
        return 0;
    return form->is_mixture
               ? ROLE_BIT(TENSOR_ROUTER_BIAS) | ROLE_BIT(TENSOR_EXPERTS_GATE_BIAS) |
                     ROLE_BIT(TENSOR_EXPERTS_UP_BIAS) | ROLE_BIT(TENSOR_EXPERTS_DOWN_BIAS)
               : ROLE_BIT(TENSOR_FFN_GATE_BIAS) | ROLE_BIT(TENSOR_FFN_UP_BIAS) |
                     ROLE_BIT(TENSOR_FFN_DOWN_BIAS);
}

role_set architecture_roles_allowed(const struct architecture *architecture,
                                    const struct hyperparameters *hyperparameters, uint32_t layer)
{
    const struct layer_form *form = &hyperparameters->layers[layer];
    const bool attends = !form->is_recurrent && !form->has_no_mixer;
    role_set allowed = architecture->may_have;
    if (architecture->has_indexer && !architecture->picks_blocks) /* some files have */
        allowed |= roles_of_indexer;
    if (form->kv_layer != layer) /* some files have what such a layer does not use */
        allowed |= ROLE_BIT(TENSOR_K_NORM);
    if (!form->is_mixture)
        allowed &= ~roles_of_mixture;
    if (!attends)
        allowed &= ~roles_of_heads;
    if (!form->is_recurrent)
        allowed &= ~roles_of_some_states;
    if (hyperparameters->pooling == POOLING_RANK)
        allowed |= ROLE_BIT(TENSOR_RANK_DENSE) | ROLE_BIT(TENSOR_RANK_DENSE_BIAS) |
                   ROLE_BIT(TENSOR_RANK_NORM) | ROLE_BIT(TENSOR_RANK_OUT_BIAS);
    if (architecture->is_sum_normed)
        allowed |= ROLE_BIT(TENSOR_TYPE_EMBEDDING) | ROLE_BIT(TENSOR_EMBEDDING_NORM_BIAS) |
                   ROLE_BIT(TENSOR_ATTENTION_POST_NORM_BIAS) | ROLE_BIT(TENSOR_FFN_POST_NORM_BIAS);
    if (!architecture->is_encoder)
        allowed |= ROLE_BIT(TENSOR_OUTPUT);
    allowed |= ROLE_BIT(TENSOR_ROPE_FREQS) | ROLE_BIT(TENSOR_ROPE_FACTORS_LONG) |
               ROLE_BIT(TENSOR_ROPE_FACTORS_SHORT);
    if (attends)
        allowed |= ROLE_BIT(TENSOR_ATTENTION_OUT_BIAS);
    if (attends && !hyperparameters->n_latent_kv && !hyperparameters->summaries.is_there)
        allowed |= ROLE_BIT(TENSOR_Q) | ROLE_BIT(TENSOR_K) | ROLE_BIT(TENSOR_V) |
                   ROLE_BIT(TENSOR_QKV) | ROLE_BIT(TENSOR_Q_BIAS) | ROLE_BIT(TENSOR_K_BIAS) |
                   ROLE_BIT(TENSOR_V_BIAS) | ROLE_BIT(TENSOR_QKV_BIAS);
    return allowed | roles_allowed_in_ffn(form) |
           architecture_roles_needed(architecture, hyperparameters, layer);
}

uint32_t recurrent_convolution_values(const struct recurrent_form *form)
{
    return form->kernel ? (form->kernel - 1) * form->channels : 0;
}

uint32_t recurrent_matrix_values(const struct recurrent_form *form)
{
    return form->n_head * form->dim_k * form->dim_v;
}

bool hyperparameters_has_states(const struct hyperparameters *hyperparameters)
{
    return hyperparameters->recurrent.kernel || hyperparameters->recurrent.n_head;
}

uint64_t hyperparameters_state_values(const struct hyperparameters *hyperparameters, uint32_t layer)
{
    const struct recurrent_form *form = &hyperparameters->recurrent;
    return hyperparameters->layers[layer].is_recurrent
               ? (uint64_t)recurrent_convolution_values(form) + recurrent_matrix_values(form)
               : 0;
}

bool hyperparameters_layer_windowed(const struct hyperparameters *hyperparameters, uint32_t layer)
{
    return hyperparameters->layers[layer].is_windowed && !hyperparameters->layers[layer].summary;
}

uint32_t hyperparameters_draft_values(const struct hyperparameters *hyperparameters,
                                      const struct layer_form *form)
{
    if (!form->summary)
        return 0;
    return form->has_indexer ? 4 * (form->dim_k + hyperparameters->indexer.dim) : 2 * form->dim_k;
}

uint32_t hyperparameters_period(const struct hyperparameters *hyperparameters)
{
    if (hyperparameters->n_carried) /* how much is alive at once depends on the layer */
        return hyperparameters->n_layers;
    /* their layers need not repeat: so many are taken to show every kind of neighbours */
    if (hyperparameters_has_states(hyperparameters))
        return hyperparameters->n_layers < 8 ? hyperparameters->n_layers : 8;
    uint32_t period = hyperparameters->window_period > 2 ? hyperparameters->window_period : 2;
    return period > hyperparameters->mixture_period ? period : hyperparameters->mixture_period;
}

bool hyperparameters_heads_fit(const struct hyperparameters *hyperparameters, uint32_t block)
{
    for (uint32_t i = 0; i < hyperparameters->n_layers; i++) {
        const struct layer_form *form = &hyperparameters->layers[i];
        if (form->dim_k % block || form->dim_v % block || hyperparameters->indexer.dim % block ||
            (form->summary && block > 1)) /* summaries lie in parts of a few values */
            return false;
    }
    return true;
}

bool hyperparameters_shares_kv(const struct hyperparameters *hyperparameters)
{
    return hyperparameters->layers[hyperparameters->n_layers - 1].kv_layer + 1 <
           hyperparameters->n_layers;
}

uint32_t hyperparameters_shared_layer(const struct hyperparameters *hyperparameters, bool windowed)
{
    for (uint32_t i = 0; i < hyperparameters->n_layers; i++) {
        const struct layer_form *form = &hyperparameters->layers[i];
        if (form->kv_layer != i && form->is_windowed == windowed)
            return form->kv_layer;
    }
    return hyperparameters->n_layers;
}
