/* /v1/batches: the routes. */
#include "api/batches.h"

#include "api/batch_run.h"
#include "api/files.h"
#include "api/internal.h"
#include "api/request_work.h"
#include "base/json_memory.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>

enum { BATCH_REQUEST_BYTES = 16 * 1024 };

/* ---- reading --------------------------------------------------------------------------------- */

static bool batch_read_text(struct json_in *in, const char *name, yyjson_val *value, char *out,
                            size_t size)
{
    struct text text;
    if (!json_in_text(in, name, value, &text))
        return false;
    snprintf(out, size, "%.*s", (int)(text.size < size ? text.size : 0), text.data);
    return true;
}

static bool batch_read_input_file(struct json_in *in, const char *name, yyjson_val *value)
{
    struct api_batch *batch = in->out;
    return batch_read_text(in, name, value, batch->input_file, sizeof batch->input_file);
}

static bool batch_read_endpoint(struct json_in *in, const char *name, yyjson_val *value)
{
    struct api_batch *batch = in->out;
    return batch_read_text(in, name, value, batch->endpoint, sizeof batch->endpoint) &&
           (batch_endpoint_is_known(batch->endpoint) ||
            api_error_field(in->err, name,
                            "'endpoint' must be \"/v1/chat/completions\", \"/v1/completions\" or "
                            "\"/v1/embeddings\""));
}

static bool batch_read_window(struct json_in *in, const char *name, yyjson_val *value)
{
    struct api_batch *batch = in->out;
    return batch_read_text(in, name, value, batch->window, sizeof batch->window) &&
           (batch_window_s(batch->window) ||
            api_error_field(in->err, name,
                            "'completion_window' must be a time of at most 168 hours, as in "
                            "\"24h\", \"90m\" or \"30s\""));
}

static bool batch_read_metadata(struct json_in *in, const char *name, yyjson_val *value)
{
    struct api_batch *batch = in->out;
    size_t size = 0;
    if (!yyjson_is_obj(value))
        return api_error_field(in->err, name, "'metadata' must be an object");
    batch->metadata = yyjson_val_write_opts(value, 0, &json_memory, &size, NULL);
    if (!batch->metadata)
        return json_in_no_memory(in);
    return size <= BATCH_METADATA_BYTES ||
           api_error_field(in->err, name, "'metadata' has more than %d bytes",
                           BATCH_METADATA_BYTES);
}

static const struct json_field batch_fields[] = {
    {"input_file_id", batch_read_input_file, true, 0},
    {"endpoint", batch_read_endpoint, true, 0},
    {"completion_window", batch_read_window, true, 0},
    {"metadata", batch_read_metadata, false, 0},
    {0},
};

const struct json_field *batch_request_fields(void)
{
    return batch_fields;
}

static bool batch_read(struct api_batch *batch, struct text body, struct api_error *err)
{
    struct json_in in = {.err = err, .out = batch};
    yyjson_doc *doc = NULL;
    if (body.size > BATCH_REQUEST_BYTES)
        return api_error_set(err, 413, "invalid_request_error", "body_too_large",
                             "/v1/batches takes a body of at most %d bytes: the requests are in "
                             "the file",
                             BATCH_REQUEST_BYTES);
    const bool is_read = json_in_object(&in, body.data, body.size, batch_fields, 0, &doc);
    yyjson_doc_free(doc);
    return is_read;
}

/* ---- creating -------------------------------------------------------------------------------- */

struct batch_creation {
    struct request_work work; /* first */
    struct batches *batches;
    struct api_batch *batch;
};

static struct batch_creation *batch_creation_of(struct request_work *work)
{
    return (struct batch_creation *)(void *)work;
}

static void batch_creation_release(struct request_work *work)
{
    struct batch_creation *creation = batch_creation_of(work);
    buffer_deinit(&work->body);
    batch_free(creation->batch);
    mem_free(creation);
}

static void batch_creation_free_when_over(struct batch_creation *creation)
{
    if (!creation->work.exchange && !creation->work.running)
        request_work_end(&creation->work, batch_creation_release);
}

static void batch_creation_gone(void *owner)
{
    struct batch_creation *creation = owner;
    request_work_gone(&creation->work);
    batch_creation_free_when_over(creation);
}

/* A step: reads the file's lines, and keeps the batch. */
static void batch_creation_run(struct request_work *work)
{
    struct batch_creation *creation = batch_creation_of(work);
    struct api_batch *batch = creation->batch;
    struct error err;
    enum error_code code = batch_read_lines(batch, creation->batches->files.folder, &err);
    if (batch->status == BATCH_FAILED)
        batch->ended_s = batch->created_s;
    if (!code)
        code = batch_save(creation->batches->folder, batch, &err);
    if (code)
        api_error_set(&work->err, 503, "server_error", "not_kept",
                      "the batch cannot be kept: %.300s", err.text);
}

static void batch_creation_ready(struct request_work *work)
{
    struct batch_creation *creation = batch_creation_of(work);
    struct api_batch *batch = creation->batch;
    struct exchange *exchange = work->exchange;
    struct buffer body = {0};
    const bool is_kept =
        exchange && !work->err.status && batches_add(creation->batches, batch, &work->err);
    if (is_kept) {
        batch_write(batch, &body);
        /* it is the list's now, and what it holds no longer the request's */
        work_limit_hand_over(&work->job.limit, batch->lines);
        work_limit_hand_over(&work->job.limit, batch->errors);
        creation->batch = NULL;
        work->exchange = NULL;
        exchange_answer_json(exchange, &body);
        batches_step(creation->batches);
    } else {
        batch_remove(creation->batches->folder, batch->id);
        if (exchange)
            request_work_fail(work, &work->err);
    }
    batch_creation_free_when_over(creation);
}

