/* A part: the stages of one placement on this node. */
#include "hosting/hosting_impl.h"

#include "base/fnv.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/random.h"

#include <string.h>

uint64_t part_key(const char *instance)
{
    return random_mix(fnv_text(FNV_BASIS, instance));
}

Cluster__Model *part_copy_model(const Cluster__Model *model)
{
    struct buffer bytes = {0};
    ProtobufCMessage *copy = NULL;
    message_encode(&model->base, &bytes);
    if (bytes.failed || message_decode(&cluster__model__descriptor, (const uint8_t *)bytes.data,
                                       bytes.size, &copy, NULL))
        copy = NULL;
    buffer_deinit(&bytes);
    return (Cluster__Model *)copy;
}

/* False: no memory. */
static bool fill_stage(struct part *part, struct part_stage *stage, const Cluster__Stage *from)
{
    stage->here = strcmp(from->node, part->hosting->options.node) == 0;
    stage->first_layer = from->first_layer;
    stage->n_layers = from->n_layers;
    stage->device = mem_copy_text(from->device, strlen(from->device));
    /* The state compares nodes as text, caches as bytes: the two have to agree. */
    const uint8_t *own = part->hosting->node_id;
    if (!id_parse(from->node, stage->node_id, NODE_ID_BYTES) ||
        stage->here != (memcmp(stage->node_id, own, NODE_ID_BYTES) == 0)) {
        error_set(&part->problem, ERROR_INVALID, "stage %td: there cannot be a node '%.80s'",
                  stage - part->stages, from->node);
        part->state = PART_FAILED;
    }
    return stage->device;
}

struct part *part_new(struct hosting *hosting, const Cluster__Instance *instance,
                      const Cluster__Placement *placement, const Cluster__Model *model)
{
    struct part *part = placement->n_stages <= LIMIT_STAGES ? mem_new(sizeof *part) : NULL;
    if (!part)
        return NULL;
    part->hosting = hosting;
    part->work.data = part;
    part->epoch = placement->epoch;
    part->key = part_key(instance->id);
    part->options.n_slots = instance->demand->streams;
    part->options.context = instance->demand->context_tokens;
    part->pause_ms = HOSTING_PAUSE_MS;
    part->instance = mem_copy_text(instance->id, strlen(instance->id));
    part->model_record = part_copy_model(model);
    bool ok = part->instance && part->model_record;
    for (uint32_t i = 0; i < placement->n_stages && ok; i++)
        ok = fill_stage(part, &part->stages[part->n_stages++], placement->stages[i]);
    if (!ok) {
        part_free(part);
        return NULL;
    }
    part_caches_init(part);
    part->next = hosting->parts;
    hosting->parts = part;
    return part;
}

void part_free(struct part *part)
{
    for (uint32_t i = 0; i < part->n_stages; i++)
        mem_free(part->stages[i].device);
    part_caches_clear(part);
    message_free(part->model_record ? &part->model_record->base : NULL);
    mem_free(part->instance);
    mem_free(part);
}

bool part_is_far(const struct part *part)
{
    for (uint32_t i = 0; i < part->n_stages; i++) {
        if (!part->stages[i].here)
            return true;
    }
    return false;
}

bool part_drives(const struct part *part)
{
    return part->stages[0].here;
}

static void leave(struct part *part, const char *text)
{
    struct error why = {0};
    error_set(&why, ERROR_CANCELLED, "instance %s, epoch %llu: %s", part->instance,
              (unsigned long long)part->epoch, text);
    part_detach(part);
    cache_give_close(&part->give);
    if (part->driver)
        driver_lost(part->driver, &why); /* stages elsewhere are not waited for */
    part->state = PART_LEAVING;
    part->told = false;
    part->lost = part->owes_notice = false;
    hosting_tell(part->hosting);
}

void part_give_up(struct part *part, const struct error *why)
{
    part->code = why->code;
    part->problem = *why;
    leave(part, why->text);
}

void part_retire(struct part *part, uint64_t adopter)
{
    part->adopter = adopter;
    switch (part->state) {
    case PART_WAITING:
    case PART_FAILED:
        part->state = PART_GONE;
        break;
    case PART_LOADING:
        part->unwanted = true;
        atomic_store(&part->cancels, true);
        break;
    case PART_READY:
    case PART_HANDING:
        leave(part, "it is being unloaded");
        break;
    case PART_LEAVING:
    case PART_CLOSING:
    case PART_GONE:
        break;
    }
}

enum worker_stage_state part_worker_state(const struct part *part)
{
    if (part->adopter)
        return WORKER_READY;
    switch (part->state) {
    case PART_WAITING:
        return WORKER_LOADING;
    case PART_LOADING:
        return part->unwanted ? WORKER_UNLOADING : WORKER_LOADING;
    case PART_READY:
        return WORKER_READY;
    case PART_FAILED:
        return WORKER_FAILED;
    case PART_HANDING:
    case PART_LEAVING:
    case PART_CLOSING:
    case PART_GONE:
        break;
    }
    return WORKER_UNLOADING;
}
