/* medley serve: the API over one model on this machine's own devices. */
#include "api/listen.h"
#include "api/server.h"
#include "base/buffer.h"
#include "cli/commands.h"
#include "cli/session.h"
#include "model/model.h"
#include "node/node.h"
#include "pipeline/generator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char usage[] =
    "Usage: medley serve MODEL.gguf [--api HOST:PORT] [options]\n"
    "\n"
    "Serves a model over HTTP, as OpenAI's API does: /v1/models, /v1/chat/completions,\n"
    "/v1/completions, /v1/embeddings, and /tokenize, /detokenize, /health, /metrics.\n"
    "Ctrl-C or SIGTERM lets running requests end (10 s at most); a second one does not.\n"
    "\n"
    "  --api ADDRESS    HOST:PORT, :PORT (this machine only) or [::1]:PORT; port 0 takes a free "
    "one\n"
    "                   (default 127.0.0.1:8080). There is no authentication yet: an address that\n"
    "                   other machines reach is open to all of them\n"
    "  --alias NAME     what the API calls the model (default: its own name; both are taken)\n"
    "  --cors ORIGIN    let web pages of that origin, or * for all, use the API\n"
    "\n"
    "Where it runs (--slots 4 unless said):\n" SESSION_USAGE;

enum { OPTION_API = SESSION_OPTION_END, OPTION_ALIAS, OPTION_CORS, SLOTS_STANDARD = 4 };

static const struct option long_options[] = {
    {"api", required_argument, NULL, OPTION_API},
    {"alias", required_argument, NULL, OPTION_ALIAS},
    {"cors", required_argument, NULL, OPTION_CORS},
    SESSION_LONG_OPTIONS,
    {0},
};

struct serving {
    struct session_flags flags;
    const char *model_path, *alias;
    struct api_options options;
    struct session session;
    struct api_model model;
    struct driver_generator generator;
    struct api_server *api;
};

static bool cmd_serve_take_option(struct serving *serving, int option, const char *value)
{
    switch (option) {
    case OPTION_API:
        serving->options.address = value;
        return true;
    case OPTION_ALIAS:
        serving->alias = value;
        return true;
    case OPTION_CORS:
        serving->options.cors_origin = value;
        return true;
    default:
        command_misused(&command_serve, "unknown option");
        return false;
    }
}

static bool cmd_serve_parse(int argc, char **argv, struct serving *serving)
{
    const struct command *command = &command_serve;
    int option;
    opterr = 0;
    while ((option = getopt_long(argc, argv, SESSION_SHORT_OPTIONS, long_options, NULL)) != -1) {
        if (option == '?') {
            command_misused(command, "unknown or incomplete option '%s'", argv[optind - 1]);
            return false;
        }
        enum session_flag_result result = session_flag(&serving->flags, command, option, optarg);
        if (result == SESSION_FLAG_WRONG ||
            (result == SESSION_FLAG_FOREIGN && !cmd_serve_take_option(serving, option, optarg)))
            return false;
    }
    if (optind + 1 == argc) {
        serving->model_path = argv[optind];
        return true;
    }
    if (optind < argc)
        command_misused(command, "'%s' is one word too many", argv[optind + 1]);
    else
        command_misused(command, "a model is missing");
    return false;
}

/* ---- the API as a service of the node ---- */

static enum error_code cmd_serve_open_api(void *arg, void *uv_loop, struct error *err)
{
    struct serving *serving = arg;
    struct buffer split = {0};
    enum error_code code = api_server_open(uv_loop, &serving->options, &serving->api, err);
    if (code)
        return code;
    const char *host = api_server_host(serving->api);
    bool v6 = strchr(host, ':');
    session_describe_split(&serving->session, &split);
    printf("%s on %s\nlistening on http://%s%s%s:%u\n", serving->model.id,
           split.data ? split.data : "", v6 ? "[" : "", host, v6 ? "]" : "",
           api_server_port(serving->api));
    fflush(stdout);
    buffer_deinit(&split);
    return ERROR_NONE;
}

static void stop_api(void *arg, void (*stopped)(void *node), void *node)
{
    api_server_stop(((struct serving *)arg)->api, stopped, node);
}

static void close_api(void *arg)
{
    api_server_close(((struct serving *)arg)->api);
}

static void free_api(void *arg)
{
    api_server_free(((struct serving *)arg)->api);
}

/* Before the model is loaded, which may take long: is the address free? */
static enum error_code check_address(const char *text, struct error *err)
{
    struct api_address address;
    enum error_code code = api_address_parse(text, &address, err);
    return code ? error_wrap(err, "--api") : listen_check(&address, err);
}

static enum error_code cmd_serve_loop(struct serving *serving, struct error *err)
{
    enum error_code code = check_address(serving->options.address, err);
    if (!code)
        code = session_open(serving->model_path, &serving->flags, &serving->session, err);
    if (!code)
        code = session_chat_template(&serving->session, &serving->model.chat_template, err);
    if (code)
        return code;
    const char *name = model_name(serving->session.model);
    generator_of_driver(&serving->generator, serving->session.driver);
    serving->model.id = serving->alias ? serving->alias : name;
    serving->model.alias = name;
    serving->model.model = serving->session.model;
    serving->model.tokenizer = serving->session.tokenizer;
    serving->model.generator = &serving->generator.base;
    serving->model.created_s = (uint64_t)time(NULL);
    serving->options.models = api_models_of_one(&serving->model);
    struct node_service api = {"api", cmd_serve_open_api, stop_api, close_api, free_api, serving};
    return node_run(&api, 1, err);
}

static int cmd_serve_run(int argc, char **argv)
{
    struct serving serving = {.options.address = "127.0.0.1:8080"};
    struct error err;
    if (!cmd_serve_parse(argc, argv, &serving))
        return EXIT_USAGE;
    if (!serving.flags.driver.n_slots)
        serving.flags.driver.n_slots = SLOTS_STANDARD;
    enum error_code code = cmd_serve_loop(&serving, &err);
    api_model_deinit(&serving.model);
    session_close(&serving.session);
    return code ? command_fail(&command_serve, &err) : EXIT_OK;
}

const struct command command_serve = {
    .name = "serve", .summary = "serve a model over HTTP", .usage = usage, .run = cmd_serve_run};
