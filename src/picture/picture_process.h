/* Pictures from strangers, decoded (decode.h) in a process of its own, in the sandbox: a flaw of
 * the decoders that a crafted file reaches finds neither keys nor files nor a network there. It is
 * this program, started anew with a private first argument; its main() begins with
 * picture_decode_main(). One process a picture, which ends with it. What it answers is not trusted:
 * sizes and codes are checked.
 *
 * Where picture_isolate() was not called (tests, fuzzers) it happens here, without a process.
 *
 * Any thread, but for picture_isolate(): once, before others call. */
#pragma once

#include "base/error.h"
#include "model/picture.h"

#include <stddef.h>
#include <stdint.h>

/* Returns at once unless the arguments ask for it. */
void picture_decode_main(int argc, char **argv);
/* `program` lives on; NULL: no longer. `limit_ms`: for one picture; 0: LIMIT_PICTURE_MS. */
void picture_isolate(const char *program, uint32_t limit_ms);

/* The bytes of a PNG, JPEG or WebP file. ERROR_INVALID: what is wrong with it, and the mend;
 * ERROR_IO: the process failed. The caller frees `out->rgb` (mem_free). */
enum error_code picture_read(const void *bytes, size_t size, struct picture *out,
                             struct error *err);

/* ---- for its two ends, and tests ---- */

#define PICTURE_ARGUMENT "--decode-a-picture-for-the-node"

/* Before the answer's bytes: pixels, or an error's text. Before the file's: its size alone. */
struct picture_head {
    uint32_t code; /* an error_code */
    uint32_t size; /* of the text */
    uint32_t width, height;
};

/* One answer. After an error `out` is empty. */
enum error_code picture_receive(int socket, uint64_t until_ns, struct picture *out,
                                struct error *err);
