#include "mesh/mesh.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/random.h"
#include "base/version.h"
#include "mesh/greeting.h"
#include "mesh/link_state.h"
#include "mesh/stream_quic.h"

#include <assert.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <string.h>

enum { BACKLOG = 128 };

/* ---- the turn ------------------------------------------------------------------------------ */

static void on_wake_closed(uv_handle_t *wake)
{
    struct mesh *mesh = wake->data;
    void (*closed)(void *self) = mesh->closed;
    void *self = mesh->closed_self;
    mem_free(mesh);
    if (closed)
        closed(self);
}

static void finish_if_empty(struct mesh *mesh)
{
    if (!mesh->closing || mesh->wake_closing || mesh->links || mesh->greetings || mesh->dials ||
        mesh->listeners)
        return;
    if (mesh->quic) {
        quic_endpoint_close(mesh->quic); /* wakes the mesh when it is gone */
        return;
    }
    mesh->wake_closing = true;
    uv_close((uv_handle_t *)&mesh->wake, on_wake_closed);
}

/* Nothing leaves the list of links within a turn: links are freed by the loop when their handles
 * are closed. */
static void mesh_on_wake(uv_async_t *wake)
{
    struct mesh *mesh = wake->data;
    for (struct link *link = mesh->links; link; link = link->next)
        link_turn(link);
    finish_if_empty(mesh);
}

void mesh_wake(struct mesh *mesh)
{
    if (!mesh->wake_closing)
        uv_async_send(&mesh->wake);
}

uint64_t mesh_random(struct mesh *mesh)
{
    return random_at(mesh->boot, ++mesh->n_random);
}

/* ---- opening ------------------------------------------------------------------------------- */

static void mesh_set_default(uint32_t *option, uint32_t value)
{
    if (*option == 0)
        *option = value;
}

static enum error_code mesh_take_options(struct mesh *mesh, const struct mesh_options *given,
                                         struct error *err)
{
    struct mesh_options *options = &mesh->options;
    *options = *given;
    mesh_set_default(&options->n_data_channels, 1);
    mesh_set_default(&options->ping_ms, 2000);
    mesh_set_default(&options->watch_ms, 200);
    mesh_set_default(&options->silence_ms, 5000);
    mesh_set_default(&options->dead_ms, 10000);
    mesh_set_default(&options->greeting_ms, LIMIT_GREETING_MS);
    mesh_set_default(&options->dial_wait_ms, 250);
    if (options->queue_bytes == 0)
        options->queue_bytes = LIMIT_LINK_QUEUE_BYTES;
    if (options->version.major == 0)
        options->version = (struct link_version){LINK_MAJOR, LINK_MINOR};
    if (options->n_data_channels >= LIMIT_LINK_CHANNELS)
        return error_set(err, ERROR_INVALID, "a link has at most %d data channels",
                         LIMIT_LINK_CHANNELS - 1);
    if (options->n_greeting > LIMIT_GREETING_BYTES)
        return error_set(err, ERROR_INVALID, "a greeting has at most %d bytes",
                         LIMIT_GREETING_BYTES);
    if (options->ping_ms > options->silence_ms || options->silence_ms > options->dead_ms)
        return error_set(err, ERROR_INVALID,
                         "ping_ms must be at most silence_ms, and that at most dead_ms");
    if (options->n_greeting)
        memcpy(mesh->greeting, options->greeting, options->n_greeting);
    options->greeting = mesh->greeting;
    return ERROR_NONE;
}

