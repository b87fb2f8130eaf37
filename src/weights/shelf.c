/* The folder: what is in it, and what must go. One model is in shelf_model.c. */
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "weights/shelf_impl.h"
#include "weights/shelf_policy.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* ---- names and locks ------------------------------------------------------------------------- */

enum error_code shelf_paths_of(const struct shelf *shelf, const struct digest *identity,
                               struct shelf_paths *out, struct error *err)
{
    char name[DIGEST_TEXT];
    digest_text(identity, name);
    enum error_code code = durable_path(shelf->folder, name, ".gguf", out->data, err);
    if (!code)
        code = durable_path(shelf->folder, name, ".manifest", out->manifest, err);
    return code ? code : durable_path(shelf->folder, name, ".parts", out->record, err);
}

/* Whether the descriptor is still what lies at the path: another process may have removed it in
 * between. */
static bool is_at(int fd, const char *path)
{
    struct stat held, there;
    return fstat(fd, &held) == 0 && stat(path, &there) == 0 && held.st_ino == there.st_ino &&
           held.st_dev == there.st_dev;
}

enum error_code shelf_record_lock(const char *path, bool make, int lock, int *out,
                                  struct error *err)
{
    enum { ATTEMPTS = 100 };
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | (make ? O_CREAT : 0), 0600);
        if (fd < 0)
            return error_set(err, errno == ENOENT ? ERROR_NOT_FOUND : ERROR_IO, "%s: %s", path,
                             strerror(errno));
        if (flock(fd, lock | LOCK_NB) != 0) {
            int failure = errno;
            close(fd);
            return error_set(err, failure == EWOULDBLOCK ? ERROR_BUSY : ERROR_IO, "%s: %s", path,
                             failure == EWOULDBLOCK ? "it is in use" : strerror(failure));
        }
        if (is_at(fd, path)) {
            *out = fd;
            return ERROR_NONE;
        }
        close(fd);
    }
    return error_set(err, ERROR_BUSY, "%s: it keeps disappearing", path);
}

/* ID.gguf.pin: the user wants the model to stay. */
static bool shelf_pin_path(const struct shelf_paths *paths, char out[PATH_MAX])
{
    return snprintf(out, PATH_MAX, "%s.pin", paths->data) < PATH_MAX;
}

static bool shelf_is_pinned(const struct shelf_paths *paths)
{
    char pin[PATH_MAX];
    return shelf_pin_path(paths, pin) && access(pin, F_OK) == 0;
}

void shelf_files_remove(const struct shelf_paths *paths)
{
    char pin[PATH_MAX];
    unlink(paths->record); /* first: without it nothing of the model counts */
    durable_sync_folder_of(paths->record);
    unlink(paths->data);
    unlink(paths->manifest);
    if (shelf_pin_path(paths, pin))
        unlink(pin);
}

/* ---- the models there ---------------------------------------------------------------------- */

struct listed {
    struct digest identity;
    struct shelf_entry entry;
};

/* "ID.extension" of a model. */
static bool shelf_read_name(const char *file, const char *extension, struct digest *out)
{
    char name[DIGEST_TEXT];
    if (strlen(file) < sizeof name - 1 || strcmp(file + sizeof name - 1, extension) != 0)
        return false;
    memcpy(name, file, sizeof name - 1);
    name[sizeof name - 1] = 0;
    return digest_parse(name, out);
}

static struct shelf_entry shelf_look_at(const struct shelf *shelf, const struct digest *identity)
{
    struct shelf_entry entry = {.in_use = true}; /* what cannot be looked at is left alone */
    struct shelf_paths paths;
    struct stat info;
    int fd;
    if (shelf_paths_of(shelf, identity, &paths, NULL))
        return entry;
    if (stat(paths.data, &info) == 0)
        entry.bytes = (uint64_t)info.st_blocks * 512;
    if (stat(paths.record, &info) == 0)
        entry.used_ns =
            (uint64_t)info.st_mtim.tv_sec * 1000000000u + (uint64_t)info.st_mtim.tv_nsec;
    if (!shelf_is_pinned(&paths) && !shelf_record_lock(paths.record, false, LOCK_EX, &fd, NULL)) {
        entry.in_use = false;
        close(fd);
    }
    return entry;
}

