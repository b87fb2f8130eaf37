#include "hub/hub_answer.h"

#include "base/json_memory.h"
#include "base/mem.h"

#include <string.h>

bool hub_is_sha256(const char *text)
{
    return strlen(text) == PULL_SHA256 - 1 &&
           strspn(text, "0123456789abcdefABCDEF") == PULL_SHA256 - 1;
}

void hub_files_deinit(struct hub_files *files)
{
    mem_free(files->files);
    *files = (struct hub_files){0};
}

static bool hub_path_holds(const char *path, size_t size)
{
    if (size >= HUB_TEXT || size < 6 || strcmp(path + size - 5, ".gguf") != 0)
        return false;
    for (const char *at = path;;) {
        const size_t piece = strcspn(at, "/");
        if (!hub_name_piece_holds(at, piece))
            return false;
        if (!at[piece])
            return true;
        at += piece + 1;
    }
}

/* The pointer's bytes are not the file's: "size" beside it counts in older answers as well. */
static bool hub_take_file(yyjson_val *entry, struct hub_file *out)
{
    yyjson_val *path = yyjson_obj_get(entry, "path"), *lfs = yyjson_obj_get(entry, "lfs");
    yyjson_val *size = yyjson_obj_get(lfs ? lfs : entry, "size");
    yyjson_val *oid = yyjson_obj_get(lfs, "oid");
    const char *type = yyjson_get_str(yyjson_obj_get(entry, "type"));
    *out = (struct hub_file){0};
    if (!type || strcmp(type, "file") != 0 || !yyjson_is_str(path) || !yyjson_is_uint(size) ||
        strlen(yyjson_get_str(path)) != yyjson_get_len(path) ||
        !hub_path_holds(yyjson_get_str(path), yyjson_get_len(path)))
        return false;
    memcpy(out->path, yyjson_get_str(path), yyjson_get_len(path) + 1);
    out->size = yyjson_get_uint(size);
    if (yyjson_is_str(oid) && hub_is_sha256(yyjson_get_str(oid)))
        memcpy(out->sha256, yyjson_get_str(oid), PULL_SHA256);
    return out->size > 0 && out->size <= PULL_FILE_BYTES;
}

static enum error_code hub_take_files(yyjson_val *root, struct hub_files *files, struct error *err)
{
    yyjson_val *entry;
    size_t i, max;
    struct hub_file file;
    if (!yyjson_is_arr(root))
        return error_set(err, ERROR_INVALID, "the hub's list of files makes no sense");
    yyjson_arr_foreach(root, i, max, entry)
    {
        if (!hub_take_file(entry, &file))
            continue;
        if (files->n == HUB_FILES_MAX)
            return error_set(err, ERROR_INVALID, "the repository has more than %d models",
                             HUB_FILES_MAX);
        struct hub_file *more = mem_resize(files->files, files->n + 1, sizeof *more);
        if (!more)
            return error_set(err, ERROR_NO_MEMORY, "not enough memory for the list of files");
        files->files = more;
        files->files[files->n++] = file;
    }
    return ERROR_NONE;
}

enum error_code hub_tree_read(const char *bytes, size_t size, struct hub_files *files,
                              struct error *err)
{
    yyjson_doc *doc = yyjson_read_opts((char *)bytes, size, 0, &json_memory, NULL);
    const enum error_code code = hub_take_files(yyjson_doc_get_root(doc), files, err);
    yyjson_doc_free(doc);
    return code;
}

/* Layers that change what a model answers, and that Medley cannot apply. What is in none of these
 * rows is in the next table, or text for people (license). */
static const struct {
    const char *kind, *why;
} hub_layers_refused[] = {
    {"adapter",
     "it has an adapter (LoRA) layer, which only Ollama applies; pull the model that the "
     "adapter is of, or one with the adapter merged into its weights"},
    {"tensor", "its weights lie in a layer for each tensor, a format of Ollama's own; pull a tag "
               "with a GGUF file"},
    {"embed", "it has a layer of embeddings, which Ollama itself no longer reads"},
};

/* Layers that are defaults of Ollama's own, or of pictures. Bit i of hub_file.left_out is row i. */
static const struct {
    const char *kind, *what;
} hub_layers_left[] = {
    {"template", "its template (the file's own is used)"},
    {"system", "its system prompt (give it with the messages)"},
    {"params", "its parameters (give temperature, stop texts and context as options)"},
    {"messages", "its first messages (give them with yours)"},
    {"projector", "its projector (text alone is read, no pictures)"},
};