enum error_code mesh_open(const struct mesh_options *options, struct mesh **out, struct error *err)
{
    *out = NULL;
    struct mesh *mesh = mem_new(sizeof *mesh);
    if (!mesh)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for the mesh");
    enum error_code code = mesh_take_options(mesh, options, err);
    if (!code && RAND_bytes((unsigned char *)&mesh->boot, sizeof mesh->boot) != 1)
        code = error_set(err, ERROR_INTERNAL, "the system gives no random numbers");
    const int problem = code ? 0 : uv_async_init(options->loop, &mesh->wake, mesh_on_wake);
    if (problem)
        code = error_set(err, ERROR_IO, "cannot wake the event loop: %s", uv_strerror(problem));
    if (code) {
        mem_free(mesh);
        return code;
    }
    mesh->wake.data = mesh;
    if (options->transport == MESH_QUIC)
        code = quic_endpoint_open(mesh, &mesh->quic, err);
    if (code) {
        mesh_close(mesh, NULL, NULL);
        return code;
    }
    *out = mesh;
    return ERROR_NONE;
}

struct hello mesh_hello(const struct mesh *mesh, uint32_t channel, uint32_t n_channels,
                        uint64_t session)
{
    struct hello hello = {
        .version = mesh->options.version,
        .channel = channel,
        .n_channels = n_channels,
        .session = session,
        .boot = mesh->boot,
        .software = "medley " MEDLEY_VERSION,
        .n_greeting = mesh->options.n_greeting,
    };
    memcpy(hello.greeting, mesh->greeting, sizeof hello.greeting);
    return hello;
}

/* ---- listening ----------------------------------------------------------------------------- */

static void release_listener(struct listener *listener)
{
    struct mesh *mesh = listener->mesh;
    if (--listener->n_open > 0)
        return;
    struct listener **at = &mesh->listeners;
    while (*at != listener)
        at = &(*at)->next;
    *at = listener->next;
    mem_free(listener);
    mesh_wake(mesh);
}

static void on_listener_closed(uv_handle_t *handle)
{
    release_listener(handle->data);
}

static void mesh_turn_away(struct listener *listener);

static void on_spare_closed(uv_handle_t *handle)
{
    struct listener *listener = handle->data;
    listener->spare_used = false;
    if (listener->spare_again && !uv_is_closing((uv_handle_t *)&listener->tcp))
        mesh_turn_away(listener);
    release_listener(listener);
}

/* Accepts a connection only to close it. */
static void mesh_turn_away(struct listener *listener)
{
    listener->spare_again = listener->spare_used;
    if (listener->spare_used || uv_tcp_init(listener->tcp.loop, &listener->spare))
        return;
    listener->spare_used = true;
    listener->spare.data = listener;
    listener->n_open++;
    uv_accept((uv_stream_t *)&listener->tcp, (uv_stream_t *)&listener->spare);
    uv_close((uv_handle_t *)&listener->spare, on_spare_closed);
}

static void mesh_on_connection(uv_stream_t *server, int status)
{
    struct listener *listener = server->data;
    struct mesh *mesh = listener->mesh;
    struct stream *stream;
    struct error err;
    if (status) {
        log_line(LOG_WARN, "mesh", "could not accept a connection: %s", uv_strerror(status));
    } else if (stream_tcp_accept(server, &mesh->options.security, &stream, &err)) {
        log_line(LOG_WARN, "mesh", "could not accept a connection: %s", err.text);
        mesh_turn_away(listener);
    } else {
        incoming_stream(mesh, stream);
    }
}

static enum error_code listen_tcp(struct mesh *mesh, const struct sockaddr *address, uint16_t *port,
                                  struct error *err)
{
    struct listener *listener = mem_new(sizeof *listener);
    if (!listener)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a listener");
    listener->mesh = mesh;
    int problem = uv_tcp_init(mesh->options.loop, &listener->tcp);
    if (problem) {
        mem_free(listener);
        return error_set(err, ERROR_IO, "cannot make a socket: %s", uv_strerror(problem));
    }
    listener->tcp.data = listener;
    listener->n_open = 1;
    listener->next = mesh->listeners;
    mesh->listeners = listener;
    struct sockaddr_storage bound = {0};
    int size = sizeof bound;
    problem =
        uv_tcp_bind(&listener->tcp, address, address->sa_family == AF_INET6 ? UV_TCP_IPV6ONLY : 0);
    if (!problem)
        problem = uv_listen((uv_stream_t *)&listener->tcp, BACKLOG, mesh_on_connection);
    if (!problem)
        problem = uv_tcp_getsockname(&listener->tcp, (struct sockaddr *)&bound, &size);
    if (problem) {
        uv_close((uv_handle_t *)&listener->tcp, on_listener_closed);
        return error_set(err, ERROR_IO, "cannot listen: %s", uv_strerror(problem));
    }
    *port = ntohs(((struct sockaddr_in *)&bound)->sin_port); /* at the same place in IPv6 */
    return ERROR_NONE;
}

