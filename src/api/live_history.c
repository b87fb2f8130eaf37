/* GET /api/history?node=ID&device=ID: the last minute of a device, from its own node. */
#include "api/exchange.h"
#include "api/internal.h"
#include "base/mem.h"

#include <string.h>

struct history_job {
    struct api_server *server;
    struct exchange *exchange;
};

static void history_job_gone(void *owner)
{
    struct history_job *job = owner;
    job->server->live.cancel_history(job->server->live.self, job);
    server_job_end(job->server);
    mem_free(job);
}

static void history_job_fail(struct exchange *exchange, const struct error *err)
{
    struct api_error answer;
    const bool unknown = err->code == ERROR_NOT_FOUND;
    api_error_set(&answer, unknown ? 404 : 503, unknown ? "invalid_request_error" : "server_error",
                  unknown ? "not_found" : "not_reached", "%s", err->text);
    exchange_fail(exchange, &answer);
}

static void history_job_done(void *arg, const char *text, size_t size, const struct error *err)
{
    struct history_job *job = arg;
    struct exchange *exchange = job->exchange;
    struct buffer body = {0};
    server_job_end(job->server);
    mem_free(job);
    if (err) {
        history_job_fail(exchange, err);
        return;
    }
    buffer_append(&body, text, size);
    exchange_answer_json(exchange, &body);
}

void history_handle(struct exchange *exchange)
{
    struct api_server *server = exchange_server(exchange);
    char node[LIMIT_REQUEST_ID_BYTES + 1], device[LIMIT_REQUEST_ID_BYTES + 1];
    struct api_error err;
    if (!server->live.history) {
        api_error_set(&err, 404, "invalid_request_error", "no_cluster",
                      "this server is no node of a cluster: start it with `medley up`");
        exchange_fail(exchange, &err);
        return;
    }
    if (!exchange_argument(exchange, "node", node, sizeof node) ||
        !exchange_argument(exchange, "device", device, sizeof device)) {
        api_error_set(&err, 400, "invalid_request_error", "missing_argument",
                      "say which: /api/history?node=ID&device=ID, with ids as in /api/live");
        exchange_fail(exchange, &err);
        return;
    }
    struct history_job *job = mem_new(sizeof *job);
    if (!job) {
        api_error_set(&err, 503, "server_error", "no_memory", "not enough memory for the request");
        exchange_fail(exchange, &err);
        return;
    }
    *job = (struct history_job){server, exchange};
    server_job_begin(server);
    exchange_set_owner(exchange, history_job_gone, job);
    server->live.history(server->live.self, node, device, history_job_done, job);
}
