#include "daemon_world.h"

#include "base/clock.h"
#include "gpu/gpu.h"
#include "sim_world.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

static const char devices[] =
    "[chip]\nmemory = 32MiB\ndecode = 100MB/s\nflops = 300MFLOP/s\ncopy = 1GB/s\n";

struct daemon_world *daemon_world_open(void)
{
    struct daemon_world *world = calloc(1, sizeof *world);
    signal(SIGPIPE, SIG_IGN);
    assert_non_null(world);
    strcpy(world->folder, "/tmp/medley-daemon-XXXXXX");
    assert_non_null(mkdtemp(world->folder));
    assert_int_equal(uv_loop_init(&world->loop), 0);
    for (int i = 0; i < NODES_MAX; i++) {
        snprintf(world->nodes[i].folder, sizeof world->nodes[i].folder, "%s/%d", world->folder, i);
        snprintf(world->nodes[i].name, sizeof world->nodes[i].name, "node%d", i);
    }
    return world;
}

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *where)
{
    return remove(path);
}

void daemon_world_close(struct daemon_world *world)
{
    for (int i = 0; i < NODES_MAX; i++) {
        if (world->nodes[i].daemon)
            daemon_world_stop(world, i);
    }
    uv_run(&world->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&world->loop), 0);
    nftw(world->folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    free(world);
}

static void on_say(void *self, const char *line)
{
    struct daemon_node *node = self;
    size_t n = strlen(node->said);
    snprintf(node->said + n, sizeof node->said - n, "%s\n", line);
}

static void on_over(void *self, const struct error *why)
{
    struct daemon_node *node = self;
    assert_false(node->is_over);
    node->is_over = true;
    node->has_failed = why;
    if (why)
        node->why = *why;
}

enum error_code daemon_world_start(struct daemon_world *world, int index,
                                   const struct daemon_options *options, struct error *err)
{
    struct daemon_node *node = &world->nodes[index];
    struct daemon_options all = *options;
    node->gpu = open_sim(devices);
    node->is_over = node->has_failed = node->has_stopped = false;
    node->said[0] = 0;
    all.folder = node->folder;
    all.name = all.name ? all.name : node->name;
    all.host = all.host ? all.host : "127.0.0.1";
    all.no_discovery = true;
    all.wire = ACTIVATION_F32;
    all.gpu = node->gpu;
    all.say = on_say;
    all.over = on_over;
    all.self = node;
    enum error_code code = daemon_open(&world->loop, &all, &node->daemon, err);
    if (code) {
        uv_run(&world->loop, UV_RUN_NOWAIT);
        gpu_close(node->gpu);
    }
    return code;
}

static void on_stopped(void *arg)
{
    *(bool *)arg = true;
}

static bool is_true(void *arg)
{
    return *(bool *)arg;
}

void daemon_world_stop(struct daemon_world *world, int index)
{
    struct daemon_node *node = &world->nodes[index];
    daemon_stop(node->daemon, on_stopped, &node->has_stopped);
    if (!daemon_world_run(world, is_true, &node->has_stopped, 15000))
        fail_msg("node %d does not stop", index);
    daemon_world_pass(world, 20); /* what it has not waited for */
    daemon_free(node->daemon);
    gpu_close(node->gpu);
    node->daemon = NULL;
}

void daemon_world_turn(struct daemon_world *world)
{
    uv_run(&world->loop, UV_RUN_NOWAIT);
    usleep(500);
}

bool daemon_world_run(struct daemon_world *world, bool (*holds)(void *arg), void *arg, uint64_t ms)
{
    const uint64_t end_ns = clock_now_ns() + ms * 1000000;
    bool is_so = holds(arg);
    while (!is_so && clock_now_ns() < end_ns) {
        daemon_world_turn(world);
        is_so = holds(arg);
    }
    return is_so;
}

static bool never(void *arg)
{
    return false;
}

void daemon_world_pass(struct daemon_world *world, uint64_t ms)
{
    daemon_world_run(world, never, NULL, ms);
}

/* ---- talking ---- */

struct talk *talk_open(struct daemon_world *world, int node)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct talk *talk = calloc(1, sizeof *talk);
    assert_non_null(talk);
    snprintf(address.sun_path, sizeof address.sun_path, "%s/control.sock",
             world->nodes[node].folder);
    talk->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_true(talk->fd >= 0);
    while (connect(talk->fd, (struct sockaddr *)&address, sizeof address)) {
        assert_int_equal(errno, EAGAIN); /* its backlog is full */
        daemon_world_turn(world);
    }
    return talk;
}

static void hear(struct talk *talk)
{
    while (!talk->has_ended) {
        ssize_t n = recv(talk->fd, talk->text + talk->n, sizeof talk->text - 1 - talk->n, 0);
        if (n < 0 && errno == EAGAIN)
            return;
        talk->has_ended = n <= 0;
        talk->n += n > 0 ? (size_t)n : 0;
        talk->text[talk->n] = 0;
    }
}

void talk_say(struct daemon_world *world, struct talk *talk, const void *bytes, size_t size)
{
    const char *at = bytes;
    while (size) {
        ssize_t n = send(talk->fd, at, size, MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN)
            return; /* it has hung up */
        at += n > 0 ? n : 0;
        size -= n > 0 ? (size_t)n : 0;
        daemon_world_turn(world);
    }
}

bool talk_await(struct daemon_world *world, struct talk *talk, const char *text, uint64_t ms)
{
    const uint64_t end_ns = clock_now_ns() + ms * 1000000;
    for (hear(talk); !strstr(talk->text, text) && !talk->has_ended && clock_now_ns() < end_ns;
         hear(talk))
        daemon_world_turn(world);
    return strstr(talk->text, text);
}

bool talk_await_end(struct daemon_world *world, struct talk *talk, uint64_t ms)
{
    const uint64_t end_ns = clock_now_ns() + ms * 1000000;
    for (hear(talk); !talk->has_ended && clock_now_ns() < end_ns; hear(talk))
        daemon_world_turn(world);
    return talk->has_ended;
}

void talk_close(struct talk *talk)
{
    close(talk->fd);
    free(talk);
}

const char *ask(struct daemon_world *world, int node, const char *line)
{
    static char answer[TALK_BYTES];
    struct talk *talk = talk_open(world, node);
    talk_say(world, talk, line, strlen(line));
    talk_say(world, talk, "\n", 1);
    if (!talk_await_end(world, talk, 20000))
        fail_msg("no end of the answer to %s; so far: %s", line, talk->text);
    memcpy(answer, talk->text, talk->n + 1);
    talk_close(talk);
    return answer;
}
