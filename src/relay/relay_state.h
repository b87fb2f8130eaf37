/* What the files of the relay's core share. relay_core.c: events, effects and the turn;
 * relay_instance.c: what is asked for; relay_ask.c: a request of this node and its events;
 * relay_answer.c: what another node says to it; relay_place.c: where it goes next; relay_way.c:
 * through which node; relay_peer.c: what goes out through a link; relay_serve.c: others' requests.
 */
#pragma once

#include "relay/relay_core.h"

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

struct relay_instance {
    struct relay_core *core;
    struct relay_instance *next;
    char id[LIMIT_CLUSTER_ID_BYTES + 1];
    bool is_wanted;     /* WANTED is to come */
    uint64_t wanted_ns; /* when its owner was told last */
    uint64_t used_ns;
    double recent_tokens; /* at recent_ns */
    uint64_t recent_ns;
    uint32_t n_live;            /* requests of this node and others */
    uint32_t n_asks, n_waiting; /* relay_core_use()'s */
    struct driver_stats stats;  /* of this node's */
};

/* Whose an ask is beside its `cancelled`: IN_DRIVER and FINISHING the driver's threads', else the
 * core's. */
enum relay_ask_state {
    ASK_NEW, /* not in the core yet */
    ASK_WAITING,
    ASK_IN_DRIVER, /* of this process */
    ASK_THERE,     /* at another node */
    ASK_RETURNED,  /* the driver here ended it for a reason that has to be looked at */
    ASK_ENDING,    /* its DONE is to come */
    ASK_FINISHING, /* its `done` is being called */
};

