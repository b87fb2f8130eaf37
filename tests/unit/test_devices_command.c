/* `medley devices` as a user starts it: who verified what, what is remembered, and what a registry
 * that is in a bad way costs. With GGML_VK_VISIBLE_DEVICES=0 there is a Vulkan device, which is
 * verified in a child. */
#include "base/clock.h"
#include "base/mem.h"
#include "kernels/product.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <yyjson.h>

#include <cmocka.h>

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/medley-devices-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    setenv("MEDLEY_STATE_DIR", folder, 1);
    setenv("FOLDER", folder, 1);
    unsetenv("MEDLEY_LOG");
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    return system("rm -rf $FOLDER");
}

static void run(const char *command)
{
    assert_int_equal(system(command), 0);
}

/* What the command prints on stdout and, after it, on stderr; freed by the caller. */
static char *output_of(const char *arguments)
{
    char command[512];
    snprintf(command, sizeof command,
             "\"$MEDLEY_BINARY\" devices %s 2>$FOLDER/errors; cat $FOLDER/errors", arguments);
    FILE *pipe = popen(command, "r");
    enum { SIZE = 1 << 18 };
    char *text = mem_new(SIZE);
    size_t n = fread(text, 1, SIZE - 1, pipe);
    text[n] = 0;
    assert_int_equal(pclose(pipe), 0);
    return text;
}

static bool has_vulkan(void)
{
    const char *visible = getenv("GGML_VK_VISIBLE_DEVICES");
    return visible && visible[0];
}

/* Runs the command and looks at who verified the CPU and, where it is there, vulkan0. */
static void expect_verified(const char *arguments, const char *cpu, const char *vulkan)
{
    char *text = output_of(arguments);
    yyjson_doc *doc = yyjson_read(text, strlen(text), YYJSON_READ_STOP_WHEN_DONE);
    assert_non_null(doc);
    size_t i, count, n_seen = 0;
    yyjson_val *device, *devices = yyjson_obj_get(yyjson_doc_get_root(doc), "devices");
    yyjson_arr_foreach(devices, i, count, device)
    {
        assert_true(yyjson_is_null(yyjson_obj_get(device, "calibration")));
        yyjson_val *id = yyjson_obj_get(device, "id"),
                   *verified = yyjson_obj_get(device, "verified");
        assert_true(yyjson_get_uint(yyjson_obj_get(verified, "unix_s")) > 1600000000);
        const char *expected = yyjson_equals_str(id, "cpu")       ? cpu
                               : yyjson_equals_str(id, "vulkan0") ? vulkan
                                                                  : NULL;
        if (expected)
            assert_string_equal(yyjson_get_str(yyjson_obj_get(verified, "how")), expected);
        n_seen += expected != NULL;
    }
    assert_true(n_seen >= (has_vulkan() ? 2 : 1));
    yyjson_doc_free(doc);
    mem_free(text);
}

static void test_who_verified_what(void **state)
{
    (void)state;
    static const struct {
        const char *before, *arguments, *cpu, *vulkan;
    } steps[] = {
        {"rm -f $FOLDER/devices.json", "--json", "in process", "child"},
        {"true", "--json", "registry", "registry"},
        {"true", "--json --verify", "in process", "child"},
        {"true", "--json", "registry", "registry"},
        {"printf '{' > $FOLDER/devices.json", "--json", "in process", "child"},
        {"true", "--json", "registry", "registry"},
        {"chmod 0666 $FOLDER/devices.json", "--json", "in process", "child"},
    };
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        run(steps[i].before);
        expect_verified(steps[i].arguments, steps[i].cpu, steps[i].vulkan);
    }
}

static void test_a_bad_registry_is_said_and_costs_nothing(void **state)
{
    (void)state;
    run("printf garbage > $FOLDER/devices.json");
    char *text = output_of("");
    assert_non_null(strstr(text, "registry of devices"));
    const char *said = strstr(text, "will be rebuilt");
    assert_non_null(said);
    assert_null(strstr(said + 1, "will be rebuilt")); /* once */
    assert_non_null(strstr(text, "unused registry of devices as"));
    assert_non_null(strstr(text, "Not calibrated: "));
    mem_free(text);
    text = output_of("");
    assert_null(strstr(text, "made anew"));
    mem_free(text);
}

