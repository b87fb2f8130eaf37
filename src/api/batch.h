/* One batch: what is kept of it, its lines, and the files beside it. Private to the api room. */
#pragma once

#include "api/batches.h"
#include "api/json_in.h"

enum batch_status {
    BATCH_IN_PROGRESS,
    BATCH_COMPLETED,
    BATCH_FAILED,
    BATCH_EXPIRED,
    BATCH_CANCELLED
};
enum batch_line_state { BATCH_LINE_WAITS, BATCH_LINE_RUNS, BATCH_LINE_OVER };

struct batch_line {
    uint64_t at; /* in the input file */
    uint32_t size;
    uint8_t state, n_tries;
};

struct api_batch {
    /* kept */
    char id[FILE_ID_TEXT], owner[FILE_OWNER_TEXT];
    char input_file[FILE_ID_TEXT], output_file[FILE_ID_TEXT], error_file[FILE_ID_TEXT];
    char endpoint[32], window[16];
    char *metadata; /* JSON; NULL: none */
    char *errors;   /* the same: why its file was refused */
    enum batch_status status;
    uint64_t created_s, expires_s, ended_s;
    uint32_t total, completed, failed;
    /* of one that is under way */
    struct batch_line *lines; /* [total] */
    uint32_t next;            /* no line before it waits */
    uint64_t not_before_ms;   /* the server has no room for it; CLOCK_MONOTONIC */
    uint64_t output_bytes, errors_bytes;
};

/* ---- batch_kept.c ---- */
void batch_free(struct api_batch *batch); /* NULL is fine */
/* "24h", "90m", "30s" -> seconds; 0: it is none, or more than BATCH_WINDOW_S. */
uint64_t batch_window_s(const char *text);
bool batch_endpoint_is_known(const char *endpoint);
void batch_write(const struct api_batch *batch, struct buffer *out); /* as OpenAI has it */
/* FOLDER/ID + extension: ".json", ".output", ".errors". */
void batch_path(const char *folder, const char *id, const char *extension, char out[PATH_MAX]);
enum error_code batch_save(const char *folder, const struct api_batch *batch, struct error *err);
/* NULL: it is damaged; the reason is in `err`. */
struct api_batch *batch_load(const char *folder, const char *id, struct error *err);
void batch_remove(const char *folder, const char *id);

/* ---- batch_lines.c ---- */
/* Finds the lines in the input file and checks each. What is wrong with them becomes
 * batch->errors, and the status BATCH_FAILED. Any thread. ERROR_NO_MEMORY, ERROR_IO. */
enum error_code batch_read_lines(struct api_batch *batch, const char *files_folder,
                                 struct error *err);
/* Which lines have answers; a last one that was cut off is cut away. */
enum error_code batch_read_answers(struct api_batch *batch, const char *folder, struct error *err);
/* Line `index` as an HTTP request, and its custom_id as JSON. */
enum error_code batch_line_request(const struct api_batch *batch, const char *files_folder,
                                   uint32_t index, struct buffer *out, struct buffer *custom_id,
                                   struct error *err);
/* One answer, into FOLDER/ID.output, or ID.errors where it is one. `body` is JSON; size 0: there
 * was no answer, for the reason `code` and `text`. */
enum error_code batch_line_answer(struct api_batch *batch, const char *folder, uint32_t index,
                                  const struct buffer *custom_id, unsigned status, struct text body,
                                  const char *code, const char *text, struct error *err);

/* ---- batch_lane.c: one line under way ---- */
struct batch_lane {
    struct api_batch *batch;
    uint32_t line;
    struct buffer custom_id;
    void (*over)(struct batch_lane *lane, unsigned status, struct text body);
    void *owner;
    void *way; /* its own */
};

enum { /* instead of a status */
       BATCH_LANE_CUT_OFF = 0,
       BATCH_LANE_TOO_LARGE = 1, /* the answer has more than BATCH_ANSWER_BYTES */
};

/* Begins; takes what is in *request. `over` is called once, later; or never after batch_lane_end().
 * False: not now. */
bool batch_lane_begin(struct batch_lane *lane, struct api_server *server, struct buffer *request);
void batch_lane_end(struct batch_lane *lane);
