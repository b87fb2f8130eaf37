/* What is here, for who has requests, and for people. */
#include "hosting/hosting_impl.h"

#include <string.h>

struct driver *hosting_driver(struct hosting *hosting, const char *instance, uint64_t *epoch)
{
    for (struct part *part = hosting_first(hosting); part; part = part_next(part)) {
        if (part->life.state != PART_READY || !part->driver || part->reach.is_waiting ||
            !part->life.is_current || cache_take_is_open(&part->take) ||
            strcmp(part->life.instance, instance) != 0)
            continue;
        if (epoch)
            *epoch = part->life.epoch;
        return part->driver;
    }
    return NULL;
}

uint32_t hosting_stage_list(const struct hosting *hosting, struct hosting_stage *out,
                            uint32_t n_max)
{
    uint32_t n = 0;
    for (const struct part *part = hosting_first(hosting); part; part = part_next(part)) {
        for (uint32_t i = 0; i < part->life.n_stages; i++) {
            if (!part->life.stages[i].here || part->life.adopter)
                continue;
            if (n < n_max)
                out[n] = (struct hosting_stage){
                    .instance = part->life.instance,
                    .device = part->life.stages[i].device,
                    .epoch = part->life.epoch,
                    .stage = i,
                    .first_layer = part->life.stages[i].first_layer,
                    .n_layers = part->life.stages[i].n_layers,
                    .state = part_worker_state(&part->life),
                    .problem = part->life.state == PART_FAILED ? part->life.problem.text
                               : part->reach.is_waiting        ? part->problem.text
                                                               : NULL,
                    .bytes = part->life.stages[i].bytes,
                    .memory_step = part->life.stages[i].memory_step,
                };
            n++;
        }
    }
    return n;
}

uint32_t hosting_memory_step(const struct hosting *hosting, const char *device)
{
    uint32_t furthest = 0;
    for (const struct part *part = hosting_first(hosting); part; part = part_next(part)) {
        for (uint32_t i = 0; i < part->life.n_stages; i++) {
            const struct part_stage *stage = &part->life.stages[i];
            if (stage->here && part->life.state == PART_READY && stage->memory_step > furthest &&
                strcmp(stage->device, device) == 0)
                furthest = stage->memory_step;
        }
    }
    return furthest;
}
