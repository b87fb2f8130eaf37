#include "api/server.h"

#include "api/batches.h"
#include "api/exchange_impl.h"
#include "api/listen.h"
#include "api/listener.h"
#include "api/loop_watch.h"
#include "api/ollama_pull.h"
#include "api/preparer.h"
#include "api/responses.h"
#include "api/rpc.h"
#include "api/server_lws.h"
#include "api/server_tls.h"
#include "api/traces.h"
#include "base/clock.h"
#include "base/descriptors.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/this_process.h"

#include <libwebsockets.h>

#include <assert.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    DESCRIPTORS_OWN = 64, /* of libwebsockets, besides connections */
    KEEPALIVE_S = 75,
    WATCH_MS = 10, /* while stopping */
    STOP_GRACE_S = 10,
    STOP_LAST_MS = 1000, /* for what was on its way when stopping began */
    WAITING_MS = 5 * 1000,
};

/* libwebsockets' timer list entry, with the way back to the server. */
struct server_timer {
    lws_sorted_usec_list_t entry;
    struct api_server *server;
};

static void server_watch(lws_sorted_usec_list_t *entry);

void server_job_begin(struct api_server *server)
{
    server->n_jobs++;
}

void server_job_end(struct api_server *server)
{
    assert(server->n_jobs > 0);
    server->n_jobs--;
}

/* At info: most of what it calls an error is a client's malformed request. */
static void lws_line(int level, const char *line)
{
    (void)level;
    log_line(LOG_INFO, "lws", "%.*s", (int)strcspn(line, "\n"), line);
}

static void server_wake(void *arg)
{
    lws_cancel_service(((struct api_server *)arg)->lws);
}

static void abort_all(struct api_server *server)
{
    for (struct exchange *exchange = server->exchanges; exchange; exchange = exchange->next) {
        if (!exchange->dead)
            exchange_abort(exchange);
    }
}

static void watch_again(struct api_server *server)
{
    lws_sul_schedule(server->lws, 0, &server->timer->entry, server_watch, WATCH_MS * LWS_US_PER_MS);
}

bool server_answers_last(const struct api_server *server)
{
    return clock_now_ns() - server->stop_ns < STOP_LAST_MS * UINT64_C(1000000);
}

/* While stopping: whether what was under way has ended. */
static void server_watch(lws_sorted_usec_list_t *entry)
{
    struct api_server *server = lws_container_of(entry, struct server_timer, entry)->server;
    const bool is_late = clock_now_ns() - server->stop_ns > STOP_GRACE_S * UINT64_C(1000000000);
    if (is_late)
        abort_all(server);
    const bool waits = server_answers_last(server) && connections_has_new(&server->connections);
    if (!waits && !server->exchanges && !server->n_jobs && (!server->n_ways || is_late))
        server->stopped(server->stopped_arg);
    else
        watch_again(server);
}

/* ---- tokens of requests under way ---- */

uint64_t server_wall_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void server_check_tokens(lws_sorted_usec_list_t *entry)
{
    struct api_server *server = lws_container_of(entry, struct server_timer, entry)->server;
    const uint64_t wall_ms = server_wall_ms();
    bool any = false;
    struct api_error err;
    for (struct exchange *exchange = server->exchanges; exchange; exchange = exchange->next) {
        any |= exchange->grant.id != 0;
        if (!access_holds(server->access, &exchange->grant, wall_ms, &err))
            exchange_revoke(exchange, &err);
    }
    server->watches_tokens = false;
    if (access_kept_step(&server->kept, server->access, wall_ms) || any)
        server_watch_tokens(server);
}

void server_watch_tokens(struct api_server *server)
{
    if (server->watches_tokens)
        return;
    server->watches_tokens = true;
    lws_sul_schedule(server->lws, 0, &server->token_timer->entry, server_check_tokens,
                     ACCESS_SWEEP_MS * LWS_US_PER_MS);
}

/* ---- records of requests under way ---- */

static void server_look_at_records(lws_sorted_usec_list_t *entry)
{
    struct api_server *server = lws_container_of(entry, struct server_timer, entry)->server;
    server->watches_records = false;
    api_records_see_runs(&server->records, &server->models, clock_now_ns());
    if (server->records.under_way)
        server_watch_records(server);
}

