/* What there is of a name: asked of its hub or registry. */
#include "base/mem.h"
#include "hub/hub_impl.h"
#include "hub/token.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { HUB_PAGES = 64 };
static const char hub_manifest_types[] = "application/vnd.docker.distribution.manifest.v2+json, "
                                         "application/vnd.oci.image.manifest.v1+json";

const char *hub_base(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* ---- where ----------------------------------------------------------------------------------- */

static enum error_code hub_take_base(struct hub_list *list, const char *base, bool is_said,
                                     struct error *err)
{
    size_t size = strlen(base);
    while (size > 0 && base[size - 1] == '/')
        size--;
    if (size >= sizeof list->base - 1)
        return error_set(err, ERROR_INVALID, "the address of the hub is too long");
    memcpy(list->base, base, size);
    list->base[size] = '\0';
    list->place.plain |= is_said; /* who names a mirror by http:// means it */
    return http_url_check(list->base, list->place.plain, err);
}

static enum error_code hub_place(struct hub_list *list, struct error *err)
{
    char base[HUB_TEXT + 16];
    const struct hub_name *name = &list->name;
    const char *said = NULL;
    list->place.plain = list->settings.allow_http;
    list->place.stop = list->settings.stop;
    switch (name->kind) {
    case HUB_HF:
        said = getenv("HF_ENDPOINT");
        said = said && said[0] ? said : NULL;
        return hub_take_base(list, said ? said : HUB_HF_BASE, said, err);
    case HUB_OLLAMA:
        said = getenv("MEDLEY_OLLAMA_REGISTRY");
        snprintf(base, sizeof base, "https://%s", name->host);
        if (name->host[0])
            return hub_take_base(list, base, false, err);
        return hub_take_base(list, said && said[0] ? said : HUB_OLLAMA_BASE, said && said[0], err);
    case HUB_URL:
        return http_url_check(name->url, list->place.plain, err);
    case HUB_PATH:
        break;
    }
    return error_set(err, ERROR_INVALID, "a path is not pulled");
}

/* A token is for the hub; to another server it goes only where it was given for this pull. */
static enum error_code hub_take_token(struct hub_list *list, struct error *err)
{
    if (list->name.kind == HUB_HF || list->settings.token_file)
        return hub_token(list->settings.token_file, list->place.token, err);
    return ERROR_NONE;
}

enum error_code hub_blob_url(const struct hub_list *list, const char *sha256,
                             char out[HUB_URL_TEXT], struct error *err)
{
    const struct hub_name *name = &list->name;
    const int size = snprintf(out, HUB_URL_TEXT, "%s/v2/%s/%s/blobs/sha256:%s", list->base,
                              name->owner, name->model, sha256);
    return size >= 0 && size < HUB_URL_TEXT
               ? ERROR_NONE
               : error_set(err, ERROR_INVALID, "the URL of a layer is too long");
}

enum error_code hub_file_url(const struct hub_list *list, uint32_t file, char out[HUB_URL_TEXT],
                             struct error *err)
{
    const struct hub_name *name = &list->name;
    const struct hub_file *of = &list->files.files[file];
    int size = 0;
    unsigned part, n_parts;
    size_t stem;
    assert(file < list->files.n);
    if (name->kind == HUB_HF)
        size = snprintf(out, HUB_URL_TEXT, "%s/%s/%s/resolve/main/%s", list->base, name->owner,
                        name->model, of->path);
    else if (name->kind == HUB_OLLAMA)
        return hub_blob_url(list, of->sha256, out, err);
    else
        size = snprintf(out, HUB_URL_TEXT, "%s", name->url);
    if (size < 0 || size >= HUB_URL_TEXT)
        return error_set(err, ERROR_INVALID, "the URL of %s is too long", of->path);
    if (name->kind == HUB_URL && hub_part_of(of->path, &part, &n_parts, &stem)) {
        char *query = out + strcspn(out, "?#");
        memcpy(query - strlen(of->path), of->path, strlen(of->path)); /* names of equal length */
    }
    return ERROR_NONE;
}

/* ---- what ------------------------------------------------------------------------------------ */

/* A page's successor has to be of the same server: a token goes there. */
static bool hub_next_page(const struct hub_list *list, const struct http_head *head,
                          char url[HTTP_URL])
{
    char here[HTTP_HOST], there[HTTP_HOST];
    http_url_host(list->base, here);
    http_url_host(head->next, there);
    if (!head->next[0] || strcmp(here, there) != 0 ||
        http_url_check(head->next, list->place.plain, NULL))
        return false;
    memcpy(url, head->next, HTTP_URL);
    return true;
}

static enum error_code hub_list_tree(struct hub_list *list, struct error *err)
{
    char url[HTTP_URL], what[2 * HUB_TEXT + 32];
    struct http_head head = {0};
    struct buffer text = {0};
    const struct hub_name *name = &list->name;
    snprintf(what, sizeof what, "hf:%s/%s", name->owner, name->model);
    snprintf(url, sizeof url, "%s/api/models/%s/%s/tree/main?recursive=true", list->base,
             name->owner, name->model);
    enum error_code code = ERROR_NONE;
    bool goes_on = true;
    for (int page = 0; goes_on && !code; page++) {
        if (page == HUB_PAGES)
            code = error_set(err, ERROR_INVALID, "%s: too many files", what);
        if (!code)
            code = http_text(url, &list->place, "application/json", HUB_ANSWER_BYTES, what, &text,
                             &head, err);
        if (!code)
            code = hub_tree_read(text.data ? text.data : "", text.size, &list->files, err);
        goes_on = !code && hub_next_page(list, &head, url);
    }
    buffer_deinit(&text);
    return code;
}

static enum error_code hub_list_one(struct hub_list *list, const struct hub_file *file,
                                    struct error *err)
{
    struct hub_file *more = mem_resize(list->files.files, list->files.n + 1, sizeof *more);
    if (!more)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the list of files");
    list->files.files = more;
    list->files.files[list->files.n++] = *file;
    return ERROR_NONE;
}

static enum error_code hub_list_manifest(struct hub_list *list, struct error *err)
{
    char url[HTTP_URL], what[2 * HUB_TEXT + 32];
    struct buffer text = {0};
    struct hub_file file;
    const struct hub_name *name = &list->name;
    const bool is_usual = strcmp(name->owner, "library") == 0;
    snprintf(what, sizeof what, "ollama:%s%s%s:%s", is_usual ? "" : name->owner,
             is_usual ? "" : "/", name->model, name->tag);
    snprintf(url, sizeof url, "%s/v2/%s/%s/manifests/%s", list->base, name->owner, name->model,
             name->tag);
    enum error_code code =
        http_text(url, &list->place, hub_manifest_types, HUB_ANSWER_BYTES, what, &text, NULL, err);
    if (!code && (code = hub_manifest_read(text.data ? text.data : "", text.size, &file, err)))
        error_wrap(err, "%s", what);
    buffer_deinit(&text);
    if (code)
        return code;
    snprintf(file.path, sizeof file.path, "%.*s.gguf", HUB_TEXT - 6, name->tag);
    return hub_list_one(list, &file, err);
}

static enum error_code hub_list_url(struct hub_list *list, struct error *err)
{
    struct hub_file file = {0};
    unsigned part, n_parts = 1;
    size_t stem = 0;
    char number[8];
    const bool is_part = hub_part_of(list->name.file, &part, &n_parts, &stem);
    enum error_code code = ERROR_NONE;
    memcpy(file.path, list->name.file, sizeof file.path);
    for (unsigned i = 1; i <= n_parts && !code; i++) {
        snprintf(number, sizeof number, "%05u", i);
        if (is_part)
            memcpy(file.path + stem + 1, number, 5);
        code = hub_list_one(list, &file, err);
    }
    return code;
}

static bool hub_is_named(const struct hub_name *name, const struct hub_files *files,
                         const struct hub_model_entry *model)
{
    bool has_file = !name->file[0];
    for (uint32_t i = 0; i < model->n_files && !has_file; i++) {
        const char *path = files->files[model->files[i]].path;
        has_file = strcmp(path, name->file) == 0 || strcmp(path, hub_base(name->file)) == 0;
    }
    return has_file &&
           (name->kind != HUB_HF || !name->tag[0] || quant_matches(model->quant, name->tag));
}

uint32_t hub_keep_named(const struct hub_name *name, const struct hub_files *files,
                        struct hub_model_entry *models, uint32_t n)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (hub_is_named(name, files, &models[i]))
            models[kept++] = models[i];
    }
    return kept;
}

