#include "base/limits.h"
#include "model/architecture.h"
#include "model/gguf_file.h"
#include "model/hyperparameters_reader.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *hyperparameters_key_of(const struct hyperparameters_reader *reader, const char *suffix,
                                   char key[128])
{
    snprintf(key, 128, "%s.%s", reader->family, suffix);
    return key;
}

bool hyperparameters_has(const struct hyperparameters_reader *reader, const char *suffix)
{
    char key[128];
    return gguf_file_has(reader->file, hyperparameters_key_of(reader, suffix, key));
}

void hyperparameters_fail(struct hyperparameters_reader *reader, const char *suffix,
                          const char *what)
{
    if (reader->code)
        return;
    char key[128];
    reader->code = error_set(reader->err, ERROR_INVALID, "%s %s",
                             hyperparameters_key_of(reader, suffix, key), what);
}

/* A count from `min` to `max`. Some files give one value per layer: then all must be the same. */
void hyperparameters_read_count(struct hyperparameters_reader *reader, const char *suffix,
                                uint32_t min, uint32_t max, uint32_t *out)
{
    char key[128];
    uint64_t length = 0;
    if (reader->code)
        return;
    hyperparameters_key_of(reader, suffix, key);
    if (gguf_file_array(reader->file, key, GGUF_ARRAY_U32, &length, NULL) == ERROR_NONE &&
        length > 0) {
        *out = gguf_file_array_u32(reader->file, key, 0);
        for (uint64_t i = 1; i < length; i++) {
            if (gguf_file_array_u32(reader->file, key, i) != *out) {
                reader->code = error_set(reader->err, ERROR_UNSUPPORTED,
                                         "%s differs from layer to layer", key);
                return;
            }
        }
    } else {
        reader->code = gguf_file_u32(reader->file, key, out, reader->err);
    }
    if (!reader->code && (*out < min || *out > max))
        reader->code = error_set(reader->err, ERROR_INVALID, "%s is %u; it must be from %u to %u",
                                 key, *out, min, max);
}

void hyperparameters_read_count_or(struct hyperparameters_reader *reader, const char *suffix,
                                   uint32_t min, uint32_t max, uint32_t *out, uint32_t otherwise)
{
    if (hyperparameters_has(reader, suffix))
        hyperparameters_read_count(reader, suffix, min, max, out);
    else
        *out = otherwise;
}

void hyperparameters_read_number_or(struct hyperparameters_reader *reader, const char *suffix,
                                    float *out, float otherwise)
{
    char key[128];
    *out = otherwise;
    if (!reader->code && hyperparameters_has(reader, suffix))
        reader->code = gguf_file_f32(reader->file, hyperparameters_key_of(reader, suffix, key), out,
                                     reader->err);
}

static void read_positive_or(struct hyperparameters_reader *reader, const char *suffix, float *out,
                             float otherwise)
{
    hyperparameters_read_number_or(reader, suffix, out, otherwise);
    if (!(*out > 0))
        hyperparameters_fail(reader, suffix, "must be above 0");
}

static void read_sizes(struct hyperparameters_reader *reader, const struct architecture *a,
                       struct hyperparameters *h)
{
    enum { WIDTH_MAX = 1 << 20, HEAD_DIM_MAX = 4096 };
    uint32_t n_next = 0;
    hyperparameters_read_count(reader, "block_count", 1, LIMIT_LAYERS, &h->n_layers_file);
    /* blocks at the end that predict further tokens (DeepSeek V3, arXiv:2412.19437, 2.2) */
    hyperparameters_read_count_or(reader, "nextn_predict_layers", 0, LIMIT_LAYERS, &n_next, 0);
    if (n_next >= h->n_layers_file)
        hyperparameters_fail(reader, "nextn_predict_layers", "must be below block_count");
    hyperparameters_read_count(reader, "embedding_length", 1, WIDTH_MAX, &h->n_embd);
    hyperparameters_read_count_or(reader, "context_length", 1, LIMIT_CONTEXT, &h->n_context_train,
                                  2048);
    if (reader->code)
        return;
    h->n_layers = h->n_layers_file - n_next;
    hyperparameters_read_heads(reader, a, h);
    if (reader->code)
        return;
    if (!hyperparameters_has(reader, "attention.key_length") && h->n_embd % h->n_head)
        hyperparameters_fail(reader, "embedding_length",
                             "must be a multiple of attention.head_count");
    hyperparameters_read_count_or(reader, "attention.key_length", 1, HEAD_DIM_MAX, &h->n_head_dim_k,
                                  h->n_embd / h->n_head);
    hyperparameters_read_count_or(reader, "attention.value_length", 1, HEAD_DIM_MAX,
                                  &h->n_head_dim_v, h->n_embd / h->n_head);
}

