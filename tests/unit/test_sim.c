/* Simulated devices under the engine: the CPU's results to the bit, at the speed, in the memory and with the
 * failures of their file. Times are measured against what the file asks for, with retries where a busy machine may
 * have been in the way; each bound is one that a missing or doubled pace breaks. */
#include "base/clock.h"
#include "base/mem.h"
#include "engine/stage.h"
#include "engine/stage_work.h"
#include "gpu/device_sim.h"
#include "gpu/gpu.h"
#include "gpu/sim_file.h"
#include "model/model.h"

#include <fcntl.h>
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

enum { VOCAB = 320, ATTEMPTS = 6 };

static struct model *model;

static struct model *open_model(const char *name)
{
    char path[512];
    struct error err = {0};
    struct model *opened;
    assert_non_null(getenv("MEDLEY_GOLDEN"));
    snprintf(path, sizeof path, "%s/models/%s.gguf", getenv("MEDLEY_GOLDEN"), name);
    if (model_open(path, &opened, &err))
        fail_msg("%s", err.text);
    return opened;
}

static int open_all(void **state)
{
    (void)state;
    model = open_model("qwen3");
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    model_close(model);
    return 0;
}

#define FAST "memory = 1GiB\ndecode = 100GB/s\nflops = 100TFLOP/s\nlaunch = 0s\ncopy = 1TB/s\n"

static enum error_code try_open(const char *ini, struct gpu **gpu, struct error *err)
{
    char path[] = "/tmp/medley-sim-XXXXXX";
    int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    assert_int_equal(write(descriptor, ini, strlen(ini)), (ssize_t)strlen(ini));
    close(descriptor);
    enum error_code code =
        gpu_open(&(struct gpu_options){.n_cpu_threads = 2, .skip_other = true, .sim_file = path}, gpu, err);
    remove(path);
    return code;
}

static struct gpu *open_sim(const char *ini)
{
    struct gpu *gpu = NULL;
    struct error err = {0};
    if (try_open(ini, &gpu, &err))
        fail_msg("%s", err.text);
    return gpu;
}

static struct stage_options options_of(uint32_t first_layer, uint32_t n_layers)
{
    return (struct stage_options){.first_layer = first_layer,
                                  .n_layers = n_layers,
                                  .n_slots = 2,
                                  .context = 256,
                                  .rows_max = 128,
                                  .kv_type = KV_F16};
}

static struct stage *open_stage(struct device *device, const struct model *what, uint32_t first_layer,
                                uint32_t n_layers)
{
    struct stage_options options = options_of(first_layer, n_layers);
    struct stage *stage = NULL;
    struct error err = {0};
    assert_non_null(device);
    if (stage_open(device, what, &options, &stage, &err))
        fail_msg("%s", err.text);
    return stage;
}

/* Tokens by position, to slot 0; only the last one's output is wanted on the last stage. */
static enum error_code feed(struct stage *stage, uint32_t first, uint32_t n, const float *in, float *out,
                            struct error *err)
{
    struct batch_row rows[128];
    for (uint32_t i = 0; i < n; i++)
        rows[i] = (struct batch_row){
            .position = first + i, .token = (int32_t)((first + i) * 31 % VOCAB), .output = i + 1 == n};
    return stage_forward(stage, &(struct batch){.rows = rows, .n_rows = n}, in, out, err);
}

static void feed_well(struct stage *stage, uint32_t first, uint32_t n, const float *in, float *out)
{
    struct error err = {0};
    if (feed(stage, first, n, in, out, &err))
        fail_msg("%s", err.text);
}

static double seconds_since(uint64_t start_ns)
{
    return (double)(clock_now_ns() - start_ns) * 1e-9;
}

