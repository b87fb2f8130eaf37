#include "base/limits.h"
#include "model/projector_private.h"

#include <math.h>
#include <string.h>

const struct projector_type projector_types[PROJECTOR_KINDS] = {
    [PROJECTOR_GEMMA3] =
        {
            .name = "gemma3",
            .before = "<start_of_image>",
            .after = "<end_of_image>",
            .families = {"gemma3"},
            .merge = 4,
            .is_whole = true,
            .is_sized = true,
        },
    [PROJECTOR_QWEN2VL] =
        {
            .name = "qwen2vl_merger",
            .before = "<|vision_start|>",
            .after = "<|vision_end|>",
            .families = {"qwen2vl"},
            .merge = 2,
            .is_rotated = true,
            .filter = PICTURE_BICUBIC,
        },
    [PROJECTOR_QWEN25VL] =
        {
            .name = "qwen2.5vl_merger",
            .before = "<|vision_start|>",
            .after = "<|vision_end|>",
            .families = {"qwen2vl"},
            .merge = 2,
            .is_rms = true,
            .is_rotated = true,
            .filter = PICTURE_BICUBIC,
        },
    [PROJECTOR_QWEN3VL] =
        {
            .name = "qwen3vl_merger",
            .before = "<|vision_start|>",
            .after = "<|vision_end|>",
            .families = {"qwen3vl", "qwen3vlmoe", "qwen35", "qwen35moe"},
            .merge = 2,
            .is_rotated = true,
            .filter = PICTURE_BICUBIC,
        },
};

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
        if (!strcmp(text, projector_types[i].name)) {
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
    if (keys->code)
        return;
    const uint32_t align = form->patch_size * form->merge;
    const uint64_t side = form->image_size / align;
    if (form->image_size % align || side * side > PROJECTOR_ROWS_MAX)
        keys->code =
            error_set(keys->err, ERROR_INVALID,
                      "clip.vision.image_size is %u; it must be a multiple of %u (patches of %u, "
                      "%u of which make a row's side) that makes %d rows at most",
                      form->image_size, align, form->patch_size, form->merge, PROJECTOR_ROWS_MAX);
}

/* Pictures of their own size: 8 to 4,096 rows, as Qwen2-VL's preprocessing has it. */
static void projector_read_range(struct projector_keys *keys, struct projector_form *form)
{
    enum { ROWS_MIN = 8 };
    const uint64_t align = (uint64_t)form->patch_size * form->merge;
    if (keys->code)
        return;
    form->image_size = 0;
    form->pixels_min = ROWS_MIN * align * align;
    form->pixels_max = PROJECTOR_ROWS_MAX * align * align;
}

/* Qwen2.5-VL (arXiv:2502.13923, 2.1.1): windows of 112 pixels on a side. */
static void projector_read_windows(struct projector_keys *keys, struct projector_form *form)
{
    enum { WINDOW_PIXELS = 112 };
    uint32_t pixels = 0;
    if (form->kind != PROJECTOR_QWEN25VL)
        return;
    projector_read_count(keys, "clip.vision.n_wa_pattern", 0, LIMIT_LAYERS, &form->full_every);
    projector_read_count_or(keys, "clip.vision.window_size", 1, PROJECTOR_SIDE_MAX, &pixels,
                            WINDOW_PIXELS);
    if (keys->code || !form->full_every)
        return;
    form->window = pixels / (form->patch_size * form->merge);
    if (!form->window)
        keys->code = error_set(keys->err, ERROR_INVALID,
                               "windows of %u pixels are smaller than %u x %u patches of %u",
                               pixels, form->merge, form->merge, form->patch_size);
}

static void projector_read_sizes(struct projector_keys *keys, struct projector_form *form)
{
    const bool is_sized = projector_types[form->kind].is_sized;
    projector_read_count(keys, "clip.vision.embedding_length", 1, PROJECTOR_WIDTH_MAX,
                         &form->n_embd);
    projector_read_count(keys, "clip.vision.attention.head_count", 1, PROJECTOR_WIDTH_MAX,
                         &form->n_head);
    projector_read_count(keys, "clip.vision.feed_forward_length", 0, PROJECTOR_WIDTH_MAX,
                         &form->n_ff);
    projector_read_count(keys, "clip.vision.block_count", 1, LIMIT_LAYERS, &form->n_blocks);
    projector_read_count(keys, "clip.vision.patch_size", 1, 256, &form->patch_size);
    if (is_sized) {
        projector_read_count(keys, "clip.vision.image_size", 1, PROJECTOR_SIDE_MAX,
                             &form->image_size);
        projector_read_count_or(keys, "clip.vision.projector.scale_factor", 1, 16, &form->merge,
                                projector_types[form->kind].merge);
        projector_check_size(keys, form);
    } else { /* 2 x 2 is the only merge that there is */
        projector_read_count_or(keys, "clip.vision.spatial_merge_size", 2, 2, &form->merge,
                                projector_types[form->kind].merge);
        projector_read_range(keys, form);
        projector_read_windows(keys, form);
    }
}

/* Rotations by line and column turn quarters of a head. */
static void projector_check_heads(struct projector_keys *keys, const struct projector_form *form)
{
    const uint32_t of_head = form->is_rotated ? 4 : 1;
    if (!keys->code && form->n_embd % (form->n_head * of_head))
        keys->code = error_set(keys->err, ERROR_INVALID,
                               "clip.vision.embedding_length is %u; it must be a multiple of %u "
                               "for each of the %u heads",
                               form->n_embd, of_head, form->n_head);
}

enum error_code projector_read_form(const struct gguf_file *file, struct projector_form *form,
                                    struct error *err)
{
    struct projector_keys keys = {file, err, projector_read_kind(file, form, err)};
    form->is_rms = projector_types[form->kind].is_rms;
    form->is_rotated = projector_types[form->kind].is_rotated;
    form->filter = projector_types[form->kind].filter;
    projector_read_sizes(&keys, form);
    if (!keys.code)
        keys.code =
            gguf_file_f32(file, "clip.vision.attention.layer_norm_epsilon", &form->epsilon, err);
    projector_read_colours(&keys, "clip.vision.image_mean", form->mean, false);
    projector_read_colours(&keys, "clip.vision.image_std", form->std, true);
    projector_read_activation(&keys, form);
    projector_check_heads(&keys, form);
    if (!keys.code && !(form->epsilon > 0))
        keys.code = error_set(err, ERROR_INVALID,
                              "clip.vision.attention.layer_norm_epsilon must be above 0");
    return keys.code;
}
