/* The system calls of the product's own code on power_disk.h: the linker's --wrap leads them here
 * (see meson.build), in these tests alone. What is not in POWER_FOLDER goes on to the real ones. */
#include "power_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int __real_access(const char *path, int mode);
int __real_unlink(const char *path);
int __real_unlinkat(int folder, const char *name, int flags);
int __real_renameat(int from_folder, const char *from, int to_folder, const char *to);
int __real_renameat2(int from_folder, const char *from, int to_folder, const char *to,
                     unsigned flags);
int __real_rename(const char *from, const char *to);
int __real_open64(const char *path, int flags, ...);
int __real_openat64(int folder, const char *name, int flags, ...);
int __real_fstat64(int fd, struct stat *out);
int __real_fchmod(int fd, mode_t mode);
ssize_t __real_pread64(int fd, void *bytes, size_t size, off_t at);
ssize_t __real_pwrite64(int fd, const void *bytes, size_t size, off_t at);
int __real_fsync(int fd);
int __real_close(int fd);

int __wrap_access(const char *path, int mode);
int __wrap_unlink(const char *path);
int __wrap_unlinkat(int folder, const char *name, int flags);
int __wrap_renameat(int from_folder, const char *from, int to_folder, const char *to);
int __wrap_renameat2(int from_folder, const char *from, int to_folder, const char *to,
                     unsigned flags);
int __wrap_rename(const char *from, const char *to);
int __wrap_open64(const char *path, int flags, ...);
int __wrap_openat64(int folder, const char *name, int flags, ...);
int __wrap___open64_2(const char *path, int flags);
int __wrap___openat64_2(int folder, const char *name, int flags);
int __wrap_fstat64(int fd, struct stat *out);
int __wrap_fchmod(int fd, mode_t mode);
ssize_t __wrap_pread64(int fd, void *bytes, size_t size, off_t at);
ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t size, off_t at);
int __wrap_fsync(int fd);
int __wrap_close(int fd);

/* Descriptors of ours are far above those that a process has. FOLDER_FD is the folder's. */
enum { FOLDER_FD = 1 << 20, FIRST_FD, FDS = 16 };
static struct power_file *opened[FDS];

static struct power_file *file_of(int fd)
{
    return fd >= FIRST_FD && fd < FIRST_FD + FDS ? opened[fd - FIRST_FD] : NULL;
}

static const char *name_of(const char *path)
{
    const size_t length = strlen(POWER_FOLDER);
    if (strncmp(path, POWER_FOLDER, length) != 0 || (path[length] && path[length] != '/'))
        return NULL;
    return path + length + (path[length] == '/');
}

static int answer(int failure)
{
    if (failure)
        errno = failure;
    return failure ? -1 : 0;
}

/* ---- names ---- */

int __wrap_access(const char *path, int mode)
{
    const char *name = name_of(path);
    if (!name)
        return __real_access(path, mode);
    return answer(power_is_off() ? EIO : name[0] && !power_find(name) ? ENOENT : 0);
}

int __wrap_unlink(const char *path)
{
    const char *name = name_of(path);
    return name ? answer(power_unlink(name)) : __real_unlink(path);
}

int __wrap_unlinkat(int folder, const char *name, int flags)
{
    return folder == FOLDER_FD ? answer(power_unlink(name)) : __real_unlinkat(folder, name, flags);
}

int __wrap_renameat(int from_folder, const char *from, int to_folder, const char *to)
{
    return from_folder == FOLDER_FD ? answer(power_rename(from, to, true))
                                    : __real_renameat(from_folder, from, to_folder, to);
}

int __wrap_renameat2(int from_folder, const char *from, int to_folder, const char *to,
                     unsigned flags)
{
    const char *name = name_of(from), *new_name = name_of(to);
    return name && new_name ? answer(power_rename(name, new_name, !(flags & RENAME_NOREPLACE)))
                            : __real_renameat2(from_folder, from, to_folder, to, flags);
}

int __wrap_rename(const char *from, const char *to)
{
    const char *name = name_of(from), *new_name = name_of(to);
    return name && new_name ? answer(power_rename(name, new_name, true)) : __real_rename(from, to);
}

/* ---- files ---- */

static int open_named(const char *name, int flags)
{
    if (power_is_off())
        return answer(EIO);
    if (!name[0])
        return FOLDER_FD;
    struct power_file *file = power_find(name);
    int failure = file && flags & O_EXCL ? EEXIST : 0;
    if (!file && !failure)
        failure = flags & O_CREAT ? power_create(name, &file) : ENOENT;
    int at = 0;
    while (at < FDS && opened[at])
        at++;
    if (at == FDS)
        failure = EMFILE;
    if (failure)
        return answer(failure);
    opened[at] = file;
    return FIRST_FD + at;
}

static mode_t mode_of(int flags, va_list arguments)
{
    return flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
}

int __wrap_open64(const char *path, int flags, ...)
{
    const char *name = name_of(path);
    va_list arguments;
    va_start(arguments, flags);
    const mode_t mode = mode_of(flags, arguments);
    va_end(arguments);
    return name ? open_named(name, flags) : __real_open64(path, flags, mode);
}

int __wrap_openat64(int folder, const char *name, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    const mode_t mode = mode_of(flags, arguments);
    va_end(arguments);
    return folder == FOLDER_FD ? open_named(name, flags)
                               : __real_openat64(folder, name, flags, mode);
}

/* What a call without a mode becomes where the compiler fortifies it (clang does). */
int __wrap___open64_2(const char *path, int flags)
{
    return __wrap_open64(path, flags);
}

int __wrap___openat64_2(int folder, const char *name, int flags)
{
    return __wrap_openat64(folder, name, flags);
}

int __wrap_fstat64(int fd, struct stat *out)
{
    const struct power_file *file = file_of(fd);
    if (!file)
        return __real_fstat64(fd, out);
    *out = (struct stat){
        .st_mode = S_IFREG | 0600, .st_uid = geteuid(), .st_size = (off_t)power_size(file)};
    return 0;
}

int __wrap_fchmod(int fd, mode_t mode)
{
    return file_of(fd) ? 0 : __real_fchmod(fd, mode);
}

ssize_t __wrap_pread64(int fd, void *bytes, size_t size, off_t at)
{
    const struct power_file *file = file_of(fd);
    if (!file)
        return __real_pread64(fd, bytes, size, at);
    return power_is_off() ? answer(EIO) : (ssize_t)power_read(file, bytes, size, (uint64_t)at);
}

/* A write that fails may have written its first half. */
ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t size, off_t at)
{
    struct power_file *file = file_of(fd);
    if (!file)
        return __real_pwrite64(fd, bytes, size, at);
    return answer(power_write(file, bytes, size, (uint64_t)at)) ? -1 : (ssize_t)size;
}

int __wrap_fsync(int fd)
{
    struct power_file *file = file_of(fd);
    if (fd == FOLDER_FD)
        return answer(power_sync_folder());
    return file ? answer(power_sync(file)) : __real_fsync(fd);
}

int __wrap_close(int fd)
{
    if (file_of(fd))
        opened[fd - FIRST_FD] = NULL;
    return file_of(fd) || fd >= FOLDER_FD ? 0 : __real_close(fd);
}
