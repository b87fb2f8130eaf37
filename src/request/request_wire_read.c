#include "base/mem.h"
#include "request/request_wire_format.h"
#include "request/sampler_bytes.h"

#include <string.h>

/* ---- runs ------------------------------------------------------------------------------- */

enum error_code request_next(struct bytes_reader *run, const void **message, size_t *size,
                             struct error *err)
{
    *message = NULL;
    *size = 0;
    if (run->left < REQUEST_LENGTH_BYTES)
        return ERROR_NONE;
    uint64_t length = bytes_load(run->at, REQUEST_LENGTH_BYTES);
    if (length > LIMIT_REQUEST_BYTES)
        return error_set(err, ERROR_INVALID,
                         "a message about a request has %llu bytes; the limit is %d",
                         (unsigned long long)length, LIMIT_REQUEST_BYTES);
    if (length > run->left - REQUEST_LENGTH_BYTES)
        return ERROR_NONE;
    bytes_take(run, REQUEST_LENGTH_BYTES);
    *size = (size_t)length;
    *message = bytes_take(run, *size);
    return ERROR_NONE;
}

/* ---- messages --------------------------------------------------------------------------- */

static enum error_code ends_early(struct error *err)
{
    return error_set(err, ERROR_INVALID, "it is too short");
}

static void get_tokens(struct bytes_reader *reader, int32_t *tokens, uint32_t n)
{
    const unsigned char *bytes = bytes_take(reader, (size_t)n * 4);
    for (uint32_t i = 0; bytes && i < n; i++)
        tokens[i] = (int32_t)bytes_load(bytes + (size_t)i * 4, 4);
}

/* The arrays, whose counts are within their limits and whose bytes are there: into one piece of
 * memory. */
static enum error_code get_arrays(struct bytes_reader *reader, struct request_message *out,
                                  struct error *err)
{
    struct request *request = &out->submit.request;
    uint32_t n_biases = request->sampler.n_biases;
    size_t n_tokens = (size_t)request->n_stop_tokens + request->n_prompt;
    char *memory = mem_new(n_biases * sizeof(struct logit_bias) + n_tokens * sizeof(int32_t));
    if (!memory)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for a prompt of %u tokens",
                         request->n_prompt);
    struct logit_bias *biases = (struct logit_bias *)(void *)memory;
    int32_t *tokens = (int32_t *)(void *)(memory + n_biases * sizeof *biases);
    biases_get(reader, biases, n_biases);
    get_tokens(reader, tokens, request->n_stop_tokens);
    get_tokens(reader, tokens + request->n_stop_tokens, request->n_prompt);
    out->memory = memory;
    request->sampler.biases = biases;
    request->stop_tokens = tokens;
    request->prompt = tokens + request->n_stop_tokens;
    return ERROR_NONE;
}

static enum error_code get_instance(struct bytes_reader *reader, char *out, struct error *err)
{
    size_t size = (size_t)bytes_get(reader, 1);
    const char *text = bytes_take(reader, size);
    if (!text)
        return ends_early(err);
    if (!size || size > LIMIT_CLUSTER_ID_BYTES)
        return error_set(err, ERROR_INVALID, "an instance's id of %zu bytes", size);
    for (size_t i = 0; i < size; i++) {
        if ((unsigned char)text[i] < ' ')
            return error_set(err, ERROR_INVALID, "an instance's id with a control character");
    }
    memcpy(out, text, size);
    return ERROR_NONE;
}

static enum error_code get_constraint(struct bytes_reader *reader, struct request *request,
                                      struct error *err)
{
    request->n_answered = bytes_get_u32(reader);
    struct grammar_source source = {.kind = (enum grammar_kind)bytes_get(reader, 1)};
    source.annotate = bytes_get(reader, 1) != 0;
    source.size = bytes_get_u32(reader);
    source.text = source.size > LIMIT_GRAMMAR_BYTES ? NULL : bytes_take(reader, source.size);
    if (!source.text)
        return ends_early(err);
    if (source.kind > GRAMMAR_CALLS)
        return error_set(err, ERROR_INVALID, "a grammar of the unknown kind %d", (int)source.kind);
    const enum error_code code = request_check_counts(request, err);
    if (source.kind == GRAMMAR_NONE)
        return code;
    return code ? code : constraint_open(&source, &request->constraint, err);
}

