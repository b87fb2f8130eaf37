#include "api/prepare_queue.h"

#include "base/mem.h"

#include <assert.h>
#include <stddef.h>

struct prepare_share {
    struct api_client client;
    struct prepare_entry *first, **end; /* waiting */
    uint64_t n_waiting;
    uint32_t n_running;
    uint64_t used_ns;
    struct prepare_share *next;
};

static struct prepare_share *prepare_share_find(const struct prepare_queue *queue,
                                                const struct api_client *client)
{
    struct prepare_share *share = queue->shares;
    while (share && !api_client_is_same(&share->client, client))
        share = share->next;
    return share;
}

static bool prepare_share_is_idle(const struct prepare_share *share)
{
    return !share->first && !share->n_running;
}

/* A share without work is kept while it has used more than the others: else it could be rid of that
 * by leaving for a moment. */
static void prepare_queue_forget(struct prepare_queue *queue)
{
    struct prepare_share **link = &queue->shares;
    const bool all = !queue->n_waiting && !queue->running;
    while (*link) {
        struct prepare_share *share = *link;
        if (prepare_share_is_idle(share) && (all || share->used_ns <= queue->floor_ns)) {
            *link = share->next;
            mem_free(share);
        } else {
            link = &share->next;
        }
    }
    queue->floor_ns = all ? 0 : queue->floor_ns;
}

static struct prepare_share *prepare_share_new(struct prepare_queue *queue,
                                               const struct api_client *client)
{
    struct prepare_share *share = mem_new(sizeof *share);
    if (!share)
        return NULL;
    share->client = *client;
    share->end = &share->first;
    share->next = queue->shares;
    queue->shares = share;
    return share;
}

enum prepare_verdict prepare_queue_add(struct prepare_queue *queue, const struct api_client *client,
                                       struct prepare_entry *entry)
{
    assert(!entry->share && !entry->is_running);
    if (queue->n_waiting >= queue->waiting_max)
        return PREPARE_FULL;
    struct prepare_share *share = prepare_share_find(queue, client);
    if (share && share->n_waiting >= queue->client_max)
        return PREPARE_CLIENT_FULL;
    if (!share && !(share = prepare_share_new(queue, client)))
        return PREPARE_NO_MEMORY;
    if (prepare_share_is_idle(share) && share->used_ns < queue->floor_ns)
        share->used_ns = queue->floor_ns;
    entry->share = share;
    entry->next = NULL;
    *share->end = entry;
    share->end = &entry->next;
    share->n_waiting++;
    queue->n_waiting++;
    return PREPARE_QUEUED;
}

static bool prepare_entry_may_run(const struct prepare_queue *queue,
                                  const struct prepare_entry *entry, bool small_only)
{
    if (small_only && entry->is_large)
        return false;
    for (const struct prepare_entry *other = queue->running; other; other = other->next) {
        if (entry->exclusive && other->exclusive == entry->exclusive)
            return false;
    }
    return true;
}

static void prepare_share_take_out(struct prepare_queue *queue, struct prepare_share *share,
                                   struct prepare_entry *entry)
{
    struct prepare_entry **link = &share->first;
    while (*link != entry)
        link = &(*link)->next;
    *link = entry->next;
    if (!entry->next)
        share->end = link;
    share->n_waiting--;
    queue->n_waiting--;
}

struct prepare_entry *prepare_queue_next(struct prepare_queue *queue, bool small_only)
{
    struct prepare_entry *best = NULL;
    for (struct prepare_share *share = queue->shares; share; share = share->next) {
        struct prepare_entry *entry = share->first;
        if (best && share->used_ns >= best->share->used_ns)
            continue;
        while (entry && !prepare_entry_may_run(queue, entry, small_only))
            entry = entry->next;
        if (entry)
            best = entry;
    }
    if (!best)
        return NULL;
    prepare_share_take_out(queue, best->share, best);
    if (best->share->used_ns > queue->floor_ns)
        queue->floor_ns = best->share->used_ns;
    best->is_running = true;
    best->share->n_running++;
    best->next = queue->running;
    queue->running = best;
    return best;
}

void prepare_queue_done(struct prepare_queue *queue, struct prepare_entry *entry, uint64_t ns)
{
    struct prepare_entry **link = &queue->running;
    assert(entry->is_running);
    while (*link != entry)
        link = &(*link)->next;
    *link = entry->next;
    entry->share->n_running--;
    entry->share->used_ns += ns;
    entry->share = NULL;
    entry->is_running = false;
    prepare_queue_forget(queue);
}

void prepare_queue_remove(struct prepare_queue *queue, struct prepare_entry *waiting)
{
    assert(waiting->share && !waiting->is_running);
    prepare_share_take_out(queue, waiting->share, waiting);
    waiting->share = NULL;
    prepare_queue_forget(queue);
}

void prepare_queue_deinit(struct prepare_queue *queue)
{
    assert(!queue->n_waiting && !queue->running);
    prepare_queue_forget(queue);
}
