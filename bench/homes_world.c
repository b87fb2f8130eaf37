#include "homes_world.h"

#include "base/random.h"
#include "placement/cost.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static double draw(struct home *home)
{
    return random_unit_at(home->seed, home->counter++);
}

static double between(struct home *home, double low, double high)
{
    return low + (high - low) * draw(home);
}

/* ---- devices: data sheets ------------------------------------------------------------- */

enum kind { CARD, APPLE, UNIFIED, PROCESSOR, BOARD };

/* Of the data sheet's bandwidth and FLOP/s, what decoding and prefill reach; and what one launch
 * takes. A board's memory controller reaches less than a PC's. */
static const struct {
    double decode, prefill, launch_s;
} REACHED[] = {
    [CARD] = {0.70, 0.45, 150e-6},    [APPLE] = {0.75, 0.55, 200e-6},
    [UNIFIED] = {0.65, 0.35, 200e-6}, [PROCESSOR] = {0.65, 0.50, 50e-6},
    [BOARD] = {0.50, 0.50, 100e-6},
};

struct part {
    const char *name;
    double weight;
    enum kind kind;
    double gb_per_s, tflops;
    double gib[4]; /* one of those; 0 ends the list */
};

static const struct part CARDS[] = {
    {"gtx1660s", 8, CARD, 336, 10, {6}},      {"rtx2060", 7, CARD, 336, 52, {6}},
    {"rtx3060", 14, CARD, 360, 51, {12}},     {"rtx3060ti", 7, CARD, 448, 65, {8}},
    {"rtx3070", 8, CARD, 448, 81, {8}},       {"rtx3080", 6, CARD, 760, 119, {10}},
    {"rtx3090", 4, CARD, 936, 142, {24}},     {"rtx4060", 12, CARD, 272, 61, {8}},
    {"rtx4060ti", 5, CARD, 288, 88, {8, 16}}, {"rtx4070", 8, CARD, 504, 117, {12}},
    {"rtx4080", 3, CARD, 717, 195, {16}},     {"rtx4090", 4, CARD, 1008, 330, {24}},
    {"rtx5090", 1, CARD, 1792, 420, {32}},    {"rx6700xt", 4, CARD, 384, 26, {12}},
    {"rx6800xt", 3, CARD, 512, 41, {16}},     {"rx7800xt", 3, CARD, 624, 75, {16}},
    {"rx7900xtx", 2, CARD, 960, 123, {24}},   {"a770", 1, CARD, 560, 138, {16}},
};

enum { CARDS_N = sizeof CARDS / sizeof *CARDS };

struct machine {
    const char *name;
    double weight;
    struct part main;      /* without a name: a card of CARDS, of which there are n_cards */
    struct part processor; /* beside a card */
    uint32_t n_cards;
    double wifi;        /* how likely */
    double nic_gbit[3]; /* one of those */
};

#define NONE {NULL, 0, CARD, 0, 0, {0}}
#define DESKTOP {"cpu", 1, PROCESSOR, 60, 1.0, {16, 32, 32, 64}}

