/* medley run: one answer, or a conversation. */
#include "cli/chat.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/remote.h"
#include "cli/run_defaults.h"
#include "cli/run_pictures.h"
#include "gpu/gpu.h"
#include "model/chat_template.h"
#include "request/constraint.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yyjson.h>

static const char usage[] =
    "Usage: medley run MODEL [-p PROMPT | -f FILE] [-n N] [options]\n\n"
    "Answers a prompt, or holds a conversation: without -p and -f every line of stdin is a "
    "message.\n"
    "The text goes to stdout as it comes, timings go to stderr. Ctrl-C stops an answer, a second "
    "one\n"
    "ends the command. In a conversation, /reset forgets it and /exit ends it.\n\n";

struct run_flags {
    struct session_flags session;
    struct reply_options reply;
    struct run_sampling sampling;
    const char *model, *prompt, *file, *system, *grammar, *json_schema;
    bool raw, json, no_defaults, has_predict;
    struct run_pictures shown;
};

static bool cmd_run_take_image(const struct command *command, const struct option_row *row,
                               const char *value, void *flags)
{
    struct run_pictures *shown = &((struct run_flags *)flags)->shown;
    if (shown->n == LIMIT_PROMPT_PICTURES) {
        command_misused(command, "%s: %d pictures at most", option_name(row),
                        LIMIT_PROMPT_PICTURES);
        return false;
    }
    shown->files[shown->n++] = value;
    return true;
}

/* ---- words ---------------------------------------------------------------------------- */

static const struct option_row answer_options[] = {
    {.letter = 'p',
     .alias = "prompt",
     .value = "PROMPT",
     .help = "answer this: as a user's message through the model's chat template if it has\n"
             "one, else as the beginning of a text",
     OPTION_TEXT(struct run_flags, prompt)},
    {.letter = 'f',
     .alias = "file",
     .value = "FILE",
     .help = "the same with the content of a file (- is stdin)",
     OPTION_TEXT(struct run_flags, file)},
    {.name = "image",
     .value = "FILE",
     .help = "show the model this PNG, JPEG or WebP file before the prompt (may be given several\n"
             "times); in this process, even if a node runs",
     .take = cmd_run_take_image,
     .mark = offsetof(struct run_flags, session.says_where)},
    {.name = "projector",
     .value = "FILE",
     .help = "the model's projector, with which it sees (default: the mmproj file beside it)",
     OPTION_TEXT(struct run_flags, session.projector)},
    {.name = "raw",
     .help = "take the prompt as the beginning of a text, even if there is a chat template",
     OPTION_TRUE(struct run_flags, raw)},
    {.name = "system",
     .value = "TEXT",
     .help = "a system message before the first",
     OPTION_TEXT(struct run_flags, system)},
    {.letter = 'n',
     .alias = "predict",
     .value = "N",
     .help = "at most this many tokens; 0 only reads the prompt (default: until the\n"
             "model ends or the context is full)",
     OPTION_U32(struct run_flags, reply.n_predict, 0, LIMIT_CONTEXT),
     .mark = offsetof(struct run_flags, has_predict)},
    {.name = "grammar",
     .value = "FILE",
     .help = "every answer is derived from the rule `root` of this GBNF grammar, from its first\n"
             "token on (- is stdin)",
     OPTION_TEXT(struct run_flags, grammar)},
    {.name = "json-schema",
     .value = "FILE",
     .help = "every answer is JSON that is valid under this schema (- is stdin)",
     OPTION_TEXT(struct run_flags, json_schema)},
    {.name = "context-shift",
     .help = "where the context is full, drop its older half, say so, and go on (default: the\n"
             "answer ends there)",
     OPTION_TRUE(struct run_flags, reply.context_shift)},
    {.name = "no-defaults",
     .help = "do not begin with the parameters and the system message that the model has from\n"
             "Ollama (default: with those that no option says; a line says which)",
     OPTION_TRUE(struct run_flags, no_defaults)},
    {.name = "json",
     .help = "print one JSON object at the end instead: text, tokens, why it ended, times,\n"
             "the speeds that were measured and forecast, and the stages",
     OPTION_TRUE(struct run_flags, json),
     .mark = offsetof(struct run_flags, reply.quiet)},
};

/* The rows of SAMPLER_FIELDS that are options. Numbers that are no whole ones are checked by
 * sampler_check(). */
#define SAMPLER_OPTION_NO_OPTION
#define SAMPLER_OPTION_OPTION(word, takes) .name = word, .value = takes,
#define SAMPLER_TAKE_FLOAT(field, highest) OPTION_FLOAT(struct run_sampling, params.field)
#define SAMPLER_TAKE_U32(field, highest) OPTION_U32(struct run_sampling, params.field, 0, highest)
#define SAMPLER_TAKE_U64(field, highest) OPTION_U64(struct run_sampling, params.field)
#define SAMPLER_OPTION(TYPE, field, usual, off, lowest, highest, api, option)                      \
    {SAMPLER_OPTION_##option SAMPLER_TAKE_##TYPE(field, highest),                                  \
     .mark = offsetof(struct run_sampling, given.field)},
