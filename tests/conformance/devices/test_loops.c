/* The asynchronous side of medley/gpu.h: order, cancelling, limits, several loops at once. */
#include "world.h"

#include "base/random.h"

#include <stdlib.h>
#include <string.h>

/* ---- one loop --------------------------------------------------------------------------- */

enum { MANY = 64 };

/* Requests that note when they were called back. */
struct log {
    struct medley_device_request requests[MEDLEY_DEVICE_REQUESTS_MAX];
    uint32_t order[MEDLEY_DEVICE_REQUESTS_MAX];
    uint32_t n_called;
};

static struct log *log_new(void)
{
    struct log *log = calloc(1, sizeof *log);
    assert_non_null(log);
    for (uint32_t i = 0; i < MEDLEY_DEVICE_REQUESTS_MAX; i++)
        log->requests[i].data = log;
    return log;
}

static void note(struct medley_device_request *request)
{
    struct log *log = request->data;
    log->order[log->n_called++] = (uint32_t)(request - log->requests);
}

static void test_callbacks_come_in_the_order_of_submission(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < device_count(); i++) {
        struct log *log = log_new();
        struct medley_device_buffer buffer = alloc(device_at(i), MANY * 4);
        uint32_t values[MANY], back[MANY];
        for (uint32_t k = 0; k < MANY; k++) { /* all to the same place: the last one stays */
            values[k] = 1000 + k;
            assert_int_equal(medley_device_write(device_at(i), &log->requests[2 * k], buffer, 0,
                                                 &values[k], 4, note),
                             MEDLEY_ERROR_NONE);
            assert_int_equal(medley_device_read(device_at(i), &log->requests[2 * k + 1], buffer, 0,
                                                &back[k], 4, note),
                             MEDLEY_ERROR_NONE);
            assert_true(log->n_called == 0); /* never from within a submit */
        }
        assert_int_equal(medley_device_wait(&log->requests[2 * MANY - 1]), MEDLEY_ERROR_NONE);
        assert_int_equal(log->n_called, 2 * MANY);
        for (uint32_t k = 0; k < 2 * MANY; k++)
            assert_int_equal(log->order[k], k);
        assert_memory_equal(back, values, sizeof back);
        assert_int_equal(try_free(device_at(i), buffer), MEDLEY_ERROR_NONE);
        free(log);
    }
}

static void test_cancelled_requests_do_not_run_and_call_back_in_turn(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < device_count(); i++) {
        struct log *log = log_new();
        struct medley_device_buffer buffer = alloc(device_at(i), MANY);
        unsigned char ones[MANY], back[MANY], zeros[MANY] = {0};
        memset(ones, 1, sizeof ones);
        assert_int_equal(try_write(device_at(i), buffer, 0, zeros, MANY), MEDLEY_ERROR_NONE);
        struct hold *hold = hold_begin(device_at(i));
        for (uint32_t k = 0; k < MANY; k++)
            assert_int_equal(
                medley_device_write(device_at(i), &log->requests[k], buffer, k, &ones[k], 1, note),
                MEDLEY_ERROR_NONE);
        for (uint32_t k = 0; k < MANY; k += 3) {
            assert_int_equal(medley_device_cancel(&log->requests[k]), MEDLEY_ERROR_NONE);
            assert_int_equal(medley_device_cancel(&log->requests[k]),
                             MEDLEY_ERROR_NONE); /* once more is fine */
        }
        assert_int_equal(log->n_called, 0);
        hold_end(hold);
        medley_device_wait(&log->requests[MANY - 1]);
        assert_int_equal(log->n_called, MANY);
        assert_int_equal(try_read(device_at(i), buffer, 0, back, MANY), MEDLEY_ERROR_NONE);
        for (uint32_t k = 0; k < MANY; k++) {
            assert_int_equal(log->order[k], k);
            assert_int_equal(log->requests[k].error.code,
                             k % 3 ? MEDLEY_ERROR_NONE : MEDLEY_ERROR_CANCELLED);
            assert_int_equal(back[k], k % 3 ? 1 : 0);
            assert_int_equal(medley_device_cancel(&log->requests[k]), MEDLEY_ERROR_NOT_FOUND);
        }
        assert_int_equal(try_free(device_at(i), buffer), MEDLEY_ERROR_NONE);
        free(log);
    }
}

