#include "weights/weights_state.h"

#include "base/clock.h"
#include "base/durable_file.h"
#include "base/log.h"
#include "model/model.h"

#include <stdio.h>
#include <string.h>

/* ---- models ---------------------------------------------------------------------------------- */

struct weights_entry *weights_find(struct weights *weights, const struct digest *id)
{
    for (struct weights_entry *entry = weights->entries; entry; entry = entry->next) {
        if (digest_equal(&entry->id, id))
            return entry;
    }
    return NULL;
}

struct weights_entry *weights_make(struct weights *weights, const struct digest *id)
{
    struct weights_entry *entry = weights_find(weights, id);
    if (entry || weights->n_entries == LIMIT_WEIGHTS_MODELS)
        return entry;
    entry = mem_new(sizeof *entry);
    if (!entry || part_set_init(&entry->layers, LIMIT_LAYERS, NULL)) {
        mem_free(entry);
        return NULL;
    }
    entry->weights = weights;
    entry->id = *id;
    entry->next = weights->entries;
    weights->entries = entry;
    weights->n_entries++;
    return entry;
}

static void weights_free_entry(struct weights_entry *entry)
{
    struct weights_fetching *fetching = &entry->fetching;
    while (entry->holders) {
        struct weights_holder *next = entry->holders->next;
        part_set_deinit(&entry->holders->has);
        mem_free(entry->holders);
        entry->holders = next;
    }
    fetch_free(fetching->fetch);
    manifest_deinit(&fetching->whole);
    buffer_deinit(&fetching->bytes);
    part_set_deinit(&fetching->wanted);
    mem_free(fetching->unkept);
    weights_shelved_close(&entry->here);
    part_set_deinit(&entry->layers);
    part_set_deinit(&entry->checked);
    mem_free(entry);
}

const struct model *weights_opened(struct weights_entry *entry)
{
    const struct weights_file *file = weights_file_of(entry);
    return file ? file->model : entry->here.model;
}

bool weights_fill_facts(struct weights_entry *entry, struct weights_facts *out)
{
    const struct weights_file *file = weights_file_of(entry);
    const struct model *model = file ? file->model : entry->here.model;
    *out = (struct weights_facts){.model = entry->id};
    if (!model)
        return false;
    const struct manifest *manifest =
        file ? &file->manifest : shelf_model_manifest(entry->here.shelf);
    out->bytes = manifest->size;
    snprintf(out->name, sizeof out->name, "%s",
             manifest->name[0] ? manifest->name : model_name(model));
    out->n_layers = model_hyperparameters(model)->n_layers;
    snprintf(out->architecture, sizeof out->architecture, "%s", model_architecture(model)->name);
    return true;
}

/* ---- what the owner asks --------------------------------------------------------------------- */

static bool wants_layers(const struct weights_entry *entry, uint32_t first_layer, uint32_t n_layers)
{
    bool all = entry->is_wanted && !entry->is_spread && first_layer <= LIMIT_LAYERS &&
               n_layers <= LIMIT_LAYERS - first_layer;
    for (uint32_t i = 0; all && i < n_layers; i++)
        all = part_set_has(&entry->layers, first_layer + i);
    return all;
}

enum worker_weights weights_have(struct weights *weights, const struct digest *model,
                                 uint32_t first_layer, uint32_t n_layers)
{
    struct weights_entry *entry = weights_find(weights, model);
    if (!entry)
        return WORKER_LACKS;
    entry->touched_ns = clock_now_ns();
    if (weights_layers_are_here(entry, first_layer, n_layers))
        return WORKER_HAS_ALL;
    if (entry->is_busy && !entry->here.shelf)
        return WORKER_FETCHES; /* it is being looked at */
    if (entry->problem.code)
        return entry->touched_ns - entry->problem_ns < LIMIT_WEIGHTS_RETRY_MS * 1000000ull
                   ? WORKER_CANNOT_FETCH
                   : WORKER_LACKS;
    return wants_layers(entry, first_layer, n_layers) ? WORKER_FETCHES : WORKER_LACKS;
}

double weights_share(struct weights *weights, const struct digest *model)
{
    const struct weights_entry *entry = weights_find(weights, model);
    if (!entry || entry->file || !entry->here.shelf)
        return entry && entry->file ? 1 : 0;
    const struct manifest *manifest = shelf_model_manifest(entry->here.shelf);
    uint64_t kept = 0, all = 0;
    for (uint32_t i = 0; i < manifest->n_parts; i++) {
        all += manifest->parts[i].size;
        kept += part_set_has(&entry->here.has, i) ? manifest->parts[i].size : 0;
    }
    return all ? (double)kept / (double)all : 0;
}

