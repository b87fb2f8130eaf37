/* Frames: what travels on a channel of a link.
 *
 *     byte  0  2  magic "Md"
 *           2  1  format of this header: 1
 *           3  1  reserved: 0 when written, ignored when read
 *           4  2  type
 *           6  2  flags: those a reader does not know are ignored
 *           8  4  length of the payload, bytes
 *          12  4  tag: the sender's number for it, for example the request that an answer belongs
 *              to
 *          16     payload
 *
 * Numbers are little-endian, like the tensors behind them. There is no checksum: TLS authenticates
 * every byte. A header of another format or magic, or a length beyond the channel's limit, ends the
 * link; a type that nobody knows is read and dropped, so that a newer node may send more.
 *
 * The reader is pure and never looks past a frame: it says which bytes it wants next and where they
 * go, so that a payload is decrypted straight into the memory that its taker chose.
 *
 *     for (;;) {
 *         frame_reader_want(&reader, &into, &size);
 *         n = ...at most `size` bytes into `into`...;
 *         switch (frame_reader_took(&reader, n, &err)) {
 *         case FRAME_MORE:     break;
 *         case FRAME_BEGUN:    frame_reader_payload(&reader, memory);       // reader.header.length
 *                              > 0 break;
 *         case FRAME_COMPLETE: use(&reader.header, reader.payload); frame_reader_next(&reader);
 *                              break;
 *         case FRAME_BROKEN:   return err.code;                             // the reader wants
 *                              nothing more
 *         }
 *     }
 *
 * Any thread, one at a time. */
#pragma once

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

enum { FRAME_HEADER_BYTES = 16, FRAME_FORMAT = 1 };

/* Below FRAME_USER the link's own; each room above takes a range of its own from
 * docs/wire-protocol.md. */
enum frame_type {
    FRAME_HELLO = 1,
    FRAME_REFUSAL = 2,
    FRAME_PING = 3,
    FRAME_PONG = 4,
    FRAME_BURST = 5,        /* payload without meaning: bandwidth is being measured */
    FRAME_BURST_REPORT = 6, /* what the receiver of a burst saw */
    FRAME_BYE = 7,          /* the sender is closing the link in order */
    FRAME_USER = 32,
};

struct frame_header {
    uint16_t type;
    uint16_t flags;
    uint32_t length; /* bytes of payload */
    uint32_t tag;
};

void frame_header_write(const struct frame_header *header,
                        uint8_t bytes[static FRAME_HEADER_BYTES]);

/* ERROR_INVALID: not a frame, of another format, or longer than length_max. */
enum error_code frame_header_read(const uint8_t bytes[static FRAME_HEADER_BYTES],
                                  uint32_t length_max, struct frame_header *header,
                                  struct error *err);

enum frame_event { FRAME_MORE, FRAME_BEGUN, FRAME_COMPLETE, FRAME_BROKEN };

struct frame_reader {
    uint32_t length_max;
    struct frame_header header; /* from FRAME_BEGUN or FRAME_COMPLETE until frame_reader_next() */
    uint8_t
        *payload; /* the taker's memory, at least header.length bytes; NULL before it is given */
    enum frame_event state;
    size_t got; /* bytes of the header, then of the payload */
    uint8_t bytes[FRAME_HEADER_BYTES];
};

void frame_reader_init(struct frame_reader *reader, uint32_t length_max);

/* Where the next bytes go, and how many at most: 0 while the reader waits for memory or for
 * frame_reader_next(), or is broken. */
void frame_reader_want(const struct frame_reader *reader, void **into, size_t *size);

/* `size` bytes were put there, at most as many as were wanted. FRAME_BROKEN fills err. */
enum frame_event frame_reader_took(struct frame_reader *reader, size_t size, struct error *err);

void frame_reader_payload(struct frame_reader *reader,
                          uint8_t *memory);          /* after FRAME_BEGUN, once */
void frame_reader_next(struct frame_reader *reader); /* after FRAME_COMPLETE */

/* A frame was begun and is not complete. */
bool frame_reader_is_inside(const struct frame_reader *reader);
