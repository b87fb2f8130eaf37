/* Which layers stay on their devices from one placement to the next, where there is no memory for
 * both: the old part is closed, and what its devices still have is not loaded again. */
#include "hosting/parts_impl.h"

#include "base/mem.h"

#include <assert.h>
#include <string.h>

void parts_pin_free(struct parts_pin *pin)
{
    assert(!pin->held);
    mem_free(pin->instance);
    mem_free(pin);
}

static bool parts_has_pin(const struct parts *parts, const char *instance, uint64_t epoch)
{
    const struct parts_pin *pin = parts->pins;
    while (pin && (pin->epoch != epoch || strcmp(pin->instance, instance) != 0))
        pin = pin->next;
    return pin;
}

/* The layers that both have on the device. False: there are none. */
static bool parts_pin_range(const struct parts *parts, const struct part_life *life, uint32_t index,
                            const Cluster__Stage *next, struct parts_range *out)
{
    const struct part_stage *old = &life->stages[index];
    const uint32_t first =
        next->first_layer > old->first_layer ? next->first_layer : old->first_layer;
    const uint32_t next_end = next->first_layer + next->n_layers,
                   old_end = old->first_layer + old->n_layers;
    const uint32_t end = next_end < old_end ? next_end : old_end;
    if (!old->here || first >= end || strcmp(next->node, parts->options.node) != 0 ||
        strcmp(next->device, old->device) != 0)
        return false;
    *out = (struct parts_range){index, first, end - first};
    return true;
}

static void parts_pin_ranges(const struct parts *parts, const struct part_life *life,
                             const Cluster__Placement *next, struct parts_pin *pin)
{
    for (uint32_t i = 0; i < life->n_stages; i++) {
        for (uint32_t k = 0; k < next->n_stages && pin->n_ranges < PARTS_RANGES_MAX; k++)
            pin->n_ranges +=
                parts_pin_range(parts, life, i, next->stages[k], &pin->ranges[pin->n_ranges]);
    }
}

bool parts_choose_pin(struct parts *parts, struct part_life *life, const Cluster__Placement *next,
                      struct parts_effect *out)
{
    const struct part_life *heir = parts_find(parts, life->instance, next->epoch);
    const bool is_there = heir && heir->state != PART_WAITING; /* it has, or loads, what it needs */
    if (life->state != PART_READY || is_there || next->epoch <= life->epoch ||
        parts_has_pin(parts, life->instance, next->epoch))
        return false;
    struct parts_pin *pin = mem_new(sizeof *pin);
    if (!pin)
        return false; /* they are loaded again */
    pin->epoch = next->epoch;
    pin->instance = mem_copy_text(life->instance, strlen(life->instance));
    parts_pin_ranges(parts, life, next, pin);
    if (!pin->instance || !pin->n_ranges) {
        parts_pin_free(pin);
        return false;
    }
    pin->next = parts->pins;
    parts->pins = pin;
    *out = (struct parts_effect){.type = PARTS_PIN, .life = life, .pin = pin};
    return true;
}

/* Until its part has come, or will not. */
static bool parts_pin_is_needed(const struct parts *parts, const struct state *state,
                                const struct parts_pin *pin)
{
    const struct part_life *life = parts_find(parts, pin->instance, pin->epoch);
    if (life)
        return life->state == PART_WAITING || life->state == PART_LOADING;
    const Cluster__Instance *instance = state_instance(state, pin->instance);
    return instance && instance->active && parts_placement_of(instance, pin->epoch);
}

void parts_drop_pins(struct parts *parts, const struct state *state)
{
    assert(state || parts->closing);
    for (struct parts_pin **at = &parts->pins; *at;) {
        struct parts_pin *pin = *at;
        if (state && parts_pin_is_needed(parts, state, pin)) {
            at = &pin->next;
            continue;
        }
        *at = pin->next;
        pin->next = parts->unpinned;
        parts->unpinned = pin;
    }
}

bool parts_next_unpin(struct parts *parts, struct parts_effect *out)
{
    struct parts_pin *pin = parts->unpinned;
    if (!pin)
        return false;
    parts->unpinned = pin->next;
    *out = (struct parts_effect){.type = PARTS_UNPIN, .pin = pin};
    return true;
}
