/* sensors: GPUs, through the kernel's files and through a library that stands in for Level Zero's;
 * and the way to gpu.h. */
#include "gpu_fake.h"
#include "sensors_world.h"

#include "base/mem.h"
#include "sensors/on_demand.h"
#include "sensors/sysfs.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

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

/* ---- the way to gpu.h ------------------------------------------------------------------------ */

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
        cmocka_unit_test(test_level_zero),
        cmocka_unit_test(test_level_zero_that_misbehaves),
        cmocka_unit_test(test_devices_ask_the_sensors),
        cmocka_unit_test(test_gpu_open_gives_its_devices_sensors),
    };
    return cmocka_run_group_tests_name("sensors_gpu", tests, NULL, NULL);
}
