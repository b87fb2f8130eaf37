/* Drafted tokens on the real engine: an answer has the same tokens and the same bits of logprobs
 * with drafts, whether they are right or not, and without. All golden models; every type of cache;
 * greedy, sampled, with penalties and a grammar; several sequences at once; slots that share cells;
 * windows that are shorter than the text; a draft model that comes and goes in mid-answer. What
 * happens where one elsewhere does not answer is test_drafter.c's. */
#include "gpu/device_ggml.h"
#include "gpu/gpu.h"
#include "gpu/product_ggml.h"
#include "model/model.h"
#include "pipeline/driver.h"
#include "pipeline/driver_generator.h"

#include <dirent.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { CONTEXT = 420, PROMPT = 260, ANSWER = 60, CLIENTS = 4 };

struct client {
    int32_t tokens[CONTEXT];
    float logprobs[CONTEXT];
    struct token_logprob top[CONTEXT][2];
    uint32_t n_tokens;
    struct request_usage usage;
    enum finish_reason reason;
    struct error error;
    bool done;
};

static struct gpu *gpu;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;
static uint64_t n_drafted, n_accepted;

static bool on_token(void *arg, const struct token_event *event)
{
    struct client *client = arg;
    assert_int_equal(event->index, client->n_tokens);
    assert_int_equal(event->n_top, 2);
    client->tokens[client->n_tokens] = event->token;
    client->logprobs[client->n_tokens] = event->logprob;
    memcpy(client->top[client->n_tokens++], event->top, sizeof client->top[0]);
    return true;
}

static void on_done(void *arg, enum finish_reason reason, const struct request_usage *usage,
                    const struct error *err)
{
    struct client *client = arg;
    pthread_mutex_lock(&lock);
    client->reason = reason;
    client->usage = *usage;
    if (err)
        client->error = *err;
    client->done = true;
    pthread_cond_broadcast(&ended);
    pthread_mutex_unlock(&lock);
}

/* Phrases that come again and again, with now and then another token. */
static void write_prompt(int32_t *prompt, uint32_t i, uint32_t n_vocab)
{
    for (uint32_t at = 0; at < PROMPT; at++)
        prompt[at] = (int32_t)((at % 17 == 16 ? at + i : at % 17 * 31 + 5 * i + 40) % n_vocab);
}

/* `says`: what the answer is made of; NULL: anything, but for one client. */
static void submit(struct driver *driver, uint32_t n_vocab, uint32_t i, const char *says,
                   struct client *client)
{
    const char *const grammar = says ? says : "[a-z ,.A-Z]+";
    int32_t prompt[PROMPT];
    struct error err = {0};
    write_prompt(prompt, i, n_vocab);
    *client = (struct client){0};
    struct request request = {.prompt = prompt,
                              .n_prompt = PROMPT - 30 * i,
                              .n_predict = ANSWER,
                              .sampler = sampler_defaults(),
                              .logprobs = true,
                              .n_top_logprobs = 2,
                              .handlers = {.token = on_token, .done = on_done},
                              .arg = client};
    request.sampler.seed = 7 + i;
    request.sampler.temperature = i == 0 ? 0 : 0.25f * (float)i;
    if (i == 2)
        request.sampler.repeat_penalty = 1.02f;
    if (i == 3 || says) {
        const struct grammar_source source = {
            .kind = GRAMMAR_REGEX, .text = grammar, .size = strlen(grammar)};
        assert_int_equal(constraint_note(&source, &request.constraint, &err), ERROR_NONE);
    }
    if (driver_submit(driver, &request, NULL, &err))
        fail_msg("%s", err.text);
    constraint_release(request.constraint);
}

static void wait_done(struct client *client)
{
    pthread_mutex_lock(&lock);
    while (!client->done)
        pthread_cond_wait(&ended, &lock);
    pthread_mutex_unlock(&lock);
}

