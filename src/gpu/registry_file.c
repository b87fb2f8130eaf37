/* The registry's file: whose it may be, how it is locked and replaced. */
#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/state_folder.h"
#include "gpu/registry.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LOCK_PAUSE_MS = 10 };

void gpu_registry_path(char *path, size_t size)
{
    state_folder_file("devices.json", path, size);
}

/* ---- reading --------------------------------------------------------------------------- */

static enum error_code check_file(int fd, size_t *size, struct error *err)
{
    struct stat file;
    if (fstat(fd, &file) != 0)
        return error_set(err, ERROR_IO, "%s", strerror(errno));
    if (!S_ISREG(file.st_mode))
        return error_set(err, ERROR_INVALID, "it is not a regular file");
    if (file.st_uid != geteuid())
        return error_set(err, ERROR_INVALID, "it belongs to another user");
    if (file.st_mode & (S_IWGRP | S_IWOTH))
        return error_set(err, ERROR_INVALID, "others may write to it");
    if (file.st_size > LIMIT_REGISTRY_BYTES)
        return error_set(err, ERROR_INVALID, "it is larger than the limit of %d bytes", LIMIT_REGISTRY_BYTES);
    *size = (size_t)file.st_size;
    return ERROR_NONE;
}

/* What is read is what the file had when it was looked at: a file that shrinks gives an error, one that grows is
 * read up to there. */
static enum error_code read_whole(int fd, size_t size, struct registry *out, struct error *err)
{
    char *json = mem_new(size + 1);
    if (!json)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    size_t n = 0;
    enum error_code code = ERROR_NONE;
    while (!code && n < size) {
        ssize_t got = read(fd, json + n, size - n);
        if (got > 0)
            n += (size_t)got;
        else if (got == 0)
            code = error_set(err, ERROR_INVALID, "it ends early");
        else if (errno != EINTR)
            code = error_set(err, ERROR_IO, "%s", strerror(errno));
    }
    if (!code)
        code = registry_parse(json, size, out, err);
    mem_free(json);
    return code;
}

static enum error_code load(const char *path, struct registry *out, struct error *err)
{
    *out = (struct registry){0};
    /* no link (its owner's file is not meant), and no waiting for the other end of a pipe */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return ERROR_NONE;
    if (fd < 0)
        return error_set(err, ERROR_IO, "%s", errno == ELOOP ? "it is a link" : strerror(errno));
    size_t size = 0;
    enum error_code code = check_file(fd, &size, err);
    if (!code)
        code = read_whole(fd, size, out, err);
    close(fd);
    return code;
}

void registry_load(const char *path, struct registry *out)
{
    *out = (struct registry){0};
    struct error err;
    enum error_code code = path && path[0] ? load(path, out, &err) : ERROR_NONE;
    if (code)
        log_line(LOG_WARN, "gpu", "the registry of devices %s is not used%s: %s", path,
                 code == ERROR_NO_MEMORY ? "" : ", and will be made anew", err.text);
}

/* ---- writing --------------------------------------------------------------------------- */

/* Makes the folders of the path, all but its last part. */
static enum error_code make_folders(const char *path, struct error *err)
{
    char folder[PATH_MAX];
    if (snprintf(folder, sizeof folder, "%s", path) >= (int)sizeof folder)
        return error_set(err, ERROR_INVALID, "its path is too long");
    for (char *slash = folder + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = 0;
        if (mkdir(folder, 0700) != 0 && errno != EEXIST && access(folder, F_OK) != 0)
            return error_set(err, ERROR_IO, "folder %s: %s", folder, strerror(errno));
        *slash = '/';
    }
    return ERROR_NONE;
}