static bool parse_address(const char *address, uint16_t port, struct sockaddr_storage *numeric)
{
    *numeric = (struct sockaddr_storage){0};
    return uv_ip4_addr(address, port, (struct sockaddr_in *)numeric) == 0 ||
           uv_ip6_addr(address, port, (struct sockaddr_in6 *)numeric) == 0;
}

enum error_code mesh_listen(struct mesh *mesh, const char *address, uint16_t port, uint16_t *actual,
                            struct error *err)
{
    struct sockaddr_storage numeric;
    if (!parse_address(address, port, &numeric))
        return error_set(err, ERROR_INVALID, "%s is not a numeric address", address);
    uint16_t bound = 0;
    enum error_code code =
        mesh->quic ? quic_endpoint_listen(mesh->quic, (struct sockaddr *)&numeric, &bound, err)
                   : listen_tcp(mesh, (struct sockaddr *)&numeric, &bound, err);
    if (!code && mesh->quic && mesh->options.joiner && parse_address(address, bound, &numeric))
        code =
            listen_tcp(mesh, (struct sockaddr *)&numeric, &bound, err); /* strangers come by TCP */
    if (code) {
        error_wrap(err, "%s port %u", address, port);
        return code;
    }
    if (actual)
        *actual = bound;
    return ERROR_NONE;
}

enum error_code mesh_connect(struct mesh *mesh, const struct sockaddr *address, struct stream **out,
                             struct error *err)
{
    if (mesh->quic)
        return quic_endpoint_connect(mesh->quic, address, out, err);
    return stream_tcp_connect(mesh->options.loop, &mesh->options.security, address, out, err);
}

/* ---- closing and finding --------------------------------------------------------------------- */

void mesh_close(struct mesh *mesh, void (*closed)(void *self), void *self)
{
    assert(!mesh->closing && "a mesh is closed once");
    mesh->closing = true;
    mesh->closed = closed;
    mesh->closed_self = self;
    dials_close(mesh);
    for (struct listener *listener = mesh->listeners; listener; listener = listener->next) {
        if (!uv_is_closing((uv_handle_t *)&listener->tcp))
            uv_close((uv_handle_t *)&listener->tcp, on_listener_closed);
    }
    for (struct greeting *greeting = mesh->greetings; greeting; greeting = greeting->next)
        greeting_abandon(greeting);
    for (struct link *link = mesh->links; link; link = link->next)
        link_close(link);
    mesh_wake(mesh);
}

struct link *mesh_find_any(struct mesh *mesh, const uint8_t node_id[NODE_ID_BYTES])
{
    for (struct link *link = mesh->links; link; link = link->next) {
        if (link->phase != LINK_DOWN && memcmp(link->peer, node_id, NODE_ID_BYTES) == 0)
            return link;
    }
    return NULL;
}

struct link *mesh_find(struct mesh *mesh, const uint8_t node_id[NODE_ID_BYTES])
{
    struct link *link = mesh_find_any(mesh, node_id);
    return link && link->phase == LINK_UP ? link : NULL;
}

struct link *mesh_next(struct mesh *mesh, struct link *after)
{
    struct link *link = after ? after->next : mesh->links;
    while (link && link->phase != LINK_UP)
        link = link->next;
    return link;
}
