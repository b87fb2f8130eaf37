/* sensors: NVIDIA's GPUs, through libraries that stand in for NVML: as it should be, old, slow,
 * hanging; and what is left of all sensors when memory runs out. */
#include "sensors_world.h"
#include "standin_nvml.h"

#include "base/clock.h"
#include "base/mem.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static standin_set *set_nvml;
static standin_count *count_nvml;

static int load_standin(void **state)
{
    (void)state;
    void *library = dlopen(STANDIN_NVML, RTLD_NOW); /* the same instance that the source gets */
    if (!library)
        return -1;
    void *set = dlsym(library, "standin_nvml_set"), *count = dlsym(library, "standin_nvml_open");
    memcpy(&set_nvml, &set, sizeof set);
    memcpy(&count_nvml, &count, sizeof count);
    return 0;
}

static struct sensors *open_nvml(const struct tree *tree, const char *path)
{
    struct sensors_options options = world_options(tree);
    options.nvml_path = path;
    options.retry_ms = 1;
    return world_open(&options);
}

/* For one that does not answer in time. */
static struct sensors *open_impatient(const struct tree *tree)
{
    struct sensors_options options = world_options(tree);
    options.nvml_path = STANDIN_NVML;
    options.answer_ms = 0;
    return world_open(&options);
}

/* Samples until the GPU's temperature is known again. */
static void sample_until_answered(struct sensors *sensors, struct sensor_sample *sample)
{
    for (int i = 0; i < 100; i++) {
        sensors_sample(sensors, sample);
        if (sample->devices[DEVICE_OF_NVIDIA].temperature_mc.valid)
            return;
        pause_ms(50);
    }
    fail_msg("it does not answer any more");
}

static void test_nvml(void **state)
{
    (void)state;
    struct tree tree;
    static struct sensor_sample sample;
    tree_open(&tree);
    set_nvml(STANDIN_NORMAL);
    struct sensors *sensors = open_nvml(&tree, STANDIN_NVML);
    assert_available(sensors, "nvml");
    sensors_sample(sensors, &sample);
    const struct sensor_device *gpu = &sample.devices[DEVICE_OF_NVIDIA];
    assert_reads(gpu->temperature_mc, 64000);
    assert_reads(gpu->temperature_slowdown_mc, 95000);
    assert_reads(gpu->temperature_critical_mc, 98000);
    assert_reads(gpu->power_mw, 150000);
    assert_reads(gpu->power_limit_mw, 300000);
    assert_reads(gpu->clock_mhz, 1500);
    assert_reads(gpu->memory_used_bytes, 8ull << 30);
    assert_reads(gpu->memory_free_bytes, 16ull << 30);
    assert_reads(gpu->utilisation_pct, 42);
    assert_all_unknown(&sample.devices[DEVICE_OF_AMD]);

    set_nvml(STANDIN_ERRORS);
    sensors_sample(sensors, &sample);
    assert_all_unknown(gpu);
    assert_true(gpu->temperature_mc.time_ns > 0);
    set_nvml(STANDIN_NONSENSE);
    sensors_sample(sensors, &sample);
    assert_all_unknown(gpu);
    set_nvml(STANDIN_LOST);
    sensors_sample(sensors, &sample);
    sensors_sample(sensors, &sample);
    assert_all_unknown(gpu);
    set_nvml(STANDIN_NORMAL); /* plugged in again */
    sensors_sample(sensors, &sample);
    assert_reads(gpu->temperature_mc, 64000);
    assert_int_equal(count_nvml(), 1);
    sensors_close(sensors);
    assert_int_equal(count_nvml(), 0);
    tree_close(&tree);
}

static void test_nvml_that_does_not_start_says_why(void **state)
{
    (void)state;
    static const struct {
        enum standin_mode mode;
        const char *words;
    } cases[] = {{STANDIN_NO_DRIVER, "sudo modprobe nvidia"},
                 {STANDIN_NO_PERMISSION, "sudo usermod -aG video $USER"},
                 {STANDIN_MISMATCH, "restart the machine"}};
    struct tree tree;
    static struct sensor_sample sample;
    tree_open(&tree);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        set_nvml(cases[i].mode);
        struct sensors *sensors = open_nvml(&tree, STANDIN_NVML);
        assert_absent(sensors, "nvml", cases[i].words);
        sensors_sample(sensors, &sample);
        assert_all_unknown(&sample.devices[DEVICE_OF_NVIDIA]);
        set_nvml(STANDIN_NORMAL); /* mended while we run */
        pause_ms(5);
        sensors_sample(sensors, &sample);
        assert_available(sensors, "nvml");
        assert_reads(sample.devices[DEVICE_OF_NVIDIA].temperature_mc, 64000);
        sensors_close(sensors);
    }
    assert_int_equal(count_nvml(), 0);
    tree_close(&tree);
}

