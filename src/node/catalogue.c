#include "node/catalogue.h"

#include "agreement/agreement.h"
#include "base/mem.h"
#include "library/defaults.h"
#include "model/chat_template.h"
#include "model/model.h"
#include "model/tokenizer.h"
#include "node/daemon_state.h"
#include "node/early.h"
#include "node/lead.h"
#include "placing/placing.h"
#include "relay/relay.h"
#include "weights/weights.h"

#include <stdio.h>
#include <string.h>

struct opener {
    struct opener *next;
    void (*opened)(void *arg, struct daemon_text *text, const struct error *err);
    void *arg;
};

/* A model whose tokenizer and template are open here, or about to be. */
struct entry {
    struct entry *next;
    struct catalogue *catalogue;
    uv_work_t work;
    char name[LIMIT_CLUSTER_TEXT_BYTES + 1];
    struct digest model;
    struct daemon_text text; /* text.model NULL: not opened yet */
    char defaults[LIMIT_MODEL_DEFAULTS_BYTES];
    struct opener *openers;
    bool is_working, is_open;
    enum error_code code; /* of the work: why it will never open */
    struct error error;
};

struct catalogue {
    struct daemon *daemon;
    struct early *early;
    struct entry *entries;
    uint32_t n_working;
    void (*closed)(struct daemon *daemon); /* NULL: it is not closing */
};

/* ---- what the cluster knows ---- */

const Cluster__Model *catalogue_find(const struct daemon *daemon, const char *name)
{
    const Cluster__State *root = daemon_state(daemon)->root;
    if (!name && root && root->n_models == 1)
        return root->models[0];
    return name ? state_model(daemon_state(daemon), name) : NULL;
}

bool catalogue_manifest_of(const Cluster__Model *model, struct digest *out)
{
    if (model->manifest.len != sizeof out->bytes)
        return false;
    memcpy(out->bytes, model->manifest.data, sizeof out->bytes);
    return true;
}

void daemon_list_models(struct daemon *daemon, void (*each)(void *arg, const char *name), void *arg)
{
    const Cluster__State *root = daemon_state(daemon)->root;
    for (size_t i = 0; root && i < root->n_models; i++)
        each(arg, root->models[i]->name);
}

const char *daemon_model_defaults(const struct daemon *daemon, const char *name)
{
    const Cluster__Model *model = catalogue_find(daemon, name);
    return model && model->defaults && model->defaults[0] ? model->defaults : NULL;
}

/* What a model was registered with, where its header is not here. */
static uint32_t context_said(const Cluster__Model *model)
{
    return model && model->context_tokens && model->context_tokens < PLACING_CONTEXT_USUAL
               ? model->context_tokens
               : PLACING_CONTEXT_USUAL;
}

uint32_t catalogue_context_usual(struct daemon *daemon, const char *name)
{
    const Cluster__Model *said = state_model(daemon_state(daemon), name);
    const struct model *model = said ? catalogue_model_here(daemon, said) : NULL;
    return model ? placing_context_usual(model) : context_said(said);
}

uint32_t catalogue_context_fitting(struct daemon *daemon, const char *name,
                                   const Cluster__Demand *demand)
{
    const Cluster__Instance *instance = state_instance(daemon_state(daemon), name);
    const Cluster__Model *said = state_model(daemon_state(daemon), name);
    const struct model *model = said ? catalogue_model_here(daemon, said) : NULL;
    struct cluster cluster = {0};
    struct error err;
    if (!model || placing_cluster(daemon_placing_view(daemon), instance ? instance->id : NULL,
                                  &cluster, &err))
        return catalogue_context_usual(daemon, name);
    const uint32_t context = placing_context(&cluster, daemon->options.wire, model, demand,
                                             library_defaults_context(said->defaults));
    cluster_deinit(&cluster);
    return context;
}

static uint32_t context_of_instance(struct daemon *daemon, const char *name)
{
    const Cluster__Instance *instance = state_instance(daemon_state(daemon), name);
    Cluster__Demand demand;
    if (instance)
        return instance->demand->context_tokens;
    daemon_demand(daemon, name, NULL, &demand);
    return demand.context_tokens;
}

/* ---- opening text parts ---- */

static void answer_all(struct entry *entry, const struct error *err)
{
    while (entry->openers) {
        struct opener *opener = entry->openers;
        entry->openers = opener->next;
        opener->opened(opener->arg, err ? NULL : &entry->text, err);
        mem_free(opener);
    }
}

