#include "metrics/page.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum metrics_kind { KIND_COUNTER, KIND_GAUGE, KIND_SECONDS, KIND_LONG_SECONDS, KIND_RATIO };

static const struct metrics_row {
    const char *name;
    enum metrics_kind kind;
    const char *labels; /* names with commas between */
    const char *help;
} metrics_rows[] = {
#define METRICS_ROW(NAME, name, kind, labels, help) {name, KIND_##kind, labels, help},
    METRICS_TABLE(METRICS_ROW)
#undef METRICS_ROW
};

/* ---- labels ---------------------------------------------------------------------------------- */

/* Bytes of the well-formed character at `text`; 0: it begins none. */
static size_t metrics_character(const char *text)
{
    const uint8_t *bytes = (const uint8_t *)text;
    const size_t size = bytes[0] < 0x80                       ? 1
                        : bytes[0] >= 0xc2 && bytes[0] < 0xe0 ? 2
                        : bytes[0] >= 0xe0 && bytes[0] < 0xf0 ? 3
                        : bytes[0] >= 0xf0 && bytes[0] < 0xf5 ? 4
                                                              : 0;
    for (size_t i = 1; i < size; i++) {
        if ((bytes[i] & 0xc0) != 0x80) /* the NUL, too */
            return 0;
    }
    const bool is_long = (bytes[0] == 0xe0 && bytes[1] < 0xa0) || /* overlong, surrogates, … */
                         (bytes[0] == 0xed && bytes[1] > 0x9f) ||
                         (bytes[0] == 0xf0 && bytes[1] < 0x90) ||
                         (bytes[0] == 0xf4 && bytes[1] > 0x8f);
    return is_long ? 0 : size;
}

static void metrics_write_label(const char *value, struct buffer *out)
{
    size_t written = 0;
    while (*value && written < METRICS_LABEL_BYTES) {
        const size_t size = metrics_character(value);
        if (*value == '\\' || *value == '"')
            buffer_printf(out, "\\%c", *value);
        else if (!size || (uint8_t)*value < ' ')
            buffer_text(out, "?");
        else
            buffer_append(out, value, size);
        value += size ? size : 1;
        written += size ? size : 1;
    }
}

/* `bound`: a histogram's `le`; NULL: none. */
static void metrics_write_labels(const struct metrics_row *row, const char *const *labels,
                                 const char *bound, struct buffer *out)
{
    const char *names = row->labels;
    const char *before = "{";
    assert((labels != NULL) == (names[0] != '\0'));
    for (uint32_t i = 0; *names; i++) {
        const size_t size = strcspn(names, ",");
        assert(i < METRICS_LABELS_MAX);
        buffer_text(out, before);
        buffer_append(out, names, size);
        buffer_text(out, "=\"");
        metrics_write_label(labels[i], out);
        buffer_text(out, "\"");
        names += size + (names[size] == ',');
        before = ",";
    }
    if (bound) {
        buffer_printf(out, "%sle=\"%s\"", before, bound);
        before = ",";
    }
    if (before[0] == ',')
        buffer_text(out, "}");
}

/* ---- samples --------------------------------------------------------------------------------- */

static const struct metrics_row *metrics_begin(struct metrics_page *page, enum metric metric)
{
    static const char *const types[] = {"counter", "gauge", "histogram", "histogram", "histogram"};
    const struct metrics_row *row = &metrics_rows[metric];
    assert(metric < METRICS);
    if (page->has_last && page->last == metric)
        return row;
    assert(!page->begun[metric]); /* its samples have to follow one another */
    page->begun[metric] = page->has_last = true;
    page->last = metric;
    buffer_printf(page->out, "# HELP %s %s\n# TYPE %s %s\n", row->name, row->help, row->name,
                  types[row->kind]);
    return row;
}

static void metrics_write_value(double value, struct buffer *out)
{
    if (isinf(value))
        buffer_printf(out, " %sInf\n", value > 0 ? "+" : "-");
    else if (value == floor(value) && fabs(value) < 1e15)
        buffer_printf(out, " %.0f\n", value);
    else
        buffer_printf(out, " %.9g\n", value);
}

void metrics_put(struct metrics_page *page, enum metric metric, const char *const *labels,
                 double value)
{
    assert(metrics_rows[metric].kind <= KIND_GAUGE);
    if (isnan(value))
        return;
    const struct metrics_row *row = metrics_begin(page, metric);
    buffer_text(page->out, row->name);
    metrics_write_labels(row, labels, NULL, page->out);
    metrics_write_value(value, page->out);
}

void metrics_put_count(struct metrics_page *page, enum metric metric, const char *const *labels,
                       uint64_t value)
{
    metrics_put(page, metric, labels, (double)value);
}

void metrics_put_reading(struct metrics_page *page, enum metric metric, const char *const *labels,
                         struct reading reading, double scale)
{
    if (reading.valid)
        metrics_put(page, metric, labels, reading.value * scale);
}

void metrics_put_histogram(struct metrics_page *page, enum metric metric, const char *const *labels,
                           const struct histogram *histogram)
{
    const struct metrics_row *row = metrics_begin(page, metric);
    const enum histogram_scale scale = (enum histogram_scale)(row->kind - KIND_SECONDS);
    uint64_t sum = 0;
    assert(row->kind >= KIND_SECONDS);
    for (uint32_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        char bound[32];
        snprintf(bound, sizeof bound, "%g", histogram_limit(scale, i));
        sum += histogram->buckets[i];
        buffer_printf(page->out, "%s_bucket", row->name);
        metrics_write_labels(row, labels, bound, page->out);
        metrics_write_value((double)sum, page->out);
    }
    buffer_printf(page->out, "%s_bucket", row->name);
    metrics_write_labels(row, labels, "+Inf", page->out);
    metrics_write_value((double)histogram->count, page->out);
    buffer_printf(page->out, "%s_sum", row->name);
    metrics_write_labels(row, labels, NULL, page->out);
    metrics_write_value(histogram->sum, page->out);
    buffer_printf(page->out, "%s_count", row->name);
    metrics_write_labels(row, labels, NULL, page->out);
    metrics_write_value((double)histogram->count, page->out);
}
