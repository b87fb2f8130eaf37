#include "mesh/avahi_loop.h"

#include "base/log.h"
#include "base/mem.h"

#include <avahi-common/timeval.h>
#include <fcntl.h>
#include <unistd.h>

struct AvahiWatch {
    uv_poll_t handle; /* first: the handle is the watch */
    struct avahi_loop *avahi_loop;
    int fd;     /* as Avahi knows it */
    int own_fd; /* the same file: libuv takes a descriptor once, D-Bus watches one twice */
    AvahiWatchEvent happened;
    AvahiWatchCallback callback;
    void *userdata;
};

struct AvahiTimeout {
    uv_timer_t handle;
    struct avahi_loop *avahi_loop;
    AvahiTimeoutCallback callback;
    void *userdata;
};

static void handle_is_closed(struct avahi_loop *avahi_loop)
{
    if (--avahi_loop->n_handles == 0 && avahi_loop->closed)
        avahi_loop->closed(avahi_loop->arg);
}

/* ---- files ---------------------------------------------------------------------------- */

static void on_watch_closed(uv_handle_t *handle)
{
    struct AvahiWatch *watch = (struct AvahiWatch *)handle;
    struct avahi_loop *avahi_loop = watch->avahi_loop;
    close(watch->own_fd);
    mem_free(watch);
    handle_is_closed(avahi_loop);
}

static void avahi_loop_on_poll(uv_poll_t *handle, int status, int events)
{
    struct AvahiWatch *watch = (struct AvahiWatch *)handle;
    unsigned happened = 0;
    if (status < 0)
        happened |= AVAHI_WATCH_ERR;
    if (events & UV_READABLE)
        happened |= AVAHI_WATCH_IN;
    if (events & UV_WRITABLE)
        happened |= AVAHI_WATCH_OUT;
    if (events & UV_DISCONNECT)
        happened |= AVAHI_WATCH_HUP;
    watch->happened = (AvahiWatchEvent)happened;
    watch->callback(watch, watch->fd, watch->happened, watch->userdata);
}

static void watch_update(AvahiWatch *watch, AvahiWatchEvent event)
{
    int events = UV_DISCONNECT;
    events |= event & AVAHI_WATCH_IN ? UV_READABLE : 0;
    events |= event & AVAHI_WATCH_OUT ? UV_WRITABLE : 0;
    if (events == UV_DISCONNECT) /* the other end's closing would be told for ever */
        uv_poll_stop(&watch->handle);
    else
        uv_poll_start(&watch->handle, events, avahi_loop_on_poll);
}

static AvahiWatch *watch_new(const AvahiPoll *api, int fd, AvahiWatchEvent event,
                             AvahiWatchCallback callback, void *userdata)
{
    struct avahi_loop *avahi_loop = api->userdata;
    struct AvahiWatch *watch = mem_new(sizeof *watch);
    if (!watch)
        return NULL;
    *watch = (struct AvahiWatch){
        .avahi_loop = avahi_loop, .fd = fd, .callback = callback, .userdata = userdata};
    watch->own_fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (watch->own_fd < 0 || uv_poll_init(avahi_loop->loop, &watch->handle, watch->own_fd)) {
        if (watch->own_fd >= 0)
            close(watch->own_fd);
        mem_free(watch);
        return NULL;
    }
    avahi_loop->n_handles++;
    watch_update(watch, event);
    return watch;
}

static AvahiWatchEvent watch_get_events(AvahiWatch *watch)
{
    return watch->happened;
}

static void watch_free(AvahiWatch *watch)
{
    uv_close((uv_handle_t *)&watch->handle, on_watch_closed);
}

/* ---- time ----------------------------------------------------------------------------- */

static void on_timeout_closed(uv_handle_t *handle)
{
    struct AvahiTimeout *timeout = (struct AvahiTimeout *)handle;
    struct avahi_loop *avahi_loop = timeout->avahi_loop;
    mem_free(timeout);
    handle_is_closed(avahi_loop);
}

static void avahi_loop_on_timer(uv_timer_t *handle)
{
    struct AvahiTimeout *timeout = (struct AvahiTimeout *)handle;
    timeout->callback(timeout, timeout->userdata);
}

static void timeout_update(AvahiTimeout *timeout, const struct timeval *at)
{
    if (!at) {
        uv_timer_stop(&timeout->handle);
        return;
    }
    AvahiUsec age_us = avahi_age(at); /* negative: in the future */
    uint64_t wait_ms = age_us < 0 ? (uint64_t)(-age_us + 999) / 1000 : 0;
    uv_update_time(timeout->avahi_loop->loop);
    uv_timer_start(&timeout->handle, avahi_loop_on_timer, wait_ms, 0);
}

static AvahiTimeout *timeout_new(const AvahiPoll *api, const struct timeval *at,
                                 AvahiTimeoutCallback callback, void *userdata)
{
    struct avahi_loop *avahi_loop = api->userdata;
    struct AvahiTimeout *timeout = mem_new(sizeof *timeout);
    if (!timeout)
        return NULL;
    *timeout =
        (struct AvahiTimeout){.avahi_loop = avahi_loop, .callback = callback, .userdata = userdata};
    uv_timer_init(avahi_loop->loop, &timeout->handle);
    avahi_loop->n_handles++;
    timeout_update(timeout, at);
    return timeout;
}

static void timeout_free(AvahiTimeout *timeout)
{
    uv_close((uv_handle_t *)&timeout->handle, on_timeout_closed);
}

void avahi_loop_init(struct avahi_loop *avahi_loop, uv_loop_t *loop)
{
    *avahi_loop = (struct avahi_loop){
        .poll = {.userdata = avahi_loop,
                 .watch_new = watch_new,
                 .watch_update = watch_update,
                 .watch_get_events = watch_get_events,
                 .watch_free = watch_free,
                 .timeout_new = timeout_new,
                 .timeout_update = timeout_update,
                 .timeout_free = timeout_free},
        .loop = loop,
        .n_handles = 1, /* this */
    };
}

void avahi_loop_close(struct avahi_loop *avahi_loop, void (*closed)(void *arg), void *arg)
{
    avahi_loop->closed = closed;
    avahi_loop->arg = arg;
    handle_is_closed(avahi_loop);
}
