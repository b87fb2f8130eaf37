/* The models' files of this machine, and STATE/files, which names them: a path a line. */
#include "weights/weights_state.h"

#include "base/durable_file.h"
#include "base/log.h"
#include "model/model.h"
#include "weights/manifest_cache.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS_MAX = 4 }; /* that hash a file; a disk is seldom faster */

/* ---- which files there are ------------------------------------------------------------------- */

static void free_file(struct weights_file *file)
{
    weight_source_deinit(&file->source);
    manifest_deinit(&file->manifest);
    model_close(file->model);
    mem_free(file->path);
    mem_free(file);
}

void weights_files_free(struct weights *weights)
{
    while (weights->files) {
        struct weights_file *next = weights->files->next;
        free_file(weights->files);
        weights->files = next;
    }
}

static void weights_files_add(struct weights *weights, const char *path, bool is_new,
                              void (*done)(void *, const struct weights_facts *,
                                           const struct error *),
                              void *arg);

/* Has only its inode been touched (a backup's hard link, a new owner), the next hash brings the
 * same model back. */
struct weights_file *weights_file_of(struct weights_entry *entry)
{
    struct weights_file *file = entry->file;
    if (!file || file->has_changed)
        return NULL;
    if (weight_source_is_unchanged(&file->source))
        return file;
    log_line(LOG_WARN, "weights",
             "%s has changed since it was hashed; it will not be used or given to others until it "
             "is hashed again",
             file->path);
    file->has_changed = true; /* it stays open: somebody may have its model */
    weights_files_add(entry->weights, file->path, false, NULL, NULL);
    weights_raise_changed(entry->weights);
    return NULL;
}

/* ---- STATE/files ----------------------------------------------------------------------------- */

static enum error_code write_list(const struct weights *weights, struct error *err)
{
    struct buffer text = {0};
    for (const struct weights_file *file = weights->files; file; file = file->next) {
        const struct weights_file *later = file->next; /* each path once */
        while (later && strcmp(later->path, file->path) != 0)
            later = later->next;
        if (!later)
            buffer_printf(&text, "%s\n", file->path);
    }
    enum error_code code = text.failed
                               ? error_set(err, ERROR_NO_MEMORY, "out of memory")
                               : durable_replace(weights->files_path, text.data, text.size, err);
    buffer_deinit(&text);
    return code;
}

void weights_files_load(struct weights *weights)
{
    struct buffer text = {0};
    struct error err = {0};
    enum error_code code =
        durable_read(weights->files_path, (uint64_t)LIMIT_WEIGHTS_FILES * PATH_MAX, 0, &text, &err);
    if (code && code != ERROR_NOT_FOUND)
        log_line(LOG_WARN, "weights", "cannot read the list of model files: %s", err.text);
    char *rest = NULL;
    for (char *path = text.data ? strtok_r(text.data, "\n", &rest) : NULL; path;
         path = strtok_r(NULL, "\n", &rest))
        weights_files_add(weights, path, false, NULL, NULL);
    buffer_deinit(&text);
}

/* ---- a file that is added -------------------------------------------------------------------- */

struct weights_adding {
    struct weights_job job;
    struct weights_file *file;
    bool is_new; /* not from STATE/files */
    void (*done)(void *arg, const struct weights_facts *facts, const struct error *err);
    void *arg;
};

/* One at a time: each takes a thread of the pool for as long as the file is large. */
static void begin_next(struct weights *weights)
{
    struct weights_job *job = weights->adding_first;
    if (!job || weights->is_adding)
        return;
    weights->adding_first = job->next;
    if (!weights->adding_first)
        weights->adding_last = &weights->adding_first;
    weights->is_adding = true;
    weights_job_start(weights, job);
}

static bool may_go_on(void *arg, uint64_t done_bytes, uint64_t total_bytes)
{
    (void)done_bytes, (void)total_bytes;
    return !weights_is_closing(arg);
}

static uint32_t weights_files_threads(void)
{
    unsigned n = uv_available_parallelism();
    return n < THREADS_MAX ? n : THREADS_MAX;
}

static void run_add(struct weights_job *job)
{
    struct weights_adding *adding = (struct weights_adding *)job;
    struct weights_file *file = adding->file;
    const struct manifest_options options = {
        .n_threads = weights_files_threads(), .progress = may_go_on, .arg = job->weights};
    struct file_identity before;
    enum error_code code = model_open(file->path, &file->model, &job->err);
    if (code)
        return;
    const struct gguf_file *bytes = model_file(file->model);
    code = file_identity_of_model(bytes, &before, &job->err);
    if (!code)
        code = manifest_of_file(job->weights->manifests, bytes, &options, &file->manifest, NULL,
                                &job->err);
    if (!code)
        code = weight_source_of_file(&file->manifest, bytes, &file->source, &job->err);
    if (!code && !file_identity_equal(&before, &file->source.identity))
        error_set(&job->err, ERROR_INVALID, "%s keeps changing while it is read", file->path);
}

