#include "base/timed_wait.h"

#include "base/clock.h"

#include <time.h>

enum { NS_PER_S = 1000000000 };

void timed_wait_init(pthread_cond_t *cond)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
#ifndef __APPLE__
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
#endif
    pthread_cond_init(cond, &attributes);
    pthread_condattr_destroy(&attributes);
}

bool timed_wait(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t until_ns)
{
    uint64_t now_ns = clock_now_ns();
    if (now_ns >= until_ns)
        return false;
#ifdef __APPLE__ /* has no such clock for conditions, but a wait for a span */
    uint64_t left_ns = until_ns - now_ns;
    struct timespec span = {.tv_sec = (time_t)(left_ns / NS_PER_S),
                            .tv_nsec = (long)(left_ns % NS_PER_S)};
    pthread_cond_timedwait_relative_np(cond, lock, &span);
#else
    struct timespec at = {.tv_sec = (time_t)(until_ns / NS_PER_S),
                          .tv_nsec = (long)(until_ns % NS_PER_S)};
    pthread_cond_timedwait(cond, lock, &at);
#endif
    return clock_now_ns() < until_ns;
}
