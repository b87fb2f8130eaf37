/* Language models that see, against llama.cpp: the logits of text before and after a picture, whose
 * rows our own encoder makes; whole, with the text in chunks, and with every way to attend.
 * tests/golden/pictures says how the vectors were made. */
#include "base/mem.h"
#include "engine/picture_encoder.h"
#include "engine/stage.h"
#include "gpu/gpu.h"
#include "model/model.h"
#include "model/projector.h"
#include "pipeline/sequence.h"
#include "projector_world.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yyjson.h>

#include <cmocka.h>

enum { TOKENS_MAX = 160, CONTEXT = 256 };

struct seen_text { /* text, a picture, text */
    struct model *model;
    struct sequence sequence;
    struct request_picture picture;
    int32_t tokens[TOKENS_MAX];
    uint32_t n_before, n_rows, n_tokens, n_vocab;
    float *logits; /* of the text: [n_tokens - n_rows][n_vocab] */
};

static struct gpu *gpu;

static int open_gpu(void **state)
{
    struct gpu_options options = {.n_cpu_threads = 2};
    struct error err = {0};
    (void)state;
    if (gpu_open(&options, &gpu, &err))
        fail_msg("%s", err.text);
    return 0;
}

static int close_gpu(void **state)
{
    (void)state;
    gpu_close(gpu);
    return 0;
}

/* The rows of the first picture. */
static struct prompt_picture *encode(const struct projector *projector, yyjson_val *about)
{
    static const uint8_t digest[PICTURE_DIGEST_BYTES] = {1};
    const struct picture_encoder_options options = {.flash = FLASH_OFF};
    struct picture_encoder *encoder;
    struct prompt_picture *picture;
    struct picture_rows rows;
    struct error err = {0};
    struct picture pixels = vectors_draw(about);
    if (picture_encoder_open(projector, gpu_find(gpu, "cpu"), &options, &encoder, &err) ||
        picture_encoder_rows(encoder, &pixels, &rows, &err) ||
        prompt_picture_new(&rows, digest, &picture, &err))
        fail_msg("%s", err.text);
    picture_encoder_close(encoder);
    free(pixels.rgb);
    return picture;
}

static void read_text(struct seen_text *text, yyjson_val *tokens)
{
    size_t i, max;
    yyjson_val *token;
    assert_true(text->n_tokens + yyjson_arr_size(tokens) <= TOKENS_MAX);
    yyjson_arr_foreach(tokens, i, max, token) text->tokens[text->n_tokens++] =
        (int32_t)yyjson_get_int(token);
}

static void open_text(struct seen_text *text, const char *name)
{
    struct projector *projector;
    struct error err = {0};
    char path[512];
    *text = (struct seen_text){0};
    yyjson_doc *doc = vectors_open(name);
    yyjson_val *root = yyjson_doc_get_root(doc);
    vectors_path(path, name, ".gguf");
    assert_int_equal(projector_open(path, &projector, &err), 0);
    snprintf(path, sizeof path, "%s/%s.gguf", getenv("MEDLEY_GOLDEN"),
             yyjson_get_str(yyjson_obj_get(root, "language")));
    if (model_open(path, &text->model, &err) || projector_check_model(projector, text->model, &err))
        fail_msg("%s", err.text);
    text->picture.picture =
        encode(projector, yyjson_arr_get_first(yyjson_obj_get(root, "pictures")));
    text->n_rows = prompt_picture_rows(text->picture.picture)->n_rows;
    read_text(text, yyjson_obj_get(root, "before"));
    text->n_before = text->picture.at = text->n_tokens;
    assert_true(text->n_tokens + text->n_rows <= TOKENS_MAX);
    prompt_picture_tokens(text->picture.picture, text->tokens + text->n_tokens);
    text->n_tokens += text->n_rows;
    read_text(text, yyjson_obj_get(root, "after"));
    text->sequence.request.pictures = &text->picture;
    text->sequence.request.n_pictures = 1;
    text->sequence.has_axes = model_architecture(text->model)->axes != AXES_NONE;
    text->n_vocab = vectors_number(root, "n_vocab");
    size_t n;
    text->logits = vectors_floats(name, ".logits.f32", &n);
    assert_int_equal(n, (text->n_tokens - text->n_rows) * text->n_vocab);
    yyjson_doc_free(doc);
    projector_close(projector);
}

