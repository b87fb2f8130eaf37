#include "model/gguf_header.h"

#include "base/mem.h"
#include "model/gguf_index.h"
#include "model/weight_type.h"

#include <assert.h>

static uint64_t gguf_header_aligned(const struct gguf_file *file, uint64_t at)
{
    const uint64_t alignment = file->index.alignment;
    return (at + alignment - 1) / alignment * alignment;
}

/* Of a tensor's description: name, dimensions, type, offset. */
static uint64_t description_size(const struct gguf_tensor *tensor)
{
    return 8 + strlen(tensor->name) + 4 + 8 * (uint64_t)tensor->n_dims + 4 + 8;
}

static void put_file_type(const struct gguf_file *file, uint32_t file_type, uint8_t *bytes)
{
    const struct gguf_value *value = gguf_index_find(&file->index, "general.file_type");
    if (file_type != UINT32_MAX && value && !value->is_array && value->type == GGUF_TYPE_UINT32)
        memcpy(bytes + (value->data - file->bytes), &file_type, sizeof file_type);
}

static void gguf_header_place(const struct gguf_file *file, const int *types,
                              struct gguf_header *header)
{
    uint64_t at = header->size;
    for (uint64_t i = 0; i < file->index.n_tensors; i++) {
        const struct gguf_tensor *tensor = &file->index.tensors[i];
        header->sizes[i] = weight_type_row_bytes(types[i], tensor->ne[0]) *
                           (uint64_t)(tensor->ne[1] * tensor->ne[2] * tensor->ne[3]);
        header->offsets[i] = at;
        header->end = at + header->sizes[i];
        at = gguf_header_aligned(file, header->end);
        gguf_header_move(header, file, i, types[i], header->offsets[i]);
    }
    header->end = at; /* ggml wants the last tensor's padding, too */
}

enum error_code gguf_header_make(const struct gguf_file *file, const int *types, uint32_t file_type,
                                 struct gguf_header *out, struct error *err)
{
    const uint64_t n = file->index.n_tensors;
    uint64_t descriptions_end = file->index.tensors_at;
    for (uint64_t i = 0; i < n; i++)
        descriptions_end += description_size(&file->index.tensors[i]);
    assert(descriptions_end <= file->size);
    *out = (struct gguf_header){.size = gguf_header_aligned(file, descriptions_end)};
    out->bytes = mem_new_array(out->size, 1);
    out->offsets = mem_new_array(n, sizeof *out->offsets);
    out->sizes = mem_new_array(n, sizeof *out->sizes);
    if (!out->bytes || !out->offsets || !out->sizes) {
        gguf_header_deinit(out);
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the file's header");
    }
    memcpy(out->bytes, file->bytes, (size_t)descriptions_end);
    put_file_type(file, file_type, out->bytes);
    gguf_header_place(file, types, out);
    return ERROR_NONE;
}

void gguf_header_move(struct gguf_header *header, const struct gguf_file *file, uint64_t tensor,
                      int type, uint64_t offset)
{
    uint64_t at = file->index.tensors_at;
    for (uint64_t i = 0; i <= tensor; i++)
        at += description_size(&file->index.tensors[i]);
    const uint32_t number = (uint32_t)type;
    const uint64_t from_data = offset - header->size;
    assert(offset >= header->size && from_data % file->index.alignment == 0);
    memcpy(header->bytes + at - 12, &number, sizeof number);
    memcpy(header->bytes + at - 8, &from_data, sizeof from_data);
}

void gguf_header_deinit(struct gguf_header *header)
{
    mem_free(header->bytes);
    mem_free(header->offsets);
    mem_free(header->sizes);
    *header = (struct gguf_header){0};
}
