#include "model/projector.h"

#include "base/limits.h"
#include "base/mem.h"
#include "model/model.h"
#include "model/picture_fit.h"

#include <ggml.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PROJECTOR_WIDTH_MAX = 1 << 16, PROJECTOR_SIDE_MAX = 4096, PROJECTOR_ROWS_MAX = 4096 };

struct projector {
    struct gguf_file *file;
    struct projector_form form;
    const struct gguf_tensor *tensors[PROJECTOR_BLOCK_FIRST];
    const struct gguf_tensor *(*blocks)[PROJECTOR_ROLES]; /* [n_blocks] */
};

/* ---- kinds ---------------------------------------------------------------------------------- */

static const struct projector_type {
    const char *name; /* clip.projector_type */
    const char *before, *after;
    const char *families[4]; /* of language models that its rows are made for */
    uint32_t merge;          /* where the file does not say */
    bool is_whole;
} types[PROJECTOR_KINDS] = {
    [PROJECTOR_GEMMA3] = {"gemma3", "<start_of_image>", "<end_of_image>", {"gemma3"}, 4, true},
};

enum {
    GEMMA3 = 1 << PROJECTOR_GEMMA3,
};

/* ---- tensors -------------------------------------------------------------------------------- */

enum projector_size {
    SIZE_NONE, /* no such dimension: 1 */
    SIZE_EMBD,
    SIZE_FF,
    SIZE_OUT,
    SIZE_PATCH, /* a patch's side */
    SIZE_COLOURS,
    SIZE_TABLE, /* patches of a picture of image_size */
};

/* What a tensor's numbers are used for, and so which types it may have. */
enum projector_use { USE_MATRIX, USE_PLAIN, USE_VECTOR };

static const struct projector_tensor_rule {
    const char *name; /* of one of a block: behind "v.blk.N." */
    enum projector_size size[4];
    enum projector_use use;
    unsigned required, optional; /* kinds */
} rules[PROJECTOR_ROLES] = {
    [PROJECTOR_PATCHES] = {"v.patch_embd.weight",
                           {SIZE_PATCH, SIZE_PATCH, SIZE_COLOURS, SIZE_EMBD},
                           USE_PLAIN,
                           GEMMA3,
                           0},
    [PROJECTOR_PATCHES_B] = {"v.patch_embd.bias", {SIZE_EMBD}, USE_VECTOR, GEMMA3, 0},
    [PROJECTOR_POSITIONS] =
        {"v.position_embd.weight", {SIZE_EMBD, SIZE_TABLE}, USE_PLAIN, GEMMA3, 0},
    [PROJECTOR_POST_NORM_W] = {"v.post_ln.weight", {SIZE_EMBD}, USE_VECTOR, 0, GEMMA3},
    [PROJECTOR_POST_NORM_B] = {"v.post_ln.bias", {SIZE_EMBD}, USE_VECTOR, 0, GEMMA3},
    [PROJECTOR_SOFT_NORM_W] = {"mm.soft_emb_norm.weight", {SIZE_EMBD}, USE_VECTOR, GEMMA3, 0},
    [PROJECTOR_INPUT_W] =
        {"mm.input_projection.weight", {SIZE_OUT, SIZE_EMBD}, USE_PLAIN, GEMMA3, 0},
    [PROJECTOR_NORM_1_W] = {"ln1.weight", {SIZE_EMBD}, USE_VECTOR, GEMMA3, 0},
    [PROJECTOR_NORM_1_B] = {"ln1.bias", {SIZE_EMBD}, USE_VECTOR, 0, GEMMA3},
    [PROJECTOR_NORM_2_W] = {"ln2.weight", {SIZE_EMBD}, USE_VECTOR, GEMMA3, 0},
    [PROJECTOR_NORM_2_B] = {"ln2.bias", {SIZE_EMBD}, USE_VECTOR, 0, GEMMA3},
    [PROJECTOR_Q_W] = {"attn_q.weight", {SIZE_EMBD, SIZE_EMBD}, USE_MATRIX, GEMMA3, 0},
    [PROJECTOR_Q_B] = {"attn_q.bias", {SIZE_EMBD}, USE_VECTOR, 0, GEMMA3},
    [PROJECTOR_K_W] = {"attn_k.weight", {SIZE_EMBD, SIZE_EMBD}, USE_MATRIX, GEMMA3, 0},
    [PROJECTOR_K_B] = {"attn_k.bias", {SIZE_EMBD}, USE_VECTOR, 0, GEMMA3},
    [PROJECTOR_V_W] = {"attn_v.weight", {SIZE_EMBD, SIZE_EMBD}, USE_MATRIX, GEMMA3, 0},
    [PROJECTOR_V_B] = {"attn_v.bias", {SIZE_EMBD}, USE_VECTOR, 0, GEMMA3},
    [PROJECTOR_OUT_W] = {"attn_out.weight", {SIZE_EMBD, SIZE_EMBD}, USE_MATRIX, GEMMA3, 0},
    [PROJECTOR_OUT_B] = {"attn_out.bias", {SIZE_EMBD}, USE_VECTOR, 0, GEMMA3},
    [PROJECTOR_UP_W] = {"ffn_up.weight", {SIZE_EMBD, SIZE_FF}, USE_MATRIX, GEMMA3, 0},
    [PROJECTOR_UP_B] = {"ffn_up.bias", {SIZE_FF}, USE_VECTOR, 0, GEMMA3},
    [PROJECTOR_DOWN_W] = {"ffn_down.weight", {SIZE_FF, SIZE_EMBD}, USE_MATRIX, GEMMA3, 0},
    [PROJECTOR_DOWN_B] = {"ffn_down.bias", {SIZE_EMBD}, USE_VECTOR, 0, GEMMA3},
};

