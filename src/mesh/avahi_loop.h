/* Avahi's main loop interface on a libuv loop.
 *
 * Use on the loop's thread. avahi_loop_close() comes after everything of Avahi that uses it has
 * been freed; `closed` is called when libuv has taken all handles back. */
#pragma once

#include <avahi-common/watch.h>
#include <uv.h>

struct avahi_loop {
    AvahiPoll poll; /* what Avahi takes */
    uv_loop_t *loop;
    unsigned n_handles;
    void (*closed)(void *arg);
    void *arg;
};

void avahi_loop_init(struct avahi_loop *avahi_loop, uv_loop_t *loop);
void avahi_loop_close(struct avahi_loop *avahi_loop, void (*closed)(void *arg), void *arg);