static const struct machine MACHINES[] = {
    {"oldpc", 5, {"cpu", 1, PROCESSOR, 25.6, 0.3, {8, 16}}, NONE, 0, 0.2, {1}},
    {"officepc", 8, {"cpu", 1, PROCESSOR, 42.6, 0.5, {8, 16, 32}}, NONE, 0, 0.2, {1}},
    {"laptop", 12, {"cpu", 1, PROCESSOR, 51.2, 0.6, {8, 16, 16}}, NONE, 0, 0.75, {1}},
    {"newlaptop", 10, {"cpu", 1, PROCESSOR, 102.4, 1.0, {16, 32}}, NONE, 0, 0.75, {1}},
    {"gaminglaptop",
     9,
     {"rtx4060m", 1, CARD, 256, 60, {8}},
     {"cpu", 1, PROCESSOR, 76.8, 1.0, {16, 32}},
     0,
     0.6,
     {1}},
    {"macbookair", 9, {"metal", 1, APPLE, 84, 3.2, {8, 16, 16, 24}}, NONE, 0, 0.85, {1}},
    {"macbookpro", 6, {"metal", 1, APPLE, 185, 6.5, {16, 18, 32, 36}}, NONE, 0, 0.75, {1}},
    {"macbookmax", 3, {"metal", 1, APPLE, 405, 13.5, {32, 36, 64, 128}}, NONE, 0, 0.7, {1}},
    {"gamingpc", 18, NONE, DESKTOP, 1, 0.25, {1, 1, 2.5}},
    {"workstation", 1, NONE, DESKTOP, 2, 0, {1, 2.5, 10}},
    {"macmini", 4, {"metal", 1, APPLE, 105, 3.8, {8, 16, 24}}, NONE, 0, 0.3, {1, 1, 10}},
    {"macminipro", 1, {"metal", 1, APPLE, 273, 9.3, {24, 48, 64}}, NONE, 0, 0.2, {1, 10}},
    {"studiomax", 1, {"metal", 1, APPLE, 400, 12.5, {32, 64}}, NONE, 0, 0.1, {10}},
    {"studioultra", 1, {"metal", 1, APPLE, 800, 25, {64, 128, 192}}, NONE, 0, 0.1, {10}},
    {"n100", 3, {"cpu", 1, PROCESSOR, 38.4, 0.15, {8, 16}}, NONE, 0, 0.3, {1, 2.5}},
    {"minipc", 4, {"cpu", 1, PROCESSOR, 89.6, 1.0, {16, 32, 64}}, NONE, 0, 0.3, {2.5}},
    {"aimax", 1, {"gpu", 1, UNIFIED, 256, 59, {64, 128}}, NONE, 0, 0.2, {2.5, 10}},
    {"server", 3, {"cpu", 1, PROCESSOR, 42.6, 0.6, {16, 32, 64}}, NONE, 0, 0, {1, 1, 10}},
    {"pi4", 3, {"cpu", 1, BOARD, 12.8, 0.04, {4, 8}}, NONE, 0, 0.4, {1}},
    {"pi5", 4, {"cpu", 1, BOARD, 17.1, 0.12, {8, 16}}, NONE, 0, 0.4, {1}},
};

enum { MACHINES_N = sizeof MACHINES / sizeof *MACHINES };

static double one_of(struct home *home, const double *list, uint32_t n_max)
{
    uint32_t n = 0;
    while (n < n_max && list[n] > 0)
        n++;
    return list[(uint32_t)(draw(home) * n)];
}

/* Free for a model, in GiB: beside the desktop (cards), what macOS lets a GPU have (three quarters,
 * two thirds up to 36 GiB), or beside system and programs (processors). */
static double free_gib(struct home *home, enum kind kind, double gib)
{
    switch (kind) {
    case CARD:
        return gib - between(home, 0.4, 1.2);
    case APPLE:
        return gib * (gib > 36 ? 0.75 : 2.0 / 3);
    case UNIFIED:
        return gib * 0.75;
    case PROCESSOR:
        return gib - between(home, 2.5, 5);
    case BOARD:
        return gib - between(home, 0.6, 1.2);
    }
    return 0;
}

static void add_device(struct home *home, const struct machine *machine, const struct part *part,
                       uint32_t index, bool is_main)
{
    struct placement_device *device = &home->devices[home->problem.n_devices];
    const double specimen = between(home, 0.9, 1.1), gib = one_of(home, part->gib, 4);
    *device = (struct placement_device){
        .memory_free_bytes = (uint64_t)(free_gib(home, part->kind, gib) * 0x1p30),
        .launch_s = REACHED[part->kind].launch_s,
        .share = 1,
        .thermal_headroom = 1,
        .spread = 0.03,
        .measured = true,
    };
    device->decode_bytes_per_s[0] = part->gb_per_s * 1e9 * REACHED[part->kind].decode * specimen;
    device->prefill_flops[0] = part->tflops * 1e12 * REACHED[part->kind].prefill * specimen;
    snprintf(device->node, sizeof device->node, "%s%u", machine->name, home->n_machines);
    snprintf(device->id, sizeof device->id, "%s%u.%s%u", machine->name, home->n_machines,
             part->name, index);
    home->is_main[home->problem.n_devices++] = is_main;
}

static uint32_t draw_weighted(struct home *home, const double *weights, size_t stride, uint32_t n)
{
    double all = 0;
    for (uint32_t i = 0; i < n; i++)
        all += *(const double *)(const void *)((const char *)weights + i * stride);
    double left = draw(home) * all;
    for (uint32_t i = 0; i < n; i++) {
        left -= *(const double *)(const void *)((const char *)weights + i * stride);
        if (left < 0)
            return i;
    }
    return n - 1;
}

