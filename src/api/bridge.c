#include "api/bridge.h"

#include "api/access.h"
#include "api/exchange_impl.h"
#include "api/json_out.h"
#include "base/mem.h"

#include <yyjson.h>

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- errors ---------------------------------------------------------------------------------- */

/* The codes of base/error.h as docs/control.md has them, with '_' for ' '. */
static unsigned bridge_status_of(const char *code)
{
    static const struct {
        const char *code;
        unsigned status;
    } statuses[] = {
        {"invalid", 400}, {"unsupported", 400}, {"not_found", 404},
        {"busy", 409},    {"cancelled", 409},   {"no_memory", 503},
    };
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++) {
        if (strcmp(statuses[i].code, code) == 0)
            return statuses[i].status;
    }
    return 500;
}

unsigned bridge_status(const char *line, size_t size, struct buffer *out)
{
    yyjson_doc *doc = yyjson_read(line, size, YYJSON_READ_ALLOW_INVALID_UNICODE);
    yyjson_val *error = yyjson_obj_get(yyjson_doc_get_root(doc), "error");
    const char *code = yyjson_get_str(yyjson_obj_get(error, "code"));
    const char *text = yyjson_get_str(yyjson_obj_get(error, "text"));
    const unsigned status = code && text ? bridge_status_of(code) : 200;
    if (status != 200) {
        buffer_text(out, "{\"error\":{\"code\":");
        json_out_text(out, code);
        buffer_text(out, ",\"text\":");
        json_out_text(out, text);
        buffer_text(out, ",\"message\":");
        json_out_text(out, text);
        buffer_printf(out, ",\"type\":\"%s\",\"param\":null}}\n",
                      status < 500 ? "invalid_request_error" : "server_error");
    }
    yyjson_doc_free(doc);
    return status;
}

/* ---- a request under way --------------------------------------------------------------------- */

struct bridge_call {
    struct exchange *exchange;
    const struct api_bridge *bridge;
    void *asked;
    struct buffer lines; /* that are not sent yet */
    unsigned status;     /* of the first line; 0: none has come */
    bool is_asking;      /* within bridge->ask(): an answer that is complete then is sent whole */
    bool is_streaming, is_over;
};

static void bridge_call_free(struct bridge_call *call)
{
    buffer_deinit(&call->lines);
    mem_free(call);
}

static void bridge_on_gone(void *owner)
{
    struct bridge_call *call = owner;
    if (call->asked && !call->is_over)
        call->bridge->cancel(call->bridge->self, call->asked);
    bridge_call_free(call);
}

/* False: the client has gone, and the call with it. */
static bool bridge_send(struct bridge_call *call)
{
    if (!call->lines.size && !call->lines.failed)
        return true;
    if (exchange_is_head(call->exchange))
        return true; /* whole, at the end: its length is told */
    if (!call->is_streaming)
        exchange_lines_begin(call->exchange, "application/x-ndjson");
    call->is_streaming = true;
    if (!exchange_lines_add(call->exchange, &call->lines))
        return false;
    buffer_clear(&call->lines);
    return true;
}

static void bridge_on_line(void *self, const char *line, size_t size)
{
    struct bridge_call *call = self;
    struct buffer error = {0};
    const unsigned status = bridge_status(line, size, &error);
    if (!call->status)
        call->status = status;
    if (status == 200)
        buffer_append(&call->lines, line, size);
    else
        buffer_append(&call->lines, error.data, error.size);
    call->lines.failed |= error.failed;
    buffer_deinit(&error);
    if (!call->is_asking && call->status == 200)
        bridge_send(call);
}

