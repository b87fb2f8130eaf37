/* The shelf: room, durability, eviction. */
#include "base/large_pages.h"
#include "base/mem.h"
#include "base/random.h"
#include "model/gguf_file.h"
#include "shelf_world.h"
#include "weights/manifest_make.h"
#include "weights/shelf_policy.h"
#include "weights/shelf_record.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static void write_part(struct shelf_model *model, uint32_t part)
{
    uint64_t size = shelf_model_manifest(model)->parts[part].size;
    uint8_t *bytes = malloc(size);
    weights_fill(part, 0, bytes, size);
    assert_int_equal(
        shelf_model_write(model, part, size / 2, bytes + size / 2, size - size / 2, NULL), 0);
    assert_int_equal(shelf_model_write(model, part, 0, bytes, size / 2, NULL), 0);
    free(bytes);
}

static void fetch_part(struct shelf_model *model, uint32_t part)
{
    write_part(model, part);
    assert_int_equal(shelf_model_verify(model, part, NULL), 0);
    assert_int_equal(shelf_model_keep(model, &part, 1, NULL), 0);
}

/* ---- policy ---- */

static void test_policy_evicts_the_oldest_and_only_as_many_as_needed(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 3000; seed++) {
        struct shelf_entry entries[6] = {0};
        uint32_t n = (uint32_t)(random_at(seed, 0) % 7);
        uint64_t used = 0, idle = 0;
        for (uint32_t i = 0; i < n; i++) {
            entries[i] = (struct shelf_entry){.bytes = random_at(seed, 10 + i) % 100,
                                              .used_ns = random_at(seed, 20 + i) % 5,
                                              .in_use = random_at(seed, 30 + i) % 3 == 0};
            used += entries[i].bytes;
            idle += entries[i].in_use ? 0 : entries[i].bytes;
        }
        struct shelf_room room = {.need_bytes = random_at(seed, 1) % 200,
                                  .limit_bytes = random_at(seed, 2) % 400,
                                  .free_bytes = random_at(seed, 3) % 300,
                                  .spare_bytes = random_at(seed, 4) % 50};
        struct error err = {0};
        enum error_code code = shelf_policy_choose(&room, entries, n, &err);
        uint64_t freed = 0, newest = 0, smallest = UINT64_MAX;
        for (uint32_t i = 0; i < n; i++) {
            assert_false(entries[i].evict && (entries[i].in_use || code));
            freed += entries[i].evict ? entries[i].bytes : 0;
            newest = entries[i].evict && entries[i].used_ns > newest ? entries[i].used_ns : newest;
        }
        for (uint32_t i = 0; i < n; i++) {
            assert_false(!entries[i].evict && !entries[i].in_use && entries[i].used_ns < newest);
            if (entries[i].evict && entries[i].used_ns == newest && entries[i].bytes < smallest)
                smallest = entries[i].bytes;
        }
        bool fits_limit = !room.limit_bytes || used - freed + room.need_bytes <= room.limit_bytes;
        bool fits_disk = room.free_bytes + freed >= room.need_bytes + room.spare_bytes;
        if (!code)
            assert_true(fits_limit && fits_disk);
        else
            assert_true((room.limit_bytes && used - idle + room.need_bytes > room.limit_bytes) ||
                        room.free_bytes + idle < room.need_bytes + room.spare_bytes);
        assert_true(!code || err.text[0]);
    }
}

static void test_policy_says_what_is_missing(void **state)
{
    (void)state;
    struct shelf_entry entry = {.bytes = UINT64_C(9) << 30, .in_use = true};
    struct shelf_room room = {.need_bytes = UINT64_C(5) << 30,
                              .limit_bytes = UINT64_C(10) << 30,
                              .free_bytes = UINT64_MAX};
    struct error err;
    assert_int_equal(shelf_policy_choose(&room, &entry, 1, &err), ERROR_BUSY);
    assert_string_equal(
        err.text,
        "needs 5.0 GiB; the limit for fetched models is 10.0 GiB, of which 9.0 GiB are in use: "
        "raise the limit or unload a model");
    room = (struct shelf_room){
        .need_bytes = UINT64_C(5) << 30, .free_bytes = UINT64_C(4) << 30, .spare_bytes = 1 << 20};
    assert_int_equal(shelf_policy_choose(&room, &entry, 1, &err), ERROR_IO);
    assert_string_equal(
        err.text,
        "the disk is too full: needs 5.0 GiB, 4.0 GiB are free, 1.0 MiB must stay free, and 0 "
        "bytes of fetched models are not in use");
}

