/* The connections of a pull, until all pieces are here. */
#include "base/clock.h"
#include "base/log.h"
#include "hub/pull_impl.h"

#include <assert.h>
#include <string.h>

enum { PULL_POLL_MS = 100 };
#define PULL_MS UINT64_C(1000000)

void pull_report(struct pull *pull, uint64_t done, bool is_checking)
{
    const uint64_t now_ns = clock_now_ns();
    if (now_ns - pull->reported_ns < PULL_REPORT_MS * PULL_MS)
        return;
    pull->reported_ns = now_ns;
    if (now_ns - pull->rate_ns >= 1000 * PULL_MS) { /* the mean of about five seconds */
        const double seconds = (double)(now_ns - pull->rate_ns) * 1e-9;
        const double speed = (double)(pull->received - pull->rate_bytes) / seconds;
        const bool is_first = pull->bytes_per_s <= 0;
        pull->bytes_per_s += (speed - pull->bytes_per_s) * (is_first ? 1 : 0.2);
        pull->rate_ns = now_ns;
        pull->rate_bytes = pull->received;
    }
    const struct pull_progress progress = {.what = pull->order->what,
                                           .done = done,
                                           .size = pull->state.size,
                                           .received = pull->received,
                                           .bytes_per_s = is_checking ? 0 : pull->bytes_per_s,
                                           .is_checking = is_checking};
    if (pull->watch && pull->watch->each)
        pull->watch->each(pull->watch->arg, &progress);
    if (pull->wish)
        pull->wish->each(pull->wish->arg, &pull->state, pull->bytes_per_s);
}

/* With a wish, spans are short: what is not asked for yet may be given to somebody else. */
static bool pull_run_next(struct pull *pull, struct pull_span *out)
{
    const struct pull_state *state = &pull->state;
    const bool *asked = pull->asked;
    if (pull->wish) {
        for (uint32_t i = 0; i < state->n_pieces; i++)
            pull->skipped[i] = pull->asked[i] || !atomic_load(&pull->wish->wanted[i]);
        asked = pull->skipped;
    }
    if (!pull_span_next(state, asked, pull->n_streams, out))
        return false;
    while (pull->wish && out->end - out->first > 1 && out->to - out->from > PULL_WISH_SPAN_BYTES) {
        out->end--;
        out->to = out->end * state->piece;
    }
    return true;
}

static bool pull_run_goes_on(const struct pull *pull)
{
    return pull->wish ? !atomic_load(&pull->wish->stop)
                      : pull_state_done(&pull->state) < pull->state.size;
}

static enum error_code pull_run_start(struct pull *pull, struct error *err)
{
    const uint64_t now_ns = clock_now_ns();
    struct pull_span span;
    enum error_code code = ERROR_NONE;
    for (uint32_t i = 0; i < pull->n_streams && !code; i++) {
        struct pull_stream *stream = &pull->streams[i];
        if (stream->is_busy || now_ns < stream->not_before_ns)
            continue;
        if (!pull_run_next(pull, &span))
            return ERROR_NONE;
        if (!pull->has_ranges) { /* the whole, from its start */
            assert(pull->n_streams == 1);
            for (uint32_t piece = 0; piece < pull->state.n_pieces; piece++)
                pull_disk_forget(&pull->disk, &pull->state, piece);
            span = (struct pull_span){0, pull->state.n_pieces, 0, pull->state.size};
        }
        code = pull_stream_start(stream, &span, err);
    }
    return code;
}

/* Everybody waits who was told to by one of them; the others were not answered at all. */
static enum error_code pull_run_pause(struct pull *pull, struct pull_stream *stream, CURLcode came,
                                      struct error *err)
{
    const uint32_t retry_after_s = stream->head.retry_after_s;
    const uint32_t attempts = pull->order->attempts ? pull->order->attempts : PULL_ATTEMPTS;
    const struct http_get get = {.url = pull->order->url,
                                 .place = &pull->order->place,
                                 .head = &stream->head,
                                 .problem = stream->problem};
    if (pull->received > pull->received_at_failure)
        pull->failures = 0;
    pull->received_at_failure = pull->received;
    if (++pull->failures >= attempts * pull->n_streams) {
        if (stream->flaw == PULL_ODD)
            return error_set(err, ERROR_IO,
                             "%s: the server answers with other bytes than it is "
                             "asked for",
                             pull->order->what);
        return http_explain(came, &get, pull->order->what, err);
    }
    const uint32_t attempt = 1 + (pull->failures - 1) / pull->n_streams;
    const uint64_t until_ns = clock_now_ns() + http_pause_ms(attempt, retry_after_s) * PULL_MS;
    stream->not_before_ns = until_ns;
    for (uint32_t i = 0; i < pull->n_streams && retry_after_s; i++) {
        if (pull->streams[i].not_before_ns < until_ns)
            pull->streams[i].not_before_ns = until_ns;
    }
    log_line(LOG_INFO, "hub", "%s: %s; once more", pull->order->what,
             came ? curl_easy_strerror(came) : "turned away");
    return ERROR_NONE;
}

