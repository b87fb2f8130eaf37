/* `medley doctor --hardware`, the self-test whose report people send: software Vulkan is compared
 * with the CPU on every operation, both are measured under load, and the report says so without
 * naming a file of this machine. */
#include "shell_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <yyjson.h>

#include <cmocka.h>

static yyjson_val *device_of(yyjson_val *report, const char *id)
{
    yyjson_val *device;
    size_t i, n;
    yyjson_arr_foreach(yyjson_obj_get(report, "devices"), i, n, device)
    {
        if (yyjson_equals_str(yyjson_obj_get(device, "id"), id))
            return device;
    }
    fail_msg("the report has no device %s", id);
    return NULL;
}

static void expect_measured(yyjson_val *device)
{
    yyjson_val *speed = yyjson_obj_get(device, "speed"), *type;
    size_t i, n;
    assert_true(yyjson_get_num(yyjson_obj_get(speed, "write_bytes_per_s")) > 0);
    assert_true(yyjson_arr_size(yyjson_obj_get(speed, "types")) > 0);
    yyjson_arr_foreach(yyjson_obj_get(speed, "types"), i, n, type)
        assert_true(yyjson_get_num(yyjson_obj_get(type, "decode_bytes_per_s")) > 0);
    assert_non_null(yyjson_obj_get(device, "sensors_under_load"));
}

static void expect_compared(yyjson_val *device)
{
    yyjson_val *operations = yyjson_obj_get(device, "operations"), *operation;
    size_t i, n, n_products = 0;
    assert_true(yyjson_arr_size(operations) > 20);
    yyjson_arr_foreach(operations, i, n, operation)
    {
        const char *verdict = yyjson_get_str(yyjson_obj_get(operation, "verdict"));
        assert_true(strcmp(verdict, "same") == 0 || strcmp(verdict, "elsewhere") == 0);
        n_products += yyjson_equals_str(yyjson_obj_get(operation, "name"), "MUL_MAT");
    }
    assert_true(n_products >= 2);
}

static void devices_are_compared_and_measured(void **state)
{
    (void)state;
    const char *text;
    shell_expect(0, "\"$MEDLEY\" doctor --hardware --seconds 1 --report report",
                 "all devices agree; the report is report");
    assert_int_equal(shell_run("cat report", &text), 0);
    assert_null(strstr(text, getenv("HOME")));
    yyjson_doc *doc = yyjson_read(text, strlen(text), 0);
    yyjson_val *report = yyjson_doc_get_root(doc);
    assert_int_equal(yyjson_get_uint(yyjson_obj_get(report, "seconds")), 1);
    assert_int_equal(yyjson_arr_size(yyjson_obj_get(report, "rejected")), 0);
    expect_measured(device_of(report, "cpu"));
    expect_measured(device_of(report, "vulkan0"));
    expect_compared(device_of(report, "vulkan0"));
    yyjson_doc_free(doc);
}

static void a_report_that_is_there_stays(void **state)
{
    (void)state;
    assert_int_equal(system("echo mine >kept"), 0);
    shell_expect(2, "\"$MEDLEY\" doctor --hardware --report kept", "goes into a new file");
    shell_expect(0, "cat kept", "mine");
    shell_expect(2, "\"$MEDLEY\" doctor --hardware --seconds 0", "seconds");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_are_compared_and_measured),
        cmocka_unit_test(a_report_that_is_there_stays),
    };
    return cmocka_run_group_tests(tests, shell_open, shell_close);
}