/* ---- record ---- */

static void test_a_torn_record_is_read_up_to_the_tear(void **state)
{
    (void)state;
    struct digest identity, other;
    struct buffer record = {0};
    digest_of("a", 1, &identity, NULL);
    digest_of("b", 1, &other, NULL);
    shelf_record_begin(&identity, &record);
    const struct {
        uint32_t part;
        bool gone;
    } entries[] = {{3, false}, {0, false}, {3, true}, {4, false}};
    for (int i = 0; i < 4; i++)
        shelf_record_add(entries[i].part, entries[i].gone, &record);
    for (size_t size = 0; size <= record.size; size++) {
        struct part_set has;
        part_set_init(&has, 5, NULL);
        size_t good = shelf_record_read(record.data, size, &identity, &has);
        size_t whole =
            size < SHELF_RECORD_HEAD ? 0 : (size - SHELF_RECORD_HEAD) / SHELF_RECORD_ENTRY;
        assert_int_equal(
            good, size < SHELF_RECORD_HEAD ? 0 : SHELF_RECORD_HEAD + whole * SHELF_RECORD_ENTRY);
        assert_int_equal(part_set_has(&has, 3), whole == 1 || whole == 2);
        assert_int_equal(part_set_has(&has, 0), whole >= 2);
        assert_int_equal(part_set_has(&has, 4), whole == 4);
        assert_int_equal(shelf_record_read(record.data, size, &other, &has), 0);
        part_set_deinit(&has);
    }
    struct part_set few; /* garbage in the middle, and a part that the model does not have */
    part_set_init(&few, 4, NULL);
    assert_int_equal(shelf_record_read(record.data, record.size, &identity, &few),
                     record.size - SHELF_RECORD_ENTRY);
    record.data[SHELF_RECORD_HEAD + SHELF_RECORD_ENTRY + 1] ^= 1;
    assert_int_equal(shelf_record_read(record.data, record.size, &identity, &few),
                     SHELF_RECORD_HEAD + SHELF_RECORD_ENTRY);
    part_set_deinit(&few);
    buffer_deinit(&record);
}

/* ---- parts ---- */

static void test_only_verified_and_kept_parts_count(void **state)
{
    struct world *world = *state;
    struct shelf_model *model = open_model(world->shelf, &world->manifest);
    struct error err;
    assert_int_equal(part_set_count(shelf_model_has(model)), 0);
    fetch_part(model, 1);
    write_part(model, 3); /* and never kept */
    assert_int_equal(shelf_model_write(model, 2, 0, "lies", 4, NULL), 0);
    assert_int_equal(shelf_model_verify(model, 2, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "tensor.2"));
    assert_int_equal(shelf_model_write(model, 1, 0, "x", 1, &err), ERROR_INVALID);
    assert_int_equal(shelf_model_write(model, 2, 60, "12345", 5, &err), ERROR_INVALID);
    assert_int_equal(shelf_model_write(model, 2, UINT64_MAX, "12345", 5, &err), ERROR_INVALID);
    assert_int_equal(shelf_model_write(model, N_PARTS, 0, "x", 1, &err), ERROR_INVALID);
    shelf_model_close(model);

    model = open_model(world->shelf, &world->manifest);
    assert_int_equal(part_set_count(shelf_model_has(model)), 1);
    assert_true(part_set_has(shelf_model_has(model), 1));
    assert_int_equal(shelf_model_verify(model, 1, NULL), 0);
    shelf_model_close(model);
}

