#include "weights/fetch_message.h"

#include "base/bytes.h"
#include "base/limits.h"

enum { FORMAT = 1 };

/* ---- writing --------------------------------------------------------------------------------- */

static void put_head(struct buffer *out, enum fetch_message_type type)
{
    bytes_put(out, FORMAT, 1);
    bytes_put(out, type, 1);
}

static void put_have_head(struct buffer *out, const struct digest *model, uint64_t manifest_bytes,
                          uint32_t n_parts)
{
    put_head(out, FETCH_MESSAGE_HAVE);
    buffer_append(out, model->bytes, DIGEST_BYTES);
    bytes_put(out, manifest_bytes, 8);
    bytes_put(out, n_parts, 4);
}

static void put_request(struct buffer *out, const struct fetch_message *message)
{
    bytes_put(out, message->id, 4);
    buffer_append(out, message->model.bytes, DIGEST_BYTES);
    bytes_put(out, message->request.part, 4);
    bytes_put(out, message->request.offset, 8);
    bytes_put(out, message->request.size, 4);
}

void fetch_message_write(const struct fetch_message *message, struct buffer *out)
{
    if (message->type == FETCH_MESSAGE_HAVE) {
        put_have_head(out, &message->model, message->have.manifest_bytes, message->have.n_parts);
        if (message->have.n_parts)
            buffer_append(out, message->have.bits, ((size_t)message->have.n_parts + 7) / 8);
        return;
    }
    put_head(out, message->type);
    switch (message->type) {
    case FETCH_MESSAGE_ASK_HAVE:
        buffer_append(out, message->model.bytes, DIGEST_BYTES);
        break;
    case FETCH_MESSAGE_REQUEST:
        put_request(out, message);
        break;
    case FETCH_MESSAGE_REQUEST_CONVERTED:
        put_request(out, message);
        bytes_put(out, (uint64_t)message->request.weight_type, 1);
        break;
    case FETCH_MESSAGE_CHUNK:
    case FETCH_MESSAGE_CHUNK_CONVERTED:
        bytes_put(out, message->id, 4);
        if (message->type == FETCH_MESSAGE_CHUNK_CONVERTED)
            buffer_append(out, message->chunk.digest.bytes, DIGEST_BYTES);
        if (message->chunk.bytes)
            buffer_append(out, message->chunk.bytes, message->chunk.size);
        break;
    case FETCH_MESSAGE_REFUSE:
        bytes_put(out, message->id, 4);
        bytes_put(out, message->refusal, 1);
        break;
    case FETCH_MESSAGE_HAVE:
    case FETCH_MESSAGE_CANCEL:
        bytes_put(out, message->id, 4);
        break;
    }
}

void fetch_message_write_have(const struct digest *model, uint64_t manifest_bytes,
                              const struct part_set *has, struct buffer *out)
{
    put_have_head(out, model, manifest_bytes, has->n_parts);
    for (uint32_t i = 0; i < has->n_parts; i += 8) {
        unsigned byte = 0;
        for (uint32_t bit = 0; bit < 8; bit++)
            byte |= (unsigned)part_set_has(has, i + bit) << bit;
        bytes_put(out, byte, 1);
    }
}

/* ---- reading --------------------------------------------------------------------------------- */

static enum error_code fetch_message_malformed(struct error *err, const char *what)
{
    return error_set(err, ERROR_INVALID, "malformed message about weights: %s", what);
}

static void get_digest(struct bytes_reader *reader, struct digest *out)
{
    const void *bytes = bytes_take(reader, DIGEST_BYTES);
    if (bytes)
        memcpy(out->bytes, bytes, DIGEST_BYTES);
}

static enum error_code read_have(struct bytes_reader *reader, struct fetch_message *out,
                                 struct error *err)
{
    get_digest(reader, &out->model);
    out->have.manifest_bytes = bytes_get(reader, 8);
    out->have.n_parts = bytes_get_u32(reader);
    if (reader->short_ || out->have.n_parts > LIMIT_MODEL_TENSORS + 1 ||
        out->have.manifest_bytes > LIMIT_MANIFEST_BYTES)
        return fetch_message_malformed(err, "the sizes of what a node has");
    out->have.bits = bytes_take(reader, ((size_t)out->have.n_parts + 7) / 8);
    if (!out->have.bits)
        return fetch_message_malformed(err, "it ends early");
    if (out->have.n_parts % 8 && out->have.bits[out->have.n_parts / 8] >> (out->have.n_parts % 8))
        return fetch_message_malformed(err, "a part that the model does not have");
    return ERROR_NONE;
}

