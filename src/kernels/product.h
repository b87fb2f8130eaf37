/* Products with quantised matrices on the CPU, in which a row has the same bits whatever is
 * computed beside it: alone or in a prompt, in chunks of any size, on any number of threads. A
 * reply that is replayed after a machine was lost goes on with the same words because of this.
 * (ggml computes a single row of K-quants in another way than many, a tenth of a logit apart, and
 * one of IQ4_XS, in the last digits.) The matrix stays as the file has it. Pure; ggml's graphs call
 * it through product_ggml.c.
 *
 * K-quants (ggml's Q2_K to Q6_K). A row of the matrix is blocks of 256 weights, of 16 groups with a
 * scale s and an offset m each:
 *
 *     weight = d s[g] w - dmin m[g]          w, s, m small integers, d and dmin of the block
 *
 * A row x of the other factor is rounded to 8 bits in blocks of as many values:
 *
 *     x ~ e q                                e = max |x| / 127 of the block, q = x / e to the
 *                                            nearest integer
 *
 * and their product is summed up over the blocks in order, in F32:
 *
 *     y = y + (d e) sum_g s[g] sum w q
 *     y = y - (dmin e) sum_g m[g] sum q      where the type has offsets
 *
 * Grids (IQ1_S, IQ1_M, IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS, IQ3_S) are K-quants without offsets:
 * weights w of a table, with their signs, s an odd number, and d an eighth (IQ1, IQ2), a quarter
 * (IQ3_XXS) or all of the block's. IQ1 has 8 times an entry of its table and one more or less as w.
 *
 * Parts (Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL, IQ4_XS, MXFP4). A row of the matrix is parts of 32
 * weights, w integers of 8 bits, d and m of the part:
 *
 *     weight = d w + m                       m where the type has one
 *
 * x is rounded as above, but in parts of 32 values (for IQ4_XS with the e of 256). It is filled up
 * with zeros to whole blocks of eight parts. Then e, but for IQ4_XS, and what the values add up to
 * are rounded to eleven bits, as many as ggml's F16 numbers have, so that logits are ggml's but for
 * the last digits:
 *
 *     s = e sum q                            where the type has m
 *     e and s to the nearest                 of two as near, the one whose last bit is 0
 *
 * Part b adds to the partial sum p[b mod 4], in order of b, in F32:
 *
 *     p = p + (d e) sum w q
 *     p = p + m s                            where the type has m
 *     y = (p[0] + p[1]) + (p[2] + p[3])
 *
 * Floats (F16, BF16). x is not rounded. Both rows are filled up with zeros to a multiple of 16
 * values. Value k adds to the partial sum p[k mod 16], in order of k, in F32, rounded once:
 *
 *     p = p + weight x
 *
 * Then p[8] to p[15] are added to p[0] to p[7], p[4] to p[7] to p[0] to p[3], and so on to p[0].
 *
 * The sums of integers are exact in every order, so neither the width of vectors nor the number of
 * rows is part of the arithmetic. Processors with fused multiply-add give the same bits as each
 * other; those without it the same with K-quants, grids and floats, and others with parts. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum product_type {
    PRODUCT_Q2_K,
    PRODUCT_Q3_K,
    PRODUCT_Q4_K,
    PRODUCT_Q5_K,
    PRODUCT_Q6_K,
    PRODUCT_IQ1_S, /* the first of grids */
    PRODUCT_IQ1_M,
    PRODUCT_IQ2_XXS,
    PRODUCT_IQ2_XS,
    PRODUCT_IQ2_S,
    PRODUCT_IQ3_XXS,
    PRODUCT_IQ3_S,
    PRODUCT_Q4_0, /* the first of parts */
    PRODUCT_Q4_1,
    PRODUCT_Q5_0,
    PRODUCT_Q5_1,
    PRODUCT_Q8_0,
    PRODUCT_IQ4_NL,
    PRODUCT_IQ4_XS,
    PRODUCT_MXFP4,
    PRODUCT_F16, /* the first of floats */
    PRODUCT_BF16,
};

enum product_rounding {
    PRODUCT_ROUND_BLOCKS,
    PRODUCT_ROUND_PARTS,
    PRODUCT_ROUND_PARTS_ALIKE,  /* eight parts with the block's scale: nearer to ggml's IQ4_XS */
    PRODUCT_ROUND_PARTS_SUMMED, /* for types with m */
    PRODUCT_ROUND_NOTHING,      /* floats */
};

