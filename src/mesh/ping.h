/* The payloads of keep-alives and of bandwidth bursts: fixed numbers, little-endian. A longer
 * payload is a newer node's: its end is ignored; a shorter one is an error. Pure.
 *
 * Times are nanoseconds of the clock of the node that read it; only differences of the same clock
 * are ever used. */
#pragma once

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

enum { PING_BYTES = 16, PONG_BYTES = 32, BURST_BYTES_MIN = 16, BURST_REPORT_BYTES = 24 };

struct ping {
    uint64_t number; /* 0, 1, 2 … of this sender on this link */
    uint64_t sent_ns;
};

struct pong {
    uint64_t number, sent_ns; /* as in the ping */
    uint64_t received_ns;     /* by the clock of who answers */
    uint64_t answered_ns;
};

/* Each frame of a burst starts with these; the rest of it means nothing. */
struct burst {
    uint32_t number;
    uint32_t place;    /* of the frame in the burst */
    uint32_t n_frames; /* of the burst */
};

struct burst_report {
    uint32_t number;
    uint64_t bytes; /* that arrived during ns */
    uint64_t ns;
};

void ping_write(const struct ping *ping, uint8_t bytes[static PING_BYTES]);
void pong_write(const struct pong *pong, uint8_t bytes[static PONG_BYTES]);
void burst_write(const struct burst *burst, uint8_t bytes[static BURST_BYTES_MIN]);
void burst_report_write(const struct burst_report *report,
                        uint8_t bytes[static BURST_REPORT_BYTES]);

enum error_code ping_read(const uint8_t *bytes, size_t size, struct ping *ping, struct error *err);
enum error_code pong_read(const uint8_t *bytes, size_t size, struct pong *pong, struct error *err);
enum error_code burst_read(const uint8_t *bytes, size_t size, struct burst *burst,
                           struct error *err);
enum error_code burst_report_read(const uint8_t *bytes, size_t size, struct burst_report *report,
                                  struct error *err);
