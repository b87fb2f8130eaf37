/* Files are tried in a process of their own before they are read here: what crashes or hangs there
 * is refused with a reason, what is good is tried once, and what is no model is told as ever. */
#include "model/gguf_file.h"
#include "model/gguf_trial.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/medley-trial-XXXXXX";

static const char *in_folder(const char *name)
{
    static char path[4][256];
    static unsigned next;
    char *out = path[next++ % 4];
    snprintf(out, sizeof path[0], "%s/%s", folder, name);
    return out;
}

/* A program that stands in for the one that reads. */
static const char *stand_in(const char *name, const char *body)
{
    static char path[256];
    snprintf(path, sizeof path, "%s", in_folder(name));
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "#!/bin/sh\n%s\n", body);
    fclose(file);
    assert_int_equal(chmod(path, 0700), 0);
    return path;
}

static const char *golden(void)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/models/llama.gguf", getenv("MEDLEY_GOLDEN"));
    return path;
}

static enum error_code open_and_close(const char *path, struct error *err)
{
    struct gguf_file *file;
    *err = (struct error){0};
    enum error_code code = gguf_file_open(path, &file, err);
    if (!code)
        gguf_file_close(file);
    return code;
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : 1;
}

static int remove_folder(void **state)
{
    char command[512];
    (void)state;
    gguf_trial_require(NULL, 0);
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    return system(command);
}

static void test_good_file(void **state)
{
    struct error err;
    (void)state;
    gguf_trial_require(getenv("MEDLEY_BINARY"), 0);
    assert_int_equal(open_and_close(golden(), &err), ERROR_NONE);
}

static void test_no_model(void **state)
{
    struct error err;
    (void)state;
    gguf_trial_require(getenv("MEDLEY_BINARY"), 0);
    FILE *file = fopen(in_folder("text"), "w");
    fputs("this is no model", file);
    fclose(file);
    assert_int_equal(open_and_close(in_folder("text"), &err), ERROR_INVALID);
    assert_null(strstr(err.text, "a process of its own")); /* but what is wrong with it */
    assert_int_equal(open_and_close(in_folder("nothing"), &err), ERROR_NOT_FOUND);
}

static void test_crash(void **state)
{
    struct error err;
    char copy[700];
    (void)state;
    snprintf(copy, sizeof copy, "cp '%s' '%s'", golden(), in_folder("crashes.gguf"));
    assert_int_equal(system(copy), 0);
    gguf_trial_require(stand_in("crash", "kill -SEGV $$"), 0);
    assert_int_equal(open_and_close(in_folder("crashes.gguf"), &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "signal 11"));
    assert_non_null(strstr(err.text, "crashes.gguf"));
}

static void test_hang(void **state)
{
    struct error err;
    (void)state;
    gguf_trial_require(stand_in("hang", "sleep 60"), 300);
    assert_int_equal(open_and_close(in_folder("crashes.gguf"), &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "took longer"));
}

static uint32_t count_lines(const char *path)
{
    uint32_t n = 0;
    FILE *file = fopen(path, "r");
    for (int c; file && (c = getc(file)) != EOF;)
        n += c == '\n';
    if (file)
        fclose(file);
    return n;
}

static void test_once(void **state)
{
    struct error err;
    char body[400];
    (void)state;
    snprintf(body, sizeof body, "echo tried >> '%s'", in_folder("count"));
    gguf_trial_require(stand_in("counts", body), 0);
    assert_int_equal(open_and_close(in_folder("crashes.gguf"), &err), ERROR_NONE);
    assert_int_equal(open_and_close(in_folder("crashes.gguf"), &err), ERROR_NONE);
    assert_int_equal(count_lines(in_folder("count")), 1);
    const struct timespec times[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    assert_int_equal(utimensat(AT_FDCWD, in_folder("crashes.gguf"), times, 0), 0);
    assert_int_equal(open_and_close(in_folder("crashes.gguf"), &err), ERROR_NONE);
    assert_int_equal(count_lines(in_folder("count")), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_file), cmocka_unit_test(test_no_model),
        cmocka_unit_test(test_crash),     cmocka_unit_test(test_hang),
        cmocka_unit_test(test_once),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
