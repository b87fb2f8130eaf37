#include "node/control.h"

#include "base/durable_file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/version.h"

#include <assert.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    CONVERSATIONS_MAX = 64,       /* of the socket … */
    CONVERSATIONS_HEARD_MAX = 64, /* … and of daemon_begin_request() */
    LINE_MAX_BYTES = 64 * 1024,
    QUEUE_MAX_BYTES = 32 << 20, /* for one that does not read: then it is hung up */
};

struct control_answer { /* bytes on their way out */
    uv_write_t write;
    struct conversation *conversation;
    size_t size;
    char bytes[];
};

/* ---- ending ---------------------------------------------------------------------------------- */

static void end_control(struct control *control)
{
    struct daemon *daemon = control->daemon;
    void (*closed)(struct daemon *daemon) = control->closed;
    if (!control->closing || !control->pipe_closed || control->n)
        return;
    mem_free(control);
    closed(daemon);
}

static void on_conversation_closed(uv_handle_t *handle)
{
    struct conversation *conversation = (struct conversation *)handle;
    struct control *control = conversation->control;
    struct conversation **at = &control->conversations;
    while (*at != conversation)
        at = &(*at)->next;
    *at = conversation->next;
    control->n--;
    control->n_heard -= conversation->hearer.line != NULL;
    buffer_deinit(&conversation->in);
    mem_free(conversation);
    end_control(control);
}

/* Of daemon_begin_request(): once. */
static void control_tell_ended(struct conversation *conversation)
{
    void (*ended)(void *self) = conversation->hearer.ended;
    conversation->hearer.ended = NULL;
    if (ended)
        ended(conversation->hearer.self);
}

static void control_hang_up(struct conversation *conversation)
{
    if (conversation->closing)
        return;
    conversation->closing = true;
    if (conversation->calls.gone)
        conversation->calls.gone(conversation);
    conversation->calls = (struct conversation_calls){0};
    control_tell_ended(conversation);
    uv_close(&conversation->handle, on_conversation_closed);
}

static void control_on_heard_end(uv_timer_t *timer)
{
    control_hang_up((struct conversation *)timer);
}

void control_end(struct conversation *conversation)
{
    if (conversation->closing || (conversation->hearer.line && conversation->ends_when_sent))
        return;
    conversation->ends_when_sent = true;
    if (conversation->hearer.line) { /* who calls still has its data in hand, as while one sends */
        control_tell_ended(conversation);
        uv_timer_start(&conversation->timer, control_on_heard_end, 0, 0);
    } else if (!conversation->queued) {
        control_hang_up(conversation);
    }
}

/* ---- answering ------------------------------------------------------------------------------- */

static void control_on_written(uv_write_t *write, int status)
{
    struct control_answer *answer = (struct control_answer *)write;
    struct conversation *conversation = answer->conversation;
    conversation->queued -= answer->size;
    mem_free(answer);
    if (status || (conversation->ends_when_sent && !conversation->queued))
        control_hang_up(conversation);
}

void control_send(struct conversation *conversation, const void *bytes, size_t size)
{
    if (conversation->closing || conversation->ends_when_sent)
        return;
    if (conversation->hearer.line) {
        conversation->hearer.line(conversation->hearer.self, bytes, size);
        return;
    }
    struct control_answer *answer =
        conversation->queued + size > QUEUE_MAX_BYTES ? NULL : mem_new(sizeof *answer + size);
    if (!answer) {
        control_hang_up(conversation);
        return;
    }
    answer->conversation = conversation;
    answer->size = size;
    memcpy(answer->bytes, bytes, size);
    uv_buf_t buffer = uv_buf_init(answer->bytes, (unsigned)size);
    conversation->queued += size;
    if (uv_write(&answer->write, (uv_stream_t *)&conversation->pipe, &buffer, 1,
                 control_on_written)) {
        conversation->queued -= size;
        mem_free(answer);
        control_hang_up(conversation);
    }
}

