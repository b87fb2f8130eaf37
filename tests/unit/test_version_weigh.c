/* weights/version_weigh.h: converted by the sender, or as stored. */
#include "model/weight_type.h"
#include "weights/version_weigh.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* 138.5 MB of f16 are 40 MB of q4_k; 8 MB of those have come. */
static struct version_rates rates_of(double link, double came)
{
    return (struct version_rates){.stored_bytes = 138500000,
                                  .smaller_bytes = 32000000,
                                  .made_bytes = 40000000,
                                  .came = came,
                                  .link = link,
                                  .own = 80e6};
}

static void test_a_slow_link_carries_the_smaller_bytes(void **state)
{
    (void)state;
    const struct version_rates slow = rates_of(2.5e6, 2.4e6);
    const struct version_times times = version_weigh(&slow);
    assert_false(times.is_stored_sooner);
    assert_true(fabs(times.smaller_s - 13.3) < 0.1);
    assert_true(fabs(times.stored_s - 55.9) < 0.1);
}

static void test_a_fast_link_does_not_wait_for_the_sender(void **state)
{
    (void)state;
    const struct version_rates fast = rates_of(1.1e9, 8e6), nearly = rates_of(120e6, 17e6);
    assert_true(version_weigh(&fast).is_stored_sooner);
    assert_false(version_weigh(&nearly).is_stored_sooner); /* 1.65 s against 1.88 s */
}

static void test_what_is_not_known_changes_nothing(void **state)
{
    (void)state;
    const struct version_rates no_link = rates_of(0, 1e6), nothing = rates_of(1e9, 0);
    struct version_rates cannot = rates_of(1e9, 1e6);
    cannot.own = 0;
    assert_false(version_weigh(&no_link).is_stored_sooner);
    assert_false(version_weigh(&nothing).is_stored_sooner);
    assert_false(version_weigh(&cannot).is_stored_sooner);
}

static void test_its_own_speed_is_measured(void **state)
{
    (void)state;
    int type;
    assert_int_equal(weight_type_find("q4_k", &type, NULL), ERROR_NONE);
    const double rate = version_own_rate(type);
    print_message("# q4_k on all processors: %.1f MB/s\n", rate / 1e6);
    assert_true(rate > 1e4 && rate < 1e12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_slow_link_carries_the_smaller_bytes),
        cmocka_unit_test(test_a_fast_link_does_not_wait_for_the_sender),
        cmocka_unit_test(test_what_is_not_known_changes_nothing),
        cmocka_unit_test(test_its_own_speed_is_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
