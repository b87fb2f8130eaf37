/* sensors: the kernel's files of CPU, memory and battery, and everything that can be wrong with
 * them. */
#include "sensors_world.h"

#include "base/clock.h"
#include "base/mem.h"
#include "sensors/host_memory.h"

#include <math.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static void test_laptop(void **state)
{
    (void)state;
    struct tree tree;
    static struct sensor_sample sample;
    tree_open(&tree);
    tree_add_laptop(&tree);
    struct sensors_options options = world_options(&tree);
    struct sensors *sensors = world_open(&options);
    static const char *const available[] = {"hwmon",        "rapl", "cpufreq",
                                            "power_supply", "load", "pressure"};
    for (size_t i = 0; i < sizeof available / sizeof *available; i++)
        assert_available(sensors, available[i]);
    assert_absent(sensors, "nvml", "cannot open");
    assert_absent(sensors, "amdgpu", "no AMD GPU");
    assert_absent(sensors, "intel_sysfs", "no Intel GPU");
    assert_absent(sensors, "thermal_zone", "no thermal zone");

    pause_ms(20);
    tree_write(&tree, "cpu  1250 0 1250 8500 0 0 0 0 0 0\n", "proc/stat");
    tree_write(&tree, "3000000\n", "sys/class/powercap/intel-rapl:0/energy_uj");
    tree_write(&tree, "2000000\n", "sys/class/powercap/intel-rapl:1/energy_uj");
    uint64_t before_ns = clock_now_ns();
    sensors_sample(sensors, &sample);
    assert_true(sample.time_ns >= before_ns);
    assert_int_equal(sample.n_devices, WORLD_DEVICES);
    const struct sensor_device *cpu = &sample.devices[DEVICE_OF_CPU];
    assert_reads(cpu->temperature_mc, 64000); /* the hotter package; neither a core nor the disk */
    assert_true(cpu->temperature_mc.time_ns >= before_ns);
    assert_reads(cpu->temperature_slowdown_mc, 98000);
    assert_unknown(cpu->temperature_critical_mc);
    assert_reads(cpu->clock_mhz, 2500);
    assert_reads(cpu->power_limit_mw, 90000);
    assert_true(cpu->power_mw.valid);
    assert_true(cpu->power_mw.value > 0 &&
                cpu->power_mw.value <= 3000 * 1000 / 20); /* 3 J in 20 ms or more */
    assert_reads(cpu->utilisation_pct, 50);
    assert_reads(cpu->memory_used_bytes, 8ull << 30);
    assert_reads(cpu->memory_free_bytes, 8ull << 30);
    assert_reads(sample.node.cpu_utilisation_pct, 50);
    assert_reads(sample.node.memory_total_bytes, 16ull << 30);
    assert_reads(sample.node.memory_available_bytes, 8ull << 30);
    assert_true(sample.node.memory_stall_some_share.valid &&
                fabs(sample.node.memory_stall_some_share.value - 0.0153) < 1e-9);
    assert_true(sample.node.memory_stall_full_share.valid &&
                fabs(sample.node.memory_stall_full_share.value - 0.0025) < 1e-9);
    assert_reads(sample.node.battery_pct, 80);
    assert_reads(sample.node.battery_state, BATTERY_DISCHARGING);
    assert_reads(sample.node.on_ac, 0);
    for (int i = DEVICE_OF_NVIDIA; i < WORLD_DEVICES; i++) {
        assert_unknown(sample.devices[i].temperature_mc);
        assert_int_equal(sample.devices[i].temperature_mc.time_ns, 0); /* nobody has it */
    }
    sensors_close(sensors);
    tree_close(&tree);
}

static void test_an_empty_machine_says_why(void **state)
{
    (void)state;
    static const struct {
        const char *source, *words;
    } expected[] = {
        {"hwmon", "sudo modprobe coretemp"}, {"rapl", "sudo modprobe intel_rapl_msr"},
        {"cpufreq", "nothing to fix"},       {"power_supply", "neither battery nor mains"},
        {"load", "sudo mount -t proc"},      {"pressure", "psi=1"},
        {"level_zero", "cannot open"},
    };
    struct tree tree;
    static struct sensor_sample sample;
    tree_open(&tree);
    struct sensors_options options = world_options(&tree);
    struct sensors *sensors = world_open(&options);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        assert_absent(sensors, expected[i].source, expected[i].words);
    sensors_sample(sensors, &sample);
    const struct reading *all = (const struct reading *)&sample.node;
    for (size_t i = 0; i < sizeof sample.node / sizeof *all; i++)
        assert_unknown(all[i]);
    sensors_close(sensors);
    tree_close(&tree);
}

