/* A network with a latency: a switch between TAP devices that passes every frame on after a fixed
 * time. It stands in for netem, which not every kernel has. Bandwidth is somebody else's (`tc …
 * tbf` on each device).
 *
 *     delay [--us N] [--offload] [--seed N] FD...
 *
 * Each FD is an open network namespace (/proc/PID/ns/net); in each a device `lan` is made, which
 * lasts as long as this process. N microseconds pass between a frame's coming in and its going out;
 * what the process takes to be woken comes on top, so measure with a ping. With --offload TCP's
 * segments of up to 64 KiB pass in one piece, as through a network card that cuts them itself: much
 * cheaper for bulk, but then the interfaces' counters do not see each packet's headers. "ready" is
 * printed when all devices are there. It ends when its standard input does.
 *
 * A line of standard input changes the way from one device to another, and is answered with "ok":
 *
 *     FROM TO CUT US JITTER_US LOSS_PPM
 *
 * FROM and TO count the FDs from 1; 0 stands for all. CUT 1: nothing passes, what is under way is
 * lost. Each frame takes US and evenly drawn up to JITTER_US more, but none overtakes another. Of a
 * million frames LOSS_PPM are lost, each by itself; --seed draws which. */
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <linux/virtio_net.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum {
    PORTS = 16,
    FRAMES = 65536,
    BYTES_MAX = 80 << 20,
    HOSTS = 64,
    BURST = 32,
    MAC = 6,
    LINE_MAX_BYTES = 128,
    MILLION = 1000000
};

struct frame {
    uint64_t due_ns, order; /* of frames that are due at once the first that came goes first */
    int from, to;
    uint32_t size;
    uint8_t *bytes;
};

struct path {
    bool cut;
    uint64_t delay_ns, jitter_ns;
    uint32_t loss_ppm;
    uint64_t last_due_ns;
};

struct host {
    uint8_t mac[MAC];
    int port;
};

static struct {
    struct pollfd ports[PORTS + 1]; /* the last is standard input */
    int n_ports;
    size_t mac_at;                   /* where a frame's Ethernet header begins */
    struct path paths[PORTS][PORTS]; /* from, to */
    struct frame frames[FRAMES];     /* a binary heap: the next that is due comes first */
    uint32_t n_frames;
    size_t n_bytes;
    uint64_t n_taken;
    uint64_t random;
    char line[LINE_MAX_BYTES]; /* the command that is being read */
    size_t n_line;
    struct host hosts[HOSTS];
    int n_hosts;
} network;

static void fail(const char *what)
{
    fprintf(stderr, "delay: %s: %s\n", what, strerror(errno));
    exit(1);
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* ---- devices --------------------------------------------------------------------------------- */

static int open_port(int namespace_fd, bool offload)
{
    struct ifreq wish = {.ifr_flags = (short)(IFF_TAP | IFF_NO_PI | (offload ? IFF_VNET_HDR : 0))};
    strcpy(wish.ifr_name, "lan");
    if (setns(namespace_fd, CLONE_NEWNET))
        fail("a network namespace");
    const int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || ioctl(fd, TUNSETIFF, &wish))
        fail("a TAP device");
    if (offload && ioctl(fd, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6))
        fail("a TAP device's offload");
    return fd;
}

/* ---- the switch ------------------------------------------------------------------------------ */

static struct host *host_of(const uint8_t *mac)
{
    for (int i = 0; i < network.n_hosts; i++) {
        if (memcmp(network.hosts[i].mac, mac, MAC) == 0)
            return &network.hosts[i];
    }
    return NULL;
}

static void learn(const uint8_t *mac, int port)
{
    if (!host_of(mac) && network.n_hosts < HOSTS) {
        struct host *host = &network.hosts[network.n_hosts++];
        memcpy(host->mac, mac, MAC);
        host->port = port;
    }
}

static bool is_before(const struct frame *a, const struct frame *b)
{
    return a->due_ns < b->due_ns || (a->due_ns == b->due_ns && a->order < b->order);
}

static void swap(struct frame *a, struct frame *b)
{
    const struct frame kept = *a;
    *a = *b;
    *b = kept;
}

static void heap_push(struct frame frame)
{
    struct frame *frames = network.frames;
    uint32_t i = network.n_frames++;
    frames[i] = frame;
    for (; i > 0 && is_before(&frames[i], &frames[(i - 1) / 2]); i = (i - 1) / 2)
        swap(&frames[i], &frames[(i - 1) / 2]);
}

static struct frame heap_pop(void)
{
    struct frame *frames = network.frames;
    const struct frame first = frames[0];
    frames[0] = frames[--network.n_frames];
    for (uint32_t i = 0, child; (child = 2 * i + 1) < network.n_frames; i = child) {
        if (child + 1 < network.n_frames && is_before(&frames[child + 1], &frames[child]))
            child++;
        if (!is_before(&frames[child], &frames[i]))
            break;
        swap(&frames[i], &frames[child]);
    }
    return first;
}

static uint64_t draw(uint64_t below) /* splitmix64 */
{
    uint64_t x = network.random += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return (x ^ x >> 31) % below;
}

static void send_along(int from, int to, const uint8_t *bytes, size_t size)
{
    struct path *path = &network.paths[from][to];
    if (path->cut || (path->loss_ppm && draw(MILLION) < path->loss_ppm))
        return;
    if (network.n_frames == FRAMES || network.n_bytes + size > BYTES_MAX)
        return; /* lost, as in a switch whose memory is full */
    uint8_t *copy = malloc(size);
    if (!copy)
        return;
    memcpy(copy, bytes, size);
    const uint64_t due = now_ns() + path->delay_ns + (path->jitter_ns ? draw(path->jitter_ns) : 0);
    path->last_due_ns = due > path->last_due_ns ? due : path->last_due_ns;
    heap_push((struct frame){path->last_due_ns, network.n_taken++, from, to, (uint32_t)size, copy});
    network.n_bytes += size;
}

