#include "node/spreading.h"

#include "agreement/agreement.h"
#include "node/catalogue.h"
#include "node/daemon_state.h"
#include "node/lead.h"
#include "node/peers.h"
#include "placement/problem.h"
#include "relay/relay.h"
#include "weights/weights.h"

#include <string.h>

/* What all nodes say; large, and the loop's alone. */
struct spreading_view {
    const struct state *state;
    struct spread_node nodes[LIMIT_CLUSTER_NODES];
    const Cluster__Node *about[LIMIT_CLUSTER_NODES];
    const Node__Now *now[LIMIT_CLUSTER_NODES];
    uint64_t memory_bytes[LIMIT_CLUSTER_NODES];
    uint32_t n;
};

static struct spreading_view spreading_seen;

/* ---- what this node has ---------------------------------------------------------------------- */

static const Cluster__Model *model_of(const struct daemon *daemon, const Cluster__Instance *of)
{
    const Cluster__Model *model = state_model(daemon_state(daemon), of->model);
    return model && model->n_layers && model->n_layers <= LIMIT_LAYERS ? model : NULL;
}

static void tell_range(struct spreading_told *told, Node__Now *now, const Cluster__Model *model,
                       uint32_t first, uint32_t n)
{
    if (!n || now->n_on_disk == LIMIT_SPREAD_RANGES)
        return;
    Node__OnDisk *range = told->on_disk_list[now->n_on_disk] = &told->on_disk[now->n_on_disk];
    now->n_on_disk++;
    node__on_disk__init(range);
    range->model = model->name;
    range->has_first_layer = range->has_n_layers = true;
    range->first_layer = first;
    range->n_layers = n;
}

static void tell_layers(struct daemon *daemon, struct spreading_told *told, Node__Now *now,
                        const Cluster__Model *model)
{
    struct digest digest;
    uint32_t first = 0;
    if (!catalogue_manifest_of(model, &digest))
        return;
    if (weights_holds(daemon->weights, &digest, 0, model->n_layers)) {
        tell_range(told, now, model, 0, model->n_layers);
        return;
    }
    for (uint32_t i = 0; i < model->n_layers; i++) {
        if (weights_holds(daemon->weights, &digest, i, 1))
            continue;
        tell_range(told, now, model, first, i - first);
        first = i + 1;
    }
    tell_range(told, now, model, first, model->n_layers - first);
}

/* ---- what all have --------------------------------------------------------------------------- */

static void take_on_disk(struct spreading_view *view, const char *model)
{
    for (uint32_t i = 0; i < view->n; i++) {
        const Node__Now *now = view->now[i];
        memset(view->nodes[i].layers, 0, sizeof view->nodes[i].layers);
        for (size_t k = 0; now && k < now->n_on_disk; k++) {
            const Node__OnDisk *range = now->on_disk[k];
            if (range->model && strcmp(range->model, model) == 0)
                spread_add(&view->nodes[i], range->first_layer, range->n_layers);
        }
    }
}

/* What its nodes load now, and so fetch where they lack it. */
static void take_loading(struct spreading_view *view, const Cluster__Placement *placement)
{
    for (size_t i = 0; placement && i < placement->n_stages; i++) {
        const Cluster__Stage *stage = placement->stages[i];
        for (uint32_t k = 0; k < view->n && stage->state == CLUSTER__STAGE_STATE__LOADING; k++) {
            if (strcmp(view->about[k]->id, stage->node) == 0)
                spread_expect(&view->nodes[k], stage->first_layer, stage->n_layers);
        }
    }
}

static void take_coming(struct spreading_view *view, const char *model)
{
    const Cluster__State *root = view->state->root;
    for (uint32_t i = 0; i < view->n; i++)
        memset(view->nodes[i].coming, 0, sizeof view->nodes[i].coming);
    for (size_t i = 0; i < root->n_instances; i++) {
        if (!root->instances[i]->active || strcmp(root->instances[i]->model, model) != 0)
            continue;
        take_loading(view, root->instances[i]->current);
        take_loading(view, root->instances[i]->next);
    }
}

static uint64_t spreading_memory_of(const Cluster__Node *node)
{
    uint64_t sum = 0, host = 0;
    for (size_t i = 0; i < node->n_devices; i++) {
        const Cluster__Device *device = node->devices[i];
        const uint64_t bytes =
            device->memory_bytes < PLACEMENT_BYTES_MAX ? device->memory_bytes : PLACEMENT_BYTES_MAX;
        if (!device->shares_host_memory)
            sum += bytes;
        else if (bytes > host)
            host = bytes;
    }
    return sum + host;
}

