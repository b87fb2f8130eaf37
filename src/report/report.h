/* Everything that `medley plan` says: the best placement of a model on a cluster, its forecast,
 * where the time goes, why devices were left out, what would be without this or with that, what
 * other planners would do; and where nothing fits, what would. As data, as text for people
 * (report_text.c), as JSON (report_json.c).
 *
 * Pure: the clock is the caller's. Any thread; a report belongs to one. */
#pragma once

#include "base/buffer.h"
#include "clusterfile/cluster_problem.h"
#include "placement/forecast.h"
#include "placement/policy.h"
#include "placement/replicas.h"
#include "report/remedy.h"

enum { REPORT_POLICIES = PLACEMENT_BY_SCORE + 1, REPORT_EXTRAS_MAX = 8, REPORT_WITHOUT_MAX = 16 };

struct report_extra {  /* one device more, in a node that is there */
    const char *words; /* as the user gave it */
    uint32_t node;
    struct cluster_device device; /* with an id that the node does not have */
};

/* What is asked. What it points to must live as long as the report. */
struct report_ask {
    const struct cluster *cluster;
    const struct placement_model *model;
    struct placement_demand demand;
    struct placement_kv_types kv_types;
    const char *model_name; /* for the first line; NULL: none is said */
    uint64_t weight_bytes;  /* of the file */
    bool here;              /* the one node is this machine: names are those of its devices alone */
    const struct placement *given; /* what to forecast; NULL: the best is searched */
    uint32_t n_without, n_extras;
    const char *without[REPORT_WITHOUT_MAX]; /* nodes that are not to be used */
    struct report_extra extras[REPORT_EXTRAS_MAX];
    bool policies[REPORT_POLICIES]; /* by enum placement_policy */
    double limit_s; /* of the search; several groups, and all other questions, have as much again;
                       0: none */
    struct placement_weights weights; /* of the greedy answer; zeroed: as usual */
    double (*now_s)(void *self);      /* NULL: no limit, and no time is said */
    void *self;
};

enum report_limit {
    REPORT_BY_BANDWIDTH, /* reading weights and KV cache */
    REPORT_BY_COMPUTE,
    REPORT_BY_LAUNCH,  /* calls to the device */
    REPORT_BY_LINK,    /* from the stage to the next, or back to the first */
    REPORT_BY_STREAMS, /* too few of them to keep every stage busy */
};

struct report_bottleneck {
    enum report_limit limit;
    uint32_t stage; /* none for BY_STREAMS */
    double part;    /* of a token's time; for several micro-batches in flight: how busy it is */
};

struct report_policy {
    bool asked, found;
    struct placement placement;
    struct placement_forecast forecast;
    char why[ERROR_TEXT_MAX]; /* not found */
};

/* A smaller model that guesses beside the best placement (docs/speculation.md). */
struct report_draft {
    const char *name; /* the caller's; NULL: there is none */
    uint64_t memory_bytes;
    double guess_s;     /* that it takes for a token; 0: not known */
    uint32_t n_devices; /* 0: it can be nowhere */
    struct report_draft_device {
        char node[PLACEMENT_NAME_MAX], id[PLACEMENT_NAME_MAX];
        uint32_t n_layers;
    } devices[LIMIT_STAGES];
};

struct report {
    struct report_ask ask;
    struct cluster_problem cluster_problem;
    /* ERROR_NONE: there is a placement. ERROR_NOT_FOUND: proved that there is none; see `remedies`.
     * ERROR_BUSY: the time was over before either. */
    enum error_code outcome;
    struct placement_solution solution;
    double solve_s; /* with a clock */
    struct placement_forecast forecast;
    struct report_bottleneck bottleneck;
    bool divided; /* it was asked whether several groups are faster (ask.demand.replicas) */
    struct placement_replicas replicas;
    struct placement_reason *reasons; /* [n_devices], the first n_reasons were asked */
    uint32_t n_reasons;
    struct placement_whatifs whatifs;                 /* without each node and device in use */
    struct placement_rates extras[REPORT_EXTRAS_MAX]; /* with each one of ask.extras */
    struct report_policy policies[REPORT_POLICIES];
    struct placement_remedies remedies;
    struct report_draft draft; /* what it brings is forecast.guessed.drafted */
};

/* ERROR_INVALID: the cluster or the demand make no problem (the text says why), a node of `without`
 * is not there, or the placement that was given cannot be; ERROR_NO_MEMORY. Then the report is
 * empty, as a zeroed one is. */
enum error_code report_init(struct report *report, const struct report_ask *ask, struct error *err);
void report_deinit(struct report *report); /* NULL is fine */

/* The name of a device as people see it: "tower/cuda0", of this machine "cuda0". */
struct report_name {
    char text[CLUSTER_NODE_MAX + CLUSTER_ID_MAX];
};
struct report_name report_device_name(const struct report *report, uint32_t device);
/* The least certain speed of a stage in use; an estimate, too, where the types were not measured
 * that the model has. */
enum cluster_speed report_speed(const struct report *report);
/* Whether tokens are guessed on the best placement (docs/speculation.md), as far as its devices
 * say.
 */
bool report_may_guess(const struct report *report);

/* Adds a draft model to a report that is there. `draft`: its problem, with the report's devices.
 * `at`: where it was placed before the model, as on this machine, maybe on devices behind those of
 * the report; NULL: the model's first stage has
 * its memory too, and its device is chosen, as in a cluster (placement/draft_device.h). */
void report_add_draft(struct report *report, const char *name,
                      const struct placement_problem *draft, const struct placement *at);

/* The problem and the forecast of one of several groups. */
struct placement_problem report_group(const struct report *report, uint32_t group,
                                      struct placement_forecast *out);

/* On lack of memory out->failed. */
void report_text(const struct report *report, bool explain, struct buffer *out);

/* The same text of a placement of this machine that was found elsewhere: of this problem, made of
 * that cluster. */
void report_placement_text(const struct cluster *cluster, const struct cluster_problem *problem,
                           const struct placement_solution *solution, struct buffer *out);
void report_json(const struct report *report, struct buffer *out);
