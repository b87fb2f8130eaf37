/* sensors: what all its sources are made of: reading small files, PCI addresses, rates. */
#include "sensors/pci.h"
#include "sensors/rate.h"
#include "sensors_world.h"

#include "base/clock.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static void test_numbers_are_read_whole_or_not_at_all(void **state)
{
    (void)state;
    static const char *const nonsense[] = {"",
                                           " 5",
                                           "-5",
                                           "+5",
                                           "0x10",
                                           "5 6",
                                           "5\n6",
                                           "1.5",
                                           "5mC",
                                           "abc",
                                           "1e3",
                                           "\x80",
                                           "99999999999999999999",
                                           "000000000000000000001",
                                           "18446744073709551616"};
    uint64_t number;
    for (size_t i = 0; i < sizeof nonsense / sizeof *nonsense; i++)
        assert_false(sysfs_parse_u64(nonsense[i], UINT64_MAX, &number));
    assert_true(sysfs_parse_u64("0", 0, &number));
    assert_true(sysfs_parse_u64("18446744073709551615", UINT64_MAX, &number));
    assert_true(number == UINT64_MAX);
    assert_true(sysfs_parse_u64("150000", 150000, &number));
    assert_false(sysfs_parse_u64("150001", 150000, &number));
}

static void test_decimals(void **state)
{
    (void)state;
    static const struct {
        const char *text, *rest; /* NULL: no number */
        double number;
    } cases[] = {
        {"1.53 avg60", " avg60", 1.53},
        {"0", "", 0},
        {"2400.500\n", "\n", 2400.5},
        {"7.", "", 7},
        {"1.2.3", ".3", 1.2},
        {"1,5", ",5", 1},
        {"12e3", "e3", 12},
        {"999999999999999", "", 1e15 - 1},
        {"", NULL, 0},
        {".5", NULL, 0},
        {"-1", NULL, 0},
        {"+1", NULL, 0},
        {" 1", NULL, 0},
        {"nan", NULL, 0},
        {"inf", NULL, 0},
        {"1234567890123456", NULL, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double number = -1;
        const char *rest = sysfs_parse_decimal(cases[i].text, &number);
        if (!cases[i].rest) {
            assert_null(rest);
            continue;
        }
        assert_non_null(rest);
        assert_string_equal(rest, cases[i].rest);
        assert_true(number >= cases[i].number - 1e-9 && number <= cases[i].number + 1e-9);
    }
}

static void test_only_regular_files_are_read(void **state)
{
    (void)state;
    struct tree tree;
    struct sysfs fs = {0};
    char text[8];
    uint64_t number;
    tree_open(&tree);
    snprintf(fs.root, sizeof fs.root, "%s", tree.root);
    tree_write(&tree, "42\n", "sys/number");
    tree_write(&tree, "0123456789", "sys/long");
    tree_write(&tree, "", "sys/empty");
    tree_folder(&tree, "sys/folder");
    tree_pipe(&tree, "sys/pipe");
    assert_int_equal(sysfs_u64(&fs, &number, 100, "sys/%s", "number"), SYSFS_OK);
    assert_int_equal(number, 42);
    assert_int_equal(sysfs_u64(&fs, &number, 41, "sys/number"), SYSFS_NONSENSE);
    assert_int_equal(sysfs_text(&fs, text, sizeof text, "sys/long"), SYSFS_OK);
    assert_string_equal(text, "0123456");
    assert_int_equal(sysfs_u64(&fs, &number, 100, "sys/empty"), SYSFS_NONSENSE);
    assert_int_equal(sysfs_u64(&fs, &number, 100, "sys/folder"), SYSFS_UNREADABLE);
    uint64_t start_ns = clock_now_ns();
    assert_int_equal(sysfs_u64(&fs, &number, 100, "sys/pipe"), SYSFS_UNREADABLE);
    assert_true(clock_now_ns() - start_ns < 1000000000u);
    assert_int_equal(sysfs_u64(&fs, &number, 100, "sys/nothing"), SYSFS_MISSING);
    assert_int_equal(sysfs_u64(&fs, &number, 100, "sys/number/below"), SYSFS_MISSING);
    char path[600];
    memset(path, 'a', sizeof path - 1);
    path[sizeof path - 1] = 0;
    assert_int_equal(sysfs_text(&fs, text, sizeof text, "%s%s", path, path), SYSFS_MISSING);
    assert_false(sysfs_exists(&fs, "%s%s", path, path));
    tree_close(&tree);
}

static void test_folders_are_listed_in_natural_order(void **state)
{
    (void)state;
    struct tree tree;
    struct sysfs fs = {0};
    static char names[LIMIT_SENSOR_ENTRIES][SYSFS_NAME_BYTES];
    tree_open(&tree);
    snprintf(fs.root, sizeof fs.root, "%s", tree.root);
    for (int i = 12; i >= 0; i--)
        tree_write(&tree, "", "sys/hwmon%d/name", i);
    tree_write(&tree, "", "sys/hwmon-%060d", 1);
    tree_write(&tree, "", "sys/other");
    assert_int_equal(sysfs_list(&fs, "sys", "hwmon", names, LIMIT_SENSOR_ENTRIES), 13);
    assert_string_equal(names[0], "hwmon0");
    assert_string_equal(names[2], "hwmon2");
    assert_string_equal(names[12], "hwmon12");
    assert_int_equal(sysfs_list(&fs, "sys", "hwmon", names, 3), 3);
    assert_int_equal(sysfs_list(&fs, "sys/other", "", names, 3), 0);
    for (int i = 0; i < LIMIT_SENSOR_ENTRIES + 20; i++)
        tree_write(&tree, "", "many/entry%d", i);
    uint32_t n = sysfs_list(&fs, "many", "entry", names, LIMIT_SENSOR_ENTRIES);
    assert_true(n >= LIMIT_SENSOR_ENTRIES - 2 && n <= LIMIT_SENSOR_ENTRIES);
    tree_close(&tree);
}

static void test_pci_addresses(void **state)
{
    (void)state;
    static const char *const wrong[] = {"",
                                        "0000:c1:00",
                                        "0000:c1:00.8",
                                        "0000:c1:20.0",
                                        "000:c1:00.0",
                                        "../../etc",
                                        "0000:c1:00.0/",
                                        "0000:c1:00.0 ",
                                        "0000:c1:00.00",
                                        "000000000:c1:00.0",
                                        "0000;c1:00.0",
                                        "0000:c1:0g.0"};
    struct pci_address address;
    char name[PCI_NAME_BYTES];
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(pci_parse(wrong[i], &address));
    assert_true(pci_parse("00000000:C1:1f.7", &address));
    pci_name(&address, name);
    assert_string_equal(name, "0000:c1:1f.7");
    assert_true(pci_parse("ffffffff:ff:00.0", &address));
    pci_name(&address, name);
    assert_string_equal(name, "ffffffff:ff:00.0");
}

static void test_power_is_energy_over_time(void **state)
{
    (void)state;
    const uint64_t s = 1000000000;
    struct energy_meter meter = {0};
    assert_unknown(energy_meter_update(&meter, 5000000, 0, 10 * s));
    assert_reads(energy_meter_update(&meter, 25000000, 0, 11 * s), 20000);
    assert_reads(energy_meter_update(&meter, 25000000, 0, 11 * s + 1000),
                 20000); /* too soon: the last value */
    assert_reads(energy_meter_update(&meter, 30000000, 0, 13 * s), 2500);
    assert_unknown(energy_meter_update(&meter, 1000, 0, 14 * s)); /* reset */
    assert_reads(energy_meter_update(&meter, 1001000, 0, 15 * s), 1000);
    assert_unknown(energy_meter_update(&meter, 2001000, 0, 76 * s)); /* may have wrapped unseen */
    assert_unknown(
        energy_meter_update(&meter, UINT64_MAX, 0, 77 * s)); /* more than anything can draw */
    assert_unknown(energy_meter_update(&meter, 0, 0, 78 * s));
    assert_unknown(energy_meter_update(&meter, 1000, 0, 70 * s)); /* time went backwards */
    assert_reads(energy_meter_update(&meter, 11000, 0, 71 * s), 10);

    const uint64_t range = 262143328850; /* a real one */
    meter = (struct energy_meter){0};
    energy_meter_update(&meter, range - 4000000, range, s);
    assert_reads(energy_meter_update(&meter, 6000000, range, 2 * s), 10000);
    assert_unknown(
        energy_meter_update(&meter, 5000000, 5500000, 3 * s)); /* it was above its own range */
    assert_unknown(energy_meter_update(&meter, 25000000000, range, 4 * s)); /* 25 kW */
}

static void test_load_is_work_over_time(void **state)
{
    (void)state;
    const uint64_t s = 1000000000;
    struct load_meter meter = {0};
    assert_unknown(load_meter_update(&meter, 100, 1000, s));
    assert_reads(load_meter_update(&meter, 150, 1100, 2 * s), 50);
    assert_reads(load_meter_update(&meter, 151, 1101, 2 * s + 1), 50); /* too soon */
    assert_reads(load_meter_update(&meter, 150, 1100, 3 * s), 50);     /* nothing passed */
    assert_reads(load_meter_update(&meter, 250, 1200, 4 * s), 100);
    assert_unknown(load_meter_update(&meter, 200, 1300, 5 * s)); /* backwards */
    assert_unknown(load_meter_update(&meter, 500, 1400, 6 * s)); /* more work than time */
    assert_reads(load_meter_update(&meter, 500, 1500, 7 * s), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_are_read_whole_or_not_at_all),
        cmocka_unit_test(test_decimals),
        cmocka_unit_test(test_only_regular_files_are_read),
        cmocka_unit_test(test_folders_are_listed_in_natural_order),
        cmocka_unit_test(test_pci_addresses),
        cmocka_unit_test(test_power_is_energy_over_time),
        cmocka_unit_test(test_load_is_work_over_time),
    };
    return cmocka_run_group_tests_name("sensors_parts", tests, NULL, NULL);
}
