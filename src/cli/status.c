/* medley status: show this machine's node, its cluster, and running models. */
#include "base/size_text.h"
#include "cli/ask.h"
#include "cli/commands.h"
#include "cli/stages.h"
#include "cli/table.h"
#include "lending/lending.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char usage[] =
    "Usage: medley status [--json]\n"
    "\n"
    "Says what the node on this machine does: its cluster and who leads it, where it listens and\n"
    "serves the API, which models the cluster knows, and which of them run, on which machines and\n"
    "devices. SURVIVES is how many machines can be lost, whichever they are, before an instance\n"
    "cannot go on, and what it would lack then: a copy of its weights, memory, or votes of the\n"
    "cluster. medley nodes lists the machines, medley links the links between them.\n"
    "\n"
    "  --json           for programs; what is unknown is null\n";

/* ---- the node and its cluster ---------------------------------------------------------------- */

static void cmd_status_say(struct buffer *out, const char *name, const char *text)
{
    buffer_printf(out, "%-11s", name);
    answer_clean(out, text);
    buffer_text(out, "\n");
}

static void say_node(struct answer *answer, yyjson_val *root, struct buffer *out)
{
    struct buffer line = {0};
    yyjson_val *node = answer_object(answer, root, "node");
    buffer_printf(&line, "%s, medley %s, id %.16s", answer_text(answer, node, "name"),
                  answer_text(answer, root, "version"), answer_text(answer, node, "id"));
    cmd_status_say(out, "node", line.data ? line.data : "");
    buffer_deinit(&line);
}

static void say_own_role(struct answer *answer, yyjson_val *cluster, uint64_t n_nodes,
                         struct buffer *out)
{
    const char *role = answer_text_if(answer, cluster, "role");
    uint64_t admins = 0;
    if (!role || !answer_count_if(answer, cluster, "admins", &admins))
        return;
    const bool admin = strcmp(role, "admin") == 0;
    if (admin && admins == 1 && n_nodes > 1)
        cmd_status_say(out, "",
                       "this machine is its only admin: without it nobody can be let in. `medley "
                       "role NODE admin` makes another");
    else
        cmd_status_say(out, "",
                       admin ? "this machine is an admin" : "this machine is a plain member");
}

static void say_cluster(struct answer *answer, yyjson_val *root, struct buffer *out)
{
    struct buffer line = {0};
    yyjson_val *cluster = answer_object_if(answer, root, "cluster");
    const char *leader = answer_text_if(answer, cluster, "leader"),
               *problem = answer_text_if(answer, cluster, "problem");
    if (answer_flag(answer, root, "waiting")) {
        cmd_status_say(
            out, "cluster",
            "none yet: waits to be let in. On a machine of the cluster, `medley nodes` lists this "
            "one");
        cmd_status_say(
            out, "",
            "and `medley admit` lets it in; with a code from `medley invite` there, here `medley "
            "join CODE`");
    } else if (!cluster) {
        cmd_status_say(out, "cluster", "none");
    } else {
        const uint64_t n_nodes = answer_count(answer, cluster, "nodes"),
                       n = answer_count(answer, cluster, "voters");
        buffer_printf(&line, "%.16s, %" PRIu64 " node%s of which %" PRIu64 " vote%s, ",
                      answer_text(answer, cluster, "id"), n_nodes, n_nodes == 1 ? "" : "s", n,
                      n == 1 ? "s" : "");
        if (leader)
            buffer_printf(&line, "led by %s", leader);
        else
            buffer_text(&line, "nobody leads now");
        buffer_printf(&line, " (generation %" PRIu64 ", term %" PRIu64 ")",
                      answer_count(answer, cluster, "generation"),
                      answer_count(answer, cluster, "term"));
        cmd_status_say(out, "cluster", line.data ? line.data : "");
        if (problem)
            cmd_status_say(out, "", problem);
        say_own_role(answer, cluster, n_nodes, out);
    }
    buffer_deinit(&line);
}

/* What the devices of the machines that are up are together. */
static void say_totals(struct answer *answer, yyjson_val *root, struct buffer *out)
{
    yyjson_val *totals = answer_object_if(answer, root, "totals");
    const char *summary = totals ? answer_text_if(answer, totals, "summary") : NULL;
    if (summary)
        cmd_status_say(out, "together", summary);
}

static void say_addresses(struct answer *answer, yyjson_val *root, struct buffer *out)
{
    struct buffer line = {0};
    const char *api = answer_text_if(answer, root, "api"),
               *join = answer_text_if(answer, root, "code");
    yyjson_val *address;
    size_t i, n;
    yyjson_arr_foreach(answer_list(answer, root, "listening"), i, n, address)
    {
        const char *text = yyjson_get_str(address);
        buffer_printf(&line, "%s%s", i ? ", " : "", text ? text : "?");
    }
    cmd_status_say(out, "listens", line.data ? line.data : "nowhere");
    if (api)
        cmd_status_say(out, "API", api);
    if (join)
        cmd_status_say(out, "join code", join);
    buffer_deinit(&line);
}