static bool batch_prepare(struct batches *batches, struct exchange *exchange,
                          struct api_batch *batch, struct api_error *err)
{
    file_id_draw("batch_", batch->id);
    file_owner_of(exchange_grant(exchange), batch->owner);
    if (!batch_read(batch, exchange_body(exchange), err) ||
        !batches_have_room(batches, batch->owner, err))
        return false;
    const struct kept_file *file =
        file_store_find(&batches->files, batch->input_file, batch->owner);
    if (!file || strcmp(file->purpose, "batch") != 0)
        return api_error_set(err, 404, "invalid_request_error", "file_not_found",
                             "there is no file '%s' of the purpose batch, or it is another "
                             "client's",
                             batch->input_file);
    batch->created_s = server_wall_ms() / 1000;
    batch->expires_s = batch->created_s + batch_window_s(batch->window);
    return true;
}

void batches_create_handle(struct exchange *exchange)
{
    struct batches *batches = files_batches(exchange);
    struct api_error err = {0};
    if (!batches)
        return;
    struct batch_creation *creation = mem_new(sizeof *creation);
    struct api_batch *batch = mem_new(sizeof *batch);
    if (!creation || !batch)
        api_error_set(&err, 503, "server_error", "no_memory", "not enough memory for the batch");
    if (err.status || !batch_prepare(batches, exchange, batch, &err)) {
        batch_free(batch);
        mem_free(creation);
        exchange_fail(exchange, &err);
        return;
    }
    creation->batches = batches;
    creation->batch = batch;
    request_work_begin(&creation->work, exchange, batch_creation_gone, creation);
    request_work_step(&creation->work, &(struct request_step){.bytes = LIMIT_BODY_BYTES,
                                                              .run = batch_creation_run,
                                                              .ready = batch_creation_ready});
}

/* ---- the others ------------------------------------------------------------------------------ */

/* The batch of the path; NULL: the exchange was answered. */
static struct api_batch *batches_of_path(struct exchange *exchange, const char *suffix,
                                         struct batches **batches)
{
    char id[FILE_ID_TEXT], owner[FILE_OWNER_TEXT];
    struct api_error err;
    *batches = files_batches(exchange);
    if (!*batches)
        return NULL;
    files_id_of(exchange, "/v1/batches/", suffix, id);
    file_owner_of(exchange_grant(exchange), owner);
    struct api_batch *batch = batches_find(*batches, id, owner);
    if (batch)
        return batch;
    api_error_set(&err, 404, "invalid_request_error", "batch_not_found",
                  "there is no batch '%s', or it is another client's", id);
    exchange_fail(exchange, &err);
    return NULL;
}

static void batches_answer(struct exchange *exchange, const struct api_batch *batch)
{
    struct buffer body = {0};
    batch_write(batch, &body);
    exchange_answer_json(exchange, &body);
}

void batches_get_handle(struct exchange *exchange)
{
    struct batches *batches;
    const struct api_batch *batch = batches_of_path(exchange, "", &batches);
    if (batch)
        batches_answer(exchange, batch);
}

void batches_cancel_handle(struct exchange *exchange)
{
    struct batches *batches;
    struct api_error err;
    struct api_batch *batch = batches_of_path(exchange, "/cancel", &batches);
    if (!batch)
        return;
    if (batch->status == BATCH_IN_PROGRESS)
        batches_end_batch(batches, batch, BATCH_CANCELLED);
    if (batch->status == BATCH_CANCELLED) {
        batches_answer(exchange, batch);
        return;
    }
    api_error_set(&err, 409, "invalid_request_error", "batch_over",
                  "the batch has ended and cannot be cancelled");
    exchange_fail(exchange, &err);
}

static bool batches_list(const struct batches *batches, const char *owner,
                         const struct list_window *window, struct buffer *out)
{
    uint32_t count = 0;
    bool is_after = !window->after[0], has_more = false;
    for (uint32_t i = batches->n; i-- > 0;) {
        const struct api_batch *batch = batches->batches[i];
        if (strcmp(batch->owner, owner) != 0)
            continue;
        has_more |= is_after && count == window->limit;
        if (is_after && count < window->limit) {
            buffer_text(out, count++ ? "," : "");
            batch_write(batch, out);
        }
        is_after |= strcmp(batch->id, window->after) == 0;
    }
    return has_more;
}

void batches_list_handle(struct exchange *exchange)
{
    struct batches *batches = files_batches(exchange);
    char owner[FILE_OWNER_TEXT];
    struct list_window window;
    struct api_error err;
    struct buffer body = {0};
    if (!batches)
        return;
    if (!list_window_read(exchange, &window, &err)) {
        exchange_fail(exchange, &err);
        return;
    }
    file_owner_of(exchange_grant(exchange), owner);
    buffer_text(&body, "{\"object\":\"list\",\"data\":[");
    const bool has_more = batches_list(batches, owner, &window, &body);
    buffer_printf(&body, "],\"has_more\":%s}", has_more ? "true" : "false");
    exchange_answer_json(exchange, &body);
}
