#include "precision/fit.h"

#include "base/mem.h"
#include "base/size_text.h"
#include "model/weight_type.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* From large to small; for rows that 256 does not divide, those that they become. */
static const char *const fit_types[] = {"f16",  "q8_0",   "q6_k", "q5_k",
                                        "q4_k", "iq4_xs", "q3_k", "q2_k"};
enum { FIT_TYPES = sizeof fit_types / sizeof *fit_types };

struct fit_work {
    const struct model *model;
    uint64_t n_tensors;
    uint32_t *groups; /* [n_tensors]; FIT_NO_GROUP: it stays */
    int *types;       /* [n_tensors]: of the option that is being looked at */
    uint32_t n_groups;
    struct budget_group *options;
    uint8_t (*option_types)[BUDGET_OPTIONS]; /* place in fit_types; FIT_TYPES: as it is */
};

/* ---- groups ---------------------------------------------------------------------------------- */

/* "blk.3.attn_q.weight" → "blk.3.attn"; outside the layers the whole name. */
static size_t fit_coarse_length(const char *name)
{
    unsigned layer;
    int part = 0;
    if (sscanf(name, "blk.%u.%n", &layer, &part) < 1 || part == 0)
        return strlen(name);
    return (size_t)part + strcspn(name + part, "_");
}

static bool fit_is_same_group(const char *a, const char *b)
{
    const size_t length = fit_coarse_length(a);
    return length == fit_coarse_length(b) && memcmp(a, b, length) == 0;
}

static uint32_t fit_group_of(const struct fit_work *work, uint64_t tensor)
{
    const struct gguf_file *file = model_file(work->model);
    for (uint64_t i = 0; i < tensor; i++) {
        if (work->groups[i] != FIT_NO_GROUP &&
            fit_is_same_group(gguf_file_tensor(file, i)->name,
                              gguf_file_tensor(file, tensor)->name))
            return work->groups[i];
    }
    return work->n_groups;
}

static void fit_group(struct fit_work *work)
{
    uint32_t n_matrices = 0;
    bool is_head;
    for (uint64_t i = 0; i < work->n_tensors; i++)
        n_matrices += weight_choice_is_matrix(work->model, i, &is_head);
    for (uint64_t i = 0; i < work->n_tensors; i++) {
        work->groups[i] = FIT_NO_GROUP;
        if (!weight_choice_is_matrix(work->model, i, &is_head))
            continue;
        const uint32_t group =
            n_matrices > FIT_GROUPS_FINE ? fit_group_of(work, i) : work->n_groups;
        work->groups[i] = group;
        if (group == work->n_groups)
            work->n_groups++;
    }
}

/* ---- options --------------------------------------------------------------------------------- */

/* Fills work->types for one group and place in fit_types; its bytes. */
static uint64_t fit_types_of(struct fit_work *work, uint32_t group, uint32_t place)
{
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < work->n_tensors; i++) {
        const struct gguf_tensor *tensor = gguf_file_tensor(model_file(work->model), i);
        if (work->groups[i] != group)
            continue;
        int type = tensor->type;
        if (place < FIT_TYPES) {
            const enum error_code code = weight_type_find(fit_types[place], &type, NULL);
            assert(!code);
            type = weight_choice_type(work->model, i, type);
        }
        work->types[i] = type;
        bytes += weight_type_row_bytes(type, tensor->ne[0]) *
                 (uint64_t)(tensor->ne[1] * tensor->ne[2] * tensor->ne[3]);
    }
    return bytes;
}

/* As it is, and each type that makes it smaller than the one before. */
static void fit_list_options(struct fit_work *work, uint32_t group)
{
    struct budget_group *options = &work->options[group];
    uint64_t least = fit_types_of(work, group, FIT_TYPES);
    options->options[0] = (struct budget_option){.bytes = least};
    work->option_types[group][0] = FIT_TYPES;
    options->n_options = 1;
    for (uint32_t place = 0; place < FIT_TYPES; place++) {
        const uint64_t bytes = fit_types_of(work, group, place);
        if (bytes >= least)
            continue;
        work->option_types[group][options->n_options] = (uint8_t)place;
        options->options[options->n_options++] = (struct budget_option){.bytes = bytes};
        least = bytes;
    }
}

