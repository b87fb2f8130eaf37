/* The parameters and the system message that Ollama keeps beside a model's file: layers of the
 * manifests that name the file. */
#include "library/defaults.h"
#include "library/library_impl.h"

#include "base/limits.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

struct ollama_search {
    const char *root, *hash;      /* of the store, of the model's file */
    struct library_defaults *out; /* of the names so far */
    struct error *err;
    uint32_t n_names, n_found; /* looked at; of that file */
    enum error_code code;
    bool differs;
};

/* NULL: there is no such layer, or it cannot be read. */
static const struct buffer *ollama_layer(const struct ollama_search *search,
                                         const struct buffer *manifest, const char *kind,
                                         struct buffer *out)
{
    char path[PATH_MAX], hash[65];
    if (!library_manifest_layer(manifest->data, manifest->size, kind, hash) ||
        snprintf(path, sizeof path, "%s/blobs/sha256-%s", search->root, hash) >= PATH_MAX ||
        !library_read_foreign(path, out))
        return NULL;
    return out;
}

static bool ollama_is_same(const struct library_defaults *a, const struct library_defaults *b)
{
    return a->json.size == b->json.size &&
           (!a->json.size || memcmp(a->json.data, b->json.data, a->json.size) == 0);
}

static void ollama_take(struct ollama_search *search, const struct buffer *manifest)
{
    struct buffer params = {0}, system = {0};
    struct library_defaults one = {0};
    search->code =
        library_defaults_make(ollama_layer(search, manifest, "params", &params),
                              ollama_layer(search, manifest, "system", &system), &one, search->err);
    buffer_deinit(&params);
    buffer_deinit(&system);
    if (search->n_found++) {
        search->differs |= !ollama_is_same(&one, search->out);
        library_defaults_deinit(&one);
    } else {
        *search->out = one;
    }
}

static bool ollama_goes_on(void *arg)
{
    struct ollama_search *search = arg;
    return !search->code && search->n_names++ < LIMIT_LIBRARY_FILES;
}

static void ollama_look_at(void *arg, const char *const names[4], const char *path)
{
    struct ollama_search *search = arg;
    struct buffer manifest = {0};
    char hash[65];
    uint64_t size;
    (void)names;
    if (library_read_foreign(path, &manifest) && manifest.data &&
        !library_read_manifest(manifest.data, manifest.size, hash, &size) &&
        strcmp(hash, search->hash) == 0)
        ollama_take(search, &manifest);
    buffer_deinit(&manifest);
}

enum error_code library_ollama_defaults(const char *path, struct library_defaults *out,
                                        struct error *err)
{
    static const char blobs[] = "/blobs/sha256-";
    char root[PATH_MAX];
    const char *name = strstr(path, blobs);
    const size_t n_root = name ? (size_t)(name - path) : 0;
    if (!name || n_root >= sizeof root || strlen(name + sizeof blobs - 1) != 64)
        return ERROR_NONE;
    memcpy(root, path, n_root);
    root[n_root] = 0;
    struct ollama_search search = {
        .root = root, .hash = name + sizeof blobs - 1, .out = out, .err = err};
    const struct library_manifests manifests = {
        .root = root, .looks_at = ollama_goes_on, .each = ollama_look_at, .arg = &search};
    library_each_manifest(&manifests);
    if (search.differs) {
        library_defaults_deinit(out);
        snprintf(out->unused, sizeof out->unused,
                 "all of them: Ollama has this file under several names, which differ in them");
    }
    return search.code;
}
