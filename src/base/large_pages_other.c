/* Systems other than Linux: pages are as the system makes them. */
#include "base/large_pages.h"

void large_pages_expect(int fd, uint64_t at, uint64_t size)
{
    (void)fd, (void)at, (void)size;
}

void large_pages_advise(const void *bytes, uint64_t size)
{
    (void)bytes, (void)size;
}

struct large_pages_seen large_pages_look(int fd)
{
    (void)fd;
    return (struct large_pages_seen){0};
}

bool large_pages_possible(const char *folder)
{
    (void)folder;
    return false;
}
