/* The checks and defaults that stand around a device's allocations and transfers. */
#include "base/log.h"
#include "base/mem.h"
#include "gpu/device_state.h"

#include <assert.h>
#include <inttypes.h>

enum { STAGING_BYTES = 4 * 1024 * 1024 };

static double device_buffers_mib(uint64_t bytes)
{
    return (double)bytes / (1024.0 * 1024.0);
}

static enum error_code wrong_handle(const struct device *device, struct device_buffer buffer,
                                    struct error *err)
{
    const char *id = device->info.id;
    if (!buffer.handle)
        return error_set(err, ERROR_INVALID, "device %s: no buffer", id);
    if (handle_is_foreign(&device->buffers, buffer.handle))
        return error_set(err, ERROR_INVALID, "device %s: the buffer belongs to another device", id);
    return error_set(err, ERROR_INVALID, "device %s: the buffer has been freed", id);
}

/* The buffer when [offset, offset + size) lies within it. */
static enum error_code device_buffers_find_range(const struct device *device,
                                                 struct device_buffer buffer, uint64_t offset,
                                                 uint64_t size, void **memory, struct error *err)
{
    const struct handle_slot *slot = handle_find(&device->buffers, buffer.handle);
    if (!slot)
        return wrong_handle(device, buffer, err);
    if (offset > slot->size || size > slot->size - offset)
        return error_set(err, ERROR_INVALID,
                         "device %s: %" PRIu64 " bytes at offset %" PRIu64
                         " do not lie in a buffer of %" PRIu64,
                         device->info.id, size, offset, slot->size);
    *memory = slot->memory;
    return ERROR_NONE;
}

static enum error_code device_buffers_allocate(struct device *device, uint64_t size, void **memory,
                                               struct error *err)
{
    struct device_memory now = device_memory(device);
    if (size > now.total_bytes)
        return error_set(
            err, ERROR_NO_MEMORY, "device %s: out of memory (needs %.1f MiB, has %.1f in all)",
            device->info.id, device_buffers_mib(size), device_buffers_mib(now.total_bytes));
    enum error_code code = device->impl->allocate(device->self, size, memory, err);
    if (code)
        error_wrap(err, "device %s", device->info.id);
    return code;
}

enum error_code device_alloc(struct device *device, uint64_t size, struct device_buffer *out,
                             struct error *err)
{
    assert(device && out);
    out->handle = 0;
    pthread_mutex_lock(&device->buffers_lock);
    void *memory = NULL;
    enum error_code code = size ? device_buffers_allocate(device, size, &memory, err) : ERROR_NONE;
    if (!code) {
        out->handle = handle_add(&device->buffers, memory, size);
        if (!out->handle) {
            if (memory)
                device->impl->deallocate(device->self, memory);
            code = error_set(err, ERROR_NO_MEMORY, "device %s: no more buffer handles",
                             device->info.id);
        }
    }
    pthread_mutex_unlock(&device->buffers_lock);
    return code;
}

enum error_code device_free(struct device *device, struct device_buffer buffer, struct error *err)
{
    assert(device);
    pthread_mutex_lock(&device->buffers_lock);
    enum error_code code = ERROR_NONE;
    const struct handle_slot *slot = handle_find(&device->buffers, buffer.handle);
    if (slot) {
        if (slot->memory)
            device->impl->deallocate(device->self, slot->memory);
        handle_remove(&device->buffers, buffer.handle);
    } else {
        code = wrong_handle(device, buffer, err);
    }
    pthread_mutex_unlock(&device->buffers_lock);
    return code;
}

/* ---- piece by piece -------------------------------------------------------------------- */

/* Where a transfer is. `pieces` NULL: one piece. */
struct piecewise {
    const struct device_pieces *pieces;
    uint64_t size, at, length; /* of all; the piece under way */
};

/* The first time and from then on to the next piece. False: there is none, or it must not go on
 * (*code). */