static const struct option_row sampler_options[] = {SAMPLER_FIELDS(SAMPLER_OPTION)};

static const struct option_row here_options[] = {
    {.name = "here",
     .help = "on this machine, even if a node runs",
     OPTION_TRUE(struct run_flags, session.says_where)},
};

static const struct option_section sections[] = {
    {OPTION_ROWS(answer_options), .column = 19},
    {.title =
         "\nHow the next token is chosen (0.8, 40, 0.95, 0.05 and nothing else unless said):\n",
     OPTION_ROWS(sampler_options),
     .offset = offsetof(struct run_flags, sampling),
     .end = "  (--temp 0: always the likeliest)\n"},
    {.title =
         "\n"
         "MODEL is a .gguf file, or the name of a model that the cluster knows (medley status).\n"
         "Where it runs: if a node runs on this machine (medley up), in that node's cluster, "
         "placed as by\n"
         "medley place. With --here, with a flag below other than -c, or without a node, in this "
         "process:\n",
     OPTION_ROWS(here_options),
     .column = 19},
    {SESSION_SECTION(struct run_flags, session)},
    {0},
};

static bool cmd_run_check_pictures(const struct command *command, struct run_flags *flags)
{
    const char *wrong = NULL;
    if (flags->shown.n && !flags->prompt && !flags->file)
        wrong = "--image needs a prompt (-p or -f)";
    else if (flags->shown.n && flags->reply.context_shift)
        wrong = "--context-shift drops the middle of what was read: it excludes --image";
    else if (flags->session.projector && !flags->shown.n)
        wrong = "--projector is for pictures: give one by --image FILE";
    flags->session.takes_pictures = flags->shown.n > 0;
    if (wrong)
        command_misused(command, "%s", wrong);
    return !wrong;
}

static bool cmd_run_parse(int argc, char **argv, struct run_flags *flags)
{
    const struct command *command = &command_run;
    if (!options_parse(command, argc, argv, flags) ||
        !option_rest(command, argc, argv, "a model is missing", &flags->model))
        return false;
    if (flags->prompt && flags->file) {
        command_misused(command, "-p and -f exclude each other");
        return false;
    }
    if (!flags->prompt && !flags->file &&
        (flags->raw || flags->json || flags->reply.context_shift)) {
        command_misused(command, "--raw, --json and --context-shift need a prompt (-p or -f)");
        return false;
    }
    if (!cmd_run_check_pictures(command, flags))
        return false;
    if (flags->grammar && flags->json_schema) {
        command_misused(command, "--grammar and --json-schema exclude each other");
        return false;
    }
    const char *follows = flags->grammar ? flags->grammar : flags->json_schema;
    if (follows && flags->file && strcmp(follows, "-") == 0 && strcmp(flags->file, "-") == 0) {
        command_misused(command, "the prompt and the grammar cannot both be stdin");
        return false;
    }
    if (follows && flags->reply.context_shift) {
        command_misused(command,
                        "--context-shift drops what a grammar has read: it excludes --grammar "
                        "and --json-schema");
        return false;
    }
    flags->session.takes_defaults = !flags->no_defaults;
    struct error err;
    if (sampler_check(&flags->sampling.params, LIMIT_VOCAB, &err)) {
        command_misused(command, "%s", err.text);
        return false;
    }
    return true;
}

/* ---- one answer ----------------------------------------------------------------------- */

static enum error_code cmd_run_read_file(const char *path, struct buffer *out, struct error *err)
{
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
    if (!file)
        return error_set(err, errno == ENOENT ? ERROR_NOT_FOUND : ERROR_IO, "%s: %s", path,
                         strerror(errno));
    char chunk[4096];
    size_t n;
    while ((n = fread(chunk, 1, sizeof chunk, file)) > 0)
        buffer_append(out, chunk, n);
    bool failed = ferror(file);
    if (file != stdin)
        fclose(file);
    if (failed)
        return error_set(err, ERROR_IO, "cannot read %s", path);
    return out->failed ? error_set(err, ERROR_NO_MEMORY, "not enough memory for %s", path)
                       : ERROR_NONE;
}

