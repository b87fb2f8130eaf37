/* Jobs that open and change the shelf: all in the lane, so that the shelf has one thread at a
 * time. */
#include "weights/weights_state.h"

#include "base/clock.h"
#include "base/log.h"
#include "model/model.h"

#include <string.h>

/* ---- a model's files ------------------------------------------------------------------------- */

void weights_shelved_close(struct weights_shelved *shelved)
{
    model_close(shelved->model);
    weight_source_deinit(&shelved->source);
    shelf_model_close(shelved->shelf);
    part_set_deinit(&shelved->has);
    *shelved = (struct weights_shelved){0};
}

enum error_code weights_shelved_open_header(struct weights_shelved *shelved, struct error *err)
{
    struct error own;
    err = err ? err : &own;
    const enum error_code code = model_open(shelf_model_path(shelved->shelf), &shelved->model, err);
    shelved->is_dead = code == ERROR_INVALID || code == ERROR_UNSUPPORTED;
    if (code)
        log_line(LOG_WARN, "weights", "cannot use a fetched model%s: %s",
                 shelved->is_dead ? "" : " now", err->text);
    return code;
}

static enum error_code copy_has(struct weights_shelved *shelved, struct error *err)
{
    const struct part_set *has = shelf_model_has(shelved->shelf);
    enum error_code code = part_set_init(&shelved->has, has->n_parts, err);
    for (uint32_t i = 0; !code && i < has->n_parts; i++) {
        if (part_set_has(has, i))
            part_set_add(&shelved->has, i);
    }
    return code;
}

enum error_code weights_shelved_open(struct shelf *shelf, const struct digest *id,
                                     const struct buffer *bytes, struct weights_shelved *out,
                                     struct error *err)
{
    struct manifest manifest;
    *out = (struct weights_shelved){0};
    enum error_code code = bytes->size ? manifest_read(bytes->data, bytes->size, &manifest, err)
                                       : shelf_manifest(shelf, id, &manifest, err);
    if (code)
        return code;
    code = shelf_model_open(shelf, &manifest, &out->shelf, err);
    manifest_deinit(&manifest);
    if (!code)
        code = weight_source_of_shelf(out->shelf, &out->source, err);
    if (!code)
        code = copy_has(out, err);
    if (!code && part_set_has(&out->has, MANIFEST_HEADER))
        weights_shelved_open_header(out, NULL);
    if (code)
        weights_shelved_close(out);
    return code;
}

/* ---- looking --------------------------------------------------------------------------------- */

struct look {
    struct weights_job job;
    struct weights_entry *entry;
    struct buffer manifest;
    struct weights_shelved found;
};

static void run_look(struct weights_job *job)
{
    struct look *look = (struct look *)job;
    weights_shelved_open(job->weights->shelf, &look->entry->id, &look->manifest, &look->found,
                         &job->err);
}

static void look_done(struct weights_job *job)
{
    struct look *look = (struct look *)job;
    struct weights_entry *entry = look->entry;
    const struct error err = job->err;
    entry->here = look->found;
    entry->is_busy = false;
    entry->was_looked = true;
    entry->must_tell = entry->here.shelf;
    buffer_deinit(&look->manifest);
    mem_free(look);
    if (weights_is_closing(entry->weights))
        return;
    weights_raise_changed(entry->weights);
    if (!err.code || err.code == ERROR_NOT_FOUND)
        weights_step(entry);
    else if (entry->is_wanted)
        weights_step_failed(entry, &err);
    else
        log_line(LOG_WARN, "weights", "leaving a fetched model alone: %s", err.text);
}

void weights_shelf_look(struct weights_entry *entry, struct buffer *manifest)
{
    struct look *look = mem_new(sizeof *look);
    if (!look) {
        struct error err;
        error_set(&err, ERROR_NO_MEMORY, "out of memory");
        if (manifest)
            buffer_deinit(manifest);
        weights_step_failed(entry, &err);
        return;
    }
    look->entry = entry;
    if (manifest)
        look->manifest = *manifest;
    entry->is_busy = true;
    look->job.run = run_look;
    look->job.done = look_done;
    weights_lane_add(entry->weights, &look->job);
}

