/* medley run: one answer, or a conversation. */
#include "cli/chat.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/remote.h"
#include "gpu/gpu.h"
#include "model/chat_template.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yyjson.h>

static const char usage[] =
    "Usage: medley run MODEL [-p PROMPT | -f FILE] [-n N] [options]\n"
    "\n"
    "Answers a prompt, or holds a conversation: without -p and -f every line of stdin is a "
    "message.\n"
    "The text goes to stdout as it comes, what it took to stderr. Ctrl-C stops an answer, a "
    "second\n"
    "one leaves; in a conversation /reset forgets it and /exit leaves.\n"
    "\n"
    "  -p PROMPT        answer this; as a user's message through the model's chat template,\n"
    "                   where it has one, else as the beginning of a text\n"
    "  -f FILE          the same with the content of a file (- is stdin)\n"
    "  --raw            the prompt is the beginning of a text, whatever the model has\n"
    "  --system TEXT    a system message before the first\n"
    "  -n N             tokens to generate at most; 0 only reads the prompt (default: until the\n"
    "                   model ends or the context is full)\n"
    "  --json           print one JSON object at the end instead: text, tokens, why it ended, "
    "times,\n"
    "                   the speeds that were measured and forecast, and the stages\n"
    "\n"
    "How the next token is chosen (0.8, 40, 0.95, 0.05 and nothing else unless said):\n"
    "  --temp T  --top-k N  --top-p P  --min-p P  --typical P  --repeat-penalty X\n"
    "  --frequency-penalty X  --presence-penalty X  --seed S  (--temp 0: always the likeliest)\n"
    "\n"
    "MODEL is a .gguf file, or in a cluster the name of a model that it knows (medley status).\n"
    "Where it runs: where a node runs on this machine (medley up), in its cluster, through that; "
    "the\n"
    "model is placed there as medley place does. With --here, or a flag below other than -c, and\n"
    "where no node runs, in this process:\n"
    "  --here           on this machine, also where a node runs\n" SESSION_USAGE;

struct run_flags {
    struct session_flags session;
    struct reply_options reply;
    const char *model, *prompt, *file, *system;
    bool raw, json;
};

enum {
    OPTION_RAW = SESSION_OPTION_END,
    OPTION_HERE,
    OPTION_SYSTEM,
    OPTION_JSON,
    OPTION_TEMP,
    OPTION_TOP_K,
    OPTION_TOP_P,
    OPTION_MIN_P,
    OPTION_TYPICAL,
    OPTION_REPEAT_PENALTY,
    OPTION_FREQUENCY_PENALTY,
    OPTION_PRESENCE_PENALTY,
    OPTION_SEED,
};

static const struct option long_options[] = {
    {"prompt", required_argument, NULL, 'p'},
    {"file", required_argument, NULL, 'f'},
    {"predict", required_argument, NULL, 'n'},
    {"raw", no_argument, NULL, OPTION_RAW},
    {"here", no_argument, NULL, OPTION_HERE},
    {"system", required_argument, NULL, OPTION_SYSTEM},
    {"json", no_argument, NULL, OPTION_JSON},
    {"temp", required_argument, NULL, OPTION_TEMP},
    {"top-k", required_argument, NULL, OPTION_TOP_K},
    {"top-p", required_argument, NULL, OPTION_TOP_P},
    {"min-p", required_argument, NULL, OPTION_MIN_P},
    {"typical", required_argument, NULL, OPTION_TYPICAL},
    {"repeat-penalty", required_argument, NULL, OPTION_REPEAT_PENALTY},
    {"frequency-penalty", required_argument, NULL, OPTION_FREQUENCY_PENALTY},
    {"presence-penalty", required_argument, NULL, OPTION_PRESENCE_PENALTY},
    {"seed", required_argument, NULL, OPTION_SEED},
    SESSION_LONG_OPTIONS,
    {0},
};

/* ---- words ---------------------------------------------------------------------------- */

static bool take_sampler_option(struct sampler_params *sampler, int option, const char *value)
{
    const struct command *command = &command_run;
    switch (option) {
    case OPTION_TEMP:
        return option_float(command, "--temp", value, &sampler->temperature);
    case OPTION_TOP_K:
        return option_u32(command, "--top-k", value, 0, LIMIT_VOCAB, &sampler->top_k);
    case OPTION_TOP_P:
        return option_float(command, "--top-p", value, &sampler->top_p);
    case OPTION_MIN_P:
        return option_float(command, "--min-p", value, &sampler->min_p);
    case OPTION_TYPICAL:
        return option_float(command, "--typical", value, &sampler->typical_p);
    case OPTION_REPEAT_PENALTY:
        return option_float(command, "--repeat-penalty", value, &sampler->repeat_penalty);
    case OPTION_FREQUENCY_PENALTY:
        return option_float(command, "--frequency-penalty", value, &sampler->frequency_penalty);
    case OPTION_PRESENCE_PENALTY:
        return option_float(command, "--presence-penalty", value, &sampler->presence_penalty);
    case OPTION_SEED:
        return option_u64(command, "--seed", value, &sampler->seed);
    default:
        command_misused(command, "unknown option");
        return false;
    }
}

