/* gpu: verification in child processes. This program is its own child: its devices crash, hang and
 * lie there. */
#include "base/clock.h"
#include "base/mem.h"
#include "gpu/probe.h"
#include "gpu/vetting.h"
#include "gpu_fake.h"
#include "sandbox/sandbox.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

extern char **environ;

enum { LONG_MS = 60000 };

/* These devices answer through files and variables that a sandbox would keep from them. */
static void run_free(struct probe *probes, uint32_t count, const char *program, uint64_t limit_ms)
{
    probe_run(probes, count,
              &(struct probe_options){.program = program, .limit_ms = limit_ms, .is_free = true});
}

/* ---- the devices in the child; a backend's name says what they do ------------------------ */

static struct fake_family family;
static struct device_impl impl;

static enum error_code die_by_signal(int number)
{
    signal(number, SIG_DFL); /* a sanitizer's handler would turn it into an exit */
    raise(number);
    return ERROR_NONE;
}

static enum error_code multiply_segfaults(void *self, uint32_t n, const float *a, const float *b,
                                          float *out, struct error *err)
{
    return die_by_signal(SIGSEGV);
}

static enum error_code multiply_aborts(void *self, uint32_t n, const float *a, const float *b,
                                       float *out, struct error *err)
{
    return die_by_signal(SIGABRT);
}

static enum error_code multiply_exits(void *self, uint32_t n, const float *a, const float *b,
                                      float *out, struct error *err)
{
    _exit(3);
}

static enum error_code hang(void)
{
    while (getppid())
        pause();
    return ERROR_NONE;
}

static enum error_code write_and_hang(const char *text)
{
    if (write(PROBE_DESCRIPTOR, text, strlen(text)) < 0)
        _exit(9);
    return hang();
}

static enum error_code multiply_talks_nonsense(void *self, uint32_t n, const float *a,
                                               const float *b, float *out, struct error *err)
{
    return write_and_hang("what is a device?\n");
}

static enum error_code multiply_talks_for_ever(void *self, uint32_t n, const float *a,
                                               const float *b, float *out, struct error *err)
{
    char text[2 * PROBE_LINE_MAX] = "";
    memset(text, 'x', sizeof text - 1);
    return write_and_hang(text);
}

static enum error_code multiply_begins_a_line(void *self, uint32_t n, const float *a,
                                              const float *b, float *out, struct error *err)
{
    return write_and_hang("medley-probe 1 pas");
}

static enum error_code multiply_closes_the_pipe(void *self, uint32_t n, const float *a,
                                                const float *b, float *out, struct error *err)
{
    close(PROBE_DESCRIPTOR);
    return hang();
}

/* Says who it is in the file of the environment, then hangs. */
static enum error_code multiply_tells_its_pid(void *self, uint32_t n, const float *a,
                                              const float *b, float *out, struct error *err)
{
    char name[512], final[512];
    snprintf(final, sizeof final, "%s", getenv("PROBE_PID_FILE"));
    snprintf(name, sizeof name, "%.500s.part", final);
    FILE *file = fopen(name, "w");
    fprintf(file, "%ld", (long)getpid());
    fclose(file);
    rename(name, final);
    return hang();
}

/* Fails when it has a descriptor that nobody gave it. */
static enum error_code multiply_counts_descriptors(void *self, uint32_t n, const float *a,
                                                   const float *b, float *out, struct error *err)
{
    for (int fd = PROBE_DESCRIPTOR + 1; fd < 256; fd++) {
        char link[64], target[256] = "";
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        if (readlink(link, target, sizeof target - 1) > 0)
            return error_set(err, ERROR_DEVICE, "descriptor %d is %.100s", fd, target);
    }
    if (getpgrp() != getpid())
        return error_set(err, ERROR_DEVICE, "not a process group of its own");
    return ERROR_UNSUPPORTED;
}

