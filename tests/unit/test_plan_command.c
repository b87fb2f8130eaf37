/* `medley plan` as a user starts it: on this machine, on simulated devices, on a cluster file that
 * holds what `medley devices --json` printed; what it answers to a model that fits nowhere, and to
 * wrong words. */
#include "base/mem.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <yyjson.h>

#include <cmocka.h>

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/medley-plan-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    setenv("FOLDER", folder, 1);
    setenv("MEDLEY_STATE_DIR", "", 1);
    unsetenv("MEDLEY_LOG");
    return chdir(getenv("MEDLEY_ROOT"));
}

static int remove_folder(void **state)
{
    (void)state;
    return system("rm -rf $FOLDER");
}

/* What the shell command prints on stdout and stderr; freed by the caller. */
static char *output_of(int status_wanted, const char *command)
{
    char line[1024];
    snprintf(line, sizeof line, "( %s ) 2>&1", command);
    FILE *pipe = popen(line, "r");
    enum { SIZE = 1 << 18 };
    char *text = mem_new(SIZE);
    text[fread(text, 1, SIZE - 1, pipe)] = 0;
    const int status = pclose(pipe);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != status_wanted)
        fail_msg("%s: status %d\n%s", command, status, text);
    return text;
}

static void expect(int status, const char *arguments, const char *const *parts)
{
    char command[768];
    snprintf(command, sizeof command, "\"$MEDLEY_BINARY\" plan %s", arguments);
    char *text = output_of(status, command);
    for (; *parts; parts++) {
        if (!strstr(text, *parts))
            fail_msg("%s: no '%s' in\n%s", arguments, *parts, text);
    }
    mem_free(text);
}
#define EXPECT(status, arguments, ...)                                                             \
    expect(status, arguments, (const char *const[]){__VA_ARGS__, NULL})

#define DEMO "models/demo.gguf "

static void this_machine(void **state)
{
    (void)state;
    EXPECT(0, DEMO, "Medley Stories: 5 layers", "Best, by a guess: 1 device", "stage 0  cpu",
           "proved optimal in ", "`medley devices --calibrate` measures");
}

static void simulated(void **state)
{
    (void)state;
    EXPECT(0,
           DEMO "--sim examples/two-machines.ini --explain --policy all --add 16GiB,900GB/s -c 128 "
                "--kv f32",
           "context 256", "KV cache f32", "Best: 1 device", "stage 0  sim:desktop",
           "Left out: sim:laptop: would cost ",
           "If you add 16GiB,900GB/s to this machine: ", "By equal (distributed-llama): 2 devices",
           "Devices:\n", "given: ");
    EXPECT(0, DEMO "--sim examples/two-machines.ini --streams 8", "8 streams", "Best: 1 device",
           "Bottleneck: ");
}

/* What `medley plan` answers as `medley run` says it: "sim:b 2 layers, sim:a 3 layers". */
static void split_of(const char *json, char *out)
{
    yyjson_doc *doc = yyjson_read(json, strlen(json), 0);
    yyjson_val *stages = yyjson_doc_ptr_get(doc, "/best/stages"), *stage;
    size_t i, count;
    assert_int_equal(yyjson_arr_size(stages), 2);
    yyjson_arr_foreach(stages, i, count, stage)
    {
        const int n_layers = yyjson_get_int(yyjson_obj_get(stage, "layers"));
        out += sprintf(out, "%s%s %d layer%s", i ? ", " : "",
                       yyjson_get_str(yyjson_obj_get(stage, "device")), n_layers,
                       n_layers == 1 ? "" : "s");
    }
    yyjson_doc_free(doc);
}

/* Without the times that `run` puts behind each device. */
static void drop_brackets(char *text)
{
    char *out = text;
    for (const char *at = text; *at; at++) {
        if (!strncmp(at, " (", 2) && strchr(at, ')'))
            at = strchr(at, ')');
        else
            *out++ = *at;
    }
    *out = '\0';
}