/* ---- feed-forward --------------------------------------------------------------------------- */

static void read_gating(struct hyperparameters_reader *reader, const struct architecture *a,
                        struct hyperparameters *h)
{
    static const enum gating gatings[] = {GATE_SOFTMAX, GATE_SIGMOID, GATE_SOFTMAX_OF_CHOSEN,
                                          GATE_SQRT_SOFTPLUS};
    uint32_t function = 0;
    char key[128];
    bool normalise = a->expert_sum == EXPERT_SUM_ONE;
    hyperparameters_read_count_or(reader, "expert_gating_func", 0, 4, &function, 0);
    h->gating = function ? gatings[function - 1] : a->gating;
    if (!reader->code && hyperparameters_has(reader, "expert_weights_norm"))
        reader->code =
            gguf_file_bool(reader->file, hyperparameters_key_of(reader, "expert_weights_norm", key),
                           &normalise, reader->err);
    h->expert_sum = normalise ? EXPERT_SUM_ONE : EXPERT_SUM_KEPT;
    read_positive_or(reader, "expert_weights_scale", &h->expert_weight_scale, 1.0f);
}

static void read_groups(struct hyperparameters_reader *reader, struct hyperparameters *h)
{
    hyperparameters_read_count_or(reader, "expert_group_count", 0, h->n_experts,
                                  &h->n_expert_groups, 1);
    hyperparameters_read_count_or(reader, "expert_group_used_count", 0, h->n_experts,
                                  &h->n_expert_groups_used, h->n_expert_groups);
    if (reader->code)
        return;
    h->n_expert_groups += !h->n_expert_groups;
    h->n_expert_groups_used += !h->n_expert_groups_used;
    const uint32_t per_group = h->n_experts / h->n_expert_groups;
    if (h->n_experts % h->n_expert_groups || per_group < (h->n_expert_groups > 1 ? 2u : 1u))
        hyperparameters_fail(reader, "expert_group_count",
                             "must divide expert_count into groups of two or more");
    else if (h->n_expert_groups_used > h->n_expert_groups ||
             h->n_expert_groups_used * per_group < h->n_experts_used)
        hyperparameters_fail(reader, "expert_group_used_count",
                             "must leave as many experts as are used");
}

static void read_mixture(struct hyperparameters_reader *reader, const struct architecture *a,
                         struct hyperparameters *h)
{
    enum { FF_MAX = 1 << 24, SHARED_MAX = 256 };
    uint32_t n_shared = 1;
    if (h->n_experts_used < 1 || h->n_experts_used > h->n_experts)
        hyperparameters_fail(reader, "expert_used_count", "must be from 1 to expert_count");
    hyperparameters_read_count_or(reader, "expert_feed_forward_length", 1, FF_MAX, &h->n_ff_expert,
                                  h->n_ff);
    hyperparameters_read_count_or(reader, "expert_shared_count", 0, SHARED_MAX, &n_shared, 1);
    hyperparameters_read_count_or(reader, "expert_shared_feed_forward_length", 0, FF_MAX,
                                  &h->n_ff_shared, h->n_ff_expert * (n_shared ? n_shared : 1));
    hyperparameters_read_count_or(reader,
                                  hyperparameters_has(reader, "expert_latent_length")
                                      ? "expert_latent_length"
                                      : "moe_latent_size",
                                  0, FF_MAX, &h->n_latent_expert, 0);
    hyperparameters_read_count_or(reader, "leading_dense_block_count", 0, h->n_layers,
                                  &h->n_leading_dense, 0);
    hyperparameters_read_count_or(
        reader, a->is_encoder ? "moe_every_n_layers" : "interleave_moe_layer_step", 0, h->n_layers,
        &h->mixture_period, 1);
    h->mixture_period += !h->mixture_period;
    read_gating(reader, a, h);
    if (!reader->code)
        read_groups(reader, h);
    for (uint32_t i = 0; i < h->n_layers; i++)
        h->layers[i].is_mixture =
            !h->layers[i].has_no_ffn && i >= h->n_leading_dense && (i + 1) % h->mixture_period == 0;
}

