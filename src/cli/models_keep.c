/* medley models gc, remove, pin, unpin. */
#include "cli/models.h"

#include "base/mem.h"
#include "base/size_text.h"
#include "cli/commands.h"
#include "cli/table.h"
#include "library/keep.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static enum error_code models_find(struct library *library, bool reads, struct error *err)
{
    const struct library_options options = {.only_ours = reads};
    enum error_code code = library_find(&options, library, err);
    if (!code && reads)
        library_read_headers(library);
    return code;
}

/* ---- gc -------------------------------------------------------------------------------------- */

static void models_put_freed(const struct library_model *model, uint64_t now_ns,
                             struct table *table)
{
    table_cell(table, "%s", model->name);
    table_cell(table, "%s", size_text(model->bytes).text);
    table_cell(table, "%s", library_place_name(model->place));
    if (model->state == LIBRARY_BROKEN)
        table_cell(table, "broken: %s", model->problem);
    else
        table_cell(table, "not used for %.0f days",
                   (double)(now_ns - model->used_ns) / 1e9 / 86400);
}

static enum error_code models_show_freed(const struct library *library, const bool *chosen,
                                         uint64_t now_ns, struct error *err)
{
    static const char *const titles[] = {"NAME", "SIZE", "WHERE", "WHY", NULL};
    struct table table = {titles};
    for (uint32_t i = 0; i < library->n; i++) {
        if (chosen[i])
            models_put_freed(&library->models[i], now_ns, &table);
    }
    return table_print(&table, err);
}

static bool models_agree(const struct models_flags *flags, uint64_t bytes)
{
    char line[16];
    if (flags->yes)
        return true;
    if (!isatty(STDIN_FILENO)) {
        printf("This would free %s; `medley models gc --yes` does it.\n", size_text(bytes).text);
        return false;
    }
    printf("Free %s? [y/N] ", size_text(bytes).text);
    fflush(stdout);
    return fgets(line, sizeof line, stdin) && (line[0] == 'y' || line[0] == 'Y');
}

/* All that can; what could not is said, and the first reason is the command's. */
static enum error_code models_free_all(const struct library *library, const bool *chosen,
                                       struct error *err)
{
    enum error_code code = ERROR_NONE;
    uint64_t freed = 0;
    for (uint32_t i = 0; i < library->n; i++) {
        struct error why;
        if (!chosen[i])
            continue;
        if (!library_remove(&library->models[i], &why))
            freed += library->models[i].bytes;
        else if (!code)
            code = error_set(err, why.code, "%s", why.text);
        else
            fprintf(stderr, "medley models: %s\n", why.text);
    }
    printf("%s freed\n", size_text(freed).text);
    return code;
}

static enum error_code models_collect(const struct models_flags *flags,
                                      const struct library *library, struct error *err)
{
    bool *chosen = mem_new_array(library->n ? library->n : 1, sizeof *chosen);
    struct timespec now;
    if (!chosen)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the list");
    clock_gettime(CLOCK_REALTIME, &now);
    const struct library_wish wish = {
        .now_ns = (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec,
        .unused_ns = flags->unused_days * 86400 * 1000000000U,
        .space_bytes = flags->space_bytes,
    };
    const uint64_t bytes = library_choose_to_free(library, &wish, chosen);
    uint32_t n = 0;
    for (uint32_t i = 0; i < library->n; i++)
        n += chosen[i];
    enum error_code code = n ? models_show_freed(library, chosen, wish.now_ns, err) : ERROR_NONE;
    if (!n)
        printf("Nothing to free.\n");
    else if (!code && models_agree(flags, bytes))
        code = models_free_all(library, chosen, err);
    mem_free(chosen);
    return code;
}

int models_gc(const struct models_flags *flags)
{
    struct library library = {0};
    struct error err;
    if (flags->unused_days > 36500)
        return command_misused(&command_models, "--unused takes at most 36500 days");
    enum error_code code = models_find(&library, true, &err);
    if (!code)
        code = models_collect(flags, &library, &err);
    library_deinit(&library);
    return code ? command_fail(&command_models, &err) : EXIT_OK;
}

/* ---- one model ------------------------------------------------------------------------------- */

/* The one of that whole name or end that may be meant, whole or not. */
static enum error_code models_one(const struct library *library, const char *name,
                                  const struct library_model **out, struct error *err)
{
    enum error_code code = library_choose(library, name, out, err);
    if (code != ERROR_INVALID)
        return code;
    for (uint32_t i = 0; i < library->n; i++) { /* incomplete, or a name that several have */
        const struct library_model *model = &library->models[i];
        if (strcmp(model->name, name) != 0 && strcmp(model->path, name) != 0)
            continue;
        if (*out)
            return code;
        *out = model;
    }
    return *out ? ERROR_NONE : code;
}

int models_remove(const struct models_flags *flags)
{
    struct library library = {0};
    const struct library_model *model = NULL;
    struct error err;
    enum error_code code = models_find(&library, false, &err);
    if (!code)
        code = models_one(&library, flags->name, &model, &err);
    if (!code)
        code = library_remove(model, &err);
    if (!code)
        printf("%s is removed: %s freed\n", model->name, size_text(model->bytes).text);
    library_deinit(&library);
    return code ? command_fail(&command_models, &err) : EXIT_OK;
}

int models_pin(const struct models_flags *flags, bool pinned)
{
    struct library library = {0};
    const struct library_model *model = NULL;
    struct error err;
    enum error_code code = models_find(&library, false, &err);
    if (!code)
        code = models_one(&library, flags->name, &model, &err);
    if (!code)
        code = library_pin(model, pinned, &err);
    if (!code)
        printf("%s is %s\n", model->name, pinned ? "pinned" : "no longer pinned");
    library_deinit(&library);
    return code ? command_fail(&command_models, &err) : EXIT_OK;
}
