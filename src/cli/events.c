/* medley events: what happened in the cluster, from its log. */
#include "base/limits.h"
#include "cli/answer.h"
#include "cli/ask.h"
#include "cli/commands.h"
#include "cli/options.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <time.h>

static const char usage[] =
    "Usage: medley events [--follow] [--last N] [--json]\n"
    "\n"
    "Prints what happened in the cluster, in the order that all machines agree on: who came and\n"
    "went, what was placed where, what failed. Times are in this machine's time zone.\n"
    "\n"
    "  --follow         keep printing new events, until Ctrl-C\n"
    "  --last N         only the last N (default: all that the log still has)\n"
    "  --json           for programs: one object per line\n";

struct events_args {
    bool follow, json;
    uint32_t last; /* UINT32_MAX: all */
};

static bool cmd_events_parse(int argc, char **argv, struct events_args *args)
{
    static const struct option options[] = {{"follow", no_argument, NULL, 'f'},
                                            {"last", required_argument, NULL, 'n'},
                                            {"json", no_argument, NULL, 'j'},
                                            {0}};
    const struct command *command = &command_events;
    const char *none;
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, "fn:", options, NULL)) != -1;) {
        if (option == 'f')
            args->follow = true;
        else if (option == 'j')
            args->json = true;
        else if (option != 'n')
            return option_unknown(command, argv);
        else if (!option_u32(command, "--last", optarg, 0, LIMIT_CLUSTER_LOG_ENTRIES, &args->last))
            return false;
    }
    return option_rest(command, argc, argv, NULL, &none);
}

/* "?" for a time beyond the calendar. */
static void put_time(uint64_t time_ms, char *text, size_t size)
{
    const time_t seconds = (time_t)(time_ms / 1000);
    struct tm local;
    if (!localtime_r(&seconds, &local) || !strftime(text, size, "%Y-%m-%d %H:%M:%S", &local))
        snprintf(text, size, "?");
}

static enum error_code cmd_events_print(yyjson_doc *doc, struct error *err)
{
    yyjson_val *event = yyjson_doc_get_root(doc);
    struct answer answer = {0};
    struct buffer line = {0};
    char when[32];
    const char *by = answer_text_if(&answer, event, "by");
    const char *actor = answer_text_if(&answer, event, "actor");
    put_time(answer_count(&answer, event, "time_ms"), when, sizeof when);
    buffer_printf(&line, "%s  %6" PRIu64 "  ", when, answer_count(&answer, event, "index"));
    if (by) {
        answer_clean(&line, by);
        if (actor) {
            buffer_text(&line, " (");
            answer_clean(&line, actor);
            buffer_text(&line, ")");
        }
        buffer_text(&line, ": ");
    }
    answer_clean(&line, answer_text(&answer, event, "text"));
    enum error_code code = answer_failed(&answer, err);
    if (!code)
        printf("%s\n", line.data ? line.data : "");
    fflush(stdout);
    buffer_deinit(&line);
    return code;
}

static enum error_code cmd_events_converse(struct daemon_client *client, const void *arg,
                                           struct error *err)
{
    const struct events_args *args = arg;
    yyjson_mut_doc *question = daemon_question("events");
    yyjson_mut_obj_add_bool(question, yyjson_mut_doc_get_root(question), "follow", args->follow);
    daemon_question_count(question, "last", args->last);
    if (!args->follow)
        daemon_client_hurry(client);
    enum error_code code = daemon_client_send(client, question, err);
    while (!code) {
        yyjson_doc *doc = NULL;
        code = daemon_client_receive_or_end(client, &doc, err);
        if (!code && !doc)
            break;
        if (!code)
            code = args->json ? answer_print_json(doc, true, err) : cmd_events_print(doc, err);
        yyjson_doc_free(doc);
        if (!code && ferror(stdout)) /* whoever read them has gone */
            return ERROR_NONE;
    }
    if (!code && args->follow)
        code = error_set(err, ERROR_IO, "the node on this machine has ended");
    return code;
}

static int cmd_events_run(int argc, char **argv)
{
    struct events_args args = {.last = UINT32_MAX};
    return cmd_events_parse(argc, argv, &args)
               ? ask_converse(&command_events, cmd_events_converse, &args)
               : EXIT_USAGE;
}

const struct command command_events = {
    .name = "events",
    .summary = "print what happened in the cluster, and follow it",
    .usage = usage,
    .run = cmd_events_run,
};
