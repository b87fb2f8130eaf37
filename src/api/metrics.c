#include "api/metrics.h"
#include "base/version.h"

#include <stdio.h>
#include <string.h>

void metrics_loop_held(struct metrics *metrics, uint64_t ns)
{
    histogram_add_ns(&metrics->loop_seconds, HISTOGRAM_SECONDS, ns);
    if (ns > metrics->loop_ns_max)
        metrics->loop_ns_max = ns;
}

void metrics_loop_turned(struct metrics *metrics, uint64_t cpu_ns)
{
    histogram_add_ns(&metrics->turn_seconds, HISTOGRAM_SECONDS, cpu_ns);
    if (cpu_ns > metrics->turn_ns_max)
        metrics->turn_ns_max = cpu_ns;
}

void metrics_request(struct metrics *metrics, const char *route, unsigned status, uint64_t ns)
{
    histogram_add_ns(&metrics->request_seconds, HISTOGRAM_SECONDS, ns);
    for (uint32_t i = 0; i < metrics->n_requests; i++) {
        if (metrics->requests[i].route == route && metrics->requests[i].status == status) {
            metrics->requests[i].count++;
            return;
        }
    }
    if (metrics->n_requests == sizeof metrics->requests / sizeof *metrics->requests)
        return; /* more (route, status) pairs than there are; the histogram has counted it */
    metrics->requests[metrics->n_requests].route = route;
    metrics->requests[metrics->n_requests].status = status;
    metrics->requests[metrics->n_requests++].count = 1;
}

/* ---- completions, by model ------------------------------------------------------------------- */

struct metrics_model *metrics_model(struct metrics *metrics, const char *name)
{
    const char *shown = name[0] ? name : "none";
    for (uint32_t i = 0; i < metrics->n_models; i++) {
        if (strncmp(metrics->models[i].name, shown, METRICS_LABEL_BYTES) == 0)
            return &metrics->models[i];
    }
    if (metrics->n_models < METRICS_MODELS) {
        struct metrics_model *model = &metrics->models[metrics->n_models++];
        snprintf(model->name, sizeof model->name, "%s", shown);
        return model;
    }
    metrics->n_models = METRICS_MODELS + 1;
    struct metrics_model *other = &metrics->models[METRICS_MODELS];
    snprintf(other->name, sizeof other->name, "other");
    return other;
}

static void metrics_count_pauses(struct metrics_model *model, const struct request_record *record)
{
    for (uint32_t i = 0; i < record->n_pauses; i++)
        model->pause_ns += record->pauses[i].ended_ns - record->pauses[i].begun_ns;
    model->pauses += record->n_pauses;
}

void metrics_completion(struct metrics *metrics, const struct request_record *record)
{
    struct metrics_model *model = metrics_model(metrics, record->model);
    const double decode = api_record_decode_tokens_per_s(record);
    model->outcomes[record->outcome]++;
    histogram_add_ns(&model->whole, HISTOGRAM_LONG_SECONDS, record->ended_ns - record->started_ns);
    metrics_count_pauses(model, record);
    if (record->has_usage) {
        model->prompt_tokens += record->prompt_tokens;
        model->cached_tokens += record->cached_tokens;
        histogram_add_ns(&model->queue, HISTOGRAM_LONG_SECONDS, record->queued_ns);
    }
    if (decode > 0 && record->forecast_decode_tokens_per_s > 0)
        histogram_add(&model->forecast, HISTOGRAM_RATIO,
                      decode / record->forecast_decode_tokens_per_s);
    if (record->metered_ns && !record->lacks_joules) {
        model->joules += record->joules;
        model->joules_tokens += record->generated_tokens;
    }
}

/* ---- the page -------------------------------------------------------------------------------- */

static void metrics_write_http(const struct metrics *metrics, struct metrics_page *page)
{
    for (uint32_t i = 0; i < metrics->n_requests; i++) {
        char status[16];
        snprintf(status, sizeof status, "%u", metrics->requests[i].status);
        metrics_put_count(page, METRIC_HTTP_REQUESTS,
                          METRICS_LABELS(metrics->requests[i].route, status),
                          metrics->requests[i].count);
    }
    metrics_put_histogram(page, METRIC_HTTP_SECONDS, NULL, &metrics->request_seconds);
    metrics_put_histogram(page, METRIC_LOOP_HOLD, NULL, &metrics->loop_seconds);
    metrics_put_histogram(page, METRIC_LOOP_TURN, NULL, &metrics->turn_seconds);
}

