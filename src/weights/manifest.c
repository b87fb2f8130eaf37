#include "weights/manifest.h"

#include "base/bytes.h"
#include "base/limits.h"
#include "base/mem.h"

#include <assert.h>
#include <inttypes.h>

enum { PART_BYTES_MIN = 1 + 8 + 8 + DIGEST_BYTES };

static const char magic[4] = {'M', 'd', 'M', 'f'};

static_assert(LIMIT_MANIFEST_BYTES >= 16 + MANIFEST_NAME + 4 +
                                          (LIMIT_MODEL_TENSORS + 1) *
                                              (PART_BYTES_MIN + (uint64_t)MANIFEST_PART_NAME - 1),
              "the largest model's manifest is within the limit");

void manifest_deinit(struct manifest *manifest)
{
    mem_free(manifest->parts);
    *manifest = (struct manifest){0};
}

/* ---- what holds of every manifest ------------------------------------------------------------ */

static bool is_printable(const char *text)
{
    for (; *text; text++) {
        if (*text < ' ' || *text > '~')
            return false;
    }
    return true;
}

static enum error_code manifest_check_part(const struct manifest *manifest, uint32_t i,
                                           struct error *err)
{
    const struct manifest_part *part = &manifest->parts[i];
    const struct manifest_part *before = i ? part - 1 : NULL;
    if ((i == MANIFEST_HEADER) != !part->name[0] || !is_printable(part->name))
        return error_set(err, ERROR_INVALID,
                         "part %u of the manifest has a name that no tensor can have", i);
    if (part->size == 0 || part->offset > manifest->size ||
        part->size > manifest->size - part->offset)
        return error_set(err, ERROR_INVALID,
                         "part %u of the manifest is not inside the file of %" PRIu64 " bytes", i,
                         manifest->size);
    if (before ? part->offset < before->offset + before->size : part->offset != 0)
        return error_set(err, ERROR_INVALID, "part %u of the manifest overlaps the one before it",
                         i);
    return ERROR_NONE;
}

enum error_code manifest_check(const struct manifest *manifest, struct error *err)
{
    if (manifest->size > INT64_MAX || !is_printable(manifest->name))
        return error_set(err, ERROR_INVALID, "the manifest's size or name is impossible");
    if (manifest->n_parts < 2 || manifest->n_parts > LIMIT_MODEL_TENSORS + 1)
        return error_set(err, ERROR_INVALID, "the manifest has %u parts; 2 to %d are possible",
                         manifest->n_parts, LIMIT_MODEL_TENSORS + 1);
    for (uint32_t i = 0; i < manifest->n_parts; i++) {
        enum error_code code = manifest_check_part(manifest, i, err);
        if (code)
            return code;
    }
    if (manifest->parts[MANIFEST_HEADER].size > LIMIT_MANIFEST_HEADER_BYTES)
        return error_set(err, ERROR_INVALID,
                         "the model's header is larger than the limit of %d bytes",
                         LIMIT_MANIFEST_HEADER_BYTES);
    return ERROR_NONE;
}

/* ---- as bytes ------------------------------------------------------------------------------ */

static void manifest_put_text(struct buffer *out, const char *text)
{
    size_t size = strlen(text);
    bytes_put(out, size, 1);
    if (size)
        buffer_append(out, text, size);
}

void manifest_write(const struct manifest *manifest, struct buffer *out)
{
    assert(!manifest_check(manifest, NULL));
    buffer_append(out, magic, sizeof magic);
    bytes_put(out, MANIFEST_FORMAT, 4);
    bytes_put(out, manifest->size, 8);
    manifest_put_text(out, manifest->name);
    bytes_put(out, manifest->n_parts, 4);
    for (uint32_t i = 0; i < manifest->n_parts; i++) {
        const struct manifest_part *part = &manifest->parts[i];
        manifest_put_text(out, part->name);
        bytes_put(out, part->offset, 8);
        bytes_put(out, part->size, 8);
        buffer_append(out, part->digest.bytes, DIGEST_BYTES);
    }
}

/* `out` has `room` zeroed bytes. A NUL inside would make two encodings of one text. */
static bool manifest_get_text(struct bytes_reader *reader, char *out, size_t room)
{
    size_t size = (size_t)bytes_get(reader, 1);
    const void *text = size < room ? bytes_take(reader, size) : NULL;
    if (!text || memchr(text, 0, size))
        return false;
    memcpy(out, text, size);
    return true;
}

static bool get_part(struct bytes_reader *reader, struct manifest_part *part)
{
    if (!manifest_get_text(reader, part->name, sizeof part->name))
        return false;
    part->offset = bytes_get(reader, 8);
    part->size = bytes_get(reader, 8);
    const void *digest = bytes_take(reader, DIGEST_BYTES);
    if (digest)
        memcpy(part->digest.bytes, digest, DIGEST_BYTES);
    return !reader->short_;
}

static enum error_code get_parts(struct bytes_reader *reader, struct manifest *out,
                                 struct error *err)
{
    uint32_t n = bytes_get_u32(reader);
    if (reader->short_ || n > reader->left / PART_BYTES_MIN) /* before memory is taken for them */
        return error_set(err, ERROR_INVALID, "the manifest ends early");
    out->parts = mem_new_array(n, sizeof *out->parts);
    if (!out->parts && n)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    for (; out->n_parts < n; out->n_parts++) {
        if (!get_part(reader, &out->parts[out->n_parts]))
            return error_set(err, ERROR_INVALID, "part %u of the manifest is malformed",
                             out->n_parts);
    }
    if (reader->left)
        return error_set(err, ERROR_INVALID, "the manifest has %zu bytes after its end",
                         reader->left);
    return manifest_check(out, err);
}

enum error_code manifest_read(const void *bytes, size_t size, struct manifest *out,
                              struct error *err)
{
    struct bytes_reader reader = {.at = bytes, .left = size};
    *out = (struct manifest){0};
    if (size > LIMIT_MANIFEST_BYTES)
        return error_set(err, ERROR_INVALID, "the manifest is larger than the limit of %d bytes",
                         LIMIT_MANIFEST_BYTES);
    const void *begin = bytes_take(&reader, sizeof magic);
    if (!begin || memcmp(begin, magic, sizeof magic) != 0)
        return error_set(err, ERROR_INVALID, "not a manifest");
    uint32_t format = bytes_get_u32(&reader);
    if (!reader.short_ && format != MANIFEST_FORMAT)
        return error_set(err, ERROR_UNSUPPORTED,
                         "the manifest is of format %u; this version reads %d", format,
                         MANIFEST_FORMAT);
    out->size = bytes_get(&reader, 8);
    enum error_code code = manifest_get_text(&reader, out->name, sizeof out->name)
                               ? get_parts(&reader, out, err)
                               : error_set(err, ERROR_INVALID, "the manifest's name is malformed");
    if (code)
        manifest_deinit(out);
    return code;
}

enum error_code manifest_identity(const struct manifest *manifest, struct digest *out,
                                  struct error *err)
{
    struct buffer bytes = {0};
    manifest_write(manifest, &bytes);
    enum error_code code = bytes.failed ? error_set(err, ERROR_NO_MEMORY, "out of memory")
                                        : digest_of(bytes.data, bytes.size, out, err);
    buffer_deinit(&bytes);
    return code;
}
