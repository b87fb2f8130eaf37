/* Models in a smaller type: what is kept of them under a name of their own, and fetched from nodes
 * that have the original. A version is made when it is first asked for and the original's header is
 * here; after a restart it finds on the shelf what was fetched before. */
#include "weights/weights_state.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "model/model_precision.h"
#include "topology/link.h"
#include "weights/version_weigh.h"

#include <string.h>

static struct weights_version *version_find(const struct weights *weights,
                                            const struct digest *original, uint32_t type)
{
    struct weights_version *version = weights->versions;
    while (version &&
           (version->type != (int)type || !digest_equal(&version->original->id, original)))
        version = version->next;
    return version;
}

void weights_versions_free(struct weights *weights)
{
    while (weights->versions) {
        struct weights_version *version = weights->versions;
        weights->versions = version->next;
        for (uint32_t i = 0; version->chunks && i < version->converted.manifest.n_parts; i++)
            mem_free(version->chunks[i]);
        mem_free(version->chunks);
        converted_deinit(&version->converted);
        mem_free(version);
    }
}

const struct digest *weights_asked_id(const struct weights_entry *entry)
{
    return entry->version ? &entry->version->original->id : &entry->id;
}

/* What could not be made never can; what could not be fetched is tried again, if it is still
 * needed. */
static bool version_has_failed(const struct weights_version *version)
{
    if (!version || !version->failed_ns)
        return false;
    return !version->entry ||
           clock_now_ns() - version->failed_ns < LIMIT_WEIGHTS_RETRY_MS * UINT64_C(1000000);
}

static void version_failed(struct weights_version *version, const char *why)
{
    char name[DIGEST_TEXT];
    version->failed_ns = clock_now_ns();
    log_line(LOG_INFO, "weights", "model %.12s is not fetched as %s, but as stored: %s",
             digest_text(&version->original->id, name), model_precision_name(version->type), why);
    weights_raise_changed(version->original->weights);
}

/* ---- making it ------------------------------------------------------------------------------- */

struct version_making {
    struct weights_job job;
    struct weights_version *version;
    const struct manifest *manifest; /* the original's, and its model: it serves meanwhile */
    const struct model *model;
    struct digest id;
};

static void run_version_make(struct weights_job *job)
{
    struct version_making *making = (struct version_making *)job;
    struct weights_version *version = making->version;
    if (!converted_init(&version->converted, making->manifest, making->model, version->type,
                        &job->err))
        manifest_identity(&version->converted.manifest, &making->id, &job->err);
    version->own_rate = version_own_rate(version->type);
}

static void version_make_done(struct weights_job *job)
{
    struct version_making *making = (struct version_making *)job;
    struct weights_version *version = making->version;
    struct weights *weights = job->weights;
    const struct error err = job->err;
    version->original->n_serving--;
    version->is_making = false;
    if (!err.code) {
        version->chunks =
            mem_new_array(version->converted.manifest.n_parts, sizeof *version->chunks);
        version->entry = version->chunks ? weights_make(weights, &making->id) : NULL;
    }
    mem_free(making);
    if (version->entry)
        version->entry->version = version;
    else
        version_failed(version, err.code ? err.text : "out of memory, or too many models");
    weights_raise_changed(weights);
}

/* The original's header is here. */
static void version_make(struct weights_entry *original, uint32_t type)
{
    struct weights *weights = original->weights;
    const struct weights_file *file = weights_file_of(original);
    struct weights_version *version = mem_new(sizeof *version);
    struct version_making *making = mem_new(sizeof *making);
    if (!version || !making) { /* tried again when it is asked for again */
        mem_free(version);
        mem_free(making);
        return;
    }
    *version = (struct weights_version){
        .next = weights->versions, .original = original, .type = (int)type, .is_making = true};
    weights->versions = version;
    making->version = version;
    making->manifest = file ? &file->manifest : shelf_model_manifest(original->here.shelf);
    making->model = weights_opened(original);
    making->job.run = run_version_make;
    making->job.done = version_make_done;
    original->n_serving++;
    weights_job_start(weights, &making->job);
}

/* ---- on the shelf ---------------------------------------------------------------------------- */

