/* The inside of the daemon, for daemon*.c and control*.c alone. */
#pragma once

#include "audit/entry.h"
#include "base/buffer.h"
#include "cluster/state.h"
#include "join/join.h"
#include "node/daemon.h"
#include "node/daemon_tls.h"
#include "node/history.h"
#include "node/rates.h"
#include "node/served.h"
#include "node/sign.h"

#include "node.pb-c.h"

enum {
    TICK_MS = 500,
    FIRST_LINK_MS = 5000,   /* a member that was not met so long after this node began is missed */
    NOW_MS = 2000,          /* between two tellings of what changes all the time, to the leader … */
    NOW_OTHERS_MS = 10000,  /* … and to others */
    NOW_ANEW_MS = 10000,    /* … and of what has not changed */
    HELD_MS = 50,           /* the same where stages have come or gone */
    LISTEN_FIRST_MS = 2500, /* a new node's wait for others, before it founds a cluster */
    ADDRESSES_MAX = 8,      /* of a node */
};

struct admission;
struct admission_events;
struct agreement;
struct book;
struct carrier;
struct catalogue;
struct control;
struct credentials;
struct events;
struct finder;
struct gathering;
struct hosting;
struct link;
struct live;
struct knocks;
struct lead;
struct lend;
struct link_events;
struct mesh;
struct peer;
struct relay;
struct telling;
struct weights;

struct alert_hook;
struct daemon_alerts;
struct daemon_audit;
struct daemon_measure;
struct disk_speed;

enum { RUN_FORECASTS = 8 }; /* instances whose forecasts are kept (daemon_run.h) */
struct run_forecast {
    char instance[LIMIT_CLUSTER_ID_BYTES + 1];
    uint64_t epoch, made_ms;
    double decode_tokens_per_s, prefill_tokens_per_s; /* 0: unknown */
    double stream_tokens_per_s;                       /* of one stream */
};

struct daemon {
    struct daemon_options options;
    uv_loop_t *loop;
    char folder[PATH_MAX];
    char name[JOIN_NAME_TEXT];
    char api[128];
    struct daemon_tls tls; /* of the API */
    int lock;
    uv_timer_t tick;
    bool has_tick, stopping;
    bool is_over;  /* options.over was called */
    bool has_left; /* what is_leaving leads to */
    void (*stopped)(void *arg);
    void *stopped_arg;

    /* who this is */
    struct identity identity;
    char id[NODE_ID_TEXT];
    struct book *book;
    struct finder *finder;
    struct lead *lead;
    struct lend *lend;
    struct disk_speed *disk_speed; /* NULL: there was no memory for it */
    bool computes; /* a reply is under way in the cluster, as far as this node knows */
    struct membership membership;
    bool is_member;
    Cluster__Node *self; /* as it is told to others; NULL before it is a member */
    struct buffer self_bytes;
    uint16_t port;
    char addresses[ADDRESSES_MAX][64];
    uint32_t n_addresses;
    uint32_t n_detours; /* daemon_find_detour()'s questions */
    uint64_t held;      /* the stages that were told last … */
    uint64_t news;      /* … and what everybody was to hear at once */

    /* roles (roles.h), and what it asks admins for (sign.h) */
    bool code_gives_admin;       /* the join code that is out lets an admin in … */
    char promotes[NODE_ID_TEXT]; /* … who was let in with it, and becomes one; "": nobody */
    uint64_t roles_ms, plain_since_ms, rotation_ms, retire_ms, n_questions;
    struct sign_question questions[SIGN_KINDS]; /* by Node__SignWhat */
    char last_asked[NODE_ID_TEXT];

    /* before it is a member */
    uint64_t opened_ms;
    struct knocks *knocks; /* NULL: it has not tried to join */

