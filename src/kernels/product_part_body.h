/* The arithmetic of product.h for types of parts. A kernel's file defines what
 * product_kernel_body.h needs, and:
 *
 *     void part_unpack_q4(const uint8_t *from, uint8_t *to), …    see product_part_unpack.h
 *     void halves_of(const uint8_t *at, size_t step, float out[8])
 *                                               F16 numbers, `step` bytes apart
 *     void part_scales_iq4(const uint8_t *block, float out[8]), part_scales_mx4
 *                                               the parts' scales
 *   for one row
 *     PART_LANES(name)                          the form's lanes(), or NULL
 *     PART_TURN(name)                           its turn(), where ROWS are eight, or NULL
 *     part_ints                                 partial sums of products
 *     part_ints part_zero(void)
 *     part_ints part_dot(const uint8_t *w, const int8_t *q, bool is_wide)
 *     void part_add_up(const part_ints sums[8], eight_ints *all)
 *   for many
 *     void part_rows_dot(const uint8_t w[8][ROWS][4], const int8_t *const *q, bool is_wide,
 *                        uint32_t n, row_ints *sums)
 *                                               sums[i] += w q[i] of a part, n = SIDE
 *     WIDE_IS_SIGNED                            do part_dot() and part_rows_dot() take 128 off the
 *                                               weights that are wide? */
#include "kernels/product_kernel.h"

#include <string.h>

typedef float part_floats __attribute__((vector_size(16)));

struct part_form {        /* of a type's parts */
    uint32_t block_bytes; /* of eight parts */
    uint32_t at, step;    /* where their weights stand */
    int32_t bias;         /* that unpacked weights have: they are not negative */
    bool is_wide;         /* weights of eight bits; else of five */
    bool has_m;
    void (*unpack)(const uint8_t *weights, uint8_t to[PRODUCT_PART]);
    void (*scales)(const uint8_t *block, uint32_t n_parts, float *d, float *m);
    /* A part of eight rows side by side; NULL: unpacked one by one and then turned. */
    void (*turn)(const uint8_t *const *rows, size_t at, uint8_t to[8][8][4]);
    /* All eight parts times q at once; NULL: one by one. */
    void (*lanes)(const uint8_t *block, const int8_t *q, eight_ints *products);
};

enum {
    PART_AHEAD = 8192, /* bytes that are fetched early */
    PANEL = 32,        /* parts whose weights are unpacked together */
    SIDE = 4,          /* rows x that are multiplied together */
};

/* Of what products without their sign have too much: `sums` of q times this. */
ALWAYS_INLINE int32_t part_excess(const struct part_form *form)
{
    return WIDE_IS_SIGNED && form->is_wide ? 0 : form->bias;
}

ALWAYS_INLINE float part_total(const part_floats *y)
{
    return ((*y)[0] + (*y)[1]) + ((*y)[2] + (*y)[3]);
}

/* ---- scales ---- */

ALWAYS_INLINE void part_scales_of(const uint8_t *block, uint32_t n_parts, size_t step, float *out)
{
    if (n_parts == PRODUCT_PARTS) {
        halves_of(block, step, out);
        return;
    }
    for (uint32_t i = 0; i < PRODUCT_PARTS; i++)
        out[i] = i < n_parts ? half(block + i * step) : 0;
}

#define PART_SCALES(name, step, m_at)                                                              \
    ALWAYS_INLINE void name(const uint8_t *block, uint32_t n_parts, float *d, float *m)            \
    {                                                                                              \
        part_scales_of(block, n_parts, step, d);                                                   \
        if (m_at)                                                                                  \
            part_scales_of(block + (m_at), n_parts, step, m);                                      \
    }
PART_SCALES(scales_q40, 18, 0)
PART_SCALES(scales_q41, 20, 2)
PART_SCALES(scales_q50, 22, 0)
PART_SCALES(scales_q51, 24, 2)
PART_SCALES(scales_q80, 34, 0)

