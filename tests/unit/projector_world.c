#include "projector_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

void vectors_path(char path[512], const char *name, const char *ending)
{
    snprintf(path, 512, "%s/pictures/models/%s%s", getenv("MEDLEY_GOLDEN"), name, ending);
}

yyjson_doc *vectors_open(const char *name)
{
    char path[512];
    vectors_path(path, name, ".json");
    yyjson_doc *doc = yyjson_read_file(path, 0, NULL, NULL);
    assert_non_null(doc);
    return doc;
}

uint32_t vectors_number(yyjson_val *object, const char *key)
{
    return (uint32_t)yyjson_get_uint(yyjson_obj_get(object, key));
}

float *vectors_floats(const char *name, const char *ending, size_t *n)
{
    char path[512];
    vectors_path(path, name, ending);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    *n = (size_t)ftell(file) / sizeof(float);
    rewind(file);
    float *values = malloc(*n * sizeof *values);
    assert_int_equal(fread(values, sizeof *values, *n, file), *n);
    fclose(file);
    return values;
}

struct picture vectors_draw_sized(uint32_t width, uint32_t height, uint32_t seed)
{
    struct picture picture = {width, height, malloc((size_t)width * height * 3)};
    uint8_t *at = picture.rgb;
    for (uint32_t y = 0; y < height; y++) {
        for (uint32_t x = 0; x < width; x++) {
            const uint32_t slopes[3] = {x * 255 / width, y * 255 / height,
                                        (x + y) * 255 / (width + height)};
            for (uint32_t c = 0; c < 3; c++) {
                seed = seed * 1664525u + 1013904223u;
                *at++ = (uint8_t)(slopes[c] + (seed >> 26));
            }
        }
    }
    return picture;
}

struct picture vectors_draw(yyjson_val *about)
{
    return vectors_draw_sized(vectors_number(about, "width"), vectors_number(about, "height"),
                              vectors_number(about, "seed"));
}
