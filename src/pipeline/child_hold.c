/* Weights that stay in a device's process from one lane to the next (children.h). The child's
 * watching thread says so to the process, before it says that the lane is closed. */
#include "pipeline/children_impl.h"

#include "base/mem.h"

#include <string.h>

struct lane_hold *lane_hold(struct lane *lane, const struct child_range *ranges, uint32_t n)
{
    struct child *child = lane->child;
    struct lane_hold *hold =
        n && n <= CHILD_RANGES_MAX ? mem_new(sizeof *hold + n * sizeof *ranges) : NULL;
    if (!hold)
        return NULL;
    hold->child = child;
    hold->lane = lane->id;
    hold->n_ranges = n;
    memcpy(hold->ranges, ranges, n * sizeof *ranges);
    pthread_mutex_lock(&child->lock);
    hold->id = ++child->last_id;
    hold->state =
        lane->state == LANE_READY ? HOLD_WANTED : HOLD_OVER; /* else its weights are lost, too */
    hold->next = child->holds;
    child->holds = hold;
    pthread_mutex_unlock(&child->lock);
    child_wake(child);
    return hold;
}

void hold_forget(struct lane_hold *hold)
{
    struct lane_hold **at = &hold->child->holds;
    while (*at != hold)
        at = &(*at)->next;
    *at = hold->next;
    mem_free(hold);
}

void lane_hold_drop(struct lane_hold *hold)
{
    if (!hold)
        return;
    struct child *child = hold->child;
    pthread_mutex_lock(&child->lock);
    hold->dropped = true;
    if (hold->state != HOLD_SAID)
        hold_forget(hold);
    pthread_mutex_unlock(&child->lock);
    child_wake(child);
}

struct lane_hold *hold_next(struct child *child)
{
    struct lane_hold *hold = child->holds;
    while (hold && hold->state != HOLD_WANTED && !(hold->state == HOLD_SAID && hold->dropped))
        hold = hold->next;
    return hold;
}

void holds_be_over(struct child *child)
{
    for (struct lane_hold *hold = child->holds, *next; hold; hold = next) {
        next = hold->next;
        hold->state = HOLD_OVER;
        if (hold->dropped)
            hold_forget(hold);
    }
}

bool holds_need(const struct child *child)
{
    const struct lane_hold *hold = child->holds;
    while (hold && (hold->dropped || hold->state == HOLD_OVER))
        hold = hold->next;
    return hold;
}
