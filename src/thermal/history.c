#include "thermal/history.h"

#include <assert.h>

void thermal_history_clear(struct thermal_history *history)
{
    history->first = history->count = 0;
}

const struct thermal_sample *thermal_history_at(const struct thermal_history *history,
                                                uint32_t index)
{
    assert(index < history->count);
    return &history->samples[(history->first + index) % THERMAL_HISTORY_SAMPLES];
}

static void drop_oldest(struct thermal_history *history)
{
    history->first = (history->first + 1) % THERMAL_HISTORY_SAMPLES;
    history->count--;
}

void thermal_history_add(struct thermal_history *history, struct thermal_sample sample)
{
    sample = thermal_sample_clean(sample);
    if (history->count &&
        sample.time_ns <= thermal_history_at(history, history->count - 1)->time_ns)
        thermal_history_clear(history);
    if (history->count == THERMAL_HISTORY_SAMPLES)
        drop_oldest(history);
    history->samples[(history->first + history->count++) % THERMAL_HISTORY_SAMPLES] = sample;
    while (sample.time_ns - thermal_history_at(history, 0)->time_ns >
           THERMAL_HISTORY_SECONDS * UINT64_C(1000000000))
        drop_oldest(history);
}

struct thermal_summary thermal_history_summary(const struct thermal_history *history)
{
    struct thermal_summary summary = {.n_samples = history->count};
    double power_sum_mw = 0;
    uint32_t n_powers = 0;
    for (uint32_t i = 0; i < history->count; i++) {
        const struct thermal_sample *sample = thermal_history_at(history, i);
        const struct reading now = sample->temperature_mc;
        if (now.valid) {
            struct reading *min = &summary.temperature_mc_min, *max = &summary.temperature_mc_max;
            *min = !min->valid || now.value < min->value ? now : *min;
            *max = !max->valid || now.value > max->value ? now : *max;
            summary.n_valid++;
        }
        if (sample->power_mw.valid) {
            power_sum_mw += sample->power_mw.value;
            n_powers++;
        }
    }
    if (n_powers)
        summary.power_mw_mean = reading_of(UNIT_MW, power_sum_mw / n_powers);
    return summary;
}

struct reading thermal_history_slope(const struct thermal_history *history, double seconds)
{
    if (!history->count)
        return (struct reading){0};
    const uint64_t newest_ns = thermal_history_at(history, history->count - 1)->time_ns;
    double n = 0, sum_t = 0, sum_c = 0, sum_tt = 0, sum_tc = 0;
    for (uint32_t i = history->count; i-- > 0;) {
        const struct thermal_sample *sample = thermal_history_at(history, i);
        const double ago = thermal_seconds_between(sample->time_ns, newest_ns);
        if (ago > seconds)
            break;
        if (!sample->temperature_mc.valid)
            continue;
        const double c = sample->temperature_mc.value * 1e-3;
        n += 1, sum_t -= ago, sum_c += c, sum_tt += ago * ago, sum_tc -= ago * c;
    }
    const double spread = n * sum_tt - sum_t * sum_t;
    if (n < 3 || spread <= 0)
        return (struct reading){0};
    return reading_of(UNIT_NUMBER, (n * sum_tc - sum_t * sum_c) / spread);
}
