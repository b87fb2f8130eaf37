/* gpu: every real device of this machine does what gpu.h says. Run once as it is and once
 * with GGML_VK_VISIBLE_DEVICES=0,0, which makes two software Vulkan devices appear. */
#include "base/mem.h"
#include "base/random.h"
#include "gpu/device_ggml.h"
#include "gpu/factory.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct gpu *gpu;

static int open_all(void **state)
{
    (void)state;
    struct error err;
    unsetenv("MEDLEY_BACKEND");
    if (gpu_open(NULL, &gpu, &err)) {
        print_error("%s\n", err.text);
        return -1;
    }
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    gpu_close(gpu);
    return 0;
}

static bool two_vulkans(void)
{
    const char *visible = getenv("GGML_VK_VISIBLE_DEVICES");
    return visible && strcmp(visible, "0,0") == 0;
}

/* On a machine with a real GPU, the two are that GPU. */
static bool software_vulkan(void)
{
    return two_vulkans() && strstr(device_info(gpu_find(gpu, "vulkan0"))->name, "llvmpipe");
}

/* ---- what there is --------------------------------------------------------------------- */

static void test_devices_are_named_and_the_cpu_is_last(void **state)
{
    (void)state;
    uint32_t count = gpu_device_count(gpu);
    assert_true(count >= 1);
    assert_string_equal(device_info(gpu_device(gpu, count - 1))->id, "cpu");
    for (uint32_t i = 0; i < count; i++) {
        const struct device_info *info = device_info(gpu_device(gpu, i));
        assert_ptr_equal(gpu_find(gpu, info->id), gpu_device(gpu, i));
        assert_true(info->name[0] && info->backend[0]);
        assert_true(info->memory_total_bytes > 0);
        assert_true(info->memory_free_bytes <= info->memory_total_bytes);
        assert_true(info->precisions & PRECISION_F32);
        assert_int_equal(strncmp(info->id, info->backend, strlen(info->backend)), 0);
    }
    assert_null(gpu_find(gpu, "nothing"));
    if (two_vulkans()) {
        assert_true(count >= 3);
        assert_non_null(gpu_find(gpu, "vulkan0"));
        assert_non_null(gpu_find(gpu, "vulkan1"));
    }
    if (software_vulkan()) {
        assert_string_equal(device_info(gpu_find(gpu, "vulkan1"))->vendor, "Mesa");
        assert_int_equal(device_info(gpu_find(gpu, "vulkan0"))->kind, DEVICE_CPU);
        /* from Vulkan's own interface: both are the same driver's */
        for (uint32_t i = 0; i < 2; i++) {
            const struct device_info *info = device_info(gpu_find(gpu, i ? "vulkan1" : "vulkan0"));
            assert_string_equal(info->driver_name, "llvmpipe");
            assert_int_equal(strncmp(info->driver, "Mesa ", 5), 0);
            assert_true(info->threads_per_block_max.valid);
            assert_true(info->threads_per_block_max.value >=
                        128);                        /* the least that Vulkan allows */
            assert_false(info->compute_units.valid); /* it does not tell */
        }
    }
}

static void test_every_backend_has_a_status(void **state)
{
    (void)state;
    bool cpu = false;
    assert_true(gpu_backend_count(gpu) >= 7);
    for (uint32_t i = 0; i < gpu_backend_count(gpu); i++) {
        const struct backend_status *backend = gpu_backend(gpu, i);
        assert_int_equal(backend->available, backend->reason[0] == 0);
        if (strcmp(backend->name, "cpu") == 0)
            cpu = backend->available;
        if (strcmp(backend->name, "vulkan") == 0 && two_vulkans())
            assert_true(backend->available);
    }
    assert_true(cpu);
}

static void test_every_platforms_chain_ends_with_the_cpu(void **state)
{
    (void)state;
    for (int platform = PLATFORM_LINUX; platform <= PLATFORM_ANDROID; platform++) {
        const char *const *chain = factory_chain((enum platform)platform);
        assert_non_null(chain[0]);
        while (chain[1])
            chain++;
        assert_string_equal(chain[0], "cpu");
    }
    assert_string_equal(factory_chain(PLATFORM_LINUX)[0], "cuda");
    assert_string_equal(factory_chain(PLATFORM_LINUX)[1], "hip");
    assert_string_equal(factory_chain(PLATFORM_LINUX)[2], "vulkan");
    assert_string_equal(factory_chain(PLATFORM_MACOS)[0], "metal");
}

