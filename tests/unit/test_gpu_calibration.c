/* gpu: calibration. Its statistics on made-up samples, its order on fakes, and a short real one on
 * the devices that there are. With the argument `vulkan` also on software Vulkan, and the split of
 * layers that follows from it. */
#include "base/clock.h"
#include "base/limits.h"
#include "base/mem.h"
#include "gpu/calibrate.h"
#include "gpu/calibration_statistics.h"
#include "gpu/registry.h"
#include "gpu_fake.h"
#include "model/model.h"
#include "plan/plan.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- statistics ------------------------------------------------------------------------ */

static void test_medians_and_spreads(void **state)
{
    (void)state;
    struct device_measurement found = measurement_of((double[]){5}, 1);
    assert_true(found.median == 5 && found.spread == 0 && found.n_runs == 1);
    found = measurement_of((double[]){4, 1, 3, 2}, 4);
    assert_true(found.median == 2.5 && found.n_runs == 4);
    /* deviations 0 1 1 2 95, their median 1 */
    found = measurement_of((double[]){100, 4, 5, 6, 7}, 5);
    assert_true(found.median == 6 && fabs(found.spread - 1.4826 / 6) < 1e-12);
    found = measurement_of((double[]){7, -1, NAN, INFINITY, 0, 9}, 6);
    assert_true(found.median == 8 && found.n_runs == 2);
    found = measurement_of((double[]){NAN, -INFINITY, 0}, 3);
    assert_true(found.median == 0 && found.n_runs == 0);
    found = measurement_of(NULL, 0);
    assert_int_equal(found.n_runs, 0);
}

static void test_rates(void **state)
{
    (void)state;
    /* 1000 bytes in 1, 2 and 4 us */
    struct device_measurement found = measurement_rate((double[]){4000, 1000, 2000}, 3, 1000);
    assert_true(fabs(found.median - 5e8) < 1 && found.n_runs == 3);
    found = measurement_rate((double[]){0, -5}, 2,
                             1000); /* a clock that stands still measures nothing */
    assert_int_equal(found.n_runs, 0);
}

static void test_a_summary_takes_the_best(void **state)
{
    (void)state;
    struct device_calibration calibration = {0};
    struct calibration_summary summary = calibration_summarize(&calibration);
    assert_false(summary.bandwidth_mb_per_s.valid || summary.peak_mflops.valid);
    calibration = (struct device_calibration){
        .n_types = 3,
        .types = {{"f16", {9e12, 0, 3}, {1e12, 0, 3}},
                  {"q8_0", {2e9, 0, 3}, {5e12, 0, 3}},
                  {"q4_0", {3e9, 0, 3}, {0}}},
    };
    summary = calibration_summarize(&calibration);
    assert_int_equal(summary.bandwidth_mb_per_s.value, 3000); /* of q4_0 and q8_0 */
    assert_int_equal(summary.peak_mflops.value, 5000000);
    assert_true(summary.bandwidth_mb_per_s.valid && summary.peak_mflops.valid);
}

static void test_growing_products(void **state)
{
    (void)state;
    assert_int_equal(calibration_grow(64, 100, 100, 4096), 64);
    assert_int_equal(calibration_grow(64, 50, 100, 4096), 128);
    assert_int_equal(calibration_grow(64, 13, 100, 4096), 256);
    assert_int_equal(calibration_grow(64, 1e-9, 100, 4096), 4096);
    assert_int_equal(calibration_grow(64, 0, 100, 4096), 4096);
    assert_int_equal(calibration_grow(4096, 1, 100, 4096), 4096);
}

/* ---- sampling -------------------------------------------------------------------------- */

struct counted {
    int n_runs, fails_at;
    uint32_t sleep_us;
};

static bool run_counted(void *self)
{
    struct counted *counted = self;
    if (counted->sleep_us)
        usleep(counted->sleep_us);
    return ++counted->n_runs != counted->fails_at;
}