/* Room for LIMIT_SHELF_MODELS; more than those are not looked at. */
static enum error_code shelf_list_all(const struct shelf *shelf, struct listed *out, uint32_t *n,
                                      struct error *err)
{
    DIR *folder = opendir(shelf->folder);
    if (!folder)
        return error_set(err, ERROR_IO, "%s: %s", shelf->folder, strerror(errno));
    *n = 0;
    for (struct dirent *file; (file = readdir(folder)) && *n < LIMIT_SHELF_MODELS;) {
        if (shelf_read_name(file->d_name, ".parts", &out[*n].identity))
            ++*n;
    }
    closedir(folder);
    for (uint32_t i = 0; i < *n; i++)
        out[i].entry = shelf_look_at(shelf, &out[i].identity);
    return ERROR_NONE;
}

static enum error_code free_bytes(const struct shelf *shelf, uint64_t *out, struct error *err)
{
    struct statvfs disk;
    if (statvfs(shelf->folder, &disk) != 0)
        return error_set(err, ERROR_IO, "%s: %s", shelf->folder, strerror(errno));
    *out = (uint64_t)disk.f_bavail * disk.f_frsize;
    return ERROR_NONE;
}

uint32_t shelf_list(const struct shelf *shelf, struct digest *out, uint32_t n)
{
    uint32_t count = 0;
    DIR *folder = opendir(shelf->folder);
    struct digest identity;
    for (struct dirent *file; folder && (file = readdir(folder));) {
        if (!shelf_read_name(file->d_name, ".parts", &identity))
            continue;
        if (count < n)
            out[count] = identity;
        count++;
    }
    if (folder)
        closedir(folder);
    return count;
}

/* ---- removing -------------------------------------------------------------------------------- */

enum error_code shelf_remove(struct shelf *shelf, const struct digest *identity, struct error *err)
{
    struct shelf_paths paths;
    int fd;
    enum error_code code = shelf_paths_of(shelf, identity, &paths, err);
    if (!code)
        code = shelf_record_lock(paths.record, false, LOCK_EX, &fd, err);
    if (code)
        return code;
    shelf_files_remove(&paths);
    close(fd);
    return ERROR_NONE;
}

static void shelf_evict(struct shelf *shelf, const struct listed *all, uint32_t n)
{
    char name[DIGEST_TEXT], size[SHELF_BYTES_TEXT];
    for (uint32_t i = 0; i < n; i++) {
        if (all[i].entry.evict && !shelf_remove(shelf, &all[i].identity, NULL))
            log_line(LOG_INFO, "mesh", "removed the fetched model %.12s (%s) to make room",
                     digest_text(&all[i].identity, name),
                     shelf_bytes_text(all[i].entry.bytes, size));
    }
}

enum error_code shelf_make_room(struct shelf *shelf, uint64_t need_bytes, struct error *err)
{
    struct shelf_room room = {.need_bytes = need_bytes,
                              .limit_bytes = shelf->options.limit_bytes,
                              .spare_bytes = shelf->options.spare_bytes};
    struct listed *all = mem_new_array(LIMIT_SHELF_MODELS, sizeof *all);
    struct shelf_entry *entries = mem_new_array(LIMIT_SHELF_MODELS, sizeof *entries);
    uint32_t n = 0;
    enum error_code code = all && entries ? shelf_list_all(shelf, all, &n, err)
                                          : error_set(err, ERROR_NO_MEMORY, "out of memory");
    if (!code)
        code = free_bytes(shelf, &room.free_bytes, err);
    for (uint32_t i = 0; !code && i < n; i++)
        entries[i] = all[i].entry;
    if (!code)
        code = shelf_policy_choose(&room, entries, n, err);
    for (uint32_t i = 0; !code && i < n; i++)
        all[i].entry.evict = entries[i].evict;
    if (!code)
        shelf_evict(shelf, all, n);
    mem_free(entries);
    mem_free(all);
    return code;
}