static bool piecewise_next(struct piecewise *way, enum error_code *code, struct error *err)
{
    way->at += way->length;
    if (*code || way->at == way->size)
        return false;
    const uint64_t left = way->size - way->at;
    const bool is_last = !way->pieces || left <= DEVICE_PIECE_BYTES;
    way->length = is_last ? left : DEVICE_PIECE_BYTES;
    if (!way->at || way->pieces->goes_on(way->pieces->arg, is_last))
        return true;
    *code = error_set(err, ERROR_CANCELLED, "cancelled after %.0f of %.0f MiB",
                      device_buffers_mib(way->at), device_buffers_mib(way->size));
    return false;
}

enum error_code device_write(struct device *device, struct device_buffer to, uint64_t offset,
                             const void *from, uint64_t size, struct error *err)
{
    return device_write_pieces(device, to, offset, from, size, NULL, err);
}

enum error_code device_write_pieces(struct device *device, struct device_buffer to, uint64_t offset,
                                    const void *from, uint64_t size,
                                    const struct device_pieces *pieces, struct error *err)
{
    assert(device && (from || size == 0));
    pthread_mutex_lock(&device->buffers_lock);
    void *memory = NULL;
    enum error_code code = device_buffers_find_range(device, to, offset, size, &memory, err);
    struct piecewise way = {.pieces = pieces, .size = size};
    while (piecewise_next(&way, &code, err))
        code = device->impl->copy_to(device->self, memory, offset + way.at,
                                     (const char *)from + way.at, way.length, err);
    if (code && memory)
        error_wrap(err, "device %s: write", device->info.id);
    pthread_mutex_unlock(&device->buffers_lock);
    return code;
}

enum error_code device_read(struct device *device, struct device_buffer from, uint64_t offset,
                            void *to, uint64_t size, struct error *err)
{
    return device_read_pieces(device, from, offset, to, size, NULL, err);
}

enum error_code device_read_pieces(struct device *device, struct device_buffer from,
                                   uint64_t offset, void *to, uint64_t size,
                                   const struct device_pieces *pieces, struct error *err)
{
    assert(device && (to || size == 0));
    pthread_mutex_lock(&device->buffers_lock);
    void *memory = NULL;
    enum error_code code = device_buffers_find_range(device, from, offset, size, &memory, err);
    struct piecewise way = {.pieces = pieces, .size = size};
    while (piecewise_next(&way, &code, err))
        code = device->impl->copy_from(device->self, memory, offset + way.at, (char *)to + way.at,
                                       way.length, err);
    if (code && memory)
        error_wrap(err, "device %s: read", device->info.id);
    pthread_mutex_unlock(&device->buffers_lock);
    return code;
}

/* One side of a device-to-device copy. */
struct side {
    struct device *device;
    void *memory;
    uint64_t offset;
};

static enum error_code copy_staged(struct side from, struct side to, uint64_t size,
                                   struct error *err)
{
    uint64_t piece_max = size < STAGING_BYTES ? size : STAGING_BYTES;
    void *staging = mem_new(piece_max);
    if (!staging)
        return error_set(err, ERROR_NO_MEMORY, "no host memory to copy through");
    enum error_code code = ERROR_NONE;
    for (uint64_t at = 0; at < size && !code;) {
        uint64_t piece = size - at < piece_max ? size - at : piece_max;
        code = from.device->impl->copy_from(from.device->self, from.memory, from.offset + at,
                                            staging, piece, err);
        if (!code)
            code = to.device->impl->copy_to(to.device->self, to.memory, to.offset + at, staging,
                                            piece, err);
        at += piece;
    }
    mem_free(staging);
    return code;
}

static enum copy_path direct_path(struct side from, struct side to)
{
    const struct device_impl *impl = from.device->impl;
    if (from.device == to.device)
        return COPY_SAME_DEVICE;
    return impl->path_between ? impl->path_between(from.memory, to.memory) : COPY_SAME_BACKEND;
}

static enum error_code copy_best(struct side from, struct side to, uint64_t size,
                                 enum copy_path *path, struct error *err)
{
    const struct device_impl *impl = from.device->impl;
    enum error_code code = ERROR_UNSUPPORTED;
    *path = COPY_STAGED;
    if (impl == to.device->impl && impl->copy_between)
        code = impl->copy_between(from.device->self, from.memory, from.offset, to.device->self,
                                  to.memory, to.offset, size, err);
    if (code == ERROR_UNSUPPORTED)
        code = copy_staged(from, to, size, err);
    else
        *path = direct_path(from, to);
    if (code)
        *path = COPY_NONE;
    return code;
}

