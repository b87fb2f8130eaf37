/* What the API counts, for /metrics. All on the API's loop; a zeroed `struct metrics` is valid. */
#pragma once

#include "api/record.h"
#include "metrics/page.h"
#include "request/request.h"

#include <stdint.h>

/* Of completions for one model. */
struct metrics_model {
    char name[METRICS_LABEL_BYTES + 1];
    uint64_t outcomes[RECORD_OUTCOMES];
    uint64_t prompt_tokens, cached_tokens, generated_tokens;
    struct histogram queue, ttft, token, whole, forecast;
    uint64_t pauses, pause_ns;
    double joules;
    uint64_t joules_tokens;
};

struct metrics {
    struct {
        const char *route; /* a static text */
        unsigned status;
        uint64_t count;
    } requests[64];
    uint32_t n_requests;
    struct histogram request_seconds, loop_seconds, turn_seconds;
    uint64_t loop_ns_max, turn_ns_max;
    uint64_t embedded_tokens;
    uint64_t cancelled;           /* clients that went away, slow readers */
    uint64_t connections_closed;  /* to make room for others */
    uint64_t connections_refused; /* of clients whose share was busy */
    uint32_t connections, requests_active;
    struct metrics_model models[METRICS_MODELS + 1]; /* the last is "other" */
    uint32_t n_models;
};

/* What is asked for when it is shown. */
struct metrics_gauges {
    uint64_t memory_bytes, memory_bytes_peak, waiting;
};

/* One callback of the server has taken so long, and nothing else of this loop ran. */
void metrics_loop_held(struct metrics *metrics, uint64_t ns);
/* A turn of the loop has kept the processor for so long. */
void metrics_loop_turned(struct metrics *metrics, uint64_t cpu_ns);
void metrics_request(struct metrics *metrics, const char *route, unsigned status, uint64_t ns);
/* Of a model that was opened; "": of none. Good as long as `metrics`. */
struct metrics_model *metrics_model(struct metrics *metrics, const char *name);
/* A completion that is over. */
void metrics_completion(struct metrics *metrics, const struct request_record *record);

void metrics_write(const struct metrics *metrics, const struct metrics_gauges *gauges,
                   struct metrics_page *page);
