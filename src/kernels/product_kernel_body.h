/* The arithmetic of product.h. A kernel's file defines first:
 *
 *     float half(const uint8_t *)               an F16 number
 *     void unpack_q2(const uint8_t *block, struct unpacked *), …, unpack_q6
 *   for one row
 *     STEP                                      values of a block that are multiplied at once: 16,
 *                                               32 or 64
 *     ints, eight_ints                          partial sums of products; 8 of int32_t
 *     ints ints_zero(void)
 *     ints ints_dot(ints sum, const uint8_t *w, const int8_t *q, const int16_t *scale)
 *                                               sum + scale w q of STEP values; a scale for every
 *                                               two of them
 *     ints ints_dot_sums(const int16_t *m, const int16_t *sums)
 *                                               m sums of the 16 groups
 *     void ints_add_up(const ints sums[8], eight_ints *all)
 *                                               all of each
 *   for many, unless PRODUCT_OWN_BODIES says that the kernel has bodies of its own, and
 *   rounds by itself
 *     ROWS                                      of a sheaf: 8 or 16
 *     row_ints, row_floats                      ROWS of int32_t, of floats
 *     void turn_column(const uint8_t *rows, size_t row_step, uint8_t *to, size_t step)
 *                                               32 bytes of eight rows: to + i * step + 4 c is
 *                                               bytes 4 i of row c, or as the kernel likes it
 *   and unless PRODUCT_LACKS_GROUPS says that it has a body of its own for K-quants
 *   (PRODUCT_OWN_SHEAF), and no grids
 *     void rows_add_group(const uint8_t w[4][ROWS][4], const int8_t q[16],
 *                         const int16_t scale[ROWS][2], uint32_t bits, row_ints *to)
 *                                               scale w q of a group; weights of 5 to 7 bits
 *     void rows_add_pairs(const int16_t m[ROWS][2], const int16_t sums[2], row_ints *to)
 *                                               m sums of two groups
 *
 * Every product of floats is added by `sum += a * b`, which compilers fuse where the processor can
 * and nowhere else, or by add_product() and add_products(), which fuse everywhere. */
#include "kernels/product_kernel.h"

#include <math.h>
#include <string.h>

#include "kernels/product_inputs_body.h"

struct form { /* of a type's blocks; constants where the code below is made for a type */
    uint32_t bytes, d_at, dmin_at;
    bool has_dmin; /* else offsets count in d */
    bool is_wide;  /* weights of six bits */
    void (*unpack)(const uint8_t *block, struct unpacked *out);
    float (*d)(const uint8_t *block); /* where it does not just stand at d_at */
    bool is_widest;                   /* weights of seven bits */
};

ALWAYS_INLINE float d_of(const struct form *form, const uint8_t *block)
{
    return form->d ? form->d(block) : half(block + form->d_at);
}

ALWAYS_INLINE float dmin_of(const struct form *form, const uint8_t *block)
{
    return form->has_dmin ? half(block + form->dmin_at) : 0;
}

/* ---- one row -------------------------------------------------------------------------------- */

enum {
    ABREAST = 4, /* rows x that are multiplied together: a weight is loaded once for them */
    LOT = 8,     /* blocks whose sums are added up together */
    AHEAD =
        8192, /* bytes that are fetched early: processors do not look ahead into the next page */
};

ALWAYS_INLINE ints multiply_block(const struct unpacked *row, const struct product_block *x)
{
    ints sum = ints_zero();
    UNROLL for (uint32_t i = 0; i < PRODUCT_BLOCK; i += STEP) sum =
        ints_dot(sum, row->weights + i, x->values + i, row->scales + i / 2);
    return sum;
}

/* y + a b, fused by name: of `y += a * b` in a loop a compiler makes vectors of products, which it
 * then adds one by one, rounded twice. */
ALWAYS_INLINE float add_product(float y, float a, float b)
{
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
    return __builtin_fmaf(a, b, y);
#else
    return fmaf(a, b, y);
#endif
}

ALWAYS_INLINE void add_products(row_floats *y, const row_floats *a, const row_floats *b)
{
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
    *y += *a * *b;
#else
    for (uint32_t c = 0; c < ROWS; c++)
        (*y)[c] = fmaf((*a)[c], (*b)[c], (*y)[c]);
#endif
}

/* n <= LOT blocks more. */
ALWAYS_INLINE float multiply_lot(const struct form *form, const uint8_t *block, uint32_t n,
                                 const struct product_block *x, float y)
{
    float d[LOT], dmin[LOT];
    ints sums[2][LOT];
    eight_ints products, offsets;
    for (uint32_t i = 0; i < n; i++, block += form->bytes) {
        struct unpacked unpacked;
        UNROLL for (uint32_t at = 0; at < form->bytes; at += 64)
            __builtin_prefetch(block + AHEAD + at);
        form->unpack(block, &unpacked);
        d[i] = d_of(form, block), dmin[i] = dmin_of(form, block);
        sums[0][i] = multiply_block(&unpacked, &x[i]);
        sums[1][i] = ints_dot_sums(unpacked.offsets, x[i].sums);
    }
    for (uint32_t i = n; i < LOT; i++)
        sums[0][i] = sums[1][i] = ints_zero();
    ints_add_up(sums[0], &products);
    ints_add_up(sums[1], &offsets);
    if (!form->has_dmin)
        products -= offsets;
    for (uint32_t i = 0; i < n; i++) {
        y = add_product(y, d[i] * x[i].scale, (float)products[i]);
        if (form->has_dmin)
            y = add_product(y, dmin[i] * -x[i].scale, (float)offsets[i]);
    }
    return y;
}

