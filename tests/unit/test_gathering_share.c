/* node/gathering_impl.h: which of a machine's parts are kept when all is right. */
#include "node/gathering_impl.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { PARTS = 4 };

static struct manifest_part parts[PARTS];
static struct gather_fetch fetch;
static struct gather_own own[2];

/* A share of parts 1 and 2, both here, whose manifest has come. */
static struct gather_share share_of_two(void)
{
    struct gather_share share = {.fetches = &fetch, .n_fetches = 1, .own = own, .n_own = 2};
    for (uint32_t i = 0; i < PARTS; i++)
        parts[i] =
            (struct manifest_part){.offset = 100 * i, .size = 100, .digest = {{(uint8_t)(i + 1)}}};
    share.manifest = (struct manifest){.size = 400, .n_parts = PARTS, .parts = parts};
    for (uint32_t i = 0; i < 2; i++)
        own[i] = (struct gather_own){.wanted = {i + 1, {100 * (i + 1), 100, 100 * (i + 2), 0}},
                                     .part = i + 1,
                                     .has_digest = true,
                                     .digest = parts[i + 1].digest};
    return share;
}

static enum error_code look(const struct gather_share *share, bool first, bool second)
{
    struct part_set has = {0};
    struct error err;
    const enum error_code code = gather_share_right(share, &has, &err);
    if (!code) {
        assert_int_equal(part_set_has(&has, 1), first);
        assert_int_equal(part_set_has(&has, 2), second);
        assert_false(part_set_has(&has, 3));
    }
    part_set_deinit(&has);
    return code;
}

static void test_what_is_right_is_kept_once(void **state)
{
    (void)state;
    const struct gather_share share = share_of_two();
    assert_int_equal(look(&share, true, true), ERROR_NONE);
    own[0].is_kept = true;
    assert_int_equal(look(&share, false, true), ERROR_NONE);
    own[1].digest.bytes[0]++;
    assert_int_equal(look(&share, false, true), ERROR_INVALID);
}

/* Another machine is lost while this one lets go of what it has: it is given that one's part. */
static void test_what_is_ordered_meanwhile_is_kept_later(void **state)
{
    (void)state;
    struct gather_share share = share_of_two();
    own[1].has_digest = false;
    share.must_order = true;
    assert_int_equal(look(&share, true, false), ERROR_NONE);
    share.must_order = false; /* nobody will fetch it any more */
    assert_int_equal(look(&share, true, false), ERROR_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_right_is_kept_once),
        cmocka_unit_test(test_what_is_ordered_meanwhile_is_kept_later),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
