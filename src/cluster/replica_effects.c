/* The queues of a replica's effects. */
#include "cluster/replica_impl.h"

#include "base/mem.h"

#include <assert.h>
#include <string.h>

void replica_effect_clear(struct replica_effect *effect)
{
    if (!effect->type) { /* asked before every effect: most often there was none */
        assert(!effect->bytes && !effect->write.sequence);
        return;
    }
    mem_free(effect->bytes);
    log_write_clear(&effect->write);
    *effect = (struct replica_effect){0};
}

static bool effect_queue_grow(struct effect_queue *queue)
{
    assert(queue->first + queue->n <= queue->capacity);
    if (queue->first) {
        memmove(queue->list, queue->list + queue->first, queue->n * sizeof *queue->list);
        queue->first = 0;
    }
    if (queue->n < queue->capacity)
        return true;
    const size_t capacity = queue->capacity ? 2 * queue->capacity : 16;
    struct replica_effect *list = mem_resize(queue->list, capacity, sizeof *list);
    if (!list)
        return false;
    queue->list = list;
    queue->capacity = capacity;
    return true;
}

static void effect_queue_clear(struct effect_queue *queue)
{
    for (size_t i = 0; i < queue->n; i++)
        replica_effect_clear(&queue->list[queue->first + i]);
    queue->first = queue->n = 0;
}

void effect_queue_deinit(struct effect_queue *queue)
{
    effect_queue_clear(queue);
    mem_free(queue->list);
    *queue = (struct effect_queue){0};
}

/* The one effect that says so takes the place of all others, so that it needs no memory but a slot:
 * replica_open() makes sure that there is one. */
void replica_fail(struct replica *r, enum error_code code, const char *what)
{
    assert(code && r->effects.capacity); /* a slot was made in replica_open() */
    if (r->failed)
        return;
    r->failed = true;
    effect_queue_clear(&r->effects);
    effect_queue_clear(&r->held);
    r->effects.n = 1;
    struct replica_effect *effect = &r->effects.list[0];
    *effect = (struct replica_effect){.type = REPLICA_FAILED};
    error_set(&effect->failure, code, "replica: %s", what);
}

bool replica_emit(struct replica *r, struct effect_queue *queue, struct replica_effect *effect)
{
    assert(effect->type);
    if (!r->failed && queue->first + queue->n == queue->capacity && !effect_queue_grow(queue))
        replica_fail(r, ERROR_NO_MEMORY, "not enough memory for what is to be done");
    if (r->failed) {
        replica_effect_clear(effect);
        return false;
    }
    queue->list[queue->first + queue->n++] = *effect;
    return true;
}

bool replica_emit_bytes(struct replica *r, struct replica_effect effect, const uint8_t *bytes,
                        size_t size)
{
    effect.bytes = mem_new(size + 1);
    if (!effect.bytes) {
        replica_fail(r, ERROR_NO_MEMORY, "not enough memory for what is to be done");
        return false;
    }
    if (size)
        memcpy(effect.bytes, bytes, size);
    effect.size = size;
    return replica_emit(r, &r->effects, &effect);
}

static struct pending *new_pending(struct replica *r)
{
    if (r->n_pending == r->pending_capacity) {
        const uint32_t capacity = r->pending_capacity ? 2 * r->pending_capacity : 16;
        struct pending *pending = mem_resize(r->pending, capacity, sizeof *pending);
        if (!pending)
            return NULL;
        r->pending = pending;
        r->pending_capacity = capacity;
    }
    return &r->pending[r->n_pending++];
}

/* Takes over the write. Term, vote and lineage hold back the messages that follow. */
bool replica_emit_write(struct replica *r, struct log_write *write, enum pending_type type)
{
    assert(!write->sequence);
    struct pending *pending = r->failed ? NULL : new_pending(r);
    if (!pending) {
        replica_fail(r, ERROR_NO_MEMORY, "not enough memory for a write");
        log_write_clear(write);
        return false;
    }
    write->sequence = ++r->last_sequence;
    *pending = (struct pending){.sequence = write->sequence, .type = type, .first = 1};
    if (type == PENDING_ENTRIES) {
        pending->first = write->log.first;
        pending->last = log_last(&write->log);
    }
    if (write->has_term || write->reset)
        r->hold_sequence = write->sequence;
    struct replica_effect effect = {.type = REPLICA_WRITE, .write = *write};
    *write = (struct log_write){0};
    return replica_emit(r, &r->effects, &effect);
}

void replica_send(struct replica *r, uint64_t to, struct wire_message *message)
{
    replica_send_in(r, to, r->lineage, message);
}

void replica_send_in(struct replica *r, uint64_t to, struct lineage lineage,
                     struct wire_message *message)
{
    assert(to != r->options.id);
    struct buffer bytes = {0};
    message->lineage = lineage;
    wire_encode(&bytes, message);
    if (bytes.failed) {
        buffer_deinit(&bytes);
        replica_fail(r, ERROR_NO_MEMORY, "not enough memory for a message");
        return;
    }
    struct replica_effect effect = {
        .type = REPLICA_SEND, .to = to, .bytes = (uint8_t *)bytes.data, .size = bytes.size};
    if (r->hold_sequence > r->written_sequence) {
        effect.index = r->hold_sequence;
        replica_emit(r, &r->held, &effect);
    } else {
        replica_emit(r, &r->effects, &effect);
    }
}

void replica_release_held(struct replica *r)
{
    while (r->held.n && r->held.list[r->held.first].index <= r->written_sequence && !r->failed) {
        struct replica_effect effect = r->held.list[r->held.first++];
        r->held.n--;
        effect.index = 0;
        replica_emit(r, &r->effects, &effect);
    }
}

bool replica_next(struct replica *replica, struct replica_effect *out)
{
    assert(replica->effects.first + replica->effects.n <= replica->effects.capacity);
    struct effect_queue *queue = &replica->effects;
    if (!queue->n)
        return false;
    *out = queue->list[queue->first++];
    if (--queue->n == 0)
        queue->first = 0;
    return true;
}