/* What there is in the place of what was asked for. */
static enum error_code hub_list_refuse(const struct hub_list *list, uint32_t n, struct error *err)
{
    char there[300] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < n && used < sizeof there - QUANT_TEXT - 8; i++) {
        const char *quant = list->models[i].quant;
        used += (size_t)snprintf(there + used, sizeof there - used, "%s%s", i ? ", " : "",
                                 quant[0] ? quant : "?");
    }
    const struct hub_name *name = &list->name;
    if (n == 0)
        return error_set(err, ERROR_NOT_FOUND, "%.100s/%.100s has no GGUF model with all its parts",
                         name->owner, name->model);
    return error_set(err, ERROR_NOT_FOUND, "%.60s/%.60s has no %.60s; it has %s", name->owner,
                     name->model, name->file[0] ? name->file : name->tag, there);
}

static enum error_code hub_list_models(struct hub_list *list, struct error *err)
{
    list->models = mem_new_array(QUANT_MODELS, sizeof *list->models);
    if (!list->models)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the list of models");
    const uint32_t n = quant_models(&list->files, list->models);
    list->n_models = hub_keep_named(&list->name, &list->files, list->models, n);
    if (list->n_models == 0)
        return hub_list_refuse(list, quant_models(&list->files, list->models), err);
    /* Of two with one name, the plain one stands for "Q4_K_M" before "UD-Q4_K_M" does. */
    for (uint32_t i = 0; list->name.tag[0] && list->name.kind == HUB_HF && i < list->n_models;
         i++) {
        if (strncmp(list->models[i].quant, "UD-", 3) == 0)
            continue;
        list->models[0] = list->models[i];
        list->n_models = 1;
    }
    return ERROR_NONE;
}

