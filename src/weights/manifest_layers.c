#include "weights/manifest_layers.h"

#include "model/model.h"

#include <string.h>

/* Offsets are in order. The tensor is found by its place; the name must be the same. */
static enum error_code manifest_layers_add_tensor(const struct manifest *manifest,
                                                  const struct gguf_tensor *tensor,
                                                  struct part_set *set, struct error *err)
{
    uint32_t low = 1, high = manifest->n_parts;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (manifest->parts[middle].offset < tensor->offset)
            low = middle + 1;
        else
            high = middle;
    }
    const struct manifest_part *part = &manifest->parts[low];
    if (low == manifest->n_parts || part->offset != tensor->offset || part->size != tensor->size ||
        strcmp(part->name, tensor->name) != 0)
        return error_set(err, ERROR_INVALID, "the manifest has no tensor %s as the model does",
                         tensor->name);
    part_set_add(set, low);
    return ERROR_NONE;
}

struct layer_adding {
    const struct manifest *manifest;
    const struct model *model;
    struct part_set *set;
    struct error *err;
    enum error_code code; /* the first failure */
};

static void add_role(struct layer_adding *adding, enum tensor_role role, uint32_t layer)
{
    const struct gguf_tensor *tensor = model_tensor(adding->model, role, layer);
    if (tensor && !adding->code)
        adding->code =
            manifest_layers_add_tensor(adding->manifest, tensor, adding->set, adding->err);
}

static void manifest_layers_add_ends(struct layer_adding *adding, bool first, bool last)
{
    for (int i = 0; i < TENSOR_ROLE_COUNT; i++) {
        const enum tensor_place place = tensor_role_place((enum tensor_role)i);
        if (place == PLACE_EVERYWHERE || (first && place == PLACE_FIRST) ||
            (last && place == PLACE_LAST))
            add_role(adding, (enum tensor_role)i, 0);
    }
    if (last && !model_hyperparameters(adding->model)->gives_no_logits &&
        !model_tensor(adding->model, TENSOR_OUTPUT, 0))
        add_role(adding, TENSOR_TOKEN_EMBEDDING, 0);
}

enum error_code manifest_add_layers(const struct manifest *manifest, const struct model *model,
                                    uint32_t first_layer, uint32_t n_layers, struct part_set *set,
                                    struct error *err)
{
    uint32_t n = model_hyperparameters(model)->n_layers;
    assert(set->n_parts == manifest->n_parts);
    if (n_layers < 1 || first_layer >= n || n_layers > n - first_layer)
        return error_set(err, ERROR_INVALID, "%u layers from %u on, of a model that has %u",
                         n_layers, first_layer, n);
    struct layer_adding adding = {.manifest = manifest, .model = model, .set = set, .err = err};
    part_set_add(set, MANIFEST_HEADER);
    for (uint32_t layer = first_layer; layer < first_layer + n_layers; layer++) {
        for (int role = 0; role < TENSOR_ROLE_COUNT; role++) {
            if (tensor_role_per_layer((enum tensor_role)role))
                add_role(&adding, (enum tensor_role)role, layer);
        }
    }
    manifest_layers_add_ends(&adding, first_layer == 0, first_layer + n_layers == n);
    return adding.code;
}
