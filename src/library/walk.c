/* Model files below a folder, and those that are being fetched. */
#include "library/library_impl.h"

#include "base/durable_file.h"
#include "base/limits.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <yyjson.h>

struct walk {
    struct library *library;
    enum library_place place;
    const char *root;
    size_t n_root; /* its length */
};

/* What follows a model's name in a file's, and what it says. */
static const struct walk_ending {
    const char *text;
    bool is_whole;
    bool has_record; /* a .pull beside it says how much is here */
    const char *problem;
} walk_endings[] = {
    {".gguf.part", false, true, "`medley pull` has not fetched all of it"},
    {".gguf.downloadInProgress", false, false, "llama.cpp has not fetched all of it"},
    {".incomplete", false, false, "the hub's client has not fetched all of it"},
    {".gguf", true, false, NULL},
};

static const struct walk_ending *walk_ending_of(const char *name)
{
    const size_t length = strlen(name);
    for (size_t i = 0; i < sizeof walk_endings / sizeof *walk_endings; i++) {
        const size_t n = strlen(walk_endings[i].text);
        if (length > n && strcmp(name + length - n, walk_endings[i].text) == 0)
            return &walk_endings[i];
    }
    return NULL;
}

static uint64_t walk_bytes_of(const struct stat *file)
{
    const uint64_t length = (uint64_t)file->st_size, blocks = (uint64_t)file->st_blocks * 512;
    return blocks < length ? blocks : length; /* of a file with holes */
}

/* {"size": bytes of the whole, "done": [[first, end], …]}. Ranges that make no sense count nothing.
 */
bool library_read_pull(const char *text, size_t size, uint64_t *done, uint64_t *whole)
{
    yyjson_doc *doc = yyjson_read(text, size, 0);
    yyjson_val *root = yyjson_doc_get_root(doc), *range;
    yyjson_val *ranges = yyjson_obj_get(root, "done");
    size_t i, n;
    *whole = yyjson_get_uint(yyjson_obj_get(root, "size"));
    *done = 0;
    yyjson_arr_foreach(ranges, i, n, range)
    {
        const uint64_t first = yyjson_get_uint(yyjson_arr_get(range, 0));
        const uint64_t end = yyjson_get_uint(yyjson_arr_get(range, 1));
        if (end > first && end <= *whole)
            *done = end - first > *whole - *done ? *whole : *done + (end - first);
    }
    const bool says = yyjson_is_arr(ranges) && *whole;
    yyjson_doc_free(doc);
    return says;
}

static void walk_read_record(const char *part, struct library_found *found)
{
    char path[PATH_MAX];
    uint64_t done, whole;
    struct buffer text = {0};
    const int stem = (int)(strlen(part) - strlen(".part"));
    if (snprintf(path, sizeof path, "%.*s.pull", stem, part) < (int)sizeof path &&
        !durable_read(path, LIMIT_LIBRARY_TEXT_BYTES, 0, &text, NULL) &&
        library_read_pull(text.data, text.size, &done, &whole)) {
        found->bytes = done;
        found->bytes_whole = whole;
    }
    buffer_deinit(&text);
}

static void walk_add(const struct walk *walk, const char *path, const struct stat *file,
                     const struct walk_ending *ending)
{
    char relative[PATH_MAX], name[PATH_MAX];
    uint32_t index, n_parts;
    struct library_found found = {.name = name,
                                  .path = path,
                                  .place = walk->place,
                                  .state = ending->is_whole ? LIBRARY_WHOLE : LIBRARY_INCOMPLETE,
                                  .bytes = walk_bytes_of(file),
                                  .file = file,
                                  .has_header = ending->is_whole,
                                  .problem = ending->problem};
    snprintf(relative, sizeof relative, "%s", path + walk->n_root + 1);
    relative[strlen(relative) - strlen(ending->text)] = 0;
    if (!library_name_of(walk->place, walk->root, relative, name))
        return;
    if (ending->is_whole)
        found.bytes = found.bytes_whole = (uint64_t)file->st_size;
    if (ending->has_record)
        walk_read_record(path, &found);
    if (ending->is_whole && library_cut_part(name, &index, &n_parts))
        library_add_part(walk->library, &found, index, n_parts);
    else
        library_add(walk->library, &found);
}

static void walk_in_folder(const struct walk *walk, char path[PATH_MAX], uint32_t depth);

static void walk_entry(const struct walk *walk, char path[PATH_MAX], uint32_t depth)
{
    struct stat info;
    const struct walk_ending *ending = walk_ending_of(path);
    /* Links are followed: the hub's cache is made of them. Loops end at the depth's limit. */
    if (stat(path, &info) != 0)
        return;
    if (S_ISDIR(info.st_mode) && depth < LIMIT_LIBRARY_DEPTH)
        walk_in_folder(walk, path, depth + 1);
    else if (S_ISREG(info.st_mode) && ending)
        walk_add(walk, path, &info, ending);
}

static void walk_in_folder(const struct walk *walk, char path[PATH_MAX], uint32_t depth)
{
    const size_t length = strlen(path);
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        const size_t n = strlen(entry->d_name);
        const bool may_be_folder = entry->d_type != DT_REG;
        if (entry->d_name[0] == '.' || length + 1 + n >= PATH_MAX ||
            (!may_be_folder && !walk_ending_of(entry->d_name)))
            continue;
        if (!library_looks_at(walk->library))
            break;
        path[length] = '/';
        memcpy(path + length + 1, entry->d_name, n + 1);
        walk_entry(walk, path, depth);
        path[length] = 0;
    }
    if (folder)
        closedir(folder);
}

void library_walk(struct library *library, enum library_place place, const char *root)
{
    char path[PATH_MAX];
    if (!realpath(root, path))
        return;
    const struct walk walk = {library, place, root, strlen(path)};
    walk_in_folder(&walk, path, 0);
}