static void test_nvml_that_lacks_functions(void **state)
{
    (void)state;
    struct tree tree;
    static struct sensor_sample sample;
    tree_open(&tree);
    struct sensors *sensors = open_nvml(&tree, STANDIN_NVML_OLD);
    assert_available(sensors, "nvml");
    sensors_sample(sensors, &sample);
    const struct sensor_device *gpu = &sample.devices[DEVICE_OF_NVIDIA];
    assert_reads(gpu->temperature_mc, 64000);
    assert_unknown(gpu->power_mw);
    assert_unknown(gpu->memory_used_bytes);
    assert_unknown(gpu->clock_mhz);
    sensors_close(sensors);
    sensors = open_nvml(&tree, STANDIN_NVML_NEW);
    sensors_sample(sensors, &sample);
    assert_reads(gpu->temperature_mc, 64000);
    sensors_close(sensors);
    sensors = open_nvml(&tree, STANDIN_NVML_USELESS);
    assert_absent(sensors, "nvml", "lacks nvmlDeviceGetHandleByPciBusId: update the NVIDIA driver");
    sensors_close(sensors);
    sensors = open_nvml(&tree, STANDIN_ZE); /* a library, but quite another one */
    assert_absent(sensors, "nvml", "lacks nvmlInit");
    sensors_close(sensors);
    tree_write(&tree, "not a library", "fake.so");
    char path[128];
    snprintf(path, sizeof path, "%s/fake.so", tree.root);
    sensors = open_nvml(&tree, path);
    assert_absent(sensors, "nvml", "cannot open");
    sensors_close(sensors);
    tree_close(&tree);
}

static void test_slow_nvml_holds_up_nobody(void **state)
{
    (void)state;
    struct tree tree;
    static struct sensor_sample sample;
    tree_open(&tree);
    tree_add_laptop(&tree);
    set_nvml(STANDIN_NORMAL);
    struct sensors *sensors = open_impatient(&tree);
    set_nvml(STANDIN_SLOW);
    bool read = false;
    uint64_t first_ns = clock_now_ns();
    for (int i = 0; i < 100 && !read; i++) {
        pause_ms(50);
        uint64_t start_ns = clock_now_ns();
        sensors_sample(sensors, &sample);
        assert_true(clock_now_ns() - start_ns <
                    2000000000u); /* 100 ms, and what a busy machine adds */
        assert_reads(sample.devices[DEVICE_OF_CPU].temperature_mc, 64000);
        assert_true(sample.devices[DEVICE_OF_CPU].temperature_mc.time_ns >= start_ns);
        /* It is behind, but its last readings still count, with their own time. */
        const struct reading *gpu = &sample.devices[DEVICE_OF_NVIDIA].temperature_mc;
        read |= gpu->valid && gpu->time_ns > first_ns + 200000000 && gpu->time_ns < start_ns;
    }
    assert_true(read);
    sensors_close(sensors);
    set_nvml(STANDIN_NORMAL);
    tree_close(&tree);
}

static void wait_for_shutdown(void)
{
    for (int i = 0; i < 5000 && count_nvml(); i++)
        pause_ms(1);
    assert_int_equal(count_nvml(), 0);
}

