#include "gathering/gather_work.h"

#include "base/mem.h"
#include "hub/hub.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum gather_state { UNIT_WANTED, UNIT_HERE, UNIT_HASHED, UNIT_TOLD };

struct gather_held {
    struct gather_wanted wanted;
    enum gather_state state;
    struct digest digest;
};

struct gather_work {
    struct gather_file file;
    struct pull_wish wish;
    char path[PATH_MAX];
    uint32_t index; /* of the model's files */
    pthread_t puller, hasher;
    bool has_puller, has_hasher;
    pthread_mutex_t lock; /* guards what is below */
    pthread_cond_t changed;
    struct gather_held *held;
    uint32_t n_held;
    bool has_changed; /* the units have, since the puller looked */
    bool releases;
    bool has_looked, told_look;
    uint32_t n_ranges; /* has_looked: what was here then */
    struct gather_range ranges[GATHER_RANGES];
    uint64_t here, bytes_per_s;
    bool has_step, step_is_done; /* one was asked for; and its answer is there */
    struct gather_step step;
    bool puller_ended, hasher_ended, is_stopping;
    struct error problem;
};

/* ---- what may be asked for ------------------------------------------------------------------- */

enum error_code gather_file_check(const struct gather_file *file, struct error *err)
{
    struct hub_name name;
    enum error_code code = hub_name_parse(file->name, &name, err);
    if (code)
        return code;
    if ((name.kind != HUB_HF && name.kind != HUB_OLLAMA) || name.host[0])
        return error_set(err, ERROR_INVALID, "only models of the usual hubs are gathered");
    if (!file->bytes || file->bytes > PULL_FILE_BYTES)
        return error_set(err, ERROR_INVALID, "a model of %llu bytes is not gathered",
                         (unsigned long long)file->bytes);
    return ERROR_NONE;
}

static void gather_work_fail(struct gather_work *work, const struct error *err)
{
    pthread_mutex_lock(&work->lock);
    if (!work->problem.code)
        work->problem = *err;
    pthread_mutex_unlock(&work->lock);
}

/* ---- fetching -------------------------------------------------------------------------------- */

/* Bytes of [from, to) that are here. */
static uint64_t gather_bytes_here(const struct pull_state *state, uint64_t from, uint64_t to)
{
    uint64_t here = 0;
    for (uint64_t piece = from / state->piece; piece * state->piece < to; piece++) {
        const uint64_t begin = piece * state->piece, end = begin + state->have[piece];
        const uint64_t low = begin > from ? begin : from, high = end < to ? end : to;
        here += high > low ? high - low : 0;
    }
    return here;
}

/* What is still to come, at most. */
static uint64_t gather_lacking(const struct gather_work *work)
{
    char part[PATH_MAX + 8];
    struct stat here;
    uint64_t bytes = 0;
    snprintf(part, sizeof part, "%s" PULLED_PART, work->path);
    const uint64_t there = stat(part, &here) == 0 ? (uint64_t)here.st_blocks * 512 : 0;
    for (uint32_t i = 0; i < work->n_held; i++)
        bytes += work->held[i].wanted.unit.end - work->held[i].wanted.unit.offset;
    return bytes > there ? bytes - there : 0;
}

/* What an earlier gathering, or a pull, has left. */
static void gather_look_here(struct gather_work *work, const struct pull_state *state)
{
    work->has_looked = true;
    for (uint32_t i = 0; i < state->n_pieces; i++) {
        const uint64_t from = i * state->piece, to = from + state->have[i];
        struct gather_range *last = work->n_ranges ? &work->ranges[work->n_ranges - 1] : NULL;
        if (from == to)
            continue;
        if (last && last->to == from)
            last->to = to;
        else if (work->n_ranges < GATHER_RANGES)
            work->ranges[work->n_ranges++] = (struct gather_range){from, to};
    }
}

static void gather_wish(struct gather_work *work, const struct pull_state *state)
{
    for (uint32_t i = 0; i < PULL_PIECES; i++)
        atomic_store(&work->wish.wanted[i], 0);
    for (uint32_t i = 0; i < work->n_held; i++) {
        const struct gather_unit *unit = &work->held[i].wanted.unit;
        for (uint64_t piece = unit->offset / state->piece;
             piece * state->piece < unit->end && piece < state->n_pieces; piece++)
            atomic_store(&work->wish.wanted[piece], 1);
    }
    work->has_changed = false;
    if (!work->problem.code)
        pull_check_room(work->path, gather_lacking(work), &work->problem);
}