static void close_text(struct seen_text *text)
{
    prompt_picture_release(text->picture.picture);
    model_close(text->model);
    free(text->logits);
}

/* ---- running ---- */

struct seen_way {
    const char *name;
    enum kv_type kv;
    enum flash_mode flash;
    uint32_t chunk; /* of text, at most */
    float limit;
};

/* Tokens [first, first + n) in one batch; of text, the logits after each into `out`. */
static void run_rows(const struct seen_text *text, struct stage *stage, uint32_t first, uint32_t n,
                     float *out)
{
    struct batch_row rows[TOKENS_MAX];
    struct row_place places[TOKENS_MAX];
    struct error err = {0};
    const size_t width = stage_given_width(stage);
    float *given = malloc(TOKENS_MAX * width * sizeof *given), *next = given;
    for (uint32_t i = 0; i < n; i++) {
        const float *row = sequence_row(&text->sequence, first + i, &places[i]);
        if (row)
            memcpy(next, row, width * sizeof *row);
        next += row ? width : 0;
        rows[i] = (struct batch_row){0, first + i, text->tokens[first + i], row == NULL};
    }
    const struct batch batch = {
        .rows = rows, .n_rows = n, .given = next > given ? given : NULL, .places = places};
    if (stage_forward(stage, &batch, NULL, out, &err))
        fail_msg("%s", err.text);
    free(given);
}

static void check_seen_way(const struct seen_text *text, const char *name,
                           const struct seen_way *way)
{
    struct stage *stage;
    struct error err = {0};
    const struct stage_options options = {.n_layers = model_hyperparameters(text->model)->n_layers,
                                          .n_slots = 1,
                                          .context = CONTEXT,
                                          .rows_max = TOKENS_MAX,
                                          .kv_type = way->kv,
                                          .flash = way->flash};
    const uint32_t end = text->n_before + text->n_rows;
    const size_t n = (size_t)(text->n_tokens - text->n_rows) * text->n_vocab;
    float *got = malloc(n * sizeof *got), *next = got, largest = 0;
    if (stage_open(gpu_find(gpu, "cpu"), text->model, &options, &stage, &err))
        fail_msg("%s: %s", name, err.text);
    for (uint32_t at = 0, count; at < text->n_tokens; at += count) {
        const bool is_text = at < text->n_before || at >= end;
        const uint32_t left = (is_text ? at < end ? text->n_before : text->n_tokens : end) - at;
        count = is_text && left > way->chunk ? way->chunk : left;
        run_rows(text, stage, at, count, next);
        next += is_text ? (size_t)count * text->n_vocab : 0;
    }
    for (size_t i = 0; i < n; i++) {
        const float d = fabsf(got[i] - text->logits[i]);
        largest = d > largest || isnan(d) ? d : largest;
    }
    if (getenv("MEDLEY_GOLDEN_PRINT"))
        print_message("# %s, %s: largest difference %.3g\n", name, way->name, (double)largest);
    if (!(largest <= way->limit))
        fail_msg("%s, %s: largest difference %g", name, way->name, (double)largest);
    stage_close(stage);
    free(got);
}

static void logits_after_a_picture(void **state)
{
    static const char *const names[] = {"gemma3", "gemma3-f16", "qwen2vl", "qwen2.5vl", "qwen3vl"};
    static const struct seen_way ways[] = {
        {"ggml's attention", KV_F32, FLASH_OFF, CONTEXT, 1e-2f},
        {"own attention", KV_F32, FLASH_AUTO, CONTEXT, 1e-2f},
        {"in chunks of 3", KV_F32, FLASH_AUTO, 3, 1e-2f},
        {"F16 cache", KV_F16, FLASH_AUTO, CONTEXT, 0.1f},
    };
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct seen_text text;
        open_text(&text, names[i]);
        for (size_t k = 0; k < sizeof ways / sizeof *ways; k++)
            check_seen_way(&text, names[i], &ways[k]);
        close_text(&text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_after_a_picture),
    };
    return cmocka_run_group_tests(tests, open_gpu, close_gpu);
}
