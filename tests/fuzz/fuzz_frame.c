/* Fuzz target: what a peer may send on a channel. The first byte says how the rest is cut. Holds:
 * the reader takes every byte or breaks with a message; a header that is taken is written back as
 * it came; fixed payloads that are taken are within their ranges. */
#include "fuzz.h"

#include "base/limits.h"
#include "mesh/frame.h"
#include "mesh/ping.h"
#include "mesh/probe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH_MAX = 1 << 16 };

static uint8_t memory[LENGTH_MAX];

static void check_header(const struct frame_reader *reader)
{
    uint8_t bytes[FRAME_HEADER_BYTES];
    frame_header_write(&reader->header, bytes);
    FUZZ_CHECK(memcmp(bytes, reader->bytes, 3) == 0 &&
               memcmp(bytes + 4, reader->bytes + 4, 12) == 0);
    FUZZ_CHECK(reader->header.length <= LENGTH_MAX);
}

static void check_payload(const struct frame_reader *reader)
{
    static struct link_probe probe;
    const uint8_t *payload = reader->payload ? reader->payload : memory;
    const uint32_t size = reader->header.length;
    struct ping ping;
    struct pong pong;
    struct burst burst;
    struct burst_report report;
    ping_read(payload, size, &ping, NULL);
    if (!pong_read(payload, size, &pong, NULL))
        link_probe_pong(&probe, &pong, pong.sent_ns + (pong.number & 0xffffff));
    if (!burst_read(payload, size, &burst, NULL))
        FUZZ_CHECK(burst.place < burst.n_frames);
    if (!burst_report_read(payload, size, &report, NULL)) {
        report.number = link_probe_began(&probe, LIMIT_BURST_BYTES, 1);
        link_probe_report(&probe, &report, 1 + (report.ns & 0xffffffff));
    }
    const struct topology_link link = link_probe_reading(&probe), clean = topology_link_clean(link);
    FUZZ_CHECK(clean.bandwidth_bytes_per_s.valid == link.bandwidth_bytes_per_s.valid);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    const size_t step = 1 + data[0];
    struct frame_reader reader;
    struct error err = {0};
    frame_reader_init(&reader, LENGTH_MAX);
    for (size_t at = 1; at < size;) {
        void *into;
        size_t room;
        frame_reader_want(&reader, &into, &room);
        FUZZ_CHECK(room > 0);
        size_t n = size - at < step ? size - at : step;
        n = n < room ? n : room;
        memcpy(into, data + at, n);
        at += n;
        switch (frame_reader_took(&reader, n, &err)) {
        case FRAME_MORE:
            FUZZ_CHECK(frame_reader_is_inside(&reader));
            break;
        case FRAME_BEGUN:
            check_header(&reader);
            frame_reader_payload(&reader, memory);
            break;
        case FRAME_COMPLETE:
            check_header(&reader);
            check_payload(&reader);
            frame_reader_next(&reader);
            break;
        case FRAME_BROKEN:
            FUZZ_CHECK(err.code == ERROR_INVALID && err.text[0]);
            return 0;
        }
    }
    return 0;
}
