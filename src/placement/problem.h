/* A placement problem: devices, links, a model's cost and a demand; and a placement, its answer.
 *
 * A placement is a row of stages. A stage is one device with a run of layers; the runs follow each
 * other and cover the model; no device has two. Everything here is plain data of the caller's, read
 * only, copied nowhere. All of this room is pure: no clock, no I/O, no state; any thread. Memory is
 * taken through base/mem.h and given back before a function returns, unless it says otherwise.
 *
 * Units: bytes, seconds, bytes per second, FLOP and FLOP/s (a multiply and an add are two), tokens.
 * A zeroed field is what its comment says of 0. placement_problem_check() refuses numbers that no
 * machine can have (NaN, negative, beyond the limits below) and names the field; nothing else of
 * this room takes an unchecked problem.
 *
 * The whole model may be placed several times, on groups of devices that have none in common, with
 * the streams divided between them (replicas.h); a placement is one of them.
 *
 * Not in it: two devices that share one memory (give one of them, or divide the memory), two hops
 * that share one cable. */
#pragma once

#include "base/error.h"
#include "base/limits.h"

#include <stdbool.h>
#include <stdint.h>

enum { PLACEMENT_TYPES_MAX = 16, PLACEMENT_NAME_MAX = 64 };

#define PLACEMENT_BYTES_MAX (UINT64_C(1) << 50) /* of any one amount: a PiB */
#define PLACEMENT_RATE_MAX 1e18                 /* bytes/s or FLOP/s */
#define PLACEMENT_SECONDS_MAX 1e6

struct placement_device {
    char id[PLACEMENT_NAME_MAX];
    char node[PLACEMENT_NAME_MAX];
    uint64_t memory_free_bytes;
    uint64_t reserve_bytes; /* of those, kept free */
    /* By tensor type (struct placement_model says which): what decoding reads, and what prefill
     * computes. A bandwidth of 0: the device cannot use weights of that type, so no layer that has
     * some goes there. FLOP/s of 0: not measured; a row of a batch is then taken to cost as much as
     * a token alone, and the prefill forecast is unknown.
     */
    double decode_bytes_per_s[PLACEMENT_TYPES_MAX];
    double prefill_flops[PLACEMENT_TYPES_MAX];
    double kv_bytes_per_s; /* reading the KV cache; 0: as the fastest type above */
    double launch_s;       /* from a graph's call to its return, whatever it computes */
    double
        copy_bytes_per_s; /* a stage's inputs and results, to and from the host; 0: costs nothing */
    double share; /* of its time that it may compute (heat, power, battery), above 0 to 1; 0: none,
                     it is out */
    /* Its metal is cool yet: it may compute all of its time for so long, and `share` from then on;
     * 0: from now on. placement_share_over() makes one share of both; whoever plans for good takes
     * the share. */
    double full_s;
    double share_error; /* of share where that is a prediction, one standard deviation; 0: it is so
                           now */
    double thermal_headroom; /* 0 … 1 for the score: 1 cold, 0 at its limit */
    double spread; /* of its measured rates, relative, one standard deviation; 0: not known */
    bool measured; /* false: the rates are an estimate, and the forecast says so */
    bool excluded; /* not to be used */
};

/* From one device to another, the way back is a link of its own. A transfer of n bytes takes
 * latency_s + n / bytes_per_s (the alpha-beta model: Hockney, Parallel Computing 20, 1994). */
struct placement_link {
    double latency_s;
    double bytes_per_s; /* 0: no way */
};

/* What a layer weighs and computes (model/model.h's struct layer_cost, by tensor type). */
struct placement_layer {
    uint64_t bytes[PLACEMENT_TYPES_MAX];           /* stored */
    uint64_t bytes_per_token[PLACEMENT_TYPES_MAX]; /* read for one token: all, or a mixture's
                                                      experts in use */
    double flops_per_token[PLACEMENT_TYPES_MAX];
    double flops_per_token_per_context; /* attention: times the tokens that are there */
    uint64_t kv_bytes_per_token;
    uint32_t kv_seen; /* 1 + an earlier layer whose cache it reads; in a stage without that layer,
                         the first that reads it has a copy. 0: it has its own */
    uint32_t window_tokens; /* attention looks back so far at the most; 0: the whole context */
    uint32_t kv_tokens_max; /* windowed: it keeps no more of a stream; 0: the whole context */
    uint64_t ring_bytes_per_token; /* beside, of a layer with summaries: of so many tokens of a */
    uint32_t ring_tokens_max;      /* stream alone, for what it sees and summarises */
    uint64_t state_bytes; /* of a recurrent layer, for each stream; a token reads and writes them */
};

