/* medley inspect: its text, its JSON and its exit status, for good files and for foreign ones. */
#include "cli/commands.h"
#include "gguf_bytes.h"

#include <getopt.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yyjson.h>

#include <cmocka.h>

/* What main.c gives to commands. */
static char complaint[1024];

int command_fail(const struct command *command, const struct error *err)
{
    snprintf(complaint, sizeof complaint, "%s: %s", command->name, err->text);
    return EXIT_FAILED;
}

int command_misused(const struct command *command, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(complaint, sizeof complaint, format, args);
    va_end(args);
    return EXIT_USAGE;
}

/* Runs the command with up to three words and returns its standard output, which the caller
 * frees. */
static char *inspect(int want_status, const char *a, const char *b, const char *c)
{
    char words[4][512] = {"inspect"};
    char *argv[5] = {words[0]};
    const char *given[] = {a, b, c};
    int argc = 1;
    for (int i = 0; i < 3 && given[i]; i++) {
        snprintf(words[argc], sizeof words[argc], "%s", given[i]);
        argv[argc] = words[argc];
        argc++;
    }
    optind = 0; /* getopt anew */
    char *text = NULL;
    size_t size;
    FILE *kept = stdout;
    stdout = open_memstream(&text, &size);
    assert_non_null(stdout);
    complaint[0] = 0;
    int status = command_inspect.run(argc, argv);
    fclose(stdout);
    stdout = kept;
    assert_int_equal(status, want_status);
    return text;
}

