/* Requests that only look: status, nodes, links, the cluster as a file. */
#include "node/control.h"

#include "agreement/agreement.h"
#include "base/buffer.h"
#include "base/version.h"
#include "clusterfile/cluster_write.h"
#include "hosting/hosting.h"
#include "hosting/part_options.h"
#include "join/admission.h"
#include "mesh/probe.h"
#include "model/model_precision.h"
#include "node/catalogue.h"
#include "node/daemon_run.h"
#include "node/finder.h"
#include "node/lead.h"
#include "node/live.h"
#include "node/peers.h"
#include "node/served.h"
#include "node/spreading.h"
#include "node/telling.h"
#include "placing/placing.h"
#include "topology/link.h"
#include "weights/weights.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void control_show_put_text(yyjson_mut_doc *doc, yyjson_mut_val *object, const char *key,
                                  const char *text)
{
    if (text && *text)
        yyjson_mut_obj_add_strcpy(doc, object, key, text);
    else
        yyjson_mut_obj_add_null(doc, object, key);
}

/* ---- status ---------------------------------------------------------------------------------- */

static void control_show_put_stages(struct daemon *daemon, yyjson_mut_doc *doc,
                                    yyjson_mut_val *object, const Cluster__Placement *placement)
{
    static const char *const states[] = {"loading", "ready", "failed"};
    yyjson_mut_val *list = yyjson_mut_obj_add_arr(doc, object, "stages");
    for (size_t i = 0; placement && i < placement->n_stages; i++) {
        const Cluster__Stage *stage = placement->stages[i];
        yyjson_mut_val *item = yyjson_mut_arr_add_obj(doc, list);
        control_show_put_text(doc, item, "node", daemon_name_of(daemon, stage->node));
        control_show_put_text(doc, item, "device", stage->device);
        yyjson_mut_obj_add_uint(doc, item, "first_layer", stage->first_layer);
        yyjson_mut_obj_add_uint(doc, item, "n_layers", stage->n_layers);
        if (stage->weights_max)
            yyjson_mut_obj_add_uint(doc, item, "n_streamed", stage->n_streamed);
        yyjson_mut_obj_add_str(doc, item, "state", states[stage->state <= 2 ? stage->state : 2]);
        control_show_put_text(doc, item, "problem", stage->problem);
        if (!stage->memory_step)
            continue;
        yyjson_mut_obj_add_uint(doc, item, "memory_step", stage->memory_step);
        control_show_put_text(doc, item, "memory_given", stage->memory_given);
    }
}

/* Whether its devices allow guesses: CPUs, and simulated devices, which are such. */
static bool control_show_may_guess(const struct daemon *daemon, const Cluster__Instance *instance)
{
    const Cluster__Placement *placement = instance->current;
    for (size_t i = 0; i < placement->n_stages; i++) {
        const Cluster__Stage *stage = placement->stages[i];
        const Cluster__NodeRecord *node = state_node(daemon_state(daemon), stage->node);
        const Cluster__Device *device = node ? state_device(node, stage->device) : NULL;
        if (!device || !device->kind ||
            (strcmp(device->kind, cluster_kind_name(CLUSTER_CPU)) != 0 &&
             strncmp(device->id, "sim:", 4) != 0))
            return false;
    }
    return instance->demand->speculate != SPECULATE_OFF;
}

