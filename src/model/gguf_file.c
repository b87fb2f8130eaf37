/* Opening, mapping and closing; the tensors. The checks are in gguf_check.c, the keys in
 * gguf_keys.c. */
#include "model/gguf_file.h"

#include "base/mem.h"
#include "model/gguf_guard.h"
#include "model/gguf_index.h"
#include "model/gguf_trial.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static enum error_code gguf_file_open_path(const char *path, int *descriptor, struct error *err)
{
    /* O_NONBLOCK: opening a FIFO must not wait for somebody to write to it. */
    *descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*descriptor >= 0)
        return ERROR_NONE;
    return error_set(err, errno == ENOENT || errno == ENOTDIR ? ERROR_NOT_FOUND : ERROR_IO, "%s",
                     strerror(errno));
}

/* It must be an ordinary file with something in it. */
static enum error_code gguf_file_measure(int fd, uint64_t *size, struct error *err)
{
    struct stat info;
    enum error_code code = ERROR_NONE;
    if (fstat(fd, &info) != 0)
        code = error_set(err, ERROR_IO, "%s", strerror(errno));
    else if (S_ISDIR(info.st_mode))
        code = error_set(err, ERROR_INVALID, "this is a directory; give the .gguf file inside it");
    else if (!S_ISREG(info.st_mode))
        code = error_set(err, ERROR_INVALID, "not a regular file");
    else if (info.st_size == 0)
        code = error_set(err, ERROR_INVALID, "the file is empty");
    else
        *size = (uint64_t)info.st_size;
    return code;
}

static enum error_code gguf_file_map(struct gguf_file *file, const char *path, struct error *err)
{
    file->path = mem_copy_text(path, strlen(path));
    if (!file->path)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    enum error_code code = gguf_file_measure(file->descriptor, &file->size, err);
    if (code)
        return code;
    if (file->size > SIZE_MAX)
        return error_set(err, ERROR_UNSUPPORTED, "larger than this machine's address space");
    void *bytes = mmap(NULL, (size_t)file->size, PROT_READ, MAP_SHARED, file->descriptor, 0);
    if (bytes == MAP_FAILED)
        return error_set(err, errno == ENOMEM ? ERROR_NO_MEMORY : ERROR_IO,
                         "cannot map the file: %s", strerror(errno));
    file->bytes = bytes;
    file->mapped = true;
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

/* A model cut into several files is refused: taken alone, one part would pass for a whole model
 * with tensors missing.
 */
static enum error_code gguf_file_check(struct gguf_file *file, struct error *err)
{
    enum error_code code = gguf_check(file->bytes, file->size, &file->index, err);
    uint32_t n_parts = 1;
    if (gguf_file_check_whole(file, NULL)) /* whatever gguf_check() made of it */
        return gguf_file_check_whole(file, err);
    if (code || gguf_file_u32(file, "split.count", &n_parts, NULL) || n_parts <= 1)
        return code;
    return error_set(err, ERROR_UNSUPPORTED,
                     "one of the %u parts of a split model; join them with `llama-gguf-split "
                     "--merge FIRST-PART.gguf "
                     "WHOLE.gguf`",
                     n_parts);
}

enum error_code gguf_file_open(const char *path, struct gguf_file **out, struct error *err)
{
    assert(path && out);
    *out = NULL;
    struct error local = {0};
    int descriptor;
    if (!gguf_file_open_path(path, &descriptor, &local)) {
        if (!gguf_trial_run(descriptor, &local))
            return gguf_file_open_descriptor(descriptor, path, out, err);
        close(descriptor);
    }
    error_wrap(&local, "%s", path);
    if (err)
        *err = local;
    return local.code;
}

enum error_code gguf_file_open_descriptor(int descriptor, const char *path, struct gguf_file **out,
                                          struct error *err)
{
    assert(path && out && descriptor >= 0);
    *out = NULL;
    struct error local = {0};
    struct gguf_file *file = mem_new(sizeof *file);
    if (!file) {
        close(descriptor);
        error_set(&local, ERROR_NO_MEMORY, "out of memory");
        goto failed;
    }
    file->descriptor = descriptor;
    if (gguf_file_map(file, path, &local) || gguf_file_check(file, &local))
        goto failed;
    *out = file;
    return ERROR_NONE;

failed:
    gguf_file_close(file);
    error_wrap(&local, "%s", path);
    if (err)
        *err = local;
    return local.code;
}

enum error_code gguf_file_open_memory(const void *bytes, size_t size, struct gguf_file **out,
                                      struct error *err)
{
    assert((bytes || size == 0) && out);
    *out = NULL;
    struct gguf_file *file = mem_new(sizeof *file);
    if (!file)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    file->descriptor = -1;
    file->bytes = bytes;
    file->size = size;
    enum error_code code = gguf_file_check(file, err);
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
    if (file->descriptor >= 0)
        close(file->descriptor);
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

int gguf_file_descriptor(const struct gguf_file *file)
{
    return file->descriptor;
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
