/* Why a backend has no device: every reason that can be given, and that it names its mend. */
#include "gpu/backends.h"
#include "gpu/plugin_package.h"
#include "gpu/plugins.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static const struct backend backend = {
    .name = "toy",
    .device_files = "/tmp/medley-backends-*/toy[0-9]",
    .needs = "a toy",
    .mend_device = "buy one",
    .mend_permission = "ask for it",
};

static void test_nothing_is_said(void **state)
{
    (void)state;
    char reason[256];
    backend_explain_no_device(&backend, "", reason, sizeof reason);
    assert_string_equal(reason, "loaded, but it finds no device: needs a toy; buy one");
}

static void test_the_backends_words(void **state)
{
    (void)state;
    char reason[256];
    backend_explain_no_device(&backend, "init: no ROCm-capable device is detected", reason,
                              sizeof reason);
    assert_string_equal(reason, "loaded, but it finds no device (init: no ROCm-capable device is "
                                "detected): needs a toy; buy one");
    char words[1024];
    memset(words, 'w', sizeof words - 1);
    words[sizeof words - 1] = 0;
    backend_explain_no_device(&backend, words, reason, sizeof reason);
    assert_non_null(
        strstr(reason, "www): needs a toy; buy one")); /* a long tale does not push out the mend */
}

static void test_a_driver_that_is_too_old(void **state)
{
    (void)state;
    const char *words = "ggml_cuda_init: failed to initialize CUDA: CUDA driver version is "
                        "insufficient for CUDA runtime version";
    char reason[256];
    backend_explain_no_device(&backend, words, reason, sizeof reason);
    assert_non_null(strstr(reason, "its driver is too old (ggml_cuda_init: "));
    assert_non_null(strstr(reason, "mend: buy one"));
    struct backend cuda = *backend_find("cuda");
    cuda.device_files = NULL;
    backend_explain_no_device(&cuda, words, reason, sizeof reason);
    assert_non_null(
        strstr(reason, "mend: update the NVIDIA driver (nvidia-smi shows which it is)"));
}

/* Root may use every file, so somebody else looks. */
static void test_a_device_file_that_may_not_be_used(void **state)
{
    (void)state;
    char folder[] = "/tmp/medley-backends-XXXXXX", file[64];
    assert_non_null(mkdtemp(folder));
    assert_int_equal(chmod(folder, 0755), 0);
    snprintf(file, sizeof file, "%s/toy0", folder);
    FILE *stream = fopen(file, "w");
    assert_non_null(stream);
    fclose(stream);
    char reason[256];
    backend_explain_no_device(&backend, "some words", reason, sizeof reason); /* it may be used */
    assert_non_null(strstr(reason, "some words"));
    assert_int_equal(chmod(file, 0), 0);
    char wanted[256];
    snprintf(wanted, sizeof wanted, "no permission to use %s; mend: ask for it", file);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (geteuid() == 0 && setuid(65534) != 0)
            _exit(2);
        backend_explain_no_device(&backend, "some words", reason, sizeof reason);
        _exit(strcmp(reason, wanted) == 0 ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    unlink(file);
    rmdir(folder);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* ggml's own log line ends up in the reason. */
static void test_errors_of_ggml_are_remembered(void **state)
{
    (void)state;
    plugins_log_hook();
    ggml_log_callback log;
    void *user;
    ggml_log_get(&log, &user);
    plugins_forget_error();
    log(GGML_LOG_LEVEL_INFO, "all is well\n", user);
    assert_string_equal(plugins_last_error(), "");
    log(GGML_LOG_LEVEL_ERROR, "first\n", user);
    log(GGML_LOG_LEVEL_ERROR, "no \x01 device\nand a second line\n", user);
    log(GGML_LOG_LEVEL_ERROR, "\n", user);
    assert_string_equal(plugins_last_error(), "no ? device");
    plugins_forget_error();
    assert_string_equal(plugins_last_error(), "");
}

static void test_every_backend_says_how_to_mend_it(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < backend_count(); i++) {
        const struct backend *known = backend_at(i);
        assert_true(known->needs && known->mend_plugin && known->mend_device);
        assert_true(!known->device_files || known->mend_permission);
        assert_ptr_equal(backend_find(known->name), known);
    }
}

static void assert_package(const char *status, const char *package, bool fits)
{
    char path[] = "/tmp/medley-status-XXXXXX", reason[256] = "";
    const int file = mkstemp(path);
    assert_true(file >= 0 && write(file, status, strlen(status)) == (ssize_t)strlen(status));
    close(file);
    assert_int_equal(plugin_package_fits(path, package, "0.27.0", reason, sizeof reason), fits);
    unlink(path);
    assert_string_equal(reason, fits ? "" : "its plugin is of ggml 0.26.0, ggml here is 0.27.0");
}

static void test_a_plugin_of_another_version(void **state)
{
    (void)state;
    static const char *const installed =
        "Package: a\nStatus: install ok installed\nVersion: 0.26.0-1\n\n"
        "Package: b\nStatus: install ok installed\nVersion: 1:0.27.0+ds-2~bpo13+1\n\n"
        "Package: c\nStatus: deinstall ok config-files\nVersion: 0.26.0-1\n\n"
        "Package: d\nDescription: x\n Version: 9\nStatus: install ok installed\n"
        "Version: 2:0.26.0~rc1-3";
    assert_package(installed, "a", false);
    assert_package(installed, "b", true);
    assert_package(installed, "c", true);  /* removed: nothing is known */
    assert_package(installed, "d", false); /* the last, without a line's end */
    assert_package(installed, "e", true);
    assert_package("", "a", true);
    char reason[64] = "";
    assert_true(plugin_package_fits("/nowhere/status", "a", "0.27.0", reason, sizeof reason));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_is_said),
        cmocka_unit_test(test_the_backends_words),
        cmocka_unit_test(test_a_driver_that_is_too_old),
        cmocka_unit_test(test_a_device_file_that_may_not_be_used),
        cmocka_unit_test(test_errors_of_ggml_are_remembered),
        cmocka_unit_test(test_a_plugin_of_another_version),
        cmocka_unit_test(test_every_backend_says_how_to_mend_it),
    };
    return cmocka_run_group_tests_name("backends", tests, NULL, NULL);
}
