/* What the driver's two halves share: driver.c, the doors with their lock, and step.c, which
 * decides.
 *
 * The driver's state belongs to whoever holds the baton (`active`): only one thread at a time runs
 * the step, but it need not always be the same one. A micro-batch that comes back while no other is
 * under way is handled by the device thread that finished it, so that a single stream costs no
 * wake-up of another thread at all; on a machine whose cores are all busy a wake-up can take
 * milliseconds. Otherwise, and for new and cancelled requests, the driver's own thread does it. */
#pragma once

#include "pipeline/driver.h"
#include "pipeline/pipeline.h"
#include "pipeline/schedule.h"
#include "pipeline/sequence.h"
#include "pipeline/slots.h"

#include <pthread.h>

struct driver {
    /* constant after open */
    struct driver_options options;
    uint32_t n_devices; /* different ones: as many micro-batches are under way */
    struct pipeline pipeline;
    struct microbatch *microbatches; /* n_devices of them */

    /* the baton holder's */
    struct slot_table slots;
    struct sequence *queue, **queue_end; /* without a slot */
    struct microbatch *unused;
    struct cache_operation *operations; /* for the next micro-batch */
    uint32_t n_operations;
    struct pick_setup *setups; /* the same */
    uint32_t n_setups;
    uint32_t n_in_flight;   /* read also under the lock while nobody is active */
    uint64_t n_sent;        /* micro-batches so far */
    uint64_t n_generated;   /* tokens so far */
    uint64_t prompt_row_ns; /* measured on the slowest stage; 0: not yet */
    uint32_t n_cached;      /* written before is_quiescent */
    struct cached_slot cached[LIMIT_SEQUENCES];

    /* under the lock */
    pthread_mutex_t lock;
    pthread_cond_t wake; /* the driver's own thread has something to do */
    pthread_t thread;
    bool active; /* somebody runs the step */
    bool closing, stopped;
    bool cancels; /* some live sequence has been cancelled */
    struct sequence *incoming, **incoming_end;
    struct microbatch *completed, **completed_end;
    struct sequence *live;
    uint64_t last_id;
    uint64_t last_number;        /* of the micro-batches that were sent elsewhere */
    struct error lost;           /* why nothing can be sent there any more */
    bool found;                  /* it can again, as soon as what is under way has ended */
    bool quiesces, is_quiescent; /* driver_quiesce() */
    void (*on_quiescent)(void *arg);
    void *quiescent_arg;
    struct driver_seeds *seeds; /* to be taken over */
    struct driver_stats stats;
};

struct driver_seeds {
    uint32_t n;
    struct cached_slot slots[LIMIT_SEQUENCES];
    int32_t tokens[]; /* theirs */
};

/* ---- step.c: by the baton holder, without the lock ---- */

/* Cancels what is to be cancelled, gives slots to those who wait, sends micro-batches. */
void step_advance(struct driver *driver);
/* Takes a micro-batch back: samples, calls the handlers. */
void step_complete(struct driver *driver, struct microbatch *microbatch);

/* ---- driver.c: for step.c ---- */

/* Appends new requests to the queue and returns one that was cancelled, NULL when there is none. */
struct sequence *driver_next_cancelled(struct driver *driver);
bool driver_is_found(struct driver *driver);
bool driver_quiesces(struct driver *driver); /* and is not quiescent yet */
void driver_become_quiescent(struct driver *driver);
struct driver_seeds *driver_take_seeds(struct driver *driver); /* NULL: there are none */
/* From now on it sends again; returns why it did not. Code 0: it was lost anew meanwhile. */
struct error driver_take_found(struct driver *driver);
/* Takes the sequence off the live list and into the statistics. */
void driver_retire(struct driver *driver, struct sequence *sequence);
