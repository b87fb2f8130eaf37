#include "hub/pull_hash.h"

#include "base/clock.h"
#include "base/durable_file.h"
#include "base/mem.h"
#include "base/timed_wait.h"

#include <assert.h>
#include <pthread.h>

enum { PULL_HASH_BYTES = 1 << 20 };

struct pull_hash {
    int fd;
    uint64_t size;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t reach, done;
    bool has_failed, is_given_up;
    struct digest_run run; /* the thread's, then the closer's */
};

/* 0: it is given up, or through. */
static uint64_t pull_hash_next(struct pull_hash *hash, bool has_failed)
{
    pthread_mutex_lock(&hash->lock);
    hash->has_failed |= has_failed;
    while (!hash->is_given_up && !hash->has_failed && hash->done < hash->size &&
           hash->reach == hash->done)
        pthread_cond_wait(&hash->changed, &hash->lock);
    const bool goes_on = !hash->is_given_up && !hash->has_failed;
    const uint64_t left = goes_on ? hash->reach - hash->done : 0;
    if (left == 0)
        pthread_cond_broadcast(&hash->changed);
    pthread_mutex_unlock(&hash->lock);
    return left < PULL_HASH_BYTES ? left : PULL_HASH_BYTES;
}

static void *pull_hash_main(void *arg)
{
    struct pull_hash *hash = arg;
    uint8_t *room = mem_new(PULL_HASH_BYTES);
    uint64_t n;
    bool has_failed = !room;
    while ((n = pull_hash_next(hash, has_failed)) > 0) {
        has_failed = pread_all(hash->fd, room, n, hash->done) != 0 ||
                     digest_run_add(&hash->run, room, n, NULL) != ERROR_NONE;
        pthread_mutex_lock(&hash->lock);
        hash->done += has_failed ? 0 : n;
        pthread_mutex_unlock(&hash->lock);
    }
    mem_free(room);
    return NULL;
}

enum error_code pull_hash_open(int fd, uint64_t size, struct pull_hash **out, struct error *err)
{
    struct pull_hash *hash = mem_new(sizeof *hash);
    *out = NULL;
    if (!hash)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory to pull a model");
    *hash = (struct pull_hash){.fd = fd, .size = size};
    enum error_code code = digest_run_begin(&hash->run, err);
    pthread_mutex_init(&hash->lock, NULL);
    timed_wait_init(&hash->changed);
    if (!code && pthread_create(&hash->thread, NULL, pull_hash_main, hash)) {
        digest_run_end(&hash->run, NULL, NULL);
        code = error_set(err, ERROR_BUSY, "no thread for the hash of a model");
    }
    if (!code) {
        *out = hash;
        return ERROR_NONE;
    }
    pthread_cond_destroy(&hash->changed);
    pthread_mutex_destroy(&hash->lock);
    mem_free(hash);
    return code;
}

void pull_hash_reach(struct pull_hash *hash, uint64_t bytes)
{
    pthread_mutex_lock(&hash->lock);
    assert(bytes >= hash->reach && bytes <= hash->size);
    if (bytes > hash->reach)
        pthread_cond_broadcast(&hash->changed);
    hash->reach = bytes;
    pthread_mutex_unlock(&hash->lock);
}

uint64_t pull_hash_done(struct pull_hash *hash)
{
    pthread_mutex_lock(&hash->lock);
    const uint64_t done = hash->done;
    pthread_mutex_unlock(&hash->lock);
    return done;
}

bool pull_hash_wait(struct pull_hash *hash, uint32_t ms)
{
    const uint64_t until_ns = clock_now_ns() + ms * UINT64_C(1000000);
    pthread_mutex_lock(&hash->lock);
    while (hash->done < hash->size && !hash->has_failed &&
           timed_wait(&hash->changed, &hash->lock, until_ns))
        ;
    const bool is_through = hash->done == hash->size || hash->has_failed;
    pthread_mutex_unlock(&hash->lock);
    return is_through;
}

bool pull_hash_close(struct pull_hash *hash, struct digest *out)
{
    if (!hash)
        return false;
    pthread_mutex_lock(&hash->lock);
    hash->is_given_up = true;
    pthread_cond_broadcast(&hash->changed);
    pthread_mutex_unlock(&hash->lock);
    pthread_join(hash->thread, NULL);
    const bool is_whole = hash->done == hash->size && !hash->has_failed;
    const enum error_code code = digest_run_end(&hash->run, is_whole ? out : NULL, NULL);
    pthread_cond_destroy(&hash->changed);
    pthread_mutex_destroy(&hash->lock);
    mem_free(hash);
    return is_whole && !code;
}
