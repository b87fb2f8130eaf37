/* A version of which the original is here: its parts are converted into its own file, once, so that
 * its layers can be streamed from there. */
#include "weights/weights_state.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "model/model_precision.h"
#include "weights/converting.h"

struct weights_converting {
    struct weights_job job;
    struct weights_entry *entry;
    struct weight_source source; /* the original's, which serves meanwhile */
    struct part_set has;         /* of the source, where it is on the shelf */
    const struct model *smaller;
    uint32_t *parts, n_parts;
    uint64_t bytes, begun_ns;
};

static bool weights_converting_goes_on(void *arg)
{
    return !weights_is_closing(arg);
}

static void run_converting(struct weights_job *job)
{
    struct weights_converting *converting = (struct weights_converting *)job;
    const struct converting work = {.source = &converting->source,
                                    .smaller = converting->smaller,
                                    .out = converting->entry->here.shelf,
                                    .parts = converting->parts,
                                    .n_parts = converting->n_parts,
                                    .goes_on = weights_converting_goes_on,
                                    .arg = job->weights};
    if (converting_write(&work, &job->err) == ERROR_CANCELLED)
        error_set(&job->err, ERROR_CANCELLED, "this node is stopping");
}

static void converting_free(struct weights_converting *converting)
{
    part_set_deinit(&converting->has);
    mem_free(converting->parts);
    mem_free(converting);
}

static void run_converting_keep(struct weights_job *job)
{
    struct weights_converting *converting = (struct weights_converting *)job;
    shelf_model_keep(converting->entry->here.shelf, converting->parts, converting->n_parts,
                     &job->err);
}

static void converting_kept(struct weights_job *job)
{
    struct weights_converting *converting = (struct weights_converting *)job;
    struct weights_entry *entry = converting->entry;
    const struct error err = job->err;
    char name[DIGEST_TEXT];
    entry->is_busy = false;
    entry->n_jobs--;
    for (uint32_t i = 0; i < converting->n_parts && !err.code; i++)
        part_set_add(&entry->here.has, converting->parts[i]);
    if (!err.code)
        log_line(LOG_INFO, "weights", "model %.12s %s: converted %u parts, %llu bytes, in %.1f s",
                 digest_text(weights_asked_id(entry), name),
                 model_precision_name(entry->version->type), converting->n_parts,
                 (unsigned long long)converting->bytes,
                 (double)(clock_now_ns() - converting->begun_ns) / 1e9);
    converting_free(converting);
    if (weights_is_closing(entry->weights))
        return;
    if (err.code)
        weights_step_failed(entry, &err);
    else
        weights_step(entry);
}

/* The part is not verified by its hash, which is made of these very bytes: it is synced, then
 * recorded. */
static void converting_done(struct weights_job *job)
{
    struct weights_converting *converting = (struct weights_converting *)job;
    converting->entry->version->original->n_serving--;
    if (job->err.code) {
        converting_kept(job);
        return;
    }
    job->run = run_converting_keep;
    job->done = converting_kept;
    weights_lane_add(job->weights, job);
}

/* The original as it is now, if all parts that are wanted are here. */
static bool converting_find_source(struct weights_converting *converting)
{
    struct weights_entry *entry = converting->entry, *original = entry->version->original;
    const struct weights_file *file = weights_file_of(original);
    const struct manifest *manifest = &entry->version->converted.manifest;
    if (!file && (original->is_busy || !original->here.shelf ||
                  part_set_init(&converting->has, manifest->n_parts, NULL)))
        return false;
    converting->source = file ? file->source : original->here.source;
    for (uint32_t i = 0; i < manifest->n_parts; i++) {
        const bool is_here = file || part_set_has(&original->here.has, i);
        if (!file && is_here)
            part_set_add(&converting->has, i);
        if (!part_set_has(&entry->fetching.wanted, i))
            continue;
        if (!is_here || i == MANIFEST_HEADER)
            return false;
        converting->parts[converting->n_parts++] = i;
        converting->bytes += manifest->parts[i].size;
    }
    if (!file)
        converting->source.has = &converting->has;
    return converting->n_parts &&
           !model_at_precision(weights_opened(original), entry->version->type, &converting->smaller,
                               NULL);
}

bool weights_version_converts(struct weights_entry *entry)
{
    if (!entry->version)
        return false;
    const uint32_t n_parts = entry->version->converted.manifest.n_parts;
    struct weights_converting *converting = mem_new(sizeof *converting);
    if (!converting)
        return false;
    converting->entry = entry;
    converting->parts = mem_new_array(n_parts, sizeof *converting->parts);
    if (!converting->parts || !converting_find_source(converting)) {
        converting_free(converting);
        return false;
    }
    converting->begun_ns = clock_now_ns();
    entry->is_busy = true;
    entry->n_jobs++;
    entry->version->original->n_serving++;
    converting->job.run = run_converting;
    converting->job.done = converting_done;
    weights_job_start(entry->weights, &converting->job);
    return true;
}
