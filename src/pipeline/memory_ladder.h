/* What gives way when memory is short, and in which order. Pure: signs in, terms out.
 *
 * Others take memory while a model runs: a game starts on the card, a build on the host. Each step
 * of the ladder gives up a little more, in the order of what it costs the users:
 *
 *     step  micro-batches            new requests
 *     0     as long as configured    yes
 *     1     half                     yes
 *     2     an eighth                yes
 *     3     a 32nd                   yes
 *     4     a 32nd                   no
 *
 * Down: at once after an allocation that failed, else one step in half a second, while tasks wait
 * for memory or less of it is free than the low mark. Without failures the last step is never
 * taken: a slow reply is better than none. Up: one step every two seconds, once it has been calm
 * for five; so after 11 s of calm all is as it was. Between short and calm is a band in which
 * nothing changes. Who was not looked at for 30 s and finds it calm begins at the top. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { MEMORY_STEPS = 5 };

struct memory_sign {
    uint64_t now_ns;
    bool failed; /* an allocation, since the last sign */
    bool has_stall;
    double stall;        /* part of the time that some task waited for memory: 0 … 1 */
    uint64_t free_bytes; /* with low_bytes of 0: not known */
    uint64_t low_bytes;  /* less is short; twice as much is calm */
};

struct memory_ladder { /* zeroed: at the top */
    uint32_t step;
    uint64_t changed_ns, calm_ns, looked_ns; /* 0: never, not calm, never */
};

struct memory_terms {
    uint32_t divisor; /* of the rows of a micro-batch */
    bool refuses;
    const char *words; /* for the log: what is given up */
};

/* True: the step has changed. */
bool memory_ladder_look(struct memory_ladder *ladder, const struct memory_sign *sign);
struct memory_terms memory_ladder_terms(const struct memory_ladder *ladder);
