/* Rotations by flag: they give what the file's own keys give, by llama.cpp's logits; YaRN is the
 * paper's; and what contradicts itself is refused. */
#include "gpu/device_ggml.h"
#include "gpu/gpu.h"
#include "model/model.h"
#include "pipeline/driver.h"

#include <ggml-backend.h>
#include <ggml.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <yyjson.h>

#include <cmocka.h>

enum { ROWS = 32, VOCAB = 320 };

static float logits[ROWS * VOCAB], expected[ROWS * VOCAB];

static const char *golden(const char *name, const char *ending)
{
    static char path[8][1024];
    static int next;
    next = (next + 1) % 8;
    snprintf(path[next], sizeof path[next], "%s/models/%s%s", getenv("MEDLEY_GOLDEN"), name,
             ending);
    return path[next];
}

static size_t read_whole(const char *path, void *out, size_t size)
{
    FILE *file = fopen(path, "re");
    if (!file)
        fail_msg("cannot open %s", path);
    const size_t n = fread(out, 1, size, file);
    fclose(file);
    return n;
}

/* A copy whose keys about scaling nobody knows: the model, as if it were not scaled. */
static void write_unscaled(const char *name, char path[])
{
    static char bytes[4 << 20];
    static const char key[] = ".rope.scaling.";
    const size_t n = read_whole(golden(name, ".gguf"), bytes, sizeof bytes);
    int found = 0;
    for (size_t i = 0; i + sizeof key < n && i < 65536; i++) {
        if (memcmp(bytes + i, key, sizeof key - 1) == 0) {
            bytes[i + 6] = 'S';
            found++;
        }
    }
    assert_true(found > 0);
    const int fd = mkstemps(path, 5);
    assert_true(fd >= 0 && write(fd, bytes, n) == (ssize_t)n);
    close(fd);
}

static char *ids_of(const char *name, const char *key)
{
    yyjson_doc *doc = yyjson_read_file(golden(name, ".json"), 0, NULL, NULL);
    char *json = yyjson_val_write(yyjson_obj_get(yyjson_doc_get_root(doc), key), 0, NULL);
    assert_non_null(json);
    json[strlen(json) - 1] = 0;
    yyjson_doc_free(doc);
    return json;
}

/* All of the reference's tokens, given as a prompt, with these flags. */
static void compute(const char *model, const char *name, const char *flags)
{
    char line[4096], out[] = "/tmp/medley-rope-XXXXXX";
    char *prompt = ids_of(name, "prompt"), *greedy = ids_of(name, "greedy");
    close(mkstemp(out));
    snprintf(line, sizeof line,
             "\"$MEDLEY_BINARY\" logits '%s' --devices cpu -t 1 --kv f32 --flash off --no-repack "
             "--tokens %s,%s --out %s %s",
             model, prompt + 1, greedy + 1, out, flags);
    assert_int_equal(system(line), 0);
    assert_int_equal(read_whole(out, logits, sizeof logits), sizeof logits);
    remove(out);
    free(prompt);
    free(greedy);
}

static double largest_difference(void)
{
    double most = 0;
    for (size_t i = 0; i < ROWS * VOCAB; i++)
        most = fmax(most, fabs((double)logits[i] - (double)expected[i]));
    return most;
}

static void test_flags_give_what_the_file_would(void **state)
{
    static const struct {
        const char *name, *flags;
        double most; /* of the reference's README; GELU is rounded otherwise */
    } cases[] = {
        {"llama-yarn", "--rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 64", 1e-4},
        {"llama-linear", "--rope-scaling linear --rope-scale 4", 1e-4},
        {"llama-linear", "--rope-scale 4", 1e-4},
        {"gemma3-linear", "--rope-scaling linear --rope-scale 8", 1e-2},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char copy[] = "/tmp/medley-rope-XXXXXX.gguf";
        write_unscaled(cases[i].name, copy);
        assert_int_equal(
            read_whole(golden(cases[i].name, ".logits.f32"), expected, sizeof expected),
            sizeof expected);
        compute(copy, cases[i].name, "");
        assert_true(largest_difference() > 0.1); /* it matters */
        compute(copy, cases[i].name, cases[i].flags);
        if (largest_difference() > cases[i].most)
            fail_msg("%s %s: %g", cases[i].name, cases[i].flags, largest_difference());
        remove(copy);
    }
}

