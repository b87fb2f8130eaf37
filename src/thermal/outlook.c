#include "thermal/outlook.h"

#define DUTY_SEEN_MIN 0.2 /* below, a share of the power says too little of the whole */
#define BUSY_W_MIN 0.5    /* less over idle is no work */

static double outlook_between(double low, double value, double high)
{
    return fmin(fmax(value, low), high);
}

/* The body as it is while it works hard: at rest, and in whole degrees, its resistance is hard to
 * see. */
static void learn_body(struct thermal_outlook *outlook, const struct thermal_fit *fit)
{
    struct thermal_steady steady;
    struct thermal_body body;
    if (!thermal_fit_is_known(fit) || !thermal_fit_body(fit, &body) ||
        !thermal_fit_steady(fit, outlook->heavy_w, &steady))
        return;
    outlook->resistance_k_per_w = body.resistance_k_per_w;
    outlook->time_constant_s = thermal_time_constant_s(&body);
    outlook->error_k = steady.error_k;
}

void thermal_outlook_see(struct thermal_outlook *outlook, const struct thermal_load *load,
                         const struct thermal_fit *fit, double seconds)
{
    const double full_w = thermal_load_full_w(load);
    if (load->duty < DUTY_SEEN_MIN || !(seconds > 0))
        return;
    if (outlook->seen_s <= 0)
        outlook->load_w = full_w;
    outlook->seen_s += seconds;
    outlook->load_w = full_w + (outlook->load_w - full_w) * exp(-seconds / THERMAL_OUTLOOK_LOAD_S);
    if (outlook->seen_s < THERMAL_OUTLOOK_LOAD_S)
        return;
    outlook->heavy_w = fmax(outlook->heavy_w, outlook->load_w);
    if (outlook->heavy_w <= load->idle_w + BUSY_W_MIN)
        return;
    const double busy =
        outlook_between(0, (outlook->load_w - load->idle_w) / (outlook->heavy_w - load->idle_w), 1);
    outlook->heavy_w -=
        (outlook->heavy_w - outlook->load_w) * busy * fmin(seconds / THERMAL_OUTLOOK_FADE_S, 1);
    if (busy > 0.5)
        learn_body(outlook, fit);
}

struct thermal_prospect thermal_outlook_ask(const struct thermal_outlook *outlook,
                                            const struct thermal_fit *fit,
                                            const struct thermal_situation *now)
{
    struct thermal_prospect prospect = {.full_s = THERMAL_NEVER};
    struct thermal_steady steady;
    const double resistance = outlook->resistance_k_per_w;
    if (!(resistance > 0) || outlook->heavy_w <= now->load.idle_w + BUSY_W_MIN ||
        !thermal_fit_is_known(fit) || !thermal_fit_steady(fit, now->load.power_w, &steady))
        return prospect;
    const double steady_c =
        steady.temperature_c + resistance * (outlook->heavy_w - now->load.power_w);
    const double busy_w = outlook->heavy_w - now->load.idle_w;
    const double further = outlook_between(0, (outlook->heavy_w - now->load.power_w) / busy_w, 1);
    const double error_k = hypot(steady.error_k, outlook->error_k * further);
    const double span_k = resistance * busy_w;
    if (!(error_k <= span_k * THERMAL_OUTLOOK_ERROR_MAX))
        return prospect;
    prospect.share.valid = true;
    prospect.share.value =
        outlook_between(THERMAL_OUTLOOK_SHARE_MIN, 1 - (steady_c - now->hold_c) / span_k, 1);
    prospect.share_error = error_k / span_k;
    const struct thermal_body late = {
        .capacity_j_per_k = outlook->time_constant_s / resistance,
        .resistance_k_per_w = resistance,
        .ambient_c = steady_c + error_k - resistance * outlook->heavy_w,
    };
    if (thermal_body_is_physical(&late))
        prospect.full_s =
            fmax(thermal_seconds_to_heat(&late, now->temperature_c, outlook->heavy_w, now->line_c) -
                     now->reach_s,
                 0);
    return prospect;
}
