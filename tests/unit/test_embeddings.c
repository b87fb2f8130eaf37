/* Encoders, embedding models and rerankers against llama.cpp: the hidden states of every token and
 * the scores of pairs, alone and beside other texts, split over stages, with every way to attend;
 * and the tokens of their vocabularies. tests/golden/embeddings says how the vectors were made. */
#include "base/mem.h"
#include "engine/stage.h"
#include "gpu/gpu.h"
#include "model/gguf_file.h"
#include "model/model.h"
#include "model/tokenizer.h"

#include <dirent.h>
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

enum { MODELS_MAX = 16, TEXTS_MAX = 4, TOKENS_MAX = 128, STAGES_MAX = 2, CONTEXT = 128 };

struct text {
    int32_t tokens[TOKENS_MAX];
    uint32_t n_tokens;
    float *rows; /* [n_tokens][n_embd]; NULL: a pair with a score */
    double score;
};

struct vectors {
    char name[64];
    struct model *model;
    struct tokenizer *tokenizer;
    yyjson_doc *doc;
    uint32_t n_embd, n_texts;
    struct text texts[TEXTS_MAX];
};

static struct vectors all[MODELS_MAX];
static uint32_t n_all;
static struct gpu *gpu;

static uint32_t read_ids(yyjson_val *array, int32_t *out)
{
    size_t i, max;
    yyjson_val *value;
    assert_true(yyjson_arr_size(array) <= TOKENS_MAX);
    yyjson_arr_foreach(array, i, max, value) out[i] = (int32_t)yyjson_get_int(value);
    return (uint32_t)yyjson_arr_size(array);
}

static void read_rows(struct vectors *v, struct text *text, yyjson_val *rows)
{
    size_t i, k, max, max_values;
    yyjson_val *row, *value;
    assert_int_equal(yyjson_arr_size(rows), text->n_tokens);
    text->rows = malloc((size_t)text->n_tokens * v->n_embd * sizeof(float));
    yyjson_arr_foreach(rows, i, max, row)
    {
        assert_int_equal(yyjson_arr_size(row), v->n_embd);
        yyjson_arr_foreach(row, k, max_values, value) text->rows[i * v->n_embd + k] =
            (float)yyjson_get_num(value);
    }
}

static void read_pairs(struct vectors *v, yyjson_val *rank)
{
    size_t i, max;
    yyjson_val *value;
    yyjson_arr_foreach(yyjson_obj_get(rank, "tokens"), i, max, value)
    {
        struct text *text = &v->texts[v->n_texts++];
        text->n_tokens = read_ids(value, text->tokens);
        text->score = yyjson_get_num(yyjson_arr_get(yyjson_obj_get(rank, "scores"), i));
    }
}

static void load_vectors(const char *folder, const char *name)
{
    struct vectors *v = &all[n_all++];
    char path[512];
    struct error err = {0};
    snprintf(v->name, sizeof v->name, "%s", name);
    snprintf(path, sizeof path, "%s/%s.gguf", folder, name);
    if (model_open(path, &v->model, &err) ||
        tokenizer_open(model_file(v->model), &v->tokenizer, &err))
        fail_msg("%s: %s", name, err.text);
    v->n_embd = model_hyperparameters(v->model)->n_embd;
    snprintf(path, sizeof path, "%s/%s.json", folder, name);
    v->doc = yyjson_read_file(path, 0, NULL, NULL);
    assert_non_null(v->doc);
    yyjson_val *root = yyjson_doc_get_root(v->doc), *rank = yyjson_obj_get(root, "rank"), *item;
    size_t i, max;
    if (rank) {
        read_pairs(v, rank);
        return;
    }
    yyjson_arr_foreach(yyjson_obj_get(root, "texts"), i, max, item)
    {
        struct text *text = &v->texts[v->n_texts++];
        text->n_tokens = read_ids(yyjson_obj_get(item, "tokens"), text->tokens);
        read_rows(v, text, yyjson_obj_get(item, "rows"));
    }
}

static int load_all(void **state)
{
    (void)state;
    char folder[512];
    struct error err = {0};
    struct gpu_options options = {.n_cpu_threads = 2};
    snprintf(folder, sizeof folder, "%s/embeddings/models", getenv("MEDLEY_GOLDEN"));
    if (gpu_open(&options, &gpu, &err))
        fail_msg("%s", err.text);
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));) {
        char *dot = strstr(entry->d_name, ".json");
        if (dot && n_all < MODELS_MAX) {
            *dot = '\0';
            load_vectors(folder, entry->d_name);
        }
    }
    closedir(dir);
    assert_int_equal(n_all, 10); /* so that none is lost unseen */
    return 0;
}