/* A driver that was taken over: what a sandbox keeps from it. */
static enum error_code multiply_steals(void *self, uint32_t n, const float *a, const float *b,
                                       float *out, struct error *err)
{
    char name[] = "true", *const words[] = {name, NULL};
    pid_t pid;
    if (open("/etc/passwd", O_RDONLY) >= 0)
        return error_set(err, ERROR_DEVICE, "it reads any file");
    if (open("/tmp/medley-probe-was-here", O_CREAT | O_WRONLY, 0600) >= 0)
        return error_set(err, ERROR_DEVICE, "it writes anywhere");
    if (socket(AF_INET, SOCK_STREAM, 0) >= 0)
        return error_set(err, ERROR_DEVICE, "it has a network");
    if (posix_spawn(&pid, "/bin/true", NULL, NULL, words, words + 1) == 0)
        return error_set(err, ERROR_DEVICE, "it starts programs");
    if (getenv("PROBE_PID_FILE"))
        return error_set(err, ERROR_DEVICE, "it has the user's environment");
    return ERROR_UNSUPPORTED;
}

static uint32_t list_segfaults(const void *unused)
{
    (void)unused;
    return (uint32_t)die_by_signal(SIGSEGV);
}

static const struct {
    const char *backend;
    enum fake_fault fault;
    enum error_code (*multiply)(void *, uint32_t, const float *, const float *, float *,
                                struct error *);
} kinds[] = {
    {"honest", FAKE_HONEST, NULL},
    {"lies", FAKE_FLIPS_A_BIT, NULL},
    {"hangs", FAKE_HANGS, NULL},
    {"segfaults", FAKE_HONEST, multiply_segfaults},
    {"aborts", FAKE_HONEST, multiply_aborts},
    {"exits", FAKE_HONEST, multiply_exits},
    {"nonsense", FAKE_HONEST, multiply_talks_nonsense},
    {"for-ever", FAKE_HONEST, multiply_talks_for_ever},
    {"half-a-line", FAKE_HONEST, multiply_begins_a_line},
    {"closes", FAKE_HONEST, multiply_closes_the_pipe},
    {"tells-pid", FAKE_HONEST, multiply_tells_its_pid},
    {"descriptors", FAKE_HONEST, multiply_counts_descriptors},
    {"steals", FAKE_HONEST, multiply_steals},
    {"lists-badly", FAKE_HONEST, NULL},
};

static enum error_code lookup(const char *backend, const struct device_impl **out,
                              const void **out_family, struct error *err)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(kinds[i].backend, backend) != 0)
            continue;
        family.fault = kinds[i].fault;
        impl = fake_impl;
        if (strcmp(backend, "lists-badly") == 0)
            impl.list = list_segfaults;
        if (kinds[i].multiply)
            impl.multiply = kinds[i].multiply;
        *out = &impl;
        *out_family = &family;
        return ERROR_NONE;
    }
    return error_set(err, ERROR_NOT_FOUND, "no backend\nof that name");
}

/* ---- the parent ------------------------------------------------------------------------ */

static char folder[64], pid_path[128], registry_path[128];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "%s/medley-probe-XXXXXX", "/tmp");
    if (!mkdtemp(folder))
        return -1;
    snprintf(pid_path, sizeof pid_path, "%s/pid", folder);
    snprintf(registry_path, sizeof registry_path, "%s/devices.json", folder);
    setenv("PROBE_PID_FILE", pid_path, 1);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    char lock[160];
    snprintf(lock, sizeof lock, "%s.lock", registry_path);
    unlink(pid_path);
    unlink(registry_path);
    unlink(lock);
    return rmdir(folder);
}

static struct probe probe_of(const char *backend)
{
    return (struct probe){.backend = backend, .name = "Fake"};
}

/* No child is left, not even a dead one. */
static void expect_no_children(void)
{
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
}