static bool cmd_run_take_option(struct run_flags *flags, int option, const char *value)
{
    switch (option) {
    case 'p':
        flags->prompt = value;
        return true;
    case 'f':
        flags->file = value;
        return true;
    case 'n':
        return option_u32(&command_run, "-n", value, 0, LIMIT_CONTEXT, &flags->reply.n_predict);
    case OPTION_RAW:
        return flags->raw = true;
    case OPTION_HERE:
        return flags->session.says_where = true;
    case OPTION_SYSTEM:
        flags->system = value;
        return true;
    case OPTION_JSON:
        return flags->json = flags->reply.quiet = true;
    default:
        return take_sampler_option(&flags->reply.sampler, option, value);
    }
}

static bool cmd_run_parse(int argc, char **argv, struct run_flags *flags)
{
    const struct command *command = &command_run;
    int option;
    opterr = 0;
    while ((option = getopt_long(argc, argv, "p:f:n:" SESSION_SHORT_OPTIONS, long_options, NULL)) !=
           -1) {
        if (option == '?') {
            command_misused(command, "unknown or incomplete option '%s'", argv[optind - 1]);
            return false;
        }
        enum session_flag_result result = session_flag(&flags->session, command, option, optarg);
        if (result == SESSION_FLAG_WRONG ||
            (result == SESSION_FLAG_FOREIGN && !cmd_run_take_option(flags, option, optarg)))
            return false;
    }
    if (optind + 1 != argc) {
        if (optind == argc)
            command_misused(command, "a model is missing");
        else
            command_misused(command, "'%s' is one word too many", argv[optind + 1]);
        return false;
    }
    flags->model = argv[optind];
    if (flags->prompt && flags->file) {
        command_misused(command, "-p and -f exclude each other");
        return false;
    }
    if (!flags->prompt && !flags->file && (flags->raw || flags->json)) {
        command_misused(command, "--raw and --json need a prompt (-p or -f)");
        return false;
    }
    struct error err;
    if (sampler_check(&flags->reply.sampler, LIMIT_VOCAB, &err)) {
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
        return error_set(err, ERROR_IO, "%s cannot be read", path);
    return out->failed ? error_set(err, ERROR_NO_MEMORY, "no memory for %s", path) : ERROR_NONE;
}

/* The prompt as tokens: through the chat template where there is one and it is wanted. */
static enum error_code make_prompt(struct session *session, const struct run_flags *flags,
                                   const char *text, size_t size, struct token_list *out,
                                   struct error *err)
{
    struct chat_template *chat_template = NULL;
    enum error_code code =
        flags->raw ? ERROR_NONE : session_chat_template(session, &chat_template, err);
    if (code)
        return code;
    if (flags->raw || chat_template_is_fallback(chat_template))
        return session_encode(session, text, size, out, err);
    struct chat *chat = NULL;
    code = chat_open(session, flags->system, &chat, err);
    if (!code)
        code = chat_add(chat, "user", text, size, err);
    if (!code)
        code = chat_prompt(chat, out, err);
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
    add_speeds(doc, root, session, reply);
    cmd_run_add_stages(doc, root, session);
    char *json = yyjson_mut_write(doc, YYJSON_WRITE_NEWLINE_AT_END, NULL);
    yyjson_mut_doc_free(doc);
    if (!json)
        return error_set(err, ERROR_NO_MEMORY, "no memory for the answer");
    fputs(json, stdout);
    free(json);
    return ERROR_NONE;
}

static enum error_code cmd_run_answer(struct session *session, const struct run_flags *flags,
                                      const char *text, size_t size, struct error *err)
{
    struct token_list prompt = {0};
    struct reply reply = {0};
    interrupts_catch();
    enum error_code code = make_prompt(session, flags, text, size, &prompt, err);
    if (!code)
        code = reply_generate(session, &prompt, &flags->reply, &reply, err);
    if (!code && flags->json)
        code = cmd_run_print_json(session, &prompt, &reply, err);
    if (!code && !flags->json) {
        putchar('\n');
        fflush(stdout);
        reply_report(session, &reply);
    }
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

static int cmd_run_run(int argc, char **argv)
{
    struct run_flags flags = {.reply = {.sampler = sampler_defaults(), .n_predict = UINT32_MAX}};
    if (!cmd_run_parse(argc, argv, &flags))
        return EXIT_USAGE;
    struct error err;
    struct buffer text = {0};
    struct session session = {0};
    enum error_code code = flags.file ? cmd_run_read_file(flags.file, &text, &err) : ERROR_NONE;
    if (!code)
        code = open_session(&flags, &session, &err);
    int status = EXIT_OK;
    if (!code && (flags.prompt || flags.file))
        code = cmd_run_answer(&session, &flags, flags.file ? text.data : flags.prompt,
                              flags.file ? text.size : strlen(flags.prompt), &err);
    else if (!code)
        status = cmd_run_talk(&session, &flags);
    session_close(&session);
    buffer_deinit(&text);
    return code ? command_fail(&command_run, &err) : status;
}

const struct command command_run = {
    .name = "run",
    .summary = "answer a prompt, or hold a conversation",
    .usage = usage,
    .run = cmd_run_run,
};
