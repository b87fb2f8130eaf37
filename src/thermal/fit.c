#include "thermal/fit.h"

/* The first coefficient is h / tau and its regressor minus the mean temperature; then h / C, mean
 * power; then 1. */
enum { OF_TEMPERATURE, OF_POWER, OF_ONE };

static const double MEMORY_S[THERMAL_FIT_TERMS] = {3600, 3600, 1500};
static const double COVARIANCE_START[THERMAL_FIT_TERMS] = {
    100, 100, 1e4}; /* wide: 10 per step, 10 K/W, 100 K */

enum { WINDOWS_MIN = 24 }; /* two minutes before anything is trusted */

#define ERROR_K_FLOOR                                                                              \
    0.05 /* what rounding leaves at best; keeps a lucky start from being believed too much */
#define ERROR_K_MAX 1.0      /* predictions worse than that are not worth following */
#define ERROR_WINDOWS 24.0   /* over how many the mean square runs */
#define HUBER 3.0            /* errors beyond so many times the usual weigh less */
#define LEVERAGE_MIN 0.03    /* a window that says what thirty like it have said */
#define AIR_SHARE 0.04       /* of the error, a window: two minutes */
#define COEFFICIENT_MIN 1e-7 /* a < 1, b > 0; no device needs a year to warm up */
#define JUMP_K 4.0           /* between two samples: rounding and honest heating stay below */

static double fit_median(double a, double b, double c)
{
    return fmax(fmin(a, b), fmin(fmax(a, b), c));
}

/* ---- the recursive least squares ------------------------------------------------------- */

static void fit_start(struct thermal_fit *fit, double temperature_c)
{
    for (int i = 0; i < THERMAL_FIT_TERMS; i++) {
        fit->coefficient[i] = 0;
        for (int j = 0; j < THERMAL_FIT_TERMS; j++)
            fit->covariance[i][j] = i == j ? COVARIANCE_START[i] : 0;
    }
    fit->reference_c = temperature_c;
    fit->error_square = 0;
    fit->n_windows = 0;
    fit->trusted = false;
    fit->started = true;
}

/* The past weighs less by exp(-step / memory), each parameter at its own pace. A direction that
 * nothing excites would grow for ever; it stops at what was not known in the beginning. */
static void fit_forget(struct thermal_fit *fit)
{
    for (int i = 0; i < THERMAL_FIT_TERMS; i++) {
        double grow = exp(THERMAL_FIT_STEP_S / MEMORY_S[i] / 2);
        if (fit->covariance[i][i] * grow * grow > COVARIANCE_START[i])
            grow = sqrt(COVARIANCE_START[i] / fit->covariance[i][i]);
        for (int j = 0; j < THERMAL_FIT_TERMS; j++) {
            fit->covariance[i][j] *= grow;
            fit->covariance[j][i] *= grow;
        }
    }
}

static double error_k(const struct thermal_fit *fit)
{
    return fmax(sqrt(fit->error_square), ERROR_K_FLOOR);
}

static void note_error(struct thermal_fit *fit, double error)
{
    const double usual = error_k(fit);
    const bool learning = fit->n_windows < THERMAL_FIT_TERMS * 2;
    if (!learning) { /* a spoiled window must not widen what counts as usual at one blow */
        const double bound = fmax(HUBER * usual, ERROR_K_FLOOR * HUBER * 2);
        error = fmax(fmin(error, bound), -bound);
    }
    const double share = 1 / fmin(fit->n_windows + 1, ERROR_WINDOWS);
    fit->error_square += (error * error - fit->error_square) * share;
}

static bool is_physical(const double coefficient[THERMAL_FIT_TERMS])
{
    return coefficient[OF_TEMPERATURE] > COEFFICIENT_MIN && coefficient[OF_POWER] > COEFFICIENT_MIN;
}

/* Learns the air's coefficient alone: what holds whatever the body is. */
static void learn_air(struct thermal_fit *fit, double error)
{
    fit->coefficient[OF_ONE] += error * AIR_SHARE;
}