static struct spreading_view *spreading_gather(struct daemon *daemon)
{
    struct spreading_view *view = &spreading_seen;
    const Cluster__State *root = daemon_state(daemon)->root;
    view->state = daemon_state(daemon);
    view->n = 0;
    for (size_t i = 0; root && i < root->n_nodes && view->n < LIMIT_CLUSTER_NODES; i++) {
        const Cluster__Node *node = root->nodes[i]->node;
        const bool self = strcmp(node->id, daemon->id) == 0;
        const struct peer *peer = self ? NULL : daemon_peer(daemon, node->id);
        if (!root->nodes[i]->admitted)
            continue;
        const uint32_t n = view->n++;
        const Node__Now *now = self ? daemon->now : peer ? peer->now : NULL;
        const bool may_keep = now && !state_is_drained(view->state, node->id);
        view->about[n] = node;
        view->now[n] = now;
        view->memory_bytes[n] = spreading_memory_of(node);
        view->nodes[n] =
            (struct spread_node){.up = self || (peer && peer->link && !peer->is_silent),
                                 .room_bytes = may_keep ? now->disk_room_bytes : 0};
    }
    return view;
}

static const Cluster__Link *link_between(const struct state *state, const char *from,
                                         const char *to)
{
    for (size_t i = 0; i < state->root->n_links; i++) {
        const Cluster__Link *link = state->root->links[i];
        if (strcmp(link->from, from) == 0 && strcmp(link->to, to) == 0)
            return link;
    }
    return NULL;
}

static double spreading_bytes_per_s(void *self, uint32_t from, uint32_t to)
{
    const struct spreading_view *view = self;
    const Cluster__Link *link =
        link_between(view->state, view->about[from]->id, view->about[to]->id);
    return link && link->has_bytes_per_s ? (double)link->bytes_per_s : 0;
}

static struct spread_question question_of(struct spreading_view *view, const Cluster__Model *model)
{
    take_on_disk(view, model->name);
    take_coming(view, model->name);
    return (struct spread_question){.n_layers = model->n_layers,
                                    .layer_bytes = model->bytes / model->n_layers + 1,
                                    .nodes = view->nodes,
                                    .n_nodes = view->n,
                                    .bytes_per_s = spreading_bytes_per_s,
                                    .self = view};
}

/* ---- what the leader says -------------------------------------------------------------------- */

static void say_copies(struct spreading_view *view, struct spreading_told *told, Node__Now *now,
                       const Cluster__Model *model, const struct spread_question *question)
{
    static struct spread_copy copies[LIMIT_SPREAD_RANGES];
    const uint32_t n =
        spread_choose(question, copies, LIMIT_SPREAD_RANGES - (uint32_t)now->n_spare_copies);
    for (uint32_t i = 0; i < n; i++) {
        Node__SpareCopy *copy = &told->copies[now->n_spare_copies];
        told->copy_list[now->n_spare_copies++] = copy;
        node__spare_copy__init(copy);
        copy->node = view->about[copies[i].node]->id;
        copy->model = model->name;
        copy->has_first_layer = copy->has_n_layers = true;
        copy->first_layer = copies[i].first_layer;
        copy->n_layers = copies[i].n_layers;
        view->nodes[copies[i].node].room_bytes -= copies[i].n_layers * question->layer_bytes;
    }
}

static bool is_up_member(const struct spreading_view *view, uint64_t member)
{
    for (uint32_t i = 0; i < view->n; i++) {
        if (view->about[i]->member == member)
            return view->nodes[i].up;
    }
    return false;
}

static void say_survival(struct spreading_view *view, struct spreading_told *told, Node__Now *now,
                         const Cluster__Instance *instance, const struct spread_question *question)
{
    const Cluster__State *root = view->state->root;
    enum spread_limit limit;
    uint32_t n_voters = 0, n_up = 0;
    for (size_t i = 0; i < root->n_members; i++) {
        n_voters += root->members[i]->votes ? 1 : 0;
        n_up += root->members[i]->votes && is_up_member(view, root->members[i]->id) ? 1 : 0;
    }
    Node__Survival *survival = &told->survivals[now->n_survivals];
    told->survival_list[now->n_survivals++] = survival;
    node__survival__init(survival);
    survival->instance = instance->id;
    survival->has_losses = true;
    survival->losses = spread_survives(question, view->memory_bytes, n_voters, n_up, &limit);
    survival->limit = (char *)(uintptr_t)spread_limit_name(limit);
}

/* ---- telling --------------------------------------------------------------------------------- */

