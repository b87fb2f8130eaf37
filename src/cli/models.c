/* medley models: the models on this machine and in its cluster. */
#include "cli/models.h"

#include "base/size_text.h"
#include "base/state_folder.h"
#include "cli/answer.h"
#include "cli/commands.h"
#include "cli/daemon.h"
#include "cli/options.h"
#include "cli/table.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "Usage: medley models [--folder DIR]... [--paths] [--json]\n"
    "       medley models show NAME [--json]\n"
    "       medley models gc [--unused DAYS] [--space SIZE] [--yes]\n"
    "       medley models remove NAME\n"
    "       medley models pin NAME\n"
    "       medley models unpin NAME\n"
    "\n"
    "Lists the models on this machine: those that Medley fetched or was told of, those in folders\n"
    "that you name, and those in the caches of Ollama, LM Studio, llama.cpp and the hub's client,\n"
    "which are read in place and never changed. With a node, also what its cluster has.\n"
    "A name of this list, or its end after a '/', can be given wherever a command takes a MODEL.\n"
    "\n"
    "show says all of one model, also what requests of it begin with: the parameters and the\n"
    "system message that Ollama has beside it.\n"
    "gc removes what Medley fetched (pulled, shelf) and is broken, or was not used for so long, "
    "or\n"
    "must go to leave room; it says what that frees, and asks. remove does so with one model.\n"
    "What is pinned, in use, or given to the cluster stays. Other programs' models are never\n"
    "touched. `medley up --models-max` limits the shelf by itself.\n"
    "\n";

static const char usage_end[] =
    "\n"
    "MEDLEY_MODELS names folders, too, with colons between: their models have names everywhere.\n"
    "OLLAMA_MODELS, LLAMA_CACHE, HF_HUB_CACHE, HF_HOME and XDG_CACHE_HOME move the others' "
    "caches.\n";

static bool models_take_folder(const struct command *command, const struct option_row *row,
                               const char *value, void *flags)
{
    struct models_flags *models = flags;
    if (models->n_folders == LIMIT_LIBRARY_FOLDERS) {
        command_misused(command, "at most %d times %s", LIMIT_LIBRARY_FOLDERS, option_name(row));
        return false;
    }
    models->folders[models->n_folders++] = value;
    return true;
}

static const struct option_row models_options[] = {
    {.name = "folder",
     .value = "DIR",
     .help = "look into this folder and those in it, too; may be repeated",
     .take = models_take_folder},
    {.name = "paths",
     .help = "show each model's path instead of its figures",
     OPTION_TRUE(struct models_flags, paths)},
    {.name = "unused",
     .value = "DAYS",
     .standard = "30",
     .help = "gc: what was not used for so many days goes (default %s; 0: however long)",
     OPTION_U64(struct models_flags, unused_days)},
    {.name = "space",
     .value = "SIZE",
     .help = "gc: then what is longest unused, until the rest takes no more, such as 100GiB",
     OPTION_BYTES(struct models_flags, space_bytes)},
    {.name = "yes", .help = "gc: without asking", OPTION_TRUE(struct models_flags, yes)},
    {.name = "json", .help = "for programs", OPTION_TRUE(struct models_flags, json)},
};

static const struct option_section sections[] = {{OPTION_ROWS(models_options), .column = 16}, {0}};

/* ---- the cluster ----------------------------------------------------------------------------- */

/* What the node says of its cluster; NULL: no node runs, or it does not answer. */
static yyjson_doc *models_ask_cluster(void)
{
    yyjson_doc *answer = NULL;
    return daemon_ask(daemon_question("status"), true, &answer, NULL) ? NULL : answer;
}

static void models_put_holders(struct answer *answer, yyjson_val *model, struct buffer *out)
{
    yyjson_val *holder;
    size_t i, n;
    buffer_text(out, "cluster");
    yyjson_arr_foreach(yyjson_obj_get(model, "holders"), i, n, holder)
    {
        buffer_text(out, i ? ", " : ": ");
        answer_clean(out, yyjson_is_str(holder) ? yyjson_get_str(holder) : "?");
    }
    (void)answer;
}

static void models_put_cluster(struct answer *answer, yyjson_val *model, bool paths,
                               struct table *table)
{
    struct buffer where = {0};
    models_put_holders(answer, model, &where);
    table_cell(table, "%s", answer_text(answer, model, "name"));
    if (!paths) {
        table_cell(table, "-");
        table_cell(table, "%s", answer_text(answer, model, "architecture"));
        table_cell(table, "-");
        table_cell(table, "%s", size_text(answer_count(answer, model, "bytes")).text);
    }
    table_cell(table, "%s", where.data ? where.data : "cluster");
    table_cell(table, "%s", paths ? "-" : "added");
    buffer_deinit(&where);
}

