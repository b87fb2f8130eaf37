/* gpu: verification finds every way in which a fake lies, and the wrapper's defaults. */
#include "base/clock.h"
#include "base/mem.h"
#include "gpu/verify.h"
#include "gpu/vetting.h"
#include "gpu_fake.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static const struct gpu_options no_wishes;

static enum error_code open_fake(const struct device_impl *impl, struct fake_family *family,
                                 struct device **device, struct error *err)
{
    struct device_info info;
    impl->get(family, 0, &info);
    return device_open(impl, family, 0, &no_wishes, 60000, &info, device, err);
}

static void test_honest_fake_passes(void **state)
{
    (void)state;
    struct fake_family family = {0};
    struct error err;
    struct device *device;
    assert_int_equal(open_fake(&fake_impl, &family, &device, &err), ERROR_NONE);
    assert_int_equal(family.n_allocated, 0);
    assert_int_equal(family.n_open, 1);
    assert_int_equal(device_info(device)->memory_total_bytes, 1024ull << 20);
    device_close(device);
    assert_int_equal(family.n_open, 0);
}

static void test_every_lie_is_found(void **state)
{
    (void)state;
    static const struct {
        enum fake_fault fault;
        enum error_code code;
        const char *says;
    } lies[] = {
        {FAKE_NO_MEMORY, ERROR_DEVICE, "reports no memory"},
        {FAKE_FREE_ABOVE_TOTAL, ERROR_DEVICE, "are free"},
        {FAKE_ALLOC_FAILS, ERROR_NO_MEMORY, "claims 1024 MiB free but does not give"},
        {FAKE_SMALLER_THAN_SAID, ERROR_NO_MEMORY,
         "claims 1024 MiB free but does not give 65536 KiB"},
        {FAKE_WRAPS, ERROR_DEVICE, "wrong data"},
        {FAKE_ALIASES, ERROR_DEVICE, "wrong data"},
        {FAKE_FLIPS_A_BIT, ERROR_DEVICE, "wrong data"},
        {FAKE_DROPS_WRITES, ERROR_DEVICE, "wrong data"},
        {FAKE_WRITE_FAILS, ERROR_DEVICE, "the fake does not write"},
        {FAKE_READ_FAILS, ERROR_DEVICE, "the fake does not read"},
        {FAKE_COPY_IS_OFF_BY_ONE, ERROR_DEVICE, "wrong data"},
        {FAKE_SYNC_FAILS, ERROR_DEVICE, "the fake is lost"},
        {FAKE_PRODUCT_IS_WRONG, ERROR_DEVICE, "computes wrong results: element 1,1"},
        {FAKE_PRODUCT_IS_NAN, ERROR_DEVICE, "computes wrong results: element 63,63"},
        {FAKE_PRODUCT_FAILS, ERROR_DEVICE, "the fake does not compute"},
        {FAKE_START_FAILS, ERROR_DEVICE, "does not start"},
    };
    assert_int_equal(sizeof lies / sizeof *lies, FAKE_FAULTS - 2); /* all but HONEST and HANGS */
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        struct fake_family family = {.fault = lies[i].fault};
        struct error err = {0};
        struct device *device = (struct device *)&family;
        assert_int_equal(open_fake(&fake_impl, &family, &device, &err), lies[i].code);
        assert_null(device);
        if (!strstr(err.text, lies[i].says))
            fail_msg("fault %d: \"%s\" does not say \"%s\"", lies[i].fault, err.text, lies[i].says);
        assert_int_equal(family.n_allocated, 0);
        assert_int_equal(family.n_open, 0);
    }
}

static void test_hanging_device_is_given_up(void **state)
{
    (void)state;
    static struct fake_family family = {.fault = FAKE_HANGS}; /* its thread never returns */
    struct device_info info;
    fake_impl.get(&family, 0, &info);
    struct error err;
    struct device *device;
    uint64_t start_ns = clock_now_ns();
    assert_int_equal(device_open(&fake_impl, &family, 0, &no_wishes, 50, &info, &device, &err),
                     ERROR_DEVICE);
    assert_null(device);
    assert_non_null(strstr(err.text, "did not answer"));
    assert_true(clock_now_ns() - start_ns >= 50000000);
}

