/* A page of /metrics in the making: Prometheus' text format, version 0.0.4.
 *
 * Metrics are those of table.h. All samples of one follow one another, which is asserted; HELP and
 * TYPE are written in front of the first. A value that is NaN is unknown, and not written. Label
 * values may be foreign: they are cut, escaped, and what is not UTF-8 becomes '?'.
 *
 *     struct metrics_page page = {.out = &body};
 *     metrics_put(&page, METRIC_DEVICE_POWER, METRICS_LABELS("cuda0"), 71.5);
 *
 * Pure. A page that ran out of memory has out->failed. */
#pragma once

#include "base/buffer.h"
#include "base/reading.h"
#include "metrics/histogram.h"
#include "metrics/table.h"

#define METRICS_ENUM(NAME, name, kind, labels, help) METRIC_##NAME,
enum metric { METRICS_TABLE(METRICS_ENUM) METRICS };
#undef METRICS_ENUM

enum { METRICS_LABEL_BYTES = 128, METRICS_LABELS_MAX = 8 };
#define METRICS_LABELS(...) ((const char *const[]){__VA_ARGS__})

struct metrics_page {
    struct buffer *out;
    bool begun[METRICS];
    enum metric last; /* where any was begun */
    bool has_last;
};

/* `labels`: as many as the table says; NULL where that is none. */
void metrics_put(struct metrics_page *page, enum metric metric, const char *const *labels,
                 double value);
void metrics_put_count(struct metrics_page *page, enum metric metric, const char *const *labels,
                       uint64_t value);
/* reading.value * scale, where it is valid. */
void metrics_put_reading(struct metrics_page *page, enum metric metric, const char *const *labels,
                         struct reading reading, double scale);
void metrics_put_histogram(struct metrics_page *page, enum metric metric, const char *const *labels,
                           const struct histogram *histogram);
