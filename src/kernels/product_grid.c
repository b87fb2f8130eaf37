#include "kernels/product_grid.h"

#include <math.h>

struct product_grids product_grids;

struct grid_kind {
    enum product_type type;
    uint32_t n_entries, n_weights; /* of the grid, of an entry */
    float factor, offset;          /* a byte is factor times the weight, and offset */
    void (*put)(uint8_t *block, uint32_t i, uint32_t index);
    void *grid;
};

/* ---- a block with scales of one, whose entry i is `index` ---- */

static void grid_put_iq1s(uint8_t *block, uint32_t i, uint32_t index)
{
    block[2 + i] = (uint8_t)index;
    const uint32_t high = grid_read16(block + 34 + i / 4 * 2) | index >> 8 << 3 * (i % 4);
    block[34 + i / 4 * 2] = (uint8_t)high, block[35 + i / 4 * 2] = (uint8_t)(high >> 8);
}

static void grid_put_iq2xxs(uint8_t *block, uint32_t i, uint32_t index)
{
    block[2 + i / 4 * 8 + i % 4] = (uint8_t)index;
}

static void grid_put_iq2xs(uint8_t *block, uint32_t i, uint32_t index)
{
    block[2 + 2 * i] = (uint8_t)index, block[3 + 2 * i] = (uint8_t)(index >> 8);
}

static void grid_put_iq2s(uint8_t *block, uint32_t i, uint32_t index)
{
    block[2 + i] = (uint8_t)index;
    block[66 + i / 4] |= (uint8_t)(index >> 8 << 2 * (i % 4));
}

static void grid_put_iq3xxs(uint8_t *block, uint32_t i, uint32_t index)
{
    block[2 + i] = (uint8_t)index;
}

static void grid_put_iq3s(uint8_t *block, uint32_t i, uint32_t index)
{
    block[2 + i] = (uint8_t)index;
    block[66 + i / 8] |= (uint8_t)(index >> 8 << i % 8);
}

static const struct grid_kind kinds[] = {
    {PRODUCT_IQ1_S, 2048, 8, 8, 7, grid_put_iq1s, product_grids.iq1},
    {PRODUCT_IQ2_XXS, 256, 8, 8, 0, grid_put_iq2xxs, product_grids.iq2xxs},
    {PRODUCT_IQ2_XS, 512, 8, 8, 0, grid_put_iq2xs, product_grids.iq2xs},
    {PRODUCT_IQ2_S, 1024, 8, 8, 0, grid_put_iq2s, product_grids.iq2s},
    {PRODUCT_IQ3_XXS, 256, 4, 4, 0, grid_put_iq3xxs, product_grids.iq3xxs},
    {PRODUCT_IQ3_S, 512, 4, 1, 0, grid_put_iq3s, product_grids.iq3s},
};

/* Are they what the sums of integers have room for? */
static bool grid_is_known(const struct grid_kind *kind, float byte)
{
    const float top = kind->type == PRODUCT_IQ1_S     ? 16
                      : kind->type == PRODUCT_IQ3_XXS ? GRID_IQ3XXS_BIAS
                      : kind->type == PRODUCT_IQ3_S   ? GRID_IQ3S_BIAS
                                                      : GRID_IQ2_BIAS;
    return byte >= 0 && byte <= top && byte == rintf(byte);
}

static bool grid_fill(const struct grid_kind *kind, product_grid_unpack *unpack)
{
    const uint32_t n = PRODUCT_BLOCK / kind->n_weights; /* entries of a block */
    bool is_known = true;
    for (uint32_t first = 0; first < kind->n_entries; first += n) {
        uint8_t block[128] = {0, 0x3c}; /* d = 1 */
        float weights[PRODUCT_BLOCK];
        for (uint32_t i = 0; i < n; i++)
            kind->put(block, i, first + i);
        unpack(kind->type, block, weights);
        for (uint32_t i = 0; i < PRODUCT_BLOCK; i++) {
            const float byte = weights[i] * kind->factor + kind->offset;
            is_known = is_known && grid_is_known(kind, byte);
            ((uint8_t *)kind->grid)[first * kind->n_weights + i] = is_known ? (uint8_t)byte : 0;
        }
    }
    return is_known;
}

static void grid_fill_signs(void)
{
    for (uint32_t signs = 0; signs < 256; signs++) {
        uint64_t bytes = 0;
        for (uint32_t i = 0; i < 8; i++)
            bytes |= (signs >> i & 1) * (UINT64_C(255) << 8 * i);
        product_grids.signs[signs] = bytes;
    }
    for (uint32_t seven = 0; seven < 128; seven++)
        product_grids.even_signs[seven] = (uint8_t)(seven | (uint32_t)__builtin_parity(seven) << 7);
}

void product_grids_fill(product_grid_unpack *unpack)
{
    bool is_known = true;
    grid_fill_signs();
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        is_known = grid_fill(&kinds[i], unpack) && is_known;
    product_grids.is_filled = is_known;
}
