/* The JSON of `medley inspect`. Unknown is null; sizes are bytes. */
#include "cli/inspect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yyjson.h>

/* Foreign text, which need not be UTF-8; the document keeps a copy. */
static yyjson_mut_val *text_value(yyjson_mut_doc *doc, const char *text, size_t size)
{
    struct buffer clean = {0};
    inspect_clean_text(&clean, text, size, false);
    yyjson_mut_val *value =
        clean.failed ? NULL : yyjson_mut_strncpy(doc, clean.data ? clean.data : "", clean.size);
    buffer_deinit(&clean);
    return value;
}

static void inspect_json_add_text(yyjson_mut_doc *doc, yyjson_mut_val *object, const char *key,
                                  const char *text, size_t size)
{
    yyjson_mut_obj_add_val(doc, object, key, text_value(doc, text, size));
}

static void add_string(yyjson_mut_doc *doc, yyjson_mut_val *object, const char *key,
                       const char *text)
{
    inspect_json_add_text(doc, object, key, text, strlen(text));
}

static void inspect_json_add_cost(yyjson_mut_doc *doc, yyjson_mut_val *object,
                                  const struct layer_cost *cost)
{
    yyjson_mut_obj_add_uint(doc, object, "bytes", cost->bytes);
    yyjson_mut_obj_add_uint(doc, object, "bytes_per_token", cost->bytes_per_token);
    yyjson_mut_obj_add_uint(doc, object, "flops_per_token", cost->flops_per_token);
    yyjson_mut_obj_add_uint(doc, object, "flops_per_token_per_context",
                            cost->flops_per_token_per_context);
    yyjson_mut_obj_add_uint(doc, object, "kv_bytes_per_token_f16",
                            cost->kv_elements_per_token * INSPECT_F16_BYTES);
    yyjson_mut_obj_add_uint(doc, object, "state_bytes", cost->state_bytes);
}

static void add_costs(yyjson_mut_doc *doc, yyjson_mut_val *root, const struct model *model)
{
    const struct hyperparameters *h = model_hyperparameters(model);
    yyjson_mut_val *costs = yyjson_mut_obj_add_obj(doc, root, "cost");
    struct layer_cost cost = model_input_cost(model);
    inspect_json_add_cost(doc, yyjson_mut_obj_add_obj(doc, costs, "input"), &cost);
    yyjson_mut_val *layers = yyjson_mut_obj_add_arr(doc, costs, "layers");
    for (uint32_t i = 0; i < h->n_layers; i++) {
        yyjson_mut_val *layer = yyjson_mut_arr_add_obj(doc, layers);
        cost = model_layer_cost(model, i);
        yyjson_mut_obj_add_uint(doc, layer, "layer", i);
        yyjson_mut_obj_add_bool(doc, layer, "windowed", hyperparameters_layer_windowed(h, i));
        if (h->summaries.is_there)
            yyjson_mut_obj_add_uint(doc, layer, "summary_tokens", h->layers[i].summary);
        inspect_json_add_cost(doc, layer, &cost);
    }
    cost = model_output_cost(model);
    inspect_json_add_cost(doc, yyjson_mut_obj_add_obj(doc, costs, "output"), &cost);
    cost = inspect_total_cost(model);
    inspect_json_add_cost(doc, yyjson_mut_obj_add_obj(doc, costs, "all"), &cost);
}

static void add_rope(yyjson_mut_doc *doc, yyjson_mut_val *root, const struct model *model)
{
    const struct hyperparameters *h = model_hyperparameters(model);
    yyjson_mut_val *rope = yyjson_mut_obj_add_obj(doc, root, "rope");
    yyjson_mut_obj_add_str(doc, rope, "kind",
                           model_architecture(model)->rope == ROPE_NEOX ? "neox" : "norm");
    yyjson_mut_obj_add_uint(doc, rope, "dimensions", h->n_rot);
    yyjson_mut_obj_add_real(doc, rope, "base", (double)h->rope_base);
    yyjson_mut_obj_add_str(doc, rope, "scaling",
                           inspect_rope_scaling_name(inspect_rope_scaling(h)));
    yyjson_mut_obj_add_real(doc, rope, "frequency_scale", (double)h->rope_frequency_scale);
    yyjson_mut_obj_add_uint(doc, rope, "context_original", h->n_context_original);
    yyjson_mut_obj_add_bool(doc, rope, "factors",
                            model_tensor(model, TENSOR_ROPE_FREQS, 0) != NULL);
}

