/* The registry's file: whose it may be, how it is locked and replaced. */
#include "base/durable_file.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/state_folder.h"
#include "gpu/registry.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void gpu_registry_path(char *path, size_t size)
{
    state_folder_file("devices.json", path, size);
}

/* ---- reading --------------------------------------------------------------------------- */

/* No such file is an empty registry. */
static enum error_code registry_file_load(const char *path, struct registry *out, struct error *err)
{
    struct buffer json = {0};
    *out = (struct registry){0};
    enum error_code code = durable_read(path, LIMIT_REGISTRY_BYTES, S_IWGRP | S_IWOTH, &json, err);
    if (!code && registry_parse(json.data, json.size, out, err))
        code = error_wrap(err, "%s", path);
    buffer_deinit(&json);
    return code == ERROR_NOT_FOUND ? ERROR_NONE : code;
}

void registry_load(const char *path, struct registry *out)
{
    *out = (struct registry){0};
    struct error err;
    enum error_code code = path && path[0] ? registry_file_load(path, out, &err) : ERROR_NONE;
    if (code)
        log_line(LOG_WARN, "gpu", "the registry of devices is not used%s: %s",
                 code == ERROR_NO_MEMORY ? "" : " and will be rebuilt", err.text);
}

/* ---- writing --------------------------------------------------------------------------- */

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
    if (durable_lock(fd, LIMIT_REGISTRY_LOCK_MS, err)) {
        error_wrap(err, "%s", name);
        close(fd);
        return -1;
    }
    return fd;
}

/* Somebody may want what is in it: of a newer version, of an older owner, with a slip of the
 * pen. */
static void keep_aside(const char *path)
{
    char aside[PATH_MAX];
    struct stat file;
    if (lstat(path, &file) != 0 || !S_ISREG(file.st_mode) ||
        snprintf(aside, sizeof aside, "%s.unused", path) >= (int)sizeof aside)
        return;
    if (rename(path, aside) == 0)
        log_line(LOG_WARN, "gpu", "kept the unused registry of devices as %s", aside);
}

static enum error_code update_locked(const char *path, const struct registry_entry *changes,
                                     uint32_t count, struct error *err)
{
    struct registry registry;
    enum error_code code = registry_file_load(path, &registry, err);
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
        code = durable_replace(path, json, size, err);
    mem_free(json);
    registry_deinit(&registry);
    return code;
}

enum error_code registry_update(const char *path, const struct registry_entry *changes,
                                uint32_t count, struct error *err)
{
    struct error local;
    err = err ? err : &local;
    enum error_code code = durable_make_folder_of(path, err);
    if (!code) {
        int lock = take_lock(path, err);
        code = lock < 0 ? err->code : update_locked(path, changes, count, err);
        if (lock >= 0)
            close(lock);
    }
    return code ? error_wrap(err, "registry of devices") : ERROR_NONE;
}
