/* What sampling the sensors costs: CPU time as a share of one core, memory, and what a memory-bound
 * load on every core loses beside it.
 *
 *     sampler [-s SECONDS] [-p PERIOD_MS] [-m] [-n NVML] [-z LEVEL_ZERO]
 *
 * -m: a made-up laptop with a Radeon and an Arc (tests/unit/sensors_tree.c) in the place of this
 * machine, whose files are cheaper to read than the kernel's: no driver is behind them. -n and -z:
 * libraries such as the tests' stand-ins.
 */
#include "../tests/unit/sensors_tree.h"
#include "base/clock.h"
#include "base/mem.h"
#include "sensors/telemetry.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { N_DEVICES = 4, ROUNDS = 7, SAMPLES = 201, BUFFER_BYTES = 64 * 1024 * 1024 };

static const struct device_info devices[N_DEVICES] = {
    {.id = "cpu", .kind = DEVICE_CPU},
    {.id = "cuda0", .pci = "0000:01:00.0", .kind = DEVICE_GPU},
    {.id = "vulkan1", .pci = "0000:c1:00.0", .kind = DEVICE_GPU},
    {.id = "sycl0", .pci = "0000:03:00.0", .kind = DEVICE_GPU},
};

static double cpu_s(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

static double resident_mib(void)
{
    unsigned long size = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file) {
        if (fscanf(file, "%lu %lu", &size, &resident) != 2)
            resident = 0;
        fclose(file);
    }
    return (double)resident * (double)sysconf(_SC_PAGESIZE) / (1024 * 1024);
}

static void pause_s(double s)
{
    struct timespec span = {.tv_sec = (time_t)s, .tv_nsec = (long)((s - (double)(time_t)s) * 1e9)};
    nanosleep(&span, NULL);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, compare);
    return values[n / 2];
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards `latest` */
static struct sensor_sample latest;

static void keep_latest(void *arg, const struct sensor_sample *sample)
{
    (void)arg;
    pthread_mutex_lock(&lock);
    latest = *sample;
    pthread_mutex_unlock(&lock);
}

static struct telemetry *start(const struct telemetry_options *given)
{
    struct telemetry_options options = *given;
    struct telemetry *telemetry;
    struct error err;
    if (!options.on_sample)
        options.on_sample = keep_latest;
    if (telemetry_open(&options, devices, N_DEVICES, &telemetry, &err)) {
        fprintf(stderr, "sampler: %s\n", err.text);
        exit(1);
    }
    return telemetry;
}

static void print_sources(struct telemetry *telemetry)
{
    for (uint32_t i = 0; i < telemetry_source_count(telemetry); i++) {
        struct sensor_source source;
        telemetry_source(telemetry, i, &source);
        printf("  %-13s %s\n", source.name, source.available ? "available" : source.reason);
    }
    pthread_mutex_lock(&lock);
    const struct sensor_sample sample = latest;
    pthread_mutex_unlock(&lock);
    const struct reading *all = (const struct reading *)&sample.node;
    size_t n = sizeof sample.node / sizeof *all, n_valid = 0;
    for (size_t i = 0; i < n; i++)
        n_valid += all[i].valid;
    all = (const struct reading *)sample.devices;
    for (size_t i = 0; i < N_DEVICES * sizeof *sample.devices / sizeof *all; i++)
        n_valid += all[i].valid;
    printf("  %zu readings of %u devices and the machine\n", n_valid, sample.n_devices);
}

static void measure_cost(const struct telemetry_options *options, double seconds)
{
    double before_mib = resident_mib();
    struct telemetry *telemetry = start(options);
    pause_s(2 * (double)options->period_ms * 1e-3 + 0.2);
    print_sources(telemetry);
    double begin_s = cpu_s();
    uint64_t begin_ns = clock_now_ns();
    pause_s(seconds);
    double wall_s = 1e-9 * (double)(clock_now_ns() - begin_ns), used_s = cpu_s() - begin_s;
    printf("sampling every %u ms for %.0f s: %.4f %% of one core, %.2f MiB resident\n",
           options->period_ms, wall_s, 100 * used_s / wall_s, resident_mib() - before_mib);
    telemetry_close(telemetry);
}