/* ---- for people ------------------------------------------------------------------------------ */

static void models_put_parameters(const struct library_model *model, struct table *table)
{
    const double n = (double)model->facts.parameters;
    if (!model->facts.parameters)
        table_cell(table, "-");
    else if (n >= 1e9)
        table_cell(table, "%.1f B", n * 1e-9);
    else if (n >= 1e6)
        table_cell(table, "%.0f M", n * 1e-6);
    else
        table_cell(table, "%.0f K", n * 1e-3);
}

static void models_put_state(const struct library_model *model, struct table *table)
{
    const double share = library_share(model);
    const char *between = model->problem[0] ? ": " : "";
    if (model->state == LIBRARY_INCOMPLETE && share >= 0)
        table_cell(table, "%.0f %%%s%s", 100 * share, between, model->problem);
    else if (model->state != LIBRARY_WHOLE)
        table_cell(table, "%s%s%s", library_state_name(model->state), between, model->problem);
    else if (model->facts.family[0] && !model->facts.supported)
        table_cell(table, "whole; Medley does not run this family");
    else
        table_cell(table, "whole%s", model->is_pinned ? ", pinned" : "");
}

static void models_put_row(const struct library_model *model, bool paths, struct table *table)
{
    const struct library_facts *facts = &model->facts;
    table_cell(table, "%s", model->name);
    if (paths) {
        table_cell(table, "%s", library_place_name(model->place));
        table_cell(table, "%s", model->path);
        return;
    }
    table_cell(table, "%s", facts->type[0] ? facts->type : "-");
    table_cell(table, "%s", facts->family[0] ? facts->family : "-");
    models_put_parameters(model, table);
    table_cell(table, "%s", size_text(model->bytes).text);
    table_cell(table, "%s", library_place_name(model->place));
    models_put_state(model, table);
}

static enum error_code models_print(const struct library *library, yyjson_doc *cluster,
                                    const struct models_flags *flags, struct error *err)
{
    static const char *const titles[] = {"NAME", "TYPE",  "FAMILY", "PARAMETERS",
                                         "SIZE", "WHERE", "STATE",  NULL};
    static const char *const path_titles[] = {"NAME", "WHERE", "PATH", NULL};
    struct table table = {flags->paths ? path_titles : titles};
    struct answer answer = {0};
    yyjson_val *model, *models = yyjson_obj_get(yyjson_doc_get_root(cluster), "models");
    size_t i, n;
    for (uint32_t m = 0; m < library->n; m++)
        models_put_row(&library->models[m], flags->paths, &table);
    yyjson_arr_foreach(models, i, n, model)
        models_put_cluster(&answer, model, flags->paths, &table);
    enum error_code code = answer_failed(&answer, err);
    if (code) {
        table_deinit(&table);
        return code;
    }
    if (library->cut)
        fprintf(stderr, "medley models: there are more files than are looked at; some are left "
                        "out\n");
    if (library->n || yyjson_arr_size(models))
        return table_print(&table, err);
    printf("There is no model here. Give a folder (--folder DIR, or MEDLEY_MODELS).\n");
    return ERROR_NONE;
}

/* ---- for programs ---------------------------------------------------------------------------- */

static void models_json_count(yyjson_mut_doc *doc, yyjson_mut_val *item, const char *key,
                              uint64_t count)
{
    if (count)
        yyjson_mut_obj_add_uint(doc, item, key, count);
    else
        yyjson_mut_obj_add_null(doc, item, key);
}

static void models_json_text(yyjson_mut_doc *doc, yyjson_mut_val *item, const char *key,
                             const char *text)
{
    if (text[0])
        yyjson_mut_obj_add_strcpy(doc, item, key, text);
    else
        yyjson_mut_obj_add_null(doc, item, key);
}