static void test_a_whole_model_has_the_same_manifest(void **state)
{
    struct world *world = *state;
    char path[PATH_MAX];
    struct gguf_file *file;
    struct manifest manifest, again;
    struct digest a, b;
    assert_int_equal(gguf_file_open(weights_golden("qwen3", path), &file, NULL), 0);
    assert_int_equal(manifest_make(file, NULL, &manifest, NULL), 0);
    struct shelf_model *model = open_model(world->shelf, &manifest);
    for (uint32_t i = 0; i < manifest.n_parts; i++) {
        const struct manifest_part *part = &manifest.parts[i];
        assert_int_equal(
            shelf_model_write(model, i, 0, gguf_file_bytes(file) + part->offset, part->size, NULL),
            0);
        assert_int_equal(shelf_model_verify(model, i, NULL), 0);
        assert_int_equal(shelf_model_keep(model, &i, 1, NULL), 0);
    }
    gguf_file_close(file);
    assert_int_equal(gguf_file_open(shelf_model_path(model), &file, NULL), 0);
    assert_int_equal(manifest_make(file, NULL, &again, NULL), 0);
    manifest_identity(&manifest, &a, NULL);
    manifest_identity(&again, &b, NULL);
    assert_true(digest_equal(&a, &b) && digest_equal(&a, shelf_model_identity(model)));
    gguf_file_close(file);
    shelf_model_close(model);
    manifest_deinit(&again);
    assert_int_equal(shelf_manifest(world->shelf, &a, &again, NULL), 0);
    manifest_deinit(&again);
    manifest_deinit(&manifest);
}

static uint64_t blocks(const struct shelf_model *model)
{
    struct stat info;
    assert_int_equal(stat(shelf_model_path(model), &info), 0);
    return (uint64_t)info.st_blocks * 512;
}

static void test_room_is_taken_and_given_back(void **state)
{
    struct world *world = *state;
    struct shelf_model *model = open_model(world->shelf, &world->manifest);
    struct part_set wanted;
    part_set_init(&wanted, N_PARTS, NULL);
    part_set_add(&wanted, 3);
    assert_int_equal(blocks(model), 0);
    assert_int_equal(shelf_model_reserve(model, &wanted, NULL), 0);
    uint64_t taken = blocks(model);
    assert_true(taken >= 300000 && taken < 320000);
    fetch_part(model, 1);
    write_part(model, 3);
    assert_int_equal(shelf_model_trim(model, NULL), 0);
    assert_true(blocks(model) >= 70000 && blocks(model) < 90000);
    assert_int_equal(shelf_model_verify(model, 1, NULL), 0);
    part_set_add(&wanted, 1);
    assert_int_equal(shelf_model_drop(model, &wanted, NULL), 0);
    assert_true(blocks(model) <= 5 * 4096); /* blocks that neighbours share stay */
    shelf_model_close(model);
    model = open_model(world->shelf, &world->manifest);
    assert_int_equal(part_set_count(shelf_model_has(model)), 0);
    fetch_part(model, 1);
    fetch_part(model, 2);
    shelf_model_close(model);
    part_set_deinit(&wanted);
}

static void test_damage_is_found_and_fetched_again(void **state)
{
    struct world *world = *state;
    struct shelf_model *model = open_model(world->shelf, &world->manifest);
    struct part_set damaged;
    assert_int_equal(part_set_init(&damaged, world->manifest.n_parts, NULL), 0);
    fetch_part(model, 1);
    fetch_part(model, 2);
    weights_flip_byte(shelf_model_path(model), world->manifest.parts[1].offset + 500);
    assert_int_equal(shelf_model_verify(model, 1, NULL), ERROR_INVALID);
    assert_int_equal(shelf_model_verify(model, 2, NULL), 0);
    part_set_add(&damaged, 1);
    assert_int_equal(shelf_model_drop(model, &damaged, NULL), 0);
    part_set_deinit(&damaged);
    assert_true(!part_set_has(shelf_model_has(model), 1) &&
                part_set_has(shelf_model_has(model), 2));
    fetch_part(model, 1);
    shelf_model_close(model);

    char path[PATH_MAX + 8]; /* the model's file is gone: nothing of it counts any more */
    model = open_model(world->shelf, &world->manifest);
    snprintf(path, sizeof path, "%s", shelf_model_path(model));
    shelf_model_close(model);
    assert_int_equal(unlink(path), 0);
    model = open_model(world->shelf, &world->manifest);
    assert_int_equal(part_set_count(shelf_model_has(model)), 0);
    shelf_model_close(model);
}

/* ---- limits ---- */

