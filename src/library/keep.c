#include "library/keep.h"

#include "base/durable_file.h"
#include "base/mem.h"
#include "library/library_impl.h"
#include "weights/shelf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

/* ---- what must stay -------------------------------------------------------------------------- */

/* The node gives it to others, by STATE/files: by what it is, not by how it is called. */
static bool keep_is_given(const struct library_model *model)
{
    char line[PATH_MAX], path[PATH_MAX];
    struct stat info;
    bool given = false;
    FILE *file = library_state_file("files", path) ? fopen(path, "re") : NULL;
    while (file && !given && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        given = stat(line, &info) == 0 && (uint64_t)info.st_ino == model->inode &&
                (uint64_t)info.st_dev == model->device;
    }
    if (file)
        fclose(file);
    return given;
}

/* A model that is open holds a shared lock on ID.parts; one that is written, a lock on its file. */
static bool keep_is_locked(const char *path)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return false;
    const bool locked = flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    close(fd);
    return locked;
}

static bool keep_is_in_use(const struct library_model *model)
{
    char record[PATH_MAX];
    if (model->place != LIBRARY_SHELF)
        return keep_is_locked(model->path);
    snprintf(record, sizeof record, "%.*s.parts", (int)(strlen(model->path) - strlen(".gguf")),
             model->path);
    return keep_is_locked(record);
}

const char *library_keeps(const struct library_model *model)
{
    if (!library_is_ours(model->place))
        return "it is not Medley's";
    if (model->is_pinned)
        return "it is pinned; `medley models unpin` ends that";
    if (keep_is_in_use(model))
        return "it is in use";
    if (keep_is_given(model))
        return "this machine's node gives it to its cluster; `medley forget` ends that";
    return NULL;
}

/* ---- choosing -------------------------------------------------------------------------------- */

struct keep_aged {
    uint64_t used_ns;
    uint32_t index;
};

static int keep_by_age(const void *left, const void *right)
{
    const struct keep_aged *a = left, *b = right;
    return a->used_ns < b->used_ns ? -1 : a->used_ns > b->used_ns;
}

static bool keep_is_due(const struct library_model *model, const struct library_wish *wish)
{
    if (model->state == LIBRARY_BROKEN)
        return true;
    return wish->unused_ns && model->used_ns && model->used_ns < wish->now_ns &&
           wish->now_ns - model->used_ns > wish->unused_ns;
}

uint64_t library_choose_to_free(const struct library *library, const struct library_wish *wish,
                                bool *chosen)
{
    struct keep_aged *aged = mem_new_array(library->n ? library->n : 1, sizeof *aged);
    uint64_t taken = 0, freed = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < library->n; i++) {
        const struct library_model *model = &library->models[i];
        chosen[i] = false;
        if (!library_is_ours(model->place))
            continue;
        taken += model->bytes;
        if (library_keeps(model))
            continue;
        if (keep_is_due(model, wish)) {
            chosen[i] = true;
            freed += model->bytes;
        } else if (aged) {
            aged[n++] = (struct keep_aged){model->used_ns, i};
        }
    }
    if (n)
        qsort(aged, n, sizeof *aged, keep_by_age);
    for (uint32_t i = 0; wish->space_bytes && i < n && taken - freed > wish->space_bytes; i++) {
        chosen[aged[i].index] = true;
        freed += library->models[aged[i].index].bytes;
    }
    mem_free(aged);
    return freed;
}

/* ---- removing and pinning -------------------------------------------------------------------- */

static enum error_code keep_remove_shelved(const struct library_model *model, struct error *err)
{
    const struct shelf_options options = {0};
    char folder[PATH_MAX], id[DIGEST_TEXT];
    struct digest identity;
    struct shelf *shelf;
    const char *name = strrchr(model->path, '/');
    snprintf(folder, sizeof folder, "%.*s", (int)(name - model->path), model->path);
    snprintf(id, sizeof id, "%s", name + 1);
    if (!digest_parse(id, &identity))
        return error_set(err, ERROR_INVALID, "%s is no model of the shelf", model->path);
    enum error_code code = shelf_open(folder, &options, &shelf, err);
    if (code)
        return code;
    code = shelf_remove(shelf, &identity, err);
    shelf_close(shelf);
    return code;
}

