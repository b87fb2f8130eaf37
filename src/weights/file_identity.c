#include "weights/file_identity.h"

#include "base/limits.h"
#include "model/gguf_file.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

static int64_t to_ns(struct timespec time)
{
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

enum error_code file_identity_of(int fd, struct file_identity *out, struct error *err)
{
    struct stat file;
    if (fstat(fd, &file) != 0)
        return error_set(err, ERROR_IO, "%s", strerror(errno));
    *out = (struct file_identity){.size = (uint64_t)file.st_size,
                                  .inode = (uint64_t)file.st_ino,
                                  .device = (uint64_t)file.st_dev,
                                  .mtime_ns = to_ns(file.st_mtim),
                                  .ctime_ns = to_ns(file.st_ctim)};
    return ERROR_NONE;
}

/* The youngest times count for whether it changed of late; any part's change changes the inode. */
static void identity_add(struct file_identity *all, const struct file_identity *part)
{
    const uint64_t values[] = {part->inode, part->device, part->size, (uint64_t)part->mtime_ns,
                               (uint64_t)part->ctime_ns};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        all->inode = (all->inode ^ values[i]) * 0x100000001b3u; /* FNV-1a, by words */
    all->device = part->device;
    all->mtime_ns = part->mtime_ns > all->mtime_ns ? part->mtime_ns : all->mtime_ns;
    all->ctime_ns = part->ctime_ns > all->ctime_ns ? part->ctime_ns : all->ctime_ns;
}

enum error_code file_identity_of_model(const struct gguf_file *file, struct file_identity *out,
                                       struct error *err)
{
    const uint32_t n_parts = gguf_file_part_count(file);
    struct file_identity part;
    if (n_parts == 1)
        return file_identity_of(gguf_file_part_descriptor(file, 0), out, err);
    *out = (struct file_identity){0};
    for (uint32_t i = 0; i < n_parts; i++) {
        enum error_code code = file_identity_of(gguf_file_part_descriptor(file, i), &part, err);
        if (code)
            return code;
        identity_add(out, &part);
    }
    out->size = gguf_file_size(file); /* as a manifest has it */
    return ERROR_NONE;
}

bool file_identity_equal(const struct file_identity *a, const struct file_identity *b)
{
    return a->size == b->size && a->inode == b->inode && a->device == b->device &&
           a->mtime_ns == b->mtime_ns && a->ctime_ns == b->ctime_ns;
}

bool file_identity_is_recent(const struct file_identity *identity)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now); /* the clock of the file's times */
    int64_t changed =
        identity->ctime_ns > identity->mtime_ns ? identity->ctime_ns : identity->mtime_ns;
    return to_ns(now) - changed < LIMIT_MANIFEST_RECENT_MS * 1000000ll;
}
