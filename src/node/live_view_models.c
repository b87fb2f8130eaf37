/* The view's models and instances. */
#include "agreement/agreement.h"
#include "base/limits.h"
#include "hosting/part_options.h"
#include "node/daemon_state.h"
#include "node/live.h"
#include "node/live_view.h"
#include "node/peers.h"
#include "node/served.h"
#include "node/spreading.h"
#include "node/telling.h"
#include "placement/problem.h"
#include "relay/relay.h"

#include <stdio.h>
#include <string.h>

/* ---- models ---------------------------------------------------------------------------------- */

static void view_put_fetch(struct live_view *view, yyjson_mut_val *fetching, const char *node,
                           const char *model)
{
    const Node__Work *work = telling_work(view->daemon, node);
    for (size_t i = 0; work && i < work->n_fetching; i++) {
        const Node__Fetching *of = work->fetching[i];
        if (strcmp(of->model, model) != 0)
            continue;
        yyjson_mut_val *item = view_object(view, fetching, node);
        view_whole(view, item, "verified_bytes", of->has_verified_bytes, of->verified_bytes);
        view_whole(view, item, "wanted_bytes", of->has_wanted_bytes, of->wanted_bytes);
        view_number(view, item, "bytes_per_s", of->has_bytes_per_s,
                    view_round((double)of->bytes_per_s));
        return;
    }
}

static bool view_has_model(const Node__Now *now, const char *model)
{
    for (size_t i = 0; now && i < now->n_models; i++) {
        if (strcmp(now->models[i], model) == 0)
            return true;
    }
    return false;
}

/* What a node has of a model that it does not have as a whole; 0: nothing. */
static double view_kept_share(const struct live_view *view, const char *node, const char *model)
{
    const Node__Work *work = telling_work(view->daemon, node);
    for (size_t i = 0; work && i < work->n_kept; i++) {
        if (strcmp(work->kept[i]->model, model) == 0)
            return work->kept[i]->share_permille / 1e3;
    }
    return 0;
}

static void view_put_files(struct live_view *view, yyjson_mut_val *files,
                           const Cluster__Model *model)
{
    const Cluster__State *state = daemon_state(view->daemon)->root;
    for (size_t i = 0; i < state->n_nodes; i++) {
        const char *id = state->nodes[i]->node->id;
        const double share = view_has_model(view_now_of(view, id), model->name)
                                 ? 1
                                 : view_kept_share(view, id, model->name);
        if (share > 0)
            yyjson_mut_obj_add_real(view->doc, files, id, share);
    }
}

void view_put_models(struct live_view *view, yyjson_mut_val *root)
{
    const Cluster__State *state = daemon_state(view->daemon)->root;
    yyjson_mut_val *list = view_object(view, root, "models");
    for (size_t i = 0; view->daemon->is_member && state && i < state->n_models; i++) {
        const Cluster__Model *model = state->models[i];
        yyjson_mut_val *item = view_object(view, list, model->name);
        view_whole(view, item, "bytes", model->has_bytes, model->bytes);
        view_whole(view, item, "n_layers", model->has_n_layers, model->n_layers);
        view_text(view, item, "architecture", model->architecture);
        view_whole(view, item, "context_max", model->has_context_tokens, model->context_tokens);
        yyjson_mut_val *fetching = view_object(view, item, "fetching");
        for (size_t j = 0; j < state->n_nodes; j++)
            view_put_fetch(view, fetching, state->nodes[j]->node->id, model->name);
        view_put_best(view, item, model->has_bytes ? model->bytes : UINT64_MAX);
        view_put_files(view, view_object(view, item, "files"), model);
    }
}

/* ---- instances ------------------------------------------------------------------------------- */

/* As its node tells; 0: it is not loaded, or not known. */
static uint64_t view_stage_bytes(const struct live_view *view, const char *instance,
                                 const Cluster__Placement *placement, size_t index)
{
    const Node__Work *work = telling_work(view->daemon, placement->stages[index]->node);
    for (size_t i = 0; work && i < work->n_loaded; i++) {
        const Node__Loaded *loaded = work->loaded[i];
        if (loaded->stage == index && loaded->epoch == placement->epoch &&
            strcmp(loaded->instance, instance) == 0)
            return loaded->bytes;
    }
    return 0;
}