ALWAYS_INLINE float multiply_row(const struct form *form, const uint8_t *row, uint32_t n_blocks,
                                 const struct product_block *x)
{
    float y = 0;
    for (uint32_t b = 0; b < n_blocks; b += LOT)
        y = multiply_lot(form, row + (size_t)b * form->bytes,
                         n_blocks - b < LOT ? n_blocks - b : LOT, x + b, y);
    return y;
}

/* ---- many rows ------------------------------------------------------------------------------ */

struct sheaf { /* a block of each row, so that the rows stand beside each other */
    uint8_t weights[PRODUCT_BLOCK / 4][ROWS][4];
    int16_t scales[PRODUCT_GROUPS][ROWS][2];      /* each twice */
    int16_t offsets[PRODUCT_GROUPS / 2][ROWS][2]; /* of two groups */
    float d[ROWS], dmin[ROWS];
};

/* to[i][c] is bytes 4 i to 4 i + 3 of row c, for `size` bytes that begin at `from` in the first
 * row. */
ALWAYS_INLINE void turn_all(const void *from, uint32_t size, uint8_t (*to)[ROWS][4])
{
    const size_t step = sizeof(struct unpacked);
    for (uint32_t i = 0; i < size; i += 32) {
        for (uint32_t c = 0; c < ROWS; c += 8)
            turn_column((const uint8_t *)from + i + c * step, step, to[i / 4][c], sizeof to[0]);
    }
}

/* Two blocks after b, behind the rows' end of the rows that follow, to the second cache: so many
 * streams processors do not see. */
ALWAYS_INLINE void fetch_sheaf(const struct form *form, const uint8_t *const *rows,
                               uint32_t n_blocks, uint32_t b)
{
    const size_t at = (size_t)(b + 2) * form->bytes, row_size = (size_t)n_blocks * form->bytes;
    const uintptr_t all_rows = (uintptr_t)(rows[1] - rows[0]) * ROWS;
    const uintptr_t ahead = at < row_size ? at : all_rows + at - row_size;
    for (uint32_t c = 0; c < ROWS; c++) {
        UNROLL for (uint32_t i = 0; i < form->bytes; i += 64)
            __builtin_prefetch((const void *)((uintptr_t)rows[c] + ahead + i), 0, 2);
    }
}

ALWAYS_INLINE void unpack_sheaf(const struct form *form, const uint8_t *const *rows, uint32_t b,
                                struct sheaf *out)
{
    struct unpacked unpacked[ROWS];
    for (uint32_t c = 0; c < ROWS; c++) {
        const uint8_t *block = rows[c] + (size_t)b * form->bytes;
        form->unpack(block, &unpacked[c]);
        out->d[c] = d_of(form, block), out->dmin[c] = dmin_of(form, block);
        UNROLL for (uint32_t g = 0; g < PRODUCT_GROUPS; g++)
            memcpy(out->scales[g][c], unpacked[c].scales + g * PRODUCT_GROUP / 2,
                   sizeof out->scales[g][c]);
    }
    turn_all(unpacked->weights, PRODUCT_BLOCK, out->weights);
    turn_all(unpacked->offsets, sizeof unpacked->offsets, (uint8_t(*)[ROWS][4])out->offsets);
}

#if !defined(PRODUCT_LACKS_GROUPS)
/* A block of all rows times those of n rows x, a constant. */
ALWAYS_INLINE void multiply_sheaf(const struct form *form, const struct sheaf *sheaf, uint32_t b,
                                  const struct product_block *const *x, uint32_t n,
                                  float (*y)[PRODUCT_SHEAF_MAX])
{
    const uint32_t bits = form->is_widest ? 7 : form->is_wide ? 6 : 5;
    row_ints products[ABREAST] = {0}, offsets[ABREAST] = {0};
    for (uint32_t g = 0; g < PRODUCT_GROUPS; g++) { /* unrolled, sums would not fit registers */
        UNROLL for (uint32_t k = 0; k < n; k++)
            rows_add_group(sheaf->weights + 4 * g, x[k][b].values + PRODUCT_GROUP * g,
                           sheaf->scales[g], bits, &products[k]);
    }
    UNROLL for (uint32_t g = 0; g < PRODUCT_GROUPS; g += 2)
    {
        UNROLL for (uint32_t k = 0; k < n; k++)
            rows_add_pairs(sheaf->offsets[g / 2], x[k][b].sums + g, &offsets[k]);
    }
    UNROLL for (uint32_t k = 0; k < n; k++)
    {
        const float scale = x[k][b].scale;
        if (!form->has_dmin)
            products[k] -= offsets[k];
        row_floats all = *(const row_floats *)y[k], factor = *(const row_floats *)sheaf->d * scale,
                   sum = __builtin_convertvector(products[k], row_floats);
        add_products(&all, &factor, &sum);
        if (form->has_dmin) {
            factor = *(const row_floats *)sheaf->dmin * -scale;
            sum = __builtin_convertvector(offsets[k], row_floats);
            add_products(&all, &factor, &sum);
        }
        *(row_floats *)y[k] = all;
    }
}

