/* What the relay's files share. relay.c: the loop's step and the mesh's events; relay_generator.c:
 * the doors for those who ask; relay_ask.c: a request of this node and its events; relay_answer.c:
 * what another node says to it; relay_place.c: where it goes next; relay_way.c: through which node;
 * relay_peer.c: what goes out through a link; relay_serve.c: others' requests. */
#pragma once

#include "pipeline/driver.h"
#include "pipeline/request_wire.h"
#include "relay/relay.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    RELAY_TICK_MS = 100, /* how often what waits is looked at */
    RELAY_STUCK_MS = 10, /* the same, of a link that took nothing more */
    RELAY_RECENT_S = 600,
    RELAY_QUICK_MS = 10,   /* the same, in the first second of waiting: a move is over soon */
    RELAY_AGAIN_MS = 1000, /* until a place that failed is tried again, where no other is known:
                              from RELAY_QUICK_MS up */
    RELAY_DEAF_MS =
        1000, /* a node that has the request and is not heard, where another way leads there */
    RELAY_LINGER_MS =
        2000, /* a driver that is not the current one any more may end its requests itself */
};

struct instance {
    struct generator generator; /* first */
    struct relay *relay;
    struct instance *next;
    char id[LIMIT_CLUSTER_ID_BYTES + 1];
    atomic_uint context;
    uint64_t wanted_ns; /* when its owner was told last; the loop's */
    /* under the lock */
    uint64_t used_ns;
    double recent_tokens; /* relay_recent_tokens() at that time */
    uint64_t recent_ns;
    uint32_t n_live;           /* requests of this node and others */
    struct driver_stats stats; /* of this node's */
};

struct place { /* of a driver */
    struct driver *driver;
    uint8_t node_id[NODE_ID_BYTES]; /* where driver is NULL */
    uint64_t epoch;
};

/* Who may touch an ask beside its `cancelled`: HERE and FINISHING the driver's threads, else the
 * loop's. */
enum ask_state {
    ASK_WAITING,
    ASK_HERE,      /* in a driver of this process */
    ASK_THERE,     /* at another node */
    ASK_RETURNED,  /* the driver here ended it for a reason that the loop has to look at */
    ASK_FINISHING, /* its `done` is being called */
};

struct ask { /* a request of this node */
    struct ask *next, *previous;
    struct ask *todo; /* the loop's list, of one step */
    struct instance *instance;
    /* under the lock */
    uint64_t id;
    enum ask_state state;
    bool cancelled, cancel_sent;
    bool is_guest; /* another node's: straight to its driver, or over */

    struct request request; /* as it was given; its pointers are our copies */
    int32_t *tokens;        /* the prompt, then what was generated; room for all */
    uint32_t n_predict;     /* bounded by the context */
    uint32_t n_generated, n_rows;
    uint64_t submitted_ns, first_part_ns, first_token_ns;
    uint32_t n_parts; /* that a driver took */
    uint32_t cached;  /* in the first of several */

    /* the part that runs, or ran last: the request as one driver got it */
    struct place place;
    bool place_failed;
    uint64_t again_ms;   /* what again_ns was put off by */
    uint64_t part_id;    /* the driver's, or that on the wire */
    uint32_t part_first; /* tokens that it was given as generated */
    uint32_t part_rows;
    struct peer *peer; /* THERE */
    bool accepted;
    enum finish_reason reason;
    struct request_usage usage;
    struct error error;

    /* WAITING */
    uint64_t waiting_ns; /* since; progress begins it anew */
    uint32_t waiting_generated, waiting_rows;
    uint64_t again_ns; /* not before */
    struct error waits_for;
    uint64_t elsewhere_ns; /* THERE: another placement serves since; 0: none does */
    uint64_t
        deaf_ns; /* THERE: its node is not heard since, though there is another way; 0: it is */
};

struct served { /* a request of another node */
    struct served *next, *previous;
    struct peer *peer;
    struct instance *instance;
    uint64_t id;        /* the asker's */
    struct place place; /* driver NULL: at that node, as a guest of this one */
    /* under the lock */
    uint64_t driver_id; /* or the guest's */
    bool cancelled;     /* by the asker, or it cannot be reached */
    bool is_full;       /* its answers found no room */
    bool returned;      /* the driver ended it for a reason that the loop has to look at */
    enum finish_reason reason;
    struct request_usage usage;
    struct error error;
};

struct parcel { /* a run of messages on its way out */
    struct link_send send;
    struct parcel *next;
    struct relay *relay;
    struct buffer run;
};

struct peer {
    struct peer *next;
    struct relay *relay;
    uint8_t node_id[NODE_ID_BYTES];
    struct parcel *stuck; /* the link had no room for it */
    /* under the lock */
    struct link *link;  /* NULL: down */
    struct buffer run;  /* messages to be sent */
    size_t last_tokens; /* request_write_token()'s */
    bool is_broken;     /* it does not read, or there was no memory: abort the link */
    struct served *served;
    uint32_t n_served;
};