static uint64_t shelf_left(uint64_t of, uint64_t taken)
{
    return of > taken ? of - taken : 0;
}

enum error_code shelf_room(const struct shelf *shelf, uint64_t *bytes, struct error *err)
{
    struct listed *all = mem_new_array(LIMIT_SHELF_MODELS, sizeof *all);
    uint32_t n = 0;
    uint64_t on_disk = 0, taken = 0;
    *bytes = 0;
    enum error_code code = all ? shelf_list_all(shelf, all, &n, err)
                               : error_set(err, ERROR_NO_MEMORY, "out of memory");
    if (!code)
        code = free_bytes(shelf, &on_disk, err);
    for (uint32_t i = 0; !code && i < n; i++)
        taken += all[i].entry.bytes;
    if (!code)
        *bytes = shelf_left(on_disk, shelf->options.spare_bytes);
    if (!code && shelf->options.limit_bytes &&
        shelf_left(shelf->options.limit_bytes, taken) < *bytes)
        *bytes = shelf_left(shelf->options.limit_bytes, taken);
    mem_free(all);
    return code;
}

/* ---- the shelf ------------------------------------------------------------------------------- */

/* A data file without a record is what a removal left that did not come to its end. */
static void shelf_sweep(struct shelf *shelf)
{
    DIR *folder = opendir(shelf->folder);
    struct shelf_paths paths;
    struct digest identity;
    for (struct dirent *file; folder && (file = readdir(folder));) {
        bool ours = shelf_read_name(file->d_name, ".gguf", &identity) ||
                    shelf_read_name(file->d_name, ".manifest", &identity);
        int fd;
        if (!ours || shelf_paths_of(shelf, &identity, &paths, NULL) ||
            access(paths.record, F_OK) == 0)
            continue;
        if (!shelf_record_lock(paths.record, true, LOCK_EX, &fd,
                               NULL)) { /* nobody is making it just now */
            shelf_files_remove(&paths);
            close(fd);
        }
    }
    if (folder)
        closedir(folder);
}

enum error_code shelf_open(const char *folder, const struct shelf_options *options,
                           struct shelf **out, struct error *err)
{
    *out = NULL;
    struct shelf *shelf = mem_new(sizeof *shelf);
    if (!shelf)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    enum error_code code = durable_make_folder(folder, err); /* which checks its length, too */
    if (code) {
        mem_free(shelf);
        return code;
    }
    memcpy(shelf->folder, folder, strlen(folder) + 1);
    shelf->options = *options;
    shelf_sweep(shelf);
    *out = shelf;
    return ERROR_NONE;
}

void shelf_close(struct shelf *shelf)
{
    mem_free(shelf);
}

enum error_code shelf_manifest(const struct shelf *shelf, const struct digest *identity,
                               struct manifest *out, struct error *err)
{
    struct shelf_paths paths;
    struct buffer bytes = {0};
    struct digest digest;
    struct error local;
    err = err ? err : &local;
    *out = (struct manifest){0};
    enum error_code code = shelf_paths_of(shelf, identity, &paths, err);
    if (!code)
        code = durable_read(paths.manifest, LIMIT_MANIFEST_BYTES, 0, &bytes, err);
    if (!code)
        code = digest_of(bytes.data, bytes.size, &digest, err);
    if (!code && !digest_equal(&digest, identity))
        code = error_set(err, ERROR_INVALID, "%s is damaged", paths.manifest);
    if (!code)
        code = manifest_read(bytes.data, bytes.size, out, err);
    buffer_deinit(&bytes);
    return code;
}
