/* Layers that see a window and summaries of what is before it, and the streams that join them. */
#include "model/gguf_file.h"
#include "model/hyperparameters_reader.h"

#include <math.h>

enum { GROUPS_MAX = 4096, RANK_MAX = 1 << 16, STREAMS_MAX = 4, ITERATIONS_MAX = 64 };

static void summaries_set_layer(struct layer_form *form, uint32_t value)
{
    form->summary = value;
    form->has_indexer = value == SUMMARY_SHORT;
}

static void summaries_read_layers(struct hyperparameters_reader *reader, struct hyperparameters *h)
{
    static const char suffix[] = "attention.compress_ratios";
    hyperparameters_read_layers(reader, suffix, 0, SUMMARY_LONG, 0, h, summaries_set_layer);
    h->window_seen = h->window;
    for (uint32_t i = 0; i < h->n_layers && !reader->code; i++) {
        const uint32_t n = h->layers[i].summary;
        if (n && n != SUMMARY_SHORT && n != SUMMARY_LONG)
            hyperparameters_fail(reader, suffix, "must be of 0, 4 and 128");
        /* a summary is made of what is kept: with an overlap, of itself and the one before it */
        const uint32_t least = n == SUMMARY_SHORT ? 2 * n : n;
        h->window = h->window > least ? h->window : least;
    }
}

static void summaries_read_indexer(struct hyperparameters_reader *reader, struct hyperparameters *h)
{
    enum { INDEX_HEADS_MAX = 1024, INDEX_DIM_MAX = 4096 };
    struct indexer_form *form = &h->indexer;
    hyperparameters_read_count(reader, "attention.indexer.head_count", 1, INDEX_HEADS_MAX,
                               &form->n_head);
    hyperparameters_read_count(reader, "attention.indexer.key_length", 1, INDEX_DIM_MAX,
                               &form->dim);
    hyperparameters_read_count(reader, "attention.indexer.top_k", 1, LIMIT_CONTEXT, &form->top_k);
    if (!reader->code && form->dim < h->n_rot)
        hyperparameters_fail(reader, "attention.indexer.key_length",
                             "must not be below rope.dimension_count");
}

static void summaries_read_heads(struct hyperparameters_reader *reader, struct hyperparameters *h)
{
    struct summary_form *form = &h->summaries;
    hyperparameters_read_count(reader, "attention.q_lora_rank", 1, RANK_MAX, &h->n_latent_q);
    hyperparameters_read_count(reader, "attention.output_group_count", 1, GROUPS_MAX,
                               &form->out_groups);
    hyperparameters_read_count(reader, "attention.output_lora_rank", 1, RANK_MAX, &form->out_rank);
    for (uint32_t i = 0; i < h->n_layers && !reader->code; i++) {
        const struct layer_form *layer = &h->layers[i];
        if (layer->n_head_kv != 1 || layer->dim_k != layer->dim_v)
            hyperparameters_fail(reader, "attention.head_count_kv",
                                 "must be 1, and key_length as value_length");
        else if (layer->n_head % form->out_groups)
            hyperparameters_fail(reader, "attention.output_group_count",
                                 "must divide attention.head_count");
    }
}

/* What is rotated keeps its length, whatever YaRN's factor; ggml would make it longer. */
static void summaries_read_rope(struct hyperparameters_reader *reader, struct hyperparameters *h)
{
    static const char suffix[] = "attention.compress_rope_freq_base";
    hyperparameters_read_number_or(reader, suffix, &h->summaries.rope_base, 0);
    if (!(h->summaries.rope_base > 0))
        hyperparameters_fail(reader, suffix, "is needed, above 0");
    if (h->yarn_ext_factor != 0)
        h->yarn_attn_factor /= 1.0f - 0.1f * logf(h->rope_frequency_scale);
}

static void summaries_read_streams(struct hyperparameters_reader *reader, struct hyperparameters *h)
{
    struct streams_form *form = &h->streams;
    hyperparameters_read_count(reader, "hyper_connection.count", STREAMS_MAX, STREAMS_MAX,
                               &form->n);
    hyperparameters_read_count(reader, "hyper_connection.sinkhorn_iterations", 1, ITERATIONS_MAX,
                               &form->n_iterations);
    hyperparameters_read_number_or(reader, "hyper_connection.epsilon", &form->epsilon, 0);
    if (!(form->epsilon > 0))
        hyperparameters_fail(reader, "hyper_connection.epsilon", "is needed, above 0");
}

void hyperparameters_read_summaries(struct hyperparameters_reader *reader,
                                    const struct architecture *architecture,
                                    struct hyperparameters *h)
{
    h->window_seen = h->window;
    if (!architecture->has_summaries || reader->code)
        return;
    if (!h->window)
        hyperparameters_fail(reader, "attention.sliding_window", "is needed");
    if (!h->n_experts)
        hyperparameters_fail(reader, "expert_count", "is needed");
    h->summaries.is_there = true;
    summaries_read_layers(reader, h);
    summaries_read_indexer(reader, h);
    summaries_read_heads(reader, h);
    summaries_read_rope(reader, h);
    summaries_read_streams(reader, h);
    hyperparameters_read_count_or(reader, "hash_layer_count", 0, h->n_layers,
                                  &h->summaries.n_token_routed, 0);
    /* the other streams, and the token's id as two numbers (engine/graph_carried.c) */
    h->n_carried = (h->streams.n - 1) * h->n_embd + (h->summaries.n_token_routed ? 2 : 0);
}
