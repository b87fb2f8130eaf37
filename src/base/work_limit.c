#include "base/work_limit.h"

#include <assert.h>
#include <time.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

enum {
    ASK_CLOCK_EVERY = 256,     /* calls of work_limit_goes_on() */
    SMALL_BYTES = 1024 * 1024, /* work of more than this leaves … */
    RESERVE_SHARE = 16,        /* … this part of the total to smaller work */
};

static _Thread_local struct work_limit *current;

size_t work_limit_size_of(void *memory)
{
#ifdef __GLIBC__
    return memory ? malloc_usable_size(memory) : 0;
#else
    (void)memory;
    return 0;
#endif
}

static uint64_t work_limit_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void work_limit_join(struct work_limit *limit)
{
    assert(!current);
    current = limit;
}

void work_limit_enter(struct work_limit *limit)
{
    limit->cpu_end_ns = limit->cpu_ns_max ? work_limit_clock_ns() + limit->cpu_ns_max : UINT64_MAX;
    limit->n_asked = 0;
    work_limit_join(limit);
}

void work_limit_enter_untimed(struct work_limit *limit)
{
    limit->cpu_end_ns = UINT64_MAX;
    work_limit_join(limit);
}

void work_limit_leave(void)
{
    current = NULL;
}

struct work_limit *work_limit_current(void)
{
    return current;
}

void work_limit_cancel(struct work_limit *limit)
{
    atomic_store_explicit(&limit->cancelled, true, memory_order_relaxed);
}

bool work_limit_goes_on(void)
{
    struct work_limit *limit = current;
    if (!limit)
        return true;
    if (limit->stop)
        return false;
    if (atomic_load_explicit(&limit->cancelled, memory_order_relaxed))
        limit->stop = WORK_CANCELLED;
    else if (++limit->n_asked % ASK_CLOCK_EVERY == 0 && work_limit_clock_ns() > limit->cpu_end_ns)
        limit->stop = WORK_TOO_LONG;
    return !limit->stop;
}

void memory_total_add(struct memory_total *total, int64_t bytes)
{
    const int64_t used = atomic_fetch_add_explicit(&total->used, bytes, memory_order_relaxed);
    int64_t peak = atomic_load_explicit(&total->peak, memory_order_relaxed);
    while (used + bytes > peak &&
           !atomic_compare_exchange_weak_explicit(&total->peak, &peak, used + bytes,
                                                  memory_order_relaxed, memory_order_relaxed)) {
    }
}

uint64_t memory_total_used(const struct memory_total *total)
{
    const int64_t used = atomic_load_explicit(&total->used, memory_order_relaxed);
    return used > 0 ? (uint64_t)used : 0;
}

static bool work_limit_has_room(struct work_limit *limit, int64_t more)
{
    const struct memory_total *total = limit->total;
    const bool is_small = limit->bytes + more <= SMALL_BYTES;
    const uint64_t reserve = is_small ? 0 : total->limit / RESERVE_SHARE;
    if (limit->bytes + more > (int64_t)limit->bytes_max)
        limit->stop = WORK_TOO_LARGE;
    else if (memory_total_used(total) + (uint64_t)more > total->limit - reserve)
        limit->stop = WORK_NO_ROOM;
    return !limit->stop;
}

bool work_limit_charge(size_t from, size_t to)
{
    struct work_limit *limit = current;
    const int64_t more = (int64_t)to - (int64_t)from;
    if (!limit || !limit->total)
        return true;
    if (more > 0 && (!work_limit_goes_on() || !work_limit_has_room(limit, more)))
        return false;
    work_limit_correct(more);
    return true;
}

void work_limit_correct(int64_t bytes)
{
    struct work_limit *limit = current;
    if (!limit || !limit->total)
        return;
    limit->bytes += bytes;
    memory_total_add(limit->total, bytes);
}

size_t work_limit_adopt(struct work_limit *limit, void *memory)
{
    const size_t size = work_limit_size_of(memory);
    limit->bytes += (int64_t)size;
    memory_total_add(limit->total, (int64_t)size);
    return size;
}

size_t work_limit_hand_over(struct work_limit *limit, void *memory)
{
    const size_t size = work_limit_size_of(memory);
    limit->bytes -= (int64_t)size;
    memory_total_add(limit->total, -(int64_t)size);
    return size;
}

void work_limit_end(struct work_limit *limit)
{
    if (limit->total)
        memory_total_add(limit->total, -limit->bytes);
    limit->bytes = 0;
}
