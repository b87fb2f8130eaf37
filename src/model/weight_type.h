/* The types that weights are converted to, and converting rows of them: ggml's own quantisation, by
 * its public functions.
 *
 * Types of less than four bits in ggml's "iq" families are not offered: they need an importance
 * matrix. Types are `enum ggml_type` as int, as in gguf_file.h. Pure; any thread. */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

/* By ggml's name, in any case: "q4_k". ERROR_INVALID with the names that there are;
 * ERROR_UNSUPPORTED: a type of ggml's that needs an importance matrix, or holds no weights. */
enum error_code weight_type_find(const char *name, int *type, struct error *err);
const char *weight_type_name(int type); /* in lower case */

/* Rows of so many weights in this type, or in the next that they can be in: types of blocks of 256
 * become one of blocks of 32 with at least as many bits, and f16 where 32 does not divide either.
 */
int weight_type_for_rows(int type, int64_t n_columns);
uint64_t weight_type_row_bytes(int type, int64_t n_columns); /* n_columns: whole blocks */
bool weight_type_is_float(int type);                         /* F32, F16 or BF16 */
/* What general.file_type says of a file that is mostly of the type (ggml's GGML_FTYPE_MOSTLY_…);
 * UINT32_MAX: it has no number. */
uint32_t weight_type_file_type(int type);

/* Converts whole rows. `scratch`: room for n_rows * n_columns floats. ERROR_INVALID: a weight is no
 * finite number. */
enum error_code weight_type_convert(int from, const void *rows, int to, void *out, int64_t n_rows,
                                    int64_t n_columns, float *scratch, struct error *err);
