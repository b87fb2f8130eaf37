/* sensors: the sampler on its own thread, and what a driver may do to it. */
#include "sensors/telemetry.h"
#include "sensors_world.h"
#include "standin_nvml.h"

#include "base/clock.h"
#include "base/mem.h"

#include <assert.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

static standin_set *set_nvml;
static standin_count *count_nvml;

static int load_standin(void **state)
{
    (void)state;
    void *library = dlopen(STANDIN_NVML, RTLD_NOW);
    if (!library)
        return -1;
    void *set = dlsym(library, "standin_nvml_set"), *count = dlsym(library, "standin_nvml_open");
    memcpy(&set_nvml, &set, sizeof set);
    memcpy(&count_nvml, &count, sizeof count);
    return 0;
}

struct heard {
    atomic_uint n_samples;
    uint64_t last_ns;
    pthread_mutex_t lock; /* guards `latest` */
    struct sensor_sample latest;
};
#define HEARD_NOTHING {.lock = PTHREAD_MUTEX_INITIALIZER}

static void on_sample(void *arg, const struct sensor_sample *sample)
{
    struct heard *heard = arg;
    assert(sample->time_ns > heard->last_ns);
    heard->last_ns = sample->time_ns;
    pthread_mutex_lock(&heard->lock);
    heard->latest = *sample;
    pthread_mutex_unlock(&heard->lock);
    atomic_fetch_add(&heard->n_samples, 1);
}

/* False: none yet. */
static bool heard_latest(struct heard *heard, struct sensor_sample *out)
{
    pthread_mutex_lock(&heard->lock);
    *out = heard->latest;
    pthread_mutex_unlock(&heard->lock);
    return out->time_ns != 0;
}

static struct telemetry *open_telemetry(const struct tree *tree, uint32_t period_ms,
                                        struct heard *heard)
{
    struct telemetry_options options = {.sensors = world_options(tree), .period_ms = period_ms};
    options.sensors.nvml_path = STANDIN_NVML;
    options.sensors.answer_ms = 0;
    if (heard) {
        options.on_sample = on_sample;
        options.arg = heard;
    }
    struct telemetry *telemetry;
    assert_int_equal(telemetry_open(&options, world_devices, WORLD_DEVICES, &telemetry, NULL),
                     ERROR_NONE);
    return telemetry;
}

static void wait_for(struct heard *heard, unsigned n_samples)
{
    for (int i = 0; i < 20000 && atomic_load(&heard->n_samples) < n_samples; i++)
        pause_ms(1);
    assert_true(atomic_load(&heard->n_samples) >= n_samples);
}

static void test_samples_come_steadily(void **state)
{
    (void)state;
    struct tree tree;
    static struct sensor_sample sample;
    static struct heard heard;
    heard = (struct heard)HEARD_NOTHING;
    tree_open(&tree);
    tree_add_laptop(&tree);
    set_nvml(STANDIN_NORMAL);
    struct telemetry *telemetry = open_telemetry(&tree, 20, &heard);
    uint64_t start_ns = clock_now_ns();
    wait_for(&heard, 10);
    assert_true(clock_now_ns() - start_ns >= 8 * 20000000ull); /* not faster than it was told */
    for (int i = 0; i < 5000; i++) {
        assert_true(heard_latest(&heard, &sample));
        if (sample.devices[DEVICE_OF_NVIDIA].temperature_mc.valid && sample.node.battery_pct.valid)
            break;
        pause_ms(1);
    }
    assert_reads(sample.devices[DEVICE_OF_CPU].temperature_mc, 64000);
    assert_reads(sample.devices[DEVICE_OF_NVIDIA].temperature_mc, 64000);
    assert_reads(sample.node.battery_pct, 80);
    uint64_t before_ns = sample.time_ns;
    wait_for(&heard, atomic_load(&heard.n_samples) + 3);
    assert_true(heard_latest(&heard, &sample) && sample.time_ns > before_ns);
    bool seen = false;
    for (uint32_t i = 0; i < telemetry_source_count(telemetry); i++) {
        struct sensor_source source;
        telemetry_source(telemetry, i, &source);
        seen |= strcmp(source.name, "nvml") == 0 && source.available;
    }
    assert_true(seen);
    telemetry_close(telemetry);
    unsigned n = atomic_load(&heard.n_samples);
    pause_ms(50);
    assert_int_equal(atomic_load(&heard.n_samples), n); /* nobody samples any more */
    tree_close(&tree);
}

struct reader {
    struct telemetry *telemetry;
    atomic_bool stop;
    unsigned n_read;
};

static void *read_all_the_time(void *arg)
{
    struct reader *reader = arg;
    while (!atomic_load(&reader->stop)) {
        struct sensor_source source;
        telemetry_source(reader->telemetry, 0, &source);
        assert(source.name[0]);
        reader->n_read++;
    }
    return NULL;
}

