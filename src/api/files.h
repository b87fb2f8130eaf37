/* /v1/files: what batches read and write. Private to the api room. */
#pragma once

#include "api/batches.h"
#include "api/exchange.h"

void files_upload_handle(struct exchange *exchange);  /* POST /v1/files */
void files_list_handle(struct exchange *exchange);    /* GET /v1/files */
void files_get_handle(struct exchange *exchange);     /* GET /v1/files/ID */
void files_delete_handle(struct exchange *exchange);  /* DELETE /v1/files/ID */
void files_content_handle(struct exchange *exchange); /* GET /v1/files/ID/content */

/* The server's batches and files; NULL: it keeps none, and the exchange was answered. */
struct batches *files_batches(struct exchange *exchange);
/* Which part of a list is wanted: "?limit=…&after=ID". */
struct list_window {
    uint32_t limit;
    char after[FILE_ID_TEXT]; /* "": from the beginning */
};
bool list_window_read(struct exchange *exchange, struct list_window *out, struct api_error *err);
/* The id between prefix and suffix of the path; what is no id is found nowhere. */
void files_id_of(const struct exchange *exchange, const char *prefix, const char *suffix,
                 char out[FILE_ID_TEXT]);
