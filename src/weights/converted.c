#include "weights/converted.h"

#include "base/limits.h"
#include "base/mem.h"
#include "model/gguf_file.h"
#include "model/model.h"
#include "model/model_precision.h"
#include "model/weight_type.h"
#include "weights/weight_source.h"

#include <stdio.h>
#include <string.h>

enum { CONVERTED_PIECE_WEIGHTS = 1 << 18 }; /* 1 MiB of floats */

/* ---- what the parts are ---------------------------------------------------------------------- */

/* A part that stays keeps its digest. */
static enum error_code converted_name_part(const struct digest *original,
                                           const struct gguf_tensor *stored,
                                           const struct gguf_tensor *tensor, struct digest *out,
                                           struct error *err)
{
    static const char word[] = "medley converted part";
    uint8_t bytes[sizeof word + DIGEST_BYTES + 1];
    *out = *original;
    if (tensor->type == stored->type)
        return ERROR_NONE;
    memcpy(bytes, word, sizeof word);
    memcpy(bytes + sizeof word, original->bytes, DIGEST_BYTES);
    bytes[sizeof bytes - 1] = (uint8_t)tensor->type;
    return digest_of(bytes, sizeof bytes, out, err);
}

/* The tensor that the manifest's part is; NULL: the manifest has another order than the header. */
static const struct gguf_tensor *converted_stored(const struct manifest *original,
                                                  const struct model *model, uint32_t part)
{
    const struct gguf_file *file = model_file(model);
    assert(part > MANIFEST_HEADER && part < original->n_parts);
    if (gguf_file_tensor_count(file) + 1 != original->n_parts)
        return NULL;
    const struct gguf_tensor *tensor = gguf_file_tensor(file, part - 1);
    const struct manifest_part *described = &original->parts[part];
    return tensor->offset == described->offset && tensor->size == described->size ? tensor : NULL;
}

static enum error_code converted_header(struct converted *converted, const struct model *model,
                                        const struct model *smaller, int type, struct error *err)
{
    const struct gguf_file *file = model_file(model);
    const uint64_t n = gguf_file_tensor_count(file);
    int *types = mem_new_array(n, sizeof *types);
    if (!types)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    for (uint64_t i = 0; i < n; i++)
        types[i] = model_tensor_at(smaller, i)->type;
    const enum error_code code =
        gguf_header_make(file, types, weight_type_file_type(type), &converted->header, err);
    mem_free(types);
    return code;
}

static enum error_code converted_part(struct converted *converted, const struct manifest *original,
                                      const struct model *model, const struct model *smaller,
                                      uint32_t i, struct error *err)
{
    const struct gguf_tensor *stored = converted_stored(original, model, i);
    if (!stored)
        return error_set(err, ERROR_UNSUPPORTED,
                         "its tensors do not lie in the order in which its header lists them");
    const struct gguf_tensor *tensor = model_tensor_at(smaller, i - 1);
    struct manifest_part *part = &converted->manifest.parts[i];
    *part = original->parts[i];
    part->offset = converted->header.offsets[i - 1];
    part->size = converted->header.sizes[i - 1];
    if (tensor->type != stored->type)
        part_set_add(&converted->changes, i);
    return converted_name_part(&original->parts[i].digest, stored, tensor, &part->digest, err);
}

static enum error_code converted_parts(struct converted *converted, const struct manifest *original,
                                       const struct model *model, const struct model *smaller,
                                       struct error *err)
{
    struct manifest *manifest = &converted->manifest;
    manifest->n_parts = original->n_parts;
    manifest->parts = mem_new_array(original->n_parts, sizeof *manifest->parts);
    manifest->size = converted->header.end;
    if (!manifest->parts)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    manifest->parts[MANIFEST_HEADER].size = converted->header.size;
    enum error_code code = digest_of(converted->header.bytes, converted->header.size,
                                     &manifest->parts[MANIFEST_HEADER].digest, err);
    for (uint32_t i = 1; !code && i < manifest->n_parts; i++)
        code = converted_part(converted, original, model, smaller, i, err);
    return code ? code : manifest_check(manifest, err);
}

