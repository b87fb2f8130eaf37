/* Simulated devices in time: pace, failures, heat. Times are measured against what the file asks
 * for, with retries where a busy machine may have been in the way; each bound is one that a missing
 * or doubled pace breaks. */
#include "base/clock.h"
#include "base/mem.h"
#include "engine/stage_work.h"
#include "sim_world.h"

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

enum { ATTEMPTS = 8 };

/* ---- pace ------------------------------------------------------------------------------------ */

/* Of `n_steps` decode steps, the measured time over the one that the file asks for. */
static double decode_ratio(struct stage *stage, double bytes_per_s, double launch_s,
                           uint32_t n_steps)
{
    struct stage_cost cost;
    struct stage_options options = options_of(0, 2);
    stage_cost_read(model, &options, &cost);
    float out[VOCAB];
    stage_kv_truncate(stage, 0, 0);
    double asked_s = 0;
    uint64_t start_ns = clock_now_ns();
    for (uint32_t i = 0; i < n_steps; i++) {
        feed_well(stage, i, 1, NULL, out);
        asked_s += (double)(cost.layers.bytes + cost.output.bytes + cost.input.bytes_per_token +
                            (i + 1) * cost.kv_bytes_per_token) /
                       bytes_per_s +
                   launch_s;
    }
    return seconds_since(start_ns) / asked_s;
}

static void expect_pace(const char *ini, double bytes_per_s, double launch_s)
{
    struct gpu *gpu = open_sim(ini);
    struct stage *stage = open_stage(gpu_find(gpu, "sim:one"), model, 0, 2);
    float out[VOCAB];
    feed_well(stage, 0, 1, NULL, out); /* warm */
    double ratio = 0;
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        ratio = decode_ratio(stage, bytes_per_s, launch_s, 60);
        print_message("# asked %.3g MB/s: measured / asked time %.4f\n", bytes_per_s * 1e-6, ratio);
        if (ratio > 0.95 && ratio < 1.05)
            break;
    }
    assert_true(ratio > 0.95 && ratio < 1.05);
    stage_close(stage);
    gpu_close(gpu);
}

static void test_decode_keeps_the_asked_pace(void **state)
{
    (void)state;
    const char *limits =
        "[one]\nmemory = 1GiB\nflops = 1MFLOP/s\ncopy = 1000TB/s\n"; /* one row knows no FLOP/s */
    char ini[256];
    snprintf(ini, sizeof ini, "%sdecode = 25MB/s\nlaunch = 0s\n", limits);
    expect_pace(ini, 25e6, 0);
    snprintf(ini, sizeof ini, "%sdecode = 60MB/s\nlaunch = 5ms\n", limits);
    expect_pace(ini, 60e6, 5e-3);
}

static void test_prefill_is_bound_by_flops(void **state)
{
    (void)state;
    struct gpu *gpu =
        open_sim("[one]\nmemory = 1GiB\ndecode = 100GB/s\nflops = 50MFLOP/s\nlaunch = 0s\n");
    struct stage *stage = open_stage(gpu_find(gpu, "sim:one"), model, 0, 2);
    struct stage_cost cost;
    struct stage_options options = options_of(0, 2);
    stage_cost_read(model, &options, &cost);
    double flops = 64.0 * (double)cost.layers.flops_per_token +
                   (double)cost.output.flops_per_token +
                   64.0 * 65 / 2 * (double)cost.layers.flops_per_token_per_context;
    float out[VOCAB];
    double ratio = 0;
    for (int attempt = 0; attempt < ATTEMPTS && !(ratio > 0.95 && ratio < 1.05); attempt++) {
        stage_kv_truncate(stage, 0, 0);
        uint64_t start_ns = clock_now_ns();
        feed_well(stage, 0, 64, NULL, out);
        ratio = seconds_since(start_ns) / (flops / 50e6);
    }
    print_message("# measured / asked time of a prompt %.4f\n", ratio);
    assert_true(ratio > 0.95 && ratio < 1.05);
    stage_close(stage);
    gpu_close(gpu);
}

