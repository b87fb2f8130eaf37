/* The products of product.h as operations in ggml's graphs, on the CPU's threads.
 *
 * Shapes are ggml's: the fastest dimension first. What multiplies is rounded first, once for all
 * matrices that it is multiplied with. */
#pragma once

#include "kernels/product.h"

#include <ggml.h>
#include <stdbool.h>

/* Is it one of K-quants? */
bool product_is_of(enum ggml_type type);

/* x [n, …] F32, n a multiple of 256: rounded, for the functions below. The kernel stays the
 * caller's. */
struct ggml_tensor *product_rounded(struct ggml_context *ctx, const struct product_kernel *kernel,
                                    struct ggml_tensor *x);
/* matrix [n, m], rounded [n, t]: F32 [m, t], as ggml_mul_mat(). */
struct ggml_tensor *product_mul_mat(struct ggml_context *ctx, const struct product_kernel *kernel,
                                    struct ggml_tensor *matrix, struct ggml_tensor *rounded);
/* matrices [n, m, experts], rounded [n, 1 or u, t], chosen I32 [u, t]: F32 [m, u, t], as
 * ggml_mul_mat_id(). */
struct ggml_tensor *product_mul_mat_id(struct ggml_context *ctx,
                                       const struct product_kernel *kernel,
                                       struct ggml_tensor *matrices, struct ggml_tensor *rounded,
                                       struct ggml_tensor *chosen);
