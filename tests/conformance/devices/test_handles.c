/* Handles of medley/gpu.h: opening, draining, closing, what is refused, and no memory. */
#include "world.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct drain {
    uint32_t n_called;
    uint32_t n_called_at_close;
    bool closed;
    struct medley_device *device;
};

static void count(struct medley_device_request *request)
{
    struct drain *drain = request->data;
    assert_false(drain->closed);
    drain->n_called++;
    struct medley_device_request late = {0};
    assert_int_equal(medley_device_synchronize(drain->device, &late, NULL),
                     MEDLEY_ERROR_INVALID); /* closing */
}

static void closed(void *data)
{
    struct drain *drain = data;
    drain->closed = true;
    drain->n_called_at_close = drain->n_called;
}

static void test_close_drains(void **state)
{
    (void)state;
    enum { EACH = 200 };
    uv_loop_t loop;
    uv_loop_init(&loop);
    struct medley_gpu *mine;
    assert_int_equal(medley_gpu_attach(&loop, all_devices, &mine, NULL), MEDLEY_ERROR_NONE);
    struct drain drain = {.device = medley_gpu_device(mine, 0)};
    uint32_t n = medley_gpu_device_count(mine);
    struct medley_device_request *requests = calloc((size_t)n * EACH, sizeof *requests);
    assert_non_null(requests);
    for (uint32_t i = 0; i < n * EACH; i++) {
        requests[i].data = &drain;
        assert_int_equal(
            medley_device_alloc(medley_gpu_device(mine, i % n), &requests[i], 1000, count),
            MEDLEY_ERROR_NONE);
    }
    medley_gpu_close(mine, closed, &drain);
    assert_false(drain.closed);
    assert_int_equal(uv_run(&loop, UV_RUN_DEFAULT), 0);
    assert_true(drain.closed);
    assert_int_equal(drain.n_called_at_close, n * EACH);
    assert_int_equal(uv_loop_close(&loop), 0);
    for (uint32_t i = 0; i < n * EACH;
         i++) { /* the buffers are the devices', which are still open */
        assert_int_equal(requests[i].error.code, MEDLEY_ERROR_NONE);
        assert_int_equal(try_free(device_at(i % n), requests[i].buffer), MEDLEY_ERROR_NONE);
    }
    free(requests);
}

/* Two handles over a simulated device that hangs in an operation: both can be closed. */
static void test_a_hang_does_not_outlive_the_handles(void **state)
{
    (void)state;
    char path[] = "/tmp/medley-hangs-XXXXXX";
    static const char text[] =
        "[stuck]\nmemory = 64MiB\ndecode = 1GB/s\nflops = 1GFLOP/s\nfail = hangs at 2s\n";
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, text, sizeof text - 1) == sizeof text - 1);
    close(fd);
    struct medley_gpu *mine, *other;
    struct medley_device_request request = {0}, stuck = {0}, behind = {0};
    struct medley_gpu_options options = {.cpu_only = true, .sim_file = path};
    assert_int_equal(medley_gpu_open(NULL, &options, &mine, &request, NULL), MEDLEY_ERROR_NONE);
    assert_int_equal(medley_device_wait(&request), MEDLEY_ERROR_NONE);
    unlink(path);
    uv_loop_t loop;
    uv_loop_init(&loop);
    assert_int_equal(medley_gpu_attach(&loop, mine, &other, NULL), MEDLEY_ERROR_NONE);
    uv_sleep(2100);
    struct medley_device *device = medley_gpu_find(mine, "sim:stuck"),
                         *same = medley_gpu_find(other, "sim:stuck");
    assert_int_equal(medley_device_synchronize(same, &stuck, NULL), MEDLEY_ERROR_NONE);
    assert_int_equal(medley_device_synchronize(device, &behind, NULL), MEDLEY_ERROR_NONE);
    struct drain drain = {0};
    medley_gpu_close(other, closed, &drain);
    uv_run(&loop, UV_RUN_NOWAIT);
    assert_false(drain.closed); /* the other handle still uses the device */
    medley_gpu_close(mine, NULL, NULL);
    assert_int_equal(uv_run(&loop, UV_RUN_DEFAULT), 0);
    assert_true(drain.closed);
    assert_int_equal(stuck.error.code, MEDLEY_ERROR_CANCELLED);
    assert_int_equal(behind.error.code, MEDLEY_ERROR_CANCELLED);
    assert_int_equal(uv_loop_close(&loop), 0);
}

