/* medley alerts: what is wrong in the cluster, and what to do about it. */
#include "base/limits.h"
#include "cli/answer.h"
#include "cli/ask.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/table.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char usage[] =
    "Usage: medley alerts [--all] [--follow] [--json]\n"
    "       medley alerts --kinds [--json]\n"
    "       medley alerts --set KIND.FIELD=NUMBER | --unset KIND.FIELD\n"
    "       medley alerts --mute KIND[@SUBJECT] [--for TIME] | --unmute KIND[@SUBJECT]\n"
    "\n"
    "Prints what is wrong in the cluster, and what to do about it. docs/alerts.md explains each.\n"
    "\n"
    "  --all            those that are over, too: the last 100\n"
    "  --follow         keep printing what is raised and cleared, until Ctrl-C\n"
    "  --kinds          the kinds of alerts, with the lines at which they are raised and cleared\n"
    "  --set, --unset   a line (raise, clear) or a time in seconds (raise_after_s,\n"
    "                   clear_after_s) of a kind, for the whole cluster; as usual again\n"
    "  --mute           no such alerts for a while: of a kind, of one machine, device or link of\n"
    "                   it (device_hot@tower/gpu0, link_slow@tower>laptop), or `all`\n"
    "  --unmute         end that\n"
    "  --for TIME       how long: 30m, 8h or 7d (default 8h)\n"
    "  --json           for programs\n";

struct alerts_args {
    bool all, follow, kinds, json;
    const char *set, *unset, *mute, *unmute;
    uint64_t seconds;
};

/* ---- words --- */

static bool take_time(const char *text, uint64_t *seconds)
{
    char *end;
    const unsigned long long n = strtoull(text, &end, 10);
    const uint64_t unit = *end == 'm' ? 60 : *end == 'h' ? 3600 : *end == 'd' ? 86400 : 0;
    *seconds = n * unit;
    return end != text && unit && !end[1] && n && n <= LIMIT_ALERT_MUTE_S / unit;
}

static bool cmd_alerts_parse(int argc, char **argv, struct alerts_args *args)
{
    static const struct option options[] = {
        {"all", no_argument, NULL, 'a'},          {"follow", no_argument, NULL, 'f'},
        {"kinds", no_argument, NULL, 'k'},        {"set", required_argument, NULL, 's'},
        {"unset", required_argument, NULL, 'S'},  {"mute", required_argument, NULL, 'm'},
        {"unmute", required_argument, NULL, 'M'}, {"for", required_argument, NULL, 't'},
        {"json", no_argument, NULL, 'j'},         {0}};
    const struct command *command = &command_alerts;
    const char *none;
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, "f", options, NULL)) != -1;) {
        if (option == '?')
            return option_unknown(command, argv);
        if (option == 't' && !take_time(optarg, &args->seconds)) {
            command_misused(command, "--for takes a time up to 30 days, as 30m, 8h or 7d, not '%s'",
                            optarg);
            return false;
        }
        args->all |= option == 'a';
        args->follow |= option == 'f';
        args->kinds |= option == 'k';
        args->json |= option == 'j';
        args->set = option == 's' ? optarg : args->set;
        args->unset = option == 'S' ? optarg : args->unset;
        args->mute = option == 'm' ? optarg : args->mute;
        args->unmute = option == 'M' ? optarg : args->unmute;
    }
    if ((args->set != NULL) + (args->unset != NULL) + (args->mute != NULL) +
            (args->unmute != NULL) + (args->follow || args->all || args->kinds) >
        1) {
        command_misused(command, "one at a time, please");
        return false;
    }
    return option_rest(command, argc, argv, NULL, &none);
}

/* ---- what is up --- */

static void alerts_put_time(struct buffer *out, uint64_t time_ms)
{
    const time_t seconds = (time_t)(time_ms / 1000);
    struct tm local;
    char text[32];
    if (!localtime_r(&seconds, &local) || !strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &local))
        snprintf(text, sizeof text, "?");
    buffer_text(out, text);
}

