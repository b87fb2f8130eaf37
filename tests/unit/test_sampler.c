/* engine: the sampler against a slow reference in double precision. */
#include "base/limits.h"
#include "base/mem.h"
#include "base/random.h"
#include "engine/sampler.h"
#include "sampler_reference.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { VOCAB_MAX = 160 };

static struct sampler_params plain(void)
{
    return (struct sampler_params){
        .temperature = 1, .top_p = 1, .typical_p = 1, .repeat_penalty = 1};
}

/* Normally distributed, so that the head and the tail look like a model's. */
static void random_logits(float *logits, uint32_t n, uint64_t seed, double deviation)
{
    for (uint32_t i = 0; i < n; i++) {
        double radius = sqrt(-2 * log(1 - random_unit_at(seed, 2 * (uint64_t)i)));
        logits[i] =
            (float)(deviation * radius * cos(2 * M_PI * random_unit_at(seed, 2 * (uint64_t)i + 1)));
    }
}

static struct sampler *open_sampler(uint32_t n_vocab)
{
    struct sampler *sampler;
    struct error err = {0};
    assert_int_equal(sampler_new(n_vocab, &sampler, &err), ERROR_NONE);
    return sampler;
}

/* Draws many times: nothing outside the reference's set; and Pearson's statistic over the tokens
 * that are expected at least 5 times (the others in one class) stays under the mean of chi-square
 * plus five of its standard deviations. */
static void check_draws(const float *logits, uint32_t n_vocab, const struct sampler_params *params)
{
    enum { DRAWS = 1000 };
    static struct candidate list[VOCAB_MAX];
    static uint32_t seen[VOCAB_MAX];
    size_t n = sampler_reference(logits, n_vocab, params, list);
    struct sampler *sampler = open_sampler(n_vocab);
    memset(seen, 0, sizeof seen);
    for (uint64_t i = 0; i < DRAWS; i++)
        seen[sampler_pick(sampler, params, logits, NULL, 0, i)]++;
    sampler_free(sampler);

    double statistic = 0, rest_expected = 0, classes = 0;
    uint32_t rest_seen = 0, inside = 0;
    for (size_t i = 0; i < n; i++) {
        double expected = list[i].p * (double)DRAWS;
        uint32_t got = seen[list[i].id];
        inside += got;
        if (expected < 5) {
            rest_expected += expected;
            rest_seen += got;
            continue;
        }
        statistic += (got - expected) * (got - expected) / expected;
        classes++;
    }
    assert_int_equal(inside, DRAWS);
    if (rest_expected >= 5) {
        statistic += (rest_seen - rest_expected) * (rest_seen - rest_expected) / rest_expected;
        classes++;
    }
    assert_true(classes >= 1);
    double freedom = classes - 1;
    if (!(statistic <= freedom + 5 * sqrt(2 * freedom) + 1e-9))
        fail_msg("chi-square %g with %g degrees of freedom", statistic, freedom);
}

/* Every token of the reference's set is really reachable: walk the unit interval. With 1/T small
 * all kept tokens are nearly equal, so that few draws see them all. */
static void check_set(const float *logits, uint32_t n_vocab, struct sampler_params params)
{
    static struct candidate list[VOCAB_MAX];
    static bool seen[VOCAB_MAX], expected[VOCAB_MAX];
    params.temperature = 100;
    size_t n = sampler_reference(logits, n_vocab, &params, list);
    memset(expected, 0, sizeof expected);
    memset(seen, 0, sizeof seen);
    for (size_t i = 0; i < n; i++)
        expected[list[i].id] = true;
    struct sampler *sampler = open_sampler(n_vocab);
    for (uint64_t i = 0; i < 12 * n + 200; i++)
        seen[sampler_pick(sampler, &params, logits, NULL, 0, i)] = true;
    sampler_free(sampler);
    for (uint32_t i = 0; i < n_vocab; i++) {
        if (seen[i] != expected[i])
            fail_msg("token %u: %s, of %zu kept", i,
                     seen[i] ? "drawn but not kept" : "kept but not drawn", n);
    }
}

