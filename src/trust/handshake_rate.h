/* How many TLS handshakes a server makes, of all clients and of one. A handshake is the dearest
 * thing that a stranger can ask for with one message, and it is made on the loop that serves
 * everybody else; what comes beyond the rate is refused before any key is used.
 *
 * A bucket that leaks (GCRA): so many at once, then so many a second. Clients are told apart by
 * their address, an IPv6 client by its /64; a few share a bucket. Zeroed: nobody came yet. Pure. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum {
    HANDSHAKES_AT_ONCE = 64, /* of all, and of one client: the loop is held by so many at most */
    HANDSHAKES_PER_S = 500,
    HANDSHAKES_OF_HOST_PER_S = 250,
    HANDSHAKE_HOSTS = 256,
};

struct handshake_rate {
    uint64_t all_ns, of_host_ns[HANDSHAKE_HOSTS]; /* when the bucket will be empty */
};

/* `host`: a number for the client's address. False: refuse it. */
bool handshake_rate_take(struct handshake_rate *rate, uint64_t host, uint64_t now_ns);
