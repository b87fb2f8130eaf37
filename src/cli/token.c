/* medley token: make, list and revoke the tokens that let clients use the API. */
#include "cli/answer.h"
#include "cli/ask.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/table.h"
#include "cli/token_file.h"
#include "cli/token_text.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static const char usage[] =
    "Usage: medley token create NAME [--scope SCOPES] [options]\n"
    "       medley token list\n"
    "       medley token show NAME\n"
    "       medley token revoke NAME\n"
    "\n"
    "Tokens let clients use the API on every machine of the cluster: as `Authorization: Bearer\n"
    "TOKEN` or `x-api-key: TOKEN`. A token is printed once, when it is made; nobody keeps it. "
    "From\n"
    "the first token on, every request needs one. One that was revoked is refused by all machines\n"
    "at once, and its requests under way end. With --serve: the tokens of `medley serve` on this\n"
    "machine, which is in no cluster.\n"
    "\n";

static const char usage_end[] =
    "\n"
    "The scopes: read (models, metrics), generate (completions, embeddings, tokenize), models\n"
    "(add, place, move, unload) and admin (members, tokens, drain). docs/http-api.md lists the\n"
    "requests of each.\n";

struct token_args {
    const char *scope, *expires, *models, *nodes, *devices, *rate;
    uint32_t streams;
    const char *tokens_per_day, *file;
    bool json, serve;
    const char *what, *name;
};

static const struct option_row token_options[] = {
    {.name = "scope",
     .value = "SCOPES",
     .standard = "generate",
     .help = "what it is for, with commas: read,generate,models,admin (default %s)",
     OPTION_TEXT(struct token_args, scope)},
    {.name = "expires",
     .value = "TIME",
     .help =
         "when it ends: 90s, 30m, 12h, 30d (default: never). Each machine goes by its own clock",
     OPTION_TEXT(struct token_args, expires)},
    {.name = "models",
     .value = "A,B",
     .help = "only these models (default: all)",
     OPTION_TEXT(struct token_args, models)},
    {.name = "nodes",
     .value = "A,B",
     .help = "only models that run wholly on these machines",
     OPTION_TEXT(struct token_args, nodes)},
    {.name = "devices",
     .value = "A/D,…",
     .help = "the same, on these devices: tower/cuda0",
     OPTION_TEXT(struct token_args, devices)},
    {.name = "rate",
     .value = "N/min",
     .help = "requests a minute, on each machine",
     OPTION_TEXT(struct token_args, rate)},
    {.name = "streams",
     .value = "N",
     .help = "requests at once, on each machine",
     OPTION_U32(struct token_args, streams, 1, 1000000)},
    {.name = "tokens-per-day",
     .value = "N",
     .help = "tokens read and written a day (UTC), on each machine",
     OPTION_TEXT(struct token_args, tokens_per_day)},
    {.name = "serve",
     .help = "tokens of `medley serve`: kept in serve-tokens.json in the state folder",
     OPTION_TRUE(struct token_args, serve)},
    {.name = "tokens",
     .value = "FILE",
     .help = "the same, in this file",
     OPTION_TEXT(struct token_args, file)},
    {.name = "json", .help = "for programs", OPTION_TRUE(struct token_args, json)},
};

static const struct option_section sections[] = {{OPTION_ROWS(token_options), .column = 21}, {0}};

static bool cmd_token_parse(int argc, char **argv, struct token_args *args)
{
    if (!options_parse(&command_token, argc, argv, args))
        return false;
    args->what = optind < argc ? argv[optind++] : NULL;
    args->name = optind < argc ? argv[optind++] : NULL;
    const bool lists = args->what && strcmp(args->what, "list") == 0;
    if (!args->what || (!lists && strcmp(args->what, "create") != 0 &&
                        strcmp(args->what, "show") != 0 && strcmp(args->what, "revoke") != 0))
        command_misused(&command_token, "say create, list, show or revoke");
    else if (!lists && !args->name)
        command_misused(&command_token, "which token? it needs a name");
    else if ((lists && args->name) || optind < argc)
        command_misused(&command_token, "one word too many: '%s'",
                        lists && args->name ? args->name : argv[optind]);
    else
        return true;
    return false;
}

/* ---- create ---------------------------------------------------------------------------------- */

static void token_add_list(yyjson_mut_doc *question, const char *key, const char *text,
                           const char *more)
{
    yyjson_mut_val *list = yyjson_mut_obj_add_arr(question, yyjson_mut_doc_get_root(question), key);
    for (int i = 0; i < 2; i++, text = more) {
        while (text && *text) {
            const size_t n = strcspn(text, ",");
            if (n)
                yyjson_mut_arr_add_strncpy(question, list, text, n);
            text += n + (text[n] == ',');
        }
    }
}

static void token_add_count(yyjson_mut_doc *question, const char *key, uint64_t count)
{
    if (question)
        yyjson_mut_obj_add_uint(question, yyjson_mut_doc_get_root(question), key, count);
}

