/* Who makes room when strangers take up all the places there are. Pure.
 *
 * To refuse the newcomer would be to let anybody keep others out by holding connections open and
 * saying nothing. Instead the one that has been silent longest goes: of the network with the most
 * connections (an IPv6 /64; a single IPv4 address), of the address with the most of them in it. So
 * an attacker with one address pushes out his own; one who can take any address of a network, that
 * network's, and a newcomer there still gets as long as it takes to fill all places anew. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* An address without its port. IPv4: network alone. */
struct stream_host {
    uint64_t network, interface;
};

struct crowd_member {
    struct stream_host host;
    bool may_go; /* it is silent: nothing is known of it yet */
};

struct crowd_limits {
    uint32_t all, of_host;
};

enum { CROWD_ROOM = -1, CROWD_FULL = -2 };

/* `members` from the oldest to the newest. CROWD_ROOM: nobody has to go. CROWD_FULL: nobody may.
 * Else the index of the one that goes. */
int crowd_choose(const struct crowd_member *members, uint32_t n, const struct crowd_limits *limits,
                 struct stream_host newcomer);
