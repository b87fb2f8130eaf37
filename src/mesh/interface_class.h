/* What kind of link two addresses are joined by, as this machine's end tells it: from the interface
 * that has the local address, and from /sys/class/net. Linux; elsewhere unknown unless it is this
 * machine itself.
 *
 *   loopback     of an interface by its name only: two nodes joined by it are on the same host
 *   same host    both addresses are this machine's
 *   wifi         /sys/class/net/IF/wireless or phy80211
 *   thunderbolt  its driver is thunderbolt-net
 *   rdma         /sys/class/net/IF/device/infiniband
 *   ethernet     its type is 1 (ARPHRD_ETHER) and it is none of the above
 *   unknown      tunnels and all else
 *
 * `root` stands in for /sys in tests; NULL: /sys. Any thread. */
#pragma once

#include "topology/link.h"

#include <sys/socket.h>

enum topology_class interface_class(const struct sockaddr *local, const struct sockaddr *peer,
                                    const char *root);

/* The same for an interface by its name. */
enum topology_class interface_class_of(const char *name, const char *root);
