/* Answers that can be had again, and gone on with, at any node: request ids and positions in a
 * stream. Pure.
 *
 * A text depends on the model, the prompt, the parameters and the seed alone. So that whoever
 * repeats a request gets the same text, also where another machine answers, the seed of a request
 * without one comes from its id: what the client sent as x-request-id, or what was drawn and said
 * in the answer's header of that name.
 *
 * Each event of a stream has an id, its position: for each choice "EVENTS-CHECK", with dots between
 * choices, as in "17-9f3a02c1". EVENTS counts the choice's events up to here, CHECK is eight
 * hexadecimal digits over their text. A client whose stream broke off repeats its request, to whom
 * it likes, with the same x-request-id (or a `seed`) and the last id that it saw as Last-Event-ID
 * (HTML standard, section 9.2.4). The text is computed anew; what the client has is left out, and
 * CHECK says whether it is the same: the other node's devices may not compute alike, or the request
 * may not be the same. The check may be left out: "17". */
#pragma once

#include "api/errors.h"
#include "api/stop.h"
#include "base/limits.h"

#include <stdint.h>

/* 1 to LIMIT_REQUEST_ID_BYTES letters, digits and -_.:+/=~@: what can stand in a header and a log
 * as it is. */
bool request_id_is_sane(const char *text, size_t size);
void request_id_draw(char out[LIMIT_REQUEST_ID_BYTES + 1]);
/* `purpose` tells numbers of one id apart. */
uint64_t request_id_number(const char *id, uint64_t purpose);

/* How far a choice of a stream is, or was for the client before. */
struct stream_position {
    uint32_t n_events;
    uint32_t check; /* over the text so far; begins as 0 */
    bool is_checked;
};

/* Reads exactly n positions. False: `err` says what is wrong with the header. */
bool stream_positions_read(const char *text, size_t size, struct stream_position *out, uint32_t n,
                           struct api_error *err);
/* One, with a dot before it where it is not the first. */
void stream_position_write(const struct stream_position *position, struct buffer *out);
/* One event more, with this text. */
void stream_position_count(struct stream_position *position, struct text text);
