/* How warm a node's devices are: simdevices/sim_plant.h is the metal, and thermal/governor.h sees
 * it through a sensor of whole degrees every HEAT_MS and says for how much of its time a device may
 * compute, as heat/heat.c. Work takes so much longer then. A device that is to pause computes for a
 * hundredth of its time here: what is under way ends. */
#include "sim/world.h"

#include "base/mem.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>

#define AIR_C 25.0
#define IDLE_W 10.0
#define FULL_W 100.0
#define DUTY_LEAST 0.01

static struct plant_params params_of(const struct scenario_node *is)
{
    const double resistance = ((double)is->load_c - AIR_C) / FULL_W;
    return (struct plant_params){.power_idle_w = IDLE_W,
                                 .power_max_w = FULL_W,
                                 .thermal_mass_j_per_k = (double)is->tau_s / resistance,
                                 .resistance_k_per_w = resistance,
                                 .ambient_c = AIR_C,
                                 .limit_c = (double)is->limit_c,
                                 .hysteresis_k = 5,
                                 .throttled_clock = 0.3};
}

static void heat_next(struct world *w, const struct node *node, uint64_t after_ms)
{
    world_push(
        w, (struct event){.at_ms = w->now_ms + after_ms, .type = EVENT_HEAT, .node = node->index});
}

bool heat_init(struct world *w, struct node *node)
{
    const struct scenario_node *is = &w->scenario->nodes[node->index];
    if (!is->load_c)
        return true;
    node->devices = mem_new_array(is->devices, sizeof *node->devices);
    if (!node->devices)
        return false;
    for (uint64_t i = 0; i < is->devices; i++) {
        struct made_up_device *device = &node->devices[i];
        device->plant = params_of(is);
        device->body = plant_rested(&device->plant);
        device->duty = 1;
        thermal_governor_init(&device->governor,
                              thermal_limits_default((int64_t)is->limit_c * 1000));
    }
    heat_next(w, node, 1 + world_draw(w, HEAT_MS));
    return true;
}

/* The time since the last sample passes: first the work, then the rest. Sequences compute beside
 * each other here, on a device one after the other. */
static double heat_pass(struct node *node, struct made_up_device *device)
{
    const double period_s = (double)HEAT_MS * 1e-3;
    const double busy_s = fmin((double)device->busy_us * 1e-6, period_s * device->duty);
    device->plant.ambient_c = AIR_C + node->air_now_k;
    plant_advance(&device->plant, &device->body, true, busy_s);
    plant_advance(&device->plant, &device->body, false, period_s - busy_s);
    device->busy_us -= (uint64_t)(busy_s * 1e6);
    if (device->busy_us > HEAT_MS * UINT64_C(1000))
        device->busy_us = HEAT_MS * UINT64_C(1000);
    return (FULL_W * busy_s + IDLE_W * (period_s - busy_s)) / period_s;
}

static void heat_look(struct world *w, struct node *node, uint32_t index)
{
    assert(node->devices);
    struct made_up_device *device = &node->devices[index];
    const double power_w = heat_pass(node, device);
    const uint64_t mc = (uint64_t)fmax(device->body.temperature_c * 1000, 0);
    const struct thermal_input input = {
        .sample = {.time_ns = w->now_ms * 1000000,
                   .temperature_mc = {round(device->body.temperature_c) * 1000, true},
                   .power_mw = {round(power_w * 1000), true}},
    };
    const double before = device->duty;
    device->duty = thermal_governor_step(&device->governor, &input).duty;
    if (thermal_permille(before) / 100 != thermal_permille(device->duty) / 100)
        world_say(w, "%s: d%u has %.1f C, its duty is %u %%", node->name, index,
                  device->body.temperature_c, thermal_permille(device->duty) / 10);
    if (device->duty < 1 && host_computes(node, index))
        w->result->throttled_ms += HEAT_MS;
    if (mc > w->result->hottest_mc)
        w->result->hottest_mc = mc;
    if (device->body.throttled)
        world_violated(w, "%s: device d%u reached its limit of %.0f C", node->name, index,
                       device->plant.limit_c);
}

/* Metal does not care whether its node runs; the governor does, but then nothing computes. */
void heat_sample(struct world *w, struct node *node)
{
    const double air_s = (double)w->scenario->air_s,
                 left = air_s > 0 ? exp(-(double)HEAT_MS * 1e-3 / air_s) : 0;
    node->air_now_k = node->air_k + (node->air_now_k - node->air_k) * left;
    for (uint64_t i = 0; i < w->scenario->nodes[node->index].devices; i++)
        heat_look(w, node, (uint32_t)i);
    heat_next(w, node, HEAT_MS);
}

uint64_t heat_work_ms(struct node *node, uint32_t index, uint64_t ms)
{
    assert(index < SCENARIO_DEVICES);
    if (!node->devices)
        return ms;
    struct made_up_device *device = &node->devices[index];
    device->busy_us += ms * 1000;
    return ms * 1000 / thermal_permille(fmax(device->duty, DUTY_LEAST));
}

/* As placing/placing_describe.c. */
void heat_say(const struct world *w, const struct node *node, struct said *out)
{
    for (uint64_t i = 0; i < w->scenario->nodes[node->index].devices; i++) {
        out->share[i] = node->devices ? node->devices[i].duty : 1;
        out->headroom[i] = 1;
        if (!node->devices)
            continue;
        const double stop_c = node->devices[i].governor.lines.stop_c;
        const double left = (stop_c - node->devices[i].body.temperature_c) / (stop_c - AIR_C);
        out->headroom[i] = fmin(fmax(left, 0), 1);
        out->prospects[i] = node->devices[i].governor.action.prospect;
    }
}
