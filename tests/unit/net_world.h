/* Hosts on one machine: processes in network namespaces of their own, joined by a virtual cable.
 *
 * The test's process moves into a fresh namespace first, so that nothing of the machine's own
 * networks is touched. Needs the rights to do so (root, or a user namespace's). */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

bool net_world_enter(void); /* false: the system does not allow it */

struct net_host {
    pid_t pid;
    int in;  /* lines for the host's program … */
    int out; /* … and from it */
    char line[512];
};

/* A process with its own network and host name, in which `program(in, out)` runs once net_join()
 * has given it a cable.
 */
void net_host_start(struct net_host *host, const char *name, void (*program)(int in, int out));
/* A cable between the two: 10.77.0.1 and 10.77.0.2, and link-local IPv6 addresses. */
void net_join(struct net_host *a, struct net_host *b);
void net_host_say(const struct net_host *host, const char *line);
/* Waits for a line that begins with `start`, passing over others; it is then in host->line. False:
 * not within the time.
 */
bool net_host_hears(struct net_host *host, const char *start, int timeout_ms);
void net_host_stop(struct net_host *host); /* closes `in`, which ends the program, and waits */
