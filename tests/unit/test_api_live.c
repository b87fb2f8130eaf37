/* GET /api/live with a view that changes faster than a client reads: the client gets what was on
 * its way, then one whole view, and never more memory than that; who reads gets every change. */
#include "api_world.h"

#include "base/live_feed.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#include <cmocka.h>

enum {
    PAD_BYTES = 8192,
    OFFERED = 6000, /* changes: 48 MiB */
    OF_ONE_TURN = 4,
    SMALL_BYTES = 128 * 1024, /* of the receiving end; less would be slow on the loopback */
    STEP = 6,                 /* less than LIVE_BEHIND_BYTES: who reads is never behind */
    /* What may be on its way: the kernel's buffers of both ends, and LIVE_BEHIND_BYTES. */
    KEPT_BYTES_MAX = 16 * 1024 * 1024,
};

/* ---- a feed whose view is a number and a pad ------------------------------------------------- */

static struct {
    struct live_watcher *watchers;
    uv_timer_t timer;
    atomic_uint left; /* changes that are to be made, by the test's thread */
    atomic_uint made;
    atomic_uint n_watching;
} feed;

static char pad[PAD_BYTES + 1];

static void feed_watch(void *self, struct live_watcher *watcher)
{
    (void)self;
    watcher->next = feed.watchers;
    feed.watchers = watcher;
    atomic_fetch_add(&feed.n_watching, 1);
}

static void feed_unwatch(void *self, struct live_watcher *watcher)
{
    struct live_watcher **at = &feed.watchers;
    (void)self;
    while (*at != watcher)
        at = &(*at)->next;
    *at = watcher->next;
    atomic_fetch_sub(&feed.n_watching, 1);
}

static void feed_view(void *self, struct buffer *out)
{
    (void)self;
    buffer_printf(out, "{\"whole\":%u}", atomic_load(&feed.made));
}

static void feed_events(void *self, uint32_t n,
                        void (*each)(void *arg, const char *event, size_t size), void *arg)
{
    (void)self, (void)n, (void)each, (void)arg;
}

static void feed_turn(uv_timer_t *timer)
{
    static char patch[PAD_BYTES + 64];
    (void)timer;
    for (int i = 0; i < OF_ONE_TURN && atomic_load(&feed.left); i++) {
        const int size = snprintf(patch, sizeof patch, "{\"n\":%u,\"pad\":\"%s\"}",
                                  atomic_fetch_add(&feed.made, 1) + 1, pad);
        for (struct live_watcher *at = feed.watchers, *next; at; at = next) {
            next = at->next;
            at->changed(at, patch, (size_t)size);
        }
        atomic_fetch_sub(&feed.left, 1);
    }
}

static enum error_code feed_open(void *arg, void *loop, struct error *err)
{
    (void)arg, (void)err;
    uv_timer_init(loop, &feed.timer);
    uv_timer_start(&feed.timer, feed_turn, 1, 1);
    return ERROR_NONE;
}

static void feed_stop(void *arg, void (*stopped)(void *node), void *node)
{
    (void)arg;
    stopped(node);
}

static void feed_close(void *arg)
{
    (void)arg;
    uv_close((uv_handle_t *)&feed.timer, NULL);
}

static void feed_free(void *arg)
{
    (void)arg;
}

/* ---- clients --------------------------------------------------------------------------------- */

/* Reads the stream up to the event that says `text`; what came, chunks and all. */
static struct buffer read_until(int fd, const char *text)
{
    struct buffer seen = {0};
    char bytes[65536];
    for (size_t from = 0;
         !seen.size || !memmem(seen.data + from, seen.size - from, text, strlen(text));) {
        from = seen.size > 256 ? seen.size - 256 : 0;
        const ssize_t n = recv(fd, bytes, sizeof bytes, 0);
        if (n <= 0)
            fail_msg("the stream ended before %s", text);
        buffer_append(&seen, bytes, (size_t)n);
    }
    assert_false(seen.failed);
    return seen;
}

static int watch_from(int buffer_bytes)
{
    const int fd = api_connect();
    if (buffer_bytes)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer_bytes, sizeof buffer_bytes);
    api_send_text(fd, "GET /api/live HTTP/1.1\r\nHost: localhost\r\n\r\n");
    struct buffer first = read_until(fd, "{\"whole\":");
    buffer_deinit(&first);
    return fd;
}

