#include "api/files.h"

#include "api/access.h"
#include "api/internal.h"
#include "api/json_out.h"
#include "api/request_work.h"
#include "base/durable_file.h"
#include "base/mem.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LIST_LIMIT_STANDARD = 100 };

static void files_fail(struct exchange *exchange, unsigned status, const char *code,
                       const char *text)
{
    struct api_error err;
    api_error_set(&err, status, status < 500 ? "invalid_request_error" : "server_error", code, "%s",
                  text);
    exchange_fail(exchange, &err);
}

static void files_not_found(struct exchange *exchange, const char *id)
{
    struct api_error err;
    api_error_set(&err, 404, "invalid_request_error", "file_not_found",
                  "there is no file '%s', or it is another client's", id);
    exchange_fail(exchange, &err);
}

/* The oldest come first; one that a batch reads stays until that has ended. */
static void files_drop_old(struct batches *batches)
{
    struct file_store *store = batches_files(batches);
    const uint64_t now_s = server_wall_ms() / 1000;
    while (store->n && store->files[0].created_s + FILE_KEPT_S < now_s &&
           !batches_reads_file(batches, store->files[0].id))
        file_store_remove(store, store->files[0].id);
}

struct batches *files_batches(struct exchange *exchange)
{
    struct api_server *server = exchange_server(exchange);
    const char *why = batches_unavailable(server->batches);
    if (!why) {
        files_drop_old(server->batches);
        return server->batches;
    }
    files_fail(exchange, 404, "no_files", why);
    return NULL;
}

void files_id_of(const struct exchange *exchange, const char *prefix, const char *suffix,
                 char out[FILE_ID_TEXT])
{
    const struct text path = exchange_path(exchange);
    const size_t around = strlen(prefix) + strlen(suffix);
    const size_t size = path.size > around ? path.size - around : 0;
    snprintf(out, FILE_ID_TEXT, "%.*s", (int)(size < FILE_ID_TEXT ? size : 0),
             path.data + strlen(prefix));
}

bool list_window_read(struct exchange *exchange, struct list_window *out, struct api_error *err)
{
    char limit[8];
    *out = (struct list_window){.limit = LIST_LIMIT_STANDARD};
    exchange_argument(exchange, "after", out->after, sizeof out->after);
    if (!exchange_argument(exchange, "limit", limit, sizeof limit))
        return true;
    if (limit[strspn(limit, "0123456789")] || !strtoul(limit, NULL, 10))
        return api_error_field(err, "limit", "'limit' must be a number from 1 to 9999999");
    out->limit = (uint32_t)strtoul(limit, NULL, 10);
    return true;
}

/* ---- uploading ------------------------------------------------------------------------------- */

struct file_upload {
    struct request_work work; /* first */
    struct kept_file file;
    const char *folder;
};

static struct file_upload *file_upload_of(struct request_work *work)
{
    return (struct file_upload *)(void *)work;
}

static void file_upload_release(struct request_work *work)
{
    buffer_deinit(&work->body);
    mem_free(file_upload_of(work));
}

static void file_upload_free_when_over(struct file_upload *upload)
{
    if (!upload->work.exchange && !upload->work.running)
        request_work_end(&upload->work, file_upload_release);
}

static void file_upload_gone(void *owner)
{
    struct file_upload *upload = owner;
    request_work_gone(&upload->work);
    file_upload_free_when_over(upload);
}

/* A step: reads the form and writes the file. */
static void file_upload_run(struct request_work *work)
{
    struct file_upload *upload = file_upload_of(work);
    struct file_form form;
    struct error cause;
    const char *body = work->body.data ? work->body.data : "";
    if (!file_form_read(body, work->body.size, &form, &work->err))
        return;
    if (form.purpose.size != 5 || memcmp(form.purpose.data, "batch", 5) != 0) {
        api_error_field(&work->err, "purpose",
                        "'purpose' must be \"batch\": files are kept for /v1/batches alone");
        return;
    }
    upload->file.bytes = form.data.size;
    snprintf(upload->file.purpose, sizeof upload->file.purpose, "batch");
    snprintf(upload->file.name, sizeof upload->file.name, "%s", form.name);
    if (file_store_save(upload->folder, &upload->file, &form.data, &cause))
        api_error_set(&work->err, 503, "server_error", "not_kept",
                      "the file cannot be kept: %.300s", cause.text);
    buffer_deinit(&work->body);
}

