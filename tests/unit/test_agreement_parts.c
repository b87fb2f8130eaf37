/* The pure parts of an agreement: messages in pieces, and the nonces of events. */
#include "agreement/nonces.h"
#include "agreement/pieces.h"
#include "base/bytes.h"
#include "base/mem.h"
#include "base/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct error err;
static uint8_t bytes[5000];

static void fill(void)
{
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)random_at(3, i);
}

/* ---- pieces ---- */

static void test_cut_and_joined(void **state)
{
    const size_t sizes[] = {1, 2, 99, 100, 101, 187, 188, 174, 175, 4999, 5000};
    struct pieces pieces = {0};
    struct buffer frame = {0};
    fill();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct pieces_cut cut = {
            .number = (uint32_t)i, .frame_bytes_max = 100, .bytes = bytes, .size = sizes[i]};
        const uint8_t *message = NULL;
        size_t size, n = 0;
        while (pieces_next(&cut, &frame)) {
            assert_true(frame.size <= 100 && !message);
            assert_int_equal(
                pieces_take(&pieces, 5, (uint8_t *)frame.data, frame.size, &message, &size, &err),
                ERROR_NONE);
            n++;
        }
        assert_non_null(message);
        assert_int_equal(size, sizes[i]);
        assert_memory_equal(message, bytes, size);
        assert_int_equal(n, sizes[i] < 100 ? 1 : (sizes[i] + 86) / 87);
    }
    buffer_deinit(&frame);
    pieces_deinit(&pieces);
}

static const uint8_t *message;
static size_t message_size;

/* A piece as it would come; the message is made of bytes[0 … total). */
static enum error_code piece(struct pieces *pieces, uint64_t from, uint32_t number, uint32_t total,
                             uint32_t offset, uint32_t n)
{
    struct buffer frame = {0};
    bytes_put(&frame, 1, 1);
    bytes_put(&frame, number, 4);
    bytes_put(&frame, total, 4);
    bytes_put(&frame, offset, 4);
    buffer_append(&frame, bytes + offset % 1000, n);
    const enum error_code code =
        pieces_take(pieces, from, (uint8_t *)frame.data, frame.size, &message, &message_size, &err);
    buffer_deinit(&frame);
    return code;
}

static void test_not_mixed(void **state)
{
    struct pieces pieces = {0};
    fill();
    /* A piece is missing: the rest is dropped, the next message is whole again. */
    assert_int_equal(piece(&pieces, 5, 1, 300, 0, 100), ERROR_NONE);
    assert_int_equal(piece(&pieces, 5, 1, 300, 200, 100), ERROR_NONE);
    assert_null(message);
    assert_int_equal(piece(&pieces, 5, 1, 300, 100, 100), ERROR_NONE);
    assert_null(message);
    /* A newer message drops an older one, in pieces or whole; of others it does not. */
    assert_int_equal(piece(&pieces, 6, 1, 200, 0, 100), ERROR_NONE);
    assert_int_equal(piece(&pieces, 5, 2, 200, 0, 100), ERROR_NONE);
    assert_int_equal(piece(&pieces, 5, 3, 200, 0, 100), ERROR_NONE);
    assert_int_equal(piece(&pieces, 5, 2, 200, 100, 100), ERROR_NONE);
    assert_null(message);
    assert_int_equal(piece(&pieces, 5, 4, 200, 0, 100), ERROR_NONE);
    assert_int_equal(
        pieces_take(&pieces, 5, (const uint8_t *)"\0heartbeat", 10, &message, &message_size, &err),
        ERROR_NONE);
    assert_int_equal(message_size, 9);
    assert_int_equal(piece(&pieces, 5, 4, 200, 100, 100), ERROR_NONE);
    assert_null(message);
    assert_int_equal(piece(&pieces, 6, 1, 200, 100, 100), ERROR_NONE);
    assert_int_equal(message_size, 200);
    assert_memory_equal(message, bytes, 200);
    /* Another total of the same number. */
    assert_int_equal(piece(&pieces, 6, 2, 200, 0, 100), ERROR_NONE);
    assert_int_equal(piece(&pieces, 6, 2, 201, 100, 100), ERROR_NONE);
    assert_null(message);
    pieces_deinit(&pieces);
}

