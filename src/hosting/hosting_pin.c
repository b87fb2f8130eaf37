/* Weights that stay loaded from one placement to the next where there is no memory for both
 * (engine/stage.h, stage_pin): the old part is closed, and what its device still has of the layers
 * of the new one is not loaded again.
 */
#include "hosting/hosting_impl.h"

#include "base/mem.h"

#include <assert.h>
#include <string.h>

/* On a thread of the pool: the system may take long to take gigabytes back. */
static void part_pin_drop(uv_work_t *work)
{
    const struct part_pin *pin = (struct part_pin *)work;
    for (uint32_t i = 0; i < pin->n; i++)
        stage_unpin(pin->stages[i]);
    for (uint32_t i = 0; i < pin->n_lanes; i++)
        lane_unpin(pin->lanes[i]);
}

static void part_pin_free(struct part_pin *pin)
{
    const struct hosting_options *options = &pin->hosting->options;
    if (pin->model)
        options->release(options->self, pin->model_record);
    message_free(pin->model_record ? &pin->model_record->base : NULL);
    mem_free(pin->instance);
    mem_free(pin);
}

static void part_pin_dropped(uv_work_t *work, int status)
{
    struct part_pin *pin = (struct part_pin *)work;
    struct hosting *hosting = pin->hosting;
    assert(status == 0);
    hosting->n_leaving_pins--;
    part_pin_free(pin);
    hosting_tell(hosting);
}

static void part_pin_let_go(struct part_pin *pin)
{
    pin->hosting->n_leaving_pins++;
    const int failure =
        uv_queue_work(pin->hosting->options.loop, &pin->work, part_pin_drop, part_pin_dropped);
    assert(failure == 0); /* it fails only without a function */
    (void)failure;
}

static bool hosting_has_pin(const struct hosting *hosting, const struct part *part, uint64_t epoch)
{
    for (const struct part_pin *pin = hosting->pins; pin; pin = pin->next) {
        if (pin->epoch == epoch && strcmp(pin->instance, part->life.instance) == 0)
            return true;
    }
    return false;
}

/* The layers that both have on the device. False: there are none. */
static bool part_pin_range(const struct part *part, uint32_t index, const Cluster__Stage *next,
                           struct child_range *out)
{
    const struct part_stage *old = &part->life.stages[index];
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

static void part_pin_stage(struct part_pin *pin, struct part *part, const struct child_range *range)
{
    struct pipeline *pipeline = part_pipeline(part);
    const struct stage *stage = pipeline ? pipeline->stages[range->stage].stage : NULL;
    struct stage_pin *pinned = stage ? stage_pin(stage, range->first_layer, range->n_layers) : NULL;
    if (pinned && pin->n < sizeof pin->stages / sizeof *pin->stages)
        pin->stages[pin->n++] = pinned;
    else
        stage_unpin(pinned);
}

/* All ranges of one lane at once. */
static void part_pin_lanes(struct part_pin *pin, struct part *part,
                           const struct child_range *ranges, uint32_t n)
{
    const struct pipeline *pipeline = part_pipeline(part);
    struct child_range own[CHILD_RANGES_MAX];
    for (uint32_t i = 0; i < n; i++) {
        struct lane *lane = pipeline->stages[ranges[i].stage].lane;
        uint32_t n_own = 0, before = 0;
        while (pipeline->stages[ranges[before].stage].lane != lane)
            before++;
        for (uint32_t k = i; k < n && before == i; k++) {
            if (pipeline->stages[ranges[k].stage].lane == lane)
                own[n_own++] = ranges[k];
        }
        struct lane_pin *pinned = n_own ? lane_pin(lane, own, n_own) : NULL;
        if (pinned)
            pin->lanes[pin->n_lanes++] = pinned;
    }
}

static struct part_pin *part_pin_new(struct part *part, uint64_t epoch)
{
    const struct hosting_options *options = &part->hosting->options;
    struct part_pin *pin = mem_new(sizeof *pin);
    if (!pin)
        return NULL;
    pin->hosting = part->hosting;
    pin->epoch = epoch;
    pin->instance = mem_copy_text(part->life.instance, strlen(part->life.instance));
    pin->model_record = part_copy_model(part->model_record);
    if (pin->instance && pin->model_record)
        pin->model = options->model(options->self, pin->model_record);
    if (pin->model == part->model && pin->model)
        return pin;
    part_pin_free(pin); /* no memory, or the file is open another time by now */
    return NULL;
}

void part_pin_for(struct part *part, const Cluster__Placement *next)
{
    struct hosting *hosting = part->hosting;
    const struct part *heir = hosting_find(hosting, part->life.instance, next->epoch);
    const bool is_there =
        heir && heir->life.state != PART_WAITING; /* it has, or loads, what it needs */
    if (part->life.state != PART_READY || is_there || next->epoch <= part->life.epoch ||
        hosting_has_pin(hosting, part, next->epoch))
        return;
    struct part_pin *pin = part_pin_new(part, next->epoch);
    struct child_range ranges[CHILD_RANGES_MAX];
    uint32_t n = 0;
    for (uint32_t i = 0; pin && i < part->life.n_stages; i++) {
        for (uint32_t k = 0;
             k < next->n_stages && part->life.stages[i].here && n < CHILD_RANGES_MAX; k++)
            n += part_pin_range(part, i, next->stages[k], &ranges[n]);
    }
    for (uint32_t i = 0; i < n && !hosting->options.children; i++)
        part_pin_stage(pin, part, &ranges[i]);
    if (n && hosting->options.children)
        part_pin_lanes(pin, part, ranges, n);
    if (pin && (pin->n || pin->n_lanes)) {
        pin->next = hosting->pins;
        hosting->pins = pin;
    } else if (pin) {
        part_pin_free(pin);
    }
}

static bool part_pin_is_needed(const struct hosting *hosting, const struct state *state,
                               const struct part_pin *pin)
{
    const struct part *part = hosting_find(hosting, pin->instance, pin->epoch);
    if (part)
        return part->life.state == PART_WAITING || part->life.state == PART_LOADING;
    const Cluster__Instance *instance = state_instance(state, pin->instance);
    return instance && instance->active && parts_placement(state, pin->instance, pin->epoch);
}

void hosting_drop_pins(struct hosting *hosting, const struct state *state)
{
    for (struct part_pin **at = &hosting->pins; *at;) {
        struct part_pin *pin = *at;
        if (state && part_pin_is_needed(hosting, state, pin)) {
            at = &pin->next;
            continue;
        }
        *at = pin->next;
        part_pin_let_go(pin);
    }
}
