#include "base/limits.h"
#include "model/architecture.h"
#include "model/gguf_file.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Reads one file's keys of one family; the first failure sticks and the rest is skipped. */
struct hyperparameters_reader {
    const struct gguf_file *file;
    const char *family;
    struct error *err;
    enum error_code code;
};

static const char *hyperparameters_key_of(const struct hyperparameters_reader *reader,
                                          const char *suffix, char key[128])
{
    snprintf(key, 128, "%s.%s", reader->family, suffix);
    return key;
}

static bool hyperparameters_has(const struct hyperparameters_reader *reader, const char *suffix)
{
    char key[128];
    return gguf_file_has(reader->file, hyperparameters_key_of(reader, suffix, key));
}

static void hyperparameters_fail(struct hyperparameters_reader *reader, const char *suffix,
                                 const char *what)
{
    if (reader->code)
        return;
    char key[128];
    reader->code = error_set(reader->err, ERROR_INVALID, "%s %s",
                             hyperparameters_key_of(reader, suffix, key), what);
}

/* A count from `min` to `max`. Some files give one value per layer: then all must be the same. */
static void hyperparameters_read_count(struct hyperparameters_reader *reader, const char *suffix,
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

static void read_count_or(struct hyperparameters_reader *reader, const char *suffix, uint32_t min,
                          uint32_t max, uint32_t *out, uint32_t otherwise)
{
    if (hyperparameters_has(reader, suffix))
        hyperparameters_read_count(reader, suffix, min, max, out);
    else
        *out = otherwise;
}

static void read_number_or(struct hyperparameters_reader *reader, const char *suffix, float *out,
                           float otherwise)
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
    read_number_or(reader, suffix, out, otherwise);
    if (!(*out > 0))
        hyperparameters_fail(reader, suffix, "must be above 0");
}

static void read_sizes(struct hyperparameters_reader *reader, struct hyperparameters *h)
{
    enum { WIDTH_MAX = 1 << 20, HEADS_MAX = 4096, HEAD_DIM_MAX = 4096 };
    hyperparameters_read_count(reader, "block_count", 1, LIMIT_LAYERS, &h->n_layers);
    hyperparameters_read_count(reader, "embedding_length", 1, WIDTH_MAX, &h->n_embd);
    read_count_or(reader, "context_length", 1, LIMIT_CONTEXT, &h->n_context_train, 2048);
    hyperparameters_read_count(reader, "attention.head_count", 1, HEADS_MAX, &h->n_head);
    read_count_or(reader, "attention.head_count_kv", 1, HEADS_MAX, &h->n_head_kv, h->n_head);
    if (reader->code)
        return;
    if (h->n_head % h->n_head_kv)
        hyperparameters_fail(reader, "attention.head_count",
                             "must be a multiple of attention.head_count_kv");
    if (!hyperparameters_has(reader, "attention.key_length") && h->n_embd % h->n_head)
        hyperparameters_fail(reader, "embedding_length",
                             "must be a multiple of attention.head_count");
    read_count_or(reader, "attention.key_length", 1, HEAD_DIM_MAX, &h->n_head_dim_k,
                  h->n_embd / h->n_head);
    read_count_or(reader, "attention.value_length", 1, HEAD_DIM_MAX, &h->n_head_dim_v,
                  h->n_embd / h->n_head);
}

static void read_ffn(struct hyperparameters_reader *reader, const struct architecture *a,
                     struct hyperparameters *h)
{
    enum { FF_MAX = 1 << 24, EXPERTS_MAX = 4096 };
    char key[128];
    bool normalise = true;
    read_count_or(reader, "feed_forward_length", 0, FF_MAX, &h->n_ff, 0);
    read_count_or(reader, "expert_count", 0, EXPERTS_MAX, &h->n_experts, 0);
    read_count_or(reader, "expert_used_count", 0, EXPERTS_MAX, &h->n_experts_used, 0);
    read_count_or(reader, "expert_feed_forward_length", 1, FF_MAX, &h->n_ff_expert, h->n_ff);
    if (h->n_experts ? !h->n_ff_expert : !h->n_ff)
        hyperparameters_fail(reader, "feed_forward_length", "must be above 0");
    if (h->n_experts && (h->n_experts_used < 1 || h->n_experts_used > h->n_experts))
        hyperparameters_fail(reader, "expert_used_count", "must be from 1 to expert_count");
    read_positive_or(reader, "expert_weights_scale", &h->expert_weight_scale, 1.0f);
    if (!reader->code && hyperparameters_has(reader, "expert_weights_norm"))
        reader->code =
            gguf_file_bool(reader->file, hyperparameters_key_of(reader, "expert_weights_norm", key),
                           &normalise, reader->err);
    if (!normalise && !a->keep_expert_sum)
        hyperparameters_fail(reader, "expert_weights_norm",
                             "is false, which this family does not have");
}

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

