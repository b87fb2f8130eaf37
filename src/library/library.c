/* The list: adding, ordering, choosing. */
#include "library/library_impl.h"

#include "base/limits.h"
#include "base/mem.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *library_place_name(enum library_place place)
{
    static const char *const names[LIBRARY_PLACES] = {"pulled", "files",     "folder",    "shelf",
                                                      "ollama", "lm-studio", "llama.cpp", "hub"};
    assert(place < LIBRARY_PLACES);
    return names[place];
}

const char *library_state_name(enum library_state state)
{
    static const char *const names[] = {"whole", "incomplete", "broken"};
    assert(state <= LIBRARY_BROKEN);
    return names[state];
}

double library_share(const struct library_model *model)
{
    if (model->state == LIBRARY_WHOLE)
        return 1;
    if (!model->bytes_whole)
        return -1;
    return model->bytes >= model->bytes_whole ? 1
                                              : (double)model->bytes / (double)model->bytes_whole;
}

/* ---- adding ---------------------------------------------------------------------------------- */

static void library_model_clear(struct library_model *model)
{
    mem_free(model->name);
    mem_free(model->path);
    *model = (struct library_model){0};
}

void library_deinit(struct library *library)
{
    for (uint32_t i = 0; i < library->n; i++)
        library_model_clear(&library->models[i]);
    mem_free(library->models);
    *library = (struct library){0};
}

bool library_looks_at(struct library *library)
{
    if (library->n_names >= LIMIT_LIBRARY_FILES)
        library->cut = true;
    else
        library->n_names++;
    return !library->cut;
}

static struct library_model *library_grow(struct library *library)
{
    if (library->n == LIMIT_LIBRARY_MODELS)
        return NULL;
    if (library->n == library->capacity) {
        const uint32_t capacity = library->capacity ? 2 * library->capacity : 64;
        struct library_model *more = mem_resize(library->models, capacity, sizeof *more);
        if (!more)
            return NULL;
        library->models = more;
        library->capacity = capacity;
    }
    struct library_model *model = &library->models[library->n];
    *model = (struct library_model){0};
    return model;
}

static uint64_t library_stamp_of(const struct stat *file)
{
    return (uint64_t)file->st_mtim.tv_sec * 1000000000U + (uint64_t)file->st_mtim.tv_nsec;
}

/* The file system may write the time of reading once a day only, or never. */
static uint64_t library_used_at(const struct stat *file)
{
    const uint64_t read =
        (uint64_t)file->st_atim.tv_sec * 1000000000U + (uint64_t)file->st_atim.tv_nsec;
    const uint64_t written = library_stamp_of(file);
    return read > written ? read : written;
}

bool library_is_ours(enum library_place place)
{
    return place == LIBRARY_PULLED || place == LIBRARY_SHELF;
}

static bool library_has_pin(const char *path)
{
    char pin[PATH_MAX];
    return snprintf(pin, sizeof pin, "%s.pin", path) < (int)sizeof pin && access(pin, F_OK) == 0;
}

bool library_add(struct library *library, const struct library_found *found)
{
    struct library_model *model = library_grow(library);
    if (!model) {
        library->cut = true;
        return false;
    }
    model->name = mem_copy_text(found->name, strlen(found->name));
    model->path = mem_copy_text(found->path, strlen(found->path));
    if (!model->name || !model->path) {
        library_model_clear(model);
        library->cut = true;
        return false;
    }
    model->place = found->place;
    model->state = found->state;
    model->bytes = found->bytes;
    model->bytes_whole = found->bytes_whole;
    model->n_parts = model->n_parts_here = 1;
    model->has_header = found->has_header;
    if (found->file) {
        model->device = (uint64_t)found->file->st_dev;
        model->inode = (uint64_t)found->file->st_ino;
        model->stamp = library_stamp_of(found->file);
        model->used_ns = found->used_ns ? found->used_ns : library_used_at(found->file);
    }
    model->is_pinned = library_is_ours(found->place) && library_has_pin(found->path);
    snprintf(model->problem, sizeof model->problem, "%s", found->problem ? found->problem : "");
    library->n++;
    return true;
}

/* Parts lie in one folder: what is before the file's name is the same. */
static bool library_same_folder(const char *a, const char *b)
{
    const char *end_a = strrchr(a, '/'), *end_b = strrchr(b, '/');
    return end_a && end_b && end_a - a == end_b - b && memcmp(a, b, (size_t)(end_a - a)) == 0;
}

static struct library_model *library_find_parts(struct library *library,
                                                const struct library_found *found, uint32_t n_parts)
{
    for (uint32_t i = library->n; i-- > 0;) {
        struct library_model *model = &library->models[i];
        if (model->n_parts == n_parts && model->place == found->place &&
            strcmp(model->name, found->name) == 0 && library_same_folder(model->path, found->path))
            return model;
    }
    return NULL;
}

