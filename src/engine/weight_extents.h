/* Where a layer's weights are in its file, as few runs of bytes that a disk reads well. Pure. */
#pragma once

#include "model/architecture.h"

#include <stdint.h>

struct weight_unit;

struct weight_extent {
    uint64_t offset; /* in the file, a multiple of WEIGHT_DISK_ALIGN; so is the size */
    uint64_t size;
    uint64_t needed; /* of it: the rest may be beyond the end of the file */
    uint64_t at;     /* in the slot */
};

struct weight_extents {
    struct weight_extent list[TENSOR_ROLE_COUNT + 1];
    uint32_t n;
    uint64_t size; /* of all together */
};

/* Tensors nearer to each other than 64 KiB are one run: reading the gap is cheaper than a seek. */
void weight_extents_of(const struct weight_unit *unit, struct weight_extents *out);

/* Where the byte at this offset of the file lies in the slot; it must be in one of them. */
uint64_t weight_extents_find(const struct weight_extents *extents, uint64_t offset);
