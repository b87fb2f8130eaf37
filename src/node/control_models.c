/* Requests about models and instances. */
#include "node/control.h"

#include "base/log.h"
#include "base/mem.h"
#include "hub/hub_name.h"
#include "library/defaults.h"
#include "library/resolve.h"
#include "model/model.h"
#include "node/catalogue.h"
#include "node/wish.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/* ---- a model's name, or a file that becomes one ---------------------------------------------- */

/* What a request waits for, also when who asked has gone meanwhile. */
struct naming {
    struct conversation *conversation; /* NULL: it has gone */
    void (*named)(struct conversation *conversation, const char *model);
    uv_work_t work; /* looks for the word among this machine's models */
    char word[PATH_MAX], path[PATH_MAX];
    struct library_defaults defaults;
    enum error_code code;
    struct error error;
};

static void naming_gone(struct conversation *conversation)
{
    ((struct naming *)conversation->data)->conversation = NULL;
    conversation->data = NULL;
}

static void on_named(void *arg, const char *model, const struct error *err)
{
    struct naming *naming = arg;
    struct conversation *conversation = naming->conversation;
    void (*named)(struct conversation *, const char *) = naming->named;
    mem_free(naming);
    if (!conversation)
        return;
    conversation->calls = (struct conversation_calls){0};
    conversation->data = NULL;
    if (err)
        control_fail(conversation, err);
    else
        named(conversation, model);
}

/* Adds a file of this machine, unless who asked has gone. Frees it, perhaps before it returns. */
static void naming_add(struct naming *naming)
{
    struct conversation *conversation = naming->conversation;
    struct library_defaults defaults = naming->defaults;
    if (conversation && defaults.unused[0])
        log_line(LOG_WARN, "node", "%s: of its parameters these are not used: %s", naming->path,
                 defaults.unused);
    if (conversation)
        daemon_add_file(conversation->daemon, naming->path, defaults.json.data, conversation->actor,
                        on_named, naming);
    else
        mem_free(naming);
    library_defaults_deinit(&defaults);
}

static void naming_work(uv_work_t *work)
{
    struct naming *naming = work->data;
    if (!naming->path[0])
        naming->code = library_resolve_name(naming->word, naming->path, &naming->error);
    if (!naming->code)
        naming->code = library_defaults_read(naming->path, &naming->defaults, &naming->error);
}

static void naming_after_work(uv_work_t *work, int status)
{
    struct naming *naming = work->data;
    if (status)
        naming->code = error_set(&naming->error, ERROR_CANCELLED, "this node is stopping");
    else if (naming->code == ERROR_NOT_FOUND)
        error_set(&naming->error, naming->code,
                  "neither the cluster nor this machine has a model '%s'; `medley add FILE` adds "
                  "one, `medley models` lists them",
                  naming->word);
    const struct error why = naming->error; /* on_named() frees the rest */
    if (naming->code) {
        library_defaults_deinit(&naming->defaults);
        on_named(naming, NULL, &why);
    } else {
        naming_add(naming);
    }
}

/* Folders are read beside the loop. */
static void naming_look(struct naming *naming, struct daemon *daemon, const char *word)
{
    snprintf(naming->word, sizeof naming->word, "%s", word);
    naming->work.data = naming;
    if (uv_queue_work(daemon->loop, &naming->work, naming_work, naming_after_work) != 0)
        naming_after_work(&naming->work, -1);
}

void control_name_model(struct conversation *conversation, const char *text,
                        void (*named)(struct conversation *conversation, const char *model))
{
    struct daemon *daemon = conversation->daemon;
    struct error err;
    if (!daemon->is_member || !text) {
        error_set(&err, text ? ERROR_BUSY : ERROR_INVALID,
                  text ? "this machine is in no cluster yet; `medley join CODE` joins one"
                       : "say which model");
        control_fail(conversation, &err);
        return;
    }
    if (text[0] != '/' && catalogue_find(daemon, text)) {
        named(conversation, text);
        return;
    }
    struct naming *naming = mem_new(sizeof *naming);
    if (!naming) {
        control_end(conversation);
        return;
    }
    naming->conversation = conversation;
    naming->named = named;
    conversation->data = naming;
    conversation->calls = (struct conversation_calls){.gone = naming_gone};
    if (text[0] == '/')
        snprintf(naming->path, sizeof naming->path, "%s", text);
    naming_look(naming, daemon, text);
}

/* ---- where: a file from which the model's vocabulary can be read, on this machine ------------ */

static void where_gone(struct conversation *conversation)
{
    daemon_cancel_open(conversation->daemon, conversation);
}

