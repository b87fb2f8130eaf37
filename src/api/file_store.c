#include "api/file_store.h"

#include "api/json_out.h"
#include "api/resume.h"
#include "base/durable_file.h"
#include "base/log.h"
#include "trust/access_token.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <yyjson.h>

enum { FILE_NOTE_BYTES = 4096 }; /* of ID.json */

void file_id_draw(const char *prefix, char out[FILE_ID_TEXT])
{
    char drawn[LIMIT_REQUEST_ID_BYTES + 1];
    request_id_draw(drawn);
    snprintf(out, FILE_ID_TEXT, "%s%.32s", prefix, drawn + strlen("req-"));
}

void file_owner_of(const struct access_grant *grant, char out[FILE_OWNER_TEXT])
{
    snprintf(out, FILE_OWNER_TEXT, "-");
    for (size_t i = 0; grant->id && i < ACCESS_TOKEN_HASH_BYTES; i++)
        snprintf(out + 2 * i, 3, "%02x", grant->hash[i]);
}

bool file_owner_hash(const char *owner, uint8_t *hash)
{
    if (strlen(owner) != FILE_OWNER_TEXT - 1)
        return false;
    for (size_t i = 0; i < ACCESS_TOKEN_HASH_BYTES; i++) {
        const char digits[3] = {owner[2 * i], owner[2 * i + 1], '\0'};
        hash[i] = (uint8_t)strtoul(digits, NULL, 16);
    }
    return true;
}

/* Both of the room's own making: a path that is too long was refused when the store was opened. */
void file_store_data_path(const char *folder, const char *id, char out[PATH_MAX])
{
    struct error ignored;
    durable_path(folder, id, ".data", out, &ignored);
}

static void file_store_note_path(const char *folder, const char *id, char out[PATH_MAX])
{
    struct error ignored;
    durable_path(folder, id, ".json", out, &ignored);
}

/* ---- one file -------------------------------------------------------------------------------- */

void kept_file_write(const struct kept_file *file, struct buffer *out)
{
    buffer_text(out, "{\"id\":");
    json_out_text(out, file->id);
    buffer_printf(out,
                  ",\"object\":\"file\",\"bytes\":%" PRIu64 ",\"created_at\":%" PRIu64
                  ",\"expires_at\":%" PRIu64 ",\"filename\":",
                  file->bytes, file->created_s, file->created_s + FILE_KEPT_S);
    json_out_text(out, file->name);
    buffer_printf(out, ",\"purpose\":\"%s\",\"status\":\"processed\",\"status_details\":null}",
                  file->purpose);
}

static void file_note_write(const struct kept_file *file, struct buffer *out)
{
    buffer_printf(out, "{\"owner\":\"%s\",\"purpose\":\"%s\",\"created_s\":%" PRIu64 ",\"name\":",
                  file->owner, file->purpose, file->created_s);
    json_out_text(out, file->name);
    buffer_text(out, "}\n");
}

static void file_note_take(yyjson_val *root, const char *name, char *out, size_t size)
{
    const char *text = yyjson_get_str(yyjson_obj_get(root, name));
    snprintf(out, size, "%s", text ? text : "");
}

static bool file_note_read(const struct buffer *text, struct kept_file *out)
{
    yyjson_doc *doc = yyjson_read(text->data, text->size, YYJSON_READ_NOFLAG);
    yyjson_val *root = yyjson_doc_get_root(doc);
    file_note_take(root, "owner", out->owner, sizeof out->owner);
    file_note_take(root, "purpose", out->purpose, sizeof out->purpose);
    file_note_take(root, "name", out->name, sizeof out->name);
    out->created_s = yyjson_get_uint(yyjson_obj_get(root, "created_s"));
    yyjson_doc_free(doc);
    return out->owner[0] && out->purpose[0];
}

enum error_code file_store_save(const char *folder, const struct kept_file *file,
                                const struct text *data, struct error *err)
{
    char path[PATH_MAX];
    struct buffer note = {0};
    enum error_code code = ERROR_NONE;
    file_store_data_path(folder, file->id, path);
    if (data)
        code = durable_replace(path, data->data, data->size, err);
    file_note_write(file, &note);
    file_store_note_path(folder, file->id, path);
    if (!code && note.failed)
        code = error_set(err, ERROR_NO_MEMORY, "not enough memory for the file");
    if (!code)
        code = durable_replace(path, note.data, note.size, err);
    buffer_deinit(&note);
    return code;
}

/* ---- the list -------------------------------------------------------------------------------- */