static int unload_all(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < n_all; i++) {
        for (uint32_t k = 0; k < all[i].n_texts; k++)
            free(all[i].texts[k].rows);
        yyjson_doc_free(all[i].doc);
        tokenizer_close(all[i].tokenizer);
        model_close(all[i].model);
    }
    gpu_close(gpu);
    return 0;
}

/* ---- running ---- */

struct way {
    const char *name, *device;
    uint32_t n_stages;
    enum kv_type kv;
    enum flash_mode flash;
    bool together; /* all texts in one batch */
    bool exact;
};

static void open_stages(const struct vectors *v, const struct way *way, struct stage **stages)
{
    const uint32_t n_layers = model_hyperparameters(v->model)->n_layers;
    struct error err = {0};
    for (uint32_t i = 0; i < way->n_stages; i++) {
        struct stage_options options = {.first_layer = i * n_layers / way->n_stages,
                                        .n_layers = n_layers / way->n_stages,
                                        .n_slots = TEXTS_MAX,
                                        .context = CONTEXT,
                                        .rows_max = TEXTS_MAX * TOKENS_MAX,
                                        .kv_type = way->kv,
                                        .flash = way->flash};
        if (stage_open(gpu_find(gpu, way->device), v->model, &options, &stages[i], &err))
            fail_msg("%s, %s: %s", v->name, way->name, err.text);
    }
}

static void run_texts(const struct vectors *v, const struct way *way, struct stage **stages,
                      uint32_t first, uint32_t n, float *out)
{
    static struct batch_row rows[TEXTS_MAX * TOKENS_MAX];
    struct batch batch = {.rows = rows, .embeddings = true};
    struct error err = {0};
    for (uint32_t i = first; i < first + n; i++) {
        for (uint32_t k = 0; k < v->texts[i].n_tokens; k++)
            rows[batch.n_rows++] = (struct batch_row){i, k, v->texts[i].tokens[k], true};
    }
    float *hidden = malloc((size_t)batch.n_rows * v->n_embd * sizeof *hidden);
    for (uint32_t i = 0; i < way->n_stages; i++) {
        const bool last = i + 1 == way->n_stages;
        if (stage_forward(stages[i], &batch, i ? hidden : NULL, last ? out : hidden, &err))
            fail_msg("%s, %s: %s", v->name, way->name, err.text);
    }
    free(hidden);
}

/* Largest difference of a value; hidden states and scores are about 1. */
static double difference(const struct vectors *v, uint32_t index, const float *got)
{
    const struct text *text = &v->texts[index];
    const bool causal = !model_hyperparameters(v->model)->reads_whole;
    double max = 0;
    if (!text->rows)
        return fabs((double)got[causal ? (size_t)(text->n_tokens - 1) * v->n_embd : 0] -
                    text->score);
    for (size_t i = 0; i < (size_t)text->n_tokens * v->n_embd; i++) {
        const double d = fabs((double)got[i] - (double)text->rows[i]);
        max = d > max || isnan(d) ? d : max;
    }
    return max;
}

static void check_way(const struct vectors *v, const struct way *way)
{
    struct stage *stages[STAGES_MAX];
    static float out[TEXTS_MAX * TOKENS_MAX * 64];
    open_stages(v, way, stages);
    uint32_t at = 0;
    if (way->together)
        run_texts(v, way, stages, 0, v->n_texts, out);
    for (uint32_t i = 0; i < v->n_texts; i++) {
        if (!way->together)
            run_texts(v, way, stages, i, 1, out);
        const double max = difference(v, i, out + (way->together ? (size_t)at * v->n_embd : 0));
        /* as in the other golden sets: GELU is a table in ggml */
        const bool gelu = model_architecture(v->model)->activation == ACT_GELU;
        const double limit = !way->exact ? 0.05 : gelu ? 1e-2 : 1e-3;
        if (getenv("MEDLEY_GOLDEN_PRINT"))
            fprintf(stderr, "%-20s %-24s %u max %.2e\n", v->name, way->name, i, max);
        if (!(max <= limit))
            fail_msg("%s, %s: text %u is off by %.3g (limit %.3g)", v->name, way->name, i, max,
                     limit);
        at += v->texts[i].n_tokens;
    }
    for (uint32_t i = 0; i < way->n_stages; i++)
        stage_close(stages[i]);
}

/* Software Vulkan compiles shaders for minutes: three models stand for all there, unless
 * MEDLEY_GOLDEN_ALL is set. */
