/* The file of simulated devices: what is in it, and what is said when it is wrong. */
#include "simdevices/sim_file.h"
#include "simdevices/sim_presets.h"

#include "base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static struct sim_file file;

static void parse_good(const char *text)
{
    struct error err = {0};
    if (sim_file_parse(text, strlen(text), &file, &err))
        fail_msg("%s", err.text);
}

/* `words` must be in the message. */
static void parse_bad(const char *text, const char *words)
{
    struct error err = {0};
    if (sim_file_parse(text, strlen(text), &file, &err) != ERROR_INVALID)
        fail_msg("taken: %s", text);
    if (!strstr(err.text, words))
        fail_msg("'%s' does not say '%s'", err.text, words);
}

#define MINIMUM "[a]\nmemory = 1GiB\ndecode = 1GB/s\nflops = 1GFLOP/s\n"

static void test_every_key_is_read(void **state)
{
    (void)state;
    parse_good(
        "# a comment\r\n"
        "\n"
        "  [fast-1]  ; another\r\n"
        "name = My GPU # not of the name\n"
        "memory=12 GiB\n"
        "decode = 300GB/s\n\tflops = 9.5TFLOP/s\n"
        "copy = 10GiB/s\nlaunch = 20us\nclock = 1.7GHz\n"
        "power_idle = 500mW\npower_max = 170W\nthermal_mass = 350.25J/K\nthermal_resistance = "
        "0.3K/W\n"
        "ambient = -5.5\xc2\xb0\x43\nlimit = 83C\nhysteresis = 4K\nthrottle = 60%\n"
        "fail = dies at 2min, hangs at 1h , allocation after 4GiB,garbage after 100 batches");
    const struct sim_spec *d = &file.devices[0];
    assert_int_equal(file.n_devices, 1);
    assert_string_equal(d->name, "fast-1");
    assert_string_equal(d->title, "My GPU");
    assert_true(d->memory_bytes == 12.0 * 1024 * 1024 * 1024);
    assert_true(d->decode_bytes_per_s == 300e9 && d->flops_per_s == 9.5e12);
    assert_true(d->copy_bytes_per_s == 10.0 * 1024 * 1024 * 1024);
    assert_true(d->launch_s > 19.999e-6 && d->launch_s < 20.001e-6 && d->clock_mhz == 1700);
    assert_true(d->has_heat && d->heat.power_idle_w == 0.5 && d->heat.power_max_w == 170);
    assert_true(d->heat.thermal_mass_j_per_k == 350.25 && d->heat.resistance_k_per_w == 0.3);
    assert_true(d->heat.ambient_c == -5.5 && d->heat.limit_c == 83 && d->heat.hysteresis_k == 4);
    assert_true(d->heat.throttled_clock > 0.599 && d->heat.throttled_clock < 0.601);
    assert_int_equal(d->n_failures, 4);
    assert_true(d->failures[0].kind == SIM_DIES && d->failures[0].at == 120);
    assert_true(d->failures[1].kind == SIM_HANGS && d->failures[1].at == 3600);
    assert_true(d->failures[2].kind == SIM_REFUSES && d->failures[2].at == 0x1p32);
    assert_true(d->failures[3].kind == SIM_LIES && d->failures[3].at == 100);
}

static void test_a_small_section_gets_defaults(void **state)
{
    (void)state;
    parse_good(MINIMUM "[b]\npreset = rtx-3060\n");
    assert_int_equal(file.n_devices, 2);
    assert_false(file.devices[0].has_heat);
    assert_true(file.devices[0].copy_bytes_per_s == 10e9 && file.devices[0].clock_mhz == 0);
    assert_string_equal(file.devices[0].title, "a (simulated)");
}

static void test_keys_override_the_preset_wherever_they_stand(void **state)
{
    (void)state;
    parse_good("[a]\nmemory = 6GiB\npreset = rtx-3060\nlimit = 70C\n");
    const struct sim_spec *d = &file.devices[0];
    assert_true(d->memory_bytes == 6.0 * 1024 * 1024 * 1024 && d->heat.limit_c == 70);
    assert_true(d->decode_bytes_per_s == 360e9 * SIM_DECODE_SHARE && d->heat.power_max_w == 170);
    assert_non_null(strstr(d->title, "3060"));
}

