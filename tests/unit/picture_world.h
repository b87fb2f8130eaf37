/* Pictures as files, written by the libraries' own encoders: what is decoded in tests. */
#pragma once

#include "base/buffer.h"
#include "model/picture.h"

#include <stdbool.h>
#include <stdint.h>

/* Each pixel tells where it is: red = x, green = y, blue = 7 (x + y), times `scale`. */
struct picture picture_drawn(uint32_t width, uint32_t height, uint8_t scale);
void picture_free(struct picture *picture);

/* libpng's simplified writer: `format` is its PNG_FORMAT_…; the pixels are in that format. */
struct buffer picture_png(const void *pixels, uint32_t width, uint32_t height, uint32_t format);
/* Chunk `type` with these bytes, behind the header's. */
void picture_png_chunk(struct buffer *png, const char *type, const void *bytes, uint32_t size);

enum picture_jpeg_kind { JPEG_PLAIN, JPEG_PROGRESSIVE, JPEG_GREY, JPEG_CMYK, JPEG_ADOBE_CMYK };
/* At best quality, without sub-sampling. CMYK: the picture's colours as inks. `orientation`: 0:
 * without EXIF. */
struct buffer picture_jpeg(const struct picture *picture, enum picture_jpeg_kind kind,
                           uint32_t orientation);

/* Lossless; `rgba`: [height x width x 4]. */
struct buffer picture_webp(const uint8_t *rgba, uint32_t width, uint32_t height);
/* Frames that far from the corner in a canvas, in the extended format; with EXIF where it is not 0.
 */
struct buffer picture_webp_canvas(const uint8_t *rgba, uint32_t width, uint32_t height,
                                  uint32_t offset, uint32_t canvas, uint32_t orientation);
void picture_exif(uint32_t orientation, bool is_big, struct buffer *out); /* a TIFF header */
