/* Whether a row has the same bits in every batch: what tests/unit/test_same_bits.c has compared. */
#include "engine/stage_state.h"

#include "gpu/device_ggml.h"
#include "gpu/product_ggml.h"

#include <string.h>

/* Of ggml's products those that the test compares. On ARM those with IQ4_NL were not compared. */
static bool ggml_bits_are_stable(enum ggml_type type)
{
#if defined(__x86_64__)
    if (type == GGML_TYPE_IQ4_NL)
        return true;
#endif
    return type == GGML_TYPE_F32 || type == GGML_TYPE_F16 || type == GGML_TYPE_BF16 ||
           type == GGML_TYPE_Q4_0 || type == GGML_TYPE_MXFP4;
}

/* Ours are by their arithmetic (kernels/product.h). ggml computes IQ1_S, IQ1_M, IQ2_S and the
 * others of that family in other ways for one row and for many. */
static bool bits_are_stable(const struct product_kernel *ours, enum ggml_type type)
{
    return product_is_of(ours, type) || ggml_bits_are_stable(type);
}

static bool bits_of_unit_are_stable(const struct weight_unit *unit)
{
    const struct product_kernel *ours = device_ggml_products(unit->device);
    for (uint32_t i = 0; i < unit->n_pools; i++) {
        if (strstr(ggml_backend_buft_name(unit->pools[i].type), "AMX"))
            return false;
        for (struct ggml_tensor *tensor = ggml_get_first_tensor(unit->pools[i].context); tensor;
             tensor = ggml_get_next_tensor(unit->pools[i].context, tensor)) {
            if (!bits_are_stable(ours, tensor->type))
                return false;
        }
    }
    return true;
}

/* A matrix for each head (graph_attention.c): ggml repacks none of these, and multiplies quantised
 * ones in other ways for one row and for many. */
static bool bits_of_latent_are_stable(const struct stage *stage)
{
    const struct product_kernel *ours = device_ggml_products(stage->device);
    for (uint32_t i = 0; stage->h->is_latent_absorbed && i < stage->weights.n_layers; i++) {
        const struct ggml_tensor *const ups[] = {stage->weights.layers[i][TENSOR_LATENT_K_UP],
                                                 stage->weights.layers[i][TENSOR_LATENT_V_UP]};
        for (int k = 0; k < 2; k++) {
            if (ups[k] && ggml_is_quantized(ups[k]->type) && !product_is_of(ours, ups[k]->type))
                return false;
        }
    }
    return true;
}

bool stage_find_stable_bits(const struct stage *stage)
{
    ggml_backend_t accelerator;
    if (!stage->source.attention || stage->h->indexer.n_head || /* that takes ggml's attention */
        !device_ggml_products(stage->device) ||
        device_ggml_accelerators(stage->device, &accelerator, 1) ||
        !bits_of_latent_are_stable(stage))
        return false;
    for (uint32_t i = 0; i < stage->weights.n_units; i++) {
        if (!bits_of_unit_are_stable(stage->weights.units[i]))
            return false;
    }
    return true;
}
