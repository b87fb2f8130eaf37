/* Streamed layers: the same bits as when all are loaded, for every golden model; and a file that is
 * cut, or loses blocks, while it is used. `vulkan`: on software Vulkan, some of the models. */
#include "base/mem.h"
#include "engine/stage.h"
#include "gpu/gpu.h"
#include "model/model.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { MODELS_MAX = 64, PROMPT = 20, DECODED = 5, EIGHTHS = 8 };

/* For what fails: seven layers of F32, which every processor uses as stored, so that streaming
 * saves memory on all. Where Q6_K is repacked, a slot takes a layer twice: of two layers, all. */
static const char plain_model[] = "gemma3.gguf";

static struct gpu *gpu;
static struct device *device;
static const char *device_name = "cpu";
static char *names[MODELS_MAX];
static uint32_t n_models;

static int open_all(void **state)
{
    (void)state;
    struct error err = {0};
    char path[512];
    const struct gpu_options options = {.n_cpu_threads = 2,
                                        .skip_other = strcmp(device_name, "cpu") == 0};
    if (gpu_open(&options, &gpu, &err))
        fail_msg("%s", err.text);
    device = gpu_find(gpu, device_name);
    assert_non_null(device);
    snprintf(path, sizeof path, "%s/models", getenv("MEDLEY_GOLDEN"));
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir)) && n_models < MODELS_MAX;) {
        const char *end = strrchr(entry->d_name, '.');
        if (end && strcmp(end, ".gguf") == 0)
            names[n_models++] = strdup(entry->d_name);
    }
    closedir(dir);
    assert_true(n_models >= 30);
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < n_models; i++)
        free(names[i]);
    gpu_close(gpu);
    return 0;
}

static struct model *open_golden(const char *name)
{
    char path[512];
    struct model *model;
    struct error err = {0};
    snprintf(path, sizeof path, "%s/models/%s", getenv("MEDLEY_GOLDEN"), name);
    if (model_open(path, &model, &err))
        fail_msg("%s: %s", name, err.text);
    return model;
}

static struct stage_options whole(const struct model *model)
{
    return (struct stage_options){.n_layers = model_hyperparameters(model)->n_layers,
                                  .n_slots = 2,
                                  .context = 64,
                                  .rows_max = 32,
                                  .kv_type = KV_F16};
}

static enum error_code forward(struct stage *stage, uint32_t first, uint32_t n, float *out,
                               struct error *err)
{
    struct batch_row rows[PROMPT];
    for (uint32_t i = 0; i < n; i++)
        rows[i] = (struct batch_row){
            .position = first + i, .token = (int32_t)((first + i) * 7 % 200), .output = i + 1 == n};
    return stage_forward(stage, &(struct batch){.rows = rows, .n_rows = n}, NULL, out, err);
}

/* A prompt, then a token at a time; the logits after each. */
static float *generate(const struct model *model, struct stage *stage)
{
    const uint32_t n_vocab = model_hyperparameters(model)->n_vocab;
    float *logits = calloc((DECODED + 1) * (size_t)n_vocab, sizeof *logits);
    struct error err = {0};
    enum error_code code = forward(stage, 0, PROMPT, logits, &err);
    for (uint32_t i = 0; i < DECODED && !code; i++)
        code = forward(stage, PROMPT + i, 1, logits + (size_t)(i + 1) * n_vocab, &err);
    if (code)
        fail_msg("%s", err.text);
    return logits;
}