void server_watch_records(struct api_server *server)
{
    if (server->watches_records || !server->models.run)
        return;
    server->watches_records = true;
    lws_sul_schedule(server->lws, 0, &server->record_timer->entry, server_look_at_records,
                     RECORD_TICK_MS * LWS_US_PER_MS);
}

void server_end_record(struct api_server *server, struct request_record *record,
                       enum record_outcome outcome)
{
    const uint64_t now_ns = clock_now_ns();
    if (!record)
        return;
    api_record_see_last_run(&server->records, record, &server->models, now_ns);
    api_record_end(&server->records, record, outcome, now_ns);
    metrics_completion(&server->metrics, record);
    if (server->traces)
        traces_record(server->traces, record);
}

/* libwebsockets looks for its plugin for libuv in the folder that it was built for and in
 * LD_LIBRARY_PATH. A bundle has both in PREFIX/lib/medley: true if `folder` is that. */
static bool server_bundle_folder(char folder[static PATH_MAX])
{
    static const char end[] = "/lib/medley";
    Dl_info info;
    if (!dladdr((void *)(uintptr_t)lws_create_context, &info) || !info.dli_fname)
        return false;
    snprintf(folder, PATH_MAX, "%s", info.dli_fname);
    char *slash = strrchr(folder, '/');
    if (!slash)
        return false;
    *slash = 0;
    const size_t size = strlen(folder);
    return size >= sizeof end - 1 && strcmp(folder + size - (sizeof end - 1), end) == 0;
}

static struct lws_context *server_create_context(const struct lws_context_creation_info *info)
{
    static const char name[] = "LD_LIBRARY_PATH";
    char folder[PATH_MAX], path[DESCRIPTOR_PATH_BYTES];
    if (!server_bundle_folder(folder))
        return lws_create_context(info);
    /* By its descriptor: libwebsockets takes a path with a '+', as between releases, for two. */
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    descriptor_path(path, fd);
    const char *was = getenv(name);
    char *kept = was ? strdup(was) : NULL;
    setenv(name, fd < 0 ? folder : path, 1);
    struct lws_context *context = lws_create_context(info);
    if (kept)
        setenv(name, kept, 1);
    else
        unsetenv(name); /* it is for no process that this one starts */
    free(kept);
    if (fd >= 0)
        close(fd);
    return context;
}

/* Takes `fd`, which listens. */
static enum error_code open_context(struct api_server *server, void *uv_loop, int fd,
                                    struct error *err)
{
    void *loops[] = {uv_loop};
    const unsigned n_max = server->connections.n_max + DESCRIPTORS_OWN;
    struct lws_context_creation_info info = {
        .options = LWS_SERVER_OPTION_LIBUV | LWS_SERVER_OPTION_SKIP_SERVER_CANONICAL_NAME,
        .foreign_loops = loops,
        .protocols = server_protocols,
        .user = server,
        .pcontext = &server->lws,
        .port = CONTEXT_PORT_NO_LISTEN_SERVER, /* listener.h */
        .vhost_name = "api",
        .max_http_header_data2 = 16 * 1024,
        .max_http_header_pool2 = n_max,
        .fd_limit_per_thread = n_max,
        .keepalive_timeout = KEEPALIVE_S,
        .timeout_secs = EXCHANGE_HEAD_S,
        .gid = (gid_t)-1,
        .uid = (uid_t)-1,
    };
    server_tls_describe(server->tls, &info);
    lws_set_log_level(LLL_ERR | LLL_WARN, lws_line);
    server->lws = server_create_context(&info);
    if (!server->lws) {
        close(fd);
        return error_set(err, ERROR_NO_MEMORY,
                         "libwebsockets cannot begin: not enough memory, or its "
                         "plugin libwebsockets-evlib_uv.so is not installed");
    }
    server_tls_begin(server->tls, server->lws);
    return listener_open(server, fd, err);
}

