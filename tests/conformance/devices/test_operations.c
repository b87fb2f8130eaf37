/* Every operation of medley/gpu.h on every device, with good input and bad. */
#include "world.h"

#include <stdlib.h>
#include <string.h>

enum { KIB = 1024, MIB = 1024 * 1024 };

static void test_info(void **state)
{
    (void)state;
    assert_true(device_count() >= 1);
    assert_string_equal(device_id(device_count() - 1),
                        getenv("MEDLEY_TEST_SIM") ? "sim:large" : "cpu");
    for (uint32_t i = 0; i < device_count(); i++) {
        const struct medley_device_info *info = medley_device_info(device_at(i));
        assert_ptr_equal(medley_gpu_find(all_devices, info->id), device_at(i));
        assert_true(info->name[0] && info->backend[0]);
        assert_true(info->total_bytes.valid && info->free_bytes.valid);
        assert_true(info->total_bytes.value >= info->free_bytes.value);
        assert_true(info->precisions & MEDLEY_PRECISION_F32);
        const struct medley_reading readings[] = {info->compute_units, info->clock_mhz,
                                                  info->bandwidth_mb_per_s, info->peak_mflops,
                                                  info->threads_per_block_max};
        for (size_t r = 0; r < sizeof readings / sizeof *readings; r++) {
            if (readings[r].valid)
                assert_true(readings[r].value > 0); /* known, so not nought */
        }
    }
    assert_null(medley_gpu_device(all_devices, device_count()));
    assert_null(medley_gpu_find(all_devices, "nothing"));
    assert_null(medley_gpu_find(all_devices, NULL));
    const char *reason;
    assert_null(medley_gpu_rejected(all_devices, medley_gpu_rejected_count(all_devices), &reason));
    for (uint32_t i = 0; i < medley_gpu_rejected_count(all_devices); i++) {
        assert_non_null(medley_gpu_rejected(all_devices, i, &reason));
        assert_true(reason[0]);
    }
}

static void test_odd_sizes_and_offsets(void **state)
{
    (void)state;
    const size_t sizes[] = {1, 2, 3, 7, 63, 64, 65, 255, 4095, 4097, 65537, MIB + 1, 5 * MIB + 13};
    const size_t room = 6 * MIB;
    unsigned char *sent = malloc(room), *received = malloc(room), *expected = malloc(room);
    assert_true(sent && received && expected);
    for (uint32_t i = 0; i < device_count(); i++) {
        struct medley_device_buffer buffer = alloc(device_at(i), room);
        fill(expected, room, i);
        assert_int_equal(try_write(device_at(i), buffer, 0, expected, room), MEDLEY_ERROR_NONE);
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            size_t offset = (s * 7919 + 1) % (room - sizes[s]);
            fill(sent, sizes[s], 100 + s);
            memcpy(expected + offset, sent, sizes[s]);
            assert_int_equal(try_write(device_at(i), buffer, offset, sent, sizes[s]),
                             MEDLEY_ERROR_NONE);
            memset(received, 0, sizes[s]);
            assert_int_equal(try_read(device_at(i), buffer, offset, received, sizes[s]),
                             MEDLEY_ERROR_NONE);
            assert_memory_equal(received, sent, sizes[s]);
        }
        assert_int_equal(try_read(device_at(i), buffer, 0, received, room), MEDLEY_ERROR_NONE);
        assert_memory_equal(received, expected,
                            room); /* nothing beside what was meant has changed */
        assert_int_equal(try_free(device_at(i), buffer), MEDLEY_ERROR_NONE);
    }
    free(sent);
    free(received);
    free(expected);
}

/* Large reads may go into the destination's pages directly: whatever its alignment, its neighbours
 * stay. */
