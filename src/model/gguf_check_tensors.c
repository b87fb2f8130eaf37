/* The second half of the walk: tensor descriptions and where their data lies. See gguf_check.c for
 * the invariants. */
#include "base/mem.h"
#include "model/gguf_walk.h"

#include <inttypes.h>
#include <stdlib.h>

static enum error_code gguf_check_tensors_read_name(struct gguf_cursor *cursor, uint64_t i,
                                                    char *name, struct error *err)
{
    const char *text;
    uint64_t size;
    if (!gguf_cursor_u64(cursor, &size))
        return gguf_truncated(cursor, "tensor", i, err);
    if (size == 0 || size >= GGML_MAX_NAME)
        return error_set(err, ERROR_INVALID,
                         "tensor %" PRIu64 " has a name of %" PRIu64 " bytes; 1 to %d are allowed",
                         i, size, GGML_MAX_NAME - 1);
    cursor->at -= 8;
    if (!gguf_cursor_text(cursor, &text, &size))
        return gguf_truncated(cursor, "tensor", i, err);
    char shown[GGML_MAX_NAME];
    if (memchr(text, 0, (size_t)size))
        return error_set(err, ERROR_INVALID, "tensor %" PRIu64 " ('%s') has a NUL in its name", i,
                         gguf_printable(text, size, shown, sizeof shown));
    memcpy(name, text, (size_t)size); /* the rest is zero */
    return ERROR_NONE;
}

static enum error_code read_shape(struct gguf_cursor *cursor, uint64_t i,
                                  struct gguf_tensor *tensor, const char *shown, struct error *err)
{
    if (!gguf_cursor_u32(cursor, &tensor->n_dims))
        return gguf_truncated(cursor, "tensor", i, err);
    if (tensor->n_dims > GGML_MAX_DIMS)
        return error_set(err, ERROR_INVALID,
                         "tensor '%s' has %u dimensions; at most %d are allowed", shown,
                         tensor->n_dims, GGML_MAX_DIMS);
    int64_t elements = 1;
    for (uint32_t d = 0; d < GGML_MAX_DIMS; d++) {
        uint64_t ne = 1;
        if (d < tensor->n_dims && !gguf_cursor_u64(cursor, &ne))
            return gguf_truncated(cursor, "tensor", i, err);
        if (ne == 0 || ne > INT64_MAX)
            return error_set(err, ERROR_INVALID,
                             "tensor '%s': dimension %u is %" PRIu64 "; it must be 1 to 2^63 - 1",
                             shown, d, ne);
        tensor->ne[d] = (int64_t)ne;
        if (__builtin_mul_overflow(elements, tensor->ne[d], &elements))
            return error_set(err, ERROR_INVALID,
                             "tensor '%s': the product of its dimensions overflows", shown);
    }
    return ERROR_NONE;
}

/* Type and size in bytes. */
static enum error_code gguf_check_tensors_read_type(struct gguf_cursor *cursor, uint64_t i,
                                                    struct gguf_tensor *tensor, const char *shown,
                                                    struct error *err)
{
    uint32_t type;
    if (!gguf_cursor_u32(cursor, &type))
        return gguf_truncated(cursor, "tensor", i, err);
    /* ggml's table has a row for each type that it ever had; those it dropped have no block
     * size. */
    if (type >= GGML_TYPE_COUNT || ggml_blck_size((enum ggml_type)type) <= 0 ||
        ggml_type_size((enum ggml_type)type) == 0)
        return error_set(err, ERROR_UNSUPPORTED,
                         "tensor '%s' has type %u, which ggml does not know%s", shown, type,
                         type < GGML_TYPE_COUNT ? " any more" : "");
    tensor->type = (int)type;
    int64_t block = ggml_blck_size((enum ggml_type)type);
    if (tensor->ne[0] % block != 0)
        return error_set(err, ERROR_INVALID,
                         "tensor '%s': rows of %" PRId64
                         " elements are not whole blocks of %" PRId64 " (type %s)",
                         shown, tensor->ne[0], block, ggml_type_name((enum ggml_type)type));
    uint64_t size = ggml_type_size((enum ggml_type)type);
    bool overflow = __builtin_mul_overflow(size, (uint64_t)(tensor->ne[0] / block), &size);
    for (int d = 1; d < GGML_MAX_DIMS; d++)
        overflow |= __builtin_mul_overflow(size, (uint64_t)tensor->ne[d], &size);
    if (overflow || size > INT64_MAX)
        return error_set(err, ERROR_INVALID, "tensor '%s': its size in bytes overflows", shown);
    tensor->size = size;
    return ERROR_NONE;
}

