/* What a stage's slots contain. A row of a layer and a position is a hash of all tokens up to
 * there, mixed with the layer. So rows of another layer, of another text, or rows that were never
 * written show in every token that is computed from them. */
#include "sim/world.h"

#include "base/limits.h"
#include "base/mem.h"
#include "base/random.h"

#include <assert.h>
#include <string.h>

static bool kept_grow(uint64_t **rows, uint32_t *capacity, uint32_t n)
{
    if (n <= *capacity)
        return true;
    const uint32_t wanted = n > 2 * *capacity ? n + 32 : 2 * *capacity;
    uint64_t *grown = mem_resize(*rows, wanted, sizeof **rows);
    if (!grown)
        return false;
    *rows = grown;
    *capacity = wanted;
    assert(*capacity >= n);
    return true;
}

struct cached *kept_slot(struct hosted *h, uint32_t slot)
{
    assert(slot < LIMIT_SEQUENCES);
    if (slot >= h->n_cached) {
        struct cached *grown = mem_resize(h->cached, slot + 1, sizeof *grown);
        if (!grown)
            return NULL;
        memset(grown + h->n_cached, 0, (slot + 1 - h->n_cached) * sizeof *grown);
        h->cached = grown;
        h->n_cached = slot + 1;
    }
    return &h->cached[slot];
}

bool kept_append(struct cached *cached, uint64_t hash)
{
    if (!kept_grow(&cached->rows, &cached->capacity, cached->n + 1))
        return false;
    cached->rows[cached->n++] = hash;
    return true;
}

static void kept_forget_written(struct hosted *h)
{
    while (h->written) {
        struct written *written = h->written;
        h->written = written->next;
        mem_free(written->rows);
        mem_free(written);
    }
}

void kept_forget(struct hosted *h)
{
    for (uint32_t i = 0; i < h->n_cached; i++)
        mem_free(h->cached[i].rows);
    mem_free(h->cached);
    h->cached = NULL;
    h->n_cached = 0;
    kept_forget_written(h);
}

/* ---- rows that come and go ---- */

static uint64_t kept_layer_mark(uint32_t layer)
{
    return random_mix(~(uint64_t)layer);
}

const char *kept_read_rows(struct hosted *h, struct handover_effect *effect)
{
    const struct kv_run *run = &effect->run;
    assert(effect->message.size == CACHE_ROWS_BYTES && run->layer - h->first_layer < h->n_layers);
    const struct cached *cached = run->slot < h->n_cached ? &h->cached[run->slot] : NULL;
    if (!cached || cached->n < run->first + run->n_rows)
        return "the slot does not have them";
    for (uint32_t i = 0; i < run->n_rows; i++) {
        const uint64_t row = cached->rows[run->first + i] ^ kept_layer_mark(run->layer);
        buffer_append(&effect->message, &row, sizeof row);
    }
    return effect->message.failed ? "no memory" : NULL;
}

const char *kept_write_rows(struct hosted *h, const struct handover_effect *effect)
{
    const struct kv_run *run = &effect->run;
    struct written *written = h->written;
    assert(effect->message.size == CACHE_ROWS_BYTES + (size_t)run->n_rows * KEPT_ROW_BYTES);
    while (written && (written->layer != run->layer || written->slot != run->slot))
        written = written->next;
    if (!written && (written = mem_new(sizeof *written)) != NULL) {
        written->layer = run->layer;
        written->slot = run->slot;
        written->next = h->written;
        h->written = written;
    }
    if (!written || !kept_grow(&written->rows, &written->capacity, run->first + run->n_rows))
        return "no memory";
    assert(run->first == written->n); /* the taker lets in what comes next, nothing else */
    memcpy(written->rows + run->first, effect->message.data + CACHE_ROWS_BYTES,
           (size_t)run->n_rows * KEPT_ROW_BYTES);
    written->n = run->first + run->n_rows;
    return NULL;
}

static uint64_t kept_row(const struct hosted *h, uint32_t layer, uint32_t slot, uint32_t position)
{
    const struct written *written = h->written;
    while (written && (written->layer != layer || written->slot != slot))
        written = written->next;
    return written && position < written->n ? written->rows[position] ^ kept_layer_mark(layer)
                                            : random_mix(layer); /* what was in memory */
}

/* What attention makes of all layers' rows: the text's hash if all of them are of that text. */
static const char *kept_settle_slot(struct hosted *h, uint32_t slot, uint32_t n_tokens)
{
    struct cached *cached = kept_slot(h, slot);
    if (!cached)
        return "no memory";
    cached->n = 0;
    cached->round = 0;
    for (uint32_t i = 0; i < n_tokens; i++) {
        uint64_t hash = kept_row(h, h->first_layer, slot, i);
        for (uint32_t k = 1; k < h->n_layers; k++) {
            const uint64_t other = kept_row(h, h->first_layer + k, slot, i);
            hash = other == hash ? hash : random_mix(hash ^ other);
        }
        if (!kept_append(cached, hash))
            return "no memory";
    }
    assert(cached->n == n_tokens);
    return NULL;
}

const char *kept_settle(struct hosted *h, const struct offered *offer)
{
    const char *why = NULL;
    for (uint32_t i = 0; i < offer->n_slots && !why; i++)
        why = kept_settle_slot(h, offer->slots[i].slot, offer->slots[i].n_tokens);
    kept_forget_written(h);
    assert(!h->written);
    return why;
}
