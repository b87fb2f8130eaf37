/* A draft model elsewhere (pipeline/drafter.h), where whoever guesses answers, refuses, fails, or
 * says nothing at all: nobody waits for ever, nobody is asked again at once, and what is learnt of
 * the price is right. */
#include "base/clock.h"
#include "engine/sampler.h"
#include "model/model.h"
#include "pipeline/drafter.h"
#include "request/generator.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

enum { CONTEXT = 100, SLOTS = 2, N_TOKENS = 20 };

static struct guesser {
    struct generator base; /* first */
    enum { ANSWERS, REFUSES, FAILS, SAYS_NOTHING } mode;
    struct request request; /* the last */
    uint64_t id;
    bool is_open;
    uint32_t n_asked, n_cancelled;
} guesser;
static struct model *model;
static uint32_t n_ready;

static void end(enum finish_reason reason, const struct error *err)
{
    const struct request_usage usage = {0};
    guesser.is_open = false;
    guesser.request.handlers.done(guesser.request.arg, reason, &usage, err);
}

static enum error_code guesser_submit(struct generator *generator, const struct request *request,
                                      uint64_t *id, struct error *err)
{
    assert_ptr_equal(generator, &guesser.base);
    assert_true(request->never_waits);
    assert_false(guesser.is_open);
    if (guesser.mode == REFUSES)
        return error_set(err, ERROR_BUSY, "the queue is full");
    guesser.n_asked++;
    guesser.request = *request;
    guesser.is_open = true;
    *id = ++guesser.id;
    if (guesser.mode == ANSWERS) {
        bool goes_on = true;
        for (uint32_t i = 0; i < request->n_predict && goes_on; i++) {
            const struct token_event event = {.token = 10 + (int32_t)i, .index = i};
            goes_on = request->handlers.token(request->arg, &event);
        }
        end(goes_on ? FINISH_LENGTH : FINISH_STOP, NULL);
    } else if (guesser.mode == FAILS) {
        end(FINISH_ERROR, &(struct error){.code = ERROR_IO, .text = "its machine was lost"});
    }
    return ERROR_NONE;
}

static void guesser_cancel(struct generator *generator, uint64_t id)
{
    assert_ptr_equal(generator, &guesser.base);
    if (!guesser.is_open || id != guesser.id)
        return;
    guesser.n_cancelled++;
    end(FINISH_CANCELLED, NULL);
}

static uint32_t guesser_context(const struct generator *generator)
{
    assert_ptr_equal(generator, &guesser.base);
    return CONTEXT;
}

static void on_ready(void *arg)
{
    assert_ptr_equal(arg, &guesser);
    n_ready++;
}

static struct drafter *open_drafter(void)
{
    static const struct generator_impl impl = {
        .submit = guesser_submit, .cancel = guesser_cancel, .context = guesser_context};
    const struct driver_draft draft = {.elsewhere = &guesser.base, .share = .25};
    const struct driver_options options = {.n_slots = SLOTS, .context = 4 * CONTEXT};
    struct drafter *drafter;
    struct error err = {0};
    guesser = (struct guesser){.base = {&impl}};
    if (drafter_open(&draft, model, &options, on_ready, &guesser, &drafter, &err))
        fail_msg("%s", err.text);
    assert_int_equal(drafter_bytes(drafter), 0);
    return drafter;
}

static const int32_t text[4 * CONTEXT];

static bool ask(struct drafter *drafter, uint32_t n_tokens, uint32_t n_wanted)
{
    static const struct sampler_params greedy;
    const struct drafter_question question = {.slot = 1,
                                              .sequence = 7,
                                              .tokens = text,
                                              .n_tokens = n_tokens,
                                              .n_wanted = n_wanted,
                                              .sampler = &greedy,
                                              .cache_key = 99,
                                              .expected_ns = 1e6};
    return drafter_ask(drafter, &question);
}

