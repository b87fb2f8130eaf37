#include "api/traces.h"

#include "api/json_out.h"
#include "base/mem.h"
#include "base/version.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    TRACES_LINGER_MS = 500,
    TRACES_QUEUE = 1024,
    TRACES_SERVER = 2, /* SpanKind */
    TRACES_INTERNAL = 1,
    TRACES_ERROR = 2, /* StatusCode */
};

struct traces {
    struct post *post;
    char *service_name;
};

/* A span in the making. */
struct traces_span {
    const struct request_record *record;
    struct buffer *out;
    uint32_t n;
};

/* ---- attributes ------------------------------------------------------------------------------ */

static void traces_attribute(struct buffer *out, const char *comma, const char *key,
                             const char *text)
{
    buffer_printf(out, "%s{\"key\":\"%s\",\"value\":{\"stringValue\":", comma, key);
    json_out_text(out, text);
    buffer_text(out, "}}");
}

/* A 64-bit number is a text in protobuf's JSON. */
static void traces_number(struct buffer *out, const char *key, uint64_t number)
{
    buffer_printf(out, ",{\"key\":\"%s\",\"value\":{\"intValue\":\"%" PRIu64 "\"}}", key, number);
}

static void traces_real(struct buffer *out, const char *key, double number)
{
    if (number > 0)
        buffer_printf(out, ",{\"key\":\"%s\",\"value\":{\"doubleValue\":%.6g}}", key, number);
}

/* ---- spans ----------------------------------------------------------------------------------- */

static uint64_t traces_wall_ns(const struct request_record *record, uint64_t ns)
{
    assert(ns >= record->started_ns);
    return record->started_ms * 1000000 + (ns - record->started_ns);
}

/* Up to its attributes. The first is the request itself, whose parent is the client's. */
static void traces_begin_span(struct traces_span *span, const char *name, const char *more,
                              uint64_t begin_ns, uint64_t end_ns)
{
    const struct request_record *record = span->record;
    const struct trace_context *context = &record->trace;
    char id[TRACE_SPAN_TEXT], root[TRACE_SPAN_TEXT], title[160];
    const bool is_root = !span->n;
    uint64_t number = context->span + span->n++;
    trace_span_text(number ? number : UINT64_C(1) << 63, id);
    trace_span_text(context->span, root);
    snprintf(title, sizeof title, "%s%s%s", name, more[0] ? " " : "", more);
    buffer_printf(span->out, "%s{\"traceId\":\"%s\",\"spanId\":\"%s\"", is_root ? "" : ",",
                  context->trace_id, id);
    if (!is_root || context->parent[0])
        buffer_printf(span->out, ",\"parentSpanId\":\"%s\"", is_root ? context->parent : root);
    buffer_text(span->out, ",\"name\":");
    json_out_text(span->out, title);
    buffer_printf(span->out,
                  ",\"kind\":%d,\"startTimeUnixNano\":\"%" PRIu64
                  "\",\"endTimeUnixNano\":\"%" PRIu64 "\",\"attributes\":[",
                  is_root ? TRACES_SERVER : TRACES_INTERNAL, traces_wall_ns(record, begin_ns),
                  traces_wall_ns(record, end_ns > begin_ns ? end_ns : begin_ns));
}

static void traces_end_span(struct traces_span *span, const char *problem)
{
    buffer_text(span->out, "]");
    if (problem) {
        buffer_printf(span->out, ",\"status\":{\"code\":%d,\"message\":", TRACES_ERROR);
        json_out_text(span->out, problem);
        buffer_text(span->out, "}");
    }
    buffer_text(span->out, "}");
}