static const char *golden(const char *name)
{
    static char path[512];
    const char *folder = getenv("MEDLEY_GOLDEN");
    assert_non_null(folder);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void assert_has(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("no '%s' in:\n%s", part, text);
}

static uint64_t number_at(yyjson_doc *doc, const char *pointer)
{
    yyjson_val *value = yyjson_doc_ptr_get(doc, pointer);
    if (!yyjson_is_uint(value))
        fail_msg("no number at %s", pointer);
    return yyjson_get_uint(value);
}

static const char *string_at(yyjson_doc *doc, const char *pointer)
{
    yyjson_val *value = yyjson_doc_ptr_get(doc, pointer);
    if (!yyjson_is_str(value))
        fail_msg("no text at %s", pointer);
    return yyjson_get_str(value);
}

static void test_text_of_a_model(void **state)
{
    (void)state;
    char *text = inspect(EXIT_OK, golden("models/gemma3-linear.gguf"), "--tensors", "--keys");
    assert_has(text, "gemma3-linear\n");
    assert_has(text, "layers            7\n");
    assert_has(text, "heads             4 of 16, 2 for KV\n");
    assert_has(text, "sliding window    8 tokens, in 6 of the 7 layers\n");
    assert_has(text, "rope scaling      linear, x8\n");
    assert_has(text, "tokenizer         spm, 320 tokens\n");
    assert_has(text, "chat template     none\n");
    assert_has(text, "0-4, each ");
    assert_has(text, "(shares the input's weights)\n");
    assert_has(text, "blk.6.ffn_down.weight");
    assert_has(text, "gemma3.attention.layer_norm_rms_epsilon      1e-06\n");
    free(text);
}

/* Its file has long and short factors, and no key that names the scaling. */
static void test_factors_without_their_key(void **state)
{
    (void)state;
    char *text = inspect(EXIT_OK, golden("models/phi3-longrope.gguf"), "--keys", NULL);
    assert_null(strstr(text, "rope.scaling.type"));
    assert_has(text, "rope scaling      longrope, from ");
    free(text);
    text = inspect(EXIT_OK, golden("models/phi3-longrope.gguf"), "--json", NULL);
    yyjson_doc *doc = yyjson_read(text, strlen(text), 0);
    assert_string_equal(string_at(doc, "/rope/scaling"), "longrope");
    yyjson_doc_free(doc);
    free(text);
}

static void test_json_of_a_model(void **state)
{
    (void)state;
    char *text = inspect(EXIT_OK, "--json", golden("models/llama.gguf"), "--tensors");
    yyjson_doc *doc = yyjson_read(text, strlen(text), 0);
    assert_non_null(doc);
    assert_string_equal(string_at(doc, "/architecture"), "llama");
    assert_string_equal(string_at(doc, "/tokenizer/family"), "spm");
    assert_int_equal(number_at(doc, "/n_layers"), 2);
    assert_int_equal(number_at(doc, "/n_embd"), 64);
    assert_int_equal(yyjson_arr_size(yyjson_doc_ptr_get(doc, "/cost/layers")), 2);
    assert_int_equal(yyjson_arr_size(yyjson_doc_ptr_get(doc, "/tensors")),
                     number_at(doc, "/n_tensors"));
    /* F32: what is stored is input, layers and output, four bytes a parameter; KV is 2 heads x 2 x
     * 16 x 2 bytes */
    uint64_t bytes = number_at(doc, "/cost/input/bytes") + number_at(doc, "/cost/layers/0/bytes") +
                     number_at(doc, "/cost/layers/1/bytes") + number_at(doc, "/cost/output/bytes");
    assert_int_equal(bytes, number_at(doc, "/weight_bytes"));
    assert_int_equal(bytes, number_at(doc, "/cost/all/bytes"));
    assert_int_equal(bytes, 4 * number_at(doc, "/parameters"));
    assert_int_equal(number_at(doc, "/cost/layers/0/kv_bytes_per_token_f16"), 128);
    assert_int_equal(number_at(doc, "/cost/all/kv_bytes_per_token_f16"), 256);
    yyjson_doc_free(doc);
    free(text);
}

static void test_vocabulary_alone_is_shown(void **state)
{
    (void)state;
    char *text = inspect(EXIT_FAILED, golden("tokenizers/spm-gemma.gguf"), NULL, NULL);
    assert_has(text, "cannot be run: tensor token_embd.weight is missing");
    assert_has(text, "tokenizer         spm, 3000 tokens\n");
    free(text);
}

/* Nothing from the file reaches the terminal as a control character, nor JSON as broken UTF-8. */
static void test_foreign_text_is_harmless(void **state)
{
    (void)state;
    static const char evil[] = "\033[2J\xff\xc2\x9b end \xe2\x82";
    struct gguf_bytes bytes = {0};
    gguf_bytes_text(&bytes, "general.architecture", evil);
    gguf_bytes_text(&bytes, "general.name", evil);
    gguf_bytes_text(&bytes, evil, evil);
    gguf_bytes_text(&bytes, "tokenizer.ggml.model", evil);
    gguf_bytes_text(&bytes, "tokenizer.chat_template", evil);
    gguf_bytes_tensor(&bytes, evil, GGML_TYPE_F32, 1, (int64_t[]){8}, NULL);
    const char *path = "inspect-evil.gguf";
    gguf_bytes_save(&bytes, path);
    gguf_bytes_deinit(&bytes);
    char *text = inspect(EXIT_FAILED, path, "--keys", "--tensors");
    assert_has(text, "cannot be run: ");
    for (const char *at = text; *at; at++) {
        if ((unsigned char)*at < ' ' && *at != '\n')
            fail_msg("control character %d in:\n%s", *at, text);
    }
    assert_null(strstr(text, "\xc2\x9b"));
    free(text);
    for (int i = 0; i < 2; i++) {
        text = inspect(EXIT_FAILED, path, "--json", i ? "--keys" : "--tensors");
        yyjson_doc *doc = yyjson_read(text, strlen(text), 0); /* refuses what is not UTF-8 */
        assert_non_null(doc);
        assert_string_equal(string_at(doc, "/chat_template"),
                            "\033[2J\xef\xbf\xbd\xc2\x9b end \xef\xbf\xbd");
        assert_true(strlen(string_at(doc, "/error")) > 0);
        yyjson_doc_free(doc);
        free(text);
    }
    remove(path);
}

/* What llama.cpp runs and Medley does not is refused by name, and says what is missing. */
static void test_refused_families_say_why(void **state)
{
    (void)state;
    static const char *const families[][2] = {
        {"gemma3n", "embeddings of each layer"},
        {"clip", "this file is a projector: what a language model sees pictures with. Give it "
                 "beside that model, by --projector FILE"},
        {"nobody", "does not know the architecture 'nobody'"},
    };
    const char *path = "inspect-refused.gguf";
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        struct gguf_bytes bytes = {0};
        gguf_bytes_text(&bytes, "general.architecture", families[i][0]);
        gguf_bytes_tensor(&bytes, "token_embd.weight", GGML_TYPE_F32, 2, (int64_t[]){8, 8}, NULL);
        gguf_bytes_save(&bytes, path);
        gguf_bytes_deinit(&bytes);
        char *text = inspect(EXIT_FAILED, path, NULL, NULL);
        assert_has(text, "cannot be run: ");
        assert_has(text, families[i][1]);
        free(text);
    }
    remove(path);
}

