#include "gpu/aggregate.h"

#include "gpu/device_sim.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static uint64_t aggregate_add(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static bool aggregate_has(struct reading reading)
{
    return reading.valid && reading.value > 0;
}

static bool is_in_host_memory(const struct device_info *info)
{
    return info->kind != DEVICE_GPU && !device_info_is_simulated(info);
}

static void count_memory(struct aggregate *aggregate, const struct device_info *devices,
                         uint32_t n_devices)
{
    uint64_t host_total = 0, host_free = 0;
    for (uint32_t i = 0; i < n_devices; i++) {
        uint64_t total = devices[i].memory_total_bytes, unused = devices[i].memory_free_bytes;
        if (!is_in_host_memory(&devices[i])) {
            aggregate->memory_total_bytes = aggregate_add(aggregate->memory_total_bytes, total);
            aggregate->memory_free_bytes = aggregate_add(aggregate->memory_free_bytes, unused);
            continue;
        }
        host_total = total > host_total ? total : host_total;
        host_free = unused > host_free ? unused : host_free;
    }
    aggregate->memory_total_bytes = aggregate_add(aggregate->memory_total_bytes, host_total);
    aggregate->memory_free_bytes = aggregate_add(aggregate->memory_free_bytes, host_free);
}

static void count_bandwidth(struct aggregate *aggregate, const struct device_info *devices,
                            uint32_t n_devices)
{
    struct reading *min = &aggregate->bandwidth_mb_per_s_min,
                   *max = &aggregate->bandwidth_mb_per_s_max;
    double sum_mb_per_s = 0;
    for (uint32_t i = 0; i < n_devices; i++) {
        struct reading bandwidth = devices[i].bandwidth_mb_per_s;
        if (!aggregate_has(bandwidth))
            continue;
        sum_mb_per_s += bandwidth.value;
        if (!aggregate->n_measured++ || bandwidth.value < min->value) {
            *min = bandwidth;
            aggregate->slowest = i;
        }
        if (bandwidth.value > max->value) {
            *max = bandwidth;
            aggregate->fastest = i;
        }
    }
    if (aggregate->n_measured) {
        aggregate->bandwidth_mb_per_s_mean =
            reading_of(UNIT_NUMBER, floor(sum_mb_per_s / aggregate->n_measured));
        aggregate->heterogeneity_permille =
            reading_of(UNIT_NUMBER, floor(max->value * 1000 / min->value));
    }
}

static void count_flops(struct aggregate *aggregate, const struct device_info *devices,
                        uint32_t n_devices)
{
    double sum = 0, processor = 0;
    for (uint32_t i = 0; i < n_devices; i++) {
        struct reading mflops = devices[i].peak_mflops;
        if (!aggregate_has(mflops))
            continue;
        aggregate->n_rated++;
        if (devices[i].kind != DEVICE_CPU || device_info_is_simulated(&devices[i]))
            sum += mflops.value;
        else if (mflops.value > processor)
            processor = mflops.value;
    }
    if (aggregate->n_rated)
        aggregate->mflops_total = reading_of(UNIT_NUMBER, sum + processor);
}

static void count_vendors(struct aggregate *aggregate, const struct device_info *devices,
                          uint32_t n_devices)
{
    for (uint32_t i = 0; i < n_devices; i++) {
        uint32_t v = 0;
        while (v < aggregate->n_vendors &&
               strcmp(aggregate->vendors[v].name, devices[i].vendor) != 0)
            v++;
        if (v == aggregate->n_vendors)
            memcpy(aggregate->vendors[aggregate->n_vendors++].name, devices[i].vendor,
                   sizeof devices[i].vendor);
        aggregate->vendors[v].n_devices++;
    }
}

struct aggregate aggregate_of(const struct device_info *devices, uint32_t n_devices)
{
    assert(n_devices <= LIMIT_DEVICES);
    struct aggregate aggregate = {.n_devices = n_devices};
    count_memory(&aggregate, devices, n_devices);
    count_bandwidth(&aggregate, devices, n_devices);
    count_flops(&aggregate, devices, n_devices);
    count_vendors(&aggregate, devices, n_devices);
    return aggregate;
}