/* Whether it could be streamed within that memory. */
static bool compare(const struct model *model, uint64_t weights_max, const float *want)
{
    const size_t size =
        (DECODED + 1) * (size_t)model_hyperparameters(model)->n_vocab * sizeof *want;
    struct stage_options options = whole(model);
    struct stage *stage;
    struct error err = {0};
    options.weights_max = weights_max;
    const enum error_code code = stage_open(device, model, &options, &stage, &err);
    if (code == ERROR_NO_MEMORY && strstr(err.text, "streaming"))
        return false;
    if (code)
        fail_msg("%s: %s", model_name(model), err.text);
    assert_true(stage_memory(stage).weights <= weights_max);
    const struct stage_streaming before = stage_streaming(stage);
    float *got = generate(model, stage);
    const struct stage_streaming after = stage_streaming(stage);
    if (memcmp(want, got, size) != 0)
        fail_msg("%s: other bits with %u layers streamed", model_name(model), before.n_layers);
    assert_true(before.n_layers > 0);
    assert_true(after.n_read >= (DECODED + 1) * before.bytes);
    free(got);
    stage_close(stage);
    return true;
}

static uint32_t compare_model(const char *name)
{
    struct model *model = open_golden(name);
    struct stage_options options = whole(model);
    struct stage *stage;
    struct error err = {0};
    if (stage_open(device, model, &options, &stage, &err))
        fail_msg("%s: %s", name, err.text);
    assert_int_equal(stage_streaming(stage).n_layers, 0);
    const uint64_t weights = stage_memory(stage).weights;
    float *want = generate(model, stage);
    stage_close(stage);
    uint32_t n = 0;
    for (uint64_t k = 1; k < EIGHTHS; k++)
        n += compare(model, weights * k / EIGHTHS, want);
    free(want);
    model_close(model);
    return n;
}

static void test_same_bits_as_when_loaded(void **state)
{
    (void)state;
    uint32_t n_streamed = 0, n_ways = 0;
    for (uint32_t i = 0; i < n_models; i++) {
        const uint32_t n = compare_model(names[i]);
        n_streamed += n > 0;
        n_ways += n;
    }
    print_message("# %u models streamed, %u ways\n", n_streamed, n_ways);
    assert_true(n_streamed >= 20);
}

static void test_some_models(void **state)
{
    (void)state;
    assert_true(compare_model("llama-q6k.gguf") > 0);
    assert_true(compare_model("gemma3.gguf") > 0);
}

/* ---- what fails ---- */

static struct stage *open_copy(char *path, struct model **model)
{
    char command[1200];
    struct error err = {0};
    struct stage_options options;
    struct stage_memory memory;
    struct stage *stage = NULL;
    close(mkstemp(path));
    snprintf(command, sizeof command, "cp '%s/models/%s' '%s'", getenv("MEDLEY_GOLDEN"),
             plain_model, path);
    assert_int_equal(system(command), 0);
    assert_int_equal(model_open(path, model, &err), 0);
    options = whole(*model);
    assert_int_equal(stage_measure(device, *model, &options, &memory, &err), 0);
    for (uint64_t k = 1; k < EIGHTHS && !stage; k++) {
        options.weights_max = memory.weights * k / EIGHTHS;
        if (stage_open(device, *model, &options, &stage, &err))
            stage = NULL;
    }
    assert_non_null(stage);
    assert_true(stage_streaming(stage).n_layers > 0);
    return stage;
}

/* What was read ahead is still good; then every batch fails, and the cache stays as it was. */
static void expect_failure(struct stage *stage, const struct model *model, const char *words)
{
    float *logits = calloc(model_hyperparameters(model)->n_vocab, sizeof *logits);
    struct error err = {0};
    uint32_t at = 0;
    while (at < 8 && !forward(stage, at, 1, logits, &err))
        at++;
    assert_true(at < 8);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(forward(stage, at, 1, logits, &err), ERROR_IO);
        if (!strstr(err.text, words))
            fail_msg("'%s' does not say '%s'", err.text, words);
        assert_int_equal(stage_kv_length(stage, 0), at);
    }
    free(logits);
}

static void test_a_file_that_is_cut_fails_the_batch(void **state)
{
    (void)state;
    char path[] = "/tmp/medley-stream-XXXXXX";
    struct model *model;
    struct stage *stage = open_copy(path, &model);
    assert_int_equal(truncate(path, 8192), 0);
    expect_failure(stage, model, "cut");
    stage_close(stage);
    model_close(model);
    unlink(path);
}

