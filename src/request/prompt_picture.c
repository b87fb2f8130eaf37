#include "request/prompt_picture.h"

#include "base/bytes.h"
#include "base/limits.h"
#include "base/mem.h"

#include <assert.h>
#include <stdatomic.h>
#include <string.h>

struct prompt_picture {
    atomic_uint n_keepers;
    uint8_t digest[PICTURE_DIGEST_BYTES];
    struct picture_rows rows;
};

enum error_code prompt_picture_new(struct picture_rows *rows, const uint8_t *digest,
                                   struct prompt_picture **out, struct error *err)
{
    if (!rows->n_rows || !rows->width || !rows->rows || rows->n_rows > LIMIT_CONTEXT)
        return error_set(err, ERROR_INVALID, "a picture of %u rows of %u values", rows->n_rows,
                         rows->width);
    if ((rows->grid_width || rows->grid_height) &&
        (uint64_t)rows->grid_width * rows->grid_height != rows->n_rows)
        return error_set(err, ERROR_INVALID, "a picture of %u rows that is %u wide and %u high",
                         rows->n_rows, rows->grid_width, rows->grid_height);
    struct prompt_picture *picture = mem_new(sizeof *picture);
    if (!picture)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for a picture");
    picture->n_keepers = 1;
    memcpy(picture->digest, digest, sizeof picture->digest);
    picture->rows = *rows;
    *rows = (struct picture_rows){0};
    *out = picture;
    return ERROR_NONE;
}

struct prompt_picture *prompt_picture_keep(struct prompt_picture *picture)
{
    atomic_fetch_add_explicit(&picture->n_keepers, 1, memory_order_relaxed);
    return picture;
}

void prompt_picture_release(struct prompt_picture *picture)
{
    if (!picture || atomic_fetch_sub_explicit(&picture->n_keepers, 1, memory_order_acq_rel) > 1)
        return;
    mem_free(picture->rows.rows);
    mem_free(picture);
}

const struct picture_rows *prompt_picture_rows(const struct prompt_picture *picture)
{
    return &picture->rows;
}

const uint8_t *prompt_picture_digest(const struct prompt_picture *picture)
{
    return picture->digest;
}

size_t prompt_picture_bytes(const struct prompt_picture *picture)
{
    return (size_t)picture->rows.n_rows * picture->rows.width * sizeof(float);
}

/* Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators": the finaliser. */
static uint64_t picture_mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static int32_t picture_token(const struct prompt_picture *picture, uint32_t row)
{
    const uint64_t part = bytes_load(picture->digest + row % 4 * 8, 8);
    const uint64_t bits = picture_mix(part + row * UINT64_C(0x9e3779b97f4a7c15));
    return PICTURE_TOKEN_FIRST + (int32_t)(bits % (uint32_t)PICTURE_TOKEN_FIRST);
}

void prompt_picture_tokens(const struct prompt_picture *picture, int32_t *out)
{
    for (uint32_t i = 0; i < picture->rows.n_rows; i++)
        out[i] = picture_token(picture, i);
}

/* ---- pictures of a prompt -------------------------------------------------------------- */

static enum error_code pictures_check_one(const struct request_picture *at, uint32_t index,
                                          uint32_t from, const int32_t *prompt, uint32_t n_prompt,
                                          struct error *err)
{
    const uint32_t n = at->picture->rows.n_rows;
    if (at->at < from || at->at >= n_prompt || n > n_prompt - at->at)
        return error_set(err, ERROR_INVALID,
                         "picture %u: %u rows from token %u on; tokens %u to %u of the prompt are "
                         "left for it",
                         index, n, at->at, from, n_prompt);
    for (uint32_t i = 0; i < n; i++) {
        if (prompt[at->at + i] != picture_token(at->picture, i))
            return error_set(err, ERROR_INVALID, "picture %u: token %u of the prompt is not its",
                             index, at->at + i);
    }
    return ERROR_NONE;
}

enum error_code request_pictures_check(const struct request_picture *pictures, uint32_t n,
                                       const int32_t *prompt, uint32_t n_prompt, struct error *err)
{
    uint32_t from = 0;
    if (n > LIMIT_PROMPT_PICTURES)
        return error_set(err, ERROR_INVALID, "%u pictures in a prompt; the limit is %d", n,
                         LIMIT_PROMPT_PICTURES);
    for (uint32_t i = 0; i <= n; i++) {
        const uint32_t text_end = i < n ? pictures[i].at : n_prompt;
        const enum error_code code =
            i < n ? pictures_check_one(&pictures[i], i, from, prompt, n_prompt, err) : ERROR_NONE;
        if (code)
            return code;
        for (; from < text_end; from++) {
            if (prompt[from] >= PICTURE_TOKEN_FIRST)
                return error_set(err, ERROR_INVALID,
                                 "token %u of the prompt is a picture's, which is not there", from);
        }
        from += i < n ? pictures[i].picture->rows.n_rows : 0;
    }
    return ERROR_NONE;
}

const struct request_picture *request_picture_at(const struct request_picture *pictures, uint32_t n,
                                                 uint32_t position)
{
    for (uint32_t i = 0; i < n && pictures[i].at <= position; i++) {
        if (position - pictures[i].at < pictures[i].picture->rows.n_rows)
            return &pictures[i];
    }
    return NULL;
}