/* Numbers of layers, or one for all; missing: zeros. */
static void read_clamps(struct hyperparameters_reader *reader, const char *suffix,
                        struct hyperparameters *h, bool shared)
{
    char key[128];
    uint64_t length = 0;
    if (reader->code || !hyperparameters_has(reader, suffix))
        return;
    hyperparameters_key_of(reader, suffix, key);
    float all = 0;
    const bool is_list =
        gguf_file_array(reader->file, key, GGUF_ARRAY_F32, &length, NULL) == ERROR_NONE;
    if (!is_list)
        reader->code = gguf_file_f32(reader->file, key, &all, reader->err);
    else if (length < h->n_layers)
        hyperparameters_fail(reader, suffix, "has fewer values than there are layers");
    for (uint32_t i = 0; i < h->n_layers && !reader->code; i++) {
        const float value = is_list ? gguf_file_array_f32(reader->file, key, i) : all;
        *(shared ? &h->layers[i].shared_clamp : &h->layers[i].experts_clamp) =
            value > 1e-6f ? value : 0;
    }
}

/* Of layers that are nothing but a feed-forward; the others have 0. */
static void read_ffn_layers(struct hyperparameters_reader *reader, struct hyperparameters *h,
                            uint32_t max)
{
    static const char suffix[] = "feed_forward_length";
    char key[128];
    uint64_t length = 0;
    if (reader->code)
        return;
    hyperparameters_key_of(reader, suffix, key);
    reader->code = gguf_file_array(reader->file, key, GGUF_ARRAY_U32, &length, reader->err);
    if (!reader->code && length < h->n_layers)
        hyperparameters_fail(reader, suffix, "has fewer values than there are layers");
    for (uint32_t i = 0; i < h->n_layers && !reader->code; i++) {
        const uint32_t value = gguf_file_array_u32(reader->file, key, i);
        h->layers[i].has_no_ffn = !value;
        h->layers[i].n_ff = value;
        if (value > max || (value && h->n_ff && h->n_ff != value))
            hyperparameters_fail(reader, suffix,
                                 "must be 0 or one same size, for layers of feed-forward alone");
        h->n_ff = value && value <= max ? value : h->n_ff;
    }
}

static void set_n_ff(struct layer_form *form, uint32_t value)
{
    form->n_ff = value;
}

static void read_ffn(struct hyperparameters_reader *reader, const struct architecture *a,
                     struct hyperparameters *h)
{
    enum { FF_MAX = 1 << 24, EXPERTS_MAX = 4096 };
    h->n_expert_groups = h->n_expert_groups_used = h->mixture_period = 1;
    h->has_fused_gate =
        a->fused_gate_up ||
        (a->may_fuse_gate && !gguf_file_find_tensor(reader->file, "blk.0.ffn_gate.weight"));
    h->expert_weight_scale = 1.0f;
    h->has_fused_experts = gguf_file_find_tensor(reader->file, "blk.0.ffn_gate_up_exps.weight");
    if (a->is_one_branch)
        read_ffn_layers(reader, h, FF_MAX);
    else
        hyperparameters_read_layers(reader, "feed_forward_length", 0, FF_MAX, 0, h, set_n_ff);
    for (uint32_t i = 0; i < h->n_layers; i++)
        h->n_ff = h->layers[i].n_ff > h->n_ff ? h->layers[i].n_ff : h->n_ff;
    hyperparameters_read_count_or(reader, "expert_count", 0, EXPERTS_MAX, &h->n_experts, 0);
    hyperparameters_read_count_or(reader, "expert_used_count", 0, EXPERTS_MAX, &h->n_experts_used,
                                  0);
    if (reader->code)
        return;
    if (h->n_experts)
        read_mixture(reader, a, h);
    else
        h->n_experts_used = 0;
    read_clamps(reader, "swiglu_clamp_exp", h, false);
    read_clamps(reader,
                a->clamps_before && !hyperparameters_has(reader, "swiglu_clamp_shexp")
                    ? "swiglu_clamp_exp"
                    : "swiglu_clamp_shexp",
                h, true);
    const bool any_dense = a->has_dense_beside || a->has_normed_dense_beside;
    bool lacks_size = false;
    for (uint32_t i = 0; i < h->n_layers; i++)
        lacks_size |= (any_dense || (!h->layers[i].is_mixture && !h->layers[i].has_no_ffn)) &&
                      !h->layers[i].n_ff;
    if ((h->n_experts && !h->n_ff_expert) || lacks_size)
        hyperparameters_fail(reader, "feed_forward_length", "must be above 0");
}