static void test_large_reads_at_any_alignment(void **state)
{
    (void)state;
    enum { ROOM = 4 * MIB, PAGE = 4096 };
    const size_t sizes[] = {MIB - 1, MIB, MIB + 1, 2 * MIB + PAGE - 1, 3 * MIB + 5};
    const size_t starts[] = {0, 1, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE + 8};
    unsigned char *sent = malloc(ROOM), *room = NULL;
    assert_int_equal(posix_memalign((void **)&room, PAGE, ROOM), 0);
    assert_non_null(sent);
    fill(sent, ROOM, 9);
    for (uint32_t i = 0; i < device_count(); i++) {
        struct medley_device_buffer buffer = alloc(device_at(i), ROOM);
        assert_int_equal(try_write(device_at(i), buffer, 0, sent, ROOM), MEDLEY_ERROR_NONE);
        for (size_t k = 0; k < 5 * 6; k++) {
            size_t size = sizes[k % 5], start = starts[k / 5], offset = k * 31;
            memset(room, 0xcc, ROOM);
            assert_int_equal(try_read(device_at(i), buffer, offset, room + start, size),
                             MEDLEY_ERROR_NONE);
            assert_memory_equal(room + start, sent + offset, size);
            for (size_t before = 0; before < start; before++)
                assert_int_equal(room[before], 0xcc);
            for (size_t after = start + size; after < start + size + 2 * PAGE && after < ROOM;
                 after++)
                assert_int_equal(room[after], 0xcc);
        }
        assert_int_equal(try_free(device_at(i), buffer), MEDLEY_ERROR_NONE);
    }
    free(sent);
    free(room);
}

static void test_zero_bytes(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < device_count(); i++) {
        struct medley_device *device = device_at(i);
        struct medley_device_buffer none = alloc(device, 0), some = alloc(device, 8);
        enum medley_copy_path path = MEDLEY_COPY_STAGED;
        assert_int_equal(try_write(device, none, 0, NULL, 0), MEDLEY_ERROR_NONE);
        assert_int_equal(try_read(device, none, 0, NULL, 0), MEDLEY_ERROR_NONE);
        assert_int_equal(try_write(device, some, 8, NULL, 0),
                         MEDLEY_ERROR_NONE); /* at the very end */
        assert_int_equal(try_write(device, some, 9, NULL, 0), MEDLEY_ERROR_INVALID);
        assert_int_equal(try_copy(device, none, 0, device, some, 3, 0, &path), MEDLEY_ERROR_NONE);
        assert_int_equal(path, MEDLEY_COPY_NONE);
        assert_int_equal(try_write(device, none, 0, "x", 1), MEDLEY_ERROR_INVALID);
        assert_int_equal(try_free(device, none), MEDLEY_ERROR_NONE);
        assert_int_equal(try_free(device, none), MEDLEY_ERROR_INVALID);
        assert_int_equal(try_free(device, some), MEDLEY_ERROR_NONE);
    }
}

static void test_out_of_range(void **state)
{
    (void)state;
    const struct {
        uint64_t offset, size;
    } bad[] = {{0, 11},
               {10, 1},
               {1, 10},
               {11, 0},
               {UINT64_MAX, 1},
               {1, UINT64_MAX},
               {UINT64_MAX, UINT64_MAX}};
    unsigned char bytes[16] = "0123456789", now[16] = "";
    for (uint32_t i = 0; i < device_count(); i++) {
        struct medley_device *device = device_at(i);
        struct medley_device_buffer buffer = alloc(device, 10), other = alloc(device, 10);
        assert_int_equal(try_write(device, buffer, 0, bytes, 10), MEDLEY_ERROR_NONE);
        for (size_t b = 0; b < sizeof bad / sizeof *bad; b++) {
            uint64_t offset = bad[b].offset, size = bad[b].size;
            assert_int_equal(try_write(device, buffer, offset, bytes, size), MEDLEY_ERROR_INVALID);
            assert_int_equal(try_read(device, buffer, offset, now, size), MEDLEY_ERROR_INVALID);
            assert_int_equal(try_copy(device, buffer, offset, device, other, 0, size, NULL),
                             MEDLEY_ERROR_INVALID);
            assert_int_equal(try_copy(device, other, 0, device, buffer, offset, size, NULL),
                             MEDLEY_ERROR_INVALID);
        }
        assert_int_equal(try_copy(device, buffer, 0, device, buffer, 4, 5, NULL),
                         MEDLEY_ERROR_INVALID); /* overlap */
        assert_int_equal(try_copy(device, buffer, 0, device, buffer, 5, 5, NULL),
                         MEDLEY_ERROR_NONE);
        assert_int_equal(try_read(device, buffer, 0, now, 10), MEDLEY_ERROR_NONE);
        assert_memory_equal(now, "0123401234", 10);
        struct medley_device_request request = {0};
        assert_int_equal(medley_device_write(device, &request, buffer, 0, NULL, 1, NULL),
                         MEDLEY_ERROR_INVALID);
        assert_int_equal(medley_device_read(device, &request, buffer, 0, NULL, 1, NULL),
                         MEDLEY_ERROR_INVALID);
        assert_int_equal(medley_device_wait(&request), MEDLEY_ERROR_INVALID);
        assert_int_equal(try_free(device, buffer), MEDLEY_ERROR_NONE);
        assert_int_equal(try_free(device, other), MEDLEY_ERROR_NONE);
    }
}

