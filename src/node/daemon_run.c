/* What computes a model's requests, for their records. */
#include "node/daemon_state.h"

#include "heat/heat.h"
#include "node/daemon_run.h"
#include "node/lead.h"
#include "node/telling.h"
#include "pipeline/memory_ladder.h"
#include "placing/placing.h"
#include "relay/relay.h"

#include "base/mem.h"

#include <stdio.h>
#include <string.h>

enum { RUN_FORECAST_MS = 5000 }; /* so long a forecast is good: placing asks all devices */

/* ---- the forecast ---------------------------------------------------------------------------- */

static struct run_forecast *run_forecast_slot(struct daemon *daemon, const char *id)
{
    struct run_forecast *oldest = &daemon->run_forecasts[0];
    for (uint32_t i = 0; i < RUN_FORECASTS; i++) {
        struct run_forecast *slot = &daemon->run_forecasts[i];
        if (strcmp(slot->instance, id) == 0)
            return slot;
        if (slot->made_ms < oldest->made_ms)
            oldest = slot;
    }
    return oldest;
}

bool daemon_run_is_as_placed(const Cluster__Placement *placement)
{
    for (size_t i = 0; i < placement->n_stages; i++) {
        if (placement->stages[i]->memory_step >= MEMORY_STEPS_OF_PRESSURE)
            return false;
    }
    return true;
}

const struct run_forecast *daemon_run_forecast(struct daemon *daemon,
                                               const Cluster__Instance *instance)
{
    static const struct run_forecast none; /* what is placed is not what computes now */
    if (!daemon_run_is_as_placed(instance->current))
        return &none;
    struct run_forecast *slot = run_forecast_slot(daemon, instance->id);
    const uint64_t now_ms = daemon_now_ms(daemon);
    struct placement_forecast forecast;
    if (strcmp(slot->instance, instance->id) == 0 && slot->epoch == instance->current->epoch &&
        now_ms - slot->made_ms < RUN_FORECAST_MS)
        return slot;
    *slot = (struct run_forecast){.epoch = instance->current->epoch, .made_ms = now_ms};
    snprintf(slot->instance, sizeof slot->instance, "%s", instance->id);
    if (placing_forecast(daemon_placing_view(daemon), instance, instance->current, &forecast, NULL))
        return slot;
    slot->decode_tokens_per_s = forecast.decode_tokens_per_s;
    slot->prefill_tokens_per_s = forecast.prefill_tokens_per_s;
    slot->stream_tokens_per_s = forecast.cost.round_s > 0 ? 1 / forecast.cost.round_s : 0;
    return slot;
}

/* ---- power ----------------------------------------------------------------------------------- */

/* Known while this node leads or watches: those are told. */
static bool run_far_power(const struct daemon *daemon, const struct request_run_stage *stage,
                          double *power_w)
{
    const struct vitals *vitals = telling_vitals(daemon, stage->node);
    const struct vitals_device *device = vitals ? vitals_device_of(vitals, stage->device) : NULL;
    if (!device || device->power_dw == VITALS_UNKNOWN)
        return false;
    *power_w += device->power_dw / 10.0;
    return true;
}

static bool run_device_power(const struct daemon *daemon, const struct heat_snapshot *heat,
                             const struct request_run_stage *stage, double *power_w)
{
    if (strcmp(stage->node, daemon->id) != 0)
        return run_far_power(daemon, stage, power_w);
    for (uint32_t i = 0; heat->time_ns && i < heat->n_devices; i++) {
        const struct heat_device *device = &heat->devices[i];
        if (strcmp(device_info(device->device)->id, stage->device) != 0)
            continue;
        *power_w += device->readings.power_mw.value / 1000;
        return device->readings.power_mw.valid;
    }
    return false;
}

/* Known where that of every device is; each device counts once. */
static void run_add_power(const struct daemon *daemon, struct request_run *out)
{
    struct heat_snapshot *heat = daemon->options.heat ? mem_new(sizeof *heat) : NULL;
    out->has_power = heat && out->n_stages;
    if (heat)
        heat_latest(daemon->options.heat, heat);
    for (uint32_t i = 0; out->has_power && i < out->n_stages; i++) {
        const struct request_run_stage *stage = &out->stages[i];
        uint32_t first = 0;
        while (strcmp(out->stages[first].node, stage->node) != 0 ||
               strcmp(out->stages[first].device, stage->device) != 0)
            first++;
        if (first == i)
            out->has_power = run_device_power(daemon, heat, stage, &out->power_w);
    }
    mem_free(heat);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void run_add_stages(const Cluster__Placement *placement, struct request_run *out)
{
    for (size_t i = 0; i < placement->n_stages && i < LIMIT_STAGES; i++) {
        const Cluster__Stage *from = placement->stages[i];
        struct request_run_stage *stage = &out->stages[out->n_stages++];
        snprintf(stage->node, sizeof stage->node, "%s", from->node);
        snprintf(stage->device, sizeof stage->device, "%s", from->device);
        stage->first_layer = from->first_layer;
        stage->n_layers = from->n_layers;
    }
    if (out->n_stages)
        memcpy(out->driver, out->stages[0].node, sizeof out->driver);
}

void daemon_describe_run(struct daemon *daemon, const char *model, struct request_run *out)
{
    const Cluster__Instance *instance = state_instance(daemon_state(daemon), model);
    struct relay_pause pause;
    *out = (struct request_run){0};
    if (daemon->relay && relay_pause_report(daemon->relay, model, &pause)) {
        out->paused_ns = pause.since_ns;
        memcpy(out->why, pause.why, sizeof out->why);
    }
    if (!instance || !instance->current)
        return;
    const struct run_forecast *forecast = daemon_run_forecast(daemon, instance);
    out->forecast_decode_tokens_per_s = forecast->stream_tokens_per_s;
    out->forecast_prefill_tokens_per_s = forecast->prefill_tokens_per_s;
    run_add_stages(instance->current, out);
    run_add_power(daemon, out);
}
