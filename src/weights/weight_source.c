#include "weights/weight_source.h"

#include "base/durable_file.h"
#include "base/limits.h"
#include "model/gguf_file.h"
#include "weights/shelf.h"

#include <string.h>

static enum error_code read_manifest(struct weight_source *source, struct error *err)
{
    manifest_write(source->manifest, &source->manifest_bytes);
    if (source->manifest_bytes.failed)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    return digest_of(source->manifest_bytes.data, source->manifest_bytes.size, &source->model, err);
}

enum error_code weight_source_of_file(const struct manifest *manifest, const struct gguf_file *file,
                                      struct weight_source *out, struct error *err)
{
    *out = (struct weight_source){.manifest = manifest, .file = file};
    enum error_code code = file_identity_of_model(file, &out->identity, err);
    if (!code)
        code = read_manifest(out, err);
    if (code)
        weight_source_deinit(out);
    return code;
}

enum error_code weight_source_of_shelf(const struct shelf_model *model, struct weight_source *out,
                                       struct error *err)
{
    *out = (struct weight_source){.manifest = shelf_model_manifest(model),
                                  .has = shelf_model_has(model),
                                  .fd = shelf_model_descriptor(model)};
    enum error_code code = read_manifest(out, err);
    if (code)
        weight_source_deinit(out);
    return code;
}

void weight_source_deinit(struct weight_source *source)
{
    buffer_deinit(&source->manifest_bytes);
    *source = (struct weight_source){0};
}

bool weight_source_is_unchanged(const struct weight_source *source)
{
    struct file_identity now;
    return source->has || (!file_identity_of_model(source->file, &now, NULL) &&
                           file_identity_equal(&now, &source->identity));
}

bool weight_source_has(const struct weight_source *source, uint32_t part)
{
    if (part >= source->manifest->n_parts)
        return false;
    return source->has ? part_set_has(source->has, part) : weight_source_is_unchanged(source);
}

static void weight_source_refuse(uint32_t id, enum fetch_refusal why, struct buffer *out)
{
    fetch_message_write(
        &(struct fetch_message){.type = FETCH_MESSAGE_REFUSE, .id = id, .refusal = why}, out);
}

/* A part of a manifest lies in one file: no tensor goes on in the next. */
bool weight_source_read(const struct weight_source *source, uint64_t offset, void *out, size_t size)
{
    const struct gguf_file *file = source->file;
    uint32_t part;
    if (!file)
        return !pread_all(source->fd, out, size, offset);
    if (gguf_file_place(file, offset, &part, &offset))
        return !pread_all(gguf_file_part_descriptor(file, part), out, size, offset);
    memcpy(out, gguf_file_bytes(file) + offset, size);
    return true;
}

enum error_code weight_source_check(const struct weight_source *source, uint32_t i,
                                    struct error *err)
{
    const struct manifest_part *part = &source->manifest->parts[i];
    uint64_t offset = part->offset;
    uint32_t in = 0;
    int fd = source->fd;
    struct digest digest;
    enum error_code code;
    const bool has_place = !source->file || gguf_file_place(source->file, offset, &in, &offset);
    if (source->file && has_place)
        fd = gguf_file_part_descriptor(source->file, in);
    if (has_place)
        code = digest_file(fd, offset, part->size, NULL, NULL, &digest, err);
    else
        code = digest_of(gguf_file_bytes(source->file) + part->offset, part->size, &digest, err);
    return !code && !digest_equal(&digest, &part->digest)
               ? error_set(err, ERROR_INVALID, "%s is damaged on this disk", part->name)
               : code;
}

static void send_part(const struct weight_source *source, const struct fetch_message *request,
                      struct buffer *out)
{
    const struct manifest_part *part = &source->manifest->parts[request->request.part];
    size_t before = out->size;
    fetch_message_write(&(struct fetch_message){.type = FETCH_MESSAGE_CHUNK, .id = request->id},
                        out);
    void *room = buffer_extend(out, request->request.size);
    /* looked at again after reading: what was read while it changed is not sent */
    if (room &&
        weight_source_read(source, part->offset + request->request.offset, room,
                           request->request.size) &&
        weight_source_is_unchanged(source))
        return;
    if (room) {
        out->size = before;
        weight_source_refuse(request->id, FETCH_REFUSE_LACKS, out);
    }
}

void weight_source_answer(const struct weight_source *source, const struct fetch_message *request,
                          struct buffer *out)
{
    assert(request->type == FETCH_MESSAGE_REQUEST);
    uint32_t i = request->request.part;
    uint64_t offset = request->request.offset, size = request->request.size;
    bool whole = i == FETCH_MANIFEST;
    if (!source->manifest || !digest_equal(&source->model, &request->model) ||
        (!whole && !weight_source_has(source, i))) {
        weight_source_refuse(request->id, FETCH_REFUSE_LACKS, out);
        return;
    }
    uint64_t there = whole ? source->manifest_bytes.size : source->manifest->parts[i].size;
    if (!size || size > LIMIT_FETCH_CHUNK_BYTES || offset > there || size > there - offset)
        weight_source_refuse(request->id, FETCH_REFUSE_INVALID, out);
    else if (whole)
        fetch_message_write(
            &(struct fetch_message){
                .type = FETCH_MESSAGE_CHUNK,
                .id = request->id,
                .chunk = {(const uint8_t *)source->manifest_bytes.data + offset, (uint32_t)size}},
            out);
    else
        send_part(source, request, out);
}

void weight_source_have(const struct weight_source *source, struct buffer *out)
{
    struct part_set all;
    if (source->has) {
        fetch_message_write_have(&source->model, source->manifest_bytes.size, source->has, out);
        return;
    }
    if (part_set_init(&all, source->manifest ? source->manifest->n_parts : 0, NULL)) {
        out->failed = true;
        return;
    }
    if (all.n_parts && weight_source_is_unchanged(source))
        part_set_add_all(&all);
    fetch_message_write_have(&source->model, source->manifest_bytes.size, &all, out);
    part_set_deinit(&all);
}
