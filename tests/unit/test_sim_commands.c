/* Simulated devices as a user meets them: --sim in every command that computes. MEDLEY_BINARY is
 * the program, MEDLEY_ROOT the sources' folder, with the demo model and the examples. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <yyjson.h>

#include <cmocka.h>

static char out[1 << 18];

static int medley(const char *words)
{
    char line[4096];
    snprintf(line, sizeof line, "cd \"$MEDLEY_ROOT\" && \"$MEDLEY_BINARY\" %s", words);
    FILE *pipe = popen(line, "r");
    assert_non_null(pipe);
    size_t n = fread(out, 1, sizeof out - 1, pipe);
    out[n] = '\0';
    int status = pclose(pipe);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static char path[] = "/tmp/medley-sim-XXXXXX";

static void write_file(const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static int make_file(void **state)
{
    (void)state;
    int descriptor = mkstemp(path);
    close(descriptor);
    return descriptor < 0;
}

static int remove_file(void **state)
{
    (void)state;
    return remove(path);
}

static void expect(int status, const char *words, const char *text)
{
    char line[3800];
    snprintf(line, sizeof line, "%s 2>&1", words);
    int got = medley(line);
    if (got != status || !strstr(out, text))
        fail_msg("medley %s: status %d, '%s' does not say '%s'", words, got, out, text);
}

static void expect_with_file(int status, const char *words, const char *ini, const char *text)
{
    char line[3000];
    write_file(ini);
    snprintf(line, sizeof line, "%s --sim %s", words, path);
    expect(status, line, text);
}

#define STORY "run models/demo.gguf -t 2 -p 'Once upon a time' -n 24 --seed 3 "

static void test_two_simulated_devices_tell_the_cpus_story(void **state)
{
    (void)state;
    assert_int_equal(medley(STORY "--devices cpu 2>/dev/null"), 0);
    char *cpu = strdup(out);
    assert_true(strlen(cpu) > 40);
    assert_int_equal(medley(STORY "--sim examples/two-machines.ini --split 3,2 2>/dev/null"), 0);
    assert_string_equal(out, cpu);
    assert_int_equal(
        medley(STORY
               "--sim examples/two-machines.ini --devices sim:laptop,cpu --split 1,4 2>/dev/null"),
        0);
    assert_string_equal(out, cpu);
    free(cpu);
}

/* Three to one in speed, and the fast one holds three of the five layers. */
#define THREE_TO_ONE                                                                               \
    "[a]\nmemory = 4500KiB\ndecode = 600MB/s\nflops = 100GFLOP/s\n"                                \
    "[b]\nmemory = 1GiB\ndecode = 200MB/s\nflops = 100GFLOP/s\n"
#define SHORT STORY "-n 4 --batch 256 "

static double forecast_of(const char *words, const char *stages, bool proved)
{
    char line[1024];
    write_file(THREE_TO_ONE);
    snprintf(line, sizeof line, "%s --json --sim %s 2>/dev/null", words, path);
    assert_int_equal(medley(line), 0);
    yyjson_doc *doc = yyjson_read(out, strlen(out), 0);
    assert_non_null(doc);
    yyjson_val *root = yyjson_doc_get_root(doc);
    char *json = yyjson_val_write(yyjson_obj_get(root, "stages"), 0, NULL);
    assert_string_equal(json, stages);
    free(json);
    assert_int_equal(yyjson_get_bool(yyjson_obj_get(root, "proved")), proved);
    assert_true(yyjson_get_bool(yyjson_obj_get(root, "forecast_measured")));
    assert_true(yyjson_get_real(yyjson_obj_get(root, "decode_tokens_per_s")) > 0);
    assert_true(yyjson_get_real(yyjson_obj_get(root, "forecast_prefill_tokens_per_s")) > 0);
    const double forecast = yyjson_get_real(yyjson_obj_get(root, "forecast_decode_tokens_per_s"));
    yyjson_doc_free(doc);
    return forecast;
}

static void test_a_run_takes_the_split_that_is_proved(void **state)
{
    (void)state;
    const double best = forecast_of(
        SHORT, "[{\"device\":\"sim:b\",\"layers\":2},{\"device\":\"sim:a\",\"layers\":3}]", true);
    static const char *const others[] = {"sim:a,sim:b --split 3,2", "sim:a,sim:b --split 1,4",
                                         "sim:b,sim:a --split 3,2", "sim:b,sim:a --split 4,1",
                                         "sim:b --split 5"};
    static const char *const stages[] = {
        "[{\"device\":\"sim:a\",\"layers\":3},{\"device\":\"sim:b\",\"layers\":2}]",
        "[{\"device\":\"sim:a\",\"layers\":1},{\"device\":\"sim:b\",\"layers\":4}]",
        "[{\"device\":\"sim:b\",\"layers\":3},{\"device\":\"sim:a\",\"layers\":2}]",
        "[{\"device\":\"sim:b\",\"layers\":4},{\"device\":\"sim:a\",\"layers\":1}]",
        "[{\"device\":\"sim:b\",\"layers\":5}]"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        char words[512];
        snprintf(words, sizeof words, SHORT "--devices %s", others[i]);
        assert_true(forecast_of(words, stages[i], false) < best);
    }
    expect_with_file(2, SHORT "--split 4,1", THREE_TO_ONE,
                     "the split is not possible: placement: stage 0: sim:a: layers 0 to 3 need");
    expect_with_file(2, SHORT "--devices sim:b,sim:a --split 1,4", THREE_TO_ONE,
                     "stage 1: sim:a: layers 1 to 4 need");
}

