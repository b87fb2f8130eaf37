/* What devices are together, and the best of them for a model: by hand, and against trying every
 * way to share out layers. */
#include "gpu/aggregate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define GIB (UINT64_C(1) << 30)

static struct device_info make(const char *id, const char *vendor, enum device_kind kind,
                               uint64_t free_bytes, uint64_t mb_per_s, uint64_t mflops)
{
    struct device_info info = {
        .kind = kind, .memory_total_bytes = free_bytes, .memory_free_bytes = free_bytes};
    snprintf(info.id, sizeof info.id, "%s", id);
    snprintf(info.vendor, sizeof info.vendor, "%s", vendor);
    snprintf(info.backend, sizeof info.backend, "%s",
             strncmp(id, "sim:", 4) == 0 ? "sim" : "vulkan");
    info.bandwidth_mb_per_s = (struct reading){(double)mb_per_s, mb_per_s != 0};
    info.peak_mflops = (struct reading){(double)mflops, mflops != 0};
    return info;
}

static void expect(struct reading reading, uint64_t value)
{
    assert_true(reading.valid);
    assert_int_equal(reading.value, value);
}

/* ---- sums ------------------------------------------------------------------------------ */

static void test_nothing_and_nothing_measured(void **state)
{
    (void)state;
    struct aggregate none = aggregate_of(NULL, 0);
    char text[AGGREGATE_TEXT_BYTES];
    aggregate_text(&none, NULL, text, sizeof text);
    assert_string_equal(text, "");
    assert_int_equal(none.memory_total_bytes, 0);

    struct device_info devices[] = {make("vulkan0", "AMD", DEVICE_GPU, 8 * GIB, 0, 0),
                                    make("cpu", "", DEVICE_CPU, 16 * GIB, 0, 0)};
    devices[0].bandwidth_mb_per_s.valid = true; /* measured as 0: not measured */
    struct aggregate aggregate = aggregate_of(devices, 2);
    assert_int_equal(aggregate.n_devices, 2);
    assert_int_equal(aggregate.n_measured, 0);
    assert_int_equal(aggregate.n_rated, 0);
    assert_false(aggregate.bandwidth_mb_per_s_mean.valid);
    assert_false(aggregate.bandwidth_mb_per_s_min.valid);
    assert_false(aggregate.bandwidth_mb_per_s_max.valid);
    assert_false(aggregate.heterogeneity_permille.valid);
    assert_false(aggregate.mflops_total.valid);
    assert_int_equal(aggregate.memory_free_bytes, 24 * GIB);
    aggregate_text(&aggregate, devices, text, sizeof text);
    assert_string_equal(text, "2 devices: 1 AMD, 1 of unknown make\n"
                              "memory   24.0 of 24.0 GiB are free\n"
                              "decode   no device has been measured\n");
}

static void test_one_device(void **state)
{
    (void)state;
    struct device_info device = make("cpu", "Intel", DEVICE_CPU, 4 * GIB, 12345, 6789);
    struct aggregate aggregate = aggregate_of(&device, 1);
    expect(aggregate.bandwidth_mb_per_s_mean, 12345);
    expect(aggregate.bandwidth_mb_per_s_min, 12345);
    expect(aggregate.bandwidth_mb_per_s_max, 12345);
    expect(aggregate.heterogeneity_permille, 1000);
    expect(aggregate.mflops_total, 6789);
    char text[AGGREGATE_TEXT_BYTES];
    aggregate_text(&aggregate, &device, text, sizeof text);
    assert_string_equal(text, "1 device: 1 Intel\n"
                              "memory   4.0 of 4.0 GiB are free\n"
                              "decode   mean 12.35 GB/s, slowest cpu 12.35 GB/s\n"
                              "prefill  6.8 GFLOP/s together\n");
}

