#include "node/working.h"

#include "base/mem.h"
#include "cluster/event.h"
#include "hosting/hosting.h"
#include "node/catalogue.h"
#include "node/daemon_state.h"
#include "node/rates.h"
#include "pipeline/children.h"
#include "weights/weights.h"

#include <string.h>

enum { WORKING_DEATH_MS = 10 * 60 * 1000 }; /* as the alert device_dying counts them */
enum { WORKING_MAX = 64 };                  /* models, and instances */

/* What a Work points into; large, and the loop's alone. */
struct working_room {
    Node__Fetching fetching[WORKING_MAX], *fetching_list[WORKING_MAX];
    Node__Driving driving[WORKING_MAX], *driving_list[WORKING_MAX];
    Node__Kept kept[WORKING_MAX], *kept_list[WORKING_MAX];
    struct hosting_stage stages[WORKING_MAX];
    Node__Loaded loaded[WORKING_MAX], *loaded_list[WORKING_MAX];
    struct error deaths[LIMIT_DEVICES];
    Node__Ailing ailing[LIMIT_DEVICES], *ailing_list[LIMIT_DEVICES];
};

static void working_add_fetch(struct daemon *daemon, const Cluster__Model *model,
                              struct working_room *room, Node__Work *work)
{
    struct digest digest;
    if (work->n_fetching == WORKING_MAX || !catalogue_manifest_of(model, &digest))
        return;
    const struct fetch_progress progress = weights_progress(daemon->weights, &digest);
    if (!progress.n_wanted)
        return;
    Node__Fetching *item = &room->fetching[work->n_fetching];
    node__fetching__init(item);
    item->model = model->name;
    item->has_verified_bytes = item->has_wanted_bytes = true;
    item->verified_bytes = progress.verified_bytes;
    item->wanted_bytes = progress.wanted_bytes;
    const double rate = rates_step(&daemon->rates, RATE_FETCH, model->name, daemon_now_ms(daemon),
                                   progress.received_bytes, true);
    item->has_bytes_per_s = rate > 0;
    item->bytes_per_s = rate > 0 ? (uint64_t)rate : 0;
    room->fetching_list[work->n_fetching++] = item;
}

static void working_add_kept(struct daemon *daemon, const Cluster__Model *model,
                             struct working_room *room, Node__Work *work)
{
    struct digest digest;
    if (work->n_kept == WORKING_MAX || !catalogue_manifest_of(model, &digest))
        return;
    const double share = weights_share(daemon->weights, &digest);
    if (share <= 0)
        return;
    Node__Kept *item = &room->kept[work->n_kept];
    node__kept__init(item);
    item->model = model->name;
    item->has_share_permille = true;
    item->share_permille = (uint32_t)(share * 1000);
    room->kept_list[work->n_kept++] = item;
}

static void working_add_stages(struct daemon *daemon, struct working_room *room, Node__Work *work)
{
    const uint32_t n = hosting_stage_list(daemon->hosting, room->stages, WORKING_MAX);
    for (uint32_t i = 0; i < n && i < WORKING_MAX; i++) {
        if (!room->stages[i].bytes)
            continue;
        Node__Loaded *item = &room->loaded[work->n_loaded];
        node__loaded__init(item);
        item->instance = (char *)(uintptr_t)room->stages[i].instance;
        item->has_stage = item->has_bytes = item->has_epoch = true;
        item->epoch = room->stages[i].epoch;
        item->stage = room->stages[i].stage;
        item->bytes = room->stages[i].bytes;
        room->loaded_list[work->n_loaded++] = item;
    }
}

/* Until it has lived for so long since. */
static void working_add_ailing(struct daemon *daemon, struct working_room *room, Node__Work *work)
{
    struct gpu *gpu = daemon->options.gpu;
    struct children *children = daemon->options.children;
    for (uint32_t i = 0; gpu && children && i < gpu_device_count(gpu); i++) {
        const char *id = device_info(gpu_device(gpu, i))->id;
        struct error *why = &room->deaths[work->n_ailing];
        *why = (struct error){0};
        if (work->n_ailing == LIMIT_DEVICES ||
            !children_last_death(children, id, WORKING_DEATH_MS, why))
            continue;
        Node__Ailing *item = &room->ailing[work->n_ailing];
        node__ailing__init(item);
        item->device = (char *)(uintptr_t)id;
        item->why = why->text;
        room->ailing_list[work->n_ailing++] = item;
    }
}

