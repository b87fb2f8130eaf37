/* Caches that are more than K and V, or less: an indexer's keys, summaries of tokens, and layers
 * that see the keys and values of others. */
#include "base/mem.h"
#include "engine/stage.h"
#include "gpu/gpu.h"
#include "model/model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    VOCAB_MAX = 512,
    LENGTH = 50,
    CONTEXT = 300,
    CELLS = 512,
    RING_CELLS = 256,
    CELL_MAX = 4096
};

static struct gpu *gpu;
static struct device *cpu;

static int open_device(void **state)
{
    (void)state;
    struct error err = {0};
    if (gpu_open(&(struct gpu_options){.n_cpu_threads = 2, .skip_other = true}, &gpu, &err))
        fail_msg("%s", err.text);
    cpu = gpu_find(gpu, "cpu");
    return 0;
}

static int close_device(void **state)
{
    (void)state;
    gpu_close(gpu);
    return 0;
}

static struct model *open_more(const char *name)
{
    struct model *model;
    struct error err = {0};
    char path[512];
    assert_non_null(getenv("MEDLEY_GOLDEN"));
    snprintf(path, sizeof path, "%s/more/models/%s.gguf", getenv("MEDLEY_GOLDEN"), name);
    if (model_open(path, &model, &err))
        fail_msg("%s", err.text);
    return model;
}

static struct stage *open_rows(const struct model *model, uint32_t first_layer, uint32_t n_layers,
                               uint32_t rows_max)
{
    const struct stage_options options = {.first_layer = first_layer,
                                          .n_layers = n_layers,
                                          .n_slots = 2,
                                          .context = CONTEXT,
                                          .rows_max = rows_max,
                                          .kv_type = KV_F32};
    struct stage *stage;
    struct error err = {0};
    if (stage_open(cpu, model, &options, &stage, &err))
        fail_msg("%s", err.text);
    return stage;
}

static struct stage *open_layers(const struct model *model, uint32_t first_layer, uint32_t n_layers)
{
    return open_rows(model, first_layer, n_layers, LENGTH);
}

static struct stage *open_whole(const struct model *model)
{
    return open_layers(model, 0, model_hyperparameters(model)->n_layers);
}

/* The logits of the last of `n` more tokens. */
static void feed(struct stage *stage, uint32_t slot, uint32_t n, float *out)
{
    struct batch_row rows[LENGTH];
    struct error err = {0};
    const uint32_t first = stage_kv_length(stage, slot);
    for (uint32_t i = 0; i < n; i++)
        rows[i] = (struct batch_row){.slot = slot,
                                     .position = first + i,
                                     .token = (int32_t)((first + i) * 31 % 200),
                                     .output = i + 1 == n};
    if (stage_forward(stage, &(struct batch){.rows = rows, .n_rows = n}, NULL, out, &err))
        fail_msg("%s", err.text);
}

/* Layer by layer into slot 0 of another stage; of the last layer all but the last bytes of a cell,
 * where `forgets` says so. */
static void hand_over(const struct model *model, struct stage *from, struct stage *to,
                      uint32_t forgets)
{
    const struct hyperparameters *h = model_hyperparameters(model);
    const uint64_t row = stage_kv_row_bytes(from);
    char *bytes = mem_new(LENGTH * row);
    assert_true(bytes && row <= CELL_MAX);
    for (uint32_t layer = 0; layer < h->n_layers; layer++) {
        const struct kv_run run = {layer, 1, 0, LENGTH}, into = {layer, 0, 0, LENGTH};
        assert_int_equal(stage_kv_read(from, &run, bytes, NULL), ERROR_NONE);
        if (layer + 1 == h->n_layers)
            memset(bytes + LENGTH * (row - forgets), 0, LENGTH * forgets);
        assert_int_equal(stage_kv_write(to, &into, bytes, NULL), ERROR_NONE);
    }
    assert_int_equal(stage_kv_set_length(to, 0, LENGTH, NULL), ERROR_NONE);
    mem_free(bytes);
}

static void test_index_keys_go_over(void **state)
{
    (void)state;
    struct model *model = open_more("deepseek32");
    struct stage *from = open_whole(model), *to = open_whole(model);
    const uint32_t n_vocab = model_hyperparameters(model)->n_vocab;
    float want[VOCAB_MAX], got[VOCAB_MAX];
    assert_true(n_vocab <= VOCAB_MAX);
    feed(from, 1, LENGTH, want);
    hand_over(model, from, to, 0);
    feed(from, 1, 1, want);
    feed(to, 0, 1, got);
    assert_memory_equal(got, want, n_vocab * sizeof *got);
    /* without those keys it sees other tokens */
    stage_kv_truncate(from, 1, LENGTH);
    stage_kv_truncate(to, 0, 0);
    hand_over(model, from, to, model_hyperparameters(model)->indexer.dim * (uint32_t)sizeof(float));
    feed(to, 0, 1, got);
    assert_memory_not_equal(got, want, n_vocab * sizeof *got);
    stage_close(from);
    stage_close(to);
    model_close(model);
}

/* ---- summaries of tokens -------------------------------------------------------------------- */

static void feed_to(struct stage *stage, uint32_t slot, uint32_t end, float *out)
{
    for (uint32_t left; (left = end - stage_kv_length(stage, slot)) > 0;)
        feed(stage, slot, left < LENGTH ? left : LENGTH, out);
}