static void as_it_runs(void **state)
{
    (void)state;
    char split[128];
    mem_free(output_of(
        0, "printf '[a]\\nmemory = 6MiB\\ndecode = 40MB/s\\nflops = 1GFLOP/s\\n"
           "[b]\\nmemory = 1GiB\\ndecode = 10MB/s\\nflops = 1GFLOP/s\\n' >$FOLDER/two.ini"));
    char *text =
        output_of(0, "\"$MEDLEY_BINARY\" plan " DEMO "--sim $FOLDER/two.ini -c 512 --json");
    split_of(text, split);
    mem_free(text);
    text = output_of(0, "\"$MEDLEY_BINARY\" run " DEMO
                        "--sim $FOLDER/two.ini -c 512 -p hello -n 2 </dev/null");
    drop_brackets(text);
    if (!strstr(text, split))
        fail_msg("no '%s' in\n%s", split, text);
    mem_free(text);
}

static void a_cluster(void **state)
{
    (void)state;
    EXPECT(0,
           DEMO "--cluster examples/home-cluster.json --goal throughput --streams 4 --without pi "
                "--prompt 100",
           "Best, by estimate: ", "pi/cpu: not to be used",
           "studio/cpu: shares the memory of studio/metal0");
    EXPECT(0, DEMO "--cluster examples/home-cluster.json --goal mix --busy 0.25 --streams 4 --json",
           "\"goal\": \"mix\"", "\"busy\": 0.25", "\"outcome\": \"placed\"");
    EXPECT(0, DEMO "--cluster examples/home-cluster.json --add tower:cuda0 --add pi:rtx-3060",
           "If you add cuda0 to tower: ", "If you add rtx-3060 to pi: ");
}

/* Reports of two machines, pasted in whole. */
static void reports_in_a_cluster(void **state)
{
    (void)state;
    mem_free(output_of(
        0,
        "\"$MEDLEY_BINARY\" devices --json --sim examples/two-machines.ini >$FOLDER/report.json"));
    mem_free(output_of(
        0, "( printf '{\"nodes\": [{\"name\": \"a\", \"devices\": '; cat $FOLDER/report.json; "
           "printf '}, {\"name\": \"b\", \"devices\": '; cat $FOLDER/report.json; "
           "printf '}], \"links\": [{\"between\": [\"a\", \"b\"], \"class\": \"ethernet\"}]}' ) "
           ">$FOLDER/cluster.json"));
    EXPECT(0, DEMO "--cluster $FOLDER/cluster.json --explain", "a/sim:desktop  ",
           "given: ", "b/cpu");
}

static void json(void **state)
{
    (void)state;
    char *text = output_of(0, "\"$MEDLEY_BINARY\" plan " DEMO
                              "--cluster examples/home-cluster.json --json --policy equal "
                              "--add tower:8GiB,100GB/s");
    yyjson_doc *doc = yyjson_read(text, strlen(text), 0);
    assert_non_null(doc);
    assert_true(yyjson_equals_str(yyjson_doc_ptr_get(doc, "/outcome"), "placed"));
    assert_true(yyjson_equals_str(yyjson_doc_ptr_get(doc, "/best/speeds"), "datasheet"));
    assert_true(yyjson_get_bool(yyjson_doc_ptr_get(doc, "/best/proved_optimal")));
    assert_true(yyjson_get_real(yyjson_doc_ptr_get(doc, "/best/decode_tokens_per_s")) > 0);
    assert_true(yyjson_is_real(yyjson_doc_ptr_get(doc, "/best/solve_s")));
    assert_int_equal(yyjson_arr_size(yyjson_doc_ptr_get(doc, "/devices")), 5);
    assert_int_equal(yyjson_arr_size(yyjson_doc_ptr_get(doc, "/policies")), 1);
    assert_true(yyjson_arr_size(yyjson_doc_ptr_get(doc, "/what_if")) >= 2);
    yyjson_doc_free(doc);
    mem_free(text);
}

static double number_in(const char *arguments, const char *pointer)
{
    char command[512];
    snprintf(command, sizeof command, "\"$MEDLEY_BINARY\" plan " DEMO "%s --json", arguments);
    char *text = output_of(0, command);
    yyjson_doc *doc = yyjson_read(text, strlen(text), 0);
    yyjson_val *value = yyjson_doc_ptr_get(doc, pointer);
    if (!yyjson_is_num(value))
        fail_msg("no number at %s in\n%s", pointer, text);
    const double number = yyjson_get_num(value);
    yyjson_doc_free(doc);
    mem_free(text);
    return number;
}

