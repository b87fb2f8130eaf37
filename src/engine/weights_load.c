#include "engine/weights_load.h"

#include "base/clock.h"
#include "base/large_pages.h"
#include "base/log.h"
#include "engine/weight_convert.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { COPY_THREADS_MAX = 16 };

struct copy_job {
    const struct tensor_copy *sources;
    uint32_t n_sources;
    const struct gguf_file *file;
    bool touches;
    const _Atomic bool *stop; /* NULL: never */
    uint64_t n_bytes;         /* of all */
    atomic_uint next;
    atomic_uint_fast64_t n_done; /* bytes */
};

/* The whole pages inside [offset, offset + size) of the file are not needed any more. */
static void release_pages(const struct gguf_file *file, uint64_t offset, uint64_t size)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t first = (offset + page - 1) / page * page, end = (offset + size) / page * page;
    if (gguf_file_is_mapped(file) && end > first)
        madvise((void *)(uintptr_t)(gguf_file_bytes(file) + first), end - first, MADV_DONTNEED);
}

/* Reads the tensor's pages of the file in; a kernel that does not know how reads them at first use.
 */
static void touch_pages(const struct gguf_file *file, uint64_t offset, uint64_t size)
{
#ifdef MADV_POPULATE_READ
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    const uint64_t first = offset / page * page;
    if (gguf_file_is_mapped(file))
        madvise((void *)(uintptr_t)(gguf_file_bytes(file) + first), offset + size - first,
                MADV_POPULATE_READ);
#else
    (void)file, (void)offset, (void)size;
#endif
}

/* One line for every tenth of all. */
static void copy_say_progress(struct copy_job *job, uint64_t size)
{
    const uint64_t before = atomic_fetch_add(&job->n_done, size), after = before + size;
    if (job->touches && after * 10 / job->n_bytes != before * 10 / job->n_bytes)
        log_line(LOG_INFO, "engine", "reading the layers that stay: %llu of %llu MiB",
                 (unsigned long long)(after >> 20), (unsigned long long)(job->n_bytes >> 20));
}

static bool copy_converts(const struct tensor_copy *copy)
{
    return copy->source->type != copy->stored->type;
}

static bool copy_is_stopped(const struct copy_job *job)
{
    return job->stop && atomic_load(job->stop);
}

static void *copy_run(void *arg)
{
    struct copy_job *job = arg;
    while (!copy_is_stopped(job)) {
        uint32_t i = atomic_fetch_add(&job->next, 1);
        if (i >= job->n_sources)
            return NULL;
        const struct gguf_tensor *source = job->sources[i].source;
        if (job->sources[i].mapped && job->touches) {
            touch_pages(job->file, source->offset, source->size);
            copy_say_progress(job, source->size);
        }
        if (job->sources[i].mapped || copy_converts(&job->sources[i]))
            continue;
        ggml_backend_tensor_set(job->sources[i].tensor, gguf_file_bytes(job->file) + source->offset,
                                0, source->size);
        release_pages(job->file, source->offset, source->size);
        copy_say_progress(job, source->size);
    }
    return NULL;
}

/* One tensor after the other, so that there is room for one only. */
static enum error_code copy_convert_all(struct copy_job *job, uint32_t n_threads, struct error *err)
{
    enum error_code code = ERROR_NONE;
    const uint64_t start_ns = clock_now_ns();
    const long n_processors = sysconf(_SC_NPROCESSORS_ONLN);
    uint64_t before = 0, after = 0;
    if (n_threads <= 1 && n_processors > 1)
        n_threads = (uint32_t)n_processors;
    for (uint32_t i = 0; i < job->n_sources && !code && !copy_is_stopped(job); i++) {
        const struct tensor_copy *copy = &job->sources[i];
        if (!copy_converts(copy))
            continue;
        code = weight_convert(copy, job->file, n_threads, err);
        release_pages(job->file, copy->stored->offset, copy->stored->size);
        copy_say_progress(job, copy->source->size);
        before += copy->stored->size;
        after += copy->source->size;
    }
    if (before && !code)
        log_line(LOG_INFO, "engine", "converted %llu MiB of weights to %llu MiB in %.1f s",
                 (unsigned long long)(before >> 20), (unsigned long long)(after >> 20),
                 (double)(clock_now_ns() - start_ns) * 1e-9);
    return code;
}

enum error_code weights_copy(const struct tensor_copy *sources, uint32_t n_sources,
                             const struct gguf_file *file, uint32_t n_threads, bool touches,
                             const _Atomic bool *stop, struct error *err)
{
    struct copy_job job = {
        .sources = sources, .n_sources = n_sources, .file = file, .touches = touches, .stop = stop};
    for (uint32_t i = 0; i < n_sources; i++)
        job.n_bytes += sources[i].source->size;
    pthread_t threads[COPY_THREADS_MAX];
    uint32_t n_started = 0;
    while (n_started + 1 < n_threads && n_started < COPY_THREADS_MAX &&
           pthread_create(&threads[n_started], NULL, copy_run, &job) == 0)
        n_started++;
    copy_run(&job); /* this thread copies too, so no thread at all is still right */
    for (uint32_t i = 0; i < n_started; i++)
        pthread_join(threads[i], NULL);
    const enum error_code code = copy_convert_all(&job, n_threads, err);
    if (!code && copy_is_stopped(&job))
        return error_set(err, ERROR_CANCELLED, "loading was stopped after %llu of %llu MiB",
                         (unsigned long long)(atomic_load(&job.n_done) >> 20),
                         (unsigned long long)(job.n_bytes >> 20));
    return code ? code : gguf_file_check_whole(file, err);
}

void weights_advise_large_pages(ggml_backend_buffer_t buffer)
{
    /* the plain type names no device, and the CPU's extra types say that they are not host memory
     */
    ggml_backend_buffer_type_t type = ggml_backend_buffer_get_type(buffer);
    ggml_backend_dev_t dev = ggml_backend_buft_get_device(type);
    if (type == ggml_backend_cpu_buffer_type() ||
        (dev && ggml_backend_dev_type(dev) == GGML_BACKEND_DEVICE_TYPE_CPU))
        large_pages_advise(ggml_backend_buffer_get_base(buffer),
                           ggml_backend_buffer_get_size(buffer));
}

void weights_clear(ggml_backend_buffer_t buffer)
{
#ifdef __linux__
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uint8_t *base = ggml_backend_buffer_get_base(buffer);
    const size_t size = ggml_backend_buffer_get_size(buffer);
    uint8_t *start = base + (page - (uintptr_t)base % page) % page;
    uint8_t *end = base + size - ((uintptr_t)base + size) % page;
    /* private anonymous memory: after this call it reads as zeros */
    if (ggml_backend_buffer_get_type(buffer) == ggml_backend_cpu_buffer_type() && end > start &&
        madvise(start, (size_t)(end - start), MADV_DONTNEED) == 0) {
        memset(base, 0, (size_t)(start - base));
        memset(end, 0, (size_t)(base + size - end));
        return;
    }
#endif
    ggml_backend_buffer_clear(buffer, 0);
}
