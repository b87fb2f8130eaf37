/* Indexers, which pick the cells that a layer's attention sees. */
#include "model/gguf_file.h"
#include "model/hyperparameters_reader.h"

#include <stdio.h>

enum { INDEX_HEADS_MAX = 1024, INDEX_DIM_MAX = 4096 };

/* By the file's list, or by the tensors that it has. */
static void indexer_read_layers(struct hyperparameters_reader *reader, struct hyperparameters *h)
{
    static const char suffix[] = "attention.indexer.types";
    char key[128], name[64];
    uint64_t length = 0;
    const bool is_list = hyperparameters_has(reader, suffix);
    hyperparameters_key_of(reader, suffix, key);
    if (is_list)
        reader->code = gguf_file_array(reader->file, key, GGUF_ARRAY_BOOL, &length, reader->err);
    if (is_list && !reader->code && length < h->n_layers)
        hyperparameters_fail(reader, suffix, "has fewer values than there are layers");
    for (uint32_t i = 0; i < h->n_layers && !reader->code; i++) {
        snprintf(name, sizeof name, "blk.%u.indexer.%s.weight", i,
                 h->indexer.block ? "k_proj" : "attn_k");
        h->layers[i].has_indexer = is_list ? gguf_file_array_bool(reader->file, key, i)
                                           : gguf_file_find_tensor(reader->file, name) != NULL;
    }
    if (!reader->code && !h->indexer.block && !h->layers[0].has_indexer)
        hyperparameters_fail(reader, suffix, "leaves the first layer without an indexer");
}

/* MiniMax M3: an indexer's head for each KV head. */
static void indexer_read_blocks(struct hyperparameters_reader *reader, struct hyperparameters *h)
{
    enum { BLOCK_MAX = 256 }; /* caches are of whole blocks then (engine/batch_shape.h) */
    struct indexer_form *form = &h->indexer;
    hyperparameters_read_count(reader, "attention.indexer.block_size", 1, BLOCK_MAX, &form->block);
    hyperparameters_read_count_or(reader, "attention.indexer.local_blocks", 0, form->top_k,
                                  &form->n_local, 0);
    if (!reader->code && BLOCK_MAX % form->block)
        hyperparameters_fail(reader, "attention.indexer.block_size", "must be a power of 2");
    for (uint32_t i = 0; i < h->n_layers && !reader->code; i++) {
        if (h->layers[i].n_head_kv != form->n_head)
            hyperparameters_fail(reader, "attention.indexer.head_count",
                                 "must be attention.head_count_kv");
    }
}

void hyperparameters_read_indexer(struct hyperparameters_reader *reader,
                                  const struct architecture *architecture,
                                  struct hyperparameters *h)
{
    struct indexer_form *form = &h->indexer;
    bool some_share = false;
    if (reader->code || !architecture->has_indexer)
        return;
    hyperparameters_read_count(reader, "attention.indexer.head_count", 1, INDEX_HEADS_MAX,
                               &form->n_head);
    hyperparameters_read_count(reader, "attention.indexer.key_length", 1, INDEX_DIM_MAX,
                               &form->dim);
    hyperparameters_read_count(reader, "attention.indexer.top_k", 1, LIMIT_CONTEXT, &form->top_k);
    if (reader->code)
        return;
    if (form->dim < h->n_rot)
        hyperparameters_fail(reader, "attention.indexer.key_length",
                             "must not be below rope.dimension_count");
    if (architecture->picks_blocks)
        indexer_read_blocks(reader, h);
    else if (!h->is_latent_absorbed || !h->n_latent_q)
        hyperparameters_fail(reader, "attention.key_length_mla",
                             "and attention.q_lora_rank are needed with an indexer");
    indexer_read_layers(reader, h);
    for (uint32_t i = 0; i < h->n_layers; i++)
        some_share |= !h->layers[i].has_indexer;
    /* an odd number: Q8, which would round positions, does not fit then */
    if (some_share && !form->block)
        h->n_carried = 2 * form->top_k + 1;
}
