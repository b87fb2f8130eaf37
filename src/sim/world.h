/* The inside of a run, for src/sim alone. Files: chance.c chance and the heap of events; world.c what becomes of them;
 * faults.c; run.c the beginning and the end; net.c messages; links.c how links come and end, watch.c how silence on
 * them is found; log.c a node's replica, views.c its state, disk.c what it writes, propose.c events on their way into
 * the log; lead.c what a leader does, records.c what it keeps true, planner.c the problems it solves; host.c stages and
 * devices; heat.c how warm those are; serve.c drivers, stage.c what computes for them; ask.c requests; check.c what
 * must be so.
 *
 * An event concerns one node. When it has been handled, world_turn() carries out what the node wants, and sets its
 * timer. */
#pragma once

#include "cluster/master.h"
#include "cluster/replica.h"
#include "cluster/worker.h"
#include "gpu/sim_plant.h"
#include "mesh/pulse.h"
#include "node/nonces.h"
#include "sim/sim.h"
#include "thermal/governor.h"

enum {
    TICK_MS = 250,
    TICK_OF_MANY_MS = 1000,
    RETRANSMIT_MS = 200,
    SILENT_MS = 5000, /* mesh_options: silence_ms, dead_ms */
    DEAD_MS = 10000,
    HEAT_MS = 500,
    LEAD_MS = 100, /* at least, between two steps of the leader */
    PROPOSAL_AGAIN_MS = 1000,
    PROPOSAL_MS = 10000,
    MEND_MS = 250, /* between attempts to use a driver again */
    ID_MAX = 16,
    WATCHES = 256,
    WORLD_MEMBERS = 16384, /* more than twice the nodes and faults of a scenario */
};

#define WALL_BEGIN_MS INT64_C(1000000000000) /* so that clocks may be set back */

/* What a node tells the leader all the time. */
struct said {
    uint32_t wanted; /* of which instances requests wait there */
    uint32_t live[SCENARIO_INSTANCES];
    uint64_t used_ms[SCENARIO_INSTANCES];
    double tokens[SCENARIO_INSTANCES];        /* generated of late */
    uint32_t duty_permille[SCENARIO_DEVICES]; /* 1000: all of its time */
    double headroom[SCENARIO_DEVICES];
    uint64_t others_bytes; /* of each device's memory, other programs' */
};

enum message_kind {
    /* lossy */
    MESSAGE_RAFT = 1,
    MESSAGE_PROPOSE,
    MESSAGE_NOW, /* a struct said */
    /* of a link: in order, once, while it is up */
    MESSAGE_REQUEST, /* a part of an ask: its tokens so far */
    MESSAGE_TOKEN,
    MESSAGE_RETURNED, /* the driver cannot, or not any more */
    MESSAGE_STEP,     /* tokens on their way through the stages */
    MESSAGE_RESULT,
    MESSAGE_NOTICE, /* to the driver: a round is lost */
};

struct message {
    enum message_kind kind;
    uint32_t from, to;
    uint64_t link, number; /* of the link; 0: lossy */
    uint64_t member;       /* RAFT: the sender's, and the receiver's in `a` */
    uint32_t instance, stage;
    uint64_t epoch, request, part, round, position, value, a;
    uint64_t *tokens;
    uint32_t n_tokens;
    uint8_t *bytes;
    size_t size;
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
    EVENT_JOIN
};

struct event {
    uint64_t at_ms, order;
    enum event_type type;
    uint32_t node, other;
    uint64_t a, b;
    struct message *message;
};

/* A state that nodes with the same log share: the chain says which log. */
struct view {
    struct state state;
    uint32_t refs;
    uint64_t chain;
    struct buffer encoded; /* as a snapshot, once one was taken */
    struct view *next;
};

struct queued_write {
    struct queued_write *next;
    struct log_write write;
};

struct proposal {
    struct proposal *next;
    uint64_t nonce, key, deadline_ms, again_ms;
    bool client; /* somebody is told when it was applied */
    struct buffer event;
};

struct foreign {
    struct foreign *next;
    struct buffer event;
};

struct cached { /* what a stage has of a sequence */
    uint64_t request, part, tokens, hash;
};