static void on_where(void *arg, struct daemon_text *text, const struct error *err)
{
    struct conversation *conversation = arg;
    conversation->calls = (struct conversation_calls){0};
    if (err) {
        control_fail(conversation, err);
        return;
    }
    yyjson_mut_doc *doc;
    yyjson_mut_val *root = control_object(&doc);
    yyjson_mut_obj_add_strcpy(doc, root, "path", gguf_file_path(model_file(text->model)));
    if (text->defaults)
        yyjson_mut_obj_add_strcpy(doc, root, "defaults", text->defaults);
    control_answer(conversation, doc);
    control_end(conversation);
}

void control_where(struct conversation *conversation, yyjson_val *request)
{
    conversation->calls = (struct conversation_calls){.gone = where_gone};
    daemon_open_model(conversation->daemon, control_text(request, "model"), on_where, conversation);
}

/* ---- add, forget ----------------------------------------------------------------------------- */

static void on_added(struct conversation *conversation, const char *model)
{
    control_answer_text(conversation, "model", model);
}

void control_add(struct conversation *conversation, yyjson_val *request)
{
    const char *path = control_text(request, "path");
    struct error err;
    if (path && path[0] == '/') {
        control_name_model(conversation, path, on_added);
        return;
    }
    error_set(&err, ERROR_INVALID, "the path must be absolute");
    control_fail(conversation, &err);
}

static bool refuse_without(struct conversation *conversation, const void *found, const char *what,
                           const char *name)
{
    struct error err;
    if (found)
        return false;
    error_set(&err, ERROR_NOT_FOUND, "the cluster has no %s '%s'; `medley status` lists them", what,
              name ? name : "");
    control_fail(conversation, &err);
    return true;
}

/* The state would let it go: an instance needs it for speed alone. */
static bool forget_refuses_draft(struct conversation *conversation, const char *name)
{
    const Cluster__State *root = daemon_state(conversation->daemon)->root;
    struct error err;
    for (size_t i = 0; root && i < root->n_instances; i++) {
        const Cluster__Instance *instance = root->instances[i];
        if (!instance->demand->draft || strcmp(instance->demand->draft, name) != 0)
            continue;
        error_set(&err, ERROR_BUSY, "%s guesses for %s: `medley unload %s` first", name,
                  instance->id, instance->id);
        control_fail(conversation, &err);
        return true;
    }
    return false;
}

void control_forget(struct conversation *conversation, yyjson_val *request)
{
    const char *name = control_text(request, "model");
    Cluster__ModelName model = CLUSTER__MODEL_NAME__INIT;
    Cluster__Event event = CLUSTER__EVENT__INIT;
    if (refuse_without(conversation, name ? catalogue_find(conversation->daemon, name) : NULL,
                       "model", name))
        return;
    if (forget_refuses_draft(conversation, name))
        return;
    model.name = (char *)(uintptr_t)name;
    event.kind_case = CLUSTER__EVENT__KIND_MODEL_FORGOTTEN;
    event.model_forgotten = &model;
    control_propose(conversation, &event, "forgotten", name);
}

void control_unload(struct conversation *conversation, yyjson_val *request)
{
    const char *id = control_text(request, "instance");
    Cluster__InstanceName name = CLUSTER__INSTANCE_NAME__INIT;
    Cluster__Event event = CLUSTER__EVENT__INIT;
    if (refuse_without(conversation,
                       id ? state_instance(daemon_state(conversation->daemon), id) : NULL,
                       "instance", id))
        return;
    name.id = (char *)(uintptr_t)id;
    event.kind_case = CLUSTER__EVENT__KIND_INSTANCE_STOPPED;
    event.instance_stopped = &name;
    control_propose(conversation, &event, "unloaded", id);
}

/* ---- place ----------------------------------------------------------------------------------- */

enum {
    PLACE_HEADER_MS = 5000,   /* for a header, before the usual context is taken */
    PLACE_AGREE_MS = 12000,   /* for the cluster to take the demand: longer than a proposal lasts */
    PLACE_PROBLEM_MS = 15000, /* a problem that has stood so long is the answer */
};

struct control_placing {
    struct place_demand wanted;
    char instance[LIMIT_CLUSTER_TEXT_BYTES + 1];
    char shown[64]; /* what was said last: state and epoch */
    uint64_t asked_ms, problem_ms;
    bool is_wanted;       /* the cluster was asked */
    char kept[WISH_TEXT]; /* of what was wished before, since it is made anew */
};

static void place_gone(struct conversation *conversation)
{
    mem_free(conversation->data);
    conversation->data = NULL;
}

static void say_progress(struct conversation *conversation, const Cluster__Instance *instance,
                         bool ready)
{
    const struct control_placing *placing = conversation->data;
    yyjson_mut_doc *doc;
    yyjson_mut_val *root = control_object(&doc);
    if (ready) {
        yyjson_mut_val *object = yyjson_mut_obj_add_obj(doc, root, "ready");
        yyjson_mut_obj_add_strcpy(doc, object, "instance", instance->id);
        if (placing->kept[0])
            yyjson_mut_obj_add_strcpy(doc, object, "kept", placing->kept);
        control_put_instance(conversation->daemon, doc, object, instance);
    } else {
        control_put_instance(conversation->daemon, doc, root, instance);
    }
    control_answer(conversation, doc);
}

