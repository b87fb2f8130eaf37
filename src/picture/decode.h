/* Pixels from the bytes of a PNG, JPEG or WebP file; for whoever is to look at them, not to edit
 * them: 8 bits a colour, no profile applied, what is transparent on white, of an animation the
 * first frame, turned as the file's EXIF says (picture_turn.h).
 *
 * The libraries that do it have had flaws, so the node calls picture_read() (picture.h), which does
 * this in a process of its own. Any thread; no state. */
#pragma once

#include "base/error.h"
#include "model/picture.h"

#include <stddef.h>
#include <stdint.h>

struct decoding {
    const uint8_t *bytes;
    size_t size;
    uint64_t pixels_max;
};

/* ERROR_INVALID: not a picture, damaged, or larger than it may be; ERROR_NO_MEMORY. The caller
 * frees `out->rgb` (mem_free). */
enum error_code picture_decode(const struct decoding *from, struct picture *out, struct error *err);
