/* gpu: the registry's text and its file, which is read as if a stranger had written it. */
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "gpu/registry.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64], path[128];

/* A command of the shell, which knows the folder as $FOLDER. */
static void run(const char *command)
{
    assert_int_equal(system(command), 0);
}

static int make_folder(void **state)
{
    (void)state;
    log_set_level(LOG_ERROR);
    snprintf(folder, sizeof folder, "/tmp/medley-registry-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/a/b/devices.json", folder);
    setenv("FOLDER", folder, 1);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    run("rm -rf $FOLDER/a");
    return rmdir(folder);
}

static struct registry_entry entry_of(const char *device, enum registry_result result)
{
    struct registry_entry entry = {.result = result, .verified_unix_s = 1700000000};
    snprintf(entry.key.backend, sizeof entry.key.backend, "vulkan");
    snprintf(entry.key.device, sizeof entry.key.device, "%s", device);
    snprintf(entry.key.driver, sizeof entry.key.driver, "1.2.3 \"quoted\"");
    snprintf(entry.key.ggml, sizeof entry.key.ggml, "0.27");
    return entry;
}

static void calibrate(struct registry_entry *entry, double bandwidth)
{
    entry->calibrated = true;
    entry->calibration = (struct device_calibration){
        .unix_s = 1700000001,
        .n_types = 2,
        .types = {{"q4_0", {bandwidth, 0.01, 40}, {1.5e11, 0.02, 7}},
                  {"q4_K", {bandwidth / 3, 0, 3}, {0}}},
        .write_bytes_per_s = {1.1e10, 0.125, 12},
        .launch_ns = {5432.1, 0.3, 256},
        .n_peers = 1,
        .peers = {{"cpu", "a processor; 2 threads", {3e9, 0.1, 9}}},
    };
}

/* ---- the text -------------------------------------------------------------------------- */

static char *text_of(const struct registry *registry)
{
    char *json;
    size_t size;
    assert_int_equal(registry_write_json(registry, &json, &size, NULL), ERROR_NONE);
    assert_int_equal(json[size - 1], '\n');
    return json;
}

static void test_what_is_written_is_read(void **state)
{
    (void)state;
    struct registry registry = {0}, again;
    struct registry_entry one = entry_of("0000:c1:00.0", REGISTRY_PASSED),
                          two = entry_of("other", REGISTRY_CRASHED);
    calibrate(&one, 123456789.25);
    snprintf(two.reason, sizeof two.reason, "it crashed (signal 11)");
    assert_int_equal(registry_merge(&registry, &one, NULL), ERROR_NONE);
    assert_int_equal(registry_merge(&registry, &two, NULL), ERROR_NONE);
    char *json = text_of(&registry);
    struct error err;
    if (registry_parse(json, strlen(json), &again, &err))
        fail_msg("%s", err.text);
    assert_int_equal(again.count, 2);
    const struct registry_entry *found = registry_find(&again, &one.key);
    assert_non_null(found);
    assert_int_equal(found->result, REGISTRY_PASSED);
    assert_true(found->calibrated);
    assert_true(found->calibration.types[0].decode_bytes_per_s.median == 123456789.25);
    assert_string_equal(found->calibration.types[1].name, "q4_K");
    assert_int_equal(found->calibration.types[1].prefill_flops.n_runs, 0);
    assert_int_equal(found->calibration.read_bytes_per_s.n_runs, 0);
    assert_int_equal(found->calibration.launch_ns.n_runs, 256);
    assert_string_equal(found->calibration.peers[0].name, "a processor; 2 threads");
    found = registry_find(&again, &two.key);
    assert_string_equal(found->reason, "it crashed (signal 11)");
    assert_false(found->calibrated);
    char *json_again = text_of(&again);
    assert_string_equal(json, json_again);
    two.key.driver[0] = '9';
    assert_null(registry_find(&again, &two.key));
    mem_free(json);
    mem_free(json_again);
    registry_deinit(&registry);
    registry_deinit(&again);
}

