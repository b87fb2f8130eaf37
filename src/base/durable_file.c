#include "base/durable_file.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LOCK_PAUSE_MS = 10 };

/* ---- bytes ----------------------------------------------------------------------------------- */

int pread_all(int fd, void *bytes, size_t size, uint64_t offset)
{
    for (size_t n = 0; n < size;) {
        ssize_t got = pread(fd, (char *)bytes + n, size - n, (off_t)(offset + n));
        if (got == 0 || (got < 0 && errno != EINTR))
            return got == 0 ? EIO : errno;
        n += got > 0 ? (size_t)got : 0;
    }
    return 0;
}

int pwrite_all(int fd, const void *bytes, size_t size, uint64_t offset)
{
    for (size_t n = 0; n < size;) {
        ssize_t written = pwrite(fd, (const char *)bytes + n, size - n, (off_t)(offset + n));
        if (written < 0 && errno != EINTR)
            return errno;
        n += written > 0 ? (size_t)written : 0;
    }
    return 0;
}

/* ---- folders --------------------------------------------------------------------------------- */

static enum error_code check_path(const char *path, struct error *err)
{
    if (!path[0] || strlen(path) >= PATH_MAX)
        return error_set(err, ERROR_INVALID, "the path is %s", path[0] ? "too long" : "empty");
    return ERROR_NONE;
}

enum error_code durable_path(const char *folder, const char *name, const char *extension,
                             char out[PATH_MAX], struct error *err)
{
    int length = snprintf(out, PATH_MAX, "%s/%s%s", folder, name, extension);
    if (!folder[0] || length < 0 || length >= PATH_MAX)
        return error_set(err, ERROR_INVALID, "the folder's path is %s",
                         folder[0] ? "too long" : "empty");
    return ERROR_NONE;
}

enum error_code durable_make_folder(const char *path, struct error *err)
{
    char part[PATH_MAX];
    enum error_code code = check_path(path, err);
    if (code)
        return code;
    memcpy(part, path, strlen(path) + 1);
    for (char *end = part + 1;; end++) {
        if (*end && *end != '/')
            continue;
        char kept = *end;
        *end = 0;
        if (mkdir(part, 0700) != 0 && errno != EEXIST && access(part, F_OK) != 0)
            return error_set(err, ERROR_IO, "making the folder %s: %s", part, strerror(errno));
        *end = kept;
        if (!kept)
            return ERROR_NONE;
    }
}

/* The folder that holds it, and its name there. */
static const char *durable_file_split(const char *path, char folder[PATH_MAX])
{
    const char *slash = strrchr(path, '/');
    snprintf(folder, PATH_MAX, "%.*s", slash ? (int)(slash - path) + (slash == path) : 1,
             slash ? path : ".");
    return slash ? slash + 1 : path;
}

enum error_code durable_make_folder_of(const char *path, struct error *err)
{
    char folder[PATH_MAX];
    enum error_code code = check_path(path, err);
    if (code)
        return code;
    durable_file_split(path, folder);
    return durable_make_folder(folder, err);
}

static int durable_file_open_folder(const char *folder)
{
    return open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* Makes a rename last. A file system that cannot sync folders has done what it can. */
static int sync_names(int folder)
{
    return fsync(folder) == 0 || errno == EINVAL || errno == EOPNOTSUPP || errno == ENOSYS ? 0
                                                                                           : errno;
}

int durable_sync_folder_of(const char *path)
{
    char folder[PATH_MAX];
    durable_file_split(path, folder);
    int fd = durable_file_open_folder(folder);
    if (fd < 0)
        return errno;
    int failure = sync_names(fd);
    close(fd);
    return failure;
}

enum error_code durable_lock(int fd, uint32_t ms, struct error *err)
{
    const uint64_t end_ns = clock_now_ns() + ms * UINT64_C(1000000);
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return error_set(err, ERROR_IO, "locking it: %s", strerror(errno));
        if (clock_now_ns() >= end_ns)
            return error_set(err, ERROR_BUSY, "another process has locked it");
        nanosleep(&(struct timespec){.tv_nsec = LOCK_PAUSE_MS * 1000000}, NULL);
    }
    return ERROR_NONE;
}

