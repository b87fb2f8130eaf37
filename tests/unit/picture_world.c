#include "picture_world.h"

#include "base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>
#include <png.h>
#include <webp/encode.h>
#include <zlib.h>

#include <cmocka.h>

struct picture picture_drawn(uint32_t width, uint32_t height, uint8_t scale)
{
    struct picture picture = {width, height, mem_new((size_t)width * height * 3)};
    assert_non_null(picture.rgb);
    for (uint32_t y = 0; y < height; y++) {
        for (uint32_t x = 0; x < width; x++) {
            uint8_t *pixel = picture.rgb + 3 * ((size_t)y * width + x);
            pixel[0] = (uint8_t)(x * scale);
            pixel[1] = (uint8_t)(y * scale);
            pixel[2] = (uint8_t)(7 * (x + y) * scale);
        }
    }
    return picture;
}

void picture_free(struct picture *picture)
{
    mem_free(picture->rgb);
    *picture = (struct picture){0};
}

void picture_exif(uint32_t orientation, bool is_big, struct buffer *out)
{
    const uint8_t little[] = {
        'I', 'I', 42, 0, 8, 0, 0, 0, 1, 0, 0x12, 1, 3, 0, 1, 0, 0, 0, (uint8_t)orientation,
        0,   0,   0,  0, 0, 0, 0};
    const uint8_t big[] = {'M', 'M',  0, 42, 0, 0, 0, 8, 0, 1,
                           1,   0x12, 0, 3,  0, 0, 0, 1, 0, (uint8_t)orientation,
                           0,   0,    0, 0,  0, 0};
    buffer_append(out, is_big ? big : little, sizeof big);
}

/* ---- PNG ---- */

struct buffer picture_png(const void *pixels, uint32_t width, uint32_t height, uint32_t format)
{
    png_image image = {.version = PNG_IMAGE_VERSION};
    image.width = width;
    image.height = height;
    image.format = format;
    png_alloc_size_t size = 0;
    struct buffer out = {0};
    assert_true(png_image_write_get_memory_size(image, size, 0, pixels, 0, NULL));
    void *bytes = buffer_extend(&out, size);
    assert_non_null(bytes);
    assert_true(png_image_write_to_memory(&image, bytes, &size, 0, pixels, 0, NULL));
    out.size = size;
    return out;
}

static void append_big_endian(struct buffer *out, uint32_t value)
{
    const uint8_t bytes[] = {(uint8_t)(value >> 24), (uint8_t)(value >> 16), (uint8_t)(value >> 8),
                             (uint8_t)value};
    buffer_append(out, bytes, sizeof bytes);
}

void picture_png_chunk(struct buffer *png, const char *type, const void *bytes, uint32_t size)
{
    enum { HEADER_END = 8 + 12 + 13 };
    struct buffer out = {0}, body = {0};
    buffer_append(&body, type, 4);
    buffer_append(&body, bytes, size);
    buffer_append(&out, png->data, HEADER_END);
    append_big_endian(&out, size);
    buffer_append(&out, body.data, body.size);
    append_big_endian(&out, (uint32_t)crc32(0, (const Bytef *)body.data, (uInt)body.size));
    buffer_append(&out, png->data + HEADER_END, png->size - HEADER_END);
    buffer_deinit(&body);
    buffer_deinit(png);
    *png = out;
}

/* ---- JPEG ---- */

static void inks_of(const uint8_t *rgb, bool is_adobe, uint8_t *cmyk)
{
    for (int i = 0; i < 3; i++) /* without black */
        cmyk[i] = is_adobe ? rgb[i] : (uint8_t)(UINT8_MAX - rgb[i]);
    cmyk[3] = is_adobe ? UINT8_MAX : 0;
}

static void jpeg_write_line(struct jpeg_compress_struct *jpeg, const struct picture *picture,
                            enum picture_jpeg_kind kind, uint8_t *line)
{
    const uint8_t *rgb = picture->rgb + (size_t)jpeg->next_scanline * picture->width * 3;
    for (uint32_t x = 0; x < picture->width; x++) {
        if (kind == JPEG_GREY)
            line[x] = rgb[3 * x];
        else if (kind == JPEG_CMYK || kind == JPEG_ADOBE_CMYK)
            inks_of(rgb + 3 * x, kind == JPEG_ADOBE_CMYK, line + 4 * x);
        else
            memcpy(line + 3 * x, rgb + 3 * x, 3);
    }
    JSAMPROW rows = line;
    jpeg_write_scanlines(jpeg, &rows, 1);
}