/* Alone the fast device is faster than with the slow one, which is said. */
static void test_a_slow_device_is_left_out(void **state)
{
    (void)state;
    const char *ini = "[a]\nmemory = 1GiB\ndecode = 600MB/s\nflops = 100GFLOP/s\n"
                      "[b]\nmemory = 1GiB\ndecode = 200MB/s\nflops = 100GFLOP/s\n";
    expect_with_file(0, SHORT, ini, "sim:a 5 layers; left out: sim:b");
    expect_with_file(0, SHORT, ini, "(forecast ");
}

static void test_devices_lists_them(void **state)
{
    (void)state;
    assert_int_equal(
        medley("devices --json --backend cpu --sim examples/two-machines.ini 2>/dev/null"), 0);
    yyjson_doc *doc = yyjson_read(out, strlen(out), 0);
    assert_non_null(doc);
    yyjson_val *devices = yyjson_obj_get(yyjson_doc_get_root(doc), "devices");
    size_t n = yyjson_arr_size(devices);
    assert_true(n >= 3);
    yyjson_val *laptop = yyjson_arr_get(devices, n - 1);
    assert_string_equal(yyjson_get_str(yyjson_obj_get(laptop, "id")), "sim:laptop");
    assert_string_equal(yyjson_get_str(yyjson_obj_get(laptop, "backend")), "sim");
    assert_int_equal(yyjson_get_uint(yyjson_obj_get(laptop, "bandwidth_mb_per_s")), 60);
    assert_int_equal(yyjson_get_uint(yyjson_obj_get(laptop, "power_mw")), 4000);
    assert_true(yyjson_get_uint(yyjson_obj_get(laptop, "temperature_mc")) > 24000);
    yyjson_doc_free(doc);
}

static void test_wrong_files_are_told(void **state)
{
    (void)state;
    expect(1, STORY "--sim /nowhere.ini", "/nowhere.ini: No such file");
    expect_with_file(2, STORY, "[a]\nmemory = 12\n",
                     ": line 2: memory = 12 has no unit; it takes B, KiB");
    expect_with_file(2, "devices", "[a]\nmemory = -12GiB\n",
                     ": line 2: memory = -12GiB is out of range");
    expect_with_file(2, "bench models/demo.gguf", "[a]\npreset = nothing\n",
                     "there is no preset 'nothing'");
    expect_with_file(1, STORY "--devices sim:b", "[a]\npreset = a770\n",
                     "no device 'sim:b'; there are: cpu, sim:a");
}

static void test_failures_are_told(void **state)
{
    (void)state;
    expect_with_file(1, STORY, "[a]\npreset = a770\nmemory = 4MiB\n", "sim:a: layers 0 to 4 need");
    expect_with_file(1, STORY, "[a]\npreset = a770\nfail = dies at 0s\n",
                     "no simulated device is usable; sim:a: ");
    expect_with_file(1, STORY, "[a]\npreset = a770\nlaunch = 1s\nfail = dies at 2s\n",
                     "stage 0 on sim:a: sim:a: the device has died (simulated: dies at 2 s)");
}

static void test_logits_and_bench_take_it(void **state)
{
    (void)state;
    const char *ini = "[a]\nmemory = 1GiB\ndecode = 600MB/s\nflops = 100GFLOP/s\n";
    assert_int_equal(
        medley("logits models/demo.gguf --tokens 1,2,3 --greedy 4 --devices cpu 2>/dev/null"), 0);
    char *cpu = strdup(out);
    char words[256];
    write_file(ini);
    snprintf(words, sizeof words,
             "logits models/demo.gguf --tokens 1,2,3 --greedy 4 --sim %s 2>/dev/null", path);
    assert_int_equal(medley(words), 0);
    assert_string_equal(out, cpu);
    free(cpu);
    expect_with_file(0, "bench models/demo.gguf -p 16 -n 8 -r 1", ini, "sim:a");
}

static void test_top_shows_them(void **state)
{
    (void)state;
    expect_with_file(0, "top --once", "[one]\npreset = rtx-3060\n", "sim:one");
    assert_non_null(strstr(out, "HEADROOM"));
    assert_non_null(strstr(out, "hottest: sim:one"));
    expect_with_file(0, "top --once --json", "[one]\npreset = rtx-3060\n", "\"id\":\"sim:one\"");
    assert_int_equal(out[0], '{');
    expect(2, "top --interval 5", "--interval");
    expect(2, "top --once more", "unexpected argument");
    expect(2, "top --fast", "unknown or incomplete option '--fast'");
}

static void test_a_run_may_go_ungoverned(void **state)
{
    (void)state;
    expect_with_file(0, STORY "--no-governor",
                     "[one]\nmemory = 1GiB\ndecode = 10GB/s\nflops = 1TFLOP/s\n", " ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_simulated_devices_tell_the_cpus_story),
        cmocka_unit_test(test_a_run_takes_the_split_that_is_proved),
        cmocka_unit_test(test_a_slow_device_is_left_out),
        cmocka_unit_test(test_devices_lists_them),
        cmocka_unit_test(test_wrong_files_are_told),
        cmocka_unit_test(test_failures_are_told),
        cmocka_unit_test(test_logits_and_bench_take_it),
        cmocka_unit_test(test_top_shows_them),
        cmocka_unit_test(test_a_run_may_go_ungoverned),
    };
    return cmocka_run_group_tests_name("sim_commands", tests, make_file, remove_file);
}
