#include "placement/replicas_units.h"

#include "base/mem.h"
#include "placement/cost.h"

#include <math.h>
#include <string.h>

/* ---- devices that are alike ------------------------------------------------------------- */

static bool same_numbers(const struct placement_device *a, const struct placement_device *b)
{
    return a->memory_free_bytes == b->memory_free_bytes && a->reserve_bytes == b->reserve_bytes &&
           !memcmp(a->decode_bytes_per_s, b->decode_bytes_per_s, sizeof a->decode_bytes_per_s) &&
           !memcmp(a->prefill_flops, b->prefill_flops, sizeof a->prefill_flops) &&
           a->kv_bytes_per_s == b->kv_bytes_per_s && a->launch_s == b->launch_s &&
           a->copy_bytes_per_s == b->copy_bytes_per_s && a->share == b->share;
}

static bool replicas_units_same_link(const struct placement_link *a, const struct placement_link *b)
{
    return a->latency_s == b->latency_s && a->bytes_per_s == b->bytes_per_s;
}

static bool replicas_units_alike(const struct placement_problem *problem, uint32_t a, uint32_t b)
{
    if (!same_numbers(&problem->devices[a], &problem->devices[b]) ||
        !replicas_units_same_link(placement_link(problem, a, b), placement_link(problem, b, a)))
        return false;
    for (uint32_t d = 0; d < problem->n_devices; d++) {
        if (d != a && d != b &&
            !(replicas_units_same_link(placement_link(problem, a, d),
                                       placement_link(problem, b, d)) &&
              replicas_units_same_link(placement_link(problem, d, a),
                                       placement_link(problem, d, b))))
            return false;
    }
    return true;
}

/* ---- blocks ------------------------------------------------------------------------------- */

struct replica_block {
    uint64_t bytes; /* of memory */
    uint32_t into;  /* the block that a device belongs to; of a block itself, itself */
};

struct blocks {
    const struct placement_problem *problem;
    const bool *able;
    uint32_t n;                   /* there are */
    struct replica_block *blocks; /* [n_devices]: each device begins as one */
};

static void replicas_units_merge(struct blocks *blocks, uint32_t from, uint32_t to)
{
    for (uint32_t d = 0; d < blocks->problem->n_devices; d++) {
        if (blocks->able[d] && blocks->blocks[d].into == from)
            blocks->blocks[d].into = to;
    }
    blocks->blocks[to].bytes += blocks->blocks[from].bytes;
    blocks->n--;
}

static bool is_block(const struct blocks *blocks, uint32_t device)
{
    return blocks->able[device] && blocks->blocks[device].into == device;
}

static uint32_t smallest_of(const struct blocks *blocks)
{
    uint32_t smallest = UINT32_MAX;
    for (uint32_t d = 0; d < blocks->problem->n_devices; d++) {
        if (is_block(blocks, d) &&
            (smallest == UINT32_MAX || blocks->blocks[d].bytes < blocks->blocks[smallest].bytes))
            smallest = d;
    }
    return smallest;
}

/* The block that it is there and back from soonest; where there is no way, any. */
static uint32_t nearest_to(const struct blocks *blocks, uint32_t block)
{
    const struct placement_problem *problem = blocks->problem;
    uint32_t nearest = UINT32_MAX;
    double least_s = INFINITY;
    for (uint32_t from = 0; from < problem->n_devices; from++) {
        if (!blocks->able[from] || blocks->blocks[from].into != block)
            continue;
        for (uint32_t to = 0; to < problem->n_devices; to++) {
            if (!blocks->able[to] || blocks->blocks[to].into == block)
                continue;
            const double seconds =
                placement_hop_s(problem, from, to, 1) + placement_hop_s(problem, to, from, 1);
            if (nearest == UINT32_MAX || seconds < least_s) {
                least_s = seconds;
                nearest = blocks->blocks[to].into;
            }
        }
    }
    return nearest;
}

static void join_nodes(struct blocks *blocks)
{
    const struct placement_device *devices = blocks->problem->devices;
    for (uint32_t d = 0; d < blocks->problem->n_devices; d++) {
        for (uint32_t e = 0; e < d && is_block(blocks, d); e++) {
            if (is_block(blocks, e) && !strcmp(devices[d].node, devices[e].node))
                replicas_units_merge(blocks, d, e);
        }
    }
}

/* ---- units -------------------------------------------------------------------------------- */

static double steps_of(const struct replicas_units *units)
{
    double steps = 1;
    for (uint32_t i = 0; i < units->n_units; i++)
        steps *= (units->units[i].copies + 1.0) * (units->units[i].copies + 2.0) / 2;
    return steps;
}

static double states_of(const struct replicas_units *units)
{
    double states = 1;
    for (uint32_t i = 0; i < units->n_units; i++)
        states *= units->units[i].copies + 1.0;
    return states;
}