static void close_text(struct entry *entry)
{
    if (entry->text.chat_template)
        chat_template_close(entry->text.chat_template);
    if (entry->text.tokenizer)
        tokenizer_close(entry->text.tokenizer);
    entry->text.chat_template = NULL;
    entry->text.tokenizer = NULL;
}

static void catalogue_free_entry(struct entry *entry)
{
    close_text(entry);
    if (entry->text.model)
        weights_release(entry->catalogue->daemon->weights, &entry->model);
    mem_free(entry);
}

/* A model must stay open while somebody reads in it. */
static void end_catalogue(struct catalogue *catalogue)
{
    struct daemon *daemon = catalogue->daemon;
    void (*closed)(struct daemon *daemon) = catalogue->closed;
    if (catalogue->n_working)
        return;
    mem_free(catalogue);
    closed(daemon);
}

static void catalogue_work(uv_work_t *request)
{
    struct entry *entry = request->data;
    const struct gguf_file *file = model_file(entry->text.model);
    entry->code = tokenizer_open(file, &entry->text.tokenizer, &entry->error);
    if (!entry->code)
        entry->code = chat_template_open_model(file, entry->text.tokenizer,
                                               &entry->text.chat_template, &entry->error);
}

/* The context is as long as the instance was placed with last, or would be. */
static enum error_code catalogue_refresh(struct entry *entry, struct error *err)
{
    struct daemon *daemon = entry->catalogue->daemon;
    return relay_generator(daemon->relay, entry->name, context_of_instance(daemon, entry->name),
                           &entry->text.generator, err);
}

/* Want of memory or of room may be over when it is asked for again; a file that makes no sense
 * stays so. */
static void fail_entry(struct entry *entry)
{
    const struct error err = entry->error;
    close_text(entry);
    if (entry->code == ERROR_NO_MEMORY || entry->code == ERROR_BUSY)
        entry->code = ERROR_NONE;
    answer_all(entry, &err);
}

static void after_work(uv_work_t *request, int status)
{
    struct entry *entry = request->data;
    struct catalogue *catalogue = entry->catalogue;
    entry->is_working = false;
    catalogue->n_working--;
    if (catalogue->closed) {
        catalogue_free_entry(entry);
        end_catalogue(catalogue);
        return;
    }
    if (!entry->code)
        entry->code = catalogue_refresh(entry, &entry->error);
    entry->is_open = !entry->code;
    if (entry->is_open)
        answer_all(entry, NULL);
    else
        fail_entry(entry);
}

/* The header must be here first; then the vocabulary and the template are read beside the loop. */
static void catalogue_advance(struct entry *entry)
{
    struct daemon *daemon = entry->catalogue->daemon;
    if (entry->is_open || entry->is_working || !entry->openers)
        return;
    if (entry->code) { /* it failed the last time; it would again */
        answer_all(entry, &entry->error);
        return;
    }
    if (!entry->text.model)
        entry->text.model = weights_model(daemon->weights, &entry->model);
    if (entry->text.model) {
        entry->is_working = true;
        entry->catalogue->n_working++;
        entry->work.data = entry;
        uv_queue_work(daemon->loop, &entry->work, catalogue_work, after_work);
        return;
    }
    const enum worker_weights have = weights_have(daemon->weights, &entry->model, 0, 0);
    if (have == WORKER_LACKS) {
        weights_fetch(daemon->weights, &entry->model, 0, 0);
    } else if (have == WORKER_CANNOT_FETCH) {
        struct error err;
        const char *why = weights_problem(daemon->weights, &entry->model);
        error_set(&err, ERROR_BUSY, "cannot read model %s now: %s", entry->name,
                  why ? why : "no node has it");
        answer_all(entry, &err);
    }
}

void catalogue_changed(struct catalogue *catalogue)
{
    if (catalogue)
        early_step(catalogue->early);
    for (struct entry *entry = catalogue ? catalogue->entries : NULL; entry; entry = entry->next)
        catalogue_advance(entry);
}

static struct entry *entry_of(struct catalogue *catalogue, const Cluster__Model *model,
                              const struct digest *digest)
{
    for (struct entry *entry = catalogue->entries; entry; entry = entry->next) {
        if (strcmp(entry->name, model->name) == 0 &&
            memcmp(&entry->model, digest, sizeof *digest) == 0)
            return entry;
    }
    struct entry *entry = mem_new(sizeof *entry);
    if (!entry)
        return NULL;
    entry->catalogue = catalogue;
    entry->model = *digest;
    snprintf(entry->name, sizeof entry->name, "%s", model->name);
    snprintf(entry->defaults, sizeof entry->defaults, "%s", model->defaults ? model->defaults : "");
    entry->text.defaults = entry->defaults[0] ? entry->defaults : NULL;
    entry->text.name = entry->name;
    entry->next = catalogue->entries;
    catalogue->entries = entry;
    return entry;
}