static void test_missing_operations_have_defaults(void **state)
{
    (void)state;
    struct fake_family family = {0};
    struct device *device;
    assert_int_equal(open_fake(&fake_impl_minimal, &family, &device, NULL), ERROR_NONE);
    assert_false(device_temperature_mc(device).valid);
    assert_false(device_power_mw(device).valid);
    assert_false(device_clock_mhz(device).valid);
    assert_int_equal(device_synchronize(device, NULL), ERROR_NONE);
    device_close(device);
    assert_int_equal(open_fake(&fake_impl, &family, &device, NULL), ERROR_NONE);
    assert_true(device_temperature_mc(device).valid);
    assert_int_equal(device_temperature_mc(device).value, 41000);
    device_close(device);
}

/* Writes a pattern on one device, copies it to the other, reads it there. */
static enum copy_path copy_and_compare(struct device *a, struct device *b)
{
    enum { SIZE = 5 * 1024 * 1024 + 7 }; /* more than one staged piece */
    uint8_t *wrote = mem_new(SIZE), *read = mem_new(SIZE);
    for (uint32_t i = 0; i < SIZE; i++)
        wrote[i] = (uint8_t)(i * 2654435761u >> 24);
    struct device_buffer from, to;
    assert_int_equal(device_alloc(a, SIZE, &from, NULL), ERROR_NONE);
    assert_int_equal(device_alloc(b, SIZE, &to, NULL), ERROR_NONE);
    assert_int_equal(device_write(a, from, 0, wrote, SIZE, NULL), ERROR_NONE);
    enum copy_path path;
    assert_int_equal(device_copy_path(a, from, 1, b, to, 3, SIZE - 3, &path, NULL), ERROR_NONE);
    assert_int_equal(device_read(b, to, 0, read, SIZE, NULL), ERROR_NONE);
    assert_int_equal(read[0] | read[1] | read[2], 0);
    assert_memory_equal(read + 3, wrote + 1, SIZE - 3);
    assert_int_equal(device_free(a, from, NULL), ERROR_NONE);
    assert_int_equal(device_free(b, to, NULL), ERROR_NONE);
    mem_free(wrote);
    mem_free(read);
    return path;
}

static void test_copy_takes_the_direct_path_or_the_staged_one(void **state)
{
    (void)state;
    struct fake_family family = {0};
    struct device *a, *b, *minimal;
    assert_int_equal(open_fake(&fake_impl, &family, &a, NULL), ERROR_NONE);
    assert_int_equal(open_fake(&fake_impl, &family, &b, NULL), ERROR_NONE);
    assert_int_equal(open_fake(&fake_impl_minimal, &family, &minimal, NULL), ERROR_NONE);
    family.n_direct = 0;
    assert_int_equal(copy_and_compare(a, b), COPY_SAME_BACKEND);
    assert_int_equal(family.n_direct, 1);
    assert_int_equal(copy_and_compare(a, minimal), COPY_STAGED);
    assert_int_equal(copy_and_compare(minimal, b), COPY_STAGED);
    assert_int_equal(family.n_direct, 1);
    assert_int_equal(copy_and_compare(a, a), COPY_SAME_DEVICE);
    assert_int_equal(family.n_direct, 2);
    family.shares_no_path = true;
    assert_int_equal(copy_and_compare(b, a), COPY_STAGED);
    assert_int_equal(family.n_direct, 2);
    device_close(a);
    device_close(b);
    device_close(minimal);
}

static void test_close_frees_forgotten_buffers(void **state)
{
    (void)state;
    struct fake_family family = {0};
    struct device *device;
    assert_int_equal(open_fake(&fake_impl, &family, &device, NULL), ERROR_NONE);
    struct device_buffer buffer;
    for (int i = 0; i < 40; i++)
        assert_int_equal(device_alloc(device, 10, &buffer, NULL), ERROR_NONE);
    assert_int_equal(family.n_allocated, 40);
    device_close(device);
    assert_int_equal(family.n_allocated, 0);
}