struct relay {
    uv_async_t wake; /* first: the handle is the relay */
    uv_timer_t timer;
    struct relay_options options;
    struct parcel *spare;
    uint32_t n_spare, n_parcels; /* n_parcels: all that there are */
    struct buffer values;        /* a row, aligned */
    uint64_t last_wire_id;
    bool handles_closing; /* nothing runs any more */
    uint32_t n_handles;   /* not closed yet */
    void (*closed)(void *arg);
    void *closed_arg;

    pthread_mutex_t lock;
    struct instance *instances;
    struct ask *asks, *last_ask;
    uint64_t last_id;
    uint32_t n_instances, n_asks;
    struct peer *peers;
    uint32_t n_served, n_returned;
    bool look; /* something about an ask is to be looked at */
    bool closing;
};

/* ---- relay_generator.c ---- */
struct instance *relay_instance(struct relay *relay, const char *id,
                                struct error *err); /* made when it is new */

void instance_count_locked(struct instance *instance, uint64_t n_tokens, uint64_t now_ns);

enum error_code relay_submit_guest(struct instance *instance, const struct request *request,
                                   uint64_t *id, struct error *err);
void relay_cancel_locked(struct relay *relay, uint64_t id);

/* ---- relay.c ---- */
void relay_look_locked(struct relay *relay); /* the loop is to look at asks and served ones */

/* ---- relay_place.c ---- */
enum error_code relay_find(struct relay *relay, const char *instance, struct place *out,
                           struct error *err);
/* The driver at `place` ended a request with this: is it the driver that is lost? Loop's thread. */
bool relay_is_lost(struct relay *relay, const char *instance, const struct place *place,
                   enum finish_reason reason, const struct error *why);
void ask_step(struct ask *ask,
              uint64_t now_ns); /* by the loop: goes on, ends, or goes on waiting */
void ask_lost(struct ask *ask); /* waits again */
uint64_t ask_waits_ms(const struct ask *ask,
                      uint64_t now_ns); /* needs to be looked at again by then; 0: when told */

/* ---- relay_way.c ---- */
/* The link that leads to the node of ask->place, straight or, *onward, through another. NULL: none
 * does. */
struct link *relay_way(struct ask *ask, bool *onward);
bool relay_is_deaf(struct ask *ask,
                   uint64_t now_ns); /* THERE: its node is not heard, and there is another way */

/* ---- relay_ask.c ---- */
enum error_code ask_new(struct instance *instance, const struct request *request, uint32_t context,
                        struct ask **out, struct error *err);
void ask_free(struct ask *ask);
uint32_t ask_left(const struct ask *ask);            /* tokens to generate */
void ask_part(struct ask *ask, struct request *out); /* what is to be given to a driver now */
bool ask_take_token(struct ask *ask, const struct token_event *event);
void ask_take_row(struct ask *ask, uint32_t position, const float *values, uint32_t n_values);
/* The part that ran is over; its reason, usage and error are in the ask. Calls `done` and frees
 * it. */
void ask_finish(struct ask *ask, enum finish_reason reason, const struct error *err);
extern const struct request_handlers ask_handlers; /* of a driver here */

/* ---- relay_answer.c ---- */
/* From the node that has it. ERROR_INVALID: it broke the rules. */
enum error_code ask_answer(struct peer *peer, struct request_message *message, struct error *err);

/* ---- relay_peer.c ---- */
struct peer *peer_find(struct relay *relay, const struct link *link);
struct peer *peer_make(struct relay *relay, struct link *link); /* NULL: no memory */
void peer_flush_all(struct relay *relay);
bool peer_is_stuck(struct relay *relay); /* one is, and has to be tried again */
void peers_free(struct relay *relay);
void parcels_free(struct relay *relay);

enum message_weight { MESSAGE_ROW, MESSAGE_TOKEN, MESSAGE_CONTROL };
/* Under the lock, around the writing of one message to peer->run: is there room? A control message
 * that finds none breaks the peer. Then whether it was written: on lack of memory the run is as it
 * was. */
bool peer_has_room(struct peer *peer, enum message_weight weight);
bool peer_wrote(struct peer *peer, size_t before, enum message_weight weight);
void peer_send_cancel(struct peer *peer, uint64_t id);

/* ---- relay_serve.c ---- */
enum error_code serve_submit(struct peer *peer, struct request_message *message, struct error *err);
void serve_cancel(struct peer *peer, uint64_t id);
void serve_cancel_all_locked(struct peer *peer);
void serve_look(struct relay *relay); /* those that returned */
