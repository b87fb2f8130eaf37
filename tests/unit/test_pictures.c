/* Rows instead of tokens: what a request says of them, and that the embeddings of a prompt's own
 * tokens, given as a picture's rows, give the same bits as the tokens. */
#include "base/mem.h"
#include "gpu/gpu.h"
#include "model/model.h"
#include "pipeline/far.h"
#include "pipeline/runner.h"
#include "pipeline/sequence.h"

#include <ggml.h>
#include <gguf.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct prompt_picture *make_picture(uint32_t n_rows, uint32_t width, uint8_t name)
{
    uint8_t digest[PICTURE_DIGEST_BYTES];
    struct picture_rows rows = {.n_rows = n_rows, .width = width};
    struct prompt_picture *picture;
    struct error err = {0};
    for (size_t i = 0; i < sizeof digest; i++)
        digest[i] = (uint8_t)(name * 37 + i * 11);
    rows.rows = mem_new_array((size_t)n_rows * width, sizeof(float));
    assert_non_null(rows.rows);
    if (prompt_picture_new(&rows, digest, &picture, &err))
        fail_msg("%s", err.text);
    assert_null(rows.rows);
    return picture;
}

static void test_tokens_are_of_the_digest(void **state)
{
    (void)state;
    struct prompt_picture *a = make_picture(40, 3, 1), *same = make_picture(40, 2, 1),
                          *other = make_picture(40, 3, 2);
    int32_t of_a[40], of_same[40], of_other[40];
    prompt_picture_tokens(a, of_a);
    prompt_picture_tokens(same, of_same);
    prompt_picture_tokens(other, of_other);
    assert_memory_equal(of_a, of_same, sizeof of_a);
    for (int i = 0; i < 40; i++) {
        assert_true(of_a[i] >= PICTURE_TOKEN_FIRST);
        assert_int_not_equal(of_a[i], of_other[i]);
        for (int k = 0; k < i; k++)
            assert_int_not_equal(of_a[i], of_a[k]);
    }
    prompt_picture_release(a);
    prompt_picture_release(same);
    prompt_picture_release(other);
}

/* ---- drivers --------------------------------------------------------------------------- */

enum { PROMPT = 48, PREDICT = 6, ROWS = PROMPT + PREDICT, CONTEXT = 256 };

struct client {
    float *logits; /* [ROWS][n_vocab] */
    uint32_t n_vocab, n_tokens, n_rows;
    int32_t tokens[PREDICT];
    struct request_usage usage;
    enum finish_reason reason;
    bool done;
};

static struct gpu *gpu;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;

