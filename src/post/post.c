#include "post/post_impl.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/timed_wait.h"

#include <assert.h>
#include <signal.h>
#include <string.h>

static pthread_once_t post_curl_once = PTHREAD_ONCE_INIT;
static bool post_has_curl;

static void post_begin_curl(void)
{
    post_has_curl = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
}

/* ---- the queue, under the lock --------------------------------------------------------------- */

static void post_remove_first(struct post *post)
{
    struct post_message *message = post->queue;
    assert(message && post->stats.queued >= message->n && post->queue_bytes >= message->body.size);
    post->queue = message->next;
    if (!post->queue)
        post->queue_end = &post->queue;
    post->stats.queued -= message->n;
    post->queue_bytes -= message->body.size;
    buffer_deinit(&message->body);
    mem_free(message);
}

bool post_send(struct post *post, struct buffer *body)
{
    struct post_message *message = body->failed ? NULL : mem_new(sizeof *message);
    pthread_mutex_lock(&post->lock);
    const bool has_room = message && !post->closing &&
                          post->stats.queued < post->options.queue_max &&
                          post->queue_bytes + body->size <= post->options.queue_bytes;
    if (has_room) {
        message->body = *body;
        message->n = 1;
        *body = (struct buffer){0};
        *post->queue_end = message;
        post->queue_end = &message->next;
        post->stats.queued++;
        post->queue_bytes += message->body.size;
        pthread_cond_signal(&post->wake);
    } else {
        post->stats.dropped++;
    }
    pthread_mutex_unlock(&post->lock);
    if (!has_room)
        mem_free(message);
    buffer_deinit(body);
    return has_room;
}

/* What has come meanwhile goes along with the first, as far as that is possible. */
static void post_join_first(struct post *post)
{
    struct post_message *first = post->queue, *next;
    while (post->options.join && (next = first->next) != NULL) {
        const size_t before = first->body.size;
        if (!post->options.join(&first->body, &next->body))
            return;
        assert(!first->body.failed);
        post->queue_bytes += first->body.size - before - next->body.size;
        first->n += next->n;
        first->next = next->next;
        if (!first->next)
            post->queue_end = &first->next;
        buffer_deinit(&next->body);
        mem_free(next);
    }
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* Under the lock, which it gives up meanwhile. False: it is being closed. */
static bool post_pause(struct post *post, uint64_t pause_ms)
{
    const uint64_t end_ns = clock_now_ns() + pause_ms * 1000000;
    while (!post->closing && clock_now_ns() < end_ns)
        timed_wait(&post->wake, &post->lock, end_ns);
    return !post->closing;
}

/* Attempts until it is decided what becomes of the first message. Under the lock. */
static enum post_outcome post_deliver_first(struct post *post)
{
    const struct post_message *message = post->queue;
    uint64_t pause_ms = post->options.pause_ms;
    for (uint32_t attempt = 1;; attempt++) {
        pthread_mutex_unlock(&post->lock);
        const enum post_outcome outcome = post_attempt(post, &message->body);
        pthread_mutex_lock(&post->lock);
        if (outcome != POST_AGAIN || attempt == post->options.attempts ||
            !post_pause(post, pause_ms))
            return outcome;
        post->stats.retries++;
        pause_ms =
            2 * pause_ms < post->options.pause_ms_max ? 2 * pause_ms : post->options.pause_ms_max;
    }
}

static bool post_is_out_of_time(const struct post *post)
{
    return post->closing && clock_now_ns() >= atomic_load(&post->give_up_ns);
}

/* A connection that the other end has closed: OpenSSL writes to it without MSG_NOSIGNAL. */
static void post_block_signals(void)
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
}

static void *post_run(void *arg)
{
    struct post *post = arg;
    post_block_signals();
    pthread_mutex_lock(&post->lock);
    for (;;) {
        while (!post->queue && !post->closing)
            pthread_cond_wait(&post->wake, &post->lock);
        if (!post->queue || post_is_out_of_time(post))
            break;
        post_join_first(post);
        post->stats.requests++;
        if (post_deliver_first(post) == POST_ARRIVED) {
            post->stats.sent += post->queue->n;
        } else {
            post->stats.given_up += post->queue->n;
            log_line(LOG_WARN, "post", "a message to %s was given up (%llu so far)", post->host,
                     (unsigned long long)post->stats.given_up);
        }
        post_remove_first(post);
    }
    while (post->queue) {
        post->stats.dropped += post->queue->n;
        post_remove_first(post);
    }
    pthread_mutex_unlock(&post->lock);
    return NULL;
}