static bool token_limits_parse(const struct token_args *args, uint64_t *expires_s, uint64_t *rate,
                               uint64_t *per_day)
{
    *expires_s = *rate = *per_day = 0;
    if (args->expires && !token_time_parse(args->expires, expires_s))
        command_misused(&command_token, "--expires takes a time such as 30d, 12h or 30m, not '%s'",
                        args->expires);
    else if (args->rate && !token_rate_parse(args->rate, rate))
        command_misused(&command_token, "--rate takes requests a minute such as 60/min, not '%s'",
                        args->rate);
    else
        return !args->tokens_per_day ||
               option_u64(&command_token, "--tokens-per-day", args->tokens_per_day, per_day);
    return false;
}

/* What was done with a file, as what a node has done: prints the answer, which it frees. */
static int cmd_token_show(const struct token_args *args, enum error_code code, yyjson_doc *answer,
                          enum error_code (*print)(yyjson_doc *answer, struct error *err),
                          struct error *err)
{
    if (!code)
        code = args->json ? answer_print_json(answer, false, err) : print(answer, err);
    yyjson_doc_free(answer);
    return code ? command_fail(&command_token, err) : EXIT_OK;
}

static enum error_code cmd_token_print_created(yyjson_doc *doc, struct error *err)
{
    struct answer answer = {0};
    struct buffer text = {0};
    answer_clean(&text, answer_text(&answer, yyjson_doc_get_root(doc), "token"));
    enum error_code code = answer_failed(&answer, err);
    if (!code) {
        printf("%s\n", text.data ? text.data : "");
        fprintf(stderr, "This is the only time that it is shown.\n");
    }
    buffer_deinit(&text);
    return code;
}

/* The answer that a node would give. */
static yyjson_doc *token_answer_of(const char *key, const char *text)
{
    yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *root = yyjson_mut_obj(doc);
    yyjson_mut_doc_set_root(doc, root);
    yyjson_mut_obj_add_strcpy(doc, root, key, text);
    yyjson_doc *answer = yyjson_mut_doc_imut_copy(doc, NULL);
    yyjson_mut_doc_free(doc);
    return answer;
}

static enum error_code token_file_do_create(const struct token_args *args,
                                            struct token_entry *entry, yyjson_doc **answer,
                                            struct error *err)
{
    char unknown[80], text[ACCESS_TOKEN_TEXT];
    entry->name = args->name;
    entry->models = args->models;
    if (args->nodes || args->devices)
        return error_set(err, ERROR_INVALID,
                         "tokens of `medley serve` cannot be bound to machines or devices: its "
                         "--devices says where it runs");
    if (!access_scopes_parse(args->scope, &entry->scopes, unknown, sizeof unknown))
        return error_set(err, ERROR_INVALID,
                         "there is no scope '%s'; scopes are read, generate, models, admin",
                         unknown);
    enum error_code code = token_file_create(args->file, entry, text, err);
    if (!code)
        *answer = token_answer_of("token", text);
    return code;
}

static int cmd_token_create(const struct token_args *args)
{
    uint64_t expires_s, rate, per_day;
    if (!token_limits_parse(args, &expires_s, &rate, &per_day))
        return EXIT_USAGE;
    if (args->serve) {
        struct token_entry entry = {.expires_s = expires_s,
                                    .requests_per_min = rate,
                                    .streams = args->streams,
                                    .tokens_per_day = per_day};
        yyjson_doc *answer = NULL;
        struct error err;
        enum error_code code = token_file_do_create(args, &entry, &answer, &err);
        return cmd_token_show(args, code, answer, cmd_token_print_created, &err);
    }
    yyjson_mut_doc *question = daemon_question("token");
    daemon_question_text(question, "what", "create");
    daemon_question_text(question, "name", args->name);
    daemon_question_text(question, "scopes", args->scope);
    if (question) {
        token_add_list(question, "models", args->models, NULL);
        token_add_list(question, "places", args->nodes, args->devices);
    }
    token_add_count(question, "expires_s", expires_s);
    token_add_count(question, "requests_per_min", rate);
    token_add_count(question, "streams", args->streams);
    token_add_count(question, "tokens_per_day", per_day);
    return ask_show(&command_token, question, args->json, cmd_token_print_created);
}

/* ---- list, show ------------------------------------------------------------------------------ */

static void token_put_list(struct table *table, yyjson_val *list, const char *otherwise)
{
    struct buffer text = {0};
    yyjson_val *value;
    size_t i, n;
    yyjson_arr_foreach(list, i, n, value)
    {
        buffer_text(&text, i ? "," : "");
        buffer_text(&text, yyjson_is_str(value) ? yyjson_get_str(value) : "?");
    }
    table_cell(table, "%s", text.data ? text.data : otherwise);
    buffer_deinit(&text);
}