static enum error_code hub_take_sha256(struct hub_list *list, struct error *err)
{
    const char *sha256 = list->settings.sha256;
    if (!sha256)
        return ERROR_NONE;
    if (!hub_is_sha256(sha256))
        return error_set(err, ERROR_INVALID, "--sha256 takes 64 hexadecimal letters");
    if (list->n_models != 1 || list->models[0].n_files != 1)
        return error_set(err, ERROR_INVALID, "--sha256 is for one file, and this name means more");
    struct hub_file *file = &list->files.files[list->models[0].files[0]];
    if (file->sha256[0] && strcasecmp(file->sha256, sha256) != 0)
        return error_set(err, ERROR_INVALID, "the hub's SHA-256 of %s is another: %s", file->path,
                         file->sha256);
    memcpy(file->sha256, sha256, PULL_SHA256);
    return ERROR_NONE;
}

enum error_code hub_list(const struct hub_name *name, const struct hub_settings *settings,
                         struct hub_list *out, struct error *err)
{
    *out = (struct hub_list){.name = *name, .settings = *settings};
    enum error_code code = pulled_folder_of(name, out->folder, err);
    if (!code)
        code = hub_place(out, err);
    if (!code)
        code = hub_take_token(out, err);
    if (!code)
        code = name->kind == HUB_HF       ? hub_list_tree(out, err)
               : name->kind == HUB_OLLAMA ? hub_list_manifest(out, err)
                                          : hub_list_url(out, err);
    if (!code)
        code = hub_list_models(out, err);
    if (!code)
        code = hub_take_sha256(out, err);
    if (code)
        hub_list_deinit(out);
    return code;
}

void hub_list_deinit(struct hub_list *list)
{
    hub_files_deinit(&list->files);
    mem_free(list->models);
    *list = (struct hub_list){0};
}