struct form {
    enum kv_type kv;
    uint32_t n_stages, n_slots, batch_rows, cells;
    const struct driver_draft *draft;
    const char *says;
    bool has_two_devices; /* a pipeline, so that guesses follow each other */
    bool comes_and_goes;  /* the draft model */
};

static bool all_are_done(struct client *clients)
{
    bool done = true;
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < CLIENTS; i++)
        done &= clients[i].done;
    pthread_mutex_unlock(&lock);
    return done;
}

static void come_and_go(struct driver *driver, const struct driver_draft *draft,
                        struct client *clients)
{
    struct error err = {0};
    do {
        driver_mind_draft(driver);
        driver_drop_draft(driver);
        if (driver_add_draft(driver, draft, &err))
            fail_msg("%s", err.text);
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    } while (!all_are_done(clients));
}

/* Alone or all at once. */
static void answer(const struct model *model, const struct form *form, enum speculate speculate,
                   struct client *clients)
{
    const struct hyperparameters *h = model_hyperparameters(model);
    assert_true(h->n_layers >= form->n_stages);
    struct device *first = gpu_find(gpu, form->has_two_devices ? "sim:first" : "cpu"),
                  *second = gpu_find(gpu, form->has_two_devices ? "sim:second" : "cpu");
    struct stage_plan plan[2] = {{first, h->n_layers / form->n_stages},
                                 {second, h->n_layers - h->n_layers / 2}};
    const struct driver_options options = {.n_slots = form->n_slots,
                                           .context = CONTEXT,
                                           .batch_rows = form->batch_rows,
                                           .cells = form->cells,
                                           .kv_type = form->kv,
                                           .speculate = speculate,
                                           .draft = form->has_two_devices ? NULL : form->draft};
    struct driver *driver = NULL;
    struct error err = {0};
    if (driver_open(model, plan, form->n_stages, &options, &driver, &err))
        fail_msg("%s", err.text);
    if (form->has_two_devices && form->draft && driver_add_draft(driver, form->draft, &err))
        fail_msg("%s", err.text);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        submit(driver, h->n_vocab, i, form->says, &clients[i]);
        if (form->n_slots == 1)
            wait_done(&clients[i]);
    }
    if (form->comes_and_goes && speculate != SPECULATE_OFF)
        come_and_go(driver, form->draft, clients);
    for (uint32_t i = 0; i < CLIENTS; i++)
        wait_done(&clients[i]);
    driver_close(driver);
}

/* What was guessed. */
static uint32_t compare(const char *name, const struct model *model, const struct form *form,
                        enum speculate speculate)
{
    static struct client plain[CLIENTS], with[CLIENTS];
    uint32_t n = 0;
    answer(model, form, SPECULATE_OFF, plain);
    answer(model, form, speculate, with);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        const struct client *a = &plain[i], *b = &with[i];
        if (a->n_tokens != b->n_tokens || a->reason != b->reason ||
            memcmp(a->tokens, b->tokens, a->n_tokens * sizeof *a->tokens) != 0 ||
            memcmp(a->logprobs, b->logprobs, a->n_tokens * sizeof *a->logprobs) != 0 ||
            memcmp(a->top, b->top, a->n_tokens * sizeof *a->top) != 0)
            fail_msg("%s, cache %d, %u slots: answer %u is another with drafts (%s)", name,
                     (int)form->kv, form->n_slots, i, b->error.text);
        assert_int_equal(a->usage.drafted_tokens, 0);
        assert_in_range(b->usage.accepted_tokens, 0, b->usage.drafted_tokens);
        assert_in_range(b->usage.accepted_tokens, 0, b->n_tokens);
        n += b->usage.drafted_tokens;
        n_drafted += b->usage.drafted_tokens;
        n_accepted += b->usage.accepted_tokens;
    }
    return n;
}

