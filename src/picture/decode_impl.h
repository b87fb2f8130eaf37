/* What the formats' files share; private to the room. */
#pragma once

#include "picture/decode.h"

#include <stdbool.h>

/* Checks the size and makes room for it, white. */
enum error_code decode_begin(const struct decoding *from, uint64_t width, uint64_t height,
                             struct picture *out, struct error *err);

/* Each fills `out` after decode_begin(); what it took is freed by picture_decode() after an error.
 * `orientation` stays where the file has none (exif.h). */
enum error_code decode_png(const struct decoding *from, struct picture *out, uint32_t *orientation,
                           struct error *err);
enum error_code decode_jpeg(const struct decoding *from, struct picture *out, uint32_t *orientation,
                            struct error *err);
enum error_code decode_webp(const struct decoding *from, struct picture *out, uint32_t *orientation,
                            struct error *err);
