/* The commands run, logits and bench as a user starts them: what they print, and how they end when
 * the words or the files are wrong. MEDLEY_BINARY is the program. */
#include "engine/sampler_params.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <yyjson.h>

#include <cmocka.h>

static char out[1 << 20]; /* stdout of the last command, and stderr where the words ask for it */

/* Runs `medley WORDS` in the golden folder by the shell, on one CPU thread; returns its exit
 * status. */
static int medley(const char *words)
{
    char line[4096];
    snprintf(line, sizeof line, "cd \"$MEDLEY_GOLDEN/models\" && \"$MEDLEY_BINARY\" %s", words);
    FILE *pipe = popen(line, "r");
    assert_non_null(pipe);
    size_t n = fread(out, 1, sizeof out - 1, pipe);
    out[n] = '\0';
    int status = pclose(pipe);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

#define LLAMA "llama.gguf --devices cpu -t 1 "

static void expect_failure(int status, const char *words, const char *text)
{
    char line[3800];
    snprintf(line, sizeof line, "%s 2>&1", words);
    assert_int_equal(medley(line), status);
    if (!strstr(out, text))
        fail_msg("medley %s: '%s' does not say '%s'", words, out, text);
}

static yyjson_val *reference(yyjson_doc **doc)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/models/llama.json", getenv("MEDLEY_GOLDEN"));
    *doc = yyjson_read_file(path, 0, NULL, NULL);
    assert_non_null(*doc);
    return yyjson_doc_get_root(*doc);
}

static char *ids_of(yyjson_val *array)
{
    char *json = yyjson_val_write(array, 0, NULL);
    assert_non_null(json);
    return json;
}

static void test_logits_are_the_references(void **state)
{
    (void)state;
    yyjson_doc *doc;
    yyjson_val *root = reference(&doc);
    char *prompt = ids_of(yyjson_obj_get(root, "prompt")),
         *greedy = ids_of(yyjson_obj_get(root, "greedy"));
    prompt[strlen(prompt) - 1] = '\0';
    static const char *const splits[] = {"2", "1,1"};
    for (int i = 0; i < 2; i++) {
        char line[2048], expected[1024], file[] = "/tmp/medley-logits-XXXXXX";
        int descriptor = mkstemp(file);
        assert_true(descriptor >= 0);
        snprintf(line, sizeof line,
                 "logits " LLAMA
                 "--kv f32 --flash off --no-repack --split %s --tokens %s --greedy 8 --out %s",
                 splits[i], prompt + 1, file);
        assert_int_equal(medley(line), 0);
        snprintf(expected, sizeof expected, "{\"greedy\":%s}\n", greedy);
        assert_string_equal(out, expected);
        FILE *rows = fdopen(descriptor, "rb");
        fseek(rows, 0, SEEK_END);
        assert_int_equal(ftell(rows), 32L * 320 * 4);
        fclose(rows);
        remove(file);
    }
    free(prompt);
    free(greedy);
    yyjson_doc_free(doc);
}

static void test_run_gives_the_same_text_twice_and_on_every_split(void **state)
{
    (void)state;
    assert_int_equal(medley("run " LLAMA "--raw -p hello -n 12 --seed 7 2>/dev/null"), 0);
    char *first = strdup(out);
    assert_true(strlen(first) > 1);
    assert_int_equal(medley("run " LLAMA "--raw -p hello -n 12 --seed 7 --split 1,1 2>/dev/null"),
                     0);
    assert_string_equal(out, first);
    free(first);
}

static void test_run_json_tells_tokens(void **state)
{
    (void)state;
    assert_int_equal(medley("run " LLAMA "--raw -p hello -n 5 --temp 0 --json 2>/dev/null"), 0);
    yyjson_doc *doc = yyjson_read(out, strlen(out), 0);
    assert_non_null(doc);
    yyjson_val *root = yyjson_doc_get_root(doc);
    assert_int_equal(yyjson_arr_size(yyjson_obj_get(root, "tokens")), 5);
    assert_string_equal(yyjson_get_str(yyjson_obj_get(root, "finish_reason")), "length");
    yyjson_doc_free(doc);
}

