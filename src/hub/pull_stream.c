/* One request of a pull, and whether its answer is one. */
#include "hub/pull_impl.h"

#include <assert.h>
#include <string.h>

static enum pull_flaw pull_stream_look(const struct pull_stream *stream)
{
    const struct pull *pull = stream->pull;
    const struct http_head *head = &stream->head;
    const struct pull_state *state = &pull->state;
    if (head->status == 200 && !pull->has_ranges && stream->span.from == 0)
        return head->has_length && head->length != state->size ? PULL_CHANGED : PULL_NO_FLAW;
    if (head->status != 206 || !head->has_range || head->from != stream->span.from ||
        head->to > stream->span.to)
        return PULL_ODD;
    if (head->total != state->size)
        return PULL_CHANGED;
    /* Some caches have an ETag of their own: where a hash decides, it is not asked. */
    if (!state->sha256[0] && state->etag[0] && head->etag[0] &&
        strcmp(head->etag, state->etag) != 0)
        return PULL_CHANGED;
    return PULL_NO_FLAW;
}

static bool pull_stream_take(struct pull_stream *stream, const char *bytes, size_t size)
{
    struct pull *pull = stream->pull;
    struct pull_state *state = &pull->state;
    while (size > 0 && stream->at < stream->span.to) {
        const uint32_t piece = (uint32_t)(stream->at / state->piece);
        const uint64_t room = pull_piece_size(state, piece) - state->have[piece];
        const size_t n = size < room ? size : (size_t)room;
        assert(stream->at == piece * state->piece + state->have[piece] && room > 0);
        if (pull_disk_write(&pull->disk, state, piece, bytes, n, &pull->err)) {
            stream->flaw = PULL_DISK;
            return false;
        }
        stream->at += n;
        pull->received += n;
        bytes += n;
        size -= n;
    }
    if (size > 0)
        stream->flaw = PULL_ODD; /* more than was asked for */
    return size == 0;
}

static size_t pull_stream_on_body(char *bytes, size_t size, size_t count, void *arg)
{
    struct pull_stream *stream = arg;
    const size_t n = size * count;
    if (stream->head.status < 200 || stream->head.status > 299)
        return n; /* why not, in the server's words: for nobody */
    if (!stream->is_open) {
        stream->flaw = pull_stream_look(stream);
        stream->is_open = true;
    }
    return stream->flaw == PULL_NO_FLAW && pull_stream_take(stream, bytes, n) ? n : 0;
}

enum error_code pull_stream_start(struct pull_stream *stream, const struct pull_span *span,
                                  struct error *err)
{
    struct pull *pull = stream->pull;
    const struct pull_order *order = pull->order;
    assert(!stream->is_busy);
    if (!stream->easy && !(stream->easy = curl_easy_init()))
        return error_set(err, ERROR_NO_MEMORY, "libcurl cannot begin: not enough memory");
    stream->span = *span;
    stream->at = span->from;
    stream->is_open = false;
    stream->flaw = PULL_NO_FLAW;
    stream->is_direct = pull->direct[0];
    stream->place = order->place;
    if (stream->is_direct) /* it goes to another host */
        stream->place.token[0] = '\0';
    const struct http_get get = {
        .url = stream->is_direct ? pull->direct : order->url,
        .place = &stream->place,
        .from = pull->has_ranges ? span->from : 0,
        .to = pull->has_ranges ? span->to : 0,
        .head = &stream->head,
        .headers = &stream->headers,
        .problem = stream->problem,
    };
    enum error_code code = http_prepare(stream->easy, &get, err);
    if (!code && (curl_easy_setopt(stream->easy, CURLOPT_WRITEFUNCTION, pull_stream_on_body) ||
                  curl_easy_setopt(stream->easy, CURLOPT_WRITEDATA, stream) ||
                  curl_easy_setopt(stream->easy, CURLOPT_PRIVATE, stream) ||
                  curl_multi_add_handle(pull->multi, stream->easy)))
        code = error_set(err, ERROR_INTERNAL, "libcurl takes no request");
    if (code) {
        curl_slist_free_all(stream->headers);
        stream->headers = NULL;
        return code;
    }
    stream->is_busy = true;
    for (uint32_t i = span->first; i < span->end; i++)
        pull->asked[i] = true;
    return ERROR_NONE;
}

void pull_stream_stop(struct pull_stream *stream)
{
    if (!stream->is_busy)
        return;
    curl_multi_remove_handle(stream->pull->multi, stream->easy);
    curl_slist_free_all(stream->headers);
    stream->headers = NULL;
    stream->is_busy = false;
    for (uint32_t i = stream->span.first; i < stream->span.end; i++)
        stream->pull->asked[i] = false;
}
