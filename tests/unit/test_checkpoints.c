/* Checkpoints of states: where they are kept (pure), and a chat with models that have states, whose
 * turns change former text. Every answer has the bits of one that was computed whole, and little of
 * its prompt was computed. */
#include "gpu/gpu.h"
#include "model/model.h"
#include "pipeline/driver.h"
#include "pipeline/slots.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { CONTEXT = 800, ANSWER = 12, TEXT_MAX = CONTEXT };

/* ---- places ---------------------------------------------------------------------------- */

static void test_places(void **state)
{
    (void)state;
    const struct checkpoint_text shorter = {.n_prompt = 500},
                                 longer = {.n_prompt = 3000, .branch = 100},
                                 tiny = {.n_prompt = 90};
    assert_int_equal(checkpoint_next(&tiny, 0), UINT32_MAX);
    assert_int_equal(checkpoint_next(&shorter, 0), 468);
    assert_int_equal(checkpoint_next(&shorter, 468), UINT32_MAX);
    static const uint32_t places[] = {100, 768, 1536, 2304, 2968, UINT32_MAX};
    for (uint32_t i = 0, at = 0; i < sizeof places / sizeof *places; i++) {
        assert_int_equal(checkpoint_next(&longer, at), places[i]);
        at = places[i];
    }
}

static void test_the_least_useful_goes(void **state)
{
    (void)state;
    struct checkpoint_table table = {.n = 3};
    const struct checkpoint_text text = {.n_prompt = 1000, .n_begun = 200};
    assert_true(checkpoint_is_due(&table, &text, 0, 200));
    assert_false(checkpoint_is_due(&table, &text, 0, 201));
    checkpoint_add(&table, 0, 150, 1);
    assert_false(checkpoint_is_due(&table, &text, 0, 200)); /* that is near */
    assert_true(checkpoint_is_due(&table, &text, 1, 200));
    checkpoint_add(&table, 0, 300, 3);
    checkpoint_add(&table, 1, 300, 2);
    assert_int_equal(table.list[checkpoint_longest(&table, 0, 299)].length, 150);
    assert_int_equal(checkpoint_longest(&table, 0, 149), CHECKPOINT_NONE);
    assert_int_equal(checkpoint_add(&table, 1, 400, 4), 0);
    assert_int_equal(checkpoint_longest(&table, 0, 299), CHECKPOINT_NONE);
    checkpoint_forget(&table, 2);
    assert_int_equal(checkpoint_add(&table, 1, 500, 5), 2);
}

/* What one slot gives up is another's, where that has the same text. */
static void test_a_checkpoint_of_two_slots(void **state)
{
    (void)state;
    struct slot_table table;
    struct slot_choice choice;
    int32_t prompt[400];
    for (int32_t i = 0; i < 400; i++)
        prompt[i] = i;
    assert_int_equal(slot_table_init(&table, 2, 400, 0, NULL), ERROR_NONE);
    table.whole_only = true;
    table.checkpoints.n = 4;
    for (uint32_t i = 0; i < 2; i++) {
        memcpy(table.slots[i].tokens, prompt, sizeof prompt);
        table.slots[i].n_known = table.slots[i].n_placed = 300;
        table.slots[i].tokens[250 + 10 * i] = -1;
    }
    const uint32_t kept = checkpoint_add(&table.checkpoints, 0, 200, 1);
    checkpoint_add(&table.checkpoints, 0, 290, 2);
    assert_true(slot_table_choose(&table, prompt, 399, 0, &choice));
    assert_int_equal(choice.keep, 200);
    assert_int_equal(choice.checkpoint, kept);
    assert_int_equal(choice.common, 260);
    slot_table_place(&table, 0, 0);
    assert_int_equal(table.checkpoints.list[kept].slot, 1);
    assert_true(slot_table_choose(&table, prompt, 399, 0, &choice));
    assert_int_equal(choice.slot, 1);
    assert_int_equal(choice.keep, 200);
    assert_true(slot_table_choose(&table, prompt, 199, 0, &choice));
    assert_int_equal(choice.keep + choice.copy, 0);
    slot_table_cut(&table, 1, 199);
    assert_int_equal(checkpoint_longest(&table.checkpoints, 1, 400), CHECKPOINT_NONE);
    slot_table_deinit(&table);
}

