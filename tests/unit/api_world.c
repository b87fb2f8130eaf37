#include "api_world.h"

#include "node/node.h"
#include "pipeline/driver.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <yyjson.h>

#include <cmocka.h>

static struct {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t opened;
    struct driver *driver;   /* NULL: the models are the test's */
    struct fake_model model; /* of that driver */
    struct api_models models;
    uint32_t waiting_ms;
    struct api_limits limits;
    struct api_bridge bridge;
    struct live_feed live;
    struct node_service beside; /* name NULL: none */
    struct api_server *server;
    uint16_t port;
    enum error_code result;
    bool running;
} world = {.lock = PTHREAD_MUTEX_INITIALIZER, .opened = PTHREAD_COND_INITIALIZER};

static enum error_code service_open(void *arg, void *uv_loop, struct error *err)
{
    (void)arg;
    struct api_options options = {.address = "127.0.0.1:0",
                                  .serves_page = true,
                                  .models = world.models,
                                  .waiting_ms = world.waiting_ms,
                                  .bridge = world.bridge,
                                  .live = world.live,
                                  .limits = world.limits};
    enum error_code code = api_server_open(uv_loop, &options, &world.server, err);
    pthread_mutex_lock(&world.lock);
    world.port = code ? 1 : api_server_port(world.server);
    pthread_cond_signal(&world.opened);
    pthread_mutex_unlock(&world.lock);
    return code;
}

static void service_stop(void *arg, void (*stopped)(void *node), void *node)
{
    (void)arg;
    api_server_stop(world.server, stopped, node);
}

static void service_close(void *arg)
{
    (void)arg;
    api_server_close(world.server);
}

static void service_free(void *arg)
{
    (void)arg;
    api_server_free(world.server);
}

static void *run(void *arg)
{
    struct node_service services[2] = {world.beside};
    bool two = world.beside.name;
    services[two] =
        (struct node_service){"api", service_open, service_stop, service_close, service_free, NULL};
    struct error err;
    (void)arg;
    world.result = node_run(services, two ? 2 : 1, &err);
    if (world.result)
        fprintf(stderr, "%s\n", err.text);
    return NULL;
}

void api_world_start(struct fake_driver_options options)
{
    world.driver = fake_driver_open(options);
    fake_model_init(&world.model, "fake-model", "fake", FAKE_VOCAB, world.driver);
    api_world_start_with(api_models_of_one(&world.model.api), 0, NULL);
}

void api_world_start_with(struct api_models models, uint32_t waiting_ms,
                          const struct node_service *beside)
{
    world.models = models;
    world.waiting_ms = waiting_ms;
    world.beside = beside ? *beside : (struct node_service){0};
    world.port = 0;
    world.running = true;
    pthread_create(&world.thread, NULL, run, NULL);
    pthread_mutex_lock(&world.lock);
    while (!world.port)
        pthread_cond_wait(&world.opened, &world.lock);
    pthread_mutex_unlock(&world.lock);
}

void api_world_bridge(struct api_bridge bridge)
{
    world.bridge = bridge;
}

void api_world_live(struct live_feed live)
{
    world.live = live;
}

void api_world_limit(struct api_limits limits)
{
    world.limits = limits;
}

void api_world_stop(void)
{
    if (!world.running)
        return;
    world.running = false;
    kill(getpid(), SIGTERM);
    pthread_join(world.thread, NULL);
    assert_int_equal(world.result, ERROR_NONE);
    if (!world.driver)
        return;
    api_model_deinit(&world.model.api);
    driver_close(world.driver);
    world.driver = NULL;
}

uint16_t api_world_port(void)
{
    return world.port;
}

int api_connect(void)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons(world.port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    return fd;
}

void api_send(int fd, const void *bytes, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t n = send(fd, (const char *)bytes + done, size - done, MSG_NOSIGNAL);
        if (n <= 0)
            return; /* the server may refuse and close; what it answered is still to be read */
        done += (size_t)n;
    }
}

void api_send_text(int fd, const char *text)
{
    api_send(fd, text, strlen(text));
}

void api_post_with(int fd, const char *path, const char *headers, const char *json)
{
    struct buffer request = {0};
    buffer_printf(&request,
                  "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                  "application/json\r\nContent-Length: %zu\r\n%s\r\n%s",
                  path, strlen(json), headers, json);
    api_send(fd, request.data, request.size);
    buffer_deinit(&request);
}

void api_post(int fd, const char *path, const char *json)
{
    api_post_with(fd, path, "", json);
}

