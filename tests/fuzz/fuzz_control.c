/* What is said to a node's control socket: any bytes, and the same as the API would ask it; to one
 * node that runs as long as the process and is a cluster of its own. Holds: every line of every
 * answer to lines is a JSON object, and then the node answers as ever. */
#include "fuzz.h"

#include "base/clock.h"
#include "base/log.h"
#include "gpu/gpu.h"
#include "node/daemon_state.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <yyjson.h>

enum { QUIET_TURNS = 5, ANSWER_BYTES = 1 << 20 };

static uv_loop_t loop;
static struct daemon *daemon_here;
static char folder[] = "/tmp/medley-fuzz-control-XXXXXX";

static void clear(void)
{
    char line[64];
    snprintf(line, sizeof line, "rm -rf %s", folder);
    if (system(line) != 0)
        fputs("the folder stays\n", stderr);
}

static void begin(void)
{
    static const char devices[] =
        "[chip]\nmemory = 32MiB\ndecode = 1GB/s\nflops = 1GFLOP/s\ncopy = 1GB/s\n";
    static char sim[64];
    struct error err;
    struct gpu *gpu;
    signal(SIGPIPE, SIG_IGN);
    FUZZ_CHECK(mkdtemp(folder) && atexit(clear) == 0);
    snprintf(sim, sizeof sim, "%s/sim.ini", folder);
    FILE *file = fopen(sim, "w");
    FUZZ_CHECK(file && fputs(devices, file) >= 0 && fclose(file) == 0);
    FUZZ_CHECK(
        !gpu_open(&(struct gpu_options){.n_cpu_threads = 1, .skip_other = true, .sim_file = sim},
                  &gpu, &err));
    FUZZ_CHECK(uv_loop_init(&loop) == 0);
    const struct daemon_options options = {
        .folder = folder, .name = "tower", .host = "127.0.0.1", .no_discovery = true, .gpu = gpu};
    FUZZ_CHECK(!daemon_open(&loop, &options, &daemon_here, &err));
    for (int i = 0; i < 300; i++) {
        uv_run(&loop, UV_RUN_NOWAIT);
        usleep(1000);
    }
}

static int reach(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s/control.sock", folder);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    FUZZ_CHECK(fd >= 0);
    while (connect(fd, (struct sockaddr *)&address, sizeof address)) {
        FUZZ_CHECK(errno == EAGAIN);
        uv_run(&loop, UV_RUN_NOWAIT);
    }
    return fd;
}

/* Until nothing has been said for some turns. */
static size_t talk(const uint8_t *data, size_t size, char *answer)
{
    int fd = reach();
    size_t n = 0, sent = 0;
    for (int quiet = 0; quiet < QUIET_TURNS; quiet++) {
        ssize_t out = sent < size ? send(fd, data + sent, size - sent, MSG_NOSIGNAL) : 0;
        sent += out > 0 ? (size_t)out : 0;
        uv_run(&loop, UV_RUN_NOWAIT);
        ssize_t in = recv(fd, answer + n, ANSWER_BYTES - 1 - n, 0);
        n += in > 0 ? (size_t)in : 0;
        if (in > 0 || out > 0)
            quiet = 0;
        if (in == 0)
            break;
    }
    close(fd);
    uv_run(&loop, UV_RUN_NOWAIT);
    answer[n] = 0;
    return n;
}

static void check_lines(const char *text)
{
    for (const char *end; *text && (end = strchr(text, '\n')) != NULL; text = end + 1) {
        yyjson_doc *doc = yyjson_read(text, (size_t)(end - text), 0);
        FUZZ_CHECK(yyjson_is_obj(yyjson_doc_get_root(doc)));
        yyjson_doc_free(doc);
    }
}

/* ---- the same, as the API asks it ---- */

struct heard {
    bool ended;
    struct buffer lines;
};

static void hear_line(void *self, const char *line, size_t size)
{
    struct heard *heard = self;
    FUZZ_CHECK(!heard->ended && size && line[size - 1] == '\n');
    buffer_append(&heard->lines, line, size);
}

static void hear_end(void *self)
{
    struct heard *heard = self;
    FUZZ_CHECK(!heard->ended);
    heard->ended = true;
}

/* The first line, if it is an object that says what is asked; cancelled where it goes on. */
static void hear(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data, *end = size ? memchr(data, '\n', size) : NULL;
    const size_t n = end ? (size_t)(end - text) : size;
    yyjson_doc *doc = n <= 64 * 1024 ? yyjson_read(text, n, 0) : NULL;
    const char *name = yyjson_get_str(yyjson_obj_get(yyjson_doc_get_root(doc), "do"));
    struct heard heard = {0};
    const struct daemon_hearer hearer = {hear_line, hear_end, &heard};
    struct conversation *asked;
    struct error err;
    if (name && strcmp(name, "generate") != 0 && /* the API has no such route */
        !daemon_begin_request(daemon_here, name, text, n, "token ci", &hearer, &asked, &err)) {
        for (int i = 0; i < QUIET_TURNS; i++)
            uv_run(&loop, UV_RUN_NOWAIT);
        if (!heard.ended)
            daemon_cancel_request(asked);
        uv_run(&loop, UV_RUN_NOWAIT);
        if (heard.lines.data)
            check_lines(heard.lines.data);
    }
    buffer_deinit(&heard.lines);
    yyjson_doc_free(doc);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char status[] = "{\"do\":\"status\"}\n";
    static char answer[ANSWER_BYTES];
    if (!daemon_here)
        begin();
    talk(data, size, answer);
    check_lines(answer);
    hear(data, size);
    talk((const uint8_t *)status, sizeof status - 1, answer);
    check_lines(answer);
    FUZZ_CHECK(strstr(answer, "\"name\":\"tower\""));
    return 0;
}