#define FIRST_FREE "/best/stages/0/memory_available_bytes"
#define FIRST_TAKEN "/best/stages/0/memory_bytes"
#define DRAFTED "/best/draft/drafted_tokens_per_s"
#define DRAFT_BYTES "/best/draft/memory_bytes"

/* The draft model has the quick device to itself, which is too small for both; the gain is the one
 * that `medley run` says. */
static void a_draft_model_here(void **state)
{
    (void)state;
    static const char words[] = "times as fast if 70 % of its guesses are right";
    mem_free(output_of(
        0, "printf '[a]\nmemory = 12MiB\ndecode = 4GB/s\nflops = 100GFLOP/s\n"
           "[b]\nmemory = 1GiB\ndecode = 400MB/s\nflops = 100GFLOP/s\n' >$FOLDER/draft.ini;"
           "printf '[b]\nmemory = 1GiB\ndecode = 400MB/s\nflops = 100GFLOP/s\n' "
           ">$FOLDER/one.ini"));
    EXPECT(0, DEMO "--draft " DEMO "--sim $FOLDER/draft.ini -c 512", "stage 0  sim:b",
           "Draft model: Medley Stories, ", " MiB on sim:a, ", " without guesses, up to ",
           " if 70 % of its draft model's guesses are right\n");
    const double gain = number_in("--draft " DEMO "--sim $FOLDER/draft.ini -c 512", DRAFTED) /
                        number_in("--sim $FOLDER/one.ini -c 512", "/best/one_stream_tokens_per_s");
    assert_true(gain > 1.5);
    char *text = output_of(0, "\"$MEDLEY_BINARY\" run " DEMO "--draft " DEMO
                              "--sim $FOLDER/draft.ini -c 512 -p hello -n 2 </dev/null");
    const char *said = strstr(text, words);
    assert_non_null(said);
    assert_true(said - text > 5 && fabs(strtod(said - 4, NULL) - gain) < .051);
    mem_free(text);
    const double draft = number_in("--draft " DEMO "--sim $FOLDER/one.ini -c 512", DRAFT_BYTES);
    assert_true(draft > 4e6);
    assert_true(fabs(number_in("--sim $FOLDER/one.ini -c 512", FIRST_FREE) - draft -
                     number_in("--draft " DEMO "--sim $FOLDER/one.ini -c 512", FIRST_FREE)) < 1);
    EXPECT(0, DEMO "--draft " DEMO "--sim $FOLDER/draft.ini -c 512 --draft-device sim:b",
           "stage 0  sim:a", " MiB on sim:b, ");
    EXPECT(0, DEMO "--draft " DEMO "--sim $FOLDER/draft.ini -c 512 --draft-device cpu",
           " MiB on cpu");
    EXPECT(0, DEMO "--draft " DEMO "--sim $FOLDER/draft.ini -c 512 --draft-device cpu --json",
           "\"node\": \"here\",\n                    \"device\": \"cpu\"");
    EXPECT(1, DEMO "--draft " DEMO "--sim $FOLDER/draft.ini --draft-device sim:c",
           "no device 'sim:c'; there are: cpu, sim:a, sim:b");
    mem_free(output_of(0, "printf '[b]\nmemory = 6MiB\ndecode = 400MB/s\nflops = 1GFLOP/s\n' "
                          ">$FOLDER/small.ini"));
    EXPECT(1, DEMO "--draft " DEMO "--sim $FOLDER/small.ini -c 512",
           "the draft model Medley Stories: ", "MiB");
}

/* The first stage has its memory, as for `medley place`. */
static void a_draft_model_in_a_cluster(void **state)
{
    (void)state;
    mem_free(output_of(
        0, "printf '{\"nodes\": [{\"name\": \"n\", \"devices\": [{\"id\": \"cpu\", "
           "\"memory\": \"1GiB\", \"bandwidth\": \"2GB/s\", \"flops\": \"1TFLOP/s\"}]}]}' "
           ">$FOLDER/draft.json"));
    const char *const plain = "--cluster $FOLDER/draft.json -c 512",
                      *const with = "--draft " DEMO "--cluster $FOLDER/draft.json -c 512";
    assert_true(fabs(number_in(with, FIRST_TAKEN) - number_in(plain, FIRST_TAKEN) -
                     number_in(with, DRAFT_BYTES)) < 1);
    EXPECT(0, DEMO "--draft " DEMO "--cluster $FOLDER/draft.json -c 512", "n/cpu",
           "Draft model: Medley Stories, ", " on n/cpu, ",
           "if 70 % of its draft model's guesses are right");
    EXPECT(0, DEMO "--draft " DEMO "--cluster examples/home-cluster.json -c 512",
           "; guesses nothing for these devices (docs/speculation.md)\n");
}