/* Every file of the laptop in turn, and then all at once, holds every kind of nonsense. */
static const char *const files[] = {
    "sys/class/hwmon/hwmon2/temp1_input",
    "sys/class/hwmon/hwmon2/temp1_crit",
    "sys/class/hwmon/hwmon2/name",
    "sys/class/hwmon/hwmon10/temp1_input",
    "sys/class/hwmon/hwmon10/temp1_label",
    "sys/class/powercap/intel-rapl:0/energy_uj",
    "sys/class/powercap/intel-rapl:0/max_energy_range_uj",
    "sys/class/powercap/intel-rapl:0/name",
    "sys/class/powercap/intel-rapl:1/constraint_0_power_limit_uw",
    "sys/devices/system/cpu/cpufreq/policy0/scaling_cur_freq",
    "sys/class/power_supply/BAT0/capacity",
    "sys/class/power_supply/BAT0/energy_full",
    "sys/class/power_supply/BAT0/status",
    "sys/class/power_supply/BAT0/type",
    "sys/class/power_supply/AC/online",
    "proc/pressure/memory",
    "proc/stat",
    "proc/meminfo",
};
enum { FILES = sizeof files / sizeof *files };
static const char *const nonsense[] = {
    "",
    "\n",
    "-1\n",
    "-273150\n",
    "300000\n",
    "99999999999999999999999999\n",
    "abc\n",
    "0\n",
    "1.5\n",
    "cpu  -5 -5 -5 -5\n",
    "cpu  99999999999999999999 1 1 1\n",
    "cpu\n",
    "some avg10=-3.00 avg60=0\n",
    "some avg10=nan avg60=0.00\nfull avg10=1e9 avg60=0.00\n",
    "some avg10=900.00 avg60=0.00 x",
    "MemTotal:  0 kB\nMemAvailable: 5 kB\n",
    "MemTotal: 5 kB\nMemAvailable: 99 kB\n",
    "MemTotal:\n",
    "MemTotal: 99999999999999999999 kB\n",
    "MemTotal: 5 MB\n",
    "\x80\xff\x01 binary",
};
enum { NONSENSE = sizeof nonsense / sizeof *nonsense, FOLDER = NONSENSE, PIPE, MISSING, KINDS };

static void spoil(const struct tree *tree, const char *file, int kind)
{
    if (kind >= FOLDER)
        tree_remove(tree, "%s", file);
    if (kind == FOLDER)
        tree_folder(tree, "%s", file);
    else if (kind == PIPE)
        tree_pipe(tree, "%s", file);
    else if (kind < NONSENSE)
        tree_write(tree, nonsense[kind], "%s", file);
}

/* What may be said is plausible, whatever the files say. */
static void check_plausible(const struct sensor_sample *sample)
{
    const struct sensor_device *cpu = &sample->devices[DEVICE_OF_CPU];
    assert_true(!cpu->temperature_mc.valid ||
                (cpu->temperature_mc.value >= 1 && cpu->temperature_mc.value <= 150000));
    assert_true(cpu->power_mw.value <= 10000000 && cpu->power_limit_mw.value <= 10000000);
    assert_true(cpu->clock_mhz.value <= 20000);
    assert_true(cpu->utilisation_pct.value <= 100 && sample->node.cpu_utilisation_pct.value <= 100);
    assert_true(sample->node.battery_pct.value <= 100 && sample->node.on_ac.value <= 1);
    assert_true(sample->node.battery_state.value <= BATTERY_NOT_CHARGING);
    assert_true(sample->node.memory_stall_some_share.value <= 1);
    assert_true(sample->node.memory_stall_full_share.value <= 1);
    assert_true(sample->node.memory_available_bytes.value <= sample->node.memory_total_bytes.value);
    const struct reading *all = (const struct reading *)&sample->devices[DEVICE_OF_CPU];
    for (size_t i = 0; i < sizeof *cpu / sizeof *all; i++)
        assert_true(all[i].valid || all[i].value == 0);
}