/* "2026-11-22 21:07:40  critical  tower has not been heard for 3 s", and what to do below. */
static void put_alert(struct buffer *out, struct answer *answer, yyjson_val *alert, bool is_over)
{
    uint64_t cleared_ms = 0;
    const char *text = answer_text_if(answer, alert, "text");
    const char *mend = answer_text_if(answer, alert, "mend");
    const char *why = answer_text_if(answer, alert, "why");
    answer_count_if(answer, alert, "cleared_ms", &cleared_ms);
    alerts_put_time(out, is_over ? cleared_ms : answer_count(answer, alert, "raised_ms"));
    buffer_printf(out, "  %-8s  ", is_over ? "over" : answer_text(answer, alert, "severity"));
    answer_clean(out, text ? text : answer_text(answer, alert, "id"));
    if (is_over && why) {
        buffer_text(out, " (");
        answer_clean(out, why);
        buffer_text(out, ")");
    }
    buffer_text(out, "\n");
    if (!is_over && mend) {
        buffer_text(out, "                     ");
        answer_clean(out, mend);
        buffer_text(out, "\n");
    }
}

static enum error_code alerts_print_list(yyjson_val *root, bool all, struct error *err)
{
    struct answer answer = {0};
    struct buffer out = {0};
    yyjson_val *up = answer_list(&answer, root, "alerts"), *item;
    yyjson_arr_iter each;
    yyjson_val *cleared = all ? answer_list(&answer, root, "cleared") : NULL;
    if (cleared && yyjson_arr_iter_init(cleared, &each)) {
        while ((item = yyjson_arr_iter_next(&each)) != NULL)
            put_alert(&out, &answer, item, true);
    }
    if (up && yyjson_arr_iter_init(up, &each)) {
        while ((item = yyjson_arr_iter_next(&each)) != NULL)
            put_alert(&out, &answer, item, false);
    }
    if (up && yyjson_arr_size(up) == 0)
        buffer_text(&out, "all is well\n");
    const enum error_code code = answer_failed(&answer, err);
    if (!code)
        fputs(out.data ? out.data : "", stdout);
    fflush(stdout);
    buffer_deinit(&out);
    return code;
}

/* The first answer is the list; those that follow are one turn each. */
static enum error_code alerts_print_turn(yyjson_val *root, struct error *err)
{
    struct answer answer = {0};
    struct buffer out = {0};
    yyjson_val *raised = answer_object_if(&answer, root, "raised");
    yyjson_val *cleared = answer_object_if(&answer, root, "cleared");
    if (raised || cleared)
        put_alert(&out, &answer, raised ? raised : cleared, !raised);
    const enum error_code code = answer_failed(&answer, err);
    if (!code)
        fputs(out.data ? out.data : "", stdout);
    fflush(stdout);
    buffer_deinit(&out);
    return code;
}

static double alerts_number(yyjson_val *item, const char *key)
{
    yyjson_val *value = yyjson_obj_get(item, key);
    return yyjson_is_num(value) ? yyjson_get_num(value) : 0;
}

static enum error_code alerts_print_kinds(yyjson_val *root, struct error *err)
{
    static const char *const titles[] = {"KIND",       "SEVERITY", "RAISED AT",
                                         "CLEARED AT", "READS",    NULL};
    struct table table = {titles};
    struct answer answer = {0};
    yyjson_val *kinds = answer_list(&answer, root, "kinds"), *item;
    yyjson_arr_iter each;
    if (kinds && yyjson_arr_iter_init(kinds, &each)) {
        while ((item = yyjson_arr_iter_next(&each)) != NULL) {
            const char *unit = answer_text(&answer, item, "unit");
            table_cell(&table, "%s", answer_text(&answer, item, "kind"));
            table_cell(&table, "%s", answer_text(&answer, item, "severity"));
            table_cell(&table, "%g %s after %g s", alerts_number(item, "raise"), unit,
                       alerts_number(item, "raise_after_s"));
            table_cell(&table, "%g %s after %g s", alerts_number(item, "clear"), unit,
                       alerts_number(item, "clear_after_s"));
            table_cell(&table, "%s", answer_text(&answer, item, "reads"));
        }
    }
    enum error_code code = answer_failed(&answer, err);
    if (code)
        table_deinit(&table);
    else
        code = table_print(&table, err);
    return code;
}

