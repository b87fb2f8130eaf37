/* What a link costs over a bare TCP connection: two ends in one process on one loop, over loopback,
 * with the same messages, alternating, medians.
 *
 *     build/release/bench/link [rounds] [quic]
 *
 * Beside the time that passed it prints the processor time of the process, which says more where
 * others compute, too. Round trips: a message there and the same back, as a decode step's
 * activations go; both ends' work is on one core. Throughput: 16 MiB messages one way. Bytes: what
 * the kernel was given over the activations' own. */
#include "base/clock.h"
#include "base/mem.h"
#include "link_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { TRIPS = 2000, ROUNDS_MAX = 51, BIG = 16 << 20, BIGS = 8, TYPE = 100 };

/* ---- a bare TCP connection on the same loop -------------------------------------------------- */

struct plain {
    uv_tcp_t listener, ends[2]; /* the first dials */
    uv_connect_t connect;
    uv_write_t write;
    bool connected, accepted;
    size_t size, got[2]; /* of a message */
    uint32_t n_done, wanted;
    bool echoes;
    uint8_t *room[2], *message;
};

static struct plain plain;

static void on_room(uv_handle_t *handle, size_t suggested, uv_buf_t *room)
{
    const int end = handle == (uv_handle_t *)&plain.ends[1];
    *room = uv_buf_init((char *)plain.room[end] + plain.got[end],
                        (unsigned)(plain.size - plain.got[end]));
}

static void plain_write(int end, const void *bytes)
{
    uv_buf_t all = uv_buf_init((char *)bytes, (unsigned)plain.size);
    const int n = uv_try_write((uv_stream_t *)&plain.ends[end], &all, 1);
    const size_t sent = n > 0 ? (size_t)n : 0;
    if (sent == plain.size)
        return;
    all = uv_buf_init((char *)bytes + sent, (unsigned)(plain.size - sent));
    uv_write(&plain.write, (uv_stream_t *)&plain.ends[end], &all, 1, NULL);
}

static void on_bytes(uv_stream_t *stream, ssize_t n, const uv_buf_t *room)
{
    const int end = stream == (uv_stream_t *)&plain.ends[1];
    if (n <= 0)
        return;
    plain.got[end] += (size_t)n;
    if (plain.got[end] < plain.size)
        return;
    plain.got[end] = 0;
    if (end == 1 && plain.echoes)
        plain_write(1, plain.room[1]);
    else if (++plain.n_done < plain.wanted)
        plain_write(0, plain.message);
}

static void on_connected(uv_connect_t *connect, int status)
{
    plain.connected = status == 0;
}

static void on_accept(uv_stream_t *server, int status)
{
    uv_tcp_init(server->loop, &plain.ends[1]);
    plain.accepted = uv_accept(server, (uv_stream_t *)&plain.ends[1]) == 0;
}

static bool plain_is_open(void *arg)
{
    return plain.connected && plain.accepted;
}

static void plain_open(struct link_world *world)
{
    struct sockaddr_in address;
    int size = sizeof address;
    uv_ip4_addr("127.0.0.1", 0, &address);
    uv_tcp_init(&world->loop, &plain.listener);
    uv_tcp_init(&world->loop, &plain.ends[0]);
    uv_tcp_bind(&plain.listener, (struct sockaddr *)&address, 0);
    uv_listen((uv_stream_t *)&plain.listener, 1, on_accept);
    uv_tcp_getsockname(&plain.listener, (struct sockaddr *)&address, &size);
    uv_tcp_connect(&plain.connect, &plain.ends[0], (struct sockaddr *)&address, on_connected);
    link_world_run(world, plain_is_open, NULL, 5000);
    for (int i = 0; i < 2; i++) {
        uv_tcp_nodelay(&plain.ends[i], 1);
        uv_read_start((uv_stream_t *)&plain.ends[i], on_room, on_bytes);
        plain.room[i] = mem_new(BIG);
    }
}

static void plain_close(void)
{
    uv_close((uv_handle_t *)&plain.listener, NULL);
    for (int i = 0; i < 2; i++)
        uv_close((uv_handle_t *)&plain.ends[i], NULL);
}

static bool plain_is_done(void *arg)
{
    return plain.n_done >= plain.wanted;
}

static double plain_run(struct link_world *world, size_t size, uint32_t n, bool echoes)
{
    plain.size = size;
    plain.n_done = 0;
    plain.wanted = n;
    plain.echoes = echoes;
    const uint64_t begin_ns = clock_now_ns();
    plain_write(0, plain.message);
    if (!link_world_run(world, plain_is_done, NULL, 60000))
        abort();
    return (double)(clock_now_ns() - begin_ns);
}

/* ---- the same over a link -------------------------------------------------------------------- */

struct over_link {
    struct link_world *world;
    size_t size;
    uint32_t n_done, wanted;
    bool echoes;
    uint8_t *message, *room;
    struct link_send send;
};

static struct over_link over;

static void send_next(void)
{
    struct link *link = over.world->nodes[0].link;
    const struct frame_header header = {.type = TYPE, .length = (uint32_t)over.size};
    if (over.size < BIG) {
        link_post(link, LINK_DATA, &header, over.message, NULL);
        return;
    }
    over.send =
        (struct link_send){.type = TYPE, .n_pieces = 1, .pieces = {{over.message, over.size}}};
    link_send(link, LINK_DATA, &over.send, NULL);
}

