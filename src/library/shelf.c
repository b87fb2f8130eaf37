/* Medley's own: models on the shelf, and the files that the node was told of. */
#include "library/library_impl.h"

#include "base/durable_file.h"
#include "base/limits.h"
#include "base/size_text.h"
#include "weights/manifest.h"
#include "weights/shelf_record.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- STATE/models ---------------------------------------------------------------------------- */

static uint64_t library_bytes_kept(const struct manifest *manifest, const struct part_set *has,
                                   uint64_t *whole)
{
    uint64_t kept = 0;
    *whole = 0;
    for (uint32_t i = 0; i < manifest->n_parts; i++) {
        *whole += manifest->parts[i].size;
        kept += part_set_has(has, i) ? manifest->parts[i].size : 0;
    }
    return kept;
}

static void library_add_shelved(struct library *library, const char *path, const char *id,
                                const struct manifest *manifest, const struct part_set *has)
{
    char problem[LIBRARY_PROBLEM], name[MANIFEST_NAME + 1];
    char record[PATH_MAX];
    struct stat file, used;
    uint64_t whole;
    const uint64_t kept = library_bytes_kept(manifest, has, &whole);
    struct library_found found = {.name = name,
                                  .path = path,
                                  .place = LIBRARY_SHELF,
                                  .bytes = kept,
                                  .bytes_whole = whole,
                                  .has_header = part_set_has(has, MANIFEST_HEADER)};
    if (stat(path, &file) != 0)
        return;
    found.file = &file;
    snprintf(record, sizeof record, "%.*s.parts", (int)(strlen(path) - strlen(".gguf")), path);
    if (stat(record, &used) == 0) /* as the shelf itself judges */
        found.used_ns =
            (uint64_t)used.st_mtim.tv_sec * 1000000000U + (uint64_t)used.st_mtim.tv_nsec;
    snprintf(name, sizeof name, "%s", manifest->name[0] ? manifest->name : id);
    if (kept < whole) {
        snprintf(problem, sizeof problem,
                 "%s of its %s are on this machine: the layers that it was given",
                 size_text(kept).text, size_text(whole).text);
        found.state = LIBRARY_INCOMPLETE;
        found.problem = problem;
    }
    library_add(library, &found);
}

static bool library_read_shelved(const char *folder, const char *id, const struct digest *identity,
                                 struct manifest *manifest, struct part_set *has)
{
    struct buffer bytes = {0};
    char path[PATH_MAX];
    bool is_read = !durable_path(folder, id, ".manifest", path, NULL) &&
                   !durable_read(path, LIMIT_MANIFEST_BYTES, 0, &bytes, NULL) &&
                   !manifest_read(bytes.data, bytes.size, manifest, NULL) &&
                   !part_set_init(has, manifest->n_parts, NULL);
    buffer_clear(&bytes);
    is_read = is_read && !durable_path(folder, id, ".parts", path, NULL) &&
              !durable_read(path, LIMIT_MANIFEST_BYTES, 0, &bytes, NULL) &&
              shelf_record_read(bytes.data, bytes.size, identity, has);
    buffer_deinit(&bytes);
    return is_read;
}

void library_find_shelf(struct library *library, const char *state)
{
    char folder[PATH_MAX], path[PATH_MAX], id[DIGEST_TEXT];
    if (durable_path(state, "models", "", folder, NULL))
        return;
    DIR *dir = opendir(folder);
    for (struct dirent *entry; dir && (entry = readdir(dir)) && library_looks_at(library);) {
        struct digest identity;
        struct manifest manifest = {0};
        struct part_set has = {0};
        if (strlen(entry->d_name) != DIGEST_TEXT - 1 + strlen(".parts") ||
            strcmp(entry->d_name + DIGEST_TEXT - 1, ".parts") != 0)
            continue;
        memcpy(id, entry->d_name, DIGEST_TEXT - 1);
        id[DIGEST_TEXT - 1] = 0;
        if (digest_parse(id, &identity) && !durable_path(folder, id, ".gguf", path, NULL) &&
            library_read_shelved(folder, id, &identity, &manifest, &has))
            library_add_shelved(library, path, id, &manifest, &has);
        part_set_deinit(&has);
        manifest_deinit(&manifest);
    }
    if (dir)
        closedir(dir);
}

/* ---- STATE/files ----------------------------------------------------------------------------- */

static void library_add_file(struct library *library, const char *path)
{
    char name[PATH_MAX];
    uint32_t index, n_parts;
    struct stat file;
    const char *slash = strrchr(path, '/');
    struct library_found found = {.name = name, .path = path, .place = LIBRARY_FILES};
    snprintf(name, sizeof name, "%s", slash ? slash + 1 : path);
    const size_t length = strlen(name);
    if (length > 5 && strcmp(name + length - 5, ".gguf") == 0)
        name[length - 5] = 0;
    if (stat(path, &file) != 0) {
        found.state = LIBRARY_BROKEN;
        found.problem = strerror(errno);
    } else {
        found.file = &file;
        found.bytes = found.bytes_whole = (uint64_t)file.st_size;
        found.has_header = true;
    }
    library_cut_part(name, &index, &n_parts); /* the others lie beside it: library_read_header() */
    library_add(library, &found);
}

void library_find_files(struct library *library, const char *state)
{
    char list[PATH_MAX];
    struct buffer text = {0};
    if (durable_path(state, "files", "", list, NULL) ||
        durable_read(list, (uint64_t)LIMIT_WEIGHTS_FILES * PATH_MAX, 0, &text, NULL))
        return;
    char *rest = text.data;
    for (char *path; (path = strsep(&rest, "\n")) && library_looks_at(library);) {
        if (path[0] == '/')
            library_add_file(library, path);
    }
    buffer_deinit(&text);
}