void spreading_tell(struct daemon *daemon, struct spreading_told *told, Node__Now *now)
{
    const Cluster__State *root = daemon_state(daemon)->root;
    const bool leads = lead_is(daemon->lead);
    struct spreading_view *view = leads ? spreading_gather(daemon) : NULL;
    now->on_disk = told->on_disk_list;
    now->spare_copies = told->copy_list;
    now->survivals = told->survival_list;
    now->has_tells_on_disk = now->tells_on_disk = true;
    now->has_disk_room_bytes = weights_room(daemon->weights, &now->disk_room_bytes);
    for (size_t i = 0; root && i < root->n_instances; i++) {
        const Cluster__Instance *instance = root->instances[i];
        const Cluster__Model *model = model_of(daemon, instance);
        if (!model)
            continue;
        tell_layers(daemon, told, now, model);
        if (!leads)
            continue;
        const struct spread_question question = question_of(view, model);
        say_copies(view, told, now, model, &question);
        if (now->n_survivals < LIMIT_CLUSTER_INSTANCES)
            say_survival(view, told, now, instance, &question);
    }
}

void spreading_untell(Node__Now *now)
{
    now->n_on_disk = now->n_spare_copies = now->n_survivals = 0;
    now->on_disk = NULL;
    now->spare_copies = NULL;
    now->survivals = NULL;
}

/* ---- doing ----------------------------------------------------------------------------------- */

static const Node__Now *leader_now(const struct daemon *daemon)
{
    if (lead_is(daemon->lead))
        return daemon->now;
    const uint64_t leader = agreement_status(daemon->agreement).leader;
    const Cluster__NodeRecord *record = state_node_of_member(daemon_state(daemon), leader);
    const struct peer *peer = record ? daemon_peer(daemon, record->node->id) : NULL;
    return peer && peer->link ? peer->now : NULL;
}

static bool someone_computes(const Node__Now *now)
{
    bool live = false;
    for (size_t i = 0; now && i < now->n_uses; i++)
        live = live || now->uses[i]->live;
    return live;
}

/* Replies that are under way anywhere: their activations share the links, and their stages this
 * machine's memory. Others' are known with NOW's delay. */
static bool cluster_computes(struct daemon *daemon)
{
    struct relay_uses own;
    const Cluster__State *root = daemon_state(daemon)->root;
    bool computes = false;
    relay_use_report(daemon->relay, &own);
    for (size_t i = 0; root && i < root->n_instances; i++)
        computes = computes || relay_use_of(&own, root->instances[i]->id).live;
    for (struct peer *peer = daemon->peers; peer; peer = peer->next)
        computes = computes || (peer->link && someone_computes(peer->now));
    return computes;
}

void spreading_step(struct daemon *daemon)
{
    const Node__Now *now = leader_now(daemon);
    daemon->computes = cluster_computes(daemon);
    weights_set_busy(daemon->weights, daemon->computes);
    for (size_t i = 0; now && i < now->n_spare_copies; i++) {
        const Node__SpareCopy *copy = now->spare_copies[i];
        struct digest digest;
        if (!copy->node || !copy->model || strcmp(copy->node, daemon->id) != 0)
            continue;
        const Cluster__Model *model = state_model(daemon_state(daemon), copy->model);
        if (model && copy->first_layer < model->n_layers &&
            copy->n_layers <= model->n_layers - copy->first_layer &&
            catalogue_manifest_of(model, &digest))
            weights_spread(daemon->weights, &digest, copy->first_layer, copy->n_layers);
    }
}

/* ---- what is asked ---------------------------------------------------------------------- */

const Node__Survival *spreading_survival(const struct daemon *daemon, const char *instance)
{
    const Node__Now *now = leader_now(daemon);
    for (size_t i = 0; now && i < now->n_survivals; i++) {
        const Node__Survival *survival = now->survivals[i];
        if (survival->has_losses && survival->instance && strcmp(survival->instance, instance) == 0)
            return survival;
    }
    return NULL;
}

bool spreading_lost(struct daemon *daemon, const Cluster__Instance *instance, struct error *err)
{
    const Cluster__Model *model = model_of(daemon, instance);
    uint32_t layer = 0;
    if (!model || !instance->current)
        return false;
    struct spreading_view *view = spreading_gather(daemon);
    for (uint32_t i = 0; i < view->n; i++) {
        if (view->nodes[i].up && !(view->now[i] && view->now[i]->tells_on_disk))
            return false; /* it may have them */
    }
    const struct spread_question question = question_of(view, model);
    if (spread_copies(&question, &layer))
        return false;
    error_set(
        err, ERROR_BUSY,
        "layer %u of %s is on the disk of no machine that is up; it goes on when one that has "
        "it is back, or after `medley add FILE` on another",
        layer, model->name);
    return true;
}
