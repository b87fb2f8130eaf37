/* Messages about KV caches from other nodes: any bytes. What is read lies within the message and
 * the limits, and says the same after it has been written again. */
#include "fuzz.h"

#include "pipeline/cache_wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void write(const struct cache_message *message, struct buffer *out)
{
    switch (message->kind) {
    case CACHE_OFFER:
        cache_write_offer(&message->route, &message->offer, out);
        break;
    case CACHE_ROWS:
        cache_write_rows(&message->route, &message->rows.run, message->rows.row_bytes, out);
        buffer_append(out, message->rows.bytes, message->rows.run.n_rows * message->rows.row_bytes);
        break;
    case CACHE_TAKEN:
        cache_write_taken(&message->route, out);
        break;
    case CACHE_DONE:
        cache_write_done(&message->route, message->has_all, out);
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct cache_message message;
    struct error err = {0};
    struct buffer again = {0};
    if (cache_read(data, size, &message, &err)) {
        FUZZ_CHECK(err.text[0]);
        return 0;
    }
    for (uint32_t i = 0; i < message.offer.n_slots; i++) {
        const unsigned char *tokens = message.offer.slots[i].tokens;
        FUZZ_CHECK(tokens >= data &&
                   tokens + 4 * (size_t)message.offer.slots[i].n_tokens <= data + size);
    }
    write(&message, &again);
    FUZZ_CHECK(!again.failed && again.size == size && memcmp(again.data, data, size) == 0);
    buffer_deinit(&again);
    return 0;
}
