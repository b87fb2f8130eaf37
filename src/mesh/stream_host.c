#include "mesh/stream_host.h"

#include <netinet/in.h>
#include <string.h>

struct stream_host stream_host(const struct stream *stream)
{
    struct stream_addresses addresses;
    struct stream_host host = {0};
    stream_addresses(stream, &addresses);
    if (addresses.peer.ss_family == AF_INET) {
        host.network = ((struct sockaddr_in *)&addresses.peer)->sin_addr.s_addr;
    } else if (addresses.peer.ss_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&addresses.peer;
        memcpy(&host.network, v6->sin6_addr.s6_addr, sizeof host.network);
        memcpy(&host.interface, v6->sin6_addr.s6_addr + 8, sizeof host.interface);
    }
    return host;
}
