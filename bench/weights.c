/* How fast a node without a model gets one: two nodes over loopback, each with
 * a loop and a thread of its own, and what the work is made of.
 *
 *     build/release/bench/weights MODEL.gguf [rounds] [folder]
 *
 * The folder (default: TMPDIR, else /tmp) gets a copy of the model's size for a moment. Both nodes
 * share this machine's cores, so the processor time is printed, too. The anchor is what Ethernet of
 * 1 Gbit/s carries: 118 MB/s of TCP payload. Beside it, in the same run: hashing as a part is
 * verified, writing and syncing as it is kept. */
#include "weights/weights.h"
#include "base/clock.h"
#include "base/mem.h"
#include "link_world.h"
#include "mesh/frames.h"
#include "model/model.h"
#include "weights_world.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

enum { ROUNDS_MAX = 21, PIECE = 4 << 20 };
static const double GIGABIT =
    118e6; /* bytes/s: 1500-byte packets with 52 of headers and 38 around them */

struct end {
    struct link_world *world;
    struct weights *weights;
    char folder[PATH_MAX];
    struct weights_facts facts;
    bool is_added, is_failed, is_closed;
};

/* ---- a node ---------------------------------------------------------------------------------- */

static void on_up(void *self, struct link *link)
{
    weights_up(((struct end *)self)->weights, link);
}

static void on_down(void *self, struct link *link, const struct error *why)
{
    if (((struct end *)self)->weights)
        weights_down(((struct end *)self)->weights, link);
}

static void *on_memory(void *self, struct link *link, uint32_t channel,
                       const struct frame_header *header)
{
    return weights_memory(((struct end *)self)->weights, link, channel, header);
}

static void on_frame(void *self, struct link *link, uint32_t channel,
                     const struct frame_header *header, const uint8_t *payload)
{
    weights_frame(((struct end *)self)->weights, link, header, payload);
}

static void on_drained(void *self, struct link *link, uint32_t channel)
{
    weights_drained(((struct end *)self)->weights, link, channel);
}