static enum error_code fit_measure_all(struct fit_work *work, const struct fit *fit, uint32_t total,
                                       struct error *err)
{
    enum error_code code = ERROR_NONE;
    uint32_t done = 0;
    for (uint32_t g = 0; g < work->n_groups && !code; g++) {
        struct budget_group *group = &work->options[g];
        for (uint32_t o = 1; o < group->n_options && !code; o++) {
            fit_types_of(work, g, work->option_types[g][o]);
            code = fit->measure(fit->arg, work->groups, g, work->types, done++, total,
                                &group->options[o].loss, err);
        }
    }
    return code;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void fit_take(struct fit_work *work, struct weight_choice *choice, double *losses)
{
    for (uint32_t g = 0; g < work->n_groups; g++) {
        const struct budget_group *group = &work->options[g];
        fit_types_of(work, g, work->option_types[g][group->chosen]);
        for (uint64_t i = 0; i < work->n_tensors; i++) {
            if (work->groups[i] != g)
                continue;
            choice->types[i] = work->types[i];
            losses[i] = group->options[group->chosen].loss;
        }
    }
}

/* Before anything is measured, which takes long: whether the smallest types fit at all. */
static enum error_code fit_check_least(const struct fit_work *work, uint64_t bytes_max,
                                       uint64_t bytes_fixed, struct error *err)
{
    uint64_t least = bytes_fixed;
    for (uint32_t g = 0; g < work->n_groups; g++)
        least += work->options[g].options[work->options[g].n_options - 1].bytes;
    return least <= bytes_max
               ? ERROR_NONE
               : error_set(err, ERROR_INVALID,
                           "it cannot be made so small: the least is %s, and %s was asked for",
                           size_text(least).text, size_text(bytes_max).text);
}

static enum error_code fit_solve(struct fit_work *work, const struct fit *fit,
                                 struct weight_choice *choice, double *losses,
                                 struct fit_result *out, struct error *err)
{
    uint64_t bytes = weight_choice_bytes(choice, work->model);
    uint32_t total = 0;
    for (uint32_t g = 0; g < work->n_groups; g++) {
        fit_list_options(work, g);
        bytes -= work->options[g].options[0].bytes; /* so that what never changes is left */
        total += work->options[g].n_options - 1;
    }
    enum error_code code = fit_check_least(work, fit->bytes_max, bytes, err);
    if (!code)
        code = fit_measure_all(work, fit, total, err);
    if (!code)
        code = budget_choose(work->options, work->n_groups, fit->bytes_max - bytes, err);
    if (code)
        return code;
    fit_take(work, choice, losses);
    *out = (struct fit_result){budget_loss(work->options, work->n_groups), work->n_groups, total};
    return ERROR_NONE;
}

enum error_code fit_choose(const struct fit *fit, const struct model *model,
                           struct weight_choice *choice, double *losses, struct fit_result *out,
                           struct error *err)
{
    struct fit_work work = {.model = model, .n_tensors = choice->n_tensors};
    enum error_code code = ERROR_NO_MEMORY;
    work.groups = mem_new_array(work.n_tensors, sizeof *work.groups);
    work.types = mem_new_array(work.n_tensors, sizeof *work.types);
    if (work.groups && work.types) {
        fit_group(&work);
        work.options = mem_new_array(work.n_groups, sizeof *work.options);
        work.option_types = mem_new_array(work.n_groups, sizeof *work.option_types);
    }
    if (work.options && work.option_types)
        code = fit_solve(&work, fit, choice, losses, out, err);
    else
        error_set(err, code, "not enough memory for the list of tensors");
    mem_free(work.options);
    mem_free(work.option_types);
    mem_free(work.types);
    mem_free(work.groups);
    return code;
}
