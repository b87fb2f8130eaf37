/* The kernel for x86 processors with AMX's tiles of 8-bit integers (Xeons from Sapphire Rapids on),
 * for more than a few rows x; AVX-512 VNNI has the others. Compiled for these alone. Tests also run
 * it with a stand-in of the tile instructions.
 *
 * Floats are not here: tdpbf16ps takes rows x rounded to BF16, adds pairs of products before it
 * adds them to a sum, and takes tiny numbers for zero, so it cannot have the bits of product.h. */

/* What unpacks weights is AVX-512 VNNI's; its bodies are not used. */
#pragma GCC diagnostic ignored "-Wunused-function"

#include "kernels/product_amx_blocks.h"
#include "kernels/product_amx_parts.h"

/* Linux is asked once; to ask twice at the same time does no harm. */
static int product_amx_works(void)
{
    static int answer; /* 0: not asked; else 1 more than it */
    int known = __atomic_load_n(&answer, __ATOMIC_RELAXED);
    if (!known) {
        known = 1 + (product_kernel_avx512_vnni.works() && AMX_IS_THERE());
        __atomic_store_n(&answer, known, __ATOMIC_RELAXED);
    }
    return known - 1;
}

/* Others on this thread may have tiles, too: ggml sets the shapes of its own once. */
static _Thread_local struct amx_shapes amx_found;

/* The thread's own: four tiles of sums, two of rows x, two of weights. */
static void product_amx_begin(enum product_type type, uint32_t n)
{
    AMX_SHAPES(&amx_found);
    struct amx_shapes shapes = {.palette = 1};
    const uint8_t n_rows = (uint8_t)amx_sides_of(n).n_rows;
    const uint8_t n_values = type >= PRODUCT_Q4_0 ? PRODUCT_PART : 64;
    for (uint32_t i = 0; i < 8; i++) {
        shapes.rows[i] = i < 6 ? n_rows : n_values / 4;
        shapes.row_bytes[i] = i == 4 || i == 5 ? n_values : 64;
    }
    AMX_CONFIGURE(&shapes);
}

/* As long as a thread has tiles, they are saved with it: without need it keeps none. */
static void product_amx_end(void)
{
    if (amx_found.palette)
        AMX_CONFIGURE(&amx_found);
    else
        AMX_RELEASE();
}

const struct product_kernel product_kernel_amx = {
    .name = "amx-int8",
    .fewer = &product_kernel_avx512_vnni,
    .many = 17, /* fewer do not pay for unpacking: measured on an Emerald Rapids */
    .works = product_amx_works,
    .n_rows = PRODUCT_SHEAF_MAX,
    .sheaf = product_amx_blocks,
    .part_sheaf = product_amx_parts,
    .grid_sheaf = product_amx_blocks,
    .begin = product_amx_begin,
    .end = product_amx_end,
};
