/* What is here, for worker_step() and for people. */
#include "hosting/hosting_impl.h"

#include "base/mem.h"

#include <string.h>

/* Stages that were not asked for yet are not there for the worker, so that it asks. */
static bool is_seen(const struct part *part, uint32_t i)
{
    return part->stages[i].here && (part->stages[i].asked || part->state != PART_WAITING);
}

static uint32_t count(const struct hosting *hosting)
{
    uint32_t n = 0;
    for (const struct part *part = hosting->parts; part; part = part->next) {
        for (uint32_t i = 0; i < part->n_stages; i++)
            n += is_seen(part, i);
    }
    return n;
}

static void describe(const struct part *part, uint32_t i, struct worker_stage *out)
{
    *out = (struct worker_stage){
        .instance = part->instance,
        .model = part->model_record->name,
        .device = part->stages[i].device,
        .epoch = part->epoch,
        .stage = i,
        .first_layer = part->stages[i].first_layer,
        .n_layers = part->stages[i].n_layers,
        .state = part_worker_state(part),
    };
    if (out->state == WORKER_FAILED)
        out->problem = part->problem.text;
}

struct worker_stage *hosting_view(const struct hosting *hosting, struct worker_view *out)
{
    struct worker_stage *stages = mem_new_array(count(hosting) + 1, sizeof *stages);
    *out = (struct worker_view){
        .node = hosting->options.node,
        .stages = stages,
        .weights = hosting->options.weights,
        .weights_problem = hosting->options.weights_problem,
        .self = hosting->options.self,
    };
    for (const struct part *part = hosting->parts; part && stages; part = part->next) {
        for (uint32_t i = 0; i < part->n_stages; i++) {
            if (is_seen(part, i))
                describe(part, i, &stages[out->n_stages++]);
        }
    }
    return stages;
}

struct driver *hosting_driver(struct hosting *hosting, const char *instance, uint64_t *epoch)
{
    for (struct part *part = hosting->parts; part; part = part->next) {
        if (part->state != PART_READY || !part->driver || part->lost || !part->is_current ||
            cache_take_is_open(&part->take) || strcmp(part->instance, instance) != 0)
            continue;
        if (epoch)
            *epoch = part->epoch;
        return part->driver;
    }
    return NULL;
}

uint32_t hosting_stage_list(const struct hosting *hosting, struct hosting_stage *out,
                            uint32_t n_max)
{
    uint32_t n = 0;
    for (const struct part *part = hosting->parts; part; part = part->next) {
        for (uint32_t i = 0; i < part->n_stages; i++) {
            if (!part->stages[i].here || part->adopter)
                continue;
            if (n < n_max)
                out[n] = (struct hosting_stage){
                    .instance = part->instance,
                    .device = part->stages[i].device,
                    .epoch = part->epoch,
                    .stage = i,
                    .first_layer = part->stages[i].first_layer,
                    .n_layers = part->stages[i].n_layers,
                    .state = part_worker_state(part),
                    .problem = part->state == PART_FAILED || part->lost ? part->problem.text : NULL,
                    .bytes = part->stages[i].bytes,
                };
            n++;
        }
    }
    return n;
}
