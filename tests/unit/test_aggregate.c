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

/* ---- the best devices -------------------------------------------------------------------- */

static const struct aggregate_need eight_gib = {
    .weight_bytes = 7 * GIB, .kv_bytes = GIB, .n_layers = 32};

static void test_the_fastest_need_not_be_the_best(void **state)
{
    (void)state;
    struct device_info devices[] = {
        make("small", "", DEVICE_GPU, 1 * GIB, 1000000, 0),
        make("middle", "", DEVICE_GPU, 4 * GIB, 400000, 0),
        make("large", "", DEVICE_GPU, 16 * GIB, 100000, 0),
    };
    struct aggregate_choice one = aggregate_best(devices, 3, &eight_gib, 1);
    assert_true(one.fits && one.exact);
    assert_int_equal(one.n_devices, 1);
    assert_int_equal(one.device[0], 2);
    expect(one.ns_per_token, 85899345); /* 8 GiB / 100 GB/s */
    struct aggregate_choice two = aggregate_best(devices, 3, &eight_gib, 2);
    assert_int_equal(two.device[0], 1); /* the fastest two do not hold it */
    assert_int_equal(two.n_layers[0], 16);
    assert_int_equal(two.device[1], 2);
    assert_int_equal(two.n_layers[1], 16);
    struct aggregate_choice all = aggregate_best(devices, 3, &eight_gib, 99);
    assert_int_equal(all.n_devices, 3);
    assert_int_equal(all.n_layers[0], 4);
    assert_int_equal(all.n_layers[1], 16);
    assert_int_equal(all.n_layers[2], 12);
    assert_true(all.ns_per_token.value < two.ns_per_token.value &&
                two.ns_per_token.value < one.ns_per_token.value);
    struct aggregate_need sparse = eight_gib;
    sparse.bytes_per_token = 2 * GIB;
    expect(aggregate_best(devices, 3, &sparse, 1).ns_per_token, 21474836);
}

static void test_too_large_and_too_few(void **state)
{
    (void)state;
    struct device_info devices[] = {make("a", "", DEVICE_GPU, 3 * GIB, 10, 0),
                                    make("b", "", DEVICE_GPU, GIB, 90, 0)};
    struct aggregate_choice choice = aggregate_best(devices, 2, &eight_gib, 1);
    assert_false(choice.fits);
    assert_false(choice.ns_per_token.valid);
    assert_int_equal(choice.device[0], 0);
    assert_int_equal(choice.n_layers_left, 20);
    assert_int_equal(aggregate_best(devices, 2, &eight_gib, 2).n_layers_left, 16);
    assert_int_equal(aggregate_best(devices, 2, &eight_gib, 0).n_layers_left, 32);
    assert_int_equal(aggregate_best(NULL, 0, &eight_gib, 3).n_layers_left, 32);
    struct aggregate_need absurd = {
        .weight_bytes = UINT64_MAX, .kv_bytes = UINT64_MAX, .n_layers = 1};
    assert_false(aggregate_best(devices, 2, &absurd, 2).fits);
    devices[0].memory_free_bytes = UINT64_MAX;
    devices[0].bandwidth_mb_per_s.value = 1;
    assert_true(aggregate_best(devices, 2, &absurd, 1).ns_per_token.value > 0x1p64);
    struct aggregate_need nothing = {.n_layers = 5};
    assert_true(aggregate_best(devices, 2, &nothing, 1).fits);
    expect(aggregate_best(devices, 2, &nothing, 1).ns_per_token, 0);
}

static void test_unmeasured_devices_come_last(void **state)
{
    (void)state;
    struct device_info devices[] = {
        make("unknown", "", DEVICE_GPU, 16 * GIB, 0, 0),
        make("slow", "", DEVICE_GPU, 16 * GIB, 1, 0),
        make("unknown too", "", DEVICE_GPU, 6 * GIB, 0, 0),
    };
    struct aggregate_choice choice = aggregate_best(devices, 3, &eight_gib, 1);
    assert_int_equal(choice.device[0], 1); /* however slow */
    assert_true(choice.ns_per_token.valid);
    devices[1].memory_free_bytes = 2 * GIB;
    choice = aggregate_best(devices, 3, &eight_gib, 1);
    assert_int_equal(choice.device[0], 0);
    assert_int_equal(choice.n_unmeasured, 1);
    assert_true(choice.fits);
    assert_false(choice.ns_per_token.valid);
    choice = aggregate_best(devices, 3, &eight_gib, 2);
    assert_int_equal(choice.device[0], 1);
    assert_int_equal(choice.n_layers[0], 8);
    assert_int_equal(choice.n_unmeasured, 1);
}

