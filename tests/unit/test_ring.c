/* Rings of records between two threads, as if they were two processes; and ends that scribble. */
#include "pipeline/ring.h"

#include "base/bytes.h"
#include "base/limits.h"
#include "base/mem.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { RECORDS = 3000, RECORD_MAX = 200000 };

struct pair {
    void *memory;
    struct ring writer, reader;
};

static struct pair pair_new(void)
{
    struct pair pair = {0};
    assert_int_equal(posix_memalign(&pair.memory, 4096, RING_HEAD_BYTES + RING_BYTES_MIN), 0);
    memset(pair.memory, 0, RING_HEAD_BYTES + RING_BYTES_MIN);
    ring_init(&pair.writer, pair.memory, RING_BYTES_MIN);
    ring_init(&pair.reader, pair.memory, RING_BYTES_MIN);
    return pair;
}

static size_t size_of(uint32_t i)
{
    return 1 + (size_t)i * 2654435761u % (i % 10 ? 500 : RECORD_MAX);
}

static void *write_all(void *arg)
{
    unsigned char *bytes = mem_new(RECORD_MAX + 1);
    for (uint32_t i = 0; i < RECORDS; i++) {
        memset(bytes, (int)(i & 0xff), size_of(i));
        assert_int_equal(ring_write(arg, 1 + i % 3, bytes, size_of(i), NULL), ERROR_NONE);
    }
    mem_free(bytes);
    return NULL;
}

static void everything_arrives_in_order(void **state)
{
    (void)state;
    struct pair pair = pair_new();
    struct buffer record = {0};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, write_all, &pair.writer), 0);
    for (uint32_t i = 0; i < RECORDS;) {
        uint32_t kind;
        const uint32_t bell = ring_bell(&pair.reader);
        assert_int_equal(ring_read(&pair.reader, &kind, &record, NULL), ERROR_NONE);
        if (!kind) {
            ring_wait(&pair.reader, bell, i % 2 ? 1000 : 0, 1000);
            continue;
        }
        assert_int_equal(kind, 1 + i % 3);
        assert_int_equal(record.size, size_of(i));
        assert_int_equal((unsigned char)record.data[0], i & 0xff);
        assert_int_equal((unsigned char)record.data[record.size - 1], i & 0xff);
        i++;
    }
    pthread_join(thread, NULL);
    buffer_deinit(&record);
    free(pair.memory);
}

static void sizes_have_limits(void **state)
{
    (void)state;
    struct pair pair = pair_new();
    struct error err = {0};
    static unsigned char bytes[RING_BYTES_MIN];
    assert_int_equal(ring_bytes_for(1), RING_BYTES_MIN);
    assert_true(ring_bytes_for(RING_BYTES_MIN) >= 2 * RING_BYTES_MIN);
    assert_int_equal(ring_bytes_for(LIMIT_RING_BYTES), 0);
    assert_int_equal(ring_write(&pair.writer, 1, bytes, sizeof bytes, &err), ERROR_INVALID);
    assert_int_equal(ring_write(&pair.writer, 1, bytes, RING_BYTES_MIN / 2 - 16, &err), ERROR_NONE);
    assert_int_equal(ring_write(&pair.writer, 1, bytes, RING_BYTES_MIN / 2 - 16, &err), ERROR_NONE);
    assert_int_equal(ring_write(&pair.writer, 1, bytes, 1, &err), ERROR_BUSY); /* nobody reads */
    free(pair.memory);
}

static void *write_two(void *arg)
{
    static const unsigned char bytes[RING_BYTES_MIN / 2 - RING_RECORD_BYTES];
    struct timespec pause = {.tv_nsec = 50000000}; /* until the reader sleeps */
    nanosleep(&pause, NULL);
    assert_int_equal(ring_write(arg, 1, bytes, 300000, NULL), ERROR_NONE);
    nanosleep(&pause, NULL);
    assert_int_equal(ring_write(arg, 2, bytes, sizeof bytes, NULL), ERROR_NONE);
    return NULL;
}

/* A ring that is begun anew far from its start: neither end waits for the other. */
static void a_reader_that_sleeps_is_woken(void **state)
{
    (void)state;
    struct pair pair = pair_new();
    struct buffer record = {0};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, write_two, &pair.writer), 0);
    for (uint32_t kind = 0; kind < 2;) {
        const uint32_t bell = ring_bell(&pair.reader);
        uint32_t last = 0;
        assert_int_equal(ring_read(&pair.reader, &last, &record, NULL), ERROR_NONE);
        if (last)
            assert_int_equal(last, ++kind);
        else
            ring_wait(&pair.reader, bell, 0,
                      4 * LIMIT_RING_WAIT_MS); /* longer than the writer waits for room */
    }
    pthread_join(thread, NULL);
    buffer_deinit(&record);
    free(pair.memory);
}

/* Whatever stands in the shared memory: records are whole or refused, and nothing outside is
 * touched. */
static void rubbish_is_refused_or_read(void **state)
{
    (void)state;
    struct buffer record = {0};
    struct pair pair = pair_new();
    unsigned char *memory = pair.memory;
    uint32_t n_refused = 0;
    for (unsigned round = 1; round <= 300; round++) {
        unsigned seed = round;
        memset(memory, 0, RING_HEAD_BYTES + 4096);
        ring_init(&pair.writer, memory, RING_BYTES_MIN);
        ring_init(&pair.reader, memory, RING_BYTES_MIN);
        for (int i = 0; i < 5; i++)
            assert_int_equal(ring_write(&pair.writer, 1, "some record or other", 20, NULL),
                             ERROR_NONE);
        for (int i = 0; i < 8; i++)
            memory[(unsigned)rand_r(&seed) % 2 ? (unsigned)rand_r(&seed) % 512
                                               : RING_HEAD_BYTES + (unsigned)rand_r(&seed) % 240] =
                (unsigned char)rand_r(&seed);
        uint32_t kind = 1;
        enum error_code code = ERROR_NONE;
        for (int i = 0; i < 100 && kind && !code; i++)
            code = ring_read(&pair.reader, &kind, &record, NULL);
        n_refused += code == ERROR_INVALID;
    }
    assert_true(n_refused > 50);
    buffer_deinit(&record);
    free(pair.memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_arrives_in_order),
        cmocka_unit_test(sizes_have_limits),
        cmocka_unit_test(a_reader_that_sleeps_is_woken),
        cmocka_unit_test(rubbish_is_refused_or_read),
    };
    return cmocka_run_group_tests_name("ring", tests, NULL, NULL);
}
