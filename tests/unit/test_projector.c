/* Projectors against llama.cpp's libmtmd: the rows of drawn pictures, with every way to attend;
 * what they take of memory; and files that are not what they say. tests/golden/pictures says how
 * the vectors were made. */
#include "base/mem.h"
#include "engine/picture_encoder.h"
#include "gpu/gpu.h"
#include "model/model.h"
#include "model/picture_fit.h"
#include "model/projector.h"
#include "projector_world.h"

#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yyjson.h>

#include <cmocka.h>

enum { PROJECTORS = 5, PROJECTORS_MAX = 16 };

struct projector_vectors {
    char name[64];
    struct projector *projector;
    yyjson_doc *doc;
    float *rows;
    size_t n_values;
};

static struct projector_vectors all[PROJECTORS_MAX];
static uint32_t n_all;
static struct gpu *gpu;
static const char *device_id = "cpu";

static void load_projector(const char *folder, const char *name)
{
    struct projector_vectors *v = &all[n_all++];
    char path[512];
    struct error err = {0};
    snprintf(v->name, sizeof v->name, "%s", name);
    snprintf(path, sizeof path, "%s/%s.gguf", folder, name);
    if (projector_open(path, &v->projector, &err))
        fail_msg("%s", err.text);
    v->doc = vectors_open(name);
    v->rows = vectors_floats(name, ".rows.f32", &v->n_values);
}

static int load_all(void **state)
{
    (void)state;
    char folder[512];
    struct error err = {0};
    struct gpu_options options = {.n_cpu_threads = 2};
    snprintf(folder, sizeof folder, "%s/pictures/models", getenv("MEDLEY_GOLDEN"));
    if (gpu_open(&options, &gpu, &err))
        fail_msg("%s", err.text);
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));) {
        char *dot = strstr(entry->d_name, ".json");
        if (dot && n_all < PROJECTORS_MAX) {
            *dot = '\0';
            load_projector(folder, entry->d_name);
        }
    }
    closedir(dir);
    assert_int_equal(n_all, PROJECTORS); /* so that none is lost unseen */
    return 0;
}

static int unload_all(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < n_all; i++) {
        free(all[i].rows);
        yyjson_doc_free(all[i].doc);
        projector_close(all[i].projector);
    }
    gpu_close(gpu);
    return 0;
}

/* ---- the vectors ---- */

static void check_rows(const struct projector_vectors *v, const struct picture_rows *got,
                       const float *wanted, float limit, float *largest)
{
    for (size_t i = 0; i < (size_t)got->n_rows * got->width; i++) {
        const float d = fabsf(got->rows[i] - wanted[i]);
        if (!(d <= limit))
            fail_msg("%s: value %zu at %td is %g, wanted %g", v->name, i, wanted - v->rows,
                     (double)got->rows[i], (double)wanted[i]);
        *largest = d > *largest ? d : *largest;
    }
}

static void check_encoder(const struct projector_vectors *v, enum flash_mode flash, float limit)
{
    struct picture_encoder *encoder;
    struct picture_encoder_options options = {.flash = flash};
    struct stage_memory measured, taken;
    struct error err = {0};
    struct device *device = gpu_find(gpu, device_id);
    float largest = 0;
    size_t at = 0, i, max;
    yyjson_val *item, *root = yyjson_doc_get_root(v->doc);
    if (picture_encoder_measure(v->projector, device, &options, &measured, &err) ||
        picture_encoder_open(v->projector, device, &options, &encoder, &err))
        fail_msg("%s: %s", v->name, err.text);
    yyjson_arr_foreach(yyjson_obj_get(root, "pictures"), i, max, item)
    {
        struct picture picture = vectors_draw(item);
        struct projector_rows about;
        struct picture_rows rows;
        if (projector_rows(v->projector, picture.width, picture.height, &about, &err) ||
            picture_encoder_rows(encoder, &picture, &rows, &err))
            fail_msg("%s: %s", v->name, err.text);
        assert_int_equal(rows.n_rows, vectors_number(item, "n_rows"));
        assert_int_equal(rows.n_rows, about.n_rows);
        assert_int_equal(rows.width, vectors_number(root, "width"));
        if (yyjson_get_bool(yyjson_obj_get(root, "mrope"))) {
            yyjson_val *grid = yyjson_obj_get(item, "grid");
            assert_int_equal(rows.grid_width, yyjson_get_uint(yyjson_arr_get_first(grid)));
            assert_int_equal(rows.grid_height, yyjson_get_uint(yyjson_arr_get_last(grid)));
        }
        assert_int_equal(rows.is_whole, yyjson_get_bool(yyjson_obj_get(root, "is_whole")));
        assert_true(rows.n_rows <= projector_rows_max(v->projector));
        check_rows(v, &rows, v->rows + at, limit, &largest);
        at += (size_t)rows.n_rows * rows.width;
        taken = picture_encoder_memory(encoder);
        assert_memory_equal(&taken, &measured, sizeof taken);
        picture_rows_deinit(&rows);
        free(picture.rgb);
    }
    assert_int_equal(at, v->n_values);
    if (getenv("MEDLEY_GOLDEN_PRINT"))
        print_message("# %s, flash %d: largest difference %.3g\n", v->name, (int)flash,
                      (double)largest);
    picture_encoder_close(encoder);
}