static void jpeg_set(struct jpeg_compress_struct *jpeg, const struct picture *picture,
                     enum picture_jpeg_kind kind)
{
    const bool is_inks = kind == JPEG_CMYK || kind == JPEG_ADOBE_CMYK;
    jpeg->image_width = picture->width;
    jpeg->image_height = picture->height;
    jpeg->input_components = kind == JPEG_GREY ? 1 : is_inks ? 4 : 3;
    jpeg->in_color_space = kind == JPEG_GREY ? JCS_GRAYSCALE : is_inks ? JCS_CMYK : JCS_RGB;
    jpeg_set_defaults(jpeg);
    jpeg->write_Adobe_marker = kind == JPEG_ADOBE_CMYK;
    jpeg_set_quality(jpeg, 100, TRUE);
    jpeg->comp_info[0].h_samp_factor = jpeg->comp_info[0].v_samp_factor = 1;
    if (kind == JPEG_PROGRESSIVE)
        jpeg_simple_progression(jpeg);
}

struct buffer picture_jpeg(const struct picture *picture, enum picture_jpeg_kind kind,
                           uint32_t orientation)
{
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr errors;
    struct buffer out = {0}, exif = {0};
    unsigned char *bytes = NULL;
    unsigned long size = 0;
    uint8_t *line = mem_new((size_t)picture->width * 4);
    assert_non_null(line);
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_compress(&jpeg);
    jpeg_mem_dest(&jpeg, &bytes, &size);
    jpeg_set(&jpeg, picture, kind);
    jpeg_start_compress(&jpeg, TRUE);
    if (orientation) {
        buffer_append(&exif, "Exif\0", 6);
        picture_exif(orientation, true, &exif);
        jpeg_write_marker(&jpeg, JPEG_APP0 + 1, (const JOCTET *)exif.data, (unsigned)exif.size);
    }
    while (jpeg.next_scanline < jpeg.image_height)
        jpeg_write_line(&jpeg, picture, kind, line);
    jpeg_finish_compress(&jpeg);
    jpeg_destroy_compress(&jpeg);
    buffer_append(&out, bytes, size);
    free(bytes);
    mem_free(line);
    buffer_deinit(&exif);
    return out;
}

/* ---- WebP: developers.google.com/speed/webp, "WebP Container Specification" ---- */

struct buffer picture_webp(const uint8_t *rgba, uint32_t width, uint32_t height)
{
    struct buffer out = {0};
    uint8_t *bytes = NULL;
    const size_t size =
        WebPEncodeLosslessRGBA(rgba, (int)width, (int)height, (int)width * 4, &bytes);
    assert_true(size > 0);
    buffer_append(&out, bytes, size);
    WebPFree(bytes);
    return out;
}

static void append_little_endian(struct buffer *out, uint32_t value, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        buffer_append(out, &(uint8_t){(uint8_t)(value >> 8 * i)}, 1);
}

static void append_chunk(struct buffer *out, const char *type, const void *bytes, size_t size)
{
    buffer_append(out, type, 4);
    append_little_endian(out, (uint32_t)size, 4);
    buffer_append(out, bytes, size);
    if (size % 2)
        buffer_append(out, "", 1);
}

struct buffer picture_webp_canvas(const uint8_t *rgba, uint32_t width, uint32_t height,
                                  uint32_t offset, uint32_t canvas, uint32_t orientation)
{
    enum { HAS_ANIMATION = 2, HAS_EXIF = 8, HAS_ALPHA = 16, RIFF_BYTES = 12 };
    struct buffer still = picture_webp(rgba, width, height), head = {0}, frame = {0}, file = {0};
    struct buffer exif = {0}, out = {0};
    append_little_endian(&head, HAS_ANIMATION | HAS_ALPHA | (orientation ? HAS_EXIF : 0), 4);
    append_little_endian(&head, canvas - 1, 3);
    append_little_endian(&head, canvas - 1, 3);
    append_chunk(&file, "VP8X", head.data, head.size);
    append_chunk(&file, "ANIM", "\0\0\0\0\0\0", 6);
    append_little_endian(&frame, offset / 2, 3);
    append_little_endian(&frame, offset / 2, 3);
    append_little_endian(&frame, width - 1, 3);
    append_little_endian(&frame, height - 1, 3);
    append_little_endian(&frame, 100, 3);
    append_little_endian(&frame, 0, 1);
    buffer_append(&frame, still.data + RIFF_BYTES, still.size - RIFF_BYTES);
    append_chunk(&file, "ANMF", frame.data, frame.size);
    if (orientation) {
        picture_exif(orientation, false, &exif);
        append_chunk(&file, "EXIF", exif.data, exif.size);
    }
    buffer_append(&out, "RIFF", 4);
    append_little_endian(&out, (uint32_t)file.size + 4, 4);
    buffer_append(&out, "WEBP", 4);
    buffer_append(&out, file.data, file.size);
    buffer_deinit(&still);
    buffer_deinit(&head);
    buffer_deinit(&frame);
    buffer_deinit(&file);
    buffer_deinit(&exif);
    return out;
}
