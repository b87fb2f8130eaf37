/* The graphs of operations.h: one for each operation that the engine uses. */
#pragma once

#include <ggml.h>
#include <stdbool.h>
#include <stdint.h>

struct operation_graph {
    struct ggml_tensor *(*build)(struct ggml_context *ctx, enum ggml_type type);
    double error_max;         /* NMSE; 0: must be equal */
    bool of_types;            /* once for each type of matrix */
    bool is_slow_in_software; /* a software GPU driver compiles it for minutes */
};

uint32_t operation_graph_count(void);
const struct operation_graph *operation_graph_at(uint32_t index);
