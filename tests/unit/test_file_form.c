/* The form that uploads a file. */
#include "api/file_form.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define PART(name, content) "--b\r\nContent-Disposition: form-data; " name "\r\n\r\n" content "\r\n"
#define PURPOSE PART("name=\"purpose\"", "batch")

static struct file_form form;
static struct api_error form_err;

static bool form_take(const char *body)
{
    form_err = (struct api_error){0};
    return file_form_read(body, strlen(body), &form, &form_err);
}

static void form_expect_data(const char *data)
{
    assert_int_equal(form.data.size, strlen(data));
    assert_memory_equal(form.data.data, data, strlen(data));
}

static void test_parts_in_any_order(void **state)
{
    assert_true(form_take(
        PURPOSE PART("name=\"file\"; filename=\"a.jsonl\"", "{}\r\n--c\r\n") "--b--\r\n"));
    form_expect_data("{}\r\n--c\r\n");
    assert_string_equal(form.name, "a.jsonl");
    assert_int_equal(form.purpose.size, 5);
    assert_true(form_take(PART("name=\"file\"", "x") PURPOSE "--b--"));
    form_expect_data("x");
    assert_string_equal(form.name, "");
}

static void test_an_empty_file(void **state)
{
    assert_true(form_take(PURPOSE PART("name=\"file\"; filename=\"e\"", "") "--b--"));
    form_expect_data("");
}

static void test_names(void **state)
{
    assert_true(form_take(PURPOSE PART("name=\"file\"; filename=\"../x/%22q%22.j\"", "1") "--b--"));
    assert_string_equal(form.name, "\"q\".j");
    assert_true(form_take(PURPOSE PART("name=\"file\"; filename=\"\\\"q\\\"\"", "1") "--b--"));
    assert_string_equal(form.name, "\"q\"");
}

static void test_what_is_refused(void **state)
{
    static const struct {
        const char *body, *text, *param;
    } wrong[] = {
        {"", "begin with a delimiter", ""},
        {"{\"purpose\":\"batch\"}\r\n", "begin with a delimiter", ""},
        {"--b\r\n", "no headers", ""},
        {"--b\r\nContent-Disposition: form-data\r\n\r\nx\r\n--b--", "no name", ""},
        {"--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nx", "does not end", ""},
        {PURPOSE "--b", "cut off", ""},
        {PURPOSE "--bxyz", "other text", ""},
        {PURPOSE "--b--", "missing", "file"},
        {PART("name=\"file\"", "x") "--b--", "missing", "purpose"},
        {PURPOSE PART("name=\"file\"", "x") PART("name=\"file\"", "y") "--b--", "twice", "file"},
        {PART("name=\"expires_after[seconds]\"", "x") "--b--", "not supported",
         "expires_after[seconds]"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        if (form_take(wrong[i].body))
            fail_msg("%s was taken", wrong[i].body);
        assert_int_equal(form_err.status, 400);
        if (!strstr(form_err.message, wrong[i].text))
            fail_msg("%zu: %s", i, form_err.message);
        assert_string_equal(form_err.param, wrong[i].param);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts_in_any_order),
        cmocka_unit_test(test_an_empty_file),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_what_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