/* 0: any. */
static int64_t projector_size_of(const struct projector_form *form, enum projector_size size)
{
    const int64_t side = form->patch_size ? form->image_size / form->patch_size : 0;
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
    else
        snprintf(name, sizeof name, "v.blk.%u.%s", block, named);
    *out = gguf_file_find_tensor(projector->file, name);
    if (!*out && rule->required & kind)
        return error_set(err, ERROR_INVALID, "the tensor %s is missing", name);
    return *out ? projector_check_tensor(projector, role, *out, err) : ERROR_NONE;
}

static enum error_code projector_find_all(struct projector *projector, struct error *err)
{
    const bool swaps = projector_swaps_ffn(projector);
    enum error_code code = ERROR_NONE;
    projector->blocks = mem_new_array(projector->form.n_blocks, sizeof *projector->blocks);
    if (!projector->blocks)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for %u blocks' tensors",
                         projector->form.n_blocks);
    for (int i = 0; i < PROJECTOR_BLOCK_FIRST && !code; i++)
        code = projector_find(projector, (enum projector_role)i, 0, false, &projector->tensors[i],
                              err);
    for (uint32_t block = 0; block < projector->form.n_blocks; block++) {
        for (int i = PROJECTOR_BLOCK_FIRST; i < PROJECTOR_ROLES && !code; i++)
            code = projector_find(projector, (enum projector_role)i, block, swaps,
                                  &projector->blocks[block][i], err);
    }
    return code;
}

/* ---- keys ----------------------------------------------------------------------------------- */

struct projector_keys { /* the first failure sticks */
    const struct gguf_file *file;
    struct error *err;
    enum error_code code;
};

static void projector_read_count(struct projector_keys *keys, const char *key, uint32_t min,
                                 uint32_t max, uint32_t *out)
{
    if (!keys->code)
        keys->code = gguf_file_u32(keys->file, key, out, keys->err);
    if (!keys->code && (*out < min || *out > max))
        keys->code = error_set(keys->err, ERROR_INVALID, "%s is %u; it must be from %u to %u", key,
                               *out, min, max);
}

static void projector_read_count_or(struct projector_keys *keys, const char *key, uint32_t min,
                                    uint32_t max, uint32_t *out, uint32_t otherwise)
{
    *out = otherwise;
    if (gguf_file_has(keys->file, key))
        projector_read_count(keys, key, min, max, out);
}

static void projector_read_colours(struct projector_keys *keys, const char *key, float out[3],
                                   bool is_divisor)
{
    uint64_t length = 0;
    if (!keys->code)
        keys->code = gguf_file_array(keys->file, key, GGUF_ARRAY_F32, &length, keys->err);
    if (!keys->code && length != 3)
        keys->code = error_set(keys->err, ERROR_INVALID, "%s must have 3 values, it has %llu", key,
                               (unsigned long long)length);
    for (uint64_t i = 0; i < 3 && !keys->code; i++) {
        out[i] = gguf_file_array_f32(keys->file, key, i);
        if (!isfinite(out[i]) || (is_divisor && !(out[i] > 0)))
            keys->code = error_set(keys->err, ERROR_INVALID, "%s must be %s", key,
                                   is_divisor ? "above 0" : "finite");
    }
}

static bool projector_read_flag(struct projector_keys *keys, const char *key)
{
    bool value = false;
    if (!keys->code && gguf_file_has(keys->file, key))
        keys->code = gguf_file_bool(keys->file, key, &value, keys->err);
    return value;
}

