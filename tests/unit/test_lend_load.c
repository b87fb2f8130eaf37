/* What others use of this machine's processors: what the node and its devices' processes burn is
 * not counted, and nothing is said where nothing is known. */
#include "base/clock.h"
#include "node/lend_load.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

/* The kernel counts in hundredths of a second. */
#define BURN_S 0.3
#define TICKS_S 0.05

static void burn(void)
{
    struct timespec used;
    do
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    while ((double)used.tv_sec + (double)used.tv_nsec / 1e9 < BURN_S);
}

static struct reading used(double percent)
{
    return reading_now(UNIT_PCT, percent);
}

/* Between two calls BURN_S were burnt, or a little more: others had the rest. */
static void expect_rest(struct reading others, uint64_t ns)
{
    const double n_cpus = (double)sysconf(_SC_NPROCESSORS_ONLN), seconds = (double)ns / 1e9;
    const double rest = 1 - BURN_S / seconds / n_cpus;
    assert_true(others.valid);
    assert_true(others.value < rest + TICKS_S / seconds);
    assert_true(others.value > rest - 2 * TICKS_S / seconds);
}

static void nothing_is_said_at_first_or_where_nothing_is_known(void **state)
{
    (void)state;
    struct lend_load load = {0};
    assert_false(lend_load_others(&load, used(50)).valid);
    assert_false(lend_load_others(&load, (struct reading){0}).valid);
    load.own_ticks += 1000000; /* a device's process that has ended took its ticks along */
    assert_false(lend_load_others(&load, used(50)).valid);
    assert_true(lend_load_others(&load, used(50)).valid);
}

static void what_a_devices_process_burns_is_the_nodes_own(void **state)
{
    (void)state;
    struct lend_load load = {0};
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    lend_load_others(&load, used(100));
    const uint64_t begin_ns = load.at_ns;
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) { /* a process's time begins with it */
        burn();
        (void)!write(ready[1], "", 1);
        pause();
        _exit(0);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    const struct reading others = lend_load_others(&load, used(100));
    expect_rest(others, load.at_ns - begin_ns);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(ready[0]);
    close(ready[1]);
}

static void others_never_have_less_than_nothing(void **state)
{
    (void)state;
    struct lend_load load = {0};
    lend_load_others(&load, used(0));
    burn();
    const struct reading others = lend_load_others(&load, used(0));
    assert_true(others.valid && others.value == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_said_at_first_or_where_nothing_is_known),
        cmocka_unit_test(what_a_devices_process_burns_is_the_nodes_own),
        cmocka_unit_test(others_never_have_less_than_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
