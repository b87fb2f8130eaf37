/* A manifest: what a model's file consists of, with the SHA-256 of each part, so that parts can be
 * had from anybody.
 *
 * Part 0 is the header: all bytes before the first tensor's. The others are the tensors in order of
 * their place. Bytes between parts are padding and belong to none; a file without them reads the
 * same.
 *
 * The hash of a manifest's encoding is the model's identity in the cluster. Nothing of the encoding
 * depends on where the file lies or what it is called, so that equal files are one model.
 *
 *     byte 0  4  magic "MdMf"
 *          4  4  format: 1
 *          8  8  size of the file
 *         16  1  n: length of the model's name, then n bytes (general.name, printable; empty where
 *             it has none)
 *             4  number of parts, header included
 *             of each part: 1 + n (length and name; the header's is empty), 8 offset, 8 size, 32
 *             SHA-256
 *
 * Numbers are little-endian. There is one encoding of a manifest: what is read and written again is
 * the same bytes. So a newer format is another format, not this one with more behind it.
 *
 * Read-only once made: any thread. */
#pragma once

#include "base/buffer.h"
#include "trust/digest.h"

#include <stdint.h>

enum { MANIFEST_HEADER = 0, MANIFEST_FORMAT = 1, MANIFEST_NAME = 128, MANIFEST_PART_NAME = 64 };

struct manifest_part {
    char name[MANIFEST_PART_NAME]; /* the tensor's; empty: the header */
    uint64_t offset, size;         /* in the file, bytes; never empty */
    struct digest digest;
};

struct manifest {
    char name[MANIFEST_NAME];
    uint64_t size; /* of the file */
    uint32_t n_parts;
    struct manifest_part *parts; /* in order of their offsets, without overlap */
};

void manifest_deinit(struct manifest *manifest); /* zeroed is fine */

/* ERROR_NO_MEMORY in out->failed. */
void manifest_write(const struct manifest *manifest, struct buffer *out);

/* ERROR_INVALID: not what manifest_write() writes. ERROR_UNSUPPORTED: another format. */
enum error_code manifest_read(const void *bytes, size_t size, struct manifest *out,
                              struct error *err);

/* The model's identity. */
enum error_code manifest_identity(const struct manifest *manifest, struct digest *out,
                                  struct error *err);

/* Whether all that manifest_read() demands is so; err says what is not. */
enum error_code manifest_check(const struct manifest *manifest, struct error *err);