static void test_hanging_nvml_is_left_behind(void **state)
{
    (void)state;
    struct tree tree;
    static struct sensor_sample sample;
    tree_open(&tree);
    tree_add_laptop(&tree);
    set_nvml(STANDIN_NORMAL);
    struct sensors *sensors = open_impatient(&tree);
    sample_until_answered(sensors, &sample);
    set_nvml(STANDIN_HANG);
    uint64_t start_ns = clock_now_ns();
    sensors_sample(sensors, &sample);
    uint64_t asked_ns = clock_now_ns();
    unsigned n_samples = 0;
    for (; clock_now_ns() - start_ns < (LIMIT_SENSOR_STALE_MS + 300) * 1000000ull; n_samples++) {
        sensors_sample(sensors, &sample);
        pause_ms(1);
        assert_reads(sample.devices[DEVICE_OF_CPU].temperature_mc, 64000);
    }
    assert_true(n_samples >
                (LIMIT_SENSOR_STALE_MS - (asked_ns - start_ns) / 1000000) / LIMIT_SENSOR_ANSWER_MS);
    assert_unknown(sample.devices[DEVICE_OF_NVIDIA].temperature_mc); /* stale by now */
    assert_true(sample.devices[DEVICE_OF_NVIDIA].temperature_mc.time_ns > 0);
    assert_absent(sensors, "nvml", "has not answered for 2 s");
    /* It answers again: nothing was lost. */
    set_nvml(STANDIN_NORMAL);
    sample_until_answered(sensors, &sample);
    assert_reads(sample.devices[DEVICE_OF_NVIDIA].temperature_mc, 64000);
    assert_available(sensors, "nvml");
    /* Closed while it hangs: prompt, and the thread cleans up when the driver returns at last. */
    set_nvml(STANDIN_HANG);
    pause_ms(10);
    sensors_sample(sensors, &sample);
    start_ns = clock_now_ns();
    sensors_close(sensors);
    assert_true(clock_now_ns() - start_ns < 5000000000u);
    assert_int_equal(count_nvml(), 1);
    set_nvml(STANDIN_NORMAL);
    wait_for_shutdown();
    tree_close(&tree);
}

static void test_nvml_that_hangs_at_start(void **state)
{
    (void)state;
    struct tree tree;
    static struct sensor_sample sample;
    tree_open(&tree);
    tree_add_laptop(&tree);
    set_nvml(STANDIN_HANG_INIT);
    uint64_t start_ns = clock_now_ns();
    struct sensors *sensors = open_impatient(&tree);
    assert_true(clock_now_ns() - start_ns < 20000000000u);
    assert_absent(sensors, "nvml", "has not answered");
    sensors_sample(sensors, &sample);
    assert_reads(sample.devices[DEVICE_OF_CPU].temperature_mc, 64000);
    set_nvml(STANDIN_NORMAL);
    sample_until_answered(sensors, &sample);
    assert_reads(sample.devices[DEVICE_OF_NVIDIA].temperature_mc, 64000);
    sensors_close(sensors);
    wait_for_shutdown();
    tree_close(&tree);
}

static void test_every_failed_allocation_is_survived(void **state)
{
    (void)state;
    struct tree tree;
    static struct sensor_sample sample;
    tree_open(&tree);
    tree_add_laptop(&tree);
    tree_add_radeon(&tree, "0000:c1:00.0");
    set_nvml(STANDIN_NORMAL);
    setenv("MEDLEY_STANDIN_LEVEL_ZERO", "normal", 1);
    struct sensors_options options = world_options(&tree);
    options.nvml_path = STANDIN_NVML;
    options.level_zero_path = STANDIN_ZE;
    options.retry_ms = 1;
    for (unsigned nth = 1; nth <= 60; nth++) {
        struct sensors *sensors;
        mem_fail_nth(nth);
        enum error_code code = sensors_open(&options, world_devices, WORLD_DEVICES, &sensors, NULL);
        mem_fail_nth(0);
        if (code)
            continue;
        pause_ms(3);
        sensors_sample(sensors, &sample);
        assert_reads(sample.devices[DEVICE_OF_NVIDIA].temperature_mc, 64000);
        assert_reads(sample.devices[DEVICE_OF_AMD].temperature_mc, 71000);
        sensors_close(sensors);
    }
    assert_int_equal(count_nvml(), 0);
    tree_close(&tree);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nvml),
        cmocka_unit_test(test_nvml_that_does_not_start_says_why),
        cmocka_unit_test(test_nvml_that_lacks_functions),
        cmocka_unit_test(test_slow_nvml_holds_up_nobody),
        cmocka_unit_test(test_hanging_nvml_is_left_behind),
        cmocka_unit_test(test_nvml_that_hangs_at_start),
        cmocka_unit_test(test_every_failed_allocation_is_survived),
    };
    return cmocka_run_group_tests_name("sensors_gpu", tests, load_standin, NULL);
}
