/* A network with a latency: a switch between TAP devices that passes every frame on after a fixed time. It stands in
 * for netem, which not every kernel has. Bandwidth is somebody else's (`tc … tbf` on each device).
 *
 *     delay [--us N] [--offload] FD...
 *
 * Each FD is an open network namespace (/proc/PID/ns/net); in each a device `lan` is made, which lasts as long as this
 * process. N microseconds pass between a frame's coming in and its going out; what the process takes to be woken comes
 * on top, so measure with a ping. With --offload TCP's segments of up to 64 KiB pass in one piece, as through a network
 * card that cuts them itself: much cheaper for bulk, but then the interfaces' counters do not see each packet's
 * headers. "ready" is printed when all devices are there. It ends when its standard input does. */
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

enum { PORTS = 16, FRAMES = 65536, BYTES_MAX = 80 << 20, HOSTS = 64, BURST = 32, MAC = 6, NO_PORT = -1 };

struct frame {
    uint64_t due_ns;
    int from;
    uint32_t size;
    uint8_t *bytes;
};

struct host {
    uint8_t mac[MAC];
    int port;
};

static struct {
    struct pollfd ports[PORTS + 1]; /* the last is standard input */
    int n_ports;
    size_t mac_at; /* where a frame's Ethernet header begins */
    uint64_t delay_ns;
    struct frame frames[FRAMES]; /* in the order of their times, since all wait equally long */
    uint32_t first, n_frames;
    size_t n_bytes;
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

/* ---- devices -------------------------------------------------------------------------------------- */

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

/* ---- the switch ----------------------------------------------------------------------------------- */

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

static void pass_on(const struct frame *frame)
{
    const struct host *to = host_of(frame->bytes + network.mac_at);
    for (int port = 0; port < network.n_ports; port++) {
        if (port == frame->from || (to && to->port != port))
            continue;
        if (write(network.ports[port].fd, frame->bytes, frame->size) < 0 && errno != EIO && errno != EAGAIN)
            fail("write"); /* EIO: that device is down */
    }
}

static void take_in(int port, const uint8_t *bytes, size_t size)
{
    if (size < network.mac_at + 2 * (size_t)MAC)
        return;
    learn(bytes + network.mac_at + MAC, port);
    if (network.n_frames == FRAMES || network.n_bytes + size > BYTES_MAX)
        return; /* lost, as in a switch whose memory is full */
    uint8_t *copy = malloc(size);
    if (!copy)
        return;
    memcpy(copy, bytes, size);
    network.frames[(network.first + network.n_frames++) % FRAMES] =
        (struct frame){now_ns() + network.delay_ns, port, (uint32_t)size, copy};
    network.n_bytes += size;
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
    while (network.n_frames && network.frames[network.first].due_ns <= now_ns()) {
        struct frame *frame = &network.frames[network.first];
        pass_on(frame);
        network.n_bytes -= frame->size;
        free(frame->bytes);
        network.first = (network.first + 1) % FRAMES;
        network.n_frames--;
    }
}

static void run(void)
{
    for (;;) {
        const uint64_t now = now_ns();
        const uint64_t due = network.n_frames ? network.frames[network.first].due_ns : 0;
        const uint64_t wait = due > now ? due - now : 0;
        const struct timespec time = {(time_t)(wait / 1000000000), (long)(wait % 1000000000)};
        const int n = ppoll(network.ports, (nfds_t)network.n_ports + 1, network.n_frames ? &time : NULL, NULL);
        if (n < 0 && errno != EINTR)
            fail("ppoll");
        if (n > 0 && network.ports[network.n_ports].revents)
            return;
        for (int port = 0; n > 0 && port < network.n_ports; port++) {
            if (network.ports[port].revents & POLLIN)
                read_port(port);
        }
        send_due();
    }
}

/* ---- the command ---------------------------------------------------------------------------------- */

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
    int i = 1;
    for (; i < argc && argv[i][0] == '-'; i++) {
        if (strcmp(argv[i], "--offload") == 0)
            offload = true;
        else if (strcmp(argv[i], "--us") == 0 && i + 1 < argc)
            network.delay_ns = strtoull(argv[++i], NULL, 10) * 1000;
        else
            break;
    }
    if (argc - i < 2 || argc - i > PORTS || argv[i][0] == '-') {
        fprintf(stderr, "usage: delay [--us N] [--offload] FD FD...\n");
        return 2;
    }
    network.mac_at = offload ? sizeof(struct virtio_net_hdr) : 0;
    for (; i < argc; i++)
        network.ports[network.n_ports++] = (struct pollfd){open_port(atoi(argv[i]), offload), POLLIN, 0};
    network.ports[network.n_ports] = (struct pollfd){STDIN_FILENO, POLLIN, 0};
    be_prompt();
    printf("ready\n");
    fflush(stdout);
    run();
    return 0;
}
