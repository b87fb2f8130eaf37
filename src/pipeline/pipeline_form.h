/* The forms that the stages of a pipeline on devices of this process take when memory is short
 * (memory_ladder.h), and when it is there again: KV caches of smaller types, half of the weights
 * streamed, weights of a smaller type where the owner allows it, on the CPU. Weights of that type
 * also while a device is hot. And the one larger than as placed: all weights in memory, where
 * stages stream for want of it alone. A driver's (driver_form.h) and a runner's (runner.h).
 *
 * A change: the stages are closed and opened anew, with the weights that both forms use still on
 * their devices. Their caches are empty then. Where even that finds no memory the ladder goes on,
 * and at its end it is to be tried again.
 *
 * Changing is one thread's, which may wait for the devices'; nothing is under way meanwhile. */
#pragma once

#include "pipeline/memory_watch.h"
#include "pipeline/pipeline.h"

#include <stdatomic.h>

struct stage_pin;

struct pipeline_form {
    struct pipeline *pipeline;
    const struct model *model;
    const struct driver_options *options; /* whole; the owner's */
    struct memory_watch *watch;           /* the owner's */
    struct stage_plan *plan;              /* as it was placed */
    bool changes;                         /* it can, to some form */
    uint64_t *streamed_max;   /* of each stage: bytes of weights in memory, where it streams */
    enum memory_form form;    /* of the stages */
    bool is_grown;            /* nothing is streamed, though it was placed so */
    int precision;            /* of their weights */
    bool can_lower;           /* there is a smaller one that is allowed, and could be had */
    atomic_uint n_hot;        /* devices of theirs that ask for it */
    bool is_unloaded;         /* there are none: the last change failed */
    uint64_t tried_ns;        /* when that was */
    struct stage_plan *plans; /* scratch, as are the pins */
    struct stage_pin **pins;
};

/* Before the stages are loaded: what `form` points to and `changes` are set. ERROR_NO_MEMORY. */
enum error_code pipeline_form_init(struct pipeline_form *form, const struct stage_plan *stages,
                                   struct error *err);
void pipeline_form_opened(struct pipeline_form *form); /* and after */
void pipeline_form_deinit(struct pipeline_form *form); /* a zeroed one is fine */

/* A device gets hot, or no longer does (driver_ask_lower()). Any thread. */
void pipeline_form_ask_lower(struct pipeline_form *form, const struct device *device, bool lower);
/* Whether the stages have to change. Any thread that may not meet a change. */
bool pipeline_form_is_due(struct pipeline_form *form);
/* Where there are no stages: the last attempt was long enough ago, or another form is due. */
bool pipeline_form_may_try(const struct pipeline_form *form, uint64_t now_ns);
/* True: the stages are there, all slots empty. False: `*err`; it is to be tried again. */
bool pipeline_form_change(struct pipeline_form *form, struct error *err);