/* 128 MiB to a device that takes 1.3 s for them, cancelled after 0.2 s. */
static void test_a_long_write_stops_between_pieces(void **state)
{
    (void)state;
    enum { BYTES = 128 << 20, PIECE = 16 << 20 };
    char path[] = "/tmp/medley-slow-XXXXXX";
    static const char text[] =
        "[slow]\nmemory = 256MiB\ndecode = 1GB/s\nflops = 1GFLOP/s\ncopy = 100MB/s\n";
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, text, sizeof text - 1) == sizeof text - 1);
    close(fd);
    struct medley_gpu *mine;
    struct medley_device_request request = {0};
    struct medley_gpu_options options = {.cpu_only = true, .sim_file = path};
    assert_int_equal(medley_gpu_open(NULL, &options, &mine, &request, NULL), MEDLEY_ERROR_NONE);
    assert_int_equal(medley_device_wait(&request), MEDLEY_ERROR_NONE);
    unlink(path);
    struct medley_device *device = medley_gpu_find(mine, "sim:slow");
    const struct medley_device_buffer buffer = alloc(device, BYTES);
    unsigned char *ones = malloc(BYTES), ends[2] = {0};
    assert_non_null(ones);
    memset(ones, 1, BYTES);
    assert_int_equal(try_write(device, buffer, BYTES - 1, ends, 1), MEDLEY_ERROR_NONE);
    assert_int_equal(medley_device_write(device, &request, buffer, 0, ones, BYTES, NULL),
                     MEDLEY_ERROR_NONE);
    uv_sleep(200);
    assert_int_equal(medley_device_cancel(&request), MEDLEY_ERROR_NONE);
    assert_int_equal(medley_device_cancel(&request), MEDLEY_ERROR_NONE);
    assert_int_equal(medley_device_wait(&request), MEDLEY_ERROR_CANCELLED);
    assert_non_null(strstr(request.error.text, "of 128 MiB"));
    assert_true(request.run_ns < 1100000000); /* all of it takes 1342 ms */
    print_message("# it stopped after %.0f ms\n", (double)request.run_ns * 1e-6);
    assert_int_equal(try_read(device, buffer, 0, &ends[0], 1), MEDLEY_ERROR_NONE);
    assert_int_equal(try_read(device, buffer, BYTES - 1, &ends[1], 1), MEDLEY_ERROR_NONE);
    assert_int_equal(ends[0], 1);
    assert_int_equal(ends[1], 0);
    /* one piece is not cancelled once it runs; a wrong range is told before anything is written */
    assert_int_equal(medley_device_write(device, &request, buffer, 0, ones, PIECE, NULL),
                     MEDLEY_ERROR_NONE);
    uv_sleep(50);
    assert_int_equal(medley_device_cancel(&request), MEDLEY_ERROR_BUSY);
    assert_int_equal(medley_device_wait(&request), MEDLEY_ERROR_NONE);
    assert_int_equal(try_write(device, buffer, 1, ones, BYTES), MEDLEY_ERROR_INVALID);
    assert_int_equal(try_read(device, buffer, BYTES - 1, &ends[1], 1), MEDLEY_ERROR_NONE);
    assert_int_equal(ends[1], 0);
    free(ones);
    medley_gpu_close(mine, NULL, NULL);
}