static bool is_f16(const struct projector_vectors *v)
{
    return strstr(v->name, "f16");
}

static void rows_are_the_reference(void **state)
{
    (void)state;
    const bool is_cpu = !strcmp(device_id, "cpu");
    for (uint32_t i = 0; i < n_all; i++)
        check_encoder(&all[i], FLASH_OFF, is_cpu && !is_f16(&all[i]) ? 1e-2f : 0.1f);
}

static void flash_attention_is_near(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < n_all; i++)
        check_encoder(&all[i], FLASH_AUTO, 0.1f);
}

/* Pictures that make about as many rows as any may, in all shapes. */
static void memory_does_not_grow(void **state)
{
    (void)state;
    static const uint32_t sizes[][2] = {
        {160, 176}, {1600, 18}, {18, 1600}, {400, 70}, {2000, 2000}};
    const struct picture_encoder_options options = {.flash = FLASH_AUTO};
    for (uint32_t i = 0; i < n_all; i++) {
        struct projector *projector;
        struct picture_encoder *encoder;
        struct stage_memory measured, taken;
        struct error err = {0};
        assert_int_equal(
            projector_open(gguf_file_path(projector_file(all[i].projector)), &projector, &err), 0);
        projector_limit_rows(projector, 113);
        const uint32_t most = projector_rows_max(projector);
        assert_int_equal(most, projector_form(projector)->image_size ? 16 : 113);
        struct device *device = gpu_find(gpu, device_id);
        assert_int_equal(picture_encoder_measure(projector, device, &options, &measured, &err), 0);
        assert_int_equal(picture_encoder_open(projector, device, &options, &encoder, &err), 0);
        for (uint32_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
            struct picture picture = vectors_draw_sized(sizes[k][0], sizes[k][1], 1);
            struct picture_rows rows;
            assert_int_equal(picture_encoder_rows(encoder, &picture, &rows, &err), 0);
            assert_in_range(rows.n_rows, most * 2 / 3, most);
            taken = picture_encoder_memory(encoder);
            assert_memory_equal(&taken, &measured, sizeof taken);
            picture_rows_deinit(&rows);
            free(picture.rgb);
        }
        picture_encoder_close(encoder);
        projector_close(projector);
    }
}

/* From the file to the rows, with the nth allocation failing; true: there were fewer. */
static bool runs_with_failing(const char *path, unsigned nth)
{
    const struct picture_encoder_options options = {.flash = FLASH_AUTO};
    struct projector *projector = NULL;
    struct picture_encoder *encoder = NULL;
    struct picture_rows rows = {0};
    struct picture picture = vectors_draw_sized(61, 90, 2);
    struct error err = {0};
    mem_fail_nth(nth);
    enum error_code code = projector_open(path, &projector, &err);
    if (!code)
        code = picture_encoder_open(projector, gpu_find(gpu, "cpu"), &options, &encoder, &err);
    if (!code)
        code = picture_encoder_rows(encoder, &picture, &rows, &err);
    mem_fail_nth(0);
    assert_true(code == ERROR_NONE || code == ERROR_NO_MEMORY);
    assert_int_equal(code == ERROR_NONE, rows.rows != NULL);
    picture_rows_deinit(&rows);
    picture_encoder_close(encoder);
    projector_close(projector);
    free(picture.rgb);
    return code == ERROR_NONE;
}