/* ---- positions ------------------------------------------------------------------------------ */

static enum rope_scaling scaling_of(struct hyperparameters_reader *reader)
{
    static const char *const names[] = {"none", "linear", "yarn", "longrope"};
    char key[128];
    const char *text;
    size_t size;
    if (reader->code || !hyperparameters_has(reader, "rope.scaling.type"))
        return ROPE_SCALING_LINEAR; /* with no factor either, that is no scaling */
    reader->code =
        gguf_file_text(reader->file, hyperparameters_key_of(reader, "rope.scaling.type", key),
                       &text, &size, reader->err);
    for (int i = 0; !reader->code && i < 4; i++) {
        if (strcmp(names[i], text) == 0)
            return (enum rope_scaling)i;
    }
    hyperparameters_fail(reader, "rope.scaling.type", "must be none, linear, yarn or longrope");
    return ROPE_SCALING_NONE;
}

/* DeepSeek's YaRN: latent attention's scores are scaled by (1 + m ln factor)^2, m the file's log
 * multiplier, and what is rotated keeps its length where m is the usual 0.1; ggml would make it
 * longer by 1 + 0.1 ln factor, which is taken back here. DeepSeek-V2, arXiv:2405.04434; YaRN,
 * arXiv:2309.00071, 3.4. */
static void read_yarn_lengths(struct hyperparameters_reader *reader, const struct architecture *a,
                              struct hyperparameters *h, float factor)
{
    float multiplier = 0;
    hyperparameters_read_number_or(reader, "rope.scaling.yarn_log_multiplier", &multiplier, 0);
    const float log_factor = factor > 1 ? logf(factor) : 0, usual = 1.0f + 0.1f * log_factor;
    if (multiplier < 0 || reader->code || multiplier == 0)
        return;
    h->yarn_attn_factor /= usual;
    if (!a->keeps_yarn_length)
        h->yarn_attn_factor *= usual / (1.0f + 0.1f * multiplier / a->yarn_log_unit * log_factor);
    if (a->has_latent_attention)
        h->yarn_score_scale = 1.0f + multiplier * log_factor;
}

static void read_rope(struct hyperparameters_reader *reader, const struct architecture *a,
                      struct hyperparameters *h)
{
    float factor = 1.0f;
    hyperparameters_read_count_or(reader, "rope.dimension_count", 2,
                                  h->n_head_dim_k ? h->n_head_dim_k : 2, &h->n_rot,
                                  h->n_head_dim_k);
    if (h->n_rot % (a->full_layers_rotate_half ? 4 : 2))
        hyperparameters_fail(reader, "rope.dimension_count",
                             a->full_layers_rotate_half ? "must be a multiple of 4"
                                                        : "must be even");
    read_positive_or(reader, "rope.freq_base", &h->rope_base, 10000.0f);
    read_positive_or(reader, "rope.freq_base_swa", &h->rope_base_window,
                     a->window_rope_base != 0 ? a->window_rope_base : h->rope_base);
    h->rope_scaling = scaling_of(reader);
    read_positive_or(reader,
                     hyperparameters_has(reader, "rope.scaling.factor") ? "rope.scaling.factor"
                                                                        : "rope.scale_linear",
                     &factor, 1.0f);
    h->rope_frequency_scale = h->rope_scaling == ROPE_SCALING_NONE ? 1.0f : 1.0f / factor;
    hyperparameters_read_count_or(reader, "rope.scaling.original_context_length", 1, LIMIT_CONTEXT,
                                  &h->n_context_original, h->n_context_train);
    /* YaRN (Peng et al. 2023, arXiv:2309.00071); ggml itself multiplies by 1 + 0.1 ln(factor) */
    hyperparameters_read_number_or(reader, "rope.scaling.yarn_ext_factor", &h->yarn_ext_factor,
                                   h->rope_scaling == ROPE_SCALING_YARN ? 1.0f : 0.0f);
    read_positive_or(reader, "rope.scaling.attn_factor", &h->yarn_attn_factor, 1.0f);
    read_positive_or(reader, "rope.scaling.yarn_beta_fast", &h->yarn_beta_fast, 32.0f);
    read_positive_or(reader, "rope.scaling.yarn_beta_slow", &h->yarn_beta_slow, 1.0f);
    if (!reader->code && a->yarn_log_unit != 0 && h->yarn_ext_factor != 0)
        read_yarn_lengths(reader, a, h, factor);
}

