#include "mesh/secret_files.h"

#include "base/clock.h"
#include "base/limits.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LOCK_PAUSE_MS = 10, TEMPORARY_NAME = 64 };

void secret_wipe(struct secret *secret)
{
    if (secret->bytes)
        OPENSSL_cleanse(secret->bytes, secret->size);
    mem_free(secret->bytes);
    *secret = (struct secret){0};
}

/* ---- whose it is ------------------------------------------------------------------------- */

static enum error_code check_owner(const struct stat *file, const char *path, const char *mode, struct error *err)
{
    if (file->st_uid != geteuid())
        return error_set(err, ERROR_INVALID,
                         "it belongs to another user (number %lu); if it is yours: sudo chown %lu '%s'",
                         (unsigned long)file->st_uid, (unsigned long)geteuid(), path);
    if (file->st_mode & (S_IRWXG | S_IRWXO))
        return error_set(err, ERROR_INVALID, "others may read or change it (mode %04o); to mend it: chmod %s '%s'",
                         (unsigned)(file->st_mode & 07777), mode, path);
    return ERROR_NONE;
}

/* ---- the folder -------------------------------------------------------------------------- */

static enum error_code make_folders(const char *path, struct error *err)
{
    char part[PATH_MAX];
    snprintf(part, sizeof part, "%s", path);
    for (char *end = part + 1;; end++) {
        if (*end && *end != '/')
            continue;
        char kept = *end;
        *end = 0;
        if (mkdir(part, 0700) != 0 && errno != EEXIST && access(part, F_OK) != 0)
            return error_set(err, ERROR_IO, "making %s: %s", part, strerror(errno));
        *end = kept;
        if (!kept)
            return ERROR_NONE;
    }
}

static enum error_code lock_folder(int fd, struct error *err)
{
    uint64_t end_ns = clock_now_ns() + LIMIT_SECRET_LOCK_MS * 1000000ull;
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return error_set(err, ERROR_IO, "locking it: %s", strerror(errno));
        if (clock_now_ns() >= end_ns)
            return error_set(err, ERROR_BUSY, "another process holds it");
        nanosleep(&(struct timespec){.tv_nsec = LOCK_PAUSE_MS * 1000000}, NULL);
    }
    return ERROR_NONE;
}

