/* Opening, mapping and closing; the tensors. The checks are in gguf_check.c, the keys in
 * gguf_keys.c. */
#include "model/gguf_file.h"

#include "base/large_pages.h"
#include "base/limits.h"
#include "base/mem.h"
#include "model/gguf_guard.h"
#include "model/gguf_parts.h"
#include "model/gguf_skim.h"
#include "model/gguf_trial.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static enum error_code gguf_file_open_path(const char *path, int *descriptor, struct error *err)
{
    /* O_NONBLOCK: opening a FIFO must not wait for somebody to write to it. */
    *descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*descriptor < 0)
        return error_set(err, errno == ENOENT || errno == ENOTDIR ? ERROR_NOT_FOUND : ERROR_IO,
                         "%s", strerror(errno));
    enum error_code code = gguf_trial_run(*descriptor, err);
    if (code)
        close(*descriptor);
    return code;
}

/* It must be an ordinary file with something in it. */
static enum error_code gguf_file_measure(int fd, uint64_t *size, struct error *err)
{
    struct stat info;
    enum error_code code = ERROR_NONE;
    if (fstat(fd, &info) != 0)
        code = error_set(err, ERROR_IO, "%s", strerror(errno));
    else if (S_ISDIR(info.st_mode))
        code = error_set(err, ERROR_INVALID, "a directory, not a file");
    else if (!S_ISREG(info.st_mode))
        code = error_set(err, ERROR_INVALID, "not a regular file");
    else if (info.st_size == 0)
        code = error_set(err, ERROR_INVALID, "the file is empty");
    else
        *size = (uint64_t)info.st_size;
    return code;
}

static enum error_code gguf_file_map(struct gguf_file *file, struct error *err)
{
    const int descriptor = file->parts[0].descriptor;
    enum error_code code = gguf_file_measure(descriptor, &file->size, err);
    if (code)
        return code;
    if (file->size > SIZE_MAX)
        return error_set(err, ERROR_UNSUPPORTED, "larger than this machine's address space");
    void *bytes = mmap(NULL, (size_t)file->size, PROT_READ, MAP_SHARED, descriptor, 0);
    if (bytes == MAP_FAILED)
        return error_set(err, errno == ENOMEM ? ERROR_NO_MEMORY : ERROR_IO,
                         "cannot map the file: %s", strerror(errno));
    file->bytes = bytes;
    file->mapped = true;
    file->parts[0].size = file->size;
    file->guard = gguf_guard_add(bytes, (size_t)file->size);
    return ERROR_NONE;
}

enum error_code gguf_file_check_whole(const struct gguf_file *file, struct error *err)
{
    if (!file->mapped || !gguf_guard_is_cut(file->guard))
        return ERROR_NONE;
    return error_set(err, ERROR_IO,
                     "the file %s was cut, or its disk failed, while it was in use; bring it back "
                     "and load the model again",
                     file->path);
}

static enum error_code gguf_file_check(struct gguf_file *file, struct error *err)
{
    enum error_code code = gguf_check(file->bytes, file->size, &file->index, err);
    if (gguf_file_check_whole(file, NULL)) /* whatever gguf_check() made of it */
        return gguf_file_check_whole(file, err);
    return code;
}

/* Taken alone, one part would pass for a whole model with tensors missing. */
static enum error_code gguf_file_check_alone(const struct gguf_file *file, struct error *err)
{
    uint32_t n_parts;
    enum error_code code = gguf_parts_count(file, &n_parts, err);
    return code || n_parts == 1
               ? code
               : error_set(err, ERROR_INVALID, "one of the %u parts of a model, without the others",
                           n_parts);
}

static struct gguf_file *gguf_file_new(const char *path)
{
    struct gguf_file *file = mem_new(sizeof *file);
    if (file)
        file->path = mem_copy_text(path, strlen(path));
    if (file && file->path)
        return file;
    mem_free(file);
    return NULL;
}

enum error_code gguf_file_open_part(int descriptor, const char *path, struct gguf_file **out,
                                    struct error *err)
{
    *out = NULL;
    struct gguf_file *file = gguf_file_new(path);
    struct gguf_part *part = file ? mem_new(sizeof *part) : NULL;
    if (!part) {
        close(descriptor);
        gguf_file_close(file);
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    }
    part->descriptor = descriptor;
    file->parts = part;
    file->n_parts = 1;
    enum error_code code = gguf_file_map(file, err);
    if (!code)
        large_pages_advise(file->bytes, file->size);
    if (!code)
        code = gguf_file_check(file, err);
    if (code)
        gguf_file_close(file);
    else
        *out = file;
    return code;
}

