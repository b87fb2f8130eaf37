#include "power_vfs.h"

#include "power_disk.h"

#include <errno.h>
#include <sqlite3.h>
#include <string.h>

enum { SECTOR = 4096 };

struct opened {
    sqlite3_file base;
    struct power_file *file;
    bool syncs_folder, spares_neighbours; /* the second: powersafe overwrite */
    bool removed_on_close;
    char name[64];
};

static const char *name_of(const char *path)
{
    const size_t length = strlen(POWER_FOLDER "/");
    return path && strncmp(path, POWER_FOLDER "/", length) == 0 ? path + length : NULL;
}

static int answer(int failure, int otherwise)
{
    return failure == 0 ? SQLITE_OK : failure == ENOSPC ? SQLITE_FULL : otherwise;
}

/* ---- files ---- */

static int vfs_close(sqlite3_file *base)
{
    const struct opened *opened = (const struct opened *)base;
    if (opened->removed_on_close)
        power_unlink(opened->name);
    return SQLITE_OK;
}

static int vfs_read(sqlite3_file *base, void *bytes, int size, sqlite3_int64 at)
{
    const struct opened *opened = (const struct opened *)base;
    if (power_is_off())
        return SQLITE_IOERR_READ;
    const size_t n = power_read(opened->file, bytes, (size_t)size, (uint64_t)at);
    memset((char *)bytes + n, 0, (size_t)size - n);
    return n < (size_t)size ? SQLITE_IOERR_SHORT_READ : SQLITE_OK;
}

static int vfs_write(sqlite3_file *base, const void *bytes, int size, sqlite3_int64 at)
{
    const struct opened *opened = (const struct opened *)base;
    return answer(power_write(opened->file, bytes, (size_t)size, (uint64_t)at), SQLITE_IOERR_WRITE);
}

static int vfs_truncate(sqlite3_file *base, sqlite3_int64 size)
{
    const struct opened *opened = (const struct opened *)base;
    return answer(power_truncate(opened->file, (uint64_t)size), SQLITE_IOERR_TRUNCATE);
}

static int vfs_sync(sqlite3_file *base, int flags)
{
    struct opened *opened = (struct opened *)base;
    (void)flags;
    int failure = power_sync(opened->file);
    if (!failure && opened->syncs_folder) {
        failure = power_sync_folder();
        opened->syncs_folder = false;
    }
    return answer(failure, SQLITE_IOERR_FSYNC);
}

static int vfs_size(sqlite3_file *base, sqlite3_int64 *size)
{
    const struct opened *opened = (const struct opened *)base;
    *size = (sqlite3_int64)power_size(opened->file);
    return power_is_off() ? SQLITE_IOERR_FSTAT : SQLITE_OK;
}

static int vfs_lock(sqlite3_file *base, int level)
{
    (void)base, (void)level;
    return SQLITE_OK;
}

static int vfs_is_reserved(sqlite3_file *base, int *out)
{
    (void)base;
    *out = 0;
    return SQLITE_OK;
}

static int vfs_control(sqlite3_file *base, int what, void *arg)
{
    struct opened *opened = (struct opened *)base;
    if (what != SQLITE_FCNTL_POWERSAFE_OVERWRITE)
        return SQLITE_NOTFOUND;
    if (*(int *)arg >= 0)
        opened->spares_neighbours = *(int *)arg != 0;
    *(int *)arg = opened->spares_neighbours;
    return SQLITE_OK;
}

static int vfs_sector(sqlite3_file *base)
{
    (void)base;
    return SECTOR;
}

static int vfs_device(sqlite3_file *base)
{
    const struct opened *opened = (const struct opened *)base;
    return opened->spares_neighbours ? SQLITE_IOCAP_POWERSAFE_OVERWRITE : 0;
}

static const sqlite3_io_methods methods = {
    .iVersion = 1,
    .xClose = vfs_close,
    .xRead = vfs_read,
    .xWrite = vfs_write,
    .xTruncate = vfs_truncate,
    .xSync = vfs_sync,
    .xFileSize = vfs_size,
    .xLock = vfs_lock,
    .xUnlock = vfs_lock,
    .xCheckReservedLock = vfs_is_reserved,
    .xFileControl = vfs_control,
    .xSectorSize = vfs_sector,
    .xDeviceCharacteristics = vfs_device,
};

/* ---- the folder ---- */

static int vfs_open(sqlite3_vfs *vfs, sqlite3_filename path, sqlite3_file *base, int flags,
                    int *out)
{
    struct opened *opened = (struct opened *)base;
    const char *name = name_of(path);
    (void)vfs;
    *opened = (struct opened){.spares_neighbours = true,
                              .removed_on_close = flags & SQLITE_OPEN_DELETEONCLOSE};
    if (!name || strlen(name) >= sizeof opened->name || power_is_off())
        return SQLITE_CANTOPEN;
    memcpy(opened->name, name, strlen(name) + 1);
    opened->file = power_find(name);
    if (!opened->file && flags & SQLITE_OPEN_CREATE) {
        if (power_create(name, &opened->file))
            return SQLITE_CANTOPEN;
        opened->syncs_folder =
            flags & (SQLITE_OPEN_MAIN_JOURNAL | SQLITE_OPEN_WAL | SQLITE_OPEN_SUPER_JOURNAL);
    }
    if (!opened->file)
        return SQLITE_CANTOPEN;
    if (out)
        *out = flags;
    opened->base.pMethods = &methods;
    return SQLITE_OK;
}

static int vfs_delete(sqlite3_vfs *vfs, const char *path, int syncs_folder)
{
    (void)vfs;
    int failure = power_unlink(name_of(path));
    if (failure == ENOENT)
        return SQLITE_IOERR_DELETE_NOENT;
    if (!failure && syncs_folder)
        failure = power_sync_folder();
    return answer(failure, SQLITE_IOERR_DELETE);
}

/* As on Unix a journal without a byte in it is taken for none. */
static int vfs_access(sqlite3_vfs *vfs, const char *path, int flags, int *out)
{
    const struct power_file *file = power_find(name_of(path));
    (void)vfs;
    *out = file && (flags != SQLITE_ACCESS_EXISTS || power_size(file) > 0);
    return power_is_off() ? SQLITE_IOERR_ACCESS : SQLITE_OK;
}

static int vfs_full_path(sqlite3_vfs *vfs, const char *path, int size, char *out)
{
    (void)vfs;
    return sqlite3_snprintf(size, out, "%s", path) ? SQLITE_OK : SQLITE_CANTOPEN;
}

static int vfs_random(sqlite3_vfs *vfs, int size, char *out)
{
    (void)vfs;
    for (int i = 0; i < size; i++)
        out[i] = (char)power_draw(256);
    return size;
}

static int vfs_sleep(sqlite3_vfs *vfs, int us)
{
    (void)vfs;
    return us;
}

static int vfs_time(sqlite3_vfs *vfs, double *out)
{
    (void)vfs;
    *out = 2461000;
    return SQLITE_OK;
}

static sqlite3_vfs power_vfs = {
    .iVersion = 1,
    .szOsFile = sizeof(struct opened),
    .mxPathname = 200,
    .zName = "power",
    .xOpen = vfs_open,
    .xDelete = vfs_delete,
    .xAccess = vfs_access,
    .xFullPathname = vfs_full_path,
    .xRandomness = vfs_random,
    .xSleep = vfs_sleep,
    .xCurrentTime = vfs_time,
};

void power_vfs_register(void)
{
    sqlite3_vfs_register(&power_vfs, 1);
}

void power_vfs_unregister(void)
{
    sqlite3_vfs_unregister(&power_vfs);
}