struct relay_ask {
    struct relay_ask *next, *previous;
    struct relay_ask *next_ending;
    struct relay_instance *instance;
    uint64_t id;
    enum relay_ask_state state;
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
    struct relay_place place;
    bool place_failed;
    uint64_t again_ms;   /* what again_ns was put off by */
    uint64_t part_id;    /* the driver's, or that on the wire */
    uint32_t part_first; /* tokens that it was given as generated */
    uint32_t part_rows;
    struct relay_peer *peer; /* THERE */
    bool accepted;
    enum finish_reason reason;
    struct request_usage usage; /* the driver's; from ENDING on what the asker is told */
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

struct relay_served {
    struct relay_served *next, *previous;
    struct relay_peer *peer;
    struct relay_instance *instance;
    uint64_t id;              /* the asker's */
    struct relay_place place; /* driver NULL: at that node, as a guest of this one */
    uint64_t driver_id;       /* or the guest's */
    void *memory;             /* of `request`, until the driver has it */
    struct request request;
    bool is_new; /* SUBMIT is to come */
    bool is_in;  /* its driver, or the guest, will say that it is done */
    bool stops, stop_sent;
    bool cancelled; /* by the asker, or it cannot be reached */
    bool is_full;   /* its answers found no room */
    bool returned;  /* the driver ended it for a reason that has to be looked at */
    enum finish_reason reason;
    struct request_usage usage;
    struct error error;
};

struct relay_peer {
    struct relay_peer *next;
    struct relay_core *core;
    uint8_t node_id[NODE_ID_BYTES];
    void *link;            /* NULL: down */
    struct buffer run;     /* messages to be sent */
    struct buffer sending; /* SEND has it, or the link did not take it yet */
    bool is_stuck;         /* it did not; not before the next turn */
    size_t last_tokens;    /* request_write_token()'s */
    bool is_broken;        /* it does not read, or there was no memory: abort the link */
    struct relay_served *served;
    uint32_t n_served;
};

struct relay_reading {       /* of a frame */
    struct relay_peer *peer; /* NULL: of none */
    struct bytes_reader run;
    struct request_message message; /* whose tokens are being delivered */
    struct relay_ask *ask;          /* to this one; NULL: none are */
    uint32_t token;                 /* the next */
    uint64_t now_ns;
    struct token_logprob top[LIMIT_TOP_LOGPROBS];
};

struct relay_core {
    struct relay_core_options options;
    struct relay_instance *instances;
    struct relay_ask *asks, *last_ask;
    struct relay_ask *ending, *last_ending;
    struct relay_ask *cursor; /* the turn's: the next to be looked at */
    struct relay_peer *peers;
    struct relay_reading reading;
    struct buffer values; /* a row, aligned */
    uint64_t last_id, last_wire_id;
    uint32_t n_instances, n_asks, n_served;
    bool tends; /* a served one is new, is to stop, or returned */
    bool has_wanted;
    bool look;   /* asks are to be looked at in the next turn */
    bool looked; /* in this one */
    bool writes; /* something may be to be sent */
    bool stopped;
};

/* ---- relay_core.c ---- */
void relay_end(struct relay_ask *ask, enum finish_reason reason, const struct error *why,
               uint64_t now_ns); /* DONE comes */

/* ---- relay_instance.c ---- */
void relay_instance_count(struct relay_instance *instance, uint64_t n_tokens, uint64_t now_ns);

/* ---- relay_place.c ---- */
/* The driver at `place` ended a request with this: is it the driver that is lost? */
bool relay_is_lost(struct relay_core *core, const char *instance, const struct relay_place *place,
                   enum finish_reason reason, const struct error *why);
/* Goes on, ends, or goes on waiting. True: *out is an effect. */
bool relay_ask_step(struct relay_ask *ask, uint64_t now_ns, struct relay_effect *out);
void relay_ask_submitted(struct relay_ask *ask, enum error_code code, uint64_t id,
                         const struct error *why, uint64_t now_ns);
void relay_ask_lost(struct relay_ask *ask, uint64_t now_ns); /* waits again */
uint64_t relay_ask_wait_ms(const struct relay_ask *ask,
                           uint64_t now_ns); /* until it is looked at again; 0: when told */

/* ---- relay_way.c ---- */
/* The link that leads to the node of ask->place, straight or, *onward, through another. NULL: none
 * does. */
void *relay_way(const struct relay_ask *ask, uint8_t node_id[NODE_ID_BYTES], bool *onward);
bool relay_is_deaf(struct relay_ask *ask,
                   uint64_t now_ns); /* THERE: its node is not heard, and there is another way */

/* ---- relay_ask.c ---- */
uint32_t relay_ask_left(const struct relay_ask *ask); /* tokens to generate */
bool relay_ask_wants_rows(const struct relay_ask *ask);
void relay_ask_part(struct relay_ask *ask, uint64_t now_ns,
                    struct request *out); /* what is to be given to a driver now */
void relay_ask_fill_usage(const struct relay_ask *ask, uint64_t now_ns, struct request_usage *out);

/* ---- relay_answer.c ---- */
/* From the node that has it. True: *out is an effect. ERROR_INVALID: it broke the rules. */
bool relay_answer(struct relay_peer *peer, struct request_message *message, uint64_t now_ns,
                  struct relay_effect *out, struct error *err);
bool relay_answer_next_token(struct relay_core *core, struct relay_effect *out, struct error *err);

/* ---- relay_peer.c ---- */
struct relay_peer *relay_peer_find(struct relay_core *core, const void *link);
struct relay_peer *relay_peer_make(struct relay_core *core, void *link,
                                   const uint8_t node_id[NODE_ID_BYTES]); /* NULL: no memory */
bool relay_peer_next(struct relay_core *core, struct relay_effect *out);
bool relay_peer_is_stuck(const struct relay_core *core); /* one is, and has to be tried again */
void relay_peers_free(struct relay_core *core);

enum message_weight { MESSAGE_ROW, MESSAGE_TOKEN, MESSAGE_CONTROL };
/* Around the writing of one message to peer->run: is there room? A control message that finds none
 * breaks the peer. Then whether it was written: on lack of memory the run is as it was. */
bool relay_peer_has_room(struct relay_peer *peer, enum message_weight weight);
bool relay_peer_wrote(struct relay_peer *peer, size_t before, enum message_weight weight);
void relay_peer_send_cancel(struct relay_peer *peer, uint64_t id);

/* ---- relay_serve.c ---- */
enum error_code relay_serve(struct relay_peer *peer, struct request_message *message,
                            uint64_t now_ns, struct error *err);
void relay_serve_cancel(struct relay_peer *peer, uint64_t id);
void relay_serve_cancel_all(struct relay_peer *peer);
bool relay_serve_next(struct relay_core *core, uint64_t now_ns, struct relay_effect *out);
void relay_serve_submitted(struct relay_served *served, enum error_code code, uint64_t id,
                           const struct error *why, uint64_t now_ns);
void relay_serve_free(struct relay_served *served);
