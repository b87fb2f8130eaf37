/* Private to remote*.c. */
#pragma once

#include "base/buffer.h"
#include "base/limits.h"
#include "cli/daemon.h"
#include "cli/remote.h"
#include "request/generator.h"

#include <pthread.h>

struct remote_request {
    uint64_t id;
    struct request_handlers handlers;
    void *arg;
    bool cancelled;
    struct request request; /* as it was given, with room for what is generated behind the prompt */
    uint32_t n_room;        /* for so many */
    uint32_t first;         /* tokens that the node was given as generated */
    struct request_usage usage; /* what is known here */
    uint64_t submitted_ns, first_ns;
    struct remote_request *next;
};

struct remote {
    struct generator base;
    struct daemon_client *client;
    char *model;
    yyjson_doc *answer; /* to the first {"do": "generate"} */
    char instance[LIMIT_CLUSTER_ID_BYTES + 1];
    struct buffer where;
    uint32_t context;
    int wake; /* rung when something was cancelled, or the end */
    pthread_t reader;
    bool is_reading;    /* there is that thread */
    uint32_t n_returns; /* the reader's: of the node, one soon after another */
    uint64_t returned_ns;
    pthread_mutex_t writing; /* of the connection, which the reader may replace; and what is on it
                                is what is listed */
    pthread_mutex_t lock;    /* of what follows */
    bool is_closing, is_lost;
    struct error why_lost;
    uint64_t n_requests;
    struct remote_request *requests; /* only the reader removes any */
};

/* Reads what the node says until the remote is closed or the connection lost; then all requests are
 * over. */
void *remote_read(void *remote);

/* The question {"do": "generate"} and its answer. */
enum error_code remote_begin(struct daemon_client *client, const char *model, yyjson_doc **answer,
                             struct error *err);
struct remote_answer {
    const char *instance; /* the answer's */
    uint32_t context;
};
enum error_code remote_check(yyjson_doc *answer, struct remote_answer *out, struct error *err);

/* remote_return.c: the connection was lost. True: the node is back and has all requests; else `err`
 * says why not. */
bool remote_return(struct remote *remote, struct error *err);
/* Ends those that have all their tokens, and lack only the news of their end. */
void remote_end_whole(struct remote *remote);
/* Heeds what was cancelled; *is_over: the remote is being closed. */
void remote_heed(struct remote *remote, bool *is_over);

/* Writes the run, under the lock. A connection that does not take it is at its end, which the
 * reader sees. */
void remote_write_locked(struct remote *remote, struct buffer *run);
/* Writes the run. A connection that does not take it is at its end, which the reader tells the
 * requests. */
void remote_write(struct remote *remote, struct buffer *run);