static void test_no_pieces(void **state)
{
    struct pieces pieces = {0};
    assert_int_equal(piece(&pieces, 5, 1, 100, 0, 101), ERROR_INVALID); /* more than there is */
    assert_int_equal(piece(&pieces, 5, 1, 100, 60, 41), ERROR_INVALID);
    assert_int_equal(piece(&pieces, 5, 1, 100, 101, 1), ERROR_INVALID);
    assert_int_equal(piece(&pieces, 5, 1, 100, 0, 0), ERROR_INVALID); /* nothing */
    assert_int_equal(piece(&pieces, 5, 1, LIMIT_CLUSTER_MESSAGE_BYTES + 1, 0, 100), ERROR_INVALID);
    assert_int_equal(piece(&pieces, 5, 1, LIMIT_CLUSTER_MESSAGE_BYTES, 0, 100), ERROR_NONE);
    static const char *const frames[] = {"", "\0", "\1", "\1\0\0\0\0\0\0\0\0\0\0\0\0", "\2xxx"};
    static const size_t sizes[] = {0, 1, 1, 13, 4};
    for (int i = 0; i < 5; i++)
        assert_int_equal(pieces_take(&pieces, 5, (const uint8_t *)frames[i], sizes[i], &message,
                                     &message_size, &err),
                         ERROR_INVALID);
    pieces_deinit(&pieces);
}

static void test_many_senders(void **state)
{
    struct pieces pieces = {0};
    fill();
    for (uint64_t from = 1; from <= LIMIT_PIECES_SENDERS; from++)
        assert_int_equal(piece(&pieces, from, 1, 300, 0, 100), ERROR_NONE);
    assert_int_equal(piece(&pieces, 1, 1, 300, 100, 100),
                     ERROR_NONE); /* now 2 has waited longest */
    assert_int_equal(piece(&pieces, 77, 1, 200, 0, 100), ERROR_NONE);
    for (uint64_t from = 1; from <= LIMIT_PIECES_SENDERS; from++) {
        const uint32_t at = from == 1 ? 200 : 100;
        assert_int_equal(piece(&pieces, from, 1, 300, at, 300 - at), ERROR_NONE);
        assert_true(!message == (from == 2));
    }
    assert_int_equal(piece(&pieces, 77, 1, 200, 100, 100), ERROR_NONE);
    assert_int_equal(message_size, 200);
    pieces_deinit(&pieces);
}

static void test_no_memory(void **state)
{
    struct pieces pieces = {0};
    uint8_t frame[113] = {1, 0, 0, 0, 0, 200};
    mem_fail_nth(1);
    assert_int_equal(pieces_take(&pieces, 9, frame, sizeof frame, &message, &message_size, &err),
                     ERROR_NO_MEMORY);
    mem_fail_nth(0);
    frame[9] = 100;
    assert_int_equal(pieces_take(&pieces, 9, frame, sizeof frame, &message, &message_size, &err),
                     ERROR_NONE);
    assert_null(message);
    pieces_deinit(&pieces);
}

/* ---- nonces ---- */

static void test_nonces(void **state)
{
    static struct nonces nonces;
    assert_false(nonces_has(&nonces, 1));
    nonces_applied(&nonces, 0);
    assert_false(nonces_has(&nonces, 0));
    nonces_submitted(&nonces, 1);
    nonces_submitted(&nonces, 2);
    nonces_applied(&nonces, 1);
    nonces_applied(&nonces, 1);
    assert_true(nonces_has(&nonces, 1) && nonces_has(&nonces, 2));
    nonces_lost(&nonces);
    assert_true(nonces_has(&nonces, 1) && !nonces_has(&nonces, 2) && nonces.n_open == 0);

    /* What is open stays while the rest goes round. */
    uint64_t n = 100;
    nonces_submitted(&nonces, 50);
    for (int i = 0; i < 2 * LIMIT_PROPOSAL_NONCES; i++)
        nonces_applied(&nonces, n++);
    assert_true(nonces_has(&nonces, 50) && !nonces_has(&nonces, 1) && !nonces_has(&nonces, 100));
    assert_true(nonces_has(&nonces, n - 1) && nonces_has(&nonces, n - LIMIT_PROPOSAL_NONCES + 1));
    uint32_t open = 1;
    for (; nonces_has_room(&nonces); open++)
        nonces_submitted(&nonces, n++);
    assert_int_equal(open, LIMIT_PROPOSAL_NONCES / 2);
    for (int i = 0; i < LIMIT_PROPOSAL_NONCES;
         i++) /* there is always a place for what was applied */
        nonces_applied(&nonces, n++);
    assert_true(nonces_has(&nonces, 50) && nonces_has(&nonces, n - 1));
    nonces_clear(&nonces);
    assert_false(nonces_has(&nonces, 50));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cut_and_joined), cmocka_unit_test(test_not_mixed),
        cmocka_unit_test(test_no_pieces),      cmocka_unit_test(test_many_senders),
        cmocka_unit_test(test_no_memory),      cmocka_unit_test(test_nonces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
