/* A device's figures and their sources; and the forecast by hand. */
#include "plan/plan.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* ---- a device's figures ------------------------------------------------------------------- */

static struct placement_layer layer;
static struct placement_model two_types(void)
{
    layer = (struct placement_layer){.bytes = {1000000, 100}};
    return (struct placement_model){
        .n_types = 2, .type_names = {"q4_0", "f32"}, .n_layers = 1, .layers = &layer};
}

static const struct device_info a_gpu = {.id = "vulkan0", .backend = "vulkan", .kind = DEVICE_GPU};

/* As plans of two types take it. */
static void describe(const struct plan_device_facts *facts, struct placement_device *out)
{
    const struct placement_model model_cost = two_types();
    struct cluster_device device;
    plan_device_describe(facts, &device);
    cluster_device_describe(&device, &model_cost, out);
}

static void test_given_figures(void **state)
{
    (void)state;
    const struct device_speed speed = {1e9, 2e12, 3e9, 4e-5};
    const struct plan_device_facts facts = {.info = &a_gpu, .memory = {500, 1000}, .given = &speed};
    struct placement_device device;
    describe(&facts, &device);
    assert_true(device.decode_bytes_per_s[0] == 1e9 && device.decode_bytes_per_s[1] == 1e9);
    assert_true(device.prefill_flops[0] == 2e12 && device.kv_bytes_per_s == 0); /* as the types */
    assert_true(device.copy_bytes_per_s == 3e9 && device.launch_s == 4e-5);
    assert_true(device.measured && device.share == 1 && device.memory_free_bytes == 500);
    assert_int_equal(device.reserve_bytes, 0);
    assert_string_equal(device.id, "vulkan0");
    const struct plan_device_facts boundless = {.info = &a_gpu, .given = &speed};
    describe(&boundless, &device);
    assert_true(device.memory_free_bytes == PLACEMENT_BYTES_MAX);
}

static void test_calibrated_figures(void **state)
{
    (void)state;
    struct device_calibration calibration = {
        .n_types = 2,
        .types = {{"q8_0", {8e9, 0.01, 5}, {3e11, 0.01, 5}},
                  {"q4_0", {9e9, 0.02, 5}, {4e11, 0.05, 5}}},
        .write_bytes_per_s = {6e9, 0, 5},
        .read_bytes_per_s = {5e9, 0, 5},
        .launch_ns = {7000, 0, 5},
    };
    const struct plan_device_facts facts = {.info = &a_gpu, .calibration = &calibration};
    struct placement_device device;
    describe(&facts, &device);
    assert_true(device.decode_bytes_per_s[0] == 9e9 && device.prefill_flops[0] == 4e11);
    assert_true(device.decode_bytes_per_s[1] == 8e9 &&
                device.prefill_flops[1] == 3e11); /* the slowest */
    assert_true(device.kv_bytes_per_s == 8e9 && device.copy_bytes_per_s == 5e9);
    assert_true(fabs(device.launch_s - 7e-6) < 1e-12 && device.spread == 0.02 && device.measured);
    strcpy(calibration.types[1].name, "q6_K"); /* most of the model is of no measured type now */
    describe(&facts, &device);
    assert_true(device.decode_bytes_per_s[0] == 8e9 && !device.measured);
    calibration.n_types = 0; /* nothing of use */
    describe(&facts, &device);
    assert_true(device.decode_bytes_per_s[0] > 0 && !device.measured);
}

/* A card that nobody measured, of a name that is known. */
static void test_published_figures(void **state)
{
    (void)state;
    const struct device_info info = {
        .name = "NVIDIA GeForce RTX 3060", .backend = "cuda", .kind = DEVICE_GPU};
    const struct plan_device_facts facts = {.info = &info};
    struct placement_device device;
    describe(&facts, &device);
    assert_true(fabs(device.decode_bytes_per_s[0] - 0.7 * 360e9) < 1 &&
                device.prefill_flops[0] > 1e12);
    assert_false(device.measured);
}

static double guess_of(enum device_kind kind, const char *backend)
{
    struct device_info info = {.kind = kind};
    strcpy(info.backend, backend);
    const struct plan_device_facts facts = {.info = &info};
    struct placement_device device;
    describe(&facts, &device);
    assert_true(!device.measured && device.prefill_flops[0] == 0 && device.spread == 0);
    assert_true(device.decode_bytes_per_s[0] == device.decode_bytes_per_s[1]);
    return device.decode_bytes_per_s[0];
}

/* A card before the CPU, and software that plays a GPU behind everything. */
static void test_guessed_figures(void **state)
{
    (void)state;
    assert_true(guess_of(DEVICE_GPU, "cuda") > guess_of(DEVICE_INTEGRATED_GPU, "vulkan"));
    assert_true(guess_of(DEVICE_GPU, "vulkan") > guess_of(DEVICE_CPU, "cpu"));
    assert_true(guess_of(DEVICE_CPU, "cpu") > guess_of(DEVICE_CPU, "vulkan"));
}

/* ---- the forecast, by hand ---------------------------------------------------------------- */