static uint32_t answer(struct drafter *drafter)
{
    struct drafter_guesses guesses;
    if (!drafter_answer(drafter, 1, 7, text, N_TOKENS, &guesses))
        return UINT32_MAX;
    for (uint32_t i = 0; i < guesses.n; i++)
        assert_int_equal(guesses.tokens[i], 10 + (int32_t)i);
    return guesses.n;
}

static void pass_ms(uint32_t ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

static void test_answers(void **state)
{
    (void)state;
    struct drafter *drafter = open_drafter();
    assert_true(drafter_token_ns(drafter, 100) > 24 && drafter_token_ns(drafter, 100) < 26);
    n_ready = 0;
    assert_true(ask(drafter, N_TOKENS, 3));
    assert_int_equal(n_ready, 1);
    assert_int_equal(guesser.request.n_prompt, N_TOKENS);
    assert_int_equal(guesser.request.cache_key, 99);
    assert_int_equal(answer(drafter), 3);
    assert_true(ask(drafter, N_TOKENS, 5)); /* it has read all, so this is the price of guesses */
    assert_int_equal(answer(drafter), 5);
    assert_true(drafter_token_ns(drafter, 1e12) < 1e9);
    assert_false(ask(drafter, CONTEXT - 2, 3)); /* beyond its context */
    assert_true(ask(drafter, CONTEXT - 3, 3));
    assert_int_equal(guesser.n_asked, 3);
    drafter_close(drafter);
}

/* It is asked again after a pause. */
static void test_fails(void **state)
{
    (void)state;
    for (uint32_t refuses = 0; refuses < 2; refuses++) {
        struct drafter *drafter = open_drafter();
        guesser.mode = refuses ? REFUSES : FAILS;
        assert_int_equal(ask(drafter, N_TOKENS, 3), !refuses);
        if (!refuses)
            assert_int_equal(answer(drafter), 0);
        guesser.mode = ANSWERS;
        assert_false(ask(drafter, N_TOKENS, 3));
        pass_ms(1100);
        assert_true(ask(drafter, N_TOKENS, 3));
        assert_int_equal(answer(drafter), 3);
        assert_true(ask(drafter, N_TOKENS, 3)); /* that is forgotten */
        drafter_close(drafter);
    }
}

/* Whoever minds it ends the waiting, neither at once nor late. */
static void test_says_nothing(void **state)
{
    (void)state;
    struct drafter *drafter = open_drafter();
    guesser.mode = SAYS_NOTHING;
    assert_true(ask(drafter, N_TOKENS, 3));
    const uint64_t asked_ns = clock_now_ns();
    assert_true(drafter_is_asked(drafter, 1, 7));
    drafter_mind(drafter);
    while (drafter_is_asked(drafter, 1, 7) && clock_now_ns() - asked_ns < UINT64_C(60000000000)) {
        assert_int_equal(answer(drafter), UINT32_MAX);
        pass_ms(10);
        drafter_mind(drafter);
    }
    assert_true(clock_now_ns() - asked_ns > 200000000);
    assert_int_equal(guesser.n_cancelled, 1);
    assert_int_equal(answer(drafter), 0);
    assert_false(ask(drafter, N_TOKENS, 3));
    drafter_close(drafter);
}

static void test_is_closed_in_mid_question(void **state)
{
    (void)state;
    struct drafter *drafter = open_drafter();
    guesser.mode = SAYS_NOTHING;
    assert_true(ask(drafter, N_TOKENS, 3));
    drafter_close(drafter);
    assert_int_equal(guesser.n_cancelled, 1);
    assert_false(guesser.is_open);
}

static int open_model(void **state)
{
    (void)state;
    char path[1024];
    struct error err = {0};
    const char *golden = getenv("MEDLEY_GOLDEN");
    snprintf(path, sizeof path, "%s/models/llama.gguf", golden ? golden : ".");
    if (model_open(path, &model, &err))
        print_error("%s\n", err.text);
    return model ? 0 : -1;
}

static int close_model(void **state)
{
    (void)state;
    model_close(model);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_fails),
        cmocka_unit_test(test_says_nothing),
        cmocka_unit_test(test_is_closed_in_mid_question),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
