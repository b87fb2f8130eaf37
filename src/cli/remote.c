#include "cli/remote_state.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/wakeup.h"
#include "cli/stages.h"
#include "request/request_wire.h"

#include <string.h>
#include <unistd.h>

static struct remote *remote_of(const struct generator *generator)
{
    return (struct remote *)generator;
}

/* ---- the generator --------------------------------------------------------------------------- */

void remote_write_locked(struct remote *remote, struct buffer *run)
{
    struct error err;
    if (run->failed || daemon_client_write(remote->client, run->data, run->size, &err))
        daemon_client_hang_up(remote->client);
    buffer_deinit(run);
}

void remote_write(struct remote *remote, struct buffer *run)
{
    pthread_mutex_lock(&remote->writing);
    remote_write_locked(remote, run);
    pthread_mutex_unlock(&remote->writing);
}

/* Tokens that may be generated: what is behind the prompt is for those. */
static uint32_t remote_room(const struct remote *remote, const struct request *request)
{
    const uint32_t left =
        remote->context > request->n_prompt ? remote->context - request->n_prompt : 0;
    return request->n_predict < left ? request->n_predict : left;
}

static enum error_code remote_enlist(struct remote *remote, struct remote_request *request,
                                     uint64_t *id, struct error *err)
{
    enum error_code code = ERROR_NONE;
    pthread_mutex_lock(&remote->lock);
    if (remote->is_lost) {
        code = error_set(err, remote->why_lost.code, "%s", remote->why_lost.text);
    } else {
        *id = request->id = ++remote->n_requests;
        request->next = remote->requests;
        remote->requests = request;
    }
    pthread_mutex_unlock(&remote->lock);
    return code;
}

static enum error_code remote_submit(struct generator *generator, const struct request *request,
                                     uint64_t *id, struct error *err)
{
    struct remote *remote = remote_of(generator);
    struct buffer run = {0};
    uint64_t given = 0;
    enum error_code code = request_check(request, LIMIT_VOCAB, err);
    if (!code)
        code = request_check_travels(request, err);
    if (code)
        return code;
    struct remote_request *own = mem_new(sizeof *own);
    if (!own)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for a request");
    code = request_copy(request, remote_room(remote, request), &own->request, err);
    if (code) {
        mem_free(own);
        return code;
    }
    own->n_room = remote_room(remote, request);
    own->handlers = request->handlers;
    own->arg = request->arg;
    own->submitted_ns = clock_now_ns();
    own->usage.prompt_tokens = request->n_prompt;
    pthread_mutex_lock(&remote->writing);
    code = remote_enlist(remote, own, &given, err);
    if (!code) { /* from here on it may be over at any moment */
        if (id)
            *id = given;
        request_write_submit(given, remote->instance, request, &run);
        remote_write_locked(remote, &run);
    }
    pthread_mutex_unlock(&remote->writing);
    if (code) {
        request_copy_deinit(&own->request);
        mem_free(own);
    }
    return code;
}

static void remote_cancel(struct generator *generator, uint64_t id)
{
    struct remote *remote = remote_of(generator);
    struct buffer run = {0};
    bool is_new = false;
    pthread_mutex_lock(&remote->lock);
    for (struct remote_request *request = remote->requests; request; request = request->next) {
        is_new = is_new || (request->id == id && !request->cancelled);
        request->cancelled = request->cancelled || request->id == id;
    }
    pthread_mutex_unlock(&remote->lock);
    if (!is_new)
        return;
    request_write_cancel(id, &run);
    remote_write(remote, &run);
    wakeup_ring(remote->wake);
}

static uint32_t remote_context(const struct generator *generator)
{
    return remote_of(generator)->context;
}

static struct driver_stats remote_stats(const struct generator *generator)
{
    struct remote *remote = remote_of(generator);
    struct driver_stats out = {0};
    pthread_mutex_lock(&remote->lock);
    out.requests_total = remote->n_requests;
    pthread_mutex_unlock(&remote->lock);
    return out;
}

/* ---- opening --------------------------------------------------------------------------------- */

