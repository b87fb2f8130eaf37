/* The relay in a node: its core behind a lock, on a libuv loop, with mesh and drivers. relay.c: the
 * loop's step, the mesh's events and the drivers'; relay_generator.c: the doors for those who ask.
 */
#pragma once

#include "relay/relay.h"
#include "relay/relay_core.h"

#include <pthread.h>
#include <stdatomic.h>

struct relay_door {             /* of an instance */
    struct generator generator; /* first */
    struct relay *relay;
    struct relay_instance *instance;
    struct relay_door *next;
    atomic_uint context;
};

struct relay_parcel { /* a run of messages on its way out */
    struct link_send send;
    struct relay_parcel *next;
    struct relay *relay;
    struct buffer run;
};

struct relay {
    uv_async_t wake; /* first: the handle is the relay */
    uv_timer_t timer;
    struct relay_options options;
    struct relay_door *doors; /* the loop's */
    struct relay_parcel *spare;
    uint32_t n_spare, n_parcels; /* n_parcels: all that there are */
    bool carries;                /* relay_carry() runs: what it calls may come back here */
    bool closing;
    bool handles_closing; /* nothing runs any more */
    uint32_t n_handles;   /* not closed yet */
    void (*closed)(void *arg);
    void *closed_arg;

    pthread_mutex_t lock; /* of the core */
    struct relay_core *core;
};

void relay_enter(struct relay *relay);
void relay_leave(struct relay *relay); /* wakes the loop where the core has something to do */
