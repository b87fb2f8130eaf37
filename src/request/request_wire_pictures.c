/* Pictures of a request on its way between nodes: how many (4 bytes), then of each the token where
 * it begins, rows, values of a row, the grid's width and height (4 each), whether it is seen whole
 * (1), its digest, and its values as F32. */
#include "request/request_wire_format.h"

#include "base/mem.h"

#include <math.h>
#include <string.h>

enum error_code request_check_travels(const struct request *request, struct error *err)
{
    enum { BESIDE = 1 << 20 }; /* all else of a message, tokens and a grammar aside */
    const struct constraint *constraint = request->constraint;
    uint64_t bytes = 0, room = LIMIT_REQUEST_BYTES - BESIDE;
    for (uint32_t i = 0; i < request->n_pictures; i++)
        bytes += prompt_picture_bytes(request->pictures[i].picture);
    room -= ((uint64_t)request->n_prompt + request->n_stop_tokens) * 4;
    room -= constraint ? constraint_source(constraint)->size : 0;
    if (!bytes || bytes <= room)
        return ERROR_NONE;
    return error_set(err, ERROR_INVALID,
                     "the pictures of the request take %llu MiB, and %llu may travel to another "
                     "node: use fewer or smaller ones",
                     (unsigned long long)((bytes + (1 << 20) - 1) >> 20),
                     (unsigned long long)(room >> 20));
}

void request_put_pictures(const struct request *request, struct buffer *run)
{
    bytes_put(run, request->n_pictures, 4);
    for (uint32_t i = 0; i < request->n_pictures; i++) {
        const struct prompt_picture *picture = request->pictures[i].picture;
        const struct picture_rows *rows = prompt_picture_rows(picture);
        bytes_put(run, request->pictures[i].at, 4);
        bytes_put(run, rows->n_rows, 4);
        bytes_put(run, rows->width, 4);
        bytes_put(run, rows->grid_width, 4);
        bytes_put(run, rows->grid_height, 4);
        bytes_put(run, rows->is_whole, 1);
        buffer_append(run, prompt_picture_digest(picture), PICTURE_DIGEST_BYTES);
        buffer_append(run, rows->rows, prompt_picture_bytes(picture));
    }
}

static enum error_code request_get_picture(struct bytes_reader *reader, struct request_picture *out,
                                           struct error *err)
{
    out->at = bytes_get_u32(reader);
    struct picture_rows rows = {.n_rows = bytes_get_u32(reader)};
    rows.width = bytes_get_u32(reader);
    rows.grid_width = bytes_get_u32(reader);
    rows.grid_height = bytes_get_u32(reader);
    rows.is_whole = bytes_get(reader, 1) != 0;
    const uint8_t *digest = bytes_take(reader, PICTURE_DIGEST_BYTES);
    const uint64_t n = (uint64_t)rows.n_rows * rows.width;
    const void *values =
        n && n <= reader->left / sizeof(float) ? bytes_take(reader, n * sizeof(float)) : NULL;
    if (!digest || !values)
        return error_set(err, ERROR_INVALID, "a picture of %u rows of %u values is too short",
                         rows.n_rows, rows.width);
    rows.rows = mem_new_array(n, sizeof(float));
    if (!rows.rows)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for a picture of %u rows",
                         rows.n_rows);
    memcpy(rows.rows, values, n * sizeof(float));
    bool are_numbers = true;
    for (uint64_t i = 0; i < n; i++)
        are_numbers &= isfinite(rows.rows[i]) != 0;
    const enum error_code code =
        are_numbers ? prompt_picture_new(&rows, digest, &out->picture, err)
                    : error_set(err, ERROR_INVALID, "a picture's row is not of numbers");
    mem_free(rows.rows);
    return code;
}

enum error_code request_get_pictures(struct bytes_reader *reader, struct request *request,
                                     struct error *err)
{
    const uint32_t n = bytes_get_u32(reader);
    if (n > LIMIT_PROMPT_PICTURES)
        return error_set(err, ERROR_INVALID, "%u pictures in a prompt; the limit is %d", n,
                         LIMIT_PROMPT_PICTURES);
    struct request_picture *pictures = n ? mem_new_array(n, sizeof *pictures) : NULL;
    if (n && !pictures)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for %u pictures", n);
    enum error_code code = ERROR_NONE;
    request->pictures = pictures;
    for (; !code && request->n_pictures < n; request->n_pictures += !code)
        code = request_get_picture(reader, &pictures[request->n_pictures], err);
    return code;
}

void request_drop_pictures(struct request *request)
{
    for (uint32_t i = 0; i < request->n_pictures; i++)
        prompt_picture_release(request->pictures[i].picture);
    mem_free((void *)request->pictures);
    request->pictures = NULL;
    request->n_pictures = 0;
}
