#include "mesh/stream_host.h"

#include <netinet/in.h>
#include <string.h>

uint64_t stream_host(const struct stream *stream)
{
    struct stream_addresses addresses;
    stream_addresses(stream, &addresses);
    uint64_t number = 0;
    if (addresses.peer.ss_family == AF_INET)
        number = ((struct sockaddr_in *)&addresses.peer)->sin_addr.s_addr;
    else if (addresses.peer.ss_family == AF_INET6)
        memcpy(&number, &((struct sockaddr_in6 *)&addresses.peer)->sin6_addr, sizeof number);
    return number;
}