static void test_copies_keep_the_asked_pace(void **state)
{
    (void)state;
    struct gpu *gpu = open_sim("[slow]\n"
                               "memory = 64MiB\ndecode = 1GB/s\nflops = 1TFLOP/s\ncopy = 20MB/s\n"
                               "[fast]\n" FAST);
    struct device *slow = gpu_find(gpu, "sim:slow"), *fast = gpu_find(gpu, "sim:fast");
    enum { BYTES = 4000000 };
    struct device_buffer here, there;
    uint8_t *bytes = mem_new(BYTES);
    assert_int_equal(device_alloc(slow, BYTES, &here, NULL), ERROR_NONE);
    assert_int_equal(device_alloc(fast, BYTES, &there, NULL), ERROR_NONE);
    double spent_s = 0; /* three of 0.2 s */
    for (int attempt = 0; attempt < ATTEMPTS && !(spent_s > 0.57 && spent_s < 0.75); attempt++) {
        uint64_t start_ns = clock_now_ns();
        assert_int_equal(device_write(slow, here, 0, bytes, BYTES, NULL), ERROR_NONE);
        assert_int_equal(device_copy(slow, here, 0, fast, there, 0, BYTES, NULL), ERROR_NONE);
        assert_int_equal(device_read(slow, here, 0, bytes, BYTES, NULL), ERROR_NONE);
        spent_s = seconds_since(start_ns);
    }
    assert_true(spent_s > 0.57 && spent_s < 0.75);
    mem_free(bytes);
    gpu_close(gpu);
}

/* What stderr gets while `work` runs. */
static void capture_log(void (*work)(void), char *out, size_t size)
{
    char path[] = "/tmp/medley-sim-log-XXXXXX";
    int descriptor = mkstemp(path), saved = dup(STDERR_FILENO);
    assert_true(descriptor >= 0 && saved >= 0);
    fflush(stderr);
    dup2(descriptor, STDERR_FILENO);
    work();
    fflush(stderr);
    dup2(saved, STDERR_FILENO);
    close(saved);
    ssize_t n = pread(descriptor, out, size - 1, 0);
    out[n > 0 ? n : 0] = '\0';
    close(descriptor);
    remove(path);
}

static void run_impossibly_fast(void)
{
    struct gpu *gpu =
        open_sim("[one]\nmemory = 1GiB\ndecode = 1000TB/s\nflops = 1000PFLOP/s\nlaunch = 0s\n");
    struct stage *stage = open_stage(gpu_find(gpu, "sim:one"), model, 0, 2);
    float out[VOCAB];
    for (uint32_t i = 0; i < 50; i++)
        feed_well(stage, i, 1, NULL, out);
    stage_close(stage);
    gpu_close(gpu);
}

static void test_a_cpu_that_is_too_slow_is_said_once(void **state)
{
    (void)state;
    char log[4096];
    capture_log(run_impossibly_fast, log, sizeof log);
    char *said = strstr(log, "sim:one is simulated too slowly");
    assert_non_null(said);
    assert_null(strstr(said + strlen("sim:one is simulated too slowly"), "too slowly"));
}

/* ---- failures -------------------------------------------------------------------------------- */

