#include "base/mem.h"
#include "model/projector_private.h"

#include <ggml.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    G3 = 1 << PROJECTOR_GEMMA3,
    Q2 = 1 << PROJECTOR_QWEN2VL,
    Q25 = 1 << PROJECTOR_QWEN25VL,
    Q3 = 1 << PROJECTOR_QWEN3VL,
    QWEN = Q2 | Q25 | Q3,
    ALL = G3 | QWEN,
};

/* ---- tensors -------------------------------------------------------------------------------- */

enum projector_size {
    SIZE_NONE, /* no such dimension: 1 */
    SIZE_EMBD,
    SIZE_FF,
    SIZE_OUT,
    SIZE_PATCH, /* a patch's side */
    SIZE_COLOURS,
    SIZE_TABLE,  /* patches of a picture of image_size, where all are brought to that; else any */
    SIZE_MERGED, /* the patches of a row, one behind the other */
    SIZE_QKV,
};

/* What a tensor's numbers are used for, and so which types it may have. */
enum projector_use { USE_MATRIX, USE_PLAIN, USE_VECTOR };

static const struct projector_tensor_rule {
    const char *name; /* of one of a block: behind "v.blk.N." or "v.deepstack.N." */
    enum projector_size size[4];
    enum projector_use use;
    unsigned required, optional; /* kinds */
} rules[PROJECTOR_ROLES] = {
    [PROJECTOR_PATCHES] = {"v.patch_embd.weight",
                           {SIZE_PATCH, SIZE_PATCH, SIZE_COLOURS, SIZE_EMBD},
                           USE_PLAIN,
                           ALL,
                           0},
    [PROJECTOR_PATCHES_SECOND] = {"v.patch_embd.weight.1",
                                  {SIZE_PATCH, SIZE_PATCH, SIZE_COLOURS, SIZE_EMBD},
                                  USE_PLAIN,
                                  QWEN,
                                  0},
    [PROJECTOR_PATCHES_B] = {"v.patch_embd.bias", {SIZE_EMBD}, USE_VECTOR, G3 | Q3, 0},
    [PROJECTOR_POSITIONS] =
        {"v.position_embd.weight", {SIZE_EMBD, SIZE_TABLE}, USE_PLAIN, G3 | Q3, 0},
    [PROJECTOR_POST_NORM_W] = {"v.post_ln.weight", {SIZE_EMBD}, USE_VECTOR, QWEN, G3},
    [PROJECTOR_POST_NORM_B] = {"v.post_ln.bias", {SIZE_EMBD}, USE_VECTOR, 0, ALL},
    [PROJECTOR_SOFT_NORM_W] = {"mm.soft_emb_norm.weight", {SIZE_EMBD}, USE_VECTOR, G3, 0},
    [PROJECTOR_INPUT_W] = {"mm.input_projection.weight", {SIZE_OUT, SIZE_EMBD}, USE_PLAIN, G3, 0},
    [PROJECTOR_MERGE_1_W] = {"mm.0.weight", {SIZE_MERGED, SIZE_MERGED}, USE_MATRIX, QWEN, 0},
    [PROJECTOR_MERGE_1_B] = {"mm.0.bias", {SIZE_MERGED}, USE_VECTOR, QWEN, 0},
    [PROJECTOR_MERGE_2_W] = {"mm.2.weight", {SIZE_MERGED, SIZE_OUT}, USE_MATRIX, QWEN, 0},
    [PROJECTOR_MERGE_2_B] = {"mm.2.bias", {SIZE_OUT}, USE_VECTOR, QWEN, 0},
    [PROJECTOR_NORM_1_W] = {"ln1.weight", {SIZE_EMBD}, USE_VECTOR, ALL, 0},
    [PROJECTOR_NORM_1_B] = {"ln1.bias", {SIZE_EMBD}, USE_VECTOR, 0, ALL},
    [PROJECTOR_NORM_2_W] = {"ln2.weight", {SIZE_EMBD}, USE_VECTOR, ALL, 0},
    [PROJECTOR_NORM_2_B] = {"ln2.bias", {SIZE_EMBD}, USE_VECTOR, 0, ALL},
    [PROJECTOR_Q_W] = {"attn_q.weight", {SIZE_EMBD, SIZE_EMBD}, USE_MATRIX, G3 | Q2 | Q25, 0},
    [PROJECTOR_Q_B] = {"attn_q.bias", {SIZE_EMBD}, USE_VECTOR, 0, G3 | Q2 | Q25},
    [PROJECTOR_K_W] = {"attn_k.weight", {SIZE_EMBD, SIZE_EMBD}, USE_MATRIX, G3 | Q2 | Q25, 0},
    [PROJECTOR_K_B] = {"attn_k.bias", {SIZE_EMBD}, USE_VECTOR, 0, G3 | Q2 | Q25},
    [PROJECTOR_V_W] = {"attn_v.weight", {SIZE_EMBD, SIZE_EMBD}, USE_MATRIX, G3 | Q2 | Q25, 0},
    [PROJECTOR_V_B] = {"attn_v.bias", {SIZE_EMBD}, USE_VECTOR, 0, G3 | Q2 | Q25},
    [PROJECTOR_QKV_W] = {"attn_qkv.weight", {SIZE_EMBD, SIZE_QKV}, USE_MATRIX, Q3, 0},
    [PROJECTOR_QKV_B] = {"attn_qkv.bias", {SIZE_QKV}, USE_VECTOR, 0, Q3},
    [PROJECTOR_OUT_W] = {"attn_out.weight", {SIZE_EMBD, SIZE_EMBD}, USE_MATRIX, ALL, 0},
    [PROJECTOR_OUT_B] = {"attn_out.bias", {SIZE_EMBD}, USE_VECTOR, 0, ALL},
    [PROJECTOR_GATE_W] = {"ffn_gate.weight", {SIZE_EMBD, SIZE_FF}, USE_MATRIX, Q25, 0},
    [PROJECTOR_GATE_B] = {"ffn_gate.bias", {SIZE_FF}, USE_VECTOR, 0, Q25},
    [PROJECTOR_UP_W] = {"ffn_up.weight", {SIZE_EMBD, SIZE_FF}, USE_MATRIX, ALL, 0},
    [PROJECTOR_UP_B] = {"ffn_up.bias", {SIZE_FF}, USE_VECTOR, 0, ALL},
    [PROJECTOR_DOWN_W] = {"ffn_down.weight", {SIZE_FF, SIZE_EMBD}, USE_MATRIX, ALL, 0},
    [PROJECTOR_DOWN_B] = {"ffn_down.bias", {SIZE_EMBD}, USE_VECTOR, 0, ALL},
    [PROJECTOR_DEEP_NORM_W] = {"norm.weight", {SIZE_MERGED}, USE_VECTOR, 0, Q3},
    [PROJECTOR_DEEP_NORM_B] = {"norm.bias", {SIZE_MERGED}, USE_VECTOR, 0, Q3},
    [PROJECTOR_DEEP_1_W] = {"fc1.weight", {SIZE_MERGED, SIZE_MERGED}, USE_MATRIX, 0, Q3},
    [PROJECTOR_DEEP_1_B] = {"fc1.bias", {SIZE_MERGED}, USE_VECTOR, 0, Q3},
    [PROJECTOR_DEEP_2_W] = {"fc2.weight", {SIZE_MERGED, SIZE_OUT}, USE_MATRIX, 0, Q3},
    [PROJECTOR_DEEP_2_B] = {"fc2.bias", {SIZE_OUT}, USE_VECTOR, 0, Q3},
};

