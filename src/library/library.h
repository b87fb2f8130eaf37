/* The models that lie on this machine: those that Medley fetched or was given, folders of the user,
 * and the caches of other programs, which are read in place and never changed.
 *
 *     struct library library = {0};
 *     library_find(&options, &library, &err);              names, sizes and paths: no file is
 * opened library_read_headers(&library);                      family, type, parameters, what is
 * wrong library_choose(&library, "qwen3-8b-q4_k_m", &model, &err); library_deinit(&library);
 *
 * Where is looked: library_place_name(). The environment of each program is respected, as it
 * documents it (library/places.c). A file that is reached twice, through links or places, is listed
 * once. A model in several files is one entry.
 *
 * Bounds: LIMIT_LIBRARY_MODELS entries, LIMIT_LIBRARY_FILES names looked at; what is beyond is
 * left out, and `cut` says so. Threads: none share a library. */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

/* In the order in which a file belongs to the first that reaches it. */
enum library_place {
    LIBRARY_PULLED, /* STATE/pulled: fetched by `medley pull` */
    LIBRARY_FILES,  /* what `medley add` told the node: STATE/files */
    LIBRARY_FOLDER, /* a folder of the user: library_options.folders, MEDLEY_MODELS */
    LIBRARY_SHELF,  /* STATE/models: fetched layer by layer from other machines */
    LIBRARY_OLLAMA,
    LIBRARY_LM_STUDIO,
    LIBRARY_LLAMA_CPP,
    LIBRARY_HUB, /* of the hub's own client: models--ORG--NAME/snapshots */
    LIBRARY_PLACES,
};
const char *library_place_name(enum library_place place); /* "pulled", "lm-studio", … */

enum library_state {
    LIBRARY_WHOLE,
    LIBRARY_INCOMPLETE, /* files or bytes of it are missing: `problem` says which */
    LIBRARY_BROKEN,     /* it is no model file, or is damaged: `problem` says how */
};
const char *library_state_name(enum library_state state);

enum { LIBRARY_FAMILY = 32, LIBRARY_TYPE = 24, LIBRARY_TITLE = 96, LIBRARY_PROBLEM = 200 };

/* What a header says. Zeroed: it was not read. */
struct library_facts {
    char family[LIBRARY_FAMILY]; /* general.architecture */
    char type[LIBRARY_TYPE];     /* "Q4_K_M": general.file_type, else what most bytes have */
    char title[LIBRARY_TITLE];   /* general.name; may be empty */
    uint64_t parameters;         /* elements of all tensors */
    uint32_t context;            /* tokens that it was trained for; 0: not said */
    bool supported;              /* Medley knows the family */
};

struct library_model {
    char *name; /* as shown: "org/repo/file", "llama3.2:1b", "file" */
    char *path; /* absolute; of several files the first that is there */
    enum library_place place;
    enum library_state state;
    uint64_t bytes;       /* that are here */
    uint64_t bytes_whole; /* 0: not known */
    uint32_t n_parts, n_parts_here;
    uint64_t device, inode; /* of the file at `path`; 0: none was looked at */
    uint64_t stamp;         /* of the times of all its files: changes with any */
    uint64_t used_ns;       /* when it was read or written last, since 1970; 0: not known */
    bool is_pinned;         /* a file PATH.pin says: keep it */
    bool has_header;        /* library_read_headers() may read it */
    struct library_facts facts;
    char problem[LIBRARY_PROBLEM]; /* empty: none */
};

struct library {
    struct library_model *models; /* by name, then place */
    uint32_t n, capacity;
    uint32_t n_names; /* that were looked at */
    bool cut;         /* a bound was reached */
};

struct library_options {
    const char *const *folders; /* beside MEDLEY_MODELS; NULL: none */
    uint32_t n_folders;
    bool only_ours; /* leave out the caches of other programs */
};

/* A place that cannot be read is as if empty; a folder of `options` that cannot is an error. */
enum error_code library_find(const struct library_options *options, struct library *out,
                             struct error *err);
void library_deinit(struct library *library); /* zeroed is fine */

/* Reads the headers of all, on several threads; those that STATE/library.json remembers (by path,
 * size and time) are not opened. Writes that file anew when something was read. */
void library_read_headers(struct library *library);

/* The one whole model of that name: the whole name, or its end after a '/'; ".gguf" and Ollama's
 * ":latest" may be left out. ERROR_NOT_FOUND: none. ERROR_INVALID: several, which it names, or it
 * is incomplete. */
enum error_code library_choose(const struct library *library, const char *word,
                               const struct library_model **out, struct error *err);

/* Share of the model that is here, 0 to 1; negative: not known. */
double library_share(const struct library_model *model);
