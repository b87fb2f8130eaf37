/* Simulated devices: how they are listed and chosen, that they compute what the CPU does to the
 * bit, and that their memory is counted. */
#include "base/mem.h"
#include "engine/stage_work.h"
#include "gpu/device_sim.h"
#include "sim_world.h"
#include "simdevices/sim_file.h"

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

/* ---- the list -------------------------------------------------------------------------------- */

static void test_simulated_devices_stand_after_the_real_ones(void **state)
{
    (void)state;
    struct gpu *gpu = open_sim("[one]\n" FAST "[two]\npreset = rtx-3060\n");
    assert_int_equal(gpu_device_count(gpu), 3);
    assert_string_equal(device_info(gpu_device(gpu, 0))->id, "cpu");
    const struct device_info *info = device_info(gpu_device(gpu, 2));
    assert_string_equal(info->id, "sim:two");
    assert_string_equal(info->backend, "sim");
    assert_int_equal(info->kind, DEVICE_GPU);
    assert_true(info->bandwidth_mb_per_s.valid && info->bandwidth_mb_per_s.value == 252000);
    assert_true(info->peak_mflops.valid && info->peak_mflops.value == 6350000);
    assert_true(info->memory_total_bytes == 12ull << 30 && info->memory_free_bytes == 12ull << 30);
    assert_true(device_temperature_mc(gpu_find(gpu, "sim:two")).valid);
    assert_false(device_temperature_mc(gpu_find(gpu, "sim:one")).valid);
    assert_false(device_power_mw(gpu_find(gpu, "sim:one")).valid);
    assert_false(device_clock_mhz(gpu_find(gpu, "sim:one")).valid);
    gpu_close(gpu);
}

static void test_they_are_chosen_alone_unless_named(void **state)
{
    (void)state;
    struct gpu *gpu = open_sim("[one]\n" FAST "[two]\n" FAST);
    struct device *devices[8];
    uint32_t n;
    struct error err;
    assert_int_equal(gpu_select(gpu, NULL, devices, 8, &n, &err), ERROR_NONE);
    assert_int_equal(n, 2);
    assert_string_equal(device_info(devices[0])->id, "sim:one");
    assert_string_equal(device_info(devices[1])->id, "sim:two");
    assert_int_equal(gpu_select(gpu, "sim:two,cpu", devices, 8, &n, &err), ERROR_NONE);
    assert_int_equal(n, 2);
    assert_string_equal(device_info(devices[1])->id, "cpu");
    assert_int_equal(gpu_select(gpu, "sim:three", devices, 8, &n, &err), ERROR_NOT_FOUND);
    gpu_close(gpu);
}

static void test_verification_finds_those_that_fail_from_the_start(void **state)
{
    (void)state;
    struct gpu *gpu = open_sim("[dead]\n" FAST "fail = dies at 0s\n[liar]\n" FAST
                               "fail = garbage after 0 batches\n"
                               "[small]\n" FAST "fail = allocation after 1MiB\n");
    assert_int_equal(gpu_device_count(gpu), 1);
    assert_int_equal(gpu_rejected_count(gpu), 3);
    assert_non_null(strstr(gpu_rejected(gpu, 0)->reason, "has died (simulated: dies at 0 s)"));
    assert_non_null(strstr(gpu_rejected(gpu, 1)->reason, "returned wrong data"));
    assert_non_null(strstr(gpu_rejected(gpu, 2)->reason, "simulated: allocation after 1.0 MiB"));
    struct device *device;
    uint32_t n;
    struct error err = {0};
    assert_int_equal(gpu_select(gpu, NULL, &device, 1, &n, &err), ERROR_DEVICE);
    expect_words(&err, "no simulated device is usable; sim:dead");
    gpu_close(gpu);
}