static void test_no_place_for_a_registry(void **state)
{
    (void)state;
    static const char *const places[] = {"", "/dev/null/state", "/proc/medley"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        setenv("MEDLEY_STATE_DIR", places[i], 1);
        expect_verified("--json", "in process", "child");
        char *text = output_of("");
        const char *said =
            strstr(text, "Not remembered, so found out again at every start: registry of devices");
        assert_int_equal(said != NULL, places[i][0] != 0); /* whoever wants none is not told */
        assert_true(!said || strstr(said, places[i]));
        mem_free(text);
    }
    setenv("MEDLEY_STATE_DIR", folder, 1);
}

/* One reading in the JSON: all three members, and nothing that is neither known nor unknown. */
static bool expect_reading(yyjson_val *reading)
{
    assert_int_equal(yyjson_obj_size(reading), 3);
    yyjson_val *valid = yyjson_obj_get(reading, "valid"), *value = yyjson_obj_get(reading, "value");
    assert_true(yyjson_is_bool(valid));
    assert_true(yyjson_get_bool(valid) ? yyjson_is_uint(value) : yyjson_is_null(value));
    uint64_t unix_ms = yyjson_get_uint(yyjson_obj_get(reading, "unix_ms")),
             now_ms = (uint64_t)time(NULL) * 1000;
    if (yyjson_get_bool(valid))
        assert_true(unix_ms > now_ms - 60000 && unix_ms < now_ms + 2000);
    return yyjson_get_bool(valid);
}

static void expect_reasons(yyjson_val *list)
{
    size_t i, count, length = 0;
    yyjson_val *source;
    yyjson_arr_foreach(list, i, count, source)
    {
        yyjson_val *available = yyjson_obj_get(source, "available"),
                   *reason = yyjson_obj_get(source, "reason");
        assert_true(yyjson_is_bool(available));
        assert_true(yyjson_get_bool(available) ? yyjson_is_null(reason)
                                               : yyjson_get_len(reason) > 0);
        length++;
    }
    assert_true(length > 3);
}

#define SIMULATED "--sim $FOLDER/sim.ini"

static void write_simulated(void)
{
    run("printf '[card]\npreset = rtx-3060\n[slow]\nmemory = 2GiB\ndecode = 30GB/s\nflops = "
        "1GFLOP/s\n' "
        "> $FOLDER/sim.ini");
}

static void test_json_has_readings_and_a_summary(void **state)
{
    (void)state;
    write_simulated();
    char *text = output_of("--json --backend cpu " SIMULATED);
    yyjson_doc *doc = yyjson_read(text, strlen(text), 0);
    assert_non_null(doc);
    yyjson_val *root = yyjson_doc_get_root(doc), *devices = yyjson_obj_get(root, "devices"),
               *device, *reading;
    size_t i, count;
    yyjson_arr_foreach(devices, i, count, device)
    {
        yyjson_val *key, *readings = yyjson_obj_get(device, "readings");
        size_t r, n_readings;
        assert_int_equal(yyjson_obj_size(readings), 9);
        yyjson_obj_foreach(readings, r, n_readings, key, reading) expect_reading(reading);
    }
    assert_int_equal(yyjson_arr_size(devices), 3);
    yyjson_val *cpu = yyjson_obj_get(yyjson_arr_get(devices, 0), "readings");
    assert_true(
        expect_reading(yyjson_obj_get(cpu, "memory_free_bytes")));       /* of /proc: everywhere */
    assert_true(expect_reading(yyjson_obj_get(cpu, "utilisation_pct"))); /* needs two samples */
    yyjson_val *card = yyjson_arr_get(devices, 1), *readings = yyjson_obj_get(card, "readings");
    assert_true(expect_reading(yyjson_obj_get(readings, "power_mw")));
    yyjson_val *temperature = yyjson_obj_get(readings, "temperature_mc");
    assert_true(expect_reading(temperature));
    assert_int_equal(yyjson_get_uint(yyjson_obj_get(temperature, "value")),
                     yyjson_get_uint(yyjson_obj_get(card, "temperature_mc")));
    assert_false(expect_reading(
        yyjson_obj_get(yyjson_obj_get(yyjson_arr_get(devices, 2), "readings"), "power_mw")));
    expect_reasons(yyjson_obj_get(root, "sensors"));
    expect_reasons(yyjson_obj_get(root, "backends"));
    yyjson_val *summary = yyjson_obj_get(root, "summary");
    assert_int_equal(yyjson_get_uint(yyjson_obj_get(summary, "devices")), 3);
    assert_int_equal(yyjson_get_uint(yyjson_obj_get(summary, "devices_with_bandwidth")), 2);
    assert_string_equal(yyjson_get_str(yyjson_obj_get(summary, "slowest")), "sim:slow");
    assert_string_equal(yyjson_get_str(yyjson_obj_get(summary, "fastest")), "sim:card");
    assert_int_equal(yyjson_get_uint(yyjson_obj_get(summary, "heterogeneity_permille")),
                     8400); /* 0.7 x 360 / 30 */
    yyjson_doc_free(doc);
    mem_free(text);
}

