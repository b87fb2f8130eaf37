/* Pictures made larger or smaller, with a triangle (bilinear) or a cubic convolution (bicubic, with
 * -1/2 as its parameter; Keys 1981) as filter, stretched over all pixels below where they shrink.
 * Pure.
 *
 * Weights are whole numbers of 22 bits, first along lines, then along columns, rounded to 8 bits
 * after each: the arithmetic of Pillow's Image.resize(), with which models are trained, so that
 * pixels are the same. */
#pragma once

#include "base/error.h"
#include "model/picture.h"

#include <stddef.h>

enum picture_filter { PICTURE_BILINEAR, PICTURE_BICUBIC };

/* `out`: `height` lines of width x 3 bytes, each `stride` behind the last. ERROR_NO_MEMORY. */
enum error_code picture_resize(const struct picture *picture, uint32_t width, uint32_t height,
                               enum picture_filter filter, uint8_t *out, size_t stride,
                               struct error *err);