#define SHIFTED LLAMA "--kv f32 --flash off --no-repack "

/* {"prompt_tokens", "tokens"} of a run, as one list; how many of them are the prompt's. */
static size_t run_tokens(const char *flags, int32_t list[256], size_t *n, uint64_t *n_dropped)
{
    char line[1024];
    snprintf(line, sizeof line,
             "run " SHIFTED "--raw -p hello -c 32 --temp 0 --json %s 2>/dev/null", flags);
    assert_int_equal(medley(line), 0);
    yyjson_doc *doc = yyjson_read(out, strlen(out), 0);
    assert_non_null(doc);
    yyjson_val *root = yyjson_doc_get_root(doc), *id;
    yyjson_val *prompt = yyjson_obj_get(root, "prompt_tokens");
    size_t i, max;
    *n = 0;
    yyjson_arr_foreach(prompt, i, max, id) list[(*n)++] = yyjson_get_int(id);
    yyjson_arr_foreach(yyjson_obj_get(root, "tokens"), i, max, id)
    {
        assert_true(*n < 256);
        list[(*n)++] = yyjson_get_int(id);
    }
    *n_dropped = yyjson_get_uint(yyjson_obj_get(root, "dropped_tokens"));
    const size_t n_prompt = yyjson_arr_size(prompt);
    yyjson_doc_free(doc);
    return n_prompt;
}

/* After the shift the model says what it says to the first four tokens and the younger half. */
static void test_a_full_context_ends_or_is_shifted(void **state)
{
    int32_t whole[256], shifted[256];
    size_t n_whole, n_shifted, used;
    uint64_t dropped;
    char line[1024], expected[256] = "{\"greedy\":[";
    (void)state;
    run_tokens("-n 100", whole, &n_whole, &dropped);
    assert_true(n_whole >= 32 && n_whole <= 33 && dropped == 0);
    const size_t n_prompt = run_tokens("-n 60 --context-shift", shifted, &n_shifted, &dropped);
    assert_int_equal(n_shifted, n_prompt + 60);
    assert_memory_equal(shifted, whole, n_whole * sizeof *whole);
    const size_t first = (n_whole - 4) / 2;
    assert_true(dropped > first); /* more than once */
    used = (size_t)snprintf(line, sizeof line, "logits " SHIFTED "--greedy 6 --tokens ");
    for (size_t i = 0; i < n_whole; i++) {
        if (i < 4 || i >= 4 + first)
            used +=
                (size_t)snprintf(line + used, sizeof line - used, "%s%d", i ? "," : "", shifted[i]);
    }
    assert_int_equal(medley(line), 0);
    used = strlen(expected);
    for (size_t i = 0; i < 6; i++)
        used += (size_t)snprintf(expected + used, sizeof expected - used, "%s%d", i ? "," : "",
                                 shifted[n_whole + i]);
    snprintf(expected + used, sizeof expected - used, "]}\n");
    assert_string_equal(out, expected);
    assert_int_equal(
        medley("run " LLAMA "--raw -p hello -c 32 -n 60 --temp 0 --context-shift 2>&1 >/dev/null"),
        0);
    assert_non_null(strstr(out, "the context was full"));
    expect_failure(2, "run " LLAMA "--context-shift", "need a prompt");
}

