/* Where other threads leave what the API's loop shall handle.
 *
 * An item is one thing in progress elsewhere: a request in the driver, or a job of the preparer.
 * The other thread changes the item under the inbox's lock and posts it; the loop, woken, takes the
 * posted items one after the other. Each item is in the list at most once, and the loop is woken
 * only when the list was empty, so a burst of tokens costs one wake-up.
 *
 * Tokens: the driver's thread appends to a batch, the loop swaps it for an empty one whose memory
 * was used before. After the first few tokens nothing is allocated. */
#pragma once

#include "request/request.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct inbox {
    pthread_mutex_t lock;
    struct inbox_item *first, *last;
    void (*wake)(void *arg); /* any thread */
    void *arg;
};

struct token_record {
    int32_t token;
    float logprob;
    uint32_t n_top; /* its rivals follow one another in token_batch.tops */
    bool of_prompt; /* not generated: a token of the prompt, scored */
};

struct token_batch { /* a zeroed batch is empty and valid */
    struct token_record *records;
    struct token_logprob *tops;
    uint32_t n_records, n_tops;
    uint32_t records_capacity, tops_capacity;
};

struct inbox_item {
    struct inbox *inbox;
    void (*ready)(struct inbox_item *item); /* on the loop */
    void *owner;
    /* guarded by the inbox's lock */
    struct inbox_item *next;
    bool posted;
    struct token_batch arriving;
    bool no_memory; /* a token was lost */
    bool done;      /* nothing more will come */
    enum finish_reason reason;
    struct request_usage usage;
    struct error err;
    float *sum; /* of an embeddings request: the sum of rows first_row to last_row, sum_size values,
                   made before the request is submitted */
    uint32_t sum_size, sum_rows, first_row, last_row;
    /* of a request whose prompt is scored too; made before it is submitted */
    struct sampler *scorer;
    const int32_t *prompt; /* the owner's */
    uint32_t n_prompt, n_top, n_vocab;
};

enum error_code inbox_init(struct inbox *inbox, void (*wake)(void *arg), void *arg,
                           struct error *err);
void inbox_silence(struct inbox *inbox); /* no wake-up from now on, and none in progress */
void inbox_deinit(struct inbox *inbox);

/* Marks the item done and posts it; for jobs that are no driver's request. Any thread. */
void inbox_post_done(struct inbox_item *item);
/* The driver's callbacks; `arg` of the request is the inbox_item. */
extern const struct request_handlers inbox_token_handlers, inbox_embedding_handlers,
    inbox_scoring_handlers;

/* On the loop: the next posted item, NULL: none. */
struct inbox_item *inbox_take(struct inbox *inbox);
/* On the loop: moves what has arrived into `batch` (emptied first); returns item->done as of
 * then. */
bool inbox_collect(struct inbox_item *item, struct token_batch *batch);
/* On the loop, when the item is done or was never given away: frees its memory and forgets that it
 * was posted. */
void inbox_item_deinit(struct inbox_item *item);
void token_batch_deinit(struct token_batch *batch);
