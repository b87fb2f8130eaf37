/* Weights that stay loaded from one placement to the next where there is no memory for both
 * (engine/stage.h, stage_pin): the old part is closed, and what its device still has of the layers
 * of the new one is not loaded again. Which layers those are is chosen by parts_pin.c. */
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
        options->release(options->self, pin->model_record, &pin->file);
    message_free(pin->model_record ? &pin->model_record->base : NULL);
    mem_free(pin);
}

static void part_pin_dropped(uv_work_t *work, int status)
{
    struct part_pin *pin = (struct part_pin *)work;
    struct hosting *hosting = pin->hosting;
    assert(status == 0 && hosting->n_leaving_pins);
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

static struct part_pin *part_pin_new(struct part *part)
{
    const struct hosting_options *options = &part->hosting->options;
    struct part_pin *pin = mem_new(sizeof *pin);
    if (!pin)
        return NULL;
    pin->hosting = part->hosting;
    pin->file = part->file;
    pin->model_record = part_copy_model(part->model_record);
    if (pin->model_record)
        pin->model = options->model(options->self, pin->model_record, NULL, 0, &pin->file);
    if (pin->model == part->model && pin->model)
        return pin;
    part_pin_free(pin); /* no memory, or the file is open another time by now */
    return NULL;
}

void part_pin(struct part *part, struct parts_pin *chosen)
{
    struct part_pin *pin = part_pin_new(part);
    struct child_range ranges[CHILD_RANGES_MAX];
    static_assert((int)CHILD_RANGES_MAX >= (int)PARTS_RANGES_MAX, "they go to one lane at once");
    assert(part->life.state == PART_READY && !chosen->held && chosen->n_ranges);
    for (uint32_t i = 0; i < chosen->n_ranges; i++) {
        const struct parts_range *range = &chosen->ranges[i];
        ranges[i] = (struct child_range){range->stage, range->first_layer, range->n_layers};
    }
    for (uint32_t i = 0; pin && i < chosen->n_ranges && !part->hosting->options.children; i++)
        part_pin_stage(pin, part, &ranges[i]);
    if (pin && part->hosting->options.children)
        part_pin_lanes(pin, part, ranges, chosen->n_ranges);
    if (pin && (pin->n || pin->n_lanes))
        chosen->held = pin;
    else if (pin)
        part_pin_free(pin);
}

void hosting_unpin(struct hosting *hosting, struct parts_pin *chosen)
{
    struct part_pin *pin = chosen->held;
    assert(!pin || pin->hosting == hosting);
    if (pin)
        part_pin_let_go(pin);
    chosen->held = NULL;
    parts_pin_free(chosen);
}
