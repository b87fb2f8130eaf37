/* What other nodes say while a model is gathered: the state of a hash as any bytes, then events in
 * any order for nodes and units that may not be. It is done only when every unit is said to be at a
 * node that is there, and each of two files has the hub's hash. */
#include "fuzz.h"

#include "gathering/gather.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { UNITS = 5, NODES = 3, EVENT_BYTES = 4, SECOND_NS = 1000000000 };

static const uint8_t file[40] = "two files of twenty bytes, five units.";
static const struct gather_unit units[UNITS] = {
    {0, 7, 8, 0}, {8, 8, 16, 0}, {16, 1, 20, 0}, {0, 5, 10, 1}, {10, 10, 20, 1}};
enum { FILE_BYTES = 20 };

static void check_chain(const uint8_t *data, size_t size)
{
    struct digest_chain chain;
    uint8_t again[DIGEST_CHAIN_BYTES];
    struct digest digest;
    if (digest_chain_read(data, size, &chain, NULL))
        return;
    digest_chain_write(&chain, again);
    FUZZ_CHECK(size == sizeof again && memcmp(again, data, size) == 0);
    if (chain.length < UINT32_MAX)
        digest_chain_add(&chain, file, sizeof file);
    digest_chain_end(&chain, &digest);
}

static void check_state(struct gather *gather)
{
    uint32_t n_there = 0;
    for (uint32_t node = 0; node < NODES; node++) {
        const struct gather_progress progress = gather_progress(gather, node);
        FUZZ_CHECK(progress.here <= progress.bytes && progress.bytes <= sizeof file);
        n_there += !progress.is_lost;
    }
    for (uint32_t unit = 1; gather_status(gather) == GATHER_DONE && unit < UNITS; unit++) {
        uint32_t n = 0;
        if (gather_is_header(units, unit))
            continue;
        for (uint32_t node = 0; node < NODES; node++)
            n += gather_is_of(gather, node, unit) && !gather_progress(gather, node).is_lost;
        FUZZ_CHECK(n == 1 && gather_digest(gather, unit));
    }
    FUZZ_CHECK(n_there || gather_status(gather) == GATHER_FAILED);
}

/* The answer to the last step that was asked for, or one of wrong bytes. */
static void say_chained(struct gather *gather, const struct gather_action *step, uint64_t now_ns,
                        const uint8_t *event)
{
    struct digest_chain chain = step->chain;
    if (step->kind != GATHER_CHAIN)
        return;
    const uint64_t from = units[step->first].offset, to = units[step->end - 1].end;
    digest_chain_add(&chain, file + units[step->first].file * FILE_BYTES + from, to - from);
    chain.words[0] ^= event[3] == 255;
    gather_chained(gather, now_ns, event[1] < 250 ? step->node : event[1], step->first,
                   step->end + (event[2] == 255), &chain);
}

static void say(struct gather *gather, struct gather_action *step, uint64_t now_ns,
                const uint8_t *event)
{
    struct digest digest;
    switch (event[0] % 6) {
    case 0:
        gather_told(gather, now_ns, event[1], event[2], event[3] * 100u);
        break;
    case 1:
        digest_of(file + (event[2] & 7), 1 + event[3] % 2, &digest, NULL);
        gather_hashed(gather, now_ns, event[1], event[2], &digest);
        break;
    case 2:
        say_chained(gather, step, now_ns, event);
        break;
    case 3:
        gather_lost(gather, now_ns, event[1]);
        break;
    case 4:
        gather_again(gather, now_ns);
        break;
    default:
        for (int i = 0; i < 8; i++) {
            const struct gather_action next = gather_next(gather, now_ns);
            *step = next.kind == GATHER_CHAIN ? next : *step;
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint32_t owners[UNITS] = {0, 0, 1, 0, GATHER_ANYBODY};
    struct digest wholes[2];
    struct gather_options options = {
        .units = units, .n_units = UNITS, .wholes = wholes, .n_nodes = NODES, .owners = owners};
    struct gather_action step = {0};
    struct gather *gather;
    uint64_t now_ns = 1;
    check_chain(data, size < DIGEST_CHAIN_BYTES ? size : DIGEST_CHAIN_BYTES);
    for (int i = 0; i < 2; i++)
        digest_of(file + i * FILE_BYTES, FILE_BYTES, &wholes[i], NULL);
    if (gather_new(&options, now_ns, &gather, NULL))
        abort();
    for (; size >= EVENT_BYTES; size -= EVENT_BYTES, data += EVENT_BYTES) {
        say(gather, &step, now_ns, data);
        check_state(gather);
        now_ns += (uint64_t)(data[0] / 6) * SECOND_NS / 4;
    }
    gather_free(gather);
    return 0;
}
