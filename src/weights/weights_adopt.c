/* Parts of a model that came another way than from peers, put onto the shelf. */
#include "weights/weights_state.h"

#include "base/clock.h"
#include "base/mem.h"
#include "model/gguf_file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct weights_adopting {
    struct weights_job job;
    struct weights_entry *entry;
    struct manifest manifest;
    struct buffer bytes; /* the manifest's */
    struct part_set has;
    char (*paths)[PATH_MAX];
    uint32_t n_paths;
    struct weights_shelved found; /* the entry's while this runs */
    void (*done)(void *arg, const struct weights_facts *facts, const struct error *err);
    void *arg;
};

/* Files of which some parts are there, and the headers. */
static enum error_code weights_adopt_files(struct weights_adopting *adopting, struct error *err)
{
    int files[LIMIT_MODEL_PARTS];
    struct gguf_file *joined = NULL;
    enum error_code code = ERROR_NONE;
    uint32_t n = 0;
    for (; n < adopting->n_paths; n++) {
        files[n] = open(adopting->paths[n], O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        if (files[n] < 0)
            break;
    }
    if (n < adopting->n_paths) {
        code = error_set(err, ERROR_IO, "%s: %s", adopting->paths[n], strerror(errno));
        while (n)
            close(files[--n]);
        return code;
    }
    code = gguf_file_open_descriptors(files, n, adopting->paths[0], &joined, err);
    if (!code)
        code = shelf_model_adopt_files(adopting->found.shelf, &adopting->has, joined,
                                       adopting->paths, err);
    gguf_file_close(joined);
    return code;
}

static void run_adopt(struct weights_job *job)
{
    struct weights_adopting *adopting = (struct weights_adopting *)job;
    struct shelf *shelf = job->weights->shelf;
    struct weights_shelved *found = &adopting->found;
    bool is_taken = false;
    enum error_code code = ERROR_NONE;
    if (!found->shelf) {
        is_taken =
            adopting->n_paths == 1 && shelf_adopt(shelf, &adopting->manifest, adopting->paths[0]);
        code =
            weights_shelved_open(shelf, &adopting->entry->id, &adopting->bytes, found, &job->err);
    }
    if (!code && adopting->n_paths > 1)
        code = weights_adopt_files(adopting, &job->err);
    else if (!code)
        code = shelf_model_adopt(found->shelf, &adopting->has, is_taken ? NULL : adopting->paths[0],
                                 &job->err);
    for (uint32_t i = 0; i < adopting->manifest.n_parts && !code; i++) {
        if (part_set_has(shelf_model_has(found->shelf), i))
            part_set_add(&found->has, i);
    }
    if (!code && !found->model && !found->is_dead && part_set_has(&found->has, MANIFEST_HEADER))
        weights_shelved_open_header(found, NULL);
    for (uint32_t i = 0; i < adopting->n_paths && !code && !is_taken; i++)
        unlink(adopting->paths[i]);
}

static void weights_adopting_free(struct weights_adopting *adopting)
{
    manifest_deinit(&adopting->manifest);
    buffer_deinit(&adopting->bytes);
    part_set_deinit(&adopting->has);
    mem_free(adopting->paths);
    mem_free(adopting);
}

static void adopt_done(struct weights_job *job)
{
    struct weights_adopting *adopting = (struct weights_adopting *)job;
    struct weights_entry *entry = adopting->entry;
    struct weights_facts facts;
    struct error err = job->err;
    entry->here = adopting->found;
    entry->is_busy = false;
    entry->was_looked = true;
    entry->must_tell = entry->here.shelf != NULL;
    entry->touched_ns = clock_now_ns();
    if (!weights_is_closing(job->weights)) {
        weights_raise_changed(job->weights);
        weights_step(entry);
    }
    if (!err.code && !weights_fill_facts(entry, &facts))
        error_set(&err, ERROR_INVALID, "the header that was gathered is no model of this version");
    adopting->done(adopting->arg, err.code ? NULL : &facts, err.code ? &err : NULL);
    weights_adopting_free(adopting);
}

static enum error_code weights_adopting_fill(struct weights_adopting *adopting,
                                             const struct manifest *manifest,
                                             const struct part_set *has, const char *const *paths,
                                             uint32_t n_paths, struct error *err)
{
    assert(n_paths && n_paths <= LIMIT_MODEL_PARTS);
    enum error_code code = part_set_init(&adopting->has, manifest->n_parts, err);
    adopting->paths = mem_new_array(n_paths, sizeof *adopting->paths);
    if (!code && !adopting->paths)
        code = error_set(err, ERROR_NO_MEMORY, "out of memory");
    for (uint32_t i = 0; i < n_paths && !code; i++)
        snprintf(adopting->paths[i], PATH_MAX, "%s", paths[i]);
    adopting->n_paths = n_paths;
    for (uint32_t i = 0; i < manifest->n_parts && !code; i++) {
        if (part_set_has(has, i))
            part_set_add(&adopting->has, i);
    }
    manifest_write(manifest, &adopting->bytes);
    if (!code && adopting->bytes.failed)
        code = error_set(err, ERROR_NO_MEMORY, "out of memory");
    return code ? code
                : manifest_read(adopting->bytes.data, adopting->bytes.size, &adopting->manifest,
                                err);
}

void weights_adopt(struct weights *weights, const struct manifest *manifest,
                   const struct part_set *has, const char *const *paths, uint32_t n_paths,
                   void (*done)(void *, const struct weights_facts *, const struct error *),
                   void *arg)
{
    struct error err = {0};
    struct digest identity;
    struct weights_entry *entry = NULL;
    struct weights_adopting *adopting = mem_new(sizeof *adopting);
    enum error_code code =
        adopting ? weights_adopting_fill(adopting, manifest, has, paths, n_paths, &err)
                 : error_set(&err, ERROR_NO_MEMORY, "out of memory");
    if (!code)
        code = manifest_identity(manifest, &identity, &err);
    if (!code && (weights_is_closing(weights) || !(entry = weights_make(weights, &identity))))
        code = error_set(&err, ERROR_BUSY, "this node is stopping, or has %d models",
                         LIMIT_WEIGHTS_MODELS);
    if (!code && (entry->is_busy || entry->n_jobs || entry->n_serving || entry->fetching.fetch))
        code = error_set(&err, ERROR_BUSY, "the model is being fetched just now");
    if (code) {
        if (adopting)
            weights_adopting_free(adopting);
        done(arg, NULL, &err);
        return;
    }
    adopting->entry = entry;
    adopting->done = done;
    adopting->arg = arg;
    adopting->found = entry->here;
    entry->here = (struct weights_shelved){0};
    entry->is_busy = true;
    adopting->job.run = run_adopt;
    adopting->job.done = adopt_done;
    adopting->job.must_run = true;
    weights_lane_add(weights, &adopting->job);
}