/* Whole where nothing was sent, so that the status tells of an error. */
static void bridge_finish(struct bridge_call *call)
{
    struct exchange *exchange = call->exchange;
    struct buffer lines = call->lines;
    if (call->is_streaming && !bridge_send(call))
        return;
    if (call->is_streaming) {
        exchange_lines_end(exchange);
    } else if (!call->status) {
        struct api_error err;
        api_error_set(&err, 503, "server_error", "stopping", "the node gave no answer");
        exchange_fail(exchange, &err);
    } else {
        call->lines = (struct buffer){0};
        exchange_answer(exchange, call->status,
                        call->status == 200 ? "application/x-ndjson" : "application/json", &lines);
    }
    bridge_call_free(call);
}

static void bridge_on_ended(void *self)
{
    struct bridge_call *call = self;
    call->is_over = true;
    if (!call->is_asking)
        bridge_finish(call);
}

/* ---- asking ---------------------------------------------------------------------------------- */

void bridge_name_actor(const struct exchange *exchange, char *out, size_t size)
{
    const struct access_grant *grant = exchange_grant(exchange);
    if (grant->id)
        snprintf(out, size, "token %s", grant->name);
    else
        snprintf(out, size, "the page at %s", exchange_client(exchange)->share);
}

/* What is asked: the body, or for GET the query's `last`, the only field that one takes. */
static struct text bridge_fields(const struct exchange *exchange, char *out, size_t size)
{
    char last[24];
    if (!exchange_only_reads(exchange))
        return exchange_body(exchange);
    if (exchange_argument(exchange, "last", last, sizeof last) && strlen(last) < 10 &&
        !last[strspn(last, "0123456789")])
        snprintf(out, size, "{\"last\":%lu}", strtoul(last, NULL, 10));
    else
        snprintf(out, size, "{}");
    return (struct text){out, strlen(out)};
}

static void bridge_begin(struct exchange *exchange, struct bridge_call *call, const char *name)
{
    char fields[48];
    const struct text body = bridge_fields(exchange, fields, sizeof fields);
    const struct api_bridge_hearer hearer = {bridge_on_line, bridge_on_ended, call};
    char actor[128];
    struct error why;
    bridge_name_actor(exchange, actor, sizeof actor);
    assert(body.size <= BRIDGE_BODY_BYTES);
    call->exchange = exchange;
    call->bridge = &exchange_server(exchange)->bridge;
    call->is_asking = true;
    const enum error_code code = call->bridge->ask(call->bridge->self, name, body.data, body.size,
                                                   actor, &hearer, &call->asked, &why);
    call->is_asking = false;
    if (code) {
        struct api_error err;
        api_error_from(&err, &why);
        bridge_call_free(call);
        exchange_fail(exchange, &err);
    } else if (call->is_over) {
        bridge_finish(call);
    } else {
        exchange_set_owner(exchange, bridge_on_gone, call);
        if (call->status == 200)
            bridge_send(call);
    }
}

void bridge_end_all(struct api_server *server)
{
    for (struct exchange *exchange = server->exchanges; exchange; exchange = exchange->next) {
        if (exchange->gone == bridge_on_gone)
            exchange_abort(exchange);
    }
}

void bridge_handle(struct exchange *exchange)
{
    static const size_t prefix = sizeof "/api/" - 1;
    const struct access_grant *grant = exchange_grant(exchange);
    struct api_error err;
    if (!exchange_server(exchange)->bridge.ask) {
        api_error_set(&err, 404, "invalid_request_error", "no_cluster",
                      "this server has no cluster; `medley up` starts a node that has");
        exchange_fail(exchange, &err);
        return;
    }
    if (grant->is_bound && !(exchange_scopes(exchange) & ACCESS_READ)) {
        api_error_set(&err, 403, "permission_error", "token_bound",
                      "token '%s' is bound to some models or machines, so it cannot change the "
                      "cluster; use one that is not bound",
                      grant->name);
        exchange_fail(exchange, &err);
        return;
    }
    struct bridge_call *call = mem_new(sizeof *call);
    if (!call) {
        api_error_set(&err, 503, "server_error", "no_memory", "not enough memory for the request");
        exchange_fail(exchange, &err);
        return;
    }
    bridge_begin(exchange, call, exchange_path(exchange).data + prefix);
}