static void check_both(const struct sampler_params *params)
{
    static const uint32_t sizes[] = {1, 7, 64, 65, VOCAB_MAX};
    static float logits[VOCAB_MAX];
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        random_logits(logits, sizes[i], 17 + i, i % 2 ? 3 : 1);
        check_set(logits, sizes[i], *params);
        check_draws(logits, sizes[i], params);
    }
}

/* What every row of the table promises. */
static void test_every_setting_has_a_range(void **state)
{
    (void)state;
    struct error err;
    const struct sampler_params usual = sampler_defaults(), off = sampler_off();
    assert_int_equal(sampler_check(&usual, VOCAB_MAX, &err), ERROR_NONE);
    assert_int_equal(sampler_check(&off, VOCAB_MAX, &err), ERROR_NONE);
#define BELOW_FLOAT(field, lowest)                                                                 \
    params.field = (float)(lowest) - 1;                                                            \
    assert_int_equal(sampler_check(&params, VOCAB_MAX, &err), ERROR_INVALID);                      \
    assert_ptr_equal(strstr(err.text, #field ": "), err.text);
#define BELOW_U32(field, lowest) /* 0 is the lowest of all that are there */
#define BELOW_U64(field, lowest)
#define RANGE(TYPE, field, standard, neutral, lowest, highest, ...)                                \
    {                                                                                              \
        struct sampler_params params = usual;                                                      \
        assert_true(usual.field == (standard) && off.field == (neutral));                          \
        params.field = highest;                                                                    \
        assert_int_equal(sampler_check(&params, VOCAB_MAX, &err), ERROR_NONE);                     \
        params.field = lowest;                                                                     \
        assert_int_equal(sampler_check(&params, VOCAB_MAX, &err), ERROR_NONE);                     \
        BELOW_##TYPE(field, lowest)                                                                \
    }
    SAMPLER_FIELDS(RANGE)
#undef RANGE
}

static void test_plain_temperature(void **state)
{
    (void)state;
    const float temperatures[] = {0.3f, 1, 2.5f};
    for (int i = 0; i < 3; i++) {
        struct sampler_params params = plain();
        params.temperature = temperatures[i];
        params.seed = 5;
        check_both(&params);
    }
}

static void test_each_filter_alone(void **state)
{
    (void)state;
    struct sampler_params params;
    for (uint32_t k = 1; k <= 100; k *= 10) {
        params = plain();
        params.top_k = k;
        check_both(&params);
    }
    const float parts[] = {0, 0.1f, 0.5f, 0.95f, 0.999f};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        params = plain();
        params.top_p = parts[i];
        check_both(&params);
        params = plain();
        params.typical_p = parts[i];
        check_both(&params);
        params = plain();
        params.min_p = parts[i];
        check_both(&params);
    }
}

static void test_filters_together(void **state)
{
    (void)state;
    struct sampler_params params = sampler_defaults();
    check_both(&params);
    for (uint64_t i = 0; i < 12; i++) {
        params = plain();
        params.seed = i;
        params.temperature = (float)(0.2 + 2 * random_unit_at(99, 5 * i));
        params.top_k = random_at(98, i) % 3 ? (uint32_t)(random_at(97, i) % 200) : 0;
        params.top_p = (float)random_unit_at(99, 5 * i + 1);
        params.typical_p = random_at(96, i) % 2 ? (float)random_unit_at(99, 5 * i + 2) : 1;
        params.min_p = (float)(0.2 * random_unit_at(99, 5 * i + 3));
        check_both(&params);
    }
}

static void test_a_large_vocabulary_takes_other_paths(void **state)
{
    (void)state;
    enum { N = 60000 };
    float *logits = malloc(N * sizeof *logits);
    struct candidate *list = malloc(N * sizeof *list);
    assert_non_null(logits);
    assert_non_null(list);
    random_logits(logits, N, 3, 2);
    struct sampler *sampler = open_sampler(N);
    const struct sampler_params cases[] = {
        {.temperature = 1, .top_k = 40, .top_p = 1, .typical_p = 1, .repeat_penalty = 1},
        {.temperature = 1, .top_k = 5000, .top_p = 1, .typical_p = 1, .repeat_penalty = 1},
        {.temperature = 1, .top_p = 0.9f, .typical_p = 1, .repeat_penalty = 1},
        {.temperature = 1, .top_p = 1, .typical_p = 0.3f, .repeat_penalty = 1},
        {.temperature = 1, .top_p = 0.99f, .typical_p = 1, .min_p = 0.01f, .repeat_penalty = 1},
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        size_t n = sampler_reference(logits, N, &cases[c], list);
        assert_true(n > 1 && n < N);
        /* The draw walks the kept tokens best first, so the reference's own walk gives the same
         * token. */
        for (uint64_t position = 0; position < 300; position++) {
            double unit = random_unit_at(0, position), sum = 0;
            size_t at = 0;
            while (at + 1 < n && sum + list[at].p <= unit)
                sum += list[at++].p;
            double low = sum, high = sum + list[at].p;
            if (unit - low < 1e-5 || high - unit < 1e-5)
                continue; /* too near a boundary for float weights */
            assert_int_equal(sampler_pick(sampler, &cases[c], logits, NULL, 0, position),
                             list[at].id);
        }
    }
    sampler_free(sampler);
    free(list);
    free(logits);
}

static void test_greedy_is_the_first_largest(void **state)
{
    (void)state;
    static float logits[VOCAB_MAX];
    struct sampler_params params = plain();
    params.temperature = 0;
    for (uint32_t n = 1; n <= VOCAB_MAX; n++) {
        random_logits(logits, n, n, 1);
        uint32_t first = (uint32_t)(random_at(1, n) % n), second = (uint32_t)(random_at(2, n) % n);
        logits[first] = logits[second] = 50;
        struct sampler *sampler = open_sampler(n);
        assert_int_equal(sampler_pick(sampler, &params, logits, NULL, 0, 0),
                         first < second ? first : second);
        params.top_k = 3; /* nothing else matters when greedy */
        assert_int_equal(sampler_pick(sampler, &params, logits, NULL, 0, 0),
                         first < second ? first : second);
        sampler_free(sampler);
    }
}

static void test_draws_depend_on_seed_and_position_only(void **state)
{
    (void)state;
    static float logits[VOCAB_MAX];
    random_logits(logits, VOCAB_MAX, 8, 2);
    struct sampler *one = open_sampler(VOCAB_MAX), *two = open_sampler(VOCAB_MAX);
    struct sampler_params params = sampler_defaults();
    params.seed = 1234;
    int32_t drawn[200];
    bool all_equal = true, other_seed_equal = true;
    for (uint64_t i = 0; i < 200; i++)
        drawn[i] = sampler_pick(one, &params, logits, NULL, 0, i);
    for (uint64_t i = 200; i-- > 0;) {
        assert_int_equal(sampler_pick(two, &params, logits, NULL, 0, i), drawn[i]);
        all_equal = all_equal && drawn[i] == drawn[0];
    }
    params.seed = 1235;
    for (uint64_t i = 0; i < 200; i++)
        other_seed_equal =
            other_seed_equal && sampler_pick(two, &params, logits, NULL, 0, i) == drawn[i];
    assert_false(all_equal);
    assert_false(other_seed_equal);
    sampler_free(one);
    sampler_free(two);
}

static void test_bias_forbids_forces_and_adds(void **state)
{
    (void)state;
    static float logits[VOCAB_MAX], biased[VOCAB_MAX];
    random_logits(logits, VOCAB_MAX, 4, 3);
    struct sampler *sampler = open_sampler(VOCAB_MAX);
    struct sampler_params params = plain();
    params.temperature = 0;
    int32_t best = sampler_pick(sampler, &params, logits, NULL, 0, 0);

    struct logit_bias forbid = {best, -100};
    params.biases = &forbid;
    params.n_biases = 1;
    int32_t second = sampler_pick(sampler, &params, logits, NULL, 0, 0);
    assert_int_not_equal(second, best);
    logits[best] = 1e30f; /* however large */
    assert_int_equal(sampler_pick(sampler, &params, logits, NULL, 0, 0), second);

    struct logit_bias force[] = {{77, 100}, {best, 99}, {78, 100}};
    params.biases = force;
    params.n_biases = 3;
    params.temperature = 1;
    logits[77] = -1000;
    logits[78] = -1000.5f;
    unsigned seen[2] = {0};
    for (uint64_t i = 0; i < 1000; i++) {
        int32_t token = sampler_pick(sampler, &params, logits, NULL, 0, i);
        assert_true(token == 77 || token == 78);
        seen[token - 77]++;
    }
    assert_true(seen[0] > 560 && seen[0] < 680); /* 1 / (1 + e^-0.5) = 0.622 */

    random_logits(logits, VOCAB_MAX, 4, 1);
    struct logit_bias add[] = {{3, 2.5f}, {9, -1.5f}, {3, 1}};
    params.biases = add;
    memcpy(biased, logits, sizeof biased);
    biased[3] += 3.5f;
    biased[9] -= 1.5f;
    struct sampler_params unbiased = plain();
    for (uint64_t i = 0; i < 500; i++)
        assert_int_equal(sampler_pick(sampler, &params, logits, NULL, 0, i),
                         sampler_pick(sampler, &unbiased, biased, NULL, 0, i));
    sampler_free(sampler);
}

static void test_penalties_are_those_of_the_papers(void **state)
{
    (void)state;
    static float logits[100], expected[100];
    random_logits(logits, 100, 6, 2);
    const int32_t history[] = {50, 1, 2, 2, 3, 2};
    const uint32_t windows[] = {0, 5, 2, 1, 6, 100};
    struct sampler *sampler = open_sampler(100);
    for (size_t w = 0; w < sizeof windows / sizeof windows[0]; w++) {
        struct sampler_params params = plain();
        params.repeat_penalty = 1.3f;
        params.frequency_penalty = 0.4f;
        params.presence_penalty = 0.25f;
        params.penalty_last_n = windows[w];
        size_t from = windows[w] && windows[w] < 6 ? 6 - windows[w] : 0;
        memcpy(expected, logits, sizeof expected);
        for (int32_t token = 0; token < 100; token++) {
            unsigned count = 0;
            for (size_t i = from; i < 6; i++)
                count += history[i] == token;
            double x = (double)logits[token];
            if (count)
                expected[token] = (float)((x > 0 ? x / 1.3 : x * 1.3) - 0.4 * count - 0.25);
        }
        struct sampler_params none = plain();
        unsigned differs = 0;
        for (uint64_t i = 0; i < 1000; i++) {
            int32_t got = sampler_pick(sampler, &params, logits, history, 6, i);
            differs += got != sampler_pick(sampler, &none, expected, NULL, 0, i);
        }
        assert_true(
            differs <=
            2); /* rounding of the float constants may move a draw that falls on a boundary */
    }
    sampler_free(sampler);
}

static void test_a_greedy_repetition_is_broken_by_a_penalty(void **state)
{
    (void)state;
    const float logits[4] = {1, 2, 1.5f, -3};
    const int32_t history[] = {1, 1, 1};
    struct sampler *sampler = open_sampler(4);
    struct sampler_params params = plain();
    params.temperature = 0;
    assert_int_equal(sampler_pick(sampler, &params, logits, history, 3, 3), 1);
    params.frequency_penalty = 0.2f;
    assert_int_equal(sampler_pick(sampler, &params, logits, history, 3, 3), 2);
    params.frequency_penalty = 0;
    params.repeat_penalty = 2;
    assert_int_equal(sampler_pick(sampler, &params, logits, history, 3, 3), 2);
    params.repeat_penalty = 0.5f; /* rewards */
    assert_int_equal(sampler_pick(sampler, &params, logits, history, 3, 3), 1);
    sampler_free(sampler);
}

static void test_logits_that_are_not_finite(void **state)
{
    (void)state;
    static float logits[200];
    struct sampler *sampler = open_sampler(200);
    struct sampler_params shapes[6];
    for (int i = 0; i < 6; i++)
        shapes[i] = plain();
    shapes[0].temperature = 0;
    shapes[1].top_k = 5;
    shapes[2].top_p = 0.9f;
    shapes[3].typical_p = 0.9f;
    shapes[4].min_p = 0.1f;
    for (size_t s = 0; s < 6; s++) {
        for (int i = 0; i < 200; i++)
            logits[i] = i % 2 ? NAN : -INFINITY;
        assert_int_equal(sampler_pick(sampler, &shapes[s], logits, NULL, 0, 1), 0);
        struct token_logprob top[2];
        assert_true(isinf(sampler_logprobs(sampler, logits, 3, top, 2)));
        assert_int_equal(top[0].token, -1);
        logits[150] = -20;
        for (uint64_t i = 0; i < 50; i++)
            assert_int_equal(sampler_pick(sampler, &shapes[s], logits, NULL, 0, i), 150);
        assert_true(sampler_logprobs(sampler, logits, 150, top, 2) == 0);
        assert_int_equal(top[0].token, 150);
        assert_int_equal(top[1].token, -1);
        logits[199] = INFINITY;
        for (uint64_t i = 0; i < 50; i++)
            assert_int_equal(sampler_pick(sampler, &shapes[s], logits, NULL, 0, i), 199);
        assert_true(sampler_logprobs(sampler, logits, 199, NULL, 0) == 0);
        shapes[s].temperature = shapes[s].temperature > 0 ? 1e-40f : 0; /* 1/T overflows a float */
        assert_int_equal(sampler_pick(sampler, &shapes[s], logits, NULL, 0, 7), 199);
    }
    sampler_free(sampler);
}

static void test_logprobs_are_the_log_softmax(void **state)
{
    (void)state;
    static float logits[VOCAB_MAX];
    static struct candidate list[VOCAB_MAX];
    struct token_logprob top[LIMIT_TOP_LOGPROBS];
    const uint32_t sizes[] = {20, 64, 129, VOCAB_MAX};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        uint32_t n = sizes[s];
        random_logits(logits, n, s, 4);
        logits[7] = logits[11]; /* a tie: the lower id first */
        struct sampler *sampler = open_sampler(n);
        double max = -INFINITY, sum = 0;
        for (uint32_t i = 0; i < n; i++) {
            list[i] = (struct candidate){.id = (int32_t)i, .x = (double)logits[i]};
            max = fmax(max, list[i].x);
        }
        for (uint32_t i = 0; i < n; i++)
            sum += exp(list[i].x - max);
        for (int32_t i = 0; i < (int32_t)n; i += 13)
            assert_true(fabs((double)sampler_logprobs(sampler, logits, i, NULL, 0) -
                             (list[i].x - max - log(sum))) < 1e-5);
        qsort(list, n, sizeof *list, candidate_better);
        sampler_logprobs(sampler, logits, 0, top, LIMIT_TOP_LOGPROBS);
        for (uint32_t i = 0; i < LIMIT_TOP_LOGPROBS; i++) {
            assert_int_equal(top[i].token, list[i].id);
            assert_true(fabs((double)top[i].logprob - (list[i].x - max - log(sum))) < 1e-5);
        }
        sampler_free(sampler);
    }
}

