/* Which bytes of a file are here, while it is being pulled.
 *
 * A file is cut into at most PULL_PIECES pieces of equal size. Each piece fills from its start:
 * have[i] bytes of it are here. Pure; pull_disk.h keeps it on disk.
 *
 * On disk it is JSON, which a power cut cannot tear (it is replaced whole) and which counts only
 * what was synced before it:
 *
 *     {"url":"https://…","size":8000,"etag":"\"x\"","sha256":"…","piece":4096,
 *      "done":[[0,4096],[6000,8000]],"sums":["0123456789abcdef","0123456789abcdef"]}
 *
 * `done` are ranges [from, to). sums[i] is FNV-1a of what is here of a piece, as it came from the
 * network. The hub's SHA-256 says that something is wrong; these say which pieces the disk has
 * changed since. */
#pragma once

#include "base/buffer.h"
#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    PULL_PIECES = 4096,
    PULL_PIECE_BYTES = 256 * 1024, /* the smallest piece */
    PULL_ETAG = 256,
    PULL_SHA256 = 65,
    PULL_URL = 2048,
    PULL_STATE_BYTES = 1024 * 1024, /* of the JSON */
};
#define PULL_FILE_BYTES (UINT64_C(1) << 46)

struct pull_state {
    char url[PULL_URL];
    char etag[PULL_ETAG];     /* "": the server gave none */
    char sha256[PULL_SHA256]; /* "": nobody knows it */
    uint64_t size;            /* bytes, at least 1 */
    uint64_t piece;           /* bytes of a piece; the last may be shorter */
    uint32_t n_pieces;
    uint64_t have[PULL_PIECES];
    uint64_t sums[PULL_PIECES];   /* FNV-1a … */
    uint64_t summed[PULL_PIECES]; /* … of so many of a piece's first bytes */
};

/* Nothing is here yet. ERROR_INVALID: no bytes, or more than PULL_FILE_BYTES. */
enum error_code pull_state_init(struct pull_state *state, uint64_t size, struct error *err);
uint64_t pull_piece_size(const struct pull_state *state, uint32_t piece);
uint64_t pull_state_done(const struct pull_state *state); /* bytes that are here */
/* Nothing of the piece is here any more. */
void pull_piece_forget(struct pull_state *state, uint32_t piece);

/* ERROR_INVALID: not such JSON, or it does not hold together. */
enum error_code pull_state_read(const char *bytes, size_t size, struct pull_state *out,
                                struct error *err);
/* out->failed: not enough memory. */
void pull_state_write(const struct pull_state *state, struct buffer *out);
