/* Requests for tokens over the control socket (request/request_wire.h): for `medley run`. */
#include "node/control.h"

#include "base/log.h"
#include "base/mem.h"
#include "relay/relay.h"
#include "request/generator.h"
#include "request/request_wire.h"

#include <pthread.h>
#include <string.h>

enum { ASKED_MAX = 64 };

struct talk;

struct asked { /* a request under way */
    struct talk *talk;
    uint64_t id;     /* the client's */
    uint64_t of_gen; /* the generator's */
    bool used;
};

/* A conversation's requests. Their events come on any thread; what they say goes out on the
 * loop's. */
struct talk {
    uv_async_t wake;                   /* first */
    struct conversation *conversation; /* NULL: it has gone; then it ends with its last request */
    struct daemon *daemon;
    struct generator *generator;
    bool handle_closed;
    struct buffer in; /* a message that is not whole yet */
    pthread_mutex_t lock;
    struct buffer run; /* to be sent */
    size_t last;       /* request_write_token()'s */
    uint32_t n_asked;
    struct asked asked[ASKED_MAX];
};

/* ---- events of the generator, on any thread -------------------------------------------------- */

static bool control_generate_on_token(void *arg, const struct token_event *event)
{
    struct asked *asked = arg;
    struct talk *talk = asked->talk;
    pthread_mutex_lock(&talk->lock);
    request_write_token(asked->id, event, &talk->last, &talk->run);
    pthread_mutex_unlock(&talk->lock);
    uv_async_send(&talk->wake);
    return true;
}

static void control_generate_on_row(void *arg, uint32_t position, const float *values,
                                    uint32_t n_values)
{
    struct asked *asked = arg;
    struct talk *talk = asked->talk;
    pthread_mutex_lock(&talk->lock);
    request_write_row(asked->id, position, values, n_values, &talk->run);
    pthread_mutex_unlock(&talk->lock);
    uv_async_send(&talk->wake);
}

/* The wake-up is sent under the lock: whoever sees that no request is left may free the talk. */
static void control_generate_on_done(void *arg, enum finish_reason reason,
                                     const struct request_usage *usage, const struct error *err)
{
    struct asked *asked = arg;
    struct talk *talk = asked->talk;
    pthread_mutex_lock(&talk->lock);
    request_write_done(asked->id, reason, usage, err, false, &talk->run);
    asked->used = false;
    talk->n_asked--;
    uv_async_send(&talk->wake);
    pthread_mutex_unlock(&talk->lock);
}

/* ---- on the loop's thread -------------------------------------------------------------------- */

static void free_talk(uv_handle_t *handle)
{
    struct talk *talk = (struct talk *)handle;
    pthread_mutex_destroy(&talk->lock);
    buffer_deinit(&talk->in);
    buffer_deinit(&talk->run);
    mem_free(talk);
}

static void end_when_idle(struct talk *talk)
{
    pthread_mutex_lock(&talk->lock);
    bool idle = !talk->conversation && !talk->n_asked && !talk->handle_closed;
    pthread_mutex_unlock(&talk->lock);
    if (!idle)
        return;
    talk->handle_closed = true;
    uv_close((uv_handle_t *)&talk->wake, free_talk);
}

static void control_generate_on_wake(uv_async_t *wake)
{
    struct talk *talk = (struct talk *)wake;
    struct buffer run;
    pthread_mutex_lock(&talk->lock);
    run = talk->run;
    talk->run = (struct buffer){0};
    talk->last = 0;
    pthread_mutex_unlock(&talk->lock);
    if (talk->conversation && run.size && !run.failed)
        control_send(talk->conversation, run.data, run.size);
    else if (talk->conversation && run.failed)
        control_end(talk->conversation);
    buffer_deinit(&run);
    end_when_idle(talk);
}

static void control_generate_refuse(struct talk *talk, uint64_t id, const struct error *why)
{
    struct buffer run = {0};
    request_write_refused(id, why, &run);
    if (!run.failed)
        control_send(talk->conversation, run.data, run.size);
    buffer_deinit(&run);
}

static struct asked *take_place(struct talk *talk, uint64_t id)
{
    struct asked *free_one = NULL;
    pthread_mutex_lock(&talk->lock);
    for (int i = 0; i < ASKED_MAX && !free_one; i++) {
        if (!talk->asked[i].used)
            free_one = &talk->asked[i];
    }
    if (free_one) {
        *free_one = (struct asked){.talk = talk, .id = id, .used = true};
        talk->n_asked++;
    }
    pthread_mutex_unlock(&talk->lock);
    return free_one;
}

