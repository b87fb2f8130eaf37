/* Pictures: what is read of each format, in what way bad files are refused, and what the process
 * that decodes may do and answer. This program is its own child. */
#include "base/buffer.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/transfer.h"
#include "picture/decode.h"
#include "picture/exif.h"
#include "picture/picture_process.h"
#include "picture_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>
#include <png.h>

enum { WIDTH = 6, HEIGHT = 4, LIMIT_MS = 120000 /* on a busy machine */ };

static enum error_code decode(const struct buffer *file, struct picture *out, struct error *err)
{
    const struct decoding from = {(const uint8_t *)file->data, file->size, LIMIT_PICTURE_PIXELS};
    return picture_decode(&from, out, err);
}

/* Consumes the file. */
static struct picture decoded(struct buffer file)
{
    struct picture picture;
    struct error err = {0};
    if (decode(&file, &picture, &err))
        fail_msg("%s", err.text);
    buffer_deinit(&file);
    return picture;
}

static void expect_near(const struct picture *is, const struct picture *should, int tolerance)
{
    assert_int_equal(is->width, should->width);
    assert_int_equal(is->height, should->height);
    for (size_t i = 0; i < (size_t)is->width * is->height * 3; i++) {
        if (abs(is->rgb[i] - should->rgb[i]) > tolerance)
            fail_msg("byte %zu is %d, not %d", i, is->rgb[i], should->rgb[i]);
    }
}

/* Consumes the file. */
static void expect_refused(struct buffer file, const char *text)
{
    struct picture picture;
    struct error err = {0};
    assert_int_equal(decode(&file, &picture, &err), ERROR_INVALID);
    assert_null(picture.rgb);
    if (!strstr(err.text, text))
        fail_msg("\"%s\" does not say \"%s\"", err.text, text);
    buffer_deinit(&file);
}

/* ---- formats ---- */

static void png_gives_its_pixels(void **state)
{
    (void)state;
    struct picture drawn = picture_drawn(WIDTH, HEIGHT, 11);
    struct picture read = decoded(picture_png(drawn.rgb, WIDTH, HEIGHT, PNG_FORMAT_RGB));
    expect_near(&read, &drawn, 0);
    picture_free(&drawn);
    picture_free(&read);
}

static void png_of_grey_and_16_bits_becomes_rgb(void **state)
{
    (void)state;
    const uint8_t grey[] = {0, 50, 100, 255};
    uint8_t rgb[12];
    for (int i = 0; i < 12; i++)
        rgb[i] = grey[i / 3];
    const struct picture drawn = {2, 2, rgb};
    struct picture read = decoded(picture_png(grey, 2, 2, PNG_FORMAT_GRAY));
    expect_near(&read, &drawn, 0);
    picture_free(&read);
    uint16_t linear[12]; /* the writer takes linear light and says so in the file: only ends stay */
    for (int i = 0; i < 12; i++)
        linear[i] = i / 3 % 2 ? UINT16_MAX : 0;
    struct picture deep = decoded(picture_png(linear, 2, 2, PNG_FORMAT_LINEAR_RGB));
    for (int i = 0; i < 12; i++)
        assert_int_equal(deep.rgb[i], i / 3 % 2 ? UINT8_MAX : 0);
    picture_free(&deep);
}

static void what_is_transparent_is_white(void **state)
{
    (void)state;
    const uint8_t rgba[] = {10, 20, 30, 255, 10, 20, 30, 0, 10, 20, 30, 255, 99, 99, 99, 0};
    uint8_t rgb[] = {10, 20, 30, 255, 255, 255, 10, 20, 30, 255, 255, 255};
    const struct picture shown = {2, 2, rgb};
    struct picture png = decoded(picture_png(rgba, 2, 2, PNG_FORMAT_RGBA));
    expect_near(&png, &shown, 0);
    picture_free(&png);
    struct picture webp = decoded(picture_webp(rgba, 2, 2));
    expect_near(&webp, &shown, 0);
    picture_free(&webp);
}

static void half_transparent_is_half_white(void **state)
{
    (void)state;
    const uint8_t rgba[] = {0, 100, 255, 128};
    struct picture webp = decoded(picture_webp(rgba, 1, 1));
    assert_int_equal(webp.rgb[0], 127);
    assert_int_equal(webp.rgb[1], 177);
    assert_int_equal(webp.rgb[2], 255);
    picture_free(&webp);
}