static uint32_t open_descriptors(void)
{
    uint32_t count = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

static void test_every_way_to_end(void **state)
{
    (void)state;
    static const struct {
        const char *backend;
        enum probe_result result;
        const char *says;
    } ways[] = {
        {"honest", PROBE_PASSED, ""},
        {"descriptors", PROBE_PASSED, ""},
        {"lies", PROBE_FAILED, "wrong data"},
        {"segfaults", PROBE_CRASHED, "it crashed (signal 11) during verification"},
        {"aborts", PROBE_CRASHED, "it crashed (signal 6) during verification"},
        {"exits", PROBE_FAILED, "ended the process (status 3)"},
        {"nonsense", PROBE_FAILED, "cannot be understood"},
        {"for-ever", PROBE_FAILED, "cannot be understood"},
        {"unheard-of", PROBE_FAILED, "no backend of that name"},
    };
    enum { WAYS = sizeof ways / sizeof *ways };
    struct probe probes[WAYS];
    uint32_t n_open = open_descriptors();
    for (size_t i = 0; i < WAYS; i++)
        probes[i] = probe_of(ways[i].backend);
    run_free(probes, WAYS, "/proc/self/exe", LONG_MS);
    expect_no_children();
    assert_int_equal(open_descriptors(), n_open);
    for (size_t i = 0; i < WAYS; i++) {
        if (probes[i].result != ways[i].result || !strstr(probes[i].reason, ways[i].says) ||
            (ways[i].says[0] == 0) != (probes[i].reason[0] == 0))
            fail_msg("%s: result %d, \"%s\"", ways[i].backend, probes[i].result, probes[i].reason);
        assert_true(probes[i].took_ms < LONG_MS);
    }
}

static void test_a_hang_costs_its_limit_and_children_run_side_by_side(void **state)
{
    (void)state;
    struct probe probes[] = {probe_of("hangs"), probe_of("half-a-line"), probe_of("closes"),
                             probe_of("hangs")};
    uint64_t start_ns = clock_now_ns();
    run_free(probes, 4, "/proc/self/exe", 1500);
    uint64_t took_ms = (clock_now_ns() - start_ns) / 1000000;
    expect_no_children();
    for (int i = 0; i < 4; i++) {
        assert_int_equal(probes[i].result, PROBE_HUNG);
        assert_string_equal(probes[i].reason, "it did not answer within 1.5 s");
    }
    assert_true(took_ms >= 1500 && took_ms < 4 * 1500); /* not one after the other */
}

static void test_a_driver_is_verified_in_a_sandbox(void **state)
{
    char lacks[512];
    (void)state;
    if (sandbox_lacks(sandbox_support(), lacks, sizeof lacks)) {
        print_message("skipped: on this kernel a sandboxed process can still %s\n", lacks);
        skip();
    }
    const struct probe_options sandboxed = {.program = "/proc/self/exe", .limit_ms = LONG_MS};
    struct probe probes[] = {probe_of("steals"), probe_of("honest"), probe_of("lies")};
    probe_run(probes, 3, &sandboxed);
    if (probes[0].result != PROBE_PASSED)
        fail_msg("%s", probes[0].reason);
    assert_int_equal(probes[1].result, PROBE_PASSED);
    assert_int_equal(probes[2].result, PROBE_FAILED);
    struct probe thief = probe_of("steals"); /* the attempts are real ones */
    run_free(&thief, 1, "/proc/self/exe", LONG_MS);
    unlink("/tmp/medley-probe-was-here");
    assert_int_equal(thief.result, PROBE_FAILED);
    assert_non_null(strstr(thief.reason, "it reads any file"));
}

static void test_another_device_at_the_index(void **state)
{
    (void)state;
    struct probe probes[] = {probe_of("honest"), probe_of("honest")};
    probes[0].name = "Another";
    probes[1].index = 7;
    run_free(probes, 2, "/proc/self/exe", LONG_MS);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(probes[i].result, PROBE_FAILED);
        assert_non_null(strstr(probes[i].reason, "different devices"));
    }
}

/* Without a name: load and list, verify nothing. */
static void test_listing_is_tried_too(void **state)
{
    (void)state;
    struct probe probes[] = {probe_of("honest"), probe_of("lies"), probe_of("lists-badly")};
    for (int i = 0; i < 3; i++)
        probes[i].name = "";
    run_free(probes, 3, "/proc/self/exe", LONG_MS);
    assert_int_equal(probes[0].result, PROBE_PASSED);
    assert_int_equal(probes[1].result, PROBE_PASSED);
    assert_int_equal(probes[2].result, PROBE_CRASHED);
}