static void read_rope(struct hyperparameters_reader *reader, const struct architecture *a,
                      struct hyperparameters *h)
{
    float factor = 1.0f;
    read_count_or(reader, "rope.dimension_count", 2, h->n_head_dim_k ? h->n_head_dim_k : 2,
                  &h->n_rot, h->n_head_dim_k);
    if (h->n_rot % 2)
        hyperparameters_fail(reader, "rope.dimension_count", "must be even");
    read_positive_or(reader, "rope.freq_base", &h->rope_base, 10000.0f);
    read_positive_or(reader, "rope.freq_base_swa", &h->rope_base_window,
                     a->window_rope_base != 0 ? a->window_rope_base : h->rope_base);
    h->rope_scaling = scaling_of(reader);
    read_positive_or(reader,
                     hyperparameters_has(reader, "rope.scaling.factor") ? "rope.scaling.factor"
                                                                        : "rope.scale_linear",
                     &factor, 1.0f);
    h->rope_frequency_scale = h->rope_scaling == ROPE_SCALING_NONE ? 1.0f : 1.0f / factor;
    read_count_or(reader, "rope.scaling.original_context_length", 1, LIMIT_CONTEXT,
                  &h->n_context_original, h->n_context_train);
    /* YaRN (Peng et al. 2023, arXiv:2309.00071); ggml itself multiplies by 1 + 0.1 ln(factor) */
    read_number_or(reader, "rope.scaling.yarn_ext_factor", &h->yarn_ext_factor,
                   h->rope_scaling == ROPE_SCALING_YARN ? 1.0f : 0.0f);
    read_positive_or(reader, "rope.scaling.attn_factor", &h->yarn_attn_factor, 1.0f);
    read_positive_or(reader, "rope.scaling.yarn_beta_fast", &h->yarn_beta_fast, 32.0f);
    read_positive_or(reader, "rope.scaling.yarn_beta_slow", &h->yarn_beta_slow, 1.0f);
}

static void read_attention(struct hyperparameters_reader *reader, const struct architecture *a,
                           struct hyperparameters *h)
{
    read_positive_or(reader, "attention.layer_norm_rms_epsilon", &h->rms_epsilon, 0);
    if (a->window_period) {
        read_count_or(reader, "attention.sliding_window", 0, LIMIT_CONTEXT, &h->window, 0);
        h->window_period = a->window_period;
        if (!reader->code && !h->window && a->window_period > 1)
            hyperparameters_fail(reader, "attention.sliding_window", "is needed");
    }
    read_number_or(reader, "attn_logit_softcapping", &h->attention_softcap, a->attention_softcap);
    read_number_or(reader, "final_logit_softcapping", &h->final_softcap, a->final_softcap);
    if (h->attention_softcap < 0)
        hyperparameters_fail(reader, "attn_logit_softcapping", "must not be negative");
    if (h->final_softcap < 0)
        hyperparameters_fail(reader, "final_logit_softcapping", "must not be negative");
    bool wide = a->layers_of_wide_scale && h->n_layers == a->layers_of_wide_scale;
    float per_head = wide ? (float)h->n_embd / (float)h->n_head : (float)h->n_head_dim_k;
    read_number_or(reader, "attention.scale", &h->attention_scale, 0);
    if (h->attention_scale == 0)
        h->attention_scale = 1.0f / sqrtf(per_head);
}

static void read_scales(struct hyperparameters_reader *reader, const struct architecture *a,
                        struct hyperparameters *h)
{
    read_positive_or(reader, "embedding_scale", &h->embedding_scale,
                     a->embedding_scale_sqrt ? sqrtf((float)h->n_embd) : 1.0f);
    read_positive_or(reader, "residual_scale", &h->residual_scale, 1.0f);
    read_positive_or(reader, "logit_scale", &h->logit_scale, 1.0f);
    if (a->logit_scale_divides)
        h->logit_scale = 1.0f / h->logit_scale;
}

enum error_code hyperparameters_read(const struct architecture *architecture,
                                     const struct gguf_file *file, struct hyperparameters *out,
                                     struct error *err)
{
    struct hyperparameters h = {0};
    struct hyperparameters_reader reader = {.file = file, .family = architecture->name, .err = err};
    const struct gguf_tensor *embedding = gguf_file_find_tensor(file, "token_embd.weight");
    if (!embedding || embedding->n_dims != 2 || embedding->ne[1] > LIMIT_VOCAB)
        return error_set(
            err, ERROR_INVALID,
            "tensor token_embd.weight is missing or is not a matrix of at most %d rows",
            LIMIT_VOCAB);
    h.n_vocab = (uint32_t)embedding->ne[1];
    read_sizes(&reader, &h);
    read_ffn(&reader, architecture, &h);
    read_rope(&reader, architecture, &h);
    read_attention(&reader, architecture, &h);
    read_scales(&reader, architecture, &h);
    if (reader.code)
        return reader.code;
    *out = h;
    return ERROR_NONE;
}
