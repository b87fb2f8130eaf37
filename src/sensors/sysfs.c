#include "sensors/sysfs.h"

#include "base/limits.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_BYTES = 768 };

__attribute__((format(printf, 3, 0))) static bool
make_path(const struct sysfs *fs, char path[PATH_BYTES], const char *format, va_list args)
{
    int used = snprintf(path, PATH_BYTES, "%s/", fs->root);
    if (used < 0 || used >= PATH_BYTES)
        return false;
    int more = vsnprintf(path + used, (size_t)(PATH_BYTES - used), format, args);
    return more >= 0 && more < PATH_BYTES - used;
}

static enum sysfs_result result_of_errno(int error)
{
    if (error == ENOENT || error == ENOTDIR || error == ENODEV || error == ENXIO)
        return SYSFS_MISSING;
    return error == EACCES || error == EPERM ? SYSFS_DENIED : SYSFS_UNREADABLE;
}

/* Like sysfs_text(), with the path ready. */
static enum sysfs_result sysfs_read_path(const char *path, char *text, size_t size)
{
    text[0] = 0;
    /* O_NONBLOCK: a pipe without a writer must not hold us up. */
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return result_of_errno(errno);
    enum sysfs_result result = SYSFS_UNREADABLE;
    struct stat status;
    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) {
        ssize_t length = read(fd, text, size - 1);
        result = length < 0 ? result_of_errno(errno) : SYSFS_OK;
        text[length < 0 ? 0 : length] = 0;
    }
    close(fd);
    size_t end = strlen(text); /* a NUL byte within ends the text */
    while (end && isspace((unsigned char)text[end - 1]))
        text[--end] = 0;
    return result;
}

enum sysfs_result sysfs_text(const struct sysfs *fs, char *text, size_t size, const char *format,
                             ...)
{
    char path[PATH_BYTES];
    va_list args;
    va_start(args, format);
    bool fits = make_path(fs, path, format, args);
    va_end(args);
    text[0] = 0;
    if (size > LIMIT_SENSOR_FILE_BYTES)
        size = LIMIT_SENSOR_FILE_BYTES;
    return fits ? sysfs_read_path(path, text, size) : SYSFS_MISSING;
}

enum sysfs_result sysfs_u64(const struct sysfs *fs, uint64_t *number, uint64_t max,
                            const char *format, ...)
{
    char path[PATH_BYTES], text[64];
    *number = 0;
    va_list args;
    va_start(args, format);
    bool fits = make_path(fs, path, format, args);
    va_end(args);
    enum sysfs_result result = fits ? sysfs_read_path(path, text, sizeof text) : SYSFS_MISSING;
    if (result)
        return result;
    return sysfs_parse_u64(text, max, number) ? SYSFS_OK : SYSFS_NONSENSE;
}

bool sysfs_exists(const struct sysfs *fs, const char *format, ...)
{
    char path[PATH_BYTES];
    va_list args;
    va_start(args, format);
    bool fits = make_path(fs, path, format, args);
    va_end(args);
    return fits && access(path, F_OK) == 0;
}

/* Shorter names first: among names with one prefix that is the order of their numbers. */
static int sysfs_compare_names(const void *a, const void *b)
{
    size_t length_a = strlen(a), length_b = strlen(b);
    if (length_a != length_b)
        return length_a < length_b ? -1 : 1;
    return strcmp(a, b);
}

uint32_t sysfs_list(const struct sysfs *fs, const char *folder, const char *prefix,
                    char names[][SYSFS_NAME_BYTES], uint32_t max)
{
    char path[PATH_BYTES];
    int length = snprintf(path, sizeof path, "%s/%s", fs->root, folder);
    DIR *dir = length >= 0 && length < PATH_BYTES ? opendir(path) : NULL;
    if (!dir)
        return 0;
    uint32_t count = 0;
    struct dirent *entry;
    for (uint32_t seen = 0; count < max && seen < LIMIT_SENSOR_ENTRIES && (entry = readdir(dir));
         seen++) {
        size_t size = strlen(entry->d_name) + 1;
        if (entry->d_name[0] == '.' || size > SYSFS_NAME_BYTES ||
            strncmp(entry->d_name, prefix, strlen(prefix)) != 0)
            continue;
        memcpy(names[count++], entry->d_name, size);
    }
    closedir(dir);
    qsort(names, count, SYSFS_NAME_BYTES, sysfs_compare_names);
    return count;
}