/* More bytes into the buffer; false: closed. */
static bool receive_more(int fd, struct buffer *into)
{
    char bytes[65536];
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    if (poll(&wait, 1, 10000) <= 0)
        fail_msg("nothing came for 10 s after: %s", into->data ? into->data : "");
    ssize_t n = recv(fd, bytes, sizeof bytes, 0);
    if (n <= 0)
        return false;
    buffer_append(into, bytes, (size_t)n);
    return true;
}

static const char *find(const struct buffer *buffer, size_t from, const char *text)
{
    return buffer->size > from
               ? memmem(buffer->data + from, buffer->size - from, text, strlen(text))
               : NULL;
}

static bool receive_chunks(int fd, struct buffer *raw, struct buffer *body)
{
    for (;;) {
        const char *line;
        while (!(line = find(raw, 0, "\r\n"))) {
            if (!receive_more(fd, raw))
                return false;
        }
        size_t size = strtoul(raw->data, NULL, 16), head = (size_t)(line - raw->data) + 2;
        while (raw->size < head + size + 2) {
            if (!receive_more(fd, raw))
                return false;
        }
        buffer_append(body, raw->data + head, size);
        assert_memory_equal(raw->data + head + size, "\r\n", 2);
        buffer_drop_front(raw, head + size + 2);
        if (!size)
            return true;
    }
}

struct api_reply api_receive(int fd)
{
    static struct buffer
        raw; /* one answer at a time; what follows it belongs to the next of a pipeline */
    static int raw_fd = -1;
    struct api_reply reply = {0};
    if (raw_fd != fd)
        buffer_clear(&raw);
    raw_fd = fd;
    const char *end;
    while (!(end = find(&raw, 0, "\r\n\r\n"))) {
        if (!receive_more(fd, &raw)) {
            reply.closed = true;
            return reply;
        }
    }
    buffer_append(&reply.head, raw.data, (size_t)(end - raw.data) + 2);
    buffer_drop_front(&raw, (size_t)(end - raw.data) + 4);
    assert_int_equal(sscanf(reply.head.data, "HTTP/1.%*d %d", &reply.status), 1);
    const char *length = strcasestr(reply.head.data, "\r\ncontent-length:");
    if (strcasestr(reply.head.data, "\r\ntransfer-encoding:")) {
        reply.closed = !receive_chunks(fd, &raw, &reply.body);
    } else if (length) {
        size_t size = strtoul(length + strlen("\r\ncontent-length:"), NULL, 10);
        while (raw.size < size && !reply.closed)
            reply.closed = !receive_more(fd, &raw);
        size = size < raw.size ? size : raw.size;
        buffer_append(&reply.body, raw.data, size);
        buffer_drop_front(&raw, size);
    }
    if (!raw.size)
        raw_fd = -1;
    return reply;
}

void api_reply_clear(struct api_reply *reply)
{
    buffer_deinit(&reply->head);
    buffer_deinit(&reply->body);
    *reply = (struct api_reply){0};
}

bool api_wait_for(int fd, const char *text)
{
    struct buffer seen = {0};
    bool open = true;
    while (open && !find(&seen, 0, text))
        open = receive_more(fd, &seen);
    buffer_deinit(&seen);
    return open;
}

struct api_reply api_once(const char *path, const char *json)
{
    int fd = api_connect();
    if (json) {
        api_post(fd, path, json);
    } else {
        char request[512];
        snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path);
        api_send_text(fd, request);
    }
    struct api_reply reply = api_receive(fd);
    close(fd);
    return reply;
}

void api_wait_busy(unsigned busy)
{
    unsigned now = UINT32_MAX;
    for (int i = 0; i < 500; i++) {
        struct api_reply reply = api_once("/health", NULL);
        const char *at = strstr(reply.body.data, "\"busy\":");
        assert_non_null(at);
        now = (unsigned)strtoul(at + strlen("\"busy\":"), NULL, 10);
        bool queued = !strstr(reply.body.data, "\"queued\":0}");
        api_reply_clear(&reply);
        if (now == busy && (busy || !queued))
            return;
        usleep(10000);
    }
    fail_msg("%u slots are busy, not %u", now, busy);
}

const char *api_json_at(const struct buffer *body, const char *pointer)
{
    static char text[4096];
    yyjson_doc *doc = yyjson_read(body->data ? body->data : "", body->size, 0);
    if (!doc)
        fail_msg("not JSON: %s", body->data);
    yyjson_val *value = yyjson_ptr_get(yyjson_doc_get_root(doc), pointer);
    char *json = value ? yyjson_val_write(value, 0, NULL) : NULL;
    snprintf(text, sizeof text, "%s",
             !value                 ? "(none)"
             : yyjson_is_str(value) ? yyjson_get_str(value)
                                    : json);
    free(json);
    yyjson_doc_free(doc);
    return text;
}
