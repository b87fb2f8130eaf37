#include "placement_world.h"

#include "base/random.h"
#include "placement/check.h"
#include "placement/cost.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

double world_random(struct world *world)
{
    return random_unit_at(world->seed, world->counter++);
}

static void make_layers(struct world *world, bool mixed)
{
    struct placement_model *model = &world->problem.model;
    const double size = 20e6 + 400e6 * world_random(world);
    for (uint32_t i = 0; i < model->n_layers; i++) {
        struct placement_layer *layer = &world->layers[i];
        const uint32_t type = mixed && world_random(world) < 0.2;
        const uint64_t bytes = (uint64_t)(size * (mixed ? 0.8 + 0.4 * world_random(world) : 1));
        layer->bytes[type] = layer->bytes_per_token[type] = bytes;
        layer->flops_per_token[type] = (double)bytes * 3.5;
        layer->flops_per_token_per_context = 4 * 4096;
        layer->kv_bytes_per_token = 4096;
    }
    model->layers = world->layers;
    model->output.bytes[1] = model->output.bytes_per_token[1] = (uint64_t)(size * 1.5);
    model->output.flops_per_token[1] = size * 3;
    model->input.bytes[1] = world_random(world) < 0.5 ? model->output.bytes[1] : 0;
    model->input.bytes_per_token[1] = model->input.bytes[1] / 100000;
    model->tied_bytes = world_random(world) < 0.5 ? model->input.bytes[1] : 0;
    model->activation_bytes_per_token = 8192;
    model->compute_bytes = (uint64_t)(size * 0.3);
    model->compute_output_bytes = (uint64_t)(size * 0.2);
}

static void make_device(struct world *world, uint32_t i, struct world_shape shape,
                        double memory_bytes)
{
    struct placement_device *device = &world->devices[i];
    if (i && world_random(world) < shape.twins) {
        *device = device[-1];
    } else {
        const double speed = pow(10, 10 + 2 * world_random(world)); /* 10 GB/s … 1 TB/s */
        *device = (struct placement_device){.memory_free_bytes =
                                                (uint64_t)(memory_bytes * 2 * world_random(world)),
                                            .reserve_bytes = 1 << 20,
                                            .launch_s = 1e-4 * world_random(world),
                                            .share = 0.5 + 0.5 * world_random(world),
                                            .thermal_headroom = world_random(world),
                                            .measured = true};
        for (uint32_t type = 0; type < 2; type++) {
            device->decode_bytes_per_s[type] = speed * (type ? 1 : 0.9);
            device->prefill_flops[type] = speed * (20 + 100 * world_random(world));
        }
        if (shape.mixed_types && world_random(world) < 0.2)
            device->decode_bytes_per_s[0] = 0;
        snprintf(device->node, sizeof device->node, "node%u", (unsigned)(i * world_random(world)));
    }
    snprintf(device->id, sizeof device->id, "device%u", i);
}

void world_make(struct world *world, uint64_t seed, struct world_shape shape)
{
    memset(world, 0, sizeof *world);
    world->seed = seed;
    struct placement_problem *problem = &world->problem;
    problem->n_devices = shape.n_devices;
    problem->devices = world->devices;
    problem->links = world->links;
    problem->model.n_types = 2;
    problem->model.n_layers = shape.n_layers;
    problem->demand = (struct placement_demand){.context_tokens = 4096, .streams = 1};
    make_layers(world, shape.mixed_types);
    double bytes = 0;
    for (uint32_t i = 0; i < shape.n_layers; i++)
        bytes += (double)placement_layer_bytes(problem, i);
    for (uint32_t i = 0; i < shape.n_devices; i++)
        make_device(world, i, shape, bytes * shape.tightness / shape.n_devices);
    const double lan = world_random(world) < 0.3 ? 20e6 : world_random(world) < 0.6 ? 115e6 : 1.1e9;
    for (uint32_t i = 0; i < shape.n_devices; i++) {
        for (uint32_t j = 0; j < shape.n_devices; j++) {
            struct placement_link *link = &world->links[i * shape.n_devices + j];
            const bool near = !strcmp(world->devices[i].node, world->devices[j].node);
            *link = near ? (struct placement_link){1e-5, 1e10} : (struct placement_link){3e-4, lan};
            if (!near && shape.mixed_types) /* every cable another */
                link->latency_s *= 1 + 9 * world_random(world);
            if (i != j && world_random(world) < shape.links_missing)
                link->bytes_per_s = 0;
        }
    }
}

static void choose_goal(struct world *world, struct world *dice)
{
    struct placement_demand *demand = &world->problem.demand;
    const double goal = world_random(dice);
    if (goal < 0.4)
        return;
    demand->goal = goal < 0.7 ? PLACEMENT_THROUGHPUT : PLACEMENT_MIX;
    demand->streams = 1 + (uint32_t)(world_random(dice) * 16);
    demand->micro_batches = (uint32_t)(world_random(dice) * 6);
    demand->busy = round(world_random(dice) * 8) / 8;
}

