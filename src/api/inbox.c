#include "api/inbox.h"

#include "base/limits.h"
#include "base/mem.h"
#include "engine/sampler.h"

#include <string.h>

enum error_code inbox_init(struct inbox *inbox, void (*wake)(void *arg), void *arg,
                           struct error *err)
{
    *inbox = (struct inbox){.wake = wake, .arg = arg};
    if (pthread_mutex_init(&inbox->lock, NULL) != 0)
        return error_set(err, ERROR_INTERNAL, "cannot make a lock");
    return ERROR_NONE;
}

void inbox_deinit(struct inbox *inbox)
{
    pthread_mutex_destroy(&inbox->lock);
}

/* With the lock held; true: the loop must be woken. */
static bool inbox_post(struct inbox_item *item)
{
    struct inbox *inbox = item->inbox;
    if (item->posted)
        return false;
    bool was_empty = !inbox->first;
    item->posted = true;
    item->next = NULL;
    if (was_empty)
        inbox->first = item;
    else
        inbox->last->next = item;
    inbox->last = item;
    return was_empty;
}

/* The wake-up is within the lock, so that none is under way after inbox_silence(). The loop may
 * free the item as soon as the lock is let go: callers remember the inbox. */
static void wake_and_unlock(struct inbox *inbox, bool wake)
{
    if (wake && inbox->wake)
        inbox->wake(inbox->arg);
    pthread_mutex_unlock(&inbox->lock);
}

void inbox_silence(struct inbox *inbox)
{
    pthread_mutex_lock(&inbox->lock);
    inbox->wake = NULL;
    pthread_mutex_unlock(&inbox->lock);
}

void inbox_post_done(struct inbox_item *item)
{
    struct inbox *inbox = item->inbox;
    pthread_mutex_lock(&inbox->lock);
    item->done = true;
    wake_and_unlock(inbox, inbox_post(item));
}

static bool inbox_grow(void **array, uint32_t *capacity, uint32_t needed, size_t size)
{
    if (needed <= *capacity)
        return true;
    uint32_t larger = *capacity ? *capacity * 2 : 32;
    while (larger < needed)
        larger *= 2;
    void *moved = mem_resize(*array, larger, size);
    if (!moved)
        return false;
    *array = moved;
    *capacity = larger;
    return true;
}

static bool inbox_append(struct token_batch *batch, const struct token_event *event, bool of_prompt)
{
    if (!inbox_grow((void **)&batch->records, &batch->records_capacity, batch->n_records + 1,
                    sizeof *batch->records) ||
        !inbox_grow((void **)&batch->tops, &batch->tops_capacity, batch->n_tops + event->n_top,
                    sizeof *batch->tops))
        return false;
    batch->records[batch->n_records++] = (struct token_record){.token = event->token,
                                                               .logprob = event->logprob,
                                                               .n_top = event->n_top,
                                                               .of_prompt = of_prompt};
    if (event->n_top)
        memcpy(batch->tops + batch->n_tops, event->top, event->n_top * sizeof *event->top);
    batch->n_tops += event->n_top;
    return true;
}

static bool inbox_deliver(struct inbox_item *item, const struct token_event *event, bool of_prompt)
{
    struct inbox *inbox = item->inbox;
    pthread_mutex_lock(&inbox->lock);
    bool ok = inbox_append(&item->arriving, event, of_prompt);
    item->no_memory |= !ok;
    wake_and_unlock(inbox, inbox_post(item));
    return ok;
}

static bool inbox_on_token(void *arg, const struct token_event *event)
{
    return inbox_deliver(arg, event, false);
}

/* A row that is not the model's: its request ends with that. */
static void inbox_misfit(struct inbox_item *item, uint32_t n_values, uint32_t wanted)
{
    pthread_mutex_lock(&item->inbox->lock);
    if (!item->err.code)
        error_set(&item->err, ERROR_INTERNAL,
                  "the driver gave a row of %u values; the model's have %u", n_values, wanted);
    pthread_mutex_unlock(&item->inbox->lock);
}

