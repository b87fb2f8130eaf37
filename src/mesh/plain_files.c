#include "mesh/plain_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum error_code plain_path(const char *folder, const char *name, const char *extension, char out[PATH_MAX],
                           struct error *err)
{
    int length = snprintf(out, PATH_MAX, "%s/%s%s", folder, name, extension);
    if (!folder[0] || length < 0 || length >= PATH_MAX - 8) /* room for what plain_replace() puts behind */
        return error_set(err, ERROR_INVALID, "the folder's path is %s", folder[0] ? "too long" : "empty");
    return ERROR_NONE;
}

enum error_code plain_folder_make(const char *path, struct error *err)
{
    char part[PATH_MAX];
    if (!path[0] || strlen(path) >= sizeof part)
        return error_set(err, ERROR_INVALID, "the folder's path is %s", path[0] ? "too long" : "empty");
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

int plain_pread(int fd, void *bytes, size_t size, uint64_t offset)
{
    for (size_t n = 0; n < size;) {
        ssize_t got = pread(fd, (char *)bytes + n, size - n, (off_t)(offset + n));
        if (got == 0 || (got < 0 && errno != EINTR))
            return got == 0 ? EIO : errno;
        n += got > 0 ? (size_t)got : 0;
    }
    return 0;
}

int plain_pwrite(int fd, const void *bytes, size_t size, uint64_t offset)
{
    for (size_t n = 0; n < size;) {
        ssize_t written = pwrite(fd, (const char *)bytes + n, size - n, (off_t)(offset + n));
        if (written < 0 && errno != EINTR)
            return errno;
        n += written > 0 ? (size_t)written : 0;
    }
    return 0;
}

static enum error_code read_open(int fd, uint64_t bytes_max, struct buffer *out, struct error *err)
{
    struct stat file;
    if (fstat(fd, &file) != 0)
        return error_set(err, ERROR_IO, "%s", strerror(errno));
    if (!S_ISREG(file.st_mode) || file.st_uid != geteuid())
        return error_set(err, ERROR_INVALID, "it is not a regular file of this user");
    if ((uint64_t)file.st_size > bytes_max)
        return error_set(err, ERROR_INVALID, "it is larger than the limit of %llu bytes",
                         (unsigned long long)bytes_max);
    void *room = buffer_extend(out, (size_t)file.st_size);
    if (!room)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    int failure = plain_pread(fd, room, (size_t)file.st_size, 0);
    return failure ? error_set(err, ERROR_IO, "%s", strerror(failure)) : ERROR_NONE;
}

enum error_code plain_read(const char *path, uint64_t bytes_max, struct buffer *out, struct error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return error_set(err, errno == ENOENT ? ERROR_NOT_FOUND : ERROR_IO, "%s: %s", path, strerror(errno));
    struct error local;
    err = err ? err : &local;
    enum error_code code = read_open(fd, bytes_max, out, err);
    close(fd);
    return code ? error_wrap(err, "%s", path) : ERROR_NONE;
}

void plain_sync_folder_of(const char *path)
{
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash)
        *slash = 0;
    int fd = open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        fsync(fd); /* a file system that cannot has done what it can */
        close(fd);
    }
}

static int write_beside(const char *beside, const void *bytes, size_t size)
{
    if (unlink(beside) != 0 && errno != ENOENT)
        return errno;
    int fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return errno;
    int failure = plain_pwrite(fd, bytes, size, 0);
    if (!failure && fsync(fd) != 0)
        failure = errno;
    if (close(fd) != 0 && !failure)
        failure = errno;
    return failure;
}

enum error_code plain_replace(const char *path, const void *bytes, size_t size, struct error *err)
{
    char beside[PATH_MAX];
    snprintf(beside, sizeof beside, "%s.new", path);
    int failure = write_beside(beside, bytes, size);
    if (!failure && rename(beside, path) != 0)
        failure = errno;
    if (failure) {
        unlink(beside);
        return error_set(err, ERROR_IO, "writing %s: %s", path, strerror(failure));
    }
    plain_sync_folder_of(path);
    return ERROR_NONE;
}
