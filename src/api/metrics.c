#include "api/metrics.h"

#include <inttypes.h>
#include <string.h>

/* 0.5 ms doubling to 16 s: wide enough for a token of a small model and the prefill of a large
 * one. */
static double bucket_limit(uint32_t index)
{
    return 0.0005 * (double)(1u << index);
}

void histogram_add(struct histogram *histogram, uint64_t ns)
{
    double seconds = (double)ns * 1e-9;
    uint32_t i = 0;
    while (i < METRICS_BUCKETS && seconds > bucket_limit(i))
        i++;
    histogram->buckets[i]++;
    histogram->count++;
    histogram->sum += seconds;
}

void metrics_loop_held(struct metrics *metrics, uint64_t ns)
{
    histogram_add(&metrics->loop_seconds, ns);
    if (ns > metrics->loop_ns_max)
        metrics->loop_ns_max = ns;
}

void metrics_loop_turned(struct metrics *metrics, uint64_t cpu_ns)
{
    histogram_add(&metrics->turn_seconds, cpu_ns);
    if (cpu_ns > metrics->turn_ns_max)
        metrics->turn_ns_max = cpu_ns;
}

void metrics_request(struct metrics *metrics, const char *route, unsigned status, uint64_t ns)
{
    histogram_add(&metrics->request_seconds, ns);
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

static void write_histogram(const char *name, const char *help, const struct histogram *histogram,
                            struct buffer *out)
{
    uint64_t sum = 0;
    buffer_printf(out, "# HELP %s %s\n# TYPE %s histogram\n", name, help, name);
    for (uint32_t i = 0; i < METRICS_BUCKETS; i++) {
        sum += histogram->buckets[i];
        buffer_printf(out, "%s_bucket{le=\"%g\"} %" PRIu64 "\n", name, bucket_limit(i), sum);
    }
    buffer_printf(out, "%s_bucket{le=\"+Inf\"} %" PRIu64 "\n%s_sum %.9g\n%s_count %" PRIu64 "\n",
                  name, histogram->count, name, histogram->sum, name, histogram->count);
}

static void write_value(const char *name, const char *type, const char *help, uint64_t value,
                        struct buffer *out)
{
    buffer_printf(out, "# HELP %s %s\n# TYPE %s %s\n%s %" PRIu64 "\n", name, help, name, type, name,
                  value);
}

void metrics_write(const struct metrics *metrics, const struct driver_stats *driver,
                   struct buffer *out)
{
    const struct {
        const char *name, *type, *help;
        uint64_t value;
    } rows[] = {
        {"medley_prompt_tokens_total", "counter", "Prompt tokens of finished requests.",
         metrics->prompt_tokens},
        {"medley_cached_tokens_total", "counter", "Of those, tokens reused from a slot.",
         metrics->cached_tokens},
        {"medley_generated_tokens_total", "counter", "Tokens sent to clients.",
         metrics->generated_tokens},
        {"medley_connections_closed_total", "counter",
         "Connections that were closed to make room for others.", metrics->connections_closed},
        {"medley_connections_refused_total", "counter",
         "Connections of clients that had too many requests under way.",
         metrics->connections_refused},
        {"medley_requests_cancelled_total", "counter",
         "Requests whose client left or read too slowly.", metrics->cancelled},
        {"medley_requests_active", "gauge", "Requests being answered.", metrics->requests_active},
        {"medley_prepare_waiting", "gauge", "Steps of requests that wait for the preparer.",
         metrics->waiting},
        {"medley_api_memory_bytes", "gauge", "Memory that requests have, of the limit `memory`.",
         metrics->memory_bytes},
        {"medley_api_memory_peak_bytes", "gauge", "The most that it has been.",
         metrics->memory_bytes_peak},
        {"medley_loop_hold_max_microseconds", "gauge",
         "The longest that the API has held the node's loop.", metrics->loop_ns_max / 1000},
        {"medley_loop_turn_max_microseconds", "gauge",
         "The most processor time of one turn of the node's loop.", metrics->turn_ns_max / 1000},
        {"medley_connections", "gauge", "Open connections.", metrics->connections},
        {"medley_slots", "gauge", "Sequences that can run at once.", driver->slots_total},
        {"medley_slots_busy", "gauge", "Sequences that run.", driver->slots_busy},
        {"medley_queue_length", "gauge", "Sequences that wait for a slot.", driver->queued},
        {"medley_driver_requests_total", "counter", "Sequences given to the driver.",
         driver->requests_total},
        {"medley_driver_steps_total", "counter", "Micro-batches run.", driver->steps_total},
        {"medley_driver_rows_total", "counter", "Rows of those.", driver->rows_total},
    };
    buffer_text(out,
                "# HELP medley_build_info The running version.\n# TYPE medley_build_info gauge\n"
                "medley_build_info{version=\"" MEDLEY_VERSION "\"} 1\n");
    buffer_text(out, "# HELP medley_http_requests_total Answered requests.\n"
                     "# TYPE medley_http_requests_total counter\n");
    for (uint32_t i = 0; i < metrics->n_requests; i++)
        buffer_printf(out, "medley_http_requests_total{route=\"%s\",status=\"%u\"} %" PRIu64 "\n",
                      metrics->requests[i].route, metrics->requests[i].status,
                      metrics->requests[i].count);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        write_value(rows[i].name, rows[i].type, rows[i].help, rows[i].value, out);
    write_histogram("medley_request_seconds", "From a request's headers to the end of its answer.",
                    &metrics->request_seconds, out);
    write_histogram("medley_loop_hold_seconds",
                    "For so long a callback of the API has held the node's loop.",
                    &metrics->loop_seconds, out);
    write_histogram("medley_loop_turn_seconds",
                    "Processor time of a turn of the node's loop, between two waits.",
                    &metrics->turn_seconds, out);
    write_histogram("medley_time_to_first_token_seconds",
                    "From a request's headers to its first token.", &metrics->ttft_seconds, out);
    write_histogram("medley_inter_token_seconds", "Between two tokens of a sequence.",
                    &metrics->token_seconds, out);
}
