#include "cli/up_models.h"

#include "base/mem.h"
#include "node/daemon.h"

#include <string.h>
#include <time.h>

struct opened_model { /* a model that was opened once: it stays so while the node runs */
    struct opened_model *next;
    struct api_model model;
};

struct up_models_asking {
    struct up_models_asking *next;
    struct up_models *models;
    void (*opened)(void *arg, struct api_model *model, const struct error *err);
    void *arg;
};

struct up_models {
    struct daemon *daemon;
    struct opened_model *known;
    struct up_models_asking *asking;
    uint64_t started_s;
};

struct up_models_listing {
    struct up_models *models;
    void (*each)(void *arg, const struct api_listed *model);
    void *arg;
};

static void list_one(void *arg, const char *name)
{
    struct up_models_listing *listing = arg;
    const struct api_listed listed = {.id = name,
                                      .created_s = listing->models->started_s,
                                      .defaults =
                                          daemon_model_defaults(listing->models->daemon, name)};
    listing->each(listing->arg, &listed);
}

static void up_models_list(void *self, void (*each)(void *arg, const struct api_listed *model),
                           void *arg)
{
    struct up_models_listing listing = {self, each, arg};
    daemon_list_models(listing.models->daemon, list_one, &listing);
}

static struct api_model *up_models_model_of(struct up_models *models,
                                            const struct daemon_text *text)
{
    for (struct opened_model *known = models->known; known; known = known->next) {
        if (known->model.model == text->model)
            return &known->model;
    }
    struct opened_model *known = mem_new(sizeof *known);
    if (!known)
        return NULL;
    known->model = (struct api_model){.id = text->name,
                                      .model = text->model,
                                      .tokenizer = text->tokenizer,
                                      .chat_template = text->chat_template,
                                      .generator = text->generator,
                                      .defaults = text->defaults,
                                      .created_s = models->started_s};
    known->next = models->known;
    models->known = known;
    return &known->model;
}

static void unlink_asking(struct up_models_asking *asking)
{
    struct up_models_asking **at = &asking->models->asking;
    while (*at != asking)
        at = &(*at)->next;
    *at = asking->next;
}

static void up_models_on_opened(void *arg, struct daemon_text *text, const struct error *err)
{
    struct up_models_asking *asking = arg, copy = *asking;
    struct error why;
    unlink_asking(asking);
    mem_free(asking);
    struct api_model *model = err ? NULL : up_models_model_of(copy.models, text);
    if (!err && !model) {
        error_set(&why, ERROR_NO_MEMORY, "not enough memory for the model");
        err = &why;
    }
    copy.opened(copy.arg, model, err);
}

static void up_models_open_model(void *self, const char *name,
                                 void (*opened)(void *arg, struct api_model *model,
                                                const struct error *err),
                                 void *arg)
{
    struct up_models *models = self;
    struct up_models_asking *asking = mem_new(sizeof *asking);
    struct error err;
    if (!asking) {
        error_set(&err, ERROR_NO_MEMORY, "not enough memory for the request");
        opened(arg, NULL, &err);
        return;
    }
    *asking = (struct up_models_asking){models->asking, models, opened, arg};
    models->asking = asking;
    daemon_open_model(models->daemon, name, up_models_on_opened, asking);
}

static void up_models_cancel(void *self, void *arg)
{
    struct up_models *models = self;
    for (struct up_models_asking *asking = models->asking; asking; asking = asking->next) {
        if (asking->arg != arg)
            continue;
        daemon_cancel_open(models->daemon, asking);
        unlink_asking(asking);
        mem_free(asking);
        return;
    }
}

static void up_models_release(void *self, struct api_model *model)
{
    (void)self;
    (void)model; /* it stays open as long as the node runs */
}

static void up_models_run(void *self, const char *id, struct request_run *out)
{
    daemon_describe_run(((struct up_models *)self)->daemon, id, out);
}

struct up_models *up_models_new(struct daemon *daemon)
{
    struct up_models *models = mem_new(sizeof *models);
    if (models)
        *models = (struct up_models){.daemon = daemon, .started_s = (uint64_t)time(NULL)};
    return models;
}

void up_models_free(struct up_models *models)
{
    if (!models)
        return;
    while (models->known) {
        struct opened_model *known = models->known;
        models->known = known->next;
        api_model_deinit(&known->model);
        mem_free(known);
    }
    mem_free(models);
}

struct api_models up_models_of(struct up_models *models)
{
    return (struct api_models){.list = up_models_list,
                               .open = up_models_open_model,
                               .cancel = up_models_cancel,
                               .release = up_models_release,
                               .run = up_models_run,
                               .self = models};
}