/* 0: any. */
static int64_t projector_size_of(const struct projector_form *form, enum projector_size size)
{
    const int64_t side = form->image_size / form->patch_size;
    switch (size) {
    case SIZE_NONE:
        return 1;
    case SIZE_EMBD:
        return form->n_embd;
    case SIZE_FF:
        return form->n_ff;
    case SIZE_OUT:
        return form->n_out;
    case SIZE_PATCH:
        return form->patch_size;
    case SIZE_COLOURS:
        return 3;
    case SIZE_TABLE:
        return side * side;
    case SIZE_MERGED:
        return (int64_t)form->n_embd * form->merge * form->merge;
    case SIZE_QKV:
        return 3 * (int64_t)form->n_embd;
    }
    return 0;
}

static bool projector_type_is_possible(enum projector_use use, int type)
{
    const bool is_plain = type == GGML_TYPE_F32 || type == GGML_TYPE_F16 || type == GGML_TYPE_BF16;
    return use == USE_MATRIX || (use == USE_PLAIN ? is_plain : type == GGML_TYPE_F32);
}

static enum error_code projector_check_tensor(const struct projector *projector,
                                              enum projector_role role,
                                              const struct gguf_tensor *tensor, struct error *err)
{
    const struct projector_tensor_rule *rule = &rules[role];
    for (int d = 0; d < 4; d++) {
        const int64_t wanted = projector_size_of(&projector->form, rule->size[d]);
        if (wanted && tensor->ne[d] != wanted)
            return error_set(err, ERROR_INVALID,
                             "%s has %lld values along its dimension %d; the projector's other "
                             "sizes make it %lld",
                             tensor->name, (long long)tensor->ne[d], d, (long long)wanted);
    }
    if (!projector_type_is_possible(rule->use, tensor->type))
        return error_set(err, ERROR_UNSUPPORTED, "%s is of type %s; it must be %s", tensor->name,
                         gguf_tensor_type_name(tensor),
                         rule->use == USE_PLAIN ? "f32, f16 or bf16" : "f32");
    return ERROR_NONE;
}