/* On the puller's thread. */
static void gather_on_pulled(void *arg, const struct pull_state *state, double bytes_per_s)
{
    struct gather_work *work = arg;
    uint64_t here = 0;
    bool wakes = false;
    pthread_mutex_lock(&work->lock);
    if (!work->has_looked)
        gather_look_here(work, state);
    if (work->has_changed)
        gather_wish(work, state);
    for (uint32_t i = 0; i < work->n_held; i++) {
        struct gather_held *held = &work->held[i];
        const struct gather_unit *unit = &held->wanted.unit;
        const uint64_t of_it = gather_bytes_here(state, unit->offset, unit->end);
        here += of_it;
        if (held->state == UNIT_WANTED && of_it == unit->end - unit->offset) {
            held->state = UNIT_HERE;
            wakes = true;
        }
    }
    work->here = here;
    work->bytes_per_s = bytes_per_s > 0 ? (uint64_t)bytes_per_s : 0;
    if (wakes)
        pthread_cond_broadcast(&work->changed);
    pthread_mutex_unlock(&work->lock);
}

/* Which of the model's files is meant: names of a hub say it. */
static uint32_t gather_find_index(const struct hub_list *list)
{
    const struct hub_model_entry *model = &list->models[0];
    for (uint32_t i = 0; i < model->n_files; i++) {
        if (strcmp(list->files.files[model->files[i]].path, list->name.file) == 0)
            return i;
    }
    return 0;
}

/* The hub's own list says what the file is, to this machine too. */
static enum error_code gather_find(struct gather_work *work, struct hub_list *list,
                                   struct error *err)
{
    struct hub_name name;
    const struct hub_settings settings = {.stop = &work->wish.stop,
                                          .connections = work->file.connections};
    const struct hub_file *file;
    char text[DIGEST_TEXT];
    enum error_code code = hub_name_parse(work->file.name, &name, err);
    if (!code)
        code = hub_list(&name, &settings, list, err);
    if (!code && list->n_models != 1)
        code = error_set(err, ERROR_INVALID, "%s means several models", work->file.name);
    if (!code)
        work->index = gather_find_index(list);
    if (!code)
        code = hub_model_file(list, 0, work->index, &file, work->path, err);
    if (!code && (file->size != work->file.bytes ||
                  strcasecmp(file->sha256, digest_text(&work->file.whole, text)) != 0))
        code = error_set(err, ERROR_INVALID, "this machine's hub has another %s", file->path);
    return code;
}

static void *gather_puller_main(void *arg)
{
    struct gather_work *work = arg;
    struct hub_list list = {0};
    struct error err = {0};
    enum error_code code = gather_find(work, &list, &err);
    if (!code)
        code = hub_pull_some(&list, 0, work->index, &work->wish, &err);
    if (code && !atomic_load(&work->wish.stop))
        gather_work_fail(work, &err);
    hub_list_deinit(&list);
    pthread_mutex_lock(&work->lock);
    work->puller_ended = true;
    pthread_mutex_unlock(&work->lock);
    return NULL;
}

/* ---- hashing --------------------------------------------------------------------------------- */

static bool gather_goes_on(void *arg, uint64_t bytes)
{
    (void)bytes;
    return !atomic_load(&((struct gather_work *)arg)->wish.stop);
}

static uint32_t gather_unhashed(const struct gather_work *work)
{
    uint32_t i = 0;
    while (i < work->n_held && work->held[i].state != UNIT_HERE)
        i++;
    return i;
}

static enum error_code gather_hash_unit(struct gather_work *work, int fd, struct error *err)
{
    struct digest digest;
    pthread_mutex_lock(&work->lock);
    const uint32_t at = gather_unhashed(work);
    struct gather_wanted wanted = {0};
    if (at < work->n_held)
        wanted = work->held[at].wanted;
    pthread_mutex_unlock(&work->lock);
    if (!wanted.unit.size)
        return ERROR_NONE;
    const enum error_code code =
        digest_file(fd, wanted.unit.offset, wanted.unit.size, gather_goes_on, work, &digest, err);
    pthread_mutex_lock(&work->lock);
    for (uint32_t i = 0; !code && i < work->n_held; i++) { /* the list may be another by now */
        struct gather_held *held = &work->held[i];
        if (held->wanted.index != wanted.index || held->state != UNIT_HERE)
            continue;
        held->state = UNIT_HASHED;
        held->digest = digest;
    }
    pthread_mutex_unlock(&work->lock);
    return code;
}

static enum error_code gather_hash_step(struct gather_work *work, int fd, struct error *err)
{
    pthread_mutex_lock(&work->lock);
    struct gather_step step = work->step;
    pthread_mutex_unlock(&work->lock);
    const enum error_code code = digest_chain_add_file(
        &step.chain, fd, step.from, step.to - step.from, gather_goes_on, work, err);
    pthread_mutex_lock(&work->lock);
    work->step = step;
    work->step_is_done = !code;
    pthread_mutex_unlock(&work->lock);
    return code;
}

