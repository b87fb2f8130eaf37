/* What a device can keep up: the share of its time that it may compute for good, by the fitted body
 * (model.h, fit.h).
 *
 * Kept in mind is the heaviest load of late: the power, smoothed over THERMAL_OUTLOOK_LOAD_S, that
 * its work would draw at full duty. A lighter load replaces it within half an hour of work; a
 * device at rest forgets nothing, so that one that has been left because of its heat does not look
 * cool merely because it does nothing. With that power L, the power of now P, idle power I, and the
 * hold line of governor.h,
 *
 *     T_steady = T_fit(P) + R (L - P)
 *
 *     share = 1 - (T_steady - T_hold) / (R (L - I))
 *
 *     error = sqrt(error_fit(P)^2 + (error_work (L - P) / (L - I))^2) / (R (L - I))
 *
 *     full_s = tau ln((T_late - T) / (T_late - T_line)) - reach_s
 *
 * T_fit(P) = T_ambient + R_fit P is right at the power of now, whatever is off about R_fit; R is as
 * it was fitted while the device worked. Power is idle + duty x (L - idle), so the share is (P_hold
 * - I) / (L - I) (model.h), from THERMAL_OUTLOOK_SHARE_MIN to 1. The error is one standard
 * deviation; error_fit is thermal_fit_steady()'s now, error_work that at L when it last worked.
 * full_s is when its duty has to fall, at the earliest: T_late is T_steady and its error; line and
 * reach are those of the governor's law in force (duty.h).
 *
 * The error of R (L - I) is left out: it matters only where the share is small. Air that changes is
 * followed as the fit follows it, in about two minutes.
 *
 * Zeroed memory is an outlook that has seen nothing. Pure; one thread. */
#pragma once

#include "thermal/duty.h"
#include "thermal/fit.h"

#define THERMAL_OUTLOOK_LOAD_S 30.0
#define THERMAL_OUTLOOK_FADE_S 1800.0
#define THERMAL_OUTLOOK_SHARE_MIN 0.02 /* less is a pause, which only the governor orders */
#define THERMAL_OUTLOOK_ERROR_MAX 0.25 /* of a share; one that is less certain says nothing */

struct thermal_outlook {
    double load_w;  /* at full duty, smoothed */
    double heavy_w; /* the heaviest of late */
    double seen_s;  /* for so long */
    /* of the body, when it last worked; 0: it has not yet */
    double resistance_k_per_w, time_constant_s, error_k;
};

struct thermal_prospect {
    struct reading share; /* 0 … 1; unknown where no load or body is known well enough */
    double share_error;
    double full_s; /* THERMAL_NEVER: at that load it surely stays below the line; 0: it is there */
};

/* `seconds` passed under that load. */
void thermal_outlook_see(struct thermal_outlook *outlook, const struct thermal_load *load,
                         const struct thermal_fit *fit, double seconds);

struct thermal_situation {
    struct thermal_load load;
    double temperature_c;
    double hold_c;
    double line_c, reach_s; /* its duty falls so long before that line */
};
struct thermal_prospect thermal_outlook_ask(const struct thermal_outlook *outlook,
                                            const struct thermal_fit *fit,
                                            const struct thermal_situation *now);
