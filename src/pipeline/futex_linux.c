#include "pipeline/futex.h"

#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void futex_wait(_Atomic uint32_t *word, uint32_t value, uint32_t limit_ms)
{
    const struct timespec limit = {.tv_sec = limit_ms / 1000,
                                   .tv_nsec = (long)(limit_ms % 1000) * 1000000};
    syscall(SYS_futex, word, FUTEX_WAIT, value, &limit, NULL, 0);
}

void futex_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
}
