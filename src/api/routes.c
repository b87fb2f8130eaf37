#include "api/routes.h"

#include "api/access.h"
#include "api/batches.h"
#include "api/bridge.h"
#include "api/exchange.h"
#include "api/files.h"
#include "api/internal.h"
#include "api/json_out.h"
#include "api/ollama_pull.h"
#include "api/page.h"
#include "api/response_json.h"
#include "api/server_session.h"
#include "request/generator.h"

#include <stdio.h>
#include <string.h>

/* A list of JSON objects in the making. */
struct routes_listing {
    const struct access *access;
    const struct access_grant *grant;
    struct buffer *body;
    const struct text *wanted; /* NULL: all */
    uint32_t count;
};

static void routes_add_model(void *arg, const struct api_listed *model)
{
    struct routes_listing *listing = arg;
    if (listing->wanted && !server_is_named(listing->wanted, model->id) &&
        !server_is_named(listing->wanted, model->alias))
        return;
    if (!access_may_list(listing->access, listing->grant, model->id))
        return;
    if (listing->count++)
        buffer_text(listing->body, ",");
    response_model(model->id, model->created_s, listing->body);
}

static void models_handle(struct exchange *exchange)
{
    const struct api_models *models = &exchange_server(exchange)->models;
    struct buffer body = {0};
    struct routes_listing listing = {.access = exchange_server(exchange)->access,
                                     .grant = exchange_grant(exchange),
                                     .body = &body};
    buffer_text(&body, "{\"object\":\"list\",\"data\":[");
    models->list(models->self, routes_add_model, &listing);
    buffer_text(&body, "]}");
    exchange_answer_json(exchange, &body);
}

static void model_handle(struct exchange *exchange)
{
    const struct api_server *server = exchange_server(exchange);
    struct text path = exchange_path(exchange);
    size_t prefix = strlen("/v1/models/");
    struct text name = {path.data + prefix, path.size - prefix};
    struct buffer body = {0};
    struct routes_listing listing = {.access = server->access,
                                     .grant = exchange_grant(exchange),
                                     .body = &body,
                                     .wanted = &name};
    server->models.list(server->models.self, routes_add_model, &listing);
    if (listing.count) {
        exchange_answer_json(exchange, &body);
        return;
    }
    struct api_error err;
    server_no_such_model(server, exchange_grant(exchange), &name, NULL, &err);
    exchange_fail(exchange, &err);
}

static struct driver_stats stats_of(const struct api_listed *model)
{
    return model->generator ? generator_stats(model->generator) : (struct driver_stats){0};
}

static void write_stats(const struct driver_stats *stats, struct buffer *out)
{
    buffer_printf(out, "\"slots\":{\"total\":%u,\"busy\":%u},\"queued\":%u", stats->slots_total,
                  stats->slots_busy, stats->queued);
    if (stats->cells_total)
        buffer_printf(out, ",\"cells\":{\"total\":%u,\"free\":%u,\"shared\":%u},\"parked\":%u",
                      stats->cells_total, stats->cells_free, stats->cells_shared, stats->parked);
}

/* What all models together do, and each for itself. */
struct figures {
    struct driver_stats sum;
    struct buffer first; /* the name of the first */
    struct buffer each;
    uint32_t n_models;
};

static void add_figures(void *arg, const struct api_listed *model)
{
    struct figures *figures = arg;
    struct driver_stats stats = stats_of(model), *sum = &figures->sum;
    sum->slots_total += stats.slots_total;
    sum->slots_busy += stats.slots_busy;
    sum->queued += stats.queued;
    sum->cells_total += stats.cells_total;
    sum->cells_free += stats.cells_free;
    sum->cells_shared += stats.cells_shared;
    sum->parked += stats.parked;
    sum->requests_total += stats.requests_total;
    sum->steps_total += stats.steps_total;
    sum->rows_total += stats.rows_total;
    if (!figures->n_models++)
        json_out_text(&figures->first, model->id);
    else
        buffer_text(&figures->each, ",");
    buffer_text(&figures->each, "{\"model\":");
    json_out_text(&figures->each, model->id);
    buffer_text(&figures->each, ",");
    write_stats(&stats, &figures->each);
    buffer_text(&figures->each, "}");
}

static struct figures routes_gather(const struct api_server *server)
{
    struct figures figures = {0};
    server->models.list(server->models.self, add_figures, &figures);
    return figures;
}

static void figures_deinit(struct figures *figures)
{
    buffer_deinit(&figures->first);
    buffer_deinit(&figures->each);
}

/* For everybody, so that what watches the server needs no token: then it is only "ok".
 * With one model {"model"}, else {"models": […]}. */
static void health_handle(struct exchange *exchange)
{
    if (access_is_guarded(exchange_server(exchange)->access)) {
        struct buffer short_body = {0};
        buffer_text(&short_body, "{\"status\":\"ok\"}");
        exchange_answer_json(exchange, &short_body);
        return;
    }
    struct figures figures = routes_gather(exchange_server(exchange));
    const struct buffer *names = figures.n_models == 1 ? &figures.first : &figures.each;
    struct buffer body = {0};
    buffer_text(&body, figures.n_models == 1 ? "{\"status\":\"ok\",\"model\":"
                                             : "{\"status\":\"ok\",\"models\":[");
    buffer_append(&body, names->data, names->size);
    buffer_text(&body, figures.n_models == 1 ? "," : "],");
    write_stats(&figures.sum, &body);
    buffer_text(&body, "}");
    body.failed |= names->failed;
    figures_deinit(&figures);
    exchange_answer_json(exchange, &body);
}

