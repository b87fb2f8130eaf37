/* What a relay decides (relay.h), as a machine without clock, thread, lock, socket or driver.
 * Whoever owns it puts events in, with their time, and carries out the effects that come out, in
 * their order; the node does it with libuv, the mesh and drivers (relay.c), the simulator with a
 * heap of timed events.
 *
 *     something happened: relay_core_submit() / receive() / down() / driver_done() …
 *     if (relay_core_is_due(core))            // perhaps later, and once for many events
 *         relay_core_turn(core);
 *     struct relay_effect effect;
 *     while (relay_core_next(core, now_ns, &effect))
 *         carry_out(&effect);                 // and tell what came of it: below
 *     call relay_core_turn() again in relay_core_wait_ms()
 *
 * Effects
 *   SUBMIT   `request` to `driver`, with the owner's handlers; then relay_core_submitted(), before
 *            the driver's first event
 *   CANCEL   `id` at `driver`, which has it still
 *   TOKEN    to the ask's handler; then relay_core_token_taken()
 *   ROW      to the ask's handler
 *   DONE     to the ask's handler; then relay_core_forget()
 *   WANTED   somebody waits for `instance`
 *   SEND     all of `run` through `link`, which may be swapped for an empty buffer; then
 *            relay_core_sent()
 *   ABORT    `link`, with `error` as the reason
 *
 * Threads: one at a time, but for an ask that is in a driver here. Its text belongs to whoever runs
 * the driver until relay_core_driver_done(): relay_ask_take_token() and relay_ask_take_row() touch
 * nothing else, so a token of a driver here needs neither lock nor wake-up. TOKEN, ROW, DONE,
 * WANTED, SEND and ABORT may be carried out without the owner's lock: nobody else frees what they
 * name. relay_core_next(), receive() and down() are one thread's. */
#pragma once

#include "base/buffer.h"
#include "relay/relay_use.h"
#include "request/request_wire.h"
#include "trust/identity.h"

struct relay_ask; /* a request of this node */
struct relay_core;
struct relay_instance; /* what is asked for */
struct relay_peer;     /* a link, and what is to go through it */
struct relay_served;   /* a request of another node */

struct relay_place { /* of a driver */
    void *driver;    /* here; NULL: on another node */
    uint8_t node_id[NODE_ID_BYTES];
    uint64_t epoch;
};

/* Planted by the simulator's tests; the product has none. */
enum relay_bug {
    RELAY_BUG_NONE,
    RELAY_BUG_FORGETS_TEXT,   /* the next driver gets the prompt without what was generated */
    RELAY_BUG_HANDS_ON_TWICE, /* what was handed on to this node is handed on again */
};

struct relay_core_options {
    /* Questions: answered at once, from what the owner knows; they change nothing of the relay's.
     * find, reaches and through: relay.h. link_to: through which link a node is reached, or NULL.
     */
    enum error_code (*find)(void *self, const char *instance, struct relay_place *out,
                            struct error *err);
    bool (*reaches)(void *self, const uint8_t node_id[NODE_ID_BYTES]);
    bool (*through)(void *self, const uint8_t node_id[NODE_ID_BYTES], uint8_t *out);
    void *(*link_to)(void *self, const uint8_t node_id[NODE_ID_BYTES]);
    /* Of a request that is served for another node; `arg` is the relay_served. They lead to
     * relay_served_token(), relay_served_row() and relay_served_done(). */
    struct request_handlers served;
    uint64_t patience_ms, queue_bytes;
    bool tells_wanted;
    enum relay_bug bug;
    void *self;
};

enum relay_effect_type {
    RELAY_SUBMIT = 1,
    RELAY_CANCEL,
    RELAY_TOKEN,
    RELAY_ROW,
    RELAY_DONE,
    RELAY_WANTED,
    RELAY_SEND,
    RELAY_ABORT,
};

struct relay_effect {
    enum relay_effect_type type;
    struct relay_ask *ask;       /* SUBMIT, TOKEN, ROW, DONE */
    struct relay_served *served; /* SUBMIT, where ask is NULL */
    void *driver;                /* SUBMIT, CANCEL */
    uint64_t id;                 /* CANCEL */
    struct request request;      /* SUBMIT: as the driver gets it, but for handlers and arg */
    struct token_event token;    /* TOKEN */
    uint32_t position, n_values; /* ROW */
    const float *values;
    enum finish_reason reason; /* DONE */
    struct request_usage usage;
    struct error error; /* DONE with FINISH_ERROR; ABORT */
    const char *instance;
    void *link;
    struct relay_peer *peer; /* SEND */
    struct buffer *run;
};