static void jpeg_of_each_kind_is_near(void **state)
{
    (void)state;
    static const enum picture_jpeg_kind kinds[] = {JPEG_PLAIN, JPEG_PROGRESSIVE, JPEG_CMYK,
                                                   JPEG_ADOBE_CMYK};
    struct picture drawn = picture_drawn(32, 24, 1);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct picture read = decoded(picture_jpeg(&drawn, kinds[i], 0));
        expect_near(&read, &drawn, 4);
        picture_free(&read);
    }
    for (size_t i = 0; i < (size_t)32 * 24 * 3; i++)
        drawn.rgb[i] = drawn.rgb[i / 3 * 3];
    struct picture grey = decoded(picture_jpeg(&drawn, JPEG_GREY, 0));
    expect_near(&grey, &drawn, 4);
    picture_free(&grey);
    picture_free(&drawn);
}

static void an_animation_gives_its_first_frame_on_its_canvas(void **state)
{
    (void)state;
    const uint8_t rgba[] = {10, 20, 30, 255};
    struct picture read = decoded(picture_webp_canvas(rgba, 1, 1, 2, 4, 0));
    assert_int_equal(read.width, 4);
    assert_int_equal(read.height, 4);
    for (int y = 0; y < 4; y++) {
        for (int x = 0; x < 4; x++)
            assert_int_equal(read.rgb[3 * (4 * y + x)], x == 2 && y == 2 ? 10 : 255);
    }
    picture_free(&read);
}

/* ---- orientation ---- */

/* Stored 16 x 8, white but for the corner that is shown at the top left when turned. */
static struct picture stored_for(uint32_t orientation)
{
    static const uint8_t corners[][2] = {{0, 0}, {1, 0}, {1, 1}, {0, 1},
                                         {0, 0}, {0, 1}, {1, 1}, {1, 0}}; /* x, y at the end */
    struct picture picture = picture_drawn(16, 8, 0);
    memset(picture.rgb, UINT8_MAX, (size_t)16 * 8 * 3);
    const uint32_t x = corners[orientation - 1][0] ? 15 : 0;
    const uint32_t y = corners[orientation - 1][1] ? 7 : 0;
    memset(picture.rgb + 3 * (16 * y + x), 0, 3);
    return picture;
}

static void a_picture_is_turned_as_the_camera_was_held(void **state)
{
    (void)state;
    for (uint32_t orientation = 1; orientation <= 8; orientation++) {
        struct buffer exif = {0};
        struct picture stored = stored_for(orientation);
        picture_exif(orientation, orientation % 2, &exif);
        struct buffer png = picture_png(stored.rgb, 16, 8, PNG_FORMAT_RGB);
        picture_png_chunk(&png, "eXIf", exif.data, (uint32_t)exif.size);
        struct picture shown = decoded(png);
        assert_int_equal(shown.width, orientation > 4 ? 8 : 16);
        for (size_t i = 0; i < (size_t)16 * 8; i++)
            assert_int_equal(shown.rgb[3 * i], i ? UINT8_MAX : 0);
        struct picture jpeg = decoded(picture_jpeg(&stored, JPEG_PLAIN, orientation));
        assert_int_equal(jpeg.width, shown.width);
        assert_true(jpeg.rgb[0] < 128);
        buffer_deinit(&exif);
        picture_free(&jpeg);
        picture_free(&shown);
        picture_free(&stored);
    }
    const uint8_t rgba[16 * 4] = {0};
    struct picture webp = decoded(picture_webp_canvas(rgba, 4, 2, 0, 8, 6));
    assert_int_equal(webp.width, 8);
    picture_free(&webp);
}

static void bad_exif_leaves_a_picture_as_it_is(void **state)
{
    (void)state;
    static const char *const texts[] = {"", "Exif\0", "II*\0\xff\xff\xff\xff",
                                        "MM\0*\0\0\0\x08\xff"};
    static const size_t sizes[] = {0, 6, 8, 9};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        assert_int_equal(exif_orientation((const uint8_t *)texts[i], sizes[i]), 1);
    struct buffer exif = {0};
    picture_exif(9, true, &exif);
    assert_int_equal(exif_orientation((const uint8_t *)exif.data, exif.size), 1);
    buffer_deinit(&exif);
}

/* ---- what is refused ---- */