/* A client that may generate may also see what with. */
enum { SEES_MODELS = ACCESS_READ | ACCESS_GENERATE };

enum { KEEPS_FILES = ACCESS_GENERATE };

/* Of two rows that match, the later counts. */
static const struct route routes[] = {
    {METHOD_GET, "/v1/models", SEES_MODELS, models_handle},
    {METHOD_GET, "/v1/models/…", SEES_MODELS, model_handle},
    {METHOD_POST, "/v1/chat/completions", ACCESS_GENERATE, chat_completion_handle},
    {METHOD_POST, "/v1/completions", ACCESS_GENERATE, completion_handle},
    {METHOD_POST, "/v1/embeddings", ACCESS_GENERATE, embeddings_handle},
    {METHOD_POST, "/v1/rerank", ACCESS_GENERATE, rerank_handle},
    {METHOD_POST, "/v1/files", KEEPS_FILES, files_upload_handle},
    {METHOD_GET, "/v1/files", KEEPS_FILES, files_list_handle},
    {METHOD_GET, "/v1/files/…", KEEPS_FILES, files_get_handle},
    {METHOD_DELETE, "/v1/files/…", KEEPS_FILES, files_delete_handle},
    {METHOD_GET, "/v1/files/…/content", KEEPS_FILES, files_content_handle},
    {METHOD_POST, "/v1/batches", KEEPS_FILES, batches_create_handle},
    {METHOD_GET, "/v1/batches", KEEPS_FILES, batches_list_handle},
    {METHOD_GET, "/v1/batches/…", KEEPS_FILES, batches_get_handle},
    {METHOD_POST, "/v1/batches/…/cancel", KEEPS_FILES, batches_cancel_handle},
    {METHOD_POST, "/v1/responses", ACCESS_GENERATE, responses_handle, API_SHAPE_OPENAI},
    {METHOD_POST, "/v1/messages", ACCESS_GENERATE, anthropic_handle, API_SHAPE_ANTHROPIC},
    {METHOD_POST, "/v1/messages/count_tokens", ACCESS_GENERATE, anthropic_count_handle,
     API_SHAPE_ANTHROPIC},
    {METHOD_POST, "/api/chat", ACCESS_GENERATE, ollama_chat_handle, API_SHAPE_OLLAMA},
    {METHOD_POST, "/api/generate", ACCESS_GENERATE, ollama_generate_handle, API_SHAPE_OLLAMA},
    {METHOD_GET, "/api/tags", SEES_MODELS, ollama_tags_handle, API_SHAPE_OLLAMA},
    {METHOD_GET, "/api/ps", SEES_MODELS, ollama_ps_handle, API_SHAPE_OLLAMA},
    {METHOD_POST, "/api/show", SEES_MODELS, ollama_show_handle, API_SHAPE_OLLAMA},
    {METHOD_GET, "/api/version", SEES_MODELS, ollama_version_handle, API_SHAPE_OLLAMA},
    {METHOD_POST, "/api/embed", ACCESS_GENERATE, ollama_embed_handle, API_SHAPE_OLLAMA},
    {METHOD_POST, "/api/embeddings", ACCESS_GENERATE, ollama_embeddings_handle, API_SHAPE_OLLAMA},
    {METHOD_POST, "/api/pull", ACCESS_MODELS, ollama_pull_handle, API_SHAPE_OLLAMA},
    {METHOD_POST, "/completion", ACCESS_GENERATE, llama_completion_handle, API_SHAPE_OPENAI},
    {METHOD_POST, "/infill", ACCESS_GENERATE, llama_infill_handle, API_SHAPE_OPENAI},
    {METHOD_POST, "/apply-template", ACCESS_GENERATE, llama_template_handle, API_SHAPE_OPENAI},
    {METHOD_GET, "/props", SEES_MODELS, llama_props_handle, API_SHAPE_OPENAI},
    {METHOD_GET, "/slots", SEES_MODELS, llama_slots_handle, API_SHAPE_OPENAI},
    {METHOD_POST, "/tokenize", ACCESS_GENERATE, tokenize_handle},
    {METHOD_POST, "/detokenize", ACCESS_GENERATE, detokenize_handle},
    {METHOD_GET, "/health", 0, health_handle},
    {METHOD_GET, "/api/live", ACCESS_READ, live_handle},
    {METHOD_GET, "/api/history", ACCESS_READ, history_handle},
    {METHOD_GET, "/metrics", ACCESS_READ, metrics_handle},
    {METHOD_GET, "/openapi.json", 0, openapi_handle},
    {METHOD_GET, "/", 0, page_handle},
    {METHOD_GET, "/assets/…", 0, page_handle},
    {METHOD_GET, "/icon.svg", 0, page_handle},
    {METHOD_GET, "/manifest.webmanifest", 0, page_handle},
    {METHOD_GET, "/api/requests", ACCESS_READ, requests_handle},
    {METHOD_GET, "/api/requests/…", ACCESS_READ, request_handle},

    {METHOD_GET, "/api/session", 0, session_get_handle},
    {METHOD_POST, "/api/session", 0, session_post_handle},
    {METHOD_DELETE, "/api/session", 0, session_delete_handle},
    {METHOD_POST, "/api/passes", ACCESS_SCOPES_ALL, passes_handle},

    /* What the node is asked (docs/control.md). */
    {METHOD_GET, "/api/status", ACCESS_READ, bridge_handle},
    {METHOD_GET, "/api/nodes", ACCESS_READ, bridge_handle},
    {METHOD_GET, "/api/links", ACCESS_READ, bridge_handle},
    {METHOD_GET, "/api/cluster", ACCESS_READ, bridge_handle},
    {METHOD_GET, "/api/moves", ACCESS_READ, bridge_handle},
    {METHOD_GET, "/api/alerts", ACCESS_READ, bridge_handle},
    {METHOD_POST, "/api/alerts", ACCESS_ADMIN, bridge_handle},
    {METHOD_POST, "/api/plan", ACCESS_READ, bridge_handle},
    {METHOD_POST, "/api/place", ACCESS_MODELS, bridge_handle},
    {METHOD_POST, "/api/unload", ACCESS_MODELS, bridge_handle},
    {METHOD_POST, "/api/move", ACCESS_MODELS, bridge_handle},
    {METHOD_POST, "/api/moves", ACCESS_MODELS, bridge_handle},
    {METHOD_POST, "/api/add", ACCESS_MODELS, bridge_handle},
    {METHOD_POST, "/api/forget", ACCESS_MODELS, bridge_handle},
    {METHOD_POST, "/api/where", ACCESS_MODELS, bridge_handle},
    {METHOD_POST, "/api/drain", ACCESS_ADMIN, bridge_handle},
    {METHOD_POST, "/api/invite", ACCESS_ADMIN, bridge_handle},
    {METHOD_POST, "/api/join", ACCESS_ADMIN, bridge_handle},
    {METHOD_POST, "/api/admit", ACCESS_ADMIN, bridge_handle},
    {METHOD_POST, "/api/remove", ACCESS_ADMIN, bridge_handle},
    {METHOD_POST, "/api/role", ACCESS_ADMIN, bridge_handle},
    {METHOD_POST, "/api/leave", ACCESS_ADMIN, bridge_handle},
    {METHOD_POST, "/api/authority", ACCESS_ADMIN, bridge_handle},
    {METHOD_POST, "/api/token", ACCESS_ADMIN, bridge_handle},
    {METHOD_GET, "/api/audit", ACCESS_ADMIN, bridge_handle},
    {METHOD_POST, "/api/audit", ACCESS_ADMIN, bridge_handle},
};

