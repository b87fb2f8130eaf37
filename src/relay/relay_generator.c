/* Instances, and the doors of their generators. */
#include "base/clock.h"
#include "base/mem.h"
#include "relay/relay_state.h"

#include <math.h>
#include <string.h>

/* ---- instances ------------------------------------------------------------------------------ */

static const struct generator_impl generator_impl;

static struct instance *find_instance(struct relay *relay, const char *id)
{
    struct instance *instance = relay->instances; /* only the loop adds to it */
    while (instance && strcmp(instance->id, id) != 0)
        instance = instance->next;
    return instance;
}

struct instance *relay_instance(struct relay *relay, const char *id, struct error *err)
{
    struct instance *instance = find_instance(relay, id);
    size_t size = strlen(id);
    if (instance)
        return instance;
    if (!size || size > LIMIT_CLUSTER_ID_BYTES) {
        error_set(err, ERROR_INVALID, "an instance's id of %zu bytes; the limit is %d", size,
                  LIMIT_CLUSTER_ID_BYTES);
        return NULL;
    }
    if (relay->n_instances >= LIMIT_CLUSTER_INSTANCES) {
        error_set(err, ERROR_BUSY, "requests go to %u instances already, which is the limit",
                  relay->n_instances);
        return NULL;
    }
    instance = mem_new(sizeof *instance);
    if (!instance) {
        error_set(err, ERROR_NO_MEMORY, "no memory for an instance");
        return NULL;
    }
    instance->generator.impl = &generator_impl;
    instance->relay = relay;
    memcpy(instance->id, id, size);
    instance->next = relay->instances;
    relay->instances = instance;
    relay->n_instances++;
    return instance;
}

enum error_code relay_generator(struct relay *relay, const char *id, uint32_t context,
                                struct generator **out, struct error *err)
{
    struct error why = {0};
    if (!context || context > LIMIT_CONTEXT)
        return error_set(err, ERROR_INVALID, "a context of %u tokens; the limit is %d", context,
                         LIMIT_CONTEXT);
    struct instance *instance = relay_instance(relay, id, &why);
    if (!instance)
        return error_set(err, why.code, "%s", why.text);
    atomic_store(&instance->context, context);
    *out = &instance->generator;
    return ERROR_NONE;
}

uint64_t relay_used_ms(struct relay *relay, const char *id)
{
    struct instance *instance = find_instance(relay, id);
    if (!instance)
        return 0;
    pthread_mutex_lock(&relay->lock);
    uint64_t used_ns = instance->n_live ? clock_now_ns() : instance->used_ns;
    pthread_mutex_unlock(&relay->lock);
    return used_ns / 1000000;
}

uint32_t relay_live(struct relay *relay, const char *id)
{
    uint32_t n = 0;
    pthread_mutex_lock(&relay->lock);
    for (struct ask *ask = relay->asks; ask; ask = ask->next)
        n += strcmp(ask->instance->id, id) == 0;
    pthread_mutex_unlock(&relay->lock);
    return n;
}

void instance_count_locked(struct instance *instance, uint64_t n_tokens, uint64_t now_ns)
{
    const double age_s =
        now_ns > instance->recent_ns ? (double)(now_ns - instance->recent_ns) * 1e-9 : 0;
    instance->recent_tokens =
        instance->recent_tokens * exp(-age_s / (double)RELAY_RECENT_S) + (double)n_tokens;
    instance->recent_ns = now_ns;
}

double relay_recent_tokens(struct relay *relay, const char *id)
{
    struct instance *instance = find_instance(relay, id);
    if (!instance)
        return 0;
    pthread_mutex_lock(&relay->lock);
    instance_count_locked(instance, 0, clock_now_ns());
    const double tokens = instance->recent_tokens;
    pthread_mutex_unlock(&relay->lock);
    return tokens;
}

