#include "weights/version_file.h"

#include "base/buffer.h"
#include "base/clock.h"
#include "base/durable_file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/state_folder.h"
#include "model/model.h"
#include "model/model_precision.h"
#include "weights/converted.h"
#include "weights/converting.h"
#include "weights/manifest_cache.h"
#include "weights/weight_source.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define VERSION_SPARE_BYTES (UINT64_C(1) << 30) /* of the disk, as a node leaves it */
#define VERSION_LIMIT_FILE "models-max"

/* ---- the limit ------------------------------------------------------------------------------- */

void version_limit_tell(const char *state, uint64_t bytes)
{
    char path[PATH_MAX], text[32];
    struct error err;
    const int size = snprintf(text, sizeof text, "%" PRIu64 "\n", bytes);
    enum error_code code = durable_path(state, VERSION_LIMIT_FILE, "", path, &err);
    if (!code)
        code = durable_replace(path, text, (size_t)size, &err);
    if (code)
        log_line(LOG_WARN, "weights", "the limit for models is not kept: %s", err.text);
}

static uint64_t version_limit(const char *state)
{
    char path[PATH_MAX];
    struct buffer text = {0};
    uint64_t bytes = 0;
    if (!durable_path(state, VERSION_LIMIT_FILE, "", path, NULL) &&
        !durable_read(path, 32, 0, &text, NULL)) {
        buffer_append(&text, "", 1);
        bytes = text.failed ? 0 : strtoull(text.data, NULL, 10);
    }
    buffer_deinit(&text);
    return bytes;
}

/* ---- making it ------------------------------------------------------------------------------- */

struct version_work {
    struct version_file *file;
    const struct model *original, *smaller;
    struct manifest manifest; /* the original's */
    struct converted converted;
    struct weight_source source;
    struct part_set all;
    uint32_t *parts, n_parts; /* that are not there */
};

static enum error_code version_work_list(struct version_work *work, struct error *err)
{
    const struct manifest *manifest = &work->converted.manifest;
    const struct part_set *has = shelf_model_has(work->file->kept);
    work->parts = mem_new_array(manifest->n_parts, sizeof *work->parts);
    if (!work->parts)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory to convert %u parts",
                         manifest->n_parts);
    for (uint32_t i = MANIFEST_HEADER + 1; i < manifest->n_parts; i++) {
        part_set_add(&work->all, i);
        if (part_set_has(has, i))
            continue;
        work->parts[work->n_parts++] = i;
        work->file->bytes += manifest->parts[i].size;
    }
    part_set_add(&work->all, MANIFEST_HEADER);
    return ERROR_NONE;
}

static enum error_code version_work_put_header(struct version_work *work, struct error *err)
{
    struct shelf_model *kept = work->file->kept;
    const struct gguf_header *header = &work->converted.header;
    const uint32_t part = MANIFEST_HEADER;
    if (part_set_has(shelf_model_has(kept), part))
        return ERROR_NONE;
    enum error_code code = shelf_model_write(kept, part, 0, header->bytes, header->size, err);
    if (!code)
        code = shelf_model_verify(kept, part, err);
    return code ? code : shelf_model_keep(kept, &part, 1, err);
}

static enum error_code version_work_convert(struct version_work *work, struct error *err)
{
    struct shelf_model *kept = work->file->kept;
    const struct converting converting = {.source = &work->source,
                                          .smaller = work->smaller,
                                          .out = kept,
                                          .parts = work->parts,
                                          .n_parts = work->n_parts};
    enum error_code code = shelf_model_reserve(kept, &work->all, err);
    if (!code)
        code = version_work_put_header(work, err);
    if (!code)
        code =
            weight_source_of_file(&work->manifest, model_file(work->original), &work->source, err);
    if (!code)
        code = converting_write(&converting, err);
    if (!code)
        code = shelf_model_keep(kept, work->parts, work->n_parts, err);
    if (code) {
        const struct error why = *err;
        if (shelf_model_trim(kept, err))
            log_line(LOG_WARN, "weights", "%s", err->text);
        *err = why;
    }
    return code;
}

/* The folders of the state: of manifests, of models. */
static enum error_code version_folders(char state[PATH_MAX], char manifests[PATH_MAX],
                                       char models[PATH_MAX], struct error *err)
{
    if (!state_folder(state, PATH_MAX))
        return error_set(err, ERROR_UNSUPPORTED,
                         "there is no folder to keep the converted layers in: set "
                         "MEDLEY_STATE_DIR, or convert the file with `medley convert`");
    const enum error_code code = durable_path(state, "manifests", "", manifests, err);
    return code ? code : durable_path(state, "models", "", models, err);
}

static enum error_code version_work_open(struct version_work *work, int type, struct error *err)
{
    char state[PATH_MAX], manifests[PATH_MAX], models[PATH_MAX];
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    const struct manifest_options hashing = {.n_threads =
                                                 online > 0 && online < 64 ? (uint32_t)online : 1};
    enum error_code code = version_folders(state, manifests, models, err);
    if (!code)
        code = durable_make_folder_of(models, err);
    if (!code)
        code = manifest_of_file(manifests, model_file(work->original), &hashing, &work->manifest,
                                NULL, err);
    if (!code)
        code = converted_init(&work->converted, &work->manifest, work->original, type, err);
    if (!code)
        code = model_at_precision(work->original, type, &work->smaller, err);
    if (!code)
        code = part_set_init(&work->all, work->manifest.n_parts, err);
    const struct shelf_options options = {version_limit(state), VERSION_SPARE_BYTES};
    if (!code)
        code = shelf_open(models, &options, &work->file->shelf, err);
    if (!code)
        code =
            shelf_model_open(work->file->shelf, &work->converted.manifest, &work->file->kept, err);
    return code ? code : version_work_list(work, err);
}

enum error_code version_file_open(const struct model *original, int type, struct version_file *out,
                                  struct error *err)
{
    struct version_work work = {.file = out, .original = original};
    struct error own;
    const uint64_t begun_ns = clock_now_ns();
    *out = (struct version_file){0};
    err = err ? err : &own;
    enum error_code code = version_work_open(&work, type, err);
    if (!code && (work.n_parts || !part_set_has(shelf_model_has(out->kept), MANIFEST_HEADER)))
        code = version_work_convert(&work, err);
    if (!code)
        code = model_open(shelf_model_path(out->kept), &out->model, err);
    out->took_s = (double)(clock_now_ns() - begun_ns) / 1e9;
    weight_source_deinit(&work.source);
    part_set_deinit(&work.all);
    mem_free(work.parts);
    converted_deinit(&work.converted);
    manifest_deinit(&work.manifest);
    if (code)
        version_file_close(out);
    return code;
}

void version_file_close(struct version_file *file)
{
    if (!file)
        return;
    if (file->model)
        model_close(file->model);
    shelf_model_close(file->kept);
    if (file->shelf)
        shelf_close(file->shelf);
    *file = (struct version_file){0};
}