/* The grammar that answers follow, if one is wanted. */
static enum error_code cmd_run_read_grammar(struct run_flags *flags, struct error *err)
{
    const char *path = flags->grammar ? flags->grammar : flags->json_schema;
    struct buffer text = {0};
    if (!path)
        return ERROR_NONE;
    enum error_code code = cmd_run_read_file(path, &text, err);
    const struct grammar_source source = {.kind =
                                              flags->grammar ? GRAMMAR_GBNF : GRAMMAR_JSON_SCHEMA,
                                          .text = text.data ? text.data : "",
                                          .size = text.size};
    struct error cause;
    if (!code && constraint_open(&source, &flags->reply.constraint, &cause))
        code = error_set(err, cause.code, "%s: %s", path, cause.text);
    buffer_deinit(&text);
    return code;
}

static enum error_code cmd_run_encode(struct session *session, struct run_flags *flags,
                                      const char *text, size_t size, struct token_list *out,
                                      struct error *err)
{
    return flags->shown.n ? run_pictures_encode(&flags->shown, session, text, size, out, err)
                          : session_encode(session, text, size, out, err);
}

/* The prompt as tokens: through the chat template where there is one and it is wanted. */
static enum error_code make_prompt(struct session *session, struct run_flags *flags,
                                   const char *text, size_t size, struct token_list *out,
                                   struct error *err)
{
    struct chat_template *chat_template = NULL;
    enum error_code code =
        flags->raw ? ERROR_NONE : session_chat_template(session, &chat_template, err);
    if (code)
        return code;
    if (flags->raw || chat_template_is_fallback(chat_template))
        return cmd_run_encode(session, flags, text, size, out, err);
    struct buffer rendered = {0};
    struct chat *chat = NULL;
    code = chat_open(session, flags->system, &chat, err);
    if (!code)
        code = chat_add(chat, "user", text, size, err);
    if (!code)
        code = chat_render(chat, &rendered, err);
    if (!code)
        code = cmd_run_encode(session, flags, rendered.data ? rendered.data : "", rendered.size,
                              out, err);
    buffer_deinit(&rendered);
    chat_close(chat);
    return code;
}

/* What was measured and what had been forecast; null: unknown. */
static void add_speeds(yyjson_mut_doc *doc, yyjson_mut_val *root, const struct session *session,
                       const struct reply *reply)
{
    const struct plan_forecast forecast = session_forecast(session, &reply->usage);
    const double speeds[] = {reply_prefill_tokens_per_s(reply), reply_decode_tokens_per_s(reply),
                             forecast.prefill_tokens_per_s, forecast.decode_tokens_per_s};
    static const char *const names[] = {"prefill_tokens_per_s", "decode_tokens_per_s",
                                        "forecast_prefill_tokens_per_s",
                                        "forecast_decode_tokens_per_s"};
    for (int i = 0; i < 4; i++) {
        if (speeds[i] > 0)
            yyjson_mut_obj_add_real(doc, root, names[i], speeds[i]);
        else
            yyjson_mut_obj_add_null(doc, root, names[i]);
    }
    yyjson_mut_obj_add_bool(doc, root, "forecast_measured", forecast.measured);
}

static void cmd_run_add_stages(yyjson_mut_doc *doc, yyjson_mut_val *root,
                               const struct session *session)
{
    const struct plan *plan = &session->plan;
    if (session->remote) {
        yyjson_mut_obj_add_val(doc, root, "stages",
                               yyjson_val_mut_copy(doc, remote_stages(session->remote)));
        return;
    }
    yyjson_mut_val *stages = yyjson_mut_obj_add_arr(doc, root, "stages");
    for (uint32_t i = 0; i < plan->n_stages; i++) {
        yyjson_mut_val *stage = yyjson_mut_arr_add_obj(doc, stages);
        yyjson_mut_obj_add_str(doc, stage, "device", device_info(plan->stages[i].device)->id);
        yyjson_mut_obj_add_uint(doc, stage, "layers", plan->stages[i].n_layers);
    }
    yyjson_mut_obj_add_bool(doc, root, "proved", plan->proved);
}

static enum error_code cmd_run_print_json(const struct session *session,
                                          const struct token_list *prompt,
                                          const struct reply *reply, struct error *err)
{
    yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *root = yyjson_mut_obj(doc);
    yyjson_mut_doc_set_root(doc, root);
    yyjson_mut_obj_add_strn(doc, root, "text", reply->text.data ? reply->text.data : "",
                            reply->text.size);
    yyjson_mut_obj_add_val(doc, root, "prompt_tokens",
                           yyjson_mut_arr_with_sint32(doc, prompt->ids, prompt->count));
    yyjson_mut_obj_add_val(doc, root, "tokens",
                           yyjson_mut_arr_with_sint32(doc, reply->tokens.ids, reply->tokens.count));
    yyjson_mut_obj_add_str(doc, root, "finish_reason", finish_reason_name(reply->reason));
    yyjson_mut_obj_add_uint(doc, root, "prefill_ns", reply->usage.prefill_ns);
    yyjson_mut_obj_add_uint(doc, root, "decode_ns", reply->usage.decode_ns);
    yyjson_mut_obj_add_uint(doc, root, "context_shifts", reply->shifts);
    yyjson_mut_obj_add_uint(doc, root, "dropped_tokens", reply->n_dropped);
    add_speeds(doc, root, session, reply);
    cmd_run_add_stages(doc, root, session);
    char *json = yyjson_mut_write(doc, YYJSON_WRITE_NEWLINE_AT_END, NULL);
    yyjson_mut_doc_free(doc);
    if (!json)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the answer");
    fputs(json, stdout);
    free(json);
    return ERROR_NONE;
}