static struct buffer file_of(const char *bytes, size_t size)
{
    struct buffer file = {0};
    buffer_append(&file, bytes, size);
    return file;
}

static void what_is_no_picture_is_named(void **state)
{
    (void)state;
    expect_refused(file_of("hello", 5), "give a PNG, JPEG or WebP");
    expect_refused(file_of("GIF89a", 6), "GIF cannot be read here; convert it");
    expect_refused(file_of("\0\0\0\x18"
                           "ftypheic",
                           12),
                   "HEIC or AVIF cannot be read here");
    expect_refused(file_of("\xff\xd8\xff", 3), "JPEG: ");
    expect_refused(file_of("\x89PNG\r\n\x1a\n", 8), "PNG: ");
    expect_refused(file_of("RIFF\x04\0\0\0WEBP", 12), "WebP: ");
}

static struct buffer cut(struct buffer file)
{
    file.size = file.size * 3 / 4;
    return file;
}

static void one_that_ends_early_is_refused(void **state)
{
    (void)state;
    struct picture drawn = picture_drawn(64, 64, 3);
    uint8_t *rgba = mem_new((size_t)64 * 64 * 4);
    assert_non_null(rgba);
    for (size_t i = 0; i < (size_t)64 * 64 * 4; i++)
        rgba[i] = (uint8_t)(i * i >> 4);
    expect_refused(cut(picture_png(drawn.rgb, 64, 64, PNG_FORMAT_RGB)), "PNG: ");
    expect_refused(cut(picture_jpeg(&drawn, JPEG_PLAIN, 0)), "JPEG: ");
    expect_refused(cut(picture_jpeg(&drawn, JPEG_PROGRESSIVE, 0)), "JPEG: ");
    expect_refused(cut(picture_webp(rgba, 64, 64)), "WebP: ");
    mem_free(rgba);
    picture_free(&drawn);
}

/* A header that claims more than the limits; nothing of that size is allocated. */
static void too_many_pixels_are_refused_before_they_are_there(void **state)
{
    (void)state;
    enum { WIDTH_AT = 16 };
    struct picture drawn = picture_drawn(WIDTH, HEIGHT, 1), out;
    struct buffer png = picture_png(drawn.rgb, WIDTH, HEIGHT, PNG_FORMAT_RGB);
    struct error err = {0};
    const struct decoding from = {(const uint8_t *)png.data, png.size, WIDTH * HEIGHT - 1};
    assert_int_equal(picture_decode(&from, &out, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "6 x 4 pixels; 23 at most in all. Scale it down"));
    buffer_deinit(&png);
    picture_free(&drawn);
    uint8_t *line = mem_new((size_t)40000 * 3);
    assert_non_null(line);
    expect_refused(picture_png(line, 40000, 1, PNG_FORMAT_RGB), "a side may be 32768 at most");
    mem_free(line);
}

static void each_allocation_may_fail(void **state)
{
    (void)state;
    struct picture drawn = picture_drawn(16, 8, 3);
    struct buffer files[] = {
        picture_jpeg(&drawn, JPEG_ADOBE_CMYK, 6), picture_png(drawn.rgb, 16, 8, PNG_FORMAT_RGB),
        picture_webp_canvas((const uint8_t *)(const char[64 * 4]){0}, 4, 4, 2, 8, 3)};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        enum error_code code = ERROR_NO_MEMORY;
        unsigned n_failed = 0;
        for (unsigned nth = 1; code; nth++) {
            struct picture picture;
            struct error err = {0};
            mem_fail_nth(nth);
            code = decode(&files[i], &picture, &err);
            mem_fail_nth(0);
            assert_true(!code || code == ERROR_NO_MEMORY);
            n_failed += code != ERROR_NONE;
            picture_free(&picture);
        }
        assert_true(n_failed > 0);
        buffer_deinit(&files[i]);
    }
    picture_free(&drawn);
}

/* ---- in a process of its own ---- */