static void test_by_one_is_none(void **state)
{
    static const char *const flags[] = {"--rope-scaling linear --rope-scale 1",
                                        "--rope-scaling none", "--rope-scaling yarn --rope-scale 1",
                                        "--rope-freq-base 10000"};
    (void)state;
    compute(golden("llama", ".gguf"), "llama", "");
    memcpy(expected, logits, sizeof logits);
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        compute(golden("llama", ".gguf"), "llama", flags[i]);
        assert_memory_equal(logits, expected, sizeof logits);
    }
    compute(golden("llama", ".gguf"), "llama", "--rope-freq-base 20000");
    assert_true(largest_difference() > 0.01);
}

static enum error_code stretched(const char *name, struct rope_stretch stretch,
                                 struct hyperparameters *out, struct error *err)
{
    struct model *model;
    if (model_open(golden(name, ".gguf"), &model, err))
        fail_msg("%s", err->text);
    const enum error_code code = model_stretch(model, &stretch, err);
    *out = *model_hyperparameters(model);
    model_close(model);
    return code;
}

/* ---- YaRN ------------------------------------------------------------------------------------ */

enum { DIMS = 64, TRAINED = 4096, POSITIONS = 4 };

/* arXiv:2309.00071, 3.2 and 3.4, in double precision; the ramp runs over the dimensions, as in its
 * authors' code (with 32 and 1 rotations for beta and alpha). *times: rotations in TRAINED tokens.
 */
static double yarn_angle(uint32_t pair, double factor, double base, double position, double *times)
{
    const double pi = acos(-1), slow = log(TRAINED / (2 * pi)), dim = 2 * log(base) / DIMS;
    const double theta = pow(base, -2.0 * pair / DIMS);
    const double low = fmax(0, floor((slow - log(32)) / dim));
    const double high = fmin(DIMS - 1, ceil(slow / dim));
    const double share = 1 - fmin(1, fmax(0, (pair - low) / fmax(0.001, high - low)));
    *times = TRAINED * theta / (2 * pi);
    return position * (theta / factor * (1 - share) + theta * share);
}

static void rotate_ones(const struct hyperparameters *h, const int32_t positions[POSITIONS],
                        float out[POSITIONS][DIMS])
{
    struct error err;
    struct gpu *gpu;
    struct gpu_options options = {.backend = "cpu", .n_cpu_threads = 1};
    if (gpu_open(&options, &gpu, &err))
        fail_msg("%s", err.text);
    ggml_backend_t cpu = device_ggml_backend(gpu_find(gpu, "cpu"));
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){
        .mem_size = 8 * ggml_tensor_overhead() + ggml_graph_overhead(), .no_alloc = true});
    struct ggml_tensor *x = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, DIMS, 1, POSITIONS);
    struct ggml_tensor *at = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, POSITIONS);
    struct ggml_tensor *y =
        ggml_rope_ext(ctx, x, at, NULL, DIMS, GGML_ROPE_TYPE_NORMAL, (int)h->n_context_original,
                      h->rope_base, h->rope_frequency_scale, h->yarn_ext_factor,
                      h->yarn_attn_factor, h->yarn_beta_fast, h->yarn_beta_slow);
    struct ggml_cgraph *graph = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, y);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(ctx, cpu);
    for (int i = 0; i < DIMS * POSITIONS; i++)
        ((float *)x->data)[i] = i % 2 ? 0 : 1;
    memcpy(at->data, positions, sizeof *positions * POSITIONS);
    assert_int_equal(ggml_backend_graph_compute(cpu, graph), GGML_STATUS_SUCCESS);
    memcpy(out, y->data, sizeof(float) * POSITIONS * DIMS);
    ggml_backend_buffer_free(buffer);
    ggml_free(ctx);
    gpu_close(gpu);
}

static void test_yarn_is_the_papers(void **state)
{
    static const int32_t positions[POSITIONS] = {0, 1, 40, 700};
    static struct hyperparameters h;
    float rotated[POSITIONS][DIMS];
    const double factor = 8, length = 1 + 0.1 * log(factor);
    uint32_t n_fast = 0, n_slow = 0, n_between = 0;
    const struct rope_stretch stretch = {ROPE_CHOOSE_YARN, 8, 0, TRAINED};
    struct error err;
    (void)state;
    assert_int_equal(stretched("llama", stretch, &h, &err), 0);
    rotate_ones(&h, positions, rotated);
    for (uint32_t p = 0; p < POSITIONS; p++) {
        for (uint32_t pair = 0; pair < DIMS / 2; pair++) {
            double times;
            const double angle = yarn_angle(pair, factor, 10000, positions[p], &times);
            const double plain = positions[p] * pow(10000, -2.0 * pair / DIMS);
            if (times > 32) /* often enough in what it was trained for: as it was */
                assert_true(fabs(angle - plain) < 1e-9 * (1 + plain) && ++n_fast);
            else if (times < 1) /* never once: interpolated */
                assert_true(fabs(angle - plain / factor) < 1e-9 && ++n_slow);
            else
                n_between++;
            assert_true(fabs((double)rotated[p][2 * pair] - length * cos(angle)) < 1e-3);
            assert_true(fabs((double)rotated[p][2 * pair + 1] - length * sin(angle)) < 1e-3);
        }
    }
    assert_true(n_fast && n_slow && n_between);
}