static void test_sampling(void **state)
{
    (void)state;
    struct device_measurement found;
    struct measure_budget sampler = {.budget_ns = 1, .end_ns = UINT64_MAX};
    struct counted counted = {.fails_at = 1};
    assert_false(
        sampler_run(&sampler, run_counted, &counted, 1, &found)); /* the run that warms up */
    counted = (struct counted){.fails_at = 3};
    sampler.budget_ns = 1000000000;
    assert_false(sampler_run(&sampler, run_counted, &counted, 1, &found));
    assert_int_equal(found.n_runs, 0);
    counted = (struct counted){0};
    assert_true(
        sampler_run(&sampler, run_counted, &counted, 0, &found)); /* fast: until there are enough */
    assert_int_equal(counted.n_runs, 1 + SAMPLES_MAX);
    counted = (struct counted){.sleep_us = 2000};
    sampler.budget_ns = 1000000;
    assert_true(sampler_run(&sampler, run_counted, &counted, 1000,
                            &found)); /* slow: one fits, some more are taken */
    assert_in_range(counted.n_runs, 2, 1 + 3);
    assert_true(found.median > 0 && found.median <= 1000 / 0.002);
    counted = (struct counted){0};
    sampler.end_ns = clock_now_ns(); /* no time at all */
    assert_false(sampler_run(&sampler, run_counted, &counted, 1, &found));
    assert_int_equal(counted.n_runs, 0);
}

/* ---- fakes ----------------------------------------------------------------------------- */

static struct device *open_fake(const struct device_impl *impl, struct fake_family *family)
{
    static const struct gpu_options no_wishes;
    struct device_info info;
    struct device *device;
    impl->get(family, 0, &info);
    struct error err;
    if (device_open(impl, family, 0, &no_wishes, 60000, &info, &device, &err))
        fail_msg("%s", err.text);
    return device;
}

struct seen {
    uint32_t n, last, total;
};

static void see_progress(void *user, const char *device_id, const char *what, uint32_t done,
                         uint32_t total)
{
    struct seen *seen = user;
    assert_true(device_id[0] && what[0] && done <= total && done >= seen->last);
    *seen = (struct seen){seen->n + 1, done, total};
}

static void test_copies_of_fakes_are_measured(void **state)
{
    (void)state;
    struct fake_family family = {0};
    struct device *one = open_fake(&fake_impl, &family),
                  *two = open_fake(&fake_impl_minimal, &family);
    struct seen seen = {0};
    const struct calibration_options options = {
        .budget_ms = 30, .progress = see_progress, .user = &seen};
    struct device_calibration found;
    assert_int_equal(calibrate_device(one, &options, &found, NULL), ERROR_NONE);
    assert_true(found.write_bytes_per_s.n_runs && found.read_bytes_per_s.n_runs);
    assert_int_equal(found.n_types, 0); /* nothing that ggml could compute with */
    assert_int_equal(found.launch_ns.n_runs, 0);
    assert_true(found.unix_s > 1600000000);
    assert_int_equal(seen.last, seen.total);
    struct device_measurement pair;
    assert_int_equal(calibrate_pair(one, two, NULL, &pair, NULL), ERROR_NONE);
    assert_true(pair.median > 1e6);
    assert_null(device_calibration(one));
    device_set_calibration(one, &found);
    assert_ptr_not_equal(device_calibration(one), NULL);
    assert_false(device_info(one)->bandwidth_mb_per_s.valid);
    assert_int_equal(family.n_allocated, 0);
    device_close(one);
    device_close(two);
}

static void test_a_device_that_fails_later(void **state)
{
    (void)state;
    struct fake_family family = {0};
    struct device *device = open_fake(&fake_impl, &family);
    const struct calibration_options options = {.budget_ms = 30};
    struct device_calibration found;
    struct error err;
    family.fault = FAKE_ALLOC_FAILS;
    assert_int_equal(calibrate_device(device, &options, &found, &err), ERROR_DEVICE);
    assert_non_null(strstr(err.text, "nothing could be measured"));
    family.fault = FAKE_READ_FAILS;
    assert_int_equal(calibrate_device(device, &options, &found, &err), ERROR_NONE);
    assert_true(found.write_bytes_per_s.n_runs);
    assert_int_equal(found.read_bytes_per_s.n_runs, 0);
    assert_int_equal(family.n_allocated, 0);
    device_close(device);
}

static enum error_code copy_for_ever(void *self, void *to, uint64_t offset, const void *from,
                                     uint64_t size, struct error *err)
{
    for (;;)
        pause();
    return ERROR_NONE;
}