/* A layer that sees another's keys and values needs one of its kind before it. */
static void test_shared_keys_need_a_layer(void **state)
{
    (void)state;
    const char *path = "inspect-shared.gguf";
    const uint8_t windowed[] = {1, 0};
    struct gguf_bytes bytes = {0};
    gguf_bytes_text(&bytes, "general.architecture", "gemma4");
    gguf_bytes_u32(&bytes, "gemma4.block_count", 2);
    gguf_bytes_u32(&bytes, "gemma4.embedding_length", 8);
    gguf_bytes_u32(&bytes, "gemma4.feed_forward_length", 8);
    gguf_bytes_u32(&bytes, "gemma4.attention.head_count", 1);
    gguf_bytes_u32(&bytes, "gemma4.attention.sliding_window", 4);
    gguf_bytes_array(&bytes, "gemma4.attention.sliding_window_pattern", GGUF_TYPE_BOOL, windowed, 2,
                     sizeof windowed[0]);
    gguf_bytes_u32(&bytes, "gemma4.attention.shared_kv_layers", 1);
    gguf_bytes_tensor(&bytes, "token_embd.weight", GGML_TYPE_F32, 2, (int64_t[]){8, 8}, NULL);
    gguf_bytes_save(&bytes, path);
    gguf_bytes_deinit(&bytes);
    char *text = inspect(EXIT_FAILED, path, NULL, NULL);
    assert_has(text, "leaves no layer with keys and values of each kind");
    free(text);
    remove(path);
}

static void test_wrong_words_and_files(void **state)
{
    (void)state;
    free(inspect(EXIT_USAGE, NULL, NULL, NULL));
    assert_has(complaint, "which model?");
    free(inspect(EXIT_USAGE, "a.gguf", "b.gguf", NULL));
    assert_has(complaint, "unexpected argument 'b.gguf'");
    free(inspect(EXIT_USAGE, "a.gguf", "--colour", NULL));
    assert_has(complaint, "unknown option '--colour'");
    free(inspect(EXIT_FAILED, "/no/such.gguf", NULL, NULL));
    assert_string_equal(complaint, "inspect: /no/such.gguf: No such file or directory");
    free(inspect(EXIT_FAILED, golden("README.md"), NULL, NULL));
    assert_has(complaint, "not a GGUF file");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_of_a_model),
        cmocka_unit_test(test_factors_without_their_key),
        cmocka_unit_test(test_json_of_a_model),
        cmocka_unit_test(test_vocabulary_alone_is_shown),
        cmocka_unit_test(test_foreign_text_is_harmless),
        cmocka_unit_test(test_refused_families_say_why),
        cmocka_unit_test(test_shared_keys_need_a_layer),
        cmocka_unit_test(test_wrong_words_and_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