static bool is_wanted(const struct vectors *v, const struct way *way)
{
    return strcmp(way->device, "cpu") == 0 || getenv("MEDLEY_GOLDEN_ALL") ||
           strcmp(v->name, "bert") == 0 || strcmp(v->name, "bert-xlmr-rank") == 0 ||
           strcmp(v->name, "jina-bert-v2") == 0;
}

static void check_all(void **state)
{
    const struct way *way = *state;
    if (!gpu_find(gpu, way->device))
        fail_msg("no device %s here", way->device);
    for (uint32_t i = 0; i < n_all; i++) {
        if (is_wanted(&all[i], way))
            check_way(&all[i], way);
    }
}

/* ---- what a text must not be cut into ---- */

static void refuses_a_rest(void **state)
{
    (void)state;
    const struct way way = {.name = "rest", .device = "cpu", .n_stages = 1, .kv = KV_F32};
    for (uint32_t i = 0; i < n_all; i++) {
        const struct vectors *v = &all[i];
        struct stage *stage;
        float out[64];
        struct error err = {0};
        const bool whole = model_hyperparameters(v->model)->reads_whole;
        open_stages(v, &way, &stage);
        assert_int_equal(stage_reads_whole(stage), whole);
        for (uint32_t position = 0; position < 2; position++) {
            struct batch_row row = {0, position, v->texts[0].tokens[0], true};
            struct batch batch = {&row, 1, true};
            assert_int_equal(stage_forward(stage, &batch, NULL, out, &err),
                             whole && position ? ERROR_INVALID : ERROR_NONE);
        }
        stage_close(stage);
    }
}

/* ---- tokens ---- */

static void check_tokens(const struct vectors *v, yyjson_val *item)
{
    yyjson_val *text = yyjson_obj_get(item, "text"), *ids = yyjson_obj_get(item, "ids");
    struct token_list got = {0};
    struct error err = {0};
    if (tokenizer_encode(v->tokenizer, yyjson_get_str(text), yyjson_get_len(text),
                         TOKENIZE_ADD_SPECIAL, &got, &err))
        fail_msg("%s: %s", v->name, err.text);
    bool same = got.count == yyjson_arr_size(ids);
    for (size_t i = 0; i < got.count && same; i++)
        same = got.ids[i] == (int32_t)yyjson_get_int(yyjson_arr_get(ids, i));
    for (size_t i = 0; i < got.count && !same; i++)
        fprintf(stderr, " %d", got.ids[i]);
    if (!same)
        fail_msg("%s: other tokens of '%s'", v->name, yyjson_get_str(text));
    token_list_deinit(&got);
}

static void tokens_are_the_reference_s(void **state)
{
    (void)state;
    for (uint32_t m = 0; m < n_all; m++) {
        yyjson_val *root = yyjson_doc_get_root(all[m].doc), *item;
        size_t i, max;
        yyjson_arr_foreach(yyjson_obj_get(root, "strings"), i, max, item)
            check_tokens(&all[m], item);
    }
}

#define CASE(label, ...)                                                                           \
    {                                                                                              \
        .name = label, .test_func = check_all, .initial_state = &(struct way)                      \
        {                                                                                          \
            .name = label, __VA_ARGS__                                                             \
        }                                                                                          \
    }

int main(int argc, char **argv)
{
    (void)argv;
    const struct CMUnitTest cpu[] = {
        CASE("alone", .device = "cpu", .n_stages = 1, .kv = KV_F32, .flash = FLASH_OFF,
             .exact = true),
        CASE("together", .device = "cpu", .n_stages = 1, .kv = KV_F32, .flash = FLASH_OFF,
             .together = true, .exact = true),
        CASE("two stages", .device = "cpu", .n_stages = 2, .kv = KV_F32, .flash = FLASH_OFF,
             .together = true, .exact = true),
        CASE("flash attention", .device = "cpu", .n_stages = 1, .kv = KV_F32, .flash = FLASH_ON,
             .together = true),
        CASE("f16 cache, flash", .device = "cpu", .n_stages = 2, .kv = KV_F16, .flash = FLASH_AUTO,
             .together = true),
        CASE("f16 cache, no flash", .device = "cpu", .n_stages = 1, .kv = KV_F16,
             .flash = FLASH_OFF),
        cmocka_unit_test(refuses_a_rest),
        cmocka_unit_test(tokens_are_the_reference_s),
    };
    const struct CMUnitTest vulkan[] = {
        CASE("vulkan", .device = "vulkan0", .n_stages = 2, .kv = KV_F16, .flash = FLASH_AUTO,
             .together = true),
    };
    /* with an argument: the GPU path, on software Vulkan */
    return argc > 1 ? cmocka_run_group_tests(vulkan, load_all, unload_all)
                    : cmocka_run_group_tests(cpu, load_all, unload_all);
}