struct hosted {
    struct hosted *next;
    uint64_t key; /* of this load: another one after each */
    uint32_t instance, device, stage;
    uint64_t epoch, bytes;
    uint32_t first_layer, n_layers;
    enum worker_stage_state state;
    bool waits, holds; /* for the device's memory; has it */
    const char *problem;
    uint32_t n_cached;
    struct cached *cached;
    /* stage 0 of a placement is where its driver is */
    bool lost;
    uint64_t mend_ms;
};

struct sequence { /* at a driver */
    struct sequence *next;
    uint64_t request, part, epoch, round, link;
    uint32_t instance, origin;
    uint64_t *tokens;
    uint32_t n_tokens, n_fed, capacity;
    uint32_t left;
};

enum ask_state { ASK_WAITING, ASK_THERE };
struct ask { /* at the node that was asked */
    struct ask *next;
    uint64_t request, part, epoch, link;
    uint32_t stream, instance, n_prompt, n_tokens, got;
    enum ask_state state;
    uint32_t where;
    uint64_t *tokens;
    uint64_t reference; /* hash of the tokens so far */
    uint64_t since_ms, heard_ms;
};

struct device {
    struct plant_params plant;
    struct plant body;
    struct thermal_governor governor;
    uint32_t duty_permille;
    uint64_t busy_us; /* since the last sample */
};

struct node {
    uint32_t index;
    char id[ID_MAX];
    uint64_t member;
    bool joined, up, powered;
    uint64_t paused_until_ms, up_ms, boots, life, full_until_ms, slow_until_ms, slow_ms;
    uint64_t wake_ms, tick_ms, lead_ms;
    bool devices_gone[SCENARIO_DEVICES];
    struct device *devices; /* [devices]; NULL: it never gets warm */
    uint64_t others_bytes;
    int64_t wall_ms; /* how far its wall clock is off */
    double air_k;    /* how much warmer the air is */
    double recent_tokens[SCENARIO_INSTANCES];
    uint64_t recent_ms[SCENARIO_INSTANCES];
    uint32_t n_watches;
    uint16_t watches[WATCHES];
    bool has_weights[SCENARIO_INSTANCES], fetches[SCENARIO_INSTANCES];
    uint64_t used_ms[SCENARIO_INSTANCES];

    struct replica *replica;
    struct log_saved disk;
    struct queued_write *writes, **last_write;
    bool disk_busy;
    uint32_t batch; /* of the writes, on their way together */
    uint64_t reopen_ms;
    struct view *view, *kept;
    bool keeps, changed;
    uint64_t kept_until, applied, last_epoch;
    struct replica_effect *unapplied; /* committed, in this turn: where nodes share states */
    uint32_t n_unapplied, unapplied_capacity;
    struct lineage epoch_lineage;

    struct proposal *proposals;
    struct foreign *foreign;
    struct nonces nonces;
    bool leads, ready;
    uint64_t term, lead_from, ready_by_ms, leads_since_ms, members_ms, members_pause_ms;

    struct master *master;
    struct master_mover *mover;
    uint64_t *heard_ms, *steady_ms, *recorded_ms; /* [n_nodes], while it leads */
    struct said *said;                            /* the same */
    uint32_t moves[SCENARIO_INSTANCES];           /* for gain, and forced ones, while it leads */

    struct hosted *hosted;
    struct sequence *sequences;
    struct ask *asks;
};

struct watched {
    struct pulse pulse;
    uint64_t key, asked_ms, answer_ms;
    uint64_t again_ms, timeout_ms; /* while nothing passes */
};

struct end {       /* of a link */
    uint64_t link; /* 0: down */
    uint64_t sent, received, heard_ms;
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
    bool shares; /* one state for all nodes with one log */
    struct view *views[4096];
    struct facts *facts;
    uint32_t open_asks;
    uint64_t *stream_left;
    bool healed;
    uint64_t healed_ms, acked;
    uint64_t token_ms; /* the last one, of any request */
    struct world_planner *planner;
    struct leading *leading;
};

static inline uint64_t world_wall_ms(const struct world *w, const struct node *node)
{
    return (uint64_t)((int64_t)w->now_ms + WALL_BEGIN_MS + node->wall_ms);
}