/* False, and nothing changed, where that would make a physical body an unphysical one. */
static bool learn_all(struct thermal_fit *fit, const double spread[THERMAL_FIT_TERMS],
                      double leverage, double error)
{
    double weight = 1, next[THERMAL_FIT_TERMS];
    if (fit->n_windows >= WINDOWS_MIN)
        weight = fmin(HUBER * error_k(fit) / fmax(fabs(error), 1e-9), 1);
    const double scale = weight / (1 + weight * leverage);
    for (int i = 0; i < THERMAL_FIT_TERMS; i++)
        next[i] = fit->coefficient[i] + scale * spread[i] * error;
    if (fit->n_windows >= WINDOWS_MIN && is_physical(fit->coefficient) && !is_physical(next))
        return false;
    for (int i = 0; i < THERMAL_FIT_TERMS; i++) {
        fit->coefficient[i] = next[i];
        for (int j = 0; j <= i; j++) {
            fit->covariance[i][j] -= scale * spread[i] * spread[j];
            fit->covariance[j][i] = fit->covariance[i][j];
        }
    }
    fit_forget(fit);
    return true;
}

static void fit_update(struct thermal_fit *fit, const double regressor[THERMAL_FIT_TERMS],
                       double change_k)
{
    double spread[THERMAL_FIT_TERMS], leverage = 0, error = change_k;
    for (int i = 0; i < THERMAL_FIT_TERMS; i++) {
        error -= fit->coefficient[i] * regressor[i];
        spread[i] = 0;
        for (int j = 0; j < THERMAL_FIT_TERMS; j++)
            spread[i] += fit->covariance[i][j] * regressor[j];
        leverage += regressor[i] * spread[i];
    }
    const bool is_news = leverage > LEVERAGE_MIN;
    if (!is_news || !learn_all(fit, spread, leverage, error))
        learn_air(fit, error);
    note_error(fit, error);
    fit->n_windows += fit->n_windows < UINT32_MAX;
}

/* ---- whether to believe it --------------------------------------------------------------- */

static bool is_better_than(const struct thermal_fit *fit, double factor)
{
    struct thermal_body body;
    if (fit->n_windows < WINDOWS_MIN || !thermal_fit_body(fit, &body))
        return false;
    for (int i = OF_TEMPERATURE; i <= OF_POWER; i++) {
        const double deviation = sqrt(fmax(fit->covariance[i][i], 0)) * error_k(fit);
        if (!(deviation <= fit->coefficient[i] * THERMAL_FIT_ERROR_MAX * factor))
            return false;
    }
    return error_k(fit) <= ERROR_K_MAX * factor;
}

static void fit_judge(struct thermal_fit *fit)
{
    fit->trusted = is_better_than(fit, fit->trusted ? 2 : 1);
}

/* ---- windows --------------------------------------------------------------------------------- */

static void finish_half(struct thermal_fit *fit)
{
    const struct thermal_half *first = &fit->half_before, *second = &fit->half;
    if (fit->has_half_before) {
        const double h = THERMAL_FIT_STEP_S;
        const double temperature_c = (first->temperature.weighted / h + second->temperature.plain -
                                      second->temperature.weighted / h) /
                                     h;
        const double power_w =
            (first->power.weighted / h + second->power.plain - second->power.weighted / h) / h;
        const double change_k = (second->temperature.plain - first->temperature.plain) / h;
        const double regressor[THERMAL_FIT_TERMS] = {[OF_TEMPERATURE] =
                                                         fit->reference_c - temperature_c,
                                                     [OF_POWER] = power_w,
                                                     [OF_ONE] = 1};
        fit_update(fit, regressor, change_k);
        fit_judge(fit);
    }
    fit->half_before = *second;
    fit->has_half_before = true;
    fit->half = (struct thermal_half){0};
    fit->half_done_s = 0;
}

/* Adds the straight line from v1 at s1 to v2 at s2. */
static void fit_integrate(struct thermal_moment *moment, double s1, double v1, double s2, double v2)
{
    moment->plain += (s2 - s1) * (v1 + v2) / 2;
    moment->weighted += (s2 - s1) * (s1 * (2 * v1 + v2) + s2 * (v1 + 2 * v2)) / 6;
}

/* Follows the straight line to the new point, over as many ends of halves as lie on it. */
static void fit_follow(struct thermal_fit *fit, struct thermal_point to, double seconds)
{
    struct thermal_point at = fit->last;
    while (seconds > 0) {
        const double room = THERMAL_FIT_STEP_S - fit->half_done_s;
        const double step = fmin(room, seconds), part = step / seconds;
        const struct thermal_point next = {at.temperature_c +
                                               (to.temperature_c - at.temperature_c) * part,
                                           at.power_w + (to.power_w - at.power_w) * part};
        const double s1 = fit->half_done_s, s2 = s1 + step;
        fit_integrate(&fit->half.temperature, s1, at.temperature_c, s2, next.temperature_c);
        fit_integrate(&fit->half.power, s1, at.power_w, s2, next.power_w);
        fit->half_done_s = s2;
        seconds -= step;
        at = next;
        if (step == room)
            finish_half(fit);
    }
}

