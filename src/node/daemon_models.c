/* Instances as this node sees them: what is wanted, where drivers are, and what hosting and relay
 * ask for. */
#include "node/daemon_state.h"

#include "agreement/agreement.h"
#include "base/log.h"
#include "engine/batch_shape.h"
#include "hosting/hosting.h"
#include "mesh/link.h"
#include "model/draft_model.h"
#include "model/model.h"
#include "node/catalogue.h"
#include "node/lead.h"
#include "node/peers.h"
#include "node/wish.h"
#include "pipeline/driver.h"
#include "placement/problem.h"
#include "placing/placing.h"
#include "relay/relay.h"
#include "weights/weights.h"

#include <stdio.h>
#include <string.h>

enum {
    STREAMS_STANDARD = 4,
    STREAMS_SHARED = 16, /* in the memory of those, where they share it */
    IDLE_STANDARD_MS = 30 * 60 * 1000
};

/* ---- where drivers are ----------------------------------------------------------------------- */

static enum error_code models_find_driver(void *self, const char *id, struct driver **driver,
                                          uint8_t node_id[NODE_ID_BYTES], uint64_t *epoch,
                                          struct error *err)
{
    struct daemon *daemon = self;
    const Cluster__Instance *instance = state_instance(daemon_state(daemon), id);
    const char *problem = NULL;
    *driver = NULL;
    if (!instance || !state_is_ready(instance->current)) {
        if (instance)
            daemon_phase(daemon, instance, &problem);
        return error_set(err, ERROR_BUSY, "%s is being loaded%s%s", id, problem ? ": " : "",
                         problem ? problem : "");
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
    if (!id_parse(first->node, node_id, NODE_ID_BYTES) ||
        !(daemon_is_linked(daemon, node_id) || daemon_find_detour(daemon, node_id, NULL)))
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

/* ---- what is wanted -------------------------------------------------------------------------- */

/* NULL: every admitted node knows what cells are. */
static const char *models_find_older(const struct daemon *daemon)
{
    const Cluster__State *root = daemon_state(daemon)->root;
    for (size_t i = 0; root && i < root->n_nodes; i++) {
        const Cluster__Node *node = root->nodes[i]->node;
        for (size_t k = 0; root->nodes[i]->admitted && k < node->n_devices; k++) {
            if (!node->devices[k]->has_shares_cells)
                return node->id;
        }
    }
    return NULL;
}

/* Whether streams of the model have nothing beside the cells that they share. */
static bool models_shares_all(struct daemon *daemon, const char *name)
{
    const Cluster__Model *said = state_model(daemon_state(daemon), name);
    const struct model *model = said ? catalogue_model_here(daemon, said) : NULL;
    const struct hyperparameters *h = model ? model_hyperparameters(model) : NULL;
    return h && !h->window && !h->reads_whole && !hyperparameters_has_states(h);
}

/* Streams share the cells of their contexts, or those that out asks for; `streams` 0: nobody said
 * how many, and there are more of them.
 * Whether their devices can is seen when they are placed. */
static void models_share_cells(struct daemon *daemon, const char *model, uint32_t streams,
                               Cluster__Demand *out)
{
    const uint64_t whole = (uint64_t)out->streams * kv_cells(out->context_tokens);
    const uint64_t cells = out->cells ? kv_cells(out->cells) : whole;
    out->has_cells =
        (out->cells || streams != 1) && cells <= LIMIT_POOL_CELLS && !models_find_older(daemon);
    out->cells = out->has_cells ? (uint32_t)cells : 0;
    if (out->has_cells && !streams && models_shares_all(daemon, model))
        out->streams = STREAMS_SHARED;
}

void daemon_demand(struct daemon *daemon, const char *model, const struct place_demand *wanted,
                   Cluster__Demand *out)
{
    wish_of(wanted, state_instance(daemon_state(daemon), model), out);
    const Cluster__Demand wished = *out;
    out->streams = out->streams ? out->streams : STREAMS_STANDARD;
    out->goal = out->has_goal ? out->goal : PLACEMENT_THROUGHPUT;
    out->has_goal = out->has_context_tokens = out->has_streams = true;
    if (wished.context_tokens)
        out->context_tokens = wished.context_tokens;
    else if ((wanted && wanted->is_by_hand) || out->cells || out->draft)
        out->context_tokens = catalogue_context_usual(daemon, model);
    else
        out->context_tokens = catalogue_context_fitting(daemon, model, out);
    if (wished.cells && !wished.context_tokens && wished.cells < out->context_tokens)
        out->context_tokens = wished.cells;
    models_share_cells(daemon, model, wished.streams, out);
}

static void propose_desired(struct daemon *daemon, const char *model,
                            const struct place_demand *wanted)
{
    const Cluster__Instance *before = state_instance(daemon_state(daemon), model);
    Cluster__Demand demand, wished;
    Cluster__Instance instance = CLUSTER__INSTANCE__INIT;
    Cluster__Event event = CLUSTER__EVENT__INIT;
    daemon_demand(daemon, model, wanted, &demand);
    wish_of(wanted, before, &wished);
    instance.id = instance.model = (char *)(uintptr_t)model;
    instance.demand = &demand;
    instance.wished = wanted ? &wished : NULL;
    instance.has_active = instance.has_idle_ms = true;
    instance.active = true;
    instance.idle_ms = wanted ? wish_idle_ms(wanted, before) : IDLE_STANDARD_MS;
    event.actor = wanted ? (char *)(uintptr_t)wanted->actor : NULL;
    event.kind_case = CLUSTER__EVENT__KIND_INSTANCE_DESIRED;
    event.instance_desired = &instance;
    agreement_propose(daemon->agreement, &event, NULL, NULL);
}

static void propose_active(struct daemon *daemon, const char *id, const char *actor)
{
    Cluster__InstanceTarget target = CLUSTER__INSTANCE_TARGET__INIT;
    Cluster__Event event = CLUSTER__EVENT__INIT;
    target.id = (char *)(uintptr_t)id;
    target.has_active = target.active = true;
    event.actor = (char *)(uintptr_t)actor;
    event.kind_case = CLUSTER__EVENT__KIND_INSTANCE_TARGET;
    event.instance_target = &target;
    agreement_propose(daemon->agreement, &event, NULL, NULL);
}

static void propose_stopped(struct daemon *daemon, const char *id, const char *actor)
{
    Cluster__InstanceName name = CLUSTER__INSTANCE_NAME__INIT;
    Cluster__Event event = CLUSTER__EVENT__INIT;
    name.id = (char *)(uintptr_t)id;
    event.actor = (char *)(uintptr_t)actor;
    event.kind_case = CLUSTER__EVENT__KIND_INSTANCE_STOPPED;
    event.instance_stopped = &name;
    agreement_propose(daemon->agreement, &event, NULL, NULL);
}

static bool models_meets_rope(const Cluster__Demand *demand, const struct place_demand *wanted)
{
    const Cluster__Demand other = {.rope = (Cluster__Rope *)(uintptr_t)&wanted->rope};
    const struct rope_stretch is = state_rope(demand),
                              want = wanted->has_rope ? state_rope(&other) : is;
    return is.type == want.type && is.factor == want.factor && is.base == want.base &&
           is.n_original == want.n_original;
}

static bool models_meets_search(const Cluster__Demand *demand, const struct place_demand *wanted)
{
    const Cluster__ScoreWeights *is = demand->score_weights, *want = &wanted->score;
    return (!wanted->weights_bytes || wanted->weights_bytes == demand->weights_bytes) &&
           (!wanted->time_limit_s || wanted->time_limit_s == demand->time_limit_s) &&
           (!wanted->has_score ||
            (is && is->compute == want->compute && is->memory == want->memory &&
             is->network == want->network && is->thermal == want->thermal &&
             is->bandwidth == want->bandwidth));
}

static bool models_meets_draft(const Cluster__Demand *demand, const struct place_demand *wanted)
{
    return (!wanted->draft[0] || (demand->draft && !strcmp(demand->draft, wanted->draft))) &&
           (!wanted->draft_device[0] ||
            (demand->draft_device && !strcmp(demand->draft_device, wanted->draft_device)));
}

/* Zeros, and NULL, are as the instance has it; more context than is wanted is fine. */
bool daemon_meets(const Cluster__Instance *instance, const struct place_demand *wanted)
{
    return !wanted ||
           (models_meets_search(instance->demand, wanted) &&
            models_meets_rope(instance->demand, wanted) &&
            wanted->context <= instance->demand->context_tokens &&
            (!wanted->streams || wanted->streams == instance->demand->streams) &&
            (!wanted->cells || kv_cells(wanted->cells) == instance->demand->cells) &&
            (!wanted->has_idle || wanted->idle_ms == instance->idle_ms) &&
            (!wanted->has_goal || wanted->goal == instance->demand->goal) &&
            (!wanted->has_kv_type || wanted->kv_type == instance->demand->kv_type) &&
            (!wanted->has_speculate || wanted->speculate == instance->demand->speculate) &&
            models_meets_draft(instance->demand, wanted) &&
            (!wanted->precision || wanted->precision == instance->demand->precision) &&
            (!wanted->precision_allowed ||
             wanted->precision_allowed == instance->demand->precision_allowed));
}

bool daemon_keeps(const struct daemon *daemon, const Cluster__Instance *instance,
                  const struct place_demand *wanted)
{
    const char *problem;
    const bool has_failed = wanted && daemon_phase(daemon, instance, &problem) == INSTANCE_FAILED;
    return daemon_meets(instance, wanted) && !has_failed;
}

static enum error_code models_check_cells(const struct daemon *daemon, const Cluster__Demand *wish,
                                          struct error *err)
{
    const char *older = models_find_older(daemon);
    if (older)
        return error_set(err, ERROR_UNSUPPORTED,
                         "%s has an older version of medley, which does not know --cells: update "
                         "it, or leave --cells out",
                         daemon_name_of(daemon, older));
    if (kv_cells(wish->cells) < kv_cells(wish->context_tokens))
        return error_set(err, ERROR_INVALID,
                         "%u cells; one stream of the context takes %u: more --cells, or a shorter "
                         "--context",
                         wish->cells, kv_cells(wish->context_tokens));
    return ERROR_NONE;
}

/* The rotations must be ones of this model, known to all nodes. */
static enum error_code models_check_rope(struct daemon *daemon, const Cluster__Model *said,
                                         const Cluster__Demand *wish, struct error *err)
{
    const struct rope_stretch rope = state_rope(wish);
    const struct model *model = catalogue_model_here(daemon, said);
    struct model *stretched;
    for (const struct peer *peer = daemon->peers; peer; peer = peer->next) {
        if (peer->link && link_version(peer->link).minor < 2)
            return error_set(err, ERROR_UNSUPPORTED,
                             "%s has an older version of medley, which does not know "
                             "--rope-scaling: update it",
                             daemon_name_of(daemon, peer->id));
    }
    if (!model)
        return error_set(err, ERROR_BUSY, "the header of %s is being fetched; ask again",
                         said->name);
    enum error_code code = model_stretch_copy(model, &rope, &stretched, err);
    if (!code)
        code = driver_check_context(stretched, wish->context_tokens, err);
    model_close(stretched);
    return code;
}

static enum error_code models_check_draft(struct daemon *daemon, const Cluster__Model *said,
                                          const char *name, struct error *err)
{
    const Cluster__Model *drafts = state_model(daemon_state(daemon), name);
    if (!drafts)
        return error_set(err, ERROR_NOT_FOUND,
                         "the cluster has no model '%.100s' to draft; `medley add FILE` adds it",
                         name);
    const struct model *model = catalogue_model_here(daemon, said),
                       *draft = catalogue_model_here(daemon, drafts);
    if (!model || !draft)
        return error_set(err, ERROR_BUSY, "the header of %s is being fetched; ask again",
                         model ? drafts->name : said->name);
    return model_check_draft(draft, model, err);
}

/* Some machine has it: which one will drive is not known yet. */
static enum error_code models_check_draft_device(const struct daemon *daemon,
                                                 const Cluster__Demand *wish, struct error *err)
{
    const Cluster__State *root = daemon_state(daemon)->root;
    if (!wish->draft)
        return error_set(err, ERROR_INVALID, "--draft-device is where --draft guesses: give both");
    for (size_t i = 0; root && i < root->n_nodes; i++) {
        if (state_device(root->nodes[i], wish->draft_device))
            return ERROR_NONE;
    }
    return error_set(err, ERROR_NOT_FOUND,
                     "no machine has a device '%.64s'; `medley nodes` lists them",
                     wish->draft_device);
}

/* Each of the two wishes is sound, but not what both say together. */
static enum error_code models_fail_unsound(const Cluster__Model *model,
                                           const Cluster__Instance *before,
                                           const struct place_demand *wanted, struct error *err)
{
    char kept[WISH_TEXT];
    wish_kept_text(wanted, before, kept);
    return error_set(err, ERROR_INVALID,
                     "weights of another type that may become smaller still are not read from the "
                     "disk, and %s was placed with %s: `medley unload %s` forgets that",
                     model->name, kept, model->name);
}

enum error_code daemon_check_wanted(struct daemon *daemon, const Cluster__Model *model,
                                    const Cluster__Instance *before,
                                    const struct place_demand *wanted, struct error *err)
{
    Cluster__Demand wish;
    wish_of(wanted, before, &wish);
    if (!wish_is_sound(&wish))
        return models_fail_unsound(model, before, wanted, err);
    if (wish.cells && models_check_cells(daemon, &wish, err))
        return err->code;
    if (wanted && wanted->draft[0] && models_check_draft(daemon, model, wanted->draft, err))
        return err->code;
    if (wanted && wanted->draft_device[0] && models_check_draft_device(daemon, &wish, err))
        return err->code;
    if (wish.rope)
        return models_check_rope(daemon, model, &wish, err);
    const uint32_t reach = model->context_tokens, context = wish.context_tokens;
    return reach && context > reach
               ? error_set(err, ERROR_INVALID,
                           "a context of %u tokens; %s was trained for %u: ask for no more, or "
                           "stretch it with --rope-scaling yarn --rope-scale %u, which answers "
                           "worse",
                           context, model->name, reach, (context + reach - 1) / reach)
               : ERROR_NONE;
}

enum error_code daemon_want(struct daemon *daemon, const char *name,
                            const struct place_demand *wanted, struct error *err)
{
    const Cluster__Model *model = catalogue_find(daemon, name);
    if (!model)
        return error_set(err, ERROR_NOT_FOUND,
                         "the cluster has no model '%s'; `medley add FILE` adds it", name);
    const Cluster__Instance *instance = state_instance(daemon_state(daemon), model->name);
    if (wanted && daemon_check_wanted(daemon, model, instance, wanted, err))
        return err->code;
    const char *actor = wanted ? wanted->actor : NULL;
    if (instance && daemon_keeps(daemon, instance, wanted)) {
        if (!instance->active)
            propose_active(daemon, instance->id, actor);
        return ERROR_NONE;
    }
    if (instance)
        propose_stopped(daemon, instance->id, actor);
    propose_desired(daemon, model->name, wanted);
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
        snprintf(text, sizeof text, "%s: %s", daemon_name_of(daemon, stage->node),
                 stage->problem && stage->problem[0] ? stage->problem
                                                     : "its device or node was lost");
        return text;
    }
    return NULL;
}

/* A node of it does not answer: it is about to be placed anew, or cannot be. */
static bool has_gone_node(const struct daemon *daemon, const Cluster__Placement *placement)
{
    for (size_t i = 0; i < placement->n_stages; i++) {
        const char *node = placement->stages[i]->node;
        const struct peer *peer = daemon_peer(daemon, node);
        if (strcmp(node, daemon->id) != 0 && (!peer || !peer->link || peer->is_silent))
            return true;
    }
    return false;
}

enum instance_phase daemon_phase(const struct daemon *daemon, const Cluster__Instance *instance,
                                 const char **problem)
{
    *problem = NULL;
    if (!instance->active)
        return INSTANCE_IDLE;
    if (!instance->current || failed_stage(daemon, instance->current)) {
        const char *unplaced = lead_problem_of(daemon, instance->id);
        *problem = unplaced ? unplaced : failed_stage(daemon, instance->current);
        return unplaced ? INSTANCE_FAILED : instance->current ? INSTANCE_FAILED : INSTANCE_PLACING;
    }
    if (has_gone_node(daemon, instance->current))
        *problem = lead_problem_of(daemon, instance->id);
    return state_is_ready(instance->current) ? INSTANCE_READY : INSTANCE_LOADING;
}

/* ---- what stages and requests ask for ---- */

static enum worker_weights have_weights(void *self, const Cluster__Model *model,
                                        struct worker_precision precision, uint32_t first,
                                        uint32_t n)
{
    struct digest digest;
    return catalogue_manifest_of(model, &digest)
               ? weights_have_at(((struct daemon *)self)->weights, &digest, precision, first, n)
               : WORKER_CANNOT_FETCH;
}

static const char *problem_of_weights(void *self, const Cluster__Model *model)
{
    struct digest digest;
    return catalogue_manifest_of(model, &digest)
               ? weights_problem(((struct daemon *)self)->weights, &digest)
               : NULL;
}

bool daemon_has_model(struct daemon *daemon, const Cluster__Model *model)
{
    struct digest digest; /* asked every 2 s of every model: that must be no use of it */
    return catalogue_manifest_of(model, &digest) &&
           weights_holds(daemon->weights, &digest, 0, model->n_layers);
}

static void fetch_weights(void *self, const Cluster__Model *model,
                          struct worker_precision precision, uint32_t first, uint32_t n)
{
    struct digest digest;
    if (catalogue_manifest_of(model, &digest))
        weights_fetch_at(((struct daemon *)self)->weights, &digest, precision, first, n);
}

static const struct model *take_model(void *self, const Cluster__Model *model,
                                      const struct worker_range *ranges, uint32_t n_ranges,
                                      struct hosting_file *file)
{
    struct digest digest;
    return catalogue_manifest_of(model, &digest)
               ? weights_model_at(((struct daemon *)self)->weights, &digest, file->precision,
                                  ranges, n_ranges, &file->is_smaller)
               : NULL;
}

static void models_release(void *self, const Cluster__Model *model, const struct hosting_file *file)
{
    struct daemon *daemon = self;
    struct digest digest;
    if (catalogue_manifest_of(model, &digest))
        weights_release_at(daemon->weights, &digest, file->precision, file->is_smaller);
}

static struct generator *models_draft_instance(void *self, const Cluster__Instance *instance,
                                               bool *is_apart)
{
    struct daemon *daemon = self;
    const Cluster__Instance *drafts = state_draft_instance(daemon_state(daemon), instance);
    struct generator *generator = NULL;
    if (!drafts || !daemon->relay ||
        relay_generator(daemon->relay, drafts->id, drafts->demand->context_tokens, &generator,
                        NULL))
        return NULL;
    *is_apart = state_are_apart(instance, drafts);
    return generator;
}

static bool models_draft_place(void *self, const Cluster__Instance *instance,
                               const Cluster__Placement *placement, char device[CLUSTER_ID_MAX],
                               double *share)
{
    struct placing_draft draft;
    if (!placing_draft_place(daemon_placing_view(self), instance, placement, &draft))
        return false;
    snprintf(device, CLUSTER_ID_MAX, "%s", draft.device);
    *share = draft.share;
    return true;
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
                                                  .release = models_release,
                                                  .draft_instance = models_draft_instance,
                                                  .draft_place = models_draft_place,
                                                  .propose = daemon_propose_bytes,
                                                  .changed = on_hosting_changed,
                                                  .linked = daemon_is_linked,
                                                  .link_bytes_per_s = daemon_link_bytes_per_s,
                                                  .self = daemon},
                        &daemon->hosting, err);
}

enum error_code daemon_models_open(struct daemon *daemon, struct error *err)
{
    const struct relay_options relay = {.loop = daemon->loop,
                                        .mesh = daemon->mesh,
                                        .find = models_find_driver,
                                        .reaches = daemon_is_linked,
                                        .through = daemon_find_detour,
                                        .wanted = on_wanted,
                                        .patience_ms = daemon->options.patience_ms,
                                        .self = daemon};
    enum error_code code = catalogue_open(daemon, &daemon->catalogue, err);
    if (!code)
        code = open_hosting(daemon, err);
    if (!code)
        code = relay_open(&relay, &daemon->relay, err);
    return code;
}
