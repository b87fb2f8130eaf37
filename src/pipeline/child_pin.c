/* Weights that stay in a device's process from one lane to the next (children.h). The child's
 * watching thread says so to the process, before it says that the lane is closed. */
#include "pipeline/children_impl.h"

#include "base/mem.h"

#include <assert.h>
#include <string.h>

struct lane_pin *lane_pin(struct lane *lane, const struct child_range *ranges, uint32_t n)
{
    struct child *child = lane->child;
    struct lane_pin *pin =
        n && n <= CHILD_RANGES_MAX ? mem_new(sizeof *pin + n * sizeof *ranges) : NULL;
    if (!pin)
        return NULL;
    pin->child = child;
    pin->lane = lane->id;
    pin->n_ranges = n;
    memcpy(pin->ranges, ranges, n * sizeof *ranges);
    pthread_mutex_lock(&child->lock);
    pin->id = ++child->last_id;
    pin->state =
        lane->state == LANE_READY ? PIN_WANTED : PIN_OVER; /* else its weights are lost, too */
    pin->next = child->pins;
    child->pins = pin;
    pthread_mutex_unlock(&child->lock);
    child_wake(child);
    return pin;
}

void pin_forget(struct lane_pin *pin)
{
    struct lane_pin **at = &pin->child->pins;
    while (*at && *at != pin)
        at = &(*at)->next;
    assert(*at); /* it is on its child's list until now */
    *at = pin->next;
    mem_free(pin);
}

void lane_unpin(struct lane_pin *pin)
{
    if (!pin)
        return;
    struct child *child = pin->child;
    pthread_mutex_lock(&child->lock);
    pin->dropped = true;
    if (pin->state != PIN_SAID)
        pin_forget(pin);
    pthread_mutex_unlock(&child->lock);
    child_wake(child);
}

struct lane_pin *pin_next(struct child *child)
{
    struct lane_pin *pin = child->pins;
    while (pin && pin->state != PIN_WANTED && !(pin->state == PIN_SAID && pin->dropped))
        pin = pin->next;
    return pin;
}

void pins_end(struct child *child)
{
    for (struct lane_pin *pin = child->pins, *next; pin; pin = next) {
        next = pin->next;
        pin->state = PIN_OVER;
        if (pin->dropped)
            pin_forget(pin);
    }
}

bool pins_needed(const struct child *child)
{
    const struct lane_pin *pin = child->pins;
    while (pin && (pin->dropped || pin->state == PIN_OVER))
        pin = pin->next;
    return pin;
}
