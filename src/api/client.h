/* On whose behalf a request is made: what limits are counted by, and whose turn it is.
 *
 * The share key says who shares one portion of the server with whom. It comes from the peer's
 * address: an IPv4 address by itself, an IPv6 address with all of its /64, because a single host
 * has that many; the loopback is a key of its own. Or from an access token. Pure; copied by value.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { API_CLIENT_SHARE_MAX = 64 }; /* with the NUL */

struct api_client {
    char share[API_CLIENT_SHARE_MAX]; /* "203.0.113.7", "2001:db8:1:2::/64", "loopback" */
};

/* `address` is numeric, as getnameinfo() writes it, perhaps with a zone behind a '%'; what is not
 * an address gets the share "unknown", as does NULL. */
struct api_client api_client_of_address(const char *address);
/* Who shows an access token is counted by that, from whatever address. */
struct api_client api_client_of_token(uint64_t id);
bool api_client_is_same(const struct api_client *one, const struct api_client *other);
