/* The driver on the real engine: a golden model's reference tokens through every split of its
 * layers, every micro-batch size, with other sequences beside it and on top of a reused prefix.
 *
 * Everything here runs as the reference did (F32 cache, no flash attention, no repacking, CPU). For
 * weights in F32 ggml's results do not depend on how rows are put together, so every logit must
 * have the same bits whatever the driver does; for the others the tokens must be the same. */
#include "base/mem.h"
#include "gpu/gpu.h"
#include "model/model.h"
#include "pipeline/driver_state.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <yyjson.h>

#include <cmocka.h>

enum { TOKENS_MAX = 64, CONTEXT = 64 };

struct golden {
    struct model *model;
    int32_t tokens[TOKENS_MAX]; /* prompt, then the reference's greedy tokens */
    uint32_t n_prompt, n_greedy, n_vocab, n_layers;
};

struct client {
    float *logits; /* NULL: rows are not wanted */
    uint32_t n_vocab, n_rows;
    int32_t tokens[TOKENS_MAX];
    uint32_t n_tokens;
    struct request_usage usage;
    enum finish_reason reason;
    bool done;
};

static struct gpu *gpu;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;

/* ---- the reference -------------------------------------------------------------------- */

static uint32_t read_ids(yyjson_val *array, int32_t *out)
{
    size_t i, max;
    yyjson_val *value;
    yyjson_arr_foreach(array, i, max, value) out[i] = (int32_t)yyjson_get_int(value);
    return (uint32_t)max;
}

static struct golden golden_open(const char *name)
{
    struct golden golden = {0};
    char path[1024];
    const char *folder = getenv("MEDLEY_GOLDEN");
    assert_non_null(folder);
    snprintf(path, sizeof path, "%s/models/%s.json", folder, name);
    yyjson_doc *doc = yyjson_read_file(path, 0, NULL, NULL);
    assert_non_null(doc);
    yyjson_val *root = yyjson_doc_get_root(doc);
    golden.n_prompt = read_ids(yyjson_obj_get(root, "prompt"), golden.tokens);
    golden.n_greedy = read_ids(yyjson_obj_get(root, "greedy"), golden.tokens + golden.n_prompt);
    yyjson_doc_free(doc);
    struct error err = {0};
    snprintf(path, sizeof path, "%s/models/%s.gguf", folder, name);
    if (model_open(path, &golden.model, &err))
        fail_msg("%s", err.text);
    golden.n_vocab = model_hyperparameters(golden.model)->n_vocab;
    golden.n_layers = model_hyperparameters(golden.model)->n_layers;
    return golden;
}

/* ---- requests ------------------------------------------------------------------------- */

static bool on_token(void *arg, const struct token_event *event)
{
    struct client *client = arg;
    if (client->n_tokens < TOKENS_MAX)
        client->tokens[client->n_tokens++] = event->token;
    return true;
}

static void on_row(void *arg, uint32_t position, const float *values, uint32_t n_values)
{
    struct client *client = arg;
    memcpy(client->logits + (size_t)position * client->n_vocab, values, n_values * sizeof *values);
    client->n_rows++;
}

static void on_done(void *arg, enum finish_reason reason, const struct request_usage *usage,
                    const struct error *err)
{
    struct client *client = arg;
    if (err)
        print_error("%s\n", err->text);
    pthread_mutex_lock(&lock);
    client->reason = reason;
    client->usage = *usage;
    client->done = true;
    pthread_cond_broadcast(&ended);
    pthread_mutex_unlock(&lock);
}

static void submit(struct driver *driver, const struct golden *golden, uint32_t n_prompt,
                   uint32_t n_predict, bool rows, struct client *client)
{
    *client = (struct client){.n_vocab = golden->n_vocab};
    if (rows)
        client->logits = mem_new_array((size_t)TOKENS_MAX * golden->n_vocab, sizeof(float));
    struct request request = {
        .prompt = golden->tokens,
        .n_prompt = n_prompt,
        .n_predict = n_predict,
        .sampler = sampler_defaults(),
        .want_all_logits = rows,
        .handlers = {.token = on_token, .row = on_row, .done = on_done},
        .arg = client,
    };
    request.sampler.temperature = 0;
    struct error err = {0};
    if (driver_submit(driver, &request, NULL, &err))
        fail_msg("%s", err.text);
}

static void wait_done(struct client *client)
{
    pthread_mutex_lock(&lock);
    while (!client->done)
        pthread_cond_wait(&ended, &lock);
    pthread_mutex_unlock(&lock);
    assert_int_equal(client->reason, FINISH_LENGTH);
}

