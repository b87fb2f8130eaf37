#include "api/ollama_pull.h"

#include "api/access.h"
#include "api/bridge.h"
#include "api/dialect.h"
#include "api/exchange_impl.h"
#include "api/json_out.h"
#include "base/mem.h"

#include <uv.h>
#include <yyjson.h>

#include <assert.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    OLLAMA_PULL_LINE_MAX = 64 * 1024, /* of the process's */
    OLLAMA_PULL_COMPLAINT_MAX = 4096, /* the end of what it says on stderr */
};

struct ollama_pull {
    uv_process_t process;
    uv_pipe_t output, complaints;
    uint32_t n_open; /* handles that libuv has */
    struct api_server *server;
    struct exchange *exchange;                    /* NULL: the client has gone, or was answered */
    bool streams, has_begun, has_ended, is_added; /* has_ended: the process */
    struct buffer lines;                          /* of the process, not read yet */
    struct buffer words;                          /* what it says on stderr */
    char path[PATH_MAX];                          /* of the model; "": it is not here yet */
    struct buffer problem;                        /* what the cluster answered, if not well */
    void *asked;                                  /* the bridge's; NULL: nothing is asked */
    char actor[160];
    char bytes[16 * 1024]; /* one read */
};

/* ---- the answer ------------------------------------------------------------------------------ */

/* False: the client has gone. */
static bool ollama_pull_send(struct ollama_pull *pull, struct buffer *line)
{
    if (!pull->exchange || !pull->streams)
        return pull->exchange != NULL;
    if (!pull->has_begun)
        exchange_lines_begin(pull->exchange, "application/x-ndjson");
    pull->has_begun = true;
    return exchange_lines_add(pull->exchange, line) && pull->exchange;
}

static void ollama_pull_succeed(struct ollama_pull *pull)
{
    struct buffer body = {0};
    struct exchange *exchange = pull->exchange;
    buffer_text(&body, "{\"status\":\"success\"}\n");
    if (!pull->streams && exchange) {
        pull->exchange = NULL;
        exchange_answer_json(exchange, &body);
    } else if (ollama_pull_send(pull, &body)) {
        pull->exchange = NULL;
        exchange_lines_end(exchange);
    }
    buffer_deinit(&body);
}

static void ollama_pull_fail(struct ollama_pull *pull, unsigned status, const char *text)
{
    struct exchange *exchange = pull->exchange;
    struct api_error err;
    api_error_set(&err, status, status < 500 ? "invalid_request_error" : "server_error", NULL,
                  "%.400s", text);
    pull->exchange = NULL;
    if (exchange)
        exchange_fail(exchange, &err);
}

/* ---- the process ----------------------------------------------------------------------------- */

static void ollama_pull_on_closed(uv_handle_t *handle)
{
    struct ollama_pull *pull = handle->data;
    if (--pull->n_open)
        return;
    server_job_end(pull->server);
    buffer_deinit(&pull->lines);
    buffer_deinit(&pull->words);
    buffer_deinit(&pull->problem);
    mem_free(pull);
}

static void ollama_pull_close(struct ollama_pull *pull)
{
    uv_close((uv_handle_t *)&pull->output, ollama_pull_on_closed);
    uv_close((uv_handle_t *)&pull->complaints, ollama_pull_on_closed);
    uv_close((uv_handle_t *)&pull->process, ollama_pull_on_closed);
}

static void ollama_pull_on_gone(void *owner)
{
    struct ollama_pull *pull = owner;
    pull->exchange = NULL;
    if (pull->asked) {
        pull->server->bridge.cancel(pull->server->bridge.self, pull->asked);
        pull->asked = NULL;
        ollama_pull_close(pull);
    } else if (!pull->has_ended) {
        uv_process_kill(&pull->process, SIGTERM); /* it comes to its exit */
    }
}

