/* Commands about models of this machine: what `models` and `doctor` tell of one, what a draft model
 * changes and does not, and words that `plan`, `sim` and the measures refuse. */
#include "shell_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MEDLEY "\"$MEDLEY\" "
#define LLAMA "\"$MEDLEY_GOLDEN/models/llama.gguf\" "
#define DEMO "\"$MEDLEY_ROOT/models/demo.gguf\" "
#define PULLED "state/pulled/hf/org/repo/"
#define OLLAMA "ollama/manifests/registry.ollama.ai/library/tiny"
#define MODEL_HASH "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
#define PARAMS_HASH "11112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

/* A pulled file, a broken one, and a model of Ollama's with parameters of its own. */
static int put_models(void **state)
{
    (void)state;
    static const char *const others[] = {"LLAMA_CACHE", "HF_HOME", "HF_HUB_CACHE", "MEDLEY_MODELS",
                                         "HUGGINGFACE_HUB_CACHE"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        unsetenv(others[i]);
    setenv("OLLAMA_MODELS", "ollama", 1);
    return system(
        "rm -rf state ollama && mkdir -p " PULLED " " OLLAMA " ollama/blobs && "
        "cp \"$MEDLEY_GOLDEN/models/llama.gguf\" " PULLED "small-F32.gguf && "
        "cp \"$MEDLEY_GOLDEN/models/llama.gguf\" ollama/blobs/sha256-" MODEL_HASH " && "
        "printf '%s' '{\"temperature\":0.25,\"mirostat\":2}' >ollama/blobs/sha256-" PARAMS_HASH
        " && size=$(stat -c %s ollama/blobs/sha256-" MODEL_HASH ") && "
        "printf '{\"layers\":[{\"mediaType\":\"application/vnd.ollama.image.model\",\"digest\":"
        "\"sha256:" MODEL_HASH "\",\"size\":%s},{\"mediaType\":\"application/vnd.ollama.image."
        "params\",\"digest\":\"sha256:" PARAMS_HASH "\",\"size\":34}]}' $size >" OLLAMA "/latest");
}

static void a_model_is_shown(void **state)
{
    (void)state;
    shell_expect(0, MEDLEY "models show small-F32", "  family    llama\n");
    shell_expect(0, MEDLEY "models show small-F32", "  context   512 tokens\n");
    shell_expect(0, MEDLEY "models show small-F32", "begin with nothing of the model's own");
    shell_expect(0, MEDLEY "models show small-F32 --json", "\"defaults\": null");
    shell_expect(0, MEDLEY "models pin small-F32 && " MEDLEY "models show small-F32", ", pinned\n");
    shell_expect(1, MEDLEY "models show nothing", "nothing");
    shell_expect(2, MEDLEY "models show", "medley models");
    assert_int_equal(system("head -c 3000 " PULLED "small-F32.gguf >" PULLED "half-F32.gguf"), 0);
    shell_expect(2, MEDLEY "models show half-F32", "is broken: key 'tokenizer.ggml.tokens'");
}

static void parameters_of_its_maker_are_told(void **state)
{
    (void)state;
    shell_expect(0, MEDLEY "models show tiny", "begin with temperature 0.25");
    shell_expect(0, MEDLEY "models show tiny", "not used: mirostat");
    shell_expect(0, MEDLEY "models show tiny --json", "\"defaults_unused\": \"mirostat\"");
    shell_expect(0, MEDLEY "models --paths", "sha256-" MODEL_HASH);
    const char *said;
    shell_run(MEDLEY "doctor --all", &said); /* its status is this machine's */
    assert_non_null(strstr(said, "begin with temperature 0.25"));
    assert_non_null(strstr(said, "of its parameters these are not used: mirostat"));
}

#define RUN                                                                                        \
    MEDLEY "run " DEMO "--devices cpu -t 1 -c 256 -n 24 --temp 0 -p 'Once upon' 2>/dev/null "

/* A draft model changes no word of the answer. */
static void a_draft_model_guesses(void **state)
{
    (void)state;
    const char *said;
    assert_int_equal(shell_run(RUN "--speculate off", &said), 0);
    char *plain = strdup(said);
    assert_true(strlen(plain) > 20);
    assert_int_equal(shell_run(RUN "--draft " DEMO, &said), 0);
    assert_string_equal(said, plain);
    free(plain);
    shell_expect(2, MEDLEY "run " DEMO "--draft " DEMO "--speculate off -p x",
                 "nothing is to be guessed");
    shell_expect(2, MEDLEY "run " DEMO "--draft " LLAMA "-p x", "with the same vocabulary");
    shell_expect(1, MEDLEY "run " DEMO "--draft /no/such.gguf -p x", "/no/such.gguf");
}

#define TWO MEDLEY "run " DEMO "--draft " DEMO "--sim two.ini -c 512 -n 2 -p hello </dev/null 2>&1 "

/* On one of the model's devices, beside it or alone, or on another; what there is is named where it
 * has no room there. */
static void a_draft_model_goes_where_it_is_told(void **state)
{
    (void)state;
    const char *said;
    shell_run("printf '[small]\nmemory = 6MiB\ndecode = 400MB/s\nflops = 1GFLOP/s\n"
              "[large]\nmemory = 1GiB\ndecode = 400MB/s\nflops = 1GFLOP/s\n' >two.ini",
              &said);
    shell_expect(0, TWO, "a draft model on sim:large");
    shell_expect(0, TWO "--draft-device cpu", "a draft model on cpu");
    shell_expect(0, TWO "--draft-device sim:large", "a draft model on sim:large");
    shell_expect(1, TWO "--draft-device sim:small",
                 "the draft model Medley Stories: sim:small has no room for it, which takes ");
    shell_expect(1, TWO "--draft-device sim:small", "there are sim:small with 6.0 MiB, sim:large");
    shell_expect(1, TWO "--draft-device sim:none",
                 "--draft-device: no device 'sim:none'; there are: cpu, sim:small, sim:large");
    shell_expect(2, MEDLEY "run " DEMO "--draft-device cpu -p x", "give both");
}

static void words_are_refused(void **state)
{
    static const struct {
        int status;
        const char *line, *said;
    } refused[] = {
        {2, MEDLEY "plan " LLAMA "--weights-memory much", "--weights-memory"},
        {2, MEDLEY "plan " LLAMA "--rope-scaling ntk",
         "--rope-scaling takes none, linear or yarn, not 'ntk'"},
        {2, MEDLEY "plan " LLAMA "--rope-scale 0.5", "--rope-scale takes 1 to 1024, not 0.5"},
        {2, MEDLEY "plan " LLAMA "--colour", "unknown or incomplete option '--colour'"},
        {2, MEDLEY "plan " LLAMA "--kv", "unknown or incomplete option '--kv'"},
        {2, MEDLEY "sim --seed x", "--seed"},
        {2, MEDLEY "sim --minutes 0", "--minutes"},
        {2, MEDLEY "sim --colour", "--colour"},
        {1, MEDLEY "sim /no/such/file", "/no/such/file: No such file or directory"},
        {1, MEDLEY "perplexity " LLAMA "--text /no/such/text", "/no/such/text: No such file"},
        {1, MEDLEY "perplexity " LLAMA "--text /", "/: Is a directory"},
        {2, "truncate -s 135000000 long; " MEDLEY "perplexity " LLAMA "--text long",
         "a text may have 128 MiB at most"},
        {2, MEDLEY "perplexity " LLAMA "--context 4", "a window of 4 tokens is too short"},
        {1, MEDLEY "perplexity /no/such.gguf", "/no/such.gguf"},
        {1, MEDLEY "compare " LLAMA "/no/such.gguf --context 64", "/no/such.gguf"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        shell_expect(refused[i].status, refused[i].line, refused[i].said);
}

static void a_story_is_written_and_told(void **state)
{
    (void)state;
    const char *said;
    shell_expect(0, MEDLEY "sim --seed 3 --nodes 3 --write >story && cat story", "3");
    assert_int_equal(shell_run(MEDLEY "sim story -v", &said), 0);
    assert_non_null(strstr(said, " s  ")); /* a line of each event, with its time */
    shell_expect(0, MEDLEY "sim --seed 3 --nodes 3 --minutes 1 --shrink",
                 "everything was in order");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_model_is_shown, put_models),
        cmocka_unit_test_setup(parameters_of_its_maker_are_told, put_models),
        cmocka_unit_test(a_draft_model_guesses),
        cmocka_unit_test(a_draft_model_goes_where_it_is_told),
        cmocka_unit_test(words_are_refused),
        cmocka_unit_test(a_story_is_written_and_told),
    };
    return cmocka_run_group_tests(tests, shell_open, shell_close);
}