static void working_say_driver(struct daemon *daemon, const struct driver *driver,
                               Node__Driving *item)
{
    const struct driver_stats stats = driver_stats(driver);
    const double rate =
        rates_step(&daemon->rates, RATE_DECODE, item->instance, daemon_now_ms(daemon),
                   stats.generated_tokens_total, stats.slots_busy > 0);
    item->has_active = item->has_waiting = true;
    item->active = stats.slots_busy;
    item->waiting = stats.queued;
    item->has_cells_free = item->has_cells_shared = item->has_parked = stats.cells_total != 0;
    item->cells_free = stats.cells_free;
    item->cells_shared = stats.cells_shared;
    item->parked = stats.parked;
    item->has_prefill_mtok_per_s = stats.prompt_row_ns > 250; /* it fits */
    if (item->has_prefill_mtok_per_s)
        item->prefill_mtok_per_s = (uint32_t)(UINT64_C(1000000000000) / stats.prompt_row_ns);
    item->has_decode_mtok_per_s = rate > 0 && rate < 4e6;
    item->decode_mtok_per_s = item->has_decode_mtok_per_s ? (uint32_t)(rate * 1000) : 0;
}

/* Why a driver does not serve though its stages are ready. */
static const char *working_why(struct daemon *daemon, const char *instance)
{
    static struct hosting_stage stages[256];
    uint32_t n = hosting_stage_list(daemon->hosting, stages, 256);
    for (uint32_t i = 0; i < n && i < 256; i++) {
        if (strcmp(stages[i].instance, instance) == 0 && stages[i].problem)
            return stages[i].problem;
    }
    return "its machines are being reached again";
}

static void working_add_driver(struct daemon *daemon, const Cluster__Instance *instance,
                               struct working_room *room, Node__Work *work)
{
    const Cluster__Placement *current = instance->current;
    if (work->n_driving == WORKING_MAX || !current || !current->n_stages ||
        strcmp(current->stages[0]->node, daemon->id) != 0 || !instance->active)
        return;
    Node__Driving *item = &room->driving[work->n_driving];
    node__driving__init(item);
    item->instance = instance->id;
    const struct driver *driver = hosting_driver(daemon->hosting, instance->id, NULL);
    const bool is_paused = !driver && state_is_ready(current);
    const uint64_t paused_ms =
        rates_since(&daemon->rates, instance->id, daemon_now_ms(daemon), is_paused);
    if (driver)
        working_say_driver(daemon, driver, item);
    if (is_paused) {
        item->has_paused_ms = true;
        item->paused_ms = paused_ms - paused_ms % 1000;
        item->why = (char *)(uintptr_t)working_why(daemon, instance->id);
    }
    room->driving_list[work->n_driving++] = item;
}

void working_gather(struct daemon *daemon, struct buffer *out)
{
    static struct working_room room;
    const Cluster__State *state = daemon_state(daemon)->root;
    Node__Work work = NODE__WORK__INIT;
    work.fetching = room.fetching_list;
    work.driving = room.driving_list;
    work.kept = room.kept_list;
    work.loaded = room.loaded_list;
    work.ailing = room.ailing_list;
    for (size_t i = 0; daemon->weights && state && i < state->n_models; i++) {
        working_add_fetch(daemon, state->models[i], &room, &work);
        working_add_kept(daemon, state->models[i], &room, &work);
    }
    if (daemon->hosting)
        working_add_stages(daemon, &room, &work);
    working_add_ailing(daemon, &room, &work);
    for (size_t i = 0; daemon->hosting && state && i < state->n_instances; i++)
        working_add_driver(daemon, state->instances[i], &room, &work);
    message_encode(&work.base, out);
}

static bool working_is_name(const char *text)
{
    return text && *text && strlen(text) <= LIMIT_CLUSTER_TEXT_BYTES;
}

enum error_code working_check(const Node__Work *work, struct error *err)
{
    bool good = !work || (work->n_fetching <= LIMIT_CLUSTER_MODELS &&
                          work->n_driving <= LIMIT_CLUSTER_INSTANCES);
    good = good && (!work || (work->n_kept <= LIMIT_CLUSTER_MODELS &&
                              work->n_loaded <= LIMIT_CLUSTER_INSTANCES * LIMIT_STAGES &&
                              work->n_ailing <= LIMIT_DEVICES));
    for (size_t i = 0; work && good && i < work->n_kept; i++)
        good = working_is_name(work->kept[i]->model) && work->kept[i]->share_permille <= 1000;
    for (size_t i = 0; work && good && i < work->n_loaded; i++)
        good = working_is_name(work->loaded[i]->instance) && work->loaded[i]->stage < LIMIT_STAGES;
    for (size_t i = 0; work && good && i < work->n_ailing; i++)
        good = working_is_name(work->ailing[i]->device) && working_is_name(work->ailing[i]->why);
    for (size_t i = 0; work && good && i < work->n_fetching; i++)
        good = working_is_name(work->fetching[i]->model);
    for (size_t i = 0; work && good && i < work->n_driving; i++)
        good = working_is_name(work->driving[i]->instance) &&
               (!work->driving[i]->why || working_is_name(work->driving[i]->why));
    return good ? ERROR_NONE
                : error_set(err, ERROR_INVALID, "a node says that it is at more than it can be");
}