static void forget_problem(struct weights_entry *entry)
{
    if (!entry->problem.code)
        return;
    entry->problem = (struct error){0};
    for (struct weights_holder *holder = entry->holders; holder; holder = holder->next)
        holder->has_lied = holder->had_wrong_size = false;
}

void weights_fetch(struct weights *weights, const struct digest *model, uint32_t first_layer,
                   uint32_t n_layers)
{
    char name[DIGEST_TEXT];
    struct weights_entry *entry = weights_make(weights, model);
    if (!entry || weights_is_closing(weights)) {
        log_line(LOG_WARN, "weights", "cannot fetch %.12s: out of memory, or more than %d models",
                 digest_text(model, name), LIMIT_WEIGHTS_MODELS);
        return;
    }
    entry->touched_ns = clock_now_ns();
    if (weights_layers_are_here(entry, first_layer, n_layers))
        return;
    forget_problem(entry);
    weights_spread_hurry(entry);
    for (uint32_t i = first_layer; i < LIMIT_LAYERS && i - first_layer < n_layers; i++)
        part_set_add(&entry->layers, i);
    if (!entry->is_wanted) {
        entry->is_wanted = true;
        entry->fetching.since_ns = entry->touched_ns;
        for (struct weights_peer *peer = weights->peers; peer; peer = peer->next)
            weights_ask_have(peer, entry);
    }
    weights_step(entry);
}

const char *weights_problem(struct weights *weights, const struct digest *model)
{
    const struct weights_entry *entry = weights_find(weights, model);
    return entry && entry->problem.code ? entry->problem.text : NULL;
}

struct fetch_progress weights_progress(struct weights *weights, const struct digest *model)
{
    const struct weights_entry *entry = weights_find(weights, model);
    if (entry && entry->fetching.fetch)
        return fetch_progress(entry->fetching.fetch);
    return entry ? weights_version_progress(entry) : (struct fetch_progress){0};
}

const struct model *weights_model(struct weights *weights, const struct digest *model)
{
    struct weights_entry *entry = weights_find(weights, model);
    const struct model *opened = entry ? weights_opened(entry) : NULL;
    if (opened)
        entry->n_users++;
    return opened;
}

void weights_release(struct weights *weights, const struct digest *model)
{
    struct weights_entry *entry = weights_find(weights, model);
    assert(entry && entry->n_users);
    entry->n_users--;
    entry->touched_ns = clock_now_ns();
}

uint32_t weights_list(struct weights *weights, struct weights_facts *out, uint32_t n)
{
    uint32_t count = 0;
    for (struct weights_entry *entry = weights->entries; entry; entry = entry->next) {
        struct weights_facts facts;
        if (!weights_fill_facts(entry, &facts))
            continue;
        if (count < n)
            out[count] = facts;
        count++;
    }
    return count;
}

struct weights_counts weights_counts(const struct weights *weights)
{
    return weights->counts;
}

/* ---- time ------------------------------------------------------------------------------------ */

static void weights_on_timer(uv_timer_t *timer)
{
    struct weights *weights = timer->data;
    uint64_t now_ns = clock_now_ns();
    weights->wake_ns = UINT64_MAX;
    if (weights_is_closing(weights)) {
        weights_close_when_done(weights);
        return;
    }
    for (struct weights_entry *entry = weights->entries; entry; entry = entry->next)
        weights_step_tick(entry, now_ns);
    bool has_changed = weights->has_changed;
    weights->has_changed = false;
    if (has_changed && weights->options.changed)
        weights->options.changed(weights->options.self);
}

void weights_wake_at(struct weights *weights, uint64_t at_ns)
{
    if (weights->timer_closed || at_ns >= weights->wake_ns)
        return;
    uint64_t now_ns = clock_now_ns();
    weights->wake_ns = at_ns;
    uv_update_time(weights->options.loop);
    uv_timer_start(&weights->timer, weights_on_timer,
                   at_ns > now_ns ? (at_ns - now_ns + 999999) / 1000000 : 0, 0);
}

void weights_raise_changed(struct weights *weights)
{
    weights->has_changed = true;
    weights_wake_at(weights, 0);
}