    /* a member's parts */
    struct credentials *credentials;
    struct mesh *mesh;
    struct agreement *agreement;
    struct daemon_audit *audit; /* daemon_audit.h */
    /* who made the join code that is open, and who let the last machine in by hand */
    char inviter[AUDIT_WHO_TEXT], admitter[AUDIT_WHO_TEXT];
    uint64_t admitted_channel; /* … which was that one */
    struct admission *admission;
    struct weights *weights;
    struct gathering *gathering; /* gathering.h */
    bool gathering_closed;
    struct carrier *carrier;
    struct hosting *hosting;
    struct relay *relay;
    Node__Now *now; /* of this node, as told last; NULL: not yet */
    struct catalogue *catalogue;
    struct run_forecast run_forecasts[RUN_FORECASTS];
    struct served_row served[SERVED_MAX];
    uint64_t term_seen, n_elections; /* of the log, since this node began */
    struct peer *peers;
    bool is_leaving;
    bool has_had_tokens; /* STATE/tokens-made is there */
    uint64_t told_ms;

    struct daemon_alerts *alerts;
    struct daemon_measure *measure;
    struct alert_hook *alert_hook; /* NULL: none was asked for */
    uint64_t api_until_s;          /* when the certificate of the HTTP API ends; 0: there is none */

    struct control *control;
    struct plan_job *plans; /* control_plan.c's, the newest first */
    struct events *events;  /* the last of them */
    struct live *live;      /* the view, and who watches it */
    struct telling *telling;
    struct history history;
    struct rates rates, view_rates; /* of what is told of this node; of what is seen of all */
};

