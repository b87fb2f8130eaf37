/* The products of product.h as operations in ggml's graphs, on the CPU's threads.
 *
 * Shapes are ggml's: the fastest dimension first. What multiplies is rounded first, once for all
 * matrices that it is multiplied with. */
#pragma once

#include "kernels/product.h"

#include <ggml.h>
#include <stdbool.h>

enum { PRODUCT_EXPERTS_MAX = 4096 }; /* of a layer, as many as the model reader accepts */

/* Which type of product.h's it is; false: none. */
bool product_type_of(enum ggml_type ggml, enum product_type *type);
/* Should models use this kernel (NULL: none) for the type? For K-quants, Q4_1, Q5_0, Q5_1, Q8_0 and
 * IQ4_XS. For Q4_0, IQ4_NL and MXFP4 where it is faster than ggml's repacked products, for grids,
 * F16 and BF16 where it has vectors for them. */
bool product_is_of(const struct product_kernel *kernel, enum ggml_type type);
/* Is what is rounded for one type rounded for the other? Both ours. */
bool product_shares_rounding(enum ggml_type a, enum ggml_type b);

/* x [n, …] F32, n as the matrices have: rounded, for matrices of this type and of those that share
 * its rounding. The kernel stays the caller's. For floats it is x itself. Where x is an RMS norm
 * times a weight, or a SwiGLU of two, it is computed as it is rounded, of what it is made of: the
 * graph computes x itself only if something else is made of it, too. */
struct ggml_tensor *product_rounded(struct ggml_context *ctx, const struct product_kernel *kernel,
                                    enum ggml_type type, struct ggml_tensor *x);
/* matrix [n, m, heads], rounded [n, t, heads]: F32 [m, t, heads], each head's of its own matrix, as
 * ggml_mul_mat(). */
struct ggml_tensor *product_mul_mat(struct ggml_context *ctx, const struct product_kernel *kernel,
                                    struct ggml_tensor *matrix, struct ggml_tensor *rounded);
/* matrices [n, m, experts], rounded [n, 1 or u, t], chosen I32 [u, t]: F32 [m, u, t], as
 * ggml_mul_mat_id(). */
struct ggml_tensor *product_mul_mat_id(struct ggml_context *ctx,
                                       const struct product_kernel *kernel,
                                       struct ggml_tensor *matrices, struct ggml_tensor *rounded,
                                       struct ggml_tensor *chosen);
