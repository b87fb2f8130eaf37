/* What is kept of a batch. */
#include "api/batch.h"

#include "api/json_out.h"
#include "base/durable_file.h"
#include "base/json_memory.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BATCH_NOTE_BYTES = 64 * 1024 };

static const char *const batch_status_names[] = {[BATCH_IN_PROGRESS] = "in_progress",
                                                 [BATCH_COMPLETED] = "completed",
                                                 [BATCH_FAILED] = "failed",
                                                 [BATCH_EXPIRED] = "expired",
                                                 [BATCH_CANCELLED] = "cancelled"};
enum { BATCH_STATUSES = sizeof batch_status_names / sizeof *batch_status_names };

void batch_free(struct api_batch *batch)
{
    if (!batch)
        return;
    mem_free(batch->metadata);
    mem_free(batch->errors);
    mem_free(batch->lines);
    mem_free(batch);
}

uint64_t batch_window_s(const char *text)
{
    char *end;
    const unsigned long n = strtoul(text, &end, 10);
    const uint64_t unit = strcmp(end, "h") == 0   ? 3600
                          : strcmp(end, "m") == 0 ? 60
                          : strcmp(end, "s") == 0 ? 1
                                                  : 0;
    if (text[0] < '1' || text[0] > '9' || end - text > 6 || n * unit > BATCH_WINDOW_S)
        return 0;
    return n * unit;
}

bool batch_endpoint_is_known(const char *endpoint)
{
    static const char *const known[] = {"/v1/chat/completions", "/v1/completions",
                                        "/v1/embeddings"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(known[i], endpoint) == 0)
            return true;
    }
    return false;
}

void batch_path(const char *folder, const char *id, const char *extension, char out[PATH_MAX])
{
    struct error ignored; /* too long a folder was refused when the store was opened */
    durable_path(folder, id, extension, out, &ignored);
}

/* ---- as OpenAI has it ------------------------------------------------------------------------ */

static void batch_write_time(struct buffer *out, const char *name, uint64_t time_s, bool is_set)
{
    if (is_set)
        buffer_printf(out, ",\"%s\":%" PRIu64, name, time_s);
    else
        buffer_printf(out, ",\"%s\":null", name);
}

static void batch_write_id(struct buffer *out, const char *name, const char *id)
{
    buffer_printf(out, ",\"%s\":", name);
    json_out_text(out, id[0] ? id : NULL);
}

void batch_write(const struct api_batch *batch, struct buffer *out)
{
    const enum batch_status status = batch->status;
    buffer_text(out, "{\"id\":");
    json_out_text(out, batch->id);
    buffer_printf(out, ",\"object\":\"batch\",\"endpoint\":\"%s\",\"errors\":%s", batch->endpoint,
                  batch->errors ? batch->errors : "null");
    batch_write_id(out, "input_file_id", batch->input_file);
    buffer_printf(out, ",\"completion_window\":\"%s\",\"status\":\"%s\"", batch->window,
                  batch_status_names[status]);
    batch_write_id(out, "output_file_id", batch->output_file);
    batch_write_id(out, "error_file_id", batch->error_file);
    batch_write_time(out, "created_at", batch->created_s, true);
    batch_write_time(out, "in_progress_at", batch->created_s, status != BATCH_FAILED);
    batch_write_time(out, "expires_at", batch->expires_s, true);
    batch_write_time(out, "finalizing_at", batch->ended_s, status == BATCH_COMPLETED);
    batch_write_time(out, "completed_at", batch->ended_s, status == BATCH_COMPLETED);
    batch_write_time(out, "failed_at", batch->ended_s, status == BATCH_FAILED);
    batch_write_time(out, "expired_at", batch->ended_s, status == BATCH_EXPIRED);
    batch_write_time(out, "cancelling_at", batch->ended_s, status == BATCH_CANCELLED);
    batch_write_time(out, "cancelled_at", batch->ended_s, status == BATCH_CANCELLED);
    buffer_printf(out, ",\"request_counts\":{\"total\":%u,\"completed\":%u,\"failed\":%u}",
                  batch->total, batch->completed, batch->failed);
    buffer_printf(out, ",\"metadata\":%s}", batch->metadata ? batch->metadata : "null");
}

/* ---- on disk: the same, and whose it is ------------------------------------------------------ */

