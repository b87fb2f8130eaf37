/* `medley models` gc, remove, pin and unpin on files that were pulled: what they free, what stays,
 * and what they say. */
#include "shell_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#define PULLED "state/pulled/hf/org/repo/"
#define MODELS "\"$MEDLEY\" models "

static int put_models(void **state)
{
    (void)state;
    static const char *const others[] = {"OLLAMA_MODELS", "LLAMA_CACHE",   "HF_HOME",
                                         "HF_HUB_CACHE",  "MEDLEY_MODELS", "HUGGINGFACE_HUB_CACHE"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        unsetenv(others[i]);
    return system("rm -rf state && mkdir -p " PULLED " && "
                  "cp \"$MEDLEY_GOLDEN/models/llama.gguf\" " PULLED "new-Q8_0.gguf && "
                  "cp \"$MEDLEY_GOLDEN/models/llama.gguf\" " PULLED "old-Q8_0.gguf && "
                  "touch -d '100 days ago' " PULLED "old-Q8_0.gguf");
}

static void expect_there(const char *name, int there)
{
    assert_int_equal(access(name, F_OK) == 0, there);
}

static void gc_says_what_it_would_free_and_asks(void **state)
{
    (void)state;
    shell_expect(0, MODELS "gc --unused 30 </dev/null", "`medley models gc --yes` does it");
    expect_there(PULLED "old-Q8_0.gguf", 1);
    shell_expect(0, MODELS "gc --unused 30 --yes", "not used for 100 days");
    expect_there(PULLED "old-Q8_0.gguf", 0);
    expect_there(PULLED "new-Q8_0.gguf", 1);
    shell_expect(0, MODELS "gc --unused 30 --yes", "Nothing to free.");
    shell_expect(0, MODELS "gc --unused 0 --space 1 --yes", " freed");
    expect_there(PULLED "new-Q8_0.gguf", 0);
    shell_expect(2, MODELS "gc --unused 40000", "at most 36500 days");
}

static void gc_frees_what_is_broken(void **state)
{
    (void)state;
    assert_int_equal(system("echo no model >" PULLED "text.gguf"), 0);
    shell_expect(0, MODELS "gc --unused 0 --yes", "broken: ");
    expect_there(PULLED "text.gguf", 0);
    expect_there(PULLED "old-Q8_0.gguf", 1);
}

static void what_is_pinned_stays(void **state)
{
    (void)state;
    shell_expect(0, MODELS "pin org/repo/old-Q8_0", "is pinned");
    shell_expect(0, MODELS "gc --unused 30 --yes", "Nothing to free.");
    shell_expect(1, MODELS "remove org/repo/old-Q8_0", "pinned");
    expect_there(PULLED "old-Q8_0.gguf", 1);
    shell_expect(0, MODELS "unpin org/repo/old-Q8_0", "is no longer pinned");
    shell_expect(0, MODELS "remove org/repo/old-Q8_0", "is removed: ");
    expect_there(PULLED "old-Q8_0.gguf", 0);
}

static void names_that_mean_nothing_are_refused(void **state)
{
    (void)state;
    shell_expect(1, MODELS "remove nothing", "nothing");
    shell_expect(1, MODELS "pin nothing", "nothing");
    shell_expect(2, MODELS "forget nothing", "say show, gc, remove, pin or unpin, not 'forget'");
    shell_expect(2, MODELS "gc nothing", "nothing");
    shell_expect(2, MODELS "remove", "medley models");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(gc_says_what_it_would_free_and_asks, put_models),
        cmocka_unit_test_setup(gc_frees_what_is_broken, put_models),
        cmocka_unit_test_setup(what_is_pinned_stays, put_models),
        cmocka_unit_test_setup(names_that_mean_nothing_are_refused, put_models),
    };
    return cmocka_run_group_tests(tests, shell_open, shell_close);
}
