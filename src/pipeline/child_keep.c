/* What the lanes of a device's process share, and what stays between one and the next: models'
 * files, which are opened once, so that their weights are loaded once; and weights that are pinned
 * (children.h). */
#include "pipeline/child_room.h"

#include "base/mem.h"
#include "model/model.h"
#include "pipeline/runner.h"

#include <time.h>

enum { FORM_LOCK_MS = 250 };

struct opened {
    struct opened *next;
    uint64_t number; /* the node's */
    struct model *model;
    uint32_t n_users;
};

struct pinned {
    struct pinned *next;
    uint32_t number;
    const struct model *model; /* the weights may lie in its file */
    uint32_t n;
    struct stage_pin *stages[CHILD_RANGES_MAX];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct opened *opened; /* under the lock */
static struct pinned *pinned; /* the main thread's */

/* ---- models ------------------------------------------------------------------------------ */

/* With the lock. */
static enum error_code kept_open(const struct child_word *open, struct child_handed *handed,
                                 struct opened **out, struct error *err)
{
    struct gguf_file *file;
    if (!handed->n_files)
        return error_set(err, ERROR_INVALID, "the file %s did not come", open->path);
    struct opened *one = mem_new(sizeof *one);
    if (!one)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for a model");
    one->number = open->model;
    enum error_code code =
        gguf_file_open_descriptors(handed->files, handed->n_files, open->path, &file, err);
    handed->n_files = 0;
    if (!code)
        code = model_open_file(file, &one->model, err);
    if (code) {
        mem_free(one);
        return code;
    }
    one->next = opened;
    *out = opened = one;
    return ERROR_NONE;
}

enum error_code child_model_open(const struct child_word *open, struct child_handed *handed,
                                 const struct model **out, struct error *err)
{
    enum error_code code = ERROR_NONE;
    pthread_mutex_lock(&lock);
    struct opened *one = opened;
    while (one && one->number != open->model)
        one = one->next;
    if (!one)
        code = kept_open(open, handed, &one, err);
    if (!code) {
        one->n_users++;
        *out = one->model;
    }
    pthread_mutex_unlock(&lock);
    return code;
}

static struct opened **opened_find(const struct model *model)
{
    struct opened **at = &opened;
    while ((*at)->model != model)
        at = &(*at)->next;
    return at;
}

static void kept_use_again(const struct model *model)
{
    pthread_mutex_lock(&lock);
    (*opened_find(model))->n_users++;
    pthread_mutex_unlock(&lock);
}

void child_model_close(const struct model *model)
{
    if (!model)
        return;
    pthread_mutex_lock(&lock);
    struct opened **at = opened_find(model), *one = *at;
    const bool is_last = --one->n_users == 0;
    if (is_last)
        *at = one->next;
    pthread_mutex_unlock(&lock);
    if (!is_last)
        return;
    model_close(one->model);
    mem_free(one);
}

/* ---- weights ----------------------------------------------------------------------------- */

static void pinned_add(const struct room *room, const struct child_word *word)
{
    struct pinned *one = mem_new(sizeof *one);
    if (!one)
        return; /* they are loaded again */
    one->number = word->pin;
    one->model = room->model;
    kept_use_again(one->model);
    for (uint32_t i = 0; i < word->n_ranges; i++) {
        const struct stage *stage = runner_stage(room->runner, word->ranges[i].stage);
        struct stage_pin *pin =
            stage ? stage_pin(stage, word->ranges[i].first_layer, word->ranges[i].n_layers) : NULL;
        if (pin)
            one->stages[one->n++] = pin;
    }
    one->next = pinned;
    pinned = one;
}

/* A look at the memory is over at once; a change of form is not, and is not waited for. */
static bool room_lock_form(struct room *room)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += FORM_LOCK_MS * 1000 * 1000;
    until.tv_sec += until.tv_nsec / (1000 * 1000 * 1000);
    until.tv_nsec %= 1000 * 1000 * 1000;
    return pthread_mutex_timedlock(&room->form_lock, &until) == 0;
}

/* Not of stages that just change their form. */
void child_pin(struct room *room, const struct child_word *word)
{
    if (!room || !atomic_load(&room->is_open) || !room_lock_form(room))
        return;
    pinned_add(room, word);
    pthread_mutex_unlock(&room->form_lock);
}

void child_drop(uint32_t number)
{
    struct pinned **at = &pinned;
    while (*at && (*at)->number != number)
        at = &(*at)->next;
    struct pinned *one = *at;
    if (!one)
        return;
    *at = one->next;
    for (uint32_t i = 0; i < one->n; i++)
        stage_unpin(one->stages[i]);
    child_model_close(one->model);
    mem_free(one);
}
