/* medley logits: write a model's raw output for given tokens, to compare with another engine. */
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/session.h"

#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "Usage: medley logits MODEL.gguf --tokens 1,5,9 [--out FILE] [--greedy N] [options]\n"
    "\n"
    "Writes the logits that follow each token: a row of little-endian float32 for every position, "
    "one\n"
    "number for every token of the vocabulary, no header. With --greedy N, N more tokens are "
    "chosen, each\n"
    "the likeliest, and their rows follow. Prints {\"greedy\":[ids]}.\n"
    "\n";

struct logits_flags {
    struct session_flags session;
    const char *model, *tokens, *out;
    uint32_t n_greedy;
};

static const struct option_row own_options[] = {
    {.name = "tokens",
     .value = "LIST",
     .help = "ids, with commas",
     OPTION_TEXT(struct logits_flags, tokens)},
    {.name = "out",
     .value = "FILE",
     .help = "where the rows go",
     OPTION_TEXT(struct logits_flags, out)},
    {.name = "greedy",
     .value = "N",
     .standard = "0",
     .help = "tokens to generate and feed back (default %s); it goes on after an end of text",
     OPTION_U32(struct logits_flags, n_greedy, 0, LIMIT_CONTEXT)},
};

static const struct option_section sections[] = {
    {OPTION_ROWS(own_options), .column = 19, .end = "\n"},
    {SESSION_SECTION(struct logits_flags, session)},
    {0},
};

static bool cmd_logits_parse(int argc, char **argv, struct logits_flags *flags)
{
    if (!options_parse(&command_logits, argc, argv, flags))
        return false;
    const char *missing = optind == argc ? "a model" : !flags->tokens ? "--tokens" : NULL;
    if (!missing && !flags->out && !flags->n_greedy)
        missing = "--out (or --greedy)";
    if (missing || optind + 1 != argc) {
        if (missing)
            command_misused(&command_logits, "%s is missing", missing);
        else
            command_misused(&command_logits, "unexpected argument '%s'", argv[optind + 1]);
        return false;
    }
    flags->model = argv[optind];
    return true;
}

static bool parse_tokens(const char *text, struct token_list *out)
{
    const char *at = text;
    for (;;) {
        char *end;
        errno = 0;
        long long value = strtoll(at, &end, 10);
        if (end == at || errno || value < 0 || value > INT32_MAX || (*end && *end != ',')) {
            command_misused(&command_logits,
                            "--tokens takes ids with commas, such as 1,5,9, not '%.20s'", at);
            return false;
        }
        struct error err;
        if (token_list_push(out, (int32_t)value, &err)) {
            command_fail(&command_logits, &err);
            return false;
        }
        if (!*end)
            return true;
        at = end + 1;
    }
}

/* ---- the request ---------------------------------------------------------------------- */

struct dump {
    FILE *file; /* NULL: the rows are not wanted */
    bool write_failed;
    struct token_list greedy;

    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool done;
    enum finish_reason reason;
    struct error error;
};

static bool cmd_logits_on_token(void *arg, const struct token_event *event)
{
    struct dump *dump = arg;
    return !token_list_push(&dump->greedy, event->token, NULL);
}

/* Writes from the driver's thread: nobody else is waiting for it here. GGUF and the machines it
 * runs on are little-endian, so the floats are written as they are. */
static void cmd_logits_on_row(void *arg, uint32_t position, const float *values, uint32_t n_values)
{
    (void)position;
    struct dump *dump = arg;
    if (dump->file && fwrite(values, sizeof *values, n_values, dump->file) != n_values)
        dump->write_failed = true;
}

static void cmd_logits_on_done(void *arg, enum finish_reason reason,
                               const struct request_usage *request_usage, const struct error *err)
{
    (void)request_usage;
    struct dump *dump = arg;
    pthread_mutex_lock(&dump->lock);
    dump->done = true;
    dump->reason = reason;
    if (err)
        dump->error = *err;
    pthread_cond_signal(&dump->ended);
    pthread_mutex_unlock(&dump->lock);
}

static enum error_code cmd_logits_compute(const struct session *session,
                                          const struct token_list *tokens, uint32_t n_greedy,
                                          struct dump *dump, struct error *err)
{
    struct request request = {
        .prompt = tokens->ids,
        .n_prompt = (uint32_t)tokens->count,
        .n_predict = n_greedy,
        .sampler = sampler_defaults(),
        .want_all_logits = true,
        .handlers = {.token = cmd_logits_on_token,
                     .row = cmd_logits_on_row,
                     .done = cmd_logits_on_done},
        .arg = dump,
    };
    request.sampler.temperature = 0;
    enum error_code code = driver_submit(session->driver, &request, NULL, err);
    if (code)
        return code;
    pthread_mutex_lock(&dump->lock);
    while (!dump->done)
        pthread_cond_wait(&dump->ended, &dump->lock);
    pthread_mutex_unlock(&dump->lock);
    if (dump->reason == FINISH_ERROR)
        return error_set(err, dump->error.code, "%s", dump->error.text);
    if (dump->greedy.count != n_greedy)
        return error_set(err, ERROR_NO_MEMORY, "only %zu of %u tokens were generated",
                         dump->greedy.count, n_greedy);
    return ERROR_NONE;
}

static enum error_code dump_all(const struct logits_flags *flags, const struct token_list *tokens,
                                struct dump *dump, struct error *err)
{
    struct session session;
    enum error_code code = session_open(flags->model, &flags->session, &session, err);
    if (code)
        return code;
    if (flags->out && !(dump->file = fopen(flags->out, "wb")))
        code = error_set(err, ERROR_IO, "%s: %s", flags->out, strerror(errno));
    if (!code)
        code = cmd_logits_compute(&session, tokens, flags->n_greedy, dump, err);
    session_close(&session);
    if (dump->file && (fclose(dump->file) || dump->write_failed) && !code)
        code = error_set(err, ERROR_IO, "cannot write %s", flags->out);
    return code;
}

static void print_greedy(const struct token_list *greedy)
{
    fputs("{\"greedy\":[", stdout);
    for (size_t i = 0; i < greedy->count; i++)
        printf("%s%d", i ? "," : "", greedy->ids[i]);
    puts("]}");
}

static int cmd_logits_run(int argc, char **argv)
{
    struct logits_flags flags = {.session.no_tokenizer = true, .session.is_measured = true};
    struct token_list tokens = {0};
    if (!cmd_logits_parse(argc, argv, &flags) || !parse_tokens(flags.tokens, &tokens)) {
        token_list_deinit(&tokens);
        return EXIT_USAGE;
    }
    if (!flags.session.driver.context)
        flags.session.driver.context = (uint32_t)tokens.count + flags.n_greedy;
    struct dump dump = {0};
    pthread_mutex_init(&dump.lock, NULL);
    pthread_cond_init(&dump.ended, NULL);
    struct error err;
    enum error_code code = dump_all(&flags, &tokens, &dump, &err);
    if (!code)
        print_greedy(&dump.greedy);
    pthread_cond_destroy(&dump.ended);
    pthread_mutex_destroy(&dump.lock);
    token_list_deinit(&dump.greedy);
    token_list_deinit(&tokens);
    return code ? command_fail(&command_logits, &err) : EXIT_OK;
}

const struct command command_logits = {
    .name = "logits",
    .summary = "write a model's raw output for given tokens",
    .usage = usage,
    .options = sections,
    .run = cmd_logits_run,
};
