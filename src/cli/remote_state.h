/* Private to remote*.c. */
#pragma once

#include "base/buffer.h"
#include "base/limits.h"
#include "cli/daemon.h"
#include "cli/remote.h"
#include "pipeline/generator.h"

#include <pthread.h>

struct remote_request {
    uint64_t id;
    struct request_handlers handlers;
    void *arg;
    bool cancelled;
    struct request_usage usage; /* what is known here */
    uint64_t submitted_ns, first_ns;
    struct remote_request *next;
};

struct remote {
    struct generator base;
    struct daemon_client *client;
    yyjson_doc *answer; /* to {"do": "generate"} */
    char instance[LIMIT_CLUSTER_ID_BYTES + 1];
    struct buffer where;
    uint32_t context;
    int wake; /* an eventfd: something was cancelled, or the end */
    pthread_t reader;
    bool is_reading;         /* there is that thread */
    pthread_mutex_t writing; /* of the connection */
    pthread_mutex_t lock;    /* of what follows */
    bool is_closing, is_lost;
    struct error why_lost;
    uint64_t n_requests;
    struct remote_request *requests; /* only the reader removes any */
};

/* Reads what the node says until the remote is closed or the connection lost; then all requests are over. */
void *remote_read(void *remote);

/* Writes the run. A connection that does not take it is at its end, which the reader tells the requests. */
void remote_write(struct remote *remote, struct buffer *run);
