#include "engine/weight_extents.h"

#include "engine/weight_disk.h"
#include "engine/weight_unit.h"
#include "engine/weights_load.h"

#include <assert.h>
#include <stdlib.h>

enum { GAP_BYTES = 64 << 10 };

static int extents_compare(const void *a, const void *b)
{
    const struct gguf_tensor *const *x = a, *const *y = b;
    return ((*x)->offset > (*y)->offset) - ((*x)->offset < (*y)->offset);
}

static uint64_t aligned_down(uint64_t offset)
{
    return offset / WEIGHT_DISK_ALIGN * WEIGHT_DISK_ALIGN;
}

static uint64_t aligned_up(uint64_t offset)
{
    return aligned_down(offset + WEIGHT_DISK_ALIGN - 1);
}

void weight_extents_of(const struct weight_unit *unit, struct weight_extents *out)
{
    const struct gguf_tensor *sorted[TENSOR_ROLE_COUNT + 1];
    assert(unit->n_sources <= TENSOR_ROLE_COUNT + 1);
    for (uint32_t i = 0; i < unit->n_sources; i++)
        sorted[i] = unit->sources[i].source;
    qsort(sorted, unit->n_sources, sizeof *sorted, extents_compare);
    out->n = 0;
    out->size = 0;
    for (uint32_t i = 0; i < unit->n_sources; i++) {
        const uint64_t end = sorted[i]->offset + sorted[i]->size;
        struct weight_extent *last = out->n ? &out->list[out->n - 1] : NULL;
        if (!last || sorted[i]->offset > last->offset + last->needed + GAP_BYTES) {
            last = &out->list[out->n++];
            *last = (struct weight_extent){.offset = aligned_down(sorted[i]->offset)};
        }
        last->needed = end - last->offset;
        last->size = aligned_up(end) - last->offset;
    }
    for (uint32_t i = 0; i < out->n; i++) {
        out->list[i].at = out->size;
        out->size += out->list[i].size;
    }
}

uint64_t weight_extents_find(const struct weight_extents *extents, uint64_t offset)
{
    for (uint32_t i = 0; i < extents->n; i++) {
        const struct weight_extent *extent = &extents->list[i];
        if (offset >= extent->offset && offset - extent->offset < extent->size)
            return extent->at + (offset - extent->offset);
    }
    assert(false && "the byte is in one of them");
    return 0;
}