void weights_shelf_look_at_all(struct weights *weights)
{
    struct digest *all = mem_new_array(LIMIT_SHELF_MODELS, sizeof *all);
    uint32_t n = all ? shelf_list(weights->shelf, all, LIMIT_SHELF_MODELS) : 0;
    for (uint32_t i = 0; i < n && i < LIMIT_SHELF_MODELS; i++) {
        struct weights_entry *entry = weights_make(weights, &all[i]);
        if (entry)
            weights_shelf_look(entry, NULL);
    }
    mem_free(all);
}

/* ---- room ------------------------------------------------------------------------------------ */

struct lent { /* a model that may go */
    struct weights_entry *entry;
    struct weights_shelved shelved;
};

struct reserve {
    struct weights_job job;
    struct weights_entry *entry;
    struct lent *lent;
    uint32_t n_lent;
    bool has_lent; /* the second attempt */
};

/* Models that are open are not evicted: those that may go are closed for as long as room is
 * made. */
static void run_reserve(struct weights_job *job)
{
    struct reserve *reserve = (struct reserve *)job;
    static const struct buffer none;
    for (uint32_t i = 0; i < reserve->n_lent; i++)
        weights_shelved_close(&reserve->lent[i].shelved);
    shelf_model_reserve(reserve->entry->here.shelf, &reserve->entry->fetching.wanted, &job->err);
    for (uint32_t i = 0; i < reserve->n_lent; i++) {
        struct lent *lent = &reserve->lent[i];
        weights_shelved_open(job->weights->shelf, &lent->entry->id, &none, &lent->shelved, NULL);
    }
}

static void weights_shelf_give_back(struct reserve *reserve)
{
    for (uint32_t i = 0; i < reserve->n_lent; i++) {
        struct weights_entry *entry = reserve->lent[i].entry;
        entry->here = reserve->lent[i].shelved;
        entry->is_busy = false;
        weights_step(entry); /* it may have been asked for meanwhile */
    }
    if (reserve->n_lent)
        weights_raise_changed(reserve->job.weights);
    mem_free(reserve->lent);
    reserve->lent = NULL;
    reserve->n_lent = 0;
}

static bool may_go(const struct weights_entry *entry, uint64_t now_ns)
{
    return entry->here.shelf && !entry->is_busy && !entry->n_jobs && !entry->n_users &&
           !entry->n_serving && !entry->is_wanted && !entry->fetching.fetch &&
           now_ns - entry->touched_ns >= LIMIT_WEIGHTS_IDLE_MS * 1000000ull;
}

static void weights_shelf_lend(struct reserve *reserve)
{
    struct weights *weights = reserve->job.weights;
    uint64_t now_ns = clock_now_ns();
    reserve->has_lent = true;
    reserve->lent = mem_new_array(weights->n_entries, sizeof *reserve->lent);
    for (struct weights_entry *entry = weights->entries; entry && reserve->lent;
         entry = entry->next) {
        if (!may_go(entry, now_ns))
            continue;
        reserve->lent[reserve->n_lent++] = (struct lent){entry, entry->here};
        entry->here = (struct weights_shelved){0};
        entry->is_busy = true;
    }
}

static void reserve_done(struct weights_job *job)
{
    struct reserve *reserve = (struct reserve *)job;
    struct weights_entry *entry = reserve->entry;
    struct error err = job->err;
    weights_shelf_give_back(reserve);
    bool is_full = err.code == ERROR_BUSY || err.code == ERROR_IO;
    if (is_full && !reserve->has_lent && !entry->is_spread && !weights_is_closing(job->weights)) {
        weights_shelf_lend(reserve);
        if (reserve->n_lent) {
            job->err = (struct error){0};
            weights_lane_add(job->weights, job);
            return;
        }
        weights_shelf_give_back(reserve);
    }
    mem_free(reserve);
    entry->is_busy = false;
    if (weights_is_closing(entry->weights))
        return;
    if (err.code) {
        weights_step_failed(entry, &err);
    } else if (weights_file_of(entry)) { /* added meanwhile */
        weights_shelf_keep(entry, true);
        weights_step(entry);
    } else {
        weights_fetch_begin(entry);
    }
}

void weights_shelf_reserve(struct weights_entry *entry)
{
    struct reserve *reserve = mem_new(sizeof *reserve);
    if (!reserve) {
        struct error err;
        error_set(&err, ERROR_NO_MEMORY, "out of memory");
        weights_step_failed(entry, &err);
        return;
    }
    reserve->entry = entry;
    entry->is_busy = true;
    reserve->job.run = run_reserve;
    reserve->job.done = reserve_done;
    weights_lane_add(entry->weights, &reserve->job);
}