static bool gather_has_to_hash(const struct gather_work *work)
{
    return (work->has_step && !work->step_is_done) || gather_unhashed(work) < work->n_held;
}

static enum error_code gather_open_part(const struct gather_work *work, int *fd, struct error *err)
{
    char part[PATH_MAX + 8];
    snprintf(part, sizeof part, "%s" PULLED_PART, work->path);
    *fd = *fd < 0 ? open(part, O_RDONLY | O_CLOEXEC) : *fd;
    return *fd < 0 ? error_set(err, ERROR_IO, "%s: %s", part, strerror(errno)) : ERROR_NONE;
}

static void *gather_hasher_main(void *arg)
{
    struct gather_work *work = arg;
    struct error err = {0};
    enum error_code code = ERROR_NONE;
    int fd = -1;
    while (!code) {
        pthread_mutex_lock(&work->lock);
        while (!work->is_stopping && !gather_has_to_hash(work))
            pthread_cond_wait(&work->changed, &work->lock);
        const bool stops = work->is_stopping, steps = work->has_step && !work->step_is_done;
        pthread_mutex_unlock(&work->lock);
        if (stops)
            break;
        code = gather_open_part(work, &fd, &err);
        if (!code)
            code = steps ? gather_hash_step(work, fd, &err) : gather_hash_unit(work, fd, &err);
    }
    if (code && code != ERROR_CANCELLED)
        gather_work_fail(work, &err);
    if (fd >= 0)
        close(fd);
    pthread_mutex_lock(&work->lock);
    work->hasher_ended = true;
    pthread_mutex_unlock(&work->lock);
    return NULL;
}

/* ---- its owner's calls ----------------------------------------------------------------------- */

enum error_code gather_work_open(const struct gather_file *file, struct gather_work **out,
                                 struct error *err)
{
    *out = NULL;
    enum error_code code = gather_file_check(file, err);
    struct gather_work *work = code ? NULL : mem_new(sizeof *work);
    if (!work)
        return code ? code : error_set(err, ERROR_NO_MEMORY, "not enough memory to gather");
    work->file = *file;
    work->wish.each = gather_on_pulled;
    work->wish.arg = work;
    pthread_mutex_init(&work->lock, NULL);
    pthread_cond_init(&work->changed, NULL);
    *out = work;
    return ERROR_NONE;
}

static bool gather_is_in_file(const struct gather_work *work, const struct gather_wanted *wanted)
{
    const struct gather_unit *unit = &wanted->unit;
    return wanted->index < GATHER_UNITS && unit->size && unit->end <= work->file.bytes &&
           unit->offset < unit->end && unit->size <= unit->end - unit->offset;
}

/* Lists are in the order of their units. */
static uint32_t gather_find_held(const struct gather_work *work, uint32_t index)
{
    uint32_t low = 0, high = work->n_held;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (work->held[middle].wanted.index < index)
            low = middle + 1;
        else
            high = middle;
    }
    return low < work->n_held && work->held[low].wanted.index == index ? low : work->n_held;
}

/* What is here of a unit that stays its own stays, too. */
static void gather_work_keep(const struct gather_work *work, struct gather_held *held)
{
    const uint32_t at = gather_find_held(work, held->wanted.index);
    const struct gather_held *old = at < work->n_held ? &work->held[at] : NULL;
    if (old && old->wanted.unit.offset == held->wanted.unit.offset &&
        old->wanted.unit.size == held->wanted.unit.size &&
        old->wanted.unit.end == held->wanted.unit.end)
        *held = *old;
}

static enum error_code gather_work_start(struct gather_work *work, struct error *err)
{
    if (!work->has_puller)
        work->has_puller = pthread_create(&work->puller, NULL, gather_puller_main, work) == 0;
    if (work->has_puller && !work->has_hasher)
        work->has_hasher = pthread_create(&work->hasher, NULL, gather_hasher_main, work) == 0;
    return work->has_puller && work->has_hasher
               ? ERROR_NONE
               : error_set(err, ERROR_BUSY, "no thread to gather a model with");
}