static struct driver *open_driver(const struct golden *golden, uint32_t n_stages,
                                  struct driver_options options)
{
    struct stage_plan plan[8];
    for (uint32_t i = 0; i < n_stages; i++)
        plan[i] = (struct stage_plan){gpu_find(gpu, "cpu"), golden->n_layers / n_stages};
    plan[n_stages - 1].n_layers += golden->n_layers % n_stages;
    options.context = CONTEXT;
    options.kv_type = KV_F32;
    options.flash = FLASH_OFF;
    options.no_repack = true;
    struct driver *driver = NULL;
    struct error err = {0};
    if (driver_open(golden->model, plan, n_stages, &options, &driver, &err))
        fail_msg("%s", err.text);
    return driver;
}

/* ---- the ways to run it --------------------------------------------------------------- */

/* The golden prompt with all its rows, and `n_others` other requests at the same time: parts of the
 * same prompt. */
static float *run(const struct golden *golden, uint32_t n_stages, uint32_t batch_rows,
                  uint32_t n_others)
{
    struct driver *driver =
        open_driver(golden, n_stages,
                    (struct driver_options){.n_slots = n_others + 1, .batch_rows = batch_rows});
    struct client client, others[8];
    for (uint32_t i = 0; i < n_others; i++)
        submit(driver, golden, 3 + 2 * i, 20, false, &others[i]);
    submit(driver, golden, golden->n_prompt, golden->n_greedy, true, &client);
    wait_done(&client);
    for (uint32_t i = 0; i < n_others; i++)
        wait_done(&others[i]);
    driver_close(driver);
    assert_int_equal(client.n_rows, golden->n_prompt + golden->n_greedy);
    assert_int_equal(client.n_tokens, golden->n_greedy);
    assert_memory_equal(client.tokens, golden->tokens + golden->n_prompt,
                        client.n_tokens * sizeof *client.tokens);
    return client.logits;
}

static void check_every_way(const char *name, bool exact)
{
    struct golden golden = golden_open(name);
    float *plain = run(&golden, 1, 0, 0);
    for (uint32_t n_stages = 1; n_stages <= golden.n_layers && n_stages <= 4; n_stages++) {
        static const uint32_t batches[] = {0, 7, 1};
        for (uint32_t i = 0; i < 3; i++) {
            for (uint32_t n_others = 0; n_others <= 6; n_others += 3) {
                float *logits = run(&golden, n_stages, batches[i], n_others);
                size_t size =
                    (size_t)(golden.n_prompt + golden.n_greedy) * golden.n_vocab * sizeof *logits;
                if (exact && memcmp(logits, plain, size) != 0)
                    fail_msg("%s: %u stages, batches of %u, %u others: other bits", name, n_stages,
                             batches[i], n_others);
                mem_free(logits);
            }
        }
    }
    mem_free(plain);
    model_close(golden.model);
}

static void test_f32_has_the_same_bits_however_it_is_run(void **state)
{
    (void)state;
    check_every_way("llama", true);
    check_every_way("qwen3", true);
    check_every_way("gemma2", true);
    check_every_way("gemma3", true);
    check_every_way("gpt-oss", true);
    check_every_way("qwen3moe", true);
}

static void test_quantised_has_the_same_tokens_however_it_is_run(void **state)
{
    (void)state;
    check_every_way("llama-q4_0", false);
    check_every_way("qwen3-q8_0", false);
    check_every_way("llama-q4k", false);
}

/* The reference's greedy tokens continue from wherever the sequence is taken up again, on a reused
 * prefix too. */
static void test_a_replay_continues_on_a_reused_prefix(void **state)
{
    (void)state;
    static const char *const names[] = {"llama", "gemma2", "gemma3", "gpt-oss", "phi3"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct golden golden = golden_open(names[i]);
        struct driver *driver = open_driver(&golden, 2, (struct driver_options){.n_slots = 2});
        for (uint32_t done = golden.n_greedy; done-- > 0;) {
            struct client client;
            submit(driver, &golden, golden.n_prompt + done, golden.n_greedy - done, false, &client);
            wait_done(&client);
            assert_memory_equal(client.tokens, golden.tokens + golden.n_prompt + done,
                                (golden.n_greedy - done) * sizeof *client.tokens);
            if (done + 1 < golden.n_greedy)
                assert_int_equal(client.usage.cached_tokens, golden.n_prompt + done - 1);
        }
        driver_close(driver);
        model_close(golden.model);
    }
}

/* A prefix whose windows were written over is computed again; one whose windows are there is not.
 * The tokens are the same. */
