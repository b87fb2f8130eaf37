#include "precision/output_file.h"

#include "base/durable_file.h"
#include "base/size_text.h"
#include "base/this_process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static enum error_code output_file_check_room(const char *path, int fd, uint64_t size,
                                              struct error *err)
{
    struct statvfs disk;
    if (fstatvfs(fd, &disk))
        return error_set(err, ERROR_IO, "%s: %s", path, strerror(errno));
    const uint64_t room = (uint64_t)disk.f_bavail * disk.f_frsize;
    if (room < size)
        return error_set(err, ERROR_IO,
                         "%s needs %s and the disk has %s free: free some, or write elsewhere "
                         "with -o",
                         path, size_text(size).text, size_text(room).text);
    return ERROR_NONE;
}

static enum error_code output_file_open(struct output_file *file, struct error *err)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(file->path, '/'), *name = slash ? slash + 1 : file->path;
    const int length = slash ? (int)(name - file->path) : 2;
    snprintf(folder, sizeof folder, "%.*s", length, slash ? file->path : "./");
    file->fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0644);
    if (file->fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR)) {
        if (snprintf(file->hidden, sizeof file->hidden, "%s.%s.XXXXXX", folder, name) >=
            (int)sizeof file->hidden)
            return error_set(err, ERROR_INVALID, "%s: the path is too long", file->path);
        file->fd = mkostemp(file->hidden, O_CLOEXEC);
        if (file->fd < 0)
            file->hidden[0] = '\0';
        else
            fchmod(file->fd, 0644);
    }
    return file->fd < 0
               ? error_set(err, ERROR_IO, "cannot write %s: %s", file->path, strerror(errno))
               : ERROR_NONE;
}

enum error_code output_file_refuse(const char *path, struct error *err)
{
    return error_set(err, ERROR_INVALID, "%s is there already: remove it, or name another with -o",
                     path);
}

enum error_code output_file_begin(struct output_file *file, const char *path, uint64_t size,
                                  struct error *err)
{
    struct stat there;
    *file = (struct output_file){.fd = -1, .path = path};
    if (lstat(path, &there) == 0)
        return output_file_refuse(path, err);
    enum error_code code = output_file_open(file, err);
    if (!code)
        code = output_file_check_room(path, file->fd, size, err);
    if (!code && ftruncate(file->fd, (off_t)size))
        code = error_set(err, ERROR_IO, "cannot write %s: %s", path, strerror(errno));
    if (code)
        output_file_abandon(file);
    return code;
}

enum error_code output_file_finish(struct output_file *file, struct error *err)
{
    char of_process[DESCRIPTOR_PATH_BYTES];
    descriptor_path(of_process, file->fd);
    /* link() and not rename(): it fails where the name was taken meanwhile. */
    int failed = fsync(file->fd);
    if (!failed && file->hidden[0])
        failed = link(file->hidden, file->path);
    else if (!failed)
        failed = linkat(AT_FDCWD, of_process, AT_FDCWD, file->path, AT_SYMLINK_FOLLOW);
    const int reason = failed ? errno : durable_sync_folder_of(file->path);
    output_file_abandon(file);
    return reason ? error_set(err, ERROR_IO, "cannot write %s: %s", file->path, strerror(reason))
                  : ERROR_NONE;
}

void output_file_abandon(struct output_file *file)
{
    if (file->hidden[0])
        unlink(file->hidden);
    if (file->fd >= 0)
        close(file->fd);
    file->hidden[0] = '\0';
    file->fd = -1;
}