static void take_in(int port, const uint8_t *bytes, size_t size)
{
    if (size < network.mac_at + 2 * (size_t)MAC)
        return;
    learn(bytes + network.mac_at + MAC, port);
    const struct host *host = host_of(bytes + network.mac_at);
    for (int to = 0; to < network.n_ports; to++) {
        if (to != port && (!host || host->port == to))
            send_along(port, to, bytes, size);
    }
}

static void read_port(int port)
{
    static uint8_t bytes[1 << 17];
    for (int i = 0; i < BURST; i++) {
        const ssize_t size = read(network.ports[port].fd, bytes, sizeof bytes);
        if (size <= 0)
            return;
        take_in(port, bytes, (size_t)size);
    }
}

static void send_due(void)
{
    while (network.n_frames && network.frames[0].due_ns <= now_ns()) {
        const struct frame frame = heap_pop();
        if (!network.paths[frame.from][frame.to].cut &&
            write(network.ports[frame.to].fd, frame.bytes, frame.size) < 0 && errno != EIO &&
            errno != EAGAIN)
            fail("write"); /* EIO: that device is down */
        network.n_bytes -= frame.size;
        free(frame.bytes);
    }
}

/* ---- commands -------------------------------------------------------------------------------- */

static void set_paths(unsigned from, unsigned to, struct path wish)
{
    for (int a = 0; a < network.n_ports; a++) {
        for (int b = 0; b < network.n_ports; b++) {
            struct path *path = &network.paths[a][b];
            wish.last_due_ns = path->last_due_ns;
            if ((from == 0 || (int)from == a + 1) && (to == 0 || (int)to == b + 1))
                *path = wish;
        }
    }
}

static void obey(const char *line)
{
    unsigned from, to, cut, us, jitter_us, loss_ppm;
    const unsigned most = (unsigned)network.n_ports;
    if (sscanf(line, "%u %u %u %u %u %u", &from, &to, &cut, &us, &jitter_us, &loss_ppm) != 6 ||
        from > most || to > most || loss_ppm > MILLION) {
        fprintf(stderr, "delay: not understood: %s\n", line);
        exit(1);
    }
    set_paths(from, to,
              (struct path){cut, us * UINT64_C(1000), jitter_us * UINT64_C(1000), loss_ppm, 0});
    printf("ok\n");
    fflush(stdout);
}

static bool read_commands(void) /* false: no more will come */
{
    char *line = network.line;
    const ssize_t size = read(STDIN_FILENO, line + network.n_line, LINE_MAX_BYTES - network.n_line);
    if (size <= 0)
        return false;
    network.n_line += (size_t)size;
    for (char *end; (end = memchr(line, '\n', network.n_line));) {
        *end = '\0';
        obey(line);
        network.n_line -= (size_t)(end + 1 - line);
        memmove(line, end + 1, network.n_line);
    }
    return network.n_line < LINE_MAX_BYTES;
}

static void run(void)
{
    for (;;) {
        const uint64_t now = now_ns();
        const uint64_t due = network.n_frames ? network.frames[0].due_ns : 0;
        const uint64_t wait = due > now ? due - now : 0;
        const struct timespec time = {(time_t)(wait / 1000000000), (long)(wait % 1000000000)};
        const int n = ppoll(network.ports, (nfds_t)network.n_ports + 1,
                            network.n_frames ? &time : NULL, NULL);
        if (n < 0 && errno != EINTR)
            fail("ppoll");
        if (n > 0 && network.ports[network.n_ports].revents && !read_commands())
            return;
        for (int port = 0; n > 0 && port < network.n_ports; port++) {
            if (network.ports[port].revents & POLLIN)
                read_port(port);
        }
        send_due();
    }
}

/* ---- the command ----------------------------------------------------------------------------- */

static void be_prompt(void)
{
    const struct sched_param first = {.sched_priority = 1};
    prctl(PR_SET_TIMERSLACK, 1);
    prctl(PR_SET_PDEATHSIG, 9);
    if (sched_setscheduler(0, SCHED_FIFO, &first))
        fprintf(stderr, "delay: no real-time priority: a busy machine will make it late\n");
}

int main(int argc, char **argv)
{
    bool offload = false;
    struct path path = {0};
    int i = 1;
    for (; i < argc && argv[i][0] == '-'; i++) {
        if (strcmp(argv[i], "--offload") == 0)
            offload = true;
        else if (strcmp(argv[i], "--us") == 0 && i + 1 < argc)
            path.delay_ns = strtoull(argv[++i], NULL, 10) * 1000;
        else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc)
            network.random = strtoull(argv[++i], NULL, 10);
        else
            break;
    }
    if (argc - i < 2 || argc - i > PORTS || argv[i][0] == '-') {
        fprintf(stderr, "usage: delay [--us N] [--offload] [--seed N] FD FD...\n");
        return 2;
    }
    network.mac_at = offload ? sizeof(struct virtio_net_hdr) : 0;
    for (; i < argc; i++)
        network.ports[network.n_ports++] =
            (struct pollfd){open_port(atoi(argv[i]), offload), POLLIN, 0};
    network.ports[network.n_ports] = (struct pollfd){STDIN_FILENO, POLLIN, 0};
    set_paths(0, 0, path);
    be_prompt();
    printf("ready\n");
    fflush(stdout);
    run();
    return 0;
}