/* Which layers rotate, and how much of a head. */
static void set_rotations(struct hyperparameters_reader *reader, const struct architecture *a,
                          struct hyperparameters *h)
{
    static const char suffix[] = "rope.scaling.finetuned";
    char key[128];
    bool is_finetuned = true;
    if (a->rotates_if_finetuned && !reader->code && hyperparameters_has(reader, suffix))
        reader->code = gguf_file_bool(reader->file, hyperparameters_key_of(reader, suffix, key),
                                      &is_finetuned, reader->err);
    for (uint32_t i = 0; i < h->n_layers; i++) {
        struct layer_form *form = &h->layers[i];
        const bool skipped =
            a->unrotated_period && i % a->unrotated_period + 1 == a->unrotated_period;
        const bool unseen = a->rotates_only_windowed && h->window && !form->is_windowed;
        const bool never = a->never_rotates || (a->rotates_if_finetuned && !is_finetuned);
        const bool half = a->full_layers_rotate_half && !form->is_windowed;
        const uint32_t n_rot = form->n_rot ? form->n_rot : h->n_rot;
        form->n_rot = skipped || unseen || never ? 0 : half ? n_rot / 2 : n_rot;
    }
}

/* A pattern in the file: a flag for each layer, or every how many layers the last sees all. */
static void read_window_pattern(struct hyperparameters_reader *reader, struct hyperparameters *h)
{
    static const char suffix[] = "attention.sliding_window_pattern";
    char key[128];
    uint64_t length = 0;
    hyperparameters_key_of(reader, suffix, key);
    const bool is_list =
        gguf_file_array(reader->file, key, GGUF_ARRAY_BOOL, &length, NULL) == ERROR_NONE;
    if (!is_list)
        hyperparameters_read_count(reader, suffix, 1, LIMIT_LAYERS, &h->window_period);
    else if (length < h->n_layers)
        hyperparameters_fail(reader, suffix, "has fewer values than there are layers");
    else /* a list need not repeat: so many layers are taken to show every kind of neighbours */
        h->window_period = h->n_layers < 8 ? h->n_layers : 8;
    for (uint32_t i = 0; is_list && i < h->n_layers && !reader->code; i++)
        h->layers[i].is_windowed = gguf_file_array_bool(reader->file, key, i);
    for (uint32_t i = 0; !is_list && i < h->n_layers && !reader->code; i++)
        h->layers[i].is_windowed =
            h->window_period == 1 || i % h->window_period + 1 < h->window_period;
}

/* An encoder's local layers see as far behind as ahead, and keep nothing: no ring, `window` is 0.
 */
static void read_centred_window(struct hyperparameters_reader *reader, const struct architecture *a,
                                struct hyperparameters *h)
{
    uint32_t window = 0;
    hyperparameters_read_count(reader, "attention.sliding_window", 2, LIMIT_CONTEXT, &window);
    hyperparameters_read_count_or(reader, "attention.sliding_window_pattern", 1, LIMIT_LAYERS,
                                  &h->window_period, a->window_period);
    h->window_reach = window / 2;
    for (uint32_t i = 0; i < h->n_layers && !reader->code; i++)
        h->layers[i].is_windowed = i % h->window_period != 0;
}

static void read_window(struct hyperparameters_reader *reader, const struct architecture *a,
                        struct hyperparameters *h)
{
    const bool has_pattern = hyperparameters_has(reader, "attention.sliding_window_pattern");
    if (a->window_is_centred) {
        read_centred_window(reader, a, h);
        return;
    }
    if (!a->window_period || (a->window_needs_layers && h->n_layers != a->window_needs_layers))
        return;
    hyperparameters_read_count_or(reader, "attention.sliding_window", 0, LIMIT_CONTEXT, &h->window,
                                  0);
    if (reader->code)
        return;
    if (!h->window && a->window_period > 1)
        hyperparameters_fail(reader, "attention.sliding_window", "is needed");
    if (!has_pattern && a->window_period == WINDOW_AS_FILE)
        hyperparameters_fail(reader, "attention.sliding_window_pattern", "is needed");
    if (has_pattern && h->window) {
        read_window_pattern(reader, h);
        return;
    }
    h->window_period = a->window_period;
    for (uint32_t i = 0; h->window && i < h->n_layers; i++)
        h->layers[i].is_windowed =
            h->window_period == 1 || i % h->window_period + 1 < h->window_period;
}

