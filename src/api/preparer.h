/* Threads for all work of a request that grows with its size: reading JSON, rendering the chat
 * template, tokenising, writing a large answer, freeing what is large. The API's loop only hands
 * bytes over and takes results, so that no request can hold it.
 *
 * Two threads: one takes any job, the other small ones only, so that those never wait for a large
 * one. Whose job is next is prepare_queue.h's to say. A job runs within its work_limit: it is
 * bounded in memory and time, and ends early when it is cancelled.
 *
 * On the loop's thread, but for `run`. */
#pragma once

#include "api/inbox.h"
#include "api/prepare_queue.h"
#include "base/work_limit.h"

struct api_limits;
struct preparer;

struct preparer_job {
    struct inbox_item item; /* posted as done when run() has returned, or was cancelled before */
    struct prepare_entry entry;
    struct work_limit limit;
    void (*run)(struct preparer_job *job); /* on a thread of the preparer's */
    struct preparer_job *next;
};

enum error_code preparer_open(const struct api_limits *limits, struct preparer **out,
                              struct error *err);
/* Runs what is queued, then ends the threads. */
void preparer_close(struct preparer *preparer);
/* Any verdict but PREPARE_QUEUED: it will not run. */
enum prepare_verdict preparer_submit(struct preparer *preparer, const struct api_client *client,
                                     struct preparer_job *job);
/* The job was submitted and `item` not seen as done yet: it is, soon. */
void preparer_cancel(struct preparer *preparer, struct preparer_job *job);
/* Runs the job, which is nowhere in the queue and frees itself; nothing is posted. */
void preparer_discard(struct preparer *preparer, struct preparer_job *job);
/* Frees memory from mem.h, there if it is large. NULL is fine. */
void preparer_free(struct preparer *preparer, void *memory);
uint64_t preparer_waiting(struct preparer *preparer);