static void test_cpu_device(void **state)
{
    (void)state;
    struct device *cpu = gpu_find(gpu, "cpu");
    assert_int_equal(device_info(cpu)->kind, DEVICE_CPU);
    assert_ptr_equal(device_ggml_fallback(cpu), device_ggml_backend(cpu));
    assert_int_equal(ggml_backend_dev_type(device_ggml_dev(cpu)), GGML_BACKEND_DEVICE_TYPE_CPU);
    uint32_t n_threads = device_threads(cpu);
    assert_true(device_cores(cpu) >= 1 && n_threads >= device_cores(cpu));
    device_set_threads(cpu, 3);
    assert_int_equal(device_threads(cpu), 3);
    assert_int_equal(device_cores(cpu), 3);
    device_set_threads(cpu, n_threads);
    struct device *vulkan = gpu_find(gpu, "vulkan0");
    if (vulkan) {
        assert_ptr_not_equal(device_ggml_fallback(vulkan), device_ggml_backend(vulkan));
        assert_ptr_not_equal(device_ggml_fallback(vulkan), device_ggml_backend(cpu));
        assert_int_equal(device_threads(vulkan), 0);
        assert_null(device_ggml_extra_buffer_types(vulkan));
    }
}

/* ---- choosing -------------------------------------------------------------------------- */

static void expect_refused(const char *list, uint32_t max, enum error_code code, const char *says)
{
    struct device *out[4];
    uint32_t n = 99;
    struct error err = {0};
    assert_int_equal(gpu_select(gpu, list, out, max, &n, &err), code);
    assert_int_equal(n, 0);
    assert_non_null(strstr(err.text, says));
}

static void test_select(void **state)
{
    (void)state;
    struct device *out[4];
    uint32_t n;
    assert_int_equal(gpu_select(gpu, "cpu", out, 4, &n, NULL), ERROR_NONE);
    assert_int_equal(n, 1);
    assert_ptr_equal(out[0], gpu_find(gpu, "cpu"));
    assert_int_equal(gpu_select(gpu, NULL, out, 4, &n, NULL), ERROR_NONE);
    assert_true(n >= 1);
    expect_refused("", 4, ERROR_INVALID, "empty");
    expect_refused("cpu,", 4, ERROR_INVALID, "empty");
    expect_refused(",cpu", 4, ERROR_INVALID, "empty");
    expect_refused("cpu,cpu", 4, ERROR_INVALID, "twice");
    expect_refused("CPU", 4, ERROR_NOT_FOUND, "there are: ");
    expect_refused("cpu,gpu7", 4, ERROR_NOT_FOUND, "'gpu7'; there are: ");
    expect_refused("a-name-that-is-longer-than-any-id-of-a-device-can-be", 4, ERROR_NOT_FOUND,
                   "no device");
    if (two_vulkans()) {
        assert_int_equal(gpu_select(gpu, "vulkan1,cpu", out, 4, &n, NULL), ERROR_NONE);
        assert_int_equal(n, 2);
        assert_ptr_equal(out[0], gpu_find(gpu, "vulkan1"));
        expect_refused("vulkan0,cpu", 1, ERROR_INVALID, "more than 1");
    }
    if (software_vulkan()) {
        /* a software driver is no GPU: the default is the CPU itself */
        assert_int_equal(gpu_select(gpu, NULL, out, 4, &n, NULL), ERROR_NONE);
        assert_int_equal(n, 1);
        assert_ptr_equal(out[0], gpu_find(gpu, "cpu"));
    }
}

