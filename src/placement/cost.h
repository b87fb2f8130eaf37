/* What a placement costs: times and memory, by formulas that can be checked by hand. Pure; any
 * thread.
 *
 * A layer on a device, for r rows that each have c tokens behind them (in a windowed layer: at most
 * as many as the window has). Decoding reads every weight
 * once for all rows and every row's KV cache; computing and reading overlap, so the longer one
 * counts (roofline: Williams, Waterman, Patterson, CACM 52(4), 2009; for decoding: Pope et al.,
 * "Efficiently Scaling Transformer Inference", MLSys 2023):
 *
 *     t_layer = max( sum_type read_type(r) / bandwidth_type + s c kv / bandwidth_kv,
 *                    sum_type r flops_type / rate_type + r c attention / rate_main ) / share
 *
 *     read(r) = all of it; of a mixture whose rows choose a part p of the experts each,
 *     independently,
 *               all - (all - read(1)) (1 - p)^(r - 1): what no row has chosen is not read
 *
 * s are the sequences that the rows belong to: r when decoding, 1 for a prompt's chunk, whose rows
 * share what they read.
 *
 * One row computes no more than what its bandwidth was measured with, so for r = 1 only the first
 * line counts. rate_main is that of the layer's type with the most FLOP. Where a rate is unknown, r
 * rows take r times the reading.
 *
 *     t_stage = (launch + copies) / share + sum t_layer    (+ embedding on the first, + norm and
 *                                                          head on the last)
 *     copies  = (bytes in + bytes out) / copy rate         in: 4 r token ids on the first stage,
 *             else r activation
 *                                                          out: the results on the last, else r
 *                                                          activation
 *     t_hop   = latency + r activation / bandwidth            occupies its link for r activation /
 *             bandwidth
 *     t_back  = latency + 4 r / bandwidth                     the tokens' way to the first stage; 0
 *             with one stage
 *     round   = sum t_stage + sum t_hop + t_back
 *     period  = max( longest t_stage or occupation, round / m )          m micro-batches in flight
 *
 * The period is the time between two micro-batches, by the bounds of a closed queueing network
 * (Denning and Buzen, Computing Surveys 10(3), 1978: throughput <= 1 / longest service, <= m /
 * round trip), which a pipeline of constant times reaches. With m = 1 it is the round. streams / (m
 * period) tokens a second.
 *
 *     objective = busy period + (1 - busy) round / m
 *
 * is what the solver minimises. A stream waits m period for its next token while all streams are
 * busy, and a round when it is alone (its micro-batch is then computed without the others); m
 * objective is the mean, for `busy` of the time with all of them. Throughput is busy = 1, latency m
 * = 1, where busy says nothing: one solver minimises them all.
 *
 * Several groups, each a pipeline of its own with s of the streams: a group's streams have s / (m
 * objective) tokens a second together, with throughput what it decodes; and what groups have is
 * added up.
 *
 * Prefill: prefill.h.
 *
 * Memory of a stage: weights + KV of all layers for context x streams + compute buffers, within
 * free - reserve. */
#pragma once

#include "placement/problem.h"

/* Whether the device may have the layer at all: enabled, and every type known to it. */
bool placement_device_usable(const struct placement_device *device);
bool placement_layer_allowed(const struct placement_problem *problem, uint32_t device,
                             uint32_t layer);

/* The mean share of its time that a device has for work of so many seconds at all of its time:
 *
 *     seconds / (full_s + (seconds - full_s) / share)        1 where full_s is enough for it */
double placement_share_over(const struct placement_device *device, double seconds);

/* Seconds; `decode` picks the first line alone for one row. Layers from 0; those allowed only. */
struct placement_load {
    uint32_t rows;
    uint32_t sequences;    /* that they belong to */
    double context_tokens; /* behind each row */
};
struct placement_load placement_decode_load(const struct placement_problem *problem);

/* With the embedding for layer 0 and the head for the last. */
double placement_layer_s(const struct placement_problem *problem, uint32_t device, uint32_t layer,
                         struct placement_load load);
/* Launch, and the copies of a stage in the middle; the ends' difference is in the first and the
 * last layer (a layer takes no less than 0 for it). */
double placement_launch_s(const struct placement_problem *problem, uint32_t device, uint32_t rows);
double placement_stage_s(const struct placement_problem *problem,
                         const struct placement_stage *stage, struct placement_load load);

bool placement_linked(const struct placement_problem *problem, uint32_t from, uint32_t to);
double placement_occupation_s(const struct placement_problem *problem, uint32_t from, uint32_t to,
                              uint32_t rows);
double placement_hop_s(const struct placement_problem *problem, uint32_t from, uint32_t to,
                       uint32_t rows);
double placement_back_s(const struct placement_problem *problem, uint32_t from, uint32_t to,
                        uint32_t rows);

/* Bytes of a layer (with embedding or head where it has them, without compute buffers), and of a
 * stage. */
/* Of a layer's own KV cache. */
uint64_t placement_kv_bytes(const struct placement_layer *layer,
                            const struct placement_demand *demand);
/* Of the copies that the layers `first` to `end` - 1, as a stage, have of caches of earlier layers;
 * those of a stage are counted with it, not with a layer. */
uint64_t placement_copy_bytes(const struct placement_problem *problem, uint32_t first,
                              uint32_t end);
/* Of its states, those that are kept with them. */
uint64_t placement_state_bytes(const struct placement_layer *layer,
                               const struct placement_demand *demand);
uint64_t placement_layer_bytes(const struct placement_problem *problem, uint32_t layer);
uint64_t placement_stage_bytes(const struct placement_problem *problem,
                               const struct placement_stage *stage);
/* Of those, the weights of the layers that both stages have: on one device they are loaded once
 * (engine/weight_unit.h). */
uint64_t placement_shared_bytes(const struct placement_problem *problem,
                                const struct placement_stage *a, const struct placement_stage *b);
/* What a device has for a placement: free - reserve, 0 where that is less. */
uint64_t placement_device_bytes(const struct placement_device *device);

struct placement_cost {
    double round_s;
    double longest_s; /* stage or link */
    double period_s;
    double objective_s; /* what the solver minimises */
    bool link_is_longest;
    uint32_t longest; /* the stage, or the stage that the link leaves from */
};

/* Of a placement that placement_check() accepted. */
struct placement_cost placement_decode_cost(const struct placement_problem *problem,
                                            const struct placement *placement);
double placement_decode_tokens_per_s(const struct placement_problem *problem,
                                     const struct placement_cost *cost);
/* s / (m objective) of one group, and the sum of several, which placement_check_groups()
 * accepted. */
double placement_group_rate(const struct placement_problem *problem,
                            const struct placement_group *group);
double placement_groups_rate(const struct placement_problem *problem,
                             const struct placement_groups *groups);
