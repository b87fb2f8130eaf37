#include "engine/weight_stream.h"

#include "base/clock.h"
#include "base/mem.h"
#include "engine/weight_disk.h"
#include "engine/weight_extents.h"
#include "engine/weight_unit.h"
#include "engine/weight_way.h"
#include "engine/weights_load.h"
#include "gpu/gpu.h"
#include "model/model.h"

#include <assert.h>
#include <ggml-alloc.h>
#include <pthread.h>

struct stream_slot {
    ggml_backend_buffer_t raw; /* of host memory */
    char *base;                /* in it, aligned for the disk */
    ggml_backend_buffer_t buffers[WEIGHT_POOLS_MAX];
    uint32_t n_buffers;
    /* under the lock, while it is being filled */
    uint32_t streamed;            /* the layer */
    uint32_t extent;              /* of it, that is read next */
    uint64_t at;                  /* in that extent */
    uint32_t n_reading;           /* chunks under way */
    bool is_filling, has_no_more; /* chunks to begin */
    enum error_code code;
    struct error error;
};

struct weight_stream {
    struct device *device;
    struct weight_unit *const *units;
    struct weight_extents *extents; /* of each unit */
    uint32_t n_units;
    struct weight_disk disk;
    struct stream_slot slots[WEIGHT_WINDOW_SLOTS];
    bool is_host;
    pthread_mutex_t lock;
    pthread_cond_t to_read, to_use;
    pthread_t threads[WEIGHT_DISK_THREADS];
    uint32_t n_threads;
    /* under the lock */
    struct weight_window window;
    struct weight_way way;
    bool stops, rewinds;
    uint64_t n_read, waited_ns;
};

/* ---- what a slot takes ------------------------------------------------------------------ */

void weight_stream_slot_bytes(const struct weight_unit *unit, uint64_t *device_bytes,
                              uint64_t *host_bytes)
{
    struct weight_extents extents;
    weight_extents_of(unit, &extents);
    uint64_t raw = extents.size + WEIGHT_DISK_ALIGN;
    *device_bytes = 0;
    for (uint32_t i = 0; i < unit->n_pools; i++) {
        if (!weight_unit_is_in_place(unit, &unit->pools[i]))
            *device_bytes += unit->pools[i].bytes;
    }
    *host_bytes = weights_on_host(unit->device) ? 0 : raw;
    *device_bytes += weights_on_host(unit->device) ? raw : 0;
}

/* ---- slots ------------------------------------------------------------------------------ */

static enum error_code slot_failed(const struct weight_stream *stream, struct error *err)
{
    return error_set(err, ERROR_NO_MEMORY, "%s has no memory for the window of streamed layers",
                     device_info(stream->device)->id);
}