static void what_fits_nowhere(void **state)
{
    (void)state;
    mem_free(output_of(0, "printf '{\"nodes\": [{\"name\": \"a\", \"devices\": [{\"id\": \"cpu\", "
                          "\"memory\": \"60MiB\"}]}]}' "
                          ">$FOLDER/tiny.json"));
    EXPECT(1, DEMO "--cluster $FOLDER/tiny.json -c 16384", "It fits nowhere: ", "missing ",
           "a context of ");
    EXPECT(1, DEMO "--cluster $FOLDER/tiny.json -c 16384 --json", "\"outcome\": \"infeasible\"",
           "\"remedy\": \"context\"");
}

static void wrong_words(void **state)
{
    (void)state;
    EXPECT(2, "", "which model?");
    EXPECT(1, "no-such.gguf", "no-such.gguf");
    EXPECT(2, DEMO "more", "unexpected argument 'more'");
    EXPECT(2, DEMO "--goal speed", "--goal takes latency, throughput or mix, not 'speed'");
    EXPECT(2, DEMO "--busy 0.5", "--busy is for --goal mix");
    EXPECT(2, DEMO "--goal mix --busy 1.5", "--busy takes a part of the time, 0 to 1, not '1.5'");
    EXPECT(2, DEMO "--goal mix --busy nan", "--busy takes a number");
    EXPECT(1, DEMO "--kv q8_0 --cluster examples/home-cluster.json",
           "needs heads of a multiple of 32 values");
    EXPECT(2, DEMO "--draft \"$MEDLEY_GOLDEN/models/llama.gguf\"", "with the same vocabulary");
    EXPECT(2, DEMO "--draft-device cpu", "give both");
    EXPECT(2, DEMO "--draft " DEMO "--draft-device cpu --cluster examples/home-cluster.json",
           "--draft-device names a device of this machine");
    EXPECT(1, DEMO "--draft no-such.gguf", "no-such.gguf");
    EXPECT(2, DEMO "--kv q2", "--kv takes f16, f32, q8_0 or q4_0, not 'q2'");
    EXPECT(2, DEMO "--policy best",
           "--policy takes memory, flops, equal, score or all, not 'best'");
    EXPECT(2, DEMO "--streams 0", "--streams takes a whole number from 1 to ");
    EXPECT(2, DEMO "--time-limit 0", "--time-limit takes seconds");
    EXPECT(2, DEMO "--time-limit nan", "--time-limit takes a number");
    EXPECT(2, DEMO "--cluster a --sim b", "exclude each other");
    EXPECT(1, DEMO "--cluster $FOLDER/none.json", "none.json: No such file");
    EXPECT(2, DEMO "--cluster examples/home-cluster.json --without nobody",
           "there is no node 'nobody'");
    EXPECT(2, DEMO "--cluster examples/home-cluster.json --add 24GiB,900GB/s",
           "it takes NODE:DEVICE");
    EXPECT(2, DEMO "--cluster examples/home-cluster.json --add nobody:24GiB,900GB/s",
           "there is no node 'nobody'");
    EXPECT(2, DEMO "--cluster examples/home-cluster.json --add tower:24GiB",
           "the bandwidth is missing");
    mem_free(output_of(0, "printf '{\"nodes\": [{\"name\": \"a\"}]}' >$FOLDER/bad.json"));
    EXPECT(2, DEMO "--cluster $FOLDER/bad.json", "bad.json: nodes[0]: the devices are missing");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(this_machine),
        cmocka_unit_test(simulated),
        cmocka_unit_test(a_cluster),
        cmocka_unit_test(a_draft_model_here),
        cmocka_unit_test(a_draft_model_in_a_cluster),
        cmocka_unit_test(as_it_runs),
        cmocka_unit_test(reports_in_a_cluster),
        cmocka_unit_test(json),
        cmocka_unit_test(what_fits_nowhere),
        cmocka_unit_test(wrong_words),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
