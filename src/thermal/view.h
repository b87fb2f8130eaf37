/* The heat of several devices at a glance: of this machine, or of a cluster's. Pure; any thread. */
#pragma once

#include "thermal/governor.h"

struct thermal_state {
    char id[64];                   /* "gpu0", or "machine/gpu0" */
    struct reading temperature_mc; /* the last; unknown when there is none or the sensor is lost */
    struct reading ambient_c;      /* effective, from the fitted model */
    double limit_c;                /* what the governor holds for the limit */
    double stop_c;                 /* on the present supply */
    struct thermal_summary last_minute;
    struct reading slope_k_per_s; /* over the last 10 s */
    struct reading fit_error_k;
    bool fit_trusted;
    bool is_modelled; /* what follows is known: the trusted body, and where it starts from */
    struct thermal_body body;
    double smooth_c, power_w;
    struct thermal_action action;
};

/* After at least one step. Too long an id is cut. */
struct thermal_state thermal_state_of(const char *id, const struct thermal_governor *governor);
