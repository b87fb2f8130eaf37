#include "placing/spread.h"

#include <assert.h>
#include <stddef.h>

static void spread_set(uint64_t *layers, uint32_t first_layer, uint32_t n_layers)
{
    for (uint32_t i = first_layer; i < LIMIT_LAYERS && i - first_layer < n_layers; i++)
        layers[i / 64] |= UINT64_C(1) << i % 64;
}

void spread_add(struct spread_node *node, uint32_t first_layer, uint32_t n_layers)
{
    spread_set(node->layers, first_layer, n_layers);
}

void spread_expect(struct spread_node *node, uint32_t first_layer, uint32_t n_layers)
{
    spread_set(node->coming, first_layer, n_layers);
}

bool spread_has(const struct spread_node *node, uint32_t layer)
{
    assert(layer < LIMIT_LAYERS);
    return node->layers[layer / 64] >> layer % 64 & 1;
}

static bool spread_will_have(const struct spread_node *node, uint32_t layer)
{
    return spread_has(node, layer) || (node->coming[layer / 64] >> layer % 64 & 1);
}

/* ---- copies ---------------------------------------------------------------------------------- */

static uint32_t spread_copies_of(const struct spread_question *q, uint32_t layer)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < q->n_nodes; i++)
        n += q->nodes[i].up && spread_has(&q->nodes[i], layer);
    return n;
}

static uint32_t spread_copies_to_come(const struct spread_question *q, uint32_t layer)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < q->n_nodes; i++)
        n += q->nodes[i].up && spread_will_have(&q->nodes[i], layer);
    return n;
}

uint32_t spread_copies(const struct spread_question *q, uint32_t *layer)
{
    uint32_t fewest = UINT32_MAX;
    assert(q->n_layers <= LIMIT_LAYERS);
    for (uint32_t i = 0; i < q->n_layers; i++) {
        const uint32_t n = spread_copies_of(q, i);
        if (n < fewest && layer)
            *layer = i;
        fewest = n < fewest ? n : fewest;
    }
    return q->n_layers ? fewest : 0;
}

/* ---- who keeps what -------------------------------------------------------------------------- */

struct holders { /* of a layer that is to be copied: fewer than SPREAD_COPIES */
    uint32_t list[SPREAD_COPIES], n;
};

static struct holders holders_of(const struct spread_question *q, uint32_t layer)
{
    struct holders out = {.n = 0};
    for (uint32_t i = 0; i < q->n_nodes && out.n < SPREAD_COPIES; i++) {
        if (q->nodes[i].up && spread_has(&q->nodes[i], layer))
            out.list[out.n++] = i;
    }
    return out;
}

/* From the nearest that has the layer. */
static double nearest_bytes_per_s(const struct spread_question *q, const struct holders *holders,
                                  uint32_t to)
{
    double best = 0;
    for (uint32_t i = 0; i < holders->n; i++) {
        const double rate = q->bytes_per_s(q->self, holders->list[i], to);
        best = rate > best ? rate : best;
    }
    return best;
}

static uint64_t given_bytes(const struct spread_question *q, const struct spread_copy *copies,
                            uint32_t n, uint32_t node)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < n; i++)
        bytes += copies[i].node == node ? copies[i].n_layers * q->layer_bytes : 0;
    return bytes;
}

/* n_nodes: none. */
static uint32_t choose_keeper(const struct spread_question *q, const struct spread_copy *copies,
                              uint32_t n, uint32_t layer)
{
    const struct holders holders = holders_of(q, layer);
    uint32_t best = q->n_nodes;
    double best_rate = 0;
    uint64_t best_room = 0;
    for (uint32_t i = 0; i < q->n_nodes; i++) {
        const struct spread_node *node = &q->nodes[i];
        const uint64_t given = given_bytes(q, copies, n, i);
        if (!node->up || spread_will_have(node, layer) || node->room_bytes < given + q->layer_bytes)
            continue;
        const double rate = nearest_bytes_per_s(q, &holders, i);
        if (best < q->n_nodes &&
            (rate < best_rate || (!(rate > best_rate) && node->room_bytes <= best_room)))
            continue;
        best = i;
        best_rate = rate;
        best_room = node->room_bytes;
    }
    return best;
}

static bool goes_on(const struct spread_copy *copy, uint32_t node, uint32_t layer)
{
    return copy->node == node && copy->first_layer + copy->n_layers == layer;
}

uint32_t spread_choose(const struct spread_question *q, struct spread_copy *out, uint32_t n)
{
    uint32_t count = 0;
    assert(q->n_layers <= LIMIT_LAYERS);
    for (uint32_t layer = 0; layer < q->n_layers; layer++) {
        const bool lacks =
            spread_copies_of(q, layer) && spread_copies_to_come(q, layer) < SPREAD_COPIES;
        const uint32_t node = lacks ? choose_keeper(q, out, count, layer) : q->n_nodes;
        if (node == q->n_nodes)
            continue;
        if (count && goes_on(&out[count - 1], node, layer))
            out[count - 1].n_layers++;
        else if (count < n)
            out[count++] = (struct spread_copy){node, layer, 1};
        else
            break;
    }
    return count;
}

/* ---- what is survived ------------------------------------------------------------------------ */

const char *spread_limit_name(enum spread_limit limit)
{
    static const char *const names[] = {
        [SPREAD_WEIGHTS] = "weights", [SPREAD_MEMORY] = "memory", [SPREAD_LOG] = "log"};
    return names[limit];
}

/* The sum of all but the `lost` largest of those that are up. */
static uint64_t memory_without(const struct spread_question *q, const uint64_t *memory_bytes,
                               uint32_t lost)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < q->n_nodes; i++) {
        uint32_t larger = 0;
        for (uint32_t k = 0; k < q->n_nodes; k++)
            larger += q->nodes[k].up && (memory_bytes[k] > memory_bytes[i] ||
                                         (memory_bytes[k] == memory_bytes[i] && k < i));
        sum += q->nodes[i].up && larger >= lost ? memory_bytes[i] : 0;
    }
    return sum;
}

uint32_t spread_survives(const struct spread_question *q, const uint64_t *memory_bytes,
                         uint32_t n_voters, uint32_t n_voters_up, enum spread_limit *limit)
{
    const uint32_t copies = spread_copies(q, NULL), most = n_voters / 2 + 1;
    uint32_t survives = copies ? copies - 1 : 0;
    uint32_t with_memory = 0;
    *limit = SPREAD_WEIGHTS;
    while (with_memory < survives &&
           memory_without(q, memory_bytes, with_memory + 1) >= q->n_layers * q->layer_bytes)
        with_memory++;
    if (with_memory < survives) {
        survives = with_memory;
        *limit = SPREAD_MEMORY;
    }
    if (n_voters_up < most || n_voters_up - most < survives) {
        survives = n_voters_up < most ? 0 : n_voters_up - most;
        *limit = SPREAD_LOG;
    }
    return survives;
}
