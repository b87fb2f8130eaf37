/* Files of this machine that the cluster is to know: hashed, then registered. */
#include "node/daemon_state.h"

#include "agreement/agreement.h"
#include "base/mem.h"
#include "model/model.h"
#include "node/catalogue.h"
#include "weights/weights.h"

#include <string.h>

struct file_adding {
    struct daemon *daemon;
    struct weights_facts facts;
    char actor[AUDIT_WHO_TEXT];                /* "": this node */
    char defaults[LIMIT_MODEL_DEFAULTS_BYTES]; /* "": none */
    void (*done)(void *arg, const char *model, const struct error *err);
    void *arg;
};

static void end_adding(struct file_adding *adding, const struct error *err)
{
    if (adding->done)
        adding->done(adding->arg, err ? NULL : adding->facts.name, err);
    mem_free(adding);
}

static bool is_registered(const struct daemon *daemon, const struct weights_facts *facts)
{
    struct digest digest;
    const Cluster__Model *model = state_model(daemon_state(daemon), facts->name);
    return model && catalogue_manifest_of(model, &digest) &&
           memcmp(&digest, &facts->model, sizeof digest) == 0;
}

/* As this file has them. Where it has none, others' may stay. */
static bool has_defaults(const struct daemon *daemon, const struct file_adding *adding)
{
    const Cluster__Model *model = state_model(daemon_state(daemon), adding->facts.name);
    return !adding->defaults[0] ||
           (model && model->defaults && strcmp(model->defaults, adding->defaults) == 0);
}

static void on_registered(void *arg, enum error_code code, const struct state_outcome *outcome,
                          const struct error *err)
{
    struct file_adding *adding = arg;
    struct error why;
    if (!code && !is_registered(adding->daemon, &adding->facts)) {
        error_set(&why, ERROR_INVALID, "model %s was not added: %s", adding->facts.name,
                  outcome->reason ? outcome->reason : "the cluster did not agree");
        err = &why;
        code = why.code;
    }
    end_adding(adding, code ? err : NULL);
}

static void on_hashed(void *arg, const struct weights_facts *facts, const struct error *err)
{
    struct file_adding *adding = arg;
    struct daemon *daemon = adding->daemon;
    Cluster__Model model = CLUSTER__MODEL__INIT;
    Cluster__Event event = CLUSTER__EVENT__INIT;
    if (err || daemon->stopping) {
        struct error stopping;
        error_set(&stopping, ERROR_CANCELLED, "this node is stopping");
        end_adding(adding, err ? err : &stopping);
        return;
    }
    adding->facts = *facts;
    if (is_registered(daemon, facts) && has_defaults(daemon, adding)) {
        end_adding(adding, NULL);
        return;
    }
    const struct model *opened = weights_model(daemon->weights, &facts->model);
    model.has_context_tokens = opened != NULL;
    if (opened) {
        model.context_tokens = model_hyperparameters(opened)->n_context_train;
        weights_release(daemon->weights, &facts->model);
    }
    model.name = adding->facts.name;
    model.defaults = adding->defaults[0] ? adding->defaults : NULL;
    model.architecture = adding->facts.architecture;
    model.has_manifest = model.has_bytes = model.has_n_layers = true;
    model.manifest.data = adding->facts.model.bytes;
    model.manifest.len = sizeof adding->facts.model.bytes;
    model.bytes = facts->bytes;
    model.n_layers = facts->n_layers;
    event.actor = adding->actor[0] ? adding->actor : NULL;
    event.kind_case = CLUSTER__EVENT__KIND_MODEL_REGISTERED;
    event.model_registered = &model;
    agreement_propose(daemon->agreement, &event, on_registered, adding);
}

void daemon_add_file(struct daemon *daemon, const char *path, const char *defaults,
                     const char *actor,
                     void (*done)(void *arg, const char *model, const struct error *err), void *arg)
{
    struct error err;
    struct file_adding *adding = mem_new(sizeof *adding);
    if (!adding || !daemon->is_member) {
        error_set(&err, adding ? ERROR_BUSY : ERROR_NO_MEMORY,
                  adding ? "this machine is in no cluster yet" : "not enough memory for the model");
        mem_free(adding);
        if (done)
            done(arg, NULL, &err);
        return;
    }
    *adding = (struct file_adding){.daemon = daemon, .done = done, .arg = arg};
    audit_text(adding->actor, sizeof adding->actor, actor);
    snprintf(adding->defaults, sizeof adding->defaults, "%s", defaults ? defaults : "");
    weights_add_file(daemon->weights, path, on_hashed, adding);
}

void daemon_register(struct daemon *daemon, const struct weights_facts *facts, const char *actor,
                     void (*done)(void *arg, const char *model, const struct error *err), void *arg)
{
    struct error err;
    struct file_adding *adding = mem_new(sizeof *adding);
    if (!adding) {
        error_set(&err, ERROR_NO_MEMORY, "not enough memory for the model");
        done(arg, NULL, &err);
        return;
    }
    *adding = (struct file_adding){.daemon = daemon, .done = done, .arg = arg};
    audit_text(adding->actor, sizeof adding->actor, actor);
    on_hashed(adding, facts, NULL);
}

/* ---- `medley up --model` ---- */

static void on_served(void *arg, const char *model, const struct error *err)
{
    struct daemon *daemon = arg;
    struct error why;
    if (err)
        daemon_say(daemon, "%s", err->text);
    else if (daemon_want(daemon, model, NULL, &why))
        daemon_say(daemon, "%s", why.text);
}

void daemon_serve_file(struct daemon *daemon, const char *path)
{
    daemon_add_file(daemon, path, NULL, NULL, on_served, daemon);
}