static void test_limit_evicts_the_least_recently_used_and_never_what_is_in_use(void **state)
{
    struct world *world = *state;
    struct shelf *small = open_shelf(world->folder, 1000000, 0);
    struct manifest manifests[4];
    struct shelf_model *model;
    struct part_set wanted;
    struct error err;
    part_set_init(&wanted, N_PARTS, NULL);
    part_set_add(&wanted, 3); /* 300,000 bytes each: three have room */
    struct digest identities[4];
    for (int i = 0; i < 4; i++) {
        manifests[i] = weights_manifest(SIZES, N_PARTS);
        snprintf(manifests[i].name, sizeof manifests[i].name, "model %d", i);
        manifest_identity(&manifests[i], &identities[i], NULL);
    }
    for (int i = 0; i < 2; i++) {
        model = open_model(small, &manifests[i]);
        assert_int_equal(shelf_model_reserve(model, &wanted, NULL), 0);
        fetch_part(model, 3);
        shelf_model_close(model);
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
    model = open_model(small, &manifests[0]); /* used again, so that 1 is the oldest */
    shelf_model_close(model);
    struct shelf_model *two = open_model(small, &manifests[2]),
                       *three = open_model(small, &manifests[3]);
    assert_int_equal(shelf_model_reserve(two, &wanted, &err), 0);
    assert_int_equal(shelf_model_reserve(three, &wanted, &err), 0);
    struct manifest gone;
    assert_int_equal(shelf_manifest(small, &identities[1], &gone, NULL), ERROR_NOT_FOUND);
    assert_int_equal(shelf_manifest(small, &identities[0], &gone, NULL), 0);
    manifest_deinit(&gone);

    struct shelf_model *zero = open_model(small, &manifests[0]),
                       *one = open_model(small, &manifests[1]);
    assert_true(part_set_has(shelf_model_has(zero), 3) &&
                part_set_count(shelf_model_has(one)) == 0);
    assert_int_equal(shelf_model_reserve(one, &wanted, &err), ERROR_BUSY); /* all are in use */
    assert_non_null(strstr(err.text, "needs 293.0 KiB; the limit for fetched models is 976.6 KiB"));
    assert_int_equal(shelf_remove(small, &identities[0], &err), ERROR_BUSY);
    assert_int_equal(shelf_model_open(small, &manifests[0], &model, &err), ERROR_BUSY);
    assert_int_equal(blocks(one), 0);
    struct digest listed[4];
    assert_int_equal(shelf_list(small, listed, 4), 4);
    struct shelf_model *all[] = {zero, one, two, three};
    for (int i = 0; i < 4; i++) {
        shelf_model_close(all[i]);
        assert_int_equal(shelf_remove(small, &identities[i], &err), 0);
        manifest_deinit(&manifests[i]);
    }
    assert_int_equal(shelf_list(small, NULL, 0), 0);
    assert_int_equal(shelf_remove(small, &identities[0], &err), ERROR_NOT_FOUND);
    part_set_deinit(&wanted);
    shelf_close(small);
}

static void test_what_is_pinned_makes_no_room(void **state)
{
    struct world *world = *state;
    struct shelf *small = open_shelf(world->folder, 400000, 0);
    struct manifest pinned = weights_manifest(SIZES, N_PARTS), other = pinned;
    char pin[PATH_MAX + 8];
    struct part_set wanted;
    struct digest identity;
    struct error err;
    part_set_init(&wanted, N_PARTS, NULL);
    part_set_add(&wanted, 3); /* 300,000 bytes: one has room */
    snprintf(other.name, sizeof other.name, "the other");
    struct shelf_model *model = open_model(small, &pinned);
    assert_int_equal(shelf_model_reserve(model, &wanted, NULL), 0);
    fetch_part(model, 3);
    snprintf(pin, sizeof pin, "%s.pin", shelf_model_path(model));
    fclose(fopen(pin, "we"));
    shelf_model_close(model);
    model = open_model(small, &other);
    assert_int_equal(shelf_model_reserve(model, &wanted, &err), ERROR_BUSY);
    assert_int_equal(unlink(pin), 0);
    assert_int_equal(shelf_model_reserve(model, &wanted, &err), 0);
    manifest_identity(&pinned, &identity, NULL);
    assert_int_equal(shelf_remove(small, &identity, &err), ERROR_NOT_FOUND);
    shelf_model_close(model);
    part_set_deinit(&wanted);
    manifest_deinit(&pinned);
    shelf_close(small);
}

static void test_a_full_disk_is_said_before_anything_is_fetched(void **state)
{
    struct world *world = *state;
    struct shelf *shelf = open_shelf(world->folder, 0, UINT64_C(1) << 60);
    struct shelf_model *model = open_model(shelf, &world->manifest);
    struct part_set wanted;
    struct error err;
    part_set_init(&wanted, N_PARTS, NULL);
    part_set_add_all(&wanted);
    assert_int_equal(shelf_model_reserve(model, &wanted, &err), ERROR_IO);
    assert_non_null(strstr(err.text, "needs 366.3 KiB"));
    assert_non_null(strstr(err.text, "are free"));
    assert_int_equal(blocks(model), 0);
    part_set_deinit(&wanted);
    shelf_model_close(model);
    shelf_close(shelf);
}

/* The operating system refuses from some byte on, as a full disk does. */
static void test_a_disk_that_refuses_is_an_error_and_no_harm(void **state)
{
    struct world *world = *state;
    struct shelf_model *model = open_model(world->shelf, &world->manifest);
    struct error err = {0};
    struct rlimit old, low;
    fetch_part(model, 1);
    getrlimit(RLIMIT_FSIZE, &old);
    low = (struct rlimit){.rlim_cur = 76000, .rlim_max = old.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &low);
    char bytes[4096] = {0};
    enum error_code code = shelf_model_write(model, 3, 4096, bytes, sizeof bytes, &err);
    low.rlim_cur = 45; /* not even the record grows */
    setrlimit(RLIMIT_FSIZE, &low);
    enum error_code keep = shelf_model_keep(model, &(uint32_t){2}, 1, NULL);
    setrlimit(RLIMIT_FSIZE, &old);
    signal(SIGXFSZ, SIG_DFL);
    assert_true(code == ERROR_IO && err.text[0] && keep == ERROR_IO);
    assert_int_equal(part_set_count(shelf_model_has(model)), 1);
    fetch_part(model, 4);
    shelf_model_close(model);
    model = open_model(world->shelf, &world->manifest);
    assert_true(part_set_has(shelf_model_has(model), 1) && part_set_has(shelf_model_has(model), 4));
    assert_int_equal(part_set_count(shelf_model_has(model)), 2);
    shelf_model_close(model);
}

static void test_running_out_of_memory_is_an_error(void **state)
{
    struct world *world = *state;
    enum error_code code = ERROR_NO_MEMORY;
    for (unsigned nth = 1; code; nth++) {
        struct shelf_model *model;
        struct error err = {0};
        mem_fail_nth(nth);
        code = shelf_model_open(world->shelf, &world->manifest, &model, &err);
        mem_fail_nth(0);
        assert_true(!code || (!model && err.text[0] && nth < 100));
        if (!code) {
            mem_fail_nth(1);
            assert_int_equal(shelf_model_keep(model, &(uint32_t){2}, 1, NULL), ERROR_NO_MEMORY);
            assert_int_equal(part_set_count(shelf_model_has(model)), 0);
            mem_fail_nth(0);
            shelf_model_close(model);
        }
    }
}

/* ---- crashes ---- */

static void fetch_for_ever(struct world *world)
{
    struct shelf_model *model;
    struct part_set all;
    if (shelf_model_open(world->shelf, &world->manifest, &model, NULL) ||
        part_set_init(&all, N_PARTS, NULL))
        _exit(1);
    part_set_add_all(&all);
    for (uint64_t round = 0;; round++) {
        uint32_t part = (uint32_t)(random_at(7, round) % N_PARTS);
        if (part_set_count(shelf_model_has(model)) == N_PARTS)
            shelf_model_drop(model, &all, NULL);
        else if (!part_set_has(shelf_model_has(model), part))
            fetch_part(model, part);
    }
}

static void test_killed_at_any_moment_what_is_recorded_is_whole(void **state)
{
    struct world *world = *state;
    uint32_t seen = 0;
    for (uint64_t round = 0; round < 25; round++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            fetch_for_ever(world);
        nanosleep(&(struct timespec){.tv_nsec = (long)(1000000 + random_at(3, round) % 40000000)},
                  NULL);
        int status;
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        struct shelf_model *model = open_model(world->shelf, &world->manifest);
        seen += part_set_count(shelf_model_has(model));
        for (uint32_t i = 0; i < world->manifest.n_parts; i++) {
            if (part_set_has(shelf_model_has(model), i))
                assert_int_equal(shelf_model_verify(model, i, NULL), 0);
        }
        shelf_model_close(model);
    }
    assert_true(seen > 0);
}

/* In the build folder, for /tmp may be memory; where the kernel has none there, it is skipped. */
static void test_what_is_received_lies_in_large_pages(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {100, 3 << 20, (5 << 20) + 77};
    char folder[PATH_MAX];
    if (!large_pages_possible("."))
        skip();
    assert_int_equal(setenv("TMPDIR", ".", 1), 0);
    weights_folder_make(folder);
    unsetenv("TMPDIR");
    struct shelf *shelf = open_shelf(folder, 0, 0);
    struct manifest manifest = weights_manifest(sizes, 3);
    struct shelf_model *model = open_model(shelf, &manifest);
    for (uint32_t i = 3; i-- > 0;)
        fetch_part(model, i);
    const struct large_pages_seen seen = large_pages_look(shelf_model_descriptor(model));
    shelf_model_close(model);
    manifest_deinit(&manifest);
    shelf_close(shelf);
    weights_folder_remove(folder);
    assert_int_equal(seen.n_places, 4);
    assert_int_equal(seen.n_large, 4);
}

static void test_half_removed_models_are_swept(void **state)
{
    struct world *world = *state;
    struct shelf_model *model = open_model(world->shelf, &world->manifest);
    char path[PATH_MAX + 16], name[DIGEST_TEXT];
    fetch_part(model, 1);
    snprintf(path, sizeof path, "%s/%s.parts", world->folder,
             digest_text(shelf_model_identity(model), name));
    shelf_model_close(model);
    assert_int_equal(unlink(path), 0);
    shelf_close(world->shelf);
    world->shelf = open_shelf(world->folder, 0, 0);
    snprintf(path, sizeof path, "%s/%s.gguf", world->folder, name);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(shelf_list(world->shelf, NULL, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_policy_evicts_the_oldest_and_only_as_many_as_needed),
        cmocka_unit_test(test_policy_says_what_is_missing),
        cmocka_unit_test(test_a_torn_record_is_read_up_to_the_tear),
        cmocka_unit_test_setup_teardown(test_only_verified_and_kept_parts_count, shelf_world_begin,
                                        shelf_world_end),
        cmocka_unit_test_setup_teardown(test_a_whole_model_has_the_same_manifest, shelf_world_begin,
                                        shelf_world_end),
        cmocka_unit_test_setup_teardown(test_room_is_taken_and_given_back, shelf_world_begin,
                                        shelf_world_end),
        cmocka_unit_test_setup_teardown(test_damage_is_found_and_fetched_again, shelf_world_begin,
                                        shelf_world_end),
        cmocka_unit_test_setup_teardown(test_what_is_pinned_makes_no_room, shelf_world_begin,
                                        shelf_world_end),
        cmocka_unit_test_setup_teardown(
            test_limit_evicts_the_least_recently_used_and_never_what_is_in_use, shelf_world_begin,
            shelf_world_end),
        cmocka_unit_test_setup_teardown(test_a_full_disk_is_said_before_anything_is_fetched,
                                        shelf_world_begin, shelf_world_end),
        cmocka_unit_test_setup_teardown(test_a_disk_that_refuses_is_an_error_and_no_harm,
                                        shelf_world_begin, shelf_world_end),
        cmocka_unit_test_setup_teardown(test_running_out_of_memory_is_an_error, shelf_world_begin,
                                        shelf_world_end),
        cmocka_unit_test_setup_teardown(test_killed_at_any_moment_what_is_recorded_is_whole,
                                        shelf_world_begin, shelf_world_end),
        cmocka_unit_test(test_what_is_received_lies_in_large_pages),
        cmocka_unit_test_setup_teardown(test_half_removed_models_are_swept, shelf_world_begin,
                                        shelf_world_end),
    };
    return cmocka_run_group_tests_name("shelf", tests, NULL, NULL);
}
