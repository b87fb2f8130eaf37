/* The page of /metrics. With the word `print` it prints one with every metric of the table, for
 * promtool (tests/metrics). */
#include "api/metrics.h"
#include "base/mem.h"
#include "metrics/page.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void expect_page(const struct buffer *out, const char *wanted)
{
    assert_false(out->failed);
    assert_string_equal(out->data, wanted);
}

static void test_samples(void **state)
{
    struct buffer out = {0};
    struct metrics_page page = {.out = &out};
    metrics_put(&page, METRIC_DEVICE_POWER, METRICS_LABELS("cpu"), 71.5);
    metrics_put(&page, METRIC_DEVICE_POWER, METRICS_LABELS("cuda0"), INFINITY);
    metrics_put(&page, METRIC_DEVICE_CLOCK, METRICS_LABELS("cpu"), NAN); /* unknown */
    metrics_put_reading(&page, METRIC_DEVICE_CLOCK, METRICS_LABELS("cpu"), reading_failed(), 1);
    metrics_put_count(&page, METRIC_TERM, NULL, 12345678901234);
    expect_page(&out, "# HELP medley_device_power_watts What it takes.\n"
                      "# TYPE medley_device_power_watts gauge\n"
                      "medley_device_power_watts{device=\"cpu\"} 71.5\n"
                      "medley_device_power_watts{device=\"cuda0\"} +Inf\n"
                      "# HELP medley_consensus_term The log's term, as this node knows it.\n"
                      "# TYPE medley_consensus_term gauge\n"
                      "medley_consensus_term 12345678901234\n");
    buffer_deinit(&out);
}

