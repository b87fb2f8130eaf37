/* medley serve: the API over one model on this machine's own devices. */
#include "api/listen.h"
#include "api/server.h"
#include "base/buffer.h"
#include "base/heap.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/private_process.h"
#include "base/state_folder.h"
#include "base/this_process.h"
#include "cli/commands.h"
#include "cli/limit_option.h"
#include "cli/session.h"
#include "cli/tls_flags.h"
#include "cli/token_file.h"
#include "heat/heat.h"
#include "library/defaults.h"
#include "model/gguf_file.h"
#include "model/gguf_trial.h"
#include "model/model.h"
#include "node/node.h"
#include "pipeline/driver_generator.h"
#include "request/request_run.h"

#include <limits.h>
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
    "\n";

enum { SLOTS_STANDARD = 4, SLOTS_SHARED = 16 };

struct serving {
    struct session_flags flags;
    const char *model_path, *alias, *tokens_path;
    struct token_file *tokens; /* NULL: there is no folder to keep any in */
    struct api_options options;
    struct session session;
    struct api_model model;
    struct driver_generator generator;
    struct api_server *api;
    char folder[PATH_MAX];
};

static bool cmd_serve_take_host(const struct command *command, const struct option_row *row,
                                const char *value, void *flags)
{
    struct error err;
    if (!api_options_add_host(&((struct serving *)flags)->options, value, &err))
        return true;
    command_misused(command, "%s: %s", option_name(row), err.text);
    return false;
}

static const struct option_row own_options[] = {
    {.name = "api",
     .value = "ADDRESS",
     .standard = "127.0.0.1:8080",
     .help = "HOST:PORT, :PORT (this machine only) or [::1]:PORT; port 0 takes a free one\n"
             "(default %s). Where other machines reach it, every request needs a\n"
             "token (medley token … --serve)",
     OPTION_TEXT(struct serving, options.address)},
    {.name = "alias",
     .value = "NAME",
     .help = "what the API calls the model (default: its own name; both are taken)",
     OPTION_TEXT(struct serving, alias)},
    {.name = "projector",
     .value = "FILE",
     .help = "the model's projector, with which it sees pictures (default: the mmproj file\n"
             "beside it, if there is one; none: no pictures)",
     OPTION_TEXT(struct serving, flags.projector)},
    {.name = "tokens",
     .value = "FILE",
     .help = "the tokens that are good (default: serve-tokens.json in the state folder)",
     OPTION_TEXT(struct serving, tokens_path)},
    {.name = "require-token",
     .help = "ask for a token on this machine, too, and before there is one",
     OPTION_TRUE(struct serving, options.requires_token)},
    {.name = "share-prefixes",
     .help = "reuse the beginnings of prompts between tokens, too: faster where all of them begin\n"
             "alike, but a client learns what others have asked",
     OPTION_TRUE(struct serving, options.shares_prefixes)},
    {.name = "open",
     .help = "ask nobody for a token: whoever reaches the API may use it",
     OPTION_TRUE(struct serving, options.is_open)},
    {.name = "host",
     .value = "NAME",
     .help = "answer requests for this host, too (may be given several times); without it\n"
             "only for this machine's names and addresses",
     .take = cmd_serve_take_host},
    {.name = "cors",
     .value = "ORIGIN",
     .help = "let web pages of that origin, or * for all, use the API",
     OPTION_TEXT(struct serving, options.cors_origin)},
    {OPTION_LIMIT(struct serving, options.limits)},
    {.name = "traces",
     .value = "URL",
     .help = "send what each request took as OpenTelemetry spans to this address, such as\n"
             "http://127.0.0.1:4318/v1/traces (default: nowhere)",
     OPTION_TEXT(struct serving, options.traces_url)},
};

static const struct option_section sections[] = {
    {OPTION_ROWS(own_options), .column = 19},
    {TLS_SECTION(struct serving, options.tls)},
    {.title =
         "\nWhere it runs (--slots 4 unless said; 16 in the memory of 4 where they share it):\n",
     SESSION_SECTION(struct serving, flags)},
    {0},
};

static bool cmd_serve_parse(int argc, char **argv, struct serving *serving)
{
    return options_parse(&command_serve, argc, argv, serving) &&
           option_rest(&command_serve, argc, argv, "a model is missing", &serving->model_path);
}

/* ---- the API as a service of the node ---- */

