/* node/served.h: what replies took beside the forecast of then. */
#include "node/daemon_state.h"
#include "node/served.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const struct run_forecast cool = {.prefill_tokens_per_s = 1000, .stream_tokens_per_s = 100};
static const struct run_forecast hot = {.prefill_tokens_per_s = 500, .stream_tokens_per_s = 50};

/* Two replies of 40 and 42 tokens in 1 s together; prompts of 500 and 300 rows in 0.9 s. */
static const struct driver_served two = {.replies = 2,
                                         .reply_tokens = 80,
                                         .reply_ns = 1000000000,
                                         .prompts = 2,
                                         .prompt_rows = 800,
                                         .prompt_ns = 900000000};

static void expect_near(double a, double b)
{
    if (!(fabs(a - b) <= 1e-6 * fabs(b)))
        fail_msg("%.12g is not %.12g", a, b);
}

static void test_measured_beside_forecast(void **state)
{
    struct served_row row = {0};
    double error = 0;
    served_step(&row, 7, &two, &cool);
    served_step(&row, 7, &two, &hot); /* nothing new: another forecast changes nothing */
    const struct served_error out = served_compare(&row.sums);
    assert_int_equal(out.n_replies, 2);
    expect_near(out.tokens_per_s, 80);
    expect_near(out.forecast_tokens_per_s, 100);
    assert_true(served_decode_error(&out, &error));
    expect_near(error, -0.2);
    expect_near(out.first_token_s, 0.45);
    expect_near(out.forecast_first_token_s, 0.4 + 0.01);
    assert_true(served_first_token_error(&out, &error));
    expect_near(error, 0.45 / 0.41 - 1);
}

/* The first reply while it was cool, the second while it was hot, each as forecast. */
static void test_each_reply_has_the_forecast_of_its_time(void **state)
{
    struct driver_served now = {1, 100, 1000000000, 1, 990, 1000000000};
    struct served_row row = {0};
    double error = 1;
    served_step(&row, 7, &now, &cool);
    now.replies++, now.reply_tokens += 50, now.reply_ns += 1000000000;
    now.prompts++, now.prompt_rows += 490, now.prompt_ns += 1000000000;
    served_step(&row, 7, &now, &hot);
    const struct served_error out = served_compare(&row.sums);
    assert_true(served_decode_error(&out, &error) && fabs(error) < 1e-6);
    assert_true(served_first_token_error(&out, &error) && fabs(error) < 1e-6);
    expect_near(out.tokens_per_s, 75);
}

static void test_it_begins_anew(void **state)
{
    struct driver_served now = two;
    struct served_row row = {0};
    served_step(&row, 7, &two, &cool);
    now.replies++, now.reply_tokens += 20;
    served_step(&row, 8, &now, &cool); /* another placement: all of it is new */
    assert_int_equal(row.sums.measured.reply_tokens, 100);
    served_step(&row, 8, &two, &cool); /* its driver was opened anew */
    assert_int_equal(row.sums.measured.reply_tokens, 80);
}

static void test_what_is_not_known_is_not_compared(void **state)
{
    static const struct run_forecast unknown = {0}, no_prefill = {.stream_tokens_per_s = 100};
    static const struct driver_served few = {1, SERVED_TOKENS_MIN - 1, 1000, 1, 5, 1000};
    struct served_row none = {0}, row = {0}, blind = {0};
    double error = 1;
    struct served_error out = served_compare(&none.sums);
    assert_false(served_decode_error(&out, &error) || served_first_token_error(&out, &error));
    assert_true(error == 0);
    served_step(&row, 7, &few, &cool);
    out = served_compare(&row.sums);
    assert_true(!served_decode_error(&out, &error) && served_first_token_error(&out, &error));
    served_step(&blind, 7, &two, &unknown); /* what nothing was forecast for does not count */
    out = served_compare(&blind.sums);
    assert_true(!out.n_replies && !served_decode_error(&out, &error));
    struct driver_served more = two;
    more.replies++, more.reply_tokens += 50, more.reply_ns += 500000000, more.prompts++;
    served_step(&blind, 7, &more, &no_prefill);
    out = served_compare(&blind.sums);
    assert_true(served_decode_error(&out, &error) && fabs(error) < 1e-6);
    assert_false(served_first_token_error(&out, &error));
}

/* Another node's numbers may be any. */
static void test_foreign_numbers(void **state)
{
    static const struct served_sums all[] = {
        {{UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX},
         UINT64_MAX,
         UINT64_MAX},
        {{1, UINT64_MAX, 1, 1, UINT64_MAX, 1}, 1, UINT64_MAX},
        {{1, UINT64_MAX, UINT64_MAX, UINT64_MAX, 0, 1}, UINT64_MAX, 1}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const struct served_error out = served_compare(&all[i]);
        double error;
        assert_true(served_decode_error(&out, &error) && isfinite(error) && error >= -1);
        assert_true(served_first_token_error(&out, &error) && isfinite(error) && error >= -1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_measured_beside_forecast),
        cmocka_unit_test(test_each_reply_has_the_forecast_of_its_time),
        cmocka_unit_test(test_it_begins_anew),
        cmocka_unit_test(test_what_is_not_known_is_not_compared),
        cmocka_unit_test(test_foreign_numbers),
    };
    return cmocka_run_group_tests_name("served", tests, NULL, NULL);
}
