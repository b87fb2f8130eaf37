#include "base/service_manager.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { FIRST_PASSED = 3, PASSED_MAX = 16 };

/* ---- telling it ------------------------------------------------------------------------ */

/* A number of the environment; 0: there is none. */
static uint64_t environment_number(const char *name)
{
    const char *text = getenv(name);
    char *end;
    if (!text || text[0] < '0' || text[0] > '9')
        return 0;
    errno = 0;
    const uint64_t number = strtoull(text, &end, 10);
    return errno || *end ? 0 : number;
}

/* For this process, and not for one that it was started by. */
static bool is_for_this_process(const char *name)
{
    return environment_number(name) == (uint64_t)getpid();
}

/* A path, or "@" and the name of an abstract socket. */
static bool manager_address(const char *text, struct service_manager *out)
{
    const size_t size = text ? strlen(text) : 0;
    if (size < 2 || size >= sizeof out->address.sun_path || (text[0] != '/' && text[0] != '@'))
        return false;
    out->address = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(out->address.sun_path, text, size);
    if (text[0] == '@')
        out->address.sun_path[0] = '\0';
    out->address_size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + size);
    return true;
}

void service_manager_open(struct service_manager *manager)
{
    *manager = (struct service_manager){.fd = -1};
    if (!manager_address(getenv("NOTIFY_SOCKET"), manager))
        return;
    manager->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (manager->fd >= 0 && (!getenv("WATCHDOG_PID") || is_for_this_process("WATCHDOG_PID")))
        manager->watchdog_ms = environment_number("WATCHDOG_USEC") / 1000;
}

void service_manager_close(struct service_manager *manager)
{
    if (manager->fd >= 0)
        close(manager->fd);
    manager->fd = -1;
}

bool service_manager_is_there(const struct service_manager *manager)
{
    return manager->fd >= 0;
}

void service_manager_tell(const struct service_manager *manager, const char *state)
{
    if (manager->fd < 0)
        return;
    /* a manager that does not listen will find out by itself */
    const ssize_t sent = sendto(manager->fd, state, strlen(state), MSG_NOSIGNAL,
                                (const struct sockaddr *)&manager->address, manager->address_size);
    (void)sent;
}

void service_manager_tell_reloading(const struct service_manager *manager)
{
    char state[64];
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    snprintf(state, sizeof state, "RELOADING=1\nMONOTONIC_USEC=%" PRIu64,
             (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000);
    service_manager_tell(manager, state);
}

/* ---- its sockets ----------------------------------------------------------------------- */

static bool same_address(const struct sockaddr *a, const struct sockaddr *b)
{
    const struct sockaddr_in *a4 = (const void *)a, *b4 = (const void *)b;
    const struct sockaddr_in6 *a6 = (const void *)a, *b6 = (const void *)b;
    if (a->sa_family != b->sa_family)
        return false;
    if (a->sa_family == AF_INET)
        return a4->sin_port == b4->sin_port && a4->sin_addr.s_addr == b4->sin_addr.s_addr;
    return a->sa_family == AF_INET6 && a6->sin6_port == b6->sin6_port &&
           memcmp(&a6->sin6_addr, &b6->sin6_addr, sizeof a6->sin6_addr) == 0;
}

static bool listens_at(int fd, const struct sockaddr *address)
{
    struct sockaddr_storage bound;
    socklen_t size = sizeof bound, type_size = sizeof(int), listens_size = sizeof(int);
    int type = 0, listens = 0;
    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_size) == 0 && type == SOCK_STREAM &&
           getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &listens_size) == 0 && listens &&
           getsockname(fd, (struct sockaddr *)&bound, &size) == 0 &&
           same_address((const struct sockaddr *)&bound, address);
}

/* After the last of those that were passed. */
static int passed_end(void)
{
    const uint64_t n = is_for_this_process("LISTEN_PID") ? environment_number("LISTEN_FDS") : 0;
    return FIRST_PASSED + (int)(n < PASSED_MAX ? n : PASSED_MAX);
}

int service_manager_socket(const struct sockaddr *address)
{
    for (int fd = FIRST_PASSED; fd < passed_end(); fd++) {
        if (!listens_at(fd, address))
            continue;
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
        return fcntl(fd, F_DUPFD_CLOEXEC, FIRST_PASSED + PASSED_MAX);
    }
    return -1;
}

bool service_manager_has(int fd)
{
    struct stat own, passed;
    if (fstat(fd, &own))
        return false;
    for (int at = FIRST_PASSED; at < passed_end(); at++) {
        if (fstat(at, &passed) == 0 && passed.st_dev == own.st_dev && passed.st_ino == own.st_ino)
            return true;
    }
    return false;
}