enum error_code converted_init(struct converted *converted, const struct manifest *original,
                               const struct model *model, int type, struct error *err)
{
    const struct model *smaller;
    *converted = (struct converted){0};
    enum error_code code = model_at_precision(model, type, &smaller, err);
    if (!code && smaller == model)
        code = error_set(err, ERROR_UNSUPPORTED, "%s makes none of its weights smaller",
                         model_precision_name(type));
    if (!code)
        code = part_set_init(&converted->changes, original->n_parts, err);
    if (!code)
        code = converted_header(converted, model, smaller, type, err);
    if (!code)
        code = converted_parts(converted, original, model, smaller, err);
    if (code)
        converted_deinit(converted);
    else
        snprintf(converted->manifest.name, sizeof converted->manifest.name, "%.*s %s",
                 MANIFEST_NAME - 16, original->name, model_precision_name(type));
    return code;
}

void converted_deinit(struct converted *converted)
{
    manifest_deinit(&converted->manifest);
    gguf_header_deinit(&converted->header);
    part_set_deinit(&converted->changes);
    *converted = (struct converted){0};
}

enum error_code converted_chunk_digest(const struct digest *part, uint64_t offset,
                                       const struct digest *bytes, struct digest *out,
                                       struct error *err)
{
    uint8_t text[DIGEST_BYTES + 8 + DIGEST_BYTES];
    memcpy(text, part->bytes, DIGEST_BYTES);
    for (int i = 0; i < 8; i++)
        text[DIGEST_BYTES + i] = (uint8_t)(offset >> 8 * i);
    memcpy(text + DIGEST_BYTES + 8, bytes->bytes, DIGEST_BYTES);
    return digest_of(text, sizeof text, out, err);
}

/* ---- bytes of them --------------------------------------------------------------------------- */

/* Rows of a tensor, from one type to another. */
struct converted_rows {
    const struct weight_source *source;
    const struct gguf_tensor *stored, *tensor;
    uint64_t from_bytes, to_bytes; /* of a row */
    uint64_t n_at_once;
    uint8_t *from, *to;
    float *weights;
};

static enum error_code converted_rows_init(struct converted_rows *rows,
                                           const struct weight_source *source,
                                           const struct gguf_tensor *stored,
                                           const struct gguf_tensor *tensor, struct error *err)
{
    const uint64_t n_columns = (uint64_t)stored->ne[0];
    *rows = (struct converted_rows){
        .source = source,
        .stored = stored,
        .tensor = tensor,
        .from_bytes = weight_type_row_bytes(stored->type, stored->ne[0]),
        .to_bytes = weight_type_row_bytes(tensor->type, stored->ne[0]),
        .n_at_once = CONVERTED_PIECE_WEIGHTS / n_columns,
    };
    if (n_columns > LIMIT_CONVERTED_ROW)
        return error_set(err, ERROR_UNSUPPORTED, "a row of it is too long");
    if (!rows->n_at_once)
        rows->n_at_once = 1;
    rows->from = mem_new_array(rows->n_at_once, rows->from_bytes);
    rows->to = mem_new_array(rows->n_at_once, rows->to_bytes);
    rows->weights = mem_new_array(rows->n_at_once * n_columns, sizeof *rows->weights);
    return rows->from && rows->to && rows->weights
               ? ERROR_NONE
               : error_set(err, ERROR_NO_MEMORY, "out of memory");
}

static void converted_rows_deinit(struct converted_rows *rows)
{
    mem_free(rows->from);
    mem_free(rows->to);
    mem_free(rows->weights);
}

/* Rows are converted each by itself, so any range is the whole tensor's bytes. */
static enum error_code converted_range(struct converted_rows *rows, uint64_t offset, uint64_t size,
                                       uint8_t *out, struct error *err)
{
    const uint64_t end = offset + size;
    enum error_code code = ERROR_NONE;
    assert(size && end <= rows->tensor->size);
    for (uint64_t row = offset / rows->to_bytes, n; row * rows->to_bytes < end && !code; row += n) {
        const uint64_t at = row * rows->to_bytes;
        n = (end - at + rows->to_bytes - 1) / rows->to_bytes;
        n = n < rows->n_at_once ? n : rows->n_at_once;
        if (!weight_source_read(rows->source, rows->stored->offset + row * rows->from_bytes,
                                rows->from, n * rows->from_bytes))
            return error_set(err, ERROR_IO, "the model cannot be read");
        code = weight_type_convert(rows->stored->type, rows->from, rows->tensor->type, rows->to,
                                   (int64_t)n, rows->stored->ne[0], rows->weights, err);
        const uint64_t from = at < offset ? offset - at : 0, there = n * rows->to_bytes,
                       to = at + there < end ? there : end - at;
        if (!code)
            memcpy(out + (at + from - offset), rows->to + from, to - from);
    }
    return code;
}