/* ---- opening and closing --------------------------------------------------------------------- */

static uint32_t post_or(uint32_t value, uint32_t standard)
{
    return value ? value : standard;
}

static void post_free(struct post *post)
{
    if (post->curl)
        curl_easy_cleanup(post->curl);
    curl_slist_free_all(post->headers);
    pthread_cond_destroy(&post->wake);
    pthread_mutex_destroy(&post->lock);
    mem_free((char *)post->options.url);
    mem_free((char *)post->options.content_type);
    mem_free((char *)post->options.authorization);
    mem_free((char *)post->options.ca_path);
    mem_free(post->host);
    mem_free(post);
}

static const char *post_copy(const char *text, bool *failed)
{
    const char *copy = text ? mem_copy_text(text, strlen(text)) : NULL;
    *failed |= text && !copy;
    return copy;
}

static bool post_fill(struct post *post, const struct post_options *given)
{
    struct post_options *options = &post->options;
    bool failed = false;
    *options = (struct post_options){
        .url = post_copy(given->url, &failed),
        .content_type =
            post_copy(given->content_type ? given->content_type : "application/json", &failed),
        .authorization = post_copy(given->authorization, &failed),
        .sign = given->sign,
        .sign_self = given->sign_self,
        .join = given->join,
        .ca_path = post_copy(given->ca_path, &failed),
        .queue_max = post_or(given->queue_max, POST_QUEUE),
        .queue_bytes = given->queue_bytes ? given->queue_bytes : POST_QUEUE_BYTES,
        .timeout_ms = post_or(given->timeout_ms, POST_TIMEOUT_MS),
        .attempts = post_or(given->attempts, POST_ATTEMPTS),
        .pause_ms = post_or(given->pause_ms, POST_PAUSE_MS),
        .pause_ms_max = post_or(given->pause_ms_max, POST_PAUSE_MS_MAX),
    };
    return !failed;
}

enum error_code post_open(const struct post_options *options, struct post **out, struct error *err)
{
    pthread_once(&post_curl_once, post_begin_curl);
    if (!post_has_curl)
        return error_set(err, ERROR_INTERNAL, "libcurl cannot begin");
    struct post *post = mem_new(sizeof *post);
    if (!post)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory to send messages");
    pthread_mutex_init(&post->lock, NULL);
    timed_wait_init(&post->wake);
    post->queue_end = &post->queue;
    enum error_code code = post_url_host(options->url, &post->host, err);
    if (!code && !post_fill(post, options))
        code = error_set(err, ERROR_NO_MEMORY, "not enough memory to send messages");
    if (!code)
        code = post_prepare(post, err);
    if (!code && pthread_create(&post->thread, NULL, post_run, post))
        code = error_set(err, ERROR_IO, "cannot start a thread to send messages");
    if (code) {
        post_free(post);
        return code;
    }
    post->has_thread = true;
    *out = post;
    return ERROR_NONE;
}

struct post_stats post_stats(struct post *post)
{
    pthread_mutex_lock(&post->lock);
    const struct post_stats stats = post->stats;
    pthread_mutex_unlock(&post->lock);
    return stats;
}

const char *post_host(const struct post *post)
{
    return post->host;
}

void post_close(struct post *post, uint32_t linger_ms)
{
    if (!post)
        return;
    assert(post->has_thread);
    pthread_mutex_lock(&post->lock);
    atomic_store(&post->give_up_ns, clock_now_ns() + UINT64_C(1000000) * linger_ms + 1);
    post->closing = true;
    pthread_cond_signal(&post->wake);
    pthread_mutex_unlock(&post->lock);
    pthread_join(post->thread, NULL);
    post_free(post);
}