ALWAYS_INLINE void scales_iq4xs(const uint8_t *block, uint32_t n_parts, float *d, float *m)
{
    (void)n_parts, (void)m; /* its blocks are whole */
    part_scales_iq4(block, d);
}

ALWAYS_INLINE void scales_mxfp4(const uint8_t *block, uint32_t n_parts, float *d, float *m)
{
    (void)m;
    uint8_t some[PRODUCT_PARTS * 17] = {0};
    if (n_parts < PRODUCT_PARTS)
        block = memcpy(some, block, n_parts * 17);
    part_scales_mx4(block, d);
}

/* ---- one row ---- */

/* Eight parts, of which n are there, one by one. */
ALWAYS_INLINE void part_multiply_each(const struct part_form *form, const uint8_t *block,
                                      uint32_t n, const struct product_block *x,
                                      eight_ints *products)
{
    part_ints sums[PRODUCT_PARTS];
    UNROLL for (uint32_t i = 0; i < PRODUCT_PARTS; i++)
    {
        uint8_t weights[PRODUCT_PART];
        sums[i] = part_zero();
        if (i < n) {
            form->unpack(block + form->at + i * form->step, weights);
            sums[i] = part_dot(weights, x->values + i * PRODUCT_PART, form->is_wide);
        }
    }
    part_add_up(sums, products);
}

ALWAYS_INLINE void part_prefetch(const struct part_form *form, const uint8_t *block)
{
    UNROLL for (uint32_t at = 0; at < form->block_bytes; at += 64)
        __builtin_prefetch(block + PART_AHEAD + at);
}

/* Eight parts more, of which n are there. */
ALWAYS_INLINE void part_multiply_block(const struct part_form *form, const uint8_t *block,
                                       uint32_t n, const struct product_block *x, part_floats *y)
{
    eight_ints products, q_sums;
    eight_floats d, m = {0}, e;
    part_prefetch(form, block);
    if (form->lanes && n == PRODUCT_PARTS)
        form->lanes(block, x->values, &products);
    else
        part_multiply_each(form, block, n, x, &products);
    memcpy(&q_sums, x->part_sums, sizeof q_sums);
    memcpy(&e, x->scales, sizeof e);
    products -= q_sums * part_excess(form);
    form->scales(block, n, (float *)&d, (float *)&m);
    const eight_floats a = d * e, s = __builtin_convertvector(products, eight_floats);
    eight_floats x_sums;
    memcpy(&x_sums, x->x_sums, sizeof x_sums);
    UNROLL for (int h = 0; h < 2; h++)
    {
        const part_floats *half_a = (const part_floats *)&a + h,
                          *half_s = (const part_floats *)&s + h;
        *y += *half_a * *half_s;
        if (form->has_m)
            *y += *((const part_floats *)&m + h) * *((const part_floats *)&x_sums + h);
    }
}

ALWAYS_INLINE float part_multiply_row(const struct part_form *form, const uint8_t *row,
                                      uint32_t n_parts, const struct product_block *x)
{
    part_floats y = {0};
    for (; n_parts >= PRODUCT_PARTS; n_parts -= PRODUCT_PARTS, row += form->block_bytes)
        part_multiply_block(form, row, PRODUCT_PARTS, x++, &y);
    if (n_parts)
        part_multiply_block(form, row, n_parts, x, &y);
    return part_total(&y);
}

/* ---- many rows ---- */

struct panel { /* some parts of each row, so that the rows stand beside each other */
    uint8_t weights[PANEL][PRODUCT_PART / 4][ROWS][4];
    float d[PANEL][ROWS], m[PANEL][ROWS];
};

struct panel_side { /* the same parts of rows x */
    const struct product_block *x;
    int32_t excess[PANEL]; /* taken off products */
};

struct part_rows {
    row_floats of[4];
};

/* Eight parts, of which n are there, from number `to` on. What comes a panel later, behind the
 * rows' end of those that follow, is fetched to the second cache: so many streams processors do not
 * see. */
