/* What comes out of a model beside logits: vectors of texts, or scores. */
#include "base/limits.h"
#include "model/gguf_file.h"
#include "model/hyperparameters_reader.h"

#include <string.h>

/* A rank head gives a score for each label that the file names; without names, one. */
static void pooling_read_labels(struct hyperparameters_reader *reader, struct hyperparameters *h)
{
    enum { LABELS_MAX = 64 };
    static const char suffix[] = "classifier.output_labels";
    char key[128];
    uint64_t n = 1;
    if (!reader->code && hyperparameters_has(reader, suffix))
        reader->code = gguf_file_array(reader->file, hyperparameters_key_of(reader, suffix, key),
                                       GGUF_ARRAY_TEXT, &n, reader->err);
    if (!reader->code && (n < 1 || n > LABELS_MAX || n > h->n_embd))
        hyperparameters_fail(reader, suffix, "must have 1 to 64 names");
    h->n_labels = (uint32_t)n;
}

/* Only plain attention is computed without order: windows and states look back alone. */
static void pooling_check_order(struct hyperparameters_reader *reader,
                                const struct hyperparameters *h)
{
    static const char suffix[] = "attention.causal";
    if (!h->reads_whole)
        return;
    if (h->window || hyperparameters_has_states(h) || h->n_latent_kv)
        hyperparameters_fail(reader, suffix,
                             "is false, which Medley computes only with plain attention");
}

void hyperparameters_read_pooling(struct hyperparameters_reader *reader,
                                  const struct architecture *architecture,
                                  struct hyperparameters *h)
{
    static const char causal[] = "attention.causal", types[] = "tokenizer.ggml.token_type_count";
    char key[128];
    bool is_causal = !architecture->is_encoder;
    h->alibi_max = architecture->alibi_max;
    if (!reader->code && hyperparameters_has(reader, causal))
        reader->code = gguf_file_bool(reader->file, hyperparameters_key_of(reader, causal, key),
                                      &is_causal, reader->err);
    if (architecture->is_encoder && is_causal)
        hyperparameters_fail(reader, causal, "must be false in this family");
    enum { UNSAID = POOLING_RANK - POOLING_NONE + 1 };
    uint32_t pooling = UNSAID;
    hyperparameters_read_count_or(reader, "pooling_type", 0, UNSAID - 1, &pooling, UNSAID);
    h->pooling = pooling < UNSAID ? (enum pooling)(POOLING_NONE + pooling) : POOLING_UNSAID;
    h->reads_whole = !is_causal;
    h->n_token_types = 1;
    if (!reader->code && gguf_file_has(reader->file, types))
        reader->code = gguf_file_u32(reader->file, types, &h->n_token_types, reader->err);
    if (h->pooling == POOLING_RANK && architecture->window_is_centred)
        hyperparameters_fail(reader, "pooling_type",
                             "is 4 (rank), which Medley does not compute in this family");
    if (h->pooling == POOLING_RANK)
        pooling_read_labels(reader, h);
    pooling_check_order(reader, h);
    h->gives_no_logits = h->reads_whole || h->pooling == POOLING_RANK;
}