static enum error_code read_tensor(struct gguf_cursor *cursor, uint64_t i,
                                   const struct gguf_index *index, struct error *err)
{
    struct gguf_tensor *tensor = &index->tensors[i];
    char *name = index->tensor_names[i];
    char shown[GGML_MAX_NAME];
    enum error_code code = gguf_check_tensors_read_name(cursor, i, name, err);
    if (code)
        return code;
    tensor->name = name;
    gguf_printable(name, strlen(name), shown, sizeof shown);
    code = read_shape(cursor, i, tensor, shown, err);
    if (!code)
        code = gguf_check_tensors_read_type(cursor, i, tensor, shown, err);
    if (code)
        return code;
    if (!gguf_cursor_u64(cursor, &tensor->offset))
        return gguf_truncated(cursor, "tensor", i, err);
    if (tensor->offset % index->alignment != 0)
        return error_set(err, ERROR_INVALID,
                         "tensor '%s': offset %" PRIu64 " is not a multiple of the alignment, %u",
                         shown, tensor->offset, index->alignment);
    return ERROR_NONE;
}

static int gguf_check_tensors_compare_names(const void *a, const void *b, void *tensors)
{
    const struct gguf_tensor *all = tensors;
    return strcmp(all[*(const uint32_t *)a].name, all[*(const uint32_t *)b].name);
}

static int compare_offsets(const void *a, const void *b, void *tensors)
{
    const struct gguf_tensor *x = (const struct gguf_tensor *)tensors + *(const uint32_t *)a;
    const struct gguf_tensor *y = (const struct gguf_tensor *)tensors + *(const uint32_t *)b;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static void gguf_check_tensors_sort(struct gguf_index *index,
                                    int (*compare)(const void *, const void *, void *))
{
    for (uint32_t i = 0; i < index->n_tensors; i++)
        index->tensors_by_name[i] = i;
    qsort_r(index->tensors_by_name, index->n_tensors, sizeof(uint32_t), compare, index->tensors);
}

static const char *printable_name(const struct gguf_tensor *tensor, char *out)
{
    return gguf_printable(tensor->name, strlen(tensor->name), out, GGML_MAX_NAME);
}

/* Makes offsets count from the start of the file, and checks that all data is inside it. */
static enum error_code place_data(const struct gguf_cursor *cursor, struct gguf_index *index,
                                  struct error *err)
{
    uint64_t start = (cursor->at + index->alignment - 1) / index->alignment * index->alignment;
    uint64_t needed = 0;
    const struct gguf_tensor *last = NULL;
    for (uint64_t i = 0; i < index->n_tensors; i++) {
        struct gguf_tensor *tensor = &index->tensors[i];
        uint64_t end;
        char shown[GGML_MAX_NAME];
        if (__builtin_add_overflow(tensor->offset, start, &tensor->offset) ||
            __builtin_add_overflow(tensor->offset, tensor->size, &end) || end > INT64_MAX)
            return error_set(err, ERROR_INVALID, "tensor '%s': offset plus size overflows",
                             printable_name(tensor, shown));
        if (end > needed) {
            needed = end;
            last = tensor;
        }
    }
    char shown[GGML_MAX_NAME];
    if (needed > cursor->size)
        return error_set(err, ERROR_INVALID,
                         "truncated: %" PRIu64 " bytes are there, %" PRIu64
                         " are needed (up to the end of tensor '%s')",
                         cursor->size, needed, printable_name(last, shown));
    return ERROR_NONE;
}

static enum error_code check_overlap(struct gguf_index *index, struct error *err)
{
    gguf_check_tensors_sort(index, compare_offsets);
    for (uint64_t i = 1; i < index->n_tensors; i++) {
        const struct gguf_tensor *before = &index->tensors[index->tensors_by_name[i - 1]];
        const struct gguf_tensor *after = &index->tensors[index->tensors_by_name[i]];
        char a[GGML_MAX_NAME], b[GGML_MAX_NAME];
        if (after->offset - before->offset < before->size)
            return error_set(err, ERROR_INVALID, "tensors '%s' and '%s' overlap",
                             printable_name(before, a), printable_name(after, b));
    }
    return ERROR_NONE;
}

static enum error_code sort_names(struct gguf_index *index, struct error *err)
{
    gguf_check_tensors_sort(index, gguf_check_tensors_compare_names);
    for (uint64_t i = 1; i < index->n_tensors; i++) {
        const struct gguf_tensor *tensor = &index->tensors[index->tensors_by_name[i]];
        char shown[GGML_MAX_NAME];
        if (strcmp(tensor->name, index->tensors[index->tensors_by_name[i - 1]].name) == 0)
            return error_set(err, ERROR_INVALID, "tensor '%s' appears twice",
                             printable_name(tensor, shown));
    }
    return ERROR_NONE;
}

enum error_code gguf_check_tensors(struct gguf_cursor *cursor, struct gguf_index *index,
                                   struct error *err)
{
    index->tensors = mem_new_array(index->n_tensors, sizeof *index->tensors);
    index->tensor_names = mem_new_array(index->n_tensors, sizeof *index->tensor_names);
    index->tensors_by_name = mem_new_array(index->n_tensors, sizeof *index->tensors_by_name);
    if (!index->tensors || !index->tensor_names || !index->tensors_by_name)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    enum error_code code = ERROR_NONE;
    index->tensors_at = cursor->at;
    for (uint64_t i = 0; i < index->n_tensors && !code; i++)
        code = read_tensor(cursor, i, index, err);
    if (!code)
        code = place_data(cursor, index, err);
    if (!code)
        code = check_overlap(index, err);
    if (!code)
        code = sort_names(index, err);
    return code;
}
