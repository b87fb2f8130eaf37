/* sensors: GPUs, through the kernel's files and through libraries that stand in for the
 * drivers'. */
#include "gpu_fake.h"
#include "sensors_world.h"
#include "standin_nvml.h"

#include "base/clock.h"
#include "base/mem.h"
#include "sensors/on_demand.h"
#include "sensors/sysfs.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

static void assert_all_unknown(const struct sensor_device *device)
{
    const struct reading *all = (const struct reading *)device;
    for (size_t i = 0; i < sizeof *device / sizeof *all; i++)
        assert_unknown(all[i]);
}

/* ---- the kernel's files -------------------------------------------------------------------- */

static void test_radeon(void **state)
{
    (void)state;
    struct tree tree;
    static struct sensor_sample sample;
    tree_open(&tree);
    tree_add_radeon(&tree, "0000:c1:00.0");
    struct sensors_options options = world_options(&tree);
    struct sensors *sensors = world_open(&options);
    assert_available(sensors, "amdgpu");
    sensors_sample(sensors, &sample);
    const struct sensor_device *gpu = &sample.devices[DEVICE_OF_AMD];
    assert_reads(gpu->temperature_mc, 71000);
    assert_reads(gpu->temperature_slowdown_mc, 110000);
    assert_reads(gpu->temperature_critical_mc, 115000);
    assert_reads(gpu->power_mw, 180000);
    assert_reads(gpu->power_limit_mw, 250000);
    assert_reads(gpu->clock_mhz, 2100);
    assert_reads(gpu->memory_used_bytes, 3ull << 30);
    assert_reads(gpu->memory_free_bytes, 13ull << 30);
    assert_reads(gpu->utilisation_pct, 87);
    assert_all_unknown(&sample.devices[DEVICE_OF_NVIDIA]);
    assert_all_unknown(&sample.devices[DEVICE_OF_INTEL]);

    /* A newer card: no average, no junction; under another number. */
    tree_remove(&tree, "sys/bus/pci/devices/0000:c1:00.0/hwmon/hwmon5");
    sensors_sample(sensors, &sample);
    assert_unknown(gpu->temperature_mc);
    assert_unknown(gpu->power_mw);
    assert_reads(gpu->utilisation_pct, 87);
    tree_write(&tree, "48000", "sys/bus/pci/devices/0000:c1:00.0/hwmon/hwmon9/temp1_input");
    tree_write(&tree, "33000000", "sys/bus/pci/devices/0000:c1:00.0/hwmon/hwmon9/power1_input");
    sensors_sample(sensors, &sample);
    assert_reads(gpu->temperature_mc, 48000);
    assert_reads(gpu->power_mw, 33000);

    /* Unplugged, and plugged in again. */
    tree_remove(&tree, "sys/bus/pci/devices/0000:c1:00.0");
    sensors_sample(sensors, &sample);
    assert_all_unknown(gpu);
    tree_add_radeon(&tree, "0000:c1:00.0");
    sensors_sample(sensors, &sample);
    assert_reads(gpu->temperature_mc, 71000);
    sensors_close(sensors);
    tree_close(&tree);
}

static void test_radeon_nonsense(void **state)
{
    (void)state;
    static const char *const files[] = {
        "gpu_busy_percent",         "mem_info_vram_total",         "mem_info_vram_used",
        "hwmon/hwmon5/temp2_input", "hwmon/hwmon5/temp2_crit",     "hwmon/hwmon5/temp2_emergency",
        "hwmon/hwmon5/power1_cap",  "hwmon/hwmon5/power1_average", "hwmon/hwmon5/freq1_input"};
    static const char *const texts[] = {
        "", "-1", "junk", "99999999999999999999", "18446744073709551615", "1e9"};
    static struct sensor_sample sample;
    for (size_t t = 0; t <= sizeof texts / sizeof *texts; t++) {
        struct tree tree;
        tree_open(&tree);
        tree_add_radeon(&tree, "0000:c1:00.0");
        struct sensors_options options = world_options(&tree);
        struct sensors *sensors = world_open(&options);
        for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
            if (t < sizeof texts / sizeof *texts) {
                tree_write(&tree, texts[t], "sys/bus/pci/devices/0000:c1:00.0/%s", files[i]);
            } else {
                tree_remove(&tree, "sys/bus/pci/devices/0000:c1:00.0/%s", files[i]);
                tree_pipe(&tree, "sys/bus/pci/devices/0000:c1:00.0/%s", files[i]);
            }
        }
        sensors_sample(sensors, &sample);
        assert_all_unknown(&sample.devices[DEVICE_OF_AMD]);
        sensors_close(sensors);
        tree_close(&tree);
    }
}

