/* A replica's messages: any bytes. What is decoded and encoded is the same when that is done again;
 * and a follower, a leader and a node that waits to be taken in survive it, whatever it says. */
#include "fuzz.h"

#include "cluster/replica.h"
#include "cluster/wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check_codec(const uint8_t *data, size_t size)
{
    struct wire_message message, again;
    struct buffer first = {0}, second = {0};
    struct error err = {0};
    if (wire_decode(data, size, &message, &err)) {
        FUZZ_CHECK(err.text[0]);
        return;
    }
    if (message.type != WIRE_UNKNOWN) {
        wire_encode(&first, &message);
        FUZZ_CHECK(!wire_decode((const uint8_t *)first.data, first.size, &again, &err));
        wire_encode(&second, &again);
        FUZZ_CHECK(first.size == second.size && memcmp(first.data, second.data, first.size) == 0);
        wire_clear(&again);
    }
    wire_clear(&message);
    buffer_deinit(&first);
    buffer_deinit(&second);
}

/* Effects are done at once; what is sent goes nowhere. */
static void carry_out(struct replica *replica)
{
    struct replica_effect effect;
    while (replica_next(replica, &effect)) {
        if (effect.type == REPLICA_WRITE)
            replica_written(replica, 0, effect.write.sequence);
        else if (effect.type == REPLICA_SNAPSHOT)
            replica_snapshot(replica, 0, effect.index, (const uint8_t *)"", 0);
        replica_effect_clear(&effect);
    }
}

static void survive(const struct log_saved *saved, const uint8_t *data, size_t size)
{
    struct replica_options options = replica_options_default();
    struct replica *replica;
    struct error err;
    uint64_t index, now = 1000;
    options.id = 7;
    options.snapshot_after = 3;
    options.trailing = 1;
    FUZZ_CHECK(replica_open(&options, saved, now, &replica, &err) == ERROR_NONE);
    carry_out(replica);
    /* Several messages, each with its length in two bytes before it. */
    for (size_t at = 0; at + 2 <= size;) {
        const size_t length = (size_t)data[at] | (size_t)data[at + 1] << 8;
        const size_t n = length < size - at - 2 ? length : size - at - 2;
        replica_receive(replica, now += 50, 8 + length % 2, data + at + 2, n, &err);
        carry_out(replica);
        replica_submit(replica, now, (const uint8_t *)"event", 5, &index, &err);
        replica_tick(replica, now += 100);
        carry_out(replica);
        at += 2 + n;
    }
    replica_close(replica);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct log_saved nothing, founded;
    struct error err;
    check_codec(data, size);
    if (!founded.term) {
        struct log_write first;
        FUZZ_CHECK(!replica_found(7, &first, &err) && !log_saved_write(&founded, &first, &err));
        log_write_clear(&first);
    }
    survive(&nothing, data, size);
    survive(&founded, data, size);
    return 0;
}
