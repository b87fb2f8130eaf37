/* Models of hubs, registries and servers: what is there, and bringing one here.
 *
 *     hub_name_parse("hf:ORG/REPO", &name, &err)
 *     if (hub_find(&name, path, &err)) …                 it is here: no network is asked
 *     hub_list(&name, &settings, &list, &err)
 *     … which of list.models …
 *     hub_pull(&list, model, &watch, path, &got, &err)
 *     hub_list_deinit(&list)
 *
 * The hub is HF_ENDPOINT's, else Hugging Face's; the registry is that of MEDLEY_OLLAMA_REGISTRY, or
 * the one that the name says, else Ollama's. One thread for each list. */
#pragma once

#include "hub/http.h"
#include "hub/pull_some.h"
#include "hub/quant.h"
#include "hub/shelf.h"

struct hub_settings { /* zeroed: as usual */
    const char *token_file;
    const char *sha256; /* that the one file has to have */
    bool allow_http;
    bool no_projector; /* leave that of a repository where it is */
    uint32_t connections;
    const atomic_bool *stop; /* http.h; NULL: never */
};

struct hub_list {
    struct hub_name name;
    struct hub_settings settings;
    struct http_place place;
    char base[HUB_URL_TEXT]; /* what files' URLs begin with */
    char folder[PATH_MAX];   /* where they go */
    struct hub_files files;
    struct hub_model_entry *models;
    uint32_t n_models; /* at least 1 */
};

/* Errors of http_text(). ERROR_NOT_FOUND: no model is there, or none with that QUANT. A name that
 * says which leaves one model in the list. */
enum error_code hub_list(const struct hub_name *name, const struct hub_settings *settings,
                         struct hub_list *out, struct error *err);
void hub_list_deinit(struct hub_list *list); /* a zeroed one is fine */

struct hub_got {
    uint64_t bytes, received; /* of the model; that came by the network */
    bool was_here, resumed, is_checked;
};
/* All of its files; path: the first one's. Where the repository has a projector (mmproj), that,
 * too, into the same folder: without it the model is of use all the same, so it may fail with a
 * warning. */
enum error_code hub_pull(const struct hub_list *list, uint32_t model,
                         const struct pull_watch *watch, char path[PATH_MAX], struct hub_got *out,
                         struct error *err);

/* Pieces of a model's file `index` (below its n_files), as pull_some() says; path: where it would
 * be. ERROR_UNSUPPORTED: the hub gives no SHA-256 of it. */
enum error_code hub_model_file(const struct hub_list *list, uint32_t model, uint32_t index,
                               const struct hub_file **out, char path[PATH_MAX], struct error *err);
enum error_code hub_pull_some(const struct hub_list *list, uint32_t model, uint32_t index,
                              struct pull_wish *wish, struct error *err);

/* The headers alone, as files of full size that take little of a temporary folder (TMPDIR): a model
 * that can be opened and planned for (model/model.h), but not run. */
struct hub_headers { /* a zeroed one is closed */
    char folder[PATH_MAX];
    char path[PATH_MAX]; /* of the first file */
    uint64_t size;       /* bytes of all files, which are not here */
    uint64_t received;
};
enum error_code hub_headers_open(const struct hub_list *list, uint32_t model,
                                 struct hub_headers *out, struct error *err);
void hub_headers_close(struct hub_headers *headers); /* the folder goes */

/* A model that was pulled before. ERROR_NOT_FOUND: it is not here, or not all of it. Of several
 * that the name means, the one that came last. */
enum error_code hub_find(const struct hub_name *name, char path[PATH_MAX], struct error *err);
