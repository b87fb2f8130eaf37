#include "weights/manifest_make.h"

#include "base/clock.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/timed_wait.h"
#include "model/gguf_file.h"
#include "weights/file_identity.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS_MAX = 64, PROGRESS_MS = 100 };

/* ---- the parts, without their digests ------------------------------------------------------- */

static int by_offset(const void *a, const void *b)
{
    const struct manifest_part *x = a, *y = b;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static void name_model(const struct gguf_file *file, char out[MANIFEST_NAME])
{
    const char *name;
    size_t size;
    if (gguf_file_text(file, "general.name", &name, &size, NULL))
        return;
    size = size < MANIFEST_NAME - 1 ? size : MANIFEST_NAME - 1;
    for (size_t i = 0; i < size; i++)
        out[i] = name[i] >= ' ' && name[i] <= '~' ? name[i] : '?';
}

static enum error_code manifest_make_list_parts(const struct gguf_file *file, struct manifest *out,
                                                struct error *err)
{
    uint64_t n = gguf_file_tensor_count(file);
    if (n == 0)
        return error_set(err, ERROR_INVALID, "the file has no tensors");
    out->parts = mem_new_array((size_t)n + 1, sizeof *out->parts);
    if (!out->parts)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    out->n_parts = (uint32_t)n + 1;
    out->size = gguf_file_size(file);
    name_model(file, out->name);
    for (uint32_t i = 1; i < out->n_parts; i++) {
        const struct gguf_tensor *tensor = gguf_file_tensor(file, i - 1);
        struct manifest_part *part = &out->parts[i];
        part->offset = tensor->offset;
        part->size = tensor->size;
        if (strlen(tensor->name) >= sizeof part->name)
            return error_set(err, ERROR_UNSUPPORTED, "the name of tensor %u is too long", i - 1);
        memcpy(part->name, tensor->name, strlen(tensor->name));
    }
    qsort(out->parts + 1, out->n_parts - 1, sizeof *out->parts, by_offset);
    out->parts[MANIFEST_HEADER].size = out->parts[1].offset;
    enum error_code code = manifest_check(out, err);
    return code ? error_set(err, ERROR_UNSUPPORTED,
                            "the file has a tensor name that is not printable, or its header "
                            "is beyond the limit")
                : ERROR_NONE;
}

enum error_code manifest_list(const struct gguf_file *file, struct manifest *out, struct error *err)
{
    *out = (struct manifest){0};
    const enum error_code code = manifest_make_list_parts(file, out, err);
    if (code)
        manifest_deinit(out);
    return code;
}

enum error_code manifest_agrees(const struct manifest *manifest, const struct gguf_file *file,
                                struct error *err)
{
    bool same = manifest->size == gguf_file_size(file) &&
                manifest->n_parts == gguf_file_tensor_count(file) + 1;
    uint64_t first = manifest->size;
    for (uint32_t i = 1; same && i < manifest->n_parts; i++) {
        const struct manifest_part *part = &manifest->parts[i];
        const struct gguf_tensor *tensor = gguf_file_find_tensor(file, part->name);
        same = tensor && tensor->offset == part->offset && tensor->size == part->size;
        first = part->offset < first ? part->offset : first;
    }
    if (same && manifest->parts[MANIFEST_HEADER].size == first)
        return ERROR_NONE;
    return error_set(err, ERROR_INVALID,
                     "the manifest and the model's header describe different tensors");
}

/* ---- hashing --------------------------------------------------------------------------------- */

struct hashing {
    struct manifest *manifest;
    const struct gguf_file *file;
    _Atomic uint32_t next_part;
    _Atomic uint64_t done_bytes;
    _Atomic bool stop;
    pthread_mutex_t lock; /* guards what is below */
    pthread_cond_t ended;
    uint32_t n_running;
    struct error err; /* the first failure */
};

static bool piece_done(void *arg, uint64_t bytes)
{
    struct hashing *hashing = arg;
    atomic_fetch_add(&hashing->done_bytes, bytes);
    return !atomic_load(&hashing->stop);
}

static enum error_code hash_part(struct hashing *hashing, struct manifest_part *part,
                                 struct error *err)
{
    uint32_t i;
    uint64_t offset;
    if (gguf_file_place(hashing->file, part->offset, &i, &offset))
        return digest_file(gguf_file_part_descriptor(hashing->file, i), offset, part->size,
                           piece_done, hashing, &part->digest, err);
    enum error_code code =
        digest_of(gguf_file_bytes(hashing->file) + part->offset, part->size, &part->digest, err);
    piece_done(hashing, part->size);
    return code;
}

static void *hash_parts(void *arg)
{
    struct hashing *hashing = arg;
    struct error err = {0};
    while (!err.code && !atomic_load(&hashing->stop)) {
        uint32_t i = atomic_fetch_add(&hashing->next_part, 1);
        if (i >= hashing->manifest->n_parts)
            break;
        struct manifest_part *part = &hashing->manifest->parts[i];
        if (hash_part(hashing, part, &err))
            error_wrap(&err, "%s", i ? part->name : "the header");
    }
    pthread_mutex_lock(&hashing->lock);
    if (err.code) {
        atomic_store(&hashing->stop, true);
        if (!hashing->err.code)
            hashing->err = err;
    }
    hashing->n_running--;
    pthread_cond_signal(&hashing->ended);
    pthread_mutex_unlock(&hashing->lock);
    return NULL;
}

static uint64_t total_bytes(const struct manifest *manifest)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < manifest->n_parts; i++)
        sum += manifest->parts[i].size;
    return sum;
}

