#include "thermal/view.h"

#include <stdio.h>

struct thermal_state thermal_state_of(const char *id, const struct thermal_governor *governor)
{
    struct thermal_state state = {
        .limit_c = governor->lines.limit_c,
        .stop_c = governor->lines.stop_c,
        .last_minute = thermal_history_summary(&governor->history),
        .slope_k_per_s = thermal_history_slope(&governor->history, 10),
        .fit_error_k = thermal_fit_error_k(&governor->fit),
        .fit_trusted = thermal_fit_trusted(&governor->fit),
        .action = governor->action,
    };
    snprintf(state.id, sizeof state.id, "%s", id);
    if (governor->has_sensed && !governor->lost)
        state.temperature_mc = reading_of(UNIT_MC, round(governor->temperature_c * 1e3));
    struct thermal_body body;
    if (!state.fit_trusted || !thermal_fit_body(&governor->fit, &body))
        return state;
    state.ambient_c = reading_of(UNIT_NUMBER, body.ambient_c);
    state.is_modelled = governor->has_power && state.temperature_mc.valid;
    if (state.is_modelled) {
        state.body = body;
        state.smooth_c = governor->smooth_c;
        state.power_w = governor->power_w;
    }
    return state;
}