static void test_the_hosts_memory_is_not_given_twice(void **state)
{
    (void)state;
    struct device_info devices[] = {
        make("igpu", "", DEVICE_INTEGRATED_GPU, 5 * GIB, 60000, 0),
        make("cpu", "", DEVICE_CPU, 6 * GIB, 40000, 0),
        make("sim:host", "", DEVICE_CPU, 5 * GIB, 20, 0),
    };
    struct aggregate_choice choice = aggregate_best(devices, 2, &eight_gib, 2);
    assert_false(choice.fits); /* 5 + 6 would hold it */
    assert_int_equal(choice.n_layers_left, 8);
    choice = aggregate_best(devices, 3, &eight_gib, 3);
    assert_true(choice.fits);
    assert_int_equal(choice.n_layers[0], 20);
    assert_int_equal(choice.n_layers[1], 4);
    assert_int_equal(choice.n_layers[2], 8);
}

static void test_of_equals_the_fewest(void **state)
{
    (void)state;
    struct device_info devices[4];
    for (int i = 0; i < 4; i++)
        devices[i] = make("", "", DEVICE_GPU, (i == 2 ? 8 : 4) * GIB, 100, 0);
    struct aggregate_choice choice = aggregate_best(devices, 4, &eight_gib, 4);
    assert_int_equal(choice.n_devices, 1);
    assert_int_equal(choice.device[0], 2);
}

/* ---- against every way to share out ------------------------------------------------------ */

static uint64_t random_state = 88172645463325252u;

static uint32_t random_below(uint32_t n)
{
    random_state ^= random_state << 13; /* xorshift64, Marsaglia 2003 */
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 33) % n;
}

struct trial {
    const struct device_info *devices;
    uint32_t n_devices, k;
    uint64_t layer_bytes;
    uint64_t host_bytes;
    uint32_t best_left, best_unmeasured;
    double best_time;
};

/* Gives 0 to `left` layers to device `at`, and the rest to those after it. */
static void share(struct trial *trial, uint32_t at, uint32_t left, uint32_t unmeasured, double time,
                  uint32_t n_used, uint64_t in_host)
{
    if (in_host > trial->host_bytes || n_used > trial->k)
        return;
    if (at == trial->n_devices) {
        if (left < trial->best_left ||
            (left == trial->best_left &&
             (unmeasured < trial->best_unmeasured ||
              (unmeasured == trial->best_unmeasured && time < trial->best_time)))) {
            trial->best_left = left;
            trial->best_unmeasured = unmeasured;
            trial->best_time = time;
        }
        return;
    }
    const struct device_info *info = &trial->devices[at];
    for (uint32_t n = 0; n <= left && n * trial->layer_bytes <= info->memory_free_bytes; n++) {
        uint64_t bytes = n * trial->layer_bytes;
        bool measured = info->bandwidth_mb_per_s.valid;
        share(trial, at + 1, left - n, unmeasured + (measured ? 0 : n),
              time + (measured ? (double)bytes * 1e3 / (double)info->bandwidth_mb_per_s.value : 0),
              n_used + (n > 0), in_host + (info->kind == DEVICE_GPU ? 0 : bytes));
    }
}

