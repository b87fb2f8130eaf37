/* cli/live_rows.h: the live view for people and programs, whatever is in it. */
#include "cli/command.h"
#include "cli/live_rows.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* The command `inspect` is linked for a function that makes names harmless; it is not run. */
int command_fail(const struct command *command, const struct error *err)
{
    fail();
    return EXIT_FAILED;
}

int command_misused(const struct command *command, const char *format, ...)
{
    fail();
    return EXIT_USAGE;
}

static const char view_text[] =
    "{\"totals\":{\"summary\":\"2 devices on 2 nodes\"},\"nodes\":{"
    "\"aa\":{\"name\":\"laptop\",\"state\":\"up\",\"load\":{\"cpu_share\":0.25},\"devices\":{"
    "\"cpu\":{\"kind\":\"cpu\"}}},"
    "\"bb\":{\"name\":\"tower\",\"state\":\"up\",\"devices\":{"
    "\"gpu0\":{\"temperature_c\":61.5,\"limit_c\":83,\"seconds_to_limit\":240,\"governor\":"
    "\"slowed\","
    "\"duty_share\":0.5,\"memory_bytes\":2147483648,\"free_bytes\":1073741824},"
    "\"gpu1\":{\"temperature_c\":-3,\"predicted_c\":\"hot\"}}},"
    "\"cc\":{\"name\":\"at\\u001b[31mtic\",\"state\":\"down\",\"devices\":{\"cpu\":{}}},"
    "\"dd\":7,\"ee\":{\"devices\":[1]}}}";

static yyjson_mut_doc *read_view(const char *text)
{
    yyjson_doc *read = yyjson_read(text, strlen(text), 0);
    assert_non_null(read);
    yyjson_mut_doc *doc = yyjson_doc_mut_copy(read, NULL);
    yyjson_doc_free(read);
    return doc;
}

static void test_hottest_first_and_unknown_last(void **state)
{
    yyjson_mut_doc *doc = read_view(view_text);
    struct live_rows rows;
    assert_true(live_rows_read(yyjson_mut_doc_get_root(doc), true, &rows));
    assert_int_equal(rows.n, 4);
    assert_string_equal(rows.rows[0].device, "gpu0");
    assert_string_equal(rows.rows[1].device, "gpu1");
    assert_true(isnan(rows.rows[1].predicted_c)); /* a text is no number */
    assert_true(isnan(rows.rows[2].temperature_c));
    assert_null(rows.rows[2].governor);
    live_rows_deinit(&rows);
    yyjson_mut_doc_free(doc);
}

static void test_a_table_of_heat(void **state)
{
    yyjson_mut_doc *doc = read_view(view_text);
    struct live_rows rows;
    struct buffer text = {0};
    assert_true(live_rows_read(yyjson_mut_doc_get_root(doc), true, &rows));
    live_rows_show_heat(&rows, 0, &text);
    assert_non_null(strstr(text.data, "tower                gpu0                   61.5 C     83 C"
                                      "        -    4 min   50 %  slowed\n"));
    assert_non_null(strstr(text.data, "(down)\n"));
    assert_null(strchr(text.data, '\033')); /* a name may not move the cursor */
    buffer_clear(&text);
    live_rows_show_heat(&rows, 2, &text);
    assert_string_equal(strchr(text.data, '\n') + 1 + strcspn(strchr(text.data, '\n') + 1, "\n"),
                        "\n"); /* two lines */
    live_rows_deinit(&rows);
    buffer_deinit(&text);
    yyjson_mut_doc_free(doc);
}

static void test_everything_within_the_screen(void **state)
{
    yyjson_mut_doc *doc = read_view(view_text);
    yyjson_mut_val *view = yyjson_mut_doc_get_root(doc);
    struct live_rows rows;
    struct buffer text = {0};
    assert_true(live_rows_read(view, false, &rows));
    live_rows_show_all(view, &rows, 0, 0, &text);
    assert_non_null(strstr(text.data, "2 devices on 2 nodes\n"));
    assert_non_null(strstr(text.data, "laptop               up       cpu 25 %\n"));
    assert_non_null(strstr(text.data, "1.0 GiB of 2.0 GiB"));
    buffer_clear(&text);
    live_rows_show_all(view, &rows, 30, 5, &text);
    uint32_t lines = 0;
    for (const char *at = text.data; *at; at += strcspn(at, "\n") + 1, lines++)
        assert_in_range(strcspn(at, "\n"), 0, 30);
    assert_int_equal(lines, 5);
    live_rows_deinit(&rows);
    buffer_deinit(&text);
    yyjson_mut_doc_free(doc);
}

static void test_for_programs(void **state)
{
    yyjson_mut_doc *doc = read_view("{\"nodes\":{\"aa\":{\"devices\":{\"cpu\":{}}}}}");
    struct live_rows rows;
    struct buffer text = {0};
    assert_true(live_rows_read(yyjson_mut_doc_get_root(doc), true, &rows));
    assert_true(live_rows_write(&rows, &text));
    assert_string_equal(text.data,
                        "{\"devices\":[{\"node\":\"aa\",\"node_id\":\"aa\",\"state\":\"?\","
                        "\"device\":\"cpu\",\"temperature_c\":null,\"limit_c\":null,"
                        "\"predicted_c\":null,\"seconds_to_limit\":null,\"duty_share\":null,"
                        "\"power_w\":null,\"governor\":null}]}\n");
    live_rows_deinit(&rows);
    buffer_deinit(&text);
    yyjson_mut_doc_free(doc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hottest_first_and_unknown_last),
        cmocka_unit_test(test_a_table_of_heat),
        cmocka_unit_test(test_everything_within_the_screen),
        cmocka_unit_test(test_for_programs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