static void test_no_program(void **state)
{
    (void)state;
    struct probe probe = probe_of("honest");
    uint32_t n_open = open_descriptors();
    run_free(&probe, 1, "/nowhere/medley", LONG_MS);
    assert_int_equal(probe.result, PROBE_NOT_RUN);
    assert_non_null(strstr(probe.reason, "No such file"));
    assert_int_equal(open_descriptors(), n_open);
    expect_no_children();
}

/* The pid that a child has written; waits for it. */
static pid_t read_pid(void)
{
    long pid = 0;
    for (int i = 0; i < 3000 && pid == 0; i++) {
        FILE *file = fopen(pid_path, "r");
        if (file) {
            if (fscanf(file, "%ld", &pid) != 1)
                pid = 0;
            fclose(file);
        }
        usleep(10000);
    }
    return (pid_t)pid;
}

static void *kill_the_child(void *unused)
{
    (void)unused;
    pid_t pid = read_pid();
    if (pid > 0)
        kill(pid, SIGKILL);
    return NULL;
}

static void test_a_killed_child_says_nothing_of_the_device(void **state)
{
    (void)state;
    unlink(pid_path);
    pthread_t killer;
    assert_int_equal(pthread_create(&killer, NULL, kill_the_child, NULL), 0);
    struct probe probe = probe_of("tells-pid");
    run_free(&probe, 1, "/proc/self/exe", LONG_MS);
    pthread_join(killer, NULL);
    assert_int_equal(probe.result, PROBE_FAILED); /* not CRASHED: it is not remembered */
    assert_string_equal(probe.reason, "it was killed (signal 9) during verification");
    expect_no_children();
}

/* A program that has its dead children thrown away by the kernel gets no status, but the
 * answers. */
static void test_a_parent_that_ignores_its_children(void **state)
{
    (void)state;
    struct probe probes[] = {probe_of("honest"), probe_of("segfaults"), probe_of("hangs")};
    signal(SIGCHLD, SIG_IGN);
    run_free(probes, 3, "/proc/self/exe", 5000);
    signal(SIGCHLD, SIG_DFL);
    assert_int_equal(probes[0].result, PROBE_PASSED);
    assert_int_equal(probes[1].result, PROBE_FAILED);
    assert_int_equal(probes[2].result, PROBE_HUNG);
    expect_no_children();
}

static bool is_alive(pid_t pid)
{
    char path[64], text[256] = "";
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    FILE *file = fopen(path, "r");
    if (!file)
        return false;
    bool any = fgets(text, sizeof text, file);
    fclose(file);
    const char *after = any ? strrchr(text, ')') : NULL;
    return after && after[1] && after[2] != 'Z' && after[2] != 'X';
}

static void test_a_child_dies_with_its_parent(void **state)
{
    (void)state;
    unlink(pid_path);
    char *const arguments[] = {(char *)(uintptr_t)"parent", (char *)(uintptr_t)"--run-one-probe",
                               NULL};
    pid_t parent;
    assert_int_equal(posix_spawn(&parent, "/proc/self/exe", NULL, NULL, arguments, environ), 0);
    pid_t child = read_pid();
    assert_true(child > 0 && is_alive(child));
    kill(parent, SIGKILL);
    assert_int_equal(waitpid(parent, NULL, 0), parent);
    for (int i = 0; i < 1000 && is_alive(child); i++)
        usleep(10000);
    assert_false(is_alive(child));
}

static void test_lines_of_children(void **state)
{
    (void)state;
    static const char *const not_lines[] = {"",
                                            "medley-probe 1 passe",
                                            "medley-probe 1 passed!",
                                            "medley-probe 2 passed",
                                            "medley-probe 1 failed",
                                            "medley-probe 1 failed ",
                                            " medley-probe 1 passed"};
    enum probe_result result;
    char reason[16];
    for (size_t i = 0; i < sizeof not_lines / sizeof *not_lines; i++)
        assert_false(
            probe_parse(not_lines[i], strlen(not_lines[i]), &result, reason, sizeof reason));
    assert_true(probe_parse("medley-probe 1 passed", 21, &result, reason, sizeof reason));
    assert_int_equal(result, PROBE_PASSED);
    static const char bad[] = "medley-probe 1 failed \x1b[31m\xff and more than fits";
    assert_true(probe_parse(bad, sizeof bad - 1, &result, reason, sizeof reason));
    assert_int_equal(result, PROBE_FAILED);
    assert_string_equal(reason, "?[31m? and more");
}