static void test_a_device_that_hangs_is_given_up(void **state)
{
    (void)state;
    static struct fake_family family; /* its thread never returns */
    static struct device_impl hanging;
    hanging = fake_impl;
    struct device *device = open_fake(&hanging, &family);
    hanging.copy_to = copy_for_ever;
    const struct calibration_options options = {.budget_ms = 30, .limit_ms = 3000};
    struct device_calibration found;
    struct error err;
    assert_int_equal(calibrate_device(device, &options, &found, &err), ERROR_DEVICE);
    assert_non_null(strstr(err.text, "did not answer within 3 s of calibration"));
    assert_true(device_is_lost(device));
    device_close(device); /* returns, though the thread does not */
}

static void test_every_failed_allocation_is_survived(void **state)
{
    (void)state;
    struct fake_family family = {0};
    struct device *device = open_fake(&fake_impl, &family);
    const struct calibration_options options = {.budget_ms = 10};
    struct device_calibration found;
    for (unsigned nth = 1; nth < 8; nth++) {
        mem_fail_nth(nth);
        enum error_code code = calibrate_device(device, &options, &found, NULL);
        mem_fail_nth(0);
        assert_true(code == ERROR_NONE || code == ERROR_NO_MEMORY || code == ERROR_DEVICE);
        assert_int_equal(family.n_allocated, 0);
    }
    device_close(device);
}

/* ---- real devices ---------------------------------------------------------------------- */

static char folder[64], path[128];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/medley-calibration-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/devices.json", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    char lock[160];
    snprintf(lock, sizeof lock, "%s.lock", path);
    unlink(path);
    unlink(lock);
    return rmdir(folder);
}

static struct gpu *open_gpu(void)
{
    /* no prober: this program's main() is not one */
    const struct gpu_options options = {.registry = path,
                                        .skip_other = !getenv("GGML_VK_VISIBLE_DEVICES")};
    struct gpu *gpu;
    struct error err;
    if (gpu_open(&options, &gpu, &err))
        fail_msg("%s", err.text);
    return gpu;
}

static void check_calibration(const struct device *device, uint32_t n_devices)
{
    const struct device_calibration *found = device_calibration(device);
    assert_non_null(found);
    assert_true(found->n_types >= 1 && found->launch_ns.n_runs >= 1);
    assert_true(found->write_bytes_per_s.n_runs && found->read_bytes_per_s.n_runs);
    assert_int_equal(found->n_peers, n_devices - 1);
    bool q4_0 = false;
    for (uint32_t i = 0; i < found->n_types; i++) {
        const struct calibration_type *type = &found->types[i];
        q4_0 = q4_0 || strcmp(type->name, "q4_0") == 0;
        assert_true(type->decode_bytes_per_s.median > 1e6 &&
                    type->decode_bytes_per_s.median < 1e14);
        assert_true(type->prefill_flops.median > 1e6 && type->prefill_flops.median < 1e17);
    }
    assert_true(q4_0);
    assert_true(device_info(device)->bandwidth_mb_per_s.valid &&
                device_info(device)->peak_mflops.valid);
}

static void test_real_devices_are_measured_and_remembered(void **state)
{
    (void)state;
    unlink(path);
    struct gpu *gpu = open_gpu();
    struct seen seen = {0};
    uint32_t n_devices = gpu_device_count(gpu);
    for (uint32_t i = 0; i < n_devices; i++) {
        struct device *device = gpu_device(gpu, i);
        assert_null(device_calibration(device)); /* never on its own */
        assert_false(device_info(device)->bandwidth_mb_per_s.valid);
        const struct calibration_options options = {
            .budget_ms = 200, .progress = see_progress, .user = &seen};
        struct error err;
        seen = (struct seen){0};
        if (gpu_calibrate(gpu, &device, 1, &options, &err))
            fail_msg("%s", err.text);
        check_calibration(device, n_devices);
    }
    const double bandwidth = device_info(gpu_find(gpu, "cpu"))->bandwidth_mb_per_s.value;
    gpu_close(gpu);
    gpu = open_gpu(); /* from the file */
    for (uint32_t i = 0; i < n_devices; i++)
        check_calibration(gpu_device(gpu, i), n_devices);
    assert_int_equal(device_info(gpu_find(gpu, "cpu"))->bandwidth_mb_per_s.value, bandwidth);
    assert_int_equal(device_verification(gpu_find(gpu, "cpu")).how, VERIFIED_BY_REGISTRY);
    gpu_close(gpu);
    const struct gpu_options other_threads = {
        .registry = path, .skip_other = true, .n_cpu_threads = 1};
    assert_int_equal(gpu_open(&other_threads, &gpu, NULL), ERROR_NONE);
    if (sysconf(_SC_NPROCESSORS_ONLN) > 1) /* it is another device with fewer threads */
        assert_null(device_calibration(gpu_find(gpu, "cpu")));
    gpu_close(gpu);
}