#define ENTRY(device, verification, time, calibration)                                             \
    "{\"backend\":\"vulkan\",\"device\":" device                                                   \
    ",\"driver\":\"\",\"ggml\":\"0\",\"verification\":" verification                               \
    ",\"reason\":\"\",\"verified_unix_s\":" time ",\"calibration\":" calibration "}"
#define FILE_OF(entries) "{\"medley_devices\":1,\"entries\":[" entries "]}"
#define CALIBRATED(types, write, peers)                                                            \
    FILE_OF(ENTRY("\"d\"", "\"passed\"", "1",                                                      \
                  "{\"unix_s\":1,\"types\":[" types "],\"write_bytes_per_s\":" write               \
                  ",\"read_bytes_per_s\":null,\"launch_ns\":null,\"peers\":[" peers "]}"))
#define TYPE(name) "{\"name\":" name ",\"decode_bytes_per_s\":null,\"prefill_flops\":null}"
#define MEASURED(median, spread, runs)                                                             \
    "{\"median\":" median ",\"spread\":" spread ",\"runs\":" runs "}"

static void test_hostile_texts(void **state)
{
    (void)state;
    static const char *const good[] = {
        FILE_OF(""),
        FILE_OF(ENTRY("\"d\"", "\"passed\"", "1", "null")),
        CALIBRATED(TYPE("\"q4_0\""), MEASURED("1", "0", "1"), ""),
    };
    static const char *const bad[] = {
        "",
        "{}",
        "null",
        "[]",
        "{\"medley_devices\":1,\"entries\":[]",
        "{\"medley_devices\":1,\"entries\":[]}x",
        "{\"medley_devices\":2,\"entries\":[]}",
        "{\"medley_devices\":-1,\"entries\":[]}",
        "{\"medley_devices\":1.0,\"entries\":[]}",
        "{\"medley_devices\":\"1\",\"entries\":[]}",
        "{\"medley_devices\":1,\"entries\":{}}",
        "{\"medley_devices\":1,\"medley_devices\":1}",
        "{\"medley_devices\":1,\"entries\":[],\"entries\":[]}",
        "{\"medley_devices\":1,\"entries\":[],\"more\":1}",
        FILE_OF("{}"),
        FILE_OF("7"),
        FILE_OF(
            ENTRY("\"d\"", "\"passed\"", "1", "null") "," ENTRY("\"d\"", "\"hung\"", "2", "null")),
        FILE_OF(ENTRY("7", "\"passed\"", "1", "null")),
        FILE_OF(ENTRY("\"line\\nbreak\"", "\"passed\"", "1", "null")),
        FILE_OF(ENTRY("\"nul\\u0000\"", "\"passed\"", "1", "null")),
        FILE_OF(ENTRY("\"\xff\"", "\"passed\"", "1", "null")),
        FILE_OF(ENTRY("\"d\"", "\"trusted\"", "1", "null")),
        FILE_OF(ENTRY("\"d\"", "true", "1", "null")),
        FILE_OF(ENTRY("\"d\"", "\"passed\"", "-1", "null")),
        FILE_OF(ENTRY("\"d\"", "\"passed\"", "1e3", "null")),
        FILE_OF(ENTRY("\"d\"", "\"passed\"", "99999999999999999999999", "null")),
        FILE_OF(ENTRY("\"d\"", "\"passed\"", "1", "[]")),
        FILE_OF(ENTRY("\"d\"", "\"passed\"", "1", "{}")),
        CALIBRATED(TYPE("\"\""), "null", ""),
        CALIBRATED(TYPE("\"q4 0\""), "null", ""),
        CALIBRATED(TYPE("\"a_name_that_is_too_long\""), "null", ""),
        CALIBRATED(TYPE("\"q4_0\"") "," TYPE("\"q4_0\""), "null", ""),
        CALIBRATED("", "3", ""),
        CALIBRATED("", MEASURED("0", "0", "1"), ""),
        CALIBRATED("", MEASURED("-1", "0", "1"), ""),
        CALIBRATED("", MEASURED("1e300", "0", "1"), ""),
        CALIBRATED("", MEASURED("1e999", "0", "1"), ""),
        CALIBRATED("", MEASURED("1", "-0.1", "1"), ""),
        CALIBRATED("", MEASURED("1", "0", "0"), ""),
        CALIBRATED("", MEASURED("1", "0", "4294967296"), ""),
        CALIBRATED("", MEASURED("NaN", "0", "1"), ""),
        CALIBRATED("", "null", "{\"id\":\"cpu\",\"name\":1,\"bytes_per_s\":null}"),
    };
    struct registry registry;
    struct error err;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        if (registry_parse(good[i], strlen(good[i]), &registry, &err))
            fail_msg("%s: %s", good[i], err.text);
        registry_deinit(&registry);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        memset(&registry, 0xee, sizeof registry);
        if (registry_parse(bad[i], strlen(bad[i]), &registry, &err) != ERROR_INVALID)
            fail_msg("accepted: %s", bad[i]);
        assert_null(registry.entries);
        assert_int_equal(registry.count, 0);
    }
}

