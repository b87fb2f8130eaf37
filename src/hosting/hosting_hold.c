/* Weights that stay loaded from one placement to the next where there is no memory for both
 * (engine/stage.h, stage_hold): the old part is closed, and what its device still has of the layers
 * of the new one is not loaded again.
 */
#include "hosting/hosting_impl.h"

#include "base/mem.h"
#include "pipeline/microbatch.h"

#include <assert.h>
#include <string.h>

/* On a thread of the pool: the system may take long to take gigabytes back. */
static void drop(uv_work_t *work)
{
    const struct hold *hold = (struct hold *)work;
    for (uint32_t i = 0; i < hold->n; i++)
        stage_hold_drop(hold->stages[i]);
    for (uint32_t i = 0; i < hold->n_lanes; i++)
        lane_hold_drop(hold->lanes[i]);
}

static void free_hold(struct hold *hold)
{
    const struct hosting_options *options = &hold->hosting->options;
    if (hold->model)
        options->release(options->self, hold->model_record);
    message_free(hold->model_record ? &hold->model_record->base : NULL);
    mem_free(hold->instance);
    mem_free(hold);
}

static void after_drop(uv_work_t *work, int status)
{
    struct hold *hold = (struct hold *)work;
    struct hosting *hosting = hold->hosting;
    assert(status == 0);
    hosting->n_leaving_holds--;
    free_hold(hold);
    hosting_tell(hosting);
}

static void let_go(struct hold *hold)
{
    hold->hosting->n_leaving_holds++;
    const int failure = uv_queue_work(hold->hosting->options.loop, &hold->work, drop, after_drop);
    assert(failure == 0); /* it fails only without a function */
    (void)failure;
}

static bool has_hold(const struct hosting *hosting, const struct part *part, uint64_t epoch)
{
    for (const struct hold *hold = hosting->holds; hold; hold = hold->next) {
        if (hold->epoch == epoch && strcmp(hold->instance, part->instance) == 0)
            return true;
    }
    return false;
}

/* The layers that both have on the device. False: there are none. */
static bool find_range(const struct part *part, uint32_t index, const Cluster__Stage *next,
                       struct child_range *out)
{
    const struct part_stage *old = &part->stages[index];
    const uint32_t first =
        next->first_layer > old->first_layer ? next->first_layer : old->first_layer;
    const uint32_t next_end = next->first_layer + next->n_layers,
                   old_end = old->first_layer + old->n_layers;
    const uint32_t end = next_end < old_end ? next_end : old_end;
    if (first >= end || strcmp(next->node, part->hosting->options.node) != 0 ||
        strcmp(next->device, old->device) != 0)
        return false;
    *out = (struct child_range){index, first, end - first};
    return true;
}

static void hold_stage(struct hold *hold, struct part *part, const struct child_range *range)
{
    struct pipeline *pipeline = part_pipeline(part);
    const struct stage *stage = pipeline ? pipeline->stages[range->stage].stage : NULL;
    struct stage_hold *held = stage ? stage_hold(stage, range->first_layer, range->n_layers) : NULL;
    if (held && hold->n < sizeof hold->stages / sizeof *hold->stages)
        hold->stages[hold->n++] = held;
    else
        stage_hold_drop(held);
}

/* All ranges of one lane at once. */
static void hold_lanes(struct hold *hold, struct part *part, const struct child_range *ranges,
                       uint32_t n)
{
    struct child_range own[CHILD_RANGES_MAX];
    for (uint32_t i = 0; i < n; i++) {
        struct lane *lane = part->stages[ranges[i].stage].lane;
        uint32_t n_own = 0, before = 0;
        while (part->stages[ranges[before].stage].lane != lane)
            before++;
        for (uint32_t k = i; k < n && before == i; k++) {
            if (part->stages[ranges[k].stage].lane == lane)
                own[n_own++] = ranges[k];
        }
        struct lane_hold *held = n_own ? lane_hold(lane, own, n_own) : NULL;
        if (held)
            hold->lanes[hold->n_lanes++] = held;
    }
}

static struct hold *new_hold(struct part *part, uint64_t epoch)
{
    const struct hosting_options *options = &part->hosting->options;
    struct hold *hold = mem_new(sizeof *hold);
    if (!hold)
        return NULL;
    hold->hosting = part->hosting;
    hold->epoch = epoch;
    hold->instance = mem_copy_text(part->instance, strlen(part->instance));
    hold->model_record = part_copy_model(part->model_record);
    if (hold->instance && hold->model_record)
        hold->model = options->model(options->self, hold->model_record);
    if (hold->model == part->model && hold->model)
        return hold;
    free_hold(hold); /* no memory, or the file is open another time by now */
    return NULL;
}

void part_hold_for(struct part *part, const Cluster__Placement *next)
{
    struct hosting *hosting = part->hosting;
    const struct part *heir = hosting_find(hosting, part->instance, next->epoch);
    const bool is_there = heir && heir->state != PART_WAITING; /* it has, or loads, what it needs */
    if (part->state != PART_READY || is_there || next->epoch <= part->epoch ||
        has_hold(hosting, part, next->epoch))
        return;
    struct hold *hold = new_hold(part, next->epoch);
    struct child_range ranges[CHILD_RANGES_MAX];
    uint32_t n = 0;
    for (uint32_t i = 0; hold && i < part->n_stages; i++) {
        for (uint32_t k = 0; k < next->n_stages && part->stages[i].here && n < CHILD_RANGES_MAX;
             k++)
            n += find_range(part, i, next->stages[k], &ranges[n]);
    }
    for (uint32_t i = 0; i < n && !hosting->options.children; i++)
        hold_stage(hold, part, &ranges[i]);
    if (n && hosting->options.children)
        hold_lanes(hold, part, ranges, n);
    if (hold && (hold->n || hold->n_lanes)) {
        hold->next = hosting->holds;
        hosting->holds = hold;
    } else if (hold) {
        free_hold(hold);
    }
}

static bool is_needed(const struct hosting *hosting, const struct state *state,
                      const struct hold *hold)
{
    const struct part *part = hosting_find(hosting, hold->instance, hold->epoch);
    if (part)
        return part->state == PART_WAITING || part->state == PART_LOADING;
    const Cluster__Instance *instance = state_instance(state, hold->instance);
    return instance && instance->active && hosting_placement(state, hold->instance, hold->epoch);
}

void hosting_drop_holds(struct hosting *hosting, const struct state *state)
{
    for (struct hold **at = &hosting->holds; *at;) {
        struct hold *hold = *at;
        if (state && is_needed(hosting, state, hold)) {
            at = &hold->next;
            continue;
        }
        *at = hold->next;
        let_go(hold);
    }
}
