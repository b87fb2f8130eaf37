#include "weights/file_identity.h"

#include "base/limits.h"

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