/* The descriptor whose closing gives the lock back; -1 on failure. */
static int take_lock(const char *path, struct error *err)
{
    char name[PATH_MAX];
    if (snprintf(name, sizeof name, "%s.lock", path) >= (int)sizeof name) {
        error_set(err, ERROR_INVALID, "its path is too long");
        return -1;
    }
    int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0600);
    if (fd < 0) {
        error_set(err, ERROR_IO, "%s: %s", name, strerror(errno));
        return -1;
    }
    uint64_t end_ns = clock_now_ns() + LIMIT_REGISTRY_LOCK_MS * 1000000ull;
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if ((errno != EWOULDBLOCK && errno != EINTR) || clock_now_ns() >= end_ns) {
            if (errno == EWOULDBLOCK)
                error_set(err, ERROR_BUSY, "another process holds %s", name);
            else
                error_set(err, ERROR_IO, "%s: %s", name, strerror(errno));
            close(fd);
            return -1;
        }
        nanosleep(&(struct timespec){.tv_nsec = LOCK_PAUSE_MS * 1000000}, NULL);
    }
    return fd;
}

static bool write_all(int fd, const char *bytes, size_t size)
{
    for (size_t n = 0; n < size;) {
        ssize_t written = write(fd, bytes + n, size - n);
        if (written < 0 && errno != EINTR)
            return false;
        n += written > 0 ? (size_t)written : 0;
    }
    return fsync(fd) == 0;
}

/* Makes the rename last too. A file system that cannot sync a folder has done what it can. */
static void sync_folder(const char *path)
{
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash)
        slash[slash == folder] = 0;
    int fd = open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
}

static enum error_code replace(const char *path, const char *bytes, size_t size, struct error *err)
{
    char temporary[PATH_MAX];
    if (snprintf(temporary, sizeof temporary, "%s.XXXXXX", path) >= (int)sizeof temporary)
        return error_set(err, ERROR_INVALID, "its path is too long");
    int fd = mkostemp(temporary, O_CLOEXEC); /* mode 0600 */
    if (fd < 0)
        return error_set(err, ERROR_IO, "%s", strerror(errno));
    bool written = write_all(fd, bytes, size);
    int failure = written ? 0 : errno;
    if (close(fd) != 0 && !failure)
        failure = errno;
    if (!failure && rename(temporary, path) != 0)
        failure = errno;
    if (failure) {
        unlink(temporary);
        return error_set(err, ERROR_IO, "%s", strerror(failure));
    }
    sync_folder(path);
    return ERROR_NONE;
}

/* Somebody may want what is in it: of a newer version, of an older owner, with a slip of the pen. */
static void keep_aside(const char *path)
{
    char aside[PATH_MAX];
    struct stat file;
    if (lstat(path, &file) != 0 || !S_ISREG(file.st_mode) ||
        snprintf(aside, sizeof aside, "%s.unused", path) >= (int)sizeof aside)
        return;
    if (rename(path, aside) == 0)
        log_line(LOG_WARN, "gpu", "the registry of devices that is not used is kept as %s", aside);
}

static enum error_code update_locked(const char *path, const struct registry_entry *changes, uint32_t count,
                                     struct error *err)
{
    struct registry registry;
    enum error_code code = load(path, &registry, err);
    if (code == ERROR_NO_MEMORY)
        return code;
    if (code) /* who loads it says why */
        keep_aside(path);
    code = ERROR_NONE;
    for (uint32_t i = 0; !code && i < count; i++)
        code = registry_merge(&registry, &changes[i], err);
    char *json = NULL;
    size_t size = 0;
    if (!code)
        code = registry_write_json(&registry, &json, &size, err);
    if (!code)
        code = replace(path, json, size, err);
    mem_free(json);
    registry_deinit(&registry);
    return code;
}

enum error_code registry_update(const char *path, const struct registry_entry *changes, uint32_t count,
                                struct error *err)
{
    struct error local;
    err = err ? err : &local;
    enum error_code code = make_folders(path, err);
    if (!code) {
        int lock = take_lock(path, err);
        code = lock < 0 ? err->code : update_locked(path, changes, count, err);
        if (lock >= 0)
            close(lock);
    }
    return code ? error_wrap(err, "registry of devices %s", path) : ERROR_NONE;
}