static bool on_token(void *arg, const struct token_event *event)
{
    struct client *client = arg;
    if (client->n_tokens < PREDICT)
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

static void test_a_prompt_says_where_pictures_are(void **state)
{
    (void)state;
    struct prompt_picture *a = make_picture(3, 4, 1), *b = make_picture(2, 4, 2);
    int32_t prompt[8] = {1, 2};
    struct request_picture pictures[] = {{2, a}, {5, b}};
    prompt_picture_tokens(a, prompt + 2);
    prompt_picture_tokens(b, prompt + 5);
    prompt[7] = 3;
    struct request request = {.prompt = prompt,
                              .n_prompt = 8,
                              .pictures = pictures,
                              .n_pictures = 2,
                              .handlers = {.token = on_token, .done = on_done}};
    struct error err = {0};
    assert_int_equal(request_check(&request, 10, &err), ERROR_NONE);
    struct request copy;
    assert_int_equal(request_copy(&request, 0, &copy, &err), ERROR_NONE);
    assert_null(request_picture_at(copy.pictures, 2, 1));
    assert_ptr_equal(request_picture_at(copy.pictures, 2, 4)->picture, a);
    assert_ptr_equal(request_picture_at(copy.pictures, 2, 5)->picture, b);
    assert_null(request_picture_at(copy.pictures, 2, 7));
    request_copy_deinit(&copy);

    request.embeddings = true;
    assert_int_equal(request_check(&request, 10, &err), ERROR_UNSUPPORTED);
    request.embeddings = false;
    request.n_pictures = 1; /* then the second's tokens are nobody's */
    assert_int_equal(request_check(&request, 10, &err), ERROR_INVALID);
    request.n_pictures = 2;
    pictures[1].at = 4; /* inside the first */
    assert_int_equal(request_check(&request, 10, &err), ERROR_INVALID);
    pictures[1].at = 7; /* beyond the end */
    assert_int_equal(request_check(&request, 10, &err), ERROR_INVALID);
    pictures[1].at = 5;
    prompt[6]++; /* not its token */
    assert_int_equal(request_check(&request, 10, &err), ERROR_INVALID);
    prompt_picture_release(a);
    prompt_picture_release(b);
}

static int open_gpu(void **state)
{
    struct error err = {0};
    (void)state;
    if (gpu_open(&(struct gpu_options){.n_cpu_threads = 1, .skip_other = true}, &gpu, &err))
        fail_msg("%s", err.text);
    return 0;
}

static int close_gpu(void **state)
{
    (void)state;
    gpu_close(gpu);
    return 0;
}

/* A model, and its tokens' embeddings as a picture would have to give them. */
struct golden {
    struct model *model;
    const struct hyperparameters *h;
    struct ggml_context *context;
    struct gguf_context *file;
};

static struct golden golden_open(const char *name)
{
    struct golden golden = {0};
    struct error err = {0};
    char path[1024];
    snprintf(path, sizeof path, "%s/%s.gguf", getenv("MEDLEY_GOLDEN"), name);
    if (model_open(path, &golden.model, &err))
        fail_msg("%s", err.text);
    golden.h = model_hyperparameters(golden.model);
    golden.file = gguf_init_from_file(path, (struct gguf_init_params){.ctx = &golden.context});
    assert_non_null(golden.file);
    return golden;
}

static void golden_close(struct golden *golden)
{
    gguf_free(golden->file);
    ggml_free(golden->context);
    model_close(golden->model);
}

static void embedding(const struct golden *golden, int32_t token, float *out)
{
    const struct ggml_tensor *all = ggml_get_tensor(golden->context, "token_embd.weight");
    const char *row = (const char *)all->data + (size_t)token * all->nb[1];
    if (all->type == GGML_TYPE_F32)
        memcpy(out, row, golden->h->n_embd * sizeof *out);
    else
        ggml_get_type_traits(all->type)->to_float(row, out, golden->h->n_embd);
    for (uint32_t i = 0; i < golden->h->n_embd; i++)
        out[i] *= golden->h->embedding_scale;
}

static int32_t text_token(const struct golden *golden, uint32_t position)
{
    return (int32_t)((position * 31 + 5) % golden->h->n_vocab);
}

/* What a request is made of: text, and from `at` on a picture, unless n_rows is 0. */
struct prompt {
    int32_t tokens[ROWS];
    struct request_picture pictures[8];
    uint32_t n_pictures;
};

/* `n` pictures of `n_rows` of the text's own rows, from token `at` on. */
static struct prompt make_prompt(const struct golden *golden, uint32_t at, uint32_t n,
                                 uint32_t n_rows, uint32_t grid_width, bool is_whole)
{
    struct prompt prompt = {.n_pictures = n};
    const uint32_t width = golden->h->given_width;
    for (uint32_t i = 0; i < PROMPT; i++)
        prompt.tokens[i] = text_token(golden, i);
    for (uint32_t i = 0; i < n; i++, at += n_rows) {
        struct picture_rows rows = {.n_rows = n_rows,
                                    .width = width,
                                    .is_whole = is_whole,
                                    .grid_width = grid_width,
                                    .grid_height = grid_width ? n_rows / grid_width : 0};
        uint8_t digest[PICTURE_DIGEST_BYTES] = {(uint8_t)at, 7, (uint8_t)grid_width, is_whole};
        struct error err = {0};
        rows.rows = mem_new_array((size_t)n_rows * width, sizeof(float));
        for (uint32_t k = 0; k < n_rows; k++)
            embedding(golden, text_token(golden, at + k), rows.rows + (size_t)k * width);
        prompt.pictures[i].at = at;
        if (prompt_picture_new(&rows, digest, &prompt.pictures[i].picture, &err))
            fail_msg("%s", err.text);
        prompt_picture_tokens(prompt.pictures[i].picture, prompt.tokens + at);
    }
    return prompt;
}

static void prompt_deinit(struct prompt *prompt)
{
    for (uint32_t i = 0; i < prompt->n_pictures; i++)
        prompt_picture_release(prompt->pictures[i].picture);
}

static enum error_code try_submit(struct driver *driver, const struct prompt *prompt,
                                  uint32_t n_prompt, uint32_t n_predict, struct client *client,
                                  struct error *err)
{
    struct request request = {
        .prompt = prompt->tokens,
        .n_prompt = n_prompt,
        .n_predict = n_predict,
        .sampler = sampler_defaults(),
        .want_all_logits = client->logits != NULL,
        .pictures = prompt->pictures,
        .n_pictures = prompt->n_pictures,
        .handlers = {.token = on_token, .row = on_row, .done = on_done},
        .arg = client,
    };
    request.sampler.temperature = 0;
    return driver_submit(driver, &request, NULL, err);
}

static void wait_done(struct client *client)
{
    pthread_mutex_lock(&lock);
    while (!client->done)
        pthread_cond_wait(&ended, &lock);
    pthread_mutex_unlock(&lock);
    assert_int_equal(client->reason, FINISH_LENGTH);
}

static void ask(struct driver *driver, const struct prompt *prompt, uint32_t n_prompt,
                uint32_t n_predict, struct client *client)
{
    struct error err = {0};
    if (try_submit(driver, prompt, n_prompt, n_predict, client, &err))
        fail_msg("%s", err.text);
    wait_done(client);
}

struct way {
    uint32_t n_stages, batch_rows, n_others;
    enum flash_mode flash;
    uint32_t cells;
};

static struct driver *open_driver(const struct golden *golden, const struct way *way)
{
    struct stage_plan plan[4];
    for (uint32_t i = 0; i < way->n_stages; i++)
        plan[i] =
            (struct stage_plan){gpu_find(gpu, "cpu"), golden->h->n_layers / way->n_stages, 0, 0};
    plan[way->n_stages - 1].n_layers += golden->h->n_layers % way->n_stages;
    const struct driver_options options = {.n_slots = way->n_others + 1,
                                           .context = CONTEXT,
                                           .batch_rows = way->batch_rows,
                                           .cells = way->cells,
                                           .kv_type = KV_F32,
                                           .flash = way->flash,
                                           .no_repack = true};
    struct driver *driver;
    struct error err = {0};
    if (driver_open(golden->model, plan, way->n_stages, &options, &driver, &err))
        fail_msg("%s", err.text);
    return driver;
}

/* All logits of the prompt and its answer, with other requests of text beside it. */
static float *run(const struct golden *golden, const struct prompt *prompt, const struct way *way)
{
    struct driver *driver = open_driver(golden, way);
    struct prompt text = make_prompt(golden, 0, 0, 0, 0, false);
    struct client client = {.n_vocab = golden->h->n_vocab}, others[4] = {0};
    struct error err = {0};
    client.logits = mem_new_array((size_t)ROWS * client.n_vocab, sizeof(float));
    for (uint32_t i = 0; i < way->n_others; i++)
        assert_int_equal(try_submit(driver, &text, 3 + 7 * i, PREDICT, &others[i], &err), 0);
    ask(driver, prompt, PROMPT, PREDICT, &client);
    for (uint32_t i = 0; i < way->n_others; i++)
        wait_done(&others[i]);
    driver_close(driver);
    assert_int_equal(client.n_rows, ROWS);
    return client.logits;
}

static const struct way plain_way = {.n_stages = 1};
static const struct way ways[] = {
    {.n_stages = 2, .batch_rows = 11},
    {.n_stages = 3, .n_others = 2},
    {.n_stages = 1, .batch_rows = 30, .n_others = 3, .cells = 1024},
};

static void check_ways(const struct golden *golden, const struct prompt *prompt,
                       const float *expected, uint32_t least_rows)
{
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        if ((ways[i].batch_rows && ways[i].batch_rows < least_rows) ||
            ways[i].n_stages > golden->h->n_layers)
            continue;
        float *logits = run(golden, prompt, &ways[i]);
        if (memcmp(logits, expected, (size_t)ROWS * golden->h->n_vocab * sizeof *logits) != 0)
            fail_msg("way %zu has other bits", i);
        mem_free(logits);
    }
}

