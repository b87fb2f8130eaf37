#include "gpu/thread_choice.h"

#include <stdbool.h>

void thread_choice_init(struct thread_choice *choice, uint32_t most)
{
    *choice = (struct thread_choice){.most = most, .kept = most, .pause = THREAD_PAUSE_MIN};
}

uint32_t thread_choice_next(const struct thread_choice *choice, uint32_t n_rows)
{
    if (n_rows > THREAD_FEW_ROWS)
        return choice->most;
    return choice->tried ? choice->tried : choice->kept;
}

static void window_begin(struct thread_choice *choice, uint32_t n_rows)
{
    choice->n_rows = n_rows;
    choice->n_batches = 0;
    choice->sum_ns = choice->preempted = 0;
}

/* One less is tried as soon as others take processors away; one more, since nothing tells when they
 * have gone, after a pause. */
static void trial_begin(struct thread_choice *choice)
{
    const bool is_disturbed = choice->preempted >= THREAD_WINDOW;
    const bool is_first = choice->pause == THREAD_PAUSE_MIN && choice->kept == choice->most;
    if (!is_first && choice->windows < choice->pause)
        return;
    if (choice->kept > 1 && is_disturbed)
        choice->tried = choice->kept - 1;
    else if (choice->kept < choice->most)
        choice->tried = choice->kept + 1;
}

/* Fewer must be clearly better, for they leave processors to others; more at all. */
static void trial_end(struct thread_choice *choice)
{
    const bool is_fewer = choice->tried < choice->kept;
    const uint64_t percent = is_fewer ? 90 : 97;
    if (choice->sum_ns * 100 < choice->kept_ns * percent) {
        choice->kept = choice->tried;
        choice->kept_ns = choice->sum_ns;
        choice->pause = THREAD_PAUSE_MIN;
    } else if (choice->pause < THREAD_PAUSE_MAX) {
        choice->pause *= 2;
    }
    choice->tried = 0;
    choice->windows = 0;
}

void thread_choice_took(struct thread_choice *choice, uint32_t n_rows, uint64_t ns,
                        uint64_t preempted)
{
    if (choice->most < 2 || n_rows > THREAD_FEW_ROWS)
        return;
    if (n_rows != choice->n_rows) { /* nothing to compare with */
        choice->tried = 0;
        window_begin(choice, n_rows);
    }
    choice->sum_ns += ns;
    choice->preempted += preempted;
    if (++choice->n_batches < THREAD_WINDOW)
        return;
    choice->windows++;
    if (choice->tried) {
        trial_end(choice);
    } else {
        choice->kept_ns = choice->sum_ns;
        trial_begin(choice);
    }
    window_begin(choice, n_rows);
}
