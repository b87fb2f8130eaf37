#include "base/transfer.h"

#include "base/clock.h"
#include "base/work_limit.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

enum { TRANSFER_LOOK_MS = 20 /* whether somebody still wants it */ };

static bool transfer_wait(int socket, short events, uint64_t until_ns)
{
    struct pollfd poller = {.fd = socket, .events = events};
    if (clock_now_ns() >= until_ns || !work_limit_goes_on()) {
        errno = ETIMEDOUT;
        return false;
    }
    return poll(&poller, 1, TRANSFER_LOOK_MS) >= 0 || errno == EINTR;
}

static bool transfer_all(int socket, bool sends, char *bytes, size_t size, uint64_t until_ns)
{
    for (size_t done = 0; done < size;) {
        const ssize_t n = sends
                              ? send(socket, bytes + done, size - done, MSG_NOSIGNAL | MSG_DONTWAIT)
                              : recv(socket, bytes + done, size - done, MSG_DONTWAIT);
        if (n > 0) {
            done += (size_t)n;
        } else if (n == 0) {
            errno = 0;
            return false;
        } else if (errno == EAGAIN) {
            if (!transfer_wait(socket, sends ? POLLOUT : POLLIN, until_ns))
                return false;
        } else if (errno != EINTR) {
            return false;
        }
    }
    return true;
}

bool transfer_send(int socket, const void *bytes, size_t size, uint64_t until_ns)
{
    return transfer_all(socket, true, (char *)(uintptr_t)bytes, size, until_ns);
}

bool transfer_receive(int socket, void *bytes, size_t size, uint64_t until_ns)
{
    return transfer_all(socket, false, bytes, size, until_ns);
}
