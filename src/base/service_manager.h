/* The service manager that started this process, if one did: it is told how the process is, and it
 * may have opened the sockets that the process listens on. The protocols are those of sd_notify(3)
 * and sd_listen_fds(3), which are plain enough not to need their library: a datagram of lines, and
 * descriptors from 3 on.
 *
 * One thread. Nothing here fails: a process that no manager started goes on as any other. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

struct service_manager {
    int fd; /* -1: there is none */
    struct sockaddr_un address;
    socklen_t address_size;
    uint64_t watchdog_ms; /* it wants a sign of life at least so often; 0: never */
};

/* Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID. */
void service_manager_open(struct service_manager *manager);
void service_manager_close(struct service_manager *manager);
bool service_manager_is_there(const struct service_manager *manager);

/* "READY=1", "STOPPING=1", "WATCHDOG=1", "STATUS=…"; several, with line feeds between. */
void service_manager_tell(const struct service_manager *manager, const char *state);
/* That it reads its settings anew, which has to say since when. Then tell it "READY=1". */
void service_manager_tell_reloading(const struct service_manager *manager);

/* The socket at `address` that the manager has opened to be listened on, as a descriptor of the
 * caller's own, or -1. Reads LISTEN_PID and LISTEN_FDS. */
int service_manager_socket(const struct sockaddr *address);
/* Whether it was: then the manager listens there, too, while this process does not accept. */
bool service_manager_has(int fd);