/* ---- text ------------------------------------------------------------------------------ */

struct writer {
    char *text;
    size_t size, used;
};

static void aggregate_put(struct writer *writer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void aggregate_put(struct writer *writer, const char *format, ...)
{
    if (writer->used >= writer->size)
        return;
    va_list arguments;
    va_start(arguments, format);
    int length =
        vsnprintf(writer->text + writer->used, writer->size - writer->used, format, arguments);
    va_end(arguments);
    writer->used += length > 0 ? (size_t)length : 0;
}

static void put_memory(struct writer *writer, const struct aggregate *aggregate,
                       const struct device_info *devices)
{
    const double gib = 1024.0 * 1024.0 * 1024.0;
    uint32_t n_in_host = 0;
    for (uint32_t i = 0; i < aggregate->n_devices; i++)
        n_in_host += is_in_host_memory(&devices[i]);
    aggregate_put(writer, "memory   %.1f of %.1f GiB are free",
                  (double)aggregate->memory_free_bytes / gib,
                  (double)aggregate->memory_total_bytes / gib);
    if (n_in_host > 1)
        aggregate_put(writer, "; %" PRIu32 " devices share the host's, which counts once",
                      n_in_host);
    aggregate_put(writer, "\n");
}

static void put_decode(struct writer *writer, const struct aggregate *aggregate,
                       const struct device_info *devices)
{
    if (!aggregate->n_measured) {
        aggregate_put(writer, "decode   no device has been measured\n");
        return;
    }
    aggregate_put(writer, "decode   mean %.2f GB/s, slowest %s %.2f GB/s",
                  aggregate->bandwidth_mb_per_s_mean.value * 1e-3, devices[aggregate->slowest].id,
                  aggregate->bandwidth_mb_per_s_min.value * 1e-3);
    if (aggregate->n_measured > 1)
        aggregate_put(writer, "; the fastest, %s, is %.1f times as fast",
                      devices[aggregate->fastest].id,
                      aggregate->heterogeneity_permille.value * 1e-3);
    if (aggregate->n_measured < aggregate->n_devices)
        aggregate_put(writer, " (%" PRIu32 " of %" PRIu32 " measured)", aggregate->n_measured,
                      aggregate->n_devices);
    aggregate_put(writer, "\n");
}

static void put_flops(struct writer *writer, const struct aggregate *aggregate)
{
    if (!aggregate->n_rated)
        return;
    aggregate_put(writer, "prefill  %.1f GFLOP/s together", aggregate->mflops_total.value * 1e-3);
    if (aggregate->n_rated < aggregate->n_devices)
        aggregate_put(writer, " (%" PRIu32 " of %" PRIu32 " measured)", aggregate->n_rated,
                      aggregate->n_devices);
    aggregate_put(writer, "\n");
}

void aggregate_text(const struct aggregate *aggregate, const struct device_info *devices,
                    char *text, size_t size)
{
    assert(size);
    struct writer writer = {text, size, 0};
    text[0] = 0;
    if (!aggregate->n_devices)
        return;
    aggregate_put(&writer, "%" PRIu32 " device%s:", aggregate->n_devices,
                  aggregate->n_devices == 1 ? "" : "s");
    for (uint32_t i = 0; i < aggregate->n_vendors; i++) {
        const struct aggregate_vendor *vendor = &aggregate->vendors[i];
        aggregate_put(&writer, "%s %" PRIu32 " %s", i ? "," : "", vendor->n_devices,
                      vendor->name[0] ? vendor->name : "of unknown make");
    }
    aggregate_put(&writer, "\n");
    put_memory(&writer, aggregate, devices);
    put_decode(&writer, aggregate, devices);
    put_flops(&writer, aggregate);
}