enum {
    PRODUCT_BLOCK = 256,
    PRODUCT_GROUP = 16,
    PRODUCT_GROUPS = PRODUCT_BLOCK / PRODUCT_GROUP,
    PRODUCT_PART = 32,
    PRODUCT_PARTS = PRODUCT_BLOCK / PRODUCT_PART,
    PRODUCT_TILE = 128, /* rows x, at most, that are computed together */
    PRODUCT_SHEAF_MAX =
        32, /* rows of the matrix, at most, that are: threads should begin at a multiple */
};

struct product_block { /* 256 values of a rounded row */
    int8_t values[PRODUCT_BLOCK];
    union {
        struct {                          /* for K-quants */
            int16_t sums[PRODUCT_GROUPS]; /* of the values of a group */
            float scale;
        };
        struct { /* for parts */
            float scales[PRODUCT_PARTS];
            union {
                int32_t part_sums[PRODUCT_PARTS]; /* of the values of a part */
                float x_sums[PRODUCT_PARTS];      /* s, where parts are summed */
            };
        };
    }; /* 64 bytes, so that vectors of values do not lie across lines of the cache */
};

struct product_matrix {
    const void *rows; /* as in the file */
    size_t row_bytes;
    uint32_t n_columns; /* a multiple of product_columns_of(type) */
    enum product_type type;
};

struct product_kernel; /* compiled for a kind of processor */

/* For the processor at hand: the best, or each that works, fastest first, NULL behind the last. */
const struct product_kernel *product_kernel_at(uint32_t index);
const char *product_kernel_name(const struct product_kernel *kernel);
/* The best; NULL: none is worth it here, ggml's products are faster. */
const struct product_kernel *product_kernel_best(void);

/* Are its products of Q4_0, IQ4_NL or MXFP4 faster than ggml's, for which ggml rearranges the
 * weights when a model is loaded? */
bool product_kernel_beats_repacked(const struct product_kernel *kernel, enum product_type type);

/* Has it products of grid types, and are their tables known? */
bool product_kernel_multiplies_grids(const struct product_kernel *kernel);

/* Finds the tables of grid types by letting the caller unpack blocks of them, 256 weights each.
 * IQ1_M has IQ1_S's. Once, before they are multiplied. */
typedef void product_grid_unpack(enum product_type type, const uint8_t *block, float *weights);
void product_grids_fill(product_grid_unpack *unpack);

/* Are its products of floats faster than one number at a time? */
bool product_kernel_multiplies_floats(const struct product_kernel *kernel);

/* Rows are a multiple of so many weights: 256 for K-quants, grids and IQ4_XS, 1 for floats,
 * else 32. */
uint32_t product_columns_of(enum product_type type);
enum product_rounding product_rounding_of(enum product_type type);

/* Rounds n values of x, for types that are not of floats, to ceil(n / 256) blocks. n is as a row's.
 */
void product_round(const struct product_kernel *kernel, enum product_rounding rounding,
                   const float *x, uint32_t n, struct product_block *out);

/* What is computed only to be rounded, a block after the other:
 *
 *     f = 1 / sqrt(mean of x^2 + epsilon)    squares in F32; square k adds to the partial sum
 *                                            p[k mod 16], in order of k, in F64; then p[8] to p[15]
 *                                            are added to p[0] to p[7], and so on to p[0]
 *     (x f) weight                           an RMS norm (Zhang and Sennrich 2019,
 *                                            arXiv:1910.07467)
 *     g / (1 + exp(-g)) u                    SwiGLU (Shazeer 2020, arXiv:2002.05202), off by 4e-7
 *                                            of it at most; 0 where g < -86
 *
 * n is a multiple of 32; for an RMS norm f is of the whole row. */
float product_norm_factor(const struct product_kernel *kernel, const float *x, uint32_t n,
                          float epsilon);
void product_round_norm(const struct product_kernel *kernel, enum product_rounding rounding,
                        const float *x, const float *weight, float f, uint32_t n,
                        struct product_block *out);
void product_round_gate(const struct product_kernel *kernel, enum product_rounding rounding,
                        const float *gate, const float *up, uint32_t n, struct product_block *out);

/* y[i][r] = row r of the matrix times x[i], for the matrix's rows `first` to `end` - 1 and n <=
 * PRODUCT_TILE rows x of as many values as the matrix has columns. */
void product_compute(const struct product_kernel *kernel, const struct product_matrix *matrix,
                     const struct product_block *const *x, float *const *y, uint32_t n,
                     uint32_t first, uint32_t end);

/* The same for types of floats, where rows x are as they come. */
void product_compute_floats(const struct product_kernel *kernel,
                            const struct product_matrix *matrix, const float *const *x,
                            float *const *y, uint32_t n, uint32_t first, uint32_t end);
