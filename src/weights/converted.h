/* A model in a smaller type, as parts: what they are called where they are kept, and bytes of them
 * made from the original's verified parts, for another node.
 *
 * Converted parts make up the GGUF file that `medley convert --to TYPE` would write, but for
 * matrices that would become larger, which stay (model/model_precision.h). Whoever has the
 * original's header knows that file's header, places and sizes, and the digests of the parts that
 * stay as they are. Of a matrix that changes nobody knows the digest beforehand. So in its manifest
 * such a part has a name in the digest's place, made of the digest of the original's part and the
 * type. The manifest's own digest, by which the shelf calls its files, is another than the
 * original's, and the same on all nodes.
 *
 * A chunk of a converted part comes with a digest of its own: of the part's digest or name, the
 * place and the bytes. It shows that the bytes are whole, and that they are what was
 * asked for; not that they were converted rightly (docs/weights.md, "In a smaller type").
 *
 * Pure, but for converted_answer(), which reads the source. Any thread. */
#pragma once

#include "base/buffer.h"
#include "model/gguf_header.h"
#include "weights/fetch_message.h"
#include "weights/manifest.h"

struct model;
struct weight_source;

struct converted {
    struct manifest manifest; /* of the converted file; its parts are numbered as the original's */
    struct gguf_header header;
    struct part_set changes; /* parts that have a name in the digest's place */
};

/* `original` is of `model`, of which only the header has to be there. ERROR_UNSUPPORTED: that type
 * makes nothing smaller, or the tensors do not lie in the order of the header. */
enum error_code converted_init(struct converted *converted, const struct manifest *original,
                               const struct model *model, int type, struct error *err);
void converted_deinit(struct converted *converted); /* zeroed is fine */

/* What a chunk's digest has to be. `part`: what the manifest has; `bytes`: SHA-256 of the chunk's.
 */
enum error_code converted_chunk_digest(const struct digest *part, uint64_t offset,
                                       const struct digest *bytes, struct digest *out,
                                       struct error *err);

/* A range of the tensor of that part, which the source has, in the type that it has in `smaller`
 * (the source's model, or model_at_precision() of it). Memory as below. */
enum error_code converted_read(const struct weight_source *source, const struct model *smaller,
                               uint32_t part, uint64_t offset, uint32_t size, uint8_t *out,
                               struct error *err);

/* Appends the answer to a REQUEST_CONVERTED: CHUNK_CONVERTED, or REFUSE. `model`: the source's,
 * opened. Memory: the chunk, and about 3 MiB, or three rows. */
void converted_answer(const struct weight_source *source, const struct model *model,
                      const struct fetch_message *request, struct buffer *out);