static uint32_t compare_in(const char *path, const struct form *form, enum speculate speculate)
{
    struct model *model;
    struct error err = {0};
    if (model_open(path, &model, &err))
        fail_msg("%s: %s", path, err.text);
    const uint32_t n = compare(path, model, form, speculate);
    model_close(model);
    return n;
}

static const char *golden_path(const char *name)
{
    static char path[1024];
    assert_non_null(getenv("MEDLEY_GOLDEN"));
    snprintf(path, sizeof path, "%s/%s", getenv("MEDLEY_GOLDEN"), name);
    return path;
}

/* Windows of 32 rows more than they need, so that drafts write over what is behind them. */
static const struct form forms[] = {
    {KV_F16, 1, 1, 0, 0},
    {KV_F32, 2, CLIENTS, 40, 0},
    {KV_Q8_0, 1, CLIENTS, 0, 3 * CONTEXT},
};

static void test_all_models(void **state)
{
    (void)state;
    uint32_t n_models = 0;
    DIR *dir = opendir(golden_path("models"));
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));) {
        char name[300];
        const char *end = strrchr(entry->d_name, '.');
        if (!end || strcmp(end, ".gguf") != 0)
            continue;
        snprintf(name, sizeof name, "models/%s", entry->d_name);
        const struct form *form = &forms[n_models++ % 2];
        const uint32_t n = compare_in(golden_path(name), form, SPECULATE_ALWAYS);
        if (device_ggml_products(gpu_find(gpu, "cpu")))
            assert_true(n > 0);
        else
            assert_int_equal(n, 0);
    }
    closedir(dir);
    assert_true(n_models >= 30);
    if (!device_ggml_products(gpu_find(gpu, "cpu")))
        return;
    assert_true(n_accepted > 500 && n_drafted - n_accepted > 500); /* else it was no test */
}

static void test_every_form(void **state)
{
    (void)state;
    static const char *const names[] = {"models/gemma3.gguf", "models/llama-q4k.gguf",
                                        "models/gpt-oss-mxfp4.gguf"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        for (size_t k = 0; k < sizeof forms / sizeof *forms; k++)
            compare_in(golden_path(names[i]), &forms[k], k ? SPECULATE_ALWAYS : SPECULATE_LOOKUP);
    }
}

/* One stream has two devices to itself: behind a micro-batch go others, of guesses alone. Grammars,
 * windows and cells that slots share see guesses that are wrong, and what is right after them. */
static void test_guesses_that_follow_each_other(void **state)
{
    (void)state;
    static const char *const names[] = {"models/gemma3.gguf", "models/llama-q4k.gguf",
                                        "models/gpt-oss-mxfp4.gguf"};
    static const struct form pipelines[] = {
        {KV_F16, 2, 1, 40, 0, NULL, "[ab]+", true},
        {KV_F16, 2, 1, 0, CONTEXT, NULL, "(abc|abd)+", true},
        {KV_F16, 2, 1, 0, 0, NULL, NULL, true},
        {KV_F16, 2, CLIENTS, 0, 0, NULL, "[ab]+", true},
    };
    n_drafted = n_accepted = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        for (size_t k = 0; k < sizeof pipelines / sizeof *pipelines; k++)
            compare_in(golden_path(names[i]), &pipelines[k],
                       k || i % 2 ? SPECULATE_ALWAYS : SPECULATE_LOOKUP);
    }
    if (device_ggml_products(gpu_find(gpu, "cpu")))
        assert_true(n_accepted > 200 && n_drafted - n_accepted > 500);
}

static void test_latents_in_small_types(void **state)
{
    (void)state;
    const uint32_t n =
        compare_in(golden_path("more/models/deepseek2-q4_k_m.gguf"), &forms[0], SPECULATE_ALWAYS);
    assert_int_equal(n > 0, device_ggml_products(gpu_find(gpu, "cpu")) != NULL);
}

