/* STATE/library.json: what headers said, by path, size and time of change. Only a help: it may be
 * removed at any time, and what makes no sense in it is read anew from the models. */
#include "library/library_impl.h"

#include "base/durable_file.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/state_folder.h"
#include "model/architecture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yyjson.h>

enum { CACHE_FORMAT = 1 };

struct library_cache {
    yyjson_doc *doc;
    yyjson_val **entries; /* by path */
    uint32_t n;
};

static const char *cache_path_of(yyjson_val *entry)
{
    const char *path = yyjson_get_str(yyjson_obj_get(entry, "path"));
    return path ? path : "";
}

static int cache_by_path(const void *left, const void *right)
{
    return strcmp(cache_path_of(*(yyjson_val *const *)left),
                  cache_path_of(*(yyjson_val *const *)right));
}

static int cache_compare(const void *path, const void *entry)
{
    return strcmp(path, cache_path_of(*(yyjson_val *const *)entry));
}

static void cache_index(struct library_cache *cache)
{
    yyjson_val *root = yyjson_doc_get_root(cache->doc), *entry;
    yyjson_val *files = yyjson_obj_get(root, "files");
    size_t i, n;
    if (yyjson_get_uint(yyjson_obj_get(root, "format")) != CACHE_FORMAT)
        return;
    cache->entries = mem_new_array(yyjson_arr_size(files) + 1, sizeof(yyjson_val *));
    yyjson_arr_foreach(files, i, n, entry)
    {
        if (cache->entries && cache->n < LIMIT_LIBRARY_CACHE)
            cache->entries[cache->n++] = entry;
    }
    if (cache->n)
        qsort(cache->entries, cache->n, sizeof(yyjson_val *), cache_by_path);
}

struct library_cache *library_cache_read(const char *text, size_t size)
{
    struct library_cache *cache = mem_new(sizeof *cache);
    if (cache && size)
        cache->doc = yyjson_read(text, size, YYJSON_READ_ALLOW_INVALID_UNICODE);
    if (cache && cache->doc)
        cache_index(cache);
    return cache;
}

struct library_cache *library_cache_open(void)
{
    char path[PATH_MAX];
    struct buffer text = {0};
    if (state_folder_file("library.json", path, sizeof path))
        durable_read(path, LIMIT_LIBRARY_CACHE_BYTES, 0, &text, NULL);
    struct library_cache *cache = library_cache_read(text.data, text.size);
    buffer_deinit(&text);
    return cache;
}

void library_cache_close(struct library_cache *cache)
{
    if (!cache)
        return;
    mem_free(cache->entries);
    yyjson_doc_free(cache->doc);
    mem_free(cache);
}

static bool cache_text(yyjson_val *entry, const char *key, char *out, size_t size)
{
    const char *text = yyjson_get_str(yyjson_obj_get(entry, key));
    if (!text || strlen(text) >= size)
        return false;
    memcpy(out, text, strlen(text) + 1);
    return true;
}

bool library_cache_look_up(const struct library_cache *cache, struct library_model *model)
{
    struct library_facts facts = {0};
    yyjson_val **found = cache->n ? bsearch(model->path, cache->entries, cache->n,
                                            sizeof(yyjson_val *), cache_compare)
                                  : NULL;
    yyjson_val *entry = found ? *found : NULL;
    const uint64_t context = yyjson_get_uint(yyjson_obj_get(entry, "context"));
    const uint64_t n_parts = yyjson_get_uint(yyjson_obj_get(entry, "parts"));
    if (!entry || yyjson_get_uint(yyjson_obj_get(entry, "bytes")) != model->bytes ||
        yyjson_get_uint(yyjson_obj_get(entry, "stamp")) != model->stamp || context > UINT32_MAX ||
        !n_parts || n_parts > LIMIT_MODEL_PARTS ||
        !cache_text(entry, "family", facts.family, sizeof facts.family) ||
        !cache_text(entry, "type", facts.type, sizeof facts.type) ||
        !cache_text(entry, "title", facts.title, sizeof facts.title))
        return false;
    facts.context = (uint32_t)context;
    facts.parameters = yyjson_get_uint(yyjson_obj_get(entry, "parameters"));
    facts.supported = architecture_find(facts.family) != NULL;
    model->facts = facts;
    model->n_parts = model->n_parts_here = (uint32_t)n_parts;
    return true;
}

static void cache_put(yyjson_mut_doc *doc, yyjson_mut_val *files, const struct library_model *model)
{
    yyjson_mut_val *entry = yyjson_mut_arr_add_obj(doc, files);
    yyjson_mut_obj_add_strcpy(doc, entry, "path", model->path);
    yyjson_mut_obj_add_uint(doc, entry, "bytes", model->bytes);
    yyjson_mut_obj_add_uint(doc, entry, "stamp", model->stamp);
    yyjson_mut_obj_add_uint(doc, entry, "parts", model->n_parts);
    yyjson_mut_obj_add_strcpy(doc, entry, "family", model->facts.family);
    yyjson_mut_obj_add_strcpy(doc, entry, "type", model->facts.type);
    yyjson_mut_obj_add_strcpy(doc, entry, "title", model->facts.title);
    yyjson_mut_obj_add_uint(doc, entry, "parameters", model->facts.parameters);
    yyjson_mut_obj_add_uint(doc, entry, "context", model->facts.context);
}

void library_cache_write(const struct library *library)
{
    char path[PATH_MAX];
    size_t size = 0;
    uint32_t n = 0;
    yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *root = yyjson_mut_obj(doc);
    yyjson_mut_doc_set_root(doc, root);
    yyjson_mut_obj_add_uint(doc, root, "format", CACHE_FORMAT);
    yyjson_mut_val *files = yyjson_mut_obj_add_arr(doc, root, "files");
    for (uint32_t i = 0; i < library->n && n < LIMIT_LIBRARY_CACHE; i++) {
        if (!library->models[i].facts.family[0] || library->models[i].state == LIBRARY_BROKEN)
            continue;
        cache_put(doc, files, &library->models[i]);
        n++;
    }
    /* A path is bytes, of any kind. */
    char *json = yyjson_mut_write(doc, YYJSON_WRITE_ALLOW_INVALID_UNICODE, &size);
    if (json && size <= LIMIT_LIBRARY_CACHE_BYTES &&
        state_folder_file("library.json", path, sizeof path) && !durable_make_folder_of(path, NULL))
        durable_replace(path, json, size, NULL);
    free(json);
    yyjson_mut_doc_free(doc);
}