yyjson_mut_val *control_object(yyjson_mut_doc **doc)
{
    *doc = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *root = *doc ? yyjson_mut_obj(*doc) : NULL;
    if (*doc)
        yyjson_mut_doc_set_root(*doc, root);
    return root;
}

void control_answer(struct conversation *conversation, yyjson_mut_doc *doc)
{
    size_t size = 0;
    char *line =
        doc ? yyjson_mut_write(
                  doc, YYJSON_WRITE_NEWLINE_AT_END | YYJSON_WRITE_ALLOW_INVALID_UNICODE, &size)
            : NULL;
    yyjson_mut_doc_free(doc);
    if (line)
        control_send(conversation, line, size);
    else
        control_hang_up(conversation);
    free(line);
}

void control_fail(struct conversation *conversation, const struct error *err)
{
    yyjson_mut_doc *doc;
    yyjson_mut_val *root = control_object(&doc);
    yyjson_mut_val *object = yyjson_mut_obj_add_obj(doc, root, "error");
    char name[32];
    size_t n = 0;
    for (const char *from = error_name(err->code); *from && n + 1 < sizeof name; from++)
        name[n++] = *from == ' ' ? '_' : *from;
    name[n] = 0;
    yyjson_mut_obj_add_strcpy(doc, object, "code", name);
    yyjson_mut_obj_add_strcpy(doc, object, "text", err->text);
    control_answer(conversation, doc);
    control_end(conversation);
}

const char *control_text(yyjson_val *root, const char *key)
{
    return yyjson_get_str(yyjson_obj_get(root, key));
}

bool control_number(struct conversation *conversation, yyjson_val *root, const char *key,
                    uint64_t max, uint64_t otherwise, uint64_t *out)
{
    yyjson_val *value = yyjson_obj_get(root, key);
    struct error err;
    *out = yyjson_is_uint(value) ? yyjson_get_uint(value) : otherwise;
    if ((!value || yyjson_is_null(value) || yyjson_is_uint(value)) && *out <= max)
        return true;
    error_set(&err, ERROR_INVALID, "%s must be a whole number, at most %llu", key,
              (unsigned long long)max);
    control_fail(conversation, &err);
    return false;
}

/* ---- hearing --------------------------------------------------------------------------------- */

/* The user's name from this machine's own list: others (LDAP …) may take their time. */
static bool control_user_name(uid_t user, char *out, size_t size)
{
    FILE *list = fopen("/etc/passwd", "re");
    bool found = false;
    for (struct passwd *entry; list && !found && (entry = fgetpwent(list)) != NULL;) {
        found = entry->pw_uid == user;
        if (found)
            snprintf(out, size, "%.64s", entry->pw_name);
    }
    if (list)
        fclose(list);
    return found;
}

/* Who has opened the connection, as the kernel says. */
static void control_find_actor(struct conversation *conversation)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    char user[80], actor[AUDIT_WHO_TEXT];
    int fd;
    if (uv_fileno((uv_handle_t *)&conversation->pipe, &fd) ||
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size))
        snprintf(user, sizeof user, "somebody");
    else if (!control_user_name(peer.uid, user, sizeof user))
        snprintf(user, sizeof user, "user %u", (unsigned)peer.uid);
    snprintf(actor, sizeof actor, "%s at %s", user, conversation->daemon->name);
    audit_text(conversation->actor, sizeof conversation->actor, actor);
}

bool control_hears_more(const struct conversation *conversation)
{
    return !conversation->hearer.line;
}

static void take_request(struct conversation *conversation, const char *name, yyjson_val *root)
{
    control_request_fn request = name ? control_find(name) : NULL;
    struct error err;
    conversation->has_asked = true;
    if (request && control_check_members(root, &err)) {
        request(conversation, root);
        return;
    }
    if (!request)
        error_set(&err, ERROR_UNSUPPORTED,
                  "this node (medley %s) does not know the request '%.64s'", MEDLEY_VERSION,
                  name ? name : "");
    control_fail(conversation, &err);
}