static void put_forecast(struct daemon *daemon, yyjson_mut_doc *doc, yyjson_mut_val *object,
                         const Cluster__Instance *instance)
{
    struct placement_forecast forecast;
    if (!instance->current ||
        placing_forecast(daemon_placing_view(daemon), instance, instance->current, &forecast, NULL))
        return;
    yyjson_mut_obj_add_real(doc, object, "forecast_decode_tokens_per_s",
                            forecast.decode_tokens_per_s);
    if (control_show_may_guess(daemon, instance) && placement_guesses_gain(&forecast.guessed)) {
        yyjson_mut_val *guessed = yyjson_mut_obj_add_obj(doc, object, "forecast_one_stream");
        yyjson_mut_obj_add_real(doc, guessed, "tokens_per_s", forecast.guessed.without);
        yyjson_mut_obj_add_real(doc, guessed, "repeating_tokens_per_s", forecast.guessed.repeating);
        if (forecast.guessed.drafted > 0) {
            yyjson_mut_obj_add_real(doc, guessed, "drafted_tokens_per_s", forecast.guessed.drafted);
            yyjson_mut_obj_add_real(doc, guessed, "drafted_right", PLACEMENT_DRAFTED_SHARE);
        }
    }
    bool measured = true;
    for (uint32_t i = 0; i < forecast.n_stages; i++)
        measured &= forecast.stages[i].measured;
    yyjson_mut_obj_add_bool(doc, object, "forecast_measured", measured);
    if (!daemon_run_is_as_placed(instance->current)) /* it is of the stages as placed */
        yyjson_mut_obj_add_bool(doc, object, "as_placed", false);
    if (forecast.prefill_tokens_per_s > 0)
        yyjson_mut_obj_add_real(doc, object, "forecast_prefill_tokens_per_s",
                                forecast.prefill_tokens_per_s);
}

/* What replies took, beside that: control.md. */
static void put_served(struct daemon *daemon, yyjson_mut_doc *doc, yyjson_mut_val *object,
                       const Cluster__Instance *instance)
{
    const struct served_error served = served_of(daemon, instance);
    double error;
    if (!served.n_replies && served.first_token_s <= 0)
        return;
    yyjson_mut_val *item = yyjson_mut_obj_add_obj(doc, object, "served");
    yyjson_mut_obj_add_uint(doc, item, "replies", served.n_replies);
    if (served_decode_error(&served, &error)) {
        yyjson_mut_obj_add_real(doc, item, "decode_tokens_per_s", served.tokens_per_s);
        yyjson_mut_obj_add_real(doc, item, "forecast_decode_tokens_per_s",
                                served.forecast_tokens_per_s);
        yyjson_mut_obj_add_real(doc, item, "decode_error", error);
    }
    if (served_first_token_error(&served, &error)) {
        yyjson_mut_obj_add_real(doc, item, "first_token_s", served.first_token_s);
        yyjson_mut_obj_add_real(doc, item, "forecast_first_token_s", served.forecast_first_token_s);
        yyjson_mut_obj_add_real(doc, item, "first_token_error", error);
    }
}

/* How many machines can be lost, whichever they are; nothing: nobody has said. */
static void put_survival(const struct daemon *daemon, yyjson_mut_doc *doc, yyjson_mut_val *object,
                         const Cluster__Instance *instance)
{
    const Node__Survival *survival = spreading_survival(daemon, instance->id);
    if (!survival)
        return;
    yyjson_mut_obj_add_uint(doc, object, "survives", survival->losses);
    control_show_put_text(doc, object, "survives_limit", survival->limit);
}

/* The first device that cannot share cells; NULL: all can. Good until it is asked again. */
static const char *control_show_apart(const struct daemon *daemon,
                                      const Cluster__Placement *placement)
{
    static char text[LIMIT_CLUSTER_TEXT_BYTES + 1];
    for (size_t i = 0; i < placement->n_stages; i++) {
        const Cluster__Stage *stage = placement->stages[i];
        const Cluster__NodeRecord *node = state_node(daemon_state(daemon), stage->node);
        const Cluster__Device *device = node ? state_device(node, stage->device) : NULL;
        if (device && device->shares_cells)
            continue;
        snprintf(text, sizeof text, "%s of %s", stage->device, daemon_name_of(daemon, stage->node));
        return text;
    }
    return NULL;
}

/* Where its driver is, as it is now; elsewhere as it told last, which it does while somebody
 * watches. */