static void test_stale_handles(void **state)
{
    (void)state;
    char bytes[8] = "";
    for (uint32_t i = 0; i < device_count(); i++) {
        struct medley_device *device = device_at(i);
        struct medley_device_buffer first = alloc(device, 8);
        assert_int_equal(try_free(device, first), MEDLEY_ERROR_NONE);
        assert_int_equal(try_free(device, first), MEDLEY_ERROR_INVALID);
        assert_non_null(strstr(last_error.text, device_id(i)));
        struct medley_device_buffer second = alloc(device, 8); /* in the same slot as the first */
        assert_true(second.handle != first.handle);
        assert_int_equal(try_read(device, first, 0, bytes, 8), MEDLEY_ERROR_INVALID);
        assert_int_equal(try_write(device, first, 0, bytes, 8), MEDLEY_ERROR_INVALID);
        assert_int_equal(try_copy(device, first, 0, device, second, 0, 4, NULL),
                         MEDLEY_ERROR_INVALID);
        assert_int_equal(try_copy(device, second, 0, device, first, 0, 4, NULL),
                         MEDLEY_ERROR_INVALID);
        assert_int_equal(try_free(device, first), MEDLEY_ERROR_INVALID);
        const struct medley_device_buffer zero = {0}, nonsense = {UINT64_MAX};
        assert_int_equal(try_free(device, zero), MEDLEY_ERROR_INVALID);
        assert_int_equal(try_read(device, zero, 0, bytes, 0), MEDLEY_ERROR_INVALID);
        assert_int_equal(try_free(device, nonsense), MEDLEY_ERROR_INVALID);
        assert_int_equal(try_free(device, second), MEDLEY_ERROR_NONE);
    }
}

static void test_foreign_handles(void **state)
{
    (void)state;
    struct medley_gpu *other_gpu;
    struct medley_device_request request = {0};
    struct medley_gpu_options options = {.cpu_only = true};
    assert_int_equal(medley_gpu_open(NULL, &options, &other_gpu, &request, NULL),
                     MEDLEY_ERROR_NONE);
    assert_int_equal(medley_device_wait(&request), MEDLEY_ERROR_NONE);
    struct medley_device *stranger = medley_gpu_find(other_gpu, "cpu");
    medley_device_alloc(stranger, &request, 8, NULL);
    assert_int_equal(medley_device_wait(&request), MEDLEY_ERROR_NONE);
    struct medley_device_buffer foreign = request.buffer;
    char bytes[8] = "";
    for (uint32_t i = 0; i < device_count(); i++) {
        struct medley_device *device = device_at(i);
        struct medley_device_buffer own = alloc(device, 8);
        assert_int_equal(try_free(device, foreign), MEDLEY_ERROR_INVALID);
        assert_non_null(strstr(last_error.text, "another device"));
        assert_int_equal(try_write(device, foreign, 0, bytes, 8), MEDLEY_ERROR_INVALID);
        assert_int_equal(try_copy(device, own, 0, stranger, foreign, 0, 8, NULL),
                         MEDLEY_ERROR_INVALID);
        for (uint32_t k = 0; k < device_count(); k++) {
            if (k != i)
                assert_int_equal(try_free(device_at(k), own), MEDLEY_ERROR_INVALID);
        }
        assert_int_equal(try_free(device, own), MEDLEY_ERROR_NONE);
    }
    medley_gpu_close(other_gpu, NULL, NULL);
}