static enum error_code cmd_run_answer(struct session *session, struct run_flags *flags,
                                      const char *text, size_t size, struct error *err)
{
    struct token_list prompt = {0};
    struct reply reply = {0};
    struct buffer marked = {0};
    interrupts_catch();
    run_pictures_mark(&flags->shown, text, size, &marked);
    enum error_code code = marked.failed
                               ? error_set(err, ERROR_NO_MEMORY, "not enough memory for the prompt")
                               : make_prompt(session, flags, marked.data ? marked.data : "",
                                             marked.size, &prompt, err);
    flags->reply.pictures = flags->shown.at;
    flags->reply.n_pictures = flags->shown.n;
    if (!code)
        code = reply_generate(session, &prompt, &flags->reply, &reply, err);
    if (!code && flags->json)
        code = cmd_run_print_json(session, &prompt, &reply, err);
    if (!code && !flags->json) {
        putchar('\n');
        fflush(stdout);
        if (reply.shifts)
            fprintf(stderr,
                    "the context was full %u times: the %u oldest tokens are not behind this "
                    "answer's end\n",
                    reply.shifts, reply.n_dropped);
        reply_report(session, &reply);
    }
    buffer_deinit(&marked);
    token_list_deinit(&prompt);
    reply_deinit(&reply);
    return code;
}

static int cmd_run_talk(struct session *session, const struct run_flags *flags)
{
    struct error err;
    struct chat *chat = NULL;
    if (chat_open(session, flags->system, &chat, &err))
        return command_fail(&command_run, &err);
    int status = chat_run(&command_run, chat, &flags->reply);
    chat_close(chat);
    return status;
}

/* In the cluster, unless the user says where or there is none. */
static enum error_code open_session(const struct run_flags *flags, struct session *out,
                                    struct error *err)
{
    bool found = false;
    enum error_code code = ERROR_NONE;
    if (!flags->session.says_where)
        code = session_open_remote(flags->model, &flags->session, out, &found, err);
    return found ? code : session_open(flags->model, &flags->session, out, err);
}

/* The options, then what the model's maker wants of the rest. */
static enum error_code cmd_run_begin(struct session *session, struct run_flags *flags,
                                     struct run_defaults *defaults, struct error *err)
{
    const struct run_given given = {.sampling = &flags->sampling.given,
                                    .n_predict = flags->has_predict,
                                    .system = flags->system != NULL,
                                    .context = flags->session.driver.context != 0};
    flags->reply.sampler = flags->sampling.params;
    const enum error_code code = run_defaults_take(session, &given, &flags->reply, defaults, err);
    if (!code && defaults->system)
        flags->system = defaults->system;
    return code;
}

static int cmd_run_run(int argc, char **argv)
{
    struct run_flags flags = {.sampling.params = sampler_defaults(), .reply.n_predict = UINT32_MAX};
    if (!cmd_run_parse(argc, argv, &flags))
        return EXIT_USAGE;
    struct error err;
    struct buffer text = {0};
    struct session session = {0};
    struct run_defaults defaults = {0};
    enum error_code code = flags.file ? cmd_run_read_file(flags.file, &text, &err) : ERROR_NONE;
    if (!code)
        code = cmd_run_read_grammar(&flags, &err);
    if (!code)
        code = open_session(&flags, &session, &err);
    if (!code)
        code = cmd_run_begin(&session, &flags, &defaults, &err);
    int status = EXIT_OK;
    if (!code && (flags.prompt || flags.file))
        code = cmd_run_answer(&session, &flags, flags.file ? text.data : flags.prompt,
                              flags.file ? text.size : strlen(flags.prompt), &err);
    else if (!code)
        status = cmd_run_talk(&session, &flags);
    run_defaults_deinit(&defaults);
    run_pictures_deinit(&flags.shown);
    session_close(&session);
    constraint_release(flags.reply.constraint);
    buffer_deinit(&text);
    return code ? command_fail(&command_run, &err) : status;
}

const struct command command_run = {
    .name = "run",
    .summary = "answer a prompt, or hold a conversation",
    .usage = usage,
    .options = sections,
    .run = cmd_run_run,
};