static void test_what_is_shared_counts_once(void **state)
{
    (void)state;
    struct device_info devices[] = {
        make("cuda0", "NVIDIA", DEVICE_GPU, 12 * GIB, 300000, 10000000),
        make("cuda1", "NVIDIA", DEVICE_GPU, 8 * GIB, 200000, 8000000),
        make("vulkan0", "Intel", DEVICE_INTEGRATED_GPU, 10 * GIB, 30000,
             500000),                                               /* sees a part of the host's */
        make("vulkan1", "Mesa", DEVICE_CPU, 20 * GIB, 1000, 50000), /* software: the CPU again */
        make("cpu", "Intel", DEVICE_CPU, 20 * GIB, 40000, 90000),
        make("sim:card", "NVIDIA", DEVICE_GPU, 24 * GIB, 0, 7),
        make("sim:pc", "NVIDIA", DEVICE_CPU, 1 * GIB, 0, 3),
    };
    struct aggregate aggregate = aggregate_of(devices, 7);
    assert_int_equal(aggregate.memory_total_bytes, (12 + 8 + 20 + 24 + 1) * GIB);
    assert_int_equal(aggregate.n_measured, 5);
    expect(aggregate.bandwidth_mb_per_s_mean, (300000 + 200000 + 30000 + 1000 + 40000) / 5);
    expect(aggregate.bandwidth_mb_per_s_min, 1000);
    expect(aggregate.heterogeneity_permille, 300000);
    assert_int_equal(aggregate.slowest, 3);
    assert_int_equal(aggregate.fastest, 0);
    expect(aggregate.mflops_total, 10000000 + 8000000 + 500000 + 90000 + 7 + 3);
    assert_int_equal(aggregate.n_vendors, 3);
    assert_string_equal(aggregate.vendors[0].name, "NVIDIA");
    assert_int_equal(aggregate.vendors[0].n_devices, 4);
    assert_int_equal(aggregate.vendors[1].n_devices, 2);
    char text[AGGREGATE_TEXT_BYTES];
    aggregate_text(&aggregate, devices, text, sizeof text);
    assert_non_null(strstr(text, "7 devices: 4 NVIDIA, 2 Intel, 1 Mesa\n"));
    assert_non_null(
        strstr(text, "65.0 of 65.0 GiB are free; 3 devices share the host's, which counts once\n"));
    assert_non_null(strstr(
        text,
        "slowest vulkan1 1.00 GB/s; the fastest, cuda0, is 300.0 times as fast (5 of 7 measured)"));
}

static void test_ties_go_to_the_first(void **state)
{
    (void)state;
    struct device_info devices[] = {make("a", "A", DEVICE_GPU, GIB, 500, 0),
                                    make("b", "A", DEVICE_GPU, GIB, 500, 0)};
    struct aggregate aggregate = aggregate_of(devices, 2);
    assert_int_equal(aggregate.slowest, 0);
    assert_int_equal(aggregate.fastest, 0);
    expect(aggregate.heterogeneity_permille, 1000);
}

static void test_numbers_that_do_not_fit(void **state)
{
    (void)state;
    struct device_info devices[LIMIT_DEVICES];
    for (uint32_t i = 0; i < LIMIT_DEVICES; i++) {
        devices[i] = make("", "", DEVICE_GPU, UINT64_MAX, UINT64_C(1) << 53, UINT64_C(1) << 53);
        snprintf(devices[i].vendor, sizeof devices[i].vendor, "a vendor with a long name %02u", i);
    }
    struct aggregate aggregate = aggregate_of(devices, LIMIT_DEVICES);
    assert_int_equal(aggregate.memory_total_bytes, UINT64_MAX);
    assert_int_equal(aggregate.memory_free_bytes, UINT64_MAX);
    expect(aggregate.mflops_total, (UINT64_C(1) << 53) * LIMIT_DEVICES);
    expect(aggregate.bandwidth_mb_per_s_mean, UINT64_C(1) << 53);
    expect(aggregate.heterogeneity_permille, 1000);
    assert_int_equal(aggregate.n_vendors, LIMIT_DEVICES);
    char text[AGGREGATE_TEXT_BYTES];
    memset(text, 'x', sizeof text);
    aggregate_text(&aggregate, devices, text, sizeof text);
    assert_int_equal(strlen(text), sizeof text - 1); /* cut off, and ended */
    aggregate_text(&aggregate, devices, text, 1);
    assert_string_equal(text, "");

    devices[0].bandwidth_mb_per_s.value = 0x1p52;
    expect(aggregate_of(devices, 2).heterogeneity_permille, 2000);
    devices[0].bandwidth_mb_per_s.value = 0x1p53 / 3 * 2;
    expect(aggregate_of(devices, 2).heterogeneity_permille, 1500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_and_nothing_measured),
        cmocka_unit_test(test_one_device),
        cmocka_unit_test(test_what_is_shared_counts_once),
        cmocka_unit_test(test_ties_go_to_the_first),
        cmocka_unit_test(test_numbers_that_do_not_fit),
    };
    return cmocka_run_group_tests_name("aggregate", tests, NULL, NULL);
}
