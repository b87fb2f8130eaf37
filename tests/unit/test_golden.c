/* The engine against the golden set: every model's reference logits, by every way of
 * running it: whole, in chunks, token by token, split over stages, with other sequences
 * beside it, with flash attention and each KV type. Tolerances are the golden README's. */
#include "base/mem.h"
#include "engine/stage.h"
#include "gpu/gpu.h"
#include "model/model.h"

#include <dirent.h>
#include <ggml.h>
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

enum { GOLDEN_MAX = 128, STAGES_MAX = 4, POSITIONS_MAX = 1024, CROWD_ROWS = 3 };

struct golden {
    char name[64];
    struct model *model;
    uint32_t context, n_prompt, n_pos, n_vocab;
    int32_t tokens[POSITIONS_MAX]; /* prompt, then the greedy tokens that were fed back */
    int32_t expected[64];          /* argmax after each fed position from the last prompt one on */
    float *logits;                 /* [n_pos][n_vocab] */
    bool flash;                    /* the reference ran with flash attention */
    double max_other, rms_other;   /* limits of other arithmetic than the reference's; 0: usual */
};

static struct golden golden[GOLDEN_MAX];
static uint32_t n_golden;
static struct gpu *gpu;

static yyjson_doc *read_json(const char *folder, const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/models/%s.json", folder, name);
    return yyjson_read_file(path, 0, NULL, NULL);
}

static uint32_t read_ids(yyjson_val *array, int32_t *out)
{
    size_t i, max;
    yyjson_val *value;
    yyjson_arr_foreach(array, i, max, value) out[i] = (int32_t)yyjson_get_int(value);
    return (uint32_t)yyjson_arr_size(array);
}

static void load_golden(const char *folder, const char *name)
{
    struct golden *g = &golden[n_golden++];
    char path[512];
    struct error err = {0};
    snprintf(g->name, sizeof g->name, "%s", name);
    yyjson_doc *doc = read_json(folder, name);
    assert_non_null(doc);
    yyjson_val *root = yyjson_doc_get_root(doc);
    g->n_vocab = (uint32_t)yyjson_get_int(yyjson_obj_get(root, "n_vocab"));
    g->n_pos = (uint32_t)yyjson_get_int(yyjson_obj_get(root, "n_pos"));
    g->context =
        (uint32_t)yyjson_get_int(yyjson_obj_get(yyjson_obj_get(root, "settings"), "n_ctx"));
    g->flash = yyjson_get_bool(yyjson_obj_get(yyjson_obj_get(root, "settings"), "flash_attn"));
    g->n_prompt = read_ids(yyjson_obj_get(root, "prompt"), g->tokens);
    uint32_t n_greedy = read_ids(yyjson_obj_get(root, "greedy"), g->tokens + g->n_prompt);
    memcpy(g->expected, g->tokens + g->n_prompt, n_greedy * sizeof g->expected[0]);
    g->expected[n_greedy] = (int32_t)yyjson_get_int(yyjson_obj_get(root, "next"));
    assert_int_equal(g->n_prompt + n_greedy, g->n_pos);
    yyjson_val *limits = yyjson_obj_get(root, "limits");
    g->max_other = yyjson_get_num(yyjson_arr_get(limits, 0));
    g->rms_other = yyjson_get_num(yyjson_arr_get(limits, 1));
    const char *file_name = yyjson_get_str(yyjson_obj_get(root, "model"));
    assert_non_null(file_name);
    snprintf(path, sizeof path, "%s/models/%s", folder, file_name);
    if (model_open(path, &g->model, &err))
        fail_msg("%s: %s", name, err.text);
    yyjson_doc_free(doc);

    snprintf(path, sizeof path, "%s/models/%s.logits.f32", folder, name);
    FILE *file = fopen(path, "rb");
    size_t n = (size_t)g->n_pos * g->n_vocab;
    g->logits = malloc(n * sizeof *g->logits);
    assert_non_null(file);
    assert_int_equal(fread(g->logits, sizeof *g->logits, n, file), n);
    fclose(file);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct golden *)a)->name, ((const struct golden *)b)->name);
}

