/* libpng's simplified interface: palettes, grey, 16 bits, interlacing and transparency become RGB.
 * It does not tell chunks, so EXIF's is looked up here (PNG 3rd edition, 5.3 and 11.3.4.5). */
#include "picture/decode_impl.h"
#include "picture/exif.h"

#include <png.h>
#include <string.h>

enum { SIGNATURE_BYTES = 8, CHUNK_BYTES = 12 /* length, type, CRC */ };

static void png_find_exif(const struct decoding *from, uint32_t *orientation)
{
    for (size_t at = SIGNATURE_BYTES; from->size - at >= CHUNK_BYTES;) {
        const uint8_t *chunk = from->bytes + at;
        const size_t length = (size_t)chunk[0] << 24 | (size_t)chunk[1] << 16 |
                              (size_t)chunk[2] << 8 | (size_t)chunk[3];
        if (length > from->size - at - CHUNK_BYTES)
            return;
        if (memcmp(chunk + 4, "eXIf", 4) == 0) {
            *orientation = exif_orientation(chunk + 8, length);
            return;
        }
        at += CHUNK_BYTES + length;
    }
}

enum error_code decode_png(const struct decoding *from, struct picture *out, uint32_t *orientation,
                           struct error *err)
{
    png_image image = {.version = PNG_IMAGE_VERSION};
    const png_color white = {UINT8_MAX, UINT8_MAX, UINT8_MAX};
    enum error_code code = ERROR_NONE;
    if (!png_image_begin_read_from_memory(&image, from->bytes, from->size))
        return error_set(err, ERROR_INVALID, "%s", image.message);
    code = decode_begin(from, image.width, image.height, out, err);
    image.format = PNG_FORMAT_RGB;
    image.flags |= PNG_IMAGE_FLAG_16BIT_sRGB; /* else 16 bits would be taken for linear light */
    if (!code && !png_image_finish_read(&image, &white, out->rgb, 0, NULL))
        code = error_set(err, ERROR_INVALID, "%s", image.message);
    png_image_free(&image);
    png_find_exif(from, orientation);
    return code;
}