static void test_nonsense_is_never_believed(void **state)
{
    (void)state;
    static struct sensor_sample sample;
    for (int kind = 0; kind < KINDS; kind++) {
        struct tree tree;
        tree_open(&tree);
        tree_add_laptop(&tree);
        struct sensors_options options = world_options(&tree);
        options.retry_ms = 1;
        struct sensors *sensors = world_open(&options); /* of the whole machine, which then rots */
        for (int i = 0; i < FILES; i++) {
            spoil(&tree, files[i], kind);
            sensors_sample(sensors, &sample);
            check_plausible(&sample);
        }
        assert_false(sample.devices[DEVICE_OF_CPU].temperature_mc.valid);
        const char *text = kind < NONSENSE ? nonsense[kind] : "";
        assert_int_equal(sample.devices[DEVICE_OF_CPU].power_limit_mw.valid,
                         strcmp(text, "300000\n") == 0);
        assert_int_equal(sample.node.memory_total_bytes.valid,
                         strstr(text, "MemTotal: 5 kB") != NULL);
        assert_false(sample.node.memory_available_bytes.valid);
        sensors_close(sensors);
        sensors = world_open(&options); /* of the rotten machine */
        sensors_sample(sensors, &sample);
        check_plausible(&sample);
        sensors_close(sensors);
        tree_close(&tree);
    }
}

static void test_too_hot_to_be_true(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool valid;
    } cases[] = {{"150000", true}, {"150001", false}, {"300000", false},
                 {"0", false},     {"1", true},       {"-5000", false}};
    struct tree tree;
    static struct sensor_sample sample;
    tree_open(&tree);
    tree_write(&tree, "k10temp\n", "sys/class/hwmon/hwmon1/name");
    tree_write(&tree, "Tctl\n", "sys/class/hwmon/hwmon1/temp1_label");
    tree_write(&tree, "50000\n", "sys/class/hwmon/hwmon1/temp1_input");
    struct sensors_options options = world_options(&tree);
    struct sensors *sensors = world_open(&options);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tree_write(&tree, cases[i].text, "sys/class/hwmon/hwmon1/temp1_input");
        sensors_sample(sensors, &sample);
        assert_int_equal(sample.devices[DEVICE_OF_CPU].temperature_mc.valid, cases[i].valid);
        assert_true(sample.devices[DEVICE_OF_CPU].temperature_mc.time_ns > 0);
    }
    sensors_close(sensors);
    tree_close(&tree);
}

static void test_sensor_drivers_by_preference(void **state)
{
    (void)state;
    struct tree tree;
    static struct sensor_sample sample;
    tree_open(&tree);
    tree_write(&tree, "acpitz\n", "sys/class/thermal/thermal_zone0/type");
    tree_write(&tree, "30000\n", "sys/class/thermal/thermal_zone0/temp");
    tree_write(&tree, "cpu-thermal\n", "sys/class/thermal/thermal_zone1/type");
    tree_write(&tree, "52000\n", "sys/class/thermal/thermal_zone1/temp");
    tree_write(&tree, "passive\n", "sys/class/thermal/thermal_zone1/trip_point_0_type");
    tree_write(&tree, "80000\n", "sys/class/thermal/thermal_zone1/trip_point_0_temp");
    tree_write(&tree, "critical\n", "sys/class/thermal/thermal_zone1/trip_point_1_type");
    tree_write(&tree, "110000\n", "sys/class/thermal/thermal_zone1/trip_point_1_temp");
    struct sensors_options options = world_options(&tree);
    struct sensors *sensors = world_open(&options);
    const struct sensor_device *cpu = &sample.devices[DEVICE_OF_CPU];
    sensors_sample(sensors, &sample);
    assert_reads(cpu->temperature_mc, 52000);
    assert_reads(cpu->temperature_slowdown_mc, 80000);
    assert_reads(cpu->temperature_critical_mc, 110000);
    sensors_close(sensors);

    /* Tdie before Tctl; a driver of the CPU's own before the zone; its limit is where it
     * throttles. */
    tree_write(&tree, "k10temp\n", "sys/class/hwmon/hwmon3/name");
    tree_write(&tree, "Tctl\n", "sys/class/hwmon/hwmon3/temp1_label");
    tree_write(&tree, "80000\n", "sys/class/hwmon/hwmon3/temp1_input");
    tree_write(&tree, "Tdie\n", "sys/class/hwmon/hwmon3/temp2_label");
    tree_write(&tree, "70000\n", "sys/class/hwmon/hwmon3/temp2_input");
    tree_write(&tree, "95000\n", "sys/class/hwmon/hwmon3/temp2_crit");
    tree_write(&tree, "cpu_thermal\n", "sys/class/hwmon/hwmon1/name");
    tree_write(&tree, "52000\n", "sys/class/hwmon/hwmon1/temp1_input");
    sensors = world_open(&options);
    sensors_sample(sensors, &sample);
    assert_reads(cpu->temperature_mc, 70000);
    assert_reads(cpu->temperature_slowdown_mc, 95000);
    /* Unloaded and loaded again under another number. */
    tree_remove(&tree, "sys/class/hwmon/hwmon3");
    sensors_sample(sensors, &sample);
    assert_reads(cpu->temperature_mc, 52000); /* the zone stands in */
    sensors_sample(sensors, &sample);
    assert_reads(cpu->temperature_mc, 52000); /* cpu_thermal by now */
    tree_remove(&tree, "sys/class/hwmon/hwmon1");
    tree_write(&tree, "coretemp\n", "sys/class/hwmon/hwmon7/name");
    tree_write(&tree, "47000\n",
               "sys/class/hwmon/hwmon7/temp2_input"); /* no label of the package: the cores */
    tree_write(&tree, "49000\n", "sys/class/hwmon/hwmon7/temp3_input");
    sensors_sample(sensors, &sample);
    sensors_sample(sensors, &sample);
    assert_reads(cpu->temperature_mc, 49000);
    sensors_close(sensors);
    tree_close(&tree);
}