static void inspect_json_add_model(yyjson_mut_doc *doc, yyjson_mut_val *root,
                                   const struct model *model)
{
    const struct hyperparameters *h = model_hyperparameters(model);
    add_string(doc, root, "name", model_name(model));
    yyjson_mut_obj_add_str(doc, root, "architecture", model_architecture(model)->name);
    yyjson_mut_obj_add_uint(doc, root, "parameters", model_parameter_count(model));
    yyjson_mut_obj_add_str(doc, root, "weight_type", model_type_name(model));
    yyjson_mut_obj_add_uint(doc, root, "weight_bytes", model_weight_bytes(model));
    yyjson_mut_obj_add_uint(doc, root, "context", h->n_context_train);
    yyjson_mut_obj_add_uint(doc, root, "n_layers", h->n_layers);
    yyjson_mut_obj_add_uint(doc, root, "n_embd", h->n_embd);
    yyjson_mut_obj_add_uint(doc, root, "n_ff", h->n_experts ? h->n_ff_expert : h->n_ff);
    yyjson_mut_obj_add_uint(doc, root, "n_head", h->n_head);
    yyjson_mut_obj_add_uint(doc, root, "n_head_kv", h->n_head_kv);
    yyjson_mut_obj_add_uint(doc, root, "head_dim_k", h->n_head_dim_k);
    yyjson_mut_obj_add_uint(doc, root, "head_dim_v", h->n_head_dim_v);
    yyjson_mut_obj_add_uint(doc, root, "n_vocab", h->n_vocab);
    yyjson_mut_obj_add_uint(doc, root, "n_experts", h->n_experts);
    yyjson_mut_obj_add_uint(doc, root, "n_experts_used", h->n_experts_used);
    yyjson_mut_obj_add_bool(doc, root, "tied_output",
                            model_head(model) == model_tensor(model, TENSOR_TOKEN_EMBEDDING, 0));
    if (h->window)
        yyjson_mut_obj_add_uint(doc, root, "sliding_window", h->window_seen);
    else
        yyjson_mut_obj_add_null(doc, root, "sliding_window");
    add_rope(doc, root, model);
    add_costs(doc, root, model);
}

static void add_token(yyjson_mut_doc *doc, yyjson_mut_val *object, const char *key, int32_t id)
{
    if (id == TOKEN_NONE)
        yyjson_mut_obj_add_null(doc, object, key);
    else
        yyjson_mut_obj_add_int(doc, object, key, id);
}

static void add_tokenizer(yyjson_mut_doc *doc, yyjson_mut_val *root,
                          const struct inspection *inspection)
{
    const struct tokenizer *tokenizer = inspection->tokenizer;
    if (!tokenizer) {
        yyjson_mut_obj_add_null(doc, root, "tokenizer");
        add_string(doc, root, "tokenizer_error",
                   inspect_reason(inspection->file, &inspection->tokenizer_error));
        return;
    }
    yyjson_mut_val *object = yyjson_mut_obj_add_obj(doc, root, "tokenizer");
    yyjson_mut_obj_add_str(doc, object, "family", tokenizer_family(tokenizer));
    add_string(doc, object, "pre", tokenizer_pre(tokenizer));
    yyjson_mut_obj_add_uint(doc, object, "size", tokenizer_size(tokenizer));
    add_token(doc, object, "bos", tokenizer_bos(tokenizer));
    add_token(doc, object, "eos", tokenizer_eos(tokenizer));
    add_token(doc, object, "eot", tokenizer_eot(tokenizer));
    yyjson_mut_obj_add_bool(doc, object, "adds_bos", tokenizer_adds_bos(tokenizer));
    yyjson_mut_obj_add_bool(doc, object, "adds_eos", tokenizer_adds_eos(tokenizer));
}

