/* One model on the shelf. The invariant: a part that the record names is whole on the disk. So a
 * part is synced before it is recorded, and its record is gone before its bytes are. */
#include "base/large_pages.h"
#include "base/log.h"
#include "base/mem.h"
#include "weights/shelf_impl.h"
#include "weights/shelf_policy.h"
#include "weights/shelf_record.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- opening --------------------------------------------------------------------------------- */

static bool is_kept(const struct shelf_model *model)
{
    struct manifest kept;
    if (shelf_manifest(model->shelf, &model->identity, &kept, NULL))
        return false;
    manifest_deinit(&kept);
    return true;
}

/* Another process may keep the same one in the same instant; then one of the two fails, and it is
 * there all the same.
 */
static enum error_code keep_manifest(struct shelf_model *model, const struct manifest *manifest,
                                     struct error *err)
{
    struct buffer bytes = {0};
    manifest_write(manifest, &bytes);
    enum error_code code = bytes.failed ? error_set(err, ERROR_NO_MEMORY, "out of memory")
                                        : digest_of(bytes.data, bytes.size, &model->identity, err);
    if (!code)
        code = manifest_read(bytes.data, bytes.size, &model->manifest, err);
    if (!code)
        code = shelf_paths_of(model->shelf, &model->identity, &model->paths, err);
    if (!code)
        code = shelf_record_lock(model->paths.record, true, LOCK_SH, &model->record, err);
    if (!code && !is_kept(model)) {
        code = durable_replace(model->paths.manifest, bytes.data, bytes.size, err);
        code = code && is_kept(model) ? ERROR_NONE : code;
    }
    buffer_deinit(&bytes);
    return code;
}

static enum error_code io_error(const struct shelf_model *model, const char *doing, int failure,
                                struct error *err)
{
    return error_set(err, ERROR_IO, "%s %s: %s", doing, model->paths.data, strerror(failure));
}