static void test_backend_override(void **state)
{
    (void)state;
    struct gpu *other = (struct gpu *)&other;
    struct error err;
    setenv("MEDLEY_BACKEND", "quantum", 1);
    assert_int_equal(gpu_open(NULL, &other, &err), ERROR_INVALID);
    assert_null(other);
    assert_non_null(
        strstr(err.text, "MEDLEY_BACKEND: no backend 'quantum'; there are: cuda, hip, vulkan"));
    struct gpu_options wishes = {.backend = "cpu", .n_cpu_threads = 1};
    assert_int_equal(gpu_open(&wishes, &other, &err), ERROR_NONE); /* the option wins */
    assert_int_equal(gpu_device_count(other), 1);
    assert_int_equal(device_threads(gpu_device(other, 0)), 1);
    gpu_close(other);
    setenv("MEDLEY_BACKEND", "cpu", 1);
    assert_int_equal(gpu_open(NULL, &other, &err), ERROR_NONE);
    assert_int_equal(gpu_device_count(other), 1);
    gpu_close(other);
    setenv("MEDLEY_BACKEND", "vulkan", 1);
    assert_int_equal(gpu_open(NULL, &other, &err), ERROR_NONE);
    for (uint32_t i = 0; i + 1 < gpu_device_count(other); i++)
        assert_string_equal(device_info(gpu_device(other, i))->backend, "vulkan");
    assert_int_equal(gpu_find(other, "vulkan1") != NULL, gpu_find(gpu, "vulkan1") != NULL);
    gpu_close(other);
    unsetenv("MEDLEY_BACKEND");
    wishes = (struct gpu_options){.skip_other = true};
    assert_int_equal(gpu_open(&wishes, &other, &err), ERROR_NONE);
    assert_int_equal(gpu_device_count(other), 1);
    gpu_close(other);
    wishes = (struct gpu_options){.n_cpu_threads = 100000};
    assert_int_equal(gpu_open(&wishes, &other, &err), ERROR_INVALID);
}

/* ---- buffers --------------------------------------------------------------------------- */

static void fill(uint8_t *bytes, uint64_t size, uint64_t seed)
{
    for (uint64_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)random_mix(seed + i);
}

/* Random writes and reads at odd places, beside a copy of what the buffer must hold. */
static void exercise(struct device *device, uint64_t size)
{
    uint8_t *expected = mem_new(size), *bytes = mem_new(size);
    struct device_buffer buffer;
    assert_int_equal(device_alloc(device, size, &buffer, NULL), ERROR_NONE);
    fill(expected, size, size);
    assert_int_equal(device_write(device, buffer, 0, expected, size, NULL), ERROR_NONE);
    for (uint64_t i = 0; i < 12; i++) {
        uint64_t offset = random_at(size, 2 * i) % size;
        uint64_t length = random_at(size, 2 * i + 1) % (size - offset + 1);
        fill(expected + offset, length, i);
        assert_int_equal(device_write(device, buffer, offset, expected + offset, length, NULL),
                         ERROR_NONE);
        offset /= 3;
        assert_int_equal(device_read(device, buffer, offset, bytes, size - offset, NULL),
                         ERROR_NONE);
        assert_memory_equal(bytes, expected + offset, size - offset);
    }
    assert_int_equal(device_free(device, buffer, NULL), ERROR_NONE);
    mem_free(expected);
    mem_free(bytes);
}

static void test_odd_sizes_and_offsets(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {1, 2, 3, 31, 255, 4095, 4097, 65537, 1024 * 1024 + 1};
    for (uint32_t d = 0; d < gpu_device_count(gpu); d++) {
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            exercise(gpu_device(gpu, d), sizes[i]);
    }
}

static void test_zero_bytes_and_ranges(void **state)
{
    (void)state;
    for (uint32_t d = 0; d < gpu_device_count(gpu); d++) {
        struct device *device = gpu_device(gpu, d);
        struct device_buffer none, ten;
        uint8_t bytes[16] = {0};
        struct error err;
        assert_int_equal(device_alloc(device, 0, &none, NULL), ERROR_NONE);
        assert_int_not_equal(none.handle, 0);
        assert_int_equal(device_write(device, none, 0, NULL, 0, NULL), ERROR_NONE);
        assert_int_equal(device_read(device, none, 0, bytes, 1, NULL), ERROR_INVALID);
        assert_int_equal(device_free(device, none, NULL), ERROR_NONE);
        assert_int_equal(device_alloc(device, 10, &ten, NULL), ERROR_NONE);
        assert_int_equal(device_write(device, ten, 10, bytes, 0, NULL), ERROR_NONE);
        assert_int_equal(device_write(device, ten, 0, bytes, 11, &err), ERROR_INVALID);
        assert_non_null(strstr(err.text, "11 bytes at offset 0 do not lie in a buffer of 10"));
        assert_int_equal(device_write(device, ten, 10, bytes, 1, NULL), ERROR_INVALID);
        assert_int_equal(device_write(device, ten, 11, bytes, 0, NULL), ERROR_INVALID);
        assert_int_equal(device_read(device, ten, UINT64_MAX, bytes, 2, NULL), ERROR_INVALID);
        assert_int_equal(device_read(device, ten, 2, bytes, UINT64_MAX, NULL), ERROR_INVALID);
        assert_int_equal(device_copy(device, ten, 0, device, ten, 5, 6, NULL), ERROR_INVALID);
        assert_int_equal(device_copy(device, ten, 0, device, ten, 4, 5, &err), ERROR_INVALID);
        assert_non_null(strstr(err.text, "overlap"));
        assert_int_equal(device_copy(device, ten, 0, device, ten, 5, 5, NULL), ERROR_NONE);
        assert_int_equal(device_free(device, ten, NULL), ERROR_NONE);
    }
}