/* ---- reading --------------------------------------------------------------------------------- */

static enum error_code read_open(int fd, uint64_t bytes_max, mode_t forbidden, struct buffer *out,
                                 struct error *err)
{
    struct stat file;
    if (fstat(fd, &file) != 0)
        return error_set(err, ERROR_IO, "%s", strerror(errno));
    if (!S_ISREG(file.st_mode))
        return error_set(err, ERROR_INVALID, "it is not a regular file");
    if (file.st_uid != geteuid())
        return error_set(err, ERROR_INVALID, "it belongs to another user");
    if (file.st_mode & forbidden)
        return error_set(err, ERROR_INVALID, "others can change it (mode %04o)",
                         (unsigned)(file.st_mode & 07777));
    if ((uint64_t)file.st_size > bytes_max)
        return error_set(err, ERROR_INVALID, "it is larger than the limit of %llu bytes",
                         (unsigned long long)bytes_max);
    const size_t before = out->size;
    void *room = buffer_extend(out, (size_t)file.st_size);
    if (!room)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    int failure = pread_all(fd, room, (size_t)file.st_size, 0);
    if (!failure)
        return ERROR_NONE;
    out->size = before; /* nothing that was not read */
    out->data[before] = '\0';
    return error_set(err, ERROR_IO, "%s", strerror(failure));
}

enum error_code durable_read(const char *path, uint64_t bytes_max, mode_t forbidden,
                             struct buffer *out, struct error *err)
{
    struct error local;
    err = err ? err : &local;
    /* no link (its owner's file is not meant), and no waiting for the other end of a pipe */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return error_set(err, errno == ENOENT || errno == ENOTDIR ? ERROR_NOT_FOUND : ERROR_IO,
                         "%s: %s", path, errno == ELOOP ? "it is a link" : strerror(errno));
    enum error_code code = read_open(fd, bytes_max, forbidden, out, err);
    close(fd);
    return code ? error_wrap(err, "%s", path) : ERROR_NONE;
}

/* ---- writing --------------------------------------------------------------------------------- */

static int write_beside(int folder, const char *beside, const void *bytes, size_t size)
{
    if (unlinkat(folder, beside, 0) != 0 && errno != ENOENT)
        return errno;
    int fd = openat(folder, beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return errno;
    int failure = fchmod(fd, 0600) == 0 ? pwrite_all(fd, bytes, size, 0) : errno;
    if (!failure && fsync(fd) != 0)
        failure = errno;
    if (close(fd) != 0 && !failure)
        failure = errno;
    return failure;
}

int durable_replace_at(int folder, const char *name, const void *bytes, size_t size)
{
    char beside[NAME_MAX + 1];
    if (snprintf(beside, sizeof beside, ".%s.new", name) >= (int)sizeof beside)
        return ENAMETOOLONG;
    int failure = write_beside(folder, beside, bytes, size);
    if (!failure && renameat(folder, beside, folder, name) != 0)
        failure = errno;
    if (failure)
        unlinkat(folder, beside, 0);
    else
        failure = sync_names(folder);
    return failure;
}

enum error_code durable_replace(const char *path, const void *bytes, size_t size, struct error *err)
{
    char folder[PATH_MAX];
    enum error_code code = check_path(path, err);
    if (code)
        return code;
    const char *name = durable_file_split(path, folder);
    int fd = durable_file_open_folder(folder);
    int failure = fd < 0 ? errno : durable_replace_at(fd, name, bytes, size);
    if (fd >= 0)
        close(fd);
    return failure ? error_set(err, ERROR_IO, "writing %s: %s", path, strerror(failure))
                   : ERROR_NONE;
}