/* Two free slots begin like the prompt: the one that is given up is not the one that is copied. */
static void test_two_slots_that_begin_alike(void **state)
{
    (void)state;
    struct slot_table table;
    struct slot_choice choice;
    int32_t prompt[400];
    for (int32_t i = 0; i < 400; i++)
        prompt[i] = i;
    assert_int_equal(slot_table_init(&table, 2, 400, 0, NULL), ERROR_NONE);
    for (uint32_t i = 0; i < 2; i++) {
        memcpy(table.slots[i].tokens, prompt, sizeof prompt);
        table.slots[i].n_known = table.slots[i].n_placed = 200 - 50 * i;
        table.slots[i].tokens[50] = -1;
    }
    assert_true(slot_table_choose(&table, prompt, 399, 0, &choice));
    assert_int_equal(choice.slot, 0);
    assert_int_equal(choice.copy_from, 1);
    assert_int_equal(choice.copy, 50);
    slot_table_deinit(&table);
}

/* ---- chats ------------------------------------------------------------------------------ */

static struct gpu *gpu;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;

struct answer {
    int32_t tokens[ANSWER];
    float logprobs[ANSWER];
    uint32_t n, cached;
    bool done;
};

static bool on_token(void *arg, const struct token_event *event)
{
    struct answer *answer = arg;
    answer->tokens[answer->n] = event->token;
    answer->logprobs[answer->n++] = event->logprob;
    return true;
}

static void on_done(void *arg, enum finish_reason reason, const struct request_usage *usage,
                    const struct error *err)
{
    struct answer *answer = arg;
    if (err)
        print_error("%s\n", err->text);
    pthread_mutex_lock(&lock);
    answer->cached = usage->cached_tokens;
    answer->done = reason == FINISH_LENGTH;
    pthread_cond_broadcast(&ended);
    pthread_mutex_unlock(&lock);
}

static struct answer ask(struct driver *driver, const int32_t *prompt, uint32_t n_prompt)
{
    static struct answer answer;
    struct error err = {0};
    struct request request = {.prompt = prompt,
                              .n_prompt = n_prompt,
                              .n_predict = ANSWER,
                              .sampler = sampler_defaults(),
                              .logprobs = true,
                              .handlers = {.token = on_token, .done = on_done},
                              .arg = &answer};
    answer = (struct answer){0};
    request.sampler.temperature = 0;
    if (driver_submit(driver, &request, NULL, &err))
        fail_msg("%s", err.text);
    pthread_mutex_lock(&lock);
    while (!answer.done)
        pthread_cond_wait(&ended, &lock);
    pthread_mutex_unlock(&lock);
    return answer;
}

static struct driver *open_driver(const struct model *model, const struct driver_options *options,
                                  uint32_t n_stages)
{
    const uint32_t n_layers = model_hyperparameters(model)->n_layers;
    struct device *cpu = gpu_find(gpu, "cpu");
    const struct stage_plan plan[] = {{cpu, n_stages > 1 ? 1 : n_layers}, {cpu, n_layers - 1}};
    struct driver *driver = NULL;
    struct error err = {0};
    if (driver_open(model, plan, n_stages, options, &driver, &err))
        fail_msg("%s", err.text);
    return driver;
}

struct talk {
    struct driver *with, *without;
    int32_t text[TEXT_MAX];
    uint32_t n, n_vocab;
};

static void talk_say(struct talk *talk, uint32_t n, uint32_t seed)
{
    for (uint32_t i = 0; i < n; i++)
        talk->text[talk->n++] = (int32_t)((i * 37 + 11 * seed + 5) % talk->n_vocab);
    assert_true(talk->n + ANSWER <= TEXT_MAX);
}

/* Asked both; the answer's bits are the same, and at least `cached` tokens were there. */
static struct answer talk_turn(struct talk *talk, uint32_t cached)
{
    const struct answer with = ask(talk->with, talk->text, talk->n),
                        without = ask(talk->without, talk->text, talk->n);
    assert_int_equal(with.n, ANSWER);
    assert_memory_equal(with.tokens, without.tokens, sizeof with.tokens);
    assert_memory_equal(with.logprobs, without.logprobs, sizeof with.logprobs);
    assert_in_range(with.cached, cached, talk->n - 1);
    return with;
}

