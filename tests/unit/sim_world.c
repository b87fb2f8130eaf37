#include "sim_world.h"

#include "base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

struct model *model;

struct model *open_model(const char *name)
{
    char path[512];
    struct error err = {0};
    struct model *opened;
    assert_non_null(getenv("MEDLEY_GOLDEN"));
    snprintf(path, sizeof path, "%s/models/%s.gguf", getenv("MEDLEY_GOLDEN"), name);
    if (model_open(path, &opened, &err))
        fail_msg("%s", err.text);
    return opened;
}

struct model *open_model_unwindowed(const char *name)
{
    struct model *opened = open_model(name);
    struct hyperparameters *h = (struct hyperparameters *)(uintptr_t)model_hyperparameters(opened);
    h->window = LIMIT_CONTEXT;
    return opened;
}

int sim_world_open(void **state)
{
    (void)state;
    model = open_model("qwen3");
    return 0;
}

int sim_world_close(void **state)
{
    (void)state;
    model_close(model);
    return 0;
}

enum error_code try_open(const char *ini, struct gpu **gpu, struct error *err)
{
    char path[] = "/tmp/medley-sim-XXXXXX";
    int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    assert_int_equal(write(descriptor, ini, strlen(ini)), (ssize_t)strlen(ini));
    close(descriptor);
    enum error_code code = gpu_open(
        &(struct gpu_options){.n_cpu_threads = 2, .skip_other = true, .sim_file = path}, gpu, err);
    remove(path);
    return code;
}

struct gpu *open_sim(const char *ini)
{
    struct gpu *gpu = NULL;
    struct error err = {0};
    if (try_open(ini, &gpu, &err))
        fail_msg("%s", err.text);
    return gpu;
}

struct stage_options options_of(uint32_t first_layer, uint32_t n_layers)
{
    return (struct stage_options){.first_layer = first_layer,
                                  .n_layers = n_layers,
                                  .n_slots = 2,
                                  .context = 256,
                                  .rows_max = 128,
                                  .kv_type = KV_F16};
}

struct stage *open_stage(struct device *device, const struct model *what, uint32_t first_layer,
                         uint32_t n_layers)
{
    struct stage_options options = options_of(first_layer, n_layers);
    struct stage *stage = NULL;
    struct error err = {0};
    assert_non_null(device);
    if (stage_open(device, what, &options, &stage, &err))
        fail_msg("%s", err.text);
    return stage;
}

/* Tokens by position, to slot 0; only the last one's output is wanted on the last stage. */
enum error_code feed(struct stage *stage, uint32_t first, uint32_t n, const float *in, float *out,
                     struct error *err)
{
    struct batch_row rows[128];
    for (uint32_t i = 0; i < n; i++)
        rows[i] = (struct batch_row){.position = first + i,
                                     .token = (int32_t)((first + i) * 31 % VOCAB),
                                     .output = i + 1 == n};
    return stage_forward(stage, &(struct batch){.rows = rows, .n_rows = n}, in, out, err);
}

void feed_well(struct stage *stage, uint32_t first, uint32_t n, const float *in, float *out)
{
    struct error err = {0};
    if (feed(stage, first, n, in, out, &err))
        fail_msg("%s", err.text);
}

double seconds_since(uint64_t start_ns)
{
    return (double)(clock_now_ns() - start_ns) * 1e-9;
}

void expect_words(const struct error *err, const char *words)
{
    if (!strstr(err->text, words))
        fail_msg("'%s' does not say '%s'", err->text, words);
}
