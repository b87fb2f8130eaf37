/* The inside of the daemon, for daemon*.c and control*.c alone. */
#pragma once

#include "agreement/agreement.h"
#include "cluster/master.h"
#include "hosting/carrier.h"
#include "hosting/hosting.h"
#include "join/admission.h"
#include "join/book.h"
#include "join/join.h"
#include "join/joining.h"
#include "mesh/discovery.h"
#include "mesh/host_port.h"
#include "node/daemon.h"
#include "placing/placing.h"
#include "relay/relay.h"
#include "trust/authority.h"
#include "trust/credentials.h"
#include "weights/weights.h"

#include "node.pb-c.h"

enum {
    TICK_MS = 500,
    GONE_MS =
        400, /* a link that broke is back after 100 to 200 ms, or its node is taken to be lost */
    FIRST_LINK_MS = 5000,   /* a member that was not met so long after this node began is missed */
    NOW_MS = 2000,          /* between two tellings of what changes all the time, to the leader … */
    NOW_OTHERS_MS = 10000,  /* … and to others */
    THROUGH_MS = 1000,      /* that a node is missed before others are asked to hand on to it */
    HELD_MS = 50,           /* the same where stages have come or gone */
    NEW_LINK_MS = 2000,     /* between two events of a link whose bandwidth is not known yet … */
    MEASURE_MS = 60000,     /* … and of one where it is */
    LISTEN_FIRST_MS = 2500, /* a new node's wait for others, before it founds a cluster */
    ADDRESSES_MAX = 8,      /* of a node */
};

/* A member that this node has heard of, itself excluded. */
struct peer {
    struct peer *next;
    uint8_t node_id[NODE_ID_BYTES];
    char id[NODE_ID_TEXT];
    struct link *link; /* NULL: none that is up */
    uint32_t n_links;  /* up and not down yet: for a moment there may be two */
    bool is_silent;
    uint64_t heard_ms, up_ms;
    uint64_t silent_ms; /* when it was found to be silent, last */
    uint64_t
        down_ms; /* its last link ended then, and no other came; 0: there is one, or never was */
    Cluster__Node *about; /* what it says of itself; NULL: nothing yet */
    Node__Now *now;       /* the same */
    uint64_t proposed_ms; /* its record for the state, last */
    uint64_t told_ms;     /* when it was told of what changes all the time, last */
    uint64_t measured_ms; /* when the link to it was last worth an event; 0: never */
};

enum {
    CONTACT_ADDRESSES = 16,
    FOUND_MAX = LIMIT_CLUSTER_NODES,
    ALONE_FAILURES = 5,
    ALONE_ROUNDS = 2
};

/* A node to dial, or an address that was given and whose node is not known yet. */
struct contact {
    struct contact *next;
    bool has_node_id, is_wanted;
    bool is_known; /* given, and its node has a contact of its own by now */
    uint8_t node_id[NODE_ID_BYTES];
    struct contact_address {
        char host[HOST_TEXT];
        uint16_t port;
    } addresses[CONTACT_ADDRESSES];
    uint32_t n, at, rounds;
    uint64_t since_ms; /* dialled at addresses[at] */
    struct dial *dial; /* NULL: not now */
};

/* A member of some cluster that discovery has found, for a node that is in none. */
struct discovered_node {
    struct discovered_node *next;
    struct discovery_record record;
    char host[256];
    uint16_t port;
};

struct control;
struct events;
struct catalogue;
struct knocks;

struct daemon {
    struct daemon_options options;
    uv_loop_t *loop;
    char folder[PATH_MAX];
    char name[JOIN_NAME_TEXT];
    char api[128];
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
    struct membership membership;
    bool is_member;
    Cluster__Node *self; /* as it is told to others; NULL before it is a member */
    struct buffer self_bytes;
    uint16_t port;
    char addresses[ADDRESSES_MAX][64];
    uint32_t n_addresses;
    uint32_t n_through; /* daemon_through()'s questions */
    uint64_t held;      /* the stages that were told last */
    uint64_t network;   /* what the machine's addresses were; 0: not looked at yet */

