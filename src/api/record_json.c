/* Records of requests as JSON, and the routes that show them. */
#include "api/exchange.h"
#include "api/internal.h"
#include "api/json_out.h"
#include "api/record.h"
#include "base/clock.h"
#include "trust/access_token.h"

#include <inttypes.h>
#include <string.h>

static void record_write_number(const char *key, bool known, double value, struct buffer *out)
{
    if (known)
        buffer_printf(out, ",\"%s\":%.3f", key, value);
    else
        buffer_printf(out, ",\"%s\":null", key);
}

static void record_write_count(const char *key, bool known, uint32_t count, struct buffer *out)
{
    if (known)
        buffer_printf(out, ",\"%s\":%u", key, count);
    else
        buffer_printf(out, ",\"%s\":null", key);
}

static void record_write_text(const char *key, const char *text, struct buffer *out)
{
    buffer_printf(out, ",\"%s\":", key);
    json_out_text(out, text && text[0] ? text : NULL);
}

static void record_write_time(const char *key, bool known, uint64_t ns, struct buffer *out)
{
    record_write_number(key, known && ns != REQUEST_TIME_UNKNOWN, (double)ns * 1e-6, out);
}

static void record_write_stage(const struct request_record *record, uint32_t index,
                               struct buffer *out)
{
    const struct request_run_stage *stage = &record->stages[index];
    const struct request_stage_time *known = api_record_stage_time(record, index);
    const struct request_stage_time time = known ? *known : (struct request_stage_time){0};
    buffer_text(out, "{\"node\":");
    json_out_text(out, stage->node[0] ? stage->node : NULL);
    record_write_text("device", stage->device, out);
    buffer_printf(out, ",\"first_layer\":%u,\"n_layers\":%u", stage->first_layer, stage->n_layers);
    record_write_time("compute_ms", known, time.compute_ns, out);
    record_write_time("wait_ms", known, time.wait_ns, out);
    record_write_time("link_ms", known, time.link_ns, out);
    if (known)
        buffer_printf(out, ",\"link_bytes\":%" PRIu64 "}", time.link_bytes);
    else
        buffer_text(out, ",\"link_bytes\":null}");
}

static void record_write_pause(const struct request_record *record,
                               const struct record_pause *pause, uint64_t now_ns,
                               struct buffer *out)
{
    const uint64_t end_ns = pause->ended_ns ? pause->ended_ns : now_ns;
    const uint64_t after_ns =
        pause->begun_ns > record->started_ns ? pause->begun_ns - record->started_ns : 0;
    buffer_printf(out, "{\"at_ms\":%" PRIu64 ",\"ms\":%" PRIu64 ",\"over\":%s",
                  record->started_ms + after_ns / 1000000,
                  (end_ns > pause->begun_ns ? end_ns - pause->begun_ns : 0) / 1000000,
                  pause->ended_ns ? "true" : "false");
    record_write_text("why", pause->why, out);
    buffer_text(out, "}");
}

static void record_write_times(const struct request_record *record, struct buffer *out)
{
    const double ms = 1e-6;
    const double decode = api_record_decode_tokens_per_s(record),
                 prefill = api_record_prefill_tokens_per_s(record);
    record_write_number("queue_ms", record->has_usage, (double)record->queued_ns * ms, out);
    record_write_number("prefill_ms", record->has_usage, (double)record->prefill_ns * ms, out);
    record_write_number("decode_ms", record->has_usage, (double)record->decode_ns * ms, out);
    record_write_number("slowest_stage_ms", record->slowest_ns, (double)record->slowest_ns * ms,
                        out);
    record_write_time("back_ms", record->n_times, record->back_ns, out);
    record_write_number("ttft_ms", record->first_token_ns,
                        (double)(record->first_token_ns - record->started_ns) * ms, out);
    record_write_number("total_ms", record->ended_ns,
                        (double)(record->ended_ns - record->started_ns) * ms, out);
    record_write_number("decode_tokens_per_s", decode > 0, decode, out);
    record_write_number("prefill_tokens_per_s", prefill > 0, prefill, out);
    record_write_number("forecast_decode_tokens_per_s", record->forecast_decode_tokens_per_s > 0,
                        record->forecast_decode_tokens_per_s, out);
}

void api_record_write(const struct request_record *record, bool names, uint64_t now_ns,
                      struct buffer *out)
{
    buffer_text(out, "{\"id\":");
    json_out_text(out, record->id);
    record_write_text("model", record->model, out);
    record_write_text("client", names ? record->client : NULL, out);
    buffer_printf(out, ",\"started_ms\":%" PRIu64, record->started_ms);
    record_write_text("outcome", api_record_outcome_name(record->outcome), out);
    record_write_count("prompt_tokens", record->submitted_ns, record->prompt_tokens, out);
    record_write_count("cached_tokens", record->has_usage, record->cached_tokens, out);
    buffer_printf(out, ",\"generated_tokens\":%u", record->generated_tokens);
    record_write_times(record, out);
    record_write_text("driver", record->driver, out);
    buffer_text(out, ",\"stages\":[");
    for (uint32_t i = 0; i < record->n_stages; i++) {
        buffer_text(out, i ? "," : "");
        record_write_stage(record, i, out);
    }
    buffer_text(out, "],\"pauses\":[");
    for (uint32_t i = 0; i < record->n_pauses; i++) {
        buffer_text(out, i ? "," : "");
        record_write_pause(record, &record->pauses[i], now_ns, out);
    }
    buffer_text(out, "]");
    record_write_number("joules", record->metered_ns && !record->lacks_joules, record->joules, out);
    buffer_text(out, "}");
}

void api_records_write(const struct request_records *records, bool names, uint64_t now_ns,
                       struct buffer *out)
{
    const char *comma = "";
    buffer_text(out, "{\"under_way\":[");
    for (const struct request_record *at = records->under_way; at; at = at->next, comma = ",") {
        buffer_text(out, comma);
        api_record_write(at, names, now_ns, out);
    }
    buffer_text(out, "],\"finished\":[");
    const uint64_t n =
        records->n_finished < RECORDS_FINISHED ? records->n_finished : RECORDS_FINISHED;
    for (uint64_t i = 0; i < n; i++) {
        buffer_text(out, i ? "," : "");
        api_record_write(records->finished[(records->n_finished - 1 - i) % RECORDS_FINISHED], names,
                         now_ns, out);
    }
    buffer_text(out, "]}");
}

/* ---- routes ---------------------------------------------------------------------------------- */

static bool records_shows_names(const struct exchange *exchange)
{
    const struct access_grant *grant = exchange_grant(exchange);
    return !grant->id || (grant->scopes & ACCESS_ADMIN);
}

void requests_handle(struct exchange *exchange)
{
    struct buffer body = {0};
    api_records_write(&exchange_server(exchange)->records, records_shows_names(exchange),
                      clock_now_ns(), &body);
    exchange_answer_json(exchange, &body);
}

void request_handle(struct exchange *exchange)
{
    const struct text path = exchange_path(exchange);
    const size_t prefix = strlen("/api/requests/");
    const struct text id = {path.data + prefix, path.size - prefix};
    const struct request_record *record = api_records_find(&exchange_server(exchange)->records, id);
    struct buffer body = {0};
    struct api_error err;
    if (record) {
        api_record_write(record, records_shows_names(exchange), clock_now_ns(), &body);
        exchange_answer_json(exchange, &body);
        return;
    }
    api_error_set(&err, 404, "invalid_request_error", "not_found",
                  "no request of that id is known here; this node keeps the last %d",
                  RECORDS_FINISHED);
    exchange_fail(exchange, &err);
}