static void test_every_truncation_is_refused(void **state)
{
    (void)state;
    struct registry registry = {0}, again;
    struct registry_entry one = entry_of("device", REGISTRY_PASSED);
    calibrate(&one, 1e9);
    registry_merge(&registry, &one, NULL);
    char *json = text_of(&registry);
    for (size_t size = 0; size + 2 < strlen(json);
         size++) /* the last bytes are the closing brace and a newline */
        assert_int_equal(registry_parse(json, size, &again, NULL), ERROR_INVALID);
    mem_free(json);
    registry_deinit(&registry);
}

static void test_merging_and_the_limit(void **state)
{
    (void)state;
    struct registry registry = {0};
    struct registry_entry entry = entry_of("first", REGISTRY_PASSED);
    registry_merge(&registry, &entry, NULL);
    struct registry_entry measured = entry_of("first", REGISTRY_UNKNOWN);
    calibrate(&measured, 5);
    registry_merge(&registry, &measured, NULL); /* keeps the result */
    entry.result = REGISTRY_HUNG;
    registry_merge(&registry, &entry, NULL); /* keeps the calibration */
    assert_int_equal(registry.count, 1);
    assert_int_equal(registry.entries[0].result, REGISTRY_HUNG);
    assert_true(registry.entries[0].calibrated);
    for (unsigned i = 0; i < LIMIT_REGISTRY_ENTRIES; i++) {
        char name[32];
        snprintf(name, sizeof name, "device %u", i);
        struct registry_entry more = entry_of(name, REGISTRY_PASSED);
        more.verified_unix_s = 1800000000 + i;
        registry_merge(&registry, &more, NULL);
    }
    assert_int_equal(registry.count, LIMIT_REGISTRY_ENTRIES);
    assert_null(registry_find(&registry, &entry.key)); /* the oldest made room */
    char *json = text_of(&registry);
    struct registry again;
    assert_int_equal(registry_parse(json, strlen(json), &again, NULL), ERROR_NONE);
    registry_deinit(&again);
    char *more = mem_new(strlen(json) + 2000); /* one entry beyond the limit */
    snprintf(more, strlen(json) + 2000, "%.*s,%s]}", (int)(strrchr(json, ']') - json), json,
             ENTRY("\"one more\"", "\"passed\"", "1", "null"));
    struct error err;
    assert_int_equal(registry_parse(more, strlen(more), &again, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "limit"));
    mem_free(more);
    mem_free(json);
    registry_deinit(&registry);
}