static void talk_all(struct talk *talk)
{
    talk_say(talk, 200, 1); /* the system's prompt, and a question */
    talk_say(talk, 100, 2);
    const struct answer first = talk_turn(talk, 0);
    talk_turn(talk, 300 - CHECKPOINT_TAIL);                               /* asked again */
    memcpy(talk->text + talk->n, first.tokens, 5 * sizeof *first.tokens); /* not all it thought */
    talk->n += 5;
    talk_say(talk, 100, 3);
    talk_turn(talk, 300 - CHECKPOINT_TAIL);
    talk->n = 330; /* the question is put otherwise */
    talk_say(talk, 100, 4);
    talk_turn(talk, 300 - CHECKPOINT_TAIL);
    talk->n = 200; /* another talk, which nobody could foresee, and one more */
    talk_say(talk, 100, 5);
    talk_turn(talk, 0);
    talk->n = 200;
    talk_say(talk, 100, 6);
    talk_turn(talk, 200);
}

static void test_chats(void **state)
{
    (void)state;
    static const char *const names[] = {"qwen3next", "nemotron_h", "granitehybrid", "kimi-linear",
                                        "lfm2"};
    static const struct driver_options forms[] = {
        {.n_slots = 1, .context = CONTEXT, .checkpoints = 8},
        {.n_slots = 3, .context = CONTEXT, .cells = 1024, .batch_rows = 50, .checkpoints = 12}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[1024];
        struct model *model;
        struct error err = {0};
        snprintf(path, sizeof path, "%s/tests/golden/more/models/%s.gguf", getenv("MEDLEY_ROOT"),
                 names[i]);
        if (model_open(path, &model, &err))
            fail_msg("%s", err.text);
        struct driver_options plain = forms[i % 2];
        plain.checkpoints = 0;
        plain.no_prefix_reuse = true;
        static struct talk talk;
        talk = (struct talk){.with = open_driver(model, &forms[i % 2], 1 + i % 2),
                             .without = open_driver(model, &plain, 1),
                             .n_vocab = model_hyperparameters(model)->n_vocab};
        talk_all(&talk);
        driver_close(talk.with);
        driver_close(talk.without);
        model_close(model);
    }
}

/* None without states; never more than there may be, nor than a sixteenth of the weights. */
static void test_as_many_as_are_usual(void **state)
{
    (void)state;
    static const char *const names[] = {"lfm2", "qwen3next", "nemotron_h", "gemma4"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[1024];
        struct model *model;
        struct error err = {0};
        snprintf(path, sizeof path, "%s/tests/golden/more/models/%s.gguf", getenv("MEDLEY_ROOT"),
                 names[i]);
        if (model_open(path, &model, &err))
            fail_msg("%s", err.text);
        uint64_t each = 0;
        for (uint32_t k = 0; k < model_hyperparameters(model)->n_layers; k++)
            each += model_layer_cost(model, k).state_bytes;
        for (uint32_t n_slots = 1; n_slots <= LIMIT_SEQUENCES; n_slots *= 2) {
            const struct driver_options given = {.n_slots = n_slots, .context = 64};
            struct driver_options options;
            if (driver_options_fill(&given, model, &options, &err))
                fail_msg("%s", err.text);
            assert_in_range(options.checkpoints, 0, LIMIT_CHECKPOINTS);
            assert_in_range(options.checkpoints, 0, each ? 2 * n_slots + 4 : 0);
            assert_true(options.checkpoints * each <= model_weight_bytes(model) / 16);
        }
        model_close(model);
    }
}

static int open_gpu(void **state)
{
    (void)state;
    struct error err = {0};
    return gpu_open(&(struct gpu_options){.n_cpu_threads = 1, .skip_other = true}, &gpu, &err) ? -1
                                                                                               : 0;
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
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_the_least_useful_goes),
        cmocka_unit_test(test_a_checkpoint_of_two_slots),
        cmocka_unit_test(test_two_slots_that_begin_alike),
        cmocka_unit_test(test_as_many_as_are_usual),
        cmocka_unit_test(test_chats),
    };
    return cmocka_run_group_tests(tests, open_gpu, close_gpu);
}