ALWAYS_INLINE void part_unpack_block(const struct part_form *form, const uint8_t *const *rows,
                                     size_t row_size, size_t at, uint32_t n, uint32_t to,
                                     struct panel *out)
{
    const size_t next = at + PANEL / PRODUCT_PARTS * form->block_bytes;
    const uintptr_t all_rows = (uintptr_t)(rows[1] - rows[0]) * ROWS;
    const uintptr_t ahead = next < row_size ? next : all_rows + next - row_size;
    uint8_t unpacked[ROWS][PRODUCT_BLOCK];
    for (uint32_t c = 0; c < ROWS; c++) {
        const uint8_t *block = rows[c] + at;
        float d[PRODUCT_PARTS], m[PRODUCT_PARTS] = {0};
        UNROLL for (uint32_t i = 0; i < form->block_bytes; i += 64)
            __builtin_prefetch((const void *)((uintptr_t)rows[c] + ahead + i), 0, 2);
        form->scales(block, n, d, m);
        UNROLL for (uint32_t i = 0; i < PRODUCT_PARTS; i++)
        {
            out->d[to + i][c] = d[i];
            if (form->has_m)
                out->m[to + i][c] = m[i];
            if (i < n && !form->turn)
                form->unpack(block + form->at + i * form->step, &unpacked[c][i * PRODUCT_PART]);
            else if (i >= n)
                memset(&unpacked[c][i * PRODUCT_PART], 0, PRODUCT_PART);
        }
    }
    for (uint32_t i = 0; i < PRODUCT_PARTS; i++) {
        if (i < n && form->turn) {
            form->turn(rows, at + form->at + i * form->step, (void *)out->weights[to + i]);
            continue;
        }
        for (uint32_t c = 0; c < ROWS; c += 8)
            turn_column(&unpacked[c][i * PRODUCT_PART], PRODUCT_BLOCK, out->weights[to + i][0][c],
                        sizeof out->weights[0][0]);
    }
}

ALWAYS_INLINE void part_prepare_side(const struct part_form *form, const struct product_block *x,
                                     uint32_t n_blocks, struct panel_side *out)
{
    out->x = x;
    for (uint32_t b = 0; b < n_blocks; b++) {
        for (uint32_t i = 0; i < PRODUCT_PARTS; i++)
            out->excess[b * PRODUCT_PARTS + i] = -part_excess(form) * x[b].part_sums[i];
    }
}

/* The panel times SIDE rows x: every fourth part, then those behind them, so that registers hold
 * the sums. */
ALWAYS_INLINE void part_multiply_panel(bool is_wide, bool has_m, const struct panel *panel,
                                       const struct panel_side *sides, uint32_t n_blocks,
                                       struct part_rows *y)
{
    for (uint32_t first = 0; first < 4; first++) {
        row_floats all[SIDE];
        UNROLL for (uint32_t k = 0; k < SIDE; k++) all[k] = y[k].of[first];
        for (uint32_t part = first; part < n_blocks * PRODUCT_PARTS; part += 4) {
            const uint32_t b = part / PRODUCT_PARTS, i = part % PRODUCT_PARTS;
            const row_floats d = *(const row_floats *)panel->d[part];
            const int8_t *q[SIDE];
            row_ints sums[SIDE];
            UNROLL for (uint32_t k = 0; k < SIDE; k++)
            {
                q[k] = sides[k].x[b].values + i * PRODUCT_PART;
                sums[k] = (row_ints){0} + sides[k].excess[part];
            }
            part_rows_dot(panel->weights[part], q, is_wide, SIDE, sums);
            UNROLL for (uint32_t k = 0; k < SIDE; k++)
            {
                all[k] +=
                    d * sides[k].x[b].scales[i] * __builtin_convertvector(sums[k], row_floats);
                if (has_m)
                    all[k] += *(const row_floats *)panel->m[part] * sides[k].x[b].x_sums[i];
            }
        }
        UNROLL for (uint32_t k = 0; k < SIDE; k++) y[k].of[first] = all[k];
    }
}