enum error_code gather_work_order(struct gather_work *work, const struct gather_wanted *wanted,
                                  uint32_t n, struct error *err)
{
    if (n > GATHER_UNITS)
        return error_set(err, ERROR_INVALID, "an order of %u units", n);
    for (uint32_t i = 0; i < n; i++) {
        if (!gather_is_in_file(work, &wanted[i]) || (i && wanted[i].index <= wanted[i - 1].index))
            return error_set(err, ERROR_INVALID, "a unit is not in the file, or out of order");
    }
    struct gather_held *held = mem_new_array((size_t)n + 1, sizeof *held);
    if (!held)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory to gather");
    pthread_mutex_lock(&work->lock);
    for (uint32_t i = 0; i < n; i++) {
        held[i].wanted = wanted[i];
        gather_work_keep(work, &held[i]);
    }
    mem_free(work->held);
    work->held = held;
    work->n_held = n;
    work->has_changed = true;
    pthread_mutex_unlock(&work->lock);
    return gather_work_start(work, err);
}

/* Whether units here make up the range, without a gap. */
static bool gather_work_has(const struct gather_work *work, const struct gather_step *step)
{
    uint64_t at = step->from;
    for (uint32_t index = step->first; index < step->end; index++) {
        const uint32_t i = gather_find_held(work, index);
        if (i == work->n_held || work->held[i].state < UNIT_HASHED ||
            work->held[i].wanted.unit.offset != at)
            return false;
        at = work->held[i].wanted.unit.end;
    }
    return at == step->to && step->to > step->from;
}

enum error_code gather_work_chain(struct gather_work *work, const struct gather_step *step,
                                  struct error *err)
{
    enum error_code code = ERROR_NONE;
    pthread_mutex_lock(&work->lock);
    if (work->has_step)
        code = error_set(err, ERROR_BUSY, "another step of the hash is under way");
    else if (step->chain.length != step->from || step->end > GATHER_UNITS ||
             !gather_work_has(work, step))
        code = error_set(err, ERROR_INVALID, "a step of the hash over units that are not here");
    if (!code) {
        work->step = *step;
        work->has_step = true;
        work->step_is_done = false;
        pthread_cond_broadcast(&work->changed);
    }
    pthread_mutex_unlock(&work->lock);
    return code;
}

static void gather_work_stop(struct gather_work *work)
{
    atomic_store(&work->wish.stop, true);
    pthread_mutex_lock(&work->lock);
    work->is_stopping = true;
    pthread_cond_broadcast(&work->changed);
    pthread_mutex_unlock(&work->lock);
}

static bool gather_work_has_ended(struct gather_work *work)
{
    pthread_mutex_lock(&work->lock);
    const bool ended =
        (!work->has_puller || work->puller_ended) && (!work->has_hasher || work->hasher_ended);
    pthread_mutex_unlock(&work->lock);
    return ended;
}

static void gather_work_fill(struct gather_work *work, struct gather_report *out)
{
    pthread_mutex_lock(&work->lock);
    out->here = work->here;
    out->bytes_per_s = work->bytes_per_s;
    for (uint32_t i = 0; i < work->n_held && out->n_sums < GATHER_REPORT_UNITS; i++) {
        struct gather_held *held = &work->held[i];
        if (held->state != UNIT_HASHED)
            continue;
        held->state = UNIT_TOLD;
        out->sums[out->n_sums++] = (struct gather_sum){held->wanted.index, held->digest};
    }
    if (work->has_looked && !work->told_look) {
        out->has_looked = work->told_look = true;
        out->n_ranges = work->n_ranges;
        memcpy(out->ranges, work->ranges, sizeof out->ranges);
    }
    if (work->has_step && work->step_is_done) {
        out->has_step = true;
        out->step = work->step;
        work->has_step = work->step_is_done = false;
    }
    out->problem = work->problem;
    pthread_mutex_unlock(&work->lock);
}

void gather_work_poll(struct gather_work *work, struct gather_report *out)
{
    out->n_sums = 0;
    out->has_step = out->has_looked = out->is_released = false;
    gather_work_fill(work, out);
    if (!work->releases || out->problem.code || !gather_work_has_ended(work))
        return;
    if (!pull_some_release(work->path, out->part, &out->problem))
        out->is_released = true;
}

void gather_work_release(struct gather_work *work)
{
    work->releases = true;
    gather_work_stop(work);
}

void gather_work_close(struct gather_work *work, bool drop)
{
    if (!work)
        return;
    gather_work_stop(work);
    if (work->has_puller)
        pthread_join(work->puller, NULL);
    if (work->has_hasher)
        pthread_join(work->hasher, NULL);
    if (drop && work->path[0])
        pull_some_drop(work->path);
    pthread_cond_destroy(&work->changed);
    pthread_mutex_destroy(&work->lock);
    mem_free(work->held);
    mem_free(work);
}

bool gather_work_end(struct gather_work *work, bool drop)
{
    gather_work_stop(work);
    if (!gather_work_has_ended(work))
        return false;
    gather_work_close(work, drop);
    return true;
}