/* `was_whole`: the file had its length before, so that a record can be about it. */
static enum error_code open_data(struct shelf_model *model, bool *was_whole, struct error *err)
{
    model->data = open(model->paths.data, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    struct stat info;
    if (model->data < 0 || fstat(model->data, &info) != 0)
        return io_error(model, "opening", errno, err);
    if (flock(model->data, LOCK_EX | LOCK_NB) != 0)
        return errno == EWOULDBLOCK
                   ? error_set(err, ERROR_BUSY, "%s: another process is fetching it",
                               model->paths.data)
                   : io_error(model, "locking", errno, err);
    *was_whole = S_ISREG(info.st_mode) && (uint64_t)info.st_size == model->manifest.size;
    if (!*was_whole && (ftruncate(model->data, 0) != 0 ||
                        ftruncate(model->data, (off_t)model->manifest.size) != 0))
        return io_error(model, "making", errno, err);
    return ERROR_NONE;
}

static enum error_code shelf_model_write_record(struct shelf_model *model,
                                                const struct buffer *entries, struct error *err)
{
    if (entries->failed)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    int failure = pwrite_all(model->record, entries->data, entries->size, model->record_size);
    if (!failure && fdatasync(model->record) != 0)
        failure = errno;
    if (failure) { /* what did not happen must not be read later */
        bool cut = ftruncate(model->record, (off_t)model->record_size) == 0;
        return error_set(err, ERROR_IO, "writing %s: %s%s", model->paths.record, strerror(failure),
                         cut ? "" : ", and its end could not be removed");
    }
    model->record_size += entries->size;
    return ERROR_NONE;
}

static enum error_code begin_record(struct shelf_model *model, struct error *err)
{
    struct buffer head = {0};
    memset(model->has.bits, 0, ((size_t)model->has.n_parts + 63) / 64 * sizeof *model->has.bits);
    model->record_size = 0;
    if (ftruncate(model->record, 0) != 0)
        return error_set(err, ERROR_IO, "writing %s: %s", model->paths.record, strerror(errno));
    shelf_record_begin(&model->identity, &head);
    enum error_code code = shelf_model_write_record(model, &head, err);
    buffer_deinit(&head);
    durable_sync_folder_of(model->paths.record);
    return code;
}

static enum error_code open_record(struct shelf_model *model, bool was_whole, struct error *err)
{
    /* each part may have been kept and dropped many times; beyond this the record begins anew */
    uint64_t size_max = (1 << 20) + (uint64_t)model->manifest.n_parts * SHELF_RECORD_ENTRY * 64;
    struct buffer bytes = {0};
    enum error_code code = part_set_init(&model->has, model->manifest.n_parts, err);
    struct error why = {0};
    if (!code && was_whole && !durable_read(model->paths.record, size_max, 0, &bytes, &why))
        model->record_size =
            shelf_record_read(bytes.data, bytes.size, &model->identity, &model->has);
    if (!code && !model->record_size) {
        if (bytes.size || why.code)
            log_line(LOG_WARN, "mesh", "%s is not readable%s%s; the model will be fetched again",
                     model->paths.record, why.code ? ": " : "", why.text);
        code = begin_record(model, err);
    } else if (!code && ftruncate(model->record, (off_t)model->record_size) != 0) {
        code = error_set(err, ERROR_IO, "writing %s: %s", model->paths.record, strerror(errno));
    }
    buffer_deinit(&bytes);
    if (!code)
        futimens(model->record, NULL); /* the last use */
    return code;
}

enum error_code shelf_model_open(struct shelf *shelf, const struct manifest *manifest,
                                 struct shelf_model **out, struct error *err)
{
    *out = NULL;
    bool was_whole = false;
    struct shelf_model *model = mem_new(sizeof *model);
    if (!model)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    model->shelf = shelf;
    model->data = model->record = -1;
    enum error_code code = keep_manifest(model, manifest, err);
    if (!code)
        code = open_data(model, &was_whole, err);
    if (!code)
        code = open_record(model, was_whole, err);
    if (code)
        shelf_model_close(model);
    else
        *out = model;
    return code;
}

void shelf_model_close(struct shelf_model *model)
{
    if (!model)
        return;
    if (model->data >= 0)
        close(model->data);
    if (model->record >= 0)
        close(model->record);
    part_set_deinit(&model->has);
    manifest_deinit(&model->manifest);
    mem_free(model);
}

const struct manifest *shelf_model_manifest(const struct shelf_model *model)
{
    return &model->manifest;
}

const struct digest *shelf_model_identity(const struct shelf_model *model)
{
    return &model->identity;
}

const char *shelf_model_path(const struct shelf_model *model)
{
    return model->paths.data;
}

const struct part_set *shelf_model_has(const struct shelf_model *model)
{
    return &model->has;
}

int shelf_model_descriptor(const struct shelf_model *model)
{
    return model->data;
}

/* ---- room ------------------------------------------------------------------------------------ */

static int shelf_model_punch(const struct shelf_model *model, const struct manifest_part *part)
{
    bool done = fallocate(model->data, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                          (off_t)part->offset, (off_t)part->size) == 0;
    return done || errno == EOPNOTSUPP
               ? 0
               : errno; /* a file system without holes keeps the room: no harm */
}

/* Takes the blocks. Where the file system cannot, the check before must do. */
static enum error_code take_blocks(struct shelf_model *model, const struct part_set *wanted,
                                   uint64_t need_bytes, struct error *err)
{
    int failure = 0;
    for (uint32_t i = 0; !failure && i < model->manifest.n_parts; i++) {
        const struct manifest_part *part = &model->manifest.parts[i];
        if (part_set_has(wanted, i) && !part_set_has(&model->has, i) &&
            fallocate(model->data, FALLOC_FL_KEEP_SIZE, (off_t)part->offset, (off_t)part->size) !=
                0)
            failure = errno == EINTR ? 0 : errno;
    }
    if (!failure || failure == EOPNOTSUPP)
        return ERROR_NONE;
    char need[SHELF_BYTES_TEXT];
    shelf_model_trim(model, NULL);
    return error_set(err, ERROR_IO, "%s: the disk does not have the %s that are needed: %s",
                     model->shelf->folder, shelf_bytes_text(need_bytes, need), strerror(failure));
}

enum error_code shelf_model_reserve(struct shelf_model *model, const struct part_set *wanted,
                                    struct error *err)
{
    uint64_t missing = 0, kept = 0;
    struct stat info;
    struct error local;
    err = err ? err : &local;
    for (uint32_t i = 0; i < model->manifest.n_parts; i++) {
        if (part_set_has(&model->has, i))
            kept += model->manifest.parts[i].size;
        else if (part_set_has(wanted, i))
            missing += model->manifest.parts[i].size;
    }
    if (!missing)
        return ERROR_NONE;
    if (fstat(model->data, &info) != 0)
        return io_error(model, "looking at", errno, err);
    uint64_t taken =
        (uint64_t)info.st_blocks * 512; /* by parts, and by what was reserved or fetched before */
    uint64_t reserved = taken > kept ? taken - kept : 0;
    uint64_t need = missing > reserved ? missing - reserved : 0;
    enum error_code code = need ? shelf_make_room(model->shelf, need, err) : ERROR_NONE;
    return code ? error_wrap(err, "%s", model->shelf->folder)
                : take_blocks(model, wanted, missing, err);
}

/* ---- parts ----------------------------------------------------------------------------------- */

enum error_code shelf_model_write(struct shelf_model *model, uint32_t part, uint64_t offset,
                                  const void *bytes, size_t size, struct error *err)
{
    const struct manifest_part *of =
        part < model->manifest.n_parts ? &model->manifest.parts[part] : NULL;
    if (!of || offset > of->size || size > of->size - offset)
        return error_set(err, ERROR_INVALID, "the range is not inside part %u", part);
    if (part_set_has(&model->has, part))
        return error_set(err, ERROR_INVALID, "part %u is already there and verified", part);
    large_pages_expect(model->data, of->offset + offset, size);
    int failure = pwrite_all(model->data, bytes, size, of->offset + offset);
    return failure ? io_error(model, "writing", failure, err) : ERROR_NONE;
}

enum error_code shelf_model_verify(const struct shelf_model *model, uint32_t part,
                                   struct error *err)
{
    const struct manifest_part *of = &model->manifest.parts[part];
    struct digest digest;
    enum error_code code = digest_file(model->data, of->offset, of->size, NULL, NULL, &digest, err);
    if (!code && !digest_equal(&digest, &of->digest))
        code = error_set(err, ERROR_INVALID, "%s does not have the hash that the manifest names",
                         part ? of->name : "the header");
    return code;
}

enum error_code shelf_model_keep(struct shelf_model *model, const uint32_t *parts, uint32_t n,
                                 struct error *err)
{
    struct buffer entries = {0};
    if (fdatasync(model->data) != 0)
        return io_error(model, "syncing", errno, err);
    for (uint32_t i = 0; i < n; i++)
        shelf_record_add(parts[i], false, &entries);
    enum error_code code = n ? shelf_model_write_record(model, &entries, err) : ERROR_NONE;
    for (uint32_t i = 0; !code && i < n; i++)
        part_set_add(&model->has, parts[i]);
    buffer_deinit(&entries);
    return code;
}

enum error_code shelf_model_drop(struct shelf_model *model, const struct part_set *parts,
                                 struct error *err)
{
    struct buffer entries = {0};
    for (uint32_t i = 0; i < model->manifest.n_parts; i++) {
        if (part_set_has(parts, i) && part_set_has(&model->has, i))
            shelf_record_add(i, true, &entries);
    }
    enum error_code code = entries.size || entries.failed
                               ? shelf_model_write_record(model, &entries, err)
                               : ERROR_NONE;
    buffer_deinit(&entries);
    int failure = 0;
    for (uint32_t i = 0; !code && !failure && i < model->manifest.n_parts; i++) {
        if (!part_set_has(parts, i))
            continue;
        part_set_remove(&model->has, i);
        failure = shelf_model_punch(model, &model->manifest.parts[i]);
    }
    return failure ? io_error(model, "shrinking", failure, err) : code;
}

enum error_code shelf_model_trim(struct shelf_model *model, struct error *err)
{
    int failure = 0;
    for (uint32_t i = 0; !failure && i < model->manifest.n_parts; i++) {
        if (!part_set_has(&model->has, i))
            failure = shelf_model_punch(model, &model->manifest.parts[i]);
    }
    return failure ? io_error(model, "shrinking", failure, err) : ERROR_NONE;
}