/* On the loop: it is in the list, or it goes again. */
static void file_upload_ready(struct request_work *work)
{
    struct file_upload *upload = file_upload_of(work);
    struct file_store *store = batches_files(work->server->batches);
    const bool is_saved = !work->err.status && upload->file.purpose[0];
    const bool is_kept =
        is_saved && work->exchange &&
        file_store_has_room(store, upload->file.owner, upload->file.bytes, &work->err) &&
        file_store_add(store, &upload->file);
    if (!is_kept)
        file_store_remove(store, upload->file.id);
    if (is_kept) {
        struct exchange *exchange = work->exchange;
        struct buffer body = {0};
        kept_file_write(&upload->file, &body);
        work->exchange = NULL;
        exchange_answer_json(exchange, &body);
    } else if (work->exchange) {
        if (!work->err.status)
            api_error_set(&work->err, 503, "server_error", "files_full",
                          "this node keeps as many files as it can");
        request_work_fail(work, &work->err);
    }
    file_upload_free_when_over(upload);
}

void files_upload_handle(struct exchange *exchange)
{
    struct batches *batches = files_batches(exchange);
    struct api_error err;
    if (!batches)
        return;
    struct file_upload *upload = mem_new(sizeof *upload);
    if (!upload) {
        files_fail(exchange, 503, "no_memory", "not enough memory for the file");
        return;
    }
    file_id_draw("file-", upload->file.id);
    file_owner_of(exchange_grant(exchange), upload->file.owner);
    upload->file.created_s = server_wall_ms() / 1000;
    upload->folder = batches_files(batches)->folder;
    const size_t size = exchange_body(exchange).size;
    if (!file_store_has_room(batches_files(batches), upload->file.owner, size, &err)) {
        mem_free(upload);
        exchange_fail(exchange, &err);
        return;
    }
    request_work_begin(&upload->work, exchange, file_upload_gone, upload);
    request_work_step(
        &upload->work,
        &(struct request_step){.bytes = size, .run = file_upload_run, .ready = file_upload_ready});
}

/* ---- reading --------------------------------------------------------------------------------- */

struct file_reading {
    struct request_work work; /* first */
    char path[PATH_MAX];
    uint64_t bytes;
    struct buffer content;
};

static struct file_reading *file_reading_of(struct request_work *work)
{
    return (struct file_reading *)(void *)work;
}

static void file_reading_release(struct request_work *work)
{
    buffer_deinit(&work->body);
    buffer_deinit(&file_reading_of(work)->content);
    mem_free(file_reading_of(work));
}

static void file_reading_gone(void *owner)
{
    struct file_reading *reading = owner;
    request_work_gone(&reading->work);
    if (!reading->work.running)
        request_work_end(&reading->work, file_reading_release);
}

static void file_reading_run(struct request_work *work)
{
    struct file_reading *reading = file_reading_of(work);
    struct error cause;
    if (durable_read(reading->path, reading->bytes, 0, &reading->content, &cause))
        api_error_set(&work->err, 503, "server_error", "not_read",
                      "the file cannot be read: %.300s", cause.text);
}

static void file_reading_ready(struct request_work *work)
{
    struct file_reading *reading = file_reading_of(work);
    struct exchange *exchange = work->exchange;
    if (exchange && work->err.status) {
        request_work_fail(work, &work->err);
    } else if (exchange) {
        work->exchange = NULL;
        work_limit_hand_over(&work->job.limit, reading->content.data);
        exchange_answer(exchange, 200, "application/jsonl", &reading->content);
    }
    request_work_end(work, file_reading_release);
}

