#include "trust/secret_files.h"

#include "base/durable_file.h"
#include "base/limits.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void secret_wipe(struct secret *secret)
{
    if (secret->bytes)
        OPENSSL_cleanse(secret->bytes, secret->size);
    mem_free(secret->bytes);
    *secret = (struct secret){0};
}

/* ---- whose it is ------------------------------------------------------------------------- */

static enum error_code check_owner(const struct stat *file, const char *path, const char *mode,
                                   struct error *err)
{
    if (file->st_uid != geteuid())
        return error_set(
            err, ERROR_INVALID,
            "it belongs to another user (number %lu); if it is yours: sudo chown %lu '%s'",
            (unsigned long)file->st_uid, (unsigned long)geteuid(), path);
    if (file->st_mode & (S_IRWXG | S_IRWXO))
        return error_set(err, ERROR_INVALID,
                         "others can read or change it (mode %04o); to fix that: chmod %s '%s'",
                         (unsigned)(file->st_mode & 07777), mode, path);
    return ERROR_NONE;
}

/* ---- the folder -------------------------------------------------------------------------- */

static enum error_code secret_files_open_folder(struct secret_folder *folder, struct error *err)
{
    enum error_code code = durable_make_folder(folder->path, err);
    if (code)
        return code;
    folder->fd = open(folder->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct stat file;
    if (folder->fd < 0 || fstat(folder->fd, &file) != 0)
        return error_set(err, ERROR_IO, "%s", strerror(errno));
    code = check_owner(&file, folder->path, "700", err);
    return code ? code : durable_lock(folder->fd, LIMIT_SECRET_LOCK_MS, err);
}

enum error_code secret_folder_open(const char *path, struct secret_folder *out, struct error *err)
{
    struct error local;
    err = err ? err : &local;
    *out = (struct secret_folder){.fd = -1};
    if (!path[0] || strlen(path) >= sizeof out->path)
        return error_set(err, ERROR_INVALID, "the path of the folder for keys is %s",
                         path[0] ? "too long" : "empty");
    memcpy(out->path, path, strlen(path) + 1);
    enum error_code code = secret_files_open_folder(out, err);
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

static enum error_code secret_files_check_file(const struct secret_folder *folder, const char *name,
                                               int fd, size_t *size, struct error *err)
{
    struct stat file;
    char path[PATH_MAX + NAME_MAX];
    snprintf(path, sizeof path, "%s/%s", folder->path, name);
    if (fstat(fd, &file) != 0)
        return error_set(err, ERROR_IO, "%s", strerror(errno));
    if (!S_ISREG(file.st_mode))
        return error_set(err, ERROR_INVALID, "it is not a regular file");
    if (file.st_size > LIMIT_SECRET_BYTES)
        return error_set(err, ERROR_INVALID, "it is larger than the limit of %d bytes",
                         LIMIT_SECRET_BYTES);
    *size = (size_t)file.st_size;
    return check_owner(&file, path, "600", err);
}

static enum error_code read_whole(int fd, size_t size, struct secret *out, struct error *err)
{
    out->bytes = mem_new(size + 1);
    if (!out->bytes)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    out->size = size;
    int failure = pread_all(fd, out->bytes, size, 0);
    return failure ? error_set(err, ERROR_IO, "%s", strerror(failure)) : ERROR_NONE;
}

enum error_code secret_read(const struct secret_folder *folder, const char *name,
                            struct secret *out, struct error *err)
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
        code = secret_files_check_file(folder, name, fd, &size, err);
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

enum error_code secret_replace(const struct secret_folder *folder, const char *name,
                               const void *bytes, size_t size, struct error *err)
{
    int failure = durable_replace_at(folder->fd, name, bytes, size);
    if (failure)
        return error_set(err, ERROR_IO, "writing %s/%s: %s", folder->path, name, strerror(failure));
    return ERROR_NONE;
}

enum error_code secret_remove(const struct secret_folder *folder, const char *name,
                              struct error *err)
{
    if (unlinkat(folder->fd, name, 0) != 0 && errno != ENOENT)
        return error_set(err, ERROR_IO, "removing %s/%s: %s", folder->path, name, strerror(errno));
    fsync(folder->fd);
    return ERROR_NONE;
}