/* A prompt of tokens, and the same with some of them as rows. */
static void check_own_rows(const char *name, uint32_t n, uint32_t n_rows, uint32_t grid_width)
{
    struct golden golden = golden_open(name);
    struct prompt text = make_prompt(&golden, 0, 0, 0, 0, false),
                  prompt = make_prompt(&golden, 9, n, n_rows, grid_width, false);
    float *expected = run(&golden, &text, &plain_way), *got = run(&golden, &prompt, &plain_way);
    if (memcmp(got, expected, (size_t)ROWS * golden.h->n_vocab * sizeof *got) != 0)
        fail_msg("%s: rows have other bits than their tokens", name);
    check_ways(&golden, &prompt, expected, 0);
    mem_free(expected);
    mem_free(got);
    prompt_deinit(&prompt);
    golden_close(&golden);
}

static void test_rows_have_the_bits_of_their_tokens(void **state)
{
    (void)state;
    check_own_rows("models/gemma3", 2, 13, 0); /* with a scale, which pictures do not have */
    check_own_rows("more/models/qwen3vlmoe", 5, 1, 1);
}

/* The same picture again is not computed again, another one is; and a replay goes on as before. */
static void test_pictures_are_reused_and_replayed(void **state)
{
    (void)state;
    struct golden golden = golden_open("models/gemma3");
    struct driver *driver = open_driver(&golden, &plain_way);
    struct prompt prompt = make_prompt(&golden, 9, 1, 30, 0, true),
                  other = make_prompt(&golden, 9, 1, 30, 0, false);
    struct client first = {0}, again = {0}, differs = {0}, replay = {0};
    ask(driver, &prompt, PROMPT, PREDICT, &first);
    ask(driver, &prompt, PROMPT, PREDICT, &again);
    assert_int_equal(again.usage.cached_tokens, PROMPT - 1);
    assert_memory_equal(first.tokens, again.tokens, sizeof first.tokens);
    /* its last row is to be computed, so the picture goes again */
    ask(driver, &prompt, 9 + 30, PREDICT, &differs);
    assert_int_equal(differs.usage.cached_tokens, 9);
    differs = (struct client){0};
    ask(driver, &other, PROMPT, PREDICT, &differs);
    assert_int_equal(differs.usage.cached_tokens, 9);
    driver_close(driver);

    driver = open_driver(&golden, &(struct way){.n_stages = 2});
    memcpy(prompt.tokens + PROMPT, first.tokens, 4 * sizeof *first.tokens);
    ask(driver, &prompt, PROMPT + 4, PREDICT - 4, &replay);
    assert_memory_equal(replay.tokens, first.tokens + 4, (PREDICT - 4) * sizeof *first.tokens);
    driver_close(driver);
    prompt_deinit(&prompt);
    prompt_deinit(&other);
    golden_close(&golden);
}

