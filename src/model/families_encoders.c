#include "model/families.h"

/* Texts are read whole, and vectors come out. */
static const struct architecture encoder_families[] = {
    {
        .name = "bert",
        .description = "BERT, BGE, MiniLM, E5, XLM-RoBERTa",
        .norm = NORM_LAYER,
        .needs = ROLE_BIT(TENSOR_POSITION_EMBEDDING),
        .is_encoder = true,
        .is_sum_normed = true,
        .never_rotates = true,
        .activation = ACT_GELU,
        .has_no_gate = true,
    },
    {
        .name = "modern-bert",
        .description = "ModernBERT and what is made of it: GTE, Nomic, Granite Embedding",
        .norm = NORM_LAYER,
        .rope = ROPE_NEOX,
        .needs = ROLE_BIT(TENSOR_EMBEDDING_NORM),
        .may_have = ROLE_BIT(TENSOR_ATTENTION_NORM),
        .is_encoder = true,
        .activation = ACT_GELU_ERF,
        .fused_gate_up = true,
        .window_is_centred = true,
        .window_period = 3,
        .window_rope_base = 10000.0f,
    },
    {
        .name = "nomic-bert",
        .description = "Nomic Embed 1",
        .norm = NORM_LAYER,
        .rope = ROPE_NEOX,
        .is_encoder = true,
        .is_sum_normed = true,
    },
    {
        .name = "nomic-bert-moe",
        .description = "Nomic Embed 2, mixture of experts",
        .norm = NORM_LAYER,
        .rope = ROPE_NEOX,
        .is_encoder = true,
        .is_sum_normed = true,
        .activation = ACT_GELU,
        .has_no_gate = true,
        .expert_sum = EXPERT_SUM_KEPT,
    },
    {
        .name = "jina-bert-v2",
        .description = "Jina Embeddings 2",
        .norm = NORM_LAYER,
        .may_have =
            ROLE_BIT(TENSOR_ATTENTION_SECOND_NORM) | ROLE_BIT(TENSOR_ATTENTION_SECOND_NORM_BIAS),
        .is_encoder = true,
        .is_sum_normed = true,
        .alibi_max = 8.0f,
        .never_rotates = true,
        .activation = ACT_GELU,
        .may_fuse_gate = true,
    },
    {
        .name = "jina-bert-v3",
        .description = "Jina Embeddings 3",
        .norm = NORM_LAYER,
        .rope = ROPE_NEOX,
        .is_encoder = true,
        .is_sum_normed = true,
        .activation = ACT_GELU,
        .has_no_gate = true,
    },
};

const struct family_table families_of_encoders = FAMILY_TABLE(encoder_families);