/* A third of the guesses is wrong, at any place of a draft, and most of these are unsure. */
static int32_t spoil(void *arg, uint32_t position, int32_t guess, double *probability)
{
    const bool is_wrong = position * 7 % 11 % 3 == 0;
    (void)arg;
    *probability = is_wrong && position % 5 ? .2 : .9;
    return is_wrong ? (guess + 1) % 200 : guess;
}

/* The model itself drafts, so what it guesses with the same sampler is right, unless it is spoilt
 * or follows a grammar. */
static void test_a_draft_model(void **state)
{
    (void)state;
    static const char *const names[] = {"models/llama-q4k.gguf", "models/gemma3.gguf"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct model *model;
        struct error err = {0};
        if (model_open(golden_path(names[i]), &model, &err))
            fail_msg("%s", err.text);
        const struct stage_plan plan = {gpu_find(gpu, "cpu"),
                                        model_hyperparameters(model)->n_layers};
        for (size_t k = 0; k < sizeof forms / sizeof *forms; k++) {
            const bool is_spoilt = (i + k) % 2;
            const struct driver_draft draft = {.model = model,
                                               .stages = &plan,
                                               .n_stages = 1,
                                               .instead = is_spoilt ? spoil : NULL};
            struct form form = forms[k];
            form.draft = &draft;
            n_drafted = n_accepted = 0;
            compare(names[i], model, &form, SPECULATE_ALWAYS);
            if (device_ggml_products(gpu_find(gpu, "cpu")))
                assert_true(n_accepted > CLIENTS * ANSWER / (is_spoilt ? 4 : 2));
            if (!k)
                compare(names[i], model, &form, SPECULATE_LOOKUP);
        }
        model_close(model);
    }
}

/* While the last token travels through two devices, the model guesses what follows, on one of them
 * and on a third; the text of some is asked first. It comes when the driver is open already. */
static void test_a_draft_model_beside_a_pipeline(void **state)
{
    (void)state;
    static const struct form pipelines[] = {
        {.n_stages = 2, .n_slots = 1, .has_two_devices = true},
        {.n_stages = 2,
         .n_slots = 1,
         .cells = CONTEXT,
         .says = "(abc|abd)+",
         .has_two_devices = true},
        {.n_stages = 2, .n_slots = CLIENTS, .has_two_devices = true},
    };
    static const char *const names[] = {"models/llama-q4k.gguf", "models/gemma3.gguf"};
    for (size_t i = 0; i < 2 * sizeof names / sizeof *names; i++) {
        struct model *model;
        struct error err = {0};
        if (model_open(golden_path(names[i / 2]), &model, &err))
            fail_msg("%s", err.text);
        const struct stage_plan plan = {gpu_find(gpu, i % 2 ? "sim:first" : "cpu"),
                                        model_hyperparameters(model)->n_layers};
        for (size_t k = 0; k < sizeof pipelines / sizeof *pipelines; k++) {
            const struct driver_draft draft = {.model = model,
                                               .stages = &plan,
                                               .n_stages = 1,
                                               .instead = (i + k) % 2 ? spoil : NULL};
            struct form form = pipelines[k];
            form.draft = &draft;
            n_drafted = n_accepted = 0;
            compare(names[i / 2], model, &form, SPECULATE_ALWAYS);
            if (device_ggml_products(gpu_find(gpu, "cpu")))
                assert_true(n_accepted > 0);
            compare(names[i / 2], model, &form, SPECULATE_LOOKUP);
        }
        model_close(model);
    }
}

/* Another driver has the draft model, as one on another machine would; and the questions of both
 * come to it when one of them is gone again. */