static void measure_sample(const struct sensors_options *options)
{
    static struct sensor_sample sample;
    static double us[SAMPLES];
    struct sensors *sensors;
    if (sensors_open(options, devices, N_DEVICES, &sensors, NULL))
        return;
    for (int i = 0; i < SAMPLES; i++) {
        uint64_t begin_ns = clock_now_ns();
        sensors_sample(sensors, &sample);
        us[i] = 1e-3 * (double)(clock_now_ns() - begin_ns);
    }
    sensors_close(sensors);
    double middle = median(us, SAMPLES);
    printf("one sample: %.0f us median, %.0f us the slowest of %d\n", middle, us[SAMPLES - 1],
           SAMPLES);
}

/* ---- beside a load ------------------------------------------------------------------------- */

struct worker {
    pthread_t thread;
    const uint64_t *words;
    atomic_bool *stop;
    uint64_t n_passes, sum;
};

static void *read_memory(void *arg)
{
    struct worker *worker = arg;
    const size_t piece = BUFFER_BYTES / 16 / sizeof(uint64_t);
    for (size_t at = 0; !atomic_load(worker->stop); at = (at + piece) % (16 * piece)) {
        for (size_t i = 0; i < piece; i++)
            worker->sum += worker->words[at + i];
        worker->n_passes++;
    }
    return NULL;
}

/* GB/s that every core together reads in `seconds`. */
static double load_speed(const uint64_t *words, double seconds)
{
    enum { WORKERS_MAX = 64 };
    struct worker workers[WORKERS_MAX] = {0};
    atomic_bool stop = false;
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    n = n > WORKERS_MAX ? WORKERS_MAX : n;
    uint64_t begin_ns = clock_now_ns(), passes = 0;
    for (long i = 0; i < n; i++) {
        workers[i].words = words;
        workers[i].stop = &stop;
        pthread_create(&workers[i].thread, NULL, read_memory, &workers[i]);
    }
    pause_s(seconds);
    atomic_store(&stop, true);
    for (long i = 0; i < n; i++) {
        pthread_join(workers[i].thread, NULL);
        passes += workers[i].n_passes;
    }
    return (double)passes * (BUFFER_BYTES / 16) / (double)(clock_now_ns() - begin_ns);
}

static void measure_beside_load(const struct telemetry_options *options)
{
    uint64_t *words = mem_new(BUFFER_BYTES);
    if (!words)
        return;
    for (size_t i = 0; i < BUFFER_BYTES / sizeof *words; i++)
        words[i] = i;
    double with[ROUNDS], without[ROUNDS];
    load_speed(words, 0.5);
    for (int i = 0; i < ROUNDS; i++) {
        without[i] = load_speed(words, 2);
        struct telemetry *telemetry = start(options);
        with[i] = load_speed(words, 2);
        telemetry_close(telemetry);
    }
    mem_free(words);
    double a = median(with, ROUNDS), b = median(without, ROUNDS);
    printf("reading memory with every core: %.2f GB/s (%.2f-%.2f) while sampling, %.2f (%.2f-%.2f) "
           "without: %.3fx\n",
           a, with[0], with[ROUNDS - 1], b, without[0], without[ROUNDS - 1], a / b);
}

int main(int argc, char **argv)
{
    struct telemetry_options options = {.period_ms = 500};
    struct tree tree = {0};
    double seconds = 20;
    int option;
    while ((option = getopt(argc, argv, "s:p:mn:z:")) != -1) {
        if (option == 's') {
            seconds = atof(optarg);
        } else if (option == 'p') {
            options.period_ms = (uint32_t)atoi(optarg);
        } else if (option == 'm') {
            tree_open(&tree);
            tree_add_laptop(&tree);
            tree_add_radeon(&tree, "0000:c1:00.0");
            tree_add_arc(&tree, "0000:03:00.0");
            options.sensors.root = tree.root;
        } else if (option == 'n') {
            options.sensors.nvml_path = optarg;
        } else if (option == 'z') {
            options.sensors.level_zero_path = optarg;
        } else {
            fprintf(stderr,
                    "usage: sampler [-s SECONDS] [-p PERIOD_MS] [-m] [-n NVML] [-z LEVEL_ZERO]\n");
            return 2;
        }
    }
    measure_cost(&options, seconds);
    measure_sample(&options.sensors);
    measure_beside_load(&options);
    if (tree.root[0])
        tree_close(&tree);
    return 0;
}