static void check_refused(struct sampler_params params, const char *field)
{
    struct error err = {0};
    assert_int_equal(sampler_check(&params, 100, &err), ERROR_INVALID);
    if (strncmp(err.text, field, strlen(field)) != 0)
        fail_msg("'%s' does not name %s", err.text, field);
}

static void test_parameters_out_of_range_are_named(void **state)
{
    (void)state;
    struct error err = {0};
    struct sampler_params good = sampler_defaults(), bad;
    assert_int_equal(sampler_check(&good, 100, &err), ERROR_NONE);
    const struct {
        const char *name;
        size_t offset;
        float low, high;
    } fields[] = {
        {"temperature", offsetof(struct sampler_params, temperature), -0.1f, 100.1f},
        {"top_p", offsetof(struct sampler_params, top_p), -0.1f, 1.01f},
        {"min_p", offsetof(struct sampler_params, min_p), -0.1f, 1.01f},
        {"typical_p", offsetof(struct sampler_params, typical_p), -0.1f, 1.01f},
        {"repeat_penalty", offsetof(struct sampler_params, repeat_penalty), 0, 101},
        {"frequency_penalty", offsetof(struct sampler_params, frequency_penalty), -2.1f, 2.1f},
        {"presence_penalty", offsetof(struct sampler_params, presence_penalty), -2.1f, 2.1f},
    };
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        const float values[] = {fields[i].low, fields[i].high, NAN, INFINITY, -INFINITY};
        for (size_t v = 0; v < sizeof values / sizeof values[0]; v++) {
            bad = good;
            memcpy((char *)&bad + fields[i].offset, &values[v], sizeof values[v]);
            check_refused(bad, fields[i].name);
        }
    }
}