static void test_text_has_readings_and_a_summary(void **state)
{
    (void)state;
    write_simulated();
    char *text = output_of("--backend cpu " SIMULATED);
    assert_non_null(strstr(text, "DECODE"));
    assert_non_null(strstr(text, "252.00 GB/s  2"));
    assert_non_null(strstr(text, "  1777 MHz  ready"));
    assert_non_null(strstr(text, "\nTogether:\n  3 devices: "));
    assert_non_null(strstr(text, "the fastest, sim:card, is 8.4 times as fast (2 of 3 measured)"));
    mem_free(text);
    text = output_of("--backend cpu");
    assert_null(strstr(text, "Together:")); /* one is no sum */
    mem_free(text);
}

/* The kernel of this processor, and no other. */
static void test_text_names_the_kernel_of_products(void **state)
{
    (void)state;
    const struct product_kernel *best = product_kernel_best();
    char *text = output_of("--backend cpu"), line[64];
    if (best) {
        snprintf(line, sizeof line, ", products by %s, ", product_kernel_name(best));
        assert_non_null(strstr(text, line));
    }
    if (!best || strcmp(product_kernel_name(best), "amx-int8") != 0)
        assert_null(strstr(text, "amx-int8"));
    mem_free(text);
}

/* A driver that crashes when it is loaded, before any device is known. */
static void test_a_driver_that_crashes_costs_its_backend_alone(void **state)
{
    (void)state;
    const char *driver = getenv("MEDLEY_CRASHING_DRIVER");
    if (!driver || !has_vulkan())
        skip();
    run("printf "
        "'{\"file_format_version\":\"1.0.0\",\"ICD\":{\"library_path\":\"%s\",\"api_version\":\"1."
        "3.0\"}}' "
        "\"$MEDLEY_CRASHING_DRIVER\" > $FOLDER/icd.json");
    char manifest[128];
    snprintf(manifest, sizeof manifest, "%s/icd.json", folder);
    setenv("VK_DRIVER_FILES", manifest, 1);
    char *first = output_of(""), *second = output_of(""), *third = output_of("--verify");
    unsetenv("VK_DRIVER_FILES");
    const char *says = "when it lists its devices, it crashed (signal 11) during verification";
    assert_non_null(strstr(first, says));
    assert_non_null(strstr(second, says));
    assert_non_null(strstr(second, "not tried since: `medley devices --verify` does"));
    assert_non_null(strstr(third, says));
    assert_null(strstr(third, "not tried since"));
    assert_non_null(strstr(first, "Not calibrated: cpu;")); /* the rest carries on */
    mem_free(first);
    mem_free(second);
    mem_free(third);
    mem_free(output_of("--json"));
    expect_verified("--json", "registry",
                    "registry"); /* another driver's crash is not held against the usual one */
}

static void test_a_usable_list_comes_soon(void **state)
{
    (void)state;
    mem_free(output_of("--json")); /* the registry is there */
    uint64_t start_ns = clock_now_ns();
    mem_free(output_of("--json"));
    assert_true(clock_now_ns() - start_ns <
                30000000000u); /* 0.1 to 0.2 s; sanity, for a busy machine with sanitizers */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_who_verified_what),
        cmocka_unit_test(test_a_bad_registry_is_said_and_costs_nothing),
        cmocka_unit_test(test_no_place_for_a_registry),
        cmocka_unit_test(test_json_has_readings_and_a_summary),
        cmocka_unit_test(test_text_has_readings_and_a_summary),
        cmocka_unit_test(test_text_names_the_kernel_of_products),
        cmocka_unit_test(test_a_driver_that_crashes_costs_its_backend_alone),
        cmocka_unit_test(test_a_usable_list_comes_soon),
    };
    return cmocka_run_group_tests_name("devices_command", tests, make_folder, remove_folder);
}
