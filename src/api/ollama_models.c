/* What Ollama's interface tells of models. Sizes and digests of files are not the API's to know:
 * they are 0 and empty. */
#include "api/ollama.h"

#include "api/exchange.h"
#include "api/json_out.h"
#include "api/model_defaults.h"
#include "base/version.h"

#include <string.h>
#include <yyjson.h>

struct ollama_listing {
    const struct access *access;
    const struct access_grant *grant;
    const struct text *wanted; /* NULL: all */
    struct buffer *body;
    struct buffer parameters, system; /* of the one that is wanted */
    uint32_t count;
    bool only_running;
};

static const char ollama_details[] =
    "{\"parent_model\":\"\",\"format\":\"gguf\",\"family\":\"\",\"families\":[],"
    "\"parameter_size\":\"\",\"quantization_level\":\"\"}";

static bool ollama_skips(const struct ollama_listing *listing, const struct api_listed *model)
{
    return (listing->wanted && !server_is_named(listing->wanted, model->id) &&
            !server_is_named(listing->wanted, model->alias)) ||
           (listing->only_running && !model->generator) ||
           !access_may_list(listing->access, listing->grant, model->id);
}

static void ollama_add_model(void *arg, const struct api_listed *model)
{
    struct ollama_listing *listing = arg;
    char when[OLLAMA_TIME_BYTES];
    if (ollama_skips(listing, model))
        return;
    if (listing->wanted)
        model_defaults_show(model->defaults, &listing->parameters, &listing->system);
    ollama_time(model->created_s, when);
    buffer_text(listing->body, listing->count++ ? ",{\"name\":" : "{\"name\":");
    json_out_text(listing->body, model->id);
    buffer_text(listing->body, ",\"model\":");
    json_out_text(listing->body, model->id);
    buffer_printf(listing->body, ",\"modified_at\":\"%s\",\"size\":0,\"digest\":\"\"", when);
    if (listing->only_running) /* it stays until somebody unloads it */
        buffer_text(listing->body, ",\"expires_at\":\"9999-12-31T23:59:59Z\",\"size_vram\":0");
    buffer_printf(listing->body, ",\"details\":%s}", ollama_details);
}

static void ollama_list(struct exchange *exchange, bool only_running)
{
    struct api_server *server = exchange_server(exchange);
    struct buffer body = {0};
    struct ollama_listing listing = {.access = server->access,
                                     .grant = exchange_grant(exchange),
                                     .body = &body,
                                     .only_running = only_running};
    buffer_text(&body, "{\"models\":[");
    server->models.list(server->models.self, ollama_add_model, &listing);
    buffer_text(&body, "]}");
    exchange_answer_json(exchange, &body);
}

void ollama_tags_handle(struct exchange *exchange)
{
    ollama_list(exchange, false);
}

void ollama_ps_handle(struct exchange *exchange)
{
    ollama_list(exchange, true);
}

void ollama_version_handle(struct exchange *exchange)
{
    struct buffer body = {0};
    buffer_text(&body, "{\"version\":\"" MEDLEY_VERSION "\"}");
    exchange_answer_json(exchange, &body);
}

static void ollama_show(struct exchange *exchange, struct text name)
{
    struct api_server *server = exchange_server(exchange);
    struct buffer body = {0}, listed = {0};
    struct ollama_listing listing = {.access = server->access,
                                     .grant = exchange_grant(exchange),
                                     .wanted = &name,
                                     .body = &listed};
    server->models.list(server->models.self, ollama_add_model, &listing);
    buffer_deinit(&listed);
    if (!listing.count) {
        struct api_error err;
        server_no_such_model(server, exchange_grant(exchange), &name, NULL, &err);
        exchange_fail(exchange, &err);
        return;
    }
    buffer_text(&body, "{\"modelfile\":\"\",\"parameters\":");
    json_out_string(&body, listing.parameters.data, listing.parameters.size);
    buffer_text(&body, ",\"system\":");
    json_out_string(&body, listing.system.data, listing.system.size);
    buffer_printf(&body,
                  ",\"template\":\"\",\"details\":%s,"
                  "\"model_info\":{},\"capabilities\":[\"completion\",\"tools\"]}",
                  ollama_details);
    buffer_deinit(&listing.parameters);
    buffer_deinit(&listing.system);
    exchange_answer_json(exchange, &body);
}

void ollama_show_handle(struct exchange *exchange)
{
    struct api_error err;
    const struct text body = exchange_body(exchange);
    yyjson_doc *doc = dialect_open(body.data, body.size, &err);
    yyjson_val *root = yyjson_doc_get_root(doc);
    yyjson_val *model = yyjson_obj_get(root, "model");
    model = model ? model : yyjson_obj_get(root, "name");
    if (doc && yyjson_is_str(model)) {
        static const char latest[] = ":latest";
        const size_t tail = sizeof latest - 1;
        struct text name = {yyjson_get_str(model), yyjson_get_len(model)};
        if (name.size > tail && memcmp(name.data + name.size - tail, latest, tail) == 0)
            name.size -= tail;
        ollama_show(exchange, name);
    } else {
        if (doc)
            api_error_field(&err, "model", "you must provide 'model'");
        exchange_fail(exchange, &err);
    }
    yyjson_doc_free(doc);
}
