#include "api/models.h"

#include <string.h>

static void api_models_list(void *self, void (*each)(void *arg, const struct api_listed *model),
                            void *arg)
{
    const struct api_model *model = self;
    struct api_listed listed = {model->id, model->alias, model->created_s, model->generator,
                                model->defaults};
    each(arg, &listed);
}

static bool is_called(const struct api_model *model, const char *name)
{
    return strcmp(name, model->id) == 0 || (model->alias && strcmp(name, model->alias) == 0);
}

static void api_models_open_model(void *self, const char *name,
                                  void (*opened)(void *arg, struct api_model *model,
                                                 const struct error *err),
                                  void *arg)
{
    struct error err;
    if (!name || is_called(self, name)) {
        opened(arg, self, NULL);
        return;
    }
    error_set(&err, ERROR_NOT_FOUND, "there is no such model");
    opened(arg, NULL, &err);
}

/* Nobody waits. */
static void api_models_cancel(void *self, void *arg)
{
    (void)self;
    (void)arg;
}

static void api_models_release(void *self, struct api_model *model)
{
    (void)self;
    (void)model;
}

struct api_models api_models_of_one(struct api_model *model)
{
    return (struct api_models){.list = api_models_list,
                               .open = api_models_open_model,
                               .cancel = api_models_cancel,
                               .release = api_models_release,
                               .self = model};
}

void api_model_deinit(struct api_model *model)
{
    token_list_deinit(&model->stop_tokens);
    model->has_stop_tokens = false;
}