struct attachment {
    bool wifi;
    double latency_s, bytes_per_s;
};

static struct attachment add_machine(struct home *home, double switch_gbit)
{
    const struct machine *machine =
        &MACHINES[draw_weighted(home, &MACHINES->weight, sizeof *MACHINES, MACHINES_N)];
    if (machine->main.name) {
        add_device(home, machine, &machine->main, 0, true);
    } else {
        const struct part *card =
            &CARDS[draw_weighted(home, &CARDS->weight, sizeof *CARDS, CARDS_N)];
        for (uint32_t i = 0; i < machine->n_cards; i++)
            add_device(home, machine, card, i, true);
    }
    if (machine->processor.name)
        add_device(home, machine, &machine->processor, 0, false);
    home->n_machines++;
    if (draw(home) < machine->wifi)
        return (struct attachment){true, between(home, 0.8e-3, 2.5e-3), between(home, 12e6, 80e6)};
    /* 94 % of a cable are left beside headers. */
    const double gbit = fmin(switch_gbit, one_of(home, machine->nic_gbit, 3));
    return (struct attachment){false, between(home, 60e-6, 130e-6), gbit * 1e9 / 8 * 0.94};
}

static void link_all(struct home *home, const struct attachment *attachments)
{
    const uint32_t n = home->problem.n_devices;
    uint32_t machine_of[HOME_DEVICES] = {0};
    for (uint32_t i = 1; i < n; i++)
        machine_of[i] =
            machine_of[i - 1] + (strcmp(home->devices[i].node, home->devices[i - 1].node) != 0);
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t j = 0; j < n; j++) {
            const struct attachment *a = &attachments[machine_of[i]],
                                    *b = &attachments[machine_of[j]];
            struct placement_link *link = &home->links[i * n + j];
            if (a == b)
                *link = (struct placement_link){20e-6, 10e9};
            else
                *link = (struct placement_link){a->latency_s + b->latency_s,
                                                fmin(a->bytes_per_s, b->bytes_per_s) /
                                                    (a->wifi && b->wifi ? 2 : 1)};
        }
    }
}

/* ---- models: configuration files -------------------------------------------------------- */

static const struct model {
    const char *name;
    uint32_t layers, hidden, ff, heads, kv_heads, head_dim, vocab;
    uint32_t experts, used; /* of a mixture, each with `ff` */
    bool tied;
} MODELS[] = {
    {"3B", 28, 3072, 8192, 24, 8, 128, 128256, 0, 0, true},         /* Llama 3.2 */
    {"8B", 32, 4096, 14336, 32, 8, 128, 128256, 0, 0, false},       /* Llama 3.1 */
    {"14B", 48, 5120, 13824, 40, 8, 128, 152064, 0, 0, false},      /* Qwen2.5 */
    {"24B", 40, 5120, 32768, 32, 8, 128, 131072, 0, 0, false},      /* Mistral Small */
    {"32B", 64, 5120, 27648, 40, 8, 128, 152064, 0, 0, false},      /* Qwen2.5 */
    {"70B", 80, 8192, 28672, 64, 8, 128, 128256, 0, 0, false},      /* Llama 3.1 */
    {"123B", 88, 12288, 28672, 96, 8, 128, 32768, 0, 0, false},     /* Mistral Large */
    {"8x7B", 32, 4096, 14336, 32, 8, 128, 32000, 8, 2, false},      /* Mixtral */
    {"30B-A3B", 48, 2048, 768, 32, 4, 128, 151936, 128, 8, false},  /* Qwen3 */
    {"120B-A5B", 36, 2880, 2880, 64, 8, 64, 201088, 128, 4, false}, /* gpt-oss */
};

static const struct {
    const char *name;
    double bytes; /* of a weight */
} TYPES[] = {{"Q4_K", 144.0 / 256}, {"Q6_K", 210.0 / 256}, {"Q8_0", 34.0 / 32}};

enum { MODELS_N = sizeof MODELS / sizeof *MODELS, TYPES_N = sizeof TYPES / sizeof *TYPES };