static void control_generate_submit(struct talk *talk, struct request_message *message)
{
    struct error err;
    struct buffer run = {0};
    struct asked *asked = take_place(talk, message->id);
    if (!asked) {
        error_set(&err, ERROR_BUSY, "%d requests of this connection are under way", ASKED_MAX);
        control_generate_refuse(talk, message->id, &err);
        return;
    }
    struct request *request = &message->submit.request;
    request->handlers = (struct request_handlers){.token = control_generate_on_token,
                                                  .row = control_generate_on_row,
                                                  .done = control_generate_on_done};
    request->arg = asked;
    request_write_accepted(message->id, &run);
    if (generator_submit(talk->generator, request, &asked->of_gen, &err)) {
        pthread_mutex_lock(&talk->lock);
        asked->used = false;
        talk->n_asked--;
        pthread_mutex_unlock(&talk->lock);
        control_generate_refuse(talk, message->id, &err);
    } else if (!run.failed) {
        control_send(talk->conversation, run.data, run.size);
    }
    buffer_deinit(&run);
}

static void control_generate_cancel(struct talk *talk, uint64_t id)
{
    for (int i = 0; i < ASKED_MAX; i++) {
        pthread_mutex_lock(&talk->lock);
        bool is_it = talk->asked[i].used && talk->asked[i].id == id;
        uint64_t of_gen = talk->asked[i].of_gen;
        pthread_mutex_unlock(&talk->lock);
        if (is_it)
            generator_cancel(talk->generator, of_gen);
    }
}

static enum error_code control_generate_take_message(struct talk *talk, const void *bytes,
                                                     size_t size, struct error *err)
{
    struct request_message message;
    enum error_code code = request_read(bytes, size, &message, err);
    if (code)
        return code;
    if (message.kind == REQUEST_SUBMIT)
        control_generate_submit(talk, &message);
    else if (message.kind == REQUEST_CANCEL)
        control_generate_cancel(talk, message.id);
    request_message_deinit(&message);
    return ERROR_NONE;
}

static void take_bytes(struct conversation *conversation, const uint8_t *bytes, size_t size)
{
    struct talk *talk = conversation->data;
    const void *message = NULL;
    size_t message_size;
    struct error err;
    enum error_code code = ERROR_NONE;
    buffer_append(&talk->in, bytes, size);
    struct bytes_reader run = {(const unsigned char *)talk->in.data, talk->in.size, false};
    while (!code && talk->conversation &&
           (code = request_next(&run, &message, &message_size, &err)) == ERROR_NONE && message)
        code = control_generate_take_message(talk, message, message_size, &err);
    if (!talk->conversation) /* it was hung up meanwhile */
        return;
    if (code || talk->in.failed) { /* nobody is there who could read a text now */
        log_line(LOG_WARN, "control", "a client broke the protocol: %s",
                 code ? err.text : "not enough memory");
        control_end(conversation);
        return;
    }
    buffer_drop_front(&talk->in, talk->in.size - run.left);
}

static void control_generate_gone(struct conversation *conversation)
{
    struct talk *talk = conversation->data;
    talk->conversation = NULL;
    for (int i = 0; i < ASKED_MAX; i++) {
        pthread_mutex_lock(&talk->lock);
        bool used = talk->asked[i].used;
        uint64_t of_gen = talk->asked[i].of_gen;
        pthread_mutex_unlock(&talk->lock);
        if (used)
            generator_cancel(talk->generator, of_gen);
    }
    end_when_idle(talk);
}

/* ---- beginning ------------------------------------------------------------------------------- */

static enum error_code open_talk(struct conversation *conversation, const char *model,
                                 struct talk **out, struct error *err)
{
    struct daemon *daemon = conversation->daemon;
    struct generator *generator;
    const Cluster__Instance *instance = state_instance(daemon_state(daemon), model);
    if (!instance)
        return error_set(err, ERROR_NOT_FOUND,
                         "model %s is not placed; `medley place %s` places it", model, model);
    enum error_code code = relay_generator(daemon->relay, instance->id,
                                           instance->demand->context_tokens, &generator, err);
    if (code)
        return code;
    struct talk *talk = mem_new(sizeof *talk);
    if (!talk || uv_async_init(daemon->loop, &talk->wake, control_generate_on_wake)) {
        mem_free(talk);
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the requests");
    }
    pthread_mutex_init(&talk->lock, NULL);
    talk->conversation = conversation;
    talk->daemon = daemon;
    talk->generator = generator;
    *out = talk;
    return ERROR_NONE;
}

static void control_generate_begin(struct conversation *conversation, const char *model)
{
    struct talk *talk = NULL;
    struct error err;
    yyjson_mut_doc *doc;
    if (open_talk(conversation, model, &talk, &err)) {
        control_fail(conversation, &err);
        return;
    }
    const Cluster__Instance *instance = state_instance(daemon_state(conversation->daemon), model);
    yyjson_mut_val *root = control_object(&doc);
    yyjson_mut_obj_add_strcpy(doc, root, "instance", instance->id);
    control_put_instance(conversation->daemon, doc, root, instance);
    conversation->data = talk;
    conversation->calls =
        (struct conversation_calls){.bytes = take_bytes, .gone = control_generate_gone};
    control_answer(conversation, doc); /* may hang up */
}

void control_generate(struct conversation *conversation, yyjson_val *request)
{
    control_name_model(conversation, control_text(request, "model"), control_generate_begin);
}