static void test_rapl_for_root_alone_says_so_and_is_tried_again(void **state)
{
    (void)state;
    struct tree tree;
    static struct sensor_sample sample;
    char path[256];
    tree_open(&tree);
    tree_add_laptop(&tree);
    snprintf(path, sizeof path, "%s/sys/class/powercap/intel-rapl:1/energy_uj", tree.root);
    chmod(tree.root, 0755);
    chmod(path, 0);
    uid_t me = geteuid();
    if (me == 0 && seteuid(65534) != 0) { /* root reads everything */
        tree_close(&tree);
        skip();
    }
    struct sensors_options options = world_options(&tree);
    options.retry_ms = 1;
    struct sensors *sensors = world_open(&options);
    struct sensor_source denied = world_source(sensors, "rapl");
    assert_int_equal(seteuid(me), 0);
    assert_false(denied.available);
    assert_non_null(
        strstr(denied.reason, "sudo chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj"));
    chmod(path, 0444);
    pause_ms(5);
    sensors_sample(sensors, &sample);
    assert_available(sensors, "rapl");
    sensors_close(sensors);
    tree_close(&tree);
}

static void test_rapl_wraps_around_and_vanishes(void **state)
{
    (void)state;
    struct tree tree;
    static struct sensor_sample sample;
    tree_open(&tree);
    tree_write(&tree, "package-0\n", "sys/class/powercap/intel-rapl:0/name");
    tree_write(&tree, "262143328850\n", "sys/class/powercap/intel-rapl:0/max_energy_range_uj");
    tree_write(&tree, "262143328000\n", "sys/class/powercap/intel-rapl:0/energy_uj");
    struct sensors_options options = world_options(&tree);
    struct sensors *sensors = world_open(&options);
    const struct reading *power = &sample.devices[DEVICE_OF_CPU].power_mw;
    pause_ms(20);
    tree_write(&tree, "999150\n", "sys/class/powercap/intel-rapl:0/energy_uj"); /* 1 J later */
    sensors_sample(sensors, &sample);
    assert_true(power->valid && power->value <= 1000 * 1000 / 20);
    assert_true(power->value > 0);
    tree_remove(&tree, "sys/class/powercap/intel-rapl:0/energy_uj");
    pause_ms(20);
    sensors_sample(sensors, &sample);
    assert_unknown(*power);
    tree_write(&tree, "5\n", "sys/class/powercap/intel-rapl:0/energy_uj");
    pause_ms(20);
    sensors_sample(sensors, &sample);
    assert_unknown(*power); /* what it counted meanwhile is not known */
    pause_ms(20);
    sensors_sample(sensors, &sample);
    assert_unknown(*power); /* nothing draws nothing */
    tree_write(&tree, "1000005\n", "sys/class/powercap/intel-rapl:0/energy_uj");
    pause_ms(20);
    sensors_sample(sensors, &sample);
    assert_true(power->valid && power->value > 0);
    sensors_close(sensors);
    tree_close(&tree);
}

