#include "precision/trial_file.h"

#include "base/durable_file.h"
#include "base/mem.h"
#include "base/this_process.h"
#include "model/weight_type.h"
#include "precision/convert.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Alignments of GGUF are powers of two up to this (model/gguf_index.h). */
enum { TRIAL_ALIGNMENT = 1 << 20 };

static enum error_code trial_file_copy(struct trial_file *trial, const int *types,
                                       struct error *err)
{
    const struct convert_job job = {
        .file = trial->file, .types = types, .header = &trial->header, .fd = trial->copy.fd};
    return convert_write(&job, err);
}

enum error_code trial_file_open(struct trial_file *trial, const struct gguf_file *file,
                                const char *beside, struct error *err)
{
    const uint64_t n = gguf_file_tensor_count(file);
    char name[PATH_MAX];
    *trial = (struct trial_file){.file = file, .copy = {.fd = -1}};
    int *types = mem_new_array(n, sizeof *types);
    if (!types)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the list of tensors");
    for (uint64_t i = 0; i < n; i++)
        types[i] = gguf_file_tensor(file, i)->type;
    enum error_code code = gguf_header_make(file, types, UINT32_MAX, &trial->header, err);
    /* another name than the new file's, which may be taken when only a plan is made */
    if (!code && snprintf(name, sizeof name, "%s.trial", beside) >= (int)sizeof name)
        code = error_set(err, ERROR_INVALID, "%s: the path is too long", beside);
    if (!code)
        code = output_file_begin(&trial->copy, name, trial->header.end, err);
    if (!code)
        code = trial_file_copy(trial, types, err);
    descriptor_path(trial->path, trial->copy.fd);
    trial->copy.path = trial->path;
    mem_free(types);
    if (code)
        trial_file_close(trial);
    return code;
}

void trial_file_close(struct trial_file *trial)
{
    if (trial->file)
        output_file_abandon(&trial->copy);
    gguf_header_deinit(&trial->header);
    *trial = (struct trial_file){0};
}

static uint64_t trial_file_aligned(uint64_t data_start, uint64_t at)
{
    const uint64_t from_data = at - data_start;
    return data_start + (from_data + TRIAL_ALIGNMENT - 1) / TRIAL_ALIGNMENT * TRIAL_ALIGNMENT;
}

enum error_code trial_file_set(struct trial_file *trial, const uint32_t *groups, uint32_t group,
                               const int *types, struct error *err)
{
    struct gguf_header *header = &trial->header;
    uint64_t at = header->end;
    enum error_code code = ERROR_NONE;
    int reason = ftruncate(trial->copy.fd, (off_t)header->end) ? errno : 0;
    for (uint64_t i = 0; i < gguf_file_tensor_count(trial->file) && !code && !reason; i++) {
        const struct gguf_tensor *tensor = gguf_file_tensor(trial->file, i);
        if (groups[i] != group) {
            gguf_header_move(header, trial->file, i, tensor->type, header->offsets[i]);
            continue;
        }
        at = trial_file_aligned(header->size, at);
        gguf_header_move(header, trial->file, i, types[i], at);
        code = convert_tensor(trial->file, i, types[i], trial->copy.fd, at, err);
        at += weight_type_row_bytes(types[i], tensor->ne[0]) *
              (uint64_t)(tensor->ne[1] * tensor->ne[2] * tensor->ne[3]);
    }
    if (!code && !reason)
        reason = pwrite_all(trial->copy.fd, header->bytes, header->size, 0);
    return reason ? error_set(err, ERROR_IO, "cannot write the copy to try: %s", strerror(reason))
                  : code;
}