/* Says in the registry how fast a device is. */
static void pretend(const struct device *device, double bandwidth)
{
    struct registry_entry entry = {.key = *device_key(device), .calibrated = true};
    entry.calibration = (struct device_calibration){
        .unix_s = 1700000000, .n_types = 1, .types = {{"q4_0", {bandwidth, 0, 3}, {0}}}};
    assert_int_equal(registry_update(path, &entry, 1, NULL), ERROR_NONE);
}

/* Where all layers go with vulkan0 and the CPU, of which the last n_spare are for need. */
static void expect_all_on_with(const struct gpu *gpu, const struct model *model, uint32_t n_spare,
                               const char *id)
{
    struct device *devices[] = {gpu_find(gpu, "vulkan0"), gpu_find(gpu, "cpu")};
    const struct driver_options options = {.context = 256};
    const struct plan_request request = {
        .devices = devices, .n_devices = 2, .n_spare = n_spare, .options = &options};
    struct plan plan;
    struct error err;
    if (plan_make(&plan, model, &request, &err))
        fail_msg("%s", err.text);
    assert_int_equal(plan.n_stages, 1);
    assert_string_equal(device_info(plan.stages[0].device)->id, id);
    plan_deinit(&plan);
}

/* By these bandwidths. */
static void expect_all_on(const struct model *model, double vulkan, double cpu, const char *id)
{
    struct gpu *gpu = open_gpu();
    pretend(gpu_find(gpu, "vulkan0"), vulkan);
    pretend(gpu_find(gpu, "cpu"), cpu);
    gpu_close(gpu);
    gpu = open_gpu();
    expect_all_on_with(gpu, model, 0, id);
    gpu_close(gpu);
}

/* Nobody knows how fast they are: by their classes, and the spare one stays out of it. */
static void test_layers_of_uncalibrated_devices(void **state)
{
    (void)state;
    char file[512];
    snprintf(file, sizeof file, "%s/models/llama-q4_0.gguf", getenv("MEDLEY_GOLDEN"));
    struct model *model;
    struct error err;
    if (model_open(file, &model, &err))
        fail_msg("%s", err.text);
    unlink(path);
    struct gpu *gpu = open_gpu();
    expect_all_on_with(gpu, model, 0, "cpu"); /* software Vulkan is slower */
    expect_all_on_with(gpu, model, 1, "vulkan0");
    gpu_close(gpu);
    model_close(model);
}

static void test_layers_go_where_they_were_measured_to_be_fast(void **state)
{
    (void)state;
    char file[512];
    snprintf(file, sizeof file, "%s/models/llama-q4_0.gguf", getenv("MEDLEY_GOLDEN"));
    struct model *model;
    struct error err;
    if (model_open(file, &model, &err))
        fail_msg("%s", err.text);
    expect_all_on(model, 9e9, 1e8, "vulkan0");
    expect_all_on(model, 1e8, 9e9, "cpu");
    model_close(model);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_medians_and_spreads),
        cmocka_unit_test(test_rates),
        cmocka_unit_test(test_a_summary_takes_the_best),
        cmocka_unit_test(test_growing_products),
        cmocka_unit_test(test_sampling),
        cmocka_unit_test(test_copies_of_fakes_are_measured),
        cmocka_unit_test(test_a_device_that_fails_later),
        cmocka_unit_test(test_a_device_that_hangs_is_given_up),
        cmocka_unit_test(test_every_failed_allocation_is_survived),
        cmocka_unit_test(test_real_devices_are_measured_and_remembered),
    };
    const struct CMUnitTest vulkan_tests[] = {
        cmocka_unit_test(test_real_devices_are_measured_and_remembered),
        cmocka_unit_test(test_layers_go_where_they_were_measured_to_be_fast),
        cmocka_unit_test(test_layers_of_uncalibrated_devices),
    };
    if (argc > 1 && strcmp(argv[1], "vulkan") == 0)
        return cmocka_run_group_tests_name("gpu_calibration_vulkan", vulkan_tests, make_folder,
                                           remove_folder);
    return cmocka_run_group_tests_name("gpu_calibration", tests, make_folder, remove_folder);
}