static void sleep_ms(long ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

static void test_a_dead_device_stays_dead(void **state)
{
    (void)state;
    struct gpu *gpu = open_sim("[one]\npreset = rtx-3060\nfail = dies at 2500ms\n");
    struct device *device = gpu_find(gpu, "sim:one");
    struct stage *stage = open_stage(device, model, 0, 2);
    struct device_buffer buffer;
    assert_int_equal(device_alloc(device, 100, &buffer, NULL), ERROR_NONE);
    float out[VOCAB];
    feed_well(stage, 0, 1, NULL, out);
    sleep_ms(2600); /* it was opened before that began */
    for (int i = 0; i < 3; i++) {
        struct error err = {0};
        assert_int_equal(feed(stage, 1, 1, NULL, out, &err), ERROR_DEVICE);
        expect_words(&err, "sim:one: the device has died (simulated: dies at 2.5 s)");
        assert_int_equal(stage_kv_length(stage, 0), 1);
    }
    assert_int_equal(device_write(device, buffer, 0, out, 4, NULL), ERROR_DEVICE);
    struct error err;
    assert_int_equal(device_synchronize(device, &err), ERROR_DEVICE);
    assert_false(device_temperature_mc(device).valid);
    assert_int_equal(device_free(device, buffer, NULL), ERROR_NONE);
    stage_close(stage);
    gpu_close(gpu);
}

static void test_a_device_dies_in_the_middle_of_a_batch(void **state)
{
    (void)state;
    struct gpu *gpu =
        open_sim("[one]\nmemory = 1GiB\ndecode = 1MB/s\nflops = 1MFLOP/s\nfail = dies at 2s\n");
    struct stage *stage = open_stage(gpu_find(gpu, "sim:one"), model, 0, 2);
    float out[VOCAB];
    uint64_t start_ns = clock_now_ns();
    struct error err = {0};
    assert_int_equal(feed(stage, 0, 128, NULL, out, &err), ERROR_DEVICE); /* of many seconds */
    assert_true(seconds_since(start_ns) < 10);
    stage_close(stage);
    gpu_close(gpu);
}

/* A job that hangs, and what comes of it. */
struct hanging {
    struct device_job job;
    struct stage *stage;
    enum error_code code;
    struct error err;
};

static void forward_and_close(struct device_job *job)
{
    struct hanging *hanging = (struct hanging *)job;
    float out[VOCAB];
    hanging->code = feed(hanging->stage, 0, 1, NULL, out, &hanging->err);
    stage_close(hanging->stage);
}

static void test_a_hanging_device_ends_when_it_is_closed(void **state)
{
    (void)state;
    struct gpu *gpu = open_sim("[one]\n" FAST "fail = hangs at 2s\n");
    struct device *device = gpu_find(gpu, "sim:one");
    struct hanging hanging = {.job = {.run = forward_and_close},
                              .stage = open_stage(device, model, 0, 2)};
    sleep_ms(2100);
    device_submit(device, &hanging.job);
    sleep_ms(300);
    assert_int_equal(hanging.code, ERROR_NONE); /* it has not come back */
    assert_int_equal(hanging.err.text[0], 0);
    uint64_t start_ns = clock_now_ns();
    gpu_close(gpu);
    assert_true(seconds_since(start_ns) < 10);
    assert_int_equal(hanging.code, ERROR_CANCELLED);
    expect_words(&hanging.err, "hung until it was closed");
}

static void test_an_interrupted_device_is_no_longer_paced(void **state)
{
    (void)state;
    struct gpu *gpu =
        open_sim("[one]\nmemory = 1GiB\ndecode = 1MB/s\nflops = 1MFLOP/s\nlaunch = 10s\n");
    struct device *device = gpu_find(gpu, "sim:one");
    struct hanging slow = {.job = {.run = forward_and_close},
                           .stage = open_stage(device, model, 0, 2)};
    uint64_t start_ns = clock_now_ns();
    device_submit(device, &slow.job);
    gpu_close(gpu);
    assert_true(seconds_since(start_ns) < 8);
    assert_int_equal(slow.code, ERROR_NONE);
}

static void test_an_allocation_fails_where_the_script_says(void **state)
{
    (void)state;
    struct gpu *gpu = open_sim("[one]\npreset = rtx-3060\nfail = allocation after 200MiB\n");
    struct device *device = gpu_find(gpu, "sim:one");
    struct device_buffer buffer;
    struct stage_options options = options_of(0, 2);
    struct stage *stage;
    struct error err = {0};
    assert_int_equal(device_alloc(device, (200u << 20) - 4096, &buffer, NULL), ERROR_NONE);
    assert_int_equal(stage_open(device, model, &options, &stage, &err), ERROR_NO_MEMORY);
    expect_words(&err, "(simulated: allocation after 200.0 MiB)");
    assert_int_equal(device_free(device, buffer, NULL), ERROR_NONE);
    stage_close(open_stage(device, model, 0, 2));
    gpu_close(gpu);
}

static void test_garbage_begins_where_the_script_says(void **state)
{
    (void)state;
    struct gpu *gpu = open_sim("[one]\n" FAST "fail = garbage after 3 batches\n");
    struct device *device = gpu_find(gpu, "sim:one");
    struct stage *cpu = open_stage(gpu_find(gpu, "cpu"), model, 0, 2),
                 *stage = open_stage(device, model, 0, 2);
    struct device_buffer buffer;
    uint8_t byte = 0x5a;
    assert_int_equal(device_alloc(device, 1, &buffer, NULL), ERROR_NONE);
    assert_int_equal(device_write(device, buffer, 0, &byte, 1, NULL), ERROR_NONE);
    for (uint32_t i = 0; i < 5; i++) {
        float want[VOCAB], got[VOCAB];
        feed_well(cpu, i, 1, NULL, want);
        feed_well(stage, i, 1, NULL, got);
        for (int j = 0; j < VOCAB; j++)
            assert_true(got[j] == (i < 3 ? want[j] : -want[j]));
    }
    assert_int_equal(device_read(device, buffer, 0, &byte, 1, NULL), ERROR_NONE);
    assert_int_equal(byte, 0xa5);
    stage_close(stage);
    stage_close(cpu);
    gpu_close(gpu);
}

/* ---- heat ------------------------------------------------------------------------------------ */

static void test_work_heats_it_and_heat_slows_it(void **state)
{
    (void)state;
    /* A thermal time constant of 50 ms: it goes to 85 C and throttles within the first batches, at
     * a fifth. */
    struct gpu *gpu = open_sim(
        "[one]\nmemory = 1GiB\ndecode = 100GB/s\nflops = 1TFLOP/s\nlaunch = 100ms\nclock = 1GHz\n"
        "power_idle = 20W\npower_max = 200W\nthermal_mass = 0.1J/K\nthermal_resistance = 0.5K/W\n"
        "limit = 85C\nhysteresis = 30K\nthrottle = 20%\n");
    struct device *device = gpu_find(gpu, "sim:one");
    struct stage *stage = open_stage(device, model, 0, 2);
    assert_true(device_temperature_mc(device).value < 40000);
    assert_true(device_clock_mhz(device).value == 1000 && device_power_mw(device).value == 20000);
    float out[VOCAB];
    bool was_hot = false, was_throttled = false;
    for (uint32_t i = 0; i < 40 && !(was_hot && was_throttled); i++) {
        feed_well(stage, i, 1, NULL, out);
        was_hot = was_hot || device_temperature_mc(device).value > 55000;
        was_throttled = was_throttled || device_clock_mhz(device).value == 200;
        assert_true(device_temperature_mc(device).value <= 85000);
    }
    assert_true(was_hot && was_throttled);
    sleep_ms(600); /* 12 time constants */
    assert_true(device_temperature_mc(device).value < 36000);
    assert_int_equal(device_clock_mhz(device).value, 1000);
    stage_close(stage);
    gpu_close(gpu);
}

/* Once at 60 C it stays throttled while it works: it would settle at 46 C, above the 40 C where it
 * recovers. */
static void test_throttled_work_takes_twice_as_long(void **state)
{
    (void)state;
    struct gpu *gpu = open_sim(
        "[one]\nmemory = 1GiB\ndecode = 50MB/s\nflops = 1TFLOP/s\nlaunch = 0s\ncopy = 1TB/s\n"
        "power_idle = 20W\npower_max = 200W\nthermal_mass = 0.4J/K\nthermal_resistance = 0.5K/W\n"
        "limit = 60C\nhysteresis = 20K\nthrottle = 50%\n");
    struct stage *stage = open_stage(gpu_find(gpu, "sim:one"), model, 0, 2);
    float out[VOCAB];
    for (uint32_t i = 0; i < 30; i++)
        feed_well(stage, i, 1, NULL, out);
    double ratio = 0;
    for (int attempt = 0; attempt < ATTEMPTS && !(ratio > 1.9 && ratio < 2.1); attempt++)
        ratio = decode_ratio(stage, 50e6, 0, 30);
    print_message("# measured / asked time while throttled to a half %.4f\n", ratio);
    assert_true(ratio > 1.9 && ratio < 2.1);
    stage_close(stage);
    gpu_close(gpu);
}

/* Half a second of launch: its power is drawn while it sleeps the rest of it off, not
 * afterwards. */
static void test_readings_of_another_thread_see_it_work(void **state)
{
    (void)state;
    struct gpu *gpu = open_sim("[one]\npreset = rtx-3060\nlaunch = 500ms\n");
    struct device *device = gpu_find(gpu, "sim:one");
    struct hanging job = {.job = {.run = forward_and_close},
                          .stage = open_stage(device, model, 0, 2)};
    const double cool_mc = device_temperature_mc(device).value;
    double power_mw = 0;
    uint64_t start_ns = clock_now_ns();
    assert_int_equal(device_power_mw(device).value, 13000);
    device_submit(device, &job.job);
    while (power_mw != 170000 && seconds_since(start_ns) < 10) {
        power_mw = device_power_mw(device).value;
        assert_true(device_clock_mhz(device).value == 1777 &&
                    device_temperature_mc(device).value >= cool_mc);
        assert_true(device_memory(device).free_bytes <= 12ull << 30);
    }
    assert_int_equal(power_mw, 170000);
    sleep_ms(200);
    assert_true(device_temperature_mc(device).value > cool_mc);
    gpu_close(gpu);
    assert_int_equal(job.code, ERROR_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decode_keeps_the_asked_pace),
        cmocka_unit_test(test_prefill_is_bound_by_flops),
        cmocka_unit_test(test_copies_keep_the_asked_pace),
        cmocka_unit_test(test_a_cpu_that_is_too_slow_is_said_once),
        cmocka_unit_test(test_a_dead_device_stays_dead),
        cmocka_unit_test(test_a_device_dies_in_the_middle_of_a_batch),
        cmocka_unit_test(test_a_hanging_device_ends_when_it_is_closed),
        cmocka_unit_test(test_an_interrupted_device_is_no_longer_paced),
        cmocka_unit_test(test_an_allocation_fails_where_the_script_says),
        cmocka_unit_test(test_garbage_begins_where_the_script_says),
        cmocka_unit_test(test_work_heats_it_and_heat_slows_it),
        cmocka_unit_test(test_throttled_work_takes_twice_as_long),
        cmocka_unit_test(test_readings_of_another_thread_see_it_work),
    };
    return cmocka_run_group_tests_name("sim_time", tests, sim_world_open, sim_world_close);
}