static void library_count_parts(struct library_model *model)
{
    const bool all = model->n_parts_here == model->n_parts;
    model->state = all ? LIBRARY_WHOLE : LIBRARY_INCOMPLETE;
    model->has_header = all;
    model->bytes_whole = all ? model->bytes : 0;
    model->problem[0] = 0;
    if (!all)
        snprintf(model->problem, sizeof model->problem, "%u of its %u parts are here",
                 model->n_parts_here, model->n_parts);
}

bool library_add_part(struct library *library, const struct library_found *found, uint32_t index,
                      uint32_t n_parts)
{
    struct library_model *model = library_find_parts(library, found, n_parts);
    if (!model) {
        if (!library_add(library, found))
            return false;
        model = &library->models[library->n - 1];
        model->n_parts = n_parts;
        library_count_parts(model);
        return true;
    }
    if (index == 0) { /* the first part is the one that speaks for all */
        char *path = mem_copy_text(found->path, strlen(found->path));
        if (path) {
            mem_free(model->path);
            model->path = path;
            model->inode = (uint64_t)found->file->st_ino;
            model->device = (uint64_t)found->file->st_dev;
        }
    }
    model->is_pinned =
        model->is_pinned || (library_is_ours(found->place) && library_has_pin(found->path));
    model->bytes += found->bytes;
    model->stamp = (model->stamp + library_stamp_of(found->file)) & INT64_MAX;
    model->n_parts_here++;
    library_count_parts(model);
    return true;
}

/* ---- choosing -------------------------------------------------------------------------------- */

static bool library_is_tail(const char *name, const char *word, size_t length)
{
    const size_t whole = strlen(name);
    return whole >= length && memcmp(name + whole - length, word, length) == 0 &&
           (whole == length || name[whole - length - 1] == '/');
}

/* 2: the whole name, 1: its end, 0: neither. */
static int library_match(const struct library_model *model, const char *word)
{
    size_t length = strlen(word);
    if (length > 5 && strcmp(word + length - 5, ".gguf") == 0)
        length -= 5;
    size_t whole = strlen(model->name);
    if (library_is_tail(model->name, word, length))
        return whole == length ? 2 : 1;
    static const char latest[] = ":latest";
    char stem[PATH_MAX];
    const size_t tail = sizeof latest - 1;
    if (whole <= tail || whole >= sizeof stem || strcmp(model->name + whole - tail, latest) != 0)
        return 0;
    whole -= tail;
    memcpy(stem, model->name, whole);
    stem[whole] = 0;
    return library_is_tail(stem, word, length) ? (whole == length ? 2 : 1) : 0;
}

struct library_choice {
    const struct library_model *best, *not_whole;
    int match; /* of the best */
    uint32_t n;
};

static void library_consider(struct library_choice *choice, const struct library_model *model,
                             int match)
{
    if (match < choice->match || !match)
        return;
    if (model->state != LIBRARY_WHOLE) {
        choice->not_whole = model;
        return;
    }
    if (match > choice->match)
        choice->n = 0;
    choice->match = match;
    choice->best = model;
    choice->n++;
}

static enum error_code library_refuse_several(const struct library *library, const char *word,
                                              const struct library_choice *choice,
                                              struct error *err)
{
    enum { SHOWN = 4 };
    char list[400] = "";
    size_t used = 0;
    uint32_t shown = 0;
    for (uint32_t i = 0; i < library->n && shown < SHOWN; i++) {
        const struct library_model *model = &library->models[i];
        if (model->state != LIBRARY_WHOLE || library_match(model, word) != choice->match)
            continue;
        const int n = snprintf(list + used, sizeof list - used, "%s%s (%s)", shown ? ", " : "",
                               model->name, library_place_name(model->place));
        shown++;
        if (n < 0 || (size_t)n >= sizeof list - used)
            break;
        used += (size_t)n;
    }
    return error_set(err, ERROR_INVALID,
                     "'%s' may be any of %u models: %s%s; give more of the name, or its path "
                     "(`medley models --paths`)",
                     word, choice->n, list, choice->n > shown ? ", …" : "");
}

enum error_code library_choose(const struct library *library, const char *word,
                               const struct library_model **out, struct error *err)
{
    struct library_choice choice = {0};
    *out = NULL;
    for (uint32_t i = 0; i < library->n; i++)
        library_consider(&choice, &library->models[i], library_match(&library->models[i], word));
    if (choice.n > 1)
        return library_refuse_several(library, word, &choice, err);
    if (choice.n == 1) {
        *out = choice.best;
        return ERROR_NONE;
    }
    if (choice.not_whole)
        return error_set(err, ERROR_INVALID, "model '%s' is %s: %s", choice.not_whole->name,
                         library_state_name(choice.not_whole->state), choice.not_whole->problem);
    return error_set(err, ERROR_NOT_FOUND,
                     "%s: No such file, and no model on this machine is called so; `medley models` "
                     "lists them",
                     word);
}