/* The file of the path; NULL: the exchange was answered. */
static const struct kept_file *files_find(struct exchange *exchange, const char *suffix,
                                          struct batches **batches)
{
    char id[FILE_ID_TEXT], owner[FILE_OWNER_TEXT];
    *batches = files_batches(exchange);
    if (!*batches)
        return NULL;
    files_id_of(exchange, "/v1/files/", suffix, id);
    file_owner_of(exchange_grant(exchange), owner);
    const struct kept_file *file = file_store_find(batches_files(*batches), id, owner);
    if (!file)
        files_not_found(exchange, id);
    return file;
}

void files_content_handle(struct exchange *exchange)
{
    struct batches *batches;
    const struct kept_file *file = files_find(exchange, "/content", &batches);
    if (!file)
        return;
    struct file_reading *reading = mem_new(sizeof *reading);
    if (!reading) {
        files_fail(exchange, 503, "no_memory", "not enough memory for the file");
        return;
    }
    file_store_data_path(batches_files(batches)->folder, file->id, reading->path);
    reading->bytes = file->bytes;
    request_work_begin(&reading->work, exchange, file_reading_gone, reading);
    request_work_step(&reading->work, &(struct request_step){.bytes = (size_t)reading->bytes,
                                                             .run = file_reading_run,
                                                             .ready = file_reading_ready});
}

void files_get_handle(struct exchange *exchange)
{
    struct batches *batches;
    struct buffer body = {0};
    const struct kept_file *file = files_find(exchange, "", &batches);
    if (!file)
        return;
    kept_file_write(file, &body);
    exchange_answer_json(exchange, &body);
}

void files_delete_handle(struct exchange *exchange)
{
    struct batches *batches;
    struct buffer body = {0};
    const struct kept_file *file = files_find(exchange, "", &batches);
    if (!file)
        return;
    if (batches_reads_file(batches, file->id)) {
        files_fail(exchange, 409, "file_in_use",
                   "a batch that is under way reads this file: cancel it first");
        return;
    }
    buffer_text(&body, "{\"id\":");
    json_out_text(&body, file->id);
    buffer_text(&body, ",\"object\":\"file\",\"deleted\":true}");
    file_store_remove(batches_files(batches), file->id);
    exchange_answer_json(exchange, &body);
}

/* ---- listing --------------------------------------------------------------------------------- */

/* The newest first; `after` is the last one of the page before. */
static void files_list(const struct file_store *store, const char *owner, const char *purpose,
                       const struct list_window *window, struct buffer *out, bool *has_more)
{
    uint32_t count = 0;
    bool is_after = !window->after[0];
    *has_more = false;
    for (uint32_t i = store->n; i-- > 0;) {
        const struct kept_file *file = &store->files[i];
        if (strcmp(file->owner, owner) != 0 || (purpose[0] && strcmp(file->purpose, purpose) != 0))
            continue;
        if (is_after && count == window->limit)
            *has_more = true;
        if (is_after && count < window->limit) {
            buffer_text(out, count++ ? "," : "");
            kept_file_write(file, out);
        }
        is_after |= strcmp(file->id, window->after) == 0;
    }
}

void files_list_handle(struct exchange *exchange)
{
    struct batches *batches = files_batches(exchange);
    char owner[FILE_OWNER_TEXT], purpose[32];
    struct list_window window;
    struct api_error err;
    struct buffer body = {0};
    bool has_more;
    if (!batches)
        return;
    if (!list_window_read(exchange, &window, &err)) {
        exchange_fail(exchange, &err);
        return;
    }
    exchange_argument(exchange, "purpose", purpose, sizeof purpose);
    file_owner_of(exchange_grant(exchange), owner);
    buffer_text(&body, "{\"object\":\"list\",\"data\":[");
    files_list(batches_files(batches), owner, purpose, &window, &body, &has_more);
    buffer_printf(&body, "],\"has_more\":%s}", has_more ? "true" : "false");
    exchange_answer_json(exchange, &body);
}
