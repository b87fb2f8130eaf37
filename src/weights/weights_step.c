/* What is next for a model that is wanted: look on the shelf, find its manifest, its header, its
 * layers. */
#include "weights/weights_state.h"

#include "base/clock.h"
#include "base/log.h"
#include "model/model.h"
#include "weights/manifest_layers.h"

#include <string.h>

/* ---- what is here ---------------------------------------------------------------------------- */

bool weights_layers_are_here(struct weights_entry *entry, uint32_t first_layer, uint32_t n_layers)
{
    const struct weights_file *file = weights_file_of(entry);
    const struct weights_shelved *here = &entry->here;
    if (file)
        return first_layer <= model_hyperparameters(file->model)->n_layers &&
               n_layers <= model_hyperparameters(file->model)->n_layers - first_layer;
    if (!here->model || !n_layers)
        return here->model;
    const struct manifest *manifest = shelf_model_manifest(here->shelf);
    struct part_set needs = {0};
    bool all = !part_set_init(&needs, manifest->n_parts, NULL) &&
               !manifest_add_layers(manifest, here->model, first_layer, n_layers, &needs, NULL);
    for (uint32_t i = 0; all && i < manifest->n_parts; i++)
        all = !part_set_has(&needs, i) || part_set_has(&here->has, i);
    part_set_deinit(&needs);
    return all;
}

