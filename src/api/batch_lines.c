/* The lines of a batch: requests in, answers out. */
#include "api/batch.h"

#include "api/json_out.h"
#include "base/durable_file.h"
#include "base/fnv.h"
#include "base/json_memory.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    BATCH_ERRORS_MAX = 10, /* that are told of a file */
    BATCH_CUSTOM_ID_BYTES = 512,
};

static const char batch_answer_head[] = "{\"id\":\"batch_req_";

/* ---- reading the file ------------------------------------------------------------------------ */

/* The file while its lines are checked. */
struct batch_reader {
    struct api_batch *batch;
    struct buffer errors; /* JSON objects */
    uint32_t n_errors;
    uint64_t *ids; /* hashes of custom_id, of each line */
    const char *code, *text;
};

static void batch_tell(struct batch_reader *reader, const char *code, uint64_t line,
                       const char *text)
{
    if (reader->n_errors++ >= BATCH_ERRORS_MAX)
        return;
    buffer_text(&reader->errors, reader->errors.size ? "," : "");
    buffer_printf(&reader->errors, "{\"code\":\"%s\",\"param\":null,\"line\":", code);
    if (line)
        buffer_printf(&reader->errors, "%" PRIu64, line);
    else
        buffer_text(&reader->errors, "null");
    buffer_text(&reader->errors, ",\"message\":");
    json_out_text(&reader->errors, text);
    buffer_text(&reader->errors, "}");
}

/* NULL: the line is good, and *id is the hash of its custom_id. */
static const char *batch_check_line(const struct api_batch *batch, yyjson_val *root, uint64_t *id)
{
    yyjson_val *custom_id = yyjson_obj_get(root, "custom_id");
    yyjson_val *body = yyjson_obj_get(root, "body");
    const size_t size = yyjson_get_len(custom_id);
    if (!yyjson_is_obj(root))
        return "the line is not a JSON object";
    if (!yyjson_is_str(custom_id) || !size || size > BATCH_CUSTOM_ID_BYTES)
        return "'custom_id' must be a text of 1 to 512 bytes";
    if (!yyjson_equals_str(yyjson_obj_get(root, "method"), "POST"))
        return "'method' must be \"POST\"";
    if (!yyjson_equals_str(yyjson_obj_get(root, "url"), batch->endpoint))
        return "'url' must be the batch's endpoint";
    if (!yyjson_is_obj(body))
        return "'body' must be an object";
    if (yyjson_is_true(yyjson_obj_get(body, "stream")))
        return "'stream' is not possible in a batch";
    *id = fnv(FNV_BASIS, yyjson_get_str(custom_id), size);
    return NULL;
}

static void batch_take_line(struct batch_reader *reader, const char *text, size_t size, uint64_t at,
                            uint64_t number)
{
    struct api_batch *batch = reader->batch;
    const char *wrong = "the line is longer than 262144 bytes";
    uint64_t *id = &reader->ids[batch->total];
    if (size <= BATCH_LINE_BYTES) {
        yyjson_doc *doc =
            yyjson_read_opts((char *)(uintptr_t)text, size, YYJSON_READ_NOFLAG, &json_memory, NULL);
        wrong = batch_check_line(batch, yyjson_doc_get_root(doc), id);
        yyjson_doc_free(doc);
    }
    if (wrong)
        batch_tell(reader, "invalid_line", number, wrong);
    batch->lines[batch->total++] = (struct batch_line){.at = at, .size = (uint32_t)size};
}

static int batch_compare_ids(const void *a, const void *b)
{
    const uint64_t one = *(const uint64_t *)a, other = *(const uint64_t *)b;
    return one < other ? -1 : one > other;
}

static void batch_check_ids(struct batch_reader *reader)
{
    const uint32_t n = reader->batch->total;
    qsort(reader->ids, n, sizeof *reader->ids, batch_compare_ids);
    for (uint32_t i = 1; i < n; i++) {
        if (reader->ids[i] != reader->ids[i - 1])
            continue;
        batch_tell(reader, "duplicate_custom_id", 0, "two lines have the same 'custom_id'");
        return;
    }
}

static void batch_split(struct batch_reader *reader, const struct buffer *file)
{
    uint64_t number = 0;
    for (size_t at = 0; at < file->size;) {
        const char *text = file->data + at;
        const char *end = memchr(text, '\n', file->size - at);
        const size_t size = end ? (size_t)(end - text) : file->size - at;
        number++;
        if (reader->batch->total == BATCH_LINES_MAX && size) {
            batch_tell(reader, "too_many_lines", number, "a batch has at most 10000 lines");
            return;
        }
        if (strspn(text, " \t\r") < size)
            batch_take_line(reader, text, size, at, number);
        at += size + 1;
    }
    if (!reader->batch->total)
        batch_tell(reader, "empty_file", 0, "the file has no lines");
}