/* The temperature to use for this sample: its own, unless it leaps from the one before; then the
 * median of the last three, which is its own again if the leap stays. */
static double without_leap(struct thermal_fit *fit, double temperature_c)
{
    double use_c = temperature_c;
    if (fit->n_recent == 2 && fabs(temperature_c - fit->recent_c[1]) > JUMP_K)
        use_c = fit_median(fit->recent_c[0], fit->recent_c[1], temperature_c);
    if (fit->n_recent == 2)
        fit->recent_c[0] = fit->recent_c[1];
    else
        fit->n_recent++;
    fit->recent_c[fit->n_recent - 1] = temperature_c;
    return use_c;
}

void thermal_fit_interrupt(struct thermal_fit *fit)
{
    fit->has_last = fit->has_half_before = false;
    fit->half = (struct thermal_half){0};
    fit->half_done_s = 0;
    fit->n_recent = 0;
}

void thermal_fit_add(struct thermal_fit *fit, struct thermal_sample sample)
{
    sample = thermal_sample_clean(sample);
    if (fit->has_last && sample.time_ns < fit->last_ns)
        thermal_fit_interrupt(fit);
    if (!sample.temperature_mc.valid || !sample.power_mw.valid)
        return; /* the next good one bridges the gap, or finds it too long */
    const double seconds = thermal_seconds_between(fit->last_ns, sample.time_ns);
    if (fit->has_last && seconds == 0)
        return;
    if (fit->has_last && seconds > THERMAL_FIT_GAP_S)
        thermal_fit_interrupt(fit);
    const struct thermal_point point = {without_leap(fit, sample.temperature_mc.value * 1e-3),
                                        sample.power_mw.value * 1e-3};
    if (!fit->started)
        fit_start(fit, point.temperature_c);
    if (fit->has_last)
        fit_follow(fit, point, seconds);
    fit->last = point;
    fit->last_ns = sample.time_ns;
    fit->has_last = true;
}

/* ---- what is known --------------------------------------------------------------------------- */

bool thermal_fit_trusted(const struct thermal_fit *fit)
{
    return fit->trusted;
}

bool thermal_fit_is_known(const struct thermal_fit *fit)
{
    struct thermal_body body;
    return fit->n_windows >= WINDOWS_MIN && error_k(fit) <= ERROR_K_MAX &&
           thermal_fit_body(fit, &body);
}

bool thermal_fit_body(const struct thermal_fit *fit, struct thermal_body *body)
{
    const double of_temperature = fit->coefficient[OF_TEMPERATURE],
                 of_power = fit->coefficient[OF_POWER];
    if (!is_physical(fit->coefficient))
        return false;
    const struct thermal_body found = {
        .capacity_j_per_k = THERMAL_FIT_STEP_S / of_power,
        .resistance_k_per_w = of_power / of_temperature,
        .ambient_c = fit->reference_c + fit->coefficient[OF_ONE] / of_temperature,
    };
    if (!thermal_body_is_physical(&found) || found.ambient_c < -60 || found.ambient_c > 120)
        return false;
    *body = found;
    return true;
}

bool thermal_fit_steady(const struct thermal_fit *fit, double power_w, struct thermal_steady *out)
{
    struct thermal_body body;
    if (!thermal_fit_body(fit, &body))
        return false;
    const double c = thermal_steady_c(&body, power_w),
                 of_temperature = fit->coefficient[OF_TEMPERATURE];
    const double slope[THERMAL_FIT_TERMS] = {[OF_TEMPERATURE] =
                                                 -(c - fit->reference_c) / of_temperature,
                                             [OF_POWER] = power_w / of_temperature,
                                             [OF_ONE] = 1 / of_temperature};
    double variance = 0;
    for (int i = 0; i < THERMAL_FIT_TERMS; i++) {
        for (int j = 0; j < THERMAL_FIT_TERMS; j++)
            variance += slope[i] * fit->covariance[i][j] * slope[j];
    }
    *out = (struct thermal_steady){c, sqrt(fmax(variance, 0)) * error_k(fit)};
    return true;
}

struct reading thermal_fit_error_k(const struct thermal_fit *fit)
{
    return (struct reading){sqrt(fit->error_square), fit->n_windows >= THERMAL_FIT_TERMS * 2};
}
