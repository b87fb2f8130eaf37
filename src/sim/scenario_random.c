/* A scenario drawn from a seed: unlike machines, one or two instances that fit twice, streams, and
 * a few faults a minute, some at once. */
#include "sim/scenario.h"

#include "base/mem.h"
#include "base/random.h"

#include <assert.h>

struct dice {
    uint64_t seed, at;
};

static uint64_t scenario_draw(struct dice *d, uint64_t from,
                              uint64_t to) /* both ends are possible */
{
    return from + random_at(d->seed, d->at++) % (to - from + 1);
}

static void draw_nodes(struct dice *d, struct scenario *s, uint32_t first)
{
    for (uint32_t i = first; i < s->n_nodes; i++) {
        s->nodes[i] = (struct scenario_node){
            .devices = scenario_draw(d, 0, 3) == 0 ? 2 : 1,
            .memory_mib = scenario_draw(d, 2, 24) * 1024,
            .gb_per_s = scenario_draw(d, 20, 800),
            .load_mib_per_s = scenario_draw(d, 300, 6000),
            .disk_ms = scenario_draw(d, 1, scenario_draw(d, 0, 3) == 0 ? 200 : 15),
            .joins_ms = scenario_draw(d, 0, 2) == 0 ? scenario_draw(d, 0, 20000)
                                                    : scenario_draw(d, 0, 1000),
            .has_weights = i == 0 || scenario_draw(d, 0, 2) > 0};
    }
    s->nodes[0].joins_ms = 0;
    for (uint32_t i = first; i < s->n_nodes; i++) {
        struct scenario_node *node = &s->nodes[i];
        node->limit_c = 90, node->tau_s = 60;
        if (scenario_draw(d, 0, 1) == 0)
            continue;
        node->load_c = scenario_draw(d, 50, 130);
        node->limit_c = scenario_draw(d, 80, 105);
        node->tau_s = scenario_draw(d, 20, 300);
    }
}

static void draw_instances(struct dice *d, struct scenario *s)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < s->n_nodes; i++)
        total += s->nodes[i].devices * s->nodes[i].memory_mib;
    for (uint32_t i = 0; i < s->n_instances; i++) {
        const uint64_t layers = scenario_draw(d, 6, 40),
                       share = total * scenario_draw(d, 5, 45) / 100 / s->n_instances;
        s->instances[i] =
            (struct scenario_instance){.layers = layers, .layer_mib = share / layers + 1};
        if (s->instances[i].layer_mib > 1024) /* a layer is on one device */
            s->instances[i].layer_mib = 1024;
        if (scenario_draw(d, 0, 3) == 0)
            s->instances[i].idle_ms = scenario_draw(d, 3000, 20000);
    }
}

static void draw_streams(struct dice *d, struct scenario *s)
{
    assert(s->n_nodes && s->n_instances);
    for (uint32_t i = 0; i < s->n_streams; i++) {
        s->streams[i] =
            (struct scenario_stream){.node = scenario_draw(d, 0, s->n_nodes - 1),
                                     .instance = scenario_draw(d, 0, s->n_instances - 1),
                                     .start_ms = scenario_draw(d, 0, 10000),
                                     .pause_ms = scenario_draw(d, 100, 8000),
                                     .requests = 1000000,
                                     .prompt = scenario_draw(d, 1, 64),
                                     .tokens = scenario_draw(d, 10, 200)};
    }
}