static void test_every_preset_can_be_used(void **state)
{
    (void)state;
    char names[256], text[128];
    sim_preset_names(names, sizeof names);
    int n = 0;
    for (char *rest = names, *name; (name = strtok_r(rest, ", ", &rest)); n++) {
        snprintf(text, sizeof text, "[d]\npreset = %s\n", name);
        parse_good(text);
        assert_true(file.devices[0].has_heat && file.devices[0].clock_mhz > 0);
    }
    assert_true(n >= 7);
}

static void test_what_is_published_of_a_real_device(void **state)
{
    (void)state;
    struct sim_published published;
    assert_true(sim_preset_published("NVIDIA GeForce RTX 3060", &published));
    assert_true(published.bandwidth_gb_per_s == 360);
    assert_true(sim_preset_published("AMD Radeon RX 7900 XTX (RADV NAVI31)", &published));
    assert_string_equal(published.name, "AMD Radeon RX 7900 XTX");
    static const char *const others[] = {"", "NVIDIA GeForce RTX 3060 Ti", "NVIDIA GeForce RTX 306",
                                         "an old laptop"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_false(sim_preset_published(others[i], &published));
}

static void test_wrong_numbers_are_refused_with_their_line(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"12", "line 2: memory = 12 has no unit; it takes B, KiB"},
        {"", "line 2: memory has no value"},
        {"GiB", "is not a number with a unit"},
        {"-12GiB", "memory = -12GiB is out of range: it must be 4MiB to"},
        {"-", "is not a number"},
        {"0B", "out of range"},
        {"4B", "out of range"},
        {"99999999TiB", "out of range"},
        {"nan", "is not a number"},
        {"NaNGiB", "is not a number"},
        {"infGiB", "is not a number"},
        {"1e3GiB", "unknown unit 'e3GiB'"},
        {"0x10GiB", "unknown unit 'x10GiB'"},
        {"1.2.3GiB", "is not a number"},
        {".GiB", "is not a number"},
        {"1,5GiB", "unknown unit ',5GiB'"},
        {"12GB/s", "unknown unit 'GB/s'"},
        {"12gib", "unknown unit 'gib'"},
        {"12GiB 13GiB", "unknown unit"},
        {"9999999999999999999999999999999999999999GiB", "is not a number"},
        {"1\x01\x1b[2JGiB", "'??[2JGiB'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[256];
        snprintf(text, sizeof text, "[a]\nmemory = %s\n", cases[i][0]);
        parse_bad(text, cases[i][1]);
        parse_bad(text, "line 2: ");
    }
}

static void test_wrong_lines_are_refused(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"", "no [device]"},
        {"\n# nothing\n", "no [device]"},
        {"memory = 1GiB\n", "line 1: 'memory = 1GiB' stands before"},
        {"[a]\nwhat\n", "line 2: 'what' is neither"},
        {"[a]\n= 4GiB\n", "no key ''"},
        {"[a]\nspede = 4GiB\n", "line 2: there is no key 'spede'; there are: preset"},
        {"[a]\nmemory = 1GiB\nmemory = 2GiB\n", "line 3: memory is set twice"},
        {"[a]\nspeed = fast\n", "line 2: speed: 'fast' is not one of: given, measured"},
        {"[a]\ncannot = q4_K q6_K\n", "line 2: cannot: 'q4_K q6_K' is no list of types"},
        {"[a\n", "has no ']'"},
        {"[\n", "has no ']'"},
        {"[]\n", "not a device name"},
        {"[A]\n", "not a device name"},
        {"[a,b]\n", "not a device name"},
        {"[a b]\n", "not a device name"},
        {"[abcdefghijklmnopqrstuvwxy]\n", "1 to 24"},
        {MINIMUM MINIMUM, "line 5: device 'a' appears twice"},
        {"[a]\n[b]\n", "line 1: device 'a': memory is missing"},
        {"[a]\nmemory = 1GiB\nflops = 1GFLOP/s\n", "decode is missing"},
        {"[a]\npreset = rtx-9999\n", "line 2: there is no preset 'rtx-9999'; there are: rtx-3060"},
        {"[a]\npreset = rtx-3060-and-very-much-longer\n", "no preset"},
        {"[a]\npreset =\n", "no preset"},
        {"[a]\nname =\n", "name"},
        {"[a]\nname = caf\xc3\xa9\n", "plain ASCII"},
        {MINIMUM "limit = 80C\n", "limit is set and power_idle is not"},
        {MINIMUM "throttle = 80%\n", "throttle is set"},
        {"[a]\npreset = rtx-3060\npower_max = 5W\n", "power_max is below power_idle"},
        {"[a]\npreset = rtx-3060\nambient = 90C\n", "never cool below"},
        {"[a]\npreset = rtx-3060\nthrottle = 0%\n", "1% to 100%"},
        {"[a]\npreset = rtx-3060\ncopy = 1KB/s\n", "10MB/s to"},
        {"[a]\nfail =\n", "not one of: dies at"},
        {"[a]\nfail = explodes\n", "not one of: dies at"},
        {"[a]\nfail = dies at 30\n", "has no unit"},
        {"[a]\nfail = dies at -1s\n", "out of range"},
        {"[a]\nfail = dies at 1s, dies at 2s\n", "appears twice"},
        {"[a]\nfail = dies at 1s,\n", "not one of"},
        {"[a]\nfail = garbage after 1.5 batches\n", "whole number"},
        {"[a]\nfail = garbage after -1 batches\n", "whole number"},
        {"[a]\nfail = garbage after batches\n", "not one of"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        parse_bad(cases[i][0], cases[i][1]);
}