/* ---- vetting --------------------------------------------------------------------------- */

static struct vet vet_of(const char *backend, const char *driver)
{
    struct vet vet = {.info = {.id = "fake0", .name = "Fake"}};
    snprintf(vet.info.backend, sizeof vet.info.backend, "%s", backend);
    snprintf(vet.info.driver, sizeof vet.info.driver, "%s", driver);
    return vet;
}

static void vet_one(struct vet *vet, const struct gpu_options *options)
{
    struct registry known;
    registry_load(options->registry, &known);
    vet_devices(vet, 1, &known, options);
    registry_deinit(&known);
}

/* Vets one device and writes down what came of it. Without a prober no child can be asked. */
static struct vet vet_once(const char *backend, const char *driver, bool prober, bool verify)
{
    const struct gpu_options options = {.registry = registry_path,
                                        .prober = prober ? "/proc/self/exe" : NULL,
                                        .verify = verify,
                                        .verify_limit_ms =
                                            strcmp(backend, "hangs") == 0 ? 300 : LONG_MS};
    struct vet vet = vet_of(backend, driver);
    vet_one(&vet, &options);
    if (vet.verdict != VET_REFUSED)
        vet_outcome(&vet, NULL, false);
    enum error_code code = vet_remember(&vet, 1, &options, NULL);
    assert_true(code == ERROR_NONE || code == ERROR_NO_MEMORY);
    return vet;
}

static void test_a_crash_is_remembered_until_something_changes(void **state)
{
    (void)state;
    static const char *const backends[] = {"segfaults", "hangs"};
    static const char *const says[] = {"crashed (signal 11) during verification",
                                       "did not answer within 0.3 s"};
    unlink(registry_path);
    for (int i = 0; i < 2; i++) {
        struct vet vet = vet_once(backends[i], "1.0", true, false);
        assert_int_equal(vet.verdict, VET_REFUSED);
        assert_non_null(strstr(vet.reason, says[i]));
        assert_null(strstr(vet.reason, "--verify"));
        vet = vet_once(backends[i], "1.0", false, false); /* without a child: from memory */
        assert_int_equal(vet.verdict, VET_REFUSED);
        assert_non_null(strstr(vet.reason, says[i]));
        assert_non_null(strstr(vet.reason, "not tried since: `medley devices --verify` does"));
        assert_int_equal(vet.change.result, REGISTRY_UNKNOWN);
        vet = vet_once(backends[i], "1.0", true, true); /* --verify: a child again */
        assert_int_equal(vet.verdict, VET_REFUSED);
        assert_null(strstr(vet.reason, "--verify"));
        vet = vet_once(backends[i], "1.1", false, false); /* another driver: as if never seen */
        assert_int_equal(vet.verdict, VET_FULL);
        assert_int_equal(vet.verification.how, VERIFIED_IN_PROCESS);
    }
}

static void test_a_lie_is_found_again_each_time(void **state)
{
    (void)state;
    unlink(registry_path);
    for (int i = 0; i < 2; i++) {
        struct vet vet = vet_once("lies", "1.0", true, false);
        assert_int_equal(vet.verdict, VET_REFUSED);
        assert_non_null(strstr(vet.reason, "wrong data"));
        assert_null(strstr(vet.reason, "--verify"));
    }
}

static void test_what_has_passed_is_checked_quickly(void **state)
{
    (void)state;
    unlink(registry_path);
    struct vet vet = vet_once("honest", "1.0", true, false);
    assert_int_equal(vet.verdict, VET_QUICK);
    assert_int_equal(vet.verification.how, VERIFIED_IN_CHILD);
    uint64_t when = vet.verification.unix_s;
    vet = vet_once("honest", "1.0", false, false);
    assert_int_equal(vet.verdict, VET_QUICK);
    assert_int_equal(vet.verification.how, VERIFIED_BY_REGISTRY);
    assert_int_equal(vet.verification.unix_s, when);
    vet = vet_once("honest", "1.0", false, true);
    assert_int_equal(vet.verdict, VET_FULL);
    /* what it cannot do now is written over what it could */
    const struct gpu_options options = {.registry = registry_path};
    vet = vet_of("honest", "1.0");
    vet_one(&vet, &options);
    vet_outcome(&vet, "it returned wrong data\n", false);
    assert_int_equal(vet_remember(&vet, 1, &options, NULL), ERROR_NONE);
    vet = vet_once("honest", "1.0", false, false);
    assert_int_equal(vet.verdict, VET_FULL);
}

