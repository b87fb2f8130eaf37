/* The cores of gpu/host.h, of made-up files. */
#include "gpu/host.h"

#include "sensors_tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

static uint32_t cores_of(const char *const lists[], const bool *allowed, uint32_t n)
{
    struct tree tree;
    struct sysfs fs;
    tree_open(&tree);
    snprintf(fs.root, sizeof fs.root, "%s", tree.root);
    for (uint32_t i = 0; i < n; i++) {
        if (lists[i])
            tree_write(&tree, lists[i],
                       "sys/devices/system/cpu/cpu%u/topology/thread_siblings_list", i);
    }
    const uint32_t n_cores = host_count_cores(&fs, allowed, n);
    tree_close(&tree);
    return n_cores;
}

static void counts_cores_of_allowed_threads(void **state)
{
    (void)state;
    static const char *const desktop[] = {"0,4", "1,5", "2,6", "3,7", "0,4", "1,5", "2,6", "3,7"},
                             *const laptop[] = {"0-1", "0-1", "2-3", "2-3", "4", "5", "6", "7"},
                             *const silent[4] = {0}, *const odd[] = {"", "x", "4294967296", "1-0"};
    static const bool all[] = {true, true, true, true, true, true, true, true},
                      upper[] = {false, false, false, false, true, true, true, true},
                      mixed[] = {true, false, false, false, true, true, false, false};
    assert_int_equal(cores_of(desktop, all, 8), 4);
    assert_int_equal(cores_of(desktop, upper, 8), 4);
    assert_int_equal(cores_of(desktop, mixed, 8), 2);
    assert_int_equal(cores_of(laptop, all, 8), 6); /* two fast cores of two threads, four others */
    assert_int_equal(cores_of(silent, all, 4), 4);
    assert_int_equal(cores_of(odd, all, 4), 4);
    const struct host_cores here = host_cores_read();
    assert_true(here.n_cores >= 1 && here.n_cores <= here.n_threads);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_cores_of_allowed_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
