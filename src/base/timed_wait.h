/* Waiting on a condition until a moment of clock_now_ns(), which no change of the wall clock
 * moves. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

void timed_wait_init(pthread_cond_t *cond);

/* False when the moment has come. May wake for nothing, as pthread_cond_wait() does. */
bool timed_wait(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t until_ns);
