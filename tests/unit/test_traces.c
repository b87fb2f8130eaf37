/* Traces: the client's context, and spans as OTLP's JSON mapping wants them. */
#include "api/traces.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <yyjson.h>

#include <cmocka.h>

#define TRACE "0af7651916cd43dd8448eb211c80319c"
#define PARENT "b7ad6b7169203331"

static bool take(const char *text, struct trace_context *out)
{
    return trace_context_read(text, strlen(text), out);
}

static void test_contexts(void **state)
{
    static const char *const wrong[] = {
        "",
        "00-" TRACE "-" PARENT "-0",
        "00-" TRACE "-" PARENT "-01-more", /* version 00 has no more */
        "ff-" TRACE "-" PARENT "-01",
        "00-00000000000000000000000000000000-" PARENT "-01",
        "00-" TRACE "-0000000000000000-01",
        "00-0AF7651916CD43DD8448EB211C80319C-" PARENT "-01",
        "00_" TRACE "-" PARENT "-01",
        "00-" TRACE "-" PARENT "-0x",
        "cc-" TRACE "-" PARENT "-01what",
    };
    struct trace_context context;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        if (take(wrong[i], &context) || context.trace_id[0])
            fail_msg("took '%s'", wrong[i]);
    }
    assert_true(take("00-" TRACE "-" PARENT "-01", &context));
    assert_string_equal(context.trace_id, TRACE);
    assert_string_equal(context.parent, PARENT);
    assert_false(context.is_unwanted);
    assert_true(take("00-" TRACE "-" PARENT "-00", &context));
    assert_true(context.is_unwanted);
    assert_true(take("cc-" TRACE "-" PARENT "-03-new", &context)); /* a later version */
    assert_true(trace_context_make(&context));
    assert_string_equal(context.trace_id, TRACE);
    assert_true(context.span);
    struct trace_context own = {0}, other = {0};
    assert_true(trace_context_make(&own) && trace_context_make(&other));
    assert_int_equal(strlen(own.trace_id), 32);
    assert_string_not_equal(own.trace_id, other.trace_id);
}

static struct request_record record_of(struct request_run_stage *stages)
{
    const uint64_t ms = 1000000;
    struct request_record record = {
        .id = "chatcmpl-1",
        .model = "a \"model\"",
        .outcome = RECORD_DONE,
        .started_ms = 1795000000000,
        .started_ns = 500 * ms,
        .submitted_ns = 510 * ms,
        .first_token_ns = 600 * ms,
        .last_token_ns = 900 * ms,
        .ended_ns = 910 * ms,
        .prompt_tokens = 7,
        .generated_tokens = 5,
        .has_usage = true,
        .queued_ns = 20 * ms,
        .pauses = {{700 * ms, 800 * ms, "a node was lost"}},
        .n_pauses = 1,
        .driver = "node-a",
        .stages = stages,
        .n_stages = 2,
    };
    take("00-" TRACE "-" PARENT "-01", &record.trace);
    record.trace.span = UINT64_MAX; /* those of its parts wrap around, and none is 0 */
    return record;
}

static bool is_hex(const char *text, size_t n)
{
    return text && strlen(text) == n && strspn(text, "0123456789abcdef") == n &&
           strspn(text, "0") < n;
}

static const char *text_at(yyjson_val *object, const char *key)
{
    return yyjson_get_str(yyjson_obj_get(object, key));
}

/* Each value has one of AnyValue's arms, with the right JSON type. */
static void check_attributes(yyjson_val *attributes)
{
    size_t i, n;
    yyjson_val *attribute;
    assert_true(yyjson_is_arr(attributes));
    yyjson_arr_foreach(attributes, i, n, attribute)
    {
        yyjson_val *value = yyjson_obj_get(attribute, "value");
        assert_true(strlen(text_at(attribute, "key")) > 0);
        assert_int_equal(yyjson_obj_size(value), 1);
        yyjson_val *integer = yyjson_obj_get(value, "intValue");
        assert_true(yyjson_is_str(yyjson_obj_get(value, "stringValue")) ||
                    yyjson_is_real(yyjson_obj_get(value, "doubleValue")) ||
                    (yyjson_is_str(integer) &&
                     strspn(yyjson_get_str(integer), "0123456789") == yyjson_get_len(integer)));
    }
}

