#include "gpu/thread_choice.h"

#include <stdbool.h>

void thread_choice_init(struct thread_choice *choice, uint32_t least, uint32_t cores, uint32_t most,
                        uint32_t window)
{
    *choice = (struct thread_choice){.least = least,
                                     .cores = cores,
                                     .most = most,
                                     .window = window,
                                     .kept = cores,
                                     .strays.pause = THREAD_PAUSE_MIN,
                                     .seconds = {THREAD_PAUSE_MIN, THREAD_PAUSE_MIN}};
}

uint32_t thread_choice_next(const struct thread_choice *choice)
{
    return choice->tried ? choice->tried : choice->kept;
}

static void window_begin(struct thread_choice *choice, uint32_t n_rows)
{
    choice->n_rows = n_rows;
    choice->n_batches = choice->n_disturbed = 0;
    choice->sum_ns = 0;
}

static bool trials_are_due(const struct thread_trials *trials)
{
    return trials->windows >= trials->pause;
}

/* One less is tried as soon as others take processors away; one more, since nothing tells when they
 * have gone, after a pause. Second threads are tried while nobody disturbs. */
static void trial_begin(struct thread_choice *choice)
{
    const bool is_disturbed = choice->n_disturbed >= choice->window - choice->window / THREAD_CALM;
    const bool is_first = choice->strays.pause == THREAD_PAUSE_MIN && choice->kept == choice->cores;
    if (choice->kept > choice->cores) {
        if (trials_are_due(&choice->seconds))
            choice->tried = choice->cores;
    } else if (choice->kept > choice->least && is_disturbed) {
        if (is_first || trials_are_due(&choice->strays))
            choice->tried = choice->kept - 1;
    } else if (choice->kept < choice->cores) {
        if (trials_are_due(&choice->strays))
            choice->tried = choice->kept + 1;
    } else if (choice->cores < choice->most && trials_are_due(&choice->seconds)) {
        choice->tried = choice->most;
    }
}

/* How much of the time before a trial may take to be kept. Fewer than the cores must be clearly
 * better; second threads, too, for others can use them. */
static uint64_t trial_percent(const struct thread_choice *choice)
{
    if (choice->kept > choice->cores)
        return 103;
    return choice->tried < choice->kept ? 90 : 97;
}

static bool trial_is_better(const struct thread_choice *choice)
{
    return choice->sum_ns * 100 < choice->kept_ns * trial_percent(choice);
}

static void trial_end(struct thread_choice *choice)
{
    struct thread_trials *trials = choice->tried > choice->cores || choice->kept > choice->cores
                                       ? &choice->seconds
                                       : &choice->strays;
    if (trial_is_better(choice)) {
        choice->kept = choice->tried;
        choice->kept_ns = choice->sum_ns;
        trials->pause = THREAD_PAUSE_MIN;
    } else if (trials->pause < THREAD_PAUSE_MAX) {
        trials->pause *= 2;
    }
    choice->tried = 0;
    trials->windows = 0;
}

void thread_choice_took(struct thread_choice *choice, uint32_t n_rows,
                        const struct thread_took *took)
{
    if (choice->most < 2)
        return;
    if (n_rows != choice->n_rows) { /* nothing to compare with */
        choice->tried = 0;
        window_begin(choice, n_rows);
    }
    choice->sum_ns += took->ns;
    choice->n_disturbed += took->preempted && took->lost_ns >= took->ns / THREAD_LOST;
    if (++choice->n_batches < choice->window && (!choice->tried || trial_is_better(choice)))
        return;
    choice->strays.windows++;
    choice->seconds.windows++;
    if (choice->tried) {
        trial_end(choice);
    } else {
        choice->kept_ns = choice->sum_ns;
        trial_begin(choice);
    }
    window_begin(choice, n_rows);
}
