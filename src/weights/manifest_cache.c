#include "weights/manifest_cache.h"

#include "base/bytes.h"
#include "base/durable_file.h"
#include "base/limits.h"
#include "base/log.h"
#include "model/gguf_file.h"

#include <stdlib.h>

enum { ENTRY_FORMAT = 1, ENTRY_BYTES = 80 };

static const char magic[4] = {'M', 'd', 'M', 'c'};

static void put_identity(struct buffer *out, const struct file_identity *identity)
{
    bytes_put(out, identity->size, 8);
    bytes_put(out, identity->inode, 8);
    bytes_put(out, identity->device, 8);
    bytes_put(out, (uint64_t)identity->mtime_ns, 8);
    bytes_put(out, (uint64_t)identity->ctime_ns, 8);
}

void manifest_entry_write(const struct file_identity *identity, const struct manifest *manifest,
                          struct buffer *out)
{
    struct buffer bytes = {0};
    struct digest digest;
    manifest_write(manifest, &bytes);
    if (bytes.failed || digest_of(bytes.data, bytes.size, &digest, NULL)) {
        out->failed = true;
    } else {
        buffer_append(out, magic, sizeof magic);
        bytes_put(out, ENTRY_FORMAT, 4);
        put_identity(out, identity);
        buffer_append(out, digest.bytes, DIGEST_BYTES);
        buffer_append(out, bytes.data, bytes.size);
    }
    buffer_deinit(&bytes);
}

enum error_code manifest_entry_read(const void *bytes, size_t size,
                                    const struct file_identity *identity, struct manifest *out,
                                    struct error *err)
{
    struct bytes_reader reader = {.at = bytes, .left = size};
    *out = (struct manifest){0};
    const void *begin = bytes_take(&reader, sizeof magic);
    if (size < ENTRY_BYTES || memcmp(begin, magic, sizeof magic) != 0 ||
        bytes_get_u32(&reader) != ENTRY_FORMAT)
        return error_set(err, ERROR_INVALID, "another version wrote it");
    struct file_identity kept = {.size = bytes_get(&reader, 8),
                                 .inode = bytes_get(&reader, 8),
                                 .device = bytes_get(&reader, 8),
                                 .mtime_ns = (int64_t)bytes_get(&reader, 8),
                                 .ctime_ns = (int64_t)bytes_get(&reader, 8)};
    if (!file_identity_equal(&kept, identity))
        return error_set(err, ERROR_INVALID, "the model's file has changed since");
    struct digest digest;
    const void *want = bytes_take(&reader, DIGEST_BYTES);
    enum error_code code = digest_of(reader.at, reader.left, &digest, err);
    if (code)
        return code;
    if (memcmp(want, digest.bytes, DIGEST_BYTES) != 0)
        return error_set(err, ERROR_INVALID, "it is damaged");
    code = manifest_read(reader.at, reader.left, out, err);
    if (!code && out->size != identity->size) {
        manifest_deinit(out);
        code = error_set(err, ERROR_INVALID, "it belongs to another file");
    }
    return code;
}

/* One entry a path, so that entries of files that changed are replaced and do not collect. */
static enum error_code entry_path(const char *folder, const struct gguf_file *file,
                                  char out[PATH_MAX], struct error *err)
{
    char *path = realpath(gguf_file_path(file), NULL); /* the system's memory, not ours to fail */
    const char *name = path ? path : gguf_file_path(file);
    struct digest digest;
    char text[DIGEST_TEXT];
    enum error_code code = digest_of(name, strlen(name), &digest, err);
    free(path);
    return code ? code : durable_path(folder, digest_text(&digest, text), ".manifest", out, err);
}

static enum error_code manifest_cache_load(const char *path, const struct file_identity *identity,
                                           struct manifest *out, struct error *err)
{
    struct buffer bytes = {0};
    enum error_code code = durable_read(path, LIMIT_MANIFEST_BYTES + ENTRY_BYTES, 0, &bytes, err);
    if (!code)
        code = manifest_entry_read(bytes.data, bytes.size, identity, out, err);
    buffer_deinit(&bytes);
    return code;
}

static void manifest_cache_keep(const char *folder, const char *path,
                                const struct file_identity *identity,
                                const struct manifest *manifest)
{
    struct error err = {0};
    struct buffer bytes = {0};
    manifest_entry_write(identity, manifest, &bytes);
    enum error_code code = bytes.failed ? error_set(&err, ERROR_NO_MEMORY, "out of memory")
                                        : durable_make_folder(folder, &err);
    if (!code)
        code = durable_replace(path, bytes.data, bytes.size, &err);
    if (code)
        log_line(LOG_WARN, "mesh",
                 "cannot cache the model's hashes; they will be computed again: %s", err.text);
    buffer_deinit(&bytes);
}

enum error_code manifest_of_file(const char *folder, const struct gguf_file *file,
                                 const struct manifest_options *options, struct manifest *out,
                                 bool *was_cached, struct error *err)
{
    char path[PATH_MAX];
    struct file_identity identity;
    bool unused;
    was_cached = was_cached ? was_cached : &unused;
    *was_cached = false;
    *out = (struct manifest){0};
    enum error_code code = entry_path(folder, file, path, err);
    if (!code)
        code = file_identity_of_model(file, &identity, err);
    if (code)
        return code;
    struct error why = {0};
    if (!manifest_cache_load(path, &identity, out, &why)) {
        if (!manifest_agrees(out, file, &why)) {
            *was_cached = true;
            return ERROR_NONE;
        }
        manifest_deinit(out);
    }
    if (why.code != ERROR_NOT_FOUND)
        log_line(LOG_INFO, "mesh", "hashing %s: %s", gguf_file_path(file), why.text);
    bool is_recent = file_identity_is_recent(&identity);
    code = manifest_make(file, options, out, err);
    if (!code && !is_recent)
        manifest_cache_keep(folder, path, &identity, out);
    return code;
}