static void set_weights(struct placement_layer *layer, double all, double used, double bytes)
{
    layer->bytes[0] = (uint64_t)(all * bytes);
    layer->bytes_per_token[0] = (uint64_t)(used * bytes);
    layer->flops_per_token[0] = 2 * used;
}

static void use_model(struct home *home, const struct model *from, double bytes)
{
    struct placement_model *model = &home->problem.model;
    const double hidden = from->hidden, q = (double)from->heads * from->head_dim,
                 kv = (double)from->kv_heads * from->head_dim;
    const double attention = 2 * hidden * q + 2 * hidden * kv, expert = 3 * hidden * from->ff;
    const double all = attention + expert * (from->experts ? from->experts : 1);
    const double used = attention + expert * (from->experts ? from->used : 1);
    struct placement_layer layer = {.flops_per_token_per_context = 4 * q,
                                    .kv_bytes_per_token = (uint64_t)(2 * kv * 2)};
    set_weights(&layer, all, used, bytes);
    for (uint32_t i = 0; i < from->layers; i++)
        home->layers[i] = layer;
    *model = (struct placement_model){.n_types = 1,
                                      .n_layers = from->layers,
                                      .layers = home->layers,
                                      .expert_share =
                                          from->experts ? (double)from->used / from->experts : 0,
                                      .activation_bytes_per_token = 2 * from->hidden,
                                      .compute_bytes = 64u << 20,
                                      .compute_output_bytes = 512u * 4 * (uint64_t)from->vocab};
    /* The embedding stays in the host's memory; where it is the head, too, the last stage has
     * it. */
    set_weights(&model->output, hidden * from->vocab, hidden * from->vocab, bytes);
}

static bool fits_one(const struct home *home)
{
    const struct placement_stage whole = {0, 0, home->problem.model.n_layers};
    for (uint32_t d = 0; d < home->problem.n_devices; d++) {
        if (placement_stage_bytes(&home->problem, &whole) <=
            placement_device_bytes(&home->devices[d]))
            return true;
    }
    return false;
}

static bool fits_all(const struct home *home)
{
    double needed = 0, there = 0;
    for (uint32_t i = 0; i < home->problem.model.n_layers; i++)
        needed += (double)placement_layer_bytes(&home->problem, i);
    for (uint32_t d = 0; d < home->problem.n_devices; d++) {
        const uint64_t room = placement_device_bytes(&home->devices[d]);
        if (room > home->problem.model.compute_bytes)
            there += (double)(room - home->problem.model.compute_bytes);
    }
    return needed <= 0.9 * there;
}

/* One of the models that fit, of the kind wanted where there is one. */
static bool choose_model(struct home *home)
{
    uint32_t found[2][MODELS_N * TYPES_N], n[2] = {0};
    for (uint32_t i = 0; i < MODELS_N * TYPES_N; i++) {
        use_model(home, &MODELS[i / TYPES_N], TYPES[i % TYPES_N].bytes);
        const bool several = !fits_one(home);
        if (fits_all(home) || !several)
            found[several][n[several]++] = i;
    }
    bool several = draw(home) < 0.5;
    if (n[several] == 0)
        several = !several;
    if (n[several] == 0)
        return false;
    const uint32_t chosen = found[several][(uint32_t)(draw(home) * n[several])];
    use_model(home, &MODELS[chosen / TYPES_N], TYPES[chosen % TYPES_N].bytes);
    home->model = MODELS[chosen / TYPES_N].name;
    home->type = TYPES[chosen % TYPES_N].name;
    home->needs_several = several;
    return true;
}

bool home_make(struct home *home, uint64_t seed)
{
    static const double how_many[] = {35, 30, 20, 15}; /* 2, 3, 4, 5 machines */
    struct attachment attachments[HOME_MACHINES];
    memset(home, 0, sizeof *home);
    home->seed = seed;
    home->problem.devices = home->devices;
    home->problem.links = home->links;
    home->problem.demand = (struct placement_demand){.context_tokens = HOME_CONTEXT, .streams = 1};
    const uint32_t n = 2 + draw_weighted(home, how_many, sizeof *how_many, 4);
    const double chance = draw(home), switch_gbit = chance < 0.75 ? 1 : chance < 0.92 ? 2.5 : 10;
    for (uint32_t i = 0; i < n; i++)
        attachments[i] = add_machine(home, switch_gbit);
    link_all(home, attachments);
    return choose_model(home);
}
