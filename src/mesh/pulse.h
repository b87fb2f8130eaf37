/* Is a peer gone that is asked something again and again? A failure detector over the times between
 * its answers.
 *
 * Suspicion is accrued (Hayashibara, Defago, Yared, Katayama: The phi accrual failure detector,
 * SRDS 2004): with the answers' gaps of late taken as normally distributed,
 *
 *     phi(t) = -log10 P(a gap is longer than t)
 *
 * A lost packet makes a gap that no normal distribution knows: the transport sends it again after
 * its timeout, and all that comes after it waits. So a peer is suspected only when
 *
 *     phi(t) > PULSE_PHI   and   t > PULSE_FLOOR_MS   and   t > PULSE_MARGIN x the longest gap of
 *                          late
 *
 * The longest gap of late is that of one loss wherever there are losses, and the margin that of two
 * in a row (the second timeout is twice the first). On a LAN the floor decides: with an answer
 * every 200 ms a peer is suspected 0.6 to 0.8 s after it went. Whoever looks says so every time:
 * time in which it did not look, because its machine was busy or asleep, is nobody's silence.
 *
 * Pure; times are nanoseconds of one clock that does not go back. tests/unit/test_pulse.c measures
 * how long it takes and how often it is wrong. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum {
    PULSE_WINDOW = 512,   /* gaps; 100 s of answers every 200 ms */
    PULSE_FLOOR_MS = 700, /* never sooner */
    PULSE_GAP_MAX_MS =
        1200,            /* a longer gap counts as this: one interruption does not make it blind */
    PULSE_LATE_MS = 250, /* between two looks; what is beyond is not counted as silence */
    PULSE_LEAST = 8,     /* gaps, before it suspects anybody */
};
#define PULSE_PHI 8.0
#define PULSE_MARGIN 2.5
#define PULSE_SPREAD_MS 10.0 /* the least standard deviation */

struct pulse { /* zeroed: has heard nothing yet */
    uint64_t beat_ns;
    uint64_t looked_ns, awake_ns; /* awake_ns: silence before does not count */
    uint32_t n, at;
    float gaps_ms[PULSE_WINDOW];
};

void pulse_beat(struct pulse *pulse, uint64_t now_ns); /* an answer came */
double pulse_phi(const struct pulse *pulse, double silent_ms);
/* heard_ns: when anything at all was heard last. */
bool pulse_suspects(struct pulse *pulse, uint64_t heard_ns, uint64_t now_ns);