/* Two devices of 1 and 2 GB/s and 1 and 4 GFLOP/s; four layers of 1 MB and 1 MFLOP a token, a head
 * of 2 MB. */
struct plain {
    struct placement_device devices[2];
    struct placement_link links[4];
    struct placement_layer layers[4];
    struct placement_problem problem;
};

static void make_plain(struct plain *plain)
{
    *plain = (struct plain){0};
    for (uint32_t i = 0; i < 4; i++) {
        plain->layers[i].bytes[0] = plain->layers[i].bytes_per_token[0] = 1000000;
        plain->layers[i].flops_per_token[0] = 1e6;
        plain->layers[i].kv_bytes_per_token = 100;
        plain->links[i] = (struct placement_link){1e-4, 1e6};
    }
    for (uint32_t i = 0; i < 2; i++) {
        plain->devices[i] =
            (struct placement_device){.memory_free_bytes = 1 << 30, .share = 1, .measured = true};
        plain->devices[i].decode_bytes_per_s[0] = i ? 2e9 : 1e9;
        plain->devices[i].prefill_flops[0] = i ? 4e9 : 1e9;
        plain->devices[i].copy_bytes_per_s = i ? 0 : 1e6;
        plain->devices[i].launch_s = 1e-5;
    }
    plain->problem = (struct placement_problem){
        .n_devices = 2,
        .devices = plain->devices,
        .links = plain->links,
        .model = {.n_types = 1,
                  .n_layers = 4,
                  .layers = plain->layers,
                  .activation_bytes_per_token = 10},
        .demand = {.context_tokens = 1000,
                   .streams = 3,
                   .goal = PLACEMENT_THROUGHPUT,
                   .chunk_tokens = 100},
    };
    plain->problem.model.output.bytes[0] = plain->problem.model.output.bytes_per_token[0] = 2000000;
    plain->problem.model.output.flops_per_token[0] = 2e6;
    plain->problem.model.output_bytes_per_token = 40;
}

static void near(double a, double b)
{
    if (!(fabs(a - b) <= 1e-9 * fabs(b)))
        fail_msg("%.12g is not %.12g", a, b);
}

static void test_a_forecast_by_hand(void **state)
{
    (void)state;
    struct plain plain;
    make_plain(&plain);
    const struct placement both = {2, {{0, 0, 1}, {1, 1, 3}}};
    const struct plan_work work = {.n_prompt = 150, .n_cached = 50, .n_generated = 20};
    struct plan_forecast forecast;
    plan_forecast(&plain.problem, &both, &work, &forecast);
    /* 210 tokens behind a token; one stream, whatever the demand */
    const double first = 1e-5 + (4 + 10) / 1e6 + (1e6 + 210 * 100) / 1e9;
    const double second = 1e-5 + 3 * (1e6 + 210 * 100) / 2e9 + 2e6 / 2e9;
    const double hops = 1e-4 + 10 / 1e6 + 1e-4 + 4 / 1e6;
    near(forecast.decode_tokens_per_s, 1 / (first + second + hops));
    assert_true(forecast.measured && forecast.decode_spread == 0);
    /* Calls cost next to nothing, so chunks are the shortest, in steps of 8. Computing, 1 ms a row
     * and 3/4, takes longer than reading; the head comes last. */
    static const double rows[] = {32, 32, 24, 32, 30};
    double ends[2] = {0};
    for (int i = 0; i < 5; i++) {
        ends[0] += rows[i] * 1e-3 + 1e-5 + rows[i] * 14 / 1e6;
        ends[1] = fmax(ends[1], ends[0] + 1e-4 + rows[i] * 10 / 1e6) + rows[i] * 0.75e-3 + 1e-5;
    }
    near(forecast.prefill_s, ends[1] + 2e6 / 2e9);
    near(forecast.prefill_tokens_per_s, 150 / forecast.prefill_s);
}

static void test_a_forecast_of_what_is_not_known(void **state)
{
    (void)state;
    struct plain plain;
    make_plain(&plain);
    plain.devices[1].prefill_flops[0] = 0;
    plain.devices[1].measured = false;
    const struct placement both = {2, {{0, 0, 1}, {1, 1, 3}}}, one = {1, {{0, 0, 4}}};
    const struct plan_work work = {.n_prompt = 1};
    struct plan_forecast forecast;
    plan_forecast(&plain.problem, &both, &work, &forecast);
    assert_true(forecast.prefill_s == 0 && forecast.prefill_tokens_per_s == 0 &&
                !forecast.measured);
    assert_true(forecast.decode_tokens_per_s > 0);
    plan_forecast(&plain.problem, &one, &work, &forecast);
    assert_true(forecast.prefill_tokens_per_s > 0 && forecast.measured);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_given_figures),
        cmocka_unit_test(test_calibrated_figures),
        cmocka_unit_test(test_published_figures),
        cmocka_unit_test(test_guessed_figures),
        cmocka_unit_test(test_a_forecast_by_hand),
        cmocka_unit_test(test_a_forecast_of_what_is_not_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
