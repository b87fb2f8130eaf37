/* Converts a tensor of the mapped file into its buffer, where a stage's weights are of another type
 * than the file's (model/model_precision.h). Rows are divided over threads; the bytes do not depend
 * on their number.
 *
 * Memory: 1 MiB for each thread, and the converted tensor once where the buffer is not plain host
 * memory. */
#pragma once

#include "engine/weights_load.h"

/* ERROR_INVALID: a weight is not a finite number. */
enum error_code weight_convert(const struct tensor_copy *copy, const struct gguf_file *file,
                               uint32_t n_threads, struct error *err);
