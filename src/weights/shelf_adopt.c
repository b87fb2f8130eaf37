/* Parts that were fetched into another file, and verified there. */
#include "base/mem.h"
#include "model/gguf_file.h"
#include "weights/manifest_make.h"
#include "weights/shelf_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ADOPT_PIECE_BYTES = 1 << 20 };

static enum error_code adopt_paths(const struct shelf *shelf, const struct manifest *manifest,
                                   struct shelf_paths *out)
{
    struct digest identity;
    const enum error_code code = manifest_identity(manifest, &identity, NULL);
    return code ? code : shelf_paths_of(shelf, &identity, out, NULL);
}

/* A crash after the renaming leaves a data file without a record, which the next shelf_open() takes
 * away. */
bool shelf_adopt(struct shelf *shelf, const struct manifest *manifest, const char *path)
{
    struct shelf_paths paths;
    struct stat file;
    if (adopt_paths(shelf, manifest, &paths) || access(paths.data, F_OK) == 0 ||
        access(paths.record, F_OK) == 0 || lstat(path, &file) != 0 || !S_ISREG(file.st_mode) ||
        (uint64_t)file.st_size != manifest->size)
        return false;
    return rename(path, paths.data) == 0;
}

/* Where parts are copied from, at their places: a file, or bytes. */
struct adopt_source {
    int fd;
    const uint8_t *bytes; /* NULL: the file */
};

static ssize_t adopt_read(const struct adopt_source *from, uint8_t *piece, size_t size,
                          uint64_t offset)
{
    if (!from->bytes)
        return pread(from->fd, piece, size, (off_t)offset);
    memcpy(piece, from->bytes + offset, size);
    return (ssize_t)size;
}

static enum error_code adopt_copy_part(struct shelf_model *model, const struct adopt_source *from,
                                       uint32_t part, uint8_t *piece, struct error *err)
{
    const struct manifest_part *of = &model->manifest.parts[part];
    enum error_code code = ERROR_NONE;
    for (uint64_t at = 0; at < of->size && !code;) {
        const uint64_t left = of->size - at;
        const size_t want = left < ADOPT_PIECE_BYTES ? (size_t)left : ADOPT_PIECE_BYTES;
        const ssize_t got = adopt_read(from, piece, want, of->offset + at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return error_set(err, ERROR_IO, "reading what was gathered: %s",
                             got ? strerror(errno) : "it ends early");
        code = shelf_model_write(model, part, at, piece, (size_t)got, err);
        at += (uint64_t)got;
    }
    return code;
}

static enum error_code adopt_copy(struct shelf_model *model, const uint32_t *parts, uint32_t n,
                                  const struct part_set *lacking, const struct adopt_source *from,
                                  struct error *err)
{
    uint8_t *piece = mem_new(ADOPT_PIECE_BYTES);
    enum error_code code = piece ? ERROR_NONE : error_set(err, ERROR_NO_MEMORY, "out of memory");
    if (!code)
        code = shelf_model_reserve(model, lacking, err);
    for (uint32_t i = 0; i < n && !code; i++)
        code = adopt_copy_part(model, from, parts[i], piece, err);
    for (uint32_t i = 0; i < n && !code; i++) /* the copy is what will be used */
        code = shelf_model_verify(model, parts[i], err);
    mem_free(piece);
    return code;
}

/* Those of `parts` that the shelf lacks; joined: of its file `file` alone. NULL `from`: they are at
 * their places already. */
static enum error_code adopt_parts(struct shelf_model *model, const struct part_set *parts,
                                   const struct gguf_file *joined, uint32_t file,
                                   const struct adopt_source *from, struct error *err)
{
    struct part_set lacking = {0};
    uint32_t *list = mem_new_array((size_t)model->manifest.n_parts + 1, sizeof *list);
    uint32_t n = 0;
    enum error_code code = list ? part_set_init(&lacking, model->manifest.n_parts, err)
                                : error_set(err, ERROR_NO_MEMORY, "out of memory");
    for (uint32_t i = 0; i < model->manifest.n_parts && !code; i++) {
        uint32_t in = 0; /* the header, which was made, goes with the first */
        uint64_t offset;
        if (!part_set_has(parts, i) || part_set_has(&model->has, i))
            continue;
        if (joined)
            gguf_file_place(joined, model->manifest.parts[i].offset, &in, &offset);
        if (in != file)
            continue;
        list[n++] = i;
        part_set_add(&lacking, i);
    }
    if (!code && n && from)
        code = adopt_copy(model, list, n, &lacking, from, err);
    if (!code && n)
        code = shelf_model_keep(model, list, n, err);
    part_set_deinit(&lacking);
    mem_free(list);
    return code;
}

enum error_code shelf_model_adopt(struct shelf_model *model, const struct part_set *parts,
                                  const char *path, struct error *err)
{
    struct adopt_source from = {.fd = -1};
    if (path && (from.fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW)) < 0)
        return error_set(err, ERROR_IO, "%s: %s", path, strerror(errno));
    const enum error_code code = adopt_parts(model, parts, NULL, 0, path ? &from : NULL, err);
    if (!code)
        shelf_model_trim(model, NULL);
    if (path)
        close(from.fd);
    return code;
}

enum error_code shelf_model_adopt_files(struct shelf_model *model, const struct part_set *parts,
                                        const struct gguf_file *joined, char (*paths)[PATH_MAX],
                                        struct error *err)
{
    const struct adopt_source from = {.fd = -1, .bytes = gguf_file_bytes(joined)};
    enum error_code code = manifest_agrees(&model->manifest, joined, err);
    for (uint32_t i = 0; i < gguf_file_part_count(joined) && !code; i++) {
        code = adopt_parts(model, parts, joined, i, &from, err);
        if (!code && truncate(paths[i], 0) != 0)
            code = error_set(err, ERROR_IO, "%s: %s", paths[i], strerror(errno));
    }
    if (!code)
        shelf_model_trim(model, NULL);
    return code;
}
