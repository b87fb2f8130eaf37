/* driver_plan(): splits that are given, splits of its own. */
#include "driver_world.h"

#include "base/limits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { BIG = 1000000 };

struct machine {
    struct device *devices[9];
    uint32_t n;
};

static void add(struct machine *machine, const char *id, uint64_t free_bytes, uint64_t bandwidth)
{
    machine->devices[machine->n++] = fake_device_open(id, free_bytes, bandwidth);
}

static void close_all(struct machine *machine)
{
    for (uint32_t i = 0; i < machine->n; i++)
        fake_device_close(machine->devices[i]);
}

static void expect(const struct machine *machine, const char *split, const uint32_t *counts)
{
    struct stage_plan plan[LIMIT_STAGES];
    struct error err = {0};
    if (driver_plan(fake_model(), machine->devices, machine->n, split, plan, &err))
        fail_msg("%s", err.text);
    for (uint32_t i = 0; i < machine->n; i++) {
        assert_ptr_equal(plan[i].device, machine->devices[i]);
        assert_int_equal(plan[i].n_layers, counts[i]);
    }
}

static void expect_refused(const struct machine *machine, const char *split, const char *text)
{
    struct stage_plan plan[LIMIT_STAGES];
    struct error err = {0};
    assert_int_equal(driver_plan(fake_model(), machine->devices, machine->n, split, plan, &err), ERROR_INVALID);
    if (!strstr(err.text, text))
        fail_msg("'%s' does not say '%s'", err.text, text);
}

static void test_a_given_split(void **state)
{
    (void)state;
    struct machine machine = {0};
    add(&machine, "cpu", BIG, 0);
    add(&machine, "vulkan0", BIG, 0);
    expect(&machine, "3,5", (uint32_t[]){3, 5});
    expect(&machine, "7,1", (uint32_t[]){7, 1});
    expect_refused(&machine, "3,6", "split '3,6' adds up to 9 layers; the model has 8");
    expect_refused(&machine, "8", "split '8' has 1 part for 2 devices (cpu, vulkan0)");
    expect_refused(&machine, "3,3,2", "3 parts for 2 devices");
    expect_refused(&machine, "8,0", "part 2");
    expect_refused(&machine, "", "part 1");
    expect_refused(&machine, "4,", "part 2");
    expect_refused(&machine, ",4", "part 1");
    expect_refused(&machine, "4;4", "part 1");
    expect_refused(&machine, "-4,12", "part 1");
    expect_refused(&machine, " 4,4", "part 1");
    expect_refused(&machine, "4,99999999999999999999999", "part 2");
    expect_refused(&machine, "4,4294967300", "part 2");
    close_all(&machine);
}

static void test_by_free_memory(void **state)
{
    (void)state;
    struct machine machine = {0};
    add(&machine, "a", 30000, 0);
    add(&machine, "b", 10000, 500); /* measured, but the other is not */
    expect(&machine, NULL, (uint32_t[]){6, 2});
    close_all(&machine);
}

static void test_by_bandwidth_where_it_fits(void **state)
{
    (void)state;
    struct machine roomy = {0}, tight = {0};
    add(&roomy, "a", BIG, 100);
    add(&roomy, "b", BIG, 300);
    expect(&roomy, NULL, (uint32_t[]){2, 6});
    add(&tight, "a", BIG, 100);
    add(&tight, "b", 3500, 300); /* three layers fit */
    expect(&tight, NULL, (uint32_t[]){5, 3});
    close_all(&roomy);
    close_all(&tight);
}

static void test_everybody_gets_a_layer(void **state)
{
    (void)state;
    struct machine machine = {0};
    add(&machine, "a", BIG, 1000000);
    add(&machine, "b", BIG, 1);
    expect(&machine, NULL, (uint32_t[]){7, 1});
    for (int i = 0; i < 7; i++)
        add(&machine, "c", BIG, 1);
    expect_refused(&machine, NULL, "9 devices for a model of 8 layers");
    close_all(&machine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_given_split),
        cmocka_unit_test(test_by_free_memory),
        cmocka_unit_test(test_by_bandwidth_where_it_fits),
        cmocka_unit_test(test_everybody_gets_a_layer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
