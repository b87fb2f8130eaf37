/* What the tests of the sensors share: a tree, sensors over it, and assertions about readings. */
#pragma once

#include "sensors/sensors.h"
#include "sensors_tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { DEVICE_OF_CPU, DEVICE_OF_NVIDIA, DEVICE_OF_AMD, DEVICE_OF_INTEL, WORLD_DEVICES };

static const struct device_info world_devices[WORLD_DEVICES] = {
    {.id = "cpu", .kind = DEVICE_CPU},
    {.id = "cuda0", .vendor = "NVIDIA", .pci = "0000:01:00.0", .kind = DEVICE_GPU},
    {.id = "vulkan1", .vendor = "AMD", .pci = "0000:c1:00.0", .kind = DEVICE_GPU},
    {.id = "sycl0", .vendor = "Intel", .pci = "0000:03:00.0", .kind = DEVICE_GPU},
};

/* No library of the machine that runs the tests: a file that is not there. Time enough for slow
 * sources, however busy the machine is: they do answer. */
static inline struct sensors_options world_options(const struct tree *tree)
{
    return (struct sensors_options){.root = tree->root,
                                    .nvml_path = "/nonexistent/nvml",
                                    .level_zero_path = "/nonexistent/ze",
                                    .answer_ms = 10000};
}

static inline struct sensors *world_open(const struct sensors_options *options)
{
    struct sensors *sensors;
    struct error err = {0};
    if (sensors_open(options, world_devices, WORLD_DEVICES, &sensors, &err))
        fail_msg("%s", err.text);
    return sensors;
}

static inline struct sensor_source world_source(struct sensors *sensors, const char *name)
{
    struct sensor_source source;
    for (uint32_t i = 0; i < sensors_source_count(sensors); i++) {
        sensors_source(sensors, i, &source);
        if (strcmp(source.name, name) == 0)
            return source;
    }
    fail_msg("no source %s", name);
    return source;
}

static inline void pause_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

/* A source that is not available, with these words in its reason. */
#define assert_absent(sensors, name, words)                                                        \
    do {                                                                                           \
        struct sensor_source absent_ = world_source(sensors, name);                                \
        assert_false(absent_.available);                                                           \
        if (!strstr(absent_.reason, words))                                                        \
            fail_msg("%s: \"%s\" is not in \"%s\"", name, words, absent_.reason);                  \
    } while (0)
#define assert_available(sensors, name)                                                            \
    do {                                                                                           \
        struct sensor_source there_ = world_source(sensors, name);                                 \
        if (!there_.available)                                                                     \
            fail_msg("%s: %s", name, there_.reason);                                               \
    } while (0)

#define assert_reads(told, expected)                                                               \
    do {                                                                                           \
        struct reading told_ = (told);                                                             \
        assert_true(told_.valid);                                                                  \
        assert_int_equal(told_.value, expected);                                                   \
        assert_true(told_.time_ns > 0);                                                            \
    } while (0)
/* A source has it, but not now. */
#define assert_unknown(told)                                                                       \
    do {                                                                                           \
        struct reading told_ = (told);                                                             \
        assert_false(told_.valid);                                                                 \
        assert_int_equal(told_.value, 0);                                                          \
    } while (0)

static inline void assert_all_unknown(const struct sensor_device *device)
{
    const struct reading *all = (const struct reading *)device;
    for (size_t i = 0; i < sizeof *device / sizeof *all; i++)
        assert_unknown(all[i]);
}