/* Buffers that are large enough for each of the slot's layers, one of each type. */
static ggml_backend_buffer_t slot_buffer(struct weight_stream *stream, struct stream_slot *slot,
                                         uint32_t first, uint32_t step,
                                         ggml_backend_buffer_type_t type)
{
    size_t most = 0;
    for (uint32_t i = 0; i < slot->n_buffers; i++) {
        if (ggml_backend_buffer_get_type(slot->buffers[i]) == type)
            return slot->buffers[i];
    }
    for (uint32_t i = first; i < stream->n_units; i += step) {
        const struct weight_unit *unit = stream->units[i];
        for (uint32_t k = 0; k < unit->n_pools; k++) {
            const size_t bytes = unit->pools[k].type == type ? unit->pools[k].bytes : 0;
            most = bytes > most ? bytes : most;
        }
    }
    assert(slot->n_buffers < WEIGHT_POOLS_MAX);
    ggml_backend_buffer_t buffer = ggml_backend_buft_alloc_buffer(type, most);
    if (buffer) {
        ggml_backend_buffer_set_usage(buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
        weights_advise_large_pages(buffer);
        slot->buffers[slot->n_buffers++] = buffer;
    }
    return buffer;
}

static bool slot_take_raw(struct weight_stream *stream, struct stream_slot *slot, uint32_t first,
                          uint32_t step)
{
    uint64_t most = 0;
    for (uint32_t i = first; i < stream->n_units; i += step)
        most = stream->extents[i].size > most ? stream->extents[i].size : most;
    slot->raw = ggml_backend_buft_alloc_buffer(weight_unit_host_type(stream->units[first]),
                                               most + WEIGHT_DISK_ALIGN);
    if (!slot->raw)
        return false;
    ggml_backend_buffer_set_usage(slot->raw, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    weights_advise_large_pages(slot->raw);
    char *base = ggml_backend_buffer_get_base(slot->raw);
    slot->base = base + (WEIGHT_DISK_ALIGN - (uintptr_t)base % WEIGHT_DISK_ALIGN);
    return true;
}

static char *source_bytes(const struct weight_stream *stream, const struct stream_slot *slot,
                          uint32_t streamed, const struct tensor_copy *source)
{
    return slot->base + weight_extents_find(&stream->extents[streamed], source->source->offset);
}

/* Every tensor of the layer gets its place in the slot. */
static enum error_code slot_bind(struct weight_stream *stream, struct stream_slot *slot,
                                 uint32_t streamed, uint32_t step, struct error *err)
{
    struct weight_unit *unit = stream->units[streamed];
    for (uint32_t k = 0; k < unit->n_pools; k++) {
        struct weight_pool *pool = &unit->pools[k];
        const bool in_place = weight_unit_is_in_place(unit, pool);
        ggml_backend_buffer_t buffer =
            in_place ? slot->raw : slot_buffer(stream, slot, streamed % step, step, pool->type);
        if (!buffer)
            return slot_failed(stream, err);
        struct ggml_tallocr place = ggml_tallocr_new(buffer);
        for (uint32_t i = 0; i < unit->n_sources; i++) {
            struct tensor_copy *source = &unit->sources[i];
            if (source->pool != pool)
                continue;
            source->mapped = in_place;
            if (in_place)
                ggml_backend_tensor_alloc(buffer, source->tensor,
                                          source_bytes(stream, slot, streamed, source));
            else
                ggml_tallocr_alloc(&place, source->tensor);
        }
    }
    return ERROR_NONE;
}

static enum error_code stream_open_slots(struct weight_stream *stream, struct error *err)
{
    enum error_code code = ERROR_NONE;
    const uint32_t n_slots = stream->window.n_slots;
    for (uint32_t i = 0; i < n_slots && !code; i++)
        code = slot_take_raw(stream, &stream->slots[i], i, n_slots) ? ERROR_NONE
                                                                    : slot_failed(stream, err);
    for (uint32_t i = 0; i < stream->n_units && !code; i++)
        code = slot_bind(stream, &stream->slots[i % n_slots], i, n_slots, err);
    return code;
}

/* From the file's bytes in the slot to where the device computes from. */
static void slot_convert(struct weight_stream *stream, struct stream_slot *slot)
{
    const struct weight_unit *unit = stream->units[slot->streamed];
    for (uint32_t i = 0; i < unit->n_sources; i++) {
        const struct tensor_copy *source = &unit->sources[i];
        if (!source->mapped)
            ggml_backend_tensor_set(source->tensor,
                                    source_bytes(stream, slot, slot->streamed, source), 0,
                                    source->source->size);
    }
}

/* ---- the reading threads ---------------------------------------------------------------- */

struct chunk {
    struct stream_slot *slot;
    uint64_t offset, size, needed;
    bool is_direct;
    char *out;
};

static void slot_next_extent(struct weight_stream *stream, struct stream_slot *slot)
{
    slot->at = 0;
    slot->has_no_more = ++slot->extent == stream->extents[slot->streamed].n;
}

/* The slot's next chunk; its slot has one. */
static void slot_cut(struct weight_stream *stream, struct stream_slot *slot, struct chunk *out)
{
    const struct weight_extent *extent = &stream->extents[slot->streamed].list[slot->extent];
    const uint64_t left = extent->size - slot->at;
    const uint64_t size = left < WEIGHT_DISK_CHUNK ? left : WEIGHT_DISK_CHUNK;
    const uint64_t needed = extent->needed > slot->at ? extent->needed - slot->at : 0;
    *out = (struct chunk){.slot = slot,
                          .offset = extent->offset + slot->at,
                          .size = size,
                          .needed = needed < size ? needed : size,
                          .is_direct = stream->way.is_direct,
                          .out = slot->base + extent->at + slot->at};
    slot->at += size;
    slot->n_reading++;
    if (slot->at == extent->size)
        slot_next_extent(stream, slot);
}

static struct stream_slot *slot_with_chunks_locked(struct weight_stream *stream)
{
    uint32_t streamed, slot;
    for (uint32_t i = 0; i < stream->window.n_slots; i++) {
        if (stream->slots[i].is_filling && !stream->slots[i].has_no_more)
            return &stream->slots[i];
    }
    if (stream->rewinds || !weight_window_begin(&stream->window, &streamed, &slot))
        return NULL;
    struct stream_slot *begun = &stream->slots[slot];
    begun->streamed = streamed;
    begun->extent = 0;
    begun->at = begun->n_reading = 0;
    begun->is_filling = true;
    begun->has_no_more = false;
    begun->code = ERROR_NONE;
    return begun;
}

/* The last of its chunks has come. The lock is open while the layer is converted. */
static void slot_finish_locked(struct weight_stream *stream, struct stream_slot *slot)
{
    slot->is_filling = false;
    if (!slot->code && stream->is_host) {
        pthread_mutex_unlock(&stream->lock);
        slot_convert(stream, slot);
        pthread_mutex_lock(&stream->lock);
    }
    weight_window_filled(&stream->window, (uint32_t)(slot - stream->slots), !slot->code);
    pthread_cond_broadcast(&stream->to_use);
}

static void stream_read_locked(struct weight_stream *stream, const struct chunk *chunk)
{
    struct stream_slot *slot = chunk->slot;
    struct error err = {0};
    struct weight_disk disk = stream->disk;
    disk.is_direct = chunk->is_direct;
    pthread_mutex_unlock(&stream->lock);
    const uint64_t start_ns = clock_now_ns();
    const enum error_code code =
        weight_disk_read(&disk, chunk->out, chunk->offset, chunk->size, chunk->needed, &err);
    const uint64_t took_ns = clock_now_ns() - start_ns;
    pthread_mutex_lock(&stream->lock);
    stream->n_read += code ? 0 : chunk->size;
    weight_way_count(&stream->way, chunk->is_direct, code ? 0 : chunk->size, took_ns);
    if (code) {
        slot->code = code;
        slot->error = err;
        slot->has_no_more = true;
    }
    if (--slot->n_reading == 0 && slot->has_no_more)
        slot_finish_locked(stream, slot);
}

static void *stream_thread(void *arg)
{
    struct weight_stream *stream = arg;
    pthread_mutex_lock(&stream->lock);
    while (!stream->stops) {
        struct stream_slot *slot = slot_with_chunks_locked(stream);
        struct chunk chunk;
        if (!slot) {
            pthread_cond_wait(&stream->to_read, &stream->lock);
            continue;
        }
        slot_cut(stream, slot, &chunk);
        stream_read_locked(stream, &chunk);
    }
    pthread_mutex_unlock(&stream->lock);
    return NULL;
}

/* ---- opening and closing ---------------------------------------------------------------- */

static enum error_code stream_start(struct weight_stream *stream, struct error *err)
{
    while (stream->n_threads < WEIGHT_DISK_THREADS &&
           pthread_create(&stream->threads[stream->n_threads], NULL, stream_thread, stream) == 0)
        stream->n_threads++;
    return stream->n_threads
               ? ERROR_NONE
               : error_set(err, ERROR_NO_MEMORY, "no thread to read streamed weights with");
}

/* Of the file, that all streamed layers are. */
static uint64_t stream_bytes(const struct weight_stream *stream)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < stream->n_units; i++)
        bytes += stream->extents[i].size;
    return bytes;
}

