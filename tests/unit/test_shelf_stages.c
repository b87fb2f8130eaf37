/* Stages on the shelf's files, of which only their layers are there. */
#include "base/random.h"
#include "engine/stage.h"
#include "gpu/gpu.h"
#include "model/model.h"
#include "shelf_world.h"
#include "weights/manifest_layers.h"
#include "weights/manifest_make.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct gpu *gpu;

static void run(const char *path, uint32_t first, uint32_t n, const float *in, float *out,
                uint32_t n_floats)
{
    struct model *model;
    struct stage *stage;
    struct error err;
    struct stage_options options = {.first_layer = first,
                                    .n_layers = n,
                                    .n_slots = 1,
                                    .context = 64,
                                    .rows_max = 16,
                                    .kv_type = KV_F32};
    struct batch_row rows[16];
    for (uint32_t i = 0; i < 16; i++)
        rows[i] =
            (struct batch_row){.position = i, .token = (int32_t)(i * 31 % 300), .output = true};
    if (model_open(path, &model, &err) ||
        stage_open(gpu_find(gpu, "cpu"), model, &options, &stage, &err))
        fail_msg("%s", err.text);
    assert_true(16 * (stage_is_last(stage) ? stage_output_width(stage) : stage_width(stage)) <=
                n_floats);
    if (stage_forward(stage, &(struct batch){.rows = rows, .n_rows = 16}, in, out, &err))
        fail_msg("%s", err.text);
    stage_close(stage);
    model_close(model);
}

/* A shelf with the parts of these layers and nothing else. */
static struct shelf_model *shelve_layers(struct world *world, const char *path,
                                         const struct manifest *manifest, uint32_t first,
                                         uint32_t n)
{
    struct shelf_model *on_shelf = open_model(world->shelf, manifest);
    struct model *model;
    struct part_set wanted;
    uint8_t *header = weights_read(path, 0, manifest->parts[MANIFEST_HEADER].size);
    struct error err;
    assert_int_equal(shelf_model_write(on_shelf, 0, 0, header, manifest->parts[0].size, NULL), 0);
    assert_int_equal(shelf_model_keep(on_shelf, &(uint32_t){0}, 1, NULL), 0);
    free(header);
    part_set_init(&wanted, manifest->n_parts, NULL);
    if (model_open(shelf_model_path(on_shelf), &model, &err)) /* of the header alone */
        fail_msg("%s", err.text);
    assert_int_equal(manifest_agrees(manifest, model_file(model), NULL), 0);
    assert_int_equal(manifest_add_layers(manifest, model, first, n, &wanted, &err), 0);
    model_close(model);
    assert_int_equal(shelf_model_reserve(on_shelf, &wanted, NULL), 0);
    for (uint32_t i = 1; i < manifest->n_parts; i++) {
        if (!part_set_has(&wanted, i))
            continue;
        void *bytes = weights_read(path, manifest->parts[i].offset, manifest->parts[i].size);
        assert_int_equal(shelf_model_write(on_shelf, i, 0, bytes, manifest->parts[i].size, NULL),
                         0);
        assert_int_equal(shelf_model_verify(on_shelf, i, NULL), 0);
        assert_int_equal(shelf_model_keep(on_shelf, &i, 1, NULL), 0);
        free(bytes);
    }
    part_set_deinit(&wanted);
    return on_shelf;
}

static void check_stages(struct world *world, const char *name)
{
    enum { FLOATS = 16 * 1024 };
    static float in[FLOATS], want[FLOATS], got[FLOATS];
    char path[PATH_MAX];
    struct gguf_file *file;
    struct manifest manifest;
    struct model *model;
    assert_int_equal(model_open(weights_golden(name, path), &model, NULL), 0);
    uint32_t n = model_hyperparameters(model)->n_layers;
    model_close(model);
    assert_int_equal(
        gguf_file_open(path, &file, NULL) || manifest_make(file, NULL, &manifest, NULL), 0);
    gguf_file_close(file);
    for (uint32_t i = 0; i < FLOATS; i++)
        in[i] = (float)random_unit_at(5, i) - 0.5f;
    for (uint32_t first = 0; first < n; first++) {
        struct shelf_model *model_on_shelf = shelve_layers(world, path, &manifest, first, 1);
        memset(want, 0, sizeof want);
        memset(got, 0, sizeof got);
        run(path, first, 1, first ? in : NULL, want, FLOATS);
        run(shelf_model_path(model_on_shelf), first, 1, first ? in : NULL, got, FLOATS);
        assert_memory_equal(want, got, sizeof want);
        assert_true(want[0] != 0 &&
                    part_set_count(shelf_model_has(model_on_shelf)) < manifest.n_parts);
        struct digest identity = *shelf_model_identity(model_on_shelf);
        shelf_model_close(model_on_shelf);
        assert_int_equal(shelf_remove(world->shelf, &identity, NULL), 0);
    }
    manifest_deinit(&manifest);
}

static void test_stages_run_on_their_layers_alone_bit_for_bit(void **state)
{
    static const char *const names[] = {"qwen2-tied",   "qwen3",         "gpt-oss", "llama-moe",
                                        "llama-rope31", "phi3-longrope", "gemma2",  "llama-q4_0"};
    if (gpu_open(&(struct gpu_options){.n_cpu_threads = 1, .skip_other = true}, &gpu, NULL))
        fail();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        check_stages(*state, names[i]);
    gpu_close(gpu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_stages_run_on_their_layers_alone_bit_for_bit,
                                        shelf_world_begin, shelf_world_end),
    };
    return cmocka_run_group_tests_name("shelf_stages", tests, NULL, NULL);
}
