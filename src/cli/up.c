/* medley up: this machine's node; today the API over one model. */
#include "api/listen.h"
#include "api/server.h"
#include "base/buffer.h"
#include "cli/commands.h"
#include "cli/session.h"
#include "model/model.h"
#include "node/node.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "Usage: medley up --api HOST:PORT --model MODEL.gguf [options]\n"
    "\n"
    "Serves a model over HTTP, as OpenAI's API does: /v1/models, /v1/chat/completions,\n"
    "/v1/completions, /v1/embeddings, and /tokenize, /detokenize, /health, /metrics.\n"
    "Ctrl-C or SIGTERM lets running requests end (10 s at most); a second one does not.\n"
    "\n"
    "  --api ADDRESS    HOST:PORT, :PORT (this machine only) or [::1]:PORT; port 0 takes a free one\n"
    "                   (default 127.0.0.1:8080). There is no authentication yet: an address that\n"
    "                   other machines reach is open to all of them\n"
    "  -m, --model FILE the model\n"
    "  --alias NAME     what the API calls the model (default: its own name; both are taken)\n"
    "  --cors ORIGIN    let web pages of that origin, or * for all, use the API\n"
    "\n"
    "Where it runs (--slots 4 unless said):\n" SESSION_USAGE;

enum { OPTION_API = SESSION_OPTION_END, OPTION_ALIAS, OPTION_CORS, SLOTS_STANDARD = 4 };

static const struct option long_options[] = {
    {"api", required_argument, NULL, OPTION_API},
    {"model", required_argument, NULL, 'm'},
    {"alias", required_argument, NULL, OPTION_ALIAS},
    {"cors", required_argument, NULL, OPTION_CORS},
    SESSION_LONG_OPTIONS,
    {0},
};

struct up {
    struct session_flags flags;
    const char *model_path, *alias;
    struct api_options options;
    struct session session;
    struct api_server *server;
};

static bool take_option(struct up *up, int option, const char *value)
{
    switch (option) {
    case OPTION_API:
        up->options.address = value;
        return true;
    case 'm':
        up->model_path = value;
        return true;
    case OPTION_ALIAS:
        up->alias = value;
        return true;
    case OPTION_CORS:
        up->options.cors_origin = value;
        return true;
    default:
        command_misused(&command_up, "unknown option");
        return false;
    }
}

static bool parse(int argc, char **argv, struct up *up)
{
    const struct command *command = &command_up;
    int option;
    opterr = 0;
    while ((option = getopt_long(argc, argv, "m:" SESSION_SHORT_OPTIONS, long_options, NULL)) != -1) {
        if (option == '?') {
            command_misused(command, "unknown or incomplete option '%s'", argv[optind - 1]);
            return false;
        }
        enum session_flag_result result = session_flag(&up->flags, command, option, optarg);
        if (result == SESSION_FLAG_WRONG || (result == SESSION_FLAG_FOREIGN && !take_option(up, option, optarg)))
            return false;
    }
    if (optind < argc || !up->model_path) {
        if (optind < argc)
            command_misused(command, "'%s' is one word too many", argv[optind]);
        else
            command_misused(command, "a model is missing; give --model");
        return false;
    }
    return true;
}

/* ---- the API as a service of the node ---- */

static enum error_code open_api(void *arg, void *uv_loop, struct error *err)
{
    struct up *up = arg;
    struct buffer split = {0};
    enum error_code code = api_server_open(uv_loop, &up->options, &up->server, err);
    if (code)
        return code;
    const char *host = api_server_host(up->server);
    bool v6 = strchr(host, ':');
    session_describe_split(&up->session, &split);
    printf("%s on %s\nlistening on http://%s%s%s:%u\n", up->options.model.id, split.data ? split.data : "",
           v6 ? "[" : "", host, v6 ? "]" : "", api_server_port(up->server));
    fflush(stdout);
    buffer_deinit(&split);
    return ERROR_NONE;
}

static void stop_api(void *arg, void (*stopped)(void *node), void *node)
{
    api_server_stop(((struct up *)arg)->server, stopped, node);
}

static void close_api(void *arg)
{
    api_server_close(((struct up *)arg)->server);
}

static void free_api(void *arg)
{
    api_server_free(((struct up *)arg)->server);
}

/* Before the model is loaded, which may take long: is the address free? */
static enum error_code check_address(const char *text, struct error *err)
{
    struct api_address address;
    enum error_code code = api_address_parse(text, &address, err);
    return code ? error_wrap(err, "--api") : listen_check(&address, err);
}

static enum error_code serve(struct up *up, struct error *err)
{
    enum error_code code = check_address(up->options.address, err);
    if (!code)
        code = session_open(up->model_path, &up->flags, &up->session, err);
    if (!code)
        code = session_chat_template(&up->session, &up->options.model.chat_template, err);
    if (code)
        return code;
    const char *name = model_name(up->session.model);
    up->options.model.id = up->alias ? up->alias : name;
    up->options.model.alias = name;
    up->options.model.model = up->session.model;
    up->options.model.tokenizer = up->session.tokenizer;
    up->options.model.driver = up->session.driver;
    struct node_service api = {"api", open_api, stop_api, close_api, free_api, up};
    return node_run(&api, 1, err);
}

static int run(int argc, char **argv)
{
    struct up up = {.options.address = "127.0.0.1:8080"};
    struct error err;
    if (!parse(argc, argv, &up))
        return EXIT_USAGE;
    if (!up.flags.driver.n_slots)
        up.flags.driver.n_slots = SLOTS_STANDARD;
    enum error_code code = serve(&up, &err);
    session_close(&up.session);
    return code ? command_fail(&command_up, &err) : EXIT_OK;
}

const struct command command_up = {.name = "up", .summary = "serve a model over HTTP", .usage = usage, .run = run};