enum error_code remote_check(yyjson_doc *doc, struct remote_answer *out, struct error *err)
{
    struct answer answer = {0};
    yyjson_val *root = yyjson_doc_get_root(doc);
    const char *instance = answer_text(&answer, root, "instance");
    const uint64_t context_tokens = answer_count(&answer, root, "context");
    enum error_code code = answer_failed(&answer, err);
    if (code)
        return code;
    if (!context_tokens || context_tokens > LIMIT_CONTEXT || !instance[0] ||
        strlen(instance) > LIMIT_CLUSTER_ID_BYTES)
        return error_set(err, ERROR_INTERNAL,
                         "the node's answer exceeds a limit: instance or context");
    *out = (struct remote_answer){instance, (uint32_t)context_tokens};
    return ERROR_NONE;
}

static enum error_code remote_read_answer(struct remote *remote, struct error *err)
{
    struct remote_answer found;
    struct answer answer = {0};
    enum error_code code = remote_check(remote->answer, &found, err);
    if (code)
        return code;
    memcpy(remote->instance, found.instance, strlen(found.instance) + 1);
    remote->context = found.context;
    stages_text(&answer, answer_list(&answer, yyjson_doc_get_root(remote->answer), "stages"), false,
                &remote->where);
    code = answer_failed(&answer, err);
    return !code && remote->where.failed
               ? error_set(err, ERROR_NO_MEMORY, "not enough memory for the answer")
               : code;
}

static enum error_code remote_start_reading(struct remote *remote, struct error *err)
{
    remote->wake = wakeup_open();
    if (remote->wake < 0)
        return error_set(err, ERROR_IO, "no file descriptor is left");
    daemon_client_hurry(remote->client); /* from here on: in the middle of a message */
    remote->is_reading = pthread_create(&remote->reader, NULL, remote_read, remote) == 0;
    return remote->is_reading ? ERROR_NONE : error_set(err, ERROR_IO, "cannot start a thread");
}

enum error_code remote_begin(struct daemon_client *client, const char *model, yyjson_doc **answer,
                             struct error *err)
{
    yyjson_mut_doc *question = daemon_question("generate");
    daemon_question_text(question, "model", model);
    enum error_code code = daemon_client_send(client, question, err);
    return code ? code : daemon_client_receive(client, answer, err);
}

static enum error_code remote_start(struct remote *remote, const char *model, struct error *err)
{
    remote->model = mem_copy_text(model, strlen(model));
    if (!remote->model)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for a connection to the node");
    enum error_code code = remote_begin(remote->client, model, &remote->answer, err);
    if (!code)
        code = remote_read_answer(remote, err);
    if (!code)
        code = remote_start_reading(remote, err);
    return code;
}

enum error_code remote_open(const char *model, struct remote **out, struct error *err)
{
    static const struct generator_impl impl = {remote_submit, remote_cancel, remote_context,
                                               remote_stats};
    struct daemon_client *client;
    enum error_code code = daemon_client_open(&client, err);
    if (code)
        return code;
    struct remote *remote = mem_new(sizeof *remote);
    if (!remote) {
        daemon_client_close(client);
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for a connection to the node");
    }
    *remote = (struct remote){.base = {&impl}, .client = client, .wake = -1};
    pthread_mutex_init(&remote->lock, NULL);
    pthread_mutex_init(&remote->writing, NULL);
    code = remote_start(remote, model, err);
    if (code)
        remote_close(remote);
    else
        *out = remote;
    return code;
}

void remote_close(struct remote *remote)
{
    if (!remote)
        return;
    pthread_mutex_lock(&remote->lock);
    remote->is_closing = true;
    pthread_mutex_unlock(&remote->lock);
    if (remote->is_reading) {
        wakeup_ring(remote->wake);
        pthread_join(remote->reader, NULL);
    }
    if (remote->wake >= 0)
        close(remote->wake);
    daemon_client_close(remote->client);
    mem_free(remote->model);
    yyjson_doc_free(remote->answer);
    buffer_deinit(&remote->where);
    pthread_mutex_destroy(&remote->lock);
    pthread_mutex_destroy(&remote->writing);
    mem_free(remote);
}

struct generator *remote_generator(struct remote *remote)
{
    return &remote->base;
}

const char *remote_where(const struct remote *remote)
{
    return remote->where.data ? remote->where.data : "";
}

yyjson_val *remote_stages(const struct remote *remote)
{
    return yyjson_obj_get(yyjson_doc_get_root(remote->answer), "stages");
}