/* One unit for each class of devices that are alike; false where that is too much. */
static bool count_alike(struct replicas_units *units, const struct placement_problem *problem,
                        const bool *able, bool *taken, double max_steps)
{
    for (uint32_t d = 0; d < problem->n_devices; d++) {
        if (!able[d] || taken[d])
            continue;
        if (units->n_units == REPLICAS_UNITS)
            return false;
        struct replicas_unit *unit = &units->units[units->n_units++];
        *unit = (struct replicas_unit){.first = units->n_devices, .size = 1};
        for (uint32_t e = d; e < problem->n_devices; e++) {
            if (able[e] && !taken[e] && (e == d || replicas_units_alike(problem, d, e))) {
                taken[e] = true;
                units->devices[units->n_devices++] = e;
                unit->copies++;
            }
        }
        if (steps_of(units) > max_steps || states_of(units) > (double)REPLICAS_STATES ||
            unit->copies > UINT8_MAX)
            return false;
    }
    return true;
}

static void list_blocks(struct replicas_units *units, const struct blocks *blocks)
{
    units->n_units = units->n_devices = 0;
    units->merged = true;
    for (uint32_t d = 0; d < blocks->problem->n_devices; d++) {
        if (!is_block(blocks, d))
            continue;
        struct replicas_unit *unit = &units->units[units->n_units++];
        *unit = (struct replicas_unit){.first = units->n_devices, .copies = 1};
        for (uint32_t e = 0; e < blocks->problem->n_devices; e++) {
            if (blocks->able[e] && blocks->blocks[e].into == d)
                units->devices[units->n_devices++] = e;
        }
        unit->size = units->n_devices - unit->first;
    }
}

static enum error_code make_blocks(struct replicas_units *units,
                                   const struct placement_problem *problem, const bool *able,
                                   double max_steps, struct error *err)
{
    struct blocks blocks = {.problem = problem, .able = able};
    blocks.blocks = mem_new_array(problem->n_devices, sizeof *blocks.blocks);
    if (!blocks.blocks)
        return error_set(err, ERROR_NO_MEMORY,
                         "placement: not enough memory for blocks of %u devices",
                         problem->n_devices);
    for (uint32_t d = 0; d < problem->n_devices; d++) {
        blocks.blocks[d] = (struct replica_block){placement_device_bytes(&problem->devices[d]), d};
        blocks.n += able[d];
    }
    uint32_t most = 1; /* blocks: 2^n sets, 3^n pairs */
    while (pow(3, most + 1) <= max_steps && pow(2, most + 1) <= (double)REPLICAS_STATES)
        most++;
    join_nodes(&blocks);
    while (blocks.n > most) {
        const uint32_t smallest = smallest_of(&blocks);
        replicas_units_merge(&blocks, smallest, nearest_to(&blocks, smallest));
    }
    list_blocks(units, &blocks);
    mem_free(blocks.blocks);
    return ERROR_NONE;
}

static enum error_code list_states(struct replicas_units *units, struct error *err)
{
    units->n_states = 1;
    for (uint32_t i = 0; i < units->n_units; i++) {
        units->units[i].step = units->n_states;
        units->n_states *= units->units[i].copies + 1;
    }
    units->counts = mem_new_array(units->n_states, units->n_units + 1);
    if (!units->counts)
        return error_set(err, ERROR_NO_MEMORY, "placement: not enough memory for %u sets",
                         units->n_states);
    for (uint32_t state = 0; state < units->n_states; state++) {
        for (uint32_t i = 0; i < units->n_units; i++)
            units->counts[state * units->n_units + i] =
                (uint8_t)(state / units->units[i].step % (units->units[i].copies + 1));
    }
    return ERROR_NONE;
}

enum error_code replicas_units_init(struct replicas_units *units,
                                    const struct placement_problem *problem, const bool *able,
                                    double max_steps, struct error *err)
{
    *units = (struct replicas_units){0};
    units->devices = mem_new_array(problem->n_devices, sizeof *units->devices);
    bool *taken = mem_new(problem->n_devices);
    enum error_code code = ERROR_NONE;
    if (!units->devices || !taken)
        code =
            error_set(err, ERROR_NO_MEMORY, "placement: not enough memory for groups of %u devices",
                      problem->n_devices);
    else if (!count_alike(units, problem, able, taken, max_steps))
        code = make_blocks(units, problem, able, max_steps, err);
    if (!code)
        code = list_states(units, err);
    mem_free(taken);
    if (code)
        replicas_units_deinit(units);
    return code;
}

void replicas_units_deinit(struct replicas_units *units)
{
    mem_free(units->devices);
    mem_free(units->counts);
    *units = (struct replicas_units){0};
}

bool replicas_contains(const struct replicas_units *units, uint32_t set, uint32_t part)
{
    for (uint32_t i = 0; i < units->n_units; i++) {
        if (units->counts[part * units->n_units + i] > units->counts[set * units->n_units + i])
            return false;
    }
    return true;
}
