/* A projector's keys: each wrong one is refused with its name and what it must be. Which tensors
 * follow from right ones, test_projector.c and the fuzz target try. */
#include "gguf_bytes.h"
#include "model/projector.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Zeroed: a small projector of Gemma 3's kind, right but for its tensors. */
struct keys {
    const char *architecture, *kind;
    uint32_t width, n_heads, patch, image, merge, window, every;
    float mean, std, epsilon;
    uint32_t n_colours;
    bool gelu, silu, lacks_epsilon;
};

static void write_keys(const struct keys *keys, struct gguf_bytes *out)
{
    float mean[8], std[8];
    for (int i = 0; i < 8; i++) {
        mean[i] = keys->mean;
        std[i] = keys->std != 0 ? keys->std : 0.5f;
    }
    const uint32_t n_colours = keys->n_colours ? keys->n_colours : 3;
    gguf_bytes_text(out, "general.architecture", keys->architecture ? keys->architecture : "clip");
    gguf_bytes_text(out, "clip.projector_type", keys->kind ? keys->kind : "gemma3");
    gguf_bytes_u32(out, "clip.vision.embedding_length", keys->width ? keys->width : 32);
    gguf_bytes_u32(out, "clip.vision.attention.head_count", keys->n_heads ? keys->n_heads : 2);
    gguf_bytes_u32(out, "clip.vision.feed_forward_length", 64);
    gguf_bytes_u32(out, "clip.vision.block_count", 1);
    gguf_bytes_u32(out, "clip.vision.patch_size", keys->patch ? keys->patch : 4);
    gguf_bytes_u32(out, "clip.vision.image_size", keys->image ? keys->image : 32);
    if (keys->merge)
        gguf_bytes_u32(out, "clip.vision.spatial_merge_size", keys->merge);
    if (keys->window)
        gguf_bytes_u32(out, "clip.vision.window_size", keys->window);
    gguf_bytes_u32(out, "clip.vision.n_wa_pattern", keys->every);
    if (!keys->lacks_epsilon)
        gguf_bytes_f32(out, "clip.vision.attention.layer_norm_epsilon",
                       keys->epsilon != 0 ? keys->epsilon : 1e-6f);
    gguf_bytes_array(out, "clip.vision.image_mean", GGUF_TYPE_FLOAT32, mean, n_colours,
                     sizeof *mean);
    gguf_bytes_array(out, "clip.vision.image_std", GGUF_TYPE_FLOAT32, std, 3, sizeof *std);
    gguf_bytes_bool(out, "clip.use_gelu", keys->gelu);
    gguf_bytes_bool(out, "clip.use_silu", keys->silu);
}

static void expect_refused(const struct keys *keys, enum error_code code, const char *words)
{
    struct gguf_bytes bytes = {0};
    struct gguf_file *file;
    struct projector *projector = NULL;
    struct error err = {0};
    write_keys(keys, &bytes);
    gguf_bytes_tensor(&bytes, "v.other", GGML_TYPE_F32, 1, (int64_t[]){8}, NULL);
    const struct buffer *whole = gguf_bytes_finish(&bytes);
    assert_int_equal(gguf_file_open_memory(whole->data, whole->size, &file, &err), ERROR_NONE);
    assert_int_not_equal(projector_open_file(file, &projector, &err), ERROR_NONE);
    assert_null(projector);
    if (err.code != code || !strstr(err.text, words))
        fail_msg("'%s' (%d) should say '%s' (%d)", err.text, err.code, words, code);
    gguf_bytes_deinit(&bytes);
}

static void test_keys(void **state)
{
    static const struct {
        struct keys keys;
        enum error_code code;
        const char *words;
    } refused[] = {
        {{.architecture = "llama"},
         ERROR_INVALID,
         "this is a language model (llama), not a projector"},
        {{.kind = "ldp"}, ERROR_UNSUPPORTED, "projectors of the type ldp are not supported"},
        {{.width = 1 << 30}, ERROR_INVALID, "clip.vision.embedding_length is 1073741824; it must"},
        {{.patch = 300}, ERROR_INVALID, "clip.vision.patch_size is 300; it must be from 1 to 256"},
        {{.image = 33}, ERROR_INVALID, "clip.vision.image_size is 33; it must be a multiple of"},
        {{.n_heads = 3}, ERROR_INVALID, "it must be a multiple of 1 for each of the 3 heads"},
        {{.kind = "qwen2vl_merger", .n_heads = 16},
         ERROR_INVALID,
         "it must be a multiple of 4 for each of the 16 heads"},
        {{.kind = "qwen2vl_merger", .merge = 3},
         ERROR_INVALID,
         "clip.vision.spatial_merge_size is 3; it must be from 2 to 2"},
        {{.kind = "qwen2.5vl_merger", .every = 1, .window = 7},
         ERROR_INVALID,
         "windows of 7 pixels are smaller than 2 x 2 patches of 4"},
        {{.n_colours = 4}, ERROR_INVALID, "clip.vision.image_mean must have 3 values, it has 4"},
        {{.mean = INFINITY}, ERROR_INVALID, "clip.vision.image_mean must be finite"},
        {{.std = -1}, ERROR_INVALID, "clip.vision.image_std must be above 0"},
        {{.epsilon = -1},
         ERROR_INVALID,
         "clip.vision.attention.layer_norm_epsilon must be above 0"},
        {{.lacks_epsilon = true}, ERROR_NOT_FOUND, "layer_norm_epsilon' is missing"},
        {{.gelu = true, .silu = true},
         ERROR_INVALID,
         "clip.use_gelu and clip.use_silu are both true"},
        {{0},
         ERROR_INVALID,
         "the tensor mm.input_projection.weight is missing"}, /* no key is wrong: then its tensors
                                                                 are */
    };
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        expect_refused(&refused[i].keys, refused[i].code, refused[i].words);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