static double largest_difference(const float *a, const float *b, size_t n)
{
    double most = 0;
    for (size_t i = 0; i < n; i++)
        most = fmax(most, fabs((double)a[i] - (double)b[i]));
    return most;
}

/* Our attention and ggml's, with a mask, agree about what a whole picture sees; its first row sees
 * its last. */
static void check_whole(const char *name, uint32_t grid_width)
{
    struct golden golden = golden_open(name);
    const size_t width = golden.h->n_vocab;
    struct prompt prompt = make_prompt(&golden, 9, 1, 30, grid_width, true),
                  causal = make_prompt(&golden, 9, 1, 30, grid_width, false);
    float *ours = run(&golden, &prompt, &plain_way), *one_way = run(&golden, &causal, &plain_way),
          *masked = run(&golden, &prompt, &(struct way){.n_stages = 1, .flash = FLASH_OFF});
    assert_true(largest_difference(ours, masked, ROWS * width) < 1e-2);
    assert_memory_equal(ours, one_way, 9 * width * sizeof *ours);
    assert_true(largest_difference(ours + 9 * width, one_way + 9 * width, width) > 0.1);
    check_ways(&golden, &prompt, ours, 30);
    mem_free(ours);
    mem_free(one_way);
    mem_free(masked);
    prompt_deinit(&prompt);
    prompt_deinit(&causal);
    golden_close(&golden);
}