static void test_batteries(void **state)
{
    (void)state;
    static const struct {
        const char *status[2], *capacity[2], *full[2], *online;
        int pct, battery, on_ac; /* -1: unknown */
    } cases[] = {
        {{"Charging"}, {"10"}, {"50"}, "1", 10, BATTERY_CHARGING, 1},
        {{"Full"}, {"100"}, {0}, "1", 100, BATTERY_FULL, 1},
        {{"Not charging"}, {"79"}, {"50"}, "1", 79, BATTERY_NOT_CHARGING, 1},
        {{"Unknown"}, {"79"}, {"50"}, NULL, 79, -1, -1},
        {{"Charging"}, {"79"}, {"50"}, NULL, 79, BATTERY_CHARGING, 1},
        {{"Discharging"}, {"79"}, {"50"}, NULL, 79, BATTERY_DISCHARGING, 0},
        {{"Discharging", "Full"},
         {"0", "100"},
         {"100", "300"},
         "0",
         75,
         BATTERY_DISCHARGING,
         0}, /* by what they hold
              */
        {{"Charging", "Full"}, {"0", "100"}, {"100"}, "1", 50, BATTERY_CHARGING, 1},
        {{"Charging"}, {"101"}, {"50"}, "1", -1, BATTERY_CHARGING, 1},
        {{"Charging", "Full"}, {"50"}, {"50"}, "1", -1, BATTERY_CHARGING, 1}, /* the other's charge
                                                                                 is unknown */
        {{"Discharging"}, {"50"}, {"50"}, "7", 50, BATTERY_DISCHARGING, 0},
        {{"Charging"}, {"50"}, {"50"}, "0", 50, BATTERY_CHARGING, 1},
        {{"Full"}, {"100"}, {"50"}, "0", 100, BATTERY_FULL, 0},
        {{NULL}, {NULL}, {NULL}, "0", -1, -1, -1}, /* a desktop's USB-C socket */
        {{NULL}, {NULL}, {NULL}, "1", -1, -1, 1},
    };
    static struct sensor_sample sample;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tree tree;
        tree_open(&tree);
        for (int k = 0; k < 2 && cases[i].status[k]; k++) {
            tree_write(&tree, "Battery\n", "sys/class/power_supply/BAT%d/type", k);
            tree_write(&tree, cases[i].status[k], "sys/class/power_supply/BAT%d/status", k);
            if (cases[i].capacity[k])
                tree_write(&tree, cases[i].capacity[k], "sys/class/power_supply/BAT%d/capacity", k);
            if (cases[i].full[k])
                tree_write(&tree, cases[i].full[k], "sys/class/power_supply/BAT%d/charge_full", k);
        }
        tree_write(&tree, "Battery\n", "sys/class/power_supply/BAT7/type"); /* an empty bay */
        tree_write(&tree, "0\n", "sys/class/power_supply/BAT7/present");
        if (cases[i].online) {
            tree_write(&tree, "USB_PD\n", "sys/class/power_supply/ucsi/type");
            tree_write(&tree, cases[i].online, "sys/class/power_supply/ucsi/online");
        }
        struct sensors_options options = world_options(&tree);
        struct sensors *sensors = world_open(&options);
        sensors_sample(sensors, &sample);
        const struct sensor_node *node = &sample.node;
        assert_int_equal(node->battery_pct.valid ? (int)node->battery_pct.value : -1, cases[i].pct);
        assert_int_equal(node->battery_state.valid ? (int)node->battery_state.value : -1,
                         cases[i].battery);
        assert_int_equal(node->on_ac.valid ? (int)node->on_ac.value : -1, cases[i].on_ac);
        sensors_close(sensors);
        tree_close(&tree);
    }
}