void models_json_add(yyjson_mut_doc *doc, yyjson_mut_val *item, const struct library_model *model)
{
    const double share = library_share(model);
    yyjson_mut_obj_add_str(doc, item, "name", model->name);
    yyjson_mut_obj_add_str(doc, item, "path", model->path);
    yyjson_mut_obj_add_str(doc, item, "place", library_place_name(model->place));
    yyjson_mut_obj_add_str(doc, item, "state", library_state_name(model->state));
    models_json_text(doc, item, "problem", model->problem);
    yyjson_mut_obj_add_bool(doc, item, "pinned", model->is_pinned);
    yyjson_mut_obj_add_uint(doc, item, "bytes", model->bytes);
    models_json_count(doc, item, "bytes_whole", model->bytes_whole);
    if (share < 0)
        yyjson_mut_obj_add_null(doc, item, "share");
    else
        yyjson_mut_obj_add_real(doc, item, "share", share);
    yyjson_mut_obj_add_uint(doc, item, "files", model->n_parts);
    yyjson_mut_obj_add_uint(doc, item, "files_here", model->n_parts_here);
    models_json_text(doc, item, "title", model->facts.title);
    models_json_text(doc, item, "family", model->facts.family);
    yyjson_mut_obj_add_bool(doc, item, "supported", model->facts.supported);
    models_json_text(doc, item, "type", model->facts.type);
    models_json_count(doc, item, "parameters", model->facts.parameters);
    models_json_count(doc, item, "context", model->facts.context);
}

static enum error_code models_print_json(const struct library *library, yyjson_doc *cluster,
                                         struct error *err)
{
    yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *root = yyjson_mut_obj(doc);
    yyjson_val *models = yyjson_obj_get(yyjson_doc_get_root(cluster), "models");
    yyjson_mut_doc_set_root(doc, root);
    yyjson_mut_val *list = yyjson_mut_obj_add_arr(doc, root, "models");
    for (uint32_t i = 0; i < library->n; i++)
        models_json_add(doc, yyjson_mut_arr_add_obj(doc, list), &library->models[i]);
    yyjson_mut_obj_add_bool(doc, root, "cut", library->cut);
    if (models)
        yyjson_mut_obj_add_val(doc, root, "cluster", yyjson_val_mut_copy(doc, models));
    else
        yyjson_mut_obj_add_null(doc, root, "cluster");
    char *json = yyjson_mut_write(
        doc, YYJSON_WRITE_PRETTY | YYJSON_WRITE_NEWLINE_AT_END | YYJSON_WRITE_ALLOW_INVALID_UNICODE,
        NULL);
    yyjson_mut_doc_free(doc);
    if (!json)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the list");
    fputs(json, stdout);
    free(json);
    return ERROR_NONE;
}

/* ---- the command ----------------------------------------------------------------------------- */

static enum error_code models_list(const struct models_flags *flags, struct error *err)
{
    const struct library_options options = {.folders = flags->folders,
                                            .n_folders = flags->n_folders};
    struct library library = {0};
    enum error_code code = library_find(&options, &library, err);
    if (code)
        return code;
    yyjson_doc *cluster = models_ask_cluster();
    if (!flags->paths || flags->json)
        library_read_headers(&library);
    code = flags->json ? models_print_json(&library, cluster, err)
                       : models_print(&library, cluster, flags, err);
    yyjson_doc_free(cluster);
    library_deinit(&library);
    return code;
}

static bool cmd_models_parse(int argc, char **argv, struct models_flags *flags)
{
    const struct command *command = &command_models;
    if (!options_parse(command, argc, argv, flags))
        return false;
    flags->what = optind < argc ? argv[optind++] : NULL;
    flags->name = optind < argc ? argv[optind++] : NULL;
    const bool names = flags->what && strcmp(flags->what, "gc") != 0;
    if (optind < argc || (flags->name && !names))
        command_misused(command, "one word too many: '%s'",
                        optind < argc ? argv[optind] : flags->name);
    else if (names && strcmp(flags->what, "remove") != 0 && strcmp(flags->what, "pin") != 0 &&
             strcmp(flags->what, "unpin") != 0 && strcmp(flags->what, "show") != 0)
        command_misused(command, "say show, gc, remove, pin or unpin, not '%s'", flags->what);
    else if (names && !flags->name)
        command_misused(command, "which model? give a name that `medley models` shows");
    else
        return true;
    return false;
}

static int cmd_models_run(int argc, char **argv)
{
    struct models_flags flags = {0};
    struct error err;
    if (!cmd_models_parse(argc, argv, &flags))
        return EXIT_USAGE;
    if (flags.what && strcmp(flags.what, "gc") == 0)
        return models_gc(&flags);
    if (flags.what && strcmp(flags.what, "show") == 0)
        return models_show(&flags);
    if (flags.what && strcmp(flags.what, "remove") == 0)
        return models_remove(&flags);
    if (flags.what)
        return models_pin(&flags, strcmp(flags.what, "pin") == 0);
    enum error_code code = models_list(&flags, &err);
    return code ? command_fail(&command_models, &err) : EXIT_OK;
}

const struct command command_models = {.name = "models",
                                       .summary = "list the models on this machine, and keep house",
                                       .usage = usage,
                                       .options = sections,
                                       .usage_end = usage_end,
                                       .run = cmd_models_run};
