#include "mesh/pulse.h"

#include <math.h>

#define MS_NS 1e6

void pulse_beat(struct pulse *pulse, uint64_t now_ns)
{
    if (pulse->beat_ns && now_ns >= pulse->beat_ns) {
        const double gap_ms = (double)(now_ns - pulse->beat_ns) / MS_NS;
        pulse->gaps_ms[pulse->at] = (float)fmin(gap_ms, PULSE_GAP_MAX_MS);
        pulse->at = (pulse->at + 1) % PULSE_WINDOW;
        pulse->n += pulse->n < PULSE_WINDOW;
    }
    pulse->beat_ns = now_ns;
}

struct gaps {
    double mean_ms, spread_ms, longest_ms;
};

static struct gaps look_at_gaps(const struct pulse *pulse)
{
    struct gaps gaps = {0};
    double squares = 0;
    for (uint32_t i = 0; i < pulse->n; i++) {
        const double gap = (double)pulse->gaps_ms[i];
        gaps.mean_ms += gap / pulse->n;
        gaps.longest_ms = fmax(gaps.longest_ms, gap);
    }
    for (uint32_t i = 0; i < pulse->n; i++) {
        const double off = (double)pulse->gaps_ms[i] - gaps.mean_ms;
        squares += off * off / pulse->n;
    }
    gaps.spread_ms = fmax(sqrt(squares), PULSE_SPREAD_MS);
    return gaps;
}

static double phi_of(const struct gaps *gaps, double silent_ms)
{
    const double longer = 0.5 * erfc((silent_ms - gaps->mean_ms) / (gaps->spread_ms * sqrt(2)));
    return longer > 0 ? -log10(longer) : INFINITY;
}

double pulse_phi(const struct pulse *pulse, double silent_ms)
{
    const struct gaps gaps = look_at_gaps(pulse);
    return pulse->n ? phi_of(&gaps, silent_ms) : 0;
}

bool pulse_suspects(struct pulse *pulse, uint64_t heard_ns, uint64_t now_ns)
{
    if (pulse->looked_ns == 0 || now_ns - pulse->looked_ns > PULSE_LATE_MS * UINT64_C(1000000))
        pulse->awake_ns = now_ns;
    pulse->looked_ns = now_ns;
    const uint64_t since_ns = heard_ns > pulse->awake_ns ? heard_ns : pulse->awake_ns;
    const double silent_ms = now_ns > since_ns ? (double)(now_ns - since_ns) / MS_NS : 0;
    if (pulse->n < PULSE_LEAST || silent_ms <= (double)PULSE_FLOOR_MS)
        return false;
    const struct gaps gaps = look_at_gaps(pulse);
    return silent_ms > PULSE_MARGIN * gaps.longest_ms && phi_of(&gaps, silent_ms) > PULSE_PHI;
}
