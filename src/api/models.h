/* The models that the API serves, and who has them: they come and go while the server runs.
 *
 * Whoever opens the server brings a `struct api_models`. Its functions are called on the loop's
 * thread, and it calls back there. A request opens its model by name, holds it until it is over,
 * and gives it back.
 *
 * Example, a server of one model that is always there:
 *     struct api_model model = {.id = "m", …};
 *     struct api_options options = {.models = api_models_of_one(&model)};
 *     … until api_server_free()
 *     api_model_deinit(&model); */
#pragma once

#include "base/error.h"
#include "model/tokenizer.h"

#include <stdbool.h>
#include <stdint.h>

struct chat_template;
struct generator;
struct model;
struct request_run;
struct sight;

/* A model that was opened: nothing in it changes, and nothing it points at goes, until it is
 * released. */
struct api_model {
    const char *id;    /* what /v1/models lists and `model` must be */
    const char *alias; /* taken too; may be NULL */
    const struct model *model;
    const struct tokenizer *tokenizer;
    struct chat_template
        *chat_template; /* only the server's preparer may use it while the model is open */
    struct generator *generator;
    struct sight *sight;  /* with which it sees pictures (picture/sight.h); NULL: it does not */
    uint64_t created_s;   /* since 1970 */
    const char *defaults; /* what requests begin with (library/defaults.h); NULL: nothing */
    /* The server's notes, zero at first; api_model_deinit() frees them. */
    struct token_list stop_tokens; /* those that end generation */
    bool has_stop_tokens;
};

/* A model that can be asked for. What it points at is good during the call. */
struct api_listed {
    const char *id, *alias; /* as above */
    uint64_t created_s;
    const struct generator
        *generator;       /* for its figures; NULL: it is not running, and there are none */
    const char *defaults; /* as above */
};

struct api_models {
    /* Calls `each` for every model that can be asked for, in an order that stays. */
    void (*list)(void *self, void (*each)(void *arg, const struct api_listed *model), void *arg);
    /* Opens a model by its id or alias; name NULL: the only one. Calls opened(arg, …) once, within
     * the call or later, with the model or with an error: ERROR_NOT_FOUND, there is none of that
     * name, or, with NULL, not just one (the client gets 404 or 400); ERROR_BUSY, not now (503);
     * anything else is the server's own failure. `name` is good during the call; different askers
     * have different `arg`s. */
    void (*open)(void *self, const char *name,
                 void (*opened)(void *arg, struct api_model *model, const struct error *err),
                 void *arg);
    /* The asker has given up: opened(arg) must not be called any more. */
    void (*cancel)(void *self, void *arg);
    /* Once for each time that it was opened. No request or thread of the server uses it for that
     * asker any more. */
    void (*release)(void *self, struct api_model *model);
    /* Optional: what computes the requests of the model with that id now, for their records. Cheap:
     * it is asked several times a second. */
    void (*run)(void *self, const char *id, struct request_run *out);
    void *self;
};

/* One model, always open; the caller's, and good as long as what is returned. */
struct api_models api_models_of_one(struct api_model *model);

/* When nobody has it open; what the model points at is the caller's to free. */
void api_model_deinit(struct api_model *model);