/* ---- a header that could not be opened for want of memory ------------------------------------ */

struct opening {
    struct weights_job job;
    struct weights_entry *entry;
    struct weights_shelved opened; /* the entry's shelf, and the model that is opened here */
};

static void run_opening(struct weights_job *job)
{
    weights_shelved_open_header(&((struct opening *)job)->opened, &job->err);
}

static void opening_done(struct weights_job *job)
{
    struct opening *opening = (struct opening *)job;
    struct weights_entry *entry = opening->entry;
    const struct error err = job->err;
    entry->is_busy = false;
    entry->here.model = opening->opened.model;
    entry->here.is_dead = opening->opened.is_dead;
    mem_free(opening);
    if (weights_is_closing(entry->weights))
        return;
    if (err.code)
        weights_step_failed(entry, &err); /* which is tried again after a while */
    else
        weights_step(entry);
}

void weights_shelf_open_header(struct weights_entry *entry)
{
    struct opening *opening = mem_new(sizeof *opening);
    if (!opening) {
        weights_step_failed(entry, &(struct error){ERROR_NO_MEMORY, "out of memory"});
        return;
    }
    opening->entry = entry;
    opening->opened.shelf = entry->here.shelf;
    opening->job.run = run_opening;
    opening->job.done = opening_done;
    opening->job.must_run = true;
    entry->is_busy = true;
    weights_lane_add(entry->weights, &opening->job);
}

/* ---- recording what is verified -------------------------------------------------------------- */

struct keep {
    struct weights_job job;
    struct weights_entry *entry;
    uint32_t *parts;
    uint32_t n_parts;
    bool opens_header, trim;
    struct weights_shelved opened; /* the entry's shelf, and the model that is opened here */
};

static void run_keep(struct weights_job *job)
{
    struct keep *keep = (struct keep *)job;
    struct shelf_model *shelf = keep->opened.shelf;
    if (keep->n_parts)
        shelf_model_keep(shelf, keep->parts, keep->n_parts, &job->err);
    if (!job->err.code && keep->opens_header)
        weights_shelved_open_header(&keep->opened, NULL);
    if (keep->trim)
        shelf_model_trim(shelf, NULL);
}

static void take_kept(struct keep *keep)
{
    struct weights_entry *entry = keep->entry;
    for (uint32_t i = 0; i < keep->n_parts; i++)
        part_set_add(&entry->here.has, keep->parts[i]);
    if (keep->opens_header) {
        entry->here.model = keep->opened.model;
        entry->here.is_dead = keep->opened.is_dead;
    }
    entry->must_tell |= keep->n_parts > 0;
}

static void keep_done(struct weights_job *job)
{
    struct keep *keep = (struct keep *)job;
    struct weights_entry *entry = keep->entry;
    const struct error err = job->err;
    entry->n_jobs--;
    entry->fetching.n_keeping--;
    if (!err.code)
        take_kept(keep);
    mem_free(keep->parts);
    mem_free(keep);
    if (weights_is_closing(entry->weights))
        return;
    weights_raise_changed(entry->weights);
    if (err.code)
        weights_step_failed(entry, &err);
    else
        weights_fetch_kept(entry);
}

void weights_shelf_keep(struct weights_entry *entry, bool trim)
{
    struct weights_fetching *fetching = &entry->fetching;
    struct keep *keep = mem_new(sizeof *keep);
    if (!keep)
        return; /* tried again at the next tick; what is not recorded would be fetched again */
    keep->entry = entry;
    keep->opened.shelf = entry->here.shelf;
    keep->parts = fetching->unkept;
    keep->n_parts = fetching->n_unkept;
    keep->trim = trim;
    for (uint32_t i = 0; i < keep->n_parts; i++)
        keep->opens_header |= keep->parts[i] == MANIFEST_HEADER;
    fetching->unkept =
        mem_new_array(shelf_model_manifest(entry->here.shelf)->n_parts, sizeof *fetching->unkept);
    if (!fetching->unkept) {
        fetching->unkept = keep->parts;
        mem_free(keep);
        return;
    }
    fetching->n_unkept = 0;
    fetching->unkept_bytes = 0;
    fetching->kept_ns = clock_now_ns();
    fetching->n_keeping++;
    entry->n_jobs++;
    keep->job.run = run_keep;
    keep->job.done = keep_done;
    keep->job.must_run = true;
    weights_lane_add(entry->weights, &keep->job);
}