/* What an encoder's feed-forward does where the file says nothing is the reference's choice. */
static void projector_read_activation(struct projector_keys *keys, struct projector_form *form)
{
    const bool gelu = projector_read_flag(keys, "clip.use_gelu"),
               silu = projector_read_flag(keys, "clip.use_silu");
    if (!keys->code && gelu && silu)
        keys->code =
            error_set(keys->err, ERROR_INVALID, "clip.use_gelu and clip.use_silu are both true");
    form->activation = gelu ? PROJECTOR_GELU : silu ? PROJECTOR_SILU : PROJECTOR_GELU_QUICK;
}

static enum error_code projector_read_text(const struct gguf_file *file, const char *key,
                                           const char **out, struct error *err)
{
    size_t size;
    return gguf_file_text(file, key, out, &size, err);
}

static enum error_code projector_read_kind(const struct gguf_file *file,
                                           struct projector_form *form, struct error *err)
{
    const char *text = NULL, *key = "clip.projector_type";
    enum error_code code = projector_read_text(file, "general.architecture", &text, err);
    if (!code && strcmp(text, "clip"))
        return error_set(err, ERROR_INVALID,
                         "this is a language model (%s), not a projector: a projector's file is "
                         "mostly named mmproj-…",
                         text);
    if (!code && !gguf_file_has(file, key)) /* a file with encoders of pictures and of sound */
        key = "clip.vision.projector_type";
    if (!code)
        code = projector_read_text(file, key, &text, err);
    if (code)
        return code;
    for (int i = 0; i < PROJECTOR_KINDS; i++) {
        if (!strcmp(text, types[i].name)) {
            form->kind = (enum projector_kind)i;
            return ERROR_NONE;
        }
    }
    return error_set(err, ERROR_UNSUPPORTED,
                     "projectors of the type %.60s are not supported; docs/models.md lists those "
                     "that are",
                     text);
}

/* A picture of one size: as many patches as there are positions, in whole rows. */
static void projector_check_size(struct projector_keys *keys, const struct projector_form *form)
{
    const uint32_t align = form->patch_size * form->merge;
    if (keys->code || !form->image_size)
        return;
    const uint64_t side = form->image_size / align;
    if (form->image_size % align || side * side > PROJECTOR_ROWS_MAX)
        keys->code =
            error_set(keys->err, ERROR_INVALID,
                      "clip.vision.image_size is %u; it must be a multiple of %u (patches of %u, "
                      "%u of which make a row's side) that makes %d rows at most",
                      form->image_size, align, form->patch_size, form->merge, PROJECTOR_ROWS_MAX);
}

static enum error_code projector_read_form(const struct gguf_file *file,
                                           struct projector_form *form, struct error *err)
{
    struct projector_keys keys = {file, err, projector_read_kind(file, form, err)};
    projector_read_count(&keys, "clip.vision.embedding_length", 1, PROJECTOR_WIDTH_MAX,
                         &form->n_embd);
    projector_read_count(&keys, "clip.vision.attention.head_count", 1, PROJECTOR_WIDTH_MAX,
                         &form->n_head);
    projector_read_count(&keys, "clip.vision.feed_forward_length", 1, PROJECTOR_WIDTH_MAX,
                         &form->n_ff);
    projector_read_count(&keys, "clip.vision.block_count", 1, LIMIT_LAYERS, &form->n_blocks);
    projector_read_count(&keys, "clip.vision.projection_dim", 1, PROJECTOR_WIDTH_MAX, &form->n_out);
    projector_read_count(&keys, "clip.vision.patch_size", 1, 256, &form->patch_size);
    projector_read_count(&keys, "clip.vision.image_size", 1, PROJECTOR_SIDE_MAX, &form->image_size);
    projector_read_count_or(&keys, "clip.vision.projector.scale_factor", 1, 16, &form->merge,
                            types[form->kind].merge);
    if (!keys.code)
        keys.code =
            gguf_file_f32(file, "clip.vision.attention.layer_norm_epsilon", &form->epsilon, err);
    projector_read_colours(&keys, "clip.vision.image_mean", form->mean, false);
    projector_read_colours(&keys, "clip.vision.image_std", form->std, true);
    projector_read_activation(&keys, form);
    if (!keys.code && form->n_embd % form->n_head)
        keys.code = error_set(err, ERROR_INVALID,
                              "clip.vision.embedding_length is %u; it must be a multiple of the %u "
                              "heads",
                              form->n_embd, form->n_head);
    if (!keys.code && !(form->epsilon > 0))
        keys.code = error_set(err, ERROR_INVALID,
                              "clip.vision.attention.layer_norm_epsilon must be above 0");
    projector_check_size(&keys, form);
    return keys.code;
}

/* ---- opening -------------------------------------------------------------------------------- */

