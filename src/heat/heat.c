#include "heat/heat.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

struct governed {
    struct thermal_governor governor;
    int64_t limit_mc; /* the device's own that the governor was told; 0: none */
    enum thermal_reason logged;
    bool asks_lower; /* precision */
};

struct heat {
    struct heat_options options;
    struct telemetry *telemetry;
    struct governed *governed; /* one for each device; the telemetry thread's */
    struct heat_snapshot work; /* the telemetry thread's */
    pthread_mutex_t lock;      /* guards `latest` */
    struct heat_snapshot latest;
    struct recent *recent; /* the same lock's; one for each device */
};

/* ---- one sample (on the telemetry thread) ------------------------------------------------- */

/* A device in a process of its own does not tell when it read. */
static struct reading own_reading(struct reading reading, uint64_t now_ns)
{
    reading.time_ns = now_ns;
    return reading;
}

static void read_itself(const struct device *device, uint64_t now_ns, struct sensor_device *out)
{
    struct device_memory memory = device_memory(device);
    *out = (struct sensor_device){
        .memory_used_bytes =
            reading_at(UNIT_BYTES, (double)(memory.total_bytes - memory.free_bytes), now_ns),
        .memory_free_bytes = reading_at(UNIT_BYTES, (double)memory.free_bytes, now_ns),
        .temperature_mc = own_reading(device_temperature_mc(device), now_ns),
        .power_mw = own_reading(device_power_mw(device), now_ns),
        .clock_mhz = own_reading(device_clock_mhz(device), now_ns),
        .temperature_slowdown_mc = own_reading(device_temperature_limit_mc(device), now_ns),
    };
}

/* A limit may be told late, by a source that was slow to open, and a lower one later still. */
static void learn_limit(struct governed *governed, const struct sensor_device *readings)
{
    struct reading limit = readings->temperature_slowdown_mc.valid
                               ? readings->temperature_slowdown_mc
                               : readings->temperature_critical_mc;
    const int64_t limit_mc = (int64_t)limit.value;
    if (!limit.valid || !thermal_limit_is_believed(limit_mc) ||
        (governed->limit_mc && limit_mc >= governed->limit_mc))
        return;
    governed->limit_mc = limit_mc;
    governed->governor.limits = thermal_limits_default(governed->limit_mc);
}

static bool on_battery(const struct sensor_node *node)
{
    if (node->on_ac.valid)
        return reading_whole(node->on_ac) == 0;
    return node->battery_state.valid && reading_whole(node->battery_state) == BATTERY_DISCHARGING;
}

static void log_change(struct governed *governed, const struct thermal_state *state)
{
    enum thermal_reason reason = state->action.reason;
    if (reason == governed->logged)
        return;
    governed->logged = reason;
    if (!state->temperature_mc.valid) {
        log_line(LOG_INFO, "heat", "device %s: %s, duty %u %%", state->id,
                 thermal_reason_text(reason), thermal_permille(state->action.duty) / 10);
        return;
    }
    log_line(reason == THERMAL_PAUSED ? LOG_WARN : LOG_INFO, "heat",
             "device %s: %s; %.1f C, limit %.0f C, duty %u %%", state->id,
             thermal_reason_text(reason), state->temperature_mc.value * 1e-3, state->limit_c,
             thermal_permille(state->action.duty) / 10);
}

static void tell_precision(struct heat *heat, uint32_t index, bool lower)
{
    struct governed *governed = &heat->governed[index];
    struct device *device = heat->work.devices[index].device;
    if (governed->asks_lower == lower)
        return;
    governed->asks_lower = lower;
    log_line(LOG_INFO, "heat", "device %s: %s%s", device_info(device)->id,
             lower ? "asks for lower precision" : "no longer asks for lower precision",
             lower && !heat->options.on_precision
                 ? ", which nobody can give; its duty will fall instead"
                 : "");
    if (heat->options.on_precision)
        heat->options.on_precision(heat->options.arg, device, lower);
}

static void heat_govern(struct heat *heat, uint32_t index, bool battery)
{
    struct governed *governed = &heat->governed[index];
    struct heat_device *device = &heat->work.devices[index];
    learn_limit(governed, &device->readings);
    struct thermal_input input = {
        .sample = {.time_ns = heat->work.time_ns,
                   .temperature_mc = device->readings.temperature_mc,
                   .power_mw = device->readings.power_mw},
        .on_battery = battery,
    };
    struct thermal_action action = thermal_governor_step(&governed->governor, &input);
    device->thermal = thermal_state_of(device_info(device->device)->id, &governed->governor);
    if (heat->options.watch_only)
        return;
    tell_precision(heat, index, action.lower_precision);
    device_set_duty(device->device, action.duty);
    log_change(governed, &device->thermal);
}