static void test_biases_out_of_range_are_refused(void **state)
{
    (void)state;
    static struct logit_bias many[LIMIT_LOGIT_BIAS + 1];
    const struct logit_bias wrong[] = {{-1, 0}, {100, 0}, {5, 100.5f}, {5, -101}, {5, NAN}};
    struct sampler_params params = sampler_defaults();
    params.n_biases = 1;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        params.biases = &wrong[i];
        check_refused(params, "logit_bias");
    }
    params.biases = many;
    params.n_biases = LIMIT_LOGIT_BIAS;
    assert_int_equal(sampler_check(&params, 100, NULL), ERROR_NONE);
    params.n_biases++;
    check_refused(params, "logit_bias");
}

static void test_new_refuses_and_survives_no_memory(void **state)
{
    (void)state;
    struct sampler *sampler = (struct sampler *)1;
    struct error err = {0};
    assert_int_equal(sampler_new(0, &sampler, &err), ERROR_INVALID);
    assert_null(sampler);
    assert_int_equal(sampler_new(LIMIT_VOCAB + 1, &sampler, &err), ERROR_INVALID);
    unsigned nth = 1;
    for (;; nth++) {
        mem_fail_nth(nth);
        enum error_code code = sampler_new(1000, &sampler, &err);
        mem_fail_nth(0);
        if (code == ERROR_NONE)
            break;
        assert_int_equal(code, ERROR_NO_MEMORY);
        assert_null(sampler);
    }
    assert_true(nth > 4);
    sampler_free(sampler);
    sampler_free(NULL);
}

