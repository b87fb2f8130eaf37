/* Frames of a replica's messages from several members: any bytes. Each has its sender in a byte and
 * its length in two before it. Holds: a message that comes out is as large as was said, within the
 * limit, and was put together from one sender's frames alone; what is cut anew and joined is the
 * same. */
#include "fuzz.h"

#include "agreement/pieces.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check_again(const uint8_t *message, size_t size)
{
    struct pieces pieces = {0};
    struct buffer frame = {0};
    struct pieces_cut cut = {
        .frame_bytes_max = 14 + (uint32_t)(size % 50), .bytes = message, .size = size};
    const uint8_t *again = NULL;
    size_t again_size = 0;
    while (pieces_next(&cut, &frame)) {
        FUZZ_CHECK(!again && frame.size <= cut.frame_bytes_max);
        FUZZ_CHECK(
            !pieces_take(&pieces, 1, (uint8_t *)frame.data, frame.size, &again, &again_size, NULL));
    }
    FUZZ_CHECK(again && again_size == size && memcmp(again, message, size) == 0);
    buffer_deinit(&frame);
    pieces_deinit(&pieces);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pieces pieces = {0};
    size_t taken[8] = {0}; /* bytes from each sender */
    for (size_t at = 0; at + 3 <= size;) {
        const size_t from = data[at] % 8, length = (size_t)data[at + 1] | (size_t)data[at + 2] << 8;
        const size_t n = length < size - at - 3 ? length : size - at - 3;
        const uint8_t *message;
        size_t message_size;
        struct error err;
        taken[from] += n;
        const enum error_code code =
            pieces_take(&pieces, from + 1, data + at + 3, n, &message, &message_size, &err);
        FUZZ_CHECK(!code || (code == ERROR_INVALID && err.text[0] && !message));
        if (message) {
            FUZZ_CHECK(message_size > 0 && message_size <= taken[from]);
            check_again(message, message_size);
        }
        at += 3 + n;
    }
    pieces_deinit(&pieces);
    return 0;
}