static void add_types(yyjson_mut_doc *doc, yyjson_mut_val *root, const struct gguf_file *file)
{
    struct inspect_type types[INSPECT_TYPES_MAX];
    uint32_t n_types = inspect_types(file, types);
    yyjson_mut_val *list = yyjson_mut_obj_add_arr(doc, root, "types");
    for (uint32_t i = 0; i < n_types; i++) {
        yyjson_mut_val *object = yyjson_mut_arr_add_obj(doc, list);
        yyjson_mut_obj_add_str(doc, object, "type", types[i].name);
        yyjson_mut_obj_add_uint(doc, object, "bytes", types[i].bytes);
        yyjson_mut_obj_add_uint(doc, object, "tensors", types[i].n_tensors);
    }
}

static void add_file(yyjson_mut_doc *doc, yyjson_mut_val *root, const struct gguf_file *file)
{
    add_string(doc, root, "file", gguf_file_path(file));
    yyjson_mut_obj_add_uint(doc, root, "file_bytes", gguf_file_size(file));
    yyjson_mut_obj_add_uint(doc, root, "n_files", gguf_file_part_count(file));
    yyjson_mut_obj_add_uint(doc, root, "gguf_version", gguf_file_version(file));
    yyjson_mut_obj_add_uint(doc, root, "n_keys", gguf_file_key_count(file));
    yyjson_mut_obj_add_uint(doc, root, "n_tensors", gguf_file_tensor_count(file));
    add_types(doc, root, file);
}

static void add_tensors(yyjson_mut_doc *doc, yyjson_mut_val *root, const struct gguf_file *file)
{
    yyjson_mut_val *list = yyjson_mut_obj_add_arr(doc, root, "tensors");
    for (uint64_t i = 0; i < gguf_file_tensor_count(file); i++) {
        const struct gguf_tensor *tensor = gguf_file_tensor(file, i);
        yyjson_mut_val *object = yyjson_mut_arr_add_obj(doc, list);
        add_string(doc, object, "name", tensor->name);
        yyjson_mut_obj_add_str(doc, object, "type", gguf_tensor_type_name(tensor));
        yyjson_mut_val *shape = yyjson_mut_obj_add_arr(doc, object, "shape");
        for (uint32_t d = 0; d < tensor->n_dims; d++)
            yyjson_mut_arr_add_sint(doc, shape, tensor->ne[d]);
        yyjson_mut_obj_add_uint(doc, object, "bytes", tensor->size);
        yyjson_mut_obj_add_uint(doc, object, "offset", tensor->offset);
    }
}

static void add_keys(yyjson_mut_doc *doc, yyjson_mut_val *root, const struct gguf_file *file)
{
    yyjson_mut_val *object = yyjson_mut_obj_add_obj(doc, root, "keys");
    for (uint64_t i = 0; i < gguf_file_key_count(file); i++) {
        char value[256];
        const char *key = gguf_file_key(file, i, value, sizeof value);
        yyjson_mut_obj_add(object, text_value(doc, key, strlen(key)),
                           yyjson_mut_strcpy(doc, value));
    }
}

bool inspect_print_json(const struct inspection *inspection)
{
    const char *source;
    size_t size;
    yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *root = yyjson_mut_obj(doc);
    yyjson_mut_doc_set_root(doc, root);
    add_file(doc, root, inspection->file);
    if (inspection->model)
        inspect_json_add_model(doc, root, inspection->model);
    else
        add_string(doc, root, "error", inspect_reason(inspection->file, &inspection->model_error));
    add_tokenizer(doc, root, inspection);
    if (gguf_file_text(inspection->file, "tokenizer.chat_template", &source, &size, NULL) ==
        ERROR_NONE)
        inspect_json_add_text(doc, root, "chat_template", source, size);
    else
        yyjson_mut_obj_add_null(doc, root, "chat_template");
    if (inspection->show_keys)
        add_keys(doc, root, inspection->file);
    if (inspection->show_tensors)
        add_tensors(doc, root, inspection->file);
    char *text = yyjson_mut_write(doc, YYJSON_WRITE_PRETTY, NULL);
    bool ok = text && puts(text) >= 0;
    free(text);
    yyjson_mut_doc_free(doc);
    return ok;
}
