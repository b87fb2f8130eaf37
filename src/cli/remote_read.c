/* The thread that takes what the node says of the requests. */
#include "cli/remote_state.h"

#include "base/bytes.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/wakeup.h"
#include "request/request_wire.h"

#include <string.h>

/* ---- requests -------------------------------------------------------------------------------- */

/* The request, unless nobody wants to hear of it any more. */
static struct remote_request *remote_read_find(struct remote *remote, uint64_t id)
{
    pthread_mutex_lock(&remote->lock);
    struct remote_request *request = remote->requests;
    while (request && (request->id != id || request->cancelled))
        request = request->next;
    pthread_mutex_unlock(&remote->lock);
    return request;
}

static void remote_read_finish(struct remote *remote, struct remote_request *request,
                               enum finish_reason reason, const struct request_usage *usage,
                               const struct error *why)
{
    pthread_mutex_lock(&remote->lock);
    struct remote_request **link = &remote->requests;
    while (*link != request)
        link = &(*link)->next;
    *link = request->next;
    pthread_mutex_unlock(&remote->lock);
    request->handlers.done(request->arg, reason, usage, reason == FINISH_ERROR ? why : NULL);
    request_copy_deinit(&request->request);
    mem_free(request);
}

static void finish_early(struct remote *remote, struct remote_request *request,
                         enum finish_reason reason, const struct error *why)
{
    const uint64_t now_ns = clock_now_ns();
    struct request_usage *usage = &request->usage;
    usage->prefill_ns = (request->first_ns ? request->first_ns : now_ns) - request->submitted_ns;
    usage->decode_ns = request->first_ns ? now_ns - request->first_ns : 0;
    remote_read_finish(remote, request, reason, usage, why);
}

static struct remote_request *first_cancelled(struct remote *remote)
{
    pthread_mutex_lock(&remote->lock);
    struct remote_request *request = remote->requests;
    while (request && !request->cancelled)
        request = request->next;
    pthread_mutex_unlock(&remote->lock);
    return request;
}

void remote_heed(struct remote *remote, bool *is_over)
{
    wakeup_heed(remote->wake);
    for (struct remote_request *request; (request = first_cancelled(remote));)
        finish_early(remote, request, FINISH_CANCELLED, NULL);
    pthread_mutex_lock(&remote->lock);
    *is_over = remote->is_closing;
    pthread_mutex_unlock(&remote->lock);
}

void remote_end_whole(struct remote *remote)
{
    pthread_mutex_lock(&remote->lock);
    struct remote_request *next = remote->requests;
    pthread_mutex_unlock(&remote->lock);
    for (struct remote_request *request; (request = next);) {
        next = request->next; /* only this thread removes any, and new ones come before these */
        if (request->n_room && request->usage.generated_tokens == request->n_room)
            finish_early(remote, request, FINISH_LENGTH, NULL);
    }
}

/* ---- messages -------------------------------------------------------------------------------- */

static enum error_code remote_read_take_tokens(struct remote *remote,
                                               struct request_message *message, struct error *err)
{
    struct remote_request *request;
    for (uint32_t i = 0;
         i < message->tokens.count && (request = remote_read_find(remote, message->id)); i++) {
        struct token_logprob top[LIMIT_TOP_LOGPROBS];
        struct token_event event;
        request_next_token(message, &event, top);
        if (request->usage.generated_tokens == request->n_room)
            return error_set(err, ERROR_INTERNAL, "the node sent more tokens than were asked for");
        request->first_ns = request->first_ns ? request->first_ns : clock_now_ns();
        event.index = request->usage.generated_tokens++;
        ((int32_t *)request->request.prompt)[request->request.n_prompt + event.index] = event.token;
        if (!request->handlers.token || request->handlers.token(request->arg, &event))
            continue;
        struct buffer run = {0};
        request_write_cancel(request->id, &run);
        remote_write(remote, &run);
        finish_early(remote, request, FINISH_STOP, NULL);
    }
    return ERROR_NONE;
}