/* ERROR_NO_MEMORY. Closing frees what is left; no handler is called. */
enum error_code relay_core_open(const struct relay_core_options *options, struct relay_core **out,
                                struct error *err);
void relay_core_close(struct relay_core *core); /* NULL is fine */

/* From now on requests end with FINISH_CANCELLED, and new ones are refused; until it is empty. */
void relay_core_stop(struct relay_core *core);
bool relay_core_is_empty(const struct relay_core *core);

/* ---- instances ---- */

/* Made when it is new. NULL: no such id (ERROR_INVALID), too many (ERROR_BUSY), no memory. */
struct relay_instance *relay_core_instance(struct relay_core *core, const char *id,
                                           struct error *err);
struct driver_stats relay_core_stats(const struct relay_core *core,
                                     const struct relay_instance *instance);
void relay_core_use(struct relay_core *core, uint64_t now_ns, struct relay_uses *out);
/* False: no request of this node waits for it. */
bool relay_core_pause(const struct relay_core *core, const char *instance, struct relay_pause *out);

/* ---- requests of this node ---- */

/* A copy, checked against the context; not in the core yet, so without the owner's lock. */
enum error_code relay_ask_new(struct relay_instance *instance, const struct request *request,
                              uint32_t context, uint64_t now_ns, struct relay_ask **out,
                              struct error *err);
void relay_ask_free(struct relay_ask *ask); /* one that relay_core_submit() refused */
/* *id before anything can come of it. ERROR_CANCELLED: it is stopped. ERROR_BUSY:
 * LIMIT_RELAY_REQUESTS. */
enum error_code relay_core_submit(struct relay_core *core, struct relay_ask *ask, uint64_t *id,
                                  struct error *err);
void relay_core_cancel(struct relay_core *core, uint64_t id);
const struct request *relay_ask_request(const struct relay_ask *ask); /* whose handlers to call */
void *relay_ask_owner(const struct relay_ask *ask);                   /* options.self */

/* Of a driver here: the thread that runs it, without the owner's lock. *out: as the handler gets
 * it. */
void relay_ask_take_token(struct relay_ask *ask, const struct token_event *event, uint64_t now_ns,
                          struct token_event *out);
bool relay_ask_has_token(const struct relay_ask *ask); /* now_ns is not looked at any more */
bool relay_ask_take_row(struct relay_ask *ask, uint32_t position); /* false: it was delivered */
/* True: it is over: call `done` with what effect->reason, usage and error say, then
 * relay_core_forget(). */
bool relay_core_driver_done(struct relay_core *core, struct relay_ask *ask,
                            enum finish_reason reason, const struct request_usage *usage,
                            const struct error *why, uint64_t now_ns, struct relay_effect *effect);

/* What came of effects. */
void relay_core_submitted(struct relay_core *core, const struct relay_effect *effect,
                          enum error_code code, uint64_t id, const struct error *why,
                          uint64_t now_ns);
void relay_core_token_taken(struct relay_core *core, bool goes_on, uint64_t now_ns);
void relay_core_forget(struct relay_core *core, struct relay_ask *ask, uint64_t now_ns);

/* ---- requests of other nodes, in a driver here or handed on: false: it is to stop ---- */
bool relay_served_token(struct relay_served *served, const struct token_event *event);
bool relay_served_row(struct relay_served *served, uint32_t position, const float *values,
                      uint32_t n_values);
void relay_served_done(struct relay_served *served, enum finish_reason reason,
                       const struct request_usage *usage, const struct error *why, uint64_t now_ns);
void *relay_served_owner(const struct relay_served *served); /* options.self */

/* ---- links ---- */

/* A frame of requests. Its bytes must stay until relay_core_next() says that there is nothing more,
 * and no other may come before. False: no memory, and nothing was read. */
bool relay_core_receive(struct relay_core *core, void *link, const uint8_t node_id[NODE_ID_BYTES],
                        const void *bytes, size_t size);
void relay_core_down(struct relay_core *core, void *link, uint64_t now_ns);
/* ERROR_BUSY: it takes nothing now, and is tried again. ERROR_CANCELLED: it is going down. */
void relay_core_sent(struct relay_core *core, struct relay_peer *peer, enum error_code code);

/* ---- turns ---- */
void relay_core_look(struct relay_core *core); /* the questions may be answered otherwise now */
bool relay_core_is_due(const struct relay_core *core);
void relay_core_turn(struct relay_core *core);
bool relay_core_next(struct relay_core *core, uint64_t now_ns, struct relay_effect *out);
/* Until the next turn, if nothing makes it due before; 0: nothing waits. Once relay_core_next() is
 * done. UINT64_MAX: as was said the last time. */
uint64_t relay_core_wait_ms(struct relay_core *core, uint64_t now_ns);