static void view_put_stages(struct live_view *view, yyjson_mut_val *item, const char *key,
                            const char *instance, const Cluster__Placement *placement)
{
    static const char *const states[] = {"loading", "ready", "failed"};
    yyjson_mut_val *list = yyjson_mut_obj_add_arr(view->doc, item, key);
    for (size_t i = 0; placement && i < placement->n_stages; i++) {
        const Cluster__Stage *stage = placement->stages[i];
        yyjson_mut_val *at = yyjson_mut_arr_add_obj(view->doc, list);
        view_text(view, at, "node", stage->node);
        view_text(view, at, "device", stage->device);
        view_whole(view, at, "first_layer", true, stage->first_layer);
        view_whole(view, at, "n_layers", true, stage->n_layers);
        view_text(view, at, "state", states[stage->state <= 2 ? stage->state : 2]);
        const uint64_t bytes = view_stage_bytes(view, instance, placement, i);
        view_whole(view, at, "memory_bytes", bytes > 0, bytes);
        view_text(view, at, "problem", stage->problem);
    }
}

/* Requests of all nodes' users that are in it, or wait for it. */
static uint64_t view_count_requests(const struct live_view *view, const char *instance)
{
    uint64_t n = relay_use_of(&view->uses, instance).live;
    for (const struct peer *peer = view->daemon->peers; peer; peer = peer->next) {
        const Node__Now *now = peer->link ? peer->now : NULL;
        for (size_t i = 0; now && i < now->n_uses; i++) {
            if (now->uses[i]->instance && strcmp(now->uses[i]->instance, instance) == 0)
                n += now->uses[i]->live < LIMIT_SEQUENCES ? now->uses[i]->live : LIMIT_SEQUENCES;
        }
    }
    return n;
}

static void view_put_pause(struct live_view *view, yyjson_mut_val *item, uint64_t paused_ms,
                           const char *why)
{
    yyjson_mut_val *pause = view_object(view, item, "pause");
    const uint64_t since = daemon_wall_ms() - paused_ms;
    view_whole(view, pause, "since_ms", true, since - since % VIEW_SECOND_MS);
    view_text(view, pause, "why", why);
}

/* A machine of the placement that does not answer; NULL: all do. */
static const char *view_gone_node(const struct live_view *view, const Cluster__Placement *placement)
{
    for (size_t i = 0; placement && i < placement->n_stages; i++) {
        const char *node = placement->stages[i]->node;
        const struct peer *peer = daemon_peer(view->daemon, node);
        if (strcmp(node, view->daemon->id) != 0 && (!peer || !peer->link || peer->is_silent))
            return node;
    }
    return NULL;
}

/* Why an instance that was placed does not serve; "": it does, or is not to. */
static void view_why_paused(struct live_view *view, const Cluster__Instance *instance,
                            enum instance_phase phase, char *out, size_t size)
{
    const char *gone = view_gone_node(view, instance->current);
    const Node__Driving *driving = telling_driving(view->daemon, instance);
    out[0] = 0;
    if (!instance->active || !instance->current)
        return;
    if (gone)
        snprintf(out, size, "%s does not answer", daemon_name_of(view->daemon, gone));
    else if (driving && driving->has_paused_ms)
        snprintf(out, size, "%s", driving->why ? driving->why : "its driver does not serve");
    else if (phase == INSTANCE_LOADING && view_count_requests(view, instance->id))
        snprintf(out, size, "its layers are being loaded");
}