#if !defined(PRODUCT_OWN_BODIES)
/* For each kind of form, so that registers hold all. */
#define PART_PANEL(name, is_wide, has_m)                                                           \
    static __attribute__((noinline)) void name(const struct panel *panel,                          \
                                               const struct panel_side *sides, uint32_t n_blocks,  \
                                               struct part_rows *y)                                \
    {                                                                                              \
        part_multiply_panel(is_wide, has_m, panel, sides, n_blocks, y);                            \
    }
PART_PANEL(panel_narrow, false, false)
PART_PANEL(panel_offset, false, true)
PART_PANEL(panel_wide, true, false)

/* A panel times all rows x, whose `block` it begins with. The last row stands for what is missing
 * of four, which take no longer than one: it waits for its own sums. */
static void part_multiply_sides(const struct part_form *form, const struct panel *panel,
                                uint32_t n_blocks, const struct product_block *const *x,
                                uint32_t block, uint32_t n, struct part_rows *y)
{
    for (uint32_t i = 0; i < n; i += SIDE) {
        struct panel_side sides[SIDE];
        for (uint32_t k = 0; k < SIDE; k++)
            part_prepare_side(form, x[i + k < n ? i + k : n - 1] + block, n_blocks, &sides[k]);
        (form->is_wide ? panel_wide
         : form->has_m ? panel_offset
                       : panel_narrow)(panel, sides, n_blocks, &y[i]);
    }
}

ALWAYS_INLINE void part_multiply_rows(const struct part_form *form, const uint8_t *const *rows,
                                      uint32_t n_parts, const struct product_block *const *x,
                                      uint32_t n, float *const *y)
{
    struct part_rows sums[PRODUCT_TILE];
    memset(sums, 0, (n + SIDE - 1) / SIDE * SIDE * sizeof *sums);
    const uint32_t n_blocks = (n_parts + PRODUCT_PARTS - 1) / PRODUCT_PARTS;
    const size_t row_size = (size_t)n_parts * form->block_bytes / PRODUCT_PARTS;
    for (uint32_t block = 0; block < n_blocks; block += PANEL / PRODUCT_PARTS) {
        struct panel panel;
        uint32_t used = 0;
        for (; used < PANEL / PRODUCT_PARTS && block + used < n_blocks; used++) {
            const uint32_t left = n_parts - (block + used) * PRODUCT_PARTS;
            const size_t at = (size_t)(block + used) * form->block_bytes;
            if (left >= PRODUCT_PARTS)
                part_unpack_block(form, rows, row_size, at, PRODUCT_PARTS, used * PRODUCT_PARTS,
                                  &panel);
            else
                part_unpack_block(form, rows, row_size, at, left, used * PRODUCT_PARTS, &panel);
        }
        part_multiply_sides(form, &panel, used, x, block, n, sums);
    }
    for (uint32_t i = 0; i < n; i++)
        *(row_floats *)y[i] = (sums[i].of[0] + sums[i].of[1]) + (sums[i].of[2] + sums[i].of[3]);
}

#endif

/* ---- for each type ---- */

static const struct part_form q40 = {
    144, 2, 18, 8, false, false, part_unpack_q4, scales_q40, PART_TURN(q4), PART_LANES(q40)};
static const struct part_form q41 = {
    160, 4, 20, 0, false, true, part_unpack_q4, scales_q41, PART_TURN(q4), PART_LANES(q41)};
static const struct part_form q50 = {
    176, 6, 22, 16, false, false, part_unpack_q5, scales_q50, PART_TURN(q5), PART_LANES(q50)};
static const struct part_form q51 = {
    192, 8, 24, 0, false, true, part_unpack_q5, scales_q51, PART_TURN(q5), PART_LANES(q51)};
static const struct part_form q80 = {
    272, 2, 34, 128, true, false, part_unpack_q8, scales_q80, PART_TURN(q8), NULL};
static const struct part_form iq4nl = {
    144, 2, 18, 128, true, false, part_unpack_iq4, scales_q40, PART_TURN(iq4), PART_LANES(iq4nl)};