static enum error_code batch_note_errors(struct batch_reader *reader, struct error *err)
{
    struct api_batch *batch = reader->batch;
    struct buffer list = {0};
    if (!reader->n_errors)
        return ERROR_NONE;
    buffer_text(&list, "{\"object\":\"list\",\"data\":[");
    buffer_append(&list, reader->errors.data, reader->errors.size);
    buffer_text(&list, "]}");
    batch->status = BATCH_FAILED;
    batch->errors =
        list.failed || reader->errors.failed ? NULL : mem_copy_text(list.data, list.size);
    buffer_deinit(&list);
    return batch->errors ? ERROR_NONE
                         : error_set(err, ERROR_NO_MEMORY, "not enough memory for the batch");
}

enum error_code batch_read_lines(struct api_batch *batch, const char *files_folder,
                                 struct error *err)
{
    struct batch_reader reader = {.batch = batch};
    struct buffer file = {0};
    char path[PATH_MAX];
    file_store_data_path(files_folder, batch->input_file, path);
    enum error_code code = durable_read(path, LIMIT_BODY_BYTES, 0, &file, err);
    batch->total = batch->completed = batch->failed = batch->next = 0;
    batch->lines = mem_new_array(BATCH_LINES_MAX, sizeof *batch->lines);
    reader.ids = mem_new_array(BATCH_LINES_MAX, sizeof *reader.ids);
    if (!code && (!batch->lines || !reader.ids))
        code = error_set(err, ERROR_NO_MEMORY, "not enough memory for the batch");
    if (!code) {
        batch_split(&reader, &file);
        if (!reader.n_errors)
            batch_check_ids(&reader);
        code = batch_note_errors(&reader, err);
    }
    mem_free(reader.ids);
    buffer_deinit(&reader.errors);
    buffer_deinit(&file);
    return code;
}

/* ---- answers --------------------------------------------------------------------------------- */

/* Of one file: `count` grows by the lines that it has; *size is what of it is whole. */
static void batch_mark_answers(struct api_batch *batch, const struct buffer *file, uint32_t *count,
                               uint64_t *size)
{
    static const size_t head = sizeof batch_answer_head - 1;
    *size = 0;
    for (size_t at = 0; at < file->size;) {
        const char *line = file->data + at, *end = memchr(line, '\n', file->size - at);
        if (!end)
            return;
        const unsigned long index =
            (size_t)(end - line) > head && memcmp(line, batch_answer_head, head) == 0
                ? strtoul(line + head, NULL, 10)
                : batch->total;
        if (index < batch->total && batch->lines[index].state != BATCH_LINE_OVER) {
            batch->lines[index].state = BATCH_LINE_OVER;
            ++*count;
        }
        at = *size = (size_t)(end + 1 - file->data);
    }
}

static enum error_code batch_read_file(struct api_batch *batch, const char *folder,
                                       const char *extension, uint32_t *count, uint64_t *size,
                                       struct error *err)
{
    char path[PATH_MAX];
    struct buffer file = {0};
    batch_path(folder, batch->id, extension, path);
    const enum error_code code = durable_read(path, 2 * BATCH_OUTPUT_BYTES, 0, &file, err);
    if (!code)
        batch_mark_answers(batch, &file, count, size);
    const bool is_cut = !code && *size < file.size;
    buffer_deinit(&file);
    if (is_cut && truncate(path, (off_t)*size))
        return error_set(err, ERROR_IO, "%s: %s", path, strerror(errno));
    return code == ERROR_NOT_FOUND ? ERROR_NONE : code;
}

enum error_code batch_read_answers(struct api_batch *batch, const char *folder, struct error *err)
{
    enum error_code code =
        batch_read_file(batch, folder, ".output", &batch->completed, &batch->output_bytes, err);
    return code ? code
                : batch_read_file(batch, folder, ".errors", &batch->failed, &batch->errors_bytes,
                                  err);
}

/* Without a sync for each: after a loss of power, lines that are not there are asked again. */
static enum error_code batch_append(const char *path, const struct buffer *text, uint64_t *at,
                                    struct error *err)
{
    if (text->failed)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for an answer");
    const int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    const int problem = fd < 0 ? errno : pwrite_all(fd, text->data, text->size, *at);
    if (fd >= 0)
        close(fd);
    if (problem)
        return error_set(err, ERROR_IO, "%s: %s", path, strerror(problem));
    *at += text->size;
    return ERROR_NONE;
}