static void put_cells(const struct daemon *daemon, yyjson_mut_doc *doc, yyjson_mut_val *object,
                      const Cluster__Instance *instance)
{
    const struct driver *driver = hosting_driver(daemon->hosting, instance->id, NULL);
    const Node__Driving *told = telling_driving(daemon, instance);
    struct driver_stats stats = {0};
    if (driver)
        stats = driver_stats(driver);
    else if (told && told->has_cells_free)
        stats = (struct driver_stats){.cells_total = 1,
                                      .cells_free = told->cells_free,
                                      .cells_shared = told->cells_shared,
                                      .parked = told->parked};
    if (!stats.cells_total)
        return;
    yyjson_mut_obj_add_uint(doc, object, "cells_free", stats.cells_free);
    yyjson_mut_obj_add_uint(doc, object, "cells_shared", stats.cells_shared);
    yyjson_mut_obj_add_uint(doc, object, "parked", stats.parked);
}

/* As it runs; before it is placed, as it is asked for. */
static void put_streams(const struct daemon *daemon, yyjson_mut_doc *doc, yyjson_mut_val *object,
                        const Cluster__Instance *instance)
{
    const Cluster__Placement *current = instance->current;
    const struct driver_options options =
        part_options(instance->demand, !current || current->shares_cells);
    yyjson_mut_obj_add_uint(doc, object, "streams", options.n_slots);
    if (!instance->demand->cells)
        return;
    yyjson_mut_obj_add_uint(doc, object, "cells", options.cells);
    put_cells(daemon, doc, object, instance);
    if (current && !current->shares_cells)
        control_show_put_text(doc, object, "apart", control_show_apart(daemon, current));
}

static void control_show_put_rope(yyjson_mut_doc *doc, yyjson_mut_val *object,
                                  const Cluster__Demand *demand)
{
    const struct rope_stretch rope = state_rope(demand);
    if (!rope_stretch_is_set(&rope))
        return;
    yyjson_mut_val *out = yyjson_mut_obj_add_obj(doc, object, "rope");
    if (rope.type)
        yyjson_mut_obj_add_str(doc, out, "scaling", rope_choice_name(rope.type));
    if (rope.factor != 0)
        yyjson_mut_obj_add_real(doc, out, "scale", (double)rope.factor);
    if (rope.base != 0)
        yyjson_mut_obj_add_real(doc, out, "base", (double)rope.base);
    if (rope.n_original)
        yyjson_mut_obj_add_uint(doc, out, "original_tokens", rope.n_original);
}

void control_put_instance(struct daemon *daemon, yyjson_mut_doc *doc, yyjson_mut_val *object,
                          const Cluster__Instance *instance)
{
    static const char *const phases[] = {"idle", "placing", "loading", "ready", "failed"};
    const char *problem = NULL;
    enum instance_phase phase = daemon_phase(daemon, instance, &problem);
    yyjson_mut_obj_add_strcpy(doc, object, "id", instance->id);
    yyjson_mut_obj_add_strcpy(doc, object, "model", instance->model);
    yyjson_mut_obj_add_bool(doc, object, "active", instance->active);
    yyjson_mut_obj_add_str(doc, object, "state", phases[phase]);
    control_show_put_text(doc, object, "problem", problem);
    yyjson_mut_obj_add_uint(doc, object, "context", instance->demand->context_tokens);
    put_streams(daemon, doc, object, instance);
    if (instance->demand->kv_type < KV_TYPES)
        yyjson_mut_obj_add_strcpy(doc, object, "kv",
                                  plan_kv_type((enum kv_type)instance->demand->kv_type).name);
    if (instance->demand->speculate == SPECULATE_OFF)
        yyjson_mut_obj_add_str(doc, object, "speculate", speculate_name(SPECULATE_OFF));
    if (instance->demand->draft)
        yyjson_mut_obj_add_strcpy(doc, object, "draft", instance->demand->draft);
    if (instance->demand->draft && instance->demand->draft_device)
        yyjson_mut_obj_add_strcpy(doc, object, "draft_device", instance->demand->draft_device);
    if (state_draft_instance(daemon_state(daemon), instance))
        yyjson_mut_obj_add_bool(doc, object, "draft_is_placed", true);
    const uint32_t now = instance->current ? instance->current->precision : 0,
                   precision = now ? now : instance->demand->precision,
                   allowed = instance->demand->precision_allowed;
    if (precision)
        yyjson_mut_obj_add_strcpy(doc, object, "precision", model_precision_name((int)precision));
    if (allowed)
        yyjson_mut_obj_add_strcpy(doc, object, "allow_precision",
                                  model_precision_name((int)allowed));
    control_show_put_rope(doc, object, instance->demand);
    if (instance->demand->weights_bytes)
        yyjson_mut_obj_add_uint(doc, object, "weights_memory_bytes",
                                instance->demand->weights_bytes);
    yyjson_mut_obj_add_uint(doc, object, "epoch", instance->current ? instance->current->epoch : 0);
    control_show_put_stages(daemon, doc, object, instance->current);
    put_forecast(daemon, doc, object, instance);
    put_served(daemon, doc, object, instance);
    put_survival(daemon, doc, object, instance);
}

