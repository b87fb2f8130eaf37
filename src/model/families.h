/* The tables of families, one for each kind of model, and what their rows share. Private to
 * families.c, families_states.c and families_encoders.c. A row goes into the table of its kind;
 * architecture.h says what the fields mean. What is not said is as in llama: RMS norm before
 * attention and FFN, rotary positions on pairs (2i, 2i+1), SwiGLU, softmax gating of experts.
 * Biases are used wherever the file has them. */
#pragma once

#include "model/architecture.h"

struct family_table {
    const struct architecture *rows;
    uint32_t n;
};
#define FAMILY_TABLE(rows) {rows, sizeof(rows) / sizeof *(rows)}

extern const struct family_table families_of_states, families_of_encoders;

#define QK_NORM (ROLE_BIT(TENSOR_Q_NORM) | ROLE_BIT(TENSOR_K_NORM))
#define DEEPSEEK_ATTENTION                                                                         \
    .has_latent_attention = true, .keeps_yarn_length = true, .yarn_log_unit = 0.1f
#define QKV_BIAS (ROLE_BIT(TENSOR_Q_BIAS) | ROLE_BIT(TENSOR_K_BIAS) | ROLE_BIT(TENSOR_V_BIAS))
#define LATENT_EXPERTS (ROLE_BIT(TENSOR_EXPERTS_LATENT_DOWN) | ROLE_BIT(TENSOR_EXPERTS_LATENT_UP))
#define BIASED_CHOICE (SHARED_EXPERT | ROLE_BIT(TENSOR_CHOICE_BIAS))
#define POST_NORMS (ROLE_BIT(TENSOR_ATTENTION_POST_NORM) | ROLE_BIT(TENSOR_FFN_POST_NORM))
#define GATED_SHARED_EXPERT (SHARED_EXPERT | ROLE_BIT(TENSOR_SHARED_ROUTER))
#define SHARED_EXPERT                                                                              \
    (ROLE_BIT(TENSOR_SHARED_GATE) | ROLE_BIT(TENSOR_SHARED_UP) | ROLE_BIT(TENSOR_SHARED_DOWN))