/* The parts that are wanted and not here. */
static enum error_code find_missing(struct weights_entry *entry, struct part_set *out,
                                    struct error *err)
{
    const struct weights_shelved *here = &entry->here;
    const struct manifest *manifest = shelf_model_manifest(here->shelf);
    enum error_code code = part_set_init(out, manifest->n_parts, err);
    if (!code && here->is_dead)
        code = error_set(err, ERROR_UNSUPPORTED,
                         "its header is here, but this version of Medley cannot use it");
    if (!code)
        part_set_add(out, MANIFEST_HEADER);
    for (uint32_t i = 0; !code && here->model && i < LIMIT_LAYERS; i++) {
        if (part_set_has(&entry->layers, i))
            code = manifest_add_layers(manifest, here->model, i, 1, out, err);
    }
    for (uint32_t i = 0; !code && i < manifest->n_parts; i++) {
        if (part_set_has(&here->has, i))
            part_set_remove(out, i);
    }
    return code;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static void end_wanting(struct weights_entry *entry)
{
    entry->is_wanted = entry->is_spread = false;
    for (uint32_t i = 0; i < LIMIT_LAYERS; i++)
        part_set_remove(&entry->layers, i);
    weights_raise_changed(entry->weights);
}

static void set_problem(struct weights_entry *entry, const struct error *why)
{
    char name[DIGEST_TEXT];
    if (entry->is_spread) { /* it is not in the way of using the model here */
        entry->spread_ns = clock_now_ns();
        log_line(LOG_INFO, "weights", "no spare copy of model %.12s: %s",
                 digest_text(&entry->id, name), why->text);
        end_wanting(entry);
        return;
    }
    entry->problem = *why;
    entry->problem_ns = clock_now_ns();
    log_line(LOG_WARN, "weights", "model %.12s: %s", digest_text(&entry->id, name), why->text);
    end_wanting(entry);
    weights_wake_at(entry->weights, entry->problem_ns + LIMIT_WEIGHTS_RETRY_MS * 1000000ull);
}

/* Those who sent or announced a manifest of this size were wrong about it. */
static bool has_other_size(struct weights_entry *entry, uint64_t wrong)
{
    bool other = false;
    for (struct weights_holder *holder = entry->holders; holder; holder = holder->next) {
        holder->had_wrong_size |= holder->manifest_bytes == wrong;
        other |=
            holder->peer && holder->manifest_bytes && !holder->had_wrong_size && !holder->has_lied;
    }
    return other;
}

void weights_step_failed(struct weights_entry *entry, const struct error *why)
{
    struct weights_fetching *fetching = &entry->fetching;
    bool was_manifest = fetching->fetch && fetching->is_manifest;
    uint64_t size = was_manifest ? fetching->whole.size : 0;
    weights_fetch_stop(entry);
    if (was_manifest && has_other_size(entry, size)) {
        weights_step(entry);
        return;
    }
    if (entry->here.shelf)
        weights_shelf_keep(entry, true);
    set_problem(entry, why);
}

void weights_step_end(struct weights_entry *entry)
{
    weights_fetch_stop(entry);
    if (entry->here.shelf)
        weights_shelf_keep(entry, true);
    end_wanting(entry);
}

/* The first who says that it has the model decides what the manifest's size is taken for. */
static void weights_step_search(struct weights_entry *entry)
{
    for (struct weights_holder *holder = entry->holders; holder; holder = holder->next) {
        if (holder->peer && holder->manifest_bytes && !holder->had_wrong_size &&
            !holder->has_lied) {
            weights_fetch_begin_manifest(entry, holder->manifest_bytes);
            return;
        }
    }
    weights_wake_at(entry->weights, entry->fetching.since_ns + weights_search_ns(entry->weights));
}

static void fetch_missing(struct weights_entry *entry)
{
    struct weights_fetching *fetching = &entry->fetching;
    struct error err = {0};
    part_set_deinit(&fetching->wanted);
    if (find_missing(entry, &fetching->wanted, &err))
        weights_step_failed(entry, &err);
    else if (part_set_has(&entry->here.has, MANIFEST_HEADER) && !entry->here.model)
        weights_shelf_open_header(entry); /* which layers there are is in it */
    else if (part_set_count(&fetching->wanted))
        weights_shelf_reserve(entry);
    else
        end_wanting(entry);
}

void weights_step(struct weights_entry *entry)
{
    if (weights_is_closing(entry->weights) || !entry->is_wanted || entry->is_busy ||
        entry->fetching.fetch)
        return;
    if (weights_file_of(entry))
        end_wanting(entry);
    else if (entry->here.shelf)
        fetch_missing(entry);
    else if (entry->version)
        weights_version_put(entry);
    else if (!entry->was_looked)
        weights_shelf_look(entry, NULL);
    else
        weights_step_search(entry);
}

/* ---- time ------------------------------------------------------------------------------------ */

static void look_at_search(struct weights_entry *entry, uint64_t now_ns)
{
    const bool searches = entry->is_wanted && !entry->is_busy && !entry->fetching.fetch &&
                          entry->was_looked && !entry->here.shelf;
    uint64_t end_ns = entry->fetching.since_ns + weights_search_ns(entry->weights);
    struct error err = {0};
    if (!searches)
        return;
    if (now_ns < end_ns) {
        weights_wake_at(entry->weights, end_ns);
        return;
    }
    error_set(&err, ERROR_NOT_FOUND, "none of the %u nodes asked has this model", entry->n_holders);
    set_problem(entry, &err);
}

void weights_step_tick(struct weights_entry *entry, uint64_t now_ns)
{
    struct weights_fetching *fetching = &entry->fetching;
    weights_fetch_pump(entry);
    weights_version_weigh(entry, now_ns);
    look_at_search(entry, now_ns);
    uint64_t keep_ns = fetching->kept_ns + LIMIT_WEIGHTS_KEEP_MS * 1000000ull;
    if (fetching->n_unkept && now_ns >= keep_ns)
        weights_shelf_keep(entry, false);
    else if (fetching->n_unkept)
        weights_wake_at(entry->weights, keep_ns);
    uint64_t tell_ns = entry->told_ns + LIMIT_WEIGHTS_KEEP_MS * 1000000ull;
    if (entry->must_tell && now_ns >= tell_ns)
        weights_tell_all(entry);
    else if (entry->must_tell)
        weights_wake_at(entry->weights, tell_ns);
    uint64_t retry_ns = entry->problem_ns + LIMIT_WEIGHTS_RETRY_MS * 1000000ull;
    if (entry->problem.code && entry->problem_ns && now_ns >= retry_ns) {
        entry->problem_ns = 0; /* weights_have() says that it is lacking again */
        weights_raise_changed(entry->weights);
    } else if (entry->problem.code && entry->problem_ns) {
        weights_wake_at(entry->weights, retry_ns);
    }
}
