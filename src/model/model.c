#include "model/model.h"

#include "base/limits.h"
#include "base/mem.h"
#include "model/model_state.h"

#include <assert.h>
#include <ggml.h>
#include <stdio.h>
#include <string.h>

const struct gguf_tensor *model_tensor(const struct model *model, enum tensor_role role,
                                       uint32_t layer)
{
    if (!tensor_role_per_layer(role))
        return model->outside[role];
    return layer < model->hyperparameters.n_layers ? model->layers[layer][role] : NULL;
}

const struct gguf_tensor *model_head(const struct model *model)
{
    if (model->hyperparameters.gives_no_logits)
        return NULL;
    const struct gguf_tensor *head = model->outside[TENSOR_OUTPUT];
    return head ? head : model->outside[TENSOR_TOKEN_EMBEDDING];
}

/* Biases of experts are matrices by their shape, but are added like vectors. */
static bool is_bias(enum tensor_role role)
{
    return role == TENSOR_EXPERTS_GATE_BIAS || role == TENSOR_EXPERTS_UP_BIAS ||
           role == TENSOR_EXPERTS_DOWN_BIAS;
}

/* Types that ggml multiplies by; Q8_1 and Q8_K only ever hold activations. */
static bool is_matrix_type(enum ggml_type type)
{
    return type == GGML_TYPE_F32 || type == GGML_TYPE_F16 || type == GGML_TYPE_BF16 ||
           (ggml_is_quantized(type) && type != GGML_TYPE_Q8_1 && type != GGML_TYPE_Q8_K);
}

/* Without dimensions of 1 where the role allows them anywhere. */
static uint32_t shape_squeezed(bool squeeze, const int64_t *ne, uint32_t n_dims, int64_t out[3])
{
    uint32_t n = 0;
    out[0] = out[1] = out[2] = 1;
    for (uint32_t i = 0; i < n_dims && n < 3; i++) {
        if (!squeeze || ne[i] != 1)
            out[n++] = ne[i];
    }
    return n;
}

static enum error_code check_shape(const struct model *model, enum tensor_role role, uint32_t layer,
                                   const struct gguf_tensor *tensor, struct error *err)
{
    int64_t want[3];
    tensor_role_shape(model->architecture, &model->hyperparameters, role, layer, want);
    const bool loose = tensor_role_is_elementwise(role);
    int64_t has[3], due[3];
    const uint32_t n_has = shape_squeezed(loose, tensor->ne, tensor->n_dims, has);
    const uint32_t n_due = shape_squeezed(loose, want, want[2] ? 3 : want[1] ? 2 : 1, due);
    for (uint32_t i = 0; i < 3; i++) {
        if (n_has != n_due || tensor->n_dims > 4 || (!loose && tensor->n_dims > 3) ||
            due[i] != has[i])
            return error_set(err, ERROR_INVALID,
                             "tensor %s has the shape %lld x %lld x %lld; the hyper-parameters "
                             "require %lld x %lld x %lld",
                             tensor->name, (long long)tensor->ne[0], (long long)tensor->ne[1],
                             (long long)tensor->ne[2], (long long)want[0],
                             (long long)(want[1] ? want[1] : 1),
                             (long long)(want[2] ? want[2] : 1));
    }
    enum ggml_type type = (enum ggml_type)tensor->type;
    /* what is added or multiplied element by element must be F32: ggml has no other kernel for
     * it */
    if ((!want[1] || loose || is_bias(role)) && type != GGML_TYPE_F32)
        return error_set(err, ERROR_UNSUPPORTED, "tensor %s is %s; a vector must be F32",
                         tensor->name, ggml_type_name(type));
    if (role == TENSOR_EXPERTS_OF_TOKEN && type != GGML_TYPE_I32)
        return error_set(err, ERROR_UNSUPPORTED, "tensor %s is %s; experts' numbers must be I32",
                         tensor->name, ggml_type_name(type));
    if (!is_matrix_type(type) && role != TENSOR_EXPERTS_OF_TOKEN)
        return error_set(err, ERROR_UNSUPPORTED, "tensor %s is %s; weights cannot be of that type",
                         tensor->name, ggml_type_name(type));
    return ERROR_NONE;
}

static enum error_code find_role(const struct model *model, enum tensor_role role, uint32_t layer,
                                 bool needed, const struct gguf_tensor **out, uint64_t *n_found,
                                 struct error *err)
{
    char name[96];
    tensor_role_name(role, layer, name, sizeof name);
    *out = gguf_file_find_tensor(model->file, name);
    char other[96];
    if (!*out && tensor_role_other_name(role, layer, other, sizeof other))
        *out = gguf_file_find_tensor(model->file, other);
    if (!*out)
        return needed ? error_set(err, ERROR_INVALID, "tensor %s is missing", name) : ERROR_NONE;
    ++*n_found;
    return check_shape(model, role, layer, *out, err);
}

