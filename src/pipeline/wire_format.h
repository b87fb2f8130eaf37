/* The fixed parts of a micro-batch's message (wire.h), shared by its writer and its reader. */
#pragma once

#include "base/bytes.h"
#include "pipeline/wire.h"

enum { WIRE_MAGIC = 0x31424c4d }; /* "MLB1" */
/* STABLE_BITS: every stage so far gives a row the same bits in any batch. A peer that does not know
 * the flag leaves it out; the driver then drafts nothing, so no older peer meets DRAFTS.
 * KNOWS_CHECKPOINTS and CHECKPOINTS, operations on those, are the same. */
enum {
    WIRE_EMBEDDINGS = 1,
    WIRE_TIMES = 2,
    WIRE_GRAMMARS = 4,
    WIRE_DRAFTS = 8,
    WIRE_STABLE_BITS = 16,
    WIRE_KNOWS_CHECKPOINTS = 32,
    WIRE_CHECKPOINTS = 64,
    WIRE_PICTURES = 128 /* rows have places, and may be a picture's */
};
enum { WIRE_SHARE_PICK = 1, WIRE_SHARE_ROWS = 2, WIRE_SHARE_FAILED = 4, WIRE_SHARE_DROPPED = 8 };

enum { WIRE_FLAGS_AT = 57 }; /* the header's flags */

/* ---- wire_times.c ---- */
void wire_write_times(const struct microbatch *microbatch, struct buffer *out);
/* Of a message of `size` bytes for microbatch->at. Where it has none they are unknown. */
enum error_code wire_read_times(struct bytes_reader *reader, uint32_t flags, uint32_t n_stages,
                                size_t size, struct microbatch *microbatch, struct error *err);

static const uint32_t WIRE_OUTPUT_BIT = UINT32_C(1) << 31;
