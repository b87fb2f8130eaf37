/* A source behind a guard: nobody waits for a driver longer than he wants to.
 *
 * A source that may block has a thread of its own. guard_ask() wakes it to open the source, if it
 * is not, and to read everything once; guard_wait() waits for that until a moment. A thread that is
 * still in the driver is neither asked again nor waited for; what it read last stands until it is
 * stale. When the guard is closed meanwhile, the thread is left behind: it owns the guard with all
 * that the source uses, and frees it should the driver ever return. Other sources do the same work
 * inside guard_wait(), on the caller's thread.
 *
 * Threading: guard_source() from any thread, the rest from one. */
#pragma once

#include "sensors/sensor_impl.h"

struct guard;

/* The surroundings of all guards, shared: the last one that goes frees them. */
struct guard_shared;
struct guard_shared *guard_shared_new(const struct sensors_options *options,
                                      const struct device_info *devices,
                                      uint32_t n_devices); /* NULL: no memory */
void guard_shared_release(struct guard_shared *shared);

struct guard *guard_new(const struct sensor_impl *impl,
                        struct guard_shared *shared); /* NULL: no memory */
void guard_ask(struct guard *guard);
void guard_wait(struct guard *guard, uint64_t until_ns);
/* Adds to *sample what nobody has told before and is not stale at `now_ns`. */
void guard_merge(struct guard *guard, uint64_t now_ns, struct sensor_sample *sample);
void guard_source(struct guard *guard, struct sensor_source *out);

/* Asks the thread to end; then, for each guard, waits for that until a moment and lets go of it. */
void guard_close_begin(struct guard *guard);
void guard_close_end(struct guard *guard, uint64_t until_ns);