void weights_version_put(struct weights_entry *entry)
{
    struct buffer bytes = {0};
    struct error err;
    manifest_write(&entry->version->converted.manifest, &bytes);
    if (!bytes.failed) {
        weights_shelf_look(entry, &bytes);
        return;
    }
    buffer_deinit(&bytes);
    error_set(&err, ERROR_NO_MEMORY, "out of memory");
    weights_step_failed(entry, &err);
}

struct version_header {
    struct weights_job job;
    struct weights_entry *entry;
    struct weights_shelved opened; /* the entry's shelf, and the model that is opened here */
};

static void run_version_header(struct weights_job *job)
{
    struct version_header *put = (struct version_header *)job;
    const struct gguf_header *header = &put->entry->version->converted.header;
    struct shelf_model *shelf = put->opened.shelf;
    const uint32_t part = MANIFEST_HEADER;
    enum error_code code =
        shelf_model_write(shelf, part, 0, header->bytes, header->size, &job->err);
    if (!code)
        code = shelf_model_verify(shelf, part, &job->err);
    if (!code)
        code = shelf_model_keep(shelf, &part, 1, &job->err);
    if (!code)
        weights_shelved_open_header(&put->opened, NULL);
}

static void version_header_done(struct weights_job *job)
{
    struct version_header *put = (struct version_header *)job;
    struct weights_entry *entry = put->entry;
    const struct error err = job->err;
    entry->is_busy = false;
    if (!err.code) {
        part_set_add(&entry->here.has, MANIFEST_HEADER);
        entry->here.model = put->opened.model;
        entry->here.is_dead = put->opened.is_dead;
    }
    mem_free(put);
    if (weights_is_closing(entry->weights))
        return;
    if (err.code)
        weights_step_failed(entry, &err);
    else
        weights_step(entry);
}

bool weights_version_puts_header(struct weights_entry *entry)
{
    if (!entry->version || part_set_has(&entry->here.has, MANIFEST_HEADER))
        return false;
    struct version_header *put = mem_new(sizeof *put);
    if (!put) {
        const struct error err = {ERROR_NO_MEMORY, "out of memory"};
        weights_step_failed(entry, &err);
        return true;
    }
    put->entry = entry;
    put->opened.shelf = entry->here.shelf;
    put->job.run = run_version_header;
    put->job.done = version_header_done;
    put->job.must_run = true;
    entry->is_busy = true;
    weights_lane_add(entry->weights, &put->job);
    return true;
}

/* ---- what senders say of its chunks ---------------------------------------------------------- */

static uint64_t version_chunks(const struct manifest_part *part)
{
    return (part->size - 1) / LIMIT_CONVERTED_CHUNK_BYTES + 1;
}

bool weights_version_note(struct weights_entry *entry, uint32_t part, uint64_t offset,
                          uint32_t size, const struct digest *digest)
{
    struct weights_version *version = entry->version;
    const struct manifest_part *whole = &version->converted.manifest.parts[part];
    assert(offset < whole->size && offset % LIMIT_CONVERTED_CHUNK_BYTES == 0);
    if (!version->chunks[part])
        version->chunks[part] = mem_new_array(version_chunks(whole), sizeof *version->chunks[part]);
    if (!version->chunks[part])
        return false;
    version->chunks[part][offset / LIMIT_CONVERTED_CHUNK_BYTES] = *digest;
    version->came_ns = version->came_ns ? version->came_ns : clock_now_ns();
    version->came_bytes += size;
    return true;
}

/* ---- against fetching it as stored ----------------------------------------------------------- */

/* Bytes a second of the fastest link to who has more of the original than its header; 0: not
 * known. */
static double version_link_rate(const struct weights_entry *original)
{
    double most = 0;
    for (const struct weights_holder *holder = original->holders; holder; holder = holder->next) {
        if (!holder->peer || part_set_count(&holder->has) <= 1)
            continue;
        const struct topology_link measured = link_measured(holder->peer->link);
        const struct reading rate = topology_link_bandwidth(&measured);
        if (rate.valid && rate.value > most)
            most = rate.value;
    }
    return most;
}