/* ---- opening and closing --------------------------------------------------------------------- */

static enum error_code set_paths(struct weights *weights, const char *folder, struct error *err)
{
    char models[PATH_MAX];
    const struct shelf_options options = {weights->options.limit_bytes,
                                          weights->options.spare_bytes};
    enum error_code code = durable_path(folder, "manifests", "", weights->manifests, err);
    if (!code)
        code = durable_path(folder, "files", "", weights->files_path, err);
    if (!code)
        code = durable_path(folder, "models", "", models, err);
    return code ? code : shelf_open(models, &options, &weights->shelf, err);
}

enum error_code weights_open(const struct weights_options *options, struct weights **out,
                             struct error *err)
{
    *out = NULL;
    struct weights *weights = mem_new(sizeof *weights);
    if (!weights)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for the weights");
    weights->options = *options;
    if (!weights->options.patience_ms)
        weights->options.patience_ms = LIMIT_FETCH_PATIENCE_MS;
    weights->wake_ns = UINT64_MAX;
    weights->lane_last = &weights->lane_first;
    weights->verify_last = &weights->verify_first;
    weights->adding_last = &weights->adding_first;
    weights->answers_last = &weights->answers;
    enum error_code code = set_paths(weights, options->folder, err);
    if (code) {
        mem_free(weights);
        return error_wrap(err, "the folder for weights");
    }
    uv_timer_init(options->loop, &weights->timer);
    weights->timer.data = weights;
    weights_shelf_look_at_all(weights);
    weights_files_load(weights);
    for (struct link *link = NULL; options->mesh && (link = mesh_next(options->mesh, link));)
        weights_up(weights, link);
    *out = weights;
    return ERROR_NONE;
}

static void weights_on_closed(uv_handle_t *timer)
{
    struct weights *weights = timer->data;
    void (*closed)(void *) = weights->closed;
    void *arg = weights->arg;
    assert(!weights->n_jobs && !weights->answers && !weights->asks);
    weights_files_free(weights);
    weights_versions_free(weights);
    while (weights->entries) {
        struct weights_entry *next = weights->entries->next;
        weights_free_entry(weights->entries);
        weights->entries = next;
    }
    while (weights->peers) {
        struct weights_peer *next = weights->peers->next;
        buffer_deinit(&weights->peers->outbox);
        mem_free(weights->peers);
        weights->peers = next;
    }
    while (weights->spare) {
        struct weights_write *next = weights->spare->next;
        mem_free(weights->spare);
        weights->spare = next;
    }
    shelf_close(weights->shelf);
    mem_free(weights);
    if (closed)
        closed(arg);
}

/* Links that still write into our memory, or read from it, when the time is over. */
static void abort_links(struct weights *weights)
{
    const struct error why = {ERROR_CANCELLED, "this node is stopping"};
    weights->aborts = true;
    for (struct weights_peer *peer = weights->peers; peer; peer = peer->next) {
        if (peer->receiving || peer->n_asked)
            link_abort(peer->link, &why);
    }
}

void weights_close_when_done(struct weights *weights)
{
    if (!weights_is_closing(weights) || weights->timer_closed)
        return;
    bool is_done = !weights->n_jobs && !weights->answers;
    for (struct weights_peer *peer = weights->peers; is_done && peer; peer = peer->next)
        is_done = !peer->receiving;
    if (is_done) {
        weights->timer_closed = true;
        uv_close((uv_handle_t *)&weights->timer, weights_on_closed);
        return;
    }
    uint64_t end_ns = weights->close_ns + LIMIT_WEIGHTS_CLOSE_MS * 1000000ull;
    if (clock_now_ns() < end_ns)
        weights_wake_at(weights, end_ns);
    else if (!weights->aborts)
        abort_links(weights);
}

void weights_close(struct weights *weights, void (*closed)(void *arg), void *arg)
{
    if (!weights)
        return;
    weights->closed = closed;
    weights->arg = arg;
    weights->close_ns = clock_now_ns();
    for (struct weights_entry *entry = weights->entries; entry; entry = entry->next) {
        weights_fetch_stop(entry);
        if (entry->fetching.n_unkept)
            weights_shelf_keep(entry, false);
    }
    atomic_store(&weights->closing, true);
    weights_serve_go_on(weights); /* these two drop what waits */
    weights_shelf_verify_next(weights);
    weights->wake_ns = UINT64_MAX;
    weights_close_when_done(weights);
}