static void test_every_failed_allocation_of_the_text(void **state)
{
    (void)state;
    struct registry registry = {0}, again;
    struct registry_entry one = entry_of("device", REGISTRY_PASSED);
    calibrate(&one, 1e9);
    registry_merge(&registry, &one, NULL);
    char *json = text_of(&registry);
    enum error_code code;
    unsigned nth = 0;
    do {
        mem_fail_nth(++nth);
        code = registry_parse(json, strlen(json), &again, NULL);
        mem_fail_nth(0);
        assert_true(code == ERROR_NONE || code == ERROR_NO_MEMORY);
    } while (code);
    assert_true(nth > 2);
    registry_deinit(&again);
    nth = 0;
    do {
        char *text;
        size_t size;
        mem_fail_nth(++nth);
        code = registry_write_json(&registry, &text, &size, NULL);
        mem_fail_nth(0);
        assert_true(code == ERROR_NONE || code == ERROR_NO_MEMORY);
        assert_int_equal(code == ERROR_NONE, text != NULL);
        mem_free(text);
    } while (code);
    assert_true(nth > 2);
    mem_free(json);
    registry_deinit(&registry);
}

/* ---- the file -------------------------------------------------------------------------- */

static uint32_t count_in_file(void)
{
    struct registry registry;
    registry_load(path, &registry);
    uint32_t count = registry.count;
    registry_deinit(&registry);
    return count;
}

static void put(const char *device)
{
    struct registry_entry entry = entry_of(device, REGISTRY_PASSED);
    struct error err;
    if (registry_update(path, &entry, 1, &err))
        fail_msg("%s", err.text);
}

static void test_a_file_comes_with_its_folders_and_is_ours_alone(void **state)
{
    (void)state;
    run("rm -rf $FOLDER/a");
    assert_int_equal(count_in_file(), 0);
    mode_t mask = umask(0);
    put("one");
    put("two");
    put("one");
    umask(mask);
    assert_int_equal(count_in_file(), 2);
    struct stat file;
    assert_int_equal(stat(path, &file), 0);
    assert_int_equal(file.st_mode & 0777, 0600);
    char other[160];
    snprintf(other, sizeof other, "%s/a", folder);
    assert_int_equal(stat(other, &file), 0);
    assert_int_equal(file.st_mode & 0777, 0700);
    run("test $(ls $FOLDER/a/b | wc -l) = 2"); /* the file and its lock; no temporary one */
}

/* What is in the way is not believed, costs nothing, and the next write makes a good file of it. */
static void test_what_cannot_be_trusted_is_made_anew(void **state)
{
    (void)state;
    static const char *const spoil[] = {
        /* regular files, which are kept aside */
        "printf garbage > $FOLDER/a/b/devices.json",
        ": > $FOLDER/a/b/devices.json",
        "truncate -s -5 $FOLDER/a/b/devices.json",
        "chmod 0666 $FOLDER/a/b/devices.json",
        "head -c 1048577 /dev/zero > $FOLDER/a/b/devices.json",
        "truncate -s 1T $FOLDER/a/b/devices.json",
        /* others, which are not */
        "cd $FOLDER/a/b && mv devices.json real && ln -s real devices.json",
        "cd $FOLDER/a/b && ln -sf nowhere devices.json",
        "cd $FOLDER/a/b && rm devices.json && ln -s devices.json devices.json",
        "cd $FOLDER/a/b && rm devices.json && mkfifo devices.json",
    };
    for (size_t i = 0; i < sizeof spoil / sizeof *spoil; i++) {
        run("rm -rf $FOLDER/a");
        put("one");
        run(spoil[i]);
        assert_int_equal(count_in_file(), 0);
        put("two");
        assert_int_equal(count_in_file(), 1);
        run(i < 6 ? "test -f $FOLDER/a/b/devices.json.unused"
                  : "test ! -e $FOLDER/a/b/devices.json.unused");
        if (i == 0)
            run("test \"$(cat $FOLDER/a/b/devices.json.unused)\" = garbage");
    }
}

static void test_a_file_of_another_user(void **state)
{
    (void)state;
    run("rm -rf $FOLDER/a");
    put("one");
    if (geteuid() != 0 || chown(path, 12345, 12345) != 0)
        skip();
    assert_int_equal(count_in_file(), 0);
    put("two");
    assert_int_equal(count_in_file(), 1);
}