static void test_whole_pictures_are_seen_both_ways(void **state)
{
    (void)state;
    check_whole("models/gemma3", 0);
}

/* Parts of rows that are added after the first layers, also where those are of several stages. No
 * small model has any, so one is made to. */
static void test_parts_are_added_after_layers(void **state)
{
    (void)state;
    struct golden golden = golden_open("models/gemma3");
    struct hyperparameters *h = (struct hyperparameters *)(uintptr_t)golden.h;
    const size_t bytes = (size_t)ROWS * h->n_vocab * sizeof(float);
    struct prompt text = make_prompt(&golden, 0, 0, 0, 0, false);
    h->n_deepstack = h->given_layers = 3;
    h->given_width = 4 * h->n_embd;
    struct prompt prompt = make_prompt(&golden, 9, 1, 20, 0, false);
    float *expected = run(&golden, &text, &plain_way), *got = run(&golden, &prompt, &plain_way);
    assert_memory_equal(got, expected, bytes); /* parts of zeros */
    mem_free(got);
    const struct picture_rows *rows = prompt_picture_rows(prompt.pictures[0].picture);
    for (uint32_t i = 0; i < rows->n_rows; i++) {
        for (uint32_t k = h->n_embd; k < rows->width; k++)
            rows->rows[(size_t)i * rows->width + k] = (float)((i * 7 + k) % 11) - 5.0f;
    }
    got = run(&golden, &prompt, &plain_way);
    assert_memory_equal(got, expected, 9 * sizeof(float) * h->n_vocab);
    assert_true(largest_difference(got + 9 * h->n_vocab, expected + 9 * h->n_vocab, h->n_vocab) >
                0.1);
    check_ways(&golden, &prompt, got, 0);
    mem_free(got);
    mem_free(expected);
    prompt_deinit(&prompt);
    golden_close(&golden);
}

/* ---- stages on another machine --------------------------------------------------------- */

struct picture_parcel {
    struct picture_parcel *next;
    bool to_runner;
    size_t size;
    _Alignas(8) char bytes[];
};

/* A driver and a runner, and a thread between them that carries messages in their order. */
struct picture_network {
    bool is_far[4]; /* stages of the runner's */
    uint32_t n_stages;
    struct driver *driver;
    struct runner *runner;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    struct picture_parcel *first, **end;
    bool is_closing;
};

static void network_send(void *arg, uint32_t stage, struct buffer *message)
{
    struct picture_network *network = arg;
    struct picture_parcel *parcel = malloc(sizeof *parcel + message->size);
    assert_non_null(parcel);
    *parcel = (struct picture_parcel){
        .to_runner = stage < network->n_stages && network->is_far[stage], .size = message->size};
    memcpy(parcel->bytes, message->data, message->size);
    pthread_mutex_lock(&network->lock);
    *network->end = parcel;
    network->end = &parcel->next;
    pthread_cond_signal(&network->changed);
    pthread_mutex_unlock(&network->lock);
}

static void *network_carry(void *arg)
{
    struct picture_network *network = arg;
    struct error err = {0};
    pthread_mutex_lock(&network->lock);
    while (!network->is_closing || network->first) {
        struct picture_parcel *parcel = network->first;
        if (!parcel) {
            pthread_cond_wait(&network->changed, &network->lock);
            continue;
        }
        network->first = parcel->next;
        if (!network->first)
            network->end = &network->first;
        pthread_mutex_unlock(&network->lock);
        if (parcel->to_runner
                ? runner_receive(network->runner, parcel->bytes, parcel->size, &err)
                : driver_receive(network->driver, parcel->bytes, parcel->size, &err)) {
            print_error("%s\n", err.text);
            abort();
        }
        free(parcel);
        pthread_mutex_lock(&network->lock);
    }
    pthread_mutex_unlock(&network->lock);
    return NULL;
}