struct placement_model {
    uint32_t n_types; /* the type with index i means the same in devices and layers */
    char type_names[PLACEMENT_TYPES_MAX][16];
    uint32_t n_layers; /* 1 … LIMIT_LAYERS */
    const struct placement_layer *layers;
    struct placement_layer
        input; /* token embedding, with the first layer; zero where it stays on the host */
    struct placement_layer output; /* output norm and head, with the last layer */
    uint64_t tied_bytes; /* counted in input and output both, stored once where one stage has both
                            ends */
    double
        expert_share; /* of a mixture's experts, those in use for a token, above 0 to 1; 0: dense */
    uint64_t activation_bytes_per_token; /* a hidden state as it travels */
    uint64_t output_bytes_per_token;     /* what the last stage gives for a token (logits) */
    uint64_t compute_bytes;              /* a stage's compute buffers */
    uint64_t compute_bytes_per_context;  /* of those, for each token of the context: what a shorter
                                            one saves */
    uint64_t compute_input_bytes;        /* more on the first stage */
    uint64_t compute_output_bytes;       /* more on the last (logits) */
};

enum placement_goal {
    PLACEMENT_LATENCY,    /* least time per token: all streams' rows in one micro-batch */
    PLACEMENT_THROUGHPUT, /* most tokens: `micro_batches` in flight */
    PLACEMENT_MIX, /* least time a stream waits for a token, when the others are busy for a part of
                      the time */
};

const char *placement_goal_name(enum placement_goal goal); /* "latency", "throughput", "mix" */

struct placement_weights { /* score.h */
    double compute, memory, network, thermal, bandwidth;
};

struct placement_demand {
    enum placement_goal goal;
    uint32_t context_tokens; /* of one stream; memory is for all of it, decoding is forecast with it
                                half full */
    uint32_t cells;         /* tokens of all streams together, who share them; 0: each has a context
                             */
    uint32_t streams;       /* 1 … LIMIT_SEQUENCES */
    uint32_t checkpoints;   /* states that are kept beside those of the streams */
    uint32_t micro_batches; /* not for latency; never more than streams; 0: as many as streams */
    double
        busy; /* of the mix: 0 … 1, the part of the time that all streams are busy; else one is */
    uint32_t prompt_tokens; /* of the prefill forecast; 0: half the context */
    uint32_t chunk_tokens;  /* rows of one prefill chunk; 0: 512 */
    /* Bytes of a stage's weights in its device's memory; 0: no limit. Searches keep to it.
     * placement_check() does not look at it: a stage with more streams the rest. */
    uint64_t weights_max;
    struct placement_weights weights; /* zeroed: those of the search's options */
    uint32_t limit_s;                 /* for who gives searches their time; 0: as usual */
    bool replicas; /* whoever runs it can run several groups; placement_replicate() does nothing
                      else */
};

struct placement_problem {
    uint32_t n_devices; /* 1 … LIMIT_PLACEMENT_DEVICES */
    const struct placement_device *devices;
    const struct placement_link *links; /* [from * n_devices + to]; the diagonal is not read */
    struct placement_model model;
    struct placement_demand demand;
};

struct placement_stage {
    uint32_t device;
    uint32_t first_layer;
    uint32_t n_layers;
};

struct placement {
    uint32_t n_stages; /* 0: none */
    struct placement_stage stages[LIMIT_STAGES];
};

enum { PLACEMENT_GROUPS_MAX = 16 };

/* A whole placement of its own, for a part of the streams. */
struct placement_group {
    struct placement placement;
    uint32_t streams;
    uint32_t micro_batches; /* in flight */
};

struct placement_groups {
    uint32_t n_groups; /* 0: none */
    struct placement_group groups[PLACEMENT_GROUPS_MAX];
};

/* ERROR_INVALID names the first field that is wrong. */
enum error_code placement_problem_check(const struct placement_problem *problem, struct error *err);

/* ---- the demand, with its defaults filled in ---- */
uint32_t placement_micro_batches(const struct placement_problem *problem); /* 1 for latency */
double placement_busy(const struct placement_problem *problem);            /* 1 but for the mix */
uint32_t
placement_rows(const struct placement_problem *problem); /* of one micro-batch when decoding */
uint32_t placement_prompt_tokens(const struct placement_problem *problem);
uint32_t placement_chunk_tokens(const struct placement_problem *problem);

/* The problem that one group solves: with its streams and micro-batches. */
struct placement_problem placement_of_group(const struct placement_problem *problem,
                                            const struct placement_group *group);

static inline const struct placement_link *placement_link(const struct placement_problem *problem,
                                                          uint32_t from, uint32_t to)
{
    return &problem->links[(uint64_t)from * problem->n_devices + to];
}