/* Q, K and V, or all of them in one; a layer that sees another's keys and values has Q alone. */
static enum error_code check_projections(const struct model *model, uint32_t layer,
                                         const struct gguf_tensor *tensors[TENSOR_ROLE_COUNT],
                                         struct error *err)
{
    const struct layer_form *form = &model->hyperparameters.layers[layer];
    const bool has_kv =
        tensors[TENSOR_K] && (tensors[TENSOR_V] || model->architecture->value_may_be_key);
    if (form->is_recurrent || form->has_no_mixer || model->hyperparameters.n_latent_kv ||
        model->hyperparameters.summaries.is_there)
        return ERROR_NONE;
    if (form->kv_layer != layer)
        return tensors[TENSOR_Q] ? ERROR_NONE
                                 : error_set(err, ERROR_INVALID, "layer %u has no attn_q", layer);
    return tensors[TENSOR_QKV] || (tensors[TENSOR_Q] && has_kv)
               ? ERROR_NONE
               : error_set(err, ERROR_INVALID,
                           "layer %u has neither attn_qkv nor all of attn_q, attn_k and attn_v",
                           layer);
}

static enum error_code find_roles(struct model *model, uint32_t layer, bool per_layer,
                                  const struct gguf_tensor *tensors[TENSOR_ROLE_COUNT],
                                  uint64_t *n_found, struct error *err)
{
    role_set needed =
        architecture_roles_needed(model->architecture, &model->hyperparameters, layer);
    role_set allowed =
        architecture_roles_allowed(model->architecture, &model->hyperparameters, layer);
    enum error_code code = ERROR_NONE;
    for (int i = 0; i < TENSOR_ROLE_COUNT && !code; i++) {
        enum tensor_role role = (enum tensor_role)i;
        if (tensor_role_per_layer(role) == per_layer && (allowed & ROLE_BIT(role)))
            code = find_role(model, role, layer, (needed & ROLE_BIT(role)) != 0, &tensors[role],
                             n_found, err);
    }
    return code || !per_layer ? code : check_projections(model, layer, tensors, err);
}

/* Of a block that predicts further tokens: it is not run. */
static bool is_of_next_tokens(const struct model *model, const struct gguf_tensor *tensor)
{
    unsigned layer = 0;
    return sscanf(tensor->name, "blk.%u.", &layer) == 1 &&
           layer >= model->hyperparameters.n_layers && layer < model->hyperparameters.n_layers_file;
}

/* A tensor that no role names would be silently left out of the computation: refuse it instead. */
static enum error_code refuse_unknown_tensors(const struct model *model, uint64_t n_found,
                                              struct error *err)
{
    uint64_t n_tensors = gguf_file_tensor_count(model->file);
    for (uint64_t i = 0; i < n_tensors && n_found != n_tensors; i++) {
        const struct gguf_tensor *tensor = gguf_file_tensor(model->file, i);
        bool known = is_of_next_tokens(model, tensor);
        for (uint32_t layer = 0; layer < model->hyperparameters.n_layers && !known; layer++) {
            for (int role = 0; role < TENSOR_ROLE_COUNT && !known; role++)
                known = model->layers[layer][role] == tensor || model->outside[role] == tensor;
        }
        if (!known)
            return error_set(err, ERROR_UNSUPPORTED,
                             "Medley does not know the tensor %s of the family %s", tensor->name,
                             model->architecture->name);
    }
    return ERROR_NONE;
}

static enum error_code find_tensors(struct model *model, struct error *err)
{
    uint64_t n_found = 0;
    uint32_t n_layers = model->hyperparameters.n_layers;
    model->layers = mem_new_array(n_layers, sizeof *model->layers);
    if (!model->layers)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the tensor index");
    enum error_code code = find_roles(model, 0, false, model->outside, &n_found, err);
    for (uint32_t layer = 0; layer < n_layers && !code; layer++)
        code = find_roles(model, layer, true, model->layers[layer], &n_found, err);
    return code ? code : refuse_unknown_tensors(model, n_found, err);
}

/* Families of llama.cpp's that are not computed, and what is missing. */
static const struct {
    const char *name, *what;
} families_refused[] = {
    {"gemma3n", "several hidden states a token, and embeddings of each layer"},
};

/* A projector's file (mmproj), see model/projector.h. */
static const char projector_family[] = "clip";