/* `far`: for each of three stages, 1 where it is the runner's. */
static void network_open(struct picture_network *network, const struct golden *golden,
                         const char *far_stages, const struct far *far)
{
    struct stage_plan here[3], there[3];
    const struct driver_options options = {
        .n_slots = 1, .context = CONTEXT, .kv_type = KV_F32, .no_repack = true};
    struct error err = {0};
    network->n_stages = 3;
    network->end = &network->first;
    for (uint32_t i = 0; i < 3; i++) {
        const uint32_t n_layers = golden->h->n_layers / 3 + (i == 2) * (golden->h->n_layers % 3);
        network->is_far[i] = far_stages[i] == '1';
        struct device *cpu = gpu_find(gpu, "cpu");
        here[i] =
            (struct stage_plan){.device = network->is_far[i] ? NULL : cpu, .n_layers = n_layers};
        there[i] =
            (struct stage_plan){.device = network->is_far[i] ? cpu : NULL, .n_layers = n_layers};
    }
    if (driver_open_far(golden->model, here, 3, &options, far, &network->driver, &err) ||
        runner_open(golden->model, there, 3, driver_options(network->driver), far, &network->runner,
                    &err))
        fail_msg("%s", err.text);
    pthread_create(&network->thread, NULL, network_carry, network);
}

static void network_close(struct picture_network *network)
{
    driver_close(network->driver);
    pthread_mutex_lock(&network->lock);
    network->is_closing = true;
    pthread_cond_signal(&network->changed);
    pthread_mutex_unlock(&network->lock);
    pthread_join(network->thread, NULL);
    runner_close(network->runner);
}

/* Values go as far as stages take a part of them, over the machine with the driver, too. */
static void test_pictures_go_to_other_machines(void **state)
{
    (void)state;
    static const char *const ways_far[] = {"101", "110", "011"};
    struct golden golden = golden_open("models/gemma3");
    struct hyperparameters *h = (struct hyperparameters *)(uintptr_t)golden.h;
    h->n_deepstack = h->given_layers = 3; /* of two stages of two layers */
    h->given_width = 4 * h->n_embd;
    struct prompt prompt = make_prompt(&golden, 9, 1, 20, 0, true);
    const struct picture_rows *rows = prompt_picture_rows(prompt.pictures[0].picture);
    for (uint32_t i = 0; i < rows->n_rows * rows->width; i++)
        rows->rows[i] += i % rows->width < h->n_embd ? 0 : (float)(i % 13) / 4 - 1.5f;
    float *expected = run(&golden, &prompt, &plain_way);
    for (size_t i = 0; i < sizeof ways_far / sizeof ways_far[0]; i++) {
        struct picture_network network = {.lock = PTHREAD_MUTEX_INITIALIZER,
                                          .changed = PTHREAD_COND_INITIALIZER};
        const struct far far = {.instance = 7, .epoch = 3, .send = network_send, .arg = &network};
        struct client client = {.n_vocab = h->n_vocab};
        const size_t bytes = (size_t)ROWS * h->n_vocab * sizeof(float);
        client.logits = mem_new_array((size_t)ROWS * h->n_vocab, sizeof(float));
        network_open(&network, &golden, ways_far[i], &far);
        ask(network.driver, &prompt, PROMPT, PREDICT, &client);
        network_close(&network);
        if (memcmp(client.logits, expected, bytes) != 0)
            fail_msg("%s has other bits", ways_far[i]);
        mem_free(client.logits);
    }
    mem_free(expected);
    prompt_deinit(&prompt);
    golden_close(&golden);
}

/* ---- positions of several axes --------------------------------------------------------- */

