/* What `medley inspect` shows; shared by its text (inspect_text.c) and its JSON
 * (inspect_json.c). */
#pragma once

#include "base/buffer.h"
#include "base/error.h"
#include "model/model.h"
#include "model/tokenizer.h"

#include <stdbool.h>
#include <stddef.h>

/* A file that Medley cannot run is still shown, with the reason. */
struct inspection {
    const struct gguf_file *file;
    const struct model *model; /* NULL: `model_error` says why */
    struct error model_error;
    const struct tokenizer *tokenizer; /* NULL: `tokenizer_error` says why */
    struct error tokenizer_error;
    bool show_tensors, show_keys;
};

/* Layers that cost the same are one row: first..last. */
struct inspect_layers {
    uint32_t first, last;
    struct layer_cost cost;
    bool windowed;
};
/* The run of equal layers that begins at `first`. */
struct inspect_layers inspect_layers_from(const struct model *model, uint32_t first);

/* Sums over the layers, the input and the output; bytes are those in the file (a tied embedding
 * counts once). */
struct layer_cost inspect_total_cost(const struct model *model);

/* Linear scaling by 1 is none. */
enum rope_scaling inspect_rope_scaling(const struct hyperparameters *hyperparameters);
const char *inspect_rope_scaling_name(enum rope_scaling scaling); /* "none", "linear" … */
const char *inspect_file_name(const struct gguf_file *file);      /* without the folders */

/* The error's text without the file's path in front. */
const char *inspect_reason(const struct gguf_file *file, const struct error *err);

/* Bytes of one tensor type, for a table of what the weights are stored in. */
struct inspect_type {
    const char *name;
    uint64_t bytes, n_tensors;
};
enum { INSPECT_TYPES_MAX = 64, INSPECT_F16_BYTES = 2 };
/* Fills `types`, largest first; returns how many. */
uint32_t inspect_types(const struct gguf_file *file, struct inspect_type types[INSPECT_TYPES_MAX]);

/* Appends foreign text as valid UTF-8 (U+FFFD for what is not); `printable` also turns control
 * characters into '?', so that a file cannot write to the terminal what it likes. */
void inspect_clean_text(struct buffer *out, const char *text, size_t size, bool printable);

void inspect_print(const struct inspection *inspection);
/* The same as one JSON object; false when memory runs out. */
bool inspect_print_json(const struct inspection *inspection);
