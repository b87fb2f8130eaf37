/* What a run is made of, for src/sim alone (world.h). A struct node is a machine with its process;
 * what is in it is of the process, but for the disk, the devices and the clock. */
#pragma once

#include "agreement/party.h"
#include "cluster/master.h"
#include "cluster/replica.h"
#include "cluster/worker.h"
#include "hosting/handover.h"
#include "hosting/parts.h"
#include "hosting/reach.h"
#include "mesh/frames.h"
#include "mesh/pulse.h"
#include "relay/relay_core.h"
#include "sim/sim.h"
#include "simdevices/sim_plant.h"
#include "thermal/governor.h"

enum {
    TICK_MS = 250,
    TICK_OF_MANY_MS = 1000,
    RETRANSMIT_MS = 200,
    SILENT_MS = 5000, /* mesh_options: silence_ms, dead_ms */
    DEAD_MS = 10000,
    GONE_MS = 400, /* node/peers.h */
    HEAT_MS = 500,
    LEAD_MS = 100, /* at least, between two steps of the leader */
    PROPOSAL_AGAIN_MS = 1000,
    PROPOSAL_MS = 10000,
    REOPEN_MS = 1000, /* of a store that failed, and longer each time */
    NAME_MAX_BYTES = 16,
    WATCHES = 256,
    MISSED_MAX = 16,       /* nodes that one tells the leader of; there are seldom more */
    WORLD_MEMBERS = 16384, /* more than twice the nodes and faults of a scenario */
};

#define WALL_BEGIN_MS INT64_C(1000000000000) /* so that clocks may be set back */
#define NEVER_MS (UINT64_C(1) << 50)

/* What a node tells the leader all the time. */
struct said {
    uint32_t wanted; /* of which instances requests wait there */
    uint32_t live[SCENARIO_INSTANCES];
    uint64_t used_ms[SCENARIO_INSTANCES];
    double tokens[SCENARIO_INSTANCES]; /* generated of late */
    double share[SCENARIO_DEVICES];    /* of its time that it may compute */
    double headroom[SCENARIO_DEVICES];
    struct thermal_prospect
        prospects[SCENARIO_DEVICES]; /* with a share that is not valid: none is known */
    uint64_t others_bytes;           /* of each device's memory, other programs' */
    uint32_t n_missed;
    char *missed[MISSED_MAX]; /* ids of nodes that it was linked with, and does not hear */
};

enum message_kind {
    /* lossy */
    MESSAGE_RAFT = 1,
    MESSAGE_PROPOSE,
    MESSAGE_NOW, /* a struct said */
    /* of a link: in order, once, while it is up */
    MESSAGE_FRAME, /* what the product's own code says, as bytes (frames.c) */
    MESSAGE_STEP,  /* tokens on their way through the stages */
    MESSAGE_RESULT,
    MESSAGE_NOTICE, /* to the driver: a round is lost */
};

struct message {
    enum message_kind kind;
    uint32_t from, to;
    uint64_t link, number; /* of the link; 0: lossy */
    uint64_t member;       /* RAFT: the sender's, and the receiver's in `a` */
    uint32_t instance, stage, slot;
    uint64_t epoch, request, part, round, position, value, a;
    uint64_t *tokens;
    uint32_t n_tokens;
    enum node_frame frame; /* FRAME: what the bytes are */
    uint8_t *bytes;
    size_t size;
    bool is_forged; /* by a hostile node, on purpose */
};

enum event_type {
    EVENT_MESSAGE = 1,
    EVENT_WAKE,
    EVENT_DISK,
    EVENT_STAGE,
    EVENT_FAULT,
    EVENT_HEAL,
    EVENT_STREAM,
    EVENT_LINK,
    EVENT_SILENCE,
    EVENT_LOOK,
    EVENT_ANSWER,
    EVENT_HEAT,
    EVENT_STEP,
    EVENT_CHECK,
    EVENT_JOIN,
    EVENT_RELAY,
    EVENT_HOSTILE
};

struct event {
    uint64_t at_ms, order;
    enum event_type type;
    uint32_t node, other;
    uint64_t a, b;
    struct message *message;
};

struct disk_write {
    struct disk_write *next;
    struct log_write write;
};

struct wish { /* an event that waits for the log to take it */
    struct wish *next;
    struct node *node;
    uint64_t key;
    bool client; /* somebody is told when it was applied */
};

struct cached {     /* what a stage has in a slot: after each token a hash of all so far */
    uint64_t round; /* of the last step that wrote it */
    uint32_t n, capacity;
    uint64_t *rows;
};

struct written { /* rows of one layer of a slot that a placement before has sent */
    struct written *next;
    uint32_t layer, slot, n, capacity;
    uint64_t *rows;
};

struct hosted {
    struct hosted *next;
    uint64_t key; /* of this load: another one after each */
    uint32_t instance, device, stage;
    uint64_t epoch, bytes;
    uint32_t first_layer, n_layers;
    enum worker_stage_state state;
    bool holds; /* its device's memory */
    uint32_t n_cached, n_route;
    struct cached *cached; /* by slot */
    uint32_t *route;       /* nodes of its placement's stages, as it was when this was loaded */
    struct written *written;
};