/* And when the bytes are there again, the next batch is computed. */
static void test_a_hole_fails_the_batch_until_it_is_filled(void **state)
{
    (void)state;
    char path[] = "/tmp/medley-stream-XXXXXX";
    struct model *model;
    struct stage *stage = open_copy(path, &model);
    const int descriptor = open(path, O_RDWR);
    const off_t size = (off_t)gguf_file_size(model_file(model));
    const off_t first = size / 3 / 4096 * 4096, length = 1 << 17;
    char *bytes = malloc((size_t)length);
    float *logits = calloc(model_hyperparameters(model)->n_vocab, sizeof *logits);
    struct error err = {0};
    assert_int_equal(fsync(descriptor), 0);
    assert_int_equal(pread(descriptor, bytes, (size_t)length, first), length);
    if (fallocate(descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, first, length) != 0) {
        print_message("# this file system makes no holes\n");
    } else {
        expect_failure(stage, model, "lost blocks");
        const uint32_t length_before = stage_kv_length(stage, 0);
        assert_int_equal(pwrite(descriptor, bytes, (size_t)length, first), length);
        assert_int_equal(fsync(descriptor), 0);
        if (forward(stage, length_before, 1, logits, &err)) /* read ahead before it was filled */
            assert_int_equal(forward(stage, length_before, 1, logits, &err), 0);
        assert_int_equal(stage_kv_length(stage, 0), length_before + 1);
    }
    free(logits);
    free(bytes);
    close(descriptor);
    stage_close(stage);
    model_close(model);
    unlink(path);
}

static void test_failing_allocations_leak_nothing(void **state)
{
    (void)state;
    struct model *model = open_golden(plain_model);
    struct stage_options options = whole(model);
    struct stage_memory memory;
    struct error err = {0};
    uint32_t n_failed = 0, n_opened = 0;
    assert_int_equal(stage_measure(device, model, &options, &memory, &err), 0);
    options.weights_max = memory.weights * 7 / EIGHTHS;
    for (unsigned nth = 1; nth < 48; nth++) {
        struct stage *stage = NULL;
        mem_fail_nth(nth);
        const enum error_code code = stage_open(device, model, &options, &stage, &err);
        mem_fail_nth(0);
        assert_true(!code || code == ERROR_NO_MEMORY);
        n_failed += code != ERROR_NONE;
        n_opened += code == ERROR_NONE;
        if (!code)
            assert_true(stage_streaming(stage).n_layers > 0);
        if (!code)
            stage_close(stage);
    }
    assert_true(n_failed > 5 && n_opened > 0);
    model_close(model);
}

static void test_too_little_memory_says_what_is_least(void **state)
{
    (void)state;
    struct model *model = open_golden("llama-q6k.gguf");
    struct stage_options options = whole(model);
    struct stage *stage;
    struct error err = {0};
    options.weights_max = 4096;
    assert_int_equal(stage_open(device, model, &options, &stage, &err), ERROR_NO_MEMORY);
    assert_non_null(strstr(err.text, "at least"));
    model_close(model);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest cpu[] = {
        cmocka_unit_test(test_same_bits_as_when_loaded),
        cmocka_unit_test(test_a_file_that_is_cut_fails_the_batch),
        cmocka_unit_test(test_a_hole_fails_the_batch_until_it_is_filled),
        cmocka_unit_test(test_failing_allocations_leak_nothing),
        cmocka_unit_test(test_too_little_memory_says_what_is_least),
    };
    const struct CMUnitTest vulkan[] = {
        cmocka_unit_test(test_some_models),
        cmocka_unit_test(test_a_file_that_is_cut_fails_the_batch),
    };
    if (argc > 1 && strcmp(argv[1], "vulkan") == 0)
        device_name = "vulkan0";
    return argc > 1 ? cmocka_run_group_tests(vulkan, open_all, close_all)
                    : cmocka_run_group_tests(cpu, open_all, close_all);
}
