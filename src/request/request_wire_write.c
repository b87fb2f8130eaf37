#include "request/request_wire_format.h"
#include "request/sampler_bytes.h"

#include <assert.h>
#include <string.h>

/* Begins a message; its length is set when it ends. Returns where it begins. */
static size_t request_begin(enum request_kind kind, uint64_t id, struct buffer *run)
{
    size_t at = run->size;
    bytes_put(run, 0, REQUEST_LENGTH_BYTES);
    bytes_put(run, kind, 1);
    bytes_put(run, id, 8);
    return at;
}

static void request_end(size_t at, struct buffer *run)
{
    if (run->failed)
        return;
    size_t size = run->size - at - REQUEST_LENGTH_BYTES;
    assert(size <= LIMIT_REQUEST_BYTES);
    bytes_store((unsigned char *)run->data + at, REQUEST_LENGTH_BYTES, size);
}

static void put_error(const struct error *why, struct buffer *run)
{
    size_t size = why ? strlen(why->text) : 0;
    bytes_put(run, why ? why->code : ERROR_NONE, 2);
    bytes_put(run, size, 2);
    if (size)
        buffer_append(run, why->text, size);
}

static void put_tokens(const int32_t *tokens, uint32_t n, struct buffer *run)
{
    unsigned char *room = buffer_extend(run, (size_t)n * 4);
    for (uint32_t i = 0; room && i < n; i++)
        bytes_store(room + (size_t)i * 4, 4, (uint32_t)tokens[i]);
}

static void write_submit(uint64_t id, const char *instance, const struct request *request,
                         uint32_t flags, struct buffer *run)
{
    const struct sampler_params *sampler = &request->sampler;
    size_t name_bytes = strlen(instance);
    assert(name_bytes <= LIMIT_CLUSTER_ID_BYTES);
    size_t at = request_begin(REQUEST_SUBMIT, id, run);
    bytes_put(run, request->n_predict, 4);
    bytes_put(run,
              flags | (request->logprobs ? REQUEST_LOGPROBS : 0U) |
                  (request->want_all_logits ? REQUEST_ALL_LOGITS : 0U) |
                  (request->embeddings ? REQUEST_EMBEDDINGS : 0U),
              4);
    bytes_put(run, request->n_top_logprobs, 4);
    bytes_put(run, sampler->n_biases, 4);
    bytes_put(run, request->n_stop_tokens, 4);
    bytes_put(run, request->n_prompt, 4);
    sampler_put(sampler, run);
    bytes_put(run, name_bytes, 1);
    buffer_append(run, instance, name_bytes);
    biases_put(sampler->biases, sampler->n_biases, run);
    put_tokens(request->stop_tokens, request->n_stop_tokens, run);
    put_tokens(request->prompt, request->n_prompt, run);
    bytes_put(run, request->cache_key, 8);
    static const struct grammar_source none = {0};
    const struct grammar_source *source =
        request->constraint ? constraint_source(request->constraint) : &none;
    bytes_put(run, request->n_answered, 4);
    bytes_put(run, source->kind, 1);
    bytes_put(run, source->annotate, 1);
    bytes_put(run, source->size, 4);
    if (source->size)
        buffer_append(run, source->text, source->size);
    request_put_pictures(request, run);
    request_end(at, run);
}

void request_write_submit(uint64_t id, const char *instance, const struct request *request,
                          struct buffer *run)
{
    write_submit(id, instance, request, 0, run);
}

void request_write_submit_onward(uint64_t id, const char *instance, const struct request *request,
                                 struct buffer *run)
{
    write_submit(id, instance, request, REQUEST_ONWARD, run);
}

void request_write_accepted(uint64_t id, struct buffer *run)
{
    request_end(request_begin(REQUEST_ACCEPTED, id, run), run);
}

void request_write_cancel(uint64_t id, struct buffer *run)
{
    request_end(request_begin(REQUEST_CANCEL, id, run), run);
}

void request_write_refused(uint64_t id, const struct error *why, struct buffer *run)
{
    size_t at = request_begin(REQUEST_REFUSED, id, run);
    put_error(why, run);
    request_end(at, run);
}

/* Whether one more token of the request fits into the message at `at`, which is the run's last. */
static bool takes_token(const struct buffer *run, size_t at, uint64_t id)
{
    if (at >= run->size)
        return false;
    const unsigned char *message = (const unsigned char *)run->data + at;
    size_t length = bytes_load(message, REQUEST_LENGTH_BYTES);
    message += REQUEST_LENGTH_BYTES;
    return at + REQUEST_LENGTH_BYTES + length == run->size && message[0] == REQUEST_TOKENS &&
           bytes_load(message + 1, 8) == id &&
           bytes_load(message + REQUEST_HEAD_BYTES, 4) < LIMIT_REQUEST_TOKENS;
}

void request_write_token(uint64_t id, const struct token_event *event, size_t *last,
                         struct buffer *run)
{
    if (!takes_token(run, *last, id)) {
        *last = request_begin(REQUEST_TOKENS, id, run);
        bytes_put(run, 0, 4);
    }
    bytes_put(run, (uint32_t)event->token, 4);
    bytes_put(run, event->index, 4);
    bytes_put_float(run, event->logprob);
    bytes_put(run, event->n_top, 4);
    for (uint32_t i = 0; i < event->n_top; i++) {
        bytes_put(run, (uint32_t)event->top[i].token, 4);
        bytes_put_float(run, event->top[i].logprob);
    }
    if (run->failed)
        return;
    unsigned char *count =
        (unsigned char *)run->data + *last + REQUEST_LENGTH_BYTES + REQUEST_HEAD_BYTES;
    bytes_store(count, 4, bytes_load(count, 4) + 1);
    request_end(*last, run);
}

void request_write_row(uint64_t id, uint32_t position, const float *values, uint32_t n_values,
                       struct buffer *run)
{
    size_t at = request_begin(REQUEST_ROW, id, run);
    bytes_put(run, position, 4);
    bytes_put(run, n_values, 4);
    buffer_append(run, values,
                  (size_t)n_values *
                      sizeof *values); /* this machine is little-endian, as wire.h's are */
    request_end(at, run);
}

static void request_put_times(const struct request_times *times, struct buffer *run)
{
    const uint32_t n = request_times_know(times) ? times->n_stages : 0;
    bytes_put(run, n, 4);
    for (uint32_t i = 0; i < n; i++) {
        bytes_put(run, times->stages[i].compute_ns, 8);
        bytes_put(run, times->stages[i].wait_ns, 8);
        bytes_put(run, times->stages[i].link_ns, 8);
        bytes_put(run, times->stages[i].link_bytes, 8);
    }
    bytes_put(run, times->back_ns, 8);
}

void request_write_done(uint64_t id, enum finish_reason reason, const struct request_usage *usage,
                        const struct error *why, bool lost, struct buffer *run)
{
    size_t at = request_begin(REQUEST_DONE, id, run);
    bytes_put(run, reason, 1);
    bytes_put(run, lost ? REQUEST_DONE_LOST : 0, 1);
    bytes_put(run, usage->prompt_tokens, 4);
    bytes_put(run, usage->cached_tokens, 4);
    bytes_put(run, usage->generated_tokens, 4);
    bytes_put(run, usage->queued_ns, 8);
    bytes_put(run, usage->prefill_ns, 8);
    bytes_put(run, usage->decode_ns, 8);
    put_error(why, run);
    bytes_put(run, usage->slowest_ns, 8);
    request_put_times(&usage->times, run);
    bytes_put(run, usage->drafted_tokens, 4);
    bytes_put(run, usage->accepted_tokens, 4);
    request_end(at, run);
}