/* Opens, and closes from within the callback; leaves a buffer behind. */
static void close_in_callback(struct medley_device_request *request)
{
    struct drain *drain = request->data;
    drain->n_called++;
    if (request->error.code)
        return;
    if (drain->n_called == 1) {
        medley_device_alloc(drain->device, request, 12345, close_in_callback);
        return;
    }
    assert_int_equal(drain->n_called, 2);
}

static void test_the_last_handle_closes_the_devices(void **state)
{
    (void)state;
    uv_loop_t loop;
    uv_loop_init(&loop);
    struct medley_gpu *first, *second;
    struct medley_device_request request = {0};
    struct medley_gpu_options options = {.cpu_only = true};
    struct drain drain = {0}, drain_second = {0};
    request.data = &drain;
    assert_int_equal(medley_gpu_open(&loop, &options, &first, &request, NULL), MEDLEY_ERROR_NONE);
    assert_int_equal(medley_gpu_device_count(first), 0);                  /* not yet */
    assert_int_equal(medley_device_wait(&request), MEDLEY_ERROR_INVALID); /* it has a loop */
    assert_int_equal(uv_run(&loop, UV_RUN_DEFAULT), 0); /* a handle alone does not keep it going */
    assert_int_equal(request.error.code, MEDLEY_ERROR_NONE);
    assert_int_equal(medley_gpu_device_count(first), 1);
    assert_int_equal(medley_gpu_attach(NULL, first, &second, NULL), MEDLEY_ERROR_NONE);

    drain.device = medley_gpu_find(first, "cpu");
    assert_int_equal(medley_device_alloc(drain.device, &request, 54321, close_in_callback),
                     MEDLEY_ERROR_NONE);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(drain.n_called, 2);
    struct medley_device_buffer buffer = request.buffer;
    medley_gpu_close(first, closed, &drain);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_true(drain.closed);
    assert_int_equal(uv_loop_close(&loop), 0);

    struct medley_device_request other = {0}; /* the buffer outlives the handle that made it */
    char byte = 0;
    medley_device_read(medley_gpu_find(second, "cpu"), &other, buffer, 12344, &byte, 1, NULL);
    assert_int_equal(medley_device_wait(&other), MEDLEY_ERROR_NONE);
    medley_gpu_close(second, closed, &drain_second);
    assert_true(drain_second.closed);
}

static void test_close_while_opening(void **state)
{
    (void)state;
    uv_loop_t loop;
    uv_loop_init(&loop);
    for (int cancel = 0; cancel < 2; cancel++) {
        struct medley_gpu *mine;
        struct medley_device_request request = {0};
        struct medley_gpu_options options = {.cpu_only = true};
        struct drain drain = {0};
        assert_int_equal(medley_gpu_open(&loop, &options, &mine, &request, NULL),
                         MEDLEY_ERROR_NONE);
        enum medley_error_code answer = cancel ? medley_device_cancel(&request) : MEDLEY_ERROR_BUSY;
        medley_gpu_close(mine, closed, &drain);
        uv_run(&loop, UV_RUN_DEFAULT);
        assert_true(drain.closed);
        assert_int_equal(request.error.code,
                         answer == MEDLEY_ERROR_BUSY ? MEDLEY_ERROR_NONE : MEDLEY_ERROR_CANCELLED);
    }
    assert_int_equal(uv_loop_close(&loop), 0);
    medley_gpu_close(NULL, NULL, NULL);
}