static enum error_code refuse_architecture(const char *name, struct error *err)
{
    if (strcmp(name, projector_family) == 0)
        return error_set(err, ERROR_UNSUPPORTED,
                         "this file is a projector: what a language model sees pictures with. Give "
                         "it beside that model, by --projector FILE");
    for (size_t i = 0; i < sizeof families_refused / sizeof *families_refused; i++) {
        if (strcmp(name, families_refused[i].name) == 0)
            return error_set(err, ERROR_UNSUPPORTED,
                             "Medley does not compute the architecture '%s': it has %s", name,
                             families_refused[i].what);
    }
    char known[1000] = "";
    for (uint32_t i = 0; i < architecture_count(); i++) {
        const size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "",
                 architecture_at(i)->name);
    }
    return error_set(err, ERROR_UNSUPPORTED,
                     "Medley does not know the architecture '%.64s' (it knows %s)", name, known);
}

static enum error_code find_architecture(struct model *model, struct error *err)
{
    const char *name;
    size_t size;
    enum error_code code = gguf_file_text(model->file, "general.architecture", &name, &size, err);
    if (code)
        return code;
    model->architecture = architecture_find(name);
    return model->architecture ? ERROR_NONE : refuse_architecture(name, err);
}

static void model_set_name(struct model *model)
{
    const char *name;
    size_t size;
    if (gguf_file_text(model->file, "general.name", &name, &size, NULL) == ERROR_NONE && size > 0) {
        snprintf(model->name, sizeof model->name, "%s", name);
        return;
    }
    const char *path = gguf_file_path(model->file), *slash = strrchr(path, '/');
    snprintf(model->name, sizeof model->name, "%s", slash ? slash + 1 : path);
    char *dot = strstr(model->name, ".gguf");
    if (dot)
        *dot = '\0';
}

enum error_code model_open_file(struct gguf_file *file, struct model **out, struct error *err)
{
    struct model *model = mem_new(sizeof *model);
    if (!model) {
        gguf_file_close(file);
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the model");
    }
    model->file = file;
    enum error_code code = model_versions_open(model, err);
    if (!code)
        code = find_architecture(model, err);
    if (!code)
        code = hyperparameters_read(model->architecture, file, &model->hyperparameters, err);
    if (!code)
        code = find_tensors(model, err);
    /* A file with long and short factors need not say so otherwise. */
    if (model->outside[TENSOR_ROPE_FACTORS_LONG] || model->outside[TENSOR_ROPE_FACTORS_SHORT])
        model->hyperparameters.rope_scaling = ROPE_SCALING_LONGROPE;
    if (code) {
        error_wrap(err, "%s", gguf_file_path(file));
        model_close(model);
        return code;
    }
    model_set_name(model);
    *out = model;
    return ERROR_NONE;
}

enum error_code model_open(const char *path, struct model **out, struct error *err)
{
    struct gguf_file *file;
    enum error_code code = gguf_file_open(path, &file, err);
    return code ? code : model_open_file(file, out, err);
}

enum error_code model_stretch(struct model *model, const struct rope_stretch *stretch,
                              struct error *err)
{
    return rope_stretch_apply(stretch, model->architecture, &model->hyperparameters, err);
}

enum error_code model_stretch_copy(const struct model *model, const struct rope_stretch *stretch,
                                   struct model **out, struct error *err)
{
    struct model *copy = mem_new(sizeof *copy);
    assert(!model->original);
    *out = NULL;
    if (!copy)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the model");
    *copy = *model;
    copy->origin = model_origin(model);
    copy->versions = NULL;
    enum error_code code = model_versions_open(copy, err);
    if (!code)
        code = model_stretch(copy, stretch, err);
    if (code)
        model_close(copy);
    else
        *out = copy;
    return code;
}

const struct model *model_origin(const struct model *model)
{
    return model->origin ? model->origin : model;
}

void model_close(struct model *model)
{
    if (!model)
        return;
    model_versions_close(model);
    if (!model->origin) {
        mem_free(model->layers);
        gguf_file_close(model->file);
    }
    mem_free(model);
}

const struct gguf_file *model_file(const struct model *model)
{
    return model->file;
}

const struct architecture *model_architecture(const struct model *model)
{
    return model->architecture;
}

const struct hyperparameters *model_hyperparameters(const struct model *model)
{
    return &model->hyperparameters;
}

const char *model_name(const struct model *model)
{
    return model->name;
}

const char *model_type_name(const struct model *model)
{
    uint64_t bytes[GGML_TYPE_COUNT] = {0};
    int most = GGML_TYPE_F32;
    for (uint64_t i = 0; i < gguf_file_tensor_count(model->file); i++) {
        const struct gguf_tensor *tensor = model_tensor_at(model, i);
        bytes[tensor->type] += tensor->size;
        if (bytes[tensor->type] > bytes[most])
            most = tensor->type;
    }
    return ggml_type_name((enum ggml_type)most);
}