static void test_gpus_without_their_driver_say_so(void **state)
{
    (void)state;
    struct tree tree;
    tree_open(&tree);
    tree_add_radeon(&tree, "0000:c1:00.0");
    tree_add_arc(&tree, "0000:03:00.0");
    tree_write(&tree, "0x10de\n", "sys/bus/pci/devices/0000:01:00.0/vendor");
    tree_write(&tree, "0x030200\n", "sys/bus/pci/devices/0000:01:00.0/class");
    tree_remove(&tree, "sys/bus/pci/drivers");
    struct sensors_options options = world_options(&tree);
    options.nvml_path = options.level_zero_path = NULL;
    struct sensors *sensors = world_open(&options);
    assert_absent(sensors, "amdgpu", "GPU 0000:c1:00.0: `sudo modprobe amdgpu`");
    assert_absent(sensors, "intel_sysfs", "`sudo modprobe i915`");
    if (!dlopen("libnvidia-ml.so.1", RTLD_NOW))
        assert_absent(sensors, "nvml", "GPU 0000:01:00.0 is there, but not the driver's library");
    if (!dlopen("libze_loader.so.1", RTLD_NOW))
        assert_absent(sensors, "level_zero", "sudo apt install libze1");
    sensors_close(sensors);
    tree_close(&tree);
}

static void test_arc_through_the_kernel(void **state)
{
    (void)state;
    struct tree tree;
    static struct sensor_sample sample;
    tree_open(&tree);
    tree_add_arc(&tree, "0000:03:00.0");
    struct sensors_options options = world_options(&tree);
    struct sensors *sensors = world_open(&options);
    assert_available(sensors, "intel_sysfs");
    const struct sensor_device *gpu = &sample.devices[DEVICE_OF_INTEL];
    pause_ms(20);
    tree_write(&tree, "6000000\n", "sys/bus/pci/devices/0000:03:00.0/hwmon/hwmon6/energy2_input");
    sensors_sample(sensors, &sample);
    assert_reads(gpu->temperature_mc, 55000); /* of the package, not of its memory */
    assert_reads(gpu->clock_mhz, 2400);
    assert_reads(gpu->power_limit_mw, 190000);
    assert_true(gpu->power_mw.valid && gpu->power_mw.value > 0 &&
                gpu->power_mw.value <= 1000 * 1000 / 20);
    tree_remove(&tree, "sys/bus/pci/devices/0000:03:00.0");
    pause_ms(20);
    sensors_sample(sensors, &sample);
    assert_all_unknown(gpu);
    /* i915 instead of xe: other names, no label. */
    tree_write(&tree, "0x8086\n", "sys/bus/pci/devices/0000:03:00.0/vendor");
    tree_write(&tree, "i915\n", "sys/bus/pci/devices/0000:03:00.0/hwmon/hwmon3/name");
    tree_write(&tree, "44000\n", "sys/bus/pci/devices/0000:03:00.0/hwmon/hwmon3/temp1_input");
    tree_write(&tree, "100\n", "sys/bus/pci/devices/0000:03:00.0/hwmon/hwmon3/energy1_input");
    tree_write(&tree, "1200\n", "sys/bus/pci/devices/0000:03:00.0/drm/card1/gt_act_freq_mhz");
    sensors_sample(sensors, &sample);
    assert_reads(gpu->temperature_mc, 44000);
    assert_reads(gpu->clock_mhz, 1200);
    assert_unknown(gpu->power_mw); /* the counter is new */
    pause_ms(20);
    sensors_sample(sensors, &sample);
    assert_unknown(gpu->power_mw); /* nothing draws nothing */
    sensors_close(sensors);
    tree_close(&tree);
}