/* Up to STATE/pulled, which stays. */
static void keep_remove_folders(const char *path)
{
    char folder[PATH_MAX], pulled[PATH_MAX], root[PATH_MAX];
    snprintf(folder, sizeof folder, "%s", path);
    if (!library_state_file("pulled", pulled) || !realpath(pulled, root))
        return;
    const size_t length = strlen(root);
    for (char *slash; (slash = strrchr(folder, '/'));) {
        *slash = 0;
        if (strncmp(folder, root, length) != 0 || strlen(folder) <= length || rmdir(folder) != 0)
            return;
    }
}

/* With its pin and, of one being fetched, its records. */
static enum error_code keep_remove_file(const char *path, struct error *err)
{
    char beside[PATH_MAX];
    const size_t length = strlen(path), part = strlen(".part");
    const bool is_part = length > part && strcmp(path + length - part, ".part") == 0;
    if (unlink(path) != 0 && errno != ENOENT)
        return error_set(err, ERROR_IO, "%s: %s", path, strerror(errno));
    static const char *const beside_it[] = {"pin", "params", "system"};
    for (int i = 0; i < 3; i++) {
        if (snprintf(beside, sizeof beside, "%s.%s", path, beside_it[i]) < (int)sizeof beside)
            unlink(beside);
    }
    static const char *const records[] = {"pull", "live"};
    for (int i = 0; is_part && i < 2; i++) {
        if (snprintf(beside, sizeof beside, "%.*s.%s", (int)(length - part), path, records[i]) <
            PATH_MAX)
            unlink(beside);
    }
    return ERROR_NONE;
}

static enum error_code keep_remove_pulled(const struct library_model *model, struct error *err)
{
    char stem[PATH_MAX], path[PATH_MAX];
    uint32_t index, n_parts;
    enum error_code code = ERROR_NONE;
    const size_t length = strlen(model->path), ending = strlen(".gguf");
    snprintf(stem, sizeof stem, "%.*s", (int)(length > ending ? length - ending : length),
             model->path);
    if (!library_cut_part(stem, &index, &n_parts)) {
        code = keep_remove_file(model->path, err);
    } else {
        for (uint32_t i = 1; !code && i <= n_parts; i++) {
            if (snprintf(path, sizeof path, "%s-%05u-of-%05u.gguf", stem, i, n_parts) < PATH_MAX)
                code = keep_remove_file(path, err);
        }
    }
    if (!code)
        keep_remove_folders(model->path);
    return code;
}

enum error_code library_remove(const struct library_model *model, struct error *err)
{
    if (!library_is_ours(model->place))
        return error_set(err, ERROR_INVALID,
                         "%s was not fetched by Medley: it lies in %s, and is left alone",
                         model->name, model->path);
    const char *why = library_keeps(model);
    if (why)
        return error_set(err, ERROR_BUSY, "%s stays: %s", model->name, why);
    return model->place == LIBRARY_SHELF ? keep_remove_shelved(model, err)
                                         : keep_remove_pulled(model, err);
}

enum error_code library_pin(const struct library_model *model, bool pinned, struct error *err)
{
    char path[PATH_MAX];
    if (!library_is_ours(model->place))
        return error_set(err, ERROR_INVALID,
                         "%s was not fetched by Medley, which never removes it: it needs no pin",
                         model->name);
    if (snprintf(path, sizeof path, "%s.pin", model->path) >= (int)sizeof path)
        return error_set(err, ERROR_INVALID, "the path of %s is too long", model->name);
    if (pinned)
        return durable_replace(path, "", 0, err);
    if (unlink(path) != 0 && errno != ENOENT)
        return error_set(err, ERROR_IO, "%s: %s", path, strerror(errno));
    return ERROR_NONE;
}
