/* Which node should keep a spare copy of which layers on its disk, and how many losses a model's
 * weights survive. Pure.
 *
 * Every layer that some node has is to be on the disks of SPREAD_COPIES nodes that are up. A layer
 * that is on fewer goes to the node that is nearest to one that has it, by the link's measured
 * bandwidth, among those with room for it; of equals to the one with more room, then to the first.
 * A node that lacks room for the next layer gets none. What a node fetches for its own stages
 * counts as there when it is chosen who keeps a copy, and not yet when it is said what is survived.
 * What has been copied already counts, so the answer changes as the copies arrive, and stays the
 * same as long as nothing does. */
#pragma once

#include "base/limits.h"

#include <stdbool.h>
#include <stdint.h>

enum { SPREAD_COPIES = 2, SPREAD_WORDS = LIMIT_LAYERS / 64 };

struct spread_node {
    bool up;
    uint64_t room_bytes;           /* for more weights, without any others going */
    uint64_t layers[SPREAD_WORDS]; /* that are on its disk: a bit a layer */
    uint64_t coming[SPREAD_WORDS]; /* that its own stages fetch */
};
void spread_add(struct spread_node *node, uint32_t first_layer, uint32_t n_layers);
void spread_expect(struct spread_node *node, uint32_t first_layer, uint32_t n_layers); /* coming */
bool spread_has(const struct spread_node *node, uint32_t layer);

struct spread_question {
    uint32_t n_layers;    /* at most LIMIT_LAYERS */
    uint64_t layer_bytes; /* of one, about */
    const struct spread_node *nodes;
    uint32_t n_nodes;
    double (*bytes_per_s)(void *self, uint32_t from, uint32_t to); /* 0: no link, or not measured */
    void *self;
};

struct spread_copy { /* what a node should keep, and does not yet */
    uint32_t node, first_layer, n_layers;
};

/* At most n copies, in the order of layers; what is beyond comes when these are there. */
uint32_t spread_choose(const struct spread_question *question, struct spread_copy *out, uint32_t n);

/* The fewest nodes, of those that are up, that have a layer; *layer (NULL is fine): the first of
 * which that is so. */
uint32_t spread_copies(const struct spread_question *question, uint32_t *layer);

/* So many nodes, whichever they are, can be lost before the first of these fails: the weights; the
 * memory (the largest nodes gone, what is left has to hold all layers); the log (most voters have
 * to be left). *limit: which. */
enum spread_limit { SPREAD_WEIGHTS, SPREAD_MEMORY, SPREAD_LOG };
const char *spread_limit_name(enum spread_limit limit); /* "weights", "memory", "log" */
uint32_t spread_survives(const struct spread_question *question, const uint64_t *memory_bytes,
                         uint32_t n_voters, uint32_t n_voters_up, enum spread_limit *limit);