static int load_all(void **state)
{
    (void)state;
    const char *folder = getenv("MEDLEY_GOLDEN");
    struct error err = {0};
    struct gpu_options options = {.n_cpu_threads = 2};
    char path[512];
    assert_non_null(folder);
    if (gpu_open(&options, &gpu, &err))
        fail_msg("%s", err.text);
    snprintf(path, sizeof path, "%s/models", folder);
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));) {
        char *dot = strstr(entry->d_name, ".json");
        if (dot && n_golden < GOLDEN_MAX) {
            *dot = '\0';
            load_golden(folder, entry->d_name);
        }
    }
    closedir(dir);
    qsort(golden, n_golden, sizeof golden[0], by_name);
    const char *least = getenv("MEDLEY_GOLDEN_LEAST"); /* so that none is lost unseen */
    assert_true(n_golden >= (least ? (uint32_t)atoi(least) : 1));
    return 0;
}

static int unload_all(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < n_golden; i++) {
        model_close(golden[i].model);
        free(golden[i].logits);
    }
    gpu_close(gpu);
    return 0;
}

/* ---- running one model one way ---- */

struct way {
    const char *name;
    const char *device;
    uint32_t n_stages, chunk; /* chunk 0: the whole prompt at once */
    enum kv_type kv;
    enum flash_mode flash;
    bool repack, crowd; /* crowd: other sequences run in other slots of the same batches */
    bool exact;         /* same arithmetic as the reference */
};

struct pipeline {
    struct stage *stages[STAGES_MAX];
    uint32_t n_stages;
};

static void open_stages(const struct golden *g, const struct way *way, struct pipeline *p)
{
    struct device *device = gpu_find(gpu, way->device);
    uint32_t n_layers = model_hyperparameters(g->model)->n_layers, first = 0;
    struct error err = {0};
    p->n_stages = way->n_stages < n_layers ? way->n_stages : n_layers;
    for (uint32_t i = 0; i < p->n_stages; i++) {
        uint32_t n = (n_layers - first) / (p->n_stages - i);
        struct stage_options options = {.first_layer = first,
                                        .n_layers = n,
                                        .n_slots = 3,
                                        .context = g->context,
                                        .rows_max = g->n_prompt + CROWD_ROWS,
                                        .kv_type = way->kv,
                                        .flash = way->exact && g->flash ? FLASH_ON : way->flash,
                                        .no_repack = !way->repack};
        if (stage_open(device, g->model, &options, &p->stages[i], &err))
            fail_msg("%s, %s: %s", g->name, way->name, err.text);
        first += n;
    }
}

static void run_batch(struct pipeline *p, const struct batch *batch, float *out)
{
    struct error err = {0};
    float *in = NULL;
    for (uint32_t i = 0; i < p->n_stages; i++) {
        bool last = i + 1 == p->n_stages;
        float *next =
            last ? out : malloc(sizeof(float) * batch->n_rows * stage_width(p->stages[i]));
        if (stage_forward(p->stages[i], batch, in, next, &err))
            fail_msg("%s", err.text);
        free(in);
        in = last ? NULL : next;
    }
}

/* Feeds positions first .. first + n - 1 in slot 1; their logits go to `out`. With a crowd,
 * slot 0 gets one row and slot 2 two rows of another sequence in the same batch. */
static void feed(const struct golden *g, struct pipeline *p, uint32_t first, uint32_t n,
                 uint32_t *n_crowd, float *out)
{
    struct batch_row rows[POSITIONS_MAX + CROWD_ROWS];
    uint32_t count = 0;
    if (n_crowd) {
        rows[count++] =
            (struct batch_row){.slot = 0, .position = *n_crowd, .token = g->tokens[*n_crowd % 7]};
        for (uint32_t i = 0; i < 2; i++)
            rows[count++] = (struct batch_row){
                .slot = 2, .position = 2 * *n_crowd + i, .token = g->tokens[3 + i]};
        ++*n_crowd;
    }
    for (uint32_t i = 0; i < n; i++)
        rows[count++] = (struct batch_row){
            .slot = 1, .position = first + i, .token = g->tokens[first + i], .output = true};
    struct batch batch = {.rows = rows, .n_rows = count};
    run_batch(p, &batch, out);
}

static int32_t argmax(const float *row, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        best = row[i] > row[best] ? i : best;
    return (int32_t)best;
}