static void server_free(struct api_server *server)
{
    preparer_close(server->preparer);
    mem_free(server->cors_origin);
    mem_free(server->scratch);
    mem_free(server->timer);
    listener_free(server);
    rpc_free(server->rpc);
    server_tls_close(server->tls);
    mem_free(server->token_timer);
    mem_free(server->record_timer);
    api_records_deinit(&server->records);
    traces_close(server->traces);
    access_free(server->access);
    sessions_free(server->sessions);
    response_store_free(server->responses);
    batches_free(server->batches);
    mem_free(server);
}

enum error_code api_options_add_host(struct api_options *options, const char *name,
                                     struct error *err)
{
    struct gate gate = {0};
    enum error_code code = gate_allow(&gate, name, err);
    if (code)
        return code;
    if (options->n_hosts == LIMIT_API_HOSTS)
        return error_set(err, ERROR_INVALID, "at most %d hosts can be allowed", LIMIT_API_HOSTS);
    options->hosts[options->n_hosts++] = name;
    return ERROR_NONE;
}

/* Whom it answers for besides loopback names: `listened` is the host of --api, which may be a
 * name. */
static enum error_code server_init_gate(struct api_server *server,
                                        const struct api_options *options, const char *listened,
                                        struct error *err)
{
    char machine[GATE_NAME_MAX] = "";
    enum error_code code = gate_allow(&server->gate, listened, err);
    server->gate.cors_origin = server->cors_origin;
    for (uint32_t i = 0; i < options->n_hosts && !code; i++)
        code = gate_allow(&server->gate, options->hosts[i], err);
    if (code)
        return error_wrap(err, "api");
    struct error ignored; /* a machine may be called what is no host name */
    if (gethostname(machine, sizeof machine - 1) == 0)
        gate_allow(&server->gate, machine, &ignored);
    machine[strcspn(machine, ".")] = '\0';
    gate_allow(&server->gate, machine, &ignored);
    if (options->name)
        gate_allow(&server->gate, options->name, &ignored);
    return ERROR_NONE;
}

/* *fd listens then, also after an error, or is -1. */
static enum error_code server_init(struct api_server *server, const struct api_options *options,
                                   int *fd, struct error *err)
{
    struct api_address address, listened;
    enum error_code code = api_address_parse(options->address, &address, err);
    listened = address;
    if (code || (code = listen_open(&address, fd, err)))
        return error_wrap(err, "api");
    const bool is_loopback = api_address_is_loopback(address.host);
    if (!is_loopback && options->is_open)
        log_line(LOG_WARN, "api", "every machine that can reach %s may use this API: it is --open",
                 address.host);
    memcpy(server->host, address.host, sizeof server->host);
    server->port = address.port;
    server->models = options->models;
    server->more_metrics = options->metrics;
    server->live = options->live;
    server->bridge = options->bridge;
    server->puller = options->puller;
    server->node_id = options->node_id;
    server->node_name = options->node_name;
    server->sessions = sessions_new();
    server->responses = response_store_new();
    server->limits = options->limits;
    server->shares_prefixes = options->shares_prefixes;
    server->serves_page = options->serves_page;
    api_limits_fill(&server->limits);
    connections_init(&server->connections, server->limits.connections,
                     server->limits.client_connections, descriptors_limit());
    server->waiting_ms = options->waiting_ms ? options->waiting_ms : WAITING_MS;
    server->scratch = mem_new(LWS_PRE + EXCHANGE_WRITE_BYTES);
    server->timer = mem_new(sizeof *server->timer);
    server->token_timer = mem_new(sizeof *server->token_timer);
    server->record_timer = mem_new(sizeof *server->record_timer);
    server->access = access_new(&(struct access_options){.tokens = options->access,
                                                         .is_loopback = is_loopback,
                                                         .is_open = options->is_open,
                                                         .requires = options->requires_token});
    if (options->cors_origin)
        server->cors_origin = mem_copy_text(options->cors_origin, strlen(options->cors_origin));
    if (!server->scratch || !server->timer || !server->token_timer || !server->record_timer ||
        !server->access || !server->sessions || !server->responses ||
        (options->cors_origin && !server->cors_origin))
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the server");
    server->timer->server = server->token_timer->server = server->record_timer->server = server;
    memcpy(server->more_names, options->hosts, options->n_hosts * sizeof *options->hosts);
    code = server_tls_open(&options->tls, server->host, server->more_names, &server->tls, err);
    if (code)
        return code;
    if (!server->tls && !api_address_is_loopback(server->host))
        log_line(LOG_WARN, "api",
                 "%s is served in plain text: whoever listens on the network reads "
                 "what is asked and answered",
                 server->host);
    server->memory.limit = server->limits.memory;
    access_kept_open(&server->kept, options->tls.state_folder, server->access, server_wall_ms());
    code = rpc_open(server, &server->rpc, err);
    if (!code)
        code = server_init_gate(server, options, listened.host, err);
    return code ? code : preparer_open(&server->limits, &server->preparer, err);
}