static void test_spans(void **state)
{
    struct request_run_stage stages[2] = {{"node-a", "cpu", 0, 3}, {"node-b", "cuda0", 3, 5}};
    static const char *const names[] = {"chat a \"model\"", "queue",      "prefill",
                                        "decode",           "pause",      "stage cpu",
                                        "link cuda0",       "stage cuda0"};
    struct request_stage_time times[2] = {{7, 8, 0, 0}, {9, 10, 11, 12}};
    struct request_record record = record_of(stages);
    record.times = times;
    record.n_times = 2;
    const struct trace_service service = {.name = "tower"};
    struct buffer out = {0};
    traces_write(&record, &service, &out);
    yyjson_doc *doc = yyjson_read(out.data, out.size, 0);
    assert_non_null(doc);
    yyjson_val *resource =
        yyjson_arr_get_first(yyjson_obj_get(yyjson_doc_get_root(doc), "resourceSpans"));
    check_attributes(yyjson_obj_get(yyjson_obj_get(resource, "resource"), "attributes"));
    yyjson_val *scope = yyjson_arr_get_first(yyjson_obj_get(resource, "scopeSpans"));
    yyjson_val *spans = yyjson_obj_get(scope, "spans"), *span;
    assert_int_equal(yyjson_arr_size(spans), sizeof names / sizeof *names);
    const char *root = text_at(yyjson_arr_get_first(spans), "spanId");
    uint64_t root_begin = 0, root_end = 0;
    size_t i, n;
    yyjson_arr_foreach(spans, i, n, span)
    {
        const uint64_t begin = strtoull(text_at(span, "startTimeUnixNano"), NULL, 10);
        const uint64_t end = strtoull(text_at(span, "endTimeUnixNano"), NULL, 10);
        assert_string_equal(text_at(span, "name"), names[i]);
        assert_string_equal(text_at(span, "traceId"), TRACE);
        assert_true(is_hex(text_at(span, "spanId"), 16));
        assert_string_equal(text_at(span, "parentSpanId"), i ? root : PARENT);
        assert_int_equal(yyjson_get_int(yyjson_obj_get(span, "kind")), i ? 1 : 2);
        root_begin = i ? root_begin : begin;
        root_end = i ? root_end : end;
        assert_true(begin >= root_begin && begin <= end && end <= root_end);
        check_attributes(yyjson_obj_get(span, "attributes"));
    }
    assert_int_equal(root_begin, UINT64_C(1795000000000000000));
    assert_int_equal(root_end - root_begin, 410000000);
    yyjson_doc_free(doc);
    buffer_deinit(&out);
}

/* Several requests in one message; what would be too long stays by itself. */
static void test_joined(void **state)
{
    struct request_run_stage stages[2] = {{"node-a", "cpu", 0, 3}, {"node-b", "cuda0", 3, 5}};
    struct request_record record = record_of(stages);
    const struct trace_service service = {.name = "tower"};
    struct buffer all = {0}, one = {0};
    traces_write(&record, &service, &all);
    traces_write(&record, &service, &one);
    size_t n = 1;
    while (traces_join(&all, &one))
        n++;
    assert_true(all.size <= TRACES_BATCH_BYTES && all.size + one.size > TRACES_BATCH_BYTES);
    yyjson_doc *doc = yyjson_read(all.data, all.size, 0);
    assert_non_null(doc);
    assert_int_equal(yyjson_arr_size(yyjson_obj_get(yyjson_doc_get_root(doc), "resourceSpans")), n);
    assert_true(n > 100);
    yyjson_doc_free(doc);
    buffer_deinit(&all);
    buffer_deinit(&one);
}

/* A request that failed early has one span, which says so; without a client's span no parent. */
static void test_a_failure(void **state)
{
    struct request_record record = {
        .id = "cmpl-1", .outcome = RECORD_FAILED, .started_ms = 1, .started_ns = 1, .ended_ns = 2};
    struct buffer out = {0};
    const struct trace_service service = {0};
    assert_true(trace_context_make(&record.trace));
    traces_write(&record, &service, &out);
    assert_non_null(strstr(out.data, "\"status\":{\"code\":2,"));
    assert_null(strstr(out.data, "parentSpanId"));
    assert_null(strstr(out.data, "NaN"));
    yyjson_doc *doc = yyjson_read(out.data, out.size, 0);
    assert_non_null(doc);
    yyjson_doc_free(doc);
    buffer_deinit(&out);
}

static void test_urls(void **state)
{
    struct traces *traces = NULL;
    struct error err = {0};
    assert_int_equal(traces_open("localhost:4318", NULL, &traces, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "--traces"));
    assert_int_equal(traces_open("http://127.0.0.1:9/v1/traces", "n", &traces, &err), ERROR_NONE);
    assert_int_equal(traces_stats(traces).queued, 0);
    traces_close(traces);
    traces_close(NULL);
    assert_int_equal(traces_stats(NULL).sent, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_contexts), cmocka_unit_test(test_spans),
        cmocka_unit_test(test_joined),   cmocka_unit_test(test_a_failure),
        cmocka_unit_test(test_urls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
