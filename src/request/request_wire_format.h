/* The fixed parts of request_wire.h's messages, shared by writer and reader. */
#pragma once

#include "request/request_wire.h"

enum { REQUEST_LOGPROBS = 1, REQUEST_ALL_LOGITS = 2, REQUEST_EMBEDDINGS = 4, REQUEST_ONWARD = 8 };
enum { REQUEST_DONE_LOST = 1 };
enum { REQUEST_HEAD_BYTES = 9 };   /* kind and id */
enum { REQUEST_TOKEN_BYTES = 16 }; /* without the likeliest others … */
enum { REQUEST_TOP_BYTES = 8 };    /* … each of which takes */

/* ---- request_wire_pictures.c ---- */
void request_put_pictures(const struct request *request, struct buffer *run);
/* What was read before an error stays in the request, to be dropped. */
enum error_code request_get_pictures(struct bytes_reader *reader, struct request *request,
                                     struct error *err);
void request_drop_pictures(struct request *request);
