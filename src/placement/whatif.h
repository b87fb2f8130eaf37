/* What would be if a machine were not there, or one more were? Each answer is the best placement of
 * the changed problem, really solved. Pure; any thread. All problems must have passed
 * placement_problem_check().
 *
 * Time: `options` of each question are those of placement_solve(); go_on is asked before and while
 * each is answered, and what it left no time for is PLACEMENT_UNDECIDED. Where options.max_nodes is
 * 0, a question takes PLACEMENT_WHATIF_NODES, so that one hard question does not eat the time of
 * all others. */
#pragma once

#include "base/buffer.h"
#include "placement/solve.h"

enum { PLACEMENT_WHATIF_NODES = 20 * 1000 };

enum placement_answer {
    PLACEMENT_UNDECIDED, /* the time was over before any placement was found, or it was not asked */
    PLACEMENT_POSSIBLE,  /* with the placement and its rates */
    PLACEMENT_IMPOSSIBLE, /* proved */
};

struct placement_rates {
    enum placement_answer answer;
    bool proved; /* the best; else the best that was found: a lower bound of what is possible */
    double decode_tokens_per_s;  /* all streams together */
    double prefill_tokens_per_s; /* 0: unknown */
    struct placement placement;
};

/* The best placement's rates. Errors as placement_solve(), but ERROR_NOT_FOUND and ERROR_BUSY,
 * which are answers. */
enum error_code placement_rate(const struct placement_problem *problem,
                               const struct placement_options *options, struct placement_rates *out,
                               struct error *err);

/* Without one device; without all devices of a node (a node that is not there changes nothing).
 * Errors as above. */
enum error_code placement_without_device(const struct placement_problem *problem, uint32_t device,
                                         const struct placement_options *options,
                                         struct placement_rates *out, struct error *err);
enum error_code placement_without_node(const struct placement_problem *problem, const char *node,
                                       const struct placement_options *options,
                                       struct placement_rates *out, struct error *err);

/* One device more. It is linked to the others as `like` is; to `like` itself, and to all of like's
 * node when its own is another one, by `beside`. */
struct placement_extra {
    struct placement_device
        device; /* with an id that its node does not have yet; of a node that is there, or not */
    uint32_t like;
    struct placement_link beside; /* both ways; bytes_per_s of 0: placement_extra_beside()'s */
};

/* A copy of a device: a second one in its machine, or in a machine of its own, with "+" behind the
 * names. */
struct placement_extra placement_extra_copy(const struct placement_problem *problem,
                                            uint32_t device, bool own_machine);

/* What a link between the extra device and `like` is taken to be. In like's machine: as the fastest
 * link between two devices of that machine, else of any; else *assumed, 10 us and 10 GB/s (a copy
 * through the host's memory). In another machine: as like's best link to another machine, else
 * *assumed, 0.3 ms and 117 MB/s (1 Gbit/s Ethernet). Best is what carries one token's activations
 * first. */
struct placement_link placement_extra_beside(const struct placement_problem *problem,
                                             const struct placement_extra *extra, bool *assumed);

/* The placement's device with the index n_devices is the extra one. ERROR_INVALID also: `like` is
 * no device, the node has one of that id, or the described device is none. */
enum error_code placement_with_device(const struct placement_problem *problem,
                                      const struct placement_extra *extra,
                                      const struct placement_options *options,
                                      struct placement_rates *out, struct error *err);

/* ---- several answers ------------------------------------------------------------------- */

enum placement_change {
    PLACEMENT_WITHOUT_NODE,
    PLACEMENT_WITHOUT_DEVICE,
    PLACEMENT_WITH_DEVICE,
};

struct placement_whatif {
    enum placement_change change;
    char node[PLACEMENT_NAME_MAX];
    char device[PLACEMENT_NAME_MAX]; /* empty for a node */
    uint64_t bytes;                  /* WITH_DEVICE: its free memory less its reserve */
    bool link_assumed;               /* WITH_DEVICE: see placement_extra_beside() */
    struct placement_rates rates;
};

struct placement_whatifs {
    uint32_t n;
    struct placement_whatif *list;
};

void placement_whatifs_deinit(struct placement_whatifs *whatifs);