/* What this machine lends, where that is not everything. */
static void say_lends(struct answer *answer, yyjson_val *root, struct buffer *out)
{
    yyjson_val *lends = answer_object_if(answer, root, "lends");
    const char *nothing = lends ? answer_text_if(answer, lends, "nothing_now") : NULL;
    struct buffer line = {0};
    for (uint32_t i = 0; lends && i < LENDING_SETTINGS; i++) {
        const char *value = answer_text_if(answer, lends, lending_setting(i));
        if (value && strcmp(value, "all") != 0 && strcmp(value, "always") != 0 &&
            strcmp(value, "yes") != 0)
            buffer_printf(&line, "%s%s %s", line.size ? ", " : "", lending_setting(i), value);
    }
    if (line.size)
        cmd_status_say(out, "lends", line.data);
    if (nothing) {
        buffer_clear(&line);
        buffer_printf(&line, "nothing now: %s (medley lend)", nothing);
        cmd_status_say(out, "lends", line.data ? line.data : "");
    }
    buffer_deinit(&line);
}

/* ---- models and instances -------------------------------------------------------------------- */

static void cmd_status_add_model(struct answer *answer, yyjson_val *model, struct table *table)
{
    table_cell(table, "%s", answer_text(answer, model, "name"));
    table_cell(table, "%s", size_text(answer_count(answer, model, "bytes")).text);
    table_cell(table, "%" PRIu64, answer_count(answer, model, "n_layers"));
    const char *architecture = answer_text(answer, model, "architecture");
    yyjson_val *fetching = answer_object_if(answer, model, "fetching");
    if (fetching)
        table_cell(table, "%s; %s of %s fetched here", architecture,
                   size_text(answer_count(answer, fetching, "verified_bytes")).text,
                   size_text(answer_count(answer, fetching, "wanted_bytes")).text);
    else
        table_cell(table, "%s", architecture);
}

/* What one more loss would take; an older node, or a newer one, may say nothing that is known. */
static const char *limit_text(const char *limit)
{
    static const char *const texts[][2] = {
        {"weights", " (weights)"}, {"memory", " (memory)"}, {"log", " (votes)"}};
    for (size_t i = 0; limit && i < sizeof texts / sizeof *texts; i++) {
        if (strcmp(limit, texts[i][0]) == 0)
            return texts[i][1];
    }
    return "";
}

/* What one stream may reach, which nobody knows before its text is there. */
static void cmd_status_add_range(struct answer *answer, yyjson_val *instance, struct table *table)
{
    yyjson_val *one = answer_object_if(answer, instance, "forecast_one_stream");
    if (!one) {
        table_cell(table, "-");
        return;
    }
    char drafted[96] = "";
    if (yyjson_obj_get(one, "drafted_tokens_per_s"))
        snprintf(drafted, sizeof drafted,
                 ", %.1f if %.0f %% of its draft model's guesses are right",
                 answer_number(answer, one, "drafted_tokens_per_s"),
                 100 * answer_number(answer, one, "drafted_right"));
    table_cell(table, "%.1f tok/s, to %.1f where text repeats%s",
               answer_number(answer, one, "tokens_per_s"),
               answer_number(answer, one, "repeating_tokens_per_s"), drafted);
}

/* How replies went beside the forecast: "74.0 of 75.0 tok/s". */
static void add_served(struct answer *answer, yyjson_val *instance, struct table *table)
{
    yyjson_val *served = answer_object_if(answer, instance, "served");
    if (!served || !yyjson_obj_get(served, "decode_error")) {
        cmd_status_add_range(answer, instance, table);
        return;
    }
    const double measured = answer_number(answer, served, "decode_tokens_per_s"),
                 forecast = answer_number(answer, served, "forecast_decode_tokens_per_s"),
                 error = answer_number(answer, served, "decode_error");
    table_cell(table, "%.1f of %.1f tok/s (%+.0f %%)", measured, forecast, 100 * error);
}

/* "16 streams share 16384 tokens of context" */
static void say_cells(struct answer *answer, yyjson_val *instance, struct buffer *out)
{
    uint64_t cells, streams;
    const char *apart = answer_text_if(answer, instance, "apart");
    if (apart) {
        buffer_text(out, "; its streams share no memory: ");
        answer_clean(out, apart);
        buffer_text(out, " cannot");
    } else if (answer_count_if(answer, instance, "cells", &cells) && cells &&
               answer_count_if(answer, instance, "streams", &streams)) {
        buffer_printf(out, "; %" PRIu64 " streams share %" PRIu64 " tokens of context", streams,
                      cells);
    }
}

/* What was asked for beyond the usual. */
static void cmd_status_say_speculate(struct answer *answer, yyjson_val *instance,
                                     struct buffer *where)
{
    const char *how = answer_text_if(answer, instance, "speculate");
    if (!how)
        return;
    buffer_text(where, "; speculation ");
    answer_clean(where, how);
}