static enum error_code remote_read_take_row(struct remote_request *request,
                                            const struct request_message *message,
                                            struct error *err)
{
    const uint32_t n = message->row.n_values;
    if (!request || !request->handlers.row || !n)
        return ERROR_NONE;
    float *values = mem_new_array(n, sizeof *values);
    if (!values)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for a row of %u values", n);
    struct bytes_reader reader = {message->row.values, n * sizeof *values, false};
    for (uint32_t i = 0; i < n; i++)
        values[i] = bytes_get_float(&reader);
    request->handlers.row(request->arg, message->row.position, values, n);
    mem_free(values);
    return ERROR_NONE;
}

static enum error_code remote_read_dispatch(struct remote *remote, struct request_message *message,
                                            struct error *err)
{
    struct remote_request *request = remote_read_find(remote, message->id);
    switch (message->kind) {
    case REQUEST_REFUSED:
        if (request)
            finish_early(remote, request, FINISH_ERROR, &message->error);
        return ERROR_NONE;
    case REQUEST_TOKENS:
        return remote_read_take_tokens(remote, message, err);
    case REQUEST_ROW:
        return remote_read_take_row(request, message, err);
    case REQUEST_DONE:
        if (request && request->first) /* the node knows of the last part only */
            finish_early(remote, request, message->done.reason, &message->error);
        else if (request)
            remote_read_finish(remote, request, message->done.reason, &message->done.usage,
                               &message->error);
        return ERROR_NONE;
    default: /* ACCEPTED, or a newer node's */
        return ERROR_NONE;
    }
}

static enum error_code remote_read_take_message(struct remote *remote, struct buffer *memory,
                                                struct error *err)
{
    unsigned char length[REQUEST_LENGTH_BYTES];
    enum error_code code = daemon_client_read(remote->client, length, sizeof length, err);
    if (code)
        return code;
    const uint64_t size = bytes_load(length, sizeof length);
    if (size > LIMIT_REQUEST_BYTES)
        return error_set(err, ERROR_INTERNAL,
                         "a message from the node is longer than the limit of %d bytes",
                         LIMIT_REQUEST_BYTES);
    buffer_clear(memory);
    void *bytes = buffer_extend(memory, size);
    if (!bytes)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for a message from the node");
    struct request_message message;
    code = daemon_client_read(remote->client, bytes, size, err);
    if (!code)
        code = request_read(bytes, size, &message, err);
    if (code == ERROR_INVALID)
        return error_set(err, ERROR_INTERNAL,
                         "a message from the node is malformed: does it have another version?");
    if (code)
        return code;
    code = remote_read_dispatch(remote, &message, err);
    request_message_deinit(&message);
    return code;
}

/* ---- the thread ------------------------------------------------------------------------------ */

static void end_all(struct remote *remote, enum finish_reason reason, const struct error *why)
{
    pthread_mutex_lock(&remote->lock);
    remote->is_lost = true;
    remote->why_lost = *why;
    struct remote_request *request = remote->requests;
    pthread_mutex_unlock(&remote->lock);
    for (struct remote_request *next; request; request = next) {
        next = request->next; /* nobody but this thread removes any, and none comes any more */
        finish_early(remote, request, reason, why);
    }
}

void *remote_read(void *arg)
{
    struct remote *remote = arg;
    struct buffer memory = {0};
    struct error err = {ERROR_CANCELLED, "the connection to the node is closed"};
    enum error_code code = ERROR_NONE;
    bool is_over = false;
    while (!is_over) {
        bool woken;
        code = daemon_client_wait(remote->client, remote->wake, &woken, &err);
        if (!code && woken)
            remote_heed(remote, &is_over);
        else if (!code)
            code = remote_read_take_message(remote, &memory, &err);
        if (code == ERROR_IO && remote_return(remote, &err))
            code = ERROR_NONE;
        if (code)
            break;
    }
    end_all(remote, code ? FINISH_ERROR : FINISH_CANCELLED, &err);
    buffer_deinit(&memory);
    return NULL;
}