/* Kept open from then on: placing looks at it in every step. */
const struct model *catalogue_model_here(void *self, const Cluster__Model *model)
{
    struct daemon *daemon = self;
    struct digest digest;
    struct entry *entry = daemon->catalogue && catalogue_manifest_of(model, &digest)
                              ? entry_of(daemon->catalogue, model, &digest)
                              : NULL;
    if (!entry)
        return NULL;
    if (!entry->text.model)
        entry->text.model = weights_model(daemon->weights, &digest);
    if (!entry->text.model && weights_have(daemon->weights, &digest, 0, 0) == WORKER_LACKS)
        weights_fetch(daemon->weights, &digest, 0, 0);
    return entry->text.model;
}

static void fail_open(void (*opened)(void *, struct daemon_text *, const struct error *), void *arg,
                      enum error_code code, const char *text)
{
    struct error err;
    error_set(&err, code, "%s", text);
    opened(arg, NULL, &err);
}

void daemon_open_model(struct daemon *daemon, const char *name,
                       void (*opened)(void *arg, struct daemon_text *text, const struct error *err),
                       void *arg)
{
    struct digest digest;
    const Cluster__Model *model = catalogue_find(daemon, name);
    if (!daemon->is_member || daemon->stopping) {
        fail_open(opened, arg, ERROR_BUSY, "this machine is in no cluster yet");
        return;
    }
    if (!model && early_takes(daemon->catalogue->early, name, opened, arg))
        return;
    if (!model && early_is(daemon)) {
        fail_open(opened, arg, ERROR_BUSY,
                  "this machine has not heard from its cluster's leader yet");
        return;
    }
    if (!model || !catalogue_manifest_of(model, &digest)) {
        fail_open(opened, arg, ERROR_NOT_FOUND,
                  name ? "the cluster has no such model" : "say which model");
        return;
    }
    struct entry *entry = entry_of(daemon->catalogue, model, &digest);
    struct opener *opener = entry && !entry->is_open ? mem_new(sizeof *opener) : NULL;
    if (entry && entry->is_open) {
        struct error err;
        const enum error_code code = catalogue_refresh(entry, &err);
        opened(arg, code ? NULL : &entry->text, code ? &err : NULL);
    } else if (!opener) {
        fail_open(opened, arg, ERROR_NO_MEMORY, "not enough memory to open the model");
    } else {
        *opener = (struct opener){entry->openers, opened, arg};
        entry->openers = opener;
        catalogue_advance(entry);
    }
}

void daemon_cancel_open(struct daemon *daemon, void *arg)
{
    if (daemon->catalogue)
        early_cancel(daemon->catalogue->early, arg);
    for (struct entry *entry = daemon->catalogue ? daemon->catalogue->entries : NULL; entry;
         entry = entry->next) {
        for (struct opener **at = &entry->openers; *at;) {
            struct opener *opener = *at;
            if (opener->arg != arg) {
                at = &opener->next;
                continue;
            }
            *at = opener->next;
            mem_free(opener);
        }
    }
}

/* ---- opening and closing ---- */

enum error_code catalogue_open(struct daemon *daemon, struct catalogue **out, struct error *err)
{
    struct catalogue *catalogue = mem_new(sizeof *catalogue);
    *out = catalogue;
    if (!catalogue)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the list of models");
    catalogue->daemon = daemon;
    catalogue->early = early_new(daemon);
    if (catalogue->early)
        return ERROR_NONE;
    mem_free(catalogue);
    *out = NULL;
    return error_set(err, ERROR_NO_MEMORY, "not enough memory for the list of models");
}

void catalogue_close(struct catalogue *catalogue, void (*closed)(struct daemon *daemon))
{
    struct error err;
    catalogue->closed = closed;
    error_set(&err, ERROR_CANCELLED, "this node is stopping");
    early_free(catalogue->early, &err);
    catalogue->early = NULL;
    while (catalogue->entries) {
        struct entry *entry = catalogue->entries;
        catalogue->entries = entry->next;
        answer_all(entry, &err);
        if (!entry->is_working)
            catalogue_free_entry(entry);
    }
    end_catalogue(catalogue);
}