/* Whatever the moment: what was told "too late" has run, what was told "yes" has not. */
static void test_cancel_in_flight(void **state)
{
    (void)state;
    enum { SIZE = 8 << 20, TRIES = 30 };
    unsigned char *bytes = malloc(SIZE);
    assert_non_null(bytes);
    for (uint32_t i = 0; i < device_count(); i++) {
        struct medley_device_buffer buffer = alloc(device_at(i), SIZE);
        unsigned n_late = 0;
        for (unsigned k = 0; k < TRIES; k++) {
            unsigned char before = (unsigned char)(2 * k), after = (unsigned char)(2 * k + 1),
                          back = 0;
            assert_int_equal(try_write(device_at(i), buffer, SIZE - 1, &before, 1),
                             MEDLEY_ERROR_NONE);
            bytes[SIZE - 1] = after;
            struct medley_device_request request = {0};
            assert_int_equal(
                medley_device_write(device_at(i), &request, buffer, 0, bytes, SIZE, NULL),
                MEDLEY_ERROR_NONE);
            for (uint64_t start_ns = uv_hrtime(); uv_hrtime() - start_ns < k * 20000u;)
                ;
            enum medley_error_code answer = medley_device_cancel(&request);
            assert_true(answer == MEDLEY_ERROR_NONE || answer == MEDLEY_ERROR_BUSY);
            n_late += answer == MEDLEY_ERROR_BUSY;
            assert_int_equal(medley_device_wait(&request), answer == MEDLEY_ERROR_BUSY
                                                               ? MEDLEY_ERROR_NONE
                                                               : MEDLEY_ERROR_CANCELLED);
            assert_int_equal(try_read(device_at(i), buffer, SIZE - 1, &back, 1), MEDLEY_ERROR_NONE);
            assert_int_equal(back, answer == MEDLEY_ERROR_BUSY ? after : before);
        }
        print_message("# %s: %u of %u came too late\n", device_id(i), n_late, TRIES);
        assert_int_equal(try_free(device_at(i), buffer), MEDLEY_ERROR_NONE);
    }
    free(bytes);
}

static void test_one_request_too_many_is_busy(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < device_count(); i++) {
        struct log *log = log_new();
        struct hold *hold = hold_begin(device_at(i));
        for (uint32_t k = 0; k < MEDLEY_DEVICE_REQUESTS_MAX; k++)
            assert_int_equal(medley_device_synchronize(device_at(i), &log->requests[k], note),
                             MEDLEY_ERROR_NONE);
        struct medley_device_request late = {0};
        assert_int_equal(medley_device_synchronize(device_at(i), &late, note), MEDLEY_ERROR_BUSY);
        assert_non_null(strstr(late.error.text, device_id(i)));
        assert_non_null(strstr(late.error.text, "1024"));
        assert_int_equal(medley_device_wait(&late), MEDLEY_ERROR_BUSY);
        for (uint32_t k = 0; k < device_count(); k++) { /* the others are not full */
            if (k != i)
                assert_int_equal(medley_device_synchronize(device_at(k), &late, NULL),
                                 MEDLEY_ERROR_NONE);
            medley_device_wait(&late);
        }
        /* A request that is in flight cannot be submitted once more. */
        assert_int_equal(medley_device_synchronize(device_at(i), &log->requests[0], note),
                         MEDLEY_ERROR_INVALID);
        hold_end(hold);
        medley_device_wait(&log->requests[MEDLEY_DEVICE_REQUESTS_MAX - 1]);
        assert_int_equal(log->n_called, MEDLEY_DEVICE_REQUESTS_MAX);
        assert_int_equal(medley_device_synchronize(device_at(i), &late, NULL), MEDLEY_ERROR_NONE);
        assert_int_equal(medley_device_wait(&late), MEDLEY_ERROR_NONE);
        free(log);
    }
}

/* ---- nothing blocks ---------------------------------------------------------------------- */

static void tick(uv_timer_t *timer)
{
    uint32_t *n_ticks = timer->data;
    if (++*n_ticks == 20)
        uv_close((uv_handle_t *)timer, NULL);
}

/* While a device hangs in an operation: every submit answers, the loop runs, the other devices
 * work. */
