/* What reads the keys of a family from a file; for hyperparameters.c and its parts. */
#pragma once

#include "model/architecture.h"

/* Reads one file's keys of one family; the first failure sticks and the rest is skipped. */
struct hyperparameters_reader {
    const struct gguf_file *file;
    const char *family;
    struct error *err;
    enum error_code code;
};

/* "FAMILY.suffix", in `key`. */
const char *hyperparameters_key_of(const struct hyperparameters_reader *reader, const char *suffix,
                                   char key[128]);
bool hyperparameters_has(const struct hyperparameters_reader *reader, const char *suffix);
/* "FAMILY.suffix what" is the error. */
void hyperparameters_fail(struct hyperparameters_reader *reader, const char *suffix,
                          const char *what);
/* A count from `min` to `max`, of all layers the same; it must be there. */
void hyperparameters_read_count(struct hyperparameters_reader *reader, const char *suffix,
                                uint32_t min, uint32_t max, uint32_t *out);
void hyperparameters_read_count_or(struct hyperparameters_reader *reader, const char *suffix,
                                   uint32_t min, uint32_t max, uint32_t *out, uint32_t otherwise);
void hyperparameters_read_number_or(struct hyperparameters_reader *reader, const char *suffix,
                                    float *out, float otherwise);

/* A count that may differ from layer to layer: `each` gets a layer's. Missing: `otherwise`. */
void hyperparameters_read_layers(struct hyperparameters_reader *reader, const char *suffix,
                                 uint32_t min, uint32_t max, uint32_t otherwise,
                                 struct hyperparameters *h,
                                 void (*each)(struct layer_form *form, uint32_t value));

/* Heads of each layer; then, after windows, their sizes. */
void hyperparameters_read_heads(struct hyperparameters_reader *reader,
                                const struct architecture *architecture, struct hyperparameters *h);
void hyperparameters_read_head_sizes(struct hyperparameters_reader *reader,
                                     const struct architecture *architecture,
                                     struct hyperparameters *h);

/* Layers that see the keys and values of earlier ones, and embeddings of each layer; after the
 * sizes of heads. */
void hyperparameters_read_shared(struct hyperparameters_reader *reader,
                                 const struct architecture *architecture,
                                 struct hyperparameters *h);

/* What picks the cells that attention sees; after latents. */
void hyperparameters_read_indexer(struct hyperparameters_reader *reader,
                                  const struct architecture *architecture,
                                  struct hyperparameters *h);

/* Axes of positions, and parts of rows that are added after layers. After rotations. */
void hyperparameters_read_pictures(struct hyperparameters_reader *reader,
                                   const struct architecture *architecture,
                                   struct hyperparameters *h);

/* Windows with summaries, and streams; after windows, the sizes of heads and positions. */
void hyperparameters_read_summaries(struct hyperparameters_reader *reader,
                                    const struct architecture *architecture,
                                    struct hyperparameters *h);

/* Causal or not, pooling, labels. After windows, states and latents. */
void hyperparameters_read_pooling(struct hyperparameters_reader *reader,
                                  const struct architecture *architecture,
                                  struct hyperparameters *h);

/* Which layers keep a state, and of what shape. After heads and feed-forward. */
void hyperparameters_read_recurrence(struct hyperparameters_reader *reader,
                                     const struct architecture *architecture,
                                     struct hyperparameters *h);
