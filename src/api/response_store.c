#include "api/responses.h"

#include "base/mem.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

struct response_store *response_store_new(void)
{
    struct response_store *store = mem_new(sizeof *store);
    if (store && pthread_mutex_init(&store->lock, NULL) != 0) {
        mem_free(store);
        return NULL;
    }
    return store;
}

static void response_store_forget(struct response_store *store)
{
    struct kept_response *oldest = &store->kept[store->first];
    assert(store->n_kept && store->n_bytes >= oldest->messages.size);
    store->n_bytes -= oldest->messages.size;
    buffer_deinit(&oldest->messages);
    *oldest = (struct kept_response){0};
    store->first = (store->first + 1) % RESPONSES_KEPT;
    store->n_kept--;
}

void response_store_free(struct response_store *store)
{
    if (!store)
        return;
    while (store->n_kept)
        response_store_forget(store);
    pthread_mutex_destroy(&store->lock);
    mem_free(store);
}

void response_store_keep(struct response_store *store, const char *id, uint64_t grant,
                         const struct buffer *messages)
{
    struct kept_response kept = {.grant = grant};
    if (messages->failed || messages->size > RESPONSES_BYTES / 4)
        return;
    snprintf(kept.id, sizeof kept.id, "%s", id);
    buffer_append(&kept.messages, messages->data, messages->size);
    if (kept.messages.failed) {
        buffer_deinit(&kept.messages);
        return;
    }
    pthread_mutex_lock(&store->lock);
    while (store->n_kept == RESPONSES_KEPT ||
           (store->n_kept && store->n_bytes + kept.messages.size > RESPONSES_BYTES))
        response_store_forget(store);
    store->kept[(store->first + store->n_kept++) % RESPONSES_KEPT] = kept;
    store->n_bytes += kept.messages.size;
    pthread_mutex_unlock(&store->lock);
}

bool response_store_find(struct response_store *store, const char *id, uint64_t grant,
                         struct buffer *out)
{
    bool found = false;
    pthread_mutex_lock(&store->lock);
    for (uint32_t i = store->n_kept; i-- > 0 && !found;) { /* the latest of that id */
        const struct kept_response *kept = &store->kept[(store->first + i) % RESPONSES_KEPT];
        found = kept->grant == grant && strcmp(kept->id, id) == 0;
        if (found)
            buffer_append(out, kept->messages.data, kept->messages.size);
    }
    pthread_mutex_unlock(&store->lock);
    return found;
}