static void test_a_device_that_hangs_in_verification_is_given_up(void **state)
{
    (void)state;
    static struct sim_file file;
    struct error err = {0};
    const char text[] = "[a]\n" FAST "fail = hangs at 0s\n";
    assert_int_equal(sim_file_parse(text, sizeof text - 1, &file, &err), ERROR_NONE);
    gpu_close(open_sim("[b]\n" FAST)); /* loads the CPU backend */
    struct device_info info;
    struct device *device;
    device_impl_sim.get(&file, 0, &info);
    assert_int_equal(device_open(&device_impl_sim, &file, 0,
                                 &(struct gpu_options){.n_cpu_threads = 1}, 300, &info, &device,
                                 &err),
                     ERROR_DEVICE);
    expect_words(&err, "did not answer");
}

static void test_a_wrong_file_is_an_error_with_its_line(void **state)
{
    (void)state;
    struct gpu *gpu = NULL;
    struct error err = {0};
    assert_int_equal(try_open("[one]\nmemory = 12\n", &gpu, &err), ERROR_INVALID);
    assert_null(gpu);
    expect_words(&err, "/tmp/medley-sim-");
    expect_words(&err, ": line 2: memory = 12 has no unit");
}

static void test_failing_allocations_leak_nothing(void **state)
{
    (void)state;
    struct gpu *gpu = NULL;
    struct error err = {0};
    enum error_code code = ERROR_NO_MEMORY;
    unsigned nth = 1;
    for (; nth < 400 && (code || gpu_device_count(gpu) < 2); nth++) {
        gpu_close(gpu);
        gpu = NULL;
        mem_fail_nth(nth);
        code = try_open("[one]\n" FAST, &gpu, &err);
        mem_fail_nth(0);
        assert_true(code == ERROR_NONE || code == ERROR_NO_MEMORY || code == ERROR_DEVICE);
    }
    assert_true(!code && nth > 5);
    gpu_close(gpu);
}

/* ---- results --------------------------------------------------------------------------------- */

static void compare_with_cpu(const char *name)
{
    struct gpu *gpu = open_sim("[one]\n" FAST "[two]\n" FAST);
    struct model *what = open_model(name);
    uint32_t n_embd = model_hyperparameters(what)->n_embd;
    struct stage *cpu = open_stage(gpu_find(gpu, "cpu"), what, 0, 2);
    struct stage *whole = open_stage(gpu_find(gpu, "sim:one"), what, 0, 2);
    struct stage *first = open_stage(gpu_find(gpu, "sim:one"), what, 0, 1);
    struct stage *last = open_stage(gpu_find(gpu, "sim:two"), what, 1, 1);
    float want[VOCAB], got[VOCAB], *hidden = mem_new_array((size_t)40 * n_embd, sizeof *hidden);
    for (uint32_t at = 0; at < 43; at += at ? 1 : 40) {
        uint32_t n = at ? 1 : 40;
        feed_well(cpu, at, n, NULL, want);
        feed_well(whole, at, n, NULL, got);
        assert_memory_equal(want, got, sizeof want);
        feed_well(first, at, n, NULL, hidden);
        feed_well(last, at, n, hidden, got);
        assert_memory_equal(want, got, sizeof want);
    }
    mem_free(hidden);
    stage_close(last);
    stage_close(first);
    stage_close(whole);
    stage_close(cpu);
    model_close(what);
    gpu_close(gpu);
}