static void draw_fault(struct dice *d, const struct scenario *s, struct scenario_fault *fault)
{
    assert(s->n_nodes && s->chaos_ms);
    /* Kills are what it is about. */
    const uint64_t kind = scenario_draw(d, 0, FAULT_TYPES + 2);
    fault->kind = kind < FAULT_TYPES ? kind : kind == FAULT_TYPES ? FAULT_POWER : FAULT_KILL;
    fault->at_ms = scenario_draw(d, 1000, s->chaos_ms > 2000 ? s->chaos_ms - 1000 : 1000);
    fault->for_ms =
        scenario_draw(d, 0, 3) ? scenario_draw(d, 50, 8000) : scenario_draw(d, 50, 40000);
    fault->node = scenario_draw(d, 0, s->n_nodes - 1);
    fault->other =
        (fault->node + (s->n_nodes > 1 ? scenario_draw(d, 1, s->n_nodes - 1) : 0)) % s->n_nodes;
    switch ((enum scenario_fault_type)fault->kind) {
    case FAULT_LOSS:
    case FAULT_DOUBLE:
        fault->amount = scenario_draw(d, 1000, 300000);
        break;
    case FAULT_SLOW:
        fault->amount = scenario_draw(d, 10, 500);
        break;
    case FAULT_SLOW_DISK:
        fault->amount = scenario_draw(d, 50, 2000);
        break;
    case FAULT_DEVICE:
    case FAULT_RUNNER:
        fault->amount = scenario_draw(d, 0, s->nodes[fault->node].devices - 1);
        break;
    case FAULT_SPLIT:
        fault->amount = scenario_draw(d, 0, 1000000);
        break;
    case FAULT_HEAT:
        fault->amount = scenario_draw(d, 5, 40);
        break;
    case FAULT_MEMORY:
        fault->amount = scenario_draw(d, 0, s->nodes[fault->node].memory_mib);
        break;
    case FAULT_CLOCK:
        fault->amount = scenario_draw(d, 1, scenario_draw(d, 0, 1) ? 10000 : 100000000);
        break;
    case FAULT_CUT:
    case FAULT_CUT_ONE:
        if (fault->other == fault->node)
            fault->kind = FAULT_PAUSE;
        break;
    case FAULT_KILL:
    case FAULT_POWER:
    case FAULT_PAUSE:
    case FAULT_ISOLATE:
    case FAULT_FULL_DISK:
    case FAULT_LOST_DISK:
    case FAULT_TYPES:
        break;
    }
}

enum error_code scenario_random(const struct scenario_wish *wish, struct scenario *out,
                                struct error *err)
{
    struct dice d = {.seed = random_mix(wish->seed ^ 0x5ce0a410)};
    *out = (struct scenario){
        .seed = wish->seed, .settle_ms = 180000, .patience_ms = 600000, .fits = 1};
    out->chaos_ms = wish->chaos_ms ? wish->chaos_ms : 60000;
    out->grace_ms = scenario_draw(&d, 0, 2) ? 30000 : 4000;
    out->snapshot_after = scenario_draw(&d, 0, 1) ? 512 : scenario_draw(&d, 5, 40);
    out->delay_ms = scenario_draw(&d, 0, 8);
    if (wish->nodes > 64)
        out->snapshot_after =
            512; /* small logs are for small clusters: a snapshot of many nodes is large */
    out->n_nodes = wish->nodes ? wish->nodes : (uint32_t)scenario_draw(&d, 3, 7);
    out->n_instances = (uint32_t)scenario_draw(&d, 1, 2);
    out->n_streams = (uint32_t)scenario_draw(&d, 1, 4);
    out->n_faults = (uint32_t)(scenario_draw(&d, 1, 2 + out->chaos_ms / 5000));
    if (out->n_faults > SCENARIO_FAULTS)
        out->n_faults = SCENARIO_FAULTS;
    out->nodes = mem_new_array((size_t)out->n_nodes + wish->hostile, sizeof *out->nodes);
    out->instances = mem_new_array(out->n_instances, sizeof *out->instances);
    out->streams = mem_new_array(out->n_streams, sizeof *out->streams);
    out->faults = mem_new_array(out->n_faults, sizeof *out->faults);
    if (!out->nodes || !out->instances || !out->streams || !out->faults) {
        scenario_deinit(out);
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for a scenario");
    }
    draw_nodes(&d, out, 0);
    draw_instances(&d, out);
    draw_streams(&d, out);
    for (uint32_t i = 0; i < out->n_faults; i++)
        draw_fault(&d, out, &out->faults[i]);
    const uint32_t n_honest = out->n_nodes; /* all fits, also without the others */
    out->n_nodes += wish->hostile;
    draw_nodes(&d, out, n_honest);
    for (uint32_t i = n_honest; i < out->n_nodes; i++)
        out->nodes[i].hostile = 1;
    return ERROR_NONE;
}