static void read_softcaps(struct hyperparameters_reader *reader, const struct architecture *a,
                          struct hyperparameters *h)
{
    hyperparameters_read_number_or(reader, "attn_logit_softcapping", &h->attention_softcap,
                                   a->attention_softcap);
    hyperparameters_read_number_or(reader, "final_logit_softcapping", &h->final_softcap,
                                   a->final_softcap);
    if (h->attention_softcap < 0)
        hyperparameters_fail(reader, "attn_logit_softcapping", "must not be negative");
    if (h->final_softcap < 0)
        hyperparameters_fail(reader, "final_logit_softcapping", "must not be negative");
}

static void read_attention(struct hyperparameters_reader *reader, const struct architecture *a,
                           struct hyperparameters *h)
{
    const bool has_other =
        a->norm == NORM_LAYER && hyperparameters_has(reader, "attention.layer_norm_epsilon");
    h->norm = a->norm;
    read_positive_or(
        reader, has_other ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon",
        &h->norm_epsilon, 0);
    read_softcaps(reader, a, h);
    bool wide = a->layers_of_wide_scale && h->n_layers == a->layers_of_wide_scale;
    const uint32_t dim_k = h->n_latent_kv ? h->n_latent_dim_k : h->n_head_dim_k;
    float per_head = wide ? (float)h->n_embd / (float)h->n_head : (float)dim_k;
    hyperparameters_read_number_or(
        reader, a->attention_scale_key ? a->attention_scale_key : "attention.scale",
        &h->attention_scale, 0);
    if (h->attention_scale == 0)
        h->attention_scale = a->attention_scale != 0 ? a->attention_scale : 1.0f / sqrtf(per_head);
    h->attention_scale *= h->yarn_score_scale * h->yarn_score_scale;
    read_positive_or(reader, "attention.value_scale", &h->value_scale, 1.0f);
}

/* Llama 4's temperature of attention, which others took over: see temperature_scale. */
static void read_query_scale(struct hyperparameters_reader *reader, const struct architecture *a,
                             struct hyperparameters *h)
{
    const bool by_family = a->qk_norm_unweighted;
    hyperparameters_read_number_or(reader, "attention.temperature_scale", &h->temperature_scale,
                                   by_family ? 0.1f : 0);
    if (h->temperature_scale < 0)
        hyperparameters_fail(reader, "attention.temperature_scale", "must not be negative");
    hyperparameters_read_count_or(reader, "attention.temperature_length", 1, LIMIT_CONTEXT,
                                  &h->temperature_length, by_family ? 8192 : h->n_context_original);
    h->temperature_offset = by_family ? 1.0f : 0;
    h->temperature_is_unrotated = by_family;
}

/* Multi-head latent attention: the file's key_length and value_length are those of the cache where
 * the up-projections are apart and can be absorbed, else those of a head. */
static void read_latent(struct hyperparameters_reader *reader, const struct architecture *a,
                        struct hyperparameters *h)
{
    enum { RANK_MAX = 1 << 16, HEAD_DIM_MAX = 4096 };
    if (!a->has_latent_attention)
        return;
    hyperparameters_read_count(reader, "attention.kv_lora_rank", 1, RANK_MAX, &h->n_latent_kv);
    hyperparameters_read_count_or(reader, "attention.q_lora_rank", 0, RANK_MAX, &h->n_latent_q, 0);
    hyperparameters_read_count_or(reader, "attention.key_length_mla", 1, HEAD_DIM_MAX,
                                  &h->n_latent_dim_k, h->n_head_dim_k);
    hyperparameters_read_count_or(reader, "attention.value_length_mla", 1, HEAD_DIM_MAX,
                                  &h->n_latent_dim_v, h->n_head_dim_v);
    h->is_latent_absorbed = hyperparameters_has(reader, "attention.key_length_mla");
    if (reader->code)
        return;
    if (h->n_rot >= h->n_latent_dim_k)
        hyperparameters_fail(reader, "rope.dimension_count", "must be below a head's key_length");
    if (h->is_latent_absorbed ? h->n_head_kv != 1 : h->n_head_kv != h->n_head)
        hyperparameters_fail(reader, "attention.head_count_kv",
                             "does not go with latent attention");
    if (h->is_latent_absorbed &&
        (h->n_head_dim_k != h->n_latent_kv + h->n_rot || h->n_head_dim_v != h->n_latent_kv))
        hyperparameters_fail(reader, "attention.key_length",
                             "must be kv_lora_rank + rope.dimension_count, and value_length "
                             "kv_lora_rank");
}

