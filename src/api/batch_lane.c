/* One line under way: a request to this server over a pair of sockets. */
#include "api/batch.h"

#include "api/access.h"
#include "api/internal.h"
#include "api/listener.h"
#include "base/mem.h"

#include <uv.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BATCH_LANE_READ_BYTES = 16 * 1024, BATCH_LANE_HEAD_BYTES = 16 * 1024 };

struct batch_way {
    uv_poll_t poll; /* first: libuv gives it back */
    int fd;
    struct api_server *server;
    struct batch_lane *lane; /* NULL: ended */
    struct buffer request, answer;
    size_t sent;
};

static void batch_way_on_event(uv_poll_t *poll, int status, int events);

static void batch_way_watch(struct batch_way *way)
{
    const int writes = way->sent < way->request.size ? UV_WRITABLE : 0;
    uv_poll_start(&way->poll, UV_READABLE | writes, batch_way_on_event);
}

static void batch_way_send(struct batch_way *way)
{
    const size_t left = way->request.size - way->sent;
    const ssize_t n =
        left ? send(way->fd, way->request.data + way->sent, left, MSG_DONTWAIT | MSG_NOSIGNAL) : 0;
    if (n >= 0)
        way->sent += (size_t)n;
    else if (errno != EAGAIN && errno != EINTR)
        way->sent = way->request.size; /* what was answered so far is read all the same */
}

/* The value of a header in an answer's head; 0: there is none. */
static uint64_t batch_way_length(const char *head, const char *end)
{
    static const char name[] = "content-length:";
    for (const char *at = head; at < end;) {
        const char *line_end = memmem(at, (size_t)(end - at), "\r\n", 2);
        if (strncasecmp(at, name, sizeof name - 1) == 0)
            return strtoull(at + sizeof name - 1, NULL, 10);
        at = line_end ? line_end + 2 : end;
    }
    return 0;
}

static unsigned batch_way_read_answer(const struct buffer *answer, struct text *body)
{
    const char *data = answer->data ? answer->data : "";
    const char *end = memmem(data, answer->size, "\r\n\r\n", 4);
    *body = (struct text){0};
    if (answer->failed)
        return BATCH_LANE_TOO_LARGE;
    if (!end || strncmp(data, "HTTP/1.1 ", 9) != 0)
        return BATCH_LANE_CUT_OFF;
    *body = (struct text){end + 4, answer->size - (size_t)(end + 4 - data)};
    const uint64_t length = batch_way_length(data, end + 2);
    return length && length == body->size ? (unsigned)strtoul(data + 9, NULL, 10)
                                          : BATCH_LANE_CUT_OFF;
}

static void batch_way_on_closed(uv_handle_t *handle)
{
    struct batch_way *way = (struct batch_way *)handle;
    buffer_deinit(&way->request);
    buffer_deinit(&way->answer);
    mem_free(way);
}

void batch_lane_end(struct batch_lane *lane)
{
    struct batch_way *way = lane->way;
    lane->way = NULL;
    if (!way)
        return;
    way->lane = NULL;
    way->server->n_ways--;
    uv_close((uv_handle_t *)&way->poll, batch_way_on_closed);
    close(way->fd);
}

static void batch_way_over(struct batch_way *way)
{
    struct batch_lane *lane = way->lane;
    struct text body;
    const unsigned status = batch_way_read_answer(&way->answer, &body);
    batch_lane_end(lane); /* the way itself lives until the loop's next turn */
    lane->over(lane, status, body);
}

static void batch_way_read(struct batch_way *way)
{
    char bytes[BATCH_LANE_READ_BYTES];
    const ssize_t n = recv(way->fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0 && way->answer.size + (size_t)n <= BATCH_ANSWER_BYTES + BATCH_LANE_HEAD_BYTES)
        buffer_append(&way->answer, bytes, (size_t)n);
    else if (n > 0)
        way->answer.failed = true;
    if (n <= 0 || way->answer.failed)
        batch_way_over(way);
}

static void batch_way_on_event(uv_poll_t *poll, int status, int events)
{
    struct batch_way *way = (struct batch_way *)poll;
    if (events & UV_WRITABLE) {
        batch_way_send(way);
        batch_way_watch(way);
    }
    if (status || (events & UV_READABLE))
        batch_way_read(way);
}

/* False: way->fd is -1, or to be closed. Nobody's connection is closed for a batch. */
static bool batch_way_connect(struct batch_way *way)
{
    int pair[2];
    struct error ignored;
    struct connection outer = {.is_batch = true, .acts_for.scopes = ACCESS_SCOPES_ALL};
    snprintf(outer.client.share, sizeof outer.client.share, "batches");
    snprintf(outer.arrived, sizeof outer.arrived, "127.0.0.1");
    if (way->server->connections.n >= way->server->connections.n_max ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair))
        return false;
    way->fd = pair[0];
    outer.acts_for_token = file_owner_hash(way->lane->batch->owner, outer.acts_for.token_hash);
    return listener_take_inner(way->server, pair[1], &outer, &ignored) == ERROR_NONE;
}

bool batch_lane_begin(struct batch_lane *lane, struct api_server *server, struct buffer *request)
{
    struct batch_way *way = mem_new(sizeof *way);
    if (!way)
        return false;
    *way = (struct batch_way){.fd = -1, .server = server, .lane = lane};
    if (!batch_way_connect(way) || uv_poll_init(server->uv_loop, &way->poll, way->fd)) {
        if (way->fd >= 0)
            close(way->fd);
        mem_free(way);
        return false;
    }
    way->request = *request;
    *request = (struct buffer){0};
    lane->way = way;
    server->n_ways++;
    batch_way_watch(way);
    return true;
}