/* Names of OpenTelemetry's conventions for generative AI where there are some. */
static void traces_write_request(struct traces_span *span)
{
    const struct request_record *record = span->record;
    const bool is_chat = strncmp(record->id, "chat", 4) == 0;
    const char *operation = is_chat ? "chat" : "text_completion";
    traces_begin_span(span, operation, record->model, record->started_ns, record->ended_ns);
    traces_attribute(span->out, "", "gen_ai.operation.name", operation);
    traces_attribute(span->out, ",", "gen_ai.request.model", record->model);
    traces_attribute(span->out, ",", "gen_ai.response.id", record->id);
    traces_number(span->out, "gen_ai.usage.input_tokens", record->prompt_tokens);
    traces_number(span->out, "gen_ai.usage.output_tokens", record->generated_tokens);
    traces_number(span->out, "medley.cached_tokens", record->cached_tokens);
    if (record->slowest_ns)
        traces_number(span->out, "medley.slowest_stage_ns", record->slowest_ns);
    traces_attribute(span->out, ",", "medley.outcome", api_record_outcome_name(record->outcome));
    traces_attribute(span->out, ",", "medley.driver", record->driver);
    traces_real(span->out, "medley.decode_tokens_per_s", api_record_decode_tokens_per_s(record));
    traces_real(span->out, "medley.forecast_decode_tokens_per_s",
                record->forecast_decode_tokens_per_s);
    if (record->metered_ns && !record->lacks_joules)
        traces_real(span->out, "medley.joules", record->joules);
    traces_end_span(span, record->outcome == RECORD_FAILED ? "failed" : NULL);
}

static void traces_write_part(struct traces_span *span, const char *name, uint64_t begin_ns,
                              uint64_t end_ns)
{
    if (!begin_ns || !end_ns || end_ns < begin_ns || begin_ns < span->record->started_ns)
        return;
    traces_begin_span(span, name, "", begin_ns, end_ns);
    traces_end_span(span, NULL);
}

static void traces_write_pause(struct traces_span *span, const struct record_pause *pause)
{
    if (pause->begun_ns < span->record->started_ns)
        return;
    traces_begin_span(span, "pause", "", pause->begun_ns, pause->ended_ns);
    traces_attribute(span->out, "", "medley.why", pause->why);
    traces_end_span(span, NULL);
}

static void traces_time(struct buffer *out, const char *key, uint64_t ns)
{
    if (ns != REQUEST_TIME_UNKNOWN)
        traces_number(out, key, ns);
}

/* To a stage in another process, or on another machine: what is known of all messages together. */
static void traces_write_link(struct traces_span *span, uint32_t index, uint64_t begin_ns)
{
    const struct request_run_stage *stage = &span->record->stages[index];
    const struct request_stage_time *time = api_record_stage_time(span->record, index);
    if (!time || !time->link_bytes)
        return;
    traces_begin_span(span, "link", stage->device, begin_ns, span->record->last_token_ns);
    traces_attribute(span->out, "", "medley.from_node",
                     index ? stage[-1].node : span->record->driver);
    traces_attribute(span->out, ",", "medley.node", stage->node);
    traces_number(span->out, "medley.stage", index);
    traces_number(span->out, "medley.link_bytes", time->link_bytes);
    traces_time(span->out, "medley.link_ns", time->link_ns);
    traces_end_span(span, NULL);
}

/* A stage works on its share of every micro-batch from the first row to the last token. */
static void traces_write_stage(struct traces_span *span, uint32_t index, uint64_t begin_ns)
{
    const struct request_run_stage *stage = &span->record->stages[index];
    const struct request_stage_time *time = api_record_stage_time(span->record, index);
    traces_write_link(span, index, begin_ns);
    traces_begin_span(span, "stage", stage->device, begin_ns, span->record->last_token_ns);
    traces_attribute(span->out, "", "medley.node", stage->node);
    traces_attribute(span->out, ",", "medley.device", stage->device);
    traces_number(span->out, "medley.stage", index);
    traces_number(span->out, "medley.first_layer", stage->first_layer);
    traces_number(span->out, "medley.layers", stage->n_layers);
    if (time) {
        traces_time(span->out, "medley.compute_ns", time->compute_ns);
        traces_time(span->out, "medley.wait_ns", time->wait_ns);
    }
    traces_end_span(span, NULL);
}

