#include "model/gguf_parts.h"

#include "base/buffer.h"
#include "base/large_pages.h"
#include "base/limits.h"
#include "base/mem.h"
#include "model/gguf_guard.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

/* Parts begin at multiples of it, or of the alignment if that is more: a multiple of every system's
 * page, and the same on all, since a tensor's place counts for the model's identity. */
enum { PLACE_UNIT = 64 * 1024, PART_NAME_TAIL = 20 /* "-00001-of-00003.gguf" */ };

/* ---- names ------------------------------------------------------------------------------ */

/* Where the tail of a part's name begins, with its two numbers; NULL: it is no part's name. */
static const char *part_tail(const char *path, uint32_t *number, uint32_t *n_parts)
{
    const size_t length = strlen(path);
    int end = 0;
    if (length <= PART_NAME_TAIL)
        return NULL;
    const char *tail = path + length - PART_NAME_TAIL;
    if (sscanf(tail, "-%5" SCNu32 "-of-%5" SCNu32 ".gguf%n", number, n_parts, &end) != 2 ||
        end != PART_NAME_TAIL)
        return NULL;
    return tail;
}

enum error_code gguf_parts_name(const char *path, uint32_t index, uint32_t n_parts, char *out,
                                struct error *err)
{
    uint32_t number, n_named;
    const char *tail = part_tail(path, &number, &n_named);
    if (!tail || n_named != n_parts)
        return error_set(err, ERROR_INVALID,
                         "one of the %u parts of a model, but its name does not end in "
                         "\"-NNNNN-of-%05u.gguf\", so the others cannot be found; give the parts "
                         "their names back",
                         n_parts, n_parts);
    const int size = snprintf(out, PATH_MAX, "%.*s-%05u-of-%05u.gguf", (int)(tail - path), path,
                              index + 1, n_parts);
    return size < PATH_MAX ? ERROR_NONE : error_set(err, ERROR_INVALID, "the path is too long");
}

/* Files that are no model, or not its first part, do not count. */
static bool is_model_name(const char *name)
{
    uint32_t number = 1, n_parts;
    const size_t length = strlen(name);
    if (length <= 5 || strcmp(name + length - 5, ".gguf") != 0 || name[0] == '.')
        return false;
    return !part_tail(name, &number, &n_parts) || number == 1;
}

static enum error_code choose_in(DIR *folder, const char *path, char *out, struct error *err)
{
    char found[NAME_MAX + 1] = "", other[NAME_MAX + 1] = "";
    for (const struct dirent *entry; (entry = readdir(folder));) {
        if (!is_model_name(entry->d_name))
            continue;
        snprintf(other, sizeof other, "%s", found);
        snprintf(found, sizeof found, "%s", entry->d_name);
        if (other[0])
            return error_set(err, ERROR_INVALID,
                             "this folder holds several models, %s and %s among them; give the "
                             "one that you mean",
                             other, found);
    }
    if (!found[0])
        return error_set(err, ERROR_INVALID,
                         "this is a folder without a model's file or first part (*.gguf)");
    return snprintf(out, PATH_MAX, "%s/%s", path, found) < PATH_MAX
               ? ERROR_NONE
               : error_set(err, ERROR_INVALID, "the path is too long");
}

enum error_code gguf_parts_choose(const char *path, char *out, struct error *err)
{
    struct stat info;
    if (strlen(path) >= PATH_MAX)
        return error_set(err, ERROR_INVALID, "the path is too long");
    strcpy(out, path);
    if (stat(path, &info) || !S_ISDIR(info.st_mode))
        return ERROR_NONE; /* what is wrong with it says who opens it */
    DIR *folder = opendir(path);
    if (!folder)
        return error_set(err, ERROR_IO, "cannot read the folder: %s", strerror(errno));
    enum error_code code = choose_in(folder, path, out, err);
    closedir(folder);
    return code;
}

/* ---- what the parts say ----------------------------------------------------------------- */

enum error_code gguf_parts_count(const struct gguf_file *file, uint32_t *out, struct error *err)
{
    uint32_t n_parts;
    *out = 1;
    if (gguf_file_u32(file, "split.count", &n_parts, NULL) || n_parts <= 1)
        return ERROR_NONE;
    *out = n_parts;
    return n_parts <= LIMIT_MODEL_PARTS
               ? ERROR_NONE
               : error_set(err, ERROR_INVALID, "one of %u parts; at most %d are allowed", n_parts,
                           LIMIT_MODEL_PARTS);
}

