/* Which parts of a model (manifest.h) a stage needs: "layers 8 to 15" as a set of parts. Pure.
 *
 * The model may be one of which only the header is there yet: model_open() reads no weights. What
 * is added here is what engine/weights.h reads, and a test holds the two together by running stages
 * on files that have nothing else:
 *   every stage  the header, its layers' tensors, and RoPE's factors
 *   the first    the token embedding
 *   the last     the output norm and the head; where that is tied, the token embedding */
#pragma once

#include "weights/manifest.h"
#include "weights/part_set.h"

struct model;

/* Adds the parts to `set`, which has the manifest's n_parts. ERROR_INVALID: no such layers, or the
 * manifest is of another model (manifest_agrees() says so before). */
enum error_code manifest_add_layers(const struct manifest *manifest, const struct model *model,
                                    uint32_t first_layer, uint32_t n_layers, struct part_set *set,
                                    struct error *err);
