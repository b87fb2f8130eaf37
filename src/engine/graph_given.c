/* Pictures in a batch: rows that are given in place of tokens' embeddings, as they are, and parts
 * of them that are added after the first layers ("deepstack", arXiv:2406.04334). */
#include "engine/graph.h"

void graph_given_inputs(struct graph_build *b)
{
    struct graph *graph = b->graph;
    const struct batch_shape *shape = &graph->shape;
    if (shape->n_given) {
        graph->given = ggml_new_tensor_2d(b->ctx, GGML_TYPE_F32, b->h->given_width, shape->n_given);
        graph->given_rows = ggml_new_tensor_1d(b->ctx, GGML_TYPE_I64, shape->n_given);
    }
    if (shape->n_given && b->h->n_deepstack)
        graph->given_picks = ggml_new_tensor_1d(b->ctx, GGML_TYPE_I32, shape->n_given);
    if (shape->sees_ahead && b->source->attention)
        graph->ahead = ggml_new_tensor_1d(b->ctx, GGML_TYPE_I32, shape->n_rows);
    if (shape->has_axes && b->h->rope_axes != AXES_NONE)
        graph->turns = ggml_new_tensor_1d(b->ctx, GGML_TYPE_I32, 4 * (int64_t)shape->n_rows);
    struct ggml_tensor *const inputs[] = {graph->given, graph->given_rows, graph->given_picks,
                                          graph->ahead, graph->turns};
    static const char *const names[] = {"given", "given_rows", "given_picks", "ahead", "turns"};
    for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; i++) {
        if (!inputs[i])
            continue;
        ggml_set_input(inputs[i]);
        ggml_set_name(inputs[i], names[i]);
    }
}

/* Part `part` of each row: [n_embd, n_given] */
static struct ggml_tensor *given_part(struct graph_build *b, uint32_t part)
{
    struct ggml_tensor *given = b->graph->given;
    return ggml_view_2d(b->ctx, given, b->h->n_embd, given->ne[1], given->nb[1],
                        (size_t)part * b->h->n_embd * sizeof(float));
}

struct ggml_tensor *graph_given_put(struct graph_build *b, struct ggml_tensor *x)
{
    return b->graph->given ? ggml_set_rows(b->ctx, x, given_part(b, 0), b->graph->given_rows) : x;
}

struct ggml_tensor *graph_given_add(struct graph_build *b, uint32_t index, struct ggml_tensor *x)
{
    const uint32_t layer = b->source->weights->first_layer + index;
    if (!b->graph->given || layer >= b->h->n_deepstack)
        return x;
    struct ggml_tensor *rows = ggml_get_rows(b->ctx, x, b->graph->given_picks);
    rows = ggml_add(b->ctx, rows, given_part(b, 1 + layer));
    return ggml_set_rows(b->ctx, x, rows, b->graph->given_rows);
}