static void test_stale_foreign_and_double(void **state)
{
    (void)state;
    for (uint32_t d = 0; d < gpu_device_count(gpu); d++) {
        struct device *device = gpu_device(gpu, d);
        struct device_buffer first, second, forged;
        uint8_t byte = 1;
        struct error err;
        assert_int_equal(device_alloc(device, 8, &first, NULL), ERROR_NONE);
        assert_int_equal(device_free(device, first, NULL), ERROR_NONE);
        assert_int_equal(device_free(device, first, &err), ERROR_INVALID);
        assert_non_null(strstr(err.text, "has been freed"));
        assert_int_equal(device_alloc(device, 8, &second, NULL), ERROR_NONE);
        assert_int_equal(device_write(device, first, 0, &byte, 1, NULL), ERROR_INVALID);
        assert_int_equal(device_read(device, first, 0, &byte, 1, NULL), ERROR_INVALID);
        assert_int_equal(device_copy(device, second, 0, device, first, 0, 1, NULL), ERROR_INVALID);
        forged.handle = second.handle + 1; /* another slot */
        assert_int_equal(device_free(device, forged, NULL), ERROR_INVALID);
        assert_int_equal(device_free(device, (struct device_buffer){0}, NULL), ERROR_INVALID);
        struct device *other = gpu_device(gpu, (d + 1) % gpu_device_count(gpu));
        if (other != device) {
            assert_int_equal(device_read(other, second, 0, &byte, 1, &err), ERROR_INVALID);
            assert_non_null(strstr(err.text, "belongs to another device"));
            assert_int_equal(device_free(other, second, NULL), ERROR_INVALID);
        }
        assert_int_equal(device_write(device, second, 0, &byte, 1, NULL), ERROR_NONE);
        assert_int_equal(device_free(device, second, NULL), ERROR_NONE);
    }
}

static void test_more_memory_than_there_is(void **state)
{
    (void)state;
    for (uint32_t d = 0; d < gpu_device_count(gpu); d++) {
        struct device *device = gpu_device(gpu, d);
        struct device_buffer buffer = {1};
        struct error err;
        assert_int_equal(device_alloc(device, UINT64_MAX, &buffer, &err), ERROR_NO_MEMORY);
        assert_int_equal(buffer.handle, 0);
        assert_non_null(strstr(err.text, device_info(device)->id));
        assert_non_null(strstr(err.text, "out of memory (needs "));
        uint64_t total = device_memory(device).total_bytes;
        assert_int_equal(device_alloc(device, total + 1, &buffer, &err), ERROR_NO_MEMORY);
        exercise(device, 1000); /* it still works */
    }
}

static void test_copy_between_all_pairs(void **state)
{
    (void)state;
    enum { SIZE = 300001 };
    uint8_t *wrote = mem_new(SIZE), *read = mem_new(SIZE);
    for (uint32_t a = 0; a < gpu_device_count(gpu); a++) {
        for (uint32_t b = 0; b < gpu_device_count(gpu); b++) {
            struct device *from = gpu_device(gpu, a), *to = gpu_device(gpu, b);
            struct device_buffer source, target;
            fill(wrote, SIZE, a * 100 + b);
            memset(read, 0, SIZE);
            assert_int_equal(device_alloc(from, SIZE, &source, NULL), ERROR_NONE);
            assert_int_equal(device_alloc(to, SIZE, &target, NULL), ERROR_NONE);
            assert_int_equal(device_write(from, source, 0, wrote, SIZE, NULL), ERROR_NONE);
            assert_int_equal(device_write(to, target, 0, read, SIZE, NULL), ERROR_NONE);
            assert_int_equal(device_copy(from, source, 3, to, target, 17, SIZE - 20, NULL),
                             ERROR_NONE);
            assert_int_equal(device_synchronize(to, NULL), ERROR_NONE);
            assert_int_equal(device_read(to, target, 0, read, SIZE, NULL), ERROR_NONE);
            assert_memory_equal(read + 17, wrote + 3, SIZE - 20);
            for (int i = 0; i < 17; i++)
                assert_int_equal(read[i], 0);
            assert_int_equal(read[SIZE - 1] | read[SIZE - 2] | read[SIZE - 3], 0);
            assert_int_equal(device_free(from, source, NULL), ERROR_NONE);
            assert_int_equal(device_free(to, target, NULL), ERROR_NONE);
        }
    }
    mem_free(wrote);
    mem_free(read);
}