static enum error_code stream_prepare(struct weight_stream *stream, const struct model *model,
                                      struct error *err)
{
    stream->extents = mem_new_array(stream->n_units, sizeof *stream->extents);
    if (!stream->extents)
        return slot_failed(stream, err);
    for (uint32_t i = 0; i < stream->n_units; i++)
        weight_extents_of(stream->units[i], &stream->extents[i]);
    enum error_code code = weight_disk_open(&stream->disk, model_file(model), err);
    if (!code)
        code = weight_disk_measure(&stream->disk, stream->extents[0].list[0].offset, err);
    weight_way_init(&stream->way, stream->disk.direct, stream->disk.is_direct,
                    stream_bytes(stream));
    if (!code)
        code = stream_open_slots(stream, err);
    return code ? code : stream_start(stream, err);
}

enum error_code weight_stream_open(struct device *device, const struct model *model,
                                   struct weight_unit *const *units, uint32_t n_units,
                                   uint32_t n_slots, struct weight_stream **out, struct error *err)
{
    assert(n_units && n_slots && n_units % n_slots == 0);
    struct weight_stream *stream = mem_new(sizeof *stream);
    if (!stream)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for a stream of weights");
    stream->device = device;
    stream->units = units;
    stream->n_units = n_units;
    stream->is_host = weights_on_host(device);
    pthread_mutex_init(&stream->lock, NULL);
    pthread_cond_init(&stream->to_read, NULL);
    pthread_cond_init(&stream->to_use, NULL);
    weight_window_init(&stream->window, n_units, n_slots);
    enum error_code code = stream_prepare(stream, model, err);
    if (code) {
        weight_stream_close(stream);
        return code;
    }
    *out = stream;
    return ERROR_NONE;
}