static const char *leader_of(const struct daemon *daemon, const struct replica_status *status)
{
    const Cluster__NodeRecord *record = state_node_of_member(daemon_state(daemon), status->leader);
    return record ? record->node->name : NULL;
}

static void put_cluster(struct daemon *daemon, yyjson_mut_doc *doc, yyjson_mut_val *root)
{
    const Cluster__State *state = daemon_state(daemon)->root;
    const struct replica_status status = agreement_status(daemon->agreement);
    const struct error *failure = daemon->is_member ? agreement_failure(daemon->agreement) : NULL;
    char id[CLUSTER_ID_TEXT];
    if (!daemon->is_member) {
        yyjson_mut_obj_add_null(doc, root, "cluster");
        return;
    }
    uint64_t voters = 0;
    for (size_t i = 0; state && i < state->n_members; i++)
        voters += state->members[i]->votes ? 1 : 0;
    yyjson_mut_val *object = yyjson_mut_obj_add_obj(doc, root, "cluster");
    id_text(daemon->membership.authority.cluster_id, CLUSTER_ID_BYTES, id);
    yyjson_mut_obj_add_strcpy(doc, object, "id", id);
    yyjson_mut_obj_add_uint(doc, object, "generation", status.lineage.generation);
    control_show_put_text(doc, object, "leader", leader_of(daemon, &status));
    control_show_put_text(doc, object, "problem", failure ? failure->text : NULL);
    yyjson_mut_obj_add_uint(doc, object, "term", status.term);
    yyjson_mut_obj_add_uint(doc, object, "voters", voters);
    yyjson_mut_obj_add_uint(doc, object, "nodes", state ? state->n_nodes : 0);
    yyjson_mut_obj_add_uint(doc, object, "admins", state_n_admins(daemon_state(daemon)));
    yyjson_mut_obj_add_str(doc, object, "role",
                           state_is_admin(daemon_state(daemon), daemon->id) ? "admin" : "member");
}

/* What this node fetches of it just now; nothing: no field. */
static void put_fetching(struct daemon *daemon, yyjson_mut_doc *doc, yyjson_mut_val *object,
                         const Cluster__Model *model)
{
    struct digest digest;
    if (!daemon->weights || !catalogue_manifest_of(model, &digest))
        return;
    const struct fetch_progress progress = weights_progress(daemon->weights, &digest);
    if (!progress.n_wanted)
        return;
    yyjson_mut_val *fetching = yyjson_mut_obj_add_obj(doc, object, "fetching");
    yyjson_mut_obj_add_uint(doc, fetching, "verified_bytes", progress.verified_bytes);
    yyjson_mut_obj_add_uint(doc, fetching, "wanted_bytes", progress.wanted_bytes);
}

