#include "pipeline/latch.h"

#include <assert.h>

void latch_init(struct latch *latch, uint32_t n)
{
    pthread_mutex_init(&latch->lock, NULL);
    pthread_cond_init(&latch->zero, NULL);
    latch->left = n;
}

void latch_expect(struct latch *latch)
{
    pthread_mutex_lock(&latch->lock);
    assert(latch->left);
    latch->left++;
    pthread_mutex_unlock(&latch->lock);
}

void latch_arrive(struct latch *latch)
{
    pthread_mutex_lock(&latch->lock);
    assert(latch->left); /* one arrived twice */
    if (--latch->left == 0)
        pthread_cond_signal(&latch->zero);
    pthread_mutex_unlock(&latch->lock);
}

void latch_wait(struct latch *latch)
{
    pthread_mutex_lock(&latch->lock);
    while (latch->left)
        pthread_cond_wait(&latch->zero, &latch->lock);
    pthread_mutex_unlock(&latch->lock);
    pthread_cond_destroy(&latch->zero);
    pthread_mutex_destroy(&latch->lock);
}
