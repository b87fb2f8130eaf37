#include "base/wakeup.h"

#include <sys/eventfd.h>

int wakeup_open(void)
{
    return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

void wakeup_ring(int fd)
{
    eventfd_write(fd, 1); /* fails when it is full of rings, so heard anyway */
}

void wakeup_heed(int fd)
{
    eventfd_t rings;
    eventfd_read(fd, &rings); /* fails when nobody rang */
}