static void test_picking_allocates_nothing(void **state)
{
    (void)state;
    static float logits[VOCAB_MAX];
    random_logits(logits, VOCAB_MAX, 1, 2);
    struct sampler *sampler = open_sampler(VOCAB_MAX);
    struct sampler_params params = sampler_defaults();
    params.repeat_penalty = 1.1f;
    params.typical_p = 0.9f;
    const int32_t history[] = {1, 2, 3};
    struct token_logprob top[5];
    mem_fail_nth(1);
    for (uint64_t i = 0; i < 10; i++)
        sampler_logprobs(sampler, logits, sampler_pick(sampler, &params, logits, history, 3, i),
                         top, 5);
    assert_null(mem_new(1)); /* the failure is still waiting: nothing above asked for memory */
    sampler_free(sampler);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_setting_has_a_range),
        cmocka_unit_test(test_plain_temperature),
        cmocka_unit_test(test_each_filter_alone),
        cmocka_unit_test(test_filters_together),
        cmocka_unit_test(test_a_large_vocabulary_takes_other_paths),
        cmocka_unit_test(test_greedy_is_the_first_largest),
        cmocka_unit_test(test_draws_depend_on_seed_and_position_only),
        cmocka_unit_test(test_bias_forbids_forces_and_adds),
        cmocka_unit_test(test_penalties_are_those_of_the_papers),
        cmocka_unit_test(test_a_greedy_repetition_is_broken_by_a_penalty),
        cmocka_unit_test(test_logits_that_are_not_finite),
        cmocka_unit_test(test_logprobs_are_the_log_softmax),
        cmocka_unit_test(test_parameters_out_of_range_are_named),
        cmocka_unit_test(test_biases_out_of_range_are_refused),
        cmocka_unit_test(test_new_refuses_and_survives_no_memory),
        cmocka_unit_test(test_picking_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