    /* before it is a member */
    uint64_t opened_ms;
    struct discovery *discovery;
    struct discovered_node *found;
    struct knocks *knocks;

    /* a member's parts */
    struct credentials *credentials;
    struct mesh *mesh;
    struct agreement *agreement;
    struct admission *admission;
    struct weights *weights;
    struct carrier *carrier;
    struct hosting *hosting;
    struct relay *relay;
    struct placing placing; /* zeroed while it is no member */
    Node__Now *now;         /* of this node, as told last; NULL: not yet */
    struct catalogue *catalogue;
    struct peer *peers;
    struct contact *contacts;
    bool is_alone; /* and that was told */
    bool is_leaving;
    uint64_t told_ms;

    /* while it leads */
    struct master master;
    struct master_mover mover;
    bool leads;
    uint64_t leads_since_ms, self_proposed_ms;

    struct control *control;
    struct events *events; /* the last of them */
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
enum error_code daemon_leave(struct daemon *daemon, struct error *err);
void daemon_look_left(struct daemon *daemon); /* now and then */

/* ---- daemon_find.c: discovery and what is dialled ---- */
enum error_code daemon_find_open(struct daemon *daemon, struct error *err);
void daemon_find_announce(struct daemon *daemon);
void daemon_find_close(struct daemon *daemon, void (*closed)(void *arg)); /* there is a discovery */
void daemon_sync_contacts(struct daemon *daemon);
void daemon_dial(struct daemon *daemon); /* now and then: another address of who does not answer */
/* Why there is no link to a node though it answers: its version is too far from ours. ERROR_NONE:
 * not for that. */
struct error daemon_version_problem(const struct daemon *daemon, const char *id);
void daemon_free_contacts(struct daemon *daemon);
void daemon_find_addresses(struct daemon *daemon);
void daemon_look_at_network(struct daemon *daemon);

/* ---- daemon_way.c: for the relay (relay.h) ---- */
bool daemon_through(void *self, const uint8_t node_id[NODE_ID_BYTES],
                    uint8_t *out); /* NULL: is there one? */

/* ---- daemon_links.c: peers and their frames ---- */
struct link_events daemon_link_events(struct daemon *daemon);
struct peer *daemon_peer(const struct daemon *daemon, const char *id); /* NULL: unknown */
void daemon_tell_now(struct daemon *daemon);
void daemon_tell_held(
    struct daemon *daemon); /* soon, and to all, where this node has other stages than it told */
void daemon_watch(struct daemon *daemon); /* who is to be noticed soon when it goes */
bool daemon_is_linked(void *self, const uint8_t node_id[NODE_ID_BYTES]);
uint64_t daemon_link_bytes_per_s(void *self,
                                 const uint8_t node_id[NODE_ID_BYTES]); /* 0: not measured */
void daemon_drop_strangers(
    struct daemon *daemon); /* nodes that are no members any more, and links to them */
void daemon_free_peers(struct daemon *daemon);
bool daemon_send_raft(void *self, uint64_t member, const void *bytes, size_t size);
bool daemon_forward(void *self, uint64_t member, const void *event, size_t size);

/* ---- daemon_lead.c: what the leader does ---- */
void daemon_lead(struct daemon *daemon);
void daemon_lead_anew(struct daemon *daemon,
                      const char *instance); /* what it has failed in is forgotten */
/* What placing knows, brought up to date. */
const struct placing_view *daemon_placing_view(struct daemon *daemon);
/* What the master sees, as this node does; the view's lists are good until the next call. */
void daemon_master_view(struct daemon *daemon, struct master_view *out);
void daemon_measure_links(struct daemon *daemon);
/* Its last link broke, and has had the time to come back. */
bool daemon_is_gone(const struct daemon *daemon, const struct peer *peer);
/* Why an instance could not be placed, as the leader says; NULL. */
const char *daemon_problem(const struct daemon *daemon, const char *instance);

/* ---- daemon_moves.c: placements by hand ---- */
/* master_check() of what this node sees. */
enum error_code daemon_check_placement(struct daemon *daemon, const struct master_planner *planner,
                                       const Cluster__Instance *instance,
                                       const struct master_placement *placement, bool *beside,
                                       struct error *err);
/* The name of a node whose figures are not of what the state says: it has stages that nobody wants
 * any more, or has not told of those that it has by now. NULL: there is none. */
const char *daemon_unsettled(struct daemon *daemon);
void daemon_propose_placement(struct daemon *daemon, const Cluster__Instance *instance,
                              const struct master_placement *placement, uint64_t epoch,
                              bool replaces);

/* ---- daemon_admit.c: letting others in ---- */
struct admission_events daemon_admission_events(struct daemon *daemon);

/* ---- daemon_knock.c: being let in ---- */
void daemon_knock(struct daemon *daemon); /* while it waits, now and then */
struct knock_events {
    void (*compare)(void *self, const char *words, const char *peer_name);
    void (*ended)(void *self, const char *through,
                  const struct error *why); /* why NULL: it is a member now */
    void *self;
};
/* By code (NULL: by hand), at `host` or at whatever was found. One at a time; NULL events: nobody
 * asks. */
enum error_code daemon_join(struct daemon *daemon, const char *code, const char *host,
                            const struct knock_events *events, struct error *err);
void daemon_join_answer(struct daemon *daemon, bool agree);
void daemon_join_forget(struct daemon *daemon); /* who asked has gone */
void daemon_knocks_close(struct daemon *daemon,
                         void (*closed)(struct daemon *daemon)); /* and frees them */

/* ---- daemon_catalogue.c: models, and their text parts ---- */
enum error_code daemon_catalogue_open(struct daemon *daemon, struct error *err);
void daemon_catalogue_close(struct daemon *daemon, void (*closed)(struct daemon *daemon));
void daemon_catalogue_changed(struct daemon *daemon);
const Cluster__Model *daemon_model_of_name(const struct daemon *daemon, const char *name);
bool daemon_manifest_of(const Cluster__Model *model, struct digest *out);
const struct model *
daemon_model_here(void *self, const Cluster__Model *model); /* not held; fetches its header */
uint32_t daemon_context_of(const struct daemon *daemon,
                           const char *instance); /* as it has, or as it would get */

/* ---- daemon_files.c: files of this machine ---- */
/* Makes the cluster know a model's file; `done` with its name. */
void daemon_add_file(struct daemon *daemon, const char *path,
                     void (*done)(void *arg, const char *model, const struct error *err),
                     void *arg);

/* ---- daemon_models.c: instances ---- */
enum error_code daemon_models_open(struct daemon *daemon,
                                   struct error *err); /* catalogue, hosting and relay */
struct place_demand {
    uint32_t context, streams; /* 0: as usual */
    bool has_goal;             /* else as usual: throughput */
    uint32_t goal;             /* enum placement_goal */
    uint64_t idle_ms;
};
/* The instance of a model, wanted from now on. ERROR_NOT_FOUND: no such model. */
enum error_code daemon_want(struct daemon *daemon, const char *model,
                            const struct place_demand *wanted, struct error *err);
bool daemon_meets(const Cluster__Instance *instance, const struct place_demand *wanted);
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

/* ---- control.h's server ---- */
enum error_code control_open(struct daemon *daemon, struct error *err);
void control_changed(struct daemon *daemon); /* conversations that wait look again */
void control_event(struct daemon *daemon, uint64_t index, const Cluster__Event *event,
                   bool applied);
void control_note_event(struct daemon *daemon, uint64_t index, const Cluster__Event *event,
                        bool applied);
void control_close(struct daemon *daemon, void (*closed)(struct daemon *daemon));
