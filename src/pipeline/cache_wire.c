#include "pipeline/cache_wire.h"

#include "base/bytes.h"

enum { CACHE_MAGIC = 0x31434b4d }; /* "MKC1" */

static void cache_write_header(const struct cache_route *route, enum cache_kind kind,
                               struct buffer *out)
{
    bytes_put(out, CACHE_MAGIC, 4);
    bytes_put(out, kind, 4);
    bytes_put(out, route->instance, 8);
    bytes_put(out, route->from_epoch, 8);
    bytes_put(out, route->to_epoch, 8);
}

void cache_write_offer(const struct cache_route *route, const struct cache_offer *offer,
                       struct buffer *out)
{
    cache_write_header(route, CACHE_OFFER, out);
    bytes_put(out, offer->patience_ms, 4);
    bytes_put(out, offer->n_slots, 4);
    for (uint32_t i = 0; i < offer->n_slots; i++) {
        bytes_put(out, offer->slots[i].slot, 4);
        bytes_put(out, offer->slots[i].n_tokens, 4);
        bytes_put(out, offer->slots[i].cache_key, 8);
        buffer_append(out, offer->slots[i].tokens, (size_t)offer->slots[i].n_tokens * 4);
    }
}

void cache_write_rows(const struct cache_route *route, const struct kv_run *run, uint64_t row_bytes,
                      struct buffer *out)
{
    cache_write_header(route, CACHE_ROWS, out);
    bytes_put(out, run->layer, 4);
    bytes_put(out, run->slot, 4);
    bytes_put(out, run->first, 4);
    bytes_put(out, run->n_rows, 4);
    bytes_put(out, row_bytes, 8);
}

void cache_write_taken(const struct cache_route *route, struct buffer *out)
{
    cache_write_header(route, CACHE_TAKEN, out);
}

void cache_write_done(const struct cache_route *route, bool has_all, struct buffer *out)
{
    cache_write_header(route, CACHE_DONE, out);
    bytes_put(out, has_all, 4);
}

/* ---- reading ---- */

static enum error_code read_offer(struct bytes_reader *reader, struct cache_offer *out,
                                  struct error *err)
{
    out->patience_ms = bytes_get_u32(reader);
    const uint32_t n = bytes_get_u32(reader);
    bool seen[LIMIT_SEQUENCES] = {false};
    uint64_t n_tokens = 0;
    if (n > LIMIT_SEQUENCES)
        return error_set(err, ERROR_INVALID, "%u slots; the limit is %d", n, LIMIT_SEQUENCES);
    for (; out->n_slots < n && !reader->short_; out->n_slots++) {
        const uint32_t i = out->n_slots;
        out->slots[i].slot = bytes_get_u32(reader);
        out->slots[i].n_tokens = bytes_get_u32(reader);
        out->slots[i].cache_key = bytes_get(reader, 8);
        out->slots[i].tokens = bytes_take(reader, (size_t)out->slots[i].n_tokens * 4);
        n_tokens += out->slots[i].n_tokens;
        if (out->slots[i].slot >= LIMIT_SEQUENCES || seen[out->slots[i].slot] ||
            !out->slots[i].n_tokens)
            return error_set(err, ERROR_INVALID, "slot %u is impossible, empty, or repeated",
                             out->slots[i].slot);
        seen[out->slots[i].slot] = true;
    }
    if (n_tokens > LIMIT_CACHE_TOKENS)
        return error_set(err, ERROR_INVALID, "%llu tokens; the limit is %d",
                         (unsigned long long)n_tokens, LIMIT_CACHE_TOKENS);
    return ERROR_NONE;
}

static enum error_code cache_read_rows(struct bytes_reader *reader, struct cache_message *out,
                                       struct error *err)
{
    struct kv_run *run = &out->rows.run;
    run->layer = bytes_get_u32(reader);
    run->slot = bytes_get_u32(reader);
    run->first = bytes_get_u32(reader);
    run->n_rows = bytes_get_u32(reader);
    out->rows.row_bytes = bytes_get(reader, 8);
    if (run->layer >= LIMIT_LAYERS || run->slot >= LIMIT_SEQUENCES || run->first > LIMIT_CONTEXT ||
        !run->n_rows || run->n_rows > LIMIT_CONTEXT || !out->rows.row_bytes ||
        out->rows.row_bytes > LIMIT_FRAME_DATA_BYTES)
        return error_set(err, ERROR_INVALID, "impossible rows");
    if (reader->left != run->n_rows * out->rows.row_bytes)
        return error_set(err, ERROR_INVALID, "%zu bytes do not match %u rows of %llu", reader->left,
                         run->n_rows, (unsigned long long)out->rows.row_bytes);
    out->rows.bytes = bytes_take(reader, reader->left);
    return ERROR_NONE;
}

static enum error_code read_kind(struct bytes_reader *reader, struct cache_message *out,
                                 struct error *err)
{
    uint32_t has_all;
    switch (out->kind) {
    case CACHE_OFFER:
        return read_offer(reader, &out->offer, err);
    case CACHE_ROWS:
        return cache_read_rows(reader, out, err);
    case CACHE_TAKEN:
        return ERROR_NONE;
    case CACHE_DONE:
        has_all = bytes_get_u32(reader);
        out->has_all = has_all == 1;
        return has_all <= 1 ? ERROR_NONE : error_set(err, ERROR_INVALID, "malformed DONE");
    }
    return error_set(err, ERROR_INVALID, "a message about caches of kind %u", (unsigned)out->kind);
}

enum error_code cache_read(const void *bytes, size_t size, struct cache_message *out,
                           struct error *err)
{
    struct bytes_reader reader = {bytes, size, false};
    *out = (struct cache_message){0};
    if (bytes_get_u32(&reader) != CACHE_MAGIC)
        return error_set(err, ERROR_INVALID, "not a message about caches");
    out->kind = (enum cache_kind)bytes_get_u32(&reader);
    out->route.instance = bytes_get(&reader, 8);
    out->route.from_epoch = bytes_get(&reader, 8);
    out->route.to_epoch = bytes_get(&reader, 8);
    enum error_code code = read_kind(&reader, out, err);
    if (!code && reader.short_)
        code = error_set(err, ERROR_INVALID, "a message about caches is too short");
    if (!code && reader.left)
        code = error_set(err, ERROR_INVALID, "a message about caches is too long");
    return code;
}
