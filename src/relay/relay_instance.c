/* What is asked for: its requests are counted here. */
#include "base/mem.h"
#include "relay/relay_state.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static struct relay_instance *relay_instance_find(const struct relay_core *core, const char *id)
{
    struct relay_instance *instance = core->instances;
    while (instance && strcmp(instance->id, id) != 0)
        instance = instance->next;
    return instance;
}

struct relay_instance *relay_core_instance(struct relay_core *core, const char *id,
                                           struct error *err)
{
    struct relay_instance *instance = relay_instance_find(core, id);
    size_t size = strlen(id);
    if (instance)
        return instance;
    if (!size || size > LIMIT_CLUSTER_ID_BYTES) {
        error_set(err, ERROR_INVALID, "an instance's id of %zu bytes; the limit is %d", size,
                  LIMIT_CLUSTER_ID_BYTES);
        return NULL;
    }
    if (core->n_instances >= LIMIT_CLUSTER_INSTANCES) {
        error_set(err, ERROR_BUSY, "requests already go to %u instances, which is the limit",
                  core->n_instances);
        return NULL;
    }
    instance = mem_new(sizeof *instance);
    if (!instance) {
        error_set(err, ERROR_NO_MEMORY, "not enough memory for an instance");
        return NULL;
    }
    instance->core = core;
    memcpy(instance->id, id, size);
    instance->next = core->instances;
    core->instances = instance;
    core->n_instances++;
    return instance;
}

/* Tokens of before weigh e^(-age / RELAY_RECENT_S): half after 7 minutes. */
void relay_instance_count(struct relay_instance *instance, uint64_t n_tokens, uint64_t now_ns)
{
    const double age_s =
        now_ns > instance->recent_ns ? (double)(now_ns - instance->recent_ns) * 1e-9 : 0;
    instance->recent_tokens =
        instance->recent_tokens * exp(-age_s / (double)RELAY_RECENT_S) + (double)n_tokens;
    instance->recent_ns = now_ns;
    assert(instance->recent_tokens >= 0);
}

struct driver_stats relay_core_stats(const struct relay_core *core,
                                     const struct relay_instance *instance)
{
    struct driver_stats stats = instance->stats;
    for (const struct relay_ask *ask = core->asks; ask; ask = ask->next) {
        const bool waits = ask->state == ASK_WAITING;
        stats.queued += ask->instance == instance && waits;
        stats.slots_busy += ask->instance == instance && !waits;
    }
    return stats;
}

void relay_core_use(struct relay_core *core, uint64_t now_ns, struct relay_uses *out)
{
    assert(core->n_instances <= LIMIT_CLUSTER_INSTANCES);
    for (struct relay_instance *of = core->instances; of; of = of->next)
        of->n_asks = of->n_waiting = 0;
    for (const struct relay_ask *ask = core->asks; ask; ask = ask->next) {
        ask->instance->n_asks++;
        ask->instance->n_waiting += ask->state == ASK_WAITING;
    }
    out->n = 0;
    for (struct relay_instance *of = core->instances; of; of = of->next) {
        assert(of->n_waiting <= of->n_asks && of->n_asks <= of->n_live);
        relay_instance_count(of, 0, now_ns);
        out->list[out->n++] =
            (struct relay_use){.instance = of->id,
                               .used_ms = (of->n_live ? now_ns : of->used_ns) / 1000000,
                               .live = of->n_asks,
                               .waits = of->n_waiting > 0,
                               .tokens = of->recent_tokens};
    }
}

bool relay_core_pause(const struct relay_core *core, const char *instance, struct relay_pause *out)
{
    const struct relay_ask *first = NULL;
    for (const struct relay_ask *ask = core->asks; ask; ask = ask->next) {
        if (ask->state == ASK_WAITING && strcmp(ask->instance->id, instance) == 0 &&
            (!first || ask->waiting_ns < first->waiting_ns))
            first = ask;
    }
    if (!first)
        return false;
    const bool was_lost = first->n_parts && first->error.text[0];
    out->since_ns = first->waiting_ns;
    snprintf(out->why, sizeof out->why, "%s%s%s", was_lost ? first->error.text : "",
             was_lost && first->waits_for.text[0] ? "; " : "", first->waits_for.text);
    return true;
}

struct relay_use relay_use_of(const struct relay_uses *uses, const char *instance)
{
    for (uint32_t i = 0; i < uses->n; i++) {
        if (strcmp(uses->list[i].instance, instance) == 0)
            return uses->list[i];
    }
    return (struct relay_use){.instance = instance};
}
