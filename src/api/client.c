#include "api/client.h"

#include <arpa/inet.h>
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static struct api_client api_client_of_v4(struct in_addr address)
{
    struct api_client client;
    if (ntohl(address.s_addr) >> 24 == 127)
        snprintf(client.share, sizeof client.share, "loopback");
    else
        inet_ntop(AF_INET, &address, client.share, sizeof client.share);
    return client;
}

static struct api_client api_client_of_v6(struct in6_addr address)
{
    struct api_client client;
    struct in_addr v4;
    char text[INET6_ADDRSTRLEN];
    if (IN6_IS_ADDR_V4MAPPED(&address)) { /* a socket for both families writes IPv4 so */
        memcpy(&v4, &address.s6_addr[12], sizeof v4);
        return api_client_of_v4(v4);
    }
    if (IN6_IS_ADDR_LOOPBACK(&address)) {
        snprintf(client.share, sizeof client.share, "loopback");
        return client;
    }
    memset(&address.s6_addr[8], 0, 8);
    inet_ntop(AF_INET6, &address, text, sizeof text);
    snprintf(client.share, sizeof client.share, "%s/64", text);
    return client;
}

struct api_client api_client_of_address(const char *address)
{
    struct api_client client = {.share = "unknown"};
    struct in_addr v4;
    struct in6_addr v6;
    char plain[INET6_ADDRSTRLEN];
    const size_t size = address ? strcspn(address, "%") : sizeof plain;
    if (size >= sizeof plain)
        return client;
    memcpy(plain, address, size);
    plain[size] = '\0';
    if (inet_pton(AF_INET, plain, &v4) == 1)
        client = api_client_of_v4(v4);
    else if (inet_pton(AF_INET6, plain, &v6) == 1)
        client = api_client_of_v6(v6);
    assert(client.share[0]);
    return client;
}

struct api_client api_client_of_token(uint64_t id)
{
    struct api_client client;
    snprintf(client.share, sizeof client.share, "token %016" PRIx64, id);
    return client;
}

bool api_client_is_same(const struct api_client *one, const struct api_client *other)
{
    return strcmp(one->share, other->share) == 0;
}
