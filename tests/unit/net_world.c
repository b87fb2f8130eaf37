#include "net_world.h"

#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

bool net_world_enter(void)
{
    return unshare(CLONE_NEWNET) == 0 && system("ip link set lo up") == 0;
}

static bool read_line(int fd, char *line, size_t size)
{
    size_t n = 0;
    char c;
    while (read(fd, &c, 1) == 1) {
        if (c == '\n') {
            line[n] = '\0';
            return true;
        }
        if (n + 1 < size)
            line[n++] = c;
    }
    return false;
}

static void be_host(const char *name, int in, int out, void (*program)(int in, int out))
{
    char device[64], command[512];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (unshare(CLONE_NEWNET | CLONE_NEWUTS) || sethostname(name, strlen(name)))
        _exit(1);
    dprintf(out, "ready\n");
    if (!read_line(in, device, sizeof device))
        _exit(0);
    char *address = strchr(device, ' ');
    *address++ = '\0';
    snprintf(command, sizeof command,
             "ip link set lo up && ip addr add %s/24 dev %s && ip link set %s up && ip route add "
             "224.0.0.0/4 dev %s",
             address, device, device, device);
    if (system(command))
        _exit(1);
    program(in, out);
    _exit(0);
}

void net_host_start(struct net_host *host, const char *name, void (*program)(int in, int out))
{
    int to[2], from[2];
    *host = (struct net_host){0};
    assert_int_equal(pipe(to) | pipe(from), 0);
    host->pid = fork();
    assert_true(host->pid >= 0);
    if (host->pid == 0) {
        for (int fd = 3; fd < 256; fd++) { /* other hosts' pipes would stay open here */
            if (fd != to[0] && fd != from[1])
                close(fd);
        }
        be_host(name, to[0], from[1], program);
    }
    close(to[0]);
    close(from[1]);
    host->in = to[1];
    host->out = from[0];
    assert_true(net_host_hears(host, "ready", 5000));
}

void net_join(struct net_host *a, struct net_host *b)
{
    char command[256];
    snprintf(command, sizeof command,
             "ip link add cable-a type veth peer name cable-b && ip link set cable-a netns %d && "
             "ip link set cable-b netns %d",
             (int)a->pid, (int)b->pid);
    assert_int_equal(system(command), 0);
    net_host_say(a, "cable-a 10.77.0.1");
    net_host_say(b, "cable-b 10.77.0.2");
}

void net_host_say(const struct net_host *host, const char *line)
{
    assert_true(dprintf(host->in, "%s\n", line) > 0);
}

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

bool net_host_hears(struct net_host *host, const char *start, int timeout_ms)
{
    int64_t end_ms = now_ms() + timeout_ms;
    for (int64_t left_ms; (left_ms = end_ms - now_ms()) > 0;) {
        struct pollfd ready = {.fd = host->out, .events = POLLIN};
        if (poll(&ready, 1, (int)left_ms) <= 0)
            return false;
        if (!read_line(host->out, host->line, sizeof host->line))
            return false;
        if (strncmp(host->line, start, strlen(start)) == 0)
            return true;
    }
    return false;
}

void net_host_stop(struct net_host *host)
{
    if (!host->pid)
        return;
    int status = 0;
    close(host->in);
    waitpid(host->pid, &status, 0);
    close(host->out);
    assert_int_equal(status, 0);
    *host = (struct net_host){0};
}
