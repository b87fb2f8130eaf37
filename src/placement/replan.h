/* When to move a running model to other devices, to which, and by how few moves. Pure: a function
 * of the problem as it is now, the layers' places, what moving costs, the state and the time; no
 * clock, no I/O. Any thread.
 *
 *     struct replan_state state = {0};                        kept by the caller between calls, for
 *                                                             each instance
 *     every few seconds, and whenever a device came, went or changed:
 *         replan(&input, &options, &state, &state, &decision, &err)
 *         REPLAN_MUST or REPLAN_MOVE: carry out decision.plan; then input.current is its target
 *
 * MUST is said when the current layout is not valid any more: a device is gone or excluded, memory
 * is short, a link is down. It is said at once, every time. MOVE is optional and said only when it
 * pays: with `tokens` still to come,
 *
 *     stay  = tokens / rate
 *     move  = load + pause + (tokens - rate load) / new rate      while the weights load, the old
 *           stages work on
 *           = load + pause + tokens / new rate                    where they cannot: not running,
 *                                                                 or no memory for both
 *     pause = switch + least of: copying the KV caches and states of the layers that move;
 *     replaying all tokens that are in them
 *
 * stay - move is more than options.worth x pause, and new rate >= (1 + options.margin) rate. Of all
 * such targets that are looked at the one with the least `move` is taken, of equal ones that with
 * the fewest bytes, so a placement near the current one wins over a faster one that is further away
 * by more than it saves. Looked at are, for the order of stages as it is, with any one device left
 * out, put in or exchanged, and for the order of the best placement of all: the fastest cuts, and
 * the cuts that minimise time and moving together (dynamic programming over layers).
 *
 * Never flapping. An optional move must have paid at every call for settle_s, towards one target;
 * then it is held back until cooldown_s after the last move, where cooldown_s begins with
 * cooldown_s_min, doubles with each optional move up to cooldown_s_max, and begins anew after
 * cooldown_s_max without a move. Hence, whatever comes in,
 *
 *  F1. in any cooldown_s_max seconds there are at most 2 + log2(cooldown_s_max / cooldown_s_min)
 * optional moves;
 *
 * and if each forecast rate is within a factor 1 + e of a truth that stays, with (1 + e)^2 < 1 +
 * margin,
 *
 *  F2. each optional move makes the true rate higher, so that no layout is ever returned to, and
 *  moves end.
 *
 * Loading from own disks goes on at once on all nodes; what comes over links is taken to come one
 * after the other (a home has one switch or radio), and so are copies of KV caches. Not counted:
 * that loading slows decoding down, and prompts still to come. */
#pragma once

#include "base/buffer.h"
#include "placement/solve.h"

enum { REPLAN_MOVES_MAX = 2 * LIMIT_STAGES };
#define REPLAN_GONE UINT32_MAX /* in the place of a device's index */

/* Which layers are where, by names, which outlive the indices of one problem. */
struct replan_run {
    char node[PLACEMENT_NAME_MAX];
    char device[PLACEMENT_NAME_MAX];
    uint32_t first_layer;
    uint32_t n_layers;
};
struct replan_layout {
    uint32_t n_runs; /* 0: nowhere yet; at most LIMIT_STAGES */
    struct replan_run runs[LIMIT_STAGES];
};

struct replan_layout replan_layout_of(const struct placement_problem *problem,
                                      const struct placement *placement);
/* Devices that the problem does not have become REPLAN_GONE. */
struct placement replan_find(const struct placement_problem *problem,
                             const struct replan_layout *layout);

struct replan_device {
    double disk_bytes_per_s; /* from its node's own copy of the file into the device; 0: the node
                                has none */
};

struct replan_input {
    const struct placement_problem
        *problem; /* checked; a device's free memory includes what this model takes there */
    const struct replan_device *devices; /* [n_devices] */
    const struct replan_layout *current;
    double tokens;         /* that are expected to be decoded still, all streams together … */
    double seconds;        /* … and for so long at the current rate; both count */
    uint64_t kv_tokens;    /* in the KV caches now, all sequences together */
    uint32_t kv_sequences; /* that they are of; recurrent layers have a state of each */
    double
        now_s; /* of a clock that does not go back; what lies in the future of it is taken as now */
};

struct replan_options {
    struct placement_options solve; /* for the best placement of all, and the time for all of it */
    double margin;
    double worth;
    double switch_s;
    double settle_s;
    double cooldown_s_min;
    double cooldown_s_max;
};
/* 0.1, 2, 0.05 s, 10 s, 60 s, 1 hour; 20,000 nodes. */
struct replan_options replan_options_default(void);

/* Zeroed it is that of an instance that never moved. */
struct replan_state {
    bool has_moved;
    double moved_s;
    double cooldown_s;
    double pending_since_s;
    struct replan_layout pending; /* where to; n_runs of 0: nothing is pending */
};

/* Layers that go from one device to another. */
struct replan_move {
    uint32_t first_layer;
    uint32_t n_layers;
    uint32_t from; /* REPLAN_GONE: from a device that is not there, or nowhere yet */
    uint32_t to;
    uint32_t source; /* whose disk or memory the weights come from; `to`: its own disk */
    uint64_t weight_bytes;
    uint64_t kv_bytes; /* of the tokens that are in the caches; 0 where they are replayed */
};

struct replan_plan {
    struct placement target;
    uint32_t n_moves;
    struct replan_move
        moves[REPLAN_MOVES_MAX]; /* by layer: each that changes its device once, and no other */
    uint64_t weight_bytes;
    uint64_t kv_bytes;
    bool beside; /* the old stages work on while the new weights load */
    bool replay; /* the KV caches are made anew */
    double load_s;
    double pause_s;
    double decode_tokens_per_s;
    double total_s; /* `move` of the formula */
};

enum replan_verdict {
    REPLAN_STAY,
    REPLAN_WAIT,    /* a move would pay; it has not settled, or is held back: wait_s */
    REPLAN_MOVE,    /* optional */
    REPLAN_MUST,    /* the current layout is not valid */
    REPLAN_NOWHERE, /* nor is there another: `why` */
};

struct replan_decision {
    enum replan_verdict verdict;
    bool running;                /* the current layout still decodes, valid or not */
    double current_tokens_per_s; /* 0: it does not */
    double stay_s;               /* INFINITY: it cannot stay */
    double gain_s;               /* stay - move, of an optional move */
    double wait_s;
    struct replan_plan plan;  /* WAIT, MOVE, MUST; n_stages of 0: none */
    char why[ERROR_TEXT_MAX]; /* MUST, NOWHERE: what is wrong with the current layout, with all */
};

/* `before` and `after` may be the same. ERROR_INVALID: a field of input or options is no amount, or
 * the layout has too many runs. ERROR_NO_MEMORY. On error *after is as *before, and nothing should
 * move. */
enum error_code replan(const struct replan_input *input, const struct replan_options *options,
                       const struct replan_state *before, struct replan_state *after,
                       struct replan_decision *out, struct error *err);

/* What going to this target would take, for a move that somebody asked for. ERROR_INVALID:
 * placement_check() refuses it. ERROR_NOT_FOUND: no device that is linked has the weights. The rest
 * as above. */
enum error_code replan_to(const struct replan_input *input, const struct replan_options *options,
                          const struct placement *target, struct replan_plan *out,
                          struct error *err);