static enum error_code join_check(struct gguf_file *parts[], uint32_t n_parts, struct error *err)
{
    uint64_t n_tensors = 0;
    uint32_t n_first = 0;
    gguf_file_u32(parts[0], "split.tensors.count", &n_first, NULL);
    for (uint32_t i = 0; i < n_parts; i++) {
        uint32_t number = 0, n_said = 0, n_said_tensors = n_first;
        gguf_file_u32(parts[i], "split.no", &number, NULL);
        gguf_file_u32(parts[i], "split.count", &n_said, NULL);
        gguf_file_u32(parts[i], "split.tensors.count", &n_said_tensors, NULL);
        if (n_said != n_parts || n_said_tensors != n_first)
            return error_set(err, ERROR_INVALID, "part %u of %u is of another model", i + 1,
                             n_parts);
        if (number != i)
            return error_set(err, ERROR_INVALID,
                             "part %u of %u says that it is part %u: it is here twice, or was "
                             "renamed",
                             i + 1, n_parts, number + 1);
        n_tensors += gguf_file_tensor_count(parts[i]);
    }
    if (n_first && n_tensors != n_first)
        return error_set(err, ERROR_INVALID,
                         "the %u parts have %" PRIu64 " tensors, but the first says %u: a part is "
                         "of another model",
                         n_parts, n_tensors, n_first);
    return n_tensors <= LIMIT_MODEL_TENSORS
               ? ERROR_NONE
               : error_set(err, ERROR_INVALID, "%" PRIu64 " tensors; at most %d are allowed",
                           n_tensors, LIMIT_MODEL_TENSORS);
}

/* ---- places ----------------------------------------------------------------------------- */

static uint64_t round_up(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

/* Of the descriptions of one part's tensors, as the header has them. */
static uint64_t description_bytes(const struct gguf_index *index)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < index->n_tensors; i++)
        sum +=
            8 + strlen(index->tensors[i].name) + 4 + 8 * (uint64_t)index->tensors[i].n_dims + 4 + 8;
    return sum;
}

static uint64_t first_tensor_offset(const struct gguf_file *part)
{
    uint64_t first = part->size;
    for (uint64_t i = 0; i < part->index.n_tensors; i++)
        first = part->index.tensors[i].offset < first ? part->index.tensors[i].offset : first;
    return first;
}

/* Where each part's tensors will lie; false: more than there are addresses. */
static bool join_place(struct gguf_file *parts[], uint32_t n_parts, uint64_t header_size,
                       struct gguf_file *out)
{
    const uint64_t alignment = parts[0]->index.alignment;
    const uint64_t unit = alignment > PLACE_UNIT ? alignment : PLACE_UNIT;
    uint64_t at = round_up(header_size, unit);
    for (uint32_t i = 0; i < n_parts; i++) {
        const uint64_t from = first_tensor_offset(parts[i]) / unit * unit;
        const bool empty = !parts[i]->index.n_tensors;
        out->parts[i] = (struct gguf_part){
            .descriptor = -1, .at = at, .from = from, .size = empty ? 0 : parts[i]->size - from};
        if (out->parts[i].size > SIZE_MAX / 2 - at)
            return false;
        at = round_up(at + out->parts[i].size, unit);
    }
    out->size = at;
    return true;
}

/* ---- the header ------------------------------------------------------------------------- */

static void append_u32(struct buffer *out, uint32_t value)
{
    buffer_append(out, &value, sizeof value);
}

static void append_u64(struct buffer *out, uint64_t value)
{
    buffer_append(out, &value, sizeof value);
}

/* The first part's keys; but what is joined is no part any more. */
static void append_keys(const struct gguf_file *first, struct buffer *out)
{
    const struct gguf_value *count = gguf_index_find(&first->index, "split.count");
    const uint64_t begin = GGUF_HEADER_BYTES, end = first->index.keys_end;
    const size_t before = out->size;
    buffer_append(out, first->bytes + begin, (size_t)(end - begin));
    if (!out->failed)
        memset(out->data + before + (size_t)(count->data - (first->bytes + begin)), 0,
               gguf_element_size(count->type));
}