bool relay_waits(struct relay *relay, const char *id)
{
    bool waits = false;
    pthread_mutex_lock(&relay->lock);
    for (struct ask *ask = relay->asks; ask && !waits; ask = ask->next)
        waits = ask->state == ASK_WAITING && strcmp(ask->instance->id, id) == 0;
    pthread_mutex_unlock(&relay->lock);
    return waits;
}

/* ---- the generator: any thread --------------------------------------------------------------- */

static struct instance *instance_of(const struct generator *generator)
{
    return (struct instance *)generator;
}

static void add_locked(struct relay *relay, struct ask *ask)
{
    ask->id = ++relay->last_id;
    ask->previous = relay->last_ask;
    if (ask->previous)
        ask->previous->next = ask;
    else
        relay->asks = ask;
    relay->last_ask = ask;
    relay->n_asks++;
    ask->instance->n_live++;
    ask->instance->stats.requests_total++;
}

static enum error_code submit_ask(struct instance *instance, const struct request *request,
                                  uint32_t context, bool is_guest, uint64_t *id, struct error *err)
{
    struct relay *relay = instance->relay;
    struct ask *ask = NULL;
    enum error_code code = ask_new(instance, request, context, &ask, err);
    if (code)
        return code;
    ask->is_guest = is_guest;
    pthread_mutex_lock(&relay->lock);
    if (relay->closing)
        code = ERROR_CANCELLED;
    else if (relay->n_asks >= LIMIT_RELAY_REQUESTS)
        code = ERROR_BUSY;
    else
        add_locked(relay, ask);
    if (!code && id)
        *id = ask->id; /* under the lock: it may be over, and freed, right after */
    if (!code)
        relay_look_locked(relay);
    pthread_mutex_unlock(&relay->lock);
    if (!code)
        return ERROR_NONE;
    ask_free(ask);
    if (code == ERROR_CANCELLED)
        return error_set(err, code, "the node is shutting down");
    return error_set(err, code, "%d requests are waiting already, which is the limit",
                     LIMIT_RELAY_REQUESTS);
}

static enum error_code submit(struct generator *generator, const struct request *request,
                              uint64_t *id, struct error *err)
{
    struct instance *instance = instance_of(generator);
    const uint32_t context =
        atomic_load(&instance->context); /* once: it changes when the instance is placed anew */
    return submit_ask(instance, request, context, false, id, err);
}

/* Its own node has bounded it by the context; here nobody may have asked for the instance yet. */
enum error_code relay_submit_guest(struct instance *instance, const struct request *request,
                                   uint64_t *id, struct error *err)
{
    const uint64_t wanted = (uint64_t)request->n_prompt + request->n_predict;
    const uint32_t context = wanted < LIMIT_CONTEXT ? (uint32_t)wanted : LIMIT_CONTEXT;
    return submit_ask(instance, request, context, true, id, err);
}

void relay_cancel_locked(struct relay *relay, uint64_t id)
{
    struct ask *ask = relay->asks;
    while (ask && ask->id != id)
        ask = ask->next;
    if (ask && !ask->cancelled) {
        ask->cancelled = true;
        relay_look_locked(relay);
    }
}

static void cancel(struct generator *generator, uint64_t id)
{
    struct relay *relay = instance_of(generator)->relay;
    pthread_mutex_lock(&relay->lock);
    relay_cancel_locked(relay, id);
    pthread_mutex_unlock(&relay->lock);
}

static uint32_t context(const struct generator *generator)
{
    return atomic_load(&instance_of(generator)->context);
}

static struct driver_stats stats(const struct generator *generator)
{
    struct instance *instance = instance_of(generator);
    struct relay *relay = instance->relay;
    pthread_mutex_lock(&relay->lock);
    struct driver_stats stats = instance->stats;
    for (struct ask *ask = relay->asks; ask; ask = ask->next) {
        bool waits = ask->state == ASK_WAITING;
        stats.queued += ask->instance == instance && waits;
        stats.slots_busy += ask->instance == instance && !waits;
    }
    pthread_mutex_unlock(&relay->lock);
    return stats;
}

static const struct generator_impl generator_impl = {submit, cancel, context, stats};