static void cmd_status_say_draft(struct answer *answer, yyjson_val *instance, struct buffer *where)
{
    const char *draft = answer_text_if(answer, instance, "draft");
    if (!draft)
        return;
    buffer_text(where, "; drafts by ");
    answer_clean(where, draft);
    const char *device = answer_text_if(answer, instance, "draft_device");
    if (device) {
        buffer_text(where, ", wanted on ");
        answer_clean(where, device);
    }
    if (yyjson_is_true(yyjson_obj_get(instance, "draft_is_placed")))
        buffer_text(where, ", where that is placed");
}

static void cmd_status_say_rope(struct answer *answer, yyjson_val *instance, struct buffer *where)
{
    yyjson_val *rope = answer_object_if(answer, instance, "rope");
    const char *scaling = rope ? answer_text_if(answer, rope, "scaling") : NULL;
    if (!rope)
        return;
    buffer_printf(where, "; rope %s", scaling ? scaling : "as its file");
    if (yyjson_obj_get(rope, "scale"))
        buffer_printf(where, " x %g", answer_number(answer, rope, "scale"));
    if (yyjson_obj_get(rope, "base"))
        buffer_printf(where, ", base %g", answer_number(answer, rope, "base"));
}

static void add_instance(struct answer *answer, yyjson_val *instance, struct table *table)
{
    struct buffer where = {0};
    const char *problem = answer_text_if(answer, instance, "problem");
    table_cell(table, "%s", answer_text(answer, instance, "id"));
    table_cell(table, "%s", answer_text(answer, instance, "model"));
    table_cell(table, "%s", answer_text(answer, instance, "state"));
    stages_text(answer, answer_list(answer, instance, "stages"), true, &where);
    stages_say_precision(answer, instance, &where);
    if (where.size)
        say_cells(answer, instance, &where);
    cmd_status_say_rope(answer, instance, &where);
    cmd_status_say_speculate(answer, instance, &where);
    cmd_status_say_draft(answer, instance, &where);
    if (problem)
        buffer_printf(&where, "%s%s", where.size ? "; " : "", problem);
    uint64_t survives = 0;
    if (answer_count_if(answer, instance, "survives", &survives))
        table_cell(table, "%" PRIu64 "%s", survives,
                   limit_text(answer_text_if(answer, instance, "survives_limit")));
    else
        table_cell(table, "?");
    add_served(answer, instance, table);
    table_cell(table, "%s", where.data ? where.data : "-");
    buffer_deinit(&where);
}

static void cmd_status_fill(struct answer *answer, yyjson_val *list, struct table *table,
                            void (*add)(struct answer *, yyjson_val *, struct table *))
{
    yyjson_val *item;
    size_t i, n;
    yyjson_arr_foreach(list, i, n, item) add(answer, item, table);
}

static enum error_code cmd_status_print_table(struct table *table, const char *none,
                                              struct error *err)
{
    putchar('\n');
    if (table->cells.size || table->cells.failed)
        return table_print(table, err);
    puts(none);
    return ERROR_NONE;
}

static enum error_code cmd_status_print(yyjson_doc *doc, struct error *err)
{
    static const char *const model_titles[] = {"MODEL", "SIZE", "LAYERS", "ARCHITECTURE", NULL};
    static const char *const instance_titles[] = {"INSTANCE", "MODEL", "STATE", "SURVIVES",
                                                  "FORECAST", "WHERE", NULL};
    yyjson_val *root = yyjson_doc_get_root(doc);
    struct answer answer = {0};
    struct buffer head = {0};
    struct table models = {model_titles}, instances = {instance_titles};
    say_node(&answer, root, &head);
    say_cluster(&answer, root, &head);
    say_totals(&answer, root, &head);
    say_addresses(&answer, root, &head);
    say_lends(&answer, root, &head);
    cmd_status_fill(&answer, answer_list(&answer, root, "models"), &models, cmd_status_add_model);
    cmd_status_fill(&answer, answer_list(&answer, root, "instances"), &instances, add_instance);
    enum error_code code = answer_failed(&answer, err);
    if (!code) {
        fputs(head.data ? head.data : "", stdout);
        code = cmd_status_print_table(
            &models, "No models yet: medley add MODEL.gguf, or medley run MODEL.gguf", err);
    }
    if (!code)
        code = cmd_status_print_table(&instances, "No model runs.", err);
    table_deinit(&models);
    table_deinit(&instances);
    buffer_deinit(&head);
    return code;
}

static int cmd_status_run(int argc, char **argv)
{
    return ask_and_show(&command_status, argc, argv, cmd_status_print);
}

const struct command command_status = {
    .name = "status",
    .summary = "show this machine's node, its cluster, and running models",
    .usage = usage,
    .run = cmd_status_run,
};
