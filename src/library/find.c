/* Looking everywhere, and taking out what was reached twice. */
#include "library/library_impl.h"

#include "base/limits.h"
#include "base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void find_root(void *arg, enum library_place place, const char *root)
{
    struct library *library = arg;
    if (place == LIBRARY_FILES)
        library_find_files(library, root);
    else if (place == LIBRARY_SHELF)
        library_find_shelf(library, root);
    else if (place == LIBRARY_OLLAMA)
        library_find_ollama(library, root);
    else
        library_walk(library, place, root);
}

static enum error_code find_given(const struct library_options *options, struct library *library,
                                  struct error *err)
{
    if (options->n_folders > LIMIT_LIBRARY_FOLDERS)
        return error_set(err, ERROR_INVALID, "at most %d folders can be given",
                         LIMIT_LIBRARY_FOLDERS);
    for (uint32_t i = 0; i < options->n_folders; i++) {
        DIR *folder = opendir(options->folders[i]);
        if (!folder)
            return error_set(err, errno == ENOENT ? ERROR_NOT_FOUND : ERROR_IO, "%s: %s",
                             options->folders[i], strerror(errno));
        closedir(folder);
        library_walk(library, LIBRARY_FOLDER, options->folders[i]);
    }
    return ERROR_NONE;
}

static int find_order(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

/* One file's entries stand together, the one that is kept first: by place, then the shorter name
 * (of the hub's revisions that is main's). */
static int find_by_file(const void *left, const void *right)
{
    const struct library_model *a = left, *b = right;
    int order = find_order(a->device, b->device);
    if (!order)
        order = find_order(a->inode, b->inode);
    if (!order)
        order = find_order(a->place, b->place);
    return order ? order : find_order(strlen(a->name), strlen(b->name));
}

static int find_by_name(const void *left, const void *right)
{
    const struct library_model *a = left, *b = right;
    int order = strcmp(a->name, b->name);
    if (!order)
        order = find_order(a->place, b->place);
    return order ? order : strcmp(a->path, b->path);
}

/* Ollama gives one file several names, on purpose: they stay. */
static bool find_is_again(const struct library_model *before, const struct library_model *model)
{
    const bool same =
        model->inode && model->inode == before->inode && model->device == before->device;
    return same && !(model->place == LIBRARY_OLLAMA && before->place == LIBRARY_OLLAMA);
}

static void find_once(struct library *library)
{
    uint32_t n = 0;
    if (!library->n)
        return;
    qsort(library->models, library->n, sizeof *library->models, find_by_file);
    for (uint32_t i = 0; i < library->n; i++) {
        struct library_model *model = &library->models[i];
        if (n && find_is_again(&library->models[n - 1], model)) {
            mem_free(model->name);
            mem_free(model->path);
        } else {
            library->models[n++] = *model;
        }
    }
    library->n = n;
    qsort(library->models, library->n, sizeof *library->models, find_by_name);
}

enum error_code library_find(const struct library_options *options, struct library *out,
                             struct error *err)
{
    *out = (struct library){0};
    enum error_code code = find_given(options, out, err);
    if (code) {
        library_deinit(out);
        return code;
    }
    library_each_root(options->only_ours, find_root, out);
    find_once(out);
    return ERROR_NONE;
}