static void test_any_thread_may_ask_for_the_sources(void **state)
{
    (void)state;
    enum { READERS = 3 };
    struct tree tree;
    static struct heard heard;
    heard = (struct heard)HEARD_NOTHING;
    struct reader readers[READERS] = {0};
    pthread_t threads[READERS];
    tree_open(&tree);
    tree_add_laptop(&tree);
    struct telemetry *telemetry = open_telemetry(&tree, 5, &heard);
    for (int i = 0; i < READERS; i++) {
        readers[i].telemetry = telemetry;
        assert_int_equal(pthread_create(&threads[i], NULL, read_all_the_time, &readers[i]), 0);
    }
    wait_for(&heard, 20);
    for (int i = 0; i < READERS; i++) {
        atomic_store(&readers[i].stop, true);
        pthread_join(threads[i], NULL);
        assert_true(readers[i].n_read > 0);
    }
    telemetry_close(telemetry);
    tree_close(&tree);
}

static void test_close_is_prompt(void **state)
{
    (void)state;
    struct tree tree;
    tree_open(&tree);
    static struct heard heard;
    heard = (struct heard)HEARD_NOTHING;
    struct telemetry *telemetry = open_telemetry(&tree, 3600000, &heard); /* asleep for an hour */
    wait_for(&heard, 1);
    uint64_t start_ns = clock_now_ns();
    telemetry_close(telemetry);
    assert_true(clock_now_ns() - start_ns < 5000000000u);
    telemetry = open_telemetry(&tree, 0, NULL); /* before anything was sampled */
    telemetry_close(telemetry);
    telemetry_close(NULL);
    tree_close(&tree);
}

static void test_hanging_driver_stalls_neither_samples_nor_close(void **state)
{
    (void)state;
    struct tree tree;
    static struct sensor_sample sample;
    static struct heard heard;
    heard = (struct heard)HEARD_NOTHING;
    tree_open(&tree);
    tree_add_laptop(&tree);
    set_nvml(STANDIN_HANG_INIT);
    struct telemetry *telemetry = open_telemetry(&tree, 20, &heard);
    wait_for(&heard, 4);
    assert_true(heard_latest(&heard, &sample));
    assert_reads(sample.devices[DEVICE_OF_CPU].temperature_mc, 64000);
    assert_unknown(sample.devices[DEVICE_OF_NVIDIA].temperature_mc);
    set_nvml(STANDIN_NORMAL);
    for (int i = 0; i < 5000 && !sample.devices[DEVICE_OF_NVIDIA].temperature_mc.valid; i++) {
        pause_ms(1);
        heard_latest(&heard, &sample);
    }
    assert_reads(sample.devices[DEVICE_OF_NVIDIA].temperature_mc, 64000);
    set_nvml(STANDIN_HANG);
    unsigned n = atomic_load(&heard.n_samples);
    wait_for(&heard, n + 4);
    uint64_t start_ns = clock_now_ns();
    telemetry_close(telemetry);
    assert_true(clock_now_ns() - start_ns < 5000000000u);
    set_nvml(STANDIN_NORMAL);
    for (int i = 0; i < 5000 && count_nvml(); i++)
        pause_ms(1);
    assert_int_equal(count_nvml(), 0);
    tree_close(&tree);
}

static void test_every_failed_allocation_is_survived(void **state)
{
    (void)state;
    struct tree tree;
    tree_open(&tree);
    tree_add_laptop(&tree);
    set_nvml(STANDIN_NORMAL);
    struct telemetry_options options = {.sensors = world_options(&tree)};
    options.sensors.nvml_path = STANDIN_NVML;
    unsigned n_refused = 0;
    for (unsigned nth = 1; nth <= 50; nth++) {
        struct telemetry *telemetry;
        mem_fail_nth(nth);
        enum error_code code =
            telemetry_open(&options, world_devices, WORLD_DEVICES, &telemetry, NULL);
        mem_fail_nth(0);
        assert_true(code == ERROR_NONE || code == ERROR_NO_MEMORY);
        n_refused += code != ERROR_NONE;
        assert_int_equal(code == ERROR_NONE, telemetry != NULL);
        telemetry_close(telemetry);
    }
    assert_true(n_refused >= 20);
    tree_close(&tree);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_samples_come_steadily),
        cmocka_unit_test(test_any_thread_may_ask_for_the_sources),
        cmocka_unit_test(test_close_is_prompt),
        cmocka_unit_test(test_hanging_driver_stalls_neither_samples_nor_close),
        cmocka_unit_test(test_every_failed_allocation_is_survived),
    };
    return cmocka_run_group_tests_name("telemetry", tests, load_standin, NULL);
}