static void ollama_pull_take_line(struct ollama_pull *pull, const char *line, size_t size)
{
    struct buffer out = {0};
    ollama_pull_line(line, size, &out, pull->path, sizeof pull->path);
    if (out.size)
        ollama_pull_send(pull, &out);
    buffer_deinit(&out);
}

static void ollama_pull_take_lines(struct ollama_pull *pull)
{
    char *end;
    while (pull->lines.size && (end = memchr(pull->lines.data, '\n', pull->lines.size))) {
        const size_t size = (size_t)(end - pull->lines.data);
        ollama_pull_take_line(pull, pull->lines.data, size);
        buffer_drop_front(&pull->lines, size + 1);
    }
    if (pull->lines.size > OLLAMA_PULL_LINE_MAX)
        buffer_clear(&pull->lines);
}

static void ollama_pull_room(uv_handle_t *handle, size_t wanted, uv_buf_t *out)
{
    struct ollama_pull *pull = handle->data;
    (void)wanted;
    *out = uv_buf_init(pull->bytes, sizeof pull->bytes);
}

static void ollama_pull_on_output(uv_stream_t *stream, ssize_t n, const uv_buf_t *bytes)
{
    struct ollama_pull *pull = stream->data;
    if (n > 0)
        buffer_append(&pull->lines, bytes->base, (size_t)n);
    else if (n < 0)
        uv_read_stop(stream);
    ollama_pull_take_lines(pull);
}

static void ollama_pull_on_complaint(uv_stream_t *stream, ssize_t n, const uv_buf_t *bytes)
{
    struct ollama_pull *pull = stream->data;
    if (n < 0)
        uv_read_stop(stream);
    if (n <= 0)
        return;
    buffer_append(&pull->words, bytes->base, (size_t)n);
    if (pull->words.size > OLLAMA_PULL_COMPLAINT_MAX)
        buffer_drop_front(&pull->words, pull->words.size - OLLAMA_PULL_COMPLAINT_MAX);
}

/* ---- telling the cluster --------------------------------------------------------------------- */

static void ollama_pull_on_answer(void *self, const char *line, size_t size)
{
    struct ollama_pull *pull = self;
    struct buffer error = {0};
    if (bridge_status(line, size, &error) != 200 && !pull->problem.size) {
        yyjson_doc *doc = yyjson_read(line, size, YYJSON_READ_ALLOW_INVALID_UNICODE);
        yyjson_val *told = yyjson_obj_get(yyjson_doc_get_root(doc), "error");
        const char *text = yyjson_get_str(yyjson_obj_get(told, "text"));
        buffer_text(&pull->problem, text ? text : "the cluster did not take the model");
        yyjson_doc_free(doc);
    }
    buffer_deinit(&error);
}

static void ollama_pull_finish(struct ollama_pull *pull)
{
    pull->asked = NULL;
    if (pull->problem.size)
        ollama_pull_fail(pull, 400, pull->problem.data);
    else
        ollama_pull_succeed(pull);
    ollama_pull_close(pull);
}

/* May come within the asking: then it is finished behind it. */
static void ollama_pull_on_added(void *self)
{
    struct ollama_pull *pull = self;
    pull->is_added = true;
    if (pull->asked)
        ollama_pull_finish(pull);
}

/* Known to the cluster, the model is in the lists and loads with the first request. */
static void ollama_pull_add(struct ollama_pull *pull)
{
    const struct api_bridge *bridge = &pull->server->bridge;
    const struct api_bridge_hearer hearer = {ollama_pull_on_answer, ollama_pull_on_added, pull};
    struct buffer question = {0}, line = {0};
    struct error why;
    buffer_text(&line, "{\"status\":\"writing manifest\"}\n");
    buffer_text(&question, "{\"path\":");
    json_out_text(&question, pull->path);
    buffer_text(&question, "}");
    const bool is_wanted = ollama_pull_send(pull, &line);
    const enum error_code code =
        is_wanted ? bridge->ask(bridge->self, "add", question.data, question.size, pull->actor,
                                &hearer, &pull->asked, &why)
                  : ERROR_NONE;
    buffer_deinit(&question);
    buffer_deinit(&line);
    if (code)
        buffer_text(&pull->problem, why.text);
    if (!is_wanted)
        ollama_pull_close(pull);
    else if (code || pull->is_added)
        ollama_pull_finish(pull);
}

