/* What this node gives others of a model: ranges of parts that it has, whole and verified, and the
 * manifest.
 *
 * Two kinds: a model's own file, with the manifest that was made from it, as long as it has not
 * changed since; and a model on the shelf, of which only kept parts are given.
 *
 * Threads: one at a time; reading a range reads the disk. */
#pragma once

#include "weights/fetch_message.h"
#include "weights/file_identity.h"
#include "weights/manifest.h"

struct shelf_model;
struct gguf_file;

struct weight_source { /* zeroed: gives nothing */
    const struct manifest *manifest;
    const struct part_set *has;    /* of a shelf's model; NULL: the whole file */
    int fd;                        /* the shelf's; or … */
    const struct gguf_file *file;  /* … a model's own … */
    struct file_identity identity; /* … as it was when it was opened */
    struct digest model;
    struct buffer manifest_bytes;
};

/* Manifest and file, or the shelf's model, must outlive it. weight_source_deinit() it. */
enum error_code weight_source_of_file(const struct manifest *manifest, const struct gguf_file *file,
                                      struct weight_source *out, struct error *err);
enum error_code weight_source_of_shelf(const struct shelf_model *model, struct weight_source *out,
                                       struct error *err);
/* Whether the model's own file is what it was when it was opened; a shelf's always is. */
bool weight_source_is_unchanged(const struct weight_source *source);
void weight_source_deinit(struct weight_source *source);

/* Appends the answer to a REQUEST: CHUNK or REFUSE. Whatever is asked, nothing else than what is
 * said above is sent. */
void weight_source_answer(const struct weight_source *source, const struct fetch_message *request,
                          struct buffer *out);
/* Whether it gives that part; and bytes of the model's file, which are to lie in such a part. */
bool weight_source_has(const struct weight_source *source, uint32_t part);
bool weight_source_read(const struct weight_source *source, uint64_t offset, void *out,
                        size_t size);
/* Hashes the part as it lies on the disk now. ERROR_INVALID: it is damaged. */
enum error_code weight_source_check(const struct weight_source *source, uint32_t part,
                                    struct error *err);
/* Appends HAVE, the answer to ASK_HAVE. */
void weight_source_have(const struct weight_source *source, struct buffer *out);