static void test_models_are_listed_and_take_words(void **state)
{
    (void)state;
    setenv("MEDLEY_MODELS", "/nowhere", 1);
    assert_int_equal(medley("models --folder . --json | grep -A3 '\"name\": \"gemma3-linear\"'"),
                     0);
    assert_non_null(strstr(out, "\"place\": \"folder\""));
    assert_non_null(strstr(out, "\"state\": \"whole\""));
    assert_int_equal(medley("models --folder . | grep qwen3moe"), 0);
    assert_non_null(strstr(out, "F32"));
    setenv("MEDLEY_MODELS", getenv("MEDLEY_GOLDEN"), 1);
    assert_int_equal(
        medley("run models/llama-q8_0 --devices cpu -t 1 --raw -p hello -n 2 --temp 0 2>&1"), 0);
    assert_non_null(strstr(out, "cpu 2 layers"));
    expect_failure(2, "run models/llama-q8_0 -c 513 -p x", "-c 512");
    expect_failure(2, "models tidy", "gc, remove, pin or unpin, not 'tidy'");
    expect_failure(2, "models gc llama", "one word too many");
    expect_failure(2, "models pin", "which model?");
    expect_failure(2, "models gc --space lots", "--space takes an amount");
    expect_failure(2, "models remove models/llama-q8_0", "was not fetched by Medley");
    expect_failure(1, "models remove none-such", "`medley models` lists them");
    expect_failure(1, "models --folder /nowhere", "/nowhere: No such file");
    unsetenv("MEDLEY_MODELS");
}

static void test_nothing_to_generate(void **state)
{
    (void)state;
    assert_int_equal(medley("run " LLAMA "--raw -p hello -n 0 2>/dev/null"), 0);
    assert_string_equal(out, "\n");
    assert_int_equal(medley("run " LLAMA "--raw -p hello -n 0 2>&1 >/dev/null"), 0);
    assert_non_null(strstr(out, "tok/s; cpu 2 layers"));
}

static void test_lines_of_a_pipe_are_messages(void **state)
{
    (void)state;
    char line[] = "run " LLAMA "-n 3 2>&1 >/dev/null <<E\nhi\n/reset\nagain\n/exit\nnever\nE";
    assert_int_equal(medley(line), 0);
    char *second = strstr(out, "tok/s;");
    assert_non_null(second);
    second = strstr(second + 1, "prompt ");
    assert_non_null(second);
    assert_null(strstr(second + 1, "prompt "));
}

static void test_convert_writes_a_model_that_runs(void **state)
{
    (void)state;
    assert_int_equal(medley("convert llama.gguf --to q8_0 -o /tmp/medley-convert-$$.gguf --json && "
                            "\"$MEDLEY_BINARY\" logits /tmp/medley-convert-$$.gguf --devices cpu "
                            "-t 1 --tokens 1,2,3 --greedy 2; rm /tmp/medley-convert-$$.gguf"),
                     0);
    assert_non_null(strstr(out, "\"converted\":16"));
    assert_non_null(strstr(out, "{\"greedy\":["));
    expect_failure(2, "convert llama.gguf --to q9", "take one of f32");
    expect_failure(1, "convert llama.gguf --to iq2_xs", "importance matrix");
    expect_failure(2, "convert llama.gguf --to q8_0 -o llama-f16.gguf", "is there already");
    expect_failure(2, "convert llama.gguf", "give --to");
    expect_failure(2, "convert --to q8_0", "which model?");
    expect_failure(2,
                   "convert llama-f16.gguf --to q8_0 -o /tmp/medley-no/x.gguf 2>&1; "
                   "\"$MEDLEY_BINARY\" convert llama.json --to q8_0",
                   "not a GGUF");
}

static void test_bench_prints_a_table_or_json(void **state)
{
    (void)state;
    assert_int_equal(medley("bench " LLAMA "-p 16 -n 4 -r 2 --json"), 0);
    yyjson_doc *doc = yyjson_read(out, strlen(out), 0);
    assert_non_null(doc);
    yyjson_val *root = yyjson_doc_get_root(doc);
    assert_int_equal(yyjson_arr_size(root), 2);
    assert_string_equal(yyjson_get_str(yyjson_obj_get(yyjson_arr_get(root, 0), "test")), "pp16");
    assert_string_equal(yyjson_get_str(yyjson_obj_get(yyjson_arr_get(root, 1), "test")), "tg4");
    assert_true(yyjson_get_real(yyjson_obj_get(yyjson_arr_get(root, 1), "tokens_per_s")) > 0);
    yyjson_doc_free(doc);
    assert_int_equal(medley("bench " LLAMA "-p 0 -n 4 -r 1 -s 3"), 0);
    assert_non_null(strstr(out, "tg4 x3"));
    assert_null(strstr(out, "pp"));
}