static void token_put_expiry(struct table *table, struct answer *answer, yyjson_val *token)
{
    const uint64_t expires_ms = answer_count(answer, token, "expires_ms");
    const time_t seconds = (time_t)(expires_ms / 1000);
    struct tm local;
    char text[32] = "never";
    if (expires_ms &&
        (!localtime_r(&seconds, &local) || !strftime(text, sizeof text, "%Y-%m-%d %H:%M", &local)))
        snprintf(text, sizeof text, "?");
    table_cell(table, "%s%s", text, answer_flag(answer, token, "expired") ? " (expired)" : "");
}

static void token_put_limits(struct table *table, struct answer *answer, yyjson_val *token)
{
    char rate[40] = "", streams[40] = "", tokens[48] = "";
    const uint64_t per_min = answer_count(answer, token, "requests_per_min");
    const uint64_t at_once = answer_count(answer, token, "streams");
    const uint64_t per_day = answer_count(answer, token, "tokens_per_day");
    if (per_min)
        snprintf(rate, sizeof rate, "%" PRIu64 "/min ", per_min);
    if (at_once)
        snprintf(streams, sizeof streams, "%" PRIu64 " at once ", at_once);
    if (per_day)
        snprintf(tokens, sizeof tokens, "%" PRIu64 " tokens/day", per_day);
    table_cell(table, "%s%s%s", rate, streams, per_min || at_once || per_day ? tokens : "-");
}

static void token_put_row(struct table *table, struct answer *answer, yyjson_val *token)
{
    table_cell(table, "%s", answer_text(answer, token, "name"));
    table_cell(table, "%s", answer_text(answer, token, "id"));
    table_cell(table, "%s", answer_text(answer, token, "scopes"));
    token_put_expiry(table, answer, token);
    token_put_list(table, answer_list(answer, token, "models"), "all");
    token_put_list(table, answer_list(answer, token, "places"), "all");
    token_put_limits(table, answer, token);
}

static const char *token_shown; /* the one name that is printed; NULL: all */

static enum error_code cmd_token_print_list(yyjson_doc *doc, struct error *err)
{
    static const char *const titles[] = {"NAME",   "ID",     "SCOPES", "EXPIRES",
                                         "MODELS", "PLACES", "LIMITS", NULL};
    struct table table = {titles};
    struct answer answer = {0};
    yyjson_val *token;
    size_t i, n, shown = 0;
    yyjson_arr_foreach(answer_list(&answer, yyjson_doc_get_root(doc), "tokens"), i, n, token)
    {
        if (token_shown && strcmp(answer_text(&answer, token, "name"), token_shown) != 0)
            continue;
        token_put_row(&table, &answer, token);
        shown++;
    }
    enum error_code code = answer_failed(&answer, err);
    if (!code && !shown && token_shown)
        code = error_set(err, ERROR_NOT_FOUND,
                         "there is no token '%s'; `medley token list` lists them", token_shown);
    if (code)
        table_deinit(&table);
    else if (!shown)
        printf("There is no token. `medley token create NAME` makes one.\n");
    return code || !shown ? code : table_print(&table, err);
}

static const struct ask_done token_revoked = {.key = "revoked", .after = " is revoked"};

static enum error_code cmd_token_print_revoked(yyjson_doc *doc, struct error *err)
{
    return ask_print_done(doc, &token_revoked, err);
}

static int cmd_token_of_file(const struct token_args *args, bool revokes)
{
    yyjson_doc *answer = NULL;
    struct error err;
    enum error_code code = revokes ? token_file_revoke(args->file, args->name, &err)
                                   : token_file_list(args->file, &answer, &err);
    if (!code && revokes)
        answer = token_answer_of("revoked", args->name);
    return cmd_token_show(args, code, answer,
                          revokes ? cmd_token_print_revoked : cmd_token_print_list, &err);
}

static int cmd_token_run(int argc, char **argv)
{
    struct token_args args = {0};
    if (!cmd_token_parse(argc, argv, &args))
        return EXIT_USAGE;
    args.serve |= args.file != NULL;
    token_shown = args.name;
    if (strcmp(args.what, "create") == 0)
        return cmd_token_create(&args);
    if (args.serve)
        return cmd_token_of_file(&args, strcmp(args.what, "revoke") == 0);
    yyjson_mut_doc *question = daemon_question("token");
    const bool revokes = strcmp(args.what, "revoke") == 0;
    daemon_question_text(question, "what", revokes ? "revoke" : "list");
    daemon_question_text(question, "name", args.name);
    return revokes ? ask_do(&command_token, question, args.json, &token_revoked)
                   : ask_show(&command_token, question, args.json, cmd_token_print_list);
}

const struct command command_token = {.name = "token",
                                      .summary = "make, list and revoke tokens for the API",
                                      .usage = usage,
                                      .options = sections,
                                      .usage_end = usage_end,
                                      .run = cmd_token_run};
