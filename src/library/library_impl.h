/* Private to the library room: the search. */
#pragma once

#include "base/buffer.h"
#include "library/library.h"

#include <limits.h>
#include <stddef.h>
#include <sys/stat.h>

/* What was found of one model; texts are copied. */
struct library_found {
    const char *name, *path;
    enum library_place place;
    enum library_state state;
    uint64_t bytes, bytes_whole;
    const struct stat *file; /* NULL: there is none */
    uint64_t used_ns;        /* 0: by the file's times */
    bool has_header;
    const char *problem; /* NULL: none */
};

/* False: a bound is reached, or there is no memory (`cut`). */
bool library_add(struct library *library, const struct library_found *found);
/* A further file of a model in several; `name` without the part's number. */
bool library_add_part(struct library *library, const struct library_found *found, uint32_t index,
                      uint32_t n_parts);
/* Medley itself fetched what lies there, and may remove it. */
bool library_is_ours(enum library_place place);
/* A file of the state folder. */
bool library_state_file(const char *name, char out[PATH_MAX]);
/* One more name looked at; false: enough. */
bool library_looks_at(struct library *library);

/* All .gguf files below a folder, and those being fetched. */
void library_walk(struct library *library, enum library_place place, const char *root);
/* ROOT/manifests/HOST/NAMESPACE/NAME/TAG, each with its file below ROOT/blobs. */
void library_find_ollama(struct library *library, const char *root);
/* Every manifest of such a store. */
struct library_manifests {
    const char *root;
    bool (*looks_at)(void *arg); /* one more name of a folder; false: enough */
    void (*each)(void *arg, const char *const names[4], const char *path); /* names: HOST … TAG */
    void *arg;
};
void library_each_manifest(const struct library_manifests *manifests);
/* What others write, as bytes: of FILE.gguf.pull how much is done, at most all of it; of an Ollama
 * manifest the hash and the size of the model's file. False, or why not: it says no such thing, or
 * more than a file can stand for. */
bool library_read_pull(const char *text, size_t size, uint64_t *done, uint64_t *whole);
const char *library_read_manifest(const char *text, size_t size, char hash[65], uint64_t *whole);
/* The hash of the manifest's layer of that kind ("params", "system"). False: it has none. */
bool library_manifest_layer(const char *text, size_t size, const char *kind, char hash[65]);
/* A file of another program, within LIMIT_LIBRARY_TEXT_BYTES. */
bool library_read_foreign(const char *path, struct buffer *out);
/* Of a file of Ollama's: see library_defaults_read(). */
struct library_defaults;
enum error_code library_ollama_defaults(const char *path, struct library_defaults *out,
                                        struct error *err);
/* STATE/models and STATE/files. */
void library_find_shelf(struct library *library, const char *state);
void library_find_files(struct library *library, const char *state);

/* What `relative`, a path below the root of a place without ".gguf", is called. False: it is none
 * of a model. `root` is where it lies. */
bool library_name_of(enum library_place place, const char *root, const char *relative,
                     char out[PATH_MAX]);
/* "NAME-00002-of-00005": cuts the number off. False: it is whole. */
bool library_cut_part(char *name, uint32_t *index, uint32_t *n_parts);

/* Folders where to look, from the environment. */
typedef void (*library_root_fn)(void *arg, enum library_place place, const char *root);
void library_each_root(bool only_ours, library_root_fn each, void *arg);

/* ---- headers --------------------------------------------------------------------------------- */

struct library_cache;
/* Of STATE/library.json; what is wrong with it makes it empty. NULL: no memory. */
struct library_cache *library_cache_open(void);
struct library_cache *library_cache_read(const char *text, size_t size);
void library_cache_close(struct library_cache *cache);
/* Whether it knows the model as it is now; then its facts are filled in. */
bool library_cache_look_up(const struct library_cache *cache, struct library_model *model);
/* Remembers what was read of all that are whole, and of at most LIMIT_LIBRARY_CACHE. */
void library_cache_write(const struct library *library);

/* From the file; on failure the model is broken, and says why. */
void library_read_header(struct library_model *model);