static void test_wrong_words(void **state)
{
    (void)state;
    expect_failure(2, "run", "a model is missing");
    expect_failure(2, "run " LLAMA "-p a -f b", "exclude each other");
    expect_failure(2, "run " LLAMA "-p a --top-p 2", "top_p");
    expect_failure(2, "run " LLAMA "-p a --temp warm", "--temp takes a number");
    expect_failure(2, "run " LLAMA "-p a -n -1", "-n takes a whole number");
    expect_failure(2, "run " LLAMA "-p a --kv q3", "--kv takes f16, f32, q8_0 or q4_0");
    expect_failure(2, "run " LLAMA "-p a --nonsense", "--nonsense");
    expect_failure(2, "run " LLAMA "-p a --split 1,2",
                   "split '1,2' adds up to 3 layers; the model has 2");
    expect_failure(2, "run " LLAMA "-p a --split 1,1,1", "adds up to 3 layers");
    expect_failure(2, "run " LLAMA "--raw -p aaaaaaaaaaaaaaaaaaaaaaaa -c 4", "context");
    expect_failure(2, "run " LLAMA "--json", "need a prompt");
    expect_failure(2, "logits " LLAMA "--tokens 1", "--out (or --greedy) is missing");
    expect_failure(2, "logits " LLAMA "--out x", "--tokens is missing");
    expect_failure(2, "logits " LLAMA "--tokens 1,,2 --greedy 1", "ids with commas");
    expect_failure(2, "logits " LLAMA "--tokens 1,320 --greedy 1", "token 320 at position 1");
    expect_failure(2, "bench " LLAMA "-p 100 -c 50", "too small; this needs");
}

#define ENCODER "../embeddings/models/bert.gguf --devices cpu -t 1 "
#define RERANKER "../embeddings/models/bert-xlmr-rank.gguf --devices cpu -t 1 "

/* The vector is the reference's, which is not scaled. */
static void check_vector(const char *line, yyjson_val *reference)
{
    yyjson_doc *doc = yyjson_read(line, strcspn(line, "\n"), 0);
    assert_non_null(doc);
    yyjson_val *got = yyjson_doc_get_root(doc);
    double dot = 0, squares = 0;
    assert_int_equal(yyjson_arr_size(got), yyjson_arr_size(reference));
    for (size_t i = 0; i < yyjson_arr_size(got); i++) {
        const double value = yyjson_get_num(yyjson_arr_get(reference, i));
        dot += value * yyjson_get_num(yyjson_arr_get(got, i));
        squares += value * value;
    }
    assert_true(dot * dot / squares > 0.9999 && dot > 0);
    yyjson_doc_free(doc);
}

static void test_embed_prints_a_vector_a_line(void **state)
{
    (void)state;
    char path[1024];
    snprintf(path, sizeof path, "%s/embeddings/models/bert.json", getenv("MEDLEY_GOLDEN"));
    yyjson_doc *doc = yyjson_read_file(path, 0, NULL, NULL);
    assert_non_null(doc);
    yyjson_val *texts = yyjson_obj_get(yyjson_doc_get_root(doc), "texts");
    assert_int_equal(medley("embed " ENCODER "a --slots 2 --file - 2>/dev/null <<'END'\n"
                            "The cat sat on the mat.\n\na\nEND"),
                     0);
    const char *line = out;
    static const size_t order[] = {0, 1, 0};
    for (size_t i = 0; i < 3; i++, line = strchr(line, '\n') + 1)
        check_vector(line, yyjson_obj_get(yyjson_arr_get(texts, order[i]), "vector"));
    assert_string_equal(line, "");
    yyjson_doc_free(doc);
}

