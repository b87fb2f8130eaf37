/* The messages by which nodes ask each other for parts of models, as bytes. Pure.
 *
 *     byte 0  format: 1
 *          1  type
 *             ASK_HAVE  32 model
 *             HAVE      32 model, 8 bytes of its manifest (0: it is not known here), 4 parts, 1 bit
 *                       a part
 *             REQUEST   4 id, 32 model, 4 part (FETCH_MANIFEST: the manifest's bytes), 8 offset in
 *                       it, 4 size
 *             CHUNK     4 id, then the bytes
 *             REFUSE    4 id, 1 reason
 *             CANCEL    4 id
 *             REQUEST_CONVERTED  4 id, 32 model, 4 part, 8 offset in it, 4 size, 1 type: a range of
 *                       the part as it is in that smaller type (enum ggml_type)
 *             CHUNK_CONVERTED    4 id, 32 digest (weights/converted.h), then the bytes
 *
 * Numbers are little-endian. What is behind the fields that this version knows is skipped, so that
 * a newer node may say more; a chunk's bytes go to its end. A request is of at least one and at
 * most LIMIT_FETCH_CHUNK_BYTES bytes; of HAVE no bit is set beyond its parts. Reading allocates
 * nothing; what it gives points into the message. */
#pragma once

#include "base/buffer.h"
#include "trust/digest.h"
#include "weights/part_set.h"

enum fetch_message_type {
    FETCH_MESSAGE_ASK_HAVE = 1,
    FETCH_MESSAGE_HAVE = 2,
    FETCH_MESSAGE_REQUEST = 3,
    FETCH_MESSAGE_CHUNK = 4,
    FETCH_MESSAGE_REFUSE = 5,
    FETCH_MESSAGE_CANCEL = 6,
    FETCH_MESSAGE_REQUEST_CONVERTED = 7, /* on links of version 1.2 */
    FETCH_MESSAGE_CHUNK_CONVERTED = 8,
};

enum fetch_refusal {
    FETCH_REFUSE_LACKS = 1,   /* the part is not here, or not any more */
    FETCH_REFUSE_BUSY = 2,    /* later */
    FETCH_REFUSE_INVALID = 3, /* there is no such range */
};

#define FETCH_MANIFEST UINT32_MAX
/* Bytes before a chunk's. */
enum { FETCH_CHUNK_HEAD = 6, FETCH_CONVERTED_HEAD = FETCH_CHUNK_HEAD + DIGEST_BYTES };

struct fetch_message {
    enum fetch_message_type type;
    uint32_t id;         /* all but ASK_HAVE and HAVE */
    struct digest model; /* ASK_HAVE, HAVE, both kinds of request */
    union {
        struct {
            uint64_t manifest_bytes;
            uint32_t n_parts;
            const uint8_t *bits; /* part i is bit i % 8 of byte i / 8 */
        } have;
        struct {
            uint32_t part;
            uint64_t offset;
            uint32_t size;
            int weight_type; /* REQUEST_CONVERTED */
        } request;
        struct {
            const uint8_t *bytes;
            uint32_t size;
            struct digest digest; /* CHUNK_CONVERTED */
        } chunk;
        enum fetch_refusal refusal;
    };
};

/* Appends to `out`. A chunk's bytes may be left out (NULL) and put behind by the caller, who has
 * them elsewhere. */
void fetch_message_write(const struct fetch_message *message, struct buffer *out);

/* Appends HAVE of a set. */
void fetch_message_write_have(const struct digest *model, uint64_t manifest_bytes,
                              const struct part_set *has, struct buffer *out);
/* The set of a HAVE, which has as many parts as it. */
void fetch_message_parts(const struct fetch_message *message, struct part_set *out);

/* ERROR_UNSUPPORTED: another format, or a type of a newer version. */
enum error_code fetch_message_read(const void *bytes, size_t size, struct fetch_message *out,
                                   struct error *err);
