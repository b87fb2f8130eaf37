/* thermal: what the thermal governor costs, holds and gains, on simulated devices.
 *
 *   thermal [--hours 1] [--verbose]
 *
 * Sixteen devices (tests/unit/thermal_plant.c), each at full load for an hour of simulated time,
 * under their governors; then the same devices left to their vendors' throttling law: at the limit
 * the clock halves, and again every second that it stays there, until it is 10 °C cooler. Prints
 * the seconds that the governors took (their share alone, and with the simulation), how near any
 * device came to its limit, and tokens per hour, governed : throttling, on the same device from the
 * same start. How that comes out hangs on the power that a halved clock still draws, so three laws
 * are shown: the voltage stays (hardware slowdown: half of the core's power), falls with the clock
 * (an eighth), or in between. Nothing answers the governor's wish for lower precision here, so the
 * gain is the duty cycle's alone. */
#include "base/clock.h"
#include "thermal_plant.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct outcome {
    double tokens;
    double over_k; /* hottest, less the limit */
    double governor_s;
    uint32_t n_pauses;
    double mean_duty;
    bool trusted;
    double end_c;
};

static struct outcome drive(const struct plant_kind *kind, const struct plant_throttling *law,
                            bool governed, double hours)
{
    struct plant plant;
    struct thermal_governor governor;
    struct outcome outcome = {0};
    plant_init(&plant, kind, 1);
    plant.throttling = *law;
    thermal_governor_init(&governor, thermal_limits_default((int64_t)(kind->limit_c * 1e3)));
    const uint32_t n_steps = (uint32_t)(hours * 7200);
    double duty = 1;
    bool was_paused = false;
    for (uint32_t i = 0; i < n_steps; i++) {
        plant_step(&plant, duty, 1, 0.5);
        outcome.mean_duty += duty / n_steps;
        if (!governed)
            continue;
        const struct thermal_input input = {
            .sample = plant_sample(&plant, (uint64_t)(i + 1) * 500000000)};
        const uint64_t before_ns = clock_now_ns();
        const struct thermal_action action = thermal_governor_step(&governor, &input);
        outcome.governor_s += (double)(clock_now_ns() - before_ns) * 1e-9;
        duty = action.duty;
        outcome.n_pauses += action.paused && !was_paused;
        was_paused = action.paused;
    }
    outcome.tokens = plant.tokens;
    outcome.over_k = plant.max_c - kind->limit_c;
    outcome.trusted = thermal_fit_trusted(&governor.fit);
    outcome.end_c = plant.state.die_c;
    return outcome;
}

static void compare(const char *words, double core_power, double hours)
{
    double ratio[PLANT_KINDS], product = 0;
    for (int i = 0; i < PLANT_KINDS; i++) {
        const struct plant_throttling law = {.clock = 0.5, .core_power = core_power};
        const struct outcome with = drive(&plant_kinds[i], &law, true, hours);
        const struct outcome without = drive(&plant_kinds[i], &law, false, hours);
        ratio[i] = with.tokens / without.tokens;
        product += log(ratio[i]) / (double)PLANT_KINDS;
    }
    double low = ratio[0], high = ratio[0];
    for (int i = 0; i < PLANT_KINDS; i++)
        low = fmin(low, ratio[i]), high = fmax(high, ratio[i]);
    printf(
        "tokens per hour, governed : throttling, %s: %.2f (geometric mean of 16; %.2f to %.2f)\n",
        words, exp(product), low, high);
}

int main(int argc, char **argv)
{
    double hours = 1;
    bool verbose = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--hours") == 0 && i + 1 < argc)
            hours = strtod(argv[++i], NULL);
        else if (strcmp(argv[i], "--verbose") == 0)
            verbose = true;
        else
            hours = 0;
    }
    if (!(hours > 0 && hours <= 1000)) {
        fprintf(stderr, "usage: thermal [--hours 1] [--verbose]\n");
        return 2;
    }
    const struct plant_throttling none = {0};
    double governor_s = 0, nearest_k = -1000;
    const uint64_t begin_ns = clock_now_ns();
    const clock_t begin_cpu = clock();
    for (int i = 0; i < PLANT_KINDS; i++) {
        const struct outcome outcome = drive(&plant_kinds[i], &none, true, hours);
        governor_s += outcome.governor_s;
        nearest_k = fmax(nearest_k, outcome.over_k);
        if (verbose)
            printf("%-26s limit %3.0f °C, hottest %5.1f below it, at the end %4.1f °C, duty %.3f, "
                   "%u pauses%s\n",
                   plant_kinds[i].name, plant_kinds[i].limit_c, -outcome.over_k, outcome.end_c,
                   outcome.mean_duty, outcome.n_pauses,
                   outcome.trusted ? "" : ", model not trusted");
    }
    const double share = governor_s / ((double)(clock_now_ns() - begin_ns) * 1e-9);
    const double all_s = (double)(clock() - begin_cpu) / CLOCKS_PER_SEC;
    printf("16 devices x %g h, every 500 ms: %.3f s of one core with the simulation, governors "
           "%.3f s\n",
           hours, all_s, all_s * share);
    printf("hottest, relative to its limit: %+.2f K\n", nearest_k);
    compare("halved clock at full voltage", 0.5, hours);
    compare("halved clock at a somewhat lower voltage", 0.3, hours);
    compare("halved clock at half the voltage", 0.125, hours);
    return 0;
}