static void expect_unwritable(const char *where)
{
    struct registry_entry entry = entry_of("one", REGISTRY_PASSED);
    struct error err = {0};
    struct registry registry;
    registry_load(where, &registry);
    assert_int_equal(registry.count, 0);
    assert_int_not_equal(registry_update(where, &entry, 1, &err), ERROR_NONE);
    assert_non_null(strstr(err.text, "registry of devices"));
    assert_int_not_equal(registry_update(where, &entry, 1, NULL), ERROR_NONE);
}

static void test_places_where_nothing_can_be_written(void **state)
{
    (void)state;
    expect_unwritable("/dev/null/medley/devices.json");
    expect_unwritable("/proc/medley/devices.json");
    run("rm -rf $FOLDER/a"); /* a folder in its place */
    run("mkdir -p $FOLDER/a/b/devices.json/full");
    expect_unwritable(path);
    run("test $(ls $FOLDER/a/b | wc -l) = 2"); /* the folder and the lock */
    run("rm -rf $FOLDER/a");
    char *endless = mem_new(8000);
    memset(endless, 'x', 7999);
    endless[0] = '/';
    expect_unwritable(endless);
    mem_free(endless);
}

static void test_a_folder_that_is_read_only(void **state)
{
    (void)state;
    enum { NOBODY = 65534 };
    run("rm -rf $FOLDER/a");
    bool root = geteuid() == 0; /* who may write anywhere, and therefore becomes somebody else */
    if (root && (chown(folder, NOBODY, NOBODY) != 0 || seteuid(NOBODY) != 0))
        skip();
    put("one");
    char inner[80];
    snprintf(inner, sizeof inner, "%s/a/b", folder);
    assert_int_equal(chmod(inner, 0500), 0);
    struct registry_entry entry = entry_of("two", REGISTRY_PASSED);
    enum error_code code = registry_update(path, &entry, 1, NULL);
    uint32_t count = count_in_file();
    chmod(inner, 0700);
    if (root) {
        assert_int_equal(seteuid(0), 0);
        assert_int_equal(chown(folder, 0, 0), 0);
    }
    assert_int_equal(code, ERROR_IO);
    assert_int_equal(count, 1); /* what is there can still be read */
}

