#include "model/model_precision.h"

#include "base/mem.h"
#include "model/model_state.h"
#include "model/weight_choice.h"
#include "model/weight_type.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

enum error_code model_versions_open(struct model *model, struct error *err)
{
    model->versions = mem_new(sizeof *model->versions);
    if (!model->versions)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the model");
    pthread_mutex_init(&model->versions->lock, NULL);
    return ERROR_NONE;
}

static void version_free(struct model *version)
{
    mem_free(version->layers);
    mem_free(version->tensors);
    mem_free(version);
}

void model_versions_close(struct model *model)
{
    struct model_versions *versions = model->versions;
    if (!versions)
        return;
    while (versions->first) {
        struct model *version = versions->first;
        versions->first = version->next;
        version_free(version);
    }
    pthread_mutex_destroy(&versions->lock);
    mem_free(versions);
}

/* Of two tensors one is the other in another type. */
static const struct gguf_tensor *version_tensor(const struct model *version,
                                                const struct gguf_tensor *stored)
{
    return stored ? &version->tensors[stored - gguf_file_tensor(version->file, 0)] : NULL;
}

static void version_fill(struct model *version, const struct weight_choice *choice)
{
    const struct model *original = version->original;
    for (uint64_t i = 0; i < choice->n_tensors; i++) {
        struct gguf_tensor *tensor = &version->tensors[i];
        *tensor = *gguf_file_tensor(version->file, i);
        tensor->type = choice->types[i];
        tensor->size = weight_type_row_bytes(tensor->type, tensor->ne[0]) *
                       (uint64_t)(tensor->ne[1] * tensor->ne[2] * tensor->ne[3]);
    }
    for (int role = 0; role < TENSOR_ROLE_COUNT; role++) {
        version->outside[role] = version_tensor(version, original->outside[role]);
        for (uint32_t i = 0; i < version->hyperparameters.n_layers; i++)
            version->layers[i][role] = version_tensor(version, original->layers[i][role]);
    }
}

static enum error_code version_new(const struct model *original, int precision,
                                   const struct weight_choice *choice, struct model **out,
                                   struct error *err)
{
    struct model *version = mem_new(sizeof *version);
    if (version) {
        *version = *original;
        version->versions = NULL;
        version->original = original;
        version->origin = NULL;
        version->precision = precision;
        version->next = NULL;
        version->layers = mem_new_array(version->hyperparameters.n_layers, sizeof *version->layers);
        version->tensors = mem_new_array(choice->n_tensors, sizeof *version->tensors);
    }
    if (!version || !version->layers || !version->tensors) {
        if (version)
            version_free(version);
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the tensor index");
    }
    version_fill(version, choice);
    *out = version;
    return ERROR_NONE;
}

/* A float type makes some matrices larger where a file is asked for; weights in memory are not made
 * larger. */
static bool choice_is_smaller(struct weight_choice *choice, const struct model *model)
{
    bool any = false;
    for (uint64_t i = 0; i < choice->n_tensors; i++) {
        const struct gguf_tensor *stored = gguf_file_tensor(model->file, i);
        if (weight_type_row_bytes(choice->types[i], stored->ne[0]) >=
            weight_type_row_bytes(stored->type, stored->ne[0]))
            choice->types[i] = stored->type;
        any = any || choice->types[i] != stored->type;
    }
    return any;
}

static enum error_code version_find_locked(const struct model *original, int precision,
                                           const struct model **out, struct error *err)
{
    struct model *version = original->versions->first;
    while (version && version->precision != precision)
        version = version->next;
    *out = version;
    if (version)
        return ERROR_NONE;
    struct weight_choice choice;
    enum error_code code = weight_choice_init(&choice, original, err);
    if (code)
        return code;
    weight_choice_all(&choice, original, precision, false);
    *out = original;
    if (choice_is_smaller(&choice, original)) {
        code = version_new(original, precision, &choice, &version, err);
        if (!code) {
            version->next = original->versions->first;
            original->versions->first = version;
            *out = version;
        }
    }
    weight_choice_deinit(&choice);
    return code;
}

enum error_code model_at_precision(const struct model *model, int precision,
                                   const struct model **out, struct error *err)
{
    const struct model *original = model->original ? model->original : model;
    *out = model;
    if (!precision)
        return ERROR_NONE;
    if (!model_precision_is_known(precision))
        return error_set(err, ERROR_UNSUPPORTED, "weights are not converted to type %d", precision);
    pthread_mutex_lock(&original->versions->lock);
    const enum error_code code = version_find_locked(original, precision, out, err);
    pthread_mutex_unlock(&original->versions->lock);
    return code;
}

bool model_is_converted(const struct model *model)
{
    return model->original;
}

const struct gguf_tensor *model_stored(const struct model *model, const struct gguf_tensor *tensor)
{
    return model->original ? gguf_file_tensor(model->file, (uint64_t)(tensor - model->tensors))
                           : tensor;
}

const struct gguf_tensor *model_tensor_at(const struct model *model, uint64_t index)
{
    assert(index < gguf_file_tensor_count(model->file));
    return model->original ? &model->tensors[index] : gguf_file_tensor(model->file, index);
}

bool model_is_smaller_at(const struct model *model, int precision, int than)
{
    const struct model *smaller, *larger;
    return precision && !model_at_precision(model, precision, &smaller, NULL) &&
           !model_at_precision(model, than, &larger, NULL) &&
           model_weight_bytes(smaller) < model_weight_bytes(larger);
}

bool model_precision_is_known(int precision)
{
    return !precision || weight_type_file_type(precision) != UINT32_MAX;
}

const char *model_precision_name(int precision)
{
    if (!model_precision_is_known(precision))
        return "a type that this version does not know";
    return precision ? weight_type_name(precision) : "as stored";
}