static enum error_code read_submit(struct bytes_reader *reader, struct request_message *out,
                                   struct error *err)
{
    struct request *request = &out->submit.request;
    request->n_predict = bytes_get_u32(reader);
    uint32_t flags = bytes_get_u32(reader);
    request->logprobs = flags & REQUEST_LOGPROBS;
    request->want_all_logits = flags & REQUEST_ALL_LOGITS;
    request->embeddings = flags & REQUEST_EMBEDDINGS;
    out->submit.onward = flags & REQUEST_ONWARD;
    request->n_top_logprobs = bytes_get_u32(reader);
    request->sampler.n_biases = bytes_get_u32(reader);
    request->n_stop_tokens = bytes_get_u32(reader);
    request->n_prompt = bytes_get_u32(reader);
    sampler_get(reader, &request->sampler);
    enum error_code code = get_instance(reader, out->submit.instance, err);
    if (!code)
        code = request_check_counts(request, err);
    if (code)
        return code;
    size_t needed = (size_t)request->sampler.n_biases * sizeof(struct logit_bias) +
                    ((size_t)request->n_stop_tokens + request->n_prompt) * sizeof(int32_t);
    if (reader->left < needed)
        return ends_early(err);
    code = get_arrays(reader, out, err);
    if (!code && reader->left)
        request->cache_key = bytes_get(reader, 8);
    if (!code && reader->left)
        code = get_constraint(reader, request, err);
    if (!code && reader->left)
        code = request_get_pictures(reader, request, err);
    if (!code)
        code = request_check(request, LIMIT_VOCAB, err);
    if (!code && !request->n_predict) /* nobody checked it, and nobody needs it */
        request->sampler = sampler_defaults();
    return code;
}

static void get_token(struct bytes_reader *reader, struct token_event *event,
                      struct token_logprob *top)
{
    event->token = (int32_t)bytes_get_u32(reader);
    event->index = bytes_get_u32(reader);
    event->logprob = bytes_get_float(reader);
    event->n_top = bytes_get_u32(reader);
    event->top = top;
    for (uint32_t i = 0; i < event->n_top && i < LIMIT_TOP_LOGPROBS; i++) {
        top[i].token = (int32_t)bytes_get_u32(reader); /* -1: none */
        top[i].logprob = bytes_get_float(reader);
    }
}

/* The logarithm of a probability, or -inf; rounding may leave it a little above 0. */
static bool is_logprob(float value)
{
    const float rounding = 1e-3f;
    return value <= rounding; /* not a NaN */
}

static enum error_code read_tokens(struct bytes_reader *reader, struct request_message *out,
                                   struct error *err)
{
    struct token_logprob top[LIMIT_TOP_LOGPROBS];
    struct token_event event;
    out->tokens.count = bytes_get_u32(reader);
    if (out->tokens.count > LIMIT_REQUEST_TOKENS)
        return error_set(err, ERROR_INVALID, "%u tokens in one message", out->tokens.count);
    out->tokens.reader = *reader;
    for (uint32_t i = 0; i < out->tokens.count; i++) {
        get_token(reader, &event, top);
        if (reader->short_)
            return ends_early(err);
        if (event.n_top > LIMIT_TOP_LOGPROBS || event.token < 0 || event.token >= LIMIT_VOCAB ||
            !is_logprob(event.logprob))
            return error_set(err, ERROR_INVALID, "token %d with %u others and logprob %g",
                             event.token, event.n_top, (double)event.logprob);
        for (uint32_t k = 0; k < event.n_top; k++) {
            if (top[k].token < -1 || top[k].token >= LIMIT_VOCAB || !is_logprob(top[k].logprob))
                return error_set(err, ERROR_INVALID, "token %d among the likeliest, logprob %g",
                                 top[k].token, (double)top[k].logprob);
        }
    }
    return ERROR_NONE;
}

void request_next_token(struct request_message *message, struct token_event *event,
                        struct token_logprob *top)
{
    get_token(&message->tokens.reader, event, top);
}

static enum error_code read_row(struct bytes_reader *reader, struct request_message *out,
                                struct error *err)
{
    out->row.position = bytes_get_u32(reader);
    out->row.n_values = bytes_get_u32(reader);
    if (out->row.position >= LIMIT_CONTEXT || !out->row.n_values || out->row.n_values > LIMIT_VOCAB)
        return error_set(err, ERROR_INVALID, "a row of %u values at %u", out->row.n_values,
                         out->row.position);
    out->row.values = bytes_take(reader, (size_t)out->row.n_values * sizeof(float));
    return out->row.values ? ERROR_NONE : ends_early(err);
}

/* The text ends up in logs and on terminals. A code of a newer version is one that nobody here
 * expects. */