static void test_control_group_and_cpuinfo(void **state)
{
    (void)state;
    struct tree tree;
    static struct sensor_sample sample;
    tree_open(&tree);
    tree_add_laptop(&tree);
    tree_remove(&tree, "sys/devices/system/cpu/cpufreq");
    tree_write(&tree,
               "processor\t: 0\ncpu MHz\t\t: 2400.500\n\nprocessor\t: 1\ncpu MHz\t\t: "
               "2600.500\ncpu MHz : x\n",
               "proc/cpuinfo");
    tree_write(&tree, "4294967296\n", "sys/fs/cgroup/memory.max");
    tree_write(&tree, "1073741824\n", "sys/fs/cgroup/memory.current");
    struct sensors_options options = world_options(&tree);
    struct sensors *sensors = world_open(&options);
    sensors_sample(sensors, &sample);
    assert_reads(sample.node.memory_total_bytes, 4ull << 30);
    assert_reads(sample.node.memory_available_bytes, 3ull << 30);
    assert_reads(sample.devices[DEVICE_OF_CPU].memory_used_bytes, 1ull << 30);
    tree_write(&tree, "4294967296\n",
               "sys/fs/cgroup/memory.current"); /* full, but with pages of files */
    tree_write(&tree, "anon 1073741824\ninactive_file 2147483648\nactive_file 1073741824\n",
               "sys/fs/cgroup/memory.stat");
    sensors_sample(sensors, &sample);
    assert_reads(sample.node.memory_available_bytes, 3ull << 30);
    tree_write(&tree, "active_file -5\n", "sys/fs/cgroup/memory.stat");
    sensors_sample(sensors, &sample);
    assert_reads(sample.node.memory_available_bytes, 0);
    assert_reads(sample.devices[DEVICE_OF_CPU].clock_mhz, 2500);
    tree_write(&tree, "max\n", "sys/fs/cgroup/memory.max");
    sensors_sample(sensors, &sample);
    assert_reads(sample.node.memory_total_bytes, 16ull << 30);
    sensors_close(sensors);
    tree_close(&tree);
}

/* The group's own path, in both versions, and a group around it with less. */
static void test_control_groups_by_path(void **state)
{
    (void)state;
    struct tree tree;
    static struct sensor_sample sample;
    tree_open(&tree);
    tree_add_laptop(&tree);
    tree_write(&tree, "4:memory:/home/medley\n2:cpu:/\n0::/user.slice/medley\n",
               "proc/self/cgroup");
    tree_write(&tree, "4294967296\n", "sys/fs/cgroup/memory/home/medley/memory.limit_in_bytes");
    tree_write(&tree, "1073741824\n", "sys/fs/cgroup/memory/home/medley/memory.usage_in_bytes");
    tree_write(&tree, "active_file 5\ntotal_inactive_file 536870912\ntotal_active_file 0\n",
               "sys/fs/cgroup/memory/home/medley/memory.stat");
    struct sensors_options options = world_options(&tree);
    struct sensors *sensors = world_open(&options);
    sensors_sample(sensors, &sample);
    assert_reads(sample.node.memory_total_bytes, 4ull << 30);
    assert_reads(sample.node.memory_available_bytes, (3ull << 30) + (512ull << 20));
    tree_write(&tree, "2147483648\n", "sys/fs/cgroup/memory/home/memory.limit_in_bytes");
    tree_write(&tree, "1073741824\n", "sys/fs/cgroup/memory/home/memory.usage_in_bytes");
    sensors_sample(sensors, &sample);
    assert_reads(sample.node.memory_total_bytes, 2ull << 30);
    assert_reads(sample.node.memory_available_bytes, 1ull << 30);
    tree_write(&tree, "1073741824\n", "sys/fs/cgroup/user.slice/medley/memory.max");
    tree_write(&tree, "268435456\n", "sys/fs/cgroup/user.slice/medley/memory.current");
    sensors_sample(sensors, &sample);
    assert_reads(sample.node.memory_total_bytes, 1ull << 30);
    assert_reads(sample.node.memory_available_bytes, 768ull << 20);
    sensors_close(sensors);
    tree_close(&tree);
}

