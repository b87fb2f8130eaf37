/* A model of any bytes: its family, hyper-parameters and tensors accepted or refused with a text.
 * What is accepted has every cost within its file's size, and finite numbers. */
#include "fuzz.h"

#include "base/limits.h"
#include "model/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void check_numbers(const struct hyperparameters *h)
{
    FUZZ_CHECK(h->n_layers > 0 && h->n_layers <= LIMIT_LAYERS);
    FUZZ_CHECK(h->n_embd > 0 && h->n_vocab > 0 && h->n_head > 0 && h->n_head_kv > 0);
    FUZZ_CHECK(h->n_head % h->n_head_kv == 0 && h->n_rot % 2 == 0 && h->n_rot <= h->n_head_dim_k);
    FUZZ_CHECK(h->n_experts_used <= h->n_experts);
    const float numbers[] = {h->norm_epsilon,         h->rope_base,       h->rope_base_window,
                             h->rope_frequency_scale, h->yarn_ext_factor, h->yarn_attn_factor,
                             h->yarn_beta_fast,       h->yarn_beta_slow,  h->attention_softcap,
                             h->final_softcap,        h->attention_scale, h->embedding_scale,
                             h->residual_scale,       h->logit_scale,     h->expert_weight_scale};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        FUZZ_CHECK(isfinite(numbers[i]));
}

static void check_costs(const struct model *model)
{
    const struct hyperparameters *h = model_hyperparameters(model);
    uint64_t file_size = gguf_file_size(model_file(model)), bytes = model_input_cost(model).bytes;
    for (uint32_t i = 0; i < h->n_layers; i++) {
        struct layer_cost cost = model_layer_cost(model, i);
        FUZZ_CHECK(cost.bytes > 0 && cost.bytes_per_token <= cost.bytes &&
                   (cost.kv_elements_per_token + cost.kv_elements_seen > 0) ==
                       (h->layers[i].n_head_kv > 0) &&
                   (cost.state_bytes > 0) == h->layers[i].is_recurrent);
        bytes += cost.bytes;
    }
    if (model_tensor(model, TENSOR_OUTPUT, 0))
        bytes += model_output_cost(model).bytes;
    FUZZ_CHECK(bytes <= file_size && model_weight_bytes(model) <= file_size);
    FUZZ_CHECK(model_parameter_count(model) > 0 && model_type_name(model) && model_name(model));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gguf_file *file = NULL;
    struct model *model = NULL;
    struct error err = {0};
    if (gguf_file_open_memory(data, size, &file, &err) != ERROR_NONE)
        return 0;
    enum error_code code = model_open_file(file, &model, &err);
    FUZZ_CHECK((code == ERROR_NONE) == (err.text[0] == 0) &&
               (code == ERROR_NONE) == (model != NULL));
    if (code)
        return 0;
    check_numbers(model_hyperparameters(model));
    check_costs(model);
    model_close(model);
    return 0;
}
