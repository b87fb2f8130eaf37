#include "api/listen.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static enum error_code try_bind(const struct addrinfo *found, const struct api_address *address,
                                struct error *err)
{
    int yes = 1, problem = 0;
    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return error_set(err, ERROR_IO, "cannot make a socket: %s", strerror(errno));
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(fd, found->ai_addr, found->ai_addrlen) != 0 || listen(fd, 1) != 0)
        problem = errno;
    close(fd);
    if (problem == EADDRINUSE)
        return error_set(err, ERROR_IO, "%s port %u is in use by another program", address->host,
                         address->port);
    if (problem)
        return error_set(err, ERROR_IO, "cannot listen on %s port %u: %s", address->host,
                         address->port, strerror(problem));
    return ERROR_NONE;
}

enum error_code listen_check(struct api_address *address, struct error *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found = NULL;
    char port[8];
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
    enum error_code code = try_bind(chosen, address, err);
    if (!code)
        getnameinfo(chosen->ai_addr, chosen->ai_addrlen, address->host, sizeof address->host, NULL,
                    0, NI_NUMERICHOST);
    freeaddrinfo(found);
    return code;
}
