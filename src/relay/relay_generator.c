/* The doors of the relay's generators. */
#include "base/clock.h"
#include "base/mem.h"
#include "relay/relay_shell.h"

#include <assert.h>

static const struct generator_impl generator_impl;

static struct relay_door *relay_door_of(const struct generator *generator)
{
    assert(generator->impl == &generator_impl);
    return (struct relay_door *)generator;
}

static enum error_code relay_door_submit(struct generator *generator, const struct request *request,
                                         uint64_t *id, struct error *err)
{
    struct relay_door *door = relay_door_of(generator);
    struct relay *relay = door->relay;
    const uint32_t context =
        atomic_load(&door->context); /* once: it changes when the instance is placed anew */
    struct relay_ask *ask = NULL;
    enum error_code code =
        relay_ask_new(door->instance, request, context, clock_now_ns(), &ask, err);
    if (code)
        return code;
    relay_enter(relay); /* *id is set before it can be over, and freed */
    code = relay_core_submit(relay->core, ask, id, err);
    relay_leave(relay);
    if (code)
        relay_ask_free(ask);
    return code;
}

static void relay_door_cancel(struct generator *generator, uint64_t id)
{
    struct relay *relay = relay_door_of(generator)->relay;
    relay_enter(relay);
    relay_core_cancel(relay->core, id);
    relay_leave(relay);
}

static uint32_t relay_door_context(const struct generator *generator)
{
    return atomic_load(&relay_door_of(generator)->context);
}

static struct driver_stats relay_door_stats(const struct generator *generator)
{
    const struct relay_door *door = relay_door_of(generator);
    relay_enter(door->relay);
    const struct driver_stats stats = relay_core_stats(door->relay->core, door->instance);
    relay_leave(door->relay);
    return stats;
}

static const struct generator_impl generator_impl = {relay_door_submit, relay_door_cancel,
                                                     relay_door_context, relay_door_stats};

static struct relay_door *relay_door_new(struct relay *relay, struct relay_instance *instance)
{
    struct relay_door *door = mem_new(sizeof *door);
    if (!door)
        return NULL;
    door->generator.impl = &generator_impl;
    door->relay = relay;
    door->instance = instance;
    door->next = relay->doors;
    relay->doors = door;
    return door;
}

enum error_code relay_generator(struct relay *relay, const char *id, uint32_t context,
                                struct generator **out, struct error *err)
{
    struct error why = {0};
    if (!context || context > LIMIT_CONTEXT)
        return error_set(err, ERROR_INVALID, "a context of %u tokens; the limit is %d", context,
                         LIMIT_CONTEXT);
    relay_enter(relay);
    struct relay_instance *instance = relay_core_instance(relay->core, id, &why);
    relay_leave(relay);
    if (!instance)
        return error_set(err, why.code, "%s", why.text);
    struct relay_door *door = relay->doors;
    while (door && door->instance != instance)
        door = door->next;
    if (!door && !(door = relay_door_new(relay, instance)))
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for an instance");
    atomic_store(&door->context, context);
    *out = &door->generator;
    return ERROR_NONE;
}

void relay_use_report(struct relay *relay, struct relay_uses *out)
{
    relay_enter(relay);
    relay_core_use(relay->core, clock_now_ns(), out);
    relay_leave(relay);
}

bool relay_pause_report(struct relay *relay, const char *instance, struct relay_pause *out)
{
    relay_enter(relay);
    const bool waits = relay_core_pause(relay->core, instance, out);
    relay_leave(relay);
    return waits;
}