static void on_sample(void *arg, const struct sensor_sample *sample)
{
    struct heat *heat = arg;
    heat->work.time_ns = sample->time_ns;
    heat->work.node = sample->node;
    bool battery = on_battery(&sample->node);
    for (uint32_t i = 0; i < heat->work.n_devices; i++) {
        struct heat_device *device = &heat->work.devices[i];
        device->readings = sample->devices[i];
        if (device_reads_itself(device->device))
            read_itself(device->device, sample->time_ns, &device->readings);
        heat_govern(heat, i, battery);
    }
    pthread_mutex_lock(&heat->lock);
    heat->latest = heat->work;
    for (uint32_t i = 0; i < heat->work.n_devices; i++)
        recent_add(&heat->recent[i], heat->work.time_ns, &heat->work.devices[i].readings);
    pthread_mutex_unlock(&heat->lock);
}

/* ---- opening and closing ------------------------------------------------------------------ */

static enum error_code heat_start(struct heat *heat, struct gpu *gpu, struct error *err)
{
    uint32_t n = gpu_device_count(gpu);
    struct device_info *infos = mem_new_array(n, sizeof *infos);
    heat->governed = mem_new_array(n, sizeof *heat->governed);
    enum error_code code = ERROR_NONE;
    heat->recent = mem_new_array(n, sizeof *heat->recent);
    if (!infos || !heat->governed || !heat->recent)
        code = error_set(err, ERROR_NO_MEMORY, "out of memory");
    for (uint32_t i = 0; i < n && !code; i++) {
        heat->work.devices[i].device = gpu_device(gpu, i);
        infos[i] = *device_info(gpu_device(gpu, i));
        thermal_governor_init(&heat->governed[i].governor, thermal_limits_default(0));
    }
    heat->work.n_devices = code ? 0 : n;
    heat->work.watches_only = heat->options.watch_only;
    heat->latest = heat->work;
    struct telemetry_options options = {
        .period_ms = heat->options.period_ms, .on_sample = on_sample, .arg = heat};
    if (!code)
        code = telemetry_open(&options, infos, n, &heat->telemetry, err);
    mem_free(infos);
    return code;
}

enum error_code heat_open(struct gpu *gpu, const struct heat_options *options, struct heat **out,
                          struct error *err)
{
    assert(gpu && out);
    *out = NULL;
    struct heat *heat = mem_new(sizeof *heat);
    if (!heat)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    pthread_mutex_init(&heat->lock, NULL);
    if (options)
        heat->options = *options;
    enum error_code code = heat_start(heat, gpu, err);
    if (code) {
        heat_close(heat);
        return code;
    }
    *out = heat;
    return ERROR_NONE;
}

void heat_close(struct heat *heat)
{
    if (!heat)
        return;
    telemetry_close(heat->telemetry);
    for (uint32_t i = 0; i < heat->work.n_devices && !heat->options.watch_only; i++) {
        device_set_duty(heat->work.devices[i].device, 1);
        tell_precision(heat, i, false);
    }
    pthread_mutex_destroy(&heat->lock);
    mem_free(heat->governed);
    mem_free(heat->recent);
    mem_free(heat);
}

/* ---- looking ------------------------------------------------------------------------------- */

void heat_latest(struct heat *heat, struct heat_snapshot *out)
{
    pthread_mutex_lock(&heat->lock);
    *out = heat->latest;
    pthread_mutex_unlock(&heat->lock);
}

uint64_t heat_recent(struct heat *heat, uint32_t device, uint32_t *period_ms,
                     struct recent_sample out[static RECENT_SAMPLES])
{
    *period_ms = heat->options.period_ms ? heat->options.period_ms : TELEMETRY_PERIOD_MS;
    pthread_mutex_lock(&heat->lock);
    const struct recent none = {0};
    const bool is_there = device < heat->latest.n_devices;
    const uint64_t end_ns = recent_list(is_there ? &heat->recent[device] : &none, *period_ms, out);
    pthread_mutex_unlock(&heat->lock);
    return end_ns;
}
