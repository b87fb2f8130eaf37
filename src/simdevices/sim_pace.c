#include "simdevices/sim_pace.h"

#include <math.h>

/* A sleep has about 60 us of overhead; what is shorter is saved up. */
static const double shortest_s = 100e-6;

/* A process that was stopped for an hour does not hurry for an hour. */
static const double credit_max_s = 1;

double pace_owe(struct pace *pace, double asked_s, double took_s)
{
    double more_s = asked_s - took_s;
    if (more_s >= 0)
        pace->debt_s += more_s;
    else if (pace->debt_s > 0)
        pace->debt_s = fmax(pace->debt_s + more_s, 0);
    return pace->debt_s >= shortest_s ? pace->debt_s : 0;
}

void pace_slept(struct pace *pace, double slept_s)
{
    pace->debt_s = fmax(pace->debt_s - slept_s, -credit_max_s);
}
