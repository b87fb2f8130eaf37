/* Models and instances as this node sees them: whose text parts are open here, where drivers are, what is wanted. */
#include "node/daemon_state.h"

#include "base/log.h"
#include "base/mem.h"
#include "cluster/event.h"
#include "model/chat_template.h"
#include "model/model.h"
#include "model/tokenizer.h"
#include "node/control.h"
#include "placement/problem.h"

#include <stdio.h>
#include <string.h>

enum { STREAMS_STANDARD = 4, CONTEXT_STANDARD = 4096, IDLE_STANDARD_MS = 30 * 60 * 1000 };

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
    struct opener *openers;
    bool is_working, is_open;
    enum error_code code; /* of the work */
    struct error error;
};

struct catalogue {
    struct daemon *daemon;
    struct entry *entries;
    uint32_t n_working;
    void (*closed)(struct daemon *daemon); /* NULL: it is not closing */
};

const Cluster__Model *daemon_model_of_name(const struct daemon *daemon, const char *name)
{
    const Cluster__State *root = daemon_state(daemon)->root;
    if (!name && root && root->n_models == 1)
        return root->models[0];
    return name ? state_model(daemon_state(daemon), name) : NULL;
}

static bool manifest_of(const Cluster__Model *model, struct digest *out)
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

/* ---- opening text parts ------------------------------------------------------------------------- */

static void answer_all(struct entry *entry, const struct error *err)
{
    while (entry->openers) {
        struct opener *opener = entry->openers;
        entry->openers = opener->next;
        opener->opened(opener->arg, err ? NULL : &entry->text, err);
        mem_free(opener);
    }
}

static void free_entry(struct entry *entry)
{
    if (entry->text.chat_template)
        chat_template_close(entry->text.chat_template);
    if (entry->text.tokenizer)
        tokenizer_close(entry->text.tokenizer);
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

static void work(uv_work_t *request)
{
    struct entry *entry = request->data;
    const struct gguf_file *file = model_file(entry->text.model);
    entry->code = tokenizer_open(file, &entry->text.tokenizer, &entry->error);
    if (!entry->code)
        entry->code = chat_template_open_model(file, entry->text.tokenizer, &entry->text.chat_template, &entry->error);
}

static uint32_t context_of(const struct daemon *daemon, const char *name)
{
    const Cluster__Instance *instance = state_instance(daemon_state(daemon), name);
    const Cluster__Model *model = state_model(daemon_state(daemon), name);
    if (instance)
        return instance->demand->context_tokens;
    return model && model->context_tokens && model->context_tokens < CONTEXT_STANDARD ? model->context_tokens
                                                                                      : CONTEXT_STANDARD;
}

static void after_work(uv_work_t *request, int status)
{
    struct entry *entry = request->data;
    struct catalogue *catalogue = entry->catalogue;
    struct daemon *daemon = catalogue->daemon;
    entry->is_working = false;
    catalogue->n_working--;
    if (catalogue->closed) {
        free_entry(entry);
        end_catalogue(catalogue);
        return;
    }
    if (!entry->code)
        entry->code = relay_generator(daemon->relay, entry->name, context_of(daemon, entry->name),
                                      &entry->text.generator, &entry->error);
    entry->is_open = !entry->code;
    answer_all(entry, entry->code ? &entry->error : NULL);
}

/* The header must be here first; then the vocabulary and the template are read beside the loop. */
static void advance(struct entry *entry)
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
        uv_queue_work(daemon->loop, &entry->work, work, after_work);
        return;
    }
    const enum worker_weights have = weights_have(daemon->weights, &entry->model, 0, 0);
    if (have == WORKER_LACKS) {
        weights_fetch(daemon->weights, &entry->model, 0, 0);
    } else if (have == WORKER_CANNOT_FETCH) {
        struct error err;
        const char *why = weights_problem(daemon->weights, &entry->model);
        error_set(&err, ERROR_BUSY, "model %s cannot be read now: %s", entry->name, why ? why : "no node has it");
        answer_all(entry, &err);
    }
}

void daemon_models_changed(struct daemon *daemon)
{
    for (struct entry *entry = daemon->catalogue ? daemon->catalogue->entries : NULL; entry; entry = entry->next)
        advance(entry);
}