static enum error_code read_request(struct bytes_reader *reader, struct fetch_message *out,
                                    struct error *err)
{
    get_digest(reader, &out->model);
    out->request.part = bytes_get_u32(reader);
    out->request.offset = bytes_get(reader, 8);
    out->request.size = bytes_get_u32(reader);
    if (out->type == FETCH_MESSAGE_REQUEST_CONVERTED)
        out->request.weight_type = (int)bytes_get(reader, 1);
    if (reader->short_)
        return fetch_message_malformed(err, "it ends early");
    if (!out->request.size || out->request.size > LIMIT_FETCH_CHUNK_BYTES ||
        out->request.offset > INT64_MAX - (uint64_t)LIMIT_FETCH_CHUNK_BYTES)
        return fetch_message_malformed(err, "a range of no or too many bytes");
    if (out->request.part != FETCH_MANIFEST && out->request.part > LIMIT_MODEL_TENSORS)
        return fetch_message_malformed(err, "a part that no model has");
    return ERROR_NONE;
}

static enum error_code fetch_message_read_fields(struct bytes_reader *reader,
                                                 struct fetch_message *out, struct error *err)
{
    if (out->type == FETCH_MESSAGE_HAVE)
        return read_have(reader, out, err);
    if (out->type == FETCH_MESSAGE_ASK_HAVE)
        get_digest(reader, &out->model);
    else
        out->id = bytes_get_u32(reader);
    if (out->type == FETCH_MESSAGE_REQUEST || out->type == FETCH_MESSAGE_REQUEST_CONVERTED)
        return read_request(reader, out, err);
    if (out->type == FETCH_MESSAGE_CHUNK_CONVERTED)
        get_digest(reader, &out->chunk.digest);
    if (out->type == FETCH_MESSAGE_CHUNK || out->type == FETCH_MESSAGE_CHUNK_CONVERTED) {
        if (reader->short_ || !reader->left || reader->left > LIMIT_FETCH_CHUNK_BYTES)
            return fetch_message_malformed(err, "a chunk of no or too many bytes");
        out->chunk.size = (uint32_t)reader->left;
        out->chunk.bytes = bytes_take(reader, reader->left);
    }
    if (out->type == FETCH_MESSAGE_REFUSE) {
        uint64_t reason = bytes_get(reader, 1);
        out->refusal = (enum fetch_refusal)reason;
        if (reason < FETCH_REFUSE_LACKS || reason > FETCH_REFUSE_INVALID)
            out->refusal = FETCH_REFUSE_BUSY; /* a newer reason: at least it will not be sent now */
    }
    return reader->short_ ? fetch_message_malformed(err, "it ends early") : ERROR_NONE;
}

enum error_code fetch_message_read(const void *bytes, size_t size, struct fetch_message *out,
                                   struct error *err)
{
    struct bytes_reader reader = {.at = bytes, .left = size};
    *out = (struct fetch_message){0};
    uint64_t format = bytes_get(&reader, 1), type = bytes_get(&reader, 1);
    if (reader.short_)
        return fetch_message_malformed(err, "it ends early");
    if (format != FORMAT || type < FETCH_MESSAGE_ASK_HAVE || type > FETCH_MESSAGE_CHUNK_CONVERTED)
        return error_set(err, ERROR_UNSUPPORTED,
                         "a message about weights of format %u, type %u; this version knows "
                         "format %d, types 1 to %d",
                         (unsigned)format, (unsigned)type, FORMAT, FETCH_MESSAGE_CHUNK_CONVERTED);
    out->type = (enum fetch_message_type)type;
    return fetch_message_read_fields(&reader, out, err);
}

void fetch_message_parts(const struct fetch_message *message, struct part_set *out)
{
    assert(message->type == FETCH_MESSAGE_HAVE && out->n_parts == message->have.n_parts);
    for (uint32_t i = 0; i < out->n_parts; i++) {
        if (message->have.bits[i / 8] >> (i % 8) & 1)
            part_set_add(out, i);
        else
            part_set_remove(out, i);
    }
}