static void version_add_bytes(const struct weights_entry *entry, struct version_rates *rates)
{
    struct weights_entry *original = entry->version->original;
    const struct weights_file *file = weights_file_of(original);
    const struct manifest *stored =
        file ? &file->manifest : shelf_model_manifest(original->here.shelf);
    const struct manifest *smaller = &entry->version->converted.manifest;
    for (uint32_t i = 0; i < smaller->n_parts; i++) {
        if (!part_set_has(&entry->fetching.wanted, i))
            continue;
        rates->stored_bytes += stored->parts[i].size;
        rates->made_bytes += smaller->parts[i].size;
    }
    const uint64_t came = entry->version->came_bytes;
    rates->smaller_bytes = rates->made_bytes > came ? rates->made_bytes - came : 0;
}

void weights_version_weigh(struct weights_entry *entry, uint64_t now_ns)
{
    struct weights_version *version = entry->version;
    char name[DIGEST_TEXT];
    if (!version || !entry->fetching.fetch || version->was_weighed ||
        version->came_bytes < VERSION_WEIGH_BYTES || now_ns <= version->came_ns)
        return;
    const uint64_t timed = version->came_bytes - LIMIT_CONVERTED_CHUNK_BYTES; /* less the first */
    struct version_rates rates = {.came = (double)timed * 1e9 / (double)(now_ns - version->came_ns),
                                  .link = version_link_rate(version->original),
                                  .own = version->own_rate};
    if (!(rates.link > 0))
        return; /* it is measured soon */
    version_add_bytes(entry, &rates);
    const struct version_times times = version_weigh(&rates);
    version->was_weighed = true;
    version->is_as_stored = times.is_stored_sooner;
    log_line(LOG_INFO, "weights",
             "model %.12s comes as %s at %.1f MB/s, %.1f s more; the link can do %.1f MB/s and "
             "this machine converts %.1f MB/s, %.1f s as stored: %s",
             digest_text(&version->original->id, name), model_precision_name(version->type),
             rates.came / 1e6, times.smaller_s, rates.link / 1e6, rates.own / 1e6, times.stored_s,
             version->is_as_stored ? "fetched as stored" : "going on");
    if (version->is_as_stored)
        weights_step_end(entry);
}

struct digest *weights_version_take_chunks(struct weights_entry *entry, uint32_t part)
{
    struct weights_version *version = entry->version;
    if (!version)
        return NULL;
    struct digest *chunks = version->chunks[part];
    version->chunks[part] = NULL;
    if (part_set_has(&version->converted.changes, part))
        return chunks;
    mem_free(chunks); /* the manifest knows better */
    return NULL;
}

enum error_code weights_version_verify(const struct shelf_model *shelf, uint32_t part,
                                       const struct digest *chunks, struct error *err)
{
    const struct manifest_part *whole = &shelf_model_manifest(shelf)->parts[part];
    const int fd = shelf_model_descriptor(shelf);
    enum error_code code = ERROR_NONE;
    for (uint64_t at = 0; at < whole->size && !code; at += LIMIT_CONVERTED_CHUNK_BYTES) {
        const uint64_t left = whole->size - at;
        struct digest bytes, digest;
        code = digest_file(fd, whole->offset + at,
                           left < LIMIT_CONVERTED_CHUNK_BYTES ? left : LIMIT_CONVERTED_CHUNK_BYTES,
                           NULL, NULL, &bytes, err);
        if (!code)
            code = converted_chunk_digest(&whole->digest, at, &bytes, &digest, err);
        if (!code && !digest_equal(&digest, &chunks[at / LIMIT_CONVERTED_CHUNK_BYTES]))
            code = error_set(err, ERROR_INVALID, "%s: not what its sender converted", whole->name);
    }
    return code;
}

struct fetch_progress weights_version_progress(const struct weights_entry *original)
{
    for (const struct weights_version *version = original->weights->versions; version;
         version = version->next) {
        if (version->original == original && version->entry && version->entry->fetching.fetch)
            return fetch_progress(version->entry->fetching.fetch);
    }
    return (struct fetch_progress){0};
}

/* ---- what the owner asks --------------------------------------------------------------------- */

/* Of those who are known to have the original, somebody converts; or nobody is known. */
static bool version_can_be_had(const struct weights_entry *original)
{
    bool any = false;
    for (const struct weights_holder *holder = original->holders; holder; holder = holder->next) {
        if (!holder->peer || part_set_count(&holder->has) <= 1)
            continue;
        if (link_version(holder->peer->link).minor >= WEIGHTS_VERSION_MINOR)
            return true;
        any = true;
    }
    return !any;
}

