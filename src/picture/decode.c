#include "picture/decode.h"

#include "base/limits.h"
#include "base/mem.h"
#include "picture/decode_impl.h"
#include "picture/picture_turn.h"

#include <string.h>

static const struct format {
    const char *name;
    size_t at, size; /* what such a file has there */
    const char *mark;
    enum error_code (*decode)(const struct decoding *from, struct picture *out,
                              uint32_t *orientation, struct error *err); /* NULL: it cannot be */
} formats[] = {
    {"PNG", 0, 8, "\x89PNG\r\n\x1a\n", decode_png},
    {"JPEG", 0, 3, "\xff\xd8\xff", decode_jpeg},
    {"WebP", 8, 4, "WEBP", decode_webp},
    {"GIF", 0, 4, "GIF8", NULL},
    {"TIFF", 0, 4, "II*\0", NULL},
    {"TIFF", 0, 4, "MM\0*", NULL},
    {"BMP", 0, 2, "BM", NULL},
    {"HEIC or AVIF", 4, 4, "ftyp", NULL},
    {"PDF", 0, 5, "%PDF-", NULL},
    {"SVG", 0, 4, "<svg", NULL},
};

static const struct format *format_of(const struct decoding *from)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        const struct format *format = &formats[i];
        if (from->size >= format->at + format->size &&
            memcmp(from->bytes + format->at, format->mark, format->size) == 0)
            return format;
    }
    return NULL;
}

enum error_code decode_begin(const struct decoding *from, uint64_t width, uint64_t height,
                             struct picture *out, struct error *err)
{
    if (!width || !height)
        return error_set(err, ERROR_INVALID, "the picture has no pixels");
    if (width > LIMIT_PICTURE_SIDE || height > LIMIT_PICTURE_SIDE)
        return error_set(err, ERROR_INVALID,
                         "the picture is %llu x %llu pixels; a side may be %d at most. Scale it "
                         "down",
                         (unsigned long long)width, (unsigned long long)height, LIMIT_PICTURE_SIDE);
    if (width * height > from->pixels_max)
        return error_set(err, ERROR_INVALID,
                         "the picture is %llu x %llu pixels; %llu at most in all. Scale it down",
                         (unsigned long long)width, (unsigned long long)height,
                         (unsigned long long)from->pixels_max);
    const size_t n = (size_t)(width * height) * 3;
    uint8_t *rgb = mem_new(n);
    if (!rgb)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for %llu x %llu pixels",
                         (unsigned long long)width, (unsigned long long)height);
    memset(rgb, UINT8_MAX, n);
    *out = (struct picture){(uint32_t)width, (uint32_t)height, rgb};
    return ERROR_NONE;
}

enum error_code picture_decode(const struct decoding *from, struct picture *out, struct error *err)
{
    uint32_t orientation = 1;
    const struct format *format = format_of(from);
    *out = (struct picture){0};
    if (!format)
        return error_set(err, ERROR_INVALID,
                         "it is no picture that is known here; give a PNG, JPEG or WebP file");
    if (!format->decode)
        return error_set(err, ERROR_INVALID,
                         "%s cannot be read here; convert it to PNG, JPEG or WebP", format->name);
    enum error_code code = format->decode(from, out, &orientation, err);
    if (code)
        error_wrap(err, "%s", format->name);
    else if (!picture_turn(out, orientation))
        code = error_set(err, ERROR_NO_MEMORY, "not enough memory to turn the picture");
    if (code) {
        mem_free(out->rgb);
        *out = (struct picture){0};
    }
    return code;
}