static void end_open(struct end *end, struct link_world *world, int node)
{
    struct error err = {0};
    struct mesh_options *options = &world->nodes[node].options;
    end->world = world;
    weights_folder_make(end->folder);
    options->events =
        (struct link_events){on_up, on_down, on_memory, on_frame, on_drained, NULL, end};
    options->n_data_channels = NODE_DATA_CHANNELS;
    options->ping_ms = 2000;
    options->silence_ms = 5000;
    options->dead_ms = 10000;
    link_world_open(world, node);
    const struct weights_options own = {
        .loop = options->loop, .mesh = world->nodes[node].mesh, .folder = end->folder};
    if (weights_open(&own, &end->weights, &err)) {
        fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
}

/* ---- the holder ------------------------------------------------------------------------------ */

static void on_added(void *arg, const struct weights_facts *facts, const struct error *err)
{
    struct end *end = arg;
    end->is_added = facts;
    end->is_failed = err;
    if (facts)
        end->facts = *facts;
    else
        fprintf(stderr, "%s\n", err->text);
}

/* What the holder's thread has, beside its loop. */
struct holding {
    uv_loop_t loop;
    uv_timer_t look;
    struct end end;
    const char *path;
    atomic_bool stop;
    atomic_bool is_ready;
};

static void on_holder_closed(void *arg)
{
    struct holding *holding = arg;
    holding->end.weights = NULL;
    mesh_close(holding->end.world->nodes[1].mesh, NULL, NULL);
}

static void on_look(uv_timer_t *look)
{
    struct holding *holding = look->data;
    if (holding->end.is_added || holding->end.is_failed)
        atomic_store(&holding->is_ready, true);
    if (!atomic_load(&holding->stop))
        return;
    uv_close((uv_handle_t *)look, NULL);
    weights_close(holding->end.weights, on_holder_closed, holding);
}

static void *hold(void *arg)
{
    struct holding *holding = arg;
    weights_add_file(holding->end.weights, holding->path, on_added, &holding->end);
    uv_run(&holding->loop, UV_RUN_DEFAULT);
    return NULL;
}

static void hold_open(struct holding *holding, struct link_world *world, const char *path,
                      pthread_t *thread)
{
    uv_loop_init(&holding->loop);
    uv_timer_init(&holding->loop, &holding->look);
    holding->look.data = holding;
    uv_timer_start(&holding->look, on_look, 20, 20);
    holding->path = path;
    world->nodes[1].options.loop = &holding->loop;
    end_open(&holding->end, world, 1);
    pthread_create(thread, NULL, hold, holding);
    while (!atomic_load(&holding->is_ready))
        usleep(20000);
}

/* ---- the one that fetches -------------------------------------------------------------------- */

static bool is_here(void *arg)
{
    struct end *end = arg;
    const char *problem = weights_problem(end->weights, &end->facts.model);
    if (problem) {
        fprintf(stderr, "%s\n", problem);
        exit(1);
    }
    return weights_have(end->weights, &end->facts.model, 0, end->facts.n_layers) == WORKER_HAS_ALL;
}

static void on_closed(void *arg)
{
    ((struct end *)arg)->is_closed = true;
}

static bool is_closed(void *arg)
{
    return ((struct end *)arg)->is_closed;
}

static bool is_linked(void *arg)
{
    return mesh_next(((struct end *)arg)->world->nodes[0].mesh, NULL);
}

static double round_s(struct link_world *world, const struct weights_facts *facts)
{
    static struct end end;
    end = (struct end){.facts = *facts};
    end_open(&end, world, 0);
    uv_update_time(&world->loop); /* it stood still */
    const struct dial *dial = link_world_dial(world, 0, 1);
    if (!link_world_run(world, is_linked, &end, 5000)) {
        fprintf(stderr, "no link: %s\n", dial_status(dial).last.text);
        exit(1);
    }
    const uint64_t begin_ns = clock_now_ns();
    weights_fetch(end.weights, &end.facts.model, 0, end.facts.n_layers);
    if (!link_world_run(world, is_here, &end, 600000))
        exit(1);
    const double seconds = (double)(clock_now_ns() - begin_ns) / 1e9;
    weights_close(end.weights, on_closed, &end);
    link_world_run(world, is_closed, &end, 10000);
    end.weights = NULL;
    link_world_close(world, 0);
    weights_folder_remove(end.folder);
    return seconds;
}

/* ---- what it is made of ---------------------------------------------------------------------- */

static double thread_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void print_rate(const char *what, uint64_t bytes, uint64_t begin_ns, double begin_s)
{
    printf("  %-44s %7.0f MB/s, processor %.2f s/GB\n", what,
           (double)bytes / ((double)(clock_now_ns() - begin_ns) / 1e9) / 1e6,
           (thread_s() - begin_s) / ((double)bytes / 1e9));
}

static void parts(const char *path)
{
    struct error err = {0};
    struct model *model;
    struct digest digest;
    char folder[PATH_MAX], copy[PATH_MAX + 8];
    if (model_open(path, &model, &err))
        exit(1);
    const uint64_t size = gguf_file_size(model_file(model));
    weights_folder_make(folder);
    snprintf(copy, sizeof copy, "%s/copy", folder);
    const int fd = open(copy, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    uint64_t begin_ns = clock_now_ns();
    double begin_s = thread_s();
    for (uint64_t at = 0; at < size; at += PIECE) {
        const size_t n = size - at < PIECE ? (size_t)(size - at) : PIECE;
        if (pwrite(fd, gguf_file_bytes(model_file(model)) + at, n, (off_t)at) != (ssize_t)n)
            exit(1);
    }
    print_rate("writing to the page cache", size, begin_ns, begin_s);
    begin_ns = clock_now_ns();
    begin_s = thread_s();
    fdatasync(fd);
    print_rate("then syncing", size, begin_ns, begin_s);
    begin_ns = clock_now_ns();
    begin_s = thread_s();
    digest_file(fd, 0, size, NULL, NULL, &digest, &err);
    print_rate("reading and hashing (SHA-256, one thread)", size, begin_ns, begin_s);
    close(fd);
    weights_folder_remove(folder);
    model_close(model);
}

static double cpu_s(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void measure(struct link_world *world, const struct weights_facts *facts, uint32_t rounds)
{
    double seconds[ROUNDS_MAX];
    const double before_s = cpu_s(), gigabytes = (double)facts->bytes / 1e9;
    for (uint32_t i = 0; i < rounds; i++)
        seconds[i] = round_s(world, facts);
    const double own_s = cpu_s() - before_s;
    qsort(seconds, rounds, sizeof *seconds, compare);
    const double rate = (double)facts->bytes / seconds[rounds / 2];
    printf("%.0f MB, %u rounds: median %.0f MB/s, %.2f of 1 Gbit/s (%.0f to %.0f MB/s)\n",
           gigabytes * 1e3, rounds, rate / 1e6, rate / GIGABIT,
           gigabytes * 1e3 / seconds[rounds - 1], gigabytes * 1e3 / seconds[0]);
    printf("processor time of both ends for each GB: %.2f s\n", own_s / rounds / gigabytes);
}

int main(int argc, char **argv)
{
    static struct holding holding;
    const uint32_t given = argc > 2 ? (uint32_t)atoi(argv[2]) : 3;
    const uint32_t rounds = given < 1 ? 1 : given < ROUNDS_MAX ? given : ROUNDS_MAX;
    pthread_t holder;
    if (argc < 2) {
        fprintf(stderr, "usage: weights MODEL.gguf [rounds] [folder]\n");
        return 1;
    }
    if (argc > 3)
        setenv("TMPDIR", argv[3], 1);
    struct link_world *world = link_world_init(MESH_TCP);
    hold_open(&holding, world, argv[1], &holder);
    if (holding.end.is_added)
        measure(world, &holding.end.facts, rounds);
    atomic_store(&holding.stop, true);
    pthread_join(holder, NULL);
    world->nodes[1].mesh = NULL;
    weights_folder_remove(holding.end.folder);
    parts(argv[1]);
    link_world_deinit(world);
    return holding.end.is_failed;
}