static struct entry *entry_of(struct daemon *daemon, const Cluster__Model *model, const struct digest *digest)
{
    struct catalogue *catalogue = daemon->catalogue;
    for (struct entry *entry = catalogue->entries; entry; entry = entry->next) {
        if (strcmp(entry->name, model->name) == 0 && memcmp(&entry->model, digest, sizeof *digest) == 0)
            return entry;
    }
    struct entry *entry = mem_new(sizeof *entry);
    if (!entry)
        return NULL;
    entry->catalogue = catalogue;
    entry->model = *digest;
    snprintf(entry->name, sizeof entry->name, "%s", model->name);
    entry->text.name = entry->name;
    entry->next = catalogue->entries;
    catalogue->entries = entry;
    return entry;
}

/* Kept open from then on: placing looks at it in every step. */
const struct model *daemon_model_here(void *self, const Cluster__Model *model)
{
    struct daemon *daemon = self;
    struct digest digest;
    struct entry *entry = daemon->catalogue && manifest_of(model, &digest) ? entry_of(daemon, model, &digest) : NULL;
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

/* After its start a node learns from a leader what of its log counts; until then it may lack what all others know. */
static bool has_caught_up(const struct daemon *daemon)
{
    return agreement_status(daemon->agreement).leader && state_node(daemon_state(daemon), daemon->id);
}

void daemon_open_model(struct daemon *daemon, const char *name,
                       void (*opened)(void *arg, struct daemon_text *text, const struct error *err), void *arg)
{
    struct digest digest;
    const Cluster__Model *model = daemon_model_of_name(daemon, name);
    if (!daemon->is_member || daemon->stopping) {
        fail_open(opened, arg, ERROR_BUSY, "this machine is in no cluster yet");
        return;
    }
    if (!model && name && !has_caught_up(daemon)) {
        fail_open(opened, arg, ERROR_BUSY, "this machine has not heard from its cluster's leader yet");
        return;
    }
    if (!model || !manifest_of(model, &digest)) {
        fail_open(opened, arg, ERROR_NOT_FOUND, name ? "the cluster has no such model" : "say which model");
        return;
    }
    struct entry *entry = entry_of(daemon, model, &digest);
    struct opener *opener = entry && !entry->is_open ? mem_new(sizeof *opener) : NULL;
    if (entry && entry->is_open) {
        opened(arg, &entry->text, NULL);
    } else if (!opener) {
        fail_open(opened, arg, ERROR_NO_MEMORY, "no memory to open the model");
    } else {
        *opener = (struct opener){entry->openers, opened, arg};
        entry->openers = opener;
        advance(entry);
    }
}

void daemon_cancel_open(struct daemon *daemon, void *arg)
{
    for (struct entry *entry = daemon->catalogue ? daemon->catalogue->entries : NULL; entry; entry = entry->next) {
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

/* ---- where drivers are -------------------------------------------------------------------------------- */

static bool all_ready(const Cluster__Placement *placement)
{
    for (size_t i = 0; placement && i < placement->n_stages; i++) {
        if (placement->stages[i]->state != CLUSTER__STAGE_STATE__READY)
            return false;
    }
    return placement && placement->n_stages;
}

static enum error_code find_driver(void *self, const char *id, struct driver **driver, uint8_t node_id[NODE_ID_BYTES],
                                   uint64_t *epoch, struct error *err)
{
    struct daemon *daemon = self;
    const Cluster__Instance *instance = state_instance(daemon_state(daemon), id);
    const char *problem = NULL;
    *driver = NULL;
    if (!instance || !all_ready(instance->current)) {
        if (instance)
            daemon_phase(daemon, instance, &problem);
        return error_set(err, ERROR_BUSY, "%s is being loaded%s%s", id, problem ? ": " : "", problem ? problem : "");
    }
    const Cluster__Stage *first = instance->current->stages[0];
    *epoch = instance->current->epoch;
    if (strcmp(first->node, daemon->id) == 0) {
        uint64_t loaded = 0;
        *driver = hosting_driver(daemon->hosting, id, &loaded);
        if (*driver && loaded == *epoch)
            return ERROR_NONE;
        *driver = NULL;
        return error_set(err, ERROR_BUSY, "%s is being loaded", id);
    }
    const struct peer *peer = daemon_peer(daemon, first->node);
    if (!peer || !peer->link || peer->is_silent || !id_parse(first->node, node_id, NODE_ID_BYTES))
        return error_set(err, ERROR_BUSY, "the node that runs %s cannot be reached", id);
    return ERROR_NONE;
}

static void on_wanted(void *self, const char *instance)
{
    struct daemon *daemon = self;
    const Cluster__Instance *known = state_instance(daemon_state(daemon), instance);
    struct error err;
    if (daemon->stopping)
        return;
    if (!known && daemon_want(daemon, instance, NULL, &err))
        log_line(LOG_INFO, "node", "%s", err.text);
    if (known && !known->active)
        daemon_tell_now(daemon); /* the leader loads it */
}

/* ---- what is wanted ------------------------------------------------------------------------------------- */

static void propose_desired(struct daemon *daemon, const char *model, const struct place_wish *wish)
{
    Cluster__Demand demand = CLUSTER__DEMAND__INIT;
    Cluster__Instance instance = CLUSTER__INSTANCE__INIT;
    Cluster__Event event = CLUSTER__EVENT__INIT;
    demand.has_goal = demand.has_context_tokens = demand.has_streams = true;
    demand.streams = wish && wish->streams ? wish->streams : STREAMS_STANDARD;
    demand.context_tokens = wish && wish->context ? wish->context : context_of(daemon, model);
    demand.goal = wish && wish->has_goal ? wish->goal : PLACEMENT_THROUGHPUT;
    instance.id = instance.model = (char *)(uintptr_t)model;
    instance.demand = &demand;
    instance.has_active = instance.has_idle_ms = true;
    instance.active = true;
    instance.idle_ms = wish ? wish->idle_ms : IDLE_STANDARD_MS;
    event.kind_case = CLUSTER__EVENT__KIND_INSTANCE_DESIRED;
    event.instance_desired = &instance;
    agreement_propose(daemon->agreement, &event, NULL, NULL);
}

static void propose_active(struct daemon *daemon, const char *id)
{
    Cluster__InstanceTarget target = CLUSTER__INSTANCE_TARGET__INIT;
    Cluster__Event event = CLUSTER__EVENT__INIT;
    target.id = (char *)(uintptr_t)id;
    target.has_active = target.active = true;
    event.kind_case = CLUSTER__EVENT__KIND_INSTANCE_TARGET;
    event.instance_target = &target;
    agreement_propose(daemon->agreement, &event, NULL, NULL);
}

static void propose_stopped(struct daemon *daemon, const char *id)
{
    Cluster__InstanceName name = CLUSTER__INSTANCE_NAME__INIT;
    Cluster__Event event = CLUSTER__EVENT__INIT;
    name.id = (char *)(uintptr_t)id;
    event.kind_case = CLUSTER__EVENT__KIND_INSTANCE_STOPPED;
    event.instance_stopped = &name;
    agreement_propose(daemon->agreement, &event, NULL, NULL);
}

/* Zeros of the wish, and NULL, are as the instance has it; more context than wished for is fine. */
bool daemon_meets(const Cluster__Instance *instance, const struct place_wish *wish)
{
    return !wish || (wish->context <= instance->demand->context_tokens &&
                     (!wish->streams || wish->streams == instance->demand->streams) &&
                     (!wish->has_goal || wish->goal == instance->demand->goal));
}

enum error_code daemon_want(struct daemon *daemon, const char *name, const struct place_wish *wish, struct error *err)
{
    const Cluster__Model *model = daemon_model_of_name(daemon, name);
    if (!model)
        return error_set(err, ERROR_NOT_FOUND, "the cluster has no model '%s'; `medley add FILE` gives it one", name);
    const Cluster__Instance *instance = state_instance(daemon_state(daemon), model->name);
    const char *problem = NULL;
    bool anew = instance && wish && daemon_phase(daemon, instance, &problem) == INSTANCE_FAILED;
    if (instance && daemon_meets(instance, wish) && !anew) {
        if (!instance->active)
            propose_active(daemon, instance->id);
        return ERROR_NONE;
    }
    if (instance)
        propose_stopped(daemon, instance->id);
    propose_desired(daemon, model->name, wish);
    return ERROR_NONE;
}

/* What has failed and where; good until it is asked again. */
static const char *failed_stage(const struct daemon *daemon, const Cluster__Placement *placement)
{
    static char text[2 * LIMIT_CLUSTER_TEXT_BYTES];
    for (size_t i = 0; placement && i < placement->n_stages; i++) {
        const Cluster__Stage *stage = placement->stages[i];
        if (stage->state != CLUSTER__STAGE_STATE__FAILED)
            continue;
        snprintf(text, sizeof text, "%s: %s", control_name_of(daemon, stage->node),
                 stage->problem && stage->problem[0] ? stage->problem : "its device or node was lost");
        return text;
    }
    return NULL;
}

enum instance_phase daemon_phase(const struct daemon *daemon, const Cluster__Instance *instance, const char **problem)
{
    *problem = NULL;
    if (!instance->active)
        return INSTANCE_IDLE;
    if (!instance->current || failed_stage(daemon, instance->current)) {
        const char *unplaced = daemon_problem(daemon, instance->id);
        *problem = unplaced ? unplaced : failed_stage(daemon, instance->current);
        return unplaced ? INSTANCE_FAILED : instance->current ? INSTANCE_FAILED : INSTANCE_PLACING;
    }
    return all_ready(instance->current) ? INSTANCE_READY : INSTANCE_LOADING;
}

/* ---- a file of this machine -------------------------------------------------------------------------------- */

struct adding {
    struct daemon *daemon;
    struct weights_facts facts;
    void (*done)(void *arg, const char *model, const struct error *err);
    void *arg;
};

static void end_adding(struct adding *adding, const struct error *err)
{
    if (adding->done)
        adding->done(adding->arg, err ? NULL : adding->facts.name, err);
    mem_free(adding);
}

static bool is_registered(const struct daemon *daemon, const struct weights_facts *facts)
{
    struct digest digest;
    const Cluster__Model *model = state_model(daemon_state(daemon), facts->name);
    return model && manifest_of(model, &digest) && memcmp(&digest, &facts->model, sizeof digest) == 0;
}

static void on_registered(void *arg, enum error_code code, const struct state_outcome *outcome, const struct error *err)
{
    struct adding *adding = arg;
    struct error why;
    if (!code && !is_registered(adding->daemon, &adding->facts)) {
        error_set(&why, ERROR_INVALID, "model %s was not taken: %s", adding->facts.name,
                  outcome->reason ? outcome->reason : "the cluster did not agree");
        err = &why;
        code = why.code;
    }
    end_adding(adding, code ? err : NULL);
}

static void on_hashed(void *arg, const struct weights_facts *facts, const struct error *err)
{
    struct adding *adding = arg;
    struct daemon *daemon = adding->daemon;
    Cluster__Model model = CLUSTER__MODEL__INIT;
    Cluster__Event event = CLUSTER__EVENT__INIT;
    if (err || daemon->stopping) {
        struct error stopping;
        error_set(&stopping, ERROR_CANCELLED, "the node is stopping");
        end_adding(adding, err ? err : &stopping);
        return;
    }
    adding->facts = *facts;
    if (is_registered(daemon, facts)) {
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
    model.architecture = adding->facts.architecture;
    model.has_manifest = model.has_bytes = model.has_n_layers = true;
    model.manifest.data = adding->facts.model.bytes;
    model.manifest.len = sizeof adding->facts.model.bytes;
    model.bytes = facts->bytes;
    model.n_layers = facts->n_layers;
    event.kind_case = CLUSTER__EVENT__KIND_MODEL_REGISTERED;
    event.model_registered = &model;
    agreement_propose(daemon->agreement, &event, on_registered, adding);
}

void daemon_add_file(struct daemon *daemon, const char *path,
                     void (*done)(void *arg, const char *model, const struct error *err), void *arg)
{
    struct error err;
    struct adding *adding = mem_new(sizeof *adding);
    if (!adding || !daemon->is_member) {
        error_set(&err, adding ? ERROR_BUSY : ERROR_NO_MEMORY,
                  adding ? "this machine is in no cluster yet" : "no memory for the model");
        mem_free(adding);
        if (done)
            done(arg, NULL, &err);
        return;
    }
    *adding = (struct adding){.daemon = daemon, .done = done, .arg = arg};
    weights_add_file(daemon->weights, path, on_hashed, adding);
}

/* ---- `medley up --model` --------------------------------------------------------------------------------------- */

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
    daemon_add_file(daemon, path, on_served, daemon);
}

/* ---- opening and closing ------------------------------------------------------------------------------------------
 */

static enum worker_weights have_weights(void *self, const Cluster__Model *model, uint32_t first, uint32_t n)
{
    struct digest digest;
    return manifest_of(model, &digest) ? weights_have(((struct daemon *)self)->weights, &digest, first, n)
                                       : WORKER_CANNOT_FETCH;
}

static const char *problem_of_weights(void *self, const Cluster__Model *model)
{
    struct digest digest;
    return manifest_of(model, &digest) ? weights_problem(((struct daemon *)self)->weights, &digest) : NULL;
}

bool daemon_has_model(struct daemon *daemon, const Cluster__Model *model)
{
    return have_weights(daemon, model, 0, model->n_layers) == WORKER_HAS_ALL;
}

static void fetch_weights(void *self, const Cluster__Model *model, uint32_t first, uint32_t n)
{
    struct digest digest;
    if (manifest_of(model, &digest))
        weights_fetch(((struct daemon *)self)->weights, &digest, first, n);
}

static const struct model *take_model(void *self, const Cluster__Model *model)
{
    struct digest digest;
    return manifest_of(model, &digest) ? weights_model(((struct daemon *)self)->weights, &digest) : NULL;
}

static void release_model(void *self, const Cluster__Model *model)
{
    struct daemon *daemon = self;
    struct digest digest;
    if (manifest_of(model, &digest))
        weights_release(daemon->weights, &digest);
}

static void propose_bytes(void *self, const void *bytes, size_t size)
{
    struct daemon *daemon = self;
    Cluster__Event *event = NULL;
    if (event_decode(bytes, size, &event, NULL))
        return;
    agreement_propose(daemon->agreement, event, NULL, NULL);
    event_free(event);
}

static void on_hosting_changed(void *self)
{
    daemon_changed(self);
}

static enum error_code open_hosting(struct daemon *daemon, struct error *err)
{
    return hosting_open(&(struct hosting_options){.loop = daemon->loop,
                                                  .gpu = daemon->options.gpu,
                                                  .children = daemon->options.children,
                                                  .node = daemon->id,
                                                  .carrier = daemon->carrier,
                                                  .wire = daemon->options.wire,
                                                  .weights = have_weights,
                                                  .fetch = fetch_weights,
                                                  .weights_problem = problem_of_weights,
                                                  .model = take_model,
                                                  .release = release_model,
                                                  .propose = propose_bytes,
                                                  .changed = on_hosting_changed,
                                                  .linked = daemon_is_linked,
                                                  .self = daemon},
                        &daemon->hosting, err);
}

enum error_code daemon_models_open(struct daemon *daemon, struct error *err)
{
    const struct relay_options relay = {.loop = daemon->loop,
                                        .mesh = daemon->mesh,
                                        .find = find_driver,
                                        .wanted = on_wanted,
                                        .patience_ms = daemon->options.patience_ms,
                                        .self = daemon};
    daemon->catalogue = mem_new(sizeof *daemon->catalogue);
    if (!daemon->catalogue)
        return error_set(err, ERROR_NO_MEMORY, "no memory for the list of models");
    daemon->catalogue->daemon = daemon;
    enum error_code code = open_hosting(daemon, err);
    if (!code)
        code = relay_open(&relay, &daemon->relay, err);
    return code;
}

void daemon_models_close(struct daemon *daemon, void (*closed)(struct daemon *daemon))
{
    struct catalogue *catalogue = daemon->catalogue;
    struct error err;
    daemon->catalogue = NULL;
    catalogue->closed = closed;
    error_set(&err, ERROR_CANCELLED, "the node is stopping");
    while (catalogue->entries) {
        struct entry *entry = catalogue->entries;
        catalogue->entries = entry->next;
        answer_all(entry, &err);
        if (!entry->is_working)
            free_entry(entry);
    }
    end_catalogue(catalogue);
}
