/* A joiner's way to a member: names, addresses, TCP, TLS. */
#include "base/limits.h"
#include "join/joining_state.h"
#include "mesh/stream_tcp.h"

#include <netdb.h>
#include <stdio.h>
#include <string.h>

static void try_next(struct joining *joining);

static void joining_connect_give_up(struct joining *joining, const struct error *why)
{
    struct error err;
    error_set(&err, why->code, "%s port %u: %s", joining->host, joining->options.port, why->text);
    joining_over(joining, &err);
}

/* ---- one address --------------------------------------------------------------------------- */

static void drop_stream(struct joining *joining)
{
    joining->n_open++;
    stream_close(joining->stream, joining_stream_closed, joining);
    joining->stream = NULL;
}

static void address_failed(struct joining *joining, const struct error *why)
{
    const struct error copy = *why;
    if (joining->stream)
        drop_stream(joining);
    if (joining->next_address < joining->n_addresses)
        try_next(joining);
    else
        joining_connect_give_up(joining, &copy);
}

static void joining_connect_on_ready(struct stream *stream, void *owner)
{
    struct joining *joining = owner;
    struct error err = {0};
    const enum stream_result result = stream_handshake(stream, &err);
    if (result == STREAM_AGAIN)
        return;
    if (result != STREAM_DONE ||
        credentials_channel_binding(stream_ssl(stream), joining->binding, &err)) {
        address_failed(joining, &err);
        return;
    }
    stream->on_ready = NULL;
    joining->stream = NULL;
    joining_connected(joining, stream);
}

static void try_next(struct joining *joining)
{
    struct error err = {0};
    const struct sockaddr *address =
        (struct sockaddr *)&joining->addresses[joining->next_address++];
    joining->phase = JOINING_SHAKING;
    joining_timer(joining, LIMIT_JOIN_CONNECT_MS);
    if (stream_tcp_connect(joining->options.loop, &joining->security, address, &joining->stream,
                           &err)) {
        address_failed(joining, &err);
        return;
    }
    joining->stream->on_ready = joining_connect_on_ready;
    joining->stream->owner = joining;
}

/* ---- names --------------------------------------------------------------------------------- */

static void joining_connect_take_addresses(struct joining *joining, const struct addrinfo *found)
{
    for (; found && joining->n_addresses < JOINING_ADDRESSES_MAX; found = found->ai_next) {
        if (found->ai_family == AF_INET || found->ai_family == AF_INET6)
            memcpy(&joining->addresses[joining->n_addresses++], found->ai_addr, found->ai_addrlen);
    }
}

static void joining_connect_unknown(struct joining *joining, const char *why)
{
    struct error err;
    error_set(&err, ERROR_NOT_FOUND, "unknown host %s: %s", joining->host, why);
    joining_over(joining, &err);
}

static void joining_connect_on_resolved(uv_getaddrinfo_t *resolve, int status,
                                        struct addrinfo *found)
{
    struct joining *joining = resolve->data;
    if (joining->phase == JOINING_LOOKING && !joining->closing) {
        joining_connect_take_addresses(joining, status ? NULL : found);
        if (joining->n_addresses > 0)
            try_next(joining);
        else
            joining_connect_unknown(joining, status ? uv_strerror(status) : "no address");
    }
    uv_freeaddrinfo(found);
    joining_release(joining);
}

static void look_up(struct joining *joining)
{
    char port[8];
    snprintf(port, sizeof port, "%u", joining->options.port);
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    joining->resolve.data = joining;
    const int problem = uv_getaddrinfo(joining->options.loop, &joining->resolve,
                                       joining_connect_on_resolved, joining->host, port, &hints);
    if (problem) {
        joining_connect_unknown(joining, uv_strerror(problem));
        return;
    }
    joining->n_open++;
    joining_timer(joining, LIMIT_JOIN_CONNECT_MS);
}

/* Called at first, and when a time limit has come. */
void joining_connect(struct joining *joining)
{
    static const struct error late = {ERROR_IO, "no connection in time"};
    const uint16_t port = joining->options.port;
    if (joining->phase == JOINING_SHAKING) {
        address_failed(joining, &late);
    } else if (joining->resolve.data) {
        joining_connect_unknown(joining, "nobody has answered in time");
    } else if (uv_ip4_addr(joining->host, port, (struct sockaddr_in *)&joining->addresses[0]) ==
                   0 ||
               uv_ip6_addr(joining->host, port, (struct sockaddr_in6 *)&joining->addresses[0]) ==
                   0) {
        joining->n_addresses = 1;
        try_next(joining);
    } else {
        look_up(joining);
    }
}

void joining_disconnect(struct joining *joining)
{
    if (joining->stream)
        drop_stream(joining);
    if (joining->resolve.data && joining->phase == JOINING_LOOKING)
        uv_cancel((uv_req_t *)&joining->resolve);
}
