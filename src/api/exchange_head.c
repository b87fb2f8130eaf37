/* The head of an answer, and what a handler reads of the request's. */
#include "api/exchange_impl.h"

#include <libwebsockets.h>

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* In the order of enum exchange_header. */
static const enum lws_token_indexes header_tokens[] = {
    WSI_TOKEN_HTTP_ACCEPT_ENCODING,
    WSI_TOKEN_HTTP_IF_NONE_MATCH,
    WSI_TOKEN_HTTP_AUTHORIZATION,
};

const char *exchange_header(const struct exchange *exchange, enum exchange_header which, char *out,
                            size_t size)
{
    if (!lws_hdr_total_length(exchange->wsi, header_tokens[which]))
        return NULL;
    if (lws_hdr_copy(exchange->wsi, out, (int)size, header_tokens[which]) < 0)
        out[0] = '\0';
    return out;
}

struct head_writer {
    struct lws *wsi;
    unsigned char bytes[4096];
    unsigned char *at;
    bool failed;
};

static void add_header(struct head_writer *writer, const char *name, const char *value)
{
    writer->failed |=
        lws_add_http_header_by_name(writer->wsi, (const unsigned char *)name,
                                    (const unsigned char *)value, (int)strlen(value), &writer->at,
                                    writer->bytes + sizeof writer->bytes) != 0;
}

static void add_cors(struct exchange *exchange, struct head_writer *writer)
{
    if (!exchange->server->cors_origin)
        return;
    add_header(writer, "access-control-allow-origin:", exchange->server->cors_origin);
    add_header(writer, "access-control-expose-headers:", "x-request-id");
    add_header(writer, "vary:", "origin");
    if (exchange->method != METHOD_OPTIONS)
        return;
    add_header(writer, "access-control-allow-methods:", "GET, POST, OPTIONS");
    add_header(writer, "access-control-allow-headers:", "*, authorization, content-type");
    add_header(writer, "access-control-max-age:", "86400");
}

static void add_retry_after(struct exchange *exchange, struct head_writer *writer)
{
    char seconds[16];
    snprintf(seconds, sizeof seconds, "%u", exchange->retry_after_s ? exchange->retry_after_s : 1);
    add_header(writer, "retry-after:", seconds);
}

void exchange_set_header(struct exchange *exchange, const char *name, const char *value)
{
    assert(!exchange->head.size && name[0] && name[strlen(name) - 1] == ':');
    buffer_append(&exchange->more, name, strlen(name) + 1);
    buffer_append(&exchange->more, value, strlen(value) + 1);
}

static void exchange_add_more(const struct exchange *exchange, struct head_writer *writer)
{
    const struct buffer *more = &exchange->more;
    writer->failed |= more->failed;
    for (size_t at = 0; at < more->size && !more->failed;) {
        const char *name = more->data + at, *value = name + strlen(name) + 1;
        add_header(writer, name, value);
        at = (size_t)(value + strlen(value) + 1 - more->data);
    }
}

void exchange_write_head(struct exchange *exchange, const char *content_type, uint64_t length)
{
    struct head_writer writer = {.wsi = exchange->wsi};
    unsigned char *end = writer.bytes + sizeof writer.bytes;
    writer.at = writer.bytes;
    writer.failed =
        lws_add_http_header_status(exchange->wsi, exchange->status | LWSAHH_FLAG_NO_SERVER_NAME,
                                   &writer.at, end) != 0;
    if (content_type)
        add_header(&writer, "content-type:", content_type);
    if (length != UINT64_MAX && exchange->status != 204 && exchange->status != 304)
        writer.failed |=
            lws_add_http_header_content_length(exchange->wsi, length, &writer.at, end) != 0;
    else if (length == UINT64_MAX && !exchange->http_1_0)
        add_header(&writer, "transfer-encoding:", "chunked");
    if (length == UINT64_MAX)
        add_header(&writer, "cache-control:", "no-cache");
    else if (route_is_private(exchange->route))
        add_header(&writer, "cache-control:", "no-store");
    if (route_is_private(exchange->route))
        add_header(&writer, "x-content-type-options:", "nosniff");
    if (exchange->status == 405 || exchange->method == METHOD_OPTIONS)
        add_header(&writer, "allow:", exchange->allow);
    if (exchange->status == 429 || exchange->status == 503)
        add_retry_after(exchange, &writer);
    if (exchange->asks_token) /* RFC 6750, section 3 */
        add_header(&writer, "www-authenticate:", "Bearer realm=\"medley\"");
    if (exchange->close_after)
        add_header(&writer, "connection:", "close");
    if (exchange->request_id[0])
        add_header(&writer, "x-request-id:", exchange->request_id);
    add_cors(exchange, &writer);
    exchange_add_more(exchange, &writer);
    writer.failed |= lws_finalize_http_header(exchange->wsi, &writer.at, end) != 0;
    buffer_append(&exchange->head, writer.bytes, (size_t)(writer.at - writer.bytes));
    if (writer.failed)
        exchange->head.failed = true;
}

bool exchange_argument(const struct exchange *exchange, const char *name, char *out, size_t size)
{
    char key[32], found[256]; /* libwebsockets needs room for the name as well */
    snprintf(key, sizeof key, "%s=", name);
    out[0] = '\0';
    /* What does not fit is refused: cut off it would be another one. */
    if (lws_get_urlarg_by_name_safe(exchange->wsi, key, found, sizeof found) <= 0 ||
        strlen(found) >= size)
        return false;
    memcpy(out, found, strlen(found) + 1);
    return out[0];
}