static void test_results_are_the_cpus_to_the_bit(void **state)
{
    (void)state;
    compare_with_cpu("qwen3");
    compare_with_cpu("llama-q4_0"); /* repacked weights */
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void test_stages_take_memory_and_give_it_back(void **state)
{
    (void)state;
    struct gpu *gpu = open_sim("[one]\n" FAST);
    struct device *device = gpu_find(gpu, "sim:one");
    assert_true(device_memory(device).free_bytes == 1ull << 30);
    struct stage *stage = open_stage(device, model, 0, 2);
    struct stage_memory taken = stage_memory(stage);
    assert_true(device_memory(device).free_bytes ==
                (1ull << 30) - taken.weights - taken.kv - taken.compute);
    struct device_buffer buffer;
    assert_int_equal(device_alloc(device, 1 << 20, &buffer, NULL), ERROR_NONE);
    assert_true(device_memory(device).free_bytes ==
                (1ull << 30) - taken.weights - taken.kv - taken.compute - (1 << 20));
    assert_int_equal(device_free(device, buffer, NULL), ERROR_NONE);
    stage_close(stage);
    assert_true(device_memory(device).free_bytes == 1ull << 30);
    gpu_close(gpu);
}

static void test_what_does_not_fit_is_refused_with_numbers(void **state)
{
    (void)state;
    struct gpu *gpu = open_sim("[one]\n" FAST "[big]\npreset = rtx-3060\nmemory = 1000TiB\n");
    struct device *device = gpu_find(gpu, "sim:one");
    struct stage_options options = options_of(0, 2);
    options.context = 1000000;
    options.n_slots = 8;
    struct stage *stage;
    struct error err = {0};
    assert_int_equal(stage_open(device, model, &options, &stage, &err), ERROR_NO_MEMORY);
    expect_words(&err, "sim:one: layers 0-1 need");
    expect_words(&err, "1.0 GiB is free");
    expect_words(&err, "would fit");
    struct device_buffer buffer;
    assert_int_equal(device_alloc(device, (1u << 30) + 1, &buffer, &err), ERROR_NO_MEMORY);
    /* The device has it, the machine has not. */
    options.context = LIMIT_CONTEXT;
    options.n_slots = LIMIT_SEQUENCES;
    assert_int_equal(stage_open(gpu_find(gpu, "sim:big"), model, &options, &stage, &err),
                     ERROR_NO_MEMORY);
    expect_words(&err, "this machine has only");
    assert_true(device_memory(gpu_find(gpu, "sim:big")).free_bytes == 1000ull << 40);
    gpu_close(gpu);
}

/* And its memory is there again, for the next. */
static void test_a_load_can_be_stopped(void **state)
{
    (void)state;
    struct gpu *gpu = open_sim("[one]\n" FAST);
    struct device *device = gpu_find(gpu, "sim:one");
    const uint64_t free_bytes = device_memory(device).free_bytes;
    _Atomic bool stop = true;
    struct stage_options options = options_of(0, 2);
    options.stop = &stop;
    struct stage *stage;
    struct error err = {0};
    assert_int_equal(stage_open(device, model, &options, &stage, &err), ERROR_CANCELLED);
    expect_words(&err, "loading was stopped after 0 of");
    assert_true(device_memory(device).free_bytes == free_bytes);
    stop = false;
    assert_int_equal(stage_open(device, model, &options, &stage, &err), ERROR_NONE);
    assert_true(device_memory(device).free_bytes < free_bytes);
    stage_close(stage);
    gpu_close(gpu);
}

static void test_exhaustion_and_back(void **state)
{
    (void)state;
    struct gpu *gpu = open_sim("[one]\npreset = rtx-3060\nmemory = 16MiB\n");
    struct device *device = gpu_find(gpu, "sim:one");
    for (int round = 0; round < 3; round++) {
        struct device_buffer buffers[20];
        int n = 0;
        while (n < 20 && device_alloc(device, 1 << 20, &buffers[n], NULL) == ERROR_NONE)
            n++;
        assert_int_equal(n, 16);
        assert_true(device_memory(device).free_bytes == 0);
        while (n)
            assert_int_equal(device_free(device, buffers[--n], NULL), ERROR_NONE);
        assert_true(device_memory(device).free_bytes == 16 << 20);
    }
    gpu_close(gpu);
}

/* ---- what a batch costs ---------------------------------------------------------------------- */

static void test_costs_of_stages_add_up(void **state)
{
    (void)state;
    struct stage_options whole = options_of(0, 2), first = options_of(0, 1),
                         last = options_of(1, 1);
    struct stage_cost costs[3];
    stage_cost_read(model, &whole, &costs[0]);
    stage_cost_read(model, &first, &costs[1]);
    stage_cost_read(model, &last, &costs[2]);
    struct batch_row rows[] = {{.slot = 0, .position = 9, .output = true},
                               {.slot = 1, .position = 0},
                               {.slot = 1, .position = 1, .output = true}};
    struct device_work work[3];
    for (int i = 0; i < 3; i++)
        stage_work_count(&costs[i], &(struct batch){.rows = rows, .n_rows = 3}, &work[i]);
    assert_true(work[0].bytes_read == work[1].bytes_read + work[2].bytes_read);
    assert_true(work[0].flops == work[1].flops + work[2].flops);
    assert_true(work[1].bytes_copied == 12 &&
                work[2].bytes_copied == 12ull * model_hyperparameters(model)->n_embd);
    /* one more token of context: its cache is read once more, its attention computed once more */
    rows[0].position++;
    struct device_work longer;
    stage_work_count(&costs[0], &(struct batch){.rows = rows, .n_rows = 3}, &longer);
    assert_true(longer.bytes_read == work[0].bytes_read + costs[0].kv_bytes_per_token);
    assert_true(longer.flops == work[0].flops + costs[0].layers.flops_per_token_per_context);
}

/* Beyond its window a layer does no more, however much context there is. */
static void test_windows_end_what_a_context_costs(void **state)
{
    (void)state;
    struct model *windowed = open_model("gemma3");
    const struct hyperparameters *h = model_hyperparameters(windowed);
    struct stage_options options = options_of(0, h->n_layers);
    struct stage_cost cost;
    stage_cost_read(windowed, &options, &cost);
    struct batch_row row = {.position = h->window + 99, .output = true};
    const struct batch batch = {.rows = &row, .n_rows = 1};
    struct device_work work[2];
    for (int i = 0; i < 2; i++, row.position++)
        stage_work_count(&cost, &batch, &work[i]);
    assert_true(h->window && cost.windowed_kv_bytes > 0 &&
                cost.windowed_kv_bytes < cost.kv_bytes_per_token);
    assert_true(work[1].bytes_read - work[0].bytes_read ==
                cost.kv_bytes_per_token - cost.windowed_kv_bytes);
    assert_true(work[1].flops - work[0].flops ==
                cost.layers.flops_per_token_per_context - cost.windowed_flops_per_context);
    model_close(windowed);
}

static void test_their_given_speed_is_not_measured(void **state)
{
    (void)state;
    struct gpu *gpu = open_sim("[a]\n" FAST);
    struct device *device = gpu_find(gpu, "sim:a");
    const double before = device_info(device)->bandwidth_mb_per_s.value;
    assert_int_equal(before, 100000);
    struct error err;
    assert_int_equal(gpu_calibrate(gpu, &device, 1, &(struct calibration_options){0}, &err),
                     ERROR_NONE);
    assert_null(device_calibration(device));
    assert_int_equal(device_info(device)->bandwidth_mb_per_s.value, before);
    gpu_close(gpu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_simulated_devices_stand_after_the_real_ones),
        cmocka_unit_test(test_they_are_chosen_alone_unless_named),
        cmocka_unit_test(test_verification_finds_those_that_fail_from_the_start),
        cmocka_unit_test(test_a_device_that_hangs_in_verification_is_given_up),
        cmocka_unit_test(test_a_wrong_file_is_an_error_with_its_line),
        cmocka_unit_test(test_failing_allocations_leak_nothing),
        cmocka_unit_test(test_results_are_the_cpus_to_the_bit),
        cmocka_unit_test(test_stages_take_memory_and_give_it_back),
        cmocka_unit_test(test_what_does_not_fit_is_refused_with_numbers),
        cmocka_unit_test(test_a_load_can_be_stopped),
        cmocka_unit_test(test_exhaustion_and_back),
        cmocka_unit_test(test_costs_of_stages_add_up),
        cmocka_unit_test(test_windows_end_what_a_context_costs),
        cmocka_unit_test(test_their_given_speed_is_not_measured),
    };
    return cmocka_run_group_tests_name("sim", tests, sim_world_open, sim_world_close);
}
