/* Keeps a simulated device to its speed. Pure: it says how long to sleep and is told how long that
 * was.
 *
 * What is done faster than it should have been is owed and slept off; sleeps come out a little long
 * (the timer's slack, a busy machine), which is carried over to what comes next, so that the
 * average holds whatever a single sleep does. A computation that was itself too slow is never made
 * up for: a simulated device is slower than what computes it, not faster. A zeroed pace owes
 * nothing. */
#pragma once

struct pace {
    double debt_s; /* below 0: slept too long */
};

/* Something that should take `asked_s` has taken `took_s`. Returns the seconds to sleep now; 0
 * while it is less than a sleep is worth. */
double pace_owe(struct pace *pace, double asked_s, double took_s);
void pace_slept(struct pace *pace, double slept_s);