static void test_a_draft_model_of_another_driver(void **state)
{
    (void)state;
    static const struct form asking[] = {
        {.n_stages = 1, .n_slots = 1},
        {.n_stages = 1, .n_slots = 1, .cells = CONTEXT, .says = "(abc|abd)+"},
        {.n_stages = 1, .n_slots = CLIENTS},
        {.n_stages = 1, .n_slots = CLIENTS, .comes_and_goes = true},
        {.n_stages = 2, .n_slots = 1, .has_two_devices = true},
        {.n_stages = 2, .n_slots = CLIENTS, .has_two_devices = true, .comes_and_goes = true},
    };
    static const char name[] = "models/llama-q4k.gguf";
    struct model *model;
    struct error err = {0};
    struct driver *other;
    if (model_open(golden_path(name), &model, &err))
        fail_msg("%s", err.text);
    const struct stage_plan plan = {gpu_find(gpu, "cpu"), model_hyperparameters(model)->n_layers};
    const struct driver_options options = {.n_slots = CLIENTS, .context = CONTEXT};
    if (driver_open(model, &plan, 1, &options, &other, &err))
        fail_msg("%s", err.text);
    struct driver_generator generator;
    generator_of_driver(&generator, other);
    for (size_t i = 0; i < 2 * sizeof asking / sizeof *asking; i++) {
        /* while passes are computed, or before them */
        const struct driver_draft draft = {.elsewhere = &generator.base, .is_apart = i % 2};
        struct form form = asking[i / 2];
        form.draft = &draft;
        n_drafted = n_accepted = 0;
        compare(name, model, &form, SPECULATE_ALWAYS);
        const bool is_waited_for = !form.has_two_devices && !draft.is_apart;
        if (device_ggml_products(gpu_find(gpu, "cpu")) && !form.comes_and_goes)
            assert_true(n_accepted > (is_waited_for ? CLIENTS * ANSWER / 4 : 0));
        compare(name, model, &form, SPECULATE_LOOKUP);
    }
    driver_close(other);
    model_close(model);
}

/* A row of these has other bits alone than beside others, or a state cannot be cut back. */
static void test_no_drafts_without_the_promise(void **state)
{
    (void)state;
    static const char *const names[] = {"more/models/llama-iq1_s.gguf",
                                        "more/models/llama-iq1_m.gguf",
                                        "more/models/llama-iq2_s.gguf"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const uint32_t n = compare_in(golden_path(names[i]), &forms[0], SPECULATE_ALWAYS);
        const struct product_kernel *ours = device_ggml_products(gpu_find(gpu, "cpu"));
        assert_true((n > 0) == product_is_of(ours, GGML_TYPE_IQ1_S)); /* with VNNI */
    }
    assert_int_equal(compare_in(golden_path("more/models/lfm2.gguf"), &forms[0], SPECULATE_ALWAYS),
                     0);
}

static int open_gpu(void **state)
{
    (void)state;
    struct error err = {0};
    static const char path[] = "test_drafts.sim",
                      device[] = "memory = 1GiB\ndecode = 1000TB/s\nflops = 1000PFLOP/s\n"
                                 "copy = 1000TB/s\nlaunch = 0s\n";
    struct gpu_options options = {.n_cpu_threads = 1, .skip_other = true, .sim_file = path};
    FILE *file = fopen(path, "w");
    if (!file || fprintf(file, "[first]\n%s[second]\n%s", device, device) < 0 || fclose(file))
        return -1;
    if (gpu_open(&options, &gpu, &err))
        print_error("%s\n", err.text);
    remove(path);
    return gpu ? 0 : -1;
}

static int close_gpu(void **state)
{
    (void)state;
    gpu_close(gpu);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_models),
        cmocka_unit_test(test_every_form),
        cmocka_unit_test(test_guesses_that_follow_each_other),
        cmocka_unit_test(test_latents_in_small_types),
        cmocka_unit_test(test_a_draft_model),
        cmocka_unit_test(test_a_draft_model_beside_a_pipeline),
        cmocka_unit_test(test_a_draft_model_of_another_driver),
        cmocka_unit_test(test_no_drafts_without_the_promise),
    };
    return cmocka_run_group_tests(tests, open_gpu, close_gpu);
}
