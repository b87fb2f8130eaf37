/* How many threads a CPU device computes the next batch with: one for each core, and of a few rows
 * fewer while others want its processors; or all that its cores have.
 *
 * Threads meet after each operation. Who shares his processor with a busy stranger comes late, and
 * all wait for him: beside one busy process two threads decode 26 tokens a second, one alone 40
 * (docs/performance.md, "Between products"). What is best is measured: when the system took
 * processors away from threads, in batch after batch and for as long as one thread less may pay,
 * some batches are computed with one less, and while there are fewer, with one more from time to
 * time. The better number is kept; after a trial in vain, which ends as soon as it cannot win, the
 * next waits twice as long. Who only takes a processor to read the tokens of eight streams, or for
 * one batch, is no reason for a trial, which may take twice as long. A batch of many rows waits for
 * little beside its work: it never takes fewer than there are cores.
 *
 * The second threads of cores share their units. Whether they help is not known, but measured as
 * well: they are tried soon, kept where that is faster, and looked at again from time to time.
 *
 * Pure, of one stage, on its device's thread. Zeroed: there is nothing to choose. The number of
 * threads is no part of the arithmetic, so bits stay. */
#pragma once

#include <stdint.h>

enum {
    THREAD_FEW_ROWS = 16, /* of a batch whose threads are chosen */
    THREAD_WINDOW = 4,    /* batches of as many rows that are timed together; of many rows: 1 */
    THREAD_PAUSE_MIN = 8, /* windows until the next trial */
    THREAD_PAUSE_MAX = 128,
    THREAD_LOST = 4, /* one processor was lost for a fourth of a batch: it was disturbed */
    THREAD_CALM = 4, /* one batch in so many may be calm, and a trial may pay */
};

struct thread_trials {
    uint32_t windows; /* since the last one */
    uint32_t pause;   /* windows until the next */
};

struct thread_choice {
    uint32_t least, cores, most; /* threads; least <= cores <= most */
    uint32_t window;             /* batches that are timed together */
    uint32_t kept;               /* what is best so far */
    uint32_t tried;              /* 0: no trial is under way */
    uint32_t n_rows;             /* of the window's batches: */
    uint32_t n_batches;
    uint32_t n_disturbed;
    uint64_t sum_ns;
    uint64_t kept_ns;             /* of the last window with `kept` */
    struct thread_trials strays;  /* up to `cores` threads, while strangers want processors */
    struct thread_trials seconds; /* of `most` threads, or back to `cores` */
};

void thread_choice_init(struct thread_choice *choice, uint32_t least, uint32_t cores, uint32_t most,
                        uint32_t window);

/* 0: one for each core. */
uint32_t thread_choice_next(const struct thread_choice *choice);

struct thread_took {    /* by a batch */
    uint64_t ns;        /* in all */
    uint64_t preempted; /* so often the system gave a thread's processor to somebody else */
    uint64_t lost_ns;   /* processor time that all threads together did not have of theirs */
};
void thread_choice_took(struct thread_choice *choice, uint32_t n_rows,
                        const struct thread_took *took);