static enum error_code gguf_file_join(struct gguf_file *parts[], uint32_t n, const char *path,
                                      struct gguf_file **out, struct error *err)
{
    struct gguf_file *file = gguf_file_new(path);
    if (!file)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    enum error_code code = gguf_parts_join(parts, n, file, err);
    if (!code && (code = gguf_file_check(file, err)))
        error_wrap(err, "its %u parts together", n);
    if (code)
        gguf_file_close(file);
    else
        *out = file;
    return code;
}

enum error_code gguf_file_open_descriptors(const int *descriptors, uint32_t n, const char *path,
                                           struct gguf_file **out, struct error *err)
{
    assert(path && out && n && n <= LIMIT_MODEL_PARTS);
    struct gguf_file *parts[LIMIT_MODEL_PARTS] = {0};
    struct error local = {0};
    *out = NULL;
    for (uint32_t i = 0; i < n; i++) {
        if (local.code)
            close(descriptors[i]);
        else if (gguf_file_open_part(descriptors[i], path, &parts[i], &local) && n > 1)
            error_wrap(&local, "part %u of %u", i + 1, n);
    }
    if (!local.code && n > 1)
        gguf_file_join(parts, n, path, out, &local);
    else if (!local.code && !gguf_file_check_alone(parts[0], &local))
        *out = parts[0], parts[0] = NULL;
    for (uint32_t i = 0; i < n; i++)
        gguf_file_close(parts[i]);
    if (local.code)
        error_wrap(&local, "%s", path);
    if (local.code && err)
        *err = local;
    return local.code;
}

/* The files of the model of which `first` was given; *n of them are open afterwards, also when it
 * fails. `name`: PATH_MAX bytes. */
static enum error_code gguf_file_open_all(const char *given, uint32_t n_parts, int *descriptors,
                                          uint32_t *n, char *name, struct error *err)
{
    for (*n = 0; *n < n_parts; ++*n) {
        enum error_code code = gguf_parts_name(given, *n, n_parts, name, err);
        if (code)
            return code;
        code = gguf_file_open_path(name, &descriptors[*n], err);
        if (code) {
            const char *slash = strrchr(name, '/');
            return error_wrap(err, "part %u of %u, %s", *n + 1, n_parts, slash ? slash + 1 : name);
        }
    }
    return gguf_parts_name(given, 0, n_parts, name, err);
}

/* `file` is one part of several: gives the whole in its place. */
static enum error_code gguf_file_open_rest(const char *given, uint32_t n_parts,
                                           struct gguf_file **file, struct error *err)
{
    int descriptors[LIMIT_MODEL_PARTS];
    char first[PATH_MAX];
    uint32_t n = 0;
    gguf_file_close(*file);
    *file = NULL;
    enum error_code code = gguf_file_open_all(given, n_parts, descriptors, &n, first, err);
    if (!code)
        return gguf_file_open_descriptors(descriptors, n, first, file, err);
    for (uint32_t i = 0; i < n; i++)
        close(descriptors[i]);
    return error_wrap(err, "%s", given);
}

enum error_code gguf_file_open(const char *path, struct gguf_file **out, struct error *err)
{
    assert(path && out);
    *out = NULL;
    struct error local = {0};
    char chosen[PATH_MAX];
    int descriptor;
    uint32_t n_parts = 1;
    if (gguf_parts_choose(path, chosen, &local) ||
        gguf_file_open_path(chosen, &descriptor, &local) ||
        gguf_file_open_part(descriptor, chosen, out, &local) ||
        gguf_parts_count(*out, &n_parts, &local))
        error_wrap(&local, "%s", path);
    else if (n_parts > 1)
        gguf_file_open_rest(chosen, n_parts, out, &local);
    if (!local.code)
        return ERROR_NONE;
    gguf_file_close(*out);
    *out = NULL;
    if (err)
        *err = local;
    return local.code;
}