static bool is_ggml(const char *backend)
{
    return strcmp(backend, "cpu") == 0 || strcmp(backend, "vulkan") == 0;
}

/* What must be said of the pairs whose path is known; any path will do between others. */
static bool path_is_right(uint32_t from, uint32_t to, enum medley_copy_path path)
{
    const char *a = medley_device_info(device_at(from))->backend,
               *b = medley_device_info(device_at(to))->backend;
    if (!is_ggml(a) || !is_ggml(b))
        return path != MEDLEY_COPY_NONE;
    if (from == to)
        return path == MEDLEY_COPY_SAME_DEVICE;
    return path == (strcmp(a, b) == 0 ? MEDLEY_COPY_SAME_BACKEND : MEDLEY_COPY_HOST_VISIBLE);
}

static void test_copies_between_all_pairs(void **state)
{
    (void)state;
    enum { SIZE = 3 * MIB + 17 };
    unsigned char *sent = malloc(SIZE), *received = malloc(SIZE);
    assert_true(sent && received);
    for (uint32_t i = 0; i < device_count(); i++) {
        for (uint32_t k = 0; k < device_count(); k++) {
            struct medley_device_buffer from = alloc(device_at(i), SIZE),
                                        to = alloc(device_at(k), SIZE);
            fill(sent, SIZE, i * 64 + k);
            memset(received, 0xee, SIZE);
            assert_int_equal(try_write(device_at(i), from, 0, sent, SIZE), MEDLEY_ERROR_NONE);
            assert_int_equal(try_write(device_at(k), to, 0, received, SIZE), MEDLEY_ERROR_NONE);
            enum medley_copy_path path;
            assert_int_equal(try_copy(device_at(i), from, 5, device_at(k), to, 3, SIZE - 20, &path),
                             MEDLEY_ERROR_NONE);
            assert_true(path_is_right(i, k, path));
            assert_int_equal(try_read(device_at(k), to, 0, received, SIZE), MEDLEY_ERROR_NONE);
            assert_memory_equal(received + 3, sent + 5, SIZE - 20);
            assert_true(received[2] == 0xee &&
                        received[SIZE - 17] == 0xee); /* its neighbours are untouched */
            assert_int_equal(try_free(device_at(i), from), MEDLEY_ERROR_NONE);
            assert_int_equal(try_free(device_at(k), to), MEDLEY_ERROR_NONE);
        }
    }
    free(sent);
    free(received);
}

static void test_readings(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < device_count(); i++) {
        struct medley_device_request request = {0};
        assert_int_equal(medley_device_memory(device_at(i), &request, NULL), MEDLEY_ERROR_NONE);
        assert_int_equal(medley_device_wait(&request), MEDLEY_ERROR_NONE);
        assert_true(request.memory.total_bytes.valid && request.memory.total_bytes.value > 0);
        assert_true(request.memory.free_bytes.valid);
        assert_true(request.memory.free_bytes.value <= request.memory.total_bytes.value);
        enum medley_error_code (*const ask[])(
            struct medley_device *, struct medley_device_request *, medley_device_callback) = {
            medley_device_temperature_mc, medley_device_power_mw, medley_device_clock_mhz};
        for (size_t k = 0; k < 3; k++) {
            assert_int_equal(ask[k](device_at(i), &request, NULL), MEDLEY_ERROR_NONE);
            assert_int_equal(medley_device_wait(&request), MEDLEY_ERROR_NONE);
            if (!request.reading.valid)
                assert_int_equal(request.reading.value, 0);
            else if (k == 0)
                assert_in_range(request.reading.value, 1000, 130000); /* 1 to 130 degrees */
        }
        assert_int_equal(medley_device_synchronize(device_at(i), &request, NULL),
                         MEDLEY_ERROR_NONE);
        assert_int_equal(medley_device_wait(&request), MEDLEY_ERROR_NONE);
    }
}