/* The type of the matrices: in some files only some of them are quantised. */
static const char *matrix_type(const struct golden *g)
{
    for (uint64_t i = 0; i < gguf_file_tensor_count(model_file(g->model)); i++) {
        enum ggml_type type = (enum ggml_type)gguf_file_tensor(model_file(g->model), i)->type;
        if (type != GGML_TYPE_F32)
            return ggml_type_name(type);
    }
    return "f32";
}

static void limits_of(const struct golden *g, bool exact, double *max, double *rms)
{
    const char *type = matrix_type(g);
    bool gelu = model_architecture(g->model)->activation == ACT_GELU;
    *max = exact ? 0.5 : 1.0, *rms = exact ? 0.06 : 0.12;
    if (strcmp(type, "f32") == 0)
        *max = exact ? (gelu ? 1e-2 : 1e-3) : 0.1, *rms = exact ? (gelu ? 1e-3 : 1e-4) : 0.01;
    else if (strcmp(type, "f16") == 0)
        *max = exact ? 0.05 : 0.1, *rms = exact ? 0.005 : 0.01;
    else if (strcmp(type, "bf16") == 0)
        *max = exact ? 0.15 : 0.25, *rms = exact ? 0.02 : 0.03;
    if (!exact && g->max_other != 0)
        *max = g->max_other, *rms = g->rms_other;
}

static void compare(const struct golden *g, const struct way *way, const float *got)
{
    double max = 0, sum = 0, max_limit, rms_limit;
    size_t n = (size_t)g->n_pos * g->n_vocab;
    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)got[i] - (double)g->logits[i]);
        max = d > max || isnan(d) ? d : max;
        sum += d * d;
    }
    limits_of(g, way->exact, &max_limit, &rms_limit);
    /* A rounded cache is not in the golden README. Measured: 0.94 / 0.13 at most, a near-tie can
     * fall; where an expert is chosen otherwise a whole row moves, by up to 4.1. As q4_0 5.3 /
     * 0.96, with experts 10 / 1.1. */
    bool rounded = way->kv == KV_Q8_0 || way->kv == KV_Q4_0;
    if (rounded) {
        bool mixture = model_hyperparameters(g->model)->n_experts;
        max_limit = mixture ? 8 : 1.5, rms_limit = mixture ? 0.5 : 0.2;
        if (way->kv == KV_Q4_0)
            max_limit = mixture ? 15 : 7, rms_limit = mixture ? 1.5 : 1.2;
    }
    double rms = sqrt(sum / (double)n);
    if (getenv("MEDLEY_GOLDEN_PRINT"))
        fprintf(stderr, "%-24s %-28s max %.2e rms %.2e\n", g->name, way->name, max, rms);
    if (!(max <= max_limit && rms <= rms_limit))
        fail_msg("%s, %s: off by %.3g at most (limit %.3g), rms %.3g (limit %.3g)", g->name,
                 way->name, max, max_limit, rms, rms_limit);
    for (uint32_t i = g->n_prompt - 1; i < g->n_pos && !rounded; i++)
        assert_int_equal(argmax(got + (size_t)i * g->n_vocab, g->n_vocab),
                         g->expected[i - g->n_prompt + 1]);
}

static void run_way(const struct golden *g, const struct way *way)
{
    struct pipeline p = {0};
    float *got = malloc((size_t)g->n_pos * g->n_vocab * sizeof *got);
    uint32_t chunk = way->chunk ? way->chunk : g->n_prompt, n_crowd = 0;
    open_stages(g, way, &p);
    for (uint32_t at = 0; at < g->n_pos;) {
        uint32_t n = at >= g->n_prompt ? 1 : g->n_prompt - at < chunk ? g->n_prompt - at : chunk;
        feed(g, &p, at, n, way->crowd ? &n_crowd : NULL, got + (size_t)at * g->n_vocab);
        at += n;
    }
    compare(g, way, got);
    for (uint32_t i = 0; i < p.n_stages; i++)
        stage_close(p.stages[i]);
    free(got);
}

/* Software Vulkan compiles shaders for seconds per kind of tensor: some models stand for all
 * there, unless MEDLEY_GOLDEN_ALL is set. */
