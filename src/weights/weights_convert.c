/* A version of which the original is here: its parts are converted into its own file, once, so that
 * its layers can be streamed from there. On as many threads as there are processors, as when
 * weights are converted while they are loaded. */
#include "weights/weights_state.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "model/model_precision.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

enum { CONVERTING_THREADS_MAX = 64 };

struct weights_converting {
    struct weights_job job;
    struct weights_entry *entry;
    struct weight_source source; /* the original's, which serves meanwhile */
    struct part_set has;         /* of the source, where it is on the shelf */
    const struct model *smaller;
    uint32_t *parts, n_parts;
    uint64_t bytes, begun_ns;
    pthread_mutex_t lock; /* of what follows, and of job.err */
    uint32_t next;        /* of parts */
    uint64_t next_offset; /* in it */
};

struct converting_chunk {
    uint32_t part, size;
    uint64_t offset;
};

static bool converting_take(struct weights_converting *converting, struct converting_chunk *out)
{
    const struct manifest *manifest = &converting->entry->version->converted.manifest;
    pthread_mutex_lock(&converting->lock);
    const bool taken = converting->next < converting->n_parts && !converting->job.err.code &&
                       !weights_is_closing(converting->job.weights);
    if (taken) {
        const uint32_t part = converting->parts[converting->next];
        const uint64_t left = manifest->parts[part].size - converting->next_offset;
        out->part = part;
        out->offset = converting->next_offset;
        out->size =
            left < LIMIT_CONVERTED_CHUNK_BYTES ? (uint32_t)left : LIMIT_CONVERTED_CHUNK_BYTES;
        converting->next_offset += out->size;
        if (out->size == left) {
            converting->next++;
            converting->next_offset = 0;
        }
    }
    pthread_mutex_unlock(&converting->lock);
    return taken;
}

static void *converting_run(void *arg)
{
    struct weights_converting *converting = arg;
    uint8_t *bytes = mem_new_array(LIMIT_CONVERTED_CHUNK_BYTES, 1);
    struct converting_chunk chunk;
    struct error err = {0};
    enum error_code code = bytes ? ERROR_NONE : error_set(&err, ERROR_NO_MEMORY, "out of memory");
    while (!code && converting_take(converting, &chunk)) {
        code = converted_read(&converting->source, converting->smaller, chunk.part, chunk.offset,
                              chunk.size, bytes, &err);
        if (!code)
            code = shelf_model_write(converting->entry->here.shelf, chunk.part, chunk.offset, bytes,
                                     chunk.size, &err);
    }
    mem_free(bytes);
    pthread_mutex_lock(&converting->lock);
    if (code && !converting->job.err.code)
        converting->job.err = err;
    pthread_mutex_unlock(&converting->lock);
    return NULL;
}

static void run_converting(struct weights_job *job)
{
    struct weights_converting *converting = (struct weights_converting *)job;
    pthread_t threads[CONVERTING_THREADS_MAX];
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t n = 0;
    while (n < CONVERTING_THREADS_MAX && n + 1 < (uint32_t)(online > 0 ? online : 1) &&
           pthread_create(&threads[n], NULL, converting_run, converting) == 0)
        n++;
    converting_run(converting);
    while (n)
        pthread_join(threads[--n], NULL);
    if (!job->err.code && !weight_source_is_unchanged(&converting->source))
        error_set(&job->err, ERROR_INVALID, "the model's file has changed");
    if (!job->err.code && weights_is_closing(job->weights))
        error_set(&job->err, ERROR_CANCELLED, "this node is stopping");
}

static void converting_free(struct weights_converting *converting)
{
    pthread_mutex_destroy(&converting->lock);
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
    pthread_mutex_init(&converting->lock, NULL);
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