/* The machines that say that all of it is on their disks. */
static void control_show_put_holders(struct daemon *daemon, yyjson_mut_doc *doc,
                                     yyjson_mut_val *item, const char *model)
{
    const Cluster__State *state = daemon_state(daemon)->root;
    yyjson_mut_val *holders = yyjson_mut_obj_add_arr(doc, item, "holders");
    for (size_t i = 0; i < state->n_nodes; i++) {
        const Cluster__Node *node = state->nodes[i]->node;
        const struct peer *peer = daemon_peer(daemon, node->id);
        const bool self = strcmp(node->id, daemon->id) == 0;
        const Node__Now *now = self ? daemon->now : peer ? peer->now : NULL;
        for (size_t m = 0; now && m < now->n_models; m++) {
            if (strcmp(now->models[m], model) == 0)
                yyjson_mut_arr_add_strcpy(doc, holders, node->name);
        }
    }
}

static void put_models(struct daemon *daemon, yyjson_mut_doc *doc, yyjson_mut_val *root)
{
    const Cluster__State *state = daemon_state(daemon)->root;
    yyjson_mut_val *models = yyjson_mut_obj_add_arr(doc, root, "models");
    for (size_t i = 0; state && i < state->n_models; i++) {
        const Cluster__Model *model = state->models[i];
        yyjson_mut_val *item = yyjson_mut_arr_add_obj(doc, models);
        control_show_put_text(doc, item, "name", model->name);
        yyjson_mut_obj_add_uint(doc, item, "bytes", model->bytes);
        yyjson_mut_obj_add_uint(doc, item, "n_layers", model->n_layers);
        control_show_put_text(doc, item, "architecture", model->architecture);
        control_show_put_holders(daemon, doc, item, model->name);
        put_fetching(daemon, doc, item, model);
    }
}