/* JSON on one line: between tokens a line break is nothing, and within texts there is none. */
static void batch_append_flat(struct buffer *out, struct text json)
{
    for (size_t at = 0; at < json.size;) {
        const char *from = json.data + at, *end = memchr(from, '\n', json.size - at);
        const size_t size = end ? (size_t)(end - from) : json.size - at;
        buffer_append(out, from, size);
        at += size + 1;
    }
}

static void batch_write_answer(const struct api_batch *batch, uint32_t index,
                               const struct buffer *custom_id, unsigned status, struct text body,
                               const char *code, const char *text, struct buffer *out)
{
    buffer_printf(out, "%s%u\",\"custom_id\":", batch_answer_head, index);
    buffer_append(out, custom_id->data, custom_id->size);
    out->failed |= custom_id->failed;
    if (body.size) {
        buffer_printf(out, ",\"response\":{\"status_code\":%u,\"request_id\":\"%s-%u\",\"body\":",
                      status, batch->id, index);
        batch_append_flat(out, body);
        buffer_text(out, "},\"error\":null}\n");
        return;
    }
    buffer_printf(out, ",\"response\":null,\"error\":{\"code\":\"%s\",\"message\":", code);
    json_out_text(out, text);
    buffer_text(out, "}}\n");
}

enum error_code batch_line_answer(struct api_batch *batch, const char *folder, uint32_t index,
                                  const struct buffer *custom_id, unsigned status, struct text body,
                                  const char *code, const char *text, struct error *err)
{
    const bool is_good = status == 200 && body.size;
    char path[PATH_MAX];
    struct buffer out = {0};
    batch_write_answer(batch, index, custom_id, status, body, code, text, &out);
    batch_path(folder, batch->id, is_good ? ".output" : ".errors", path);
    const enum error_code failed =
        batch_append(path, &out, is_good ? &batch->output_bytes : &batch->errors_bytes, err);
    buffer_deinit(&out);
    if (failed)
        return failed;
    batch->lines[index].state = BATCH_LINE_OVER;
    *(is_good ? &batch->completed : &batch->failed) += 1;
    return ERROR_NONE;
}

/* ---- requests -------------------------------------------------------------------------------- */

static enum error_code batch_line_read(const struct api_batch *batch, const char *files_folder,
                                       uint32_t index, char *out, struct error *err)
{
    const struct batch_line *line = &batch->lines[index];
    char path[PATH_MAX];
    file_store_data_path(files_folder, batch->input_file, path);
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    const int problem = fd < 0 ? errno : pread_all(fd, out, line->size, line->at);
    if (fd >= 0)
        close(fd);
    return problem ? error_set(err, ERROR_IO, "%s: %s", path, strerror(problem)) : ERROR_NONE;
}

static void batch_write_request(const struct api_batch *batch, uint32_t index, yyjson_val *root,
                                struct buffer *out, struct buffer *custom_id)
{
    size_t size = 0;
    yyjson_val *body = yyjson_obj_get(root, "body"), *id = yyjson_obj_get(root, "custom_id");
    char *text = yyjson_val_write_opts(body, 0, &json_memory, &size, NULL);
    json_out_string(custom_id, yyjson_get_str(id), yyjson_get_len(id));
    buffer_printf(out,
                  "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                  "X-Request-Id: %s-%u\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n",
                  batch->endpoint, batch->id, index, size);
    buffer_append(out, text, size);
    out->failed |= !text;
    mem_free(text);
}

enum error_code batch_line_request(const struct api_batch *batch, const char *files_folder,
                                   uint32_t index, struct buffer *out, struct buffer *custom_id,
                                   struct error *err)
{
    const size_t size = batch->lines[index].size;
    char *line = mem_new(size + 1);
    enum error_code code = line ? batch_line_read(batch, files_folder, index, line, err)
                                : error_set(err, ERROR_NO_MEMORY, "not enough memory for a line");
    yyjson_doc *doc =
        code ? NULL : yyjson_read_opts(line, size, YYJSON_READ_NOFLAG, &json_memory, NULL);
    yyjson_val *root = yyjson_doc_get_root(doc);
    if (!code && !yyjson_is_obj(root))
        code = error_set(err, ERROR_INVALID, "its line in %s is not the one that was checked",
                         batch->input_file);
    if (!code)
        batch_write_request(batch, index, root, out, custom_id);
    if (!code && (out->failed || custom_id->failed))
        code = error_set(err, ERROR_NO_MEMORY, "not enough memory for a line");
    yyjson_doc_free(doc);
    mem_free(line);
    return code;
}
