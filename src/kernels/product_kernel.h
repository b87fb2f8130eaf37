/* Between product.c, which divides the work, and the kernels, which are product_kernel_body.h
 * compiled for one kind of processor each. */
#pragma once

#include "kernels/product.h"
#include "kernels/unroll.h"

typedef int32_t eight_ints __attribute__((vector_size(32)));
typedef float eight_floats __attribute__((vector_size(32)));

enum { PRODUCT_FILLED = 16 }; /* rows x, up to a multiple of which kernels compute some twice */

/* A block of a row as the kernels multiply it. */
struct unpacked {
    uint8_t weights[PRODUCT_BLOCK];
    int16_t scales[PRODUCT_BLOCK / 2]; /* a group's stands for every two of its weights */
    int16_t offsets[PRODUCT_GROUPS];
};

struct product_kernel {
    const char *name;
    /* A kernel that has bodies for many rows alone: what it lacks, and fewer than `many` rows x,
     * are this one's. NULL: it has all. */
    const struct product_kernel *fewer;
    uint32_t many;
    /* See product_kernel_beats_repacked(). Fives: but for IQ4_NL, whose weights have more bits. */
    bool beats_repacked, beats_repacked_fives;
    /* rows x, at most, for which sheaves are not worth unpacking */
    uint32_t few, few_of_parts, few_of_grids;
    int (*works)(void); /* on this processor */
    void (*round)(const float *x, uint32_t n_blocks, struct product_block *out);
    /* See product_norm_factor(); y = x factor weight; y = silu(gate) up. n is a multiple of 16. */
    float (*norm_factor)(const float *x, uint32_t n, float epsilon);
    void (*norm)(const float *x, const float *weight, float factor, uint32_t n, float *y);
    void (*gate)(const float *gate, const float *up, uint32_t n, float *y);
    /* y[c] = rows[c] times x, for n_rows <= PRODUCT_SHEAF_MAX rows of the matrix. */
    void (*row)(enum product_type type, const uint8_t *const *rows, uint32_t n_rows,
                uint32_t n_blocks, const struct product_block *x, float *y);
    /* y[i][c] = rows[c] times x[i], for the n_rows rows of a sheaf and n <= PRODUCT_TILE rows x. y
     * has PRODUCT_TILE rows; what comes behind n of them may be anything. */
    uint32_t n_rows;
    void (*sheaf)(enum product_type type, const uint8_t *const *rows, uint32_t n_blocks,
                  const struct product_block *const *x, uint32_t n, float (*y)[PRODUCT_SHEAF_MAX]);
    /* y[i][first + c] = results[i][c], for n_rows of these. NULL: number by number. */
    void (*put)(float (*results)[PRODUCT_SHEAF_MAX], float *const *y, uint32_t n, uint32_t first,
                uint32_t n_rows);
    /* The same for types of parts, rows of n_parts. */
    void (*part_round)(const float *x, uint32_t n_parts, enum product_rounding rounding,
                       struct product_block *out);
    void (*part_row)(enum product_type type, const uint8_t *const *rows, uint32_t n_rows,
                     uint32_t n_parts, const struct product_block *x, float *y);
    /* y has the n rows and more, up to a multiple of PRODUCT_FILLED; they are written once and may
     * lie pages apart. */
    void (*part_sheaf)(enum product_type type, const uint8_t *const *rows, uint32_t n_parts,
                       const struct product_block *const *x, uint32_t n, float *const *y);
    /* As product_compute(), K-quants. False: not for so many rows x, they are single rows' or
     * sheaves'. NULL: all are. */
    bool (*block_rows)(const struct product_matrix *matrix, const struct product_block *const *x,
                       float *const *y, uint32_t n, uint32_t first, uint32_t end);
    /* As product_compute(), types of parts. False: not for so many rows x, they are sheaves'. NULL:
     * all are single rows' or sheaves'; else one row x is taken here, and there is no part_row. */
    bool (*part_rows)(const struct product_matrix *matrix, const struct product_block *const *x,
                      float *const *y, uint32_t n, uint32_t first, uint32_t end);
    /* row() and sheaf() for grid types; NULL: there are none. */
    void (*grid_row)(enum product_type type, const uint8_t *const *rows, uint32_t n_rows,
                     uint32_t n_blocks, const struct product_block *x, float *y);
    void (*grid_sheaf)(enum product_type type, const uint8_t *const *rows, uint32_t n_blocks,
                       const struct product_block *const *x, uint32_t n,
                       float (*y)[PRODUCT_SHEAF_MAX]);
    /* Around a thread's sheaves with n rows x of a type; NULL: nothing is to be done. */
    void (*begin)(enum product_type type, uint32_t n);
    void (*end)(void);
};

/* Types of floats: y[i][c] = rows[c] times x[i], for n_rows <= PRODUCT_SHEAF_MAX rows of the
 * matrix. `rows` has PRODUCT_SHEAF_MAX rows, n <= PRODUCT_TILE. */
typedef void product_float_rows(enum product_type type, const uint8_t *const *rows, uint32_t n_rows,
                                uint32_t n_columns, const float *const *x, uint32_t n,
                                float (*y)[PRODUCT_SHEAF_MAX]);
product_float_rows product_float_plain;
#if defined(__x86_64__)
product_float_rows product_float_avx2, product_float_avx512;
#endif

extern const struct product_kernel product_kernel_plain;
#if defined(__x86_64__)
extern const struct product_kernel product_kernel_avx2, product_kernel_avx_vnni,
    product_kernel_avx512, product_kernel_avx512_vnni;
#if defined(__linux__)
extern const struct product_kernel product_kernel_amx;
#endif
#elif defined(__aarch64__) && defined(__linux__)
extern const struct product_kernel product_kernel_neon, product_kernel_neon_i8mm;
#endif
