/* Counts what is still to come back; one thread waits until that is nothing. */
#pragma once

#include <pthread.h>
#include <stdint.h>

struct latch {
    pthread_mutex_t lock;
    pthread_cond_t zero;
    uint32_t left;
};

void latch_init(struct latch *latch, uint32_t n);
void latch_expect(struct latch *latch); /* one more, while something is still to come back */
void latch_arrive(struct latch *latch); /* any thread; the last touch of it there */
void latch_wait(struct latch *latch);   /* and ends the latch */
