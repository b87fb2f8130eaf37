/* Spare copies: layers that this node does not compute are kept on its disk, so that they outlive
 * the machines that do. They come a piece at a time, and rest in between. */
#include "weights/weights_state.h"

#include "base/clock.h"
#include "base/log.h"

enum { LINK_SHARE = 4 }; /* of a link's measured bandwidth, a quarter at most is taken */

/* ---- the pace -------------------------------------------------------------------------------- */

static uint64_t spread_rest_ns(const struct link *link, uint32_t bytes)
{
    const struct topology_link measured = link_measured(link);
    const struct reading rate = topology_link_bandwidth(&measured);
    double bytes_per_s = LIMIT_SPREAD_BYTES_PER_S;
    if (rate.valid && rate.value / LINK_SHARE < bytes_per_s)
        bytes_per_s = rate.value / LINK_SHARE;
    return (uint64_t)((double)bytes / (bytes_per_s < 1000 ? 1000 : bytes_per_s) * 1e9);
}

void weights_spread_asked(struct weights_entry *entry, const struct link *link, uint32_t bytes)
{
    if (!entry->is_spread)
        return;
    const uint64_t busy_ns = LIMIT_SPREAD_BUSY_MS * UINT64_C(1000000);
    uint64_t rest_ns = spread_rest_ns(link, bytes);
    if (entry->weights->computes && rest_ns < busy_ns)
        rest_ns = busy_ns;
    entry->fetching.rest_ns = clock_now_ns() + rest_ns;
}

bool weights_spread_rests(struct weights_entry *entry, uint64_t now_ns)
{
    if (!entry->is_spread || now_ns >= entry->fetching.rest_ns)
        return false;
    weights_wake_at(entry->weights, entry->fetching.rest_ns);
    return true;
}

void weights_set_busy(struct weights *weights, bool computes)
{
    weights->computes = computes;
}

/* ---- beginning, and being overtaken ---------------------------------------------------------- */

void weights_spread(struct weights *weights, const struct digest *model, uint32_t first_layer,
                    uint32_t n_layers)
{
    struct weights_entry *entry = weights_make(weights, model);
    const uint64_t now_ns = clock_now_ns(), wait_ns = LIMIT_WEIGHTS_RETRY_MS * UINT64_C(1000000);
    if (!entry || weights_is_closing(weights) || (entry->is_wanted && !entry->is_spread) ||
        (entry->spread_ns && now_ns - entry->spread_ns < wait_ns) ||
        weights_layers_are_here(entry, first_layer, n_layers))
        return;
    for (uint32_t i = first_layer; i < LIMIT_LAYERS && i - first_layer < n_layers; i++)
        part_set_add(&entry->layers, i);
    if (!entry->is_wanted) {
        entry->is_wanted = entry->is_spread = true;
        entry->fetching.since_ns = now_ns;
        for (struct weights_peer *peer = weights->peers; peer; peer = peer->next)
            weights_ask_have(peer, entry);
    }
    weights_step(entry);
}

void weights_spread_hurry(struct weights_entry *entry)
{
    if (!entry->is_spread)
        return;
    entry->is_spread = false;
    entry->fetching.rest_ns = 0;
    if (entry->fetching.fetch)
        fetch_hurry(entry->fetching.fetch, LIMIT_WEIGHTS_FLIGHT_BYTES);
    weights_fetch_pump(entry);
}

bool weights_holds(struct weights *weights, const struct digest *model, uint32_t first_layer,
                   uint32_t n_layers)
{
    struct weights_entry *entry = weights_find(weights, model);
    return entry && weights_layers_are_here(entry, first_layer, n_layers);
}

/* ---- room ------------------------------------------------------------------------------------ */

struct room_look {
    struct weights_job job;
    uint64_t bytes;
};

static void run_room_look(struct weights_job *job)
{
    struct room_look *look = (struct room_look *)job;
    shelf_room(job->weights->shelf, &look->bytes, &job->err);
}

static void room_look_done(struct weights_job *job)
{
    struct weights *weights = job->weights;
    weights->is_looking = false;
    weights->looked_ns = clock_now_ns();
    weights->room_bytes = job->err.code ? 0 : ((struct room_look *)job)->bytes;
    if (job->err.code && !weights_is_closing(weights))
        log_line(LOG_WARN, "weights", "room for fetched models: %s", job->err.text);
    mem_free(job);
}

bool weights_room(struct weights *weights, uint64_t *bytes)
{
    const uint64_t due_ns = weights->looked_ns + LIMIT_SPREAD_ROOM_MS * UINT64_C(1000000);
    *bytes = weights->room_bytes;
    if (weights->is_looking || weights_is_closing(weights) ||
        (weights->looked_ns && clock_now_ns() < due_ns))
        return weights->looked_ns;
    struct room_look *look = mem_new(sizeof *look);
    if (look) {
        look->job.run = run_room_look;
        look->job.done = room_look_done;
        weights->is_looking = true;
        weights_lane_add(weights, &look->job);
    }
    return weights->looked_ns;
}