static void metrics_write_counts(const struct metrics *metrics, const struct metrics_gauges *gauges,
                                 struct metrics_page *page)
{
    const struct {
        enum metric metric;
        uint64_t value;
    } rows[] = {
        {METRIC_HTTP_ACTIVE, metrics->requests_active},
        {METRIC_CONNECTIONS, metrics->connections},
        {METRIC_CONNECTIONS_CLOSED, metrics->connections_closed},
        {METRIC_CONNECTIONS_REFUSED, metrics->connections_refused},
        {METRIC_REQUESTS_CANCELLED, metrics->cancelled},
        {METRIC_PREPARE_WAITING, gauges->waiting},
        {METRIC_API_MEMORY, gauges->memory_bytes},
        {METRIC_API_MEMORY_PEAK, gauges->memory_bytes_peak},
        {METRIC_EMBEDDED_TOKENS, metrics->embedded_tokens},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        metrics_put_count(page, rows[i].metric, NULL, rows[i].value);
    metrics_put(page, METRIC_LOOP_HOLD_MAX, NULL, (double)metrics->loop_ns_max * 1e-9);
    metrics_put(page, METRIC_LOOP_TURN_MAX, NULL, (double)metrics->turn_ns_max * 1e-9);
}

static void metrics_write_outcomes(const struct metrics *metrics, struct metrics_page *page)
{
    for (uint32_t i = 0; i < metrics->n_models; i++) {
        const struct metrics_model *model = &metrics->models[i];
        for (enum record_outcome outcome = RECORD_DONE; outcome < RECORD_OUTCOMES; outcome++)
            metrics_put_count(page, METRIC_REQUESTS,
                              METRICS_LABELS(model->name, api_record_outcome_name(outcome)),
                              model->outcomes[outcome]);
    }
}

static double metrics_model_value(const struct metrics_model *model, enum metric metric)
{
    switch ((int)metric) {
    case METRIC_PROMPT_TOKENS:
        return (double)model->prompt_tokens;
    case METRIC_CACHED_TOKENS:
        return (double)model->cached_tokens;
    case METRIC_GENERATED_TOKENS:
        return (double)model->generated_tokens;
    case METRIC_PAUSES:
        return (double)model->pauses;
    case METRIC_PAUSE_SECONDS:
        return (double)model->pause_ns * 1e-9;
    case METRIC_ENERGY:
        return model->joules;
    default:
        return (double)model->joules_tokens;
    }
}

static void metrics_write_models(const struct metrics *metrics, struct metrics_page *page)
{
    static const enum metric values[] = {
        METRIC_PROMPT_TOKENS, METRIC_CACHED_TOKENS, METRIC_GENERATED_TOKENS, METRIC_PAUSES,
        METRIC_PAUSE_SECONDS, METRIC_ENERGY,        METRIC_ENERGY_TOKENS};
    static const struct {
        enum metric metric;
        size_t offset;
    } histograms[] = {
        {METRIC_QUEUE_SECONDS, offsetof(struct metrics_model, queue)},
        {METRIC_TTFT_SECONDS, offsetof(struct metrics_model, ttft)},
        {METRIC_TOKEN_SECONDS, offsetof(struct metrics_model, token)},
        {METRIC_REQUEST_SECONDS, offsetof(struct metrics_model, whole)},
        {METRIC_FORECAST_RATIO, offsetof(struct metrics_model, forecast)},
    };
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        for (uint32_t at = 0; at < metrics->n_models; at++)
            metrics_put(page, values[i], METRICS_LABELS(metrics->models[at].name),
                        metrics_model_value(&metrics->models[at], values[i]));
    }
    for (size_t i = 0; i < sizeof histograms / sizeof *histograms; i++) {
        for (uint32_t at = 0; at < metrics->n_models; at++) {
            const struct metrics_model *model = &metrics->models[at];
            metrics_put_histogram(page, histograms[i].metric, METRICS_LABELS(model->name),
                                  (const struct histogram *)(const void *)((const char *)model +
                                                                           histograms[i].offset));
        }
    }
}

void metrics_write(const struct metrics *metrics, const struct metrics_gauges *gauges,
                   struct metrics_page *page)
{
    metrics_put(page, METRIC_BUILD_INFO, METRICS_LABELS(MEDLEY_VERSION), 1);
    metrics_write_http(metrics, page);
    metrics_write_counts(metrics, gauges, page);
    metrics_write_outcomes(metrics, page);
    metrics_write_models(metrics, page);
}