/* How often `text` is in it. */
static unsigned count_of(const struct buffer *buffer, const char *text)
{
    unsigned n = 0;
    const char *at = buffer->data, *end = buffer->data + buffer->size;
    while ((at = memmem(at, (size_t)(end - at), text, strlen(text)))) {
        at += strlen(text);
        n++;
    }
    return n;
}

/* A view of change `n`, or of a later one. */
static bool has_whole_view(const struct buffer *buffer, unsigned n)
{
    static const char begin[] = "{\"whole\":";
    const char *at = buffer->data, *end = buffer->data + buffer->size;
    while ((at = memmem(at, (size_t)(end - at), begin, sizeof begin - 1))) {
        at += sizeof begin - 1;
        if (memchr(at, '}', (size_t)(end - at)) && strtoul(at, NULL, 10) >= n)
            return true;
    }
    return false;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static int setup(void **state)
{
    static const struct node_service service = {"feed",     feed_open, feed_stop,
                                                feed_close, feed_free, NULL};
    static struct fake_model model;
    (void)state;
    memset(pad, 'x', PAD_BYTES);
    fake_model_init(&model, "fake-model", "fake", FAKE_VOCAB, NULL);
    api_world_live((struct live_feed){
        .watch = feed_watch, .unwatch = feed_unwatch, .view = feed_view, .events = feed_events});
    api_world_start_with(api_models_of_one(&model.api), 0, &service);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    api_world_stop();
    return 0;
}

static void offer(unsigned changes)
{
    atomic_fetch_add(&feed.left, changes);
}

static void test_a_slow_reader_gets_a_whole_view(void **state)
{
    (void)state;
    char last[32];
    const int slow = watch_from(SMALL_BYTES), quick = watch_from(0);
    for (unsigned made = STEP; made <= OFFERED; made += STEP) {
        offer(STEP);
        snprintf(last, sizeof last, "{\"n\":%u,", made);
        struct buffer all = read_until(quick, last); /* not kept waiting by who does not read */
        assert_int_equal(count_of(&all, "event: change"), STEP);
        assert_int_equal(count_of(&all, "event: snapshot"), 0);
        buffer_deinit(&all);
    }

    /* Only now does the slow one read. A change finds that it has read all, and it gets the view.
     */
    struct buffer kept = {0};
    char bytes[65536];
    for (bool is_whole = false; !is_whole;) {
        struct pollfd wait = {.fd = slow, .events = POLLIN};
        offer(1);
        if (!poll(&wait, 1, 20))
            continue;
        const ssize_t n = recv(slow, bytes, sizeof bytes, 0);
        assert_true(n > 0);
        buffer_append(&kept, bytes, (size_t)n);
        assert_true(kept.size < KEPT_BYTES_MAX);
        is_whole = has_whole_view(&kept, OFFERED);
    }
    const unsigned n_changes = count_of(&kept, "event: change");
    assert_true(n_changes < OFFERED / 2);
    print_message("# %d changes of %d bytes: %zu bytes were kept, %u changes\n", OFFERED, PAD_BYTES,
                  kept.size, n_changes);
    buffer_deinit(&kept);

    /* From there on it follows again. */
    while (atomic_load(&feed.left))
        usleep(1000);
    snprintf(last, sizeof last, "{\"n\":%u,", atomic_load(&feed.made) + 1);
    offer(1);
    struct buffer more = read_until(slow, last);
    buffer_deinit(&more);
    close(slow);
    close(quick);
}

static void test_one_that_never_reads_goes(void **state)
{
    (void)state;
    const int fd = watch_from(SMALL_BYTES);
    offer(OFFERED / 4);
    while (atomic_load(&feed.left))
        usleep(1000);
    close(fd); /* with all of that unread */
    for (int i = 0; i < 1000 && atomic_load(&feed.n_watching); i++) {
        offer(1);
        usleep(5000);
    }
    assert_int_equal(atomic_load(&feed.n_watching), 0);
    close(watch_from(0)); /* the next is served */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_slow_reader_gets_a_whole_view),
        cmocka_unit_test(test_one_that_never_reads_goes),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