static void view_put_service(struct live_view *view, yyjson_mut_val *item,
                             const Cluster__Instance *instance, enum instance_phase phase)
{
    const Node__Driving *driving = telling_driving(view->daemon, instance);
    char why[256];
    view_why_paused(view, instance, phase, why, sizeof why);
    const uint64_t paused_ms = rates_since(&view->daemon->view_rates, instance->id,
                                           daemon_now_ms(view->daemon), why[0] != 0);
    if (why[0])
        view_put_pause(view, item, paused_ms, why);
    if (!driving)
        return;
    view_number(view, item, "measured_decode_tokens_per_s", driving->has_decode_mtok_per_s,
                view_round(driving->decode_mtok_per_s / 1e3));
    view_number(view, item, "measured_prefill_tokens_per_s", driving->has_prefill_mtok_per_s,
                view_round(driving->prefill_mtok_per_s / 1e3));
    view_whole(view, item, "requests_waiting", driving->has_waiting, driving->waiting);
    view_whole(view, item, "requests_parked", driving->has_parked, driving->parked);
    view_whole(view, item, "cells_free", driving->has_cells_free, driving->cells_free);
    view_whole(view, item, "cells_shared", driving->has_cells_shared, driving->cells_shared);
}

/* An error may be below 0. */
static double view_round_signed(double value)
{
    return value < 0 ? -view_round(-value) : view_round(value);
}

/* What replies took beside the forecast, since its driver was opened. */
static void view_put_served(struct live_view *view, yyjson_mut_val *item,
                            const Cluster__Instance *instance)
{
    const struct served_error served = served_of(view->daemon, instance);
    double decode = 0, first = 0;
    const bool has_decode = served_decode_error(&served, &decode),
               has_first = served_first_token_error(&served, &first);
    view_number(view, item, "forecast_error_decode", has_decode, view_round_signed(decode));
    view_number(view, item, "forecast_error_first_token", has_first, view_round_signed(first));
}

static void view_put_instance(struct live_view *view, yyjson_mut_val *list,
                              const Cluster__Instance *instance)
{
    static const char *const phases[] = {"idle", "placing", "loading", "ready", "failed"};
    const char *problem = NULL;
    const enum instance_phase phase = daemon_phase(view->daemon, instance, &problem);
    const struct live_forecast forecast = live_forecast_of(view->live, instance->id);
    const struct driver_options options =
        part_options(instance->demand, !instance->current || instance->current->shares_cells);
    yyjson_mut_val *item = view_object(view, list, instance->id);
    view_text(view, item, "model", instance->model);
    view_text(view, item, "state", phases[phase]);
    view_text(view, item, "problem", problem);
    view_whole(view, item, "context", true, instance->demand->context_tokens);
    view_whole(view, item, "streams", true, options.n_slots);
    view_whole(view, item, "cells", options.cells != 0, options.cells);
    if (instance->demand->goal <= PLACEMENT_MIX)
        view_text(view, item, "goal",
                  placement_goal_name((enum placement_goal)instance->demand->goal));
    view_flag(view, item, "active", instance->active);
    view_whole(view, item, "epoch", instance->current != NULL,
               instance->current ? instance->current->epoch : 0);
    view_put_stages(view, item, "stages", instance->id, instance->current);
    if (instance->next)
        view_put_stages(view, item, "next", instance->id, instance->next);
    view_number(view, item, "forecast_decode_tokens_per_s", forecast.decode_tokens_per_s > 0,
                view_round(forecast.decode_tokens_per_s));
    view_number(view, item, "forecast_prefill_tokens_per_s", forecast.prefill_tokens_per_s > 0,
                view_round(forecast.prefill_tokens_per_s));
    view_whole(view, item, "requests_active", true, view_count_requests(view, instance->id));
    const Node__Survival *survival = spreading_survival(view->daemon, instance->id);
    view_whole(view, item, "survives", survival != NULL, survival ? survival->losses : 0);
    view_put_served(view, item, instance);
    view_put_service(view, item, instance, phase);
}

void view_put_instances(struct live_view *view, yyjson_mut_val *root)
{
    const Cluster__State *state = daemon_state(view->daemon)->root;
    yyjson_mut_val *list = view_object(view, root, "instances");
    if (!view->daemon->is_member || !view->daemon->relay)
        return;
    relay_use_report(view->daemon->relay, &view->uses);
    for (size_t i = 0; state && i < state->n_instances; i++)
        view_put_instance(view, list, state->instances[i]);
}