static void test_rerank_prints_the_best_first(void **state)
{
    (void)state;
    assert_int_equal(medley("rerank " RERANKER "'what is a cat' 'a lazy cat on the mat' "
                            "'the dog jumped over' world 'hello hello hello' --top 2 2>/dev/null"),
                     0);
    const char *second = strchr(out, '\n') + 1;
    assert_non_null(strstr(out, "hello hello hello\n"));
    assert_true(strstr(out, "hello hello hello\n") < second);
    assert_non_null(strstr(second, "a lazy cat on the mat\n"));
    assert_null(strchr(strchr(second, '\n') + 1, '\n'));
    assert_true(atof(out) > -1.53 && atof(out) < -1.51);
}

static void test_vectors_that_cannot_be(void **state)
{
    (void)state;
    expect_failure(2, "embed", "a model is missing");
    expect_failure(2, "embed " ENCODER, "a text is missing");
    expect_failure(1, "embed " ENCODER "--file nowhere.txt", "nowhere.txt");
    expect_failure(1, "embed " RERANKER "a", "medley rerank");
    expect_failure(2, "embed " ENCODER "aaaaaaaaaaaaaaaa -c 4", "context");
    expect_failure(2, "rerank " RERANKER, "a model and a query");
    expect_failure(2, "rerank " RERANKER "a", "a text is missing");
    expect_failure(1, "rerank " ENCODER "a b", "no head that ranks");
    expect_failure(1, "run " ENCODER "-p a --raw", "generates no text");
}

/* The numbers before "nothing else" are those of SAMPLER_FIELDS that do something, in its order. */
static void test_the_help_of_run_has_every_setting_of_the_sampler(void **state)
{
    (void)state;
    char usual[200] = "(", number[32];
    assert_int_equal(medley("run --help"), 0);
#define NAMED_NO_OPTION
#define NAMED_OPTION(word, takes) assert_non_null(strstr(out, "  --" word " " takes));
#define NAMED(TYPE, field, standard, off, lowest, highest, api, option)                            \
    NAMED_##option if ((standard) != (off))                                                        \
    {                                                                                              \
        snprintf(number, sizeof number, "%s%g", usual[1] ? ", " : "", (double)(standard));         \
        strcat(usual, number);                                                                     \
    }
    SAMPLER_FIELDS(NAMED)
#undef NAMED
    strcat(usual, " and nothing else unless said)");
    assert_non_null(strstr(out, usual));
}

static void test_what_is_not_there(void **state)
{
    (void)state;
    expect_failure(1, "run nothing.gguf -p a", "nothing.gguf");
    expect_failure(1, "run llama.gguf --devices cuda9 -p a", "cuda9");
    expect_failure(1, "run " LLAMA "-f nothing.txt", "nothing.txt");
    expect_failure(1, "logits " LLAMA "--tokens 1 --out /nowhere/at/all", "/nowhere/at/all");
    expect_failure(2, "run llama.json -p a", "llama.json");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logits_are_the_references),
        cmocka_unit_test(test_run_gives_the_same_text_twice_and_on_every_split),
        cmocka_unit_test(test_run_json_tells_tokens),
        cmocka_unit_test(test_a_full_context_ends_or_is_shifted),
        cmocka_unit_test(test_models_are_listed_and_take_words),
        cmocka_unit_test(test_nothing_to_generate),
        cmocka_unit_test(test_lines_of_a_pipe_are_messages),
        cmocka_unit_test(test_convert_writes_a_model_that_runs),
        cmocka_unit_test(test_bench_prints_a_table_or_json),
        cmocka_unit_test(test_wrong_words),
        cmocka_unit_test(test_the_help_of_run_has_every_setting_of_the_sampler),
        cmocka_unit_test(test_what_is_not_there),
        cmocka_unit_test(test_embed_prints_a_vector_a_line),
        cmocka_unit_test(test_rerank_prints_the_best_first),
        cmocka_unit_test(test_vectors_that_cannot_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