/* Rings that have gone round hold what a cache of every token does. */
static void test_rings_of_summaries(void **state)
{
    (void)state;
    struct model *model = open_more("deepseek4");
    const struct hyperparameters *h = model_hyperparameters(model);
    struct stage *rings = open_whole(model), *all = open_rows(model, 0, h->n_layers, CONTEXT);
    float want[VOCAB_MAX], got[VOCAB_MAX], largest = 0;
    assert_true(stage_memory(rings).kv < stage_memory(all).kv);
    feed_to(all, 1, 299, want);
    feed_to(rings, 1, 299, got);
    for (uint32_t i = 0; i < h->n_vocab; i++)
        largest = fmaxf(largest, fabsf(got[i] - want[i]));
    assert_true(largest < 1e-4F);
    /* further back than its tokens are kept, a sequence cannot go on */
    const struct batch_row row = {.slot = 1, .position = 100, .token = 1};
    stage_kv_truncate(rings, 1, 100);
    assert_int_equal(
        stage_forward(rings, &(struct batch){.rows = &row, .n_rows = 1}, NULL, NULL, NULL),
        ERROR_INVALID);
    stage_close(all);
    stage_close(rings);
    model_close(model);
}

/* Cut, copied and handed over, a sequence goes on with the same bits. */
static void test_summaries_live_on(void **state)
{
    (void)state;
    struct model *model = open_more("deepseek4");
    const struct hyperparameters *h = model_hyperparameters(model);
    struct stage *from = open_whole(model), *to = open_whole(model);
    const size_t size = h->n_vocab * sizeof(float);
    const uint32_t n = 250, end = 290; /* the rings go round between them */
    float want[VOCAB_MAX], got[VOCAB_MAX];
    const uint64_t row = stage_kv_row_bytes(from);
    char *bytes = mem_new(n * row);
    assert_non_null(bytes);
    feed_to(from, 1, n, want);
    for (uint32_t layer = 0; layer < h->n_layers; layer++) {
        const uint32_t start = hyperparameters_layer_windowed(h, layer) ? n - h->window : 0;
        const struct kv_run run = {layer, 1, start, n - start}, into = {layer, 0, start, n - start};
        assert_int_equal(stage_kv_read(from, &run, bytes, NULL), ERROR_NONE);
        assert_int_equal(stage_kv_write(to, &into, bytes, NULL), ERROR_NONE);
    }
    assert_int_equal(stage_kv_set_length(to, 0, n, NULL), ERROR_NONE);
    mem_free(bytes);
    assert_int_equal(stage_kv_copy(from, 1, 0, n - 60, NULL), ERROR_NONE);
    feed_to(from, 1, end, want);
    feed_to(to, 0, end, got);
    assert_memory_equal(got, want, size);
    feed_to(from, 0, end, got); /* the copy of a part */
    assert_memory_equal(got, want, size);
    stage_kv_truncate(from, 1, n + 3);
    feed_to(from, 1, end, got);
    assert_memory_equal(got, want, size);
    stage_close(from);
    stage_close(to);
    model_close(model);
}

/* A table that names experts beyond those of the layer is refused before anything computes. */
static void test_experts_that_are_not_there(void **state)
{
    (void)state;
    static const char path[] = "layer-caches-damaged.gguf";
    struct model *model = open_more("deepseek4"), *damaged;
    const struct gguf_file *file = model_file(model);
    const size_t size = gguf_file_size(file);
    const struct gguf_tensor *table = model_tensor(model, TENSOR_EXPERTS_OF_TOKEN, 0);
    const int32_t expert = (int32_t)model_hyperparameters(model)->n_experts;
    char *bytes = mem_new(size);
    FILE *out = fopen(path, "wb");
    struct error err = {0};
    struct stage *stage;
    assert_true(bytes && out && table);
    memcpy(bytes, gguf_file_bytes(file), size);
    memcpy(bytes + table->offset + table->size / 2, &expert, sizeof expert);
    assert_int_equal(fwrite(bytes, 1, size, out), size);
    assert_int_equal(fclose(out), 0);
    assert_int_equal(model_open(path, &damaged, &err), ERROR_NONE);
    const struct stage_options options = {
        .n_layers = 1, .n_slots = 1, .context = CONTEXT, .rows_max = 1};
    assert_int_equal(stage_open(cpu, damaged, &options, &stage, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "names expert 6 of 6"));
    model_close(damaged);
    model_close(model);
    mem_free(bytes);
    remove(path);
}

/* What a plan counts is what a stage takes, where the layers that share are in one of their own. */
static void test_counted_as_taken(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t first; /* of the stage; it goes to the end */
    } cases[] = {
        {"deepseek32", 0}, {"glm-dsa", 0}, {"minimax-m3", 0}, {"gemma4", 0}, {"deepseek4", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model *model = open_more(cases[i].name);
        const uint32_t n_layers = model_hyperparameters(model)->n_layers;
        struct stage *stage = open_layers(model, cases[i].first, n_layers - cases[i].first);
        uint64_t n_values = 0;
        for (uint32_t layer = cases[i].first; layer < n_layers; layer++) {
            const struct layer_cost cost = model_layer_cost(model, layer);
            const bool is_ring =
                hyperparameters_layer_windowed(model_hyperparameters(model), layer);
            n_values += cost.kv_elements_per_token * (is_ring ? RING_CELLS : CELLS) +
                        cost.kv_elements_windowed * RING_CELLS +
                        cost.draft_bytes / sizeof(float) * RING_CELLS;
        }
        assert_int_equal(stage_memory(stage).kv, 2 * n_values * sizeof(float));
        stage_close(stage);
        model_close(model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_index_keys_go_over), cmocka_unit_test(test_rings_of_summaries),
        cmocka_unit_test(test_summaries_live_on), cmocka_unit_test(test_experts_that_are_not_there),
        cmocka_unit_test(test_counted_as_taken)};
    return cmocka_run_group_tests(tests, open_device, close_device);
}
