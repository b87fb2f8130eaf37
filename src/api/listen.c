#include "api/listen.h"

#include "base/service_manager.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* A socket that listens, in *fd: the service manager's, where it has one of that address. */
static enum error_code listen_bind(const struct addrinfo *found, const struct api_address *address,
                                   int *fd, struct error *err)
{
    const int yes = 1;
    *fd = service_manager_socket(found->ai_addr);
    if (*fd >= 0)
        return ERROR_NONE;
    *fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*fd < 0)
        return error_set(err, ERROR_IO, "cannot make a socket: %s", strerror(errno));
    setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(*fd, found->ai_addr, found->ai_addrlen) == 0 && listen(*fd, SOMAXCONN) == 0)
        return ERROR_NONE;
    const int problem = errno;
    close(*fd);
    *fd = -1;
    if (problem == EADDRINUSE)
        return error_set(err, ERROR_IO, "%s port %u is in use by another program", address->host,
                         address->port);
    return error_set(err, ERROR_IO, "cannot listen on %s port %u: %s", address->host, address->port,
                     strerror(problem));
}

static enum error_code listen_at(const struct addrinfo *chosen, struct api_address *address,
                                 int *fd, struct error *err)
{
    struct sockaddr_storage bound;
    socklen_t size = sizeof bound;
    char port[8] = "";
    enum error_code code = listen_bind(chosen, address, fd, err);
    if (code)
        return code;
    getsockname(*fd, (struct sockaddr *)&bound, &size);
    getnameinfo((struct sockaddr *)&bound, size, address->host, sizeof address->host, port,
                sizeof port, NI_NUMERICHOST | NI_NUMERICSERV);
    address->port = (uint16_t)strtoul(port, NULL, 10);
    return ERROR_NONE;
}

enum error_code listen_open(struct api_address *address, int *fd, struct error *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found = NULL;
    char port[8];
    *fd = -1;
    snprintf(port, sizeof port, "%u", address->port);
    int problem = getaddrinfo(address->host, port, &hints, &found);
    if (problem)
        return error_set(err, ERROR_NOT_FOUND, "no address for '%s': %s", address->host,
                         gai_strerror(problem));
    const struct addrinfo *chosen = found; /* IPv4 first: what most clients of "localhost" try */
    for (const struct addrinfo *at = found; at; at = at->ai_next) {
        if (at->ai_family == AF_INET) {
            chosen = at;
            break;
        }
    }
    enum error_code code = listen_at(chosen, address, fd, err);
    freeaddrinfo(found);
    return code;
}

enum error_code listen_check(struct api_address *address, struct error *err)
{
    const uint16_t port = address->port;
    int fd;
    enum error_code code = listen_open(address, &fd, err);
    if (fd >= 0)
        close(fd);
    address->port = port;
    return code;
}