static enum error_code converted_bytes(const struct weight_source *source,
                                       const struct gguf_tensor *stored,
                                       const struct gguf_tensor *tensor, uint64_t offset,
                                       uint32_t size, uint8_t *out, struct error *err)
{
    struct converted_rows rows;
    if (stored->type == tensor->type)
        return weight_source_read(source, stored->offset + offset, out, size)
                   ? ERROR_NONE
                   : error_set(err, ERROR_IO, "the model cannot be read");
    enum error_code code = converted_rows_init(&rows, source, stored, tensor, err);
    if (!code)
        code = converted_range(&rows, offset, size, out, err);
    converted_rows_deinit(&rows);
    return code;
}

enum error_code converted_read(const struct weight_source *source, const struct model *smaller,
                               uint32_t part, uint64_t offset, uint32_t size, uint8_t *out,
                               struct error *err)
{
    assert(part > MANIFEST_HEADER && part < source->manifest->n_parts);
    return converted_bytes(source, gguf_file_tensor(model_file(smaller), part - 1),
                           model_tensor_at(smaller, part - 1), offset, size, out, err);
}

static enum error_code converted_chunk(const struct weight_source *source,
                                       const struct gguf_tensor *stored,
                                       const struct gguf_tensor *tensor,
                                       const struct fetch_message *request, struct buffer *out)
{
    const uint64_t offset = request->request.offset;
    const uint32_t size = request->request.size;
    struct fetch_message head = {.type = FETCH_MESSAGE_CHUNK_CONVERTED, .id = request->id};
    struct digest bytes, name;
    uint8_t *room = mem_new_array(size, 1);
    enum error_code code =
        room ? converted_bytes(source, stored, tensor, offset, size, room, NULL) : ERROR_NO_MEMORY;
    if (!code)
        code = digest_of(room, size, &bytes, NULL);
    if (!code)
        code = converted_name_part(&source->manifest->parts[request->request.part].digest, stored,
                                   tensor, &name, NULL);
    if (!code)
        code = converted_chunk_digest(&name, offset, &bytes, &head.chunk.digest, NULL);
    if (!code && !weight_source_is_unchanged(source))
        code = ERROR_INVALID; /* what was read while it changed is not sent */
    head.chunk.bytes = room;
    head.chunk.size = size;
    if (!code)
        fetch_message_write(&head, out);
    mem_free(room);
    return code;
}

static void converted_refuse(uint32_t id, enum fetch_refusal why, struct buffer *out)
{
    fetch_message_write(
        &(struct fetch_message){.type = FETCH_MESSAGE_REFUSE, .id = id, .refusal = why}, out);
}

void converted_answer(const struct weight_source *source, const struct model *model,
                      const struct fetch_message *request, struct buffer *out)
{
    const struct model *smaller = NULL;
    const uint32_t part = request->request.part;
    const uint64_t offset = request->request.offset, size = request->request.size;
    assert(request->type == FETCH_MESSAGE_REQUEST_CONVERTED);
    if (!source->manifest || !digest_equal(&source->model, &request->model) ||
        part == MANIFEST_HEADER || !weight_source_has(source, part) ||
        !converted_stored(source->manifest, model, part) ||
        model_at_precision(model, request->request.weight_type, &smaller, NULL)) {
        converted_refuse(request->id, FETCH_REFUSE_LACKS, out);
        return;
    }
    const struct gguf_tensor *tensor = model_tensor_at(smaller, part - 1);
    if (!size || size > LIMIT_FETCH_CHUNK_BYTES || offset > tensor->size ||
        size > tensor->size - offset)
        converted_refuse(request->id, FETCH_REFUSE_INVALID, out);
    else if (converted_chunk(source, gguf_file_tensor(model_file(model), part - 1), tensor, request,
                             out))
        converted_refuse(request->id, FETCH_REFUSE_LACKS, out);
}
