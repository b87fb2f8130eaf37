#include "vitals/vitals_sample.h"

#include <math.h>

enum { MIB = 1 << 20 };

static int32_t vitals_reading(struct reading reading, double scale)
{
    return vitals_steps(reading.valid, reading.value * scale);
}

static void vitals_sample_thermal(const struct thermal_state *thermal, bool governs,
                                  struct vitals_device *out)
{
    const struct reading left_s = thermal->action.headroom_s;
    if (governs) {
        out->duty_permille = vitals_steps(true, thermal->action.duty * 1000);
        out->governor = (int32_t)thermal->action.reason;
    }
    if (!thermal->temperature_mc.valid)
        return;
    out->limit_dc = vitals_steps(true, thermal->limit_c * 10);
    out->predicted_dc = vitals_reading(thermal->action.predicted_c, 10);
    out->limit_in_s = left_s.valid && left_s.value >= 0 && left_s.value <= 3600
                          ? vitals_steps(true, left_s.value)
                          : VITALS_UNKNOWN;
}

static void vitals_sample_device(const struct heat_device *device, bool governs,
                                 struct vitals_device *out)
{
    const struct sensor_device *readings = &device->readings;
    vitals_clear_device(out, device_info(device->device)->id);
    out->temperature_dc = vitals_reading(readings->temperature_mc, 1e-2);
    out->use_permille = vitals_reading(readings->utilisation_pct, 10);
    out->power_dw = vitals_reading(readings->power_mw, 1e-2);
    out->clock_mhz = vitals_reading(readings->clock_mhz, 1);
    out->free_mib = vitals_reading(readings->memory_free_bytes, 1.0 / MIB);
    vitals_sample_thermal(&device->thermal, governs, out);
}

static void vitals_sample_node(const struct sensor_node *node, struct vitals *out)
{
    const struct reading state = node->battery_state;
    out->cpu_permille = vitals_reading(node->cpu_utilisation_pct, 10);
    out->memory_mib = vitals_reading(node->memory_total_bytes, 1.0 / MIB);
    out->memory_free_mib = vitals_reading(node->memory_available_bytes, 1.0 / MIB);
    out->pressure_permille = vitals_reading(node->memory_stall_some_share, 1000);
    out->battery_percent = vitals_reading(node->battery_pct, 1);
    if (node->battery_pct.valid && state.valid)
        out->charging = reading_whole(state) == BATTERY_CHARGING;
}

void vitals_sample(const struct heat_snapshot *snapshot, uint64_t uptime_s, struct vitals *out)
{
    vitals_clear(out);
    out->uptime_s = vitals_steps(true, (double)uptime_s);
    if (!snapshot->time_ns)
        return;
    vitals_sample_node(&snapshot->node, out);
    for (uint32_t i = 0; i < snapshot->n_devices && i < LIMIT_DEVICES; i++)
        vitals_sample_device(&snapshot->devices[i], !snapshot->watches_only,
                             &out->devices[out->n_devices++]);
}

const char *vitals_governor_text(int32_t reason)
{
    static const char *const texts[] = {
        [THERMAL_FREE] = "free",          [THERMAL_NO_SENSOR] = NULL,
        [THERMAL_BATTERY] = "slowed",     [THERMAL_PRECISION] = "lower precision",
        [THERMAL_MODEL] = "slowed",       [THERMAL_PROPORTION] = "slowed",
        [THERMAL_SENSOR_LOST] = "slowed", [THERMAL_PAUSED] = "paused",
    };
    return reason >= 0 && reason < (int32_t)(sizeof texts / sizeof *texts) ? texts[reason] : NULL;
}
