/* Does a device compute what the CPU computes? The operations that the engine uses, each with
 * made-up inputs, on the device and on the CPU; matrices in every type that models come in.
 *
 * Compared by the squared error in relation to the squared result (NMSE), as llama.cpp's own tests
 * of operations do: at most 1e-3 where a device may round what it multiplies to 8 bits (products,
 * attention), 1e-5 elsewhere. Positions must be equal. */
#pragma once

#include "gpu/gpu.h"

enum { OPERATIONS_MAX = 128 };

enum operation_verdict {
    OPERATION_SAME,
    OPERATION_ELSEWHERE, /* the device says that it cannot: the CPU does it in its place */
    OPERATION_WRONG,     /* it computed something else */
    OPERATION_FAILED,    /* it did not compute, or there was no memory */
};

struct operation_check {
    char name[24]; /* ggml's word for it: "MUL_MAT" */
    char type[12]; /* of the matrix: "q4_K" */
    enum operation_verdict verdict;
    double error; /* NMSE, where it was computed */
};

/* Fills `out`, at most OPERATIONS_MAX; the count. Each is told to `progress` (may be NULL) before.
 * Blocks; runs on the devices' threads, in this process: a driver that crashes takes it along. Once
 * the device has not answered for `limit_ms` an operation it is given up, the rest is left out and
 * the last is OPERATION_FAILED. Nobody else may use it meanwhile. 0 for a device that does not
 * compute through ggml. A software GPU driver, which compiles for seconds for each type, does
 * matrices of q8_0 and q4_0 alone. */
uint32_t operations_check(struct device *device, uint32_t limit_ms,
                          void (*progress)(void *user, const struct operation_check *next),
                          void *user, struct operation_check out[OPERATIONS_MAX]);

const char *operation_verdict_name(enum operation_verdict verdict);
