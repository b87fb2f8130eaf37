#include "api/loop_watch.h"

#include "api/metrics.h"
#include "base/clock.h"
#include "base/mem.h"

#include <uv.h>

struct loop_watch {
    uv_prepare_t prepare; /* before each wait; first: libuv gives it back */
    struct metrics *metrics;
    uint64_t before_ns; /* 0: not yet */
};

static void loop_watch_on_prepare(uv_prepare_t *prepare)
{
    struct loop_watch *watch = (struct loop_watch *)prepare;
    const uint64_t now_ns = clock_thread_ns();
    if (watch->before_ns)
        metrics_loop_turned(watch->metrics, now_ns - watch->before_ns);
    watch->before_ns = now_ns;
}

static void loop_watch_on_closed(uv_handle_t *handle)
{
    mem_free(handle);
}

struct loop_watch *loop_watch_open(void *uv_loop, struct metrics *metrics)
{
    struct loop_watch *watch = mem_new(sizeof *watch);
    if (!watch)
        return NULL;
    watch->metrics = metrics;
    uv_prepare_init(uv_loop, &watch->prepare);
    uv_prepare_start(&watch->prepare, loop_watch_on_prepare);
    uv_unref((uv_handle_t *)&watch->prepare); /* it keeps no loop alive */
    return watch;
}

void loop_watch_close(struct loop_watch *watch)
{
    if (watch)
        uv_close((uv_handle_t *)&watch->prepare, loop_watch_on_closed);
}
