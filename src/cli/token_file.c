#include "cli/token_file.h"

#include "base/clock.h"
#include "base/durable_file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/state_folder.h"
#include "trust/digest.h"

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { TOKEN_FILE_LOCK_MS = 2000 };

/* What was read: the document, and of each entry what is asked for with every request. */
struct token_list_read {
    yyjson_doc *doc; /* NULL: nothing */
    uint32_t n;
    struct access_grant grants[LIMIT_ACCESS_TOKENS];
    yyjson_val *entries[LIMIT_ACCESS_TOKENS];
};

struct token_file {
    char path[PATH_MAX];
    struct token_list_read list;
    bool exists;
    struct stat seen; /* of what was read */
    uint64_t looked_ms;
};

static uint64_t token_file_wall_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

enum error_code token_file_path(const char *path, char *out, struct error *err)
{
    char folder[PATH_MAX];
    if (path && (size_t)snprintf(out, PATH_MAX, "%s", path) < PATH_MAX)
        return ERROR_NONE;
    if (path || !state_folder(folder, sizeof folder))
        return error_set(err, ERROR_INVALID,
                         "there is no folder to keep tokens in; set MEDLEY_STATE_DIR, or name a "
                         "file with --tokens");
    return durable_path(folder, "serve-tokens", ".json", out, err);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* A whole number; missing: 0. False: it is none, or larger than that. */
static bool token_file_number(yyjson_val *entry, const char *key, uint64_t max, uint64_t *out)
{
    yyjson_val *value = yyjson_obj_get(entry, key);
    *out = yyjson_is_uint(value) ? yyjson_get_uint(value) : 0;
    return (!value || yyjson_is_uint(value)) && *out <= max;
}

static bool token_file_models(yyjson_val *entry, bool *are_some)
{
    yyjson_val *models = yyjson_obj_get(entry, "models"), *value;
    size_t i, n;
    *are_some = yyjson_arr_size(models) > 0;
    if (models && !yyjson_is_arr(models))
        return false;
    yyjson_arr_foreach(models, i, n, value)
    {
        if (!yyjson_is_str(value))
            return false;
    }
    return true;
}

/* What is wrong with it; NULL: nothing. */
static const char *token_file_read_entry(yyjson_val *entry, struct access_grant *out)
{
    struct digest hash;
    char unknown[80];
    uint64_t requests, streams, expires, per_day;
    const char *name = yyjson_get_str(yyjson_obj_get(entry, "name"));
    const char *text = yyjson_get_str(yyjson_obj_get(entry, "hash"));
    const char *scopes = yyjson_get_str(yyjson_obj_get(entry, "scopes"));
    *out = (struct access_grant){0};
    if (!name || !access_token_name_is_valid(name))
        return "it has no valid name";
    if (!text || !digest_parse(text, &hash))
        return "it has no hash of 64 hexadecimal digits";
    if (!scopes || !access_scopes_parse(scopes, &out->scopes, unknown, sizeof unknown))
        return "it has no valid scopes";
    if (!token_file_number(entry, "expires_ms", UINT64_MAX, &expires) ||
        !token_file_number(entry, "requests_per_min", 1000000, &requests) ||
        !token_file_number(entry, "streams", 1000000, &streams) ||
        !token_file_number(entry, "tokens_per_day", UINT64_MAX, &per_day))
        return "a number is missing or too large";
    if (!token_file_models(entry, &out->is_bound))
        return "its models are no list of names";
    memcpy(out->hash, hash.bytes, sizeof out->hash);
    snprintf(out->name, sizeof out->name, "%s", name);
    out->id = access_token_id(out->hash);
    out->expires_ms = expires;
    out->requests_per_min = (uint32_t)requests;
    out->streams = (uint32_t)streams;
    out->tokens_per_day = per_day;
    return NULL;
}

static void token_list_clear(struct token_list_read *list)
{
    yyjson_doc_free(list->doc);
    list->doc = NULL;
    list->n = 0;
}

static enum error_code token_list_parse(const char *path, struct buffer *bytes,
                                        struct token_list_read *out, struct error *err)
{
    out->doc = yyjson_read(bytes->data ? bytes->data : "", bytes->size, 0);
    yyjson_val *tokens = yyjson_obj_get(yyjson_doc_get_root(out->doc), "tokens"), *entry;
    const char *problem = NULL;
    size_t i, n;
    if (!yyjson_is_arr(tokens))
        return error_set(err, ERROR_INVALID, "%s: it is not a file of tokens", path);
    if (yyjson_arr_size(tokens) > LIMIT_ACCESS_TOKENS)
        return error_set(err, ERROR_INVALID, "%s: more than %d tokens", path, LIMIT_ACCESS_TOKENS);
    yyjson_arr_foreach(tokens, i, n, entry)
    {
        problem = token_file_read_entry(entry, &out->grants[i]);
        if (problem)
            return error_set(err, ERROR_INVALID, "%s: token %zu: %s", path, i + 1, problem);
        out->entries[out->n++] = entry;
    }
    return ERROR_NONE;
}

/* ERROR_NOT_FOUND: there is no file. After an error the list is empty. */
static enum error_code token_list_load(const char *path, struct token_list_read *out,
                                       struct error *err)
{
    struct buffer bytes = {0};
    token_list_clear(out);
    enum error_code code = durable_read(path, TOKEN_FILE_BYTES_MAX, 0077, &bytes, err);
    if (!code)
        code = token_list_parse(path, &bytes, out, err);
    if (code)
        token_list_clear(out);
    buffer_deinit(&bytes);
    return code;
}

/* ---- for the server -------------------------------------------------------------------------- */

enum error_code token_file_open(const char *path, struct token_file **out, struct error *err)
{
    struct token_file *file = mem_new(sizeof *file);
    if (!file)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the tokens");
    enum error_code code = token_file_path(path, file->path, err);
    if (!code) {
        file->exists = stat(file->path, &file->seen) == 0;
        code = token_list_load(file->path, &file->list, err);
    }
    if (code == ERROR_NOT_FOUND)
        code = ERROR_NONE;
    if (code) {
        token_file_close(file);
        file = NULL;
    }
    *out = file;
    return code;
}

void token_file_close(struct token_file *file)
{
    if (!file)
        return;
    token_list_clear(&file->list);
    mem_free(file);
}

static bool token_file_is_as_seen(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* A file that was replaced is another one: durable_replace() renames. One that has gone takes its
 * tokens along, but the API stays closed. */
static void token_file_look(struct token_file *file)
{
    const uint64_t now_ms = clock_now_ns() / 1000000;
    struct stat now = {0};
    struct error err;
    if (now_ms - file->looked_ms < TOKEN_FILE_LOOK_MS)
        return;
    file->looked_ms = now_ms;
    const bool is_there = stat(file->path, &now) == 0;
    if (token_file_is_as_seen(&now, &file->seen))
        return;
    file->seen = now;
    file->exists |= is_there;
    if (token_list_load(file->path, &file->list, &err) != ERROR_NONE)
        log_line(LOG_WARN, "api", "no token is good any more: %s", err.text);
}

static uint32_t token_file_index(struct token_file *file, const uint8_t *hash)
{
    uint32_t found = LIMIT_ACCESS_TOKENS;
    token_file_look(file);
    for (uint32_t i = 0; i < file->list.n; i++) {
        if (access_token_same(file->list.grants[i].hash, hash))
            found = i;
    }
    return found;
}

static bool token_file_find(void *self, const uint8_t *hash, struct access_grant *out)
{
    struct token_file *file = self;
    const uint32_t i = token_file_index(file, hash);
    if (i == LIMIT_ACCESS_TOKENS)
        return false;
    *out = file->list.grants[i];
    return true;
}

static bool token_file_is_required(void *self)
{
    token_file_look(self);
    return token_file_exists(self);
}

static bool token_file_may_use(void *self, const uint8_t *hash, const char *model, bool lists,
                               struct error *why)
{
    struct token_file *file = self;
    const uint32_t index = token_file_index(file, hash);
    yyjson_val *value;
    size_t i, n;
    (void)lists;
    if (index != LIMIT_ACCESS_TOKENS) {
        yyjson_arr_foreach(yyjson_obj_get(file->list.entries[index], "models"), i, n, value)
        {
            if (yyjson_equals_str(value, model))
                return true;
        }
    }
    error_set(why, ERROR_INVALID, "it is not bound to the model '%s'", model);
    return false;
}

bool token_file_exists(const struct token_file *file)
{
    return file->exists;
}

struct api_access token_file_access(struct token_file *file)
{
    return (struct api_access){.find = token_file_find,
                               .is_required = token_file_is_required,
                               .may_use = token_file_may_use,
                               .self = file};
}

/* ---- for the command ------------------------------------------------------------------------- */

/* An editing of the file, begun under its lock. */
struct token_editing {
    char path[PATH_MAX];
    int lock;
    struct token_list_read list;
    yyjson_mut_doc *doc;
    yyjson_mut_val *tokens;
};

static void token_editing_end(struct token_editing *editing)
{
    yyjson_mut_doc_free(editing->doc);
    token_list_clear(&editing->list);
    if (editing->lock >= 0)
        close(editing->lock);
    mem_free(editing);
}

static enum error_code token_editing_lock(struct token_editing *editing, struct error *err)
{
    char name[PATH_MAX];
    enum error_code code = durable_make_folder_of(editing->path, err);
    if (code)
        return code;
    if ((size_t)snprintf(name, sizeof name, "%s.lock", editing->path) >= sizeof name)
        return error_set(err, ERROR_INVALID, "%s: the path is too long", editing->path);
    editing->lock = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (editing->lock < 0)
        return error_set(err, ERROR_IO, "%s: %m", name);
    return durable_lock(editing->lock, TOKEN_FILE_LOCK_MS, err);
}

static enum error_code token_editing_begin(const char *path, struct token_editing **out,
                                           struct error *err)
{
    struct token_editing *editing = mem_new(sizeof *editing);
    *out = NULL;
    if (!editing)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the tokens");
    editing->lock = -1;
    enum error_code code = token_file_path(path, editing->path, err);
    if (!code)
        code = token_editing_lock(editing, err);
    if (!code)
        code = token_list_load(editing->path, &editing->list, err);
    if (code == ERROR_NOT_FOUND)
        code = ERROR_NONE;
    editing->doc = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *root = yyjson_mut_obj(editing->doc);
    yyjson_mut_doc_set_root(editing->doc, root);
    editing->tokens = yyjson_mut_obj_add_arr(editing->doc, root, "tokens");
    if (!code && !editing->tokens)
        code = error_set(err, ERROR_NO_MEMORY, "not enough memory for the tokens");
    if (code)
        token_editing_end(editing);
    else
        *out = editing;
    return code;
}

static enum error_code token_editing_write(struct token_editing *editing, struct error *err)
{
    size_t size = 0;
    char *text =
        yyjson_mut_write(editing->doc, YYJSON_WRITE_PRETTY | YYJSON_WRITE_NEWLINE_AT_END, &size);
    if (!text)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the tokens");
    enum error_code code = durable_replace(editing->path, text, size, err);
    free(text);
    return code;
}

/* All entries but that one. Whether it was there. */
static bool token_editing_keep_others(struct token_editing *editing, const char *name)
{
    bool found = false;
    for (uint32_t i = 0; i < editing->list.n; i++) {
        if (strcmp(editing->list.grants[i].name, name) == 0)
            found = true;
        else
            yyjson_mut_arr_append(editing->tokens,
                                  yyjson_val_mut_copy(editing->doc, editing->list.entries[i]));
    }
    return found;
}

static void token_editing_add(struct token_editing *editing, const struct token_entry *entry,
                              const uint8_t *hash)
{
    struct digest digest;
    char hex[DIGEST_TEXT], scopes[32];
    const uint64_t now_ms = token_file_wall_ms();
    yyjson_mut_doc *doc = editing->doc;
    yyjson_mut_val *object = yyjson_mut_arr_add_obj(doc, editing->tokens);
    memcpy(digest.bytes, hash, sizeof digest.bytes);
    access_scopes_text(entry->scopes, scopes, sizeof scopes);
    yyjson_mut_obj_add_strcpy(doc, object, "name", entry->name);
    yyjson_mut_obj_add_strcpy(doc, object, "hash", digest_text(&digest, hex));
    yyjson_mut_obj_add_strcpy(doc, object, "scopes", scopes);
    yyjson_mut_obj_add_uint(doc, object, "created_ms", now_ms);
    yyjson_mut_obj_add_uint(doc, object, "expires_ms",
                            entry->expires_s ? now_ms + entry->expires_s * 1000 : 0);
    yyjson_mut_val *models = yyjson_mut_obj_add_arr(doc, object, "models");
    for (const char *at = entry->models; at && *at;) {
        const size_t n = strcspn(at, ",");
        if (n)
            yyjson_mut_arr_add_strncpy(doc, models, at, n);
        at += n + (at[n] == ',');
    }
    yyjson_mut_obj_add_uint(doc, object, "requests_per_min", entry->requests_per_min);
    yyjson_mut_obj_add_uint(doc, object, "streams", entry->streams);
    yyjson_mut_obj_add_uint(doc, object, "tokens_per_day", entry->tokens_per_day);
}

enum error_code token_file_create(const char *path, const struct token_entry *entry,
                                  char text[ACCESS_TOKEN_TEXT], struct error *err)
{
    struct token_editing *editing;
    uint8_t hash[ACCESS_TOKEN_HASH_BYTES];
    if (!access_token_name_is_valid(entry->name))
        return error_set(err, ERROR_INVALID,
                         "a token's name has 1 to %d letters, digits, or . - _ @",
                         LIMIT_ACCESS_TOKEN_NAME_BYTES);
    enum error_code code = token_editing_begin(path, &editing, err);
    if (code)
        return code;
    if (token_editing_keep_others(editing, entry->name))
        code =
            error_set(err, ERROR_INVALID, "%s: there is a token of that name already", entry->name);
    else if (editing->list.n >= LIMIT_ACCESS_TOKENS)
        code =
            error_set(err, ERROR_INVALID, "there are %d tokens; revoke some", LIMIT_ACCESS_TOKENS);
    if (!code)
        code = access_token_make(text, hash, err);
    if (!code) {
        token_editing_add(editing, entry, hash);
        code = token_editing_write(editing, err);
    }
    token_editing_end(editing);
    return code;
}

enum error_code token_file_revoke(const char *path, const char *name, struct error *err)
{
    struct token_editing *editing;
    enum error_code code = token_editing_begin(path, &editing, err);
    if (code)
        return code;
    if (!token_editing_keep_others(editing, name))
        code = error_set(err, ERROR_NOT_FOUND,
                         "there is no token '%s'; `medley token list --serve` lists them", name);
    if (!code)
        code = token_editing_write(editing, err);
    token_editing_end(editing);
    return code;
}

enum error_code token_file_list(const char *path, yyjson_doc **out, struct error *err)
{
    struct token_editing *editing;
    enum error_code code = token_editing_begin(path, &editing, err);
    if (code)
        return code;
    for (uint32_t i = 0; i < editing->list.n; i++) {
        const struct access_grant *grant = &editing->list.grants[i];
        yyjson_mut_val *object = yyjson_val_mut_copy(editing->doc, editing->list.entries[i]);
        char id[ACCESS_TOKEN_ID_TEXT];
        access_token_id_text(grant->hash, id);
        yyjson_mut_obj_remove_key(object, "hash");
        yyjson_mut_obj_add_strcpy(editing->doc, object, "id", id);
        yyjson_mut_obj_add_bool(editing->doc, object, "expired",
                                grant->expires_ms && token_file_wall_ms() >= grant->expires_ms);
        yyjson_mut_obj_add_arr(editing->doc, object, "places");
        yyjson_mut_arr_append(editing->tokens, object);
    }
    *out = yyjson_mut_doc_imut_copy(editing->doc, NULL);
    token_editing_end(editing);
    return *out ? ERROR_NONE : error_set(err, ERROR_NO_MEMORY, "not enough memory for the tokens");
}