/* ---- NVML ------------------------------------------------------------------------------------ */

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

/* ---- Level Zero ------------------------------------------------------------------------------ */

static struct sensors *open_ze(const struct tree *tree, const char *mode)
{
    setenv("MEDLEY_STANDIN_LEVEL_ZERO", mode, 1); /* no other thread runs now */
    struct sensors_options options = world_options(tree);
    options.level_zero_path = STANDIN_ZE;
    return world_open(&options);
}

static void test_level_zero(void **state)
{
    (void)state;
    struct tree tree;
    static struct sensor_sample sample;
    tree_open(&tree);
    tree_add_arc(&tree,
                 "0000:03:00.0"); /* whose files say something else: Level Zero comes first */
    struct sensors *sensors = open_ze(&tree, "normal");
    assert_available(sensors, "level_zero");
    pause_ms(20);
    sensors_sample(sensors, &sample);
    const struct sensor_device *gpu = &sample.devices[DEVICE_OF_INTEL];
    assert_reads(gpu->temperature_mc, 57500);
    assert_reads(gpu->temperature_slowdown_mc, 105000);
    assert_reads(gpu->clock_mhz, 2350);
    assert_reads(gpu->power_mw, 40000);
    assert_reads(gpu->power_limit_mw, 190000);
    assert_reads(gpu->utilisation_pct, 25);
    assert_reads(gpu->memory_used_bytes, 6ull << 30);
    assert_reads(gpu->memory_free_bytes, 10ull << 30);
    assert_all_unknown(&sample.devices[DEVICE_OF_NVIDIA]);
    sensors_close(sensors);
    tree_close(&tree);
}

static void test_level_zero_that_misbehaves(void **state)
{
    (void)state;
    static const struct {
        const char *mode, *words;
    } absent[] = {{"no_gpu", "libze-intel-gpu1"},
                  {"no_permission", "sudo usermod -aG render $USER"}};
    static const char *const unknown[] = {"errors", "nonsense", "bad_count"};
    struct tree tree;
    static struct sensor_sample sample;
    tree_open(&tree);
    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++) {
        struct sensors *sensors = open_ze(&tree, absent[i].mode);
        assert_absent(sensors, "level_zero", absent[i].words);
        sensors_close(sensors);
    }
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        struct sensors *sensors = open_ze(&tree, unknown[i]);
        for (int k = 0; k < 3; k++) {
            pause_ms(12);
            sensors_sample(sensors, &sample);
            struct sensor_device gpu = sample.devices[DEVICE_OF_INTEL];
            gpu.temperature_slowdown_mc = (struct reading){0}; /* that one is good in "nonsense" */
            assert_all_unknown(&gpu);
        }
        sensors_close(sensors);
    }
    struct sensors_options options = world_options(&tree);
    options.level_zero_path = STANDIN_NVML;
    struct sensors *sensors = world_open(&options);
    assert_absent(sensors, "level_zero", "older than Level Zero 1.5");
    sensors_close(sensors);
    tree_close(&tree);
}

/* ---- failures, and the way to gpu.h ---------------------------------------------------------- */

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

