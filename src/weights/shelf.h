/* The shelf: models, or parts of models, that were fetched from other nodes, on this disk.
 *
 * A folder (STATE/models) with three files a model, named by its identity (manifest.h):
 *     ID.gguf      sparse: as long as the model, with its parts in their places and holes
 *                  elsewhere. model_open() and stages work on it as long as they read no other
 *                  parts (manifest_layers.h).
 *     ID.manifest  what the model consists of
 *     ID.parts     which parts are there (shelf_record.h)
 * and ID.gguf.pin, where the user has pinned it: it makes room for no other.
 *
 * A part counts when it has been verified, synced, and then recorded: whatever happens to the
 * process or the machine, a recorded part is whole. What was fetched of others is fetched again.
 *
 *     shelf_model_open(shelf, &manifest, &model, &err);          it is in use from here on: nothing
 *                                                                evicts it
 *     shelf_model_reserve(model, &wanted, &err);                 disk space and limit; evicts
 *                                                                others, or says why not
 *     shelf_model_write(model, part, offset, bytes, size, &err); … for every range of a part
 *     shelf_model_verify(model, part, &err);                     ERROR_INVALID: somebody lied
 *     shelf_model_keep(model, parts, n, &err);
 *     model_open(shelf_model_path(model), …);                    before shelf_model_close()
 *
 * Locks: an open model holds a shared lock on ID.parts, and eviction wants it alone, so no process
 * takes away what another has open; ID.gguf is locked by the one that writes. They vanish with the
 * process.
 *
 * Threads: a shelf and its models belong to one thread, except shelf_model_write() and
 * shelf_model_verify(), which any may call for parts that are not kept yet, each part by one thread
 * at a time: both read or write the disk, and a large part's verification takes a while. */
#pragma once

#include "weights/manifest.h"
#include "weights/part_set.h"

#include <limits.h>

struct gguf_file;

struct shelf;
struct shelf_model;

struct shelf_options {
    uint64_t limit_bytes; /* of all models together, as they take room on the disk; 0: none */
    uint64_t spare_bytes; /* of the disk, that stay free */
};

/* Makes the folder, and removes what a crash left behind of models that were being made or
 * removed. */
enum error_code shelf_open(const char *folder, const struct shelf_options *options,
                           struct shelf **out, struct error *err);
void shelf_close(struct shelf *shelf); /* after its models */

/* The identities of all models there, at most n; the answer is how many there are. */
uint32_t shelf_list(const struct shelf *shelf, struct digest *out, uint32_t n);

/* The manifest of a model on the shelf. ERROR_NOT_FOUND. The caller's to free. */
enum error_code shelf_manifest(const struct shelf *shelf, const struct digest *identity,
                               struct manifest *out, struct error *err);

/* ERROR_BUSY: it is open, here or in another process. ERROR_NOT_FOUND. */
enum error_code shelf_remove(struct shelf *shelf, const struct digest *identity, struct error *err);

/* How much could be fetched now without evicting anything: what the limit and the disk leave. */
enum error_code shelf_room(const struct shelf *shelf, uint64_t *bytes, struct error *err);

/* Opens a model, which becomes the most recently used; an empty one where it is not there. The
 * manifest is copied. ERROR_BUSY: somebody else writes it. */
enum error_code shelf_model_open(struct shelf *shelf, const struct manifest *manifest,
                                 struct shelf_model **out, struct error *err);
void shelf_model_close(struct shelf_model *model); /* NULL is fine */

const struct manifest *shelf_model_manifest(const struct shelf_model *model);
const struct digest *shelf_model_identity(const struct shelf_model *model);
const char *shelf_model_path(const struct shelf_model *model); /* of the GGUF file */
const struct part_set *
shelf_model_has(const struct shelf_model *model); /* kept parts; changes with keep and drop */
int shelf_model_descriptor(const struct shelf_model *model);

/* Makes room for those of `wanted` that are missing: evicts models that are not in use, least
 * recently used first, and takes the blocks from the disk. On failure nothing was taken; ERROR_BUSY
 * and ERROR_IO as in shelf_policy.h. */
enum error_code shelf_model_reserve(struct shelf_model *model, const struct part_set *wanted,
                                    struct error *err);

/* ERROR_INVALID: not inside the part, or the part is kept (a mapped file must not change). */
enum error_code shelf_model_write(struct shelf_model *model, uint32_t part, uint64_t offset,
                                  const void *bytes, size_t size, struct error *err);
enum error_code shelf_model_verify(const struct shelf_model *model, uint32_t part,
                                   struct error *err);

/* Syncs the file, then records the parts, which have been verified. Several at once cost one
 * sync. */
enum error_code shelf_model_keep(struct shelf_model *model, const uint32_t *parts, uint32_t n,
                                 struct error *err);

/* Parts that lie at their places in another file, verified by the caller. shelf_adopt() makes that
 * file the model's, where it is not on the shelf yet; false: it is, or that cannot be, and the file
 * is left as it was. shelf_model_adopt() records them, and copies those from `path` that are not
 * here yet (NULL: shelf_adopt() took it), for which there must be room. */
bool shelf_adopt(struct shelf *shelf, const struct manifest *manifest, const char *path);
enum error_code shelf_model_adopt(struct shelf_model *model, const struct part_set *parts,
                                  const char *path, struct error *err);
/* The same of a model in several files, shown as one: file by file, each emptied when its parts are
 * recorded, so that room for a second copy of the largest is enough. `paths`: of the files. */
enum error_code shelf_model_adopt_files(struct shelf_model *model, const struct part_set *parts,
                                        const struct gguf_file *joined, char (*paths)[PATH_MAX],
                                        struct error *err);

/* Gives parts back to the disk. No stage may be reading them. */
enum error_code shelf_model_drop(struct shelf_model *model, const struct part_set *parts,
                                 struct error *err);
/* Gives back what was reserved or written and is not kept: after a fetch was given up. */
enum error_code shelf_model_trim(struct shelf_model *model, struct error *err);