static const struct part_form iq4xs = {
    136, 8, 16, 128, true, false, part_unpack_iq4, scales_iq4xs, PART_TURN(iq4), PART_LANES(iq4xs)};
static const struct part_form mxfp4 = {
    136, 1, 17, 12, false, false, part_unpack_mx4, scales_mxfp4, PART_TURN(mx4), PART_LANES(mxfp4)};

/* CASE(type, form) for each type. */
#define PART_TYPES(CASE)                                                                           \
    CASE(Q4_0, q40)                                                                                \
    CASE(Q4_1, q41)                                                                                \
    CASE(Q5_0, q50)                                                                                \
    CASE(Q5_1, q51)                                                                                \
    CASE(Q8_0, q80)                                                                                \
    CASE(IQ4_NL, iq4nl)                                                                            \
    CASE(IQ4_XS, iq4xs)                                                                            \
    CASE(MXFP4, mxfp4)

#if !defined(PRODUCT_OWN_BODIES)
static void part_kernel_row(enum product_type type, const uint8_t *const *rows, uint32_t n_rows,
                            uint32_t n_parts, const struct product_block *x, float *y)
{
#define PART_CASE(name, form)                                                                      \
    for (uint32_t c = 0; type == PRODUCT_##name && c < n_rows; c++)                                \
        y[c] = part_multiply_row(&form, rows[c], n_parts, x);
    PART_TYPES(PART_CASE)
#undef PART_CASE
}

static void part_kernel_sheaf(enum product_type type, const uint8_t *const *rows, uint32_t n_parts,
                              const struct product_block *const *x, uint32_t n, float *const *y)
{
#define PART_CASE(name, form)                                                                      \
    if (type == PRODUCT_##name)                                                                    \
        part_multiply_rows(&form, rows, n_parts, x, n, y);
    PART_TYPES(PART_CASE)
#undef PART_CASE
}
#endif

/* ---- rounding ---- */

#if !defined(PRODUCT_OWN_BODIES)
static float part_top(const float *x, uint32_t n)
{
    float top = 0;
    for (uint32_t i = 0; i < n; i++) {
        const float size = x[i] < 0 ? -x[i] : x[i];
        top = size > top ? size : top;
    }
    return top;
}

/* The sum of the values. */
static int32_t part_round(const float *x, float scale, int8_t *values)
{
    const float inverse = scale > 0x1p-100f ? 1 / scale : 0;
    int32_t sum = 0;
    for (uint32_t i = 0; i < PRODUCT_PART; i++) {
        const float shifted = x[i] * inverse + 0x1.8p23f; /* as round_block() */
        int32_t bits;
        memcpy(&bits, &shifted, sizeof bits);
        values[i] = (int8_t)bits;
        sum += values[i];
    }
    return sum;
}

/* To eleven bits. */
static float part_shortened(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0xfff + (bits >> 13 & 1)) & 0xffffe000;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void part_kernel_round(const float *x, uint32_t n_parts, enum product_rounding rounding,
                              struct product_block *out)
{
    const bool by_block = rounding == PRODUCT_ROUND_PARTS_ALIKE;
    if (n_parts % PRODUCT_PARTS)
        memset(&out[n_parts / PRODUCT_PARTS], 0, sizeof *out);
    for (uint32_t p = 0; p < n_parts; p++, x += PRODUCT_PART) {
        struct product_block *block = &out[p / PRODUCT_PARTS];
        const uint32_t i = p % PRODUCT_PARTS;
        if (!by_block)
            block->scales[i] = part_top(x, PRODUCT_PART) / 127;
        else
            block->scales[i] = i ? block->scales[0] : part_top(x, PRODUCT_BLOCK) / 127;
        const int32_t sum = part_round(x, block->scales[i], block->values + i * PRODUCT_PART);
        if (rounding == PRODUCT_ROUND_PARTS_SUMMED)
            block->x_sums[i] = part_shortened(block->scales[i] * (float)sum);
        else
            block->part_sums[i] = sum;
        if (!by_block)
            block->scales[i] = part_shortened(block->scales[i]);
    }
}
#endif