static void expect_words(const struct error *err, const char *words)
{
    if (!strstr(err->text, words))
        fail_msg("'%s' does not say '%s'", err->text, words);
}

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
    struct gpu *gpu = open_sim("[dead]\n" FAST "fail = dies at 0s\n[liar]\n" FAST "fail = garbage after 0 batches\n"
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
    assert_int_equal(
        device_open(&device_impl_sim, &file, 0, &(struct gpu_options){.n_cpu_threads = 1}, 300, &info, &device, &err),
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
    assert_true(device_memory(device).free_bytes == (1ull << 30) - taken.weights - taken.kv - taken.compute);
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
    expect_words(&err, "1.00 GiB is free");
    expect_words(&err, "would fit");
    struct device_buffer buffer;
    assert_int_equal(device_alloc(device, (1u << 30) + 1, &buffer, &err), ERROR_NO_MEMORY);
    /* The device has it, the machine has not. */
    options.context = LIMIT_CONTEXT;
    options.n_slots = LIMIT_SEQUENCES;
    assert_int_equal(stage_open(gpu_find(gpu, "sim:big"), model, &options, &stage, &err), ERROR_NO_MEMORY);
    expect_words(&err, "the machine that simulates it has");
    assert_true(device_memory(gpu_find(gpu, "sim:big")).free_bytes == 1000ull << 40);
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

/* ---- pace ------------------------------------------------------------------------------------ */

/* Of `n_steps` decode steps, the measured time over the one that the file asks for. */
static double decode_ratio(struct stage *stage, double bytes_per_s, double launch_s, uint32_t n_steps)
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
        ratio = decode_ratio(stage, bytes_per_s, launch_s, 100);
        print_message("asked %.3g MB/s: measured / asked time %.4f\n", bytes_per_s * 1e-6, ratio);
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
    const char *limits = "[one]\nmemory = 1GiB\nflops = 1MFLOP/s\ncopy = 1000TB/s\n"; /* one row knows no FLOP/s */
    char ini[256];
    snprintf(ini, sizeof ini, "%sdecode = 100MB/s\nlaunch = 0s\n", limits);
    expect_pace(ini, 100e6, 0);
    snprintf(ini, sizeof ini, "%sdecode = 60MB/s\nlaunch = 5ms\n", limits);
    expect_pace(ini, 60e6, 5e-3);
}

static void test_prefill_is_bound_by_flops(void **state)
{
    (void)state;
    struct gpu *gpu = open_sim("[one]\nmemory = 1GiB\ndecode = 100GB/s\nflops = 50MFLOP/s\nlaunch = 0s\n");
    struct stage *stage = open_stage(gpu_find(gpu, "sim:one"), model, 0, 2);
    struct stage_cost cost;
    struct stage_options options = options_of(0, 2);
    stage_cost_read(model, &options, &cost);
    double flops = 64.0 * (double)cost.layers.flops_per_token + (double)cost.output.flops_per_token +
                   64.0 * 65 / 2 * (double)cost.layers.flops_per_token_per_context;
    float out[VOCAB];
    double ratio = 0;
    for (int attempt = 0; attempt < ATTEMPTS && !(ratio > 0.95 && ratio < 1.05); attempt++) {
        stage_kv_truncate(stage, 0, 0);
        uint64_t start_ns = clock_now_ns();
        feed_well(stage, 0, 64, NULL, out);
        ratio = seconds_since(start_ns) / (flops / 50e6);
    }
    print_message("measured / asked time of a prompt %.4f\n", ratio);
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
    uint64_t start_ns = clock_now_ns();
    assert_int_equal(device_write(slow, here, 0, bytes, BYTES, NULL), ERROR_NONE);
    assert_int_equal(device_copy(slow, here, 0, fast, there, 0, BYTES, NULL), ERROR_NONE);
    assert_int_equal(device_read(slow, here, 0, bytes, BYTES, NULL), ERROR_NONE);
    double spent_s = seconds_since(start_ns);
    assert_true(spent_s > 0.57 && spent_s < 1.2); /* three of 0.2 s; the sleep of opening may be owed to us */
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
    struct gpu *gpu = open_sim("[one]\nmemory = 1GiB\ndecode = 1000TB/s\nflops = 1000PFLOP/s\nlaunch = 0s\n");
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
    struct gpu *gpu = open_sim("[one]\nmemory = 1GiB\ndecode = 1MB/s\nflops = 1MFLOP/s\nfail = dies at 2s\n");
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
    struct hanging hanging = {.job = {.run = forward_and_close}, .stage = open_stage(device, model, 0, 2)};
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
    struct gpu *gpu = open_sim("[one]\nmemory = 1GiB\ndecode = 1MB/s\nflops = 1MFLOP/s\nlaunch = 10s\n");
    struct device *device = gpu_find(gpu, "sim:one");
    struct hanging slow = {.job = {.run = forward_and_close}, .stage = open_stage(device, model, 0, 2)};
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
    struct stage *cpu = open_stage(gpu_find(gpu, "cpu"), model, 0, 2), *stage = open_stage(device, model, 0, 2);
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
    /* A thermal time constant of 50 ms: it goes to 85 C and throttles within the first batches, at a fifth. */
    struct gpu *gpu =
        open_sim("[one]\nmemory = 1GiB\ndecode = 100GB/s\nflops = 1TFLOP/s\nlaunch = 100ms\nclock = 1GHz\n"
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

/* ---- what a batch costs ---------------------------------------------------------------------- */

static void test_costs_of_stages_add_up(void **state)
{
    (void)state;
    struct stage_options whole = options_of(0, 2), first = options_of(0, 1), last = options_of(1, 1);
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
    assert_true(work[1].bytes_copied == 12 && work[2].bytes_copied == 12ull * model_hyperparameters(model)->n_embd);
    /* one more token of context: its cache is read once more, its attention computed once more */
    rows[0].position++;
    struct device_work longer;
    stage_work_count(&costs[0], &(struct batch){.rows = rows, .n_rows = 3}, &longer);
    assert_true(longer.bytes_read == work[0].bytes_read + costs[0].kv_bytes_per_token);
    assert_true(longer.flops == work[0].flops + costs[0].layers.flops_per_token_per_context);
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
        cmocka_unit_test(test_exhaustion_and_back),
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
        cmocka_unit_test(test_costs_of_stages_add_up),
    };
    return cmocka_run_group_tests_name("sim", tests, open_all, close_all);
}
