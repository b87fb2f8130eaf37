/* Counters and histograms of the API in Prometheus' text format (version 0.0.4). All on the API's
 * loop; a zeroed `struct metrics` is valid. */
#pragma once

#include "base/buffer.h"
#include "request/request.h"

#include <stdint.h>

enum { METRICS_BUCKETS = 16, METRICS_STATUSES = 16 };

struct histogram {
    uint64_t buckets[METRICS_BUCKETS + 1]; /* not cumulative; the last is for what is larger */
    uint64_t count;
    double sum; /* seconds */
};

struct metrics {
    struct {
        const char *route; /* a static text */
        unsigned status;
        uint64_t count;
    } requests[64];
    uint32_t n_requests;
    struct histogram request_seconds, ttft_seconds, token_seconds, loop_seconds, turn_seconds;
    uint64_t loop_ns_max, turn_ns_max;
    uint64_t memory_bytes, memory_bytes_peak, waiting; /* filled in when they are read */
    uint64_t prompt_tokens, cached_tokens, generated_tokens;
    uint64_t cancelled;           /* clients that went away, slow readers */
    uint64_t connections_closed;  /* to make room for others */
    uint64_t connections_refused; /* of clients whose share was busy */
    uint32_t connections, requests_active;
};

void histogram_add(struct histogram *histogram, uint64_t ns);
/* One callback of the server has taken so long, and nothing else of this loop ran. */
void metrics_loop_held(struct metrics *metrics, uint64_t ns);
/* A turn of the loop has kept the processor for so long. */
void metrics_loop_turned(struct metrics *metrics, uint64_t cpu_ns);
void metrics_request(struct metrics *metrics, const char *route, unsigned status, uint64_t ns);
/* `driver` is the sum over all models: its counters fall when one goes, which Prometheus takes for
 * a restart. */
void metrics_write(const struct metrics *metrics, const struct driver_stats *driver,
                   struct buffer *out);