static void take_line(struct conversation *conversation, char *line, size_t size)
{
    yyjson_doc *doc = yyjson_read(line, size, 0);
    yyjson_val *root = doc ? yyjson_doc_get_root(doc) : NULL;
    struct error err;
    if (!yyjson_is_obj(root)) {
        error_set(&err, ERROR_INVALID, "a request must be one JSON object per line");
        control_fail(conversation, &err);
    } else if (!conversation->has_asked) {
        control_find_actor(conversation);
        take_request(conversation, control_text(root, "do"), root);
    } else if (conversation->calls.line) {
        conversation->calls.line(conversation, root);
    }
    yyjson_doc_free(doc);
}

static void take_input(struct conversation *conversation)
{
    struct buffer *in = &conversation->in;
    char *end;
    while (!conversation->closing && !conversation->ends_when_sent && !conversation->calls.bytes &&
           in->size && (end = memchr(in->data, '\n', in->size)) != NULL) {
        size_t size = (size_t)(end - in->data);
        take_line(conversation, in->data, size);
        buffer_drop_front(in, size + 1);
    }
    if (!conversation->closing && !conversation->ends_when_sent && conversation->calls.bytes &&
        in->size) {
        conversation->calls.bytes(conversation, (const uint8_t *)in->data, in->size);
        buffer_clear(in);
    }
    if (conversation->ends_when_sent)
        buffer_clear(in); /* nobody listens any more */
    if (!in->failed && in->size <= LINE_MAX_BYTES)
        return;
    struct error err;
    error_set(&err, ERROR_INVALID, "a request must be a line of at most %d bytes", LINE_MAX_BYTES);
    control_fail(conversation, &err);
}

static void control_on_memory(uv_handle_t *handle, size_t size, uv_buf_t *buffer)
{
    static char bytes[64 * 1024];
    *buffer = uv_buf_init(bytes, sizeof bytes);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buffer)
{
    struct conversation *conversation = (struct conversation *)stream;
    if (conversation->closing || n == 0)
        return;
    if (n < 0) {
        control_hang_up(conversation);
        return;
    }
    buffer_append(&conversation->in, buffer->base, (size_t)n);
    take_input(conversation);
}

static void control_on_connection(uv_stream_t *server, int status)
{
    struct control *control = (struct control *)server;
    struct conversation *conversation = status ? NULL : mem_new(sizeof *conversation);
    if (!conversation)
        return;
    conversation->control = control;
    conversation->daemon = control->daemon;
    uv_pipe_init(server->loop, &conversation->pipe, 0);
    conversation->next = control->conversations;
    control->conversations = conversation;
    control->n++;
    if (uv_accept(server, (uv_stream_t *)&conversation->pipe) ||
        control->n - control->n_heard > 2 * CONVERSATIONS_MAX ||
        uv_read_start((uv_stream_t *)&conversation->pipe, control_on_memory, on_read)) {
        control_hang_up(conversation);
    } else if (control->n - control->n_heard > CONVERSATIONS_MAX) {
        struct error err;
        error_set(&err, ERROR_BUSY, "%d commands are already connected to this node",
                  CONVERSATIONS_MAX);
        control_fail(conversation, &err);
    }
}

/* ---- requests that come otherwise ------------------------------------------------------------ */

/* One that is counted, and closes as those of the socket do; NULL: no memory. */
static struct conversation *
control_begin_heard(struct control *control, const struct daemon_hearer *hearer, const char *actor)
{
    struct conversation *conversation = mem_new(sizeof *conversation);
    if (!conversation)
        return NULL;
    conversation->control = control;
    conversation->daemon = control->daemon;
    conversation->hearer = *hearer;
    uv_timer_init(control->daemon->loop, &conversation->timer);
    conversation->next = control->conversations;
    control->conversations = conversation;
    control->n++;
    control->n_heard++;
    audit_text(conversation->actor, sizeof conversation->actor, actor);
    return conversation;
}