static void test_a_prefix_without_its_window_is_computed_again(void **state)
{
    (void)state;
    struct golden golden = golden_open("gemma3");
    const struct stage_plan plan[] = {{gpu_find(gpu, "cpu"), 3}, {gpu_find(gpu, "cpu"), 4}};
    const struct driver_options options = {.n_slots = 1, .context = 1024, .batch_rows = 32};
    static const struct {
        uint32_t n_predict, n_cached; /* windows begin 256 tokens before the end */
    } steps[] = {{800, 0}, {40, 0}, {1, 32}, {300, 32}, {1, 0}};
    struct driver *driver;
    struct error err = {0};
    if (driver_open(golden.model, plan, 2, &options, &driver, &err))
        fail_msg("%s", err.text);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        struct client client;
        submit(driver, &golden, golden.n_prompt, steps[i].n_predict, false, &client);
        wait_done(&client);
        assert_int_equal(client.usage.cached_tokens, steps[i].n_cached ? golden.n_prompt - 1 : 0);
        for (uint32_t k = 0; k < golden.n_greedy && k < steps[i].n_predict; k++)
            assert_int_equal(client.tokens[k], golden.tokens[golden.n_prompt + k]);
    }
    driver_close(driver);
    model_close(golden.model);
}

static int open_gpu(void **state)
{
    (void)state;
    struct error err = {0};
    struct gpu_options options = {.n_cpu_threads = 1, .skip_other = true};
    if (gpu_open(&options, &gpu, &err))
        print_error("%s\n", err.text);
    return gpu ? 0 : -1;
}

static int close_gpu(void **state)
{
    (void)state;
    gpu_close(gpu);
    return 0;
}

/* ---- when memory is short -------------------------------------------------------------------- */

static struct driver *open_shrinking(const struct golden *golden)
{
    const struct stage_plan plan = {gpu_find(gpu, "cpu"), golden->n_layers, NULL, 0};
    const struct driver_options options = {.n_slots = 2, .context = 4 * TOKENS_MAX};
    struct driver *driver = NULL;
    struct error err = {0};
    if (driver_open(golden->model, &plan, 1, &options, &driver, &err))
        fail_msg("%s", err.text);
    return driver;
}

static void fail_until(struct driver *driver, enum memory_form form)
{
    for (int i = 0; i < MEMORY_STEPS && memory_watch_terms(&driver->memory).form != form; i++)
        memory_watch_failed(&driver->memory);
    assert_int_equal(memory_watch_terms(&driver->memory).form, form);
}

static void generate(struct driver *driver, const struct golden *golden, enum memory_form form,
                     struct client *client)
{
    submit(driver, golden, golden->n_prompt, 40, false, client);
    if (form) {
        usleep(5000); /* perhaps in the middle of it */
        fail_until(driver, form);
    }
    wait_done(client);
    assert_int_equal(client->n_tokens, 40);
}

/* The stages are opened anew under a reply, which is whole; what is streamed has the same bits. */
static void a_smaller_form_loses_nothing(const char *path, enum memory_form form, bool exact)
{
    struct golden golden = {0};
    struct client plain, first, second;
    struct error err = {0};
    assert_int_equal(model_open(path, &golden.model, &err), ERROR_NONE);
    golden.n_layers = model_hyperparameters(golden.model)->n_layers;
    golden.n_vocab = model_hyperparameters(golden.model)->n_vocab;
    for (golden.n_prompt = 0; golden.n_prompt < 12; golden.n_prompt++)
        golden.tokens[golden.n_prompt] = (int32_t)(3 + 5 * golden.n_prompt);
    struct driver *driver = open_shrinking(&golden);
    const uint64_t all = pipeline_stage_bytes(driver_pipeline(driver), 0);
    generate(driver, &golden, MEMORY_AS_PLACED, &plain);
    generate(driver, &golden, form, &first);
    generate(driver, &golden, MEMORY_AS_PLACED, &second);
    assert_int_equal(driver->form.form, form);
    assert_true(pipeline_stage_bytes(driver_pipeline(driver), 0) < all);
    if (exact) {
        assert_memory_equal(first.tokens, plain.tokens, sizeof plain.tokens);
        assert_memory_equal(second.tokens, plain.tokens, sizeof plain.tokens);
    }
    driver_close(driver);
    model_close(golden.model);
}

static void test_stages_take_a_smaller_form(void **state)
{
    (void)state;
    char path[1024];
    snprintf(path, sizeof path, "%s/models/demo.gguf", getenv("MEDLEY_ROOT"));
    a_smaller_form_loses_nothing(path, MEMORY_STREAMED, true);
    snprintf(path, sizeof path, "%s/models/gemma3.gguf", getenv("MEDLEY_GOLDEN"));
    a_smaller_form_loses_nothing(path, MEMORY_SMALL_CACHES, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f32_has_the_same_bits_however_it_is_run),
        cmocka_unit_test(test_quantised_has_the_same_tokens_however_it_is_run),
        cmocka_unit_test(test_a_replay_continues_on_a_reused_prefix),
        cmocka_unit_test(test_stages_take_a_smaller_form),
        cmocka_unit_test(test_a_prefix_without_its_window_is_computed_again),
    };
    return cmocka_run_group_tests(tests, open_gpu, close_gpu);
}