ALWAYS_INLINE void multiply_rows(const struct form *form, const uint8_t *const *rows,
                                 uint32_t n_blocks, const struct product_block *const *x,
                                 uint32_t n, float (*y)[PRODUCT_SHEAF_MAX])
{
    memset(y, 0, n * sizeof *y);
    for (uint32_t b = 0; b < n_blocks; b++) {
        struct sheaf sheaf;
        uint32_t i = 0;
        unpack_sheaf(form, rows, b, &sheaf);
        fetch_sheaf(form, rows, n_blocks, b);
        for (; i + ABREAST <= n; i += ABREAST)
            multiply_sheaf(form, &sheaf, b, x + i, ABREAST, y + i);
        for (; i < n; i++)
            multiply_sheaf(form, &sheaf, b, x + i, 1, y + i);
    }
}
#endif

/* ---- for each type --------------------------------------------------------------------------- */

static const struct form q2 = {84, 80, 82, true, false, unpack_q2},
                         q3 = {110, 108, 0, false, false, unpack_q3},
                         q4 = {144, 0, 2, true, false, unpack_q4},
                         q5 = {176, 0, 2, true, false, unpack_q5},
                         q6 = {210, 208, 0, false, true, unpack_q6};

/* CASE(type, form) for each. */
#define BLOCK_TYPES(CASE)                                                                          \
    CASE(Q2_K, q2)                                                                                 \
    CASE(Q3_K, q3)                                                                                 \
    CASE(Q4_K, q4)                                                                                 \
    CASE(Q5_K, q5)                                                                                 \
    CASE(Q6_K, q6)

#if !defined(PRODUCT_OWN_BODIES)
static void product_kernel_row(enum product_type type, const uint8_t *const *rows, uint32_t n_rows,
                               uint32_t n_blocks, const struct product_block *x, float *y)
{
#define BLOCK_CASE(name, form)                                                                     \
    for (uint32_t c = 0; type == PRODUCT_##name && c < n_rows; c++)                                \
        y[c] = multiply_row(&form, rows[c], n_blocks, x);
    BLOCK_TYPES(BLOCK_CASE)
#undef BLOCK_CASE
}
#endif

#if !defined(PRODUCT_OWN_BODIES) && !defined(PRODUCT_OWN_SHEAF)
static void product_kernel_sheaf(enum product_type type, const uint8_t *const *rows,
                                 uint32_t n_blocks, const struct product_block *const *x,
                                 uint32_t n, float (*y)[PRODUCT_SHEAF_MAX])
{
#define BLOCK_CASE(name, form)                                                                     \
    if (type == PRODUCT_##name)                                                                    \
        multiply_rows(&form, rows, n_blocks, x, n, y);
    BLOCK_TYPES(BLOCK_CASE)
#undef BLOCK_CASE
}
#endif

/* ---- rounding ----------------------------------------------------------------------------- */

#if !defined(PRODUCT_OWN_BODIES)
static void round_block(const float *x, struct product_block *out)
{
    float top = 0;
    for (uint32_t i = 0; i < PRODUCT_BLOCK; i++) {
        const float size = x[i] < 0 ? -x[i] : x[i];
        top = size > top ? size : top;
    }
    const float scale = top / 127, inverse = scale > 0x1p-100f ? 1 / scale : 0;
    for (uint32_t i = 0; i < PRODUCT_BLOCK; i++) {
        const float shifted = add_product(
            0x1.8p23f, x[i], inverse); /* rounds to the nearest; the integer is in the low bits */
        int32_t bits;
        memcpy(&bits, &shifted, sizeof bits);
        out->values[i] = (int8_t)bits;
    }
    for (uint32_t g = 0; g < PRODUCT_GROUPS; g++) {
        int32_t sum = 0;
        for (uint32_t i = 0; i < PRODUCT_GROUP; i++)
            sum += out->values[g * PRODUCT_GROUP + i];
        out->sums[g] = (int16_t)sum;
    }
    out->scale = scale;
}

static void round_row(const float *x, uint32_t n_blocks, struct product_block *out)
{
    for (uint32_t b = 0; b < n_blocks; b++)
        round_block(x + (size_t)b * PRODUCT_BLOCK, &out[b]);
}
#endif
