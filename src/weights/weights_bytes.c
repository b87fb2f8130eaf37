/* Chunks on their way to the shelf, and parts that are held against their hashes. */
#include "weights/weights_state.h"

#include "base/log.h"

enum { SPARE_MAX = 16 };

/* ---- memory for chunks ----------------------------------------------------------------------- */

struct weights_write *weights_memory_take(struct weights *weights, uint32_t bytes)
{
    enum { LARGE = LIMIT_FETCH_CHUNK_BYTES + FETCH_CONVERTED_HEAD };
    struct weights_write *memory = weights->spare;
    assert(bytes <= LARGE);
    if (memory && bytes > LARGE / 8) {
        weights->spare = memory->next;
        weights->n_spare--;
        return memory;
    }
    uint32_t capacity = bytes > LARGE / 8 ? LARGE : bytes;
    memory = mem_new(sizeof *memory + capacity);
    if (memory)
        memory->capacity = capacity;
    return memory;
}

static bool is_fetching(const struct weights *weights)
{
    bool any = false;
    for (struct weights_entry *entry = weights->entries; entry && !any; entry = entry->next)
        any = entry->fetching.fetch;
    return any;
}

void weights_memory_give(struct weights *weights, struct weights_write *memory)
{
    enum { LARGE = LIMIT_FETCH_CHUNK_BYTES + FETCH_CONVERTED_HEAD };
    if (memory && memory->capacity == LARGE && weights->n_spare < SPARE_MAX) {
        memory->next = weights->spare;
        weights->spare = memory;
        weights->n_spare++;
        memory = NULL;
    }
    mem_free(memory);
    while (weights->spare && !is_fetching(weights)) {
        struct weights_write *next = weights->spare->next;
        mem_free(weights->spare);
        weights->spare = next;
        weights->n_spare--;
    }
}

/* ---- writing --------------------------------------------------------------------------------- */

static void run_write(struct weights_job *job)
{
    struct weights_write *write = (struct weights_write *)job;
    shelf_model_write(write->shelf, write->part, write->offset, write->bytes, write->size,
                      &job->err);
}

/* Those that asked for nothing more because too much was not written yet. */
static void pump_all(struct weights *weights)
{
    for (struct weights_entry *entry = weights->entries; entry; entry = entry->next)
        weights_fetch_pump(entry);
}

static void weights_bytes_write_done(struct weights_job *job)
{
    struct weights_write *write = (struct weights_write *)job;
    struct weights *weights = job->weights;
    struct weights_entry *entry = write->entry;
    const struct error err = job->err;
    bool was_full = weights->backlog_bytes >= LIMIT_WEIGHTS_BACKLOG_BYTES;
    bool counts = write->generation == entry->fetching.generation;
    weights->backlog_bytes -= write->size;
    entry->n_jobs--;
    entry->fetching.n_written++;
    weights_memory_give(weights, write);
    weights_shelf_verify_next(weights);
    if (weights_is_closing(weights))
        return;
    if (err.code && counts)
        weights_step_failed(entry, &err);
    if (was_full)
        pump_all(weights);
}

void weights_shelf_write(struct weights_write *write)
{
    struct weights_entry *entry = write->entry;
    struct weights *weights = entry->weights;
    write->job = (struct weights_job){.run = run_write, .done = weights_bytes_write_done};
    write->shelf = entry->here.shelf;
    write->generation = entry->fetching.generation;
    entry->n_jobs++;
    entry->fetching.n_writes++;
    weights->backlog_bytes += write->size;
    weights_lane_add(weights, &write->job);
}

/* ---- verifying ------------------------------------------------------------------------------- */

static void run_verify(struct weights_job *job)
{
    struct weights_verify *verify = (struct weights_verify *)job;
    struct digest digest;
    if (verify->chunks)
        weights_version_verify(verify->shelf, verify->part, verify->chunks, &job->err);
    else if (verify->shelf)
        shelf_model_verify(verify->shelf, verify->part, &job->err);
    else if (!digest_of(verify->bytes.data, verify->bytes.size, &digest, &job->err) &&
             !digest_equal(&digest, &verify->entry->id))
        error_set(&job->err, ERROR_INVALID, "not that model's manifest");
}

static void verify_done(struct weights_job *job)
{
    struct weights_verify *verify = (struct weights_verify *)job;
    struct weights *weights = job->weights;
    struct weights_entry *entry = verify->entry;
    const struct error err = job->err;
    const uint32_t part = verify->part;
    bool counts = verify->generation == entry->fetching.generation && !weights_is_closing(weights);
    weights->n_verifying--;
    entry->n_jobs--;
    if (counts && !verify->shelf) {
        entry->fetching.bytes = verify->bytes;
        verify->bytes = (struct buffer){0};
    }
    buffer_deinit(&verify->bytes);
    mem_free(verify->chunks);
    mem_free(verify);
    if (counts && (!err.code || err.code == ERROR_INVALID))
        weights_fetch_verified(entry, part, !err.code);
    else if (counts)
        weights_step_failed(entry, &err);
    weights_shelf_verify_next(weights);
}

bool weights_shelf_verify(struct weights_entry *entry, uint32_t part)
{
    struct weights *weights = entry->weights;
    struct weights_fetching *fetching = &entry->fetching;
    struct weights_verify *verify = mem_new(sizeof *verify);
    if (!verify)
        return false;
    verify->entry = entry;
    verify->part = part;
    verify->generation = fetching->generation;
    verify->after_write = fetching->n_writes;
    verify->job.run = run_verify;
    verify->job.done = verify_done;
    if (fetching->is_manifest) {
        verify->bytes = fetching->bytes;
        fetching->bytes = (struct buffer){0};
    } else {
        verify->shelf = entry->here.shelf;
        verify->chunks = weights_version_take_chunks(entry, part);
    }
    *weights->verify_last = verify;
    weights->verify_last = &verify->next;
    weights_shelf_verify_next(weights);
    return true;
}

/* All writes of the part come before it: the lane keeps their order. */
void weights_shelf_verify_next(struct weights *weights)
{
    bool closing = weights_is_closing(weights);
    struct weights_verify **at = &weights->verify_first;
    while (*at && (closing || weights->n_verifying < LIMIT_WEIGHTS_VERIFY)) {
        struct weights_verify *verify = *at;
        const struct weights_fetching *fetching = &verify->entry->fetching;
        bool is_stale = closing || verify->generation != fetching->generation;
        if (!is_stale && fetching->n_written < verify->after_write) {
            at = &verify->next;
            continue;
        }
        *at = verify->next;
        if (is_stale) {
            buffer_deinit(&verify->bytes);
            mem_free(verify->chunks);
            mem_free(verify);
            continue;
        }
        weights->n_verifying++;
        verify->entry->n_jobs++;
        weights_job_start(weights, &verify->job);
    }
    weights->verify_last = &weights->verify_first;
    while (*weights->verify_last)
        weights->verify_last = &(*weights->verify_last)->next;
}