/* Software devices take host memory, and this machine has other users: so the drain stops at a
 * cap. */
static void test_memory_to_exhaustion_and_back(void **state)
{
    (void)state;
    enum { PIECES_MAX = 24 };
    const uint64_t piece = 64 * MIB;
    for (uint32_t i = 0; i < device_count(); i++) {
        struct medley_device *device = device_at(i);
        uint64_t total = medley_device_info(device)->total_bytes.value;
        struct medley_device_buffer pieces[PIECES_MAX], none;
        const uint64_t too_much[] = {total + 1, UINT64_MAX, (uint64_t)INT64_MAX + 1, INT64_MAX};
        for (size_t t = 0; t < sizeof too_much / sizeof *too_much; t++) {
            assert_int_equal(try_alloc(device, too_much[t], &none), MEDLEY_ERROR_NO_MEMORY);
            assert_non_null(strstr(last_error.text, "needs"));
        }
        uint32_t count = 0;
        enum medley_error_code code = MEDLEY_ERROR_NONE;
        while (count < PIECES_MAX && !(code = try_alloc(device, piece, &pieces[count])))
            count++;
        assert_true(code == MEDLEY_ERROR_NONE || code == MEDLEY_ERROR_NO_MEMORY);
        print_message("# %s: %u pieces of 64 MiB%s\n", device_id(i), count,
                      code ? ", then no more" : " (the cap)");
        assert_true(count > 0);
        char byte = 'z', back = 0;
        assert_int_equal(try_write(device, pieces[count - 1], piece - 1, &byte, 1),
                         MEDLEY_ERROR_NONE);
        assert_int_equal(try_read(device, pieces[count - 1], piece - 1, &back, 1),
                         MEDLEY_ERROR_NONE);
        assert_int_equal(back, byte);
        for (uint32_t p = 0; p < count; p++)
            assert_int_equal(try_free(device, pieces[p]), MEDLEY_ERROR_NONE);
        struct medley_device_buffer again = alloc(device, piece * (count > 4 ? 4 : 1));
        assert_int_equal(try_free(device, again), MEDLEY_ERROR_NONE);
    }
}

static void test_bad_requests(void **state)
{
    (void)state;
    struct medley_device_request request = {0};
    assert_int_equal(medley_device_alloc(NULL, &request, 1, NULL), MEDLEY_ERROR_INVALID);
    assert_string_equal(request.error.text, "no device");
    assert_int_equal(medley_device_alloc(device_at(0), NULL, 1, NULL), MEDLEY_ERROR_INVALID);
    assert_int_equal(medley_device_wait(NULL), MEDLEY_ERROR_INVALID);
    assert_int_equal(medley_device_cancel(NULL), MEDLEY_ERROR_NOT_FOUND);
    struct medley_device_request fresh = {0};
    assert_int_equal(medley_device_wait(&fresh), MEDLEY_ERROR_NONE);
    assert_int_equal(medley_device_cancel(&fresh), MEDLEY_ERROR_NOT_FOUND);
    struct medley_device_buffer zero = {0};
    assert_int_equal(medley_device_copy(device_at(0), &request, zero, 0, NULL, zero, 0, 0, NULL),
                     MEDLEY_ERROR_INVALID);
    assert_string_equal(medley_error_name(MEDLEY_ERROR_NO_MEMORY), "not enough memory");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_info),
        cmocka_unit_test(test_odd_sizes_and_offsets),
        cmocka_unit_test(test_large_reads_at_any_alignment),
        cmocka_unit_test(test_zero_bytes),
        cmocka_unit_test(test_out_of_range),
        cmocka_unit_test(test_stale_handles),
        cmocka_unit_test(test_foreign_handles),
        cmocka_unit_test(test_copies_between_all_pairs),
        cmocka_unit_test(test_readings),
        cmocka_unit_test(test_memory_to_exhaustion_and_back),
        cmocka_unit_test(test_bad_requests),
    };
    return cmocka_run_group_tests_name("device operations", tests, open_devices, close_devices);
}