static void test_an_old_or_future_entry_is_not_believed(void **state)
{
    (void)state;
    const struct registry_entry entry = {.verified_unix_s = 100000000};
    assert_true(registry_is_fresh(&entry, 100000000));
    assert_true(registry_is_fresh(&entry, 100000000 + 30 * 86400));
    assert_false(registry_is_fresh(&entry, 100000001 + 30 * 86400));
    assert_false(registry_is_fresh(&entry, 99999999));
}

static void test_the_cpu_is_always_tried(void **state)
{
    (void)state;
    unlink(registry_path);
    const struct gpu_options options = {.registry = registry_path, .prober = "/proc/self/exe"};
    struct vet vet = vet_of("cpu", "");
    vet_one(&vet, &options);
    assert_int_equal(vet.verdict, VET_FULL); /* no child: it is this process that computes on it */
    vet_outcome(&vet, "it did not answer within 20 s", true);
    assert_int_equal(vet_remember(&vet, 1, &options, NULL), ERROR_NONE);
    vet = vet_of("cpu", "");
    vet_one(&vet, &options);
    assert_int_equal(vet.verdict, VET_FULL);
}

static void test_without_a_program_the_process_verifies(void **state)
{
    (void)state;
    const struct gpu_options options = {.prober = "/nowhere/medley"};
    struct vet vet = vet_of("segfaults", "1.0");
    vet_one(&vet, &options);
    assert_int_equal(vet.verdict, VET_FULL);
    assert_int_equal(vet_remember(&vet, 1, &options, NULL), ERROR_NONE); /* no registry: nothing */
}

static void test_every_failed_allocation_is_survived(void **state)
{
    (void)state;
    unlink(registry_path);
    vet_once("honest", "1.0", true, false);
    for (unsigned nth = 1; nth < 40; nth++) {
        mem_fail_nth(nth);
        struct vet vet = vet_once("honest", "1.0", false, true);
        mem_fail_nth(0);
        assert_int_equal(vet.verdict, VET_FULL);
    }
    struct vet vet = vet_once("honest", "1.0", false, false); /* the file was lost at no point */
    assert_int_equal(vet.verdict, VET_QUICK);
}

int main(int argc, char **argv)
{
    probe_main(argc, argv, lookup);
    if (argc == 2 && strcmp(argv[1], "--run-one-probe") == 0) {
        struct probe probe = probe_of("tells-pid");
        run_free(&probe, 1, "/proc/self/exe", LONG_MS);
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_way_to_end),
        cmocka_unit_test(test_a_hang_costs_its_limit_and_children_run_side_by_side),
        cmocka_unit_test(test_a_driver_is_verified_in_a_sandbox),
        cmocka_unit_test(test_another_device_at_the_index),
        cmocka_unit_test(test_listing_is_tried_too),
        cmocka_unit_test(test_no_program),
        cmocka_unit_test(test_a_killed_child_says_nothing_of_the_device),
        cmocka_unit_test(test_a_parent_that_ignores_its_children),
        cmocka_unit_test(test_a_child_dies_with_its_parent),
        cmocka_unit_test(test_lines_of_children),
        cmocka_unit_test(test_a_crash_is_remembered_until_something_changes),
        cmocka_unit_test(test_a_lie_is_found_again_each_time),
        cmocka_unit_test(test_what_has_passed_is_checked_quickly),
        cmocka_unit_test(test_an_old_or_future_entry_is_not_believed),
        cmocka_unit_test(test_the_cpu_is_always_tried),
        cmocka_unit_test(test_without_a_program_the_process_verifies),
        cmocka_unit_test(test_every_failed_allocation_is_survived),
    };
    return cmocka_run_group_tests_name("gpu_probe", tests, make_folder, remove_folder);
}