/* Who gives no struct error gets the same code. */
static void test_codes_without_a_text(void **state)
{
    (void)state;
    struct fake_family family = {0};
    struct device *device;
    assert_int_equal(open_fake(&fake_impl, &family, &device, NULL), ERROR_NONE);
    struct device_buffer buffer, none = {0};
    char byte = 0;
    assert_int_equal(device_alloc(device, 1, &buffer, NULL), ERROR_NONE);
    assert_int_equal(device_read(device, none, 0, &byte, 1, NULL), ERROR_INVALID);
    assert_int_equal(device_alloc(device, UINT64_MAX, &none, NULL), ERROR_NO_MEMORY);
    family.fault = FAKE_ALLOC_FAILS;
    assert_int_equal(device_alloc(device, 1, &none, NULL), ERROR_NO_MEMORY);
    family.fault = FAKE_SYNC_FAILS;
    assert_int_equal(device_synchronize(device, NULL), ERROR_DEVICE);
    family.fault = FAKE_READ_FAILS;
    assert_int_equal(device_read(device, buffer, 0, &byte, 1, NULL), ERROR_DEVICE);
    family.fault = FAKE_WRITE_FAILS;
    assert_int_equal(device_write(device, buffer, 0, &byte, 1, NULL), ERROR_DEVICE);
    device_close(device);
}

static void test_every_failed_allocation_is_survived(void **state)
{
    (void)state;
    struct device *device = NULL;
    unsigned nth = 0;
    for (; !device; nth++) {
        assert_true(nth < 100);
        struct fake_family family = {0};
        struct error err = {0};
        mem_fail_nth(nth + 1);
        enum error_code code = open_fake(&fake_impl, &family, &device, &err);
        mem_fail_nth(0);
        if (code)
            assert_int_equal(code, ERROR_NO_MEMORY);
        assert_int_equal(!device, !!code);
        assert_int_equal(family.n_allocated, 0);
        assert_int_equal(family.n_open, code ? 0 : 1);
        device_close(device);
    }
    assert_true(nth > 5); /* some of them did fail */
}

static bool lists_none(const char *path)
{
    struct vet vet = {.info = {.backend = "vulkan"}}; /* no name: its list */
    struct registry known;
    registry_load(path, &known);
    vet_devices(&vet, 1, &known, &(struct gpu_options){.registry = path});
    registry_deinit(&known);
    return vet.lists_none;
}

static void test_a_backend_without_devices_is_remembered(void **state)
{
    (void)state;
    char folder[] = "/tmp/medley-verify-XXXXXX", path[64], command[96];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/devices.json", folder);
    const struct gpu_options options = {.registry = path};
    struct registry known = {0};
    vet_note_list(backend_find("vulkan"), true, &known, &options); /* never vetted */
    assert_false(lists_none(path));
    struct registry_entry entry = {.result = REGISTRY_PASSED,
                                   .verified_unix_s = (uint64_t)time(NULL)};
    entry.key = registry_key_of(&(struct device_info){.backend = "vulkan"}, 0, 0);
    assert_int_equal(registry_update(path, &entry, 1, NULL), ERROR_NONE);
    for (int none = 1; none >= 0; none--) {
        registry_load(path, &known);
        vet_note_list(backend_find("vulkan"), none, &known, &options);
        registry_deinit(&known);
        assert_int_equal(lists_none(path), none);
    }
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_honest_fake_passes),
        cmocka_unit_test(test_every_lie_is_found),
        cmocka_unit_test(test_hanging_device_is_given_up),
        cmocka_unit_test(test_missing_operations_have_defaults),
        cmocka_unit_test(test_copy_takes_the_direct_path_or_the_staged_one),
        cmocka_unit_test(test_close_frees_forgotten_buffers),
        cmocka_unit_test(test_codes_without_a_text),
        cmocka_unit_test(test_every_failed_allocation_is_survived),
        cmocka_unit_test(test_a_backend_without_devices_is_remembered),
    };
    return cmocka_run_group_tests_name("gpu_verify", tests, NULL, NULL);
}