static enum error_code open_folder(struct secret_folder *folder, struct error *err)
{
    enum error_code code = make_folders(folder->path, err);
    if (code)
        return code;
    folder->fd = open(folder->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct stat file;
    if (folder->fd < 0 || fstat(folder->fd, &file) != 0)
        return error_set(err, ERROR_IO, "%s", strerror(errno));
    code = check_owner(&file, folder->path, "700", err);
    return code ? code : lock_folder(folder->fd, err);
}

enum error_code secret_folder_open(const char *path, struct secret_folder *out, struct error *err)
{
    struct error local;
    err = err ? err : &local;
    *out = (struct secret_folder){.fd = -1};
    if (!path[0] || strlen(path) >= sizeof out->path)
        return error_set(err, ERROR_INVALID, "the path of the folder for keys is %s", path[0] ? "too long" : "empty");
    memcpy(out->path, path, strlen(path) + 1);
    enum error_code code = open_folder(out, err);
    if (!code)
        return ERROR_NONE;
    error_wrap(err, "folder for keys %s", path);
    secret_folder_close(out);
    return code;
}

void secret_folder_close(struct secret_folder *folder)
{
    if (folder->fd >= 0)
        close(folder->fd); /* gives the lock back */
    *folder = (struct secret_folder){.fd = -1};
}

/* ---- reading ------------------------------------------------------------------------------ */

static enum error_code check_file(const struct secret_folder *folder, const char *name, int fd, size_t *size,
                                  struct error *err)
{
    struct stat file;
    char path[PATH_MAX + TEMPORARY_NAME];
    snprintf(path, sizeof path, "%s/%s", folder->path, name);
    if (fstat(fd, &file) != 0)
        return error_set(err, ERROR_IO, "%s", strerror(errno));
    if (!S_ISREG(file.st_mode))
        return error_set(err, ERROR_INVALID, "it is not a regular file");
    if (file.st_size > LIMIT_SECRET_BYTES)
        return error_set(err, ERROR_INVALID, "it is larger than the limit of %d bytes", LIMIT_SECRET_BYTES);
    *size = (size_t)file.st_size;
    return check_owner(&file, path, "600", err);
}

static enum error_code read_whole(int fd, size_t size, struct secret *out, struct error *err)
{
    out->bytes = mem_new(size + 1);
    if (!out->bytes)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    while (out->size < size) {
        ssize_t got = read(fd, out->bytes + out->size, size - out->size);
        if (got == 0)
            return error_set(err, ERROR_INVALID, "it ends early");
        if (got < 0 && errno != EINTR)
            return error_set(err, ERROR_IO, "%s", strerror(errno));
        out->size += got > 0 ? (size_t)got : 0;
    }
    return ERROR_NONE;
}

enum error_code secret_read(const struct secret_folder *folder, const char *name, struct secret *out, struct error *err)
{
    struct error local;
    err = err ? err : &local;
    *out = (struct secret){0};
    /* no link, and no waiting for the other end of a pipe */
    int fd = openat(folder->fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    enum error_code code;
    size_t size = 0;
    if (fd < 0) {
        code = error_set(err, errno == ENOENT ? ERROR_NOT_FOUND : ERROR_IO, "%s",
                         errno == ELOOP ? "it is a link" : strerror(errno));
    } else {
        code = check_file(folder, name, fd, &size, err);
        if (!code)
            code = read_whole(fd, size, out, err);
        close(fd);
    }
    if (code) {
        secret_wipe(out);
        error_wrap(err, "%s/%s", folder->path, name);
    }
    return code;
}

/* ---- writing ------------------------------------------------------------------------------ */

static int write_all(int fd, const uint8_t *bytes, size_t size)
{
    for (size_t n = 0; n < size;) {
        ssize_t written = write(fd, bytes + n, size - n);
        if (written < 0 && errno != EINTR)
            return errno;
        n += written > 0 ? (size_t)written : 0;
    }
    return fsync(fd) == 0 ? 0 : errno;
}

/* The name beside is always the same, so that what a crash left behind is overwritten and not collected. */
static int write_beside(int folder, const char *beside, const void *bytes, size_t size)
{
    if (unlinkat(folder, beside, 0) != 0 && errno != ENOENT)
        return errno;
    int fd = openat(folder, beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return errno;
    int failure = fchmod(fd, 0600) == 0 ? write_all(fd, bytes, size) : errno; /* whatever the umask says */
    if (close(fd) != 0 && !failure)
        failure = errno;
    return failure;
}

enum error_code secret_replace(const struct secret_folder *folder, const char *name, const void *bytes, size_t size,
                               struct error *err)
{
    char beside[TEMPORARY_NAME];
    snprintf(beside, sizeof beside, ".%s.new", name);
    int failure = write_beside(folder->fd, beside, bytes, size);
    if (!failure && renameat(folder->fd, beside, folder->fd, name) != 0)
        failure = errno;
    if (failure) {
        unlinkat(folder->fd, beside, 0);
        return error_set(err, ERROR_IO, "writing %s/%s: %s", folder->path, name, strerror(failure));
    }
    fsync(folder->fd); /* makes the rename last; a file system that cannot has done what it can */
    return ERROR_NONE;
}

enum error_code secret_remove(const struct secret_folder *folder, const char *name, struct error *err)
{
    if (unlinkat(folder->fd, name, 0) != 0 && errno != ENOENT)
        return error_set(err, ERROR_IO, "removing %s/%s: %s", folder->path, name, strerror(errno));
    fsync(folder->fd);
    return ERROR_NONE;
}