/* Older converters gave the two matrices of the feed-forward each other's names. */
static bool projector_swaps_ffn(const struct projector *projector)
{
    const struct gguf_tensor *down =
        gguf_file_find_tensor(projector->file, "v.blk.0.ffn_down.weight");
    return projector->form.n_ff != projector->form.n_embd && down &&
           down->ne[0] == projector->form.n_embd && down->ne[1] == projector->form.n_ff;
}

static enum projector_role projector_swapped(enum projector_role role)
{
    return role == PROJECTOR_UP_W     ? PROJECTOR_DOWN_W
           : role == PROJECTOR_UP_B   ? PROJECTOR_DOWN_B
           : role == PROJECTOR_DOWN_W ? PROJECTOR_UP_W
           : role == PROJECTOR_DOWN_B ? PROJECTOR_UP_B
                                      : role;
}

/* `swaps`: names of the feed-forward are each other's. */
static enum error_code projector_find(const struct projector *projector, enum projector_role role,
                                      uint32_t block, bool swaps, const struct gguf_tensor **out,
                                      struct error *err)
{
    const struct projector_tensor_rule *rule = &rules[role];
    const char *named = rules[swaps ? projector_swapped(role) : role].name;
    const unsigned kind = 1u << projector->form.kind;
    char name[64];
    if (!((rule->required | rule->optional) & kind))
        return ERROR_NONE;
    if (role < PROJECTOR_BLOCK_FIRST)
        snprintf(name, sizeof name, "%s", named);
    else if (role < PROJECTOR_DEEP_FIRST)
        snprintf(name, sizeof name, "v.blk.%u.%s", block, named);
    else
        snprintf(name, sizeof name, "v.deepstack.%u.%s", block, named);
    *out = gguf_file_find_tensor(projector->file, name);
    if (!*out && rule->required & kind)
        return error_set(err, ERROR_INVALID, "the tensor %s is missing", name);
    return *out ? projector_check_tensor(projector, role, *out, err) : ERROR_NONE;
}