static void append_tensor(const struct gguf_tensor *tensor, uint64_t offset, struct buffer *out)
{
    append_u64(out, strlen(tensor->name));
    buffer_text(out, tensor->name);
    append_u32(out, tensor->n_dims);
    for (uint32_t d = 0; d < tensor->n_dims; d++)
        append_u64(out, (uint64_t)tensor->ne[d]);
    append_u32(out, (uint32_t)tensor->type);
    append_u64(out, offset);
}

static void join_header(struct gguf_file *parts[], uint32_t n_parts, uint64_t header_size,
                        const struct gguf_file *joined, struct buffer *out)
{
    const struct gguf_index *first = &parts[0]->index;
    const uint64_t start = round_up(header_size, first->alignment); /* offsets count from it */
    uint64_t n_tensors = 0;
    for (uint32_t i = 0; i < n_parts; i++)
        n_tensors += parts[i]->index.n_tensors;
    buffer_append(out, GGUF_MAGIC, 4);
    append_u32(out, first->version);
    append_u64(out, n_tensors);
    append_u64(out, first->n_values);
    append_keys(parts[0], out);
    for (uint32_t i = 0; i < n_parts; i++) {
        const struct gguf_part *part = &joined->parts[i];
        for (uint64_t j = 0; j < parts[i]->index.n_tensors; j++) {
            const struct gguf_tensor *tensor = &parts[i]->index.tensors[j];
            append_tensor(tensor, part->at + (tensor->offset - part->from) - start, out);
        }
    }
}

/* ---- the addresses ---------------------------------------------------------------------- */

static enum error_code join_map(struct gguf_file *parts[], uint32_t n_parts,
                                const struct buffer *header, struct gguf_file *out,
                                struct error *err)
{
    uint8_t *bytes = mmap(NULL, (size_t)out->size, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (bytes == MAP_FAILED)
        return error_set(err, ERROR_NO_MEMORY, "cannot map the parts: %s", strerror(errno));
    out->bytes = bytes;
    out->mapped = true;
    memcpy(bytes, header->data, header->size);
    bool ok = mprotect(bytes, (size_t)out->size, PROT_READ) == 0;
    for (uint32_t i = 0; ok && i < n_parts; i++) {
        const struct gguf_part *part = &out->parts[i];
        if (part->size)
            ok = mmap(bytes + part->at, (size_t)part->size, PROT_READ, MAP_SHARED | MAP_FIXED,
                      parts[i]->parts[0].descriptor, (off_t)part->from) != MAP_FAILED;
    }
    if (ok)
        large_pages_advise(bytes, out->size);
    out->guard = gguf_guard_add(bytes, (size_t)out->size);
    return ok ? ERROR_NONE
              : error_set(err, ERROR_NO_MEMORY, "cannot map the parts: %s", strerror(errno));
}

enum error_code gguf_parts_join(struct gguf_file *parts[], uint32_t n_parts, struct gguf_file *out,
                                struct error *err)
{
    struct buffer header = {0};
    enum error_code code = join_check(parts, n_parts, err);
    if (code)
        return code;
    out->parts = mem_new_array(n_parts, sizeof *out->parts);
    if (!out->parts)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    out->n_parts = n_parts;
    uint64_t header_size = parts[0]->index.keys_end;
    for (uint32_t i = 0; i < n_parts; i++)
        header_size += description_bytes(&parts[i]->index);
    const bool fits = join_place(parts, n_parts, header_size, out);
    if (fits)
        join_header(parts, n_parts, header_size, out, &header);
    if (!fits)
        code = error_set(err, ERROR_UNSUPPORTED, "larger than this machine's address space");
    else if (header.failed)
        code = error_set(err, ERROR_NO_MEMORY, "out of memory");
    else
        code = join_map(parts, n_parts, &header, out, err);
    buffer_deinit(&header);
    for (uint32_t i = 0; i < n_parts && !code; i++) {
        out->parts[i].descriptor = parts[i]->parts[0].descriptor;
        parts[i]->parts[0].descriptor = -1;
    }
    return code;
}