static void it_is_decoded_elsewhere_and_comes_back(void **state)
{
    (void)state;
    struct picture drawn = picture_drawn(300, 200, 1), read;
    struct buffer png = picture_png(drawn.rgb, 300, 200, PNG_FORMAT_RGB);
    struct error err = {0};
    picture_isolate("/proc/self/exe", LIMIT_MS);
    if (picture_read(png.data, png.size, &read, &err))
        fail_msg("%s", err.text);
    expect_near(&read, &drawn, 0);
    picture_free(&read);
    assert_int_equal(picture_read("hello", 5, &read, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "give a PNG, JPEG or WebP"));
    assert_int_equal(picture_read(png.data, 0, &read, &err), ERROR_INVALID);
    assert_int_equal(picture_read(png.data, LIMIT_PICTURE_BYTES + 1, &read, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "20971520 at most"));
    picture_isolate(NULL, 0);
    buffer_deinit(&png);
    picture_free(&drawn);
}

/* `true` reads nothing and ends. */
static void a_process_that_ends_or_hangs_fails_that_picture(void **state)
{
    (void)state;
    struct picture read;
    struct error err = {0};
    picture_isolate("/bin/true", LIMIT_MS);
    assert_int_equal(picture_read("hello", 5, &read, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "has ended"));
    picture_isolate("/nowhere", LIMIT_MS);
    assert_int_equal(picture_read("hello", 5, &read, &err), ERROR_IO);
    setenv("MEDLEY_LOG", "hangs", 1);
    picture_isolate("/proc/self/exe", 100);
    assert_int_equal(picture_read("hello", 5, &read, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "took too long"));
    unsetenv("MEDLEY_LOG");
    picture_isolate(NULL, 0);
}

static enum error_code answered(const struct picture_head *head, const void *bytes, size_t size,
                                struct picture *out, struct error *err)
{
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    assert_true(transfer_send(ends[0], head, sizeof *head, UINT64_MAX));
    assert_true(transfer_send(ends[0], bytes, size, UINT64_MAX));
    close(ends[0]);
    const enum error_code code = picture_receive(ends[1], UINT64_MAX, out, err);
    close(ends[1]);
    return code;
}

static void answers_that_cannot_be(void **state)
{
    (void)state;
    static const struct picture_head heads[] = {
        {.code = ERROR_INTERNAL + 1},
        {.code = ERROR_INVALID, .size = ERROR_TEXT_MAX},
        {.code = ERROR_INVALID, .width = 1, .height = 1},
        {.width = 0, .height = 5},
        {.width = LIMIT_PICTURE_SIDE + 1, .height = 1},
        {.width = LIMIT_PICTURE_SIDE, .height = LIMIT_PICTURE_SIDE},
        {.size = 1, .width = 1, .height = 1},
        {.width = 2, .height = 2}, /* and nothing follows */
    };
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        struct picture out;
        struct error err = {0};
        assert_int_not_equal(answered(&heads[i], "", 0, &out, &err), ERROR_NONE);
        assert_null(out.rgb);
        assert_true(err.text[0]);
    }
    struct picture out;
    struct error err = {0};
    const struct picture_head refusal = {.code = ERROR_INVALID, .size = 4};
    assert_int_equal(answered(&refusal, "a\nb\x1b", 4, &out, &err), ERROR_INVALID);
    assert_string_equal(err.text, "a?b?");
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], PICTURE_ARGUMENT) == 0 &&
        strcmp(getenv("MEDLEY_LOG") ? getenv("MEDLEY_LOG") : "", "hangs") == 0)
        pause();
    picture_decode_main(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(png_gives_its_pixels),
        cmocka_unit_test(png_of_grey_and_16_bits_becomes_rgb),
        cmocka_unit_test(what_is_transparent_is_white),
        cmocka_unit_test(half_transparent_is_half_white),
        cmocka_unit_test(jpeg_of_each_kind_is_near),
        cmocka_unit_test(an_animation_gives_its_first_frame_on_its_canvas),
        cmocka_unit_test(a_picture_is_turned_as_the_camera_was_held),
        cmocka_unit_test(bad_exif_leaves_a_picture_as_it_is),
        cmocka_unit_test(what_is_no_picture_is_named),
        cmocka_unit_test(one_that_ends_early_is_refused),
        cmocka_unit_test(too_many_pixels_are_refused_before_they_are_there),
        cmocka_unit_test(each_allocation_may_fail),
        cmocka_unit_test(it_is_decoded_elsewhere_and_comes_back),
        cmocka_unit_test(a_process_that_ends_or_hangs_fails_that_picture),
        cmocka_unit_test(answers_that_cannot_be),
    };
    return cmocka_run_group_tests_name("picture", tests, NULL, NULL);
}
