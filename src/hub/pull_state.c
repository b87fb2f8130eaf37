#include "hub/pull_state.h"

#include "base/json_memory.h"
#include "base/mem.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum error_code pull_state_init(struct pull_state *state, uint64_t size, struct error *err)
{
    if (size == 0 || size > PULL_FILE_BYTES)
        return error_set(err, ERROR_INVALID, "a file of %llu bytes", (unsigned long long)size);
    *state = (struct pull_state){.size = size, .piece = PULL_PIECE_BYTES};
    while ((size + state->piece - 1) / state->piece > PULL_PIECES)
        state->piece *= 2;
    state->n_pieces = (uint32_t)((size + state->piece - 1) / state->piece);
    assert(state->n_pieces >= 1 && state->n_pieces <= PULL_PIECES);
    return ERROR_NONE;
}

uint64_t pull_piece_size(const struct pull_state *state, uint32_t piece)
{
    assert(piece < state->n_pieces);
    const uint64_t from = piece * state->piece;
    return state->size - from < state->piece ? state->size - from : state->piece;
}

uint64_t pull_state_done(const struct pull_state *state)
{
    uint64_t done = 0;
    for (uint32_t i = 0; i < state->n_pieces; i++)
        done += state->have[i];
    assert(done <= state->size);
    return done;
}

void pull_piece_forget(struct pull_state *state, uint32_t piece)
{
    assert(piece < state->n_pieces);
    state->have[piece] = state->sums[piece] = state->summed[piece] = 0;
}

/* ---- reading --------------------------------------------------------------------------------- */

static bool pull_read_text(yyjson_val *root, const char *key, char *out, size_t size)
{
    yyjson_val *value = yyjson_obj_get(root, key);
    const size_t length = yyjson_get_len(value);
    if (!yyjson_is_str(value) || length >= size || strlen(yyjson_get_str(value)) != length)
        return false;
    memcpy(out, yyjson_get_str(value), length + 1);
    return true;
}

/* A range that was done when it was written: from a piece's start, or of several pieces. */
static bool pull_read_range(struct pull_state *state, yyjson_val *range)
{
    yyjson_val *first = yyjson_arr_get(range, 0), *second = yyjson_arr_get(range, 1);
    if (yyjson_arr_size(range) != 2 || !yyjson_is_uint(first) || !yyjson_is_uint(second))
        return false;
    uint64_t from = yyjson_get_uint(first);
    const uint64_t to = yyjson_get_uint(second);
    if (from >= to || to > state->size || from % state->piece)
        return false;
    while (from < to) {
        const uint32_t piece = (uint32_t)(from / state->piece);
        const uint64_t whole = pull_piece_size(state, piece);
        const uint64_t size = to - from < whole ? to - from : whole;
        if (state->have[piece])
            return false; /* said twice */
        state->have[piece] = size;
        from += size;
    }
    return true;
}

static bool pull_read_sums(struct pull_state *state, yyjson_val *sums)
{
    yyjson_val *value;
    size_t i, max;
    if (!yyjson_is_arr(sums) || yyjson_arr_size(sums) != state->n_pieces)
        return false;
    yyjson_arr_foreach(sums, i, max, value)
    {
        const char *text = yyjson_get_str(value);
        if (yyjson_is_null(value))
            continue;
        if (!text || strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16 ||
            !state->have[i])
            return false;
        state->sums[i] = strtoull(text, NULL, 16);
        state->summed[i] = state->have[i];
    }
    return true;
}

static bool pull_read_root(yyjson_val *root, struct pull_state *out)
{
    yyjson_val *size = yyjson_obj_get(root, "size"), *done = yyjson_obj_get(root, "done"), *range;
    size_t i, max;
    if (!yyjson_is_uint(size) || !yyjson_is_arr(done) ||
        pull_state_init(out, yyjson_get_uint(size), NULL) ||
        yyjson_get_uint(yyjson_obj_get(root, "piece")) != out->piece ||
        !pull_read_text(root, "url", out->url, sizeof out->url) ||
        !pull_read_text(root, "etag", out->etag, sizeof out->etag) ||
        !pull_read_text(root, "sha256", out->sha256, sizeof out->sha256))
        return false;
    yyjson_arr_foreach(done, i, max, range)
    {
        if (!pull_read_range(out, range))
            return false;
    }
    return pull_read_sums(out, yyjson_obj_get(root, "sums"));
}

enum error_code pull_state_read(const char *bytes, size_t size, struct pull_state *out,
                                struct error *err)
{
    yyjson_doc *doc = size <= PULL_STATE_BYTES
                          ? yyjson_read_opts((char *)bytes, size, 0, &json_memory, NULL)
                          : NULL;
    const bool holds = doc && pull_read_root(yyjson_doc_get_root(doc), out);
    yyjson_doc_free(doc);
    if (holds)
        return ERROR_NONE;
    *out = (struct pull_state){0};
    return error_set(err, ERROR_INVALID, "the state of an earlier pull makes no sense");
}

/* ---- writing --------------------------------------------------------------------------------- */

static void pull_write_ranges(const struct pull_state *state, yyjson_mut_doc *doc,
                              yyjson_mut_val *done)
{
    for (uint32_t i = 0; i < state->n_pieces;) {
        const uint64_t from = i * state->piece;
        uint64_t to = from;
        bool goes_on = true;
        for (; goes_on && i < state->n_pieces; i++) {
            to += state->have[i];
            goes_on = state->have[i] == pull_piece_size(state, i);
        }
        if (from == to)
            continue;
        yyjson_mut_val *range = yyjson_mut_arr_add_arr(doc, done);
        yyjson_mut_arr_add_uint(doc, range, from);
        yyjson_mut_arr_add_uint(doc, range, to);
    }
}

static void pull_write_sums(const struct pull_state *state, yyjson_mut_doc *doc,
                            yyjson_mut_val *sums)
{
    char text[17];
    for (uint32_t i = 0; i < state->n_pieces; i++) {
        snprintf(text, sizeof text, "%016llx", (unsigned long long)state->sums[i]);
        if (state->have[i] && state->summed[i] == state->have[i])
            yyjson_mut_arr_add_strcpy(doc, sums, text);
        else
            yyjson_mut_arr_add_null(doc, sums);
    }
}

void pull_state_write(const struct pull_state *state, struct buffer *out)
{
    size_t size = 0;
    char *text = NULL;
    yyjson_mut_doc *doc = yyjson_mut_doc_new(&json_memory);
    yyjson_mut_val *root = doc ? yyjson_mut_obj(doc) : NULL;
    if (root) {
        yyjson_mut_doc_set_root(doc, root);
        yyjson_mut_obj_add_str(doc, root, "url", state->url);
        yyjson_mut_obj_add_uint(doc, root, "size", state->size);
        yyjson_mut_obj_add_str(doc, root, "etag", state->etag);
        yyjson_mut_obj_add_str(doc, root, "sha256", state->sha256);
        yyjson_mut_obj_add_uint(doc, root, "piece", state->piece);
        pull_write_ranges(state, doc, yyjson_mut_obj_add_arr(doc, root, "done"));
        pull_write_sums(state, doc, yyjson_mut_obj_add_arr(doc, root, "sums"));
        text = yyjson_mut_write_opts(doc, 0, &json_memory, &size, NULL);
    }
    if (text)
        buffer_append(out, text, size);
    else
        out->failed = true;
    mem_free(text);
    yyjson_mut_doc_free(doc);
}
