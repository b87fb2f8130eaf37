/* Hidden states as they travel between machines.
 *
 * F32 is exact. F16 halves the bytes; a row whose largest value is beyond half of what F16 holds is
 * scaled down by a power of two, so that the outliers of some models do not overflow. Q8 (ggml's
 * Q8_0: blocks of 32 with an F16 scale) takes a quarter. A row's bytes are its F32 scale (F16
 * alone) and then its values, little-endian.
 *
 * Pure; any thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum activation_type { ACTIVATION_F32, ACTIVATION_F16, ACTIVATION_Q8 };

bool activation_type_parse(const char *name, enum activation_type *out); /* "f32", "f16", "q8" */

/* Q8 needs a width that is a multiple of 32; the others take any. */
bool activation_type_fits(enum activation_type type, uint32_t width);

uint64_t activation_bytes(enum activation_type type, uint32_t width, uint32_t n_rows);

/* `bytes` has room for activation_bytes(); `scratch` for `width` floats. */
void activation_encode(enum activation_type type, const float *rows, uint32_t width,
                       uint32_t n_rows, float *scratch, void *bytes);
/* False: a value or a scale is not a finite number. */
bool activation_decode(enum activation_type type, const void *bytes, uint32_t width,
                       uint32_t n_rows, float *rows);