static enum error_code cmd_serve_open_api(void *arg, void *uv_loop, struct error *err)
{
    struct serving *serving = arg;
    struct buffer split = {0};
    enum error_code code = api_server_open(uv_loop, &serving->options, &serving->api, err);
    if (code)
        return code;
    char url[128];
    api_server_url(serving->api, url, sizeof url);
    session_describe_split(&serving->session, &split);
    printf("%s on %s\nlistening on %s\n", serving->model.id, split.data ? split.data : "", url);
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

/* ---- what computes requests, for their records ---- */

static void serve_add_power(const struct serving *serving, struct request_run *out)
{
    struct heat_snapshot *heat = serving->session.heat ? mem_new(sizeof *heat) : NULL;
    uint32_t n_known = 0;
    if (heat)
        heat_latest(serving->session.heat, heat);
    for (uint32_t i = 0; heat && heat->time_ns && i < heat->n_devices; i++) {
        const struct heat_device *device = &heat->devices[i];
        for (uint32_t at = 0; at < out->n_stages; at++) {
            if (serving->session.plan.stages[at].device != device->device ||
                !device->readings.power_mw.valid)
                continue;
            out->power_w += device->readings.power_mw.value / 1000;
            n_known++;
            break; /* a device counts once; with two stages on one the power stays unknown */
        }
    }
    out->has_power = out->n_stages && n_known == out->n_stages;
    mem_free(heat);
}

static void serve_describe_run(void *self, const char *id, struct request_run *out)
{
    const struct serving *serving =
        (const struct serving *)(const void *)((const char *)self -
                                               offsetof(struct serving, model));
    const struct plan *plan = &serving->session.plan;
    (void)id;
    for (uint32_t i = 0, first = 0; i < plan->n_stages && i < LIMIT_STAGES; i++) {
        struct request_run_stage *stage = &out->stages[out->n_stages++];
        snprintf(stage->device, sizeof stage->device, "%s",
                 device_info(plan->stages[i].device)->id);
        stage->first_layer = first;
        stage->n_layers = plan->stages[i].n_layers;
        first += stage->n_layers;
    }
    serve_add_power(serving, out);
}

/* Before the model is loaded, which may take long: is the address free? */
static enum error_code check_address(const struct serving *serving, struct error *err)
{
    const char *text = serving->options.address;
    struct api_address address;
    enum error_code code = api_address_parse(text, &address, err);
    if (!code)
        code = listen_check(&address, err);
    if (!code && !serving->options.is_open && !api_address_is_loopback(address.host) &&
        !(serving->tokens && token_file_exists(serving->tokens)))
        code = error_set(err, ERROR_INVALID,
                         "%s: other machines reach that address, and there is no token yet; make "
                         "one with `medley token create NAME --serve`, or let everybody in with "
                         "--open",
                         text);
    return code ? error_wrap(err, "--api") : ERROR_NONE;
}

/* Without a state folder there are none, unless one names a file. */
static enum error_code cmd_serve_open_tokens(struct serving *serving, struct error *err)
{
    char folder[PATH_MAX];
    if (!serving->tokens_path && !state_folder(folder, sizeof folder))
        return ERROR_NONE;
    enum error_code code = token_file_open(serving->tokens_path, &serving->tokens, err);
    if (!code)
        serving->options.access = token_file_access(serving->tokens);
    return code ? error_wrap(err, "--tokens") : ERROR_NONE;
}

static void serve_take_defaults(struct serving *serving)
{
    const struct library_defaults *defaults = &serving->session.defaults;
    struct buffer said = {0};
    serving->model.defaults = defaults->json.data;
    library_defaults_say(defaults->json.data, &said);
    if (said.size && !said.failed)
        log_line(LOG_INFO, "serve", "requests that do not say otherwise begin with %s", said.data);
    if (defaults->unused[0])
        log_line(LOG_WARN, "serve", "of the model's parameters these are not used: %s",
                 defaults->unused);
    buffer_deinit(&said);
}

static enum error_code cmd_serve_loop(struct serving *serving, struct error *err)
{
    enum error_code code = cmd_serve_open_tokens(serving, err);
    if (!code)
        code = check_address(serving, err);
    if (!code)
        code = session_open(serving->model_path, &serving->flags, &serving->session, err);
    if (!code)
        code = session_chat_template(&serving->session, &serving->model.chat_template, err);
    if (code)
        return code;
    serve_take_defaults(serving);
    const char *name = model_name(serving->session.model);
    generator_of_driver(&serving->generator, serving->session.driver);
    serving->model.id = serving->alias ? serving->alias : name;
    serving->model.alias = name;
    serving->model.model = serving->session.model;
    serving->model.tokenizer = serving->session.tokenizer;
    serving->model.generator = &serving->generator.base;
    serving->model.sight = serving->session.sight;
    serving->model.created_s = (uint64_t)time(NULL);
    state_folder(serving->folder, sizeof serving->folder);
    serving->options.tls.state_folder = serving->folder;
    serving->options.models = api_models_of_one(&serving->model);
    serving->options.models.run = serve_describe_run;
    struct node_service api = {"api", cmd_serve_open_api, stop_api, close_api, free_api, serving};
    return node_run(&api, 1, err);
}

/* In the memory of SLOTS_STANDARD contexts. */
static void serve_choose_slots(struct session_flags *flags)
{
    flags->driver.n_slots = flags->driver.cells ? SLOTS_SHARED : SLOTS_STANDARD;
    flags->slots_shared = SLOTS_SHARED;
}

static int cmd_serve_run(int argc, char **argv)
{
    struct serving serving = {.flags = {.takes_defaults = true, .takes_pictures = true}};
    struct error err;
    if (!cmd_serve_parse(argc, argv, &serving))
        return EXIT_USAGE;
    heap_return_large();
    if (!serving.flags.driver.n_slots)
        serve_choose_slots(&serving.flags);
    private_process_begin();
    gguf_trial_require(this_program(), 0);
    enum error_code code = cmd_serve_loop(&serving, &err);
    api_model_deinit(&serving.model);
    session_close(&serving.session);
    token_file_close(serving.tokens);
    return code ? command_fail(&command_serve, &err) : EXIT_OK;
}

const struct command command_serve = {.name = "serve",
                                      .summary = "serve a model over HTTP",
                                      .usage = usage,
                                      .options = sections,
                                      .run = cmd_serve_run};