static void test_against_every_way(void **state)
{
    (void)state;
    uint32_t n_fit = 0, n_unknown = 0;
    for (int round = 0; round < 3000; round++) {
        struct device_info devices[5];
        struct trial trial = {
            .devices = devices, .n_devices = 1 + random_below(5), .layer_bytes = 1000};
        for (uint32_t i = 0; i < trial.n_devices; i++) {
            enum device_kind kind = random_below(3)   ? DEVICE_GPU
                                    : random_below(2) ? DEVICE_CPU
                                                      : DEVICE_INTEGRATED_GPU;
            devices[i] = make("", "", kind, random_below(5500),
                              random_below(5) ? 1 + random_below(9) : 0, 0);
            if (kind != DEVICE_GPU && devices[i].memory_free_bytes > trial.host_bytes)
                trial.host_bytes = devices[i].memory_free_bytes;
        }
        trial.k = random_below(6);
        uint32_t n_layers = 1 + random_below(7);
        trial.best_left = n_layers + 1;
        share(&trial, 0, n_layers, 0, 0, 0, 0);
        struct aggregate_need need = {
            .weight_bytes = n_layers * 900, .kv_bytes = n_layers * 100, .n_layers = n_layers};
        struct aggregate_choice choice = aggregate_best(devices, trial.n_devices, &need, trial.k);
        assert_true(choice.exact);
        assert_int_equal(choice.n_layers_left, trial.best_left);
        assert_true(choice.n_devices <= trial.k);
        double time = 0;
        uint32_t unmeasured = 0, sum = 0;
        for (uint32_t i = 0; i < choice.n_devices; i++) {
            const struct device_info *info = &devices[choice.device[i]];
            sum += choice.n_layers[i];
            if (info->bandwidth_mb_per_s.valid)
                time += choice.n_layers[i] * 1e6 / (double)info->bandwidth_mb_per_s.value;
            else
                unmeasured += choice.n_layers[i];
        }
        assert_int_equal(sum + choice.n_layers_left, n_layers);
        assert_int_equal(unmeasured, trial.best_unmeasured);
        assert_true(time <= trial.best_time * (1 + 1e-12) && time >= trial.best_time * (1 - 1e-12));
        if (choice.ns_per_token.valid)
            assert_true((double)choice.ns_per_token.value >= time - 2 &&
                        (double)choice.ns_per_token.value <= time + 2);
        n_fit += choice.fits;
        n_unknown += choice.fits && unmeasured;
    }
    assert_true(n_fit > 500 && n_fit < 2500 && n_unknown > 100);
}

/* Many devices: the search is not exact, but finds room whenever there is some. Here the best is
 * known: it is exact on the twelve that matter, and the others hold nothing. */
static void test_many_devices(void **state)
{
    (void)state;
    uint32_t n_best = 0;
    enum { ROUNDS = 200 };
    for (int round = 0; round < ROUNDS; round++) {
        struct device_info devices[LIMIT_DEVICES];
        for (uint32_t i = 0; i < LIMIT_DEVICES; i++)
            devices[i] =
                make("", "", DEVICE_GPU, i < AGGREGATE_EXACT_MAX ? random_below(9000) : 999,
                     1 + random_below(1000), 0);
        uint32_t k = 1 + random_below(8);
        struct aggregate_need need = {.weight_bytes = 24000, .n_layers = 24};
        struct aggregate_choice exact = aggregate_best(devices, AGGREGATE_EXACT_MAX, &need, k);
        struct aggregate_choice choice = aggregate_best(devices, LIMIT_DEVICES, &need, k);
        assert_true(exact.exact && !choice.exact);
        assert_true(choice.n_devices <= k);
        assert_int_equal(choice.n_layers_left, exact.n_layers_left);
        if (exact.fits)
            assert_true(choice.ns_per_token.value >= exact.ns_per_token.value);
        n_best += choice.ns_per_token.value == exact.ns_per_token.value;
    }
    assert_true(n_best >= ROUNDS * 9 / 10); /* 200 of 200 when it was written */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_and_nothing_measured),
        cmocka_unit_test(test_one_device),
        cmocka_unit_test(test_what_is_shared_counts_once),
        cmocka_unit_test(test_ties_go_to_the_first),
        cmocka_unit_test(test_numbers_that_do_not_fit),
        cmocka_unit_test(test_the_fastest_need_not_be_the_best),
        cmocka_unit_test(test_too_large_and_too_few),
        cmocka_unit_test(test_unmeasured_devices_come_last),
        cmocka_unit_test(test_the_hosts_memory_is_not_given_twice),
        cmocka_unit_test(test_of_equals_the_fewest),
        cmocka_unit_test(test_against_every_way),
        cmocka_unit_test(test_many_devices),
    };
    return cmocka_run_group_tests_name("aggregate", tests, NULL, NULL);
}