static void test_bad_options(void **state)
{
    (void)state;
    struct medley_gpu *mine;
    struct medley_device_request request = {0};
    struct medley_gpu_options options = {.backend = "abacus"};
    struct medley_error err;
    assert_int_equal(medley_gpu_open(NULL, &options, &mine, &request, NULL), MEDLEY_ERROR_NONE);
    assert_int_equal(medley_device_wait(&request), MEDLEY_ERROR_INVALID);
    assert_non_null(strstr(request.error.text, "abacus"));
    assert_int_equal(medley_gpu_device_count(mine), 0);
    assert_int_equal(medley_gpu_rejected_count(mine), 0);
    struct medley_gpu *other;
    assert_int_equal(medley_gpu_attach(NULL, mine, &other, &err), MEDLEY_ERROR_INVALID);
    assert_null(other);
    medley_gpu_close(mine, NULL, NULL);
    options =
        (struct medley_gpu_options){.backend = "a name that is longer than any backend's name is"};
    assert_int_equal(medley_gpu_open(NULL, &options, &mine, &request, NULL), MEDLEY_ERROR_INVALID);
    assert_null(mine);
    assert_int_equal(medley_device_wait(&request), MEDLEY_ERROR_INVALID);
    options = (struct medley_gpu_options){.n_cpu_threads = 100000, .cpu_only = true};
    assert_int_equal(medley_gpu_open(NULL, &options, &mine, &request, NULL), MEDLEY_ERROR_NONE);
    assert_int_equal(medley_device_wait(&request), MEDLEY_ERROR_INVALID);
    medley_gpu_close(mine, NULL, NULL);
}

/* With a program that verifies in child processes, and with one that is not there, the devices are
 * the same. */
static void test_a_verifier_changes_nothing(void **state)
{
    (void)state;
    const char *const verifiers[] = {getenv("MEDLEY_BINARY"), "/nowhere/medley"};
    assert_non_null(verifiers[0]);
    for (int i = 0; i < 2; i++) {
        struct medley_gpu *mine;
        struct medley_device_request request = {0};
        struct medley_gpu_options options = {.cpu_only = !getenv("GGML_VK_VISIBLE_DEVICES"),
                                             .sim_file = getenv("MEDLEY_TEST_SIM"),
                                             .verifier = verifiers[i]};
        assert_int_equal(medley_gpu_open(NULL, &options, &mine, &request, NULL), MEDLEY_ERROR_NONE);
        assert_int_equal(medley_device_wait(&request), MEDLEY_ERROR_NONE);
        assert_int_equal(medley_gpu_device_count(mine), device_count());
        for (uint32_t k = 0; k < device_count(); k++)
            assert_non_null(medley_gpu_find(mine, device_id(k)));
        medley_gpu_close(mine, NULL, NULL);
    }
}

/* Every allocation of opening, attaching and using fails once. */
static void test_out_of_host_memory(void **state)
{
    (void)state;
    bool opened = false;
    for (unsigned nth = 1; !opened && nth < 500; nth++) {
        struct medley_gpu *mine = NULL;
        struct medley_device_request request = {0};
        struct medley_gpu_options options = {.cpu_only = true};
        mem_fail_nth(nth);
        enum medley_error_code code = medley_gpu_open(NULL, &options, &mine, &request, NULL);
        code = code ? code : medley_device_wait(&request);
        if (!code) {
            medley_device_alloc(medley_gpu_device(mine, 0), &request, 100, NULL);
            code = medley_device_wait(&request);
        }
        opened = code == MEDLEY_ERROR_NONE;
        assert_int_equal(opened, request.error.text[0] == 0);
        mem_fail_nth(0);
        medley_gpu_close(mine, NULL, NULL);
    }
    assert_true(opened);
    struct medley_gpu *mine;
    struct medley_error err;
    mem_fail_nth(1);
    assert_int_equal(medley_gpu_attach(NULL, all_devices, &mine, &err), MEDLEY_ERROR_NO_MEMORY);
    mem_fail_nth(0);
    assert_null(mine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_close_drains),
        cmocka_unit_test(test_a_long_write_stops_between_pieces),
        cmocka_unit_test(test_a_hang_does_not_outlive_the_handles),
        cmocka_unit_test(test_the_last_handle_closes_the_devices),
        cmocka_unit_test(test_close_while_opening),
        cmocka_unit_test(test_bad_options),
        cmocka_unit_test(test_a_verifier_changes_nothing),
        cmocka_unit_test(test_out_of_host_memory),
    };
    return cmocka_run_group_tests_name("device handles", tests, open_devices, close_devices);
}