enum error_code projector_open_file(struct gguf_file *file, struct projector **out,
                                    struct error *err)
{
    struct projector *projector = mem_new(sizeof *projector);
    if (!projector) {
        gguf_file_close(file);
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for a projector");
    }
    projector->file = file;
    enum error_code code = projector_read_form(file, &projector->form, err);
    if (!code)
        code = projector_find_all(projector, err);
    if (!code) {
        *out = projector;
        return ERROR_NONE;
    }
    if (err)
        error_wrap(err, "%s", gguf_file_path(file));
    projector_close(projector);
    return code;
}

enum error_code projector_open(const char *path, struct projector **out, struct error *err)
{
    struct gguf_file *file;
    enum error_code code = gguf_file_open(path, &file, err);
    return code ? code : projector_open_file(file, out, err);
}

void projector_close(struct projector *projector)
{
    if (!projector)
        return;
    mem_free(projector->blocks);
    gguf_file_close(projector->file);
    mem_free(projector);
}

/* ---- what is asked of it -------------------------------------------------------------------- */

const struct gguf_file *projector_file(const struct projector *projector)
{
    return projector->file;
}

const struct projector_form *projector_form(const struct projector *projector)
{
    return &projector->form;
}

const char *projector_kind_name(const struct projector *projector)
{
    return types[projector->form.kind].name;
}

const struct gguf_tensor *projector_tensor(const struct projector *projector,
                                           enum projector_role role, uint32_t block)
{
    return role < PROJECTOR_BLOCK_FIRST ? projector->tensors[role] : projector->blocks[block][role];
}

uint64_t projector_weight_bytes(const struct projector *projector)
{
    uint64_t bytes = 0;
    for (int i = 0; i < PROJECTOR_BLOCK_FIRST; i++)
        bytes += projector->tensors[i] ? projector->tensors[i]->size : 0;
    for (uint32_t block = 0; block < projector->form.n_blocks; block++) {
        for (int i = PROJECTOR_BLOCK_FIRST; i < PROJECTOR_ROLES; i++)
            bytes += projector->blocks[block][i] ? projector->blocks[block][i]->size : 0;
    }
    return bytes;
}

const char *projector_text_before(const struct projector *projector)
{
    return types[projector->form.kind].before;
}

const char *projector_text_after(const struct projector *projector)
{
    return types[projector->form.kind].after;
}

enum error_code projector_check_model(const struct projector *projector, const struct model *model,
                                      struct error *err)
{
    const struct projector_type *type = &types[projector->form.kind];
    const char *family = model_architecture(model)->name;
    const uint32_t n_embd = model_hyperparameters(model)->n_embd;
    bool is_made_for = false;
    for (size_t i = 0; i < sizeof type->families / sizeof *type->families; i++)
        is_made_for |= type->families[i] && !strcmp(type->families[i], family);
    if (!is_made_for)
        return error_set(err, ERROR_INVALID,
                         "the projector %s is of the type %s, and %s is a %s model: a projector "
                         "goes with the model it was made for",
                         gguf_file_path(projector->file), type->name, model_name(model), family);
    if (projector->form.n_out != n_embd)
        return error_set(err, ERROR_INVALID,
                         "the projector %s makes rows of %u numbers, and %s takes %u: a projector "
                         "goes with the model it was made for",
                         gguf_file_path(projector->file), projector->form.n_out, model_name(model),
                         n_embd);
    return ERROR_NONE;
}

enum error_code projector_rows(const struct projector *projector, uint32_t width, uint32_t height,
                               struct projector_rows *out, struct error *err)
{
    struct picture_grid grid;
    const enum error_code code = picture_grid_make(&projector->form, width, height, &grid, err);
    if (code)
        return code;
    *out = (struct projector_rows){
        .n_rows = picture_grid_row_count(&projector->form, &grid),
        .width = projector->form.n_out,
        .is_whole = types[projector->form.kind].is_whole,
    };
    return ERROR_NONE;
}

uint32_t projector_rows_max(const struct projector *projector)
{
    struct picture_grid grid;
    picture_grid_largest(&projector->form, &grid);
    return picture_grid_row_count(&projector->form, &grid);
}

void projector_limit_rows(struct projector *projector, uint32_t n_rows)
{
    struct projector_form *form = &projector->form;
    const uint64_t of_row =
        (uint64_t)form->patch_size * form->patch_size * form->merge * form->merge;
    if (form->image_size || n_rows < 1 || n_rows * of_row >= form->pixels_max)
        return;
    form->pixels_max = n_rows * of_row;
    if (form->pixels_min > form->pixels_max)
        form->pixels_min = form->pixels_max;
}
