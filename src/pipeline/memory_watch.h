/* The ladder (memory_ladder.h) over the real signs: the pressure that the kernel reports for this
 * process's control group or the machine, the free memory of the devices that compute here, and
 * batches that did not fit. What changes is a line in the log.
 *
 * Any thread; it looks at most four times a second, which takes some 0.1 ms. */
#pragma once

#include "base/error.h"
#include "pipeline/memory_ladder.h"
#include "sensors/sysfs.h"

#include <pthread.h>
#include <stdatomic.h>

struct device;

enum { MEMORY_WATCH_DEVICES = 16 };

struct memory_watch {
    struct sysfs machine; /* zeroed: this one */
    pthread_mutex_t lock;
    struct memory_ladder ladder;
    uint64_t looked_ns;
    uint32_t n_devices;
    const struct device *devices[MEMORY_WATCH_DEVICES];
    uint64_t low_bytes[MEMORY_WATCH_DEVICES];
    atomic_bool failed, in_parts;
    enum memory_form form;                     /* that the stages have */
    bool is_grown;                             /* all weights are in memory */
    uint64_t grow_bytes[MEMORY_WATCH_DEVICES]; /* of each device, that this takes more */
    uint64_t form_bytes[MEMORY_FORMS];         /* that they take in each; 0: not known */
};

/* When the stages are loaded: what is free now is what there should be. */
void memory_watch_init(struct memory_watch *watch);
void memory_watch_add(struct memory_watch *watch, const struct device *device);
void memory_watch_deinit(struct memory_watch *watch);

/* The stages have this form now, which takes so many bytes (0: not known, or there was no memory
 * for it). `lacks`: they cannot have it. Before the first batch: those that they will never have.
 */
void memory_watch_formed(struct memory_watch *watch, enum memory_form form, uint64_t bytes);
void memory_watch_lacks(struct memory_watch *watch, enum memory_form form);
/* As placed they stream for want of memory; with so much more of this device they need not. Before
 * the first batch. And: now they do not, or do again. */
void memory_watch_can_grow(struct memory_watch *watch, const struct device *device, uint64_t bytes);
void memory_watch_grown(struct memory_watch *watch, bool is_grown);
void memory_watch_cannot_grow(struct memory_watch *watch); /* not now: there was no memory for it */
void memory_watch_lacks_caches(struct memory_watch *watch); /* none can be given back */

void memory_watch_failed(struct memory_watch *watch);   /* a batch, for want of memory */
void memory_watch_in_parts(struct memory_watch *watch); /* it was computed, but not in one */
struct memory_terms memory_watch_terms(struct memory_watch *watch);
/* Whether what does not fit the stages now may fit another form, or the one that they change to. */
bool memory_watch_can_shrink(struct memory_watch *watch);
void memory_watch_step(struct memory_watch *watch, struct memory_step *out); /* without a look */
/* ERROR_BUSY: what is short, and what would help. */
enum error_code memory_watch_refusal(struct error *err);