static bool device_buffers_overlap(uint64_t a, uint64_t b, uint64_t size)
{
    return a < b ? b - a < size : a - b < size;
}

/* By address, so that two copies in opposite directions cannot wait for each other. */
static void lock_both(struct device *a, struct device *b)
{
    struct device *first = (uintptr_t)a < (uintptr_t)b ? a : b;
    pthread_mutex_lock(&first->buffers_lock);
    if (a != b)
        pthread_mutex_lock(first == a ? &b->buffers_lock : &a->buffers_lock);
}

static void unlock_both(struct device *a, struct device *b)
{
    pthread_mutex_unlock(&a->buffers_lock);
    if (a != b)
        pthread_mutex_unlock(&b->buffers_lock);
}

enum error_code device_copy(struct device *device_from, struct device_buffer from,
                            uint64_t offset_from, struct device *device_to, struct device_buffer to,
                            uint64_t offset_to, uint64_t size, struct error *err)
{
    enum copy_path path;
    return device_copy_path(device_from, from, offset_from, device_to, to, offset_to, size, &path,
                            err);
}

enum error_code device_copy_path(struct device *device_from, struct device_buffer from,
                                 uint64_t offset_from, struct device *device_to,
                                 struct device_buffer to, uint64_t offset_to, uint64_t size,
                                 enum copy_path *path, struct error *err)
{
    return device_copy_pieces(device_from, from, offset_from, device_to, to, offset_to, size, NULL,
                              path, err);
}

/* The path is that of the last piece: all take the same. */
static enum error_code copy_way(struct side from, struct side to, struct piecewise *way,
                                enum copy_path *path, struct error *err)
{
    enum error_code code = ERROR_NONE;
    while (piecewise_next(way, &code, err)) {
        struct side source = from, target = to;
        source.offset += way->at;
        target.offset += way->at;
        code = copy_best(source, target, way->length, path, err);
    }
    return code;
}

enum error_code device_copy_pieces(struct device *device_from, struct device_buffer from,
                                   uint64_t offset_from, struct device *device_to,
                                   struct device_buffer to, uint64_t offset_to, uint64_t size,
                                   const struct device_pieces *pieces, enum copy_path *path,
                                   struct error *err)
{
    assert(device_from && device_to && path);
    *path = COPY_NONE;
    struct side source = {.device = device_from, .offset = offset_from};
    struct side target = {.device = device_to, .offset = offset_to};
    lock_both(device_from, device_to);
    enum error_code code =
        device_buffers_find_range(device_from, from, offset_from, size, &source.memory, err);
    if (!code)
        code = device_buffers_find_range(device_to, to, offset_to, size, &target.memory, err);
    if (!code && size && source.memory == target.memory &&
        device_buffers_overlap(offset_from, offset_to, size))
        code = error_set(err, ERROR_INVALID,
                         "device %s: a copy within a buffer must not overlap itself",
                         device_from->info.id);
    else if (!code && size) {
        struct piecewise way = {.pieces = pieces, .size = size};
        code = copy_way(source, target, &way, path, err);
        if (code)
            error_wrap(err, "copy from device %s to %s", device_from->info.id, device_to->info.id);
    }
    unlock_both(device_from, device_to);
    return code;
}

enum error_code device_synchronize(struct device *device, struct error *err)
{
    assert(device);
    enum error_code code =
        device->impl->synchronize ? device->impl->synchronize(device->self, err) : ERROR_NONE;
    if (code)
        error_wrap(err, "device %s", device->info.id);
    return code;
}

void device_buffers_deinit(struct device *device)
{
    uint32_t n_left = 0;
    for (uint32_t i = 0; i < device->buffers.n_slots; i++) {
        struct handle_slot *slot = &device->buffers.slots[i];
        n_left += slot->used;
        if (slot->memory)
            device->impl->deallocate(device->self, slot->memory);
    }
    if (n_left)
        log_line(LOG_DEBUG, "gpu", "device %s: %u buffers were still allocated at close",
                 device->info.id, n_left);
    handle_table_deinit(&device->buffers);
    pthread_mutex_destroy(&device->buffers_lock);
}
