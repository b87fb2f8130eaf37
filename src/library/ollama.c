/* Ollama's store: a manifest for each name and tag, and files named by their hash. */
#include "library/library_impl.h"

#include "base/buffer.h"
#include "base/limits.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <yyjson.h>

struct store_listing {
    struct library *library;
    const char *root;
};

struct ollama_walk {
    const struct library_manifests *manifests;
    const char *names[4]; /* host, namespace, name, tag */
};

/* Written by another user where its service runs as one: read as it is, within a limit. */
bool library_read_foreign(const char *path, struct buffer *out)
{
    char chunk[4096];
    size_t n;
    FILE *file = fopen(path, "re");
    while (file && out->size <= LIMIT_LIBRARY_TEXT_BYTES &&
           (n = fread(chunk, 1, sizeof chunk, file)) > 0)
        buffer_append(out, chunk, n);
    if (file)
        fclose(file);
    return file && !out->failed && out->size <= LIMIT_LIBRARY_TEXT_BYTES;
}

/* Whether the layer is of that kind: "….image.model". */
static bool ollama_is_kind(yyjson_val *layer, const char *kind)
{
    const char *type = yyjson_get_str(yyjson_obj_get(layer, "mediaType"));
    const char *last = type ? strrchr(type, '.') : NULL;
    return last && strcmp(last + 1, kind) == 0 && last - type >= 6 &&
           strncmp(last - 6, ".image", 6) == 0;
}

static bool ollama_digest(yyjson_val *layer, char hash[65])
{
    static const char prefix[] = "sha256:";
    const char *digest = yyjson_get_str(yyjson_obj_get(layer, "digest"));
    if (!digest || strncmp(digest, prefix, sizeof prefix - 1) != 0)
        return false;
    digest += sizeof prefix - 1;
    if (strlen(digest) != 64 || strspn(digest, "0123456789abcdef") != 64)
        return false;
    memcpy(hash, digest, 65);
    return true;
}

const char *library_read_manifest(const char *text, size_t size, char hash[65], uint64_t *whole)
{
    yyjson_doc *doc = yyjson_read(text, size, 0);
    yyjson_val *layer;
    size_t i, max;
    uint32_t n = 0;
    const char *problem = NULL;
    *whole = 0;
    yyjson_arr_foreach(yyjson_obj_get(yyjson_doc_get_root(doc), "layers"), i, max, layer)
    {
        if (ollama_is_kind(layer, "adapter"))
            problem = "it has an adapter (LoRA) layer, which only Ollama applies";
        if (!ollama_is_kind(layer, "model") || !ollama_digest(layer, hash))
            continue;
        *whole = yyjson_get_uint(yyjson_obj_get(layer, "size"));
        n++;
    }
    yyjson_doc_free(doc);
    if (n > 1)
        problem = "its weights lie in several layers, which only Ollama puts together";
    return n ? problem : "Ollama's manifest names no model file";
}

bool library_manifest_layer(const char *text, size_t size, const char *kind, char hash[65])
{
    yyjson_doc *doc = yyjson_read(text, size, 0);
    yyjson_val *layer;
    size_t i, max;
    bool found = false;
    yyjson_arr_foreach(yyjson_obj_get(yyjson_doc_get_root(doc), "layers"), i, max, layer)
    {
        found = found || (ollama_is_kind(layer, kind) && ollama_digest(layer, hash));
    }
    yyjson_doc_free(doc);
    return found;
}

/* Ollama itself leaves "library" out of a name. */
static bool ollama_name(const char *const names[4], char out[PATH_MAX])
{
    const int n =
        strcmp(names[1], "library") == 0
            ? snprintf(out, PATH_MAX, "%s:%s", names[2], names[3])
            : snprintf(out, PATH_MAX, "%s/%s/%s:%s", names[0], names[1], names[2], names[3]);
    return n < PATH_MAX;
}

static void ollama_look(const struct store_listing *listing, struct library_found *found,
                        const char *digest, uint64_t size)
{
    char path[PATH_MAX];
    struct stat info;
    found->path = path;
    found->bytes_whole = size;
    if (snprintf(path, sizeof path, "%s/blobs/sha256-%s", listing->root, digest) >=
        (int)sizeof path)
        return;
    if (stat(path, &info) == 0 && S_ISREG(info.st_mode)) {
        found->file = &info;
        found->bytes = (uint64_t)info.st_size;
        found->has_header = true;
        found->state = found->bytes < size ? LIBRARY_INCOMPLETE : LIBRARY_WHOLE;
        if (found->state == LIBRARY_INCOMPLETE)
            found->problem = "its file is shorter than Ollama's manifest says; `ollama pull` it";
    } else {
        found->state = LIBRARY_INCOMPLETE;
        found->problem = "Ollama has its manifest and not its file; `ollama pull` it";
        strncat(path, "-partial", sizeof path - strlen(path) - 1);
        if (stat(path, &info) == 0)
            found->bytes = (uint64_t)info.st_blocks * 512;
    }
    library_add(listing->library, found);
}

static bool store_looks_at(void *arg)
{
    return library_looks_at(((struct store_listing *)arg)->library);
}

static void store_list(void *arg, const char *const names[4], const char *path)
{
    const struct store_listing *listing = arg;
    struct buffer text = {0};
    char name[PATH_MAX], hash[65];
    uint64_t size = 0;
    struct library_found found = {.name = name, .path = path, .place = LIBRARY_OLLAMA};
    if (!ollama_name(names, name))
        return;
    found.problem = "Ollama's manifest cannot be read";
    if (library_read_foreign(path, &text))
        found.problem = library_read_manifest(text.data ? text.data : "", text.size, hash, &size);
    if (!found.problem) {
        ollama_look(listing, &found, hash, size);
    } else {
        found.state = LIBRARY_BROKEN;
        library_add(listing->library, &found);
    }
    buffer_deinit(&text);
}

void library_find_ollama(struct library *library, const char *root)
{
    struct store_listing listing = {.library = library, .root = root};
    const struct library_manifests manifests = {
        .root = root, .looks_at = store_looks_at, .each = store_list, .arg = &listing};
    library_each_manifest(&manifests);
}

/* ---- every manifest -------------------------------------------------------------------------- */

static void ollama_walk_level(struct ollama_walk *walk, char path[PATH_MAX], int level)
{
    const struct library_manifests *manifests = walk->manifests;
    const size_t length = strlen(path);
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        const size_t n = strlen(entry->d_name);
        if (entry->d_name[0] == '.' || length + 1 + n >= PATH_MAX)
            continue;
        if (!manifests->looks_at(manifests->arg))
            break;
        path[length] = '/';
        memcpy(path + length + 1, entry->d_name, n + 1);
        walk->names[level] = entry->d_name;
        if (level < 3)
            ollama_walk_level(walk, path, level + 1);
        else
            manifests->each(manifests->arg, walk->names, path);
        path[length] = 0;
    }
    if (folder)
        closedir(folder);
}

void library_each_manifest(const struct library_manifests *manifests)
{
    struct ollama_walk walk = {.manifests = manifests};
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/manifests", manifests->root) < (int)sizeof path)
        ollama_walk_level(&walk, path, 0);
}