bool file_store_has_room(const struct file_store *store, const char *owner, uint64_t bytes,
                         struct api_error *err)
{
    uint64_t all = bytes, own = bytes;
    uint32_t n_own = 0;
    for (uint32_t i = 0; i < store->n; i++) {
        const bool is_own = strcmp(store->files[i].owner, owner) == 0;
        all += store->files[i].bytes;
        own += is_own ? store->files[i].bytes : 0;
        n_own += is_own;
    }
    if (n_own >= FILES_OF_OWNER_MAX || own > FILES_BYTES / 2)
        return api_error_set(err, 413, "invalid_request_error", "too_many_files",
                             "a client may keep %d files of %" PRIu64 " MiB together: delete some",
                             FILES_OF_OWNER_MAX, FILES_BYTES / 2 >> 20);
    return (store->n < FILES_MAX && all <= FILES_BYTES) ||
           api_error_set(err, 503, "server_error", "files_full",
                         "this node keeps %d files of %" PRIu64 " MiB together, and has: try "
                         "later, or another node",
                         FILES_MAX, FILES_BYTES >> 20);
}

bool file_store_add(struct file_store *store, const struct kept_file *file)
{
    uint32_t at = store->n;
    if (store->n == FILES_MAX)
        return false;
    for (; at && store->files[at - 1].created_s > file->created_s; at--)
        store->files[at] = store->files[at - 1];
    store->files[at] = *file;
    store->n++;
    return true;
}

const struct kept_file *file_store_find(const struct file_store *store, const char *id,
                                        const char *owner)
{
    for (uint32_t i = 0; i < store->n; i++) {
        if (strcmp(store->files[i].id, id) == 0)
            return strcmp(store->files[i].owner, owner) == 0 ? &store->files[i] : NULL;
    }
    return NULL;
}

static void file_store_unlink(const char *folder, const char *id)
{
    char path[PATH_MAX];
    file_store_note_path(folder, id, path);
    unlink(path); /* first: without it there is no file */
    file_store_data_path(folder, id, path);
    unlink(path);
}

void file_store_remove(struct file_store *store, const char *id)
{
    char name[FILE_ID_TEXT]; /* `id` may be in the list itself */
    snprintf(name, sizeof name, "%s", id);
    file_store_unlink(store->folder, name);
    for (uint32_t i = 0; i < store->n; i++) {
        if (strcmp(store->files[i].id, name) != 0)
            continue;
        memmove(&store->files[i], &store->files[i + 1], (store->n - i - 1) * sizeof *store->files);
        store->n--;
        return;
    }
}

/* ---- opening --------------------------------------------------------------------------------- */

/* The file that ID.json tells of. */
static bool file_store_read(const char *folder, struct kept_file *file)
{
    char path[PATH_MAX];
    struct buffer text = {0};
    struct error ignored;
    struct stat data;
    file_store_note_path(folder, file->id, path);
    const bool is_read =
        !durable_read(path, FILE_NOTE_BYTES, 0, &text, &ignored) && file_note_read(&text, file);
    buffer_deinit(&text);
    file_store_data_path(folder, file->id, path);
    if (!is_read || stat(path, &data) != 0)
        return false;
    file->bytes = (uint64_t)data.st_size;
    return true;
}

/* "file-….data" or "….json": its id. */
static bool file_store_id_of(const char *name, char id[FILE_ID_TEXT])
{
    const char *dot = strrchr(name, '.');
    if (strncmp(name, "file-", 5) != 0 || !dot || dot - name >= FILE_ID_TEXT)
        return false;
    snprintf(id, FILE_ID_TEXT, "%.*s", (int)(dot - name), name);
    return true;
}

static void file_store_load(struct file_store *store, const char *id, uint64_t now_s)
{
    struct kept_file file = {0};
    snprintf(file.id, sizeof file.id, "%s", id);
    for (uint32_t i = 0; i < store->n; i++) {
        if (strcmp(store->files[i].id, id) == 0)
            return;
    }
    if (!file_store_read(store->folder, &file) || file.created_s + FILE_KEPT_S < now_s)
        file_store_unlink(store->folder, id);
    else if (!file_store_add(store, &file))
        log_line(LOG_WARN, "api", "%s/%s.data is one file too many, and is left alone",
                 store->folder, id);
}

enum error_code file_store_open(struct file_store *store, const char *folder, uint64_t now_s,
                                struct error *err)
{
    char id[FILE_ID_TEXT], longest[PATH_MAX];
    *store = (struct file_store){0};
    snprintf(store->folder, sizeof store->folder, "%s", folder);
    enum error_code code =
        durable_path(folder, "file-0123456789abcdef0123456789abcdef", ".output", longest, err);
    if (!code)
        code = durable_make_folder(folder, err);
    DIR *dir = code ? NULL : opendir(folder);
    if (!code && !dir)
        code = error_set(err, ERROR_IO, "%s: %s", folder, strerror(errno));
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        if (file_store_id_of(entry->d_name, id))
            file_store_load(store, id, now_s);
    }
    if (dir)
        closedir(dir);
    return code;
}