uint64_t daemon_now_ms(const struct daemon *daemon);
uint64_t daemon_wall_ms(void);
void daemon_say(struct daemon *daemon, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
const struct state *daemon_state(const struct daemon *daemon); /* empty while it is no member */
const char *daemon_name_of(const struct daemon *daemon,
                           const char *id); /* a node's name, else its id */
void daemon_propose_bytes(void *self, const void *event, size_t size); /* an encoded event */
/* Something has changed on which others wait: stages, requests, commands. */
void daemon_changed(struct daemon *daemon);
void daemon_tick_within(struct daemon *daemon,
                        uint64_t ms); /* looks at everything then, at the latest */
/* The node is to end: options.over. */
void daemon_over(struct daemon *daemon, const struct error *why);

/* ---- daemon_member.c: becoming a member, and ceasing to be one ---- */
enum error_code daemon_found_cluster(struct daemon *daemon, struct error *err);
enum error_code daemon_begin_membership(struct daemon *daemon, struct error *err);
/* Leaves its cluster: forgets keys, log and book; a new node when it starts again. */
enum error_code daemon_leave(struct daemon *daemon, const char *actor, struct error *err);
void daemon_look_left(struct daemon *daemon); /* now and then */

/* ---- daemon_links.c: what peers are told, and their frames ---- */
struct link_events daemon_link_events(struct daemon *daemon);
void daemon_post(struct link *link, uint16_t type, const void *bytes, size_t size); /* control */
void daemon_tell_now(struct daemon *daemon);
void daemon_tell_about(struct daemon *daemon); /* daemon->self has changed */
void daemon_tell_held(
    struct daemon *daemon); /* soon, and to all, where this node has other stages than it told */
/* The member id, as far as it is that node's (claims_member()): else 0. */
uint64_t daemon_member_of(const struct daemon *daemon, const char *node, uint64_t member);
bool daemon_send_raft(void *self, uint64_t member, const void *bytes, size_t size);
bool daemon_forward(void *self, uint64_t member, const void *event, size_t size);

/* ---- daemon_admit.c: letting others in ---- */
struct admission_events daemon_admission_events(struct daemon *daemon);

/* ---- daemon_files.c: files of this machine ---- */
/* Makes the cluster know a model's file; `done` with its name. `defaults`: what its requests begin
 * with (library/defaults.h); copied. NULL: nothing. */
void daemon_add_file(struct daemon *daemon, const char *path, const char *defaults,
                     const char *actor,
                     void (*done)(void *arg, const char *model, const struct error *err),
                     void *arg);

/* The same for a model that is on this node's shelf. `actor` NULL: this node. */
struct weights_facts;
void daemon_register(struct daemon *daemon, const struct weights_facts *facts, const char *actor,
                     void (*done)(void *arg, const char *model, const struct error *err),
                     void *arg);

/* ---- daemon_models.c: instances ---- */
enum error_code daemon_models_open(struct daemon *daemon,
                                   struct error *err); /* catalogue, hosting and relay */
struct place_demand {
    const char *actor;          /* who asks for it, for the record; NULL: this node */
    uint32_t context;           /* 0: what fits; the usual one for stages that are chosen by hand */
    uint32_t streams;           /* 0: as usual */
    uint32_t cells;             /* tokens that they share; 0: as usual */
    bool is_by_hand;            /* its stages are */
    bool has_goal;              /* else as usual: throughput */
    uint32_t goal;              /* enum placement_goal */
    bool has_kv_type;           /* else as usual: f16 */
    uint32_t kv_type;           /* enum kv_type */
    uint32_t precision;         /* of the weights: enum ggml_type; 0: as stored */
    uint32_t precision_allowed; /* the same while a device is hot or short of memory; 0: none */
    uint64_t weights_bytes;     /* of a stage, in memory; 0: as usual, all that fit */
    bool has_score;             /* else as usual */
    Cluster__ScoreWeights score;                     /* initialised where it is there */
    uint32_t time_limit_s;                           /* 0: as usual */
    bool has_rope;                                   /* else as the model's file says */
    Cluster__Rope rope;                              /* as score */
    bool has_speculate;                              /* the same: lookup */
    uint32_t speculate;                              /* enum speculate */
    char draft[LIMIT_CLUSTER_TEXT_BYTES + 1];        /* the model that guesses; "": none */
    char draft_device[LIMIT_CLUSTER_TEXT_BYTES + 1]; /* the device that has it; "": as usual */
    bool has_idle;                                   /* else 0: never */
    uint64_t idle_ms;
};
/* The instance of a model, wanted from now on. ERROR_NOT_FOUND: no such model. */
enum error_code daemon_want(struct daemon *daemon, const char *model,
                            const struct place_demand *wanted, struct error *err);
/* Whether the model can be what is asked for, with what is kept of an instance before (NULL: there
 * was none): its context, its rotations, its cells. */
enum error_code daemon_check_wanted(struct daemon *daemon, const Cluster__Model *model,
                                    const Cluster__Instance *before,
                                    const struct place_demand *wanted, struct error *err);
bool daemon_meets(const Cluster__Instance *instance, const struct place_demand *wanted);
/* daemon_want() keeps the instance as it is; else it makes it anew. */
bool daemon_keeps(const struct daemon *daemon, const Cluster__Instance *instance,
                  const struct place_demand *wanted);
/* The demand of one that is made anew: what is not wanted now is as it was wished before
 * (node/wish.h), or as usual. Parts of it are the state's, or wanted's. */
void daemon_demand(struct daemon *daemon, const char *model, const struct place_demand *wanted,
                   Cluster__Demand *out);
enum instance_phase {
    INSTANCE_IDLE,
    INSTANCE_PLACING,
    INSTANCE_LOADING,
    INSTANCE_READY,
    INSTANCE_FAILED
};
enum instance_phase daemon_phase(const struct daemon *daemon, const Cluster__Instance *instance,
                                 const char **problem);
bool daemon_has_model(struct daemon *daemon,
                      const Cluster__Model *model); /* all of it, on this disk */

/* ---- daemon_metrics.c ---- */
void daemon_note_term(struct daemon *daemon); /* now and then: elections are counted by it */

/* ---- daemon_tokens.c ---- */
void daemon_note_tokens(struct daemon *daemon);   /* the state has changed */
void daemon_forget_tokens(struct daemon *daemon); /* it leaves its cluster */

/* ---- control.h's server ---- */
enum error_code control_open(struct daemon *daemon, struct error *err);
void control_changed(struct daemon *daemon); /* conversations that wait look again */
void control_event(struct daemon *daemon, uint64_t index, const Cluster__Event *event,
                   bool applied);
void control_note_event(struct daemon *daemon, uint64_t index, const Cluster__Event *event,
                        bool applied);
/* The last `n` that were noted, oldest first, each as a JSON object. */
void control_each_event(struct daemon *daemon, uint32_t n,
                        void (*each)(void *arg, const char *event, size_t size), void *arg);
void control_close(struct daemon *daemon, void (*closed)(struct daemon *daemon));