/* In the smaller type alone, whatever there is of the original. */
static enum worker_weights version_have(struct weights *weights, const struct digest *model,
                                        struct weights_version *version, uint32_t first_layer,
                                        uint32_t n_layers)
{
    const enum worker_weights header = weights_have(weights, model, 0, 0);
    if (header != WORKER_HAS_ALL || !version)
        return header == WORKER_HAS_ALL ? WORKER_LACKS : header;
    if (version->is_making)
        return WORKER_FETCHES;
    const enum worker_weights smaller =
        weights_have(weights, &version->entry->id, first_layer, n_layers);
    if (smaller != WORKER_CANNOT_FETCH)
        return smaller;
    version_failed(version, version->entry->problem.text);
    return WORKER_LACKS;
}

enum worker_weights weights_have_at(struct weights *weights, const struct digest *model,
                                    struct worker_precision precision, uint32_t first_layer,
                                    uint32_t n_layers)
{
    const enum worker_weights stored = weights_have(weights, model, first_layer, n_layers);
    struct weights_version *version =
        precision.type ? version_find(weights, model, precision.type) : NULL;
    if (!precision.type || stored == WORKER_FETCHES || version_has_failed(version) ||
        (stored == WORKER_HAS_ALL && !precision.is_streamed))
        return stored;
    if (version && version->is_as_stored && stored != WORKER_HAS_ALL)
        return stored;
    return version_have(weights, model, version, first_layer, n_layers);
}

void weights_fetch_at(struct weights *weights, const struct digest *model,
                      struct worker_precision precision, uint32_t first_layer, uint32_t n_layers)
{
    struct weights_version *version =
        precision.type ? version_find(weights, model, precision.type) : NULL;
    struct weights_entry *original = weights_find(weights, model);
    if (weights_is_closing(weights))
        return;
    if (!precision.type || version_has_failed(version) ||
        (version && version->is_as_stored &&
         !weights_layers_are_here(original, first_layer, n_layers))) {
        weights_fetch(weights, model, first_layer, n_layers);
    } else if (!original || !weights_opened(original)) {
        weights_fetch(weights, model, 0, 0);
    } else if (!version) {
        version_make(original, precision.type);
    } else if (version->entry && (weights_layers_are_here(original, first_layer, n_layers) ||
                                  version_can_be_had(original))) {
        weights_fetch(weights, &version->entry->id, first_layer, n_layers);
    } else if (version->entry) {
        version_failed(version, "the nodes that have it are of a version that cannot convert");
        weights_fetch(weights, model, first_layer, n_layers);
    }
}

static bool version_holds(struct weights *weights, const struct digest *id,
                          const struct worker_range *ranges, uint32_t n)
{
    bool all = true;
    for (uint32_t i = 0; all && i < n; i++)
        all =
            weights_have(weights, id, ranges[i].first_layer, ranges[i].n_layers) == WORKER_HAS_ALL;
    return all;
}

const struct model *weights_model_at(struct weights *weights, const struct digest *model,
                                     struct worker_precision precision,
                                     const struct worker_range *ranges, uint32_t n_ranges,
                                     bool *is_smaller)
{
    const struct weights_version *version =
        precision.type ? version_find(weights, model, precision.type) : NULL;
    const bool has_version = version && version->entry && !version_has_failed(version);
    const bool is_here =
        has_version && version_holds(weights, &version->entry->id, ranges, n_ranges);
    const bool is_needed =
        has_version && (precision.is_streamed || !version_holds(weights, model, ranges, n_ranges));
    if (n_ranges) /* the smaller one first: it need not be converted again */
        *is_smaller = is_here || is_needed;
    if (!*is_smaller)
        return weights_model(weights, model);
    if (is_here)
        return weights_model(weights, &version->entry->id);
    /* some ranges are here in one file, and some in the other */
    for (uint32_t i = 0; has_version && i < n_ranges; i++)
        weights_fetch_at(weights, model, precision, ranges[i].first_layer, ranges[i].n_layers);
    return NULL;
}

void weights_release_at(struct weights *weights, const struct digest *model,
                        struct worker_precision precision, bool is_smaller)
{
    const struct weights_version *version =
        is_smaller ? version_find(weights, model, precision.type) : NULL;
    assert(!is_smaller || (version && version->entry));
    weights_release(weights, is_smaller ? &version->entry->id : model);
}