/* A block whose result is a part of the rows has all that makes it. */
static enum error_code projector_count_deep(struct projector *projector, uint32_t block,
                                            struct error *err)
{
    const struct gguf_tensor *const *w = projector->blocks[block];
    const bool has = w[PROJECTOR_DEEP_NORM_W];
    for (int i = PROJECTOR_DEEP_FIRST; i < PROJECTOR_ROLES; i++) {
        if (has != (w[i] != NULL))
            return error_set(err, ERROR_INVALID,
                             "v.deepstack.%u has some of its six tensors and lacks %s", block,
                             has ? rules[i].name : rules[PROJECTOR_DEEP_FIRST].name);
    }
    projector->form.n_deep += has;
    return ERROR_NONE;
}

/* Positions learned for a square, where pictures have their own sizes. */
static enum error_code projector_find_table(struct projector *projector, struct error *err)
{
    const struct gguf_tensor *table = projector->tensors[PROJECTOR_POSITIONS];
    if (!table || projector->form.image_size)
        return ERROR_NONE;
    const double side = floor(sqrt((double)table->ne[1]) + 0.5);
    if (side > PROJECTOR_SIDE_MAX || (int64_t)side * (int64_t)side != table->ne[1])
        return error_set(err, ERROR_INVALID, "%s has %lld positions, which are no square",
                         table->name, (long long)table->ne[1]);
    projector->form.table_side = (uint32_t)side;
    return ERROR_NONE;
}

/* The dimension of a tensor that is not `beside`, of two. */
static enum error_code projector_size_beside(const struct projector *projector, const char *name,
                                             uint32_t beside, uint32_t *out, struct error *err)
{
    const struct gguf_tensor *tensor = gguf_file_find_tensor(projector->file, name);
    if (!tensor)
        return error_set(err, ERROR_INVALID, "the tensor %s is missing", name);
    const int64_t size = tensor->ne[0] == beside ? tensor->ne[1] : tensor->ne[0];
    if (size > PROJECTOR_WIDTH_MAX)
        return error_set(err, ERROR_INVALID, "%s is %lld wide; %d is possible", name,
                         (long long)size, PROJECTOR_WIDTH_MAX);
    *out = (uint32_t)size;
    return ERROR_NONE;
}

/* Converters have written zeros in the keys of these. */
static enum error_code projector_infer_sizes(struct projector *projector, struct error *err)
{
    struct projector_form *form = &projector->form;
    enum error_code code =
        form->kind == PROJECTOR_GEMMA3
            ? projector_size_beside(projector, rules[PROJECTOR_INPUT_W].name, form->n_embd,
                                    &form->n_out, err)
            : projector_size_beside(projector, rules[PROJECTOR_MERGE_2_W].name,
                                    form->n_embd * form->merge * form->merge, &form->n_out, err);
    if (!code && !form->n_ff)
        code = projector_size_beside(projector, "v.blk.0.ffn_up.weight", form->n_embd, &form->n_ff,
                                     err);
    return code;
}

enum error_code projector_find_all(struct projector *projector, struct error *err)
{
    enum error_code code = projector_infer_sizes(projector, err);
    const bool swaps = projector_swaps_ffn(projector);
    if (code)
        return code;
    projector->blocks = mem_new_array(projector->form.n_blocks, sizeof *projector->blocks);
    if (!projector->blocks)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for %u blocks' tensors",
                         projector->form.n_blocks);
    for (int i = 0; i < PROJECTOR_BLOCK_FIRST && !code; i++)
        code = projector_find(projector, (enum projector_role)i, 0, false, &projector->tensors[i],
                              err);
    if (!code)
        code = projector_find_table(projector, err);
    for (uint32_t block = 0; block < projector->form.n_blocks && !code; block++) {
        for (int i = PROJECTOR_BLOCK_FIRST; i < PROJECTOR_ROLES && !code; i++)
            code = projector_find(projector, (enum projector_role)i, block, swaps,
                                  &projector->blocks[block][i], err);
        if (!code)
            code = projector_count_deep(projector, block, err);
    }
    return code;
}