/* Names come from other machines, drivers and files. */
static void test_hostile_labels(void **state)
{
    static const struct {
        const char *given, *written;
    } cases[] = {
        {"", ""},
        {"a\"} 1\nmedley_x 2", "a\\\"} 1?medley_x 2"},
        {"back\\slash", "back\\\\slash"},
        {"K\xc3\xbc"
         "che \xe2\x82\xac \xf0\x9f\x98\x80",
         "K\xc3\xbc"
         "che \xe2\x82\xac \xf0\x9f\x98\x80"},
        {"\xff\xc3", "??"},
        {"\xc0\x80 \xe0\x80\x80 \xed\xa0\x80 \xf5\x80\x80\x80", "?? ??? ??? ????"},
        {"\x01\x1f", "??"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char wanted[512];
        struct buffer out = {0};
        struct metrics_page page = {.out = &out};
        metrics_put(&page, METRIC_BUILD_INFO, METRICS_LABELS(cases[i].given), 1);
        snprintf(wanted, sizeof wanted, "\nmedley_build_info{version=\"%s\"} 1\n",
                 cases[i].written);
        if (!strstr(out.data, wanted))
            fail_msg("%s: %s", cases[i].given, out.data);
        buffer_deinit(&out);
    }
    char *text = mem_new(100001);
    memset(text, 'a', 100000);
    struct buffer out = {0};
    struct metrics_page page = {.out = &out};
    metrics_put(&page, METRIC_BUILD_INFO, METRICS_LABELS(text), 1);
    assert_true(out.size < 400);
    buffer_deinit(&out);
    mem_free(text);
}

static void test_histogram(void **state)
{
    struct histogram histogram = {0};
    struct buffer out = {0};
    struct metrics_page page = {.out = &out};
    histogram_add_ns(&histogram, HISTOGRAM_SECONDS, 500000); /* on a limit: within it */
    histogram_add_ns(&histogram, HISTOGRAM_SECONDS, 500001);
    histogram_add_ns(&histogram, HISTOGRAM_SECONDS, UINT64_C(1000000000000));
    metrics_put_histogram(&page, METRIC_TTFT_SECONDS, METRICS_LABELS("m"), &histogram);
    assert_non_null(strstr(out.data, "_bucket{model=\"m\",le=\"0.0005\"} 1\n"));
    assert_non_null(strstr(out.data, "_bucket{model=\"m\",le=\"0.001\"} 2\n"));
    assert_non_null(strstr(out.data, "_bucket{model=\"m\",le=\"16.384\"} 2\n"));
    assert_non_null(strstr(out.data, "_bucket{model=\"m\",le=\"+Inf\"} 3\n"));
    assert_non_null(strstr(out.data, "_seconds_count{model=\"m\"} 3\n"));
    assert_non_null(strstr(out.data, "_seconds_sum{model=\"m\"} 1000.001\n"));
    buffer_deinit(&out);
}

static void test_memory_runs_out(void **state)
{
    for (unsigned nth = 1; nth < 4; nth++) {
        struct buffer out = {0};
        struct metrics_page page = {.out = &out};
        struct histogram histogram = {0};
        mem_fail_nth(nth);
        for (int i = 0; i < 20; i++)
            metrics_put_histogram(&page, METRIC_TTFT_SECONDS, METRICS_LABELS("m"), &histogram);
        mem_fail_nth(0);
        assert_true(out.failed);
        buffer_deinit(&out);
    }
}

/* ---- what the API counts --------------------------------------------------------------------- */

static struct request_record record_of(const char *model, uint32_t i)
{
    struct request_record record = {.outcome = RECORD_DONE,
                                    .started_ns = 1000,
                                    .ended_ns = 2000000000,
                                    .first_token_ns = 500000000,
                                    .last_token_ns = 1500000000,
                                    .prompt_tokens = 7,
                                    .cached_tokens = 2,
                                    .generated_tokens = 11,
                                    .has_usage = true,
                                    .queued_ns = 20000000,
                                    .metered_ns = 1,
                                    .joules = 5,
                                    .forecast_decode_tokens_per_s = 20};
    snprintf(record.model, sizeof record.model, "%s%u", model, i);
    return record;
}

/* However many models come and go, the page has so many labels and then "other". */
static void test_models_are_bounded(void **state)
{
    struct metrics *metrics = mem_new(sizeof *metrics);
    const struct metrics_gauges gauges = {0};
    struct buffer out = {0};
    struct metrics_page page = {.out = &out};
    for (uint32_t i = 0; i < 1000; i++) {
        const struct request_record record = record_of("m", i);
        metrics_completion(metrics, &record);
    }
    metrics_write(metrics, &gauges, &page);
    uint32_t n = 0;
    for (const char *at = out.data; (at = strstr(at, "medley_prompt_tokens_total{")); at++)
        n++;
    assert_int_equal(n, METRICS_MODELS + 1);
    assert_non_null(strstr(out.data, "medley_prompt_tokens_total{model=\"other\"} 6776\n"));
    assert_non_null(strstr(out.data, "medley_prompt_tokens_total{model=\"m31\"} 7\n"));
    assert_non_null(strstr(out.data, "medley_requests_total{model=\"m0\",outcome=\"done\"} 1\n"));
    assert_non_null(strstr(out.data, "medley_requests_total{model=\"m0\",outcome=\"failed\"} 0\n"));
    assert_non_null(
        strstr(out.data, "medley_decode_forecast_ratio_bucket{model=\"m0\",le=\"0.5\"} 1\n"));
    assert_non_null(strstr(out.data, "medley_request_energy_joules_total{model=\"m0\"} 5\n"));
    assert_non_null(strstr(out.data, "medley_request_energy_tokens_total{model=\"m0\"} 11\n"));
    buffer_deinit(&out);
    mem_free(metrics);
}

/* Every metric of the table once, its labels with what escaping is for. */
static int print_page(void)
{
    static const char *const labels[METRICS_LABELS_MAX] = {"a\"\n\\", "\xff", "c", "d",
                                                           "e",       "f",    "g", "h"};
#define TAKES_LABELS(NAME, name, kind, names, help) names[0] != '\0',
    static const bool takes[] = {METRICS_TABLE(TAKES_LABELS)};
#define IS_VALUE(NAME, name, kind, names, help) #kind[0] == 'C' || #kind[0] == 'G',
    static const bool is_value[] = {METRICS_TABLE(IS_VALUE)};
    struct histogram histogram = {.buckets = {1, 2, 3}, .count = 7, .sum = 0.5};
    struct buffer out = {0};
    struct metrics_page page = {.out = &out};
    for (int i = 0; i < METRICS; i++) {
        if (is_value[i])
            metrics_put(&page, (enum metric)i, takes[i] ? labels : NULL, 1.5);
        else
            metrics_put_histogram(&page, (enum metric)i, takes[i] ? labels : NULL, &histogram);
    }
    fwrite(out.data, 1, out.size, stdout);
    buffer_deinit(&out);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_samples),
        cmocka_unit_test(test_hostile_labels),
        cmocka_unit_test(test_histogram),
        cmocka_unit_test(test_memory_runs_out),
        cmocka_unit_test(test_models_are_bounded),
    };
    if (argc > 1 && strcmp(argv[1], "print") == 0)
        return print_page();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
