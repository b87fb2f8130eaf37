#include "house.h"

#include "base/random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GIB 0x1p30

struct network {
    double latency_s, bytes_per_s;
};

static double dice(struct house *house)
{
    return random_unit_at(house->seed, house->counter++);
}

static double between(struct house *house, double low, double high)
{
    return low + (high - low) * dice(house);
}

static void add_device(struct house *house, uint32_t machine, double gib, double gb_per_s,
                       double flops_per_byte)
{
    struct placement_problem *problem = &house->problem;
    struct placement_device *device = &house->devices[problem->n_devices];
    *device = (struct placement_device){.memory_free_bytes =
                                            (uint64_t)(gib * GIB * between(house, 0.8, 0.95)),
                                        .reserve_bytes = 256 << 20,
                                        .launch_s = between(house, 2e-5, 2e-4),
                                        .share = dice(house) < 0.8 ? 1 : between(house, 0.5, 1),
                                        .thermal_headroom = dice(house),
                                        .measured = true};
    for (uint32_t type = 0; type < 2; type++) {
        device->decode_bytes_per_s[type] = gb_per_s * 1e9 * between(house, 0.75, 0.95);
        device->prefill_flops[type] = device->decode_bytes_per_s[type] * flops_per_byte;
    }
    snprintf(device->node, sizeof device->node, "machine%u", machine);
    snprintf(device->id, sizeof device->id, "device%u", problem->n_devices++);
}

static void add_machine(struct house *house, uint32_t machine, uint32_t n_devices)
{
    static const double cards[] = {8, 12, 16, 24};
    const double kind = dice(house);
    if (kind < 0.25) {
        const uint32_t n_cards = dice(house) < 0.2 ? 2 : 1;
        for (uint32_t i = 0; i < n_cards && house->problem.n_devices < n_devices; i++)
            add_device(house, machine, cards[(int)(4 * dice(house))], between(house, 250, 1000),
                       200);
        if (house->problem.n_devices < n_devices)
            add_device(house, machine, 32, between(house, 40, 80), 20);
    } else if (kind < 0.4) {
        add_device(house, machine, 16 * (1 + (int)(4 * dice(house))), between(house, 100, 400), 60);
    } else if (kind < 0.7) {
        add_device(house, machine, 12, between(house, 40, 100), 20);
    } else if (kind < 0.9) {
        add_device(house, machine, 24, between(house, 30, 70), 15);
    } else {
        add_device(house, machine, 6, between(house, 8, 15), 10);
    }
}

static struct network choose_network(struct house *house)
{
    const double kind = dice(house);
    if (kind < 0.05)
        return (struct network){between(house, 3e-5, 6e-5), 1.1e9};
    if (kind < 0.2)
        return (struct network){between(house, 5e-5, 1e-4), 280e6};
    if (kind < 0.7)
        return (struct network){between(house, 8e-5, 2e-4), 115e6};
    return (struct network){between(house, 1.5e-3, 4e-3), between(house, 20e6, 80e6)};
}

static void add_links(struct house *house, const struct network *networks, const uint32_t *machines)
{
    const uint32_t n = house->problem.n_devices;
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t j = 0; j < n; j++) {
            const struct network *a = &networks[machines[i]], *b = &networks[machines[j]];
            struct placement_link *link = &house->links[(uint64_t)i * n + j];
            if (machines[i] == machines[j])
                *link = (struct placement_link){between(house, 1e-5, 3e-5), 1e10};
            else
                *link = (struct placement_link){
                    (a->latency_s + b->latency_s) * between(house, 1, 1.1),
                    fmin(a->bytes_per_s, b->bytes_per_s) * between(house, 0.9, 1)};
        }
    }
}

static void make_model(struct house *house, uint32_t n_layers)
{
    struct placement_model *model = &house->problem.model;
    const double mean = n_layers > 100 ? 230e9 / n_layers : 0.5e9;
    model->n_types = 2;
    model->n_layers = n_layers;
    model->layers = house->layers;
    for (uint32_t i = 0; i < n_layers; i++) {
        const bool heavy = i < n_layers / 8 || i >= n_layers - n_layers / 8 || i % 3 == 0;
        struct placement_layer *layer = &house->layers[i];
        const double more = mean * (heavy ? 0.35 : 0.20);
        layer->bytes[0] = layer->bytes_per_token[0] = (uint64_t)(mean * 0.72);
        layer->bytes[1] = layer->bytes_per_token[1] = (uint64_t)more;
        layer->flops_per_token[0] = mean * 0.72 * 3.6;
        layer->flops_per_token[1] = more * 2.4;
        layer->flops_per_token_per_context = 4 * 16384;
        layer->kv_bytes_per_token = 4096;
    }
    model->output.bytes[1] = model->output.bytes_per_token[1] = (uint64_t)(1.5 * mean);
    model->output.flops_per_token[1] = 3.6 * mean;
    model->activation_bytes_per_token = n_layers > 100 ? 32768 : 16384;
    model->compute_bytes = 300 << 20;
    model->compute_output_bytes = 64 << 20;
}

void house_make(struct house *house, uint64_t seed, uint32_t n_devices, uint32_t n_layers)
{
    *house = (struct house){.seed = seed};
    house->devices = calloc(n_devices, sizeof *house->devices);
    house->links = calloc((size_t)n_devices * n_devices, sizeof *house->links);
    house->layers = calloc(n_layers, sizeof *house->layers);
    struct network *networks = calloc(n_devices, sizeof *networks);
    uint32_t *machines = calloc(n_devices, sizeof *machines);
    if (!house->devices || !house->links || !house->layers || !networks || !machines)
        exit(1);
    for (uint32_t machine = 0; house->problem.n_devices < n_devices; machine++) {
        const uint32_t first = house->problem.n_devices;
        networks[machine] = choose_network(house);
        add_machine(house, machine, n_devices);
        for (uint32_t i = first; i < house->problem.n_devices; i++)
            machines[i] = machine;
    }
    add_links(house, networks, machines);
    make_model(house, n_layers);
    house->problem.devices = house->devices;
    house->problem.links = house->links;
    house->problem.demand = (struct placement_demand){.context_tokens = 8192, .streams = 1};
    free(networks);
    free(machines);
}

void house_deinit(struct house *house)
{
    free(house->devices);
    free(house->links);
    free(house->layers);
    *house = (struct house){0};
}