static const char *hub_layer_kind(yyjson_val *layer)
{
    static const char prefix[] = "application/vnd.ollama.image.";
    const char *type = yyjson_get_str(yyjson_obj_get(layer, "mediaType"));
    return type && strncmp(type, prefix, sizeof prefix - 1) == 0 ? type + sizeof prefix - 1 : "";
}

static const char *hub_layer_refused(yyjson_val *layer)
{
    const char *kind = hub_layer_kind(layer);
    for (size_t i = 0; i < sizeof hub_layers_refused / sizeof *hub_layers_refused; i++) {
        if (strcmp(kind, hub_layers_refused[i].kind) == 0)
            return hub_layers_refused[i].why;
    }
    return NULL;
}

static uint32_t hub_layer_left(yyjson_val *layer)
{
    const char *kind = hub_layer_kind(layer);
    for (uint32_t i = 0; i < sizeof hub_layers_left / sizeof *hub_layers_left; i++) {
        if (strcmp(kind, hub_layers_left[i].kind) == 0)
            return 1u << i;
    }
    return 0;
}

void hub_left_out_text(const struct hub_file *file, struct buffer *out)
{
    const char *before = "not used of Ollama's layers: ";
    for (uint32_t i = 0; i < sizeof hub_layers_left / sizeof *hub_layers_left; i++) {
        if (!(file->left_out & 1u << i))
            continue;
        buffer_text(out, before);
        buffer_text(out, hub_layers_left[i].what);
        before = ", ";
    }
    if (file->left_out)
        buffer_append(out, "", 1);
}

static struct hub_layer hub_layer_read(yyjson_val *layer)
{
    struct hub_layer out = {.size = yyjson_get_uint(yyjson_obj_get(layer, "size"))};
    const char *digest = yyjson_get_str(yyjson_obj_get(layer, "digest"));
    if (digest && strncmp(digest, "sha256:", 7) == 0 && hub_is_sha256(digest + 7))
        memcpy(out.sha256, digest + 7, PULL_SHA256);
    return out;
}

static bool hub_take_layer(yyjson_val *layer, struct hub_file *out)
{
    const struct hub_layer read = hub_layer_read(layer);
    if (strcmp(hub_layer_kind(layer), "model") != 0)
        return false;
    out->size = read.size;
    memcpy(out->sha256, read.sha256, PULL_SHA256);
    return true;
}

/* What requests begin with. False: it is none of that, or makes no sense. */
static bool hub_take_defaults(yyjson_val *layer, struct hub_file *out)
{
    const char *kind = hub_layer_kind(layer);
    struct hub_layer *to = strcmp(kind, "params") == 0   ? &out->params
                           : strcmp(kind, "system") == 0 ? &out->system
                                                         : NULL;
    const struct hub_layer read = hub_layer_read(layer);
    if (!to || !read.sha256[0] || !read.size || read.size > HUB_LAYER_BYTES)
        return false;
    *to = read;
    return true;
}

static enum error_code hub_take_layers(yyjson_val *layers, struct hub_file *out, struct error *err)
{
    yyjson_val *layer;
    size_t i, max;
    uint32_t n = 0, left_out = 0;
    const char *refused = NULL;
    if (!yyjson_is_arr(layers))
        return error_set(err, ERROR_INVALID, "the registry's manifest makes no sense");
    yyjson_arr_foreach(layers, i, max, layer)
    {
        n += hub_take_layer(layer, out);
        left_out |= hub_take_defaults(layer, out) ? 0 : hub_layer_left(layer);
        refused = refused ? refused : hub_layer_refused(layer);
    }
    out->left_out = left_out;
    if (refused)
        return error_set(err, ERROR_UNSUPPORTED, "%s", refused);
    if (n > 1)
        return error_set(err, ERROR_UNSUPPORTED,
                         "its weights lie in %u layers, and the manifest does not say how they go "
                         "together; pull a tag with one, or its parts from another hub",
                         n);
    if (!n)
        return error_set(err, ERROR_UNSUPPORTED,
                         "no layer of it is a model; its tag may be one that runs elsewhere");
    if (!out->sha256[0] || out->size == 0 || out->size > PULL_FILE_BYTES)
        return error_set(err, ERROR_INVALID, "the registry's manifest makes no sense");
    return ERROR_NONE;
}

enum error_code hub_manifest_read(const char *bytes, size_t size, struct hub_file *out,
                                  struct error *err)
{
    *out = (struct hub_file){0};
    yyjson_doc *doc = yyjson_read_opts((char *)bytes, size, 0, &json_memory, NULL);
    const enum error_code code =
        hub_take_layers(yyjson_obj_get(yyjson_doc_get_root(doc), "layers"), out, err);
    yyjson_doc_free(doc);
    return code;
}