static void test_a_lock_that_is_held_is_not_waited_for_long(void **state)
{
    (void)state;
    run("rm -rf $FOLDER/a");
    put("one");
    char lock[160];
    snprintf(lock, sizeof lock, "%s.lock", path);
    int fd = open(lock, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    struct registry_entry entry = entry_of("two", REGISTRY_PASSED);
    struct error err;
    assert_int_equal(registry_update(path, &entry, 1, &err), ERROR_BUSY);
    assert_non_null(strstr(err.text, "another process"));
    assert_int_equal(count_in_file(), 1); /* reading waits for nobody */
    close(fd);
    put("two");
    assert_int_equal(count_in_file(), 2);
}

/* Writes entries of its own; a full queue at the lock is tried again. */
static void write_many(char who)
{
    for (int i = 0; i < 15; i++) {
        char name[16];
        snprintf(name, sizeof name, "%c%d", who, i);
        struct registry_entry entry = entry_of(name, REGISTRY_PASSED);
        enum error_code code;
        do
            code = registry_update(path, &entry, 1, NULL);
        while (code == ERROR_BUSY);
        if (code)
            _exit(1);
        struct registry registry; /* whole at any moment */
        registry_load(path, &registry);
        if (!registry_find(&registry, &entry.key))
            _exit(2);
        registry_deinit(&registry);
    }
    _exit(0);
}

static void test_processes_lose_nothing_of_each_other(void **state)
{
    (void)state;
    run("rm -rf $FOLDER/a");
    pid_t writers[4];
    for (int i = 0; i < 4; i++) {
        writers[i] = fork();
        assert_true(writers[i] >= 0);
        if (writers[i] == 0)
            write_many((char)('a' + i));
    }
    for (int i = 0; i < 4; i++) {
        int status;
        assert_int_equal(waitpid(writers[i], &status, 0), writers[i]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(count_in_file(), 60);
    run("test $(ls $FOLDER/a/b | wc -l) = 2");
}

static void test_failed_allocations_keep_the_file(void **state)
{
    (void)state;
    run("rm -rf $FOLDER/a");
    put("one");
    struct registry_entry entry = entry_of("two", REGISTRY_PASSED);
    enum error_code code;
    unsigned nth = 0;
    do {
        mem_fail_nth(++nth);
        code = registry_update(path, &entry, 1, NULL);
        mem_fail_nth(0);
        assert_int_equal(count_in_file(), code ? 1 : 2);
    } while (code);
    assert_true(nth > 4);
}

static void test_where_it_lies(void **state)
{
    (void)state;
    char text[128];
    setenv("HOME", "/home/me", 1);
    setenv("XDG_STATE_HOME", "relative", 1);
    unsetenv("MEDLEY_STATE_DIR");
    gpu_registry_path(text, sizeof text);
    assert_string_equal(text, "/home/me/.local/state/medley/devices.json");
    setenv("XDG_STATE_HOME", "/state", 1);
    gpu_registry_path(text, sizeof text);
    assert_string_equal(text, "/state/medley/devices.json");
    setenv("MEDLEY_STATE_DIR", "/own", 1);
    gpu_registry_path(text, sizeof text);
    assert_string_equal(text, "/own/devices.json");
    gpu_registry_path(text, 10);
    assert_string_equal(text, "");
    setenv("MEDLEY_STATE_DIR", "", 1);
    gpu_registry_path(text, sizeof text);
    assert_string_equal(text, "");
    unsetenv("MEDLEY_STATE_DIR");
    unsetenv("XDG_STATE_HOME");
    unsetenv("HOME");
    gpu_registry_path(text, sizeof text);
    assert_string_equal(text, "");
    struct registry registry;
    registry_load("", &registry);
    registry_load(NULL, &registry);
    assert_int_equal(registry.count, 0);
}

static void test_keys(void **state)
{
    (void)state;
    struct device_info gpu = {
        .backend = "cuda", .name = "A GPU", .pci = "0000:c1:00.0", .driver = "550.1"};
    struct registry_key key = registry_key_of(&gpu, 1, 0);
    assert_string_equal(key.device, "0000:c1:00.0");
    assert_string_equal(key.driver, "550.1");
    gpu.pci[0] = 0;
    key = registry_key_of(&gpu, 1, 0);
    assert_string_equal(key.device, "A GPU #1"); /* two of a name are two */
    struct device_info cpu = {.backend = "cpu", .name = "A CPU", .compute_units = {8, true}};
    struct registry_key all = registry_key_of(&cpu, 0, 0), same = registry_key_of(&cpu, 0, 8);
    assert_string_equal(all.device, same.device);
    struct registry_key less = registry_key_of(&cpu, 0, 4); /* as fast as its threads are many */
    assert_string_not_equal(all.device, less.device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_written_is_read),
        cmocka_unit_test(test_hostile_texts),
        cmocka_unit_test(test_every_truncation_is_refused),
        cmocka_unit_test(test_merging_and_the_limit),
        cmocka_unit_test(test_every_failed_allocation_of_the_text),
        cmocka_unit_test(test_a_file_comes_with_its_folders_and_is_ours_alone),
        cmocka_unit_test(test_what_cannot_be_trusted_is_made_anew),
        cmocka_unit_test(test_a_file_of_another_user),
        cmocka_unit_test(test_places_where_nothing_can_be_written),
        cmocka_unit_test(test_a_folder_that_is_read_only),
        cmocka_unit_test(test_a_lock_that_is_held_is_not_waited_for_long),
        cmocka_unit_test(test_processes_lose_nothing_of_each_other),
        cmocka_unit_test(test_failed_allocations_keep_the_file),
        cmocka_unit_test(test_where_it_lies),
        cmocka_unit_test(test_keys),
    };
    return cmocka_run_group_tests_name("gpu_registry", tests, make_folder, remove_folder);
}