static void assert_turned_by(const struct sequence *sequence, uint32_t position, uint32_t time,
                             uint32_t height, uint32_t width)
{
    struct row_place place;
    sequence_row(sequence, position, &place);
    assert_int_equal(position - place.behind[0], time);
    assert_int_equal(position - place.behind[1], height);
    assert_int_equal(position - place.behind[2], width);
}

/* Qwen2-VL, arXiv:2409.12191, 2.1: text goes on behind the largest position of the picture. */
static void test_rows_have_positions_on_axes(void **state)
{
    (void)state;
    struct golden golden = golden_open("more/models/qwen3vlmoe");
    struct prompt prompt = make_prompt(&golden, 9, 2, 6, 3, false); /* 3 wide, 2 high */
    struct sequence sequence = {.request = {.pictures = prompt.pictures, .n_pictures = 2},
                                .has_axes = true};
    assert_turned_by(&sequence, 8, 8, 8, 8);
    assert_turned_by(&sequence, 9, 9, 9, 9);
    assert_turned_by(&sequence, 11, 9, 9, 11);
    assert_turned_by(&sequence, 14, 9, 10, 11);
    assert_turned_by(&sequence, 15, 12, 12, 12); /* the second begins */
    assert_turned_by(&sequence, 20, 12, 13, 14);
    assert_turned_by(&sequence, 21, 15, 15, 15);
    assert_turned_by(&sequence, 30, 24, 24, 24);
    assert_int_equal(sequence_resume_at(&sequence, 12), 9);
    assert_int_equal(sequence_resume_at(&sequence, 15), 15);
    assert_int_equal(sequence_resume_at(&sequence, 16), 15);
    assert_int_equal(sequence_resume_at(&sequence, 21), 21);
    sequence.has_axes = false;
    assert_turned_by(&sequence, 14, 14, 14, 14);
    prompt_deinit(&prompt);
    golden_close(&golden);
}

/* Text beside a picture that is turned has the bits of text alone; the picture has those of itself
 * in every way, and about the values of ggml's attention. */
static void test_axes_turn_pictures_alone(void **state)
{
    (void)state;
    struct golden golden = golden_open("more/models/qwen3vlmoe");
    const size_t n = (size_t)ROWS * golden.h->n_vocab;
    struct prompt text = make_prompt(&golden, 0, 0, 0, 0, false),
                  wide = make_prompt(&golden, 9, 1, 12, 4, false),
                  high = make_prompt(&golden, 9, 1, 12, 3, false);
    float *alone = run(&golden, &text, &plain_way), *of_wide = run(&golden, &wide, &plain_way),
          *of_high = run(&golden, &high, &plain_way),
          *masked = run(&golden, &wide, &(struct way){.n_stages = 1, .flash = FLASH_OFF});
    struct driver *driver = open_driver(&golden, &(struct way){.n_stages = 1, .n_others = 1});
    struct client client = {.n_vocab = golden.h->n_vocab}, picture = {0};
    struct error err = {0};
    client.logits = mem_new_array(n, sizeof(float));
    assert_int_equal(try_submit(driver, &wide, PROMPT, PREDICT, &picture, &err), 0);
    ask(driver, &text, PROMPT, PREDICT, &client);
    wait_done(&picture);
    driver_close(driver);
    assert_memory_equal(client.logits, alone, n * sizeof *alone);
    assert_true(largest_difference(of_wide, masked, n) < 1e-2);
    assert_memory_equal(of_wide, alone, 9 * golden.h->n_vocab * sizeof *alone);
    assert_true(largest_difference(of_wide, of_high, n) > 0.1);
    check_ways(&golden, &wide, of_wide, 0);
    mem_free(client.logits);
    mem_free(alone);
    mem_free(of_wide);
    mem_free(of_high);
    mem_free(masked);
    prompt_deinit(&wide);
    prompt_deinit(&high);
    golden_close(&golden);
}

static void read_floats(const char *name, float *out, size_t n)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/axes/%s.f32", getenv("MEDLEY_GOLDEN"), name);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fread(out, sizeof *out, n, file), n);
    fclose(file);
}