/* ---- queues ---------------------------------------------------------------------------- */

enum { SUBMITTERS = 4, JOBS = 1000 };

struct counted_job {
    struct device_job job;
    uint32_t *next; /* of this submitter; written on the device's thread alone */
    uint32_t number;
    bool *ordered;
};

struct submitter {
    pthread_t thread;
    struct device *device;
    struct counted_job jobs[JOBS];
    uint32_t next;
    bool ordered;
};

static void run_counted(struct device_job *job)
{
    struct counted_job *counted = (struct counted_job *)job;
    if ((*counted->next)++ != counted->number)
        *counted->ordered = false;
}

static void *submit_all(void *argument)
{
    struct submitter *submitter = argument;
    for (uint32_t i = 0; i < JOBS; i++)
        device_submit(submitter->device, &submitter->jobs[i].job);
    return NULL;
}

/* Closing drains the queues: every job has run in its submitter's order when it returns. */
static void test_queues_keep_order_and_drain(void **state)
{
    (void)state;
    struct gpu *other;
    assert_int_equal(gpu_open(NULL, &other, NULL), ERROR_NONE);
    struct submitter *submitters = mem_new_array(SUBMITTERS, sizeof *submitters);
    for (uint32_t t = 0; t < SUBMITTERS; t++) {
        struct submitter *submitter = &submitters[t];
        submitter->device = gpu_device(other, t % gpu_device_count(other));
        submitter->ordered = true;
        for (uint32_t i = 0; i < JOBS; i++)
            submitter->jobs[i] = (struct counted_job){
                {.run = run_counted}, &submitter->next, i, &submitter->ordered};
        assert_int_equal(pthread_create(&submitter->thread, NULL, submit_all, submitter), 0);
    }
    for (uint32_t t = 0; t < SUBMITTERS; t++)
        pthread_join(submitters[t].thread, NULL);
    gpu_close(other);
    for (uint32_t t = 0; t < SUBMITTERS; t++) {
        assert_int_equal(submitters[t].next, JOBS);
        assert_true(submitters[t].ordered);
    }
    mem_free(submitters);
}

static void test_every_failed_allocation_is_survived(void **state)
{
    (void)state;
    const struct gpu_options wishes = {.skip_other = true};
    struct gpu *other = NULL;
    unsigned nth = 0;
    for (; !other; nth++) {
        assert_true(nth < 200);
        mem_fail_nth(nth + 1);
        enum error_code code = gpu_open(&wishes, &other, NULL);
        mem_fail_nth(0);
        assert_int_equal(code == ERROR_NONE, other != NULL);
    }
    gpu_close(other);
    assert_true(nth > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_devices_are_named_and_the_cpu_is_last),
        cmocka_unit_test(test_every_backend_has_a_status),
        cmocka_unit_test(test_every_platforms_chain_ends_with_the_cpu),
        cmocka_unit_test(test_cpu_device),
        cmocka_unit_test(test_select),
        cmocka_unit_test(test_backend_override),
        cmocka_unit_test(test_odd_sizes_and_offsets),
        cmocka_unit_test(test_zero_bytes_and_ranges),
        cmocka_unit_test(test_stale_foreign_and_double),
        cmocka_unit_test(test_more_memory_than_there_is),
        cmocka_unit_test(test_copy_between_all_pairs),
        cmocka_unit_test(test_queues_keep_order_and_drain),
        cmocka_unit_test(test_every_failed_allocation_is_survived),
    };
    return cmocka_run_group_tests_name("gpu", tests, open_all, close_all);
}
