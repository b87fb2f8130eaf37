/* A picture's rows in a prompt: kept once by all who need them, counted, and freed with the last.
 *
 * A prompt stays a list of tokens. In the place of each row of a picture stands a token from
 * PICTURE_TOKEN_FIRST on, which is made of the picture's digest and the row's number: so the same
 * picture has the same tokens on every machine, and what compares tokens (the reuse of prefixes,
 * caches that are handed over, a replay after a loss) needs to know nothing of pictures. A token
 * has 30 bits of the digest; a picture is only reused as a whole, so all of its rows would have to
 * agree for another to be taken for it.
 *
 *     int32_t prompt[…];                                  text, room for the rows, text
 *     prompt_picture_new(&rows, digest, &picture, err);   the rows are the picture's now
 *     prompt_picture_tokens(picture, prompt + at);
 *     request.pictures = &(struct request_picture){at, picture}; request.n_pictures = 1;
 *     driver_submit(driver, &request, …);                 keeps what it needs
 *     prompt_picture_release(picture);
 *
 * Any thread. */
#pragma once

#include "base/error.h"
#include "model/picture.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct prompt_picture;

enum { PICTURE_DIGEST_BYTES = 32 };

/* `digest`: SHA-256 of all that the rows follow from, the picture and its projector. The rows,
 * from mem_new_array(), become the picture's; on error they stay the caller's. ERROR_INVALID: no
 * rows, or a grid of another number of them. */
enum error_code prompt_picture_new(struct picture_rows *rows, const uint8_t *digest,
                                   struct prompt_picture **out, struct error *err);
struct prompt_picture *prompt_picture_keep(struct prompt_picture *picture);
void prompt_picture_release(struct prompt_picture *picture); /* NULL is fine */

const struct picture_rows *prompt_picture_rows(const struct prompt_picture *picture);
const uint8_t *prompt_picture_digest(const struct prompt_picture *picture);
size_t prompt_picture_bytes(const struct prompt_picture *picture); /* of its rows */
/* What stands in the prompt: n_rows tokens. */
void prompt_picture_tokens(const struct prompt_picture *picture, int32_t *out);

/* ---- pictures of a prompt: in order, and none in another ---- */

struct request_picture {
    uint32_t at; /* the prompt's token that is its first row */
    struct prompt_picture *picture;
};

/* They are in order, within a prompt of `n_prompt` tokens, which has their tokens there and such
 * tokens nowhere else. ERROR_INVALID. */
enum error_code request_pictures_check(const struct request_picture *pictures, uint32_t n,
                                       const int32_t *prompt, uint32_t n_prompt, struct error *err);
/* The picture that has the row at this position; NULL: it is text. */
const struct request_picture *request_picture_at(const struct request_picture *pictures, uint32_t n,
                                                 uint32_t position);