static void test_memory_stalls(void **state)
{
    (void)state;
    struct tree tree;
    struct sysfs fs;
    double part = 1;
    tree_open(&tree);
    snprintf(fs.root, sizeof fs.root, "%s", tree.root);
    assert_false(host_memory_stall(&fs, &part));
    assert_true(part == 0);
    tree_write(&tree, "MemTotal: 1000 kB\nMemAvailable: 900 kB\n", "proc/meminfo");
    tree_write(&tree, "some avg10=12.50 avg60=1.00\nfull avg10=1.00\n", "proc/pressure/memory");
    assert_false(host_memory_stall(&fs, &part)); /* somebody else's group */
    tree_write(&tree, "MemTotal: 1000 kB\nMemAvailable: 100 kB\n", "proc/meminfo");
    assert_true(host_memory_stall(&fs, &part));
    assert_true(part == 0.125);
    tree_write(&tree, "0::/mine\n", "proc/self/cgroup");
    tree_write(&tree, "some avg10=50.00 avg60=1.00\n", "sys/fs/cgroup/mine/memory.pressure");
    assert_true(host_memory_stall(&fs, &part));
    assert_true(part == 0.5);
    tree_write(&tree, "some avg10=-3\n", "sys/fs/cgroup/mine/memory.pressure");
    tree_write(&tree, "some avg10=101\n", "proc/pressure/memory");
    assert_false(host_memory_stall(&fs, &part));
    tree_close(&tree);
}

static void test_wrong_arguments(void **state)
{
    (void)state;
    struct sensors *sensors = (struct sensors *)state;
    struct error err;
    static struct device_info many[LIMIT_DEVICES + 1];
    assert_int_equal(sensors_open(NULL, many, LIMIT_DEVICES + 1, &sensors, &err), ERROR_INVALID);
    assert_null(sensors);
    char root[300];
    memset(root, 'r', sizeof root - 1);
    root[sizeof root - 1] = 0;
    assert_int_equal(sensors_open(&(struct sensors_options){.root = root}, NULL, 0, &sensors, &err),
                     ERROR_INVALID);
    sensors_close(NULL);
}

/* The machine that runs this: nothing is known of it, so only that it works and is plausible. */
static void test_this_machine(void **state)
{
    (void)state;
    static struct sensor_sample sample;
    struct sensors *sensors;
    struct sensors_options options = {.nvml_path = "/nonexistent",
                                      .level_zero_path = "/nonexistent"};
    assert_int_equal(sensors_open(&options, world_devices, 1, &sensors, NULL), ERROR_NONE);
    pause_ms(50);
    sensors_sample(sensors, &sample);
    check_plausible(&sample);
    assert_true(sample.node.memory_total_bytes.valid);
    assert_true(sample.node.cpu_utilisation_pct.valid);
    for (uint32_t i = 0; i < sensors_source_count(sensors); i++) {
        struct sensor_source source;
        sensors_source(sensors, i, &source);
        assert_int_equal(source.available, source.reason[0] == 0);
    }
    sensors_close(sensors);
}

static void test_every_failed_allocation_is_survived(void **state)
{
    (void)state;
    struct tree tree;
    static struct sensor_sample sample;
    tree_open(&tree);
    tree_add_laptop(&tree);
    struct sensors_options options = world_options(&tree);
    options.retry_ms = 1;
    unsigned n_refused = 0;
    for (unsigned nth = 1; nth <= 60; nth++) {
        struct sensors *sensors;
        struct error err = {0};
        mem_fail_nth(nth);
        enum error_code code = sensors_open(&options, world_devices, WORLD_DEVICES, &sensors, &err);
        mem_fail_nth(0);
        assert_true(code == ERROR_NONE || code == ERROR_NO_MEMORY);
        n_refused += code != ERROR_NONE;
        if (code)
            continue;
        /* A source that found no memory is tried again. */
        pause_ms(2);
        sensors_sample(sensors, &sample);
        assert_reads(sample.devices[DEVICE_OF_CPU].temperature_mc, 64000);
        sensors_close(sensors);
    }
    assert_true(n_refused >= 20);
    tree_close(&tree);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_laptop),
        cmocka_unit_test(test_an_empty_machine_says_why),
        cmocka_unit_test(test_nonsense_is_never_believed),
        cmocka_unit_test(test_too_hot_to_be_true),
        cmocka_unit_test(test_sensor_drivers_by_preference),
        cmocka_unit_test(test_rapl_for_root_alone_says_so_and_is_tried_again),
        cmocka_unit_test(test_rapl_wraps_around_and_vanishes),
        cmocka_unit_test(test_batteries),
        cmocka_unit_test(test_control_group_and_cpuinfo),
        cmocka_unit_test(test_control_groups_by_path),
        cmocka_unit_test(test_memory_stalls),
        cmocka_unit_test(test_wrong_arguments),
        cmocka_unit_test(test_this_machine),
        cmocka_unit_test(test_every_failed_allocation_is_survived),
    };
    return cmocka_run_group_tests_name("sensors_files", tests, NULL, NULL);
}
