#include "api/routes.h"

#include "api/exchange.h"
#include "api/internal.h"
#include "api/json_out.h"
#include "api/response_json.h"

#include <stdio.h>
#include <string.h>

static void models_handle(struct exchange *exchange)
{
    const struct api_server *server = exchange_server(exchange);
    struct buffer body = {0};
    buffer_text(&body, "{\"object\":\"list\",\"data\":[");
    response_model(server->model.id, server->started_s, &body);
    buffer_text(&body, "]}");
    exchange_answer_json(exchange, &body);
}

static void model_handle(struct exchange *exchange)
{
    const struct api_server *server = exchange_server(exchange);
    struct text path = exchange_path(exchange);
    size_t prefix = strlen("/v1/models/");
    struct text name = {path.data + prefix, path.size - prefix};
    struct api_error err;
    if (!server_check_model(server, &name, &err)) {
        exchange_fail(exchange, &err);
        return;
    }
    struct buffer body = {0};
    response_model(server->model.id, server->started_s, &body);
    exchange_answer_json(exchange, &body);
}

static void health_handle(struct exchange *exchange)
{
    const struct api_server *server = exchange_server(exchange);
    struct driver_stats stats = driver_stats(server->model.driver);
    struct buffer body = {0};
    buffer_text(&body, "{\"status\":\"ok\",\"model\":");
    json_out_text(&body, server->model.id);
    buffer_printf(&body, ",\"slots\":{\"total\":%u,\"busy\":%u},\"queued\":%u}", stats.slots_total, stats.slots_busy,
                  stats.queued);
    exchange_answer_json(exchange, &body);
}

static void metrics_handle(struct exchange *exchange)
{
    const struct api_server *server = exchange_server(exchange);
    struct driver_stats stats = driver_stats(server->model.driver);
    struct buffer body = {0};
    metrics_write(&server->metrics, &stats, &body);
    exchange_answer(exchange, 200, "text/plain; version=0.0.4; charset=utf-8", &body);
}

static const struct route routes[] = {
    {METHOD_GET, "/v1/models", models_handle},
    {METHOD_GET, "/v1/models/…", model_handle},
    {METHOD_POST, "/v1/chat/completions", chat_completion_handle},
    {METHOD_POST, "/v1/completions", completion_handle},
    {METHOD_POST, "/v1/embeddings", embeddings_handle},
    {METHOD_POST, "/tokenize", tokenize_handle},
    {METHOD_POST, "/detokenize", detokenize_handle},
    {METHOD_GET, "/health", health_handle},
    {METHOD_GET, "/metrics", metrics_handle},
};

static bool matches(const struct route *route, const char *path)
{
    const char *dots = strstr(route->path, "…");
    if (!dots)
        return strcmp(route->path, path) == 0;
    size_t prefix = (size_t)(dots - route->path);
    return strncmp(route->path, path, prefix) == 0 && path[prefix];
}

const struct route *route_find(enum http_method method, const char *path, const char **allow)
{
    *allow = "";
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        if (!matches(&routes[i], path))
            continue;
        *allow = routes[i].method == METHOD_GET ? "GET, HEAD, OPTIONS" : "POST, OPTIONS";
        bool same = routes[i].method == method || (routes[i].method == METHOD_GET && method == METHOD_HEAD);
        return same ? &routes[i] : NULL;
    }
    return NULL;
}