enum error_code daemon_begin_request(struct daemon *daemon, const char *name, const char *body,
                                     size_t size, const char *actor,
                                     const struct daemon_hearer *hearer, struct conversation **out,
                                     struct error *err)
{
    struct control *control = daemon->control;
    assert(size <= LINE_MAX_BYTES && hearer->line && hearer->ended);
    *out = NULL;
    if (!control || control->n_heard >= CONVERSATIONS_HEARD_MAX)
        return error_set(err, ERROR_BUSY,
                         control ? "%d requests are under way at this node; try again"
                                 : "this node is stopping",
                         CONVERSATIONS_HEARD_MAX);
    yyjson_doc *doc = yyjson_read(size ? body : "{}", size ? size : 2, 0);
    struct conversation *conversation = NULL;
    enum error_code code = ERROR_NONE;
    if (!yyjson_is_obj(yyjson_doc_get_root(doc)))
        code = error_set(err, ERROR_INVALID, "the body must be one JSON object");
    else if (!(conversation = control_begin_heard(control, hearer, actor)))
        code = error_set(err, ERROR_NO_MEMORY, "not enough memory for the request");
    *out = conversation;
    if (!code)
        take_request(conversation, name, yyjson_doc_get_root(doc));
    if (conversation && (conversation->closing || conversation->ends_when_sent))
        *out = NULL;
    yyjson_doc_free(doc);
    return code;
}

void daemon_cancel_request(struct conversation *conversation)
{
    conversation->hearer.ended = NULL;
    control_end(conversation);
}

/* ---- the others' news ------------------------------------------------------------------------ */

void control_changed(struct daemon *daemon)
{
    struct conversation *next;
    for (struct conversation *at = daemon->control ? daemon->control->conversations : NULL; at;
         at = next) {
        next = at->next;
        if (!at->closing && at->calls.look)
            at->calls.look(at);
    }
}

void control_event(struct daemon *daemon, uint64_t index, const Cluster__Event *event, bool applied)
{
    struct conversation *next;
    control_note_event(daemon, index, event, applied);
    for (struct conversation *at = daemon->control ? daemon->control->conversations : NULL; at;
         at = next) {
        next = at->next;
        if (!at->closing && at->calls.event)
            at->calls.event(at, index, event, applied);
    }
}

/* ---- opening and closing --------------------------------------------------------------------- */

enum error_code control_open(struct daemon *daemon, struct error *err)
{
    char path[PATH_MAX];
    enum error_code code = durable_path(daemon->folder, "control", ".sock", path, err);
    if (code)
        return code;
    if (strlen(path) >= sizeof((struct sockaddr_un *)0)->sun_path)
        return error_set(err, ERROR_INVALID,
                         "%s is too long for a socket; choose another folder with MEDLEY_STATE_DIR",
                         path);
    struct control *control = mem_new(sizeof *control);
    if (!control)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the control socket");
    control->daemon = daemon;
    daemon->control = control;
    unlink(path); /* of one that has ended: the folder is locked */
    mode_t before = umask(0177);
    uv_pipe_init(daemon->loop, &control->pipe, 0);
    int problem = uv_pipe_bind(&control->pipe, path);
    umask(before);
    if (!problem)
        problem = uv_listen((uv_stream_t *)&control->pipe, 16, control_on_connection);
    return problem ? error_set(err, ERROR_IO, "%s: %s", path, uv_strerror(problem)) : ERROR_NONE;
}

static void on_pipe_closed(uv_handle_t *handle)
{
    struct control *control = (struct control *)handle;
    control->pipe_closed = true;
    end_control(control);
}

void control_close(struct daemon *daemon, void (*closed)(struct daemon *daemon))
{
    struct control *control = daemon->control;
    struct conversation *next;
    daemon->control = NULL;
    control->closing = true;
    control->closed = closed;
    for (struct conversation *at = control->conversations; at; at = next) {
        next = at->next;
        control_hang_up(at);
    }
    uv_close((uv_handle_t *)&control->pipe, on_pipe_closed); /* removes the socket, too */
}
