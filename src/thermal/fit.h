/* Finds a device's thermal body while it runs, from what its sensors say.
 *
 * The discretised model of model.h at a step h is
 *
 *     T[k+1] = a T[k] + b P[k] + c        a = exp(-h / tau)   b = R (1 - a)   c = (1 - a) T_ambient
 *
 * Regressing it sample by sample fails on real sensors: with whole degrees every 500 ms and a time
 * constant of minutes the rounding is many times the change, and rounded values among the
 * regressors bias `a`. So the same equation is taken over windows. C dT/dt = P - (T - T_ambient) /
 * R times a weight w(t) that is zero at both ends of a window gives, by parts and without any
 * derivative (modulating functions; Shinbrot, Trans. ASME 79, 1957),
 *
 *     -integral(w' T) = -1/tau integral(w T) + 1/C integral(w P) + T_ambient/tau integral(w)
 *
 * With w a triangle over two halves of THERMAL_FIT_STEP_S each, the left side is the mean
 * temperature of the second half less that of the first, and rounding averages out. It is exact for
 * irregular sample times too (piecewise linear in between). The three coefficients are found by
 * recursive least squares with exponential forgetting (Ljung, System Identification, 2nd ed.,
 * chapter 11.2): the air's in 25 minutes, for rooms and neighbours change, the body's in an hour,
 * for metal does not (forgetting per parameter; Saelid and Foss, 1983). A window that says what
 * thirty others have said teaches only the air's, so that hours of even load undo nothing.
 *
 * What goes wrong: a temperature that leaps away for one sample is replaced by the median of three;
 * a window that fits far worse than usual weighs less (Huber). A gap in the readings up to
 * THERMAL_FIT_GAP_S is bridged, a longer one (or a clock that goes back) starts the window anew and
 * keeps what was learned. A sample without power counts as a gap: a device whose power is never
 * known is never fitted, and thermal_fit_trusted() stays false.
 *
 * How good: with loads that come and go for half an hour, 1 °C steps, C, R and tau of one-node
 * devices come out within 15 % (mostly 5; tests). A device of two nodes is no such body: its
 * prediction error mostly keeps it from being trusted. Under a governor that holds it, power
 * follows temperature, which hides the one behind the other: R may then be 20 % off, with 2 °C
 * steps several times that, and its standard error does not show it. The temperature that the
 * present power leads to is right all the same, and that is what the governor steers by.
 *
 * Zeroed memory is a fit that knows nothing. Pure, no allocation; one thread. */
#pragma once

#include "thermal/model.h"
#include "thermal/sample.h"

#define THERMAL_FIT_STEP_S 5.0
#define THERMAL_FIT_GAP_S 3.0

enum { THERMAL_FIT_TERMS = 3 }; /* of a temperature, of a power, of 1 */

/* Integrals over one half of a window, s from its start: of the value, and of s times it. */
struct thermal_moment {
    double plain;
    double weighted;
};

struct thermal_half {
    struct thermal_moment temperature;
    struct thermal_moment power;
};

struct thermal_point {
    double temperature_c;
    double power_w;
};

struct thermal_fit {
    /* what is being gathered */
    uint64_t last_ns; /* of the point below */
    struct thermal_point last;
    double recent_c[2]; /* the raw temperatures before it, for the median; [0] is the older */
    uint32_t n_recent;
    double half_done_s; /* of `half` */
    struct thermal_half half, half_before;
    bool has_last;
    bool has_half_before;
    bool started;

    /* what is known; in steps of THERMAL_FIT_STEP_S */
    double coefficient[THERMAL_FIT_TERMS]; /* h / tau (K per K), h / C (K per W), h (T_ambient -
                                              T_reference) / tau (K) */
    double covariance[THERMAL_FIT_TERMS][THERMAL_FIT_TERMS]; /* in units of the errors' variance */
    double reference_c;  /* temperatures count from here: keeps the numbers small */
    double error_square; /* recent mean square of the prediction error, K^2 */
    uint32_t n_windows;
    bool trusted;
};

void thermal_fit_add(struct thermal_fit *fit, struct thermal_sample sample);

/* Forgets the window in hand, not what was learned: after a suspend, or a clock that went back. */
void thermal_fit_interrupt(struct thermal_fit *fit);

/* True once the error of C and R is small (THERMAL_FIT_ERROR_MAX, relative, one standard deviation)
 * and the predictions have been right; false again when that gets twice as bad, or the parameters
 * stop being physical: a outside (0, 1), b <= 0, or an effective ambient outside -60 … 120 °C. */
bool thermal_fit_trusted(const struct thermal_fit *fit);
#define THERMAL_FIT_ERROR_MAX 0.15

/* Less than trusted: it has seen two minutes, is physical, and its predictions have been right; how
 * far what is reckoned with it is off, thermal_fit_steady() says. */
bool thermal_fit_is_known(const struct thermal_fit *fit);

/* The body; false, and *body untouched, while the parameters are not physical. Ask
 * thermal_fit_trusted() first. */
bool thermal_fit_body(const struct thermal_fit *fit, struct thermal_body *body);

/* Where a power leads, and one standard deviation of that. By the delta method (Casella and Berger,
 * Statistical Inference, 2nd ed., 5.5.4): with coefficients x, T = T_reference + (x_power P +
 * x_one) / x_temperature, and
 *
 *     error^2 = e^2 g' S g        g = dT/dx = (-(T - T_reference), P, 1) / x_temperature
 *
 * where S is `covariance` and e the prediction error, as thermal_fit_trusted() takes it. False
 * while not physical. */
struct thermal_steady {
    double temperature_c;
    double error_k;
};
bool thermal_fit_steady(const struct thermal_fit *fit, double power_w, struct thermal_steady *out);

/* Root mean square, kelvin, of the recent one-step prediction errors: what the mean temperature of
 * the next THERMAL_FIT_STEP_S was, less what the coefficients found before had said. Unknown before
 * the first windows. */
struct reading thermal_fit_error_k(const struct thermal_fit *fit);