static enum error_code alerts_print(const struct alerts_args *args, yyjson_doc *doc, bool is_first,
                                    struct error *err)
{
    yyjson_val *root = yyjson_doc_get_root(doc);
    if (args->json)
        return answer_print_json(doc, args->follow, err);
    if (args->kinds)
        return alerts_print_kinds(root, err);
    return is_first ? alerts_print_list(root, args->all, err) : alerts_print_turn(root, err);
}

static enum error_code cmd_alerts_converse(struct daemon_client *client, const void *arg,
                                           struct error *err)
{
    const struct alerts_args *args = arg;
    yyjson_mut_doc *question = daemon_question("alerts");
    yyjson_mut_val *root = question ? yyjson_mut_doc_get_root(question) : NULL;
    if (root) {
        yyjson_mut_obj_add_bool(question, root, "follow", args->follow);
        yyjson_mut_obj_add_bool(question, root, "kinds", args->kinds);
    }
    if (!args->follow)
        daemon_client_hurry(client);
    enum error_code code = daemon_client_send(client, question, err);
    bool is_first = true;
    while (!code) {
        yyjson_doc *doc = NULL;
        code = daemon_client_receive_or_end(client, &doc, err);
        if (!code && !doc)
            break;
        if (!code)
            code = alerts_print(args, doc, is_first, err);
        is_first = false;
        yyjson_doc_free(doc);
        if (!code && ferror(stdout)) /* whoever read them has gone */
            return ERROR_NONE;
    }
    if (!code && args->follow)
        code = error_set(err, ERROR_IO, "the node on this machine has ended");
    return code;
}

/* ---- what is set --- */

static int cmd_alerts_set(const struct alerts_args *args)
{
    static const struct ask_done set = {.key = "set", .after = " is set, for the whole cluster"};
    static const struct ask_done unset = {.key = "unset", .after = " is as usual again"};
    const char *what = args->set ? args->set : args->unset;
    const char *equals = strchr(what, '=');
    char key[128], *end = NULL;
    const double value = equals ? strtod(equals + 1, &end) : 0;
    if ((args->set != NULL) != (equals != NULL) || (equals && (end == equals + 1 || *end))) {
        command_misused(&command_alerts,
                        args->set ? "--set takes KIND.FIELD=NUMBER, not '%s'"
                                  : "--unset takes KIND.FIELD, not '%s'",
                        what);
        return EXIT_USAGE;
    }
    snprintf(key, sizeof key, "%.*s", (int)(equals ? equals - what : 127), what);
    yyjson_mut_doc *question = daemon_question("alerts");
    daemon_question_text(question, "set", key);
    if (question && equals)
        yyjson_mut_obj_add_real(question, yyjson_mut_doc_get_root(question), "value", value);
    return ask_do(&command_alerts, question, args->json, args->set ? &set : &unset);
}

static int cmd_alerts_mute(const struct alerts_args *args)
{
    static const struct ask_done muted = {.key = "muted", .after = " is set"};
    static const struct ask_done unmuted = {.key = "unmuted", .after = " is over"};
    yyjson_mut_doc *question = daemon_question("alerts");
    daemon_question_text(question, args->mute ? "mute" : "unmute",
                         args->mute ? args->mute : args->unmute);
    if (args->mute && args->seconds)
        daemon_question_count(question, "seconds", (uint32_t)args->seconds);
    return ask_do(&command_alerts, question, args->json, args->mute ? &muted : &unmuted);
}

static int cmd_alerts_run(int argc, char **argv)
{
    struct alerts_args args = {0};
    if (!cmd_alerts_parse(argc, argv, &args))
        return EXIT_USAGE;
    if (args.set || args.unset)
        return cmd_alerts_set(&args);
    if (args.mute || args.unmute)
        return cmd_alerts_mute(&args);
    return ask_converse(&command_alerts, cmd_alerts_converse, &args);
}

const struct command command_alerts = {
    .name = "alerts",
    .summary = "print what is wrong in the cluster, and what to do about it",
    .usage = usage,
    .run = cmd_alerts_run,
};
