/* Writes the corpus of the model target: one tiny model of each family, by the architecture table
 * itself. */
#include "gguf_bytes.h"
#include "model/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 8, HEADS = 2, LAYERS = 2, FF = 8, VOCAB = 4, EXPERTS = 2 };

static void key_u32(struct gguf_bytes *bytes, const char *family, const char *suffix,
                    uint32_t value)
{
    char key[128];
    snprintf(key, sizeof key, "%s.%s", family, suffix);
    gguf_bytes_u32(bytes, key, value);
}

static void key_f32(struct gguf_bytes *bytes, const char *family, const char *suffix, float value)
{
    char key[128];
    snprintf(key, sizeof key, "%s.%s", family, suffix);
    gguf_bytes_f32(bytes, key, value);
}

/* Every second layer keeps a state; of a family of one branch the first alone. */
static void add_recurrence_keys(struct gguf_bytes *bytes, const struct architecture *architecture)
{
    const char *family = architecture->name;
    uint32_t n_head_kv[LAYERS], n_ff[LAYERS];
    char key[128];
    for (uint32_t i = 0; i < LAYERS; i++) {
        n_head_kv[i] = i == 1;
        n_ff[i] = i > 1 ? FF : 0;
    }
    snprintf(key, sizeof key, "%s.attention.head_count_kv", family);
    gguf_bytes_array(bytes, key, GGUF_TYPE_UINT32, n_head_kv, LAYERS, sizeof n_head_kv[0]);
    snprintf(key, sizeof key, "%s.feed_forward_length", family);
    if (architecture->is_one_branch) {
        key_u32(bytes, family, "expert_feed_forward_length", FF);
        gguf_bytes_array(bytes, key, GGUF_TYPE_UINT32, n_ff, LAYERS, sizeof n_ff[0]);
    }
    if (architecture->attention_period)
        key_u32(bytes, family, "full_attention_interval", 2);
    key_u32(bytes, family, "shortconv.l_cache", 3);
    key_u32(bytes, family, "kda.head_dim", 2);
    key_f32(bytes, family, "kda.gate_lower_bound", -5);
    key_u32(bytes, family, "ssm.conv_kernel", 3);
    key_u32(bytes, family, "ssm.state_size", 2);
    key_u32(bytes, family, "ssm.group_count", 1);
    key_u32(bytes, family, "ssm.time_step_rank", 2);
    key_u32(bytes, family, "ssm.inner_size", 4);
}

static void add_keys(struct gguf_bytes *bytes, const struct architecture *architecture)
{
    const char *family = architecture->name;
    const role_set of_mixture = ROLE_BIT(TENSOR_SHARED_UP) | ROLE_BIT(TENSOR_CHOICE_BIAS);
    bool experts = strstr(family, "moe") || strcmp(family, "gpt-oss") == 0 ||
                   strcmp(family, "grok") == 0 ||
                   ((architecture->needs | architecture->may_have) & of_mixture);
    gguf_bytes_text(bytes, "general.architecture", family);
    key_u32(bytes, family, "block_count", LAYERS);
    key_u32(bytes, family, "context_length", 64);
    key_u32(bytes, family, "embedding_length", WIDTH);
    key_u32(bytes, family, "attention.head_count", HEADS);
    if (architecture->recurrence)
        add_recurrence_keys(bytes, architecture);
    else
        key_u32(bytes, family, "attention.head_count_kv", 1);
    if (!architecture->is_one_branch)
        key_u32(bytes, family, "feed_forward_length", FF);
    key_f32(bytes, family, "attention.layer_norm_rms_epsilon", 1e-5f);
    key_f32(bytes, family, "rope.freq_base", 1e6f);
    key_f32(bytes, family, "rope.scaling.factor", 4);
    if (architecture->window_period)
        key_u32(bytes, family, "attention.sliding_window", 16);
    if (architecture->window_period == WINDOW_AS_FILE)
        key_u32(bytes, family, "attention.sliding_window_pattern", 2);
    if (architecture->has_latent_attention) {
        key_u32(bytes, family, "attention.kv_lora_rank", 4);
        key_u32(bytes, family, "attention.q_lora_rank", 4);
        key_u32(bytes, family, "attention.key_length", 6);
        key_u32(bytes, family, "attention.value_length", 4);
        key_u32(bytes, family, "attention.key_length_mla", 4);
        key_u32(bytes, family, "attention.value_length_mla", 4);
        key_u32(bytes, family, "rope.dimension_count", 2);
    }
    if (experts) {
        key_u32(bytes, family, "expert_count", EXPERTS);
        key_u32(bytes, family, "expert_used_count", 1);
    }
}

static void add_tensor(struct gguf_bytes *bytes, const struct architecture *architecture,
                       const struct hyperparameters *h, enum tensor_role role, uint32_t layer)
{
    char name[96];
    int64_t ne[3];
    uint32_t n_dims = 0;
    tensor_role_name(role, layer, name, sizeof name);
    tensor_role_shape(architecture, h, role, layer, ne);
    while (n_dims < 3 && ne[n_dims])
        n_dims++;
    gguf_bytes_tensor(bytes, name, GGML_TYPE_F32, n_dims, ne, NULL);
}

static void add_tensors(struct gguf_bytes *bytes, const struct architecture *architecture)
{
    struct gguf_file *file;
    struct hyperparameters h;
    struct error err;
    gguf_bytes_tensor(bytes, "token_embd.weight", GGML_TYPE_F32, 2, (int64_t[]){WIDTH, VOCAB},
                      NULL);
    const struct buffer *whole = gguf_bytes_finish(bytes);
    if (gguf_file_open_memory(whole->data, whole->size, &file, &err) ||
        hyperparameters_read(architecture, file, &h, &err)) {
        fprintf(stderr, "%s: %s\n", architecture->name, err.text);
        exit(1);
    }
    gguf_file_close(file);
    const role_set qkv = ROLE_BIT(TENSOR_Q) | ROLE_BIT(TENSOR_K) | ROLE_BIT(TENSOR_V);
    for (int role = 0; role < TENSOR_ROLE_COUNT; role++) {
        bool per_layer = tensor_role_per_layer((enum tensor_role)role);
        for (uint32_t layer = 0; layer < (per_layer ? LAYERS : 1); layer++) {
            role_set needed = architecture_roles_needed(architecture, &h, layer);
            if (h.layers[layer].n_head_kv && !h.n_latent_kv)
                needed |= qkv;
            if ((needed & ROLE_BIT(role)) && role != TENSOR_TOKEN_EMBEDDING)
                add_tensor(bytes, architecture, &h, (enum tensor_role)role, layer);
        }
    }
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: make-model-corpus FOLDER\n");
        return 2;
    }
    for (uint32_t i = 0; i < architecture_count(); i++) {
        const struct architecture *architecture = architecture_at(i);
        struct gguf_bytes bytes = {0};
        struct model *model;
        struct error err;
        char path[4096];
        add_keys(&bytes, architecture);
        add_tensors(&bytes, architecture);
        snprintf(path, sizeof path, "%s/%s.gguf", argv[1], architecture->name);
        gguf_bytes_save(&bytes, path);
        gguf_bytes_deinit(&bytes);
        if (model_open(path, &model, &err)) {
            fprintf(stderr, "%s\n", err.text);
            return 1;
        }
        model_close(model);
    }
    return 0;
}
