/* Whose turn it is at the preparer. Pure: no clock, no thread.
 *
 * Each client has a share with a queue of its own and a count of the time that its work has taken.
 * The next to run is the share that has used least, and in it what came first. A client that comes
 * back from doing nothing begins where the least of those at work is: it cannot save up time. So
 * whoever asks for much waits for itself, and a small request of another waits for what is running
 * at most. */
#pragma once

#include "api/client.h"

#include <stdbool.h>
#include <stdint.h>

struct prepare_share;

/* Part of what waits; the caller's, from adding until it is done or removed. */
struct prepare_entry {
    const void *exclusive; /* of those with the same one runs at a time; NULL: none */
    bool is_large;
    bool is_running;
    struct prepare_entry *next;
    struct prepare_share *share; /* NULL: not in a queue */
};

struct prepare_queue { /* zeroed but for the limits: empty */
    uint64_t waiting_max, client_max;
    uint64_t n_waiting;
    struct prepare_share *shares;
    struct prepare_entry *running;
    uint64_t floor_ns; /* what the share that was chosen last had used */
};

enum prepare_verdict {
    PREPARE_QUEUED,
    PREPARE_FULL,        /* waiting_max */
    PREPARE_CLIENT_FULL, /* client_max */
    PREPARE_NO_MEMORY,
};

enum prepare_verdict prepare_queue_add(struct prepare_queue *queue, const struct api_client *client,
                                       struct prepare_entry *entry);
/* The next to run, which runs from now on; NULL: there is none. */
struct prepare_entry *prepare_queue_next(struct prepare_queue *queue, bool small_only);
void prepare_queue_done(struct prepare_queue *queue, struct prepare_entry *entry, uint64_t ns);
void prepare_queue_remove(struct prepare_queue *queue, struct prepare_entry *waiting);
void prepare_queue_deinit(struct prepare_queue *queue); /* empty, nothing runs */