/* Which context fits is in the header, which is waited for where nobody gave one. */
static bool place_lacks_header(struct daemon *daemon, const struct control_placing *placing)
{
    const Cluster__Model *model = catalogue_find(daemon, placing->instance),
                         *draft = placing->wanted.draft[0]
                                      ? state_model(daemon_state(daemon), placing->wanted.draft)
                                      : NULL;
    const Cluster__Instance *known = state_instance(daemon_state(daemon), placing->instance);
    const bool lacks_draft = draft && !catalogue_model_here(daemon, draft); /* it fetches it */
    return model && (!placing->wanted.context || placing->wanted.has_rope || draft) &&
           !(known && daemon_keeps(daemon, known, &placing->wanted)) &&
           (lacks_draft || !catalogue_model_here(daemon, model)) &&
           daemon_now_ms(daemon) - placing->asked_ms < PLACE_HEADER_MS;
}

/* False: it waits, or the conversation has ended with an error. */
static bool place_want(struct conversation *conversation)
{
    struct control_placing *placing = conversation->data;
    struct daemon *daemon = conversation->daemon;
    struct error err;
    if (placing->is_wanted)
        return true;
    if (place_lacks_header(daemon, placing))
        return false;
    const Cluster__Instance *known = state_instance(daemon_state(daemon), placing->instance);
    placing->is_wanted = true;
    placing->asked_ms = daemon_now_ms(daemon);
    if (known && !daemon_keeps(daemon, known, &placing->wanted))
        wish_kept_text(&placing->wanted, known, placing->kept);
    if (daemon_want(daemon, placing->instance, &placing->wanted, &err) == ERROR_NONE)
        return true;
    control_fail(conversation, &err);
    return false;
}

static void place_look(struct conversation *conversation)
{
    struct control_placing *placing = conversation->data;
    struct daemon *daemon = conversation->daemon;
    if (!place_want(conversation))
        return;
    const Cluster__Instance *instance = state_instance(daemon_state(daemon), placing->instance);
    const char *problem = NULL;
    char now[64];
    struct error err;
    if (!instance || !daemon_meets(instance, &placing->wanted)) {
        if (daemon_now_ms(daemon) - placing->asked_ms > PLACE_AGREE_MS) {
            error_set(&err, ERROR_BUSY,
                      "the cluster did not agree to place %s; `medley events` may say why",
                      placing->instance);
            control_fail(conversation, &err);
        }
        return;
    }
    enum instance_phase phase = daemon_phase(daemon, instance, &problem);
    if (phase == INSTANCE_READY) {
        say_progress(conversation, instance, true);
        control_end(conversation);
        return;
    }
    if (phase != INSTANCE_FAILED)
        placing->problem_ms = 0;
    else if (!placing->problem_ms)
        placing->problem_ms = daemon_now_ms(daemon);
    else if (daemon_now_ms(daemon) - placing->problem_ms >
             PLACE_PROBLEM_MS + UINT64_C(1000) * instance->demand->time_limit_s) {
        error_set(&err, ERROR_NOT_FOUND, "%s cannot be placed: %s", placing->instance, problem);
        control_fail(conversation, &err);
        return;
    }
    snprintf(now, sizeof now, "%d %llu", phase,
             (unsigned long long)(instance->current ? instance->current->epoch : 0));
    if (strcmp(now, placing->shown) != 0)
        say_progress(conversation, instance, false);
    memcpy(placing->shown, now, sizeof now);
}

static void on_place_named(struct conversation *conversation, const char *model)
{
    struct control_placing *placing = mem_new(sizeof *placing);
    if (!placing) {
        control_end(conversation);
        return;
    }
    placing->wanted = conversation->wanted;
    placing->wanted.actor = conversation->actor;
    placing->asked_ms = daemon_now_ms(conversation->daemon);
    snprintf(placing->instance, sizeof placing->instance, "%s", model);
    conversation->data = placing;
    conversation->calls = (struct conversation_calls){.look = place_look, .gone = place_gone};
    place_look(conversation);
}

void control_place(struct conversation *conversation, yyjson_val *request)
{
    struct place_demand *wanted = &conversation->wanted;
    const char *name = control_text(request, "model"), *model = name ? name : "";
    yyjson_val *layers = yyjson_obj_get(request, "layers");
    if (!control_take_wanted(conversation, request, wanted))
        return;
    if (wanted->is_by_hand)
        control_place_there(conversation, name, layers, wanted);
    else if (hub_name_is_one(model))
        control_gather(conversation, model, on_place_named);
    else
        control_name_model(conversation, name, on_place_named);
}