static void test_devices_ask_the_sensors(void **state)
{
    (void)state;
    struct tree tree;
    tree_open(&tree);
    tree_add_laptop(&tree);
    struct fake_family family = {0};
    struct device_info info = {.id = "fake0", .kind = DEVICE_CPU};
    struct device *device;
    const struct gpu_options no_wishes = {0};
    assert_int_equal(
        device_open(&fake_impl_minimal, &family, 0, &no_wishes, 60000, &info, &device, NULL),
        ERROR_NONE);
    assert_false(device_temperature_mc(device).valid); /* nobody to ask */
    struct sensors_options options = world_options(&tree);
    struct on_demand *sensors = on_demand_new(&options, 1);
    on_demand_set_device(sensors, 0, &info);
    device_set_sensors(device, sensors, 0);
    assert_true(device_temperature_mc(device).valid);
    assert_int_equal(device_temperature_mc(device).value, 64000);
    assert_int_equal(device_clock_mhz(device).value, 2500);
    assert_false(device_power_mw(device).valid); /* the first question */
    pause_ms(120);
    for (int i = 0; i < 2; i++)
        tree_write(&tree, "1500000\n", "sys/class/powercap/intel-rapl:%d/energy_uj", i);
    assert_true(device_power_mw(device).valid);
    device_close(device);
    on_demand_free(sensors);

    /* Without memory the readings are unknown, and stay so. */
    assert_int_equal(device_open(&fake_impl, &family, 0, &no_wishes, 60000, &info, &device, NULL),
                     ERROR_NONE);
    sensors = on_demand_new(&options, 1);
    on_demand_set_device(sensors, 0, &info);
    device_set_sensors(device, sensors, 0);
    assert_int_equal(device_temperature_mc(device).value, 41000); /* the device's own comes first */
    mem_fail_nth(1);
    assert_false(on_demand_read(sensors, 0).temperature_mc.valid);
    mem_fail_nth(0);
    assert_false(on_demand_read(sensors, 0).temperature_mc.valid);
    device_close(device);
    on_demand_free(sensors);
    on_demand_free(NULL);
    tree_close(&tree);
}

/* The machine that runs this: its CPU device has the readings that its files have. One thread, for
 * ThreadSanitizer does not see how OpenMP's agree. */
static void test_gpu_open_gives_its_devices_sensors(void **state)
{
    (void)state;
    struct gpu *gpu;
    struct error err = {0};
    if (gpu_open(&(struct gpu_options){.skip_other = true, .n_cpu_threads = 1}, &gpu, &err))
        fail_msg("%s", err.text);
    struct device *cpu = gpu_find(gpu, "cpu");
    const struct sysfs fs = {0};
    char text[LIMIT_SENSOR_FILE_BYTES];
    bool says_clock =
        !sysfs_text(&fs, text, sizeof text, "proc/cpuinfo") && strstr(text, "cpu MHz");
    struct reading clock_mhz = device_clock_mhz(cpu), temperature_mc = device_temperature_mc(cpu);
    assert_true(clock_mhz.valid || !says_clock);
    assert_true(!clock_mhz.valid || clock_mhz.value <= LIMIT_CLOCK_MHZ);
    assert_true(!temperature_mc.valid || temperature_mc.value <= LIMIT_TEMPERATURE_MC);
    gpu_close(gpu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_radeon),
        cmocka_unit_test(test_radeon_nonsense),
        cmocka_unit_test(test_gpus_without_their_driver_say_so),
        cmocka_unit_test(test_arc_through_the_kernel),
        cmocka_unit_test(test_nvml),
        cmocka_unit_test(test_nvml_that_does_not_start_says_why),
        cmocka_unit_test(test_nvml_that_lacks_functions),
        cmocka_unit_test(test_slow_nvml_holds_up_nobody),
        cmocka_unit_test(test_hanging_nvml_is_left_behind),
        cmocka_unit_test(test_nvml_that_hangs_at_start),
        cmocka_unit_test(test_level_zero),
        cmocka_unit_test(test_level_zero_that_misbehaves),
        cmocka_unit_test(test_every_failed_allocation_is_survived),
        cmocka_unit_test(test_devices_ask_the_sensors),
        cmocka_unit_test(test_gpu_open_gives_its_devices_sensors),
    };
    return cmocka_run_group_tests_name("sensors_gpu", tests, load_standin, NULL);
}