static void traces_write_spans(const struct request_record *record, struct buffer *out)
{
    struct traces_span span = {.record = record, .out = out};
    const uint64_t queued_ns = record->has_usage ? record->queued_ns : 0;
    const uint64_t slot_ns = record->submitted_ns ? record->submitted_ns + queued_ns : 0;
    traces_write_request(&span);
    if (record->has_usage)
        traces_write_part(&span, "queue", record->submitted_ns, slot_ns);
    traces_write_part(&span, "prefill", slot_ns, record->first_token_ns);
    traces_write_part(&span, "decode", record->first_token_ns, record->last_token_ns);
    for (uint32_t i = 0; i < record->n_pauses; i++)
        traces_write_pause(&span, &record->pauses[i]);
    for (uint32_t i = 0; slot_ns && record->last_token_ns && i < record->n_stages; i++)
        traces_write_stage(&span, i, slot_ns);
}

static const char TRACES_HEAD[] = "{\"resourceSpans\":[", TRACES_TAIL[] = "]}";

bool traces_join(struct buffer *into, const struct buffer *more)
{
    const size_t head = strlen(TRACES_HEAD), tail = strlen(TRACES_TAIL);
    const size_t size = into->size + 1 + more->size - head - tail;
    assert(into->size >= head + tail && more->size >= head + tail);
    const size_t end = into->size - tail;
    if (size > TRACES_BATCH_BYTES)
        return false;
    if (!buffer_extend(into, size - into->size)) {
        into->failed = false; /* it is as it was */
        return false;
    }
    into->data[end] = ',';
    memcpy(into->data + end + 1, more->data + head, more->size - head);
    assert(end + 1 + more->size - head == into->size);
    return true;
}

void traces_write(const struct request_record *record, const struct trace_service *service,
                  struct buffer *out)
{
    buffer_text(out, TRACES_HEAD);
    buffer_text(out, "{\"resource\":{\"attributes\":[");
    traces_attribute(out, "", "service.name", "medley");
    traces_attribute(out, ",", "service.version", MEDLEY_VERSION);
    if (service->name)
        traces_attribute(out, ",", "service.instance.id", service->name);
    buffer_text(out,
                "]},\"scopeSpans\":[{\"scope\":{\"name\":\"medley\",\"version\":\"" MEDLEY_VERSION
                "\"},\"spans\":[");
    traces_write_spans(record, out);
    buffer_text(out, "]}]}");
    buffer_text(out, TRACES_TAIL);
}

/* ---- sending --------------------------------------------------------------------------------- */

enum error_code traces_open(const char *url, const char *service_name, struct traces **out,
                            struct error *err)
{
    struct traces *traces = mem_new(sizeof *traces);
    const struct post_options options = {
        .url = url, .queue_max = TRACES_QUEUE, .attempts = 4, .join = traces_join};
    if (traces && service_name)
        traces->service_name = mem_copy_text(service_name, strlen(service_name));
    if (!traces || (service_name && !traces->service_name)) {
        mem_free(traces);
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for traces");
    }
    if (post_open(&options, &traces->post, err)) {
        mem_free(traces->service_name);
        mem_free(traces);
        return error_wrap(err, "--traces");
    }
    *out = traces;
    return ERROR_NONE;
}

void traces_record(struct traces *traces, const struct request_record *record)
{
    const struct trace_service service = {.name = traces->service_name};
    struct buffer body = {0};
    if (!record->trace.span || record->trace.is_unwanted)
        return;
    traces_write(record, &service, &body);
    post_send(traces->post, &body);
}

struct post_stats traces_stats(struct traces *traces)
{
    return traces ? post_stats(traces->post) : (struct post_stats){0};
}

void traces_close(struct traces *traces)
{
    if (!traces)
        return;
    post_close(traces->post, TRACES_LINGER_MS);
    mem_free(traces->service_name);
    mem_free(traces);
}