/* The logits at a position say how likely the prompt's next token was. */
static void inbox_on_logits(void *arg, uint32_t position, const float *logits, uint32_t n_vocab)
{
    struct inbox_item *item = arg;
    struct token_logprob top[LIMIT_TOP_LOGPROBS];
    if (n_vocab != item->n_vocab) { /* the scorer would read beyond them */
        inbox_misfit(item, n_vocab, item->n_vocab);
        return;
    }
    if (position + 1 >= item->n_prompt)
        return;
    struct token_event event = {
        .token = item->prompt[position + 1], .top = top, .n_top = item->n_top};
    event.logprob = sampler_logprobs(item->scorer, logits, event.token, top, item->n_top);
    inbox_deliver(item, &event, true);
}

/* Rows are summed here, on the driver's thread: n_embd additions a token. */
static void inbox_on_row(void *arg, uint32_t position, const float *values, uint32_t n_values)
{
    struct inbox_item *item = arg;
    if (n_values != item->sum_size) {
        inbox_misfit(item, n_values, item->sum_size);
        return;
    }
    const bool counts = position >= item->first_row && position <= item->last_row;
    for (uint32_t i = 0; counts && i < n_values; i++)
        item->sum[i] += values[i];
    item->sum_rows += counts;
}

static void inbox_on_done(void *arg, enum finish_reason reason, const struct request_usage *usage,
                          const struct error *err)
{
    struct inbox_item *item = arg;
    struct inbox *inbox = item->inbox;
    pthread_mutex_lock(&inbox->lock);
    item->done = true;
    item->reason = item->err.code ? FINISH_ERROR : reason;
    if (usage)
        item->usage = *usage;
    if (reason == FINISH_ERROR && err)
        item->err = *err;
    wake_and_unlock(inbox, inbox_post(item));
}

const struct request_handlers inbox_token_handlers = {.token = inbox_on_token,
                                                      .done = inbox_on_done};
const struct request_handlers inbox_scoring_handlers = {
    .token = inbox_on_token, .row = inbox_on_logits, .done = inbox_on_done};
const struct request_handlers inbox_embedding_handlers = {
    .token = inbox_on_token, .row = inbox_on_row, .done = inbox_on_done};

struct inbox_item *inbox_take(struct inbox *inbox)
{
    pthread_mutex_lock(&inbox->lock);
    struct inbox_item *item = inbox->first;
    if (item) {
        inbox->first = item->next;
        item->next = NULL;
        item->posted = false;
    }
    pthread_mutex_unlock(&inbox->lock);
    return item;
}

bool inbox_collect(struct inbox_item *item, struct token_batch *batch)
{
    batch->n_records = batch->n_tops = 0;
    pthread_mutex_lock(&item->inbox->lock);
    struct token_batch full = item->arriving;
    item->arriving = *batch;
    *batch = full;
    bool done = item->done;
    pthread_mutex_unlock(&item->inbox->lock);
    return done;
}

static void unlink_item(struct inbox_item *item)
{
    struct inbox *inbox = item->inbox;
    struct inbox_item *before = NULL;
    for (struct inbox_item *at = inbox->first; at; before = at, at = at->next) {
        if (at != item)
            continue;
        if (before)
            before->next = item->next;
        else
            inbox->first = item->next;
        if (inbox->last == item)
            inbox->last = before;
        return;
    }
}

void inbox_item_deinit(struct inbox_item *item)
{
    if (item->inbox) {
        pthread_mutex_lock(&item->inbox->lock);
        if (item->posted)
            unlink_item(item);
        pthread_mutex_unlock(&item->inbox->lock);
    }
    token_batch_deinit(&item->arriving);
    mem_free(item->sum);
    sampler_free(item->scorer);
    *item = (struct inbox_item){0};
}

void token_batch_deinit(struct token_batch *batch)
{
    mem_free(batch->records);
    mem_free(batch->tops);
    *batch = (struct token_batch){0};
}