/* ---- what is set, and how far it reaches ----------------------------------------------------- */

static void expect_reach(const char *name, struct rope_stretch stretch, uint32_t reach)
{
    static struct hyperparameters h;
    struct error err;
    if (stretched(name, stretch, &h, &err))
        fail_msg("%s", err.text);
    assert_int_equal(h.n_context_train, reach);
}

static void test_how_far_it_reaches(void **state)
{
    (void)state;
    expect_reach("llama", (struct rope_stretch){0}, 512);
    expect_reach("llama", (struct rope_stretch){ROPE_CHOOSE_YARN, 4, 0, 0}, 2048);
    expect_reach("llama", (struct rope_stretch){ROPE_CHOOSE_YARN, 4, 0, 100}, 400);
    expect_reach("llama", (struct rope_stretch){0, 2, 0, 0}, 1024);
    expect_reach("llama", (struct rope_stretch){ROPE_CHOOSE_LINEAR, 0, 0, 0}, 512);
    expect_reach("llama-linear", (struct rope_stretch){ROPE_CHOOSE_NONE, 0, 0, 0}, 128);
    expect_reach("llama-linear", (struct rope_stretch){0, 8, 0, 0}, 1024);
    expect_reach("llama-yarn", (struct rope_stretch){0, 8, 0, 0}, 512);
    /* 16 rotated dimensions: a base 2^(16/14) times as large reaches twice as far */
    expect_reach("llama", (struct rope_stretch){0, 0, 22090, 0}, 1024);
    expect_reach("llama", (struct rope_stretch){0, 0, 5000, 0}, 512);
}

static void expect_refused(const char *name, struct rope_stretch stretch, enum error_code code,
                           const char *text)
{
    static struct hyperparameters h;
    struct error err = {0};
    assert_int_equal(stretched(name, stretch, &h, &err), code);
    if (!strstr(err.text, text))
        fail_msg("'%s' does not say '%s'", err.text, text);
}

static void test_what_makes_no_sense_is_refused(void **state)
{
    (void)state;
    expect_refused("llama", (struct rope_stretch){0, 0.5F, 0, 0}, ERROR_INVALID, "--rope-scale");
    expect_refused("llama", (struct rope_stretch){0, NAN, 0, 0}, ERROR_INVALID, "--rope-scale");
    expect_refused("llama", (struct rope_stretch){0, 2000, 0, 0}, ERROR_INVALID, "--rope-scale");
    expect_refused("llama", (struct rope_stretch){0, 0, -1, 0}, ERROR_INVALID, "--rope-freq-base");
    expect_refused("llama", (struct rope_stretch){ROPE_CHOOSE_NONE, 2, 0, 0}, ERROR_INVALID,
                   "linear or yarn");
    expect_refused("llama", (struct rope_stretch){ROPE_CHOOSE_LINEAR, 2, 0, 64}, ERROR_INVALID,
                   "--rope-scaling yarn");
    expect_refused("phi3-longrope", (struct rope_stretch){ROPE_CHOOSE_YARN, 2, 0, 0},
                   ERROR_UNSUPPORTED, "factor of its own");
}

static void test_a_context_beyond_it_is_refused_with_what_to_do(void **state)
{
    struct model *model;
    struct error err;
    (void)state;
    assert_int_equal(model_open(golden("llama", ".gguf"), &model, &err), 0);
    assert_int_equal(driver_check_context(model, 512, &err), 0);
    assert_int_equal(driver_check_context(model, 1025, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "-c 512"));
    assert_non_null(strstr(err.text, "--rope-scale 3"));
    const struct rope_stretch stretch = {ROPE_CHOOSE_YARN, 3, 0, 0};
    assert_int_equal(model_stretch(model, &stretch, &err), 0);
    assert_int_equal(driver_check_context(model, 1025, &err), 0);
    model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flags_give_what_the_file_would),
        cmocka_unit_test(test_by_one_is_none),
        cmocka_unit_test(test_yarn_is_the_papers),
        cmocka_unit_test(test_how_far_it_reaches),
        cmocka_unit_test(test_what_makes_no_sense_is_refused),
        cmocka_unit_test(test_a_context_beyond_it_is_refused_with_what_to_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