/* ---- chance.c ---- */
uint64_t world_draw(struct world *w, uint64_t below);
bool world_chance_ppm(struct world *w, uint64_t ppm);
void world_say(struct world *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
void world_violated(struct world *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
void world_push(struct world *w, struct event event);
struct event world_pop(struct world *w);

/* ---- world.c ---- */
void world_turn(struct world *w, struct node *node);
void world_step(struct world *w);
bool node_runs(const struct world *w, const struct node *node);
void world_new_member(struct world *w, struct node *node);
struct node *world_member(const struct world *w, uint64_t member); /* NULL: nobody's */
static inline struct node *world_node(struct world *w, const char *id)
{
    uint32_t index = 0;
    for (const char *at = id + 1; *at; at++)
        index = 10 * index + (uint32_t)(*at - '0');
    return &w->nodes[index];
}
static inline uint32_t instance_index(const char *id)
{
    return (uint32_t)(id[1] - '0');
}

/* ---- net.c ---- */
struct message *message_new(enum message_kind kind, const struct node *from, uint32_t to);
void message_free_one(struct message *message);
void net_send(struct world *w, struct message *message);      /* lossy */
bool net_send_link(struct world *w, struct message *message); /* false: it is down; the message is freed */
void net_deliver(struct world *w, struct event *event);
uint64_t net_link(const struct world *w, uint32_t at, uint32_t to); /* 0: down; a node has one to itself */
bool net_reaches(const struct world *w, uint32_t from, uint32_t to);
bool net_is_cut(const struct world *w, uint32_t from, uint32_t to);
uint64_t net_way_ms(struct world *w); /* drawn: delay and losses of something on a link */

/* ---- links.c ---- */
struct end *net_end(const struct world *w, uint32_t at, uint32_t to);
void net_try_link(struct world *w, uint32_t a, uint32_t b);
void net_links_soon(struct world *w, uint32_t node);
void net_node_gone(struct world *w, uint32_t node, bool told);
void net_silence(struct world *w, const struct event *event);
void net_watch(struct world *w, uint32_t at, uint32_t to); /* looks after a while whether it is still there */
void net_cut(struct world *w, uint32_t from, uint32_t to, int by);
void net_push(struct world *w, enum event_type type, uint64_t after_ms, uint32_t at, uint32_t to, uint64_t b);
void net_unwatch(struct end *end);
void net_become_silent(struct world *w, uint32_t at, uint32_t to);
void net_give_up(struct world *w, uint32_t at, uint32_t to); /* the end is closed; the other is told if it can be */

/* ---- watch.c ---- */
void net_heard(struct world *w, struct node *node, uint32_t from);
bool net_silent(const struct world *w, uint32_t at, uint32_t to);
void net_watch_peers(struct world *w, struct node *node);
void net_look(struct world *w, const struct event *event);
void net_answer(struct world *w, const struct event *event);

/* ---- faults.c ---- */
void fault_begin(struct world *w, uint32_t index);
void fault_end(struct world *w, uint32_t index);
uint64_t fault_end_ms(const struct world *w, const struct scenario_fault *fault);
void node_start(struct world *w, struct node *node);
void node_stop(struct world *w, struct node *node, bool told, bool lost);

/* ---- heat.c ---- */
bool heat_init(struct world *w, struct node *node);
void heat_sample(struct world *w, struct node *node);
/* The device works for so long at full duty; when it has done that. */
uint64_t heat_work_ms(struct node *node, uint32_t device, uint64_t ms);
void heat_say(const struct world *w, const struct node *node, struct said *out);

/* ---- log.c ---- */
bool log_start(struct world *w, struct node *node);
void log_stop(struct world *w, struct node *node, bool lost);
void log_receive(struct world *w, struct node *node, const struct message *message);
void log_disk(struct world *w, struct node *node);
void log_turn(struct world *w, struct node *node);
uint64_t log_timer(const struct world *w, const struct node *node);
void log_propose(struct world *w, struct node *node, Cluster__Event *event, uint64_t key, bool client);
void log_receive_proposal(struct world *w, struct node *node, const struct message *message);
const struct state *node_state(const struct node *node);

/* ---- views.c ---- */
struct view *view_new(struct world *w, uint64_t chain);
void view_drop(struct world *w, struct view *view); /* NULL is fine */
uint64_t view_chain(const struct lineage *lineage, uint64_t index);
bool view_share(struct world *w, struct node *node, uint64_t chain); /* true: it has that one now */
bool view_own(struct world *w, struct node *node, uint64_t chain);   /* to be changed */
void view_keep(struct world *w, struct node *node, uint64_t until);  /* shown until the new one has come so far */
void view_advance(struct world *w, struct node *node, uint64_t index);

/* ---- propose.c ---- */
void proposal_free(struct proposal **link);
void propose_foreign(struct world *w, struct node *node, bool use);
void propose_step(struct world *w, struct node *node, const struct replica_status *status);
void propose_applied(struct world *w, struct node *node, uint64_t nonce, uint64_t index);

/* ---- disk.c ---- */
void disk_queue(struct world *w, struct node *node, struct replica_effect *effect);
bool disk_open_replica(struct world *w, struct node *node);

/* ---- lead.c ---- */
void lead_turn(struct world *w, struct node *node);
void lead_lost(struct node *node);
bool lead_open(struct world *w, struct node *node);
bool leading_init(struct world *w);

/* ---- records.c ---- */
void record_all(struct world *w, struct node *node);
void record_model(struct world *w, struct node *node, uint32_t instance);

/* ---- planner.c ---- */
enum error_code planner_init(struct world *w);
void planner_deinit(struct world *w);
struct master_planner planner_of(struct world *w, struct node *node);
bool planner_has_weights(void *world, const char *node, const char *model);

/* ---- host.c ---- */
void host_turn(struct world *w, struct node *node);
void host_event(struct world *w, struct node *node, const struct event *event);
void host_drop_all(struct node *node);
void host_device_gone(struct world *w, struct node *node, uint32_t device, const char *why);
struct hosted *host_find(struct node *node, uint32_t instance, uint64_t epoch, uint32_t stage);
void host_check(struct world *w, struct node *node);

/* ---- serve.c ---- */
struct hosted *serve_driver(struct world *w, struct node *node, uint32_t instance);
void serve_receive(struct world *w, struct node *node, const struct message *message);
void serve_begin(struct world *w, struct node *node, uint32_t origin, const struct message *request);
void serve_event(struct world *w, struct node *node, const struct event *event);
void serve_link_down(struct world *w, struct node *node, uint32_t other);
void serve_turn(struct world *w, struct node *node);
void serve_stage_gone(struct world *w, struct node *node, const struct hosted *stage);
void serve_drop_all(struct node *node);

const Cluster__Placement *serve_placement(const struct node *node, uint32_t instance, uint64_t epoch);
/* To the driver: what came for a stage here is lost. */
void serve_notice(struct world *w, struct node *node, const Cluster__Placement *placement, const struct message *m);

/* ---- stage.c ---- */
void stage_step(struct world *w, struct node *node, const struct message *message);

/* ---- ask.c ---- */
void ask_begin(struct world *w, struct node *node, uint32_t stream);
void ask_turn(struct world *w, struct node *node);
void ask_receive(struct world *w, struct node *node, const struct message *message);
void ask_link_down(struct world *w, struct node *node, uint32_t other);
void ask_drop_all(struct world *w, struct node *node);
uint32_t ask_wanted(const struct node *node);
void ask_say(const struct world *w, const struct node *node, struct said *out);
uint64_t reference_fold(uint64_t hash, uint64_t token);
uint64_t reference_token(uint64_t hash, uint64_t position);

/* ---- check.c ---- */
bool check_init(struct world *w);
void check_deinit(struct world *w);
void check_leader(struct world *w, const struct node *node, const struct replica_status *status);
void check_applied(struct world *w, struct node *node, const struct replica_effect *effect);
void check_state(struct world *w, struct node *node, struct lineage lineage, uint64_t index);
void check_placed(struct world *w, struct node *node, struct lineage lineage, const Cluster__InstancePlaced *placed);
void check_acknowledged(struct world *w, struct node *node, uint64_t index);
bool check_converged(struct world *w, char *why, size_t size);
uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t size);