/* The last line of what it said, without "medley pull: ". */
static void ollama_pull_fail_as_told(struct ollama_pull *pull)
{
    static const char before[] = "medley pull: ";
    char *text = pull->words.data ? pull->words.data : "";
    size_t size = pull->words.size;
    while (size && (text[size - 1] == '\n' || text[size - 1] == ' '))
        text[--size] = '\0';
    char *last = strrchr(text, '\n');
    last = last ? last + 1 : text;
    if (strncmp(last, before, sizeof before - 1) == 0)
        last += sizeof before - 1;
    ollama_pull_fail(pull, 400, last[0] ? last : "the pull ended without an answer");
}

/* The pipes may have more than was read: the process has ended, so all of it is there. */
static void ollama_pull_drain(struct ollama_pull *pull, uv_pipe_t *pipe,
                              void (*take)(uv_stream_t *stream, ssize_t n, const uv_buf_t *bytes))
{
    int fd;
    ssize_t n;
    uv_buf_t bytes = uv_buf_init(pull->bytes, sizeof pull->bytes);
    if (uv_fileno((uv_handle_t *)pipe, &fd))
        return;
    while ((n = read(fd, pull->bytes, sizeof pull->bytes)) > 0)
        take((uv_stream_t *)pipe, n, &bytes);
}

static void ollama_pull_on_exit(uv_process_t *process, int64_t status, int signal)
{
    struct ollama_pull *pull = process->data;
    pull->has_ended = true;
    ollama_pull_drain(pull, &pull->output, ollama_pull_on_output);
    ollama_pull_drain(pull, &pull->complaints, ollama_pull_on_complaint);
    if (status == 0 && !signal && pull->path[0] && pull->exchange) {
        ollama_pull_add(pull);
        return;
    }
    ollama_pull_fail_as_told(pull);
    ollama_pull_close(pull);
}

/* ---- beginning ------------------------------------------------------------------------------- */

static uint32_t ollama_pulls_under_way(const struct api_server *server)
{
    uint32_t n = 0;
    for (const struct exchange *at = server->exchanges; at; at = at->next)
        n += at->gone == ollama_pull_on_gone;
    return n;
}

void ollama_pull_end_all(struct api_server *server)
{
    for (struct exchange *exchange = server->exchanges; exchange; exchange = exchange->next) {
        if (exchange->gone == ollama_pull_on_gone)
            exchange_abort(exchange);
    }
}

static int ollama_pull_spawn(struct ollama_pull *pull, char *name)
{
    char *program = (char *)(uintptr_t)pull->server->puller;
    char *arguments[] = {program, "pull", name, "--json", NULL};
    uv_stdio_container_t streams[] = {
        {.flags = UV_IGNORE},
        {.flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE, .data.stream = (uv_stream_t *)&pull->output},
        {.flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE,
         .data.stream = (uv_stream_t *)&pull->complaints},
    };
    const uv_process_options_t options = {.file = program,
                                          .args = arguments,
                                          .exit_cb = ollama_pull_on_exit,
                                          .stdio = streams,
                                          .stdio_count = 3};
    uv_pipe_init(pull->server->uv_loop, &pull->output, 0);
    uv_pipe_init(pull->server->uv_loop, &pull->complaints, 0);
    pull->process.data = pull->output.data = pull->complaints.data = pull;
    pull->n_open = 3;
    return uv_spawn(pull->server->uv_loop, &pull->process, &options);
}