static void allocations_may_fail(void **state)
{
    (void)state;
    static const char *const names[] = {"gemma3", "qwen3vl"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[512];
        unsigned nth = 1;
        vectors_path(path, names[i], ".gguf");
        while (!runs_with_failing(path, nth))
            assert_true(++nth < 200);
        assert_true(nth > 10);
    }
}

/* ---- files that are not what they say ---- */

static void expect_refused(const char *name, const char *text)
{
    struct projector *projector;
    struct error err = {0};
    char path[512];
    snprintf(path, sizeof path, "%s/%s.gguf", getenv("MEDLEY_GOLDEN"), name);
    if (!projector_open(path, &projector, &err))
        fail_msg("%s was opened", name);
    if (!strstr(err.text, text) || !strstr(err.text, name))
        fail_msg("%s: \"%s\" does not say \"%s\"", name, err.text, text);
}

static void language_models_are_no_projectors(void **state)
{
    (void)state;
    expect_refused("models/llama", "this is a language model (llama), not a projector");
}

static const struct projector *projector_named(const char *name)
{
    for (uint32_t i = 0; i < n_all; i++) {
        if (!strcmp(all[i].name, name))
            return all[i].projector;
    }
    fail_msg("no projector %s", name);
    return NULL;
}

/* "": it goes with the model. */
static void check_goes_with(const char *projector, const char *model_name, const char *text)
{
    struct model *model;
    struct error err = {0};
    char path[512];
    snprintf(path, sizeof path, "%s/%s.gguf", getenv("MEDLEY_GOLDEN"), model_name);
    assert_int_equal(model_open(path, &model, &err), 0);
    const enum error_code code = projector_check_model(projector_named(projector), model, &err);
    model_close(model);
    assert_int_equal(code, *text ? ERROR_INVALID : ERROR_NONE);
    if (!strstr(err.text, text))
        fail_msg("\"%s\" does not say \"%s\"", err.text, text);
}

static void a_projector_goes_with_its_model(void **state)
{
    (void)state;
    check_goes_with("gemma3", "models/gemma3", "");
    check_goes_with("gemma3", "models/gemma2",
                    "is of the type gemma3, and gemma2 is a gemma2 model");
    check_goes_with("gemma3", "more/models/gemma3-long",
                    "rows of 64 numbers, and gemma3-long takes ");
    check_goes_with("qwen3vl", "models/qwen3",
                    "is of the type qwen3vl_merger, and qwen3 is a qwen3");
}

static void pictures_have_a_shape(void **state)
{
    (void)state;
    struct projector_rows rows;
    struct error err = {0};
    const struct projector *qwen = projector_named("qwen2vl");
    assert_int_equal(projector_rows(qwen, 1, 200, &rows, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "a picture of 1 x 200 pixels is too narrow"));
    assert_int_equal(projector_rows(qwen, 1, 199, &rows, &err), ERROR_NONE);
    assert_int_equal(projector_rows(projector_named("gemma3"), 5, 0, &rows, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "a picture of 5 x 0 pixels has none"));
    assert_int_equal(projector_rows(projector_named("gemma3"), 1, 9000, &rows, &err), ERROR_NONE);
    assert_int_equal(rows.n_rows, 16);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_the_reference),
        cmocka_unit_test(flash_attention_is_near),
        cmocka_unit_test(memory_does_not_grow),
        cmocka_unit_test(allocations_may_fail),
        cmocka_unit_test(language_models_are_no_projectors),
        cmocka_unit_test(a_projector_goes_with_its_model),
        cmocka_unit_test(pictures_have_a_shape),
    };
    if (argc > 1 && !strcmp(argv[1], "vulkan"))
        device_id = "vulkan0";
    return cmocka_run_group_tests(tests, load_all, unload_all);
}