enum error_code api_server_open(void *uv_loop, const struct api_options *options,
                                struct api_server **out, struct error *err)
{
    int fd = -1;
    struct api_server *server = mem_new(sizeof *server);
    if (!server)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the server");
    server->uv_loop = uv_loop;
    enum error_code code = server_init(server, options, &fd, err);
    if (!code && options->traces_url)
        code = traces_open(options->traces_url, options->name, &server->traces, err);
    if (!code)
        code = inbox_init(&server->inbox, server_wake, server, err);
    if (code) {
        if (fd >= 0)
            close(fd);
        server_free(server);
        return code;
    }
    code = open_context(server, uv_loop, fd, err);
    if (code) {
        inbox_deinit(&server->inbox);
        server_free(server);
        return error_wrap(err, "api");
    }
    server->loop_watch = loop_watch_open(uv_loop, &server->metrics);
    server->batches = batches_open(server, options->tls.state_folder);
    *out = server;
    return ERROR_NONE;
}

uint16_t api_server_port(const struct api_server *server)
{
    return server->port;
}

const char *api_server_host(const struct api_server *server)
{
    return server->host;
}

void api_server_url(const struct api_server *server, char *url, size_t size)
{
    const bool v6 = strchr(server->host, ':') != NULL;
    snprintf(url, size, "%s://%s%s%s:%u", server->tls ? "https" : "http", v6 ? "[" : "",
             server->host, v6 ? "]" : "", server->port);
}

void api_server_reload(struct api_server *server)
{
    server_tls_reload(server->tls);
}

void api_server_stop(struct api_server *server, void (*stopped)(void *arg), void *arg)
{
    if (server->stopping) {
        server->stop_ns = 0; /* the grace is over */
        abort_all(server);
        return;
    }
    server->stopping = true;
    server->stop_ns = clock_now_ns();
    server->stopped = stopped;
    server->stopped_arg = arg;
    listener_leave_to_next(server);
    live_end_all(server);
    bridge_end_all(server);
    ollama_pull_end_all(server);
    rpc_stop_all(server);
    batches_stop(server->batches);
    watch_again(server);
    lws_cancel_service(
        server->lws); /* a timer set outside of its callbacks is seen at the next event */
}

/* No job is left, so neither the driver nor the preparer has an item of ours; but one of them may
 * still be inside its last wake-up, which inbox_silence() waits for. */
void api_server_close(struct api_server *server)
{
    assert(!server->n_jobs);
    inbox_silence(&server->inbox);
    rpc_close_all(server);
    batches_close(server->batches);
    lws_sul_cancel(&server->timer->entry);
    listener_stop(server);
    loop_watch_close(server->loop_watch);
    access_kept_flush(&server->kept, server->access, server_wall_ms());
    server->loop_watch = NULL;
    server_tls_end(server->tls);
    lws_sul_cancel(&server->token_timer->entry);
    lws_sul_cancel(&server->record_timer->entry);
    lws_context_destroy(server->lws);
}

void api_server_free(struct api_server *server)
{
    if (!server)
        return;
    if (server->lws)
        lws_context_destroy(
            server->lws); /* the second half, now that the loop has given back its handles */
    assert(!server->lws);
    inbox_deinit(&server->inbox);
    server_free(server);
}