static void ollama_pull_begin(struct ollama_pull *pull, struct exchange *exchange, char *name)
{
    struct buffer line = {0};
    pull->server = exchange_server(exchange);
    pull->exchange = exchange;
    bridge_name_actor(exchange, pull->actor, sizeof pull->actor);
    server_job_begin(pull->server);
    const int problem = ollama_pull_spawn(pull, name);
    if (problem) {
        ollama_pull_fail(pull, 503, uv_strerror(problem));
        ollama_pull_close(pull); /* libuv closes one that did not start as well */
        return;
    }
    exchange_set_owner(exchange, ollama_pull_on_gone, pull);
    uv_read_start((uv_stream_t *)&pull->output, ollama_pull_room, ollama_pull_on_output);
    uv_read_start((uv_stream_t *)&pull->complaints, ollama_pull_room, ollama_pull_on_complaint);
    buffer_text(&line, "{\"status\":\"pulling manifest\"}\n");
    ollama_pull_send(pull, &line);
    buffer_deinit(&line);
}

static bool ollama_pull_read(struct exchange *exchange, char name[OLLAMA_PULL_NAME_MAX],
                             bool *streams, struct api_error *err)
{
    static const char *const known[] = {"model", "name", "stream", "insecure", NULL};
    static const struct dialect_field fields[] = {{"model", DIALECT_TEXT},
                                                  {"name", DIALECT_TEXT},
                                                  {"stream", DIALECT_FLAG},
                                                  {"insecure", DIALECT_FLAG},
                                                  {0}};
    const struct text body = exchange_body(exchange);
    yyjson_doc *doc = dialect_open(body.data, body.size, err);
    yyjson_val *root = yyjson_doc_get_root(doc), *model = yyjson_obj_get(root, "model");
    bool is_good =
        doc && dialect_check(root, "", known, err) && dialect_check_types(root, "", fields, err);
    model = yyjson_is_str(model) ? model : yyjson_obj_get(root, "name");
    *streams = !yyjson_is_false(yyjson_obj_get(root, "stream"));
    if (is_good && yyjson_is_true(yyjson_obj_get(root, "insecure")))
        is_good = api_error_field(err, "insecure", "'insecure' is not supported");
    if (is_good && (!yyjson_is_str(model) ||
                    !ollama_pull_name(yyjson_get_str(model), yyjson_get_len(model), name)))
        is_good = api_error_field(err, "model",
                                  "'model' must be a name of Ollama's registry, as 'llama3.2:1b', "
                                  "or 'hf.co/ORG/REPO:QUANT'");
    yyjson_doc_free(doc);
    return is_good;
}

static bool ollama_pull_may(const struct exchange *exchange, struct api_error *err)
{
    const struct api_server *server = exchange_server(exchange);
    const struct access_grant *grant = exchange_grant(exchange);
    if (!server->bridge.ask || !server->puller)
        return api_error_set(err, 404, "invalid_request_error", "no_cluster",
                             "this server has its one model and pulls none; `medley up` starts a "
                             "node that does");
    if (grant->is_bound)
        return api_error_set(err, 403, "permission_error", "token_bound",
                             "token '%s' is bound to some models or machines, so it cannot bring "
                             "others; use one that is not bound",
                             grant->name);
    return ollama_pulls_under_way(server) < OLLAMA_PULLS_MAX ||
           api_error_set(err, 503, "server_error", "busy",
                         "%d pulls are under way: wait for one to end", OLLAMA_PULLS_MAX);
}

void ollama_pull_handle(struct exchange *exchange)
{
    struct api_error err;
    char name[OLLAMA_PULL_NAME_MAX];
    bool streams;
    struct ollama_pull *pull = NULL;
    if (ollama_pull_may(exchange, &err) && ollama_pull_read(exchange, name, &streams, &err)) {
        pull = mem_new(sizeof *pull);
        if (!pull)
            api_error_set(&err, 503, "server_error", "no_memory", "not enough memory for the pull");
    }
    if (!pull) {
        exchange_fail(exchange, &err);
        return;
    }
    pull->streams = streams;
    ollama_pull_begin(pull, exchange, name);
}