static void *give_room(void *self, struct link *link, uint32_t channel,
                       const struct frame_header *header)
{
    return header->length == BIG ? over.room : NULL;
}

static void on_frame(void *self, struct link *link, uint32_t channel,
                     const struct frame_header *header, const uint8_t *payload)
{
    if (self == &over.world->nodes[1] && over.echoes)
        link_post(link, LINK_DATA, header, payload, NULL);
    else if (++over.n_done < over.wanted)
        send_next();
}

static bool link_is_done(void *arg)
{
    return over.n_done >= over.wanted;
}

static double link_run(size_t size, uint32_t n, bool echoes)
{
    over.size = size;
    over.n_done = 0;
    over.wanted = n;
    over.echoes = echoes;
    const uint64_t begin_ns = clock_now_ns();
    send_next();
    if (!link_world_run(over.world, link_is_done, NULL, 60000))
        abort();
    return (double)(clock_now_ns() - begin_ns);
}

/* ---- comparing ------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *values, uint32_t n)
{
    qsort(values, n, sizeof *values, compare);
    return values[n / 2];
}

static double cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void row(size_t size, uint32_t n, bool echoes, uint32_t rounds)
{
    double bare[ROUNDS_MAX], link[ROUNDS_MAX], bare_cpu[ROUNDS_MAX], link_cpu[ROUNDS_MAX];
    plain_run(over.world, size, n / 10 + 1, echoes);
    link_run(size, n / 10 + 1, echoes);
    for (uint32_t i = 0; i < rounds; i++) {
        const double begin_ns = cpu_ns();
        bare[i] = plain_run(over.world, size, n, echoes);
        const double between_ns = cpu_ns();
        link[i] = link_run(size, n, echoes);
        bare_cpu[i] = between_ns - begin_ns;
        link_cpu[i] = cpu_ns() - between_ns;
    }
    const double a = median(bare, rounds), b = median(link, rounds);
    const double a_cpu = median(bare_cpu, rounds), b_cpu = median(link_cpu, rounds);
    if (echoes)
        printf("%8zu B there and back: TCP %7.1f us, link %7.1f us: %.2fx, %+.1f us; processor "
               "%.1f, %.1f us: %+.1f us\n",
               size, a / n / 1e3, b / n / 1e3, b / a, (b - a) / n / 1e3, a_cpu / n / 1e3,
               b_cpu / n / 1e3, (b_cpu - a_cpu) / n / 1e3);
    else
        printf("%8zu B one way: TCP %.2f GB/s, link %.2f GB/s: %.2fx; by processor time %.2f, %.2f "
               "GB/s: %.2fx\n",
               size, (double)size * n / a, (double)size * n / b, a / b, (double)size * n / a_cpu,
               (double)size * n / b_cpu, a_cpu / b_cpu);
    fflush(stdout);
}

/* The bytes of the TCP payload are the frames', plus 22 for each TLS record of at most 16 KiB. */
static void bytes_row(size_t size)
{
    const size_t frame = size + FRAME_HEADER_BYTES, records = (frame + 16383) / 16384;
    printf("%8zu B of activations: %.2f %% more for frame and TLS\n", size,
           100.0 * (double)(frame + 22 * records - size) / (double)size);
}

static bool both_up(void *arg)
{
    return over.world->nodes[0].link && over.world->nodes[1].link;
}

int main(int argc, char **argv)
{
    const uint32_t given = argc > 1 ? (uint32_t)atoi(argv[1]) : 11;
    const uint32_t rounds = given < 1 ? 1 : given < ROUNDS_MAX ? given : ROUNDS_MAX;
    const bool quic = argc > 2 && strcmp(argv[2], "quic") == 0;
    struct link_world *world = over.world = link_world_init(quic ? MESH_QUIC : MESH_TCP);
    over.message = plain.message = mem_new(BIG);
    over.room = mem_new(BIG);
    for (int i = 0; i < 2; i++) {
        world->nodes[i].options.events.frame = on_frame;
        world->nodes[i].options.events.memory = give_room;
        world->nodes[i].options.ping_ms = 2000;
        world->nodes[i].options.silence_ms = 5000;
        world->nodes[i].options.dead_ms = 10000;
        link_world_open(world, i);
    }
    link_world_dial(world, 0, 1);
    if (!link_world_run(world, both_up, NULL, 5000))
        return 1;
    plain_open(world);
    printf("%s, TLS 1.3, %u rounds, medians\n", quic ? "QUIC" : "TCP", rounds);
    for (size_t size = 2048; size <= 16384; size *= 2)
        row(size, TRIPS, true, rounds);
    row(BIG, BIGS, false, rounds);
    for (size_t size = 2048; size <= 16384; size *= 2)
        bytes_row(size);
    plain_close();
    link_world_deinit(world);
    mem_free(over.message);
    mem_free(over.room);
    for (int i = 0; i < 2; i++)
        mem_free(plain.room[i]);
    return 0;
}