const struct route *routes_all(size_t *count)
{
    *count = sizeof routes / sizeof *routes;
    return routes;
}

static bool routes_matches(const struct route *route, const char *path)
{
    const char *dots = strstr(route->path, "…");
    if (!dots)
        return strcmp(route->path, path) == 0;
    const size_t prefix = (size_t)(dots - route->path);
    const char *tail = dots + strlen("…"), *rest = path + prefix;
    if (strncmp(route->path, path, prefix) != 0 || !rest[0])
        return false;
    const char *slash = strchr(rest, '/');
    return !tail[0] || (slash && slash > rest && strcmp(slash, tail) == 0);
}

/* By the methods of a path: bit 0 GET, bit 1 POST, bit 2 DELETE. */
static const char *const routes_allow[] = {
    "",
    "GET, HEAD, OPTIONS",
    "POST, OPTIONS",
    "GET, HEAD, POST, OPTIONS",
    "DELETE, OPTIONS",
    "GET, HEAD, DELETE, OPTIONS",
    "POST, DELETE, OPTIONS",
    "GET, HEAD, POST, DELETE, OPTIONS",
};

const struct route *route_find(enum http_method method, const char *path, const char **allow)
{
    const enum http_method wanted = method == METHOD_HEAD ? METHOD_GET : method;
    const struct route *found = NULL;
    unsigned methods = 0;
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        if (!routes_matches(&routes[i], path))
            continue;
        methods |= 1U << routes[i].method;
        if (routes[i].method == wanted)
            found = &routes[i];
    }
    *allow = routes_allow[methods];
    return found;
}

bool route_is_private(const struct route *route)
{
    static const char before[] = "/api/";
    return route && strncmp(route->path, before, sizeof before - 1) == 0;
}

bool route_computes(const struct route *route)
{
    return route && route->method == METHOD_POST && route->scopes == ACCESS_GENERATE &&
           strncmp(route->path, "/v1/files", 9) != 0 &&
           strncmp(route->path, "/v1/batches", 11) != 0;
}

bool route_is_bridge(const struct route *route)
{
    return route_is_private(route) && route->shape == API_SHAPE_OPENAI;
}