static bool is_wanted(const struct golden *g, const struct way *way)
{
    static const char *const some[] = {"gemma2", "gpt-oss", "llama", "llama-q8_0"};
    if (strcmp(way->device, "cpu") == 0 || getenv("MEDLEY_GOLDEN_ALL"))
        return true;
    for (size_t i = 0; i < sizeof some / sizeof some[0]; i++) {
        if (strcmp(some[i], g->name) == 0)
            return true;
    }
    return false;
}

/* A quantised cache needs heads of whole blocks of 32; the others must be refused, not crash. */
static bool is_refused(const struct golden *g, const struct way *way)
{
    struct error err = {0};
    struct stage *stage;
    struct stage_options options = {.n_layers = 1,
                                    .n_slots = 1,
                                    .context = g->context,
                                    .rows_max = 64,
                                    .kv_type = way->kv,
                                    .flash = way->flash};
    const struct hyperparameters *h = model_hyperparameters(g->model);
    if ((way->kv != KV_Q8_0 && way->kv != KV_Q4_0) || hyperparameters_heads_fit(h, 32))
        return false;
    assert_int_equal(stage_open(gpu_find(gpu, way->device), g->model, &options, &stage, &err),
                     ERROR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "--kv f16"));
    return true;
}

static void run_all(void **state)
{
    const struct way *way = *state;
    if (!gpu_find(gpu, way->device))
        fail_msg("no device %s here", way->device);
    for (uint32_t i = 0; i < n_golden; i++) {
        if (is_wanted(&golden[i], way) && !is_refused(&golden[i], way))
            run_way(&golden[i], way);
    }
}

#define WAY(...)                                                                                   \
    &(struct way)                                                                                  \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
#define CASE(label, ...)                                                                           \
    {.name = label, .test_func = run_all, .initial_state = WAY(.name = label, __VA_ARGS__)}

int main(int argc, char **argv)
{
    (void)argv;
    const struct CMUnitTest cpu[] = {
        CASE("whole", .device = "cpu", .n_stages = 1, .kv = KV_F32, .flash = FLASH_OFF,
             .exact = true),
        CASE("chunks of 7", .device = "cpu", .n_stages = 1, .chunk = 7, .kv = KV_F32,
             .flash = FLASH_OFF, .exact = true),
        CASE("one by one", .device = "cpu", .n_stages = 1, .chunk = 1, .kv = KV_F32,
             .flash = FLASH_OFF, .exact = true),
        CASE("two stages", .device = "cpu", .n_stages = 2, .kv = KV_F32, .flash = FLASH_OFF,
             .exact = true),
        CASE("four stages, chunks of 5", .device = "cpu", .n_stages = 4, .chunk = 5, .kv = KV_F32,
             .flash = FLASH_OFF, .exact = true),
        CASE("in a crowd", .device = "cpu", .n_stages = 1, .chunk = 5, .kv = KV_F32,
             .flash = FLASH_OFF, .crowd = true, .exact = true),
        CASE("repacked", .device = "cpu", .n_stages = 1, .kv = KV_F32, .flash = FLASH_OFF,
             .repack = true, .exact = true),
        CASE("flash attention", .device = "cpu", .n_stages = 1, .kv = KV_F32, .flash = FLASH_ON),
        CASE("f16 cache, flash", .device = "cpu", .n_stages = 2, .chunk = 9, .kv = KV_F16,
             .flash = FLASH_ON, .crowd = true, .repack = true),
        CASE("q8_0 cache, flash", .device = "cpu", .n_stages = 1, .kv = KV_Q8_0, .flash = FLASH_ON),
        CASE("q4_0 cache, flash", .device = "cpu", .n_stages = 1, .kv = KV_Q4_0, .flash = FLASH_ON),
        CASE("q8_0 cache, no flash", .device = "cpu", .n_stages = 1, .kv = KV_Q8_0,
             .flash = FLASH_OFF),
        CASE("f16 cache, no flash", .device = "cpu", .n_stages = 1, .kv = KV_F16,
             .flash = FLASH_OFF),
    };
    const struct CMUnitTest vulkan[] = {
        CASE("vulkan", .device = "vulkan0", .n_stages = 2, .chunk = 11, .kv = KV_F16,
             .flash = FLASH_AUTO, .crowd = true),
    };
    /* with an argument: the GPU path, on software Vulkan */
    return argc > 1 ? cmocka_run_group_tests(vulkan, load_all, unload_all)
                    : cmocka_run_group_tests(cpu, load_all, unload_all);
}