static enum error_code request_read_error(struct bytes_reader *reader, struct error *out,
                                          struct error *err)
{
    unsigned code = (unsigned)bytes_get(reader, 2);
    size_t size = (size_t)bytes_get(reader, 2);
    const char *text = bytes_take(reader, size);
    if (!text)
        return ends_early(err);
    if (size >= sizeof out->text)
        return error_set(err, ERROR_INVALID, "an error's text of %zu bytes", size);
    out->code = code <= ERROR_INTERNAL ? (enum error_code)code : ERROR_INTERNAL;
    for (size_t i = 0; i < size; i++)
        out->text[i] = (unsigned char)text[i] < ' ' ? '?' : text[i];
    return ERROR_NONE;
}

static enum error_code read_refused(struct bytes_reader *reader, struct request_message *out,
                                    struct error *err)
{
    enum error_code code = request_read_error(reader, &out->error, err);
    if (!code && !out->error.code)
        code = error_set(err, ERROR_INVALID, "refused without an error");
    return code;
}

static enum error_code request_get_times(struct bytes_reader *reader, struct request_times *times,
                                         struct error *err)
{
    const uint32_t n = bytes_get_u32(reader);
    if (n > LIMIT_STAGES)
        return error_set(err, ERROR_INVALID, "times of %u stages; the limit is %d", n,
                         LIMIT_STAGES);
    times->n_stages = n;
    for (uint32_t i = 0; i < n; i++) {
        times->stages[i].compute_ns = bytes_get(reader, 8);
        times->stages[i].wait_ns = bytes_get(reader, 8);
        times->stages[i].link_ns = bytes_get(reader, 8);
        times->stages[i].link_bytes = bytes_get(reader, 8);
    }
    times->back_ns = bytes_get(reader, 8);
    return ERROR_NONE;
}

static enum error_code read_done(struct bytes_reader *reader, struct request_message *out,
                                 struct error *err)
{
    unsigned reason = (unsigned)bytes_get(reader, 1);
    struct request_usage *usage = &out->done.usage;
    out->done.lost = bytes_get(reader, 1) & REQUEST_DONE_LOST;
    usage->prompt_tokens = bytes_get_u32(reader);
    usage->cached_tokens = bytes_get_u32(reader);
    usage->generated_tokens = bytes_get_u32(reader);
    usage->queued_ns = bytes_get(reader, 8);
    usage->prefill_ns = bytes_get(reader, 8);
    usage->decode_ns = bytes_get(reader, 8);
    enum error_code code = request_read_error(reader, &out->error, err);
    if (!code && reader->left)
        usage->slowest_ns = bytes_get(reader, 8);
    if (!code && reader->left)
        code = request_get_times(reader, &usage->times, err);
    if (!code && reader->left) {
        usage->drafted_tokens = bytes_get_u32(reader);
        usage->accepted_tokens = bytes_get_u32(reader);
    }
    if (!code &&
        (reason > FINISH_ERROR || (reason == FINISH_ERROR) != (out->error.code != ERROR_NONE)))
        code = error_set(err, ERROR_INVALID, "done for reason %u with error %u", reason,
                         out->error.code);
    out->done.reason = (enum finish_reason)reason;
    return code;
}

static enum error_code read_body(struct bytes_reader *reader, struct request_message *out,
                                 struct error *err)
{
    switch (out->kind) {
    case REQUEST_SUBMIT:
        return read_submit(reader, out, err);
    case REQUEST_REFUSED:
        return read_refused(reader, out, err);
    case REQUEST_TOKENS:
        return read_tokens(reader, out, err);
    case REQUEST_ROW:
        return read_row(reader, out, err);
    case REQUEST_DONE:
        return read_done(reader, out, err);
    default: /* the rest has no body, or is of a newer version */
        return ERROR_NONE;
    }
}

enum error_code request_read(const void *message, size_t size, struct request_message *out,
                             struct error *err)
{
    struct bytes_reader reader = {message, size, false};
    *out = (struct request_message){.kind = (unsigned)bytes_get(&reader, 1)};
    out->id = bytes_get(&reader, 8);
    enum error_code code = reader.short_ ? ends_early(err) : read_body(&reader, out, err);
    if (!code && reader.short_)
        code = ends_early(err);
    if (!code)
        return ERROR_NONE;
    request_message_deinit(out);
    error_wrap(err, "a request's message of kind %u", out->kind);
    return code;
}

void request_message_deinit(struct request_message *message)
{
    if (message->kind == REQUEST_SUBMIT) {
        constraint_replace(&message->submit.request.constraint, NULL);
        request_drop_pictures(&message->submit.request);
    }
    mem_free(message->memory);
    message->memory = NULL;
}