/* Reads what is looked at alone: a page of disk for each fault. */
static bool gguf_file_skim(struct gguf_file *file)
{
    uint32_t n_parts = 0;
    bool misses_keys = false;
    madvise((void *)(uintptr_t)file->bytes, (size_t)file->size, MADV_RANDOM);
    return gguf_skim(file->bytes, file->size, &file->index, &misses_keys) &&
           !gguf_file_check_whole(file, NULL) && !gguf_parts_count(file, &n_parts, NULL) &&
           n_parts == 1 && !(misses_keys && !gguf_file_has(file, "general.file_type"));
}

enum error_code gguf_file_open_listed(const char *path, struct gguf_file **out, struct error *err)
{
    assert(path && out);
    struct gguf_file *file = NULL;
    struct gguf_part *part = mem_new(sizeof *part);
    int descriptor = -1;
    if (part && !gguf_file_open_path(path, &descriptor, NULL) && (file = gguf_file_new(path))) {
        *part = (struct gguf_part){.descriptor = descriptor};
        file->parts = part;
        file->n_parts = 1;
        if (!gguf_file_map(file, NULL) && gguf_file_skim(file)) {
            *out = file;
            return ERROR_NONE;
        }
        gguf_file_close(file);
    } else {
        mem_free(part);
        if (descriptor >= 0)
            close(descriptor);
    }
    return gguf_file_open(path, out, err);
}

enum error_code gguf_file_open_memory(const void *bytes, size_t size, struct gguf_file **out,
                                      struct error *err)
{
    assert((bytes || size == 0) && out);
    *out = NULL;
    struct gguf_file *file = mem_new(sizeof *file);
    if (!file)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    file->bytes = bytes;
    file->size = size;
    enum error_code code = gguf_file_check(file, err);
    if (!code)
        code = gguf_file_check_alone(file, err);
    if (code) {
        gguf_file_close(file);
        return code;
    }
    *out = file;
    return ERROR_NONE;
}

void gguf_file_close(struct gguf_file *file)
{
    if (!file)
        return;
    gguf_index_deinit(&file->index);
    if (file->mapped)
        gguf_guard_remove(file->guard);
    if (file->mapped)
        munmap((void *)(uintptr_t)file->bytes, (size_t)file->size);
    for (uint32_t i = 0; i < file->n_parts; i++) {
        if (file->parts[i].descriptor >= 0)
            close(file->parts[i].descriptor);
    }
    mem_free(file->parts);
    mem_free(file->path);
    mem_free(file);
}

const char *gguf_file_path(const struct gguf_file *file)
{
    return file->path ? file->path : "(memory)";
}

uint64_t gguf_file_size(const struct gguf_file *file)
{
    return file->size;
}

const uint8_t *gguf_file_bytes(const struct gguf_file *file)
{
    return file->bytes;
}

bool gguf_file_is_mapped(const struct gguf_file *file)
{
    return file->mapped;
}

uint32_t gguf_file_part_count(const struct gguf_file *file)
{
    return file->n_parts;
}

int gguf_file_part_descriptor(const struct gguf_file *file, uint32_t index)
{
    assert(index < file->n_parts);
    return file->parts[index].descriptor;
}

bool gguf_file_place(const struct gguf_file *file, uint64_t offset, uint32_t *part_index,
                     uint64_t *part_offset)
{
    for (uint32_t i = 0; i < file->n_parts; i++) {
        const struct gguf_part *part = &file->parts[i];
        if (offset < part->at || offset - part->at >= part->size)
            continue;
        *part_index = i;
        *part_offset = offset - part->at + part->from;
        return true;
    }
    return false;
}

uint32_t gguf_file_version(const struct gguf_file *file)
{
    return file->index.version;
}

const char *gguf_tensor_type_name(const struct gguf_tensor *tensor)
{
    return ggml_type_name((enum ggml_type)tensor->type);
}

uint64_t gguf_file_tensor_count(const struct gguf_file *file)
{
    return file->index.n_tensors;
}

const struct gguf_tensor *gguf_file_tensor(const struct gguf_file *file, uint64_t index)
{
    assert(index < file->index.n_tensors);
    return &file->index.tensors[index];
}

const struct gguf_tensor *gguf_file_find_tensor(const struct gguf_file *file, const char *name)
{
    const struct gguf_index *index = &file->index;
    uint64_t low = 0, high = index->n_tensors;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        const struct gguf_tensor *tensor = &index->tensors[index->tensors_by_name[middle]];
        int order = strcmp(name, tensor->name);
        if (order == 0)
            return tensor;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}