void control_status(struct conversation *conversation, yyjson_val *request)
{
    struct daemon *daemon = conversation->daemon;
    const Cluster__State *state = daemon_state(daemon)->root;
    char code[JOIN_CODE_TEXT] = "";
    uint64_t left_ms = 0;
    yyjson_mut_doc *doc;
    yyjson_mut_val *root = control_object(&doc);
    yyjson_mut_val *node = yyjson_mut_obj_add_obj(doc, root, "node");
    yyjson_mut_obj_add_strcpy(doc, node, "id", daemon->id);
    yyjson_mut_obj_add_strcpy(doc, node, "name", daemon->name);
    yyjson_mut_obj_add_str(doc, root, "version", MEDLEY_VERSION);
    yyjson_mut_obj_add_bool(doc, root, "waiting", !daemon->is_member);
    put_cluster(daemon, doc, root);
    control_show_put_text(doc, root, "api", daemon->api);
    yyjson_mut_val *listening = yyjson_mut_obj_add_arr(doc, root, "listening");
    for (uint32_t i = 0; i < daemon->n_addresses; i++)
        yyjson_mut_arr_add_strcpy(doc, listening, daemon->addresses[i]);
    control_show_put_text(
        doc, root, "code",
        daemon->admission && admission_invited(daemon->admission, code, &left_ms) ? code : NULL);
    yyjson_mut_val *instances = yyjson_mut_obj_add_arr(doc, root, "instances");
    for (size_t i = 0; state && i < state->n_instances; i++)
        control_put_instance(daemon, doc, yyjson_mut_arr_add_obj(doc, instances),
                             state->instances[i]);
    put_models(daemon, doc, root);
    live_put_totals(daemon, doc, root);
    control_put_lending(daemon, doc, root);
    control_answer(conversation, doc);
    control_end(conversation);
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static const Node__DeviceNow *control_show_device_now(const Node__Now *now, const char *id)
{
    for (size_t i = 0; now && i < now->n_devices; i++) {
        if (now->devices[i]->id && strcmp(now->devices[i]->id, id) == 0)
            return now->devices[i];
    }
    return NULL;
}

static void control_show_put_count(yyjson_mut_doc *doc, yyjson_mut_val *item, const char *key,
                                   bool known, uint32_t count)
{
    if (known)
        yyjson_mut_obj_add_uint(doc, item, key, count);
    else
        yyjson_mut_obj_add_null(doc, item, key);
}

/* What the device is; what is not known is null. */
static void control_show_put_record(yyjson_mut_doc *doc, yyjson_mut_val *item,
                                    const Cluster__Device *device)
{
    control_show_put_text(doc, item, "architecture", device->architecture);
    control_show_put_text(doc, item, "driver_name", device->driver_name);
    control_show_put_text(doc, item, "driver", device->driver);
    control_show_put_text(doc, item, "driver_fault", device->driver_fault);
    control_show_put_count(doc, item, "compute_units", device->has_compute_units,
                           device->compute_units);
    control_show_put_count(doc, item, "threads_per_block_max", device->has_threads_per_block_max,
                           device->threads_per_block_max);
    control_show_put_count(doc, item, "clock_mhz_max", device->has_clock_mhz, device->clock_mhz);
    if (device->has_peer_to_peer)
        yyjson_mut_obj_add_bool(doc, item, "peer_to_peer", device->peer_to_peer);
    else
        yyjson_mut_obj_add_null(doc, item, "peer_to_peer");
}

static void put_devices(yyjson_mut_doc *doc, yyjson_mut_val *object, const Cluster__Node *node,
                        const Node__Now *now)
{
    yyjson_mut_val *list = yyjson_mut_obj_add_arr(doc, object, "devices");
    for (size_t i = 0; i < node->n_devices; i++) {
        const Cluster__Device *device = node->devices[i];
        const Node__DeviceNow *seen = control_show_device_now(now, device->id);
        yyjson_mut_val *item = yyjson_mut_arr_add_obj(doc, list);
        control_show_put_text(doc, item, "id", device->id);
        control_show_put_text(doc, item, "name", device->name);
        control_show_put_text(doc, item, "kind", device->kind);
        struct cluster_device described;
        if (placing_device_of(device, &described))
            yyjson_mut_obj_add_str(doc, item, "speed", cluster_speed_name(described.speed));
        yyjson_mut_obj_add_uint(doc, item, "memory_bytes", device->memory_bytes);
        control_show_put_record(doc, item, device);
        if (seen && seen->has_free_bytes)
            yyjson_mut_obj_add_uint(doc, item, "free_bytes", seen->free_bytes);
        else
            yyjson_mut_obj_add_null(doc, item, "free_bytes");
    }
}

static bool control_show_votes(const struct daemon *daemon, uint64_t member)
{
    const Cluster__State *root = daemon_state(daemon)->root;
    for (size_t i = 0; root && member && i < root->n_members; i++) {
        if (root->members[i]->id == member)
            return root->members[i]->votes;
    }
    return false;
}

static void put_node(struct daemon *daemon, yyjson_mut_doc *doc, yyjson_mut_val *list,
                     const Cluster__NodeRecord *record)
{
    const Cluster__Node *node = record->node;
    const bool self = strcmp(node->id, daemon->id) == 0;
    const struct peer *peer = self ? NULL : daemon_peer(daemon, node->id);
    const struct replica_status status = agreement_status(daemon->agreement);
    yyjson_mut_val *item = yyjson_mut_arr_add_obj(doc, list);
    control_show_put_text(doc, item, "id", node->id);
    control_show_put_text(doc, item, "name", node->name);
    yyjson_mut_obj_add_bool(doc, item, "self", self);
    const bool up = self || (peer && peer->link);
    yyjson_mut_obj_add_str(doc, item, "state",
                           !up                       ? "down"
                           : peer && peer->is_silent ? "silent"
                                                     : "up");
    yyjson_mut_obj_add_bool(doc, item, "leads", node->member && node->member == status.leader);
    yyjson_mut_obj_add_bool(doc, item, "votes", control_show_votes(daemon, node->member));
    yyjson_mut_obj_add_str(doc, item, "role",
                           state_is_admin(daemon_state(daemon), node->id) ? "admin" : "member");
    control_show_put_text(doc, item, "version", node->version);
    yyjson_mut_val *addresses = yyjson_mut_obj_add_arr(doc, item, "addresses");
    for (size_t i = 0; i < node->n_addresses; i++)
        yyjson_mut_arr_add_strcpy(doc, addresses, node->addresses[i]);
    if (peer && peer->heard_ms)
        yyjson_mut_obj_add_uint(doc, item, "heard_ms", daemon_now_ms(daemon) - peer->heard_ms);
    else
        yyjson_mut_obj_add_null(doc, item, "heard_ms");
    const struct error problem =
        up ? (struct error){0} : finder_version_problem(daemon->finder, node->id);
    control_show_put_text(doc, item, "problem", problem.code ? problem.text : NULL);
    char address[FINDER_ADDRESS_BYTES] = "";
    const struct error dialled =
        up ? (struct error){0} : finder_dial_problem(daemon->finder, node->id, address);
    control_show_put_text(doc, item, "dial_address", address);
    control_show_put_text(doc, item, "dial_problem", dialled.code ? dialled.text : NULL);
    yyjson_mut_obj_add_null(doc, item, "words");
    const Node__Now *now = self ? daemon->now : peer ? peer->now : NULL;
    control_show_put_text(doc, item, "lends_nothing", now ? now->lends_nothing : NULL);
    put_devices(doc, item, node, now);
}

static void put_waiting(struct daemon *daemon, yyjson_mut_doc *doc, yyjson_mut_val *list)
{
    struct admission_waiting waiting[16];
    uint32_t n = daemon->admission ? admission_list(daemon->admission, waiting, 16) : 0;
    for (uint32_t i = 0; i < n && i < 16; i++) {
        char id[NODE_ID_TEXT];
        yyjson_mut_val *item = yyjson_mut_arr_add_obj(doc, list);
        id_text(waiting[i].node_id, NODE_ID_BYTES, id);
        yyjson_mut_obj_add_strcpy(doc, item, "id", id);
        yyjson_mut_obj_add_strcpy(doc, item, "name", waiting[i].name);
        yyjson_mut_obj_add_bool(doc, item, "self", false);
        yyjson_mut_obj_add_str(doc, item, "state", "waiting");
        yyjson_mut_obj_add_bool(doc, item, "leads", false);
        yyjson_mut_obj_add_bool(doc, item, "votes", false);
        yyjson_mut_obj_add_null(doc, item, "role");
        yyjson_mut_obj_add_null(doc, item, "version");
        yyjson_mut_obj_add_arr(doc, item, "addresses");
        yyjson_mut_obj_add_null(doc, item, "heard_ms");
        yyjson_mut_obj_add_strcpy(doc, item, "words", waiting[i].words);
        yyjson_mut_obj_add_arr(doc, item, "devices");
    }
}

void control_nodes(struct conversation *conversation, yyjson_val *request)
{
    struct daemon *daemon = conversation->daemon;
    const Cluster__State *state = daemon_state(daemon)->root;
    yyjson_mut_doc *doc;
    yyjson_mut_val *root = control_object(&doc);
    yyjson_mut_val *list = yyjson_mut_obj_add_arr(doc, root, "nodes");
    for (size_t i = 0; daemon->is_member && state && i < state->n_nodes; i++) {
        if (state->nodes[i]->admitted)
            put_node(daemon, doc, list, state->nodes[i]);
    }
    put_waiting(daemon, doc, list);
    control_answer(conversation, doc);
    control_end(conversation);
}

/* ---- links ----------------------------------------------------------------------------------- */

/* What is measured now, times `scale`; else what was told. */
static void control_show_put_reading(yyjson_mut_doc *doc, yyjson_mut_val *object, const char *key,
                                     struct reading now, double scale, bool told, uint64_t value)
{
    if (now.valid)
        yyjson_mut_obj_add_uint(doc, object, key, (uint64_t)llround(now.value * scale));
    else if (told)
        yyjson_mut_obj_add_uint(doc, object, key, value);
    else
        yyjson_mut_obj_add_null(doc, object, key);
}

/* Of this node's own links what is measured now; of others' what they have told the cluster. */
static void put_link(struct daemon *daemon, yyjson_mut_doc *doc, yyjson_mut_val *list,
                     const Cluster__Link *link)
{
    yyjson_mut_val *item = yyjson_mut_arr_add_obj(doc, list);
    const bool own = strcmp(link->from, daemon->id) == 0;
    const struct peer *peer = daemon_peer(daemon, own ? link->to : link->from);
    const struct topology_link now =
        own && peer && peer->link ? link_measured(peer->link) : (struct topology_link){0};
    control_show_put_text(doc, item, "from", daemon_name_of(daemon, link->from));
    control_show_put_text(doc, item, "to", daemon_name_of(daemon, link->to));
    yyjson_mut_obj_add_str(doc, item, "class",
                           topology_class_name(own && now.up ? now.class : link->class_));
    yyjson_mut_obj_add_bool(doc, item, "up", own ? peer && peer->link : true);
    control_show_put_reading(doc, item, "latency_ns", now.latency_ns, 1, link->has_latency_ns,
                             link->latency_ns);
    control_show_put_reading(doc, item, "jitter_ns", now.jitter_ns, 1, link->has_jitter_ns,
                             link->jitter_ns);
    control_show_put_reading(doc, item, "loss_ppm", now.loss_share, 1e6, link->has_loss_ppm,
                             link->loss_ppm);
    control_show_put_reading(doc, item, "bytes_per_s", now.bandwidth_bytes_per_s, 1,
                             link->has_bytes_per_s, link->bytes_per_s);
}

void control_links(struct conversation *conversation, yyjson_val *request)
{
    struct daemon *daemon = conversation->daemon;
    const Cluster__State *state = daemon_state(daemon)->root;
    yyjson_mut_doc *doc;
    yyjson_mut_val *root = control_object(&doc);
    yyjson_mut_val *list = yyjson_mut_obj_add_arr(doc, root, "links");
    for (size_t i = 0; daemon->is_member && state && i < state->n_links; i++)
        put_link(daemon, doc, list, state->links[i]);
    control_answer(conversation, doc);
    control_end(conversation);
}

/* ---- the cluster as a file ------------------------------------------------------------------- */

void control_cluster(struct conversation *conversation, yyjson_val *request)
{
    struct daemon *daemon = conversation->daemon;
    struct cluster cluster = {0};
    struct buffer text = {0};
    struct error err;
    enum error_code code = daemon->is_member
                               ? placing_cluster(daemon_placing_view(daemon), NULL, &cluster, &err)
                               : error_set(&err, ERROR_BUSY, "this machine is in no cluster yet");
    if (!code)
        cluster_write(&cluster, &text);
    if (!code && text.failed)
        code = error_set(&err, ERROR_NO_MEMORY, "not enough memory for the cluster");
    yyjson_doc *read = code ? NULL : yyjson_read(text.data, text.size, 0); /* as one line */
    yyjson_mut_doc *doc = read ? yyjson_doc_mut_copy(read, NULL) : NULL;
    if (code) {
        control_fail(conversation, &err);
    } else {
        control_answer(conversation, doc);
        control_end(conversation);
    }
    yyjson_doc_free(read);
    buffer_deinit(&text);
    cluster_deinit(&cluster);
}
