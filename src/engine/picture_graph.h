/* The compute graph of a picture's encoder, for one size of pictures.
 *
 * Shapes are ggml's, the fastest dimension first; n = patches, d = values of a head. */
#pragma once

#include "base/error.h"
#include "model/picture_fit.h"

#include <ggml.h>

struct picture_graph_source {
    const struct projector_form *form;
    struct ggml_tensor *outside[PROJECTOR_BLOCK_FIRST]; /* NULL: this projector has none */
    struct ggml_tensor *(*blocks)[PROJECTOR_ROLES];
    bool flash;
    enum ggml_type flash_type; /* of keys and values for it */
};

struct picture_graph {
    struct ggml_context *context;
    struct ggml_cgraph *cgraph;
    struct picture_grid grid;
    struct ggml_tensor *patches; /* F32 [3 x patch x patch, n] */
    struct ggml_tensor
        *places; /* I32 [n]  picture_grid_order(), where positions are learned; else NULL */
    struct ggml_tensor *turns;  /* I32 [4 n]  lines of all, columns of all, both again, where
                                   queries and keys are rotated; else NULL */
    struct ggml_tensor *result; /* F32 [n_out x (1 + n_deep), rows], in the order of patches */
};

size_t picture_graph_nodes(const struct projector_form *form);
enum error_code picture_graph_build(struct picture_graph *graph,
                                    const struct picture_graph_source *source,
                                    const struct picture_grid *grid, struct error *err);
void picture_graph_deinit(struct picture_graph *graph);
