/* What requests that have a body have in common: the body, the work on it, and the client, who may
 * leave at any time.
 *
 * Work goes in steps. Each runs on the preparer, where its memory and time are bounded, and then
 * comes back to the loop; a step with little to do is done on the loop at once, because a change of
 * threads would cost more. Part of the request's own struct. On the loop's thread, but for `run`.
 * Private to the api room. */
#pragma once

#include "api/client.h"
#include "api/internal.h"
#include "api/preparer.h"

struct request_work {
    struct api_server *server;
    struct exchange *exchange; /* NULL: answered, or the client is gone */
    struct api_client client;
    struct buffer body;   /* until it is read */
    size_t body_counted;  /* in server->body_bytes */
    bool running;         /* a step is under way: nothing else may touch what it uses */
    struct api_error err; /* of the last step; status 0: none */
    struct preparer_job job;
    void (*run)(struct request_work *work);
    void (*ready)(struct request_work *work);
};

/* Takes the exchange's body and becomes its owner; `gone` as in exchange_set_owner(). */
void request_work_begin(struct request_work *work, struct exchange *exchange,
                        void (*gone)(void *owner), void *owner);

struct request_step {
    size_t bytes;          /* about so much is worked on */
    bool here_if_small;    /* on the loop, if it is little */
    const void *exclusive; /* as in prepare_queue.h */
    void (*run)(struct request_work *work);
    void (*ready)(struct request_work *work); /* on the loop, also when `err` says that it failed */
};
/* Calls `ready` before it returns or later. */
void request_work_step(struct request_work *work, const struct request_step *step);

/* The client has gone: what is under way ends soon, and comes to its `ready`. */
void request_work_gone(struct request_work *work);
/* A body that a step has written becomes the answer, and the exchange is let go of. */
void request_work_answer(struct request_work *work, struct buffer *body);
void request_work_fail(struct request_work *work, const struct api_error *err);
/* The last call: `release` frees what was allocated in steps, and the struct that the work is part
 * of; on the preparer if that is much. */
void request_work_end(struct request_work *work, void (*release)(struct request_work *work));
