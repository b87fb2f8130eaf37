/* Runs a text through a model and gives every prediction that counts.
 *
 * The text is cut into windows of equally many tokens; what is left at the end is not used. Each
 * window is a request of its own, its first token replaced by BOS where the model wants one.
 * Predictions of the second half of a window count, so that each has at least half a window of
 * context: as llama.cpp's llama-perplexity does, so that figures can be compared.
 *
 * Memory: score_rows() keeps the logits of a window or more; the others keep none. One thread. */
#pragma once

#include "precision/divergence.h"
#include "request/generator.h"

enum { SCORE_WINDOW_LEAST = 8, SCORE_WINDOW_STANDARD = 512 };

struct score_text {
    const int32_t *tokens;
    uint64_t n_tokens;
    uint32_t n_window; /* tokens of a window, at most n_tokens */
    int32_t bos;       /* in place of each window's first; -1: none */
    uint32_t n_vocab;
};

uint64_t score_windows(const struct score_text *text);
uint32_t score_window_positions(const struct score_text *text); /* that count */

/* A prediction: `row` is followed by `token`. Called from the generator's thread. `index` counts
 * from 0 over the window's. An error ends the run. */
typedef enum error_code (*score_fn)(void *arg, uint32_t index, const float *row, uint32_t token,
                                    struct error *err);
/* One window. */
enum error_code score_window(struct generator *generator, const struct score_text *text,
                             uint64_t window, score_fn each, void *arg, struct error *err);

/* The surprise of the whole text. */
enum error_code score_perplexity(struct generator *generator, const struct score_text *text,
                                 struct running_mean *out, struct error *err);

/* Rows of a model, kept to compare others with. */
struct score_rows {
    float *values; /* [n_windows * positions][n_vocab] */
    uint64_t n_windows;
};
/* Of the windows from `first` on. */
enum error_code score_rows_make(struct generator *generator, const struct score_text *text,
                                uint64_t first, uint64_t n_windows, struct score_rows *out,
                                struct error *err);
void score_rows_deinit(struct score_rows *rows);
/* Adds the same windows of another model. */
enum error_code score_rows_compare(const struct score_rows *rows, uint64_t first,
                                   struct generator *other, const struct score_text *text,
                                   struct divergence *out, struct error *err);