static void test_a_busy_device_blocks_neither_loop_nor_devices(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < device_count(); i++) {
        uv_loop_t loop;
        uv_loop_init(&loop);
        struct medley_gpu *mine;
        assert_int_equal(medley_gpu_attach(&loop, all_devices, &mine, NULL), MEDLEY_ERROR_NONE);
        struct medley_device *busy = medley_gpu_device(mine, i);
        struct medley_device_buffer zero = {0};
        struct hold *hold = hold_begin(device_at(i));
        struct log *log = log_new();
        struct medley_device_request *r = log->requests;
        char byte = 0;
        assert_int_equal(medley_device_alloc(busy, r++, 1, note), MEDLEY_ERROR_NONE);
        assert_int_equal(medley_device_free(busy, r++, zero, note), MEDLEY_ERROR_NONE);
        assert_int_equal(medley_device_write(busy, r++, zero, 0, &byte, 1, note),
                         MEDLEY_ERROR_NONE);
        assert_int_equal(medley_device_read(busy, r++, zero, 0, &byte, 1, note), MEDLEY_ERROR_NONE);
        assert_int_equal(medley_device_copy(busy, r++, zero, 0, busy, zero, 0, 1, note),
                         MEDLEY_ERROR_NONE);
        assert_int_equal(medley_device_synchronize(busy, r++, note), MEDLEY_ERROR_NONE);
        assert_int_equal(medley_device_memory(busy, r++, note), MEDLEY_ERROR_NONE);
        assert_int_equal(medley_device_temperature_mc(busy, r++, note), MEDLEY_ERROR_NONE);
        assert_int_equal(medley_device_power_mw(busy, r++, note), MEDLEY_ERROR_NONE);
        assert_int_equal(medley_device_clock_mhz(busy, r++, note), MEDLEY_ERROR_NONE);
        const uint32_t n_submitted = (uint32_t)(r - log->requests);
        uint32_t n_ticks = 0;
        uv_timer_t timer;
        uv_timer_init(&loop, &timer);
        timer.data = &n_ticks;
        uv_timer_start(&timer, tick, 1, 1);
        while (n_ticks < 20)
            uv_run(&loop, UV_RUN_ONCE);
        assert_int_equal(log->n_called, 0);
        for (uint32_t k = 0; k < device_count(); k++) {
            if (k != i)
                assert_int_equal(try_free(device_at(k), alloc(device_at(k), 100)),
                                 MEDLEY_ERROR_NONE);
        }
        hold_end(hold);
        medley_gpu_close(mine, NULL, NULL);
        assert_int_equal(uv_run(&loop, UV_RUN_DEFAULT), 0);
        assert_int_equal(log->n_called, n_submitted);
        assert_int_equal(uv_loop_close(&loop), 0);
        assert_int_equal(log->requests[0].error.code, MEDLEY_ERROR_NONE);
        assert_int_equal(log->requests[1].error.code, MEDLEY_ERROR_INVALID);
        assert_int_equal(try_free(device_at(i), log->requests[0].buffer), MEDLEY_ERROR_NONE);
        free(log);
    }
}

/* ---- eight loops at once ------------------------------------------------------------------ */

enum { N_LOOPS = 8, N_LANES = 4, OPERATIONS_A_LOOP = 1250, LANE_BYTES = 48 * 1024 };

/* A lane goes round and round: allocate on one device, write, copy to another, read, compare, free.
 * Now and then it cancels what it has just submitted, and goes on as the answer says. */
enum station { ALLOC_A, ALLOC_B, WRITE, COPY, READ, FREE_A, FREE_B, N_STATIONS };

struct lane {
    struct medley_device_request request;
    struct party *party;
    uint64_t seed, counter;
    enum station station;
    struct medley_device *a, *b;
    struct medley_device_buffer buffer_a, buffer_b;
    size_t size;
    bool moved; /* the bytes went all the way: what is read must be what was sent */
    unsigned char *sent, *received;
};

struct party {
    uv_thread_t thread;
    struct lane lanes[N_LANES];
    struct medley_gpu *gpu;
    uint32_t index;
    uint32_t n_done, n_cancelled, n_active, n_wrong;
    bool closed;
};

static void lane_step(struct medley_device_request *request);

static void lane_begin(struct lane *lane)
{
    uint32_t n = medley_gpu_device_count(lane->party->gpu);
    lane->station = ALLOC_A;
    lane->a =
        medley_gpu_device(lane->party->gpu, (uint32_t)(random_at(lane->seed, lane->counter++) % n));
    lane->b =
        medley_gpu_device(lane->party->gpu, (uint32_t)(random_at(lane->seed, lane->counter++) % n));
    lane->size = 1 + random_at(lane->seed, lane->counter++) % LANE_BYTES;
    lane->moved = true;
    fill(lane->sent, lane->size, lane->seed + lane->counter);
    memset(lane->received, 0, lane->size);
}