/* Until the last thread has ended. */
static void manifest_make_watch(struct hashing *hashing, const struct manifest_options *options)
{
    uint64_t total = total_bytes(hashing->manifest);
    bool running = true;
    while (running) {
        uint64_t until_ns = clock_now_ns() + PROGRESS_MS * 1000000ull;
        pthread_mutex_lock(&hashing->lock);
        while (hashing->n_running && timed_wait(&hashing->ended, &hashing->lock, until_ns))
            ;
        running = hashing->n_running;
        pthread_mutex_unlock(&hashing->lock);
        if (options->progress &&
            !options->progress(options->arg, atomic_load(&hashing->done_bytes), total))
            atomic_store(&hashing->stop, true);
    }
}

static enum error_code hash_all(struct hashing *hashing, const struct manifest_options *options,
                                struct error *err)
{
    uint32_t n = options->n_threads < 1             ? 1
                 : options->n_threads < THREADS_MAX ? options->n_threads
                                                    : THREADS_MAX;
    pthread_t threads[THREADS_MAX];
    uint32_t n_started = 0;
    int failure = 0;
    pthread_mutex_init(&hashing->lock, NULL);
    timed_wait_init(&hashing->ended);
    hashing->n_running = n;
    while (n_started < n &&
           (failure = pthread_create(&threads[n_started], NULL, hash_parts, hashing)) == 0)
        n_started++;
    pthread_mutex_lock(&hashing->lock);
    hashing->n_running -= n - n_started;
    pthread_mutex_unlock(&hashing->lock);
    manifest_make_watch(hashing, options);
    for (uint32_t i = 0; i < n_started; i++)
        pthread_join(threads[i], NULL);
    pthread_cond_destroy(&hashing->ended);
    pthread_mutex_destroy(&hashing->lock);
    if (!n_started)
        return error_set(err, ERROR_NO_MEMORY, "no thread could be started: %s", strerror(failure));
    if (hashing->err.code && err)
        *err = hashing->err;
    if (!hashing->err.code && atomic_load(&hashing->stop))
        return error_set(err, ERROR_CANCELLED, "cancelled");
    return hashing->err.code;
}

enum error_code manifest_make(const struct gguf_file *file, const struct manifest_options *options,
                              struct manifest *out, struct error *err)
{
    struct manifest_options none = {0};
    struct hashing hashing = {.manifest = out, .file = file};
    struct file_identity before, after;
    struct error local;
    err = err ? err : &local;
    *out = (struct manifest){0};
    enum error_code code = file_identity_of_model(file, &before, err);
    if (!code)
        code = manifest_make_list_parts(file, out, err);
    if (!code)
        code = hash_all(&hashing, options ? options : &none, err);
    if (!code)
        code = file_identity_of_model(file, &after, err);
    if (!code && !file_identity_equal(&before, &after))
        code = error_set(err, ERROR_INVALID,
                         "it changed while it was read; try again when it is complete");
    if (!code)
        return ERROR_NONE;
    manifest_deinit(out);
    return error_wrap(err, "%s", gguf_file_path(file));
}