static void read_scales(struct hyperparameters_reader *reader, const struct architecture *a,
                        struct hyperparameters *h)
{
    read_positive_or(reader, "embedding_scale", &h->embedding_scale,
                     a->embedding_scale_sqrt   ? sqrtf((float)h->n_embd)
                     : a->embedding_scale != 0 ? a->embedding_scale
                                               : 1.0f);
    read_positive_or(reader, "residual_scale", &h->residual_scale, 1.0f);
    read_positive_or(reader, "logit_scale", &h->logit_scale,
                     a->logit_scale != 0 ? a->logit_scale : 1.0f);
    if (a->logit_scale_divides)
        h->logit_scale = 1.0f / h->logit_scale;
}

static void read_residuals(struct hyperparameters_reader *reader, const struct architecture *a,
                           struct hyperparameters *h)
{
    if (a->activation == ACT_SITU) {
        read_positive_or(reader, "activation.situ_beta", &h->situ_beta, 0);
        hyperparameters_read_number_or(reader, "activation.situ_linear_beta", &h->situ_linear_beta,
                                       0);
    }
    if (!(a->needs & ROLE_BIT(TENSOR_OUTPUT_RESIDUALS)))
        return;
    hyperparameters_read_count(reader, "attn_res.block_size", 1, LIMIT_LAYERS, &h->residual_period);
    if (!reader->code)
        h->n_carried = (h->n_layers + h->residual_period - 1) / h->residual_period * h->n_embd;
}

enum error_code hyperparameters_read(const struct architecture *architecture,
                                     const struct gguf_file *file, struct hyperparameters *out,
                                     struct error *err)
{
    struct hyperparameters h = {.yarn_score_scale = 1.0f};
    struct hyperparameters_reader reader = {.file = file, .family = architecture->name, .err = err};
    const struct gguf_tensor *embedding = gguf_file_find_tensor(file, "token_embd.weight");
    if (!embedding || embedding->n_dims != 2 || embedding->ne[1] > LIMIT_VOCAB)
        return error_set(
            err, ERROR_INVALID,
            "tensor token_embd.weight is missing or is not a matrix of at most %d rows",
            LIMIT_VOCAB);
    h.n_vocab = (uint32_t)embedding->ne[1];
    read_sizes(&reader, architecture, &h);
    h.n_context_max = architecture->needs & ROLE_BIT(TENSOR_POSITION_EMBEDDING)
                          ? h.n_context_train
                          : architecture->context_max;
    if (h.n_context_max && h.n_context_train > h.n_context_max)
        h.n_context_train = h.n_context_max;
    read_ffn(&reader, architecture, &h);
    hyperparameters_read_recurrence(&reader, architecture, &h);
    read_window(&reader, architecture, &h);
    hyperparameters_read_head_sizes(&reader, architecture, &h);
    hyperparameters_read_shared(&reader, architecture, &h);
    read_rope(&reader, architecture, &h);
    hyperparameters_read_pictures(&reader, architecture, &h);
    read_latent(&reader, architecture, &h);
    hyperparameters_read_indexer(&reader, architecture, &h);
    hyperparameters_read_summaries(&reader, architecture, &h);
    read_attention(&reader, architecture, &h);
    read_query_scale(&reader, architecture, &h);
    read_scales(&reader, architecture, &h);
    read_residuals(&reader, architecture, &h);
    set_rotations(&reader, architecture, &h);
    hyperparameters_read_pooling(&reader, architecture, &h);
    if (reader.code)
        return reader.code;
    *out = h;
    return ERROR_NONE;
}