struct sim_part {          /* what a node has of a placement */
    struct part_life life; /* first */
    uint32_t instance;
    uint64_t job;    /* key of what its devices do for all of it; 0: nothing */
    uint32_t n_jobs; /* others, of its caches */
    struct reach reach;
    struct handover_part about;
    struct cache_give give;
    struct cache_take take;
    bool quiesces;
    bool is_full;               /* the driver began with the slots of the offer … */
    bool used[LIMIT_SEQUENCES]; /* … of which these are a sequence's by now, or were */
};

struct made_up_sequence { /* at a driver: a request, as it was given to it */
    struct made_up_sequence *next;
    uint64_t request, part, epoch, round;
    uint32_t instance, slot;
    uint64_t *tokens;
    uint32_t n_tokens, n_fed, n_prompt, n_cached, capacity;
    uint32_t left;
    struct request_handlers handlers;
    void *arg;
};

struct wanted_change { /* by an honest admin, of all */
    struct wanted_change *next;
    uint64_t hash;
};

struct client { /* who waits for a reply, at the node that was asked */
    struct client *next;
    struct world *w;
    struct node *node;
    uint64_t request;
    uint32_t stream, n_tokens, got;
    int32_t *prompt;
    uint64_t reference; /* hash of the tokens so far */
    bool is_tainted;    /* a hostile node has had a part in it */
    uint64_t heard_ms;
};

struct seat { /* what the relay's questions are answered from */
    struct world *w;
    struct node *node;
    bool carries;
    uint32_t n_through;
};

struct made_up_device {
    struct plant_params plant;
    struct plant body;
    struct thermal_governor governor;
    double duty;
    uint64_t busy_us; /* since the last sample */
};

struct node {
    uint32_t index;
    char id[NODE_ID_TEXT];     /* as the others know it: `name`, or with roles its key's hash */
    char name[NAME_MAX_BYTES]; /* n0, n1 … */
    struct identity identity;  /* with roles */
    uint64_t member, former_member; /* 0: its log was never lost */
    struct hostile *hostile;        /* NULL: it is honest */
    uint64_t leader_ms;             /* when its log last heard its leader */
    bool joined, up, powered;
    uint64_t paused_until_ms, up_ms, boots, life, full_until_ms, slow_until_ms, slow_ms;
    uint64_t wake_ms, tick_ms, lead_ms;
    bool devices_gone[SCENARIO_DEVICES];
    struct made_up_device *devices; /* [devices]; NULL: it never gets warm */
    uint64_t others_bytes;
    int64_t wall_ms;  /* how far its wall clock is off */
    double air_k;     /* how much warmer the air is to be; */
    double air_now_k; /* is, since it warms by and by */
    uint32_t n_watches;
    uint16_t watches[WATCHES];
    bool has_weights[SCENARIO_INSTANCES], fetches[SCENARIO_INSTANCES];

    struct world *world;
    struct party *party; /* NULL: the process does not run */
    struct log_saved disk;
    struct disk_write *writes, **last_write;
    bool disk_busy;
    uint32_t batch; /* of the writes, on their way together */
    bool changed;
    uint64_t applied, last_epoch;
    struct lineage epoch_lineage;
    struct wish *wishes;

    bool leads;
    uint64_t term, leads_since_ms, members_ms;

    struct master *master;
    struct master_mover *mover;
    uint64_t *heard_ms, *steady_ms, *recorded_ms; /* [n_nodes], while it leads */
    struct said *said;                            /* the same */
    uint32_t moves[SCENARIO_INSTANCES];           /* for gain, and forced ones, while it leads */

    struct hosted *hosted;
    struct parts parts; /* of struct sim_part */
    struct kept_job *cache_jobs;
    struct made_up_sequence *sequences;
    struct relay_core *relay; /* NULL: the node is down */
    struct seat seat;
    uint64_t relay_ms; /* its next turn, unless one comes before */
    struct client *clients;
};

struct watched {
    struct pulse pulse;
    uint64_t key, asked_ms, answer_ms;
    uint64_t again_ms, timeout_ms; /* while nothing passes */
};

struct end {       /* of a link */
    uint64_t link; /* 0: down */
    uint64_t sent, received, heard_ms;
    uint64_t down_ms;        /* it ended then, and no other came; 0: there is one, or never was */
    struct watched *watched; /* NULL: not closely */
    bool silent;
};

struct facts;

struct world {
    const struct scenario *scenario;
    const struct sim_options *options;
    struct sim_result *result;
    uint64_t seed, draws, now_ms, order;
    bool over, out_of_memory;
    uint32_t n;
    struct node *nodes;
    uint16_t *by_member; /* hashed, [WORLD_MEMBERS]: a node and 1; ids that are gone stay */
    struct end *ends;    /* [at * n + to] */
    uint16_t *cuts;      /* [from * n + to]: how many faults cut it */
    uint64_t loss_ppm, double_ppm, slow_ms;
    uint64_t n_links, n_keys, n_requests;
    struct event *heap;
    size_t n_events, capacity;
    bool has_roles;
    bool shares; /* one state for all nodes with one log */
    struct party_states shared;
    struct view *views[4096];
    struct facts *facts;
    struct wanted_change *asked;
    uint32_t open_requests;
    uint64_t *stream_left;
    bool healed;
    uint64_t healed_ms, acked;
    uint64_t token_ms; /* the last one, of any request */
    struct world_planner *planner;
    struct leading *leading;
};