void world_make_any(struct world *world, uint64_t seed, struct world_range range)
{
    struct world dice = {.seed = ~seed};
    const double layers = world_random(&dice), devices = world_random(&dice);
    const struct world_shape shape = {
        .n_devices =
            range.devices_min + (uint32_t)(devices * (range.devices_max - range.devices_min + 1)),
        .n_layers =
            range.layers_min + (uint32_t)(layers * (range.layers_max - range.layers_min + 1)),
        .tightness = 0.6 + 3 * world_random(&dice),
        .links_missing = world_random(&dice) < 0.5 ? 0 : 0.5 * world_random(&dice),
        .twins = world_random(&dice) < 0.5 ? 0 : 0.5,
        .mixed_types = world_random(&dice) < 0.5,
    };
    world_make(world, seed, shape);
    choose_goal(world, &dice);
    world->problem.model.expert_share = world_random(&dice) < 0.3 ? 0.1 : 0;
    for (uint32_t i = 0; i < shape.n_layers && world->problem.model.expert_share > 0; i++)
        world->layers[i].bytes_per_token[0] /= 3;
}

struct force {
    const struct placement_problem *problem;
    struct placement placement;
    double best_s;
    bool as_run;
};

static void place_rest(struct force *force, uint32_t first_layer)
{
    const struct placement_problem *problem = force->problem;
    struct placement *placement = &force->placement;
    if (first_layer == problem->model.n_layers) {
        struct placement_problem own = *problem;
        if (force->as_run)
            own.demand.micro_batches = placement->n_stages;
        if (placement_check(problem, placement, NULL) == ERROR_NONE)
            force->best_s =
                fmin(force->best_s, placement_decode_cost(&own, placement).objective_s *
                                        (force->as_run ? placement_micro_batches(&own) : 1));
        return;
    }
    for (uint32_t d = 0; d < problem->n_devices; d++) {
        bool used = false;
        for (uint32_t i = 0; i < placement->n_stages; i++)
            used |= placement->stages[i].device == d;
        for (uint32_t n = 1; !used && first_layer + n <= problem->model.n_layers; n++) {
            placement->stages[placement->n_stages++] = (struct placement_stage){d, first_layer, n};
            place_rest(force, first_layer + n);
            placement->n_stages--;
        }
    }
}

double world_brute_force(const struct placement_problem *problem)
{
    struct force force = {.problem = problem, .best_s = INFINITY};
    place_rest(&force, 0);
    return force.best_s;
}

double world_brute_force_as_run(const struct placement_problem *problem)
{
    struct force force = {.problem = problem, .best_s = INFINITY, .as_run = true};
    place_rest(&force, 0);
    return force.best_s;
}

/* ---- groups --------------------------------------------------------------------------- */

enum { DIVIDED_DEVICES = 6, DIVIDED_STREAMS = 8 };

struct division {
    struct placement_problem problem;
    struct placement_device devices[DIVIDED_DEVICES];
    double (*rate)(const struct placement_problem *);
    double known[1 << DIVIDED_DEVICES][DIVIDED_STREAMS + 1]; /* -1: not yet */
};

static double rate_of(struct division *division, const struct placement_problem *problem,
                      uint32_t set, uint32_t streams)
{
    double *known = &division->known[set][streams];
    if (*known < 0) {
        for (uint32_t d = 0; d < problem->n_devices; d++)
            division->devices[d].excluded = problem->devices[d].excluded || !(set >> d & 1);
        division->problem.demand.streams = streams;
        *known = division->rate(&division->problem);
    }
    return *known > 0 ? *known : -INFINITY;
}

static double divide(struct division *division, const struct placement_problem *problem,
                     uint32_t set, uint32_t streams)
{
    const uint32_t lowest = set & -set;
    if (streams == 0 || set == 0)
        return streams ? -INFINITY : 0;
    double best = divide(division, problem, set ^ lowest, streams); /* not used */
    for (uint32_t group = set; group; group = (group - 1) & set) {
        for (uint32_t own = 1; group & lowest && own <= streams; own++)
            best = fmax(best, rate_of(division, problem, group, own) +
                                  divide(division, problem, set ^ group, streams - own));
    }
    return best;
}

double world_all_divisions(const struct placement_problem *problem,
                           double (*rate)(const struct placement_problem *))
{
    static struct division division;
    division.problem = *problem;
    division.problem.devices = division.devices;
    division.rate = rate;
    if (problem->n_devices > DIVIDED_DEVICES || problem->demand.streams > DIVIDED_STREAMS)
        return NAN;
    memcpy(division.devices, problem->devices, problem->n_devices * sizeof *division.devices);
    for (uint32_t set = 0; set < 1 << DIVIDED_DEVICES; set++) {
        for (uint32_t streams = 0; streams <= DIVIDED_STREAMS; streams++)
            division.known[set][streams] = -1;
    }
    return divide(&division, problem, (UINT32_C(1) << problem->n_devices) - 1,
                  problem->demand.streams);
}
