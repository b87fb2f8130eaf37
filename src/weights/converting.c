#include "weights/converting.h"

#include "base/limits.h"
#include "base/mem.h"
#include "weights/converted.h"
#include "weights/shelf.h"
#include "weights/weight_source.h"

#include <pthread.h>
#include <unistd.h>

enum { CONVERTING_THREADS_MAX = 64 };

struct converting_run {
    const struct converting *converting;
    const struct manifest *manifest; /* of the smaller file */
    pthread_mutex_t lock;            /* of what follows */
    uint32_t next;                   /* of parts */
    uint64_t next_offset;            /* in it */
    struct error err;
};

struct converting_chunk {
    uint32_t part, size;
    uint64_t offset;
};

static bool converting_goes_on(const struct converting *converting)
{
    return !converting->goes_on || converting->goes_on(converting->arg);
}

static bool converting_take(struct converting_run *run, struct converting_chunk *out)
{
    const struct converting *converting = run->converting;
    pthread_mutex_lock(&run->lock);
    const bool taken =
        run->next < converting->n_parts && !run->err.code && converting_goes_on(converting);
    if (taken) {
        const uint32_t part = converting->parts[run->next];
        const uint64_t left = run->manifest->parts[part].size - run->next_offset;
        out->part = part;
        out->offset = run->next_offset;
        out->size =
            left < LIMIT_CONVERTED_CHUNK_BYTES ? (uint32_t)left : LIMIT_CONVERTED_CHUNK_BYTES;
        run->next_offset += out->size;
        if (out->size == left) {
            run->next++;
            run->next_offset = 0;
        }
    }
    pthread_mutex_unlock(&run->lock);
    return taken;
}

static void *converting_work(void *arg)
{
    struct converting_run *run = arg;
    const struct converting *converting = run->converting;
    uint8_t *bytes = mem_new_array(LIMIT_CONVERTED_CHUNK_BYTES, 1);
    struct converting_chunk chunk;
    struct error err = {0};
    enum error_code code = bytes ? ERROR_NONE : error_set(&err, ERROR_NO_MEMORY, "out of memory");
    while (!code && converting_take(run, &chunk)) {
        code = converted_read(converting->source, converting->smaller, chunk.part, chunk.offset,
                              chunk.size, bytes, &err);
        if (!code)
            code = shelf_model_write(converting->out, chunk.part, chunk.offset, bytes, chunk.size,
                                     &err);
    }
    mem_free(bytes);
    pthread_mutex_lock(&run->lock);
    if (code && !run->err.code)
        run->err = err;
    pthread_mutex_unlock(&run->lock);
    return NULL;
}

enum error_code converting_write(const struct converting *converting, struct error *err)
{
    struct converting_run run = {.converting = converting,
                                 .manifest = shelf_model_manifest(converting->out)};
    pthread_t threads[CONVERTING_THREADS_MAX];
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t n = 0;
    pthread_mutex_init(&run.lock, NULL);
    while (n < CONVERTING_THREADS_MAX && n + 1 < (uint32_t)(online > 0 ? online : 1) &&
           pthread_create(&threads[n], NULL, converting_work, &run) == 0)
        n++;
    converting_work(&run);
    while (n)
        pthread_join(threads[--n], NULL);
    pthread_mutex_destroy(&run.lock);
    if (run.err.code)
        return error_set(err, run.err.code, "%s", run.err.text);
    if (run.next < converting->n_parts)
        return error_set(err, ERROR_CANCELLED, "the conversion was stopped");
    return weight_source_is_unchanged(converting->source)
               ? ERROR_NONE
               : error_set(err, ERROR_INVALID, "the model's file has changed");
}