void weight_stream_close(struct weight_stream *stream)
{
    if (!stream)
        return;
    pthread_mutex_lock(&stream->lock);
    stream->stops = true;
    pthread_cond_broadcast(&stream->to_read);
    pthread_mutex_unlock(&stream->lock);
    for (uint32_t i = 0; i < stream->n_threads; i++)
        pthread_join(stream->threads[i], NULL);
    for (uint32_t i = 0; i < WEIGHT_WINDOW_SLOTS; i++) {
        for (uint32_t k = 0; k < stream->slots[i].n_buffers; k++)
            ggml_backend_buffer_free(stream->slots[i].buffers[k]);
        ggml_backend_buffer_free(stream->slots[i].raw);
    }
    pthread_cond_destroy(&stream->to_use);
    pthread_cond_destroy(&stream->to_read);
    pthread_mutex_destroy(&stream->lock);
    weight_disk_close(&stream->disk);
    mem_free(stream->extents);
    mem_free(stream);
}

/* ---- by the device's thread ------------------------------------------------------------- */

enum error_code weight_stream_take(struct weight_stream *stream, struct error *err)
{
    enum weight_slot_state state;
    pthread_mutex_lock(&stream->lock);
    const uint64_t start_ns = clock_now_ns();
    uint32_t slot = weight_window_next(&stream->window, &state);
    while (state != WEIGHT_SLOT_READY && state != WEIGHT_SLOT_FAILED) {
        pthread_cond_wait(&stream->to_use, &stream->lock);
        slot = weight_window_next(&stream->window, &state);
    }
    stream->waited_ns += clock_now_ns() - start_ns;
    const enum error_code code = stream->slots[slot].code;
    if (code)
        error_set(err, code, "layer %u: %s", stream->units[stream->slots[slot].streamed]->layer,
                  stream->slots[slot].error.text);
    pthread_mutex_unlock(&stream->lock);
    if (!code && !stream->is_host)
        slot_convert(stream, &stream->slots[slot]);
    return code;
}

void weight_stream_release(struct weight_stream *stream)
{
    pthread_mutex_lock(&stream->lock);
    weight_window_release(&stream->window);
    pthread_cond_broadcast(&stream->to_read);
    pthread_mutex_unlock(&stream->lock);
}

void weight_stream_end(struct weight_stream *stream)
{
    pthread_mutex_lock(&stream->lock);
    stream->rewinds = true;
    while (weight_window_is_filling(&stream->window))
        pthread_cond_wait(&stream->to_use, &stream->lock);
    weight_window_rewind(&stream->window);
    stream->rewinds = false;
    pthread_cond_broadcast(&stream->to_read);
    pthread_mutex_unlock(&stream->lock);
}

struct weight_stream_facts weight_stream_facts(struct weight_stream *stream)
{
    pthread_mutex_lock(&stream->lock);
    const struct weight_stream_facts facts = {.bytes = stream_bytes(stream),
                                              .disk_bps = weight_disk_bps(&stream->disk),
                                              .is_direct = stream->way.is_direct,
                                              .n_read = stream->n_read,
                                              .waited_ns = stream->waited_ns};
    pthread_mutex_unlock(&stream->lock);
    return facts;
}
