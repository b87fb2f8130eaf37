#include "pipeline/child_cache.h"

#include "base/bytes.h"

void child_cache_write_head(enum child_cache_kind kind, uint32_t stage, uint64_t number,
                            struct buffer *out)
{
    bytes_put(out, kind, 4);
    bytes_put(out, stage, 4);
    bytes_put(out, number, 8);
}

void child_cache_write_run(const struct kv_run *run, struct buffer *out)
{
    bytes_put(out, run->layer, 4);
    bytes_put(out, run->slot, 4);
    bytes_put(out, run->first, 4);
    bytes_put(out, run->n_rows, 4);
}

static enum error_code child_cache_read_run(struct bytes_reader *reader, struct kv_run *out,
                                            struct error *err)
{
    out->layer = bytes_get_u32(reader);
    out->slot = bytes_get_u32(reader);
    out->first = bytes_get_u32(reader);
    out->n_rows = bytes_get_u32(reader);
    if (reader->short_ || reader->left || out->layer >= LIMIT_LAYERS ||
        out->slot >= LIMIT_SEQUENCES || out->first > LIMIT_CONTEXT || !out->n_rows ||
        out->n_rows > LIMIT_CONTEXT)
        return error_set(err, ERROR_INVALID, "impossible cells of a cache");
    return ERROR_NONE;
}

static enum error_code read_message(struct bytes_reader *reader, enum cache_kind kind,
                                    struct cache_message *out, struct error *err)
{
    enum error_code code = cache_read(reader->at, reader->left, out, err);
    if (!code && out->kind != kind)
        code =
            error_set(err, ERROR_INVALID, "the message about caches has another kind than it says");
    return code;
}

enum error_code child_cache_read(const void *bytes, size_t size, struct child_cache *out,
                                 struct error *err)
{
    struct bytes_reader reader = {bytes, size, false};
    *out = (struct child_cache){.kind = (enum child_cache_kind)bytes_get_u32(&reader)};
    out->stage = bytes_get_u32(&reader);
    out->number = bytes_get(&reader, 8);
    if (reader.short_ || out->stage >= LIMIT_STAGES)
        return error_set(err, ERROR_INVALID, "not a request to a cache");
    switch (out->kind) {
    case CHILD_CACHE_READ:
        return child_cache_read_run(&reader, &out->run, err);
    case CHILD_CACHE_WRITE:
        return read_message(&reader, CACHE_ROWS, &out->message, err);
    case CHILD_CACHE_SETTLE:
        return read_message(&reader, CACHE_OFFER, &out->message, err);
    }
    return error_set(err, ERROR_INVALID, "a request to a cache of unknown kind %u",
                     (unsigned)out->kind);
}

void child_answer_write_head(uint64_t number, enum error_code code, struct buffer *out)
{
    bytes_put(out, number, 8);
    bytes_put(out, code, 4);
    bytes_put(out, 0, 4);
}

enum error_code child_answer_read(const void *bytes, size_t size, struct child_answer *out,
                                  struct error *err)
{
    struct bytes_reader reader = {bytes, size, false};
    *out = (struct child_answer){.number = bytes_get(&reader, 8)};
    const uint32_t code = bytes_get_u32(&reader), nothing = bytes_get_u32(&reader);
    if (reader.short_ || code > ERROR_INTERNAL || nothing)
        return error_set(err, ERROR_INVALID, "malformed answer about a cache");
    out->code = (enum error_code)code;
    out->bytes = reader.at;
    out->size = reader.left;
    return ERROR_NONE;
}