/* Text, a picture and text again, as llama.cpp computes them (tests/golden/axes/README.md). */
static void test_text_around_a_picture_is_as_the_reference_has_it(void **state)
{
    enum { BEFORE = 4, PICTURE = 15, AFTER = 8, ALL = BEFORE + PICTURE + AFTER };
    static const int32_t before[BEFORE] = {5, 17, 200, 33},
                         after[AFTER] = {44, 101, 7, 250, 19, 60, 211, 88};
    static const uint32_t sections[4] = {4, 2, 2, 0};
    (void)state;
    struct golden golden = golden_open("models/qwen2");
    struct hyperparameters *h = (struct hyperparameters *)(uintptr_t)golden.h;
    const size_t n_vocab = h->n_vocab;
    h->rope_axes = AXES_IN_SECTIONS;
    memcpy(h->rope_sections, sections, sizeof sections);
    h->given_width = h->n_embd;
    struct prompt prompt = make_prompt(&golden, BEFORE, 1, PICTURE, 5, false);
    memcpy(prompt.tokens, before, sizeof before);
    memcpy(prompt.tokens + BEFORE + PICTURE, after, sizeof after);
    read_floats("qwen2vl.rows", prompt_picture_rows(prompt.pictures[0].picture)->rows,
                (size_t)PICTURE * h->n_embd);
    float *expected = mem_new_array((BEFORE + AFTER) * n_vocab, sizeof(float));
    read_floats("qwen2vl.logits", expected, (BEFORE + AFTER) * n_vocab);
    struct driver *driver = open_driver(&golden, &(struct way){.n_stages = 2, .flash = FLASH_OFF});
    struct client client = {.n_vocab = h->n_vocab};
    client.logits = mem_new_array(ROWS * n_vocab, sizeof(float));
    ask(driver, &prompt, ALL, 1, &client);
    driver_close(driver);
    const double of_text = largest_difference(client.logits, expected, BEFORE * n_vocab),
                 behind = largest_difference(client.logits + (BEFORE + PICTURE) * n_vocab,
                                             expected + BEFORE * n_vocab, AFTER * n_vocab);
    if (getenv("MEDLEY_GOLDEN_PRINT"))
        print_message("before the picture %.1e, behind it %.1e\n", of_text, behind);
    assert_true(of_text < 1e-3 && behind < 1e-3);
    mem_free(expected);
    mem_free(client.logits);
    prompt_deinit(&prompt);
    golden_close(&golden);
}

static void test_what_does_not_fit_is_refused(void **state)
{
    (void)state;
    struct golden golden = golden_open("models/gemma3"), other = golden_open("models/llama");
    struct driver *driver = open_driver(&golden, &(struct way){.n_stages = 1, .batch_rows = 29}),
                  *text_only = open_driver(&other, &plain_way);
    struct prompt prompt = make_prompt(&golden, 9, 1, 30, 0, true);
    struct client client = {0};
    struct error err = {0};
    assert_int_equal(try_submit(driver, &prompt, PROMPT, PREDICT, &client, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "--batch 30"));
    assert_int_equal(try_submit(text_only, &prompt, PROMPT, PREDICT, &client, &err),
                     ERROR_UNSUPPORTED);
    driver_close(driver);
    driver_close(text_only);
    prompt_deinit(&prompt);
    golden_close(&golden);
    golden_close(&other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokens_are_of_the_digest),
        cmocka_unit_test(test_a_prompt_says_where_pictures_are),
        cmocka_unit_test(test_rows_have_the_bits_of_their_tokens),
        cmocka_unit_test(test_pictures_are_reused_and_replayed),
        cmocka_unit_test(test_whole_pictures_are_seen_both_ways),
        cmocka_unit_test(test_parts_are_added_after_layers),
        cmocka_unit_test(test_pictures_go_to_other_machines),
        cmocka_unit_test(test_rows_have_positions_on_axes),
        cmocka_unit_test(test_axes_turn_pictures_alone),
        cmocka_unit_test(test_text_around_a_picture_is_as_the_reference_has_it),
        cmocka_unit_test(test_what_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, open_gpu, close_gpu);
}
