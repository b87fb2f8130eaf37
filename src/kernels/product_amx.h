/* What the AMX kernel's bodies share. Rows x are divided into sides of as many rows each, at most
 * sixteen. A tile has 32 or 64 values of each row of a side, another as many weights of sixteen
 * rows of the matrix, and a third the sums of all with all. */
#pragma once

#include "kernels/product_amx_tiles.h"

#define PRODUCT_OWN_BODIES
#include "kernels/product_avx512.h"
#include "kernels/product_grid_vnni.h"
#include "kernels/product_panel_vnni.h"

#include <assert.h>

enum { AMX_ROWS = 16 };

struct amx_sides {
    uint32_t n, n_rows; /* of each */
};

static inline struct amx_sides amx_sides_of(uint32_t n)
{
    struct amx_sides sides = {.n = (n + AMX_ROWS - 1) / AMX_ROWS};
    sides.n_rows = (n + sides.n - 1) / sides.n;
    assert(sides.n_rows > 1 && sides.n * sides.n_rows <= PRODUCT_TILE);
    return sides;
}

/* The n rows x, then the last again for what is missing. */
static inline void amx_fill(const struct amx_sides *sides, const struct product_block *const *x,
                            uint32_t n, const struct product_block **out)
{
    for (uint32_t i = 0; i < sides->n * sides->n_rows; i++)
        out[i] = x[i < n ? i : n - 1];
}

struct amx_side { /* some blocks of its rows x */
    const uint8_t *first;
    size_t step; /* from row to row: tiles are loaded so */
};

/* Rows x that do not lie evenly, as those of an expert, are copied. */
static inline struct amx_side amx_side_of(const struct product_block *const *x, uint32_t n_rows,
                                          uint32_t block, uint32_t n_blocks,
                                          struct product_block *copies)
{
    const size_t step = (uintptr_t)x[1] - (uintptr_t)x[0];
    uint32_t k = 2;
    while (k < n_rows && (uintptr_t)x[k] - (uintptr_t)x[k - 1] == step)
        k++;
    if (k == n_rows)
        return (struct amx_side){(const uint8_t *)(x[0] + block), step};
    for (k = 0; k < n_rows; k++)
        memcpy(copies + (size_t)k * n_blocks, x[k] + block, n_blocks * sizeof *copies);
    return (struct amx_side){(const uint8_t *)copies, n_blocks * sizeof *copies};
}

/* Of row k. */
ALWAYS_INLINE const struct product_block *amx_blocks_of(const struct amx_side *side, uint32_t k)
{
    return (const void *)((uintptr_t)side->first + k * side->step);
}
