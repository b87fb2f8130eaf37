/* The inside of placing*.c. */
#pragma once

#include "placing/placing.h"

struct placing_node {
    const Cluster__Node *node;
    const struct placing_seen *seen; /* NULL: nothing is known of it now */
    uint32_t index;                  /* in the cluster */
};

/* A cluster together with where it is from; what it points to is the state's and the view's. */
struct placing_gathered {
    struct cluster cluster;
    struct placing_node *nodes;        /* by the cluster's order */
    const struct placing_node **by_id; /* the same, sorted by id */
    struct master_device *names;       /* by device */
};

/* Without the state's stages: what each device says is free. */
enum error_code placing_gather(const struct placing_view *view, struct placing_gathered *out,
                               struct error *err);
void placing_gathered_deinit(struct placing_gathered *gathered); /* a zeroed one is fine */

const struct placing_node *placing_find_node(const struct placing_gathered *gathered,
                                             const char *id); /* NULL: none */
/* Of a stage; UINT32_MAX: it is not there. */
uint32_t placing_find_device(const struct placing_gathered *gathered, const Cluster__Stage *stage);
/* What is said of a device now; NULL: nothing. */
const Node__DeviceNow *placing_device_now(const struct placing_node *node, const char *id);

/* The memory rule of placing.h. */
enum error_code placing_count_memory(const struct placing_view *view,
                                     struct placing_gathered *gathered, const char *instance,
                                     struct error *err);

/* What an instance costs and asks for. */
struct placing_cost {
    struct plan_model model;
    struct placement_demand demand;
};
enum error_code placing_cost_of(const struct placing_view *view, const Cluster__Instance *instance,
                                bool embedding_counts, struct placing_cost *out, struct error *err);
/* The same of a demand alone; the model may be closed afterwards. */
enum error_code placing_cost_of_model(const Cluster__Demand *demand, const struct model *model,
                                      bool embedding_counts, struct placing_cost *out,
                                      struct error *err);

/* Of a stage, in the problem; n_devices: it is not there. */
uint32_t placing_stage_device(const struct placing *p, const Cluster__Stage *stage);

/* Adds to the first stage what its draft model takes, if its header is here. */
enum error_code placing_add_draft(const struct placing_view *view,
                                  const Cluster__Instance *instance, bool embedding_counts,
                                  struct placing_cost *out, struct error *err);
/* What the draft model brings, and the id of its device; both stay as they are where that cannot be
 * told. `p` has the instance's problem. */
void placing_forecast_draft(const struct placing *p, const Cluster__Instance *instance,
                            const struct placement_problem *problem,
                            const struct placement *placement, struct placement_guessed *out,
                            char device[CLUSTER_ID_MAX]);

/* What a cluster's problem has of its own beside that of a file: no way through others, and hidden
 * states as they travel. */
void placing_adapt(const struct cluster *cluster, enum activation_type wire,
                   struct cluster_problem *posed);

/* What each device streams from, one disk a node; to be freed. NULL: not enough memory. */
struct plan_stream_disk *placing_disks(const struct cluster *cluster);