static enum error_code pull_run_judge(struct pull *pull, struct pull_stream *stream, CURLcode came,
                                      struct error *err)
{
    const long status = stream->head.status;
    const struct http_get get = {.url = stream->is_direct ? pull->direct : pull->order->url,
                                 .place = &stream->place,
                                 .head = &stream->head,
                                 .problem = stream->problem};
    if (stream->flaw == PULL_DISK) {
        *err = pull->err;
        return err->code;
    }
    if (stream->flaw == PULL_CHANGED || (!came && status == 416))
        return error_set(err, ERROR_CANCELLED,
                         "%s changed on the server while it was pulled; pull "
                         "it again",
                         pull->order->what);
    if (!came && stream->at == stream->span.to)
        return ERROR_NONE;
    enum http_outcome outcome = stream->flaw == PULL_ODD ? HTTP_AGAIN : http_judge(came, status);
    if (outcome == HTTP_FINE)
        outcome = HTTP_AGAIN; /* it ended early */
    if (outcome == HTTP_HOPELESS && stream->is_direct) {
        pull->direct[0] = '\0'; /* such addresses are good for some time only */
        outcome = HTTP_AGAIN;
    }
    return outcome == HTTP_HOPELESS ? http_explain(came, &get, pull->order->what, err)
                                    : pull_run_pause(pull, stream, came, err);
}

/* Where redirects led the first answer, the next questions go at once. */
static void pull_run_remember(struct pull *pull, const struct pull_stream *stream)
{
    char *url = NULL, here[HTTP_HOST], there[HTTP_HOST];
    if (stream->is_direct || curl_easy_getinfo(stream->easy, CURLINFO_EFFECTIVE_URL, &url) || !url)
        return;
    http_url_host(pull->order->url, here);
    http_url_host(url, there);
    if (strcmp(here, there) != 0 && strlen(url) < sizeof pull->direct && pull->has_ranges &&
        http_url_is_private(url))
        memcpy(pull->direct, url, strlen(url) + 1);
}

static enum error_code pull_run_collect(struct pull *pull, struct error *err)
{
    enum error_code code = ERROR_NONE;
    CURLMsg *message;
    int left;
    while (!code && (message = curl_multi_info_read(pull->multi, &left))) {
        struct pull_stream *stream = NULL;
        if (message->msg != CURLMSG_DONE)
            continue;
        const CURLcode came = message->data.result;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&stream);
        if (!came && stream->head.status == 206)
            pull_run_remember(pull, stream);
        pull_stream_stop(stream);
        code = pull_run_judge(pull, stream, came, err);
    }
    return code;
}

static enum error_code pull_run_sync(struct pull *pull, struct error *err)
{
    const uint64_t now_ns = clock_now_ns();
    if (!pull->disk.unsynced || now_ns - pull->synced_ns < PULL_SYNC_MS * PULL_MS)
        return ERROR_NONE;
    const enum error_code code = pull_disk_sync(&pull->disk, &pull->state, err);
    pull->synced_ns = clock_now_ns();
    return code;
}

static void pull_run_hash(struct pull *pull)
{
    const struct pull_state *state = &pull->state;
    if (!pull->hash)
        return;
    while (pull->n_whole < state->n_pieces &&
           state->have[pull->n_whole] == pull_piece_size(state, pull->n_whole))
        pull->n_whole++;
    const uint64_t bytes = pull->n_whole * state->piece;
    pull_hash_reach(pull->hash, bytes < state->size ? bytes : state->size);
}

enum error_code pull_run(struct pull *pull, struct error *err)
{
    enum error_code code = ERROR_NONE;
    int running;
    pull->synced_ns = pull->rate_ns = clock_now_ns();
    pull->rate_bytes = pull->received;
    while (!code && pull_run_goes_on(pull)) {
        code = pull_run_start(pull, err);
        if (!code && (curl_multi_perform(pull->multi, &running) ||
                      curl_multi_poll(pull->multi, NULL, 0, PULL_POLL_MS, NULL)))
            code = error_set(err, ERROR_INTERNAL, "libcurl cannot wait for its connections");
        if (!code)
            code = pull_run_collect(pull, err);
        if (!code)
            code = pull_run_sync(pull, err);
        pull_run_hash(pull);
        pull_report(pull, pull_state_done(&pull->state), false);
    }
    pull_run_hash(pull);
    for (uint32_t i = 0; i < pull->n_streams; i++)
        pull_stream_stop(&pull->streams[i]);
    /* Also when it failed: what came counts. */
    struct error ignored;
    const enum error_code synced = pull_disk_sync(&pull->disk, &pull->state, code ? &ignored : err);
    return code ? code : synced;
}
