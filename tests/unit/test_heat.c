/* The governors at work on a simulated device, and what `medley top` shows of it. */
#include "base/clock.h"
#include "base/mem.h"
#include "cli/top_screen.h"
#include "heat/heat.h"
#include "sim_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <yyjson.h>

#include <cmocka.h>

/* Unchecked it would pass its limit after about a second of work and end near 175 C. */
#define HOT                                                                                        \
    "[hot]\nmemory = 64MiB\ndecode = 1GB/s\nflops = 1GFLOP/s\nlaunch = 0s\npower_idle = "          \
    "5W\npower_max = 100W\n"                                                                       \
    "thermal_mass = 2J/K\nthermal_resistance = 1.5K/W\nlimit = 80C\nthrottle = 100%\n"

static void sleep_ms(long ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

/* Work without end: a job of 20 ms that queues itself again. */
struct load {
    struct device_job job;
    struct device *device;
    atomic_bool stop;
    atomic_uint n_done;
    atomic_bool stopped;
};

static void work(struct device_job *job)
{
    struct load *load = (struct load *)job;
    struct device_work batch = {.bytes_read = 20 * 1000 * 1000, .n_rows = 1};
    struct error err;
    assert_int_equal(device_worked(load->device, &batch, &err), ERROR_NONE);
    atomic_fetch_add(&load->n_done, 1);
    if (atomic_load(&load->stop))
        atomic_store(&load->stopped, true);
    else
        device_submit(load->device, job);
}

static void load_begin(struct load *load, struct device *device)
{
    *load = (struct load){.job.run = work, .device = device};
    device_submit(device, &load->job);
}

static void load_end(struct load *load)
{
    atomic_store(&load->stop, true);
    while (!atomic_load(&load->stopped))
        sleep_ms(5);
}

/* The highest temperature in so many seconds, in C. */
static double hottest_during(const struct device *device, double seconds)
{
    double hottest = 0;
    for (uint64_t start_ns = clock_now_ns(); seconds_since(start_ns) < seconds; sleep_ms(20)) {
        struct reading now = device_temperature_mc(device);
        assert_true(now.valid);
        hottest = (double)now.value * 1e-3 > hottest ? (double)now.value * 1e-3 : hottest;
    }
    return hottest;
}

struct wishes {
    atomic_uint n;
    atomic_bool lower;
    struct device *device;
};

static void on_precision(void *arg, struct device *device, bool lower)
{
    struct wishes *wishes = arg;
    assert_ptr_equal(device, wishes->device);
    assert_true(atomic_exchange(&wishes->lower, lower) != lower); /* changes only */
    atomic_fetch_add(&wishes->n, 1);
}

static void test_a_governed_device_keeps_below_its_limit(void **state)
{
    (void)state;
    struct gpu *gpu = open_sim(HOT);
    struct device *device = gpu_find(gpu, "sim:hot");
    struct heat *heat;
    struct error err;
    struct wishes wishes = {.device = device};
    struct heat_options options = {.period_ms = 100, .on_precision = on_precision, .arg = &wishes};
    assert_int_equal(heat_open(gpu, &options, &heat, &err), ERROR_NONE);
    struct load load;
    load_begin(&load, device);
    double hottest = hottest_during(device, 5);
    struct heat_snapshot *snapshot = calloc(1, sizeof *snapshot);
    assert_non_null(snapshot);
    heat_latest(heat, snapshot);
    print_message("# hottest %.1f C of 80, %u batches of 250\n", hottest,
                  atomic_load(&load.n_done));
    assert_true(hottest < 80);
    assert_true(hottest > 50); /* it did work */
    assert_true(atomic_load(&load.n_done) > 5);
    assert_true(snapshot->time_ns > 0);
    assert_int_equal(snapshot->n_devices, 2);
    const struct heat_device *seen = &snapshot->devices[1];
    assert_string_equal(seen->thermal.id, "sim:hot");
    assert_true(seen->thermal.limit_c == 80);
    assert_true(seen->thermal.action.duty < 1);
    assert_true(seen->readings.temperature_mc.valid && seen->readings.power_mw.valid);
    assert_true(seen->thermal.action.lower_precision && atomic_load(&wishes.lower));
    free(snapshot);
    heat_close(heat);                         /* full duty again, though it may have been paused */
    assert_true(atomic_load(&wishes.n) >= 2); /* asked for first of all, taken back at the end */
    assert_false(atomic_load(&wishes.lower));
    unsigned before = atomic_load(&load.n_done);
    sleep_ms(500);
    assert_true(atomic_load(&load.n_done) > before);
    load_end(&load);
    gpu_close(gpu);
}

static void test_watching_changes_nothing(void **state)
{
    (void)state;
    struct gpu *gpu = open_sim(HOT);
    struct device *device = gpu_find(gpu, "sim:hot");
    struct heat *heat;
    struct error err;
    struct heat_options options = {.period_ms = 100, .watch_only = true};
    assert_int_equal(heat_open(gpu, &options, &heat, &err), ERROR_NONE);
    struct load load;
    load_begin(&load, device);
    assert_true(hottest_during(device, 3) > 80); /* nobody held it */
    load_end(&load);
    heat_close(heat);
    gpu_close(gpu);
}

static void test_every_failed_allocation_is_survived(void **state)
{
    (void)state;
    struct gpu *gpu = open_sim(HOT);
    struct heat *heat = NULL;
    unsigned nth = 0;
    while (!heat) {
        assert_true(++nth < 100);
        struct error err = {0};
        mem_fail_nth(nth);
        enum error_code code = heat_open(gpu, NULL, &heat, &err);
        mem_fail_nth(0);
        assert_int_equal(code, heat ? ERROR_NONE : ERROR_NO_MEMORY);
        assert_int_equal(heat == NULL, err.text[0] != 0);
    }
    assert_true(nth > 4); /* some of them did fail */
    heat_close(heat);
    gpu_close(gpu);
}

static void test_the_screen(void **state)
{
    (void)state;
    struct gpu *gpu = open_sim(HOT);
    struct heat_snapshot *snapshot = calloc(1, sizeof *snapshot);
    assert_non_null(snapshot);
    snapshot->n_devices = 2;
    snapshot->devices[0].device = gpu_find(gpu, "cpu");
    snapshot->devices[0].thermal.action =
        (struct thermal_action){.reason = THERMAL_FREE, .duty = 1};
    struct heat_device *hot = &snapshot->devices[1];
    hot->device = gpu_find(gpu, "sim:hot");
    hot->readings.temperature_mc = (struct reading){74300, 1, true};
    hot->readings.power_mw = (struct reading){61500, 1, true};
    hot->readings.clock_mhz = (struct reading){1900, 1, true};
    hot->thermal = (struct thermal_state){
        .limit_c = 80,
        .stop_c = 75,
        .action = {.reason = THERMAL_MODEL,
                   .duty = 0.43,
                   .lower_precision = true,
                   .headroom_w = {-12.4, true},
                   .headroom_s = {9, true}},
    };
    snapshot->node.cpu_utilisation_pct = (struct reading){37, 1, true};
    snapshot->node.battery_pct = (struct reading){55, 1, true};
    struct buffer text = {0};
    top_screen(snapshot, 160, 0, &text);
    buffer_append(&text, "", 1);
    static const char *const words[] = {"cpu 37 %",
                                        "battery 55 %",
                                        "74.3 C",
                                        "61.5 W",
                                        "1900 MHz",
                                        "-12 W, 75 C in 9 s",
                                        "[####......] duty 43 %",
                                        "lower precision asked for",
                                        "hottest: sim:hot, 74.3 C; a governor keeps it below 75 C"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (!strstr(text.data, words[i]))
            fail_msg("'%s' is not in:\n%s", words[i], text.data);
    }
    for (uint32_t width = 1; width <= 90; width++) { /* any window shows what fits */
        for (uint32_t height = 1; height <= 12; height++) {
            buffer_clear(&text);
            top_screen(snapshot, width, height, &text);
            uint32_t n_lines = 0;
            for (size_t at = 0, column = 0; at < text.size; at++) {
                column = text.data[at] == '\n' ? 0 : column + 1;
                n_lines += text.data[at] == '\n';
                assert_true(column <= width);
            }
            assert_true(n_lines > 0 && n_lines <= height);
        }
    }
    buffer_clear(&text);
    top_screen(snapshot, 80, 24, &text);
    buffer_append(&text, "", 1);
    assert_non_null(strstr(text.data, "-12 W, 75 C in 9 s")); /* headroom fits into 80 columns */
    buffer_clear(&text);
    top_screen(snapshot, 80, 5, &text);
    buffer_append(&text, "", 1);
    assert_non_null(strstr(text.data, "(3 lines more: make the window higher)"));
    buffer_clear(&text);
    buffer_clear(&text);
    assert_true(top_json(snapshot, &text));
    yyjson_doc *doc = yyjson_read(text.data, text.size, 0);
    yyjson_val *root = yyjson_doc_get_root(doc);
    assert_true(yyjson_is_null(yyjson_ptr_get(root, "/devices/0/temperature_mc")));
    assert_int_equal(yyjson_get_uint(yyjson_ptr_get(root, "/devices/1/temperature_mc")), 74300);
    assert_int_equal(yyjson_get_uint(yyjson_ptr_get(root, "/devices/1/duty_permille")), 430);
    assert_int_equal(yyjson_get_uint(yyjson_ptr_get(root, "/machine/cpu_utilisation_pct")), 37);
    yyjson_doc_free(doc);
    buffer_deinit(&text);
    free(snapshot);
    gpu_close(gpu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_governed_device_keeps_below_its_limit),
        cmocka_unit_test(test_watching_changes_nothing),
        cmocka_unit_test(test_every_failed_allocation_is_survived),
        cmocka_unit_test(test_the_screen),
    };
    return cmocka_run_group_tests_name("heat", tests, NULL, NULL);
}