/* The entry that the file is the model of; its older file, if any, stays as long as it is good. */
static enum error_code take_file(struct weights *weights, struct weights_file *file,
                                 struct weights_entry **out, struct error *err)
{
    struct weights_entry *entry = weights_make(weights, &file->source.model);
    *out = entry;
    if (!entry)
        return error_set(err, ERROR_BUSY, "%s: out of memory, or more than %d models", file->path,
                         LIMIT_WEIGHTS_MODELS);
    if (!weights_file_of(entry)) {
        entry->file = file;
        file->is_used = true;
        if (entry->fetching.fetch) { /* it need not be fetched now */
            weights_fetch_stop(entry);
            if (entry->here.shelf)
                weights_shelf_keep(entry, true);
        }
        entry->problem = (struct error){0};
        entry->must_tell = true;
        weights_raise_changed(weights);
    }
    weights_step(entry);
    return ERROR_NONE;
}

static void weights_files_forget(struct weights *weights, struct weights_file *file)
{
    struct weights_file **at = &weights->files;
    while (*at != file)
        at = &(*at)->next;
    *at = file->next;
    weights->n_files--;
    free_file(file);
}

/* Of files with one path the one that is an entry's stays. Those that have changed stay, too,
 * because their model may be in use; they are few. */
static void forget_doubles(struct weights *weights, const char *path)
{
    struct weights_file *next;
    uint32_t n = 0;
    for (struct weights_file *file = weights->files; file; file = file->next)
        n += strcmp(file->path, path) == 0;
    for (struct weights_file *file = weights->files; file && n > 1; file = next) {
        next = file->next;
        if (strcmp(file->path, path) != 0 || file->is_adding || file->is_used)
            continue;
        weights_files_forget(weights, file);
        n--;
    }
}

static void add_done(struct weights_job *job)
{
    struct weights_adding *adding = (struct weights_adding *)job;
    struct weights *weights = job->weights;
    struct weights_file *file = adding->file;
    struct weights_entry *entry = NULL;
    struct weights_facts facts;
    struct error err = job->err;
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s", file->path);
    file->is_adding = false;
    weights->is_adding = false;
    begin_next(weights);
    if (!err.code && weights_is_closing(weights))
        error_set(&err, ERROR_CANCELLED, "this node is stopping");
    if (!err.code)
        take_file(weights, file, &entry, &err);
    if (!err.code && adding->is_new)
        write_list(weights, &err);
    if (entry && !err.code && !weights_fill_facts(entry, &facts))
        error_set(&err, ERROR_INVALID, "%s keeps changing while it is added", path);
    if (err.code && !adding->is_new)
        log_line(LOG_WARN, "weights", "skipping %s for now: %s", file->path, err.text);
    if (adding->done)
        adding->done(adding->arg, err.code ? NULL : &facts, err.code ? &err : NULL);
    if (err.code && adding->is_new && !file->is_used)
        weights_files_forget(weights, file);
    else
        forget_doubles(weights, path);
    mem_free(adding);
}

static enum error_code begin_adding(struct weights *weights, const char *path,
                                    struct weights_adding *adding, struct error *err)
{
    struct weights_file *file = mem_new(sizeof *file);
    if (file)
        file->path = mem_copy_text(path, strlen(path));
    if (!file || !file->path) {
        mem_free(file);
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    }
    file->next = weights->files;
    weights->files = file;
    weights->n_files++;
    file->is_adding = true;
    adding->file = file;
    adding->job.run = run_add;
    adding->job.done = add_done;
    *weights->adding_last = &adding->job;
    weights->adding_last = &adding->job.next;
    begin_next(weights);
    return ERROR_NONE;
}

static void weights_files_add(struct weights *weights, const char *path, bool is_new,
                              void (*done)(void *, const struct weights_facts *,
                                           const struct error *),
                              void *arg)
{
    struct error err = {0};
    struct weights_adding *adding = mem_new(sizeof *adding);
    enum error_code code = adding ? ERROR_NONE : error_set(&err, ERROR_NO_MEMORY, "out of memory");
    if (!code && weights_is_closing(weights))
        code = error_set(&err, ERROR_CANCELLED, "this node is stopping");
    if (!code && weights->n_files == LIMIT_WEIGHTS_FILES)
        code = error_set(&err, ERROR_BUSY, "a node remembers at most %d model files",
                         LIMIT_WEIGHTS_FILES);
    if (!code) {
        adding->is_new = is_new;
        adding->done = done;
        adding->arg = arg;
        code = begin_adding(weights, path, adding, &err);
    }
    if (code) {
        mem_free(adding);
        if (done)
            done(arg, NULL, &err);
    }
}

void weights_add_file(struct weights *weights, const char *path,
                      void (*done)(void *, const struct weights_facts *, const struct error *),
                      void *arg)
{
    struct error err = {0};
    char *real = realpath(path, NULL); /* the system's memory */
    if (!real)
        error_set(&err, errno == ENOENT ? ERROR_NOT_FOUND : ERROR_IO, "%s: %s", path,
                  strerror(errno));
    else if (strchr(real, '\n'))
        error_set(&err, ERROR_INVALID, "cannot remember a path that contains a line feed");
    if (!err.code)
        weights_files_add(weights, real, true, done, arg);
    else if (done)
        done(arg, NULL, &err);
    free(real);
}
