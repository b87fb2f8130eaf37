/* What a simulation is told: machines, an instance or a few, streams of requests, and what goes
 * wrong when. Plain data, from a file (docs/simulator.md) or drawn from a seed. Every number is one
 * that a file can say.
 *
 * A zeroed scenario is empty; scenario_deinit() frees. Pure; any thread. */
#pragma once

#include "base/buffer.h"
#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    SCENARIO_NODES = 1000,
    SCENARIO_INSTANCES = 8,
    SCENARIO_STREAMS = 256,
    SCENARIO_FAULTS = 4096,
    SCENARIO_LOAD_C_MIN = 30, /* or 0 */
    SCENARIO_DEVICES = 4,
    SCENARIO_ROLES_NODES = 16, /* at most, where one is hostile: each has a key */
    SCENARIO_FILE_BYTES = 1024 * 1024
};

/* `node`, `other` and `amount` are the fault's; each ends after for_ms, and no later than the
 * scenario's chaos_ms. */
enum scenario_fault_type {
    FAULT_KILL,      /* kill -9 of the node; it is started again at the end */
    FAULT_POWER,     /* its power fails: nobody is told */
    FAULT_PAUSE,     /* it stands still, as with SIGSTOP or a lid that is closed */
    FAULT_CUT,       /* between node and other, both ways */
    FAULT_CUT_ONE,   /* from node to other alone */
    FAULT_ISOLATE,   /* the node from all others */
    FAULT_SPLIT,     /* those nodes whose bit of a hash of `amount` is set from all others */
    FAULT_LOSS,      /* of `amount` in a million messages */
    FAULT_DOUBLE,    /* as many arrive twice */
    FAULT_SLOW,      /* messages take up to `amount` ms more */
    FAULT_SLOW_DISK, /* writes of the node take up to `amount` ms more */
    FAULT_FULL_DISK, /* writes of the node fail */
    FAULT_LOST_DISK, /* the node is lost with its disk; at the end it comes back as another member
                      */
    FAULT_DEVICE,    /* device `amount` of the node is gone */
    FAULT_RUNNER,    /* what is loaded on device `amount` of the node fails, once */
    FAULT_HEAT,      /* the air around the node is `amount` K warmer */
    FAULT_MEMORY,    /* other programs take `amount` MiB of each of its devices */
    FAULT_CLOCK,     /* its wall clock leaps `amount` ms ahead, and back at the end */
    FAULT_TYPES
};
const char *scenario_fault_name(enum scenario_fault_type type);

struct scenario_node {
    uint64_t devices;        /* 1 … SCENARIO_DEVICES, alike */
    uint64_t memory_mib;     /* of each */
    uint64_t gb_per_s;       /* decoding */
    uint64_t load_mib_per_s; /* from the disk */
    uint64_t disk_ms;        /* a durable write takes 1 ms to so much */
    uint64_t joins_ms;       /* when it asks to be let in; the first node founds the cluster */
    uint64_t has_weights;
    uint64_t hostile; /* a member that says what it should not, until chaos_ms; not the first */
    /* Its devices at full load in air of 25 degrees settle at load_c, half-way in 0.7 tau_s, and
     * throttle themselves at limit_c. load_c 0: they do not get warm. */
    uint64_t load_c, limit_c, tau_s;
};

struct scenario_instance {
    uint64_t layers, layer_mib;
    uint64_t idle_ms;
};

struct scenario_stream {     /* of requests, one after the other */
    uint64_t node, instance; /* whom it asks, for what */
    uint64_t start_ms, pause_ms, requests, prompt, tokens;
};

struct scenario_fault {
    uint64_t at_ms, for_ms, kind, node, other, amount;
};

/* Faults in the product's own code, which the simulator plants to see that it finds them. */
enum scenario_bug {
    SCENARIO_BUG_NONE,
    SCENARIO_BUG_HALF_CACHE,       /* half of a cache that is handed over counts as all of it */
    SCENARIO_BUG_NO_LAYER,         /* a hand-over leaves a layer out */
    SCENARIO_BUG_FORGETS_TEXT,     /* a replay leaves out what was generated */
    SCENARIO_BUG_HANDS_ON_TWICE,   /* a relay hands on what was handed on to it */
    SCENARIO_BUG_BELIEVES_ANYBODY, /* a log does not ask who says it */
    SCENARIO_BUGS
};
const char *scenario_bug_name(enum scenario_bug bug);

struct scenario_expect { /* zeroed: no violation */
    uint64_t violation;
    uint64_t answered_min, pause_ms_max;           /* 0: not asked for */
    uint64_t failed_max, elections_max, moves_max; /* the same; one more than is allowed */
    uint64_t suspicions_max;
    uint64_t moves_min, hottest_c_min;
    uint64_t throttled_ms_max; /* as failed_max */
};

struct scenario {
    uint64_t seed;
    uint64_t chaos_ms;  /* faults are over by then */
    uint64_t settle_ms; /* and so long after all is as it should be */
    uint64_t grace_ms;  /* before a log is founded anew; 0: never */
    uint64_t snapshot_after, delay_ms, patience_ms;
    uint64_t air_s;  /* the air warms and cools by and by, with this time constant; 0: at once */
    uint64_t bug;    /* enum scenario_bug */
    uint64_t copies; /* of weights: 0: they come from anywhere; 1: only from a node that has them;
                        2: and the leader has spare copies made */
    uint64_t fits;   /* all nodes together hold all instances */
    uint32_t n_nodes, n_instances, n_streams, n_faults;
    struct scenario_node *nodes;
    struct scenario_instance *instances;
    struct scenario_stream *streams;
    struct scenario_fault *faults;
    struct scenario_expect expect;
};

void scenario_deinit(struct scenario *scenario); /* NULL is fine */
enum error_code scenario_copy(struct scenario *to, const struct scenario *from, struct error *err);

/* Foreign bytes. ERROR_INVALID names the line, or what does not fit together; ERROR_NO_MEMORY. */
enum error_code scenario_parse(const char *text, size_t size, struct scenario *out,
                               struct error *err);
enum error_code scenario_check(const struct scenario *scenario, struct error *err);
void scenario_write(const struct scenario *scenario,
                    struct buffer *out); /* scenario_parse() reads the same back */

struct scenario_wish {
    uint64_t seed;
    uint32_t nodes;    /* 0: 3 to 7 */
    uint64_t chaos_ms; /* 0: a minute */
    uint32_t hostile;  /* so many more, which are */
};
enum error_code scenario_random(const struct scenario_wish *wish, struct scenario *out,
                                struct error *err);
