/* What gives way when memory is short, and in which order. Pure: signs in, terms out.
 *
 * Others take memory while a model runs: a game starts on the card, a build on the host. Each step
 * of the ladder gives up a little more, in the order of what it costs the users:
 *
 *     step  micro-batches            the stages                        new requests
 *     0     as long as configured    as placed                         yes
 *     1     half                     as placed                         yes
 *     2     an eighth                as placed                         yes
 *     3     a 32nd                   as placed                         yes
 *     4     a 32nd                   caches that nobody uses go, of     yes
 *                                    a device with memory of its own
 *                                    to the host's while that has some
 *     5     a 32nd                   KV caches as q8_0                 yes
 *     6     a 32nd                   KV caches as q4_0                 yes
 *     7     a 32nd                   and half of the weights streamed  yes
 *     8     a 32nd                   and weights of a smaller type     yes
 *     9     a 32nd                   on the CPU, weights as placed     yes
 *     10    a 32nd                   as in the last step               no
 *
 * Steps whose form of the stages a driver lacks are passed over, and the fourth where caches are
 * not shared: only then memory of theirs can go.
 *
 * Down: at once after a batch that failed or went in parts, else one step in half a second, while
 * tasks wait for memory or less of it is free than the low mark. Without batches that failed
 * nothing beyond step 4 is taken: a slow reply is better than one that is computed again, or none.
 * While stages change their form, nothing goes further down. Up: one step every two seconds, once
 * it has been calm for five, and to a larger form only where what it takes more is free beside the
 * mark; so after 23 s of calm all is as it was. Between short and calm is a band in which nothing
 * changes. Who was not looked at for 30 s and finds it calm begins at the top.
 *
 * Stages that were placed with streamed weights for want of memory alone (`can_grow`) take all of
 * them into memory at the top, once it has been calm for five seconds and there is room; and give
 * them up before any form below, or after the last step of pressure. The next time is 20 s later at
 * the earliest. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { MEMORY_STEPS = 11, MEMORY_STEPS_OF_PRESSURE = 5 };

enum memory_form { /* of a driver's stages */
                   MEMORY_AS_PLACED,
                   MEMORY_SMALL_CACHES,   /* q8_0 */
                   MEMORY_SMALLER_CACHES, /* q4_0 */
                   MEMORY_STREAMED,
                   MEMORY_LOWER, /* and nothing streamed: where its owner allows it */
                   MEMORY_ON_CPU,
                   MEMORY_FORMS
};

struct memory_sign {
    uint64_t now_ns;
    bool failed;   /* a batch, for want of memory, since the last sign */
    bool in_parts; /* one was computed in parts, or waited */
    bool has_stall;
    double stall;        /* part of the time that some task waited for memory: 0 … 1 */
    uint64_t free_bytes; /* with low_bytes of 0: not known */
    uint64_t low_bytes;  /* less is short; twice as much is calm */
    bool is_changing;    /* the stages do not have the form of the last step yet */
    uint64_t more_bytes; /* that a larger form takes beyond this one; 0: not known */
    bool host_is_short;  /* whatever of the devices is */
    bool can_hold;       /* each device has room for all weights, beside its mark */
};

struct memory_ladder { /* zeroed: at the top */
    uint32_t step;
    uint64_t changed_ns, calm_ns, looked_ns; /* 0: never, not calm, never */
    bool can_grow, is_grown;                 /* see above */
    uint64_t shrunk_ns;                      /* when it was grown last; 0: never */
    bool lacks[MEMORY_FORMS];                /* forms that the stages cannot take */
    bool lacks_caches;                       /* that nobody uses: none can be given back */
    bool host_is_short;                      /* in the last sign */
};

struct memory_terms {
    uint32_t divisor; /* of the rows of a micro-batch */
    enum memory_form form;
    bool refuses;
    bool gives_back;   /* caches that no request uses: to host memory, where they are not yet; */
    bool drops;        /* and host memory is short, too: they are computed again */
    const char *words; /* for the log: what is given up */
    uint32_t step;
    bool is_grown; /* as placed, but that all weights are in memory */
};

struct memory_step { /* what is told of a ladder to who does not climb it */
    uint32_t step;
    enum memory_form form; /* of the stages, which change to it while … */
    bool is_changing;      /* … this is set */
};

/* True: the step has changed. */
bool memory_ladder_look(struct memory_ladder *ladder, const struct memory_sign *sign);
struct memory_terms memory_ladder_terms(const struct memory_ladder *ladder);
/* Whether there is a smaller form than the present step's: what does not fit may fit into that. */
bool memory_ladder_can_shrink(const struct memory_ladder *ladder);
/* What a step gives up, for people; of one that there is not, "". */
const char *memory_step_words(uint32_t step);