static enum medley_error_code lane_submit(struct lane *lane)
{
    struct medley_device_request *request = &lane->request;
    switch (lane->station) {
    case ALLOC_A:
        return medley_device_alloc(lane->a, request, lane->size, lane_step);
    case ALLOC_B:
        return medley_device_alloc(lane->b, request, lane->size, lane_step);
    case WRITE:
        return medley_device_write(lane->a, request, lane->buffer_a, 0, lane->sent, lane->size,
                                   lane_step);
    case COPY:
        return medley_device_copy(lane->a, request, lane->buffer_a, 0, lane->b, lane->buffer_b, 0,
                                  lane->size, lane_step);
    case READ:
        return medley_device_read(lane->b, request, lane->buffer_b, 0, lane->received, lane->size,
                                  lane_step);
    case FREE_A:
        return medley_device_free(lane->a, request, lane->buffer_a, lane_step);
    case FREE_B:
        return medley_device_free(lane->b, request, lane->buffer_b, lane_step);
    case N_STATIONS:
        break;
    }
    return MEDLEY_ERROR_INTERNAL;
}

static void party_closed(void *data)
{
    ((struct party *)data)->closed = true;
}

static void lane_go_on(struct lane *lane)
{
    struct party *party = lane->party;
    if (lane->station == N_STATIONS) {
        if (lane->moved && memcmp(lane->sent, lane->received, lane->size) != 0)
            party->n_wrong++;
        if (party->n_done >= OPERATIONS_A_LOOP) {
            if (--party->n_active == 0)
                medley_gpu_close(party->gpu, party_closed, party);
            return;
        }
        lane_begin(lane);
    }
    if (lane_submit(lane))
        party->n_wrong++;
    else if (lane->station >= WRITE && lane->station <= READ &&
             random_at(lane->seed, lane->counter++) % 16 == 0)
        medley_device_cancel(&lane->request);
}

static void lane_step(struct medley_device_request *request)
{
    struct lane *lane = request->data;
    struct party *party = lane->party;
    party->n_done++;
    if (request->error.code == MEDLEY_ERROR_CANCELLED) {
        party->n_cancelled++;
        lane->moved = false;
    } else if (request->error.code) {
        party->n_wrong++;
    }
    if (lane->station == ALLOC_A)
        lane->buffer_a = request->buffer;
    if (lane->station == ALLOC_B)
        lane->buffer_b = request->buffer;
    lane->station++;
    lane_go_on(lane);
}

static void party_run(void *data)
{
    struct party *party = data;
    uv_loop_t loop;
    uv_loop_init(&loop);
    if (medley_gpu_attach(&loop, all_devices, &party->gpu, NULL)) {
        party->n_wrong++;
        return;
    }
    party->n_active = N_LANES;
    for (uint32_t i = 0; i < N_LANES; i++) {
        struct lane *lane = &party->lanes[i];
        *lane = (struct lane){.party = party, .seed = party->index * 100 + i};
        lane->sent = malloc(LANE_BYTES);
        lane->received = malloc(LANE_BYTES);
        lane->request.data = lane;
        lane_begin(lane);
        lane_go_on(lane);
    }
    uv_run(&loop, UV_RUN_DEFAULT);
    party->n_wrong += uv_loop_close(&loop) != 0;
    for (uint32_t i = 0; i < N_LANES; i++) {
        free(party->lanes[i].sent);
        free(party->lanes[i].received);
    }
}

static void test_ten_thousand_operations_from_eight_loops(void **state)
{
    (void)state;
    struct party *parties = calloc(N_LOOPS, sizeof *parties);
    assert_non_null(parties);
    uint64_t start_ns = uv_hrtime();
    for (uint32_t i = 0; i < N_LOOPS; i++) {
        parties[i].index = i;
        assert_int_equal(uv_thread_create(&parties[i].thread, party_run, &parties[i]), 0);
    }
    uint32_t n_done = 0, n_cancelled = 0;
    for (uint32_t i = 0; i < N_LOOPS; i++) {
        uv_thread_join(&parties[i].thread);
        assert_int_equal(parties[i].n_wrong, 0);
        assert_true(parties[i].closed);
        n_done += parties[i].n_done;
        n_cancelled += parties[i].n_cancelled;
    }
    print_message("# %u operations, %u of them cancelled, in %.2f s\n", n_done, n_cancelled,
                  (double)(uv_hrtime() - start_ns) * 1e-9);
    assert_true(n_done >= 10000);
    free(parties);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_callbacks_come_in_the_order_of_submission),
        cmocka_unit_test(test_cancelled_requests_do_not_run_and_call_back_in_turn),
        cmocka_unit_test(test_cancel_in_flight),
        cmocka_unit_test(test_one_request_too_many_is_busy),
        cmocka_unit_test(test_a_busy_device_blocks_neither_loop_nor_devices),
        cmocka_unit_test(test_ten_thousand_operations_from_eight_loops),
    };
    return cmocka_run_group_tests_name("device loops", tests, open_devices, close_devices);
}
