#include "model/weight_choice.h"

#include "base/mem.h"
#include "model/architecture.h"
#include "model/gguf_file.h"
#include "model/weight_type.h"

#include <assert.h>

static const role_set matrix_roles =
    ROLE_BIT(TENSOR_TOKEN_EMBEDDING) | ROLE_BIT(TENSOR_OUTPUT) | ROLE_BIT(TENSOR_Q) |
    ROLE_BIT(TENSOR_K) | ROLE_BIT(TENSOR_V) | ROLE_BIT(TENSOR_QKV) |
    ROLE_BIT(TENSOR_ATTENTION_OUT) | ROLE_BIT(TENSOR_ATTENTION_GATE) |
    ROLE_BIT(TENSOR_LATENT_Q_DOWN) | ROLE_BIT(TENSOR_LATENT_Q_UP) |
    ROLE_BIT(TENSOR_LATENT_KV_DOWN) | ROLE_BIT(TENSOR_LATENT_KV_UP) | ROLE_BIT(TENSOR_LATENT_K_UP) |
    ROLE_BIT(TENSOR_LATENT_V_UP) | ROLE_BIT(TENSOR_FFN_GATE) | ROLE_BIT(TENSOR_FFN_UP) |
    ROLE_BIT(TENSOR_FFN_DOWN) | ROLE_BIT(TENSOR_EXPERTS_GATE) | ROLE_BIT(TENSOR_EXPERTS_UP) |
    ROLE_BIT(TENSOR_EXPERTS_GATE_UP) | ROLE_BIT(TENSOR_EXPERTS_DOWN) |
    ROLE_BIT(TENSOR_SHARED_GATE) | ROLE_BIT(TENSOR_SHARED_UP) | ROLE_BIT(TENSOR_SHARED_DOWN);

/* Some roles share a bit of a set with vectors. */
static bool choice_is_of(enum tensor_role role)
{
    return (matrix_roles & ROLE_BIT(role)) || role == TENSOR_SINGLE_KV ||
           role == TENSOR_OUT_GROUPS || role == TENSOR_OUT_OF_GROUPS;
}

enum error_code weight_choice_init(struct weight_choice *choice, const struct model *model,
                                   struct error *err)
{
    const struct gguf_file *file = model_file(model);
    *choice = (struct weight_choice){.n_tensors = gguf_file_tensor_count(file)};
    choice->types = mem_new_array(choice->n_tensors, sizeof *choice->types);
    if (!choice->types)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the list of tensors");
    for (uint64_t i = 0; i < choice->n_tensors; i++)
        choice->types[i] = gguf_file_tensor(file, i)->type;
    return ERROR_NONE;
}

void weight_choice_deinit(struct weight_choice *choice)
{
    mem_free(choice->types);
    *choice = (struct weight_choice){0};
}

bool weight_choice_is_matrix(const struct model *model, uint64_t tensor, bool *is_head)
{
    const struct gguf_tensor *wanted = gguf_file_tensor(model_file(model), tensor);
    *is_head = wanted == model_head(model);
    const uint32_t n_layers = model_hyperparameters(model)->n_layers;
    for (int i = 0; i < TENSOR_ROLE_COUNT; i++) {
        const enum tensor_role role = (enum tensor_role)i;
        const uint32_t n = tensor_role_per_layer(role) ? n_layers : 1;
        for (uint32_t layer = 0; choice_is_of(role) && layer < n; layer++) {
            if (model_tensor(model, role, layer) == wanted)
                return true;
        }
    }
    return false;
}

int weight_choice_type(const struct model *model, uint64_t tensor, int type)
{
    const struct gguf_tensor *matrix = gguf_file_tensor(model_file(model), tensor);
    const int64_t n_columns = matrix->ne[0];
    const int fits = weight_type_for_rows(type, n_columns);
    if (weight_type_is_float(type))
        return fits;
    return weight_type_row_bytes(fits, n_columns) < weight_type_row_bytes(matrix->type, n_columns)
               ? fits
               : matrix->type;
}

static int weight_choice_of_head(int type)
{
    int least;
    const enum error_code code = weight_type_find("q6_k", &least, NULL);
    assert(!code);
    /* by the bytes of one block of both */
    return weight_type_row_bytes(type, 256) < weight_type_row_bytes(least, 256) ? least : type;
}

void weight_choice_all(struct weight_choice *choice, const struct model *model, int type, bool pure)
{
    for (uint64_t i = 0; i < choice->n_tensors; i++) {
        bool is_head;
        if (weight_choice_is_matrix(model, i, &is_head))
            choice->types[i] =
                weight_choice_type(model, i, is_head && !pure ? weight_choice_of_head(type) : type);
    }
}

static uint64_t weight_choice_bytes_of(const struct weight_choice *choice,
                                       const struct model *model, uint64_t tensor)
{
    const struct gguf_tensor *t = gguf_file_tensor(model_file(model), tensor);
    return weight_type_row_bytes(choice->types[tensor], t->ne[0]) *
           (uint64_t)(t->ne[1] * t->ne[2] * t->ne[3]);
}

uint64_t weight_choice_bytes(const struct weight_choice *choice, const struct model *model)
{
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < choice->n_tensors; i++)
        bytes += weight_choice_bytes_of(choice, model, i);
    return bytes;
}

int weight_choice_main_type(const struct weight_choice *choice, const struct model *model)
{
    uint64_t bytes[256] = {0};
    int most = 0;
    for (uint64_t i = 0; i < choice->n_tensors; i++) {
        const int type = choice->types[i];
        assert(type >= 0 && type < 256);
        bytes[type] += weight_choice_bytes_of(choice, model, i);
        if (bytes[type] > bytes[most])
            most = type;
    }
    return most;
}