static void test_bytes_that_are_no_text_are_refused(void **state)
{
    (void)state;
    struct error err = {0};
    const char nul[] = "[a]\npreset = rtx\0-3060\n";
    assert_int_equal(sim_file_parse(nul, sizeof nul - 1, &file, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "line 2: there is a NUL byte"));
    char *huge = malloc(LIMIT_SIM_FILE_BYTES + 1);
    assert_non_null(huge);
    memset(huge, '\n', LIMIT_SIM_FILE_BYTES + 1);
    assert_int_equal(sim_file_parse(huge, LIMIT_SIM_FILE_BYTES + 1, &file, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "more than the limit of 65536"));
    memset(huge, 'x', LIMIT_SIM_FILE_BYTES);
    assert_int_equal(sim_file_parse(huge, LIMIT_SIM_FILE_BYTES, &file, &err), ERROR_INVALID);
    assert_true(strlen(err.text) < 200);
    free(huge);
    assert_int_equal(sim_file_parse(NULL, 0, &file, NULL), ERROR_INVALID);
}

static void test_as_many_devices_as_the_limit(void **state)
{
    (void)state;
    char text[8192];
    size_t used = 0;
    for (int i = 0; i < LIMIT_SIM_DEVICES; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "[d%d]\npreset = a770\n", i);
    parse_good(text);
    assert_int_equal(file.n_devices, LIMIT_SIM_DEVICES);
    snprintf(text + used, sizeof text - used, "[more]\npreset = a770\n");
    parse_bad(text, "more than 32 devices");
}

static void test_files_are_read(void **state)
{
    (void)state;
    struct error err = {0};
    assert_int_equal(sim_file_read("/nowhere/at/all.ini", &file, &err), ERROR_NOT_FOUND);
    assert_non_null(strstr(err.text, "/nowhere/at/all.ini"));
    assert_int_equal(sim_file_read("/", &file, &err), ERROR_IO);
    assert_int_equal(sim_file_read("/dev/zero", &file, &err), ERROR_INVALID);
    char path[] = "/tmp/medley-sim-XXXXXX";
    int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    assert_int_equal(write(descriptor, MINIMUM, sizeof MINIMUM - 1), sizeof MINIMUM - 1);
    close(descriptor);
    assert_int_equal(sim_file_read(path, &file, &err), ERROR_NONE);
    mem_fail_nth(1);
    assert_int_equal(sim_file_read(path, &file, &err), ERROR_NO_MEMORY);
    mem_fail_nth(0);
    remove(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_key_is_read),
        cmocka_unit_test(test_a_small_section_gets_defaults),
        cmocka_unit_test(test_keys_override_the_preset_wherever_they_stand),
        cmocka_unit_test(test_every_preset_can_be_used),
        cmocka_unit_test(test_what_is_published_of_a_real_device),
        cmocka_unit_test(test_wrong_numbers_are_refused_with_their_line),
        cmocka_unit_test(test_wrong_lines_are_refused),
        cmocka_unit_test(test_bytes_that_are_no_text_are_refused),
        cmocka_unit_test(test_as_many_devices_as_the_limit),
        cmocka_unit_test(test_files_are_read),
    };
    return cmocka_run_group_tests_name("sim_file", tests, NULL, NULL);
}
