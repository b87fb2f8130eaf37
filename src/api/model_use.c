#include "api/model_use.h"

#include "api/exchange.h"
#include "model/model.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static void model_use_explain(struct model_use *use, const struct error *cause)
{
    struct api_error *err = &use->err;
    switch (cause->code) {
    case ERROR_NOT_FOUND:
        server_no_such_model(use->server, &use->grant, &use->name, cause, err);
        return;
    case ERROR_BUSY:
        api_error_set(err, 503, "server_error", "model_not_ready", "%s", cause->text);
        return;
    case ERROR_NO_MEMORY:
    case ERROR_CANCELLED:
        api_error_from(err, cause);
        return;
    case ERROR_NONE:
    case ERROR_INVALID:
    case ERROR_UNSUPPORTED:
    case ERROR_IO:
    case ERROR_DEVICE:
    case ERROR_INTERNAL:
        break;
    }
    api_error_set(err, 500, "server_error", NULL, "%s",
                  cause->text); /* a wrong model is not the client's mistake */
}

/* Asked of the tokenizer once for each model, not for each request: there may be millions of
 * tokens. */
static bool find_stop_tokens(struct api_model *model, struct api_error *err)
{
    uint32_t n_vocab = model_hyperparameters(model->model)->n_vocab;
    struct error cause;
    for (uint32_t id = 0; id < n_vocab && !model->has_stop_tokens; id++) {
        if (!tokenizer_ends_generation(model->tokenizer, (int32_t)id) ||
            token_list_push(&model->stop_tokens, (int32_t)id, &cause) == ERROR_NONE)
            continue;
        token_list_deinit(&model->stop_tokens);
        return api_error_from(err, &cause);
    }
    model->has_stop_tokens = true;
    return true;
}

static void model_use_go_on(struct model_use *use)
{
    if (use->model)
        find_stop_tokens(use->model, &use->err);
    use->opened(use);
}

static void model_use_ready(struct inbox_item *item)
{
    model_use_go_on(item->owner);
}

/* May come from anywhere on the loop's thread; libwebsockets wants to be spoken to in its own
 * turn. */
static void model_use_on_opened(void *arg, struct api_model *model, const struct error *err)
{
    struct model_use *use = arg;
    assert(use->asking && !model == !!err);
    use->asking = false;
    use->model = model;
    if (!model)
        model_use_explain(use, err);
    else /* where it runs may be known only now */
        access_may_use(use->server->access, &use->grant, model->id, &use->err);
    if (!use->within)
        inbox_post_done(&use->item);
}

enum { NAME_BYTES_MAX = LIMIT_CLUSTER_TEXT_BYTES }; /* no model has a longer one */

/* The id of the model that is asked for by id or alias, or of the only one. */
struct model_naming {
    const struct text *name;
    char id[LIMIT_CLUSTER_TEXT_BYTES + 1];
    uint32_t n_found;
};

static void model_use_add_naming(void *arg, const struct api_listed *model)
{
    struct model_naming *naming = arg;
    if (naming->name->data && !server_is_named(naming->name, model->id) &&
        !server_is_named(naming->name, model->alias))
        return;
    if (!naming->n_found++)
        snprintf(naming->id, sizeof naming->id, "%s", model->id);
}

/* Before it is opened: that may load it, which takes machines from others. */
static bool model_use_is_allowed(struct model_use *use)
{
    struct model_naming naming = {.name = &use->name};
    if (!use->grant.is_bound)
        return true;
    use->server->models.list(use->server->models.self, model_use_add_naming, &naming);
    return naming.n_found != 1 ||
           access_may_use(use->server->access, &use->grant, naming.id, &use->err);
}

void model_use_begin(struct model_use *use, const struct exchange *exchange, struct text name)
{
    struct api_server *server = exchange_server(exchange);
    const struct api_models *models = &server->models;
    use->grant = *exchange_grant(exchange);
    use->server = server;
    use->name = name;
    use->item =
        (struct inbox_item){.inbox = &server->inbox, .ready = model_use_ready, .owner = use};
    if (!model_use_is_allowed(use)) {
        use->opened(use);
        return;
    }
    use->asking = use->within = true;
    if (name.data && (name.size > NAME_BYTES_MAX || memchr(name.data, '\0', name.size))) {
        struct error err;
        error_set(&err, ERROR_NOT_FOUND, "no model has that name");
        model_use_on_opened(use, NULL, &err);
    } else {
        models->open(models->self, name.data, model_use_on_opened, use);
    }
    use->within = false;
    if (!use->asking)
        model_use_go_on(use);
}

void model_use_end(struct model_use *use)
{
    if (!use->server)
        return;
    const struct api_models *models = &use->server->models;
    if (use->asking)
        models->cancel(models->self, use);
    else if (use->model)
        models->release(models->self, use->model);
    inbox_item_deinit(&use->item);
    *use = (struct model_use){0};
}