enum error_code batch_save(const char *folder, const struct api_batch *batch, struct error *err)
{
    struct buffer text = {0};
    char path[PATH_MAX];
    batch_path(folder, batch->id, ".json", path);
    buffer_printf(&text, "{\"owner\":\"%s\",\"ended_s\":%" PRIu64 ",\"batch\":", batch->owner,
                  batch->ended_s);
    batch_write(batch, &text);
    buffer_text(&text, "}\n");
    const enum error_code code =
        text.failed ? error_set(err, ERROR_NO_MEMORY, "not enough memory for the batch")
                    : durable_replace(path, text.data, text.size, err);
    buffer_deinit(&text);
    return code;
}

static void batch_take_text(yyjson_val *from, const char *name, char *out, size_t size)
{
    const char *text = yyjson_get_str(yyjson_obj_get(from, name));
    snprintf(out, size, "%s", text ? text : "");
}

static uint64_t batch_take_number(yyjson_val *from, const char *name)
{
    return yyjson_get_uint(yyjson_obj_get(from, name));
}

/* An object as text; NULL: it is not there. */
static char *batch_take_object(yyjson_val *from, const char *name)
{
    yyjson_val *value = yyjson_obj_get(from, name);
    return yyjson_is_obj(value) ? yyjson_val_write_opts(value, 0, &json_memory, NULL, NULL) : NULL;
}

static bool batch_take(yyjson_val *root, struct api_batch *out)
{
    yyjson_val *from = yyjson_obj_get(root, "batch");
    yyjson_val *counts = yyjson_obj_get(from, "request_counts");
    char status[16];
    unsigned at = 0;
    batch_take_text(root, "owner", out->owner, sizeof out->owner);
    batch_take_text(from, "input_file_id", out->input_file, sizeof out->input_file);
    batch_take_text(from, "output_file_id", out->output_file, sizeof out->output_file);
    batch_take_text(from, "error_file_id", out->error_file, sizeof out->error_file);
    batch_take_text(from, "endpoint", out->endpoint, sizeof out->endpoint);
    batch_take_text(from, "completion_window", out->window, sizeof out->window);
    batch_take_text(from, "status", status, sizeof status);
    out->metadata = batch_take_object(from, "metadata");
    out->errors = batch_take_object(from, "errors");
    out->created_s = batch_take_number(from, "created_at");
    out->expires_s = batch_take_number(from, "expires_at");
    out->ended_s = batch_take_number(root, "ended_s");
    out->total = (uint32_t)batch_take_number(counts, "total");
    out->completed = (uint32_t)batch_take_number(counts, "completed");
    out->failed = (uint32_t)batch_take_number(counts, "failed");
    while (at < BATCH_STATUSES && strcmp(status, batch_status_names[at]) != 0)
        at++;
    out->status = (enum batch_status)at;
    return at < BATCH_STATUSES && out->owner[0] && batch_endpoint_is_known(out->endpoint) &&
           batch_window_s(out->window);
}

struct api_batch *batch_load(const char *folder, const char *id, struct error *err)
{
    char path[PATH_MAX];
    struct buffer text = {0};
    struct api_batch *batch = mem_new(sizeof *batch);
    batch_path(folder, id, ".json", path);
    enum error_code code = batch ? durable_read(path, BATCH_NOTE_BYTES, 0, &text, err)
                                 : error_set(err, ERROR_NO_MEMORY, "not enough memory");
    yyjson_doc *doc = code ? NULL : yyjson_read(text.data, text.size, YYJSON_READ_NOFLAG);
    if (!code) {
        snprintf(batch->id, sizeof batch->id, "%s", id);
        if (!batch_take(yyjson_doc_get_root(doc), batch))
            code = error_set(err, ERROR_INVALID, "%s is no batch", path);
    }
    yyjson_doc_free(doc);
    buffer_deinit(&text);
    if (!code)
        return batch;
    batch_free(batch);
    return NULL;
}

void batch_remove(const char *folder, const char *id)
{
    static const char *const extensions[] = {".json", ".output", ".errors"};
    char path[PATH_MAX];
    for (size_t i = 0; i < sizeof extensions / sizeof *extensions; i++) {
        batch_path(folder, id, extensions[i], path);
        unlink(path);
    }
}
