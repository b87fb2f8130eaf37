/* medley up: this machine's node of the cluster, and the HTTP API on it. */
#include "api/listen.h"
#include "api/server.h"
#include "base/buffer.h"
#include "base/durable_file.h"
#include "base/heap.h"
#include "base/private_process.h"
#include "base/state_folder.h"
#include "base/this_process.h"
#include "cli/commands.h"
#include "cli/model_word.h"
#include "cli/notice.h"
#include "cli/options.h"
#include "cli/up_models.h"
#include "cli/up_options.h"
#include "gpu/gpu.h"
#include "heat/heat.h"
#include "model/gguf_trial.h"
#include "node/daemon.h"
#include "node/node.h"
#include "pipeline/children.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char usage[] =
    "Usage: medley up [options]\n\n"
    "Starts this machine's node. The first time it looks for a cluster on the local networks: if "
    "it\n"
    "finds one, it waits to be let in: run `medley join CODE` here (`medley invite` on a member "
    "prints\n"
    "the code), or let it in by hand. If it finds none, it founds one. After that it is a member\n"
    "whenever it runs. Every node serves OpenAI's API for all models of the cluster. Ctrl-C or "
    "SIGTERM\n"
    "stops it cleanly.\n\n";

static const char usage_end[] =
    "\n"
    "The node keeps its state in MEDLEY_STATE_DIR, else in XDG_STATE_HOME/medley, else in\n"
    "~/.local/state/medley. Several nodes on one machine need a folder and ports of their own.\n";

struct up {
    struct up_flags flags;
    char folder[PATH_MAX], model[PATH_MAX];
    struct gpu *gpu;
    struct heat *heat;
    struct children *children;
    struct daemon *daemon;
    struct up_models *models;
    struct api_server *api;
    bool failed; /* the node could not go on: why */
    struct error why;
    void (*stopped)(void *node);
    void *stopped_arg;
};

static bool cmd_up_parse(int argc, char **argv, struct up *up)
{
    const char *no_word;
    return options_parse(&command_up, argc, argv, &up->flags) &&
           option_rest(&command_up, argc, argv, NULL, &no_word);
}

/* ---- the node and its API as one service: the API ends first --------------------------------- */

static void cmd_up_say(void *self, const char *line)
{
    (void)self;
    printf("%s\n", line);
    fflush(stdout);
}

/* As if somebody had asked it to stop. */
static void cmd_up_over(void *self, const struct error *why)
{
    struct up *up = self;
    up->failed = why;
    if (why)
        up->why = *why;
    raise(SIGTERM);
}

static bool up_find_token(void *self, const uint8_t *hash, struct access_grant *out)
{
    return daemon_find_token(self, hash, out);
}

static bool up_knows_tokens(void *self)
{
    return daemon_knows_tokens(self);
}

static bool up_requires_token(void *self)
{
    return daemon_has_had_tokens(self);
}

static bool up_token_may_use(void *self, const uint8_t *hash, const char *model, bool lists,
                             struct error *why)
{
    return daemon_token_may_use(self, hash, model, lists, why);
}

static enum error_code up_ask(void *self, const char *name, const char *body, size_t size,
                              const char *actor, const struct api_bridge_hearer *hearer, void **out,
                              struct error *err)
{
    const struct daemon_hearer daemon_hearer = {hearer->line, hearer->ended, hearer->self};
    struct conversation *conversation;
    enum error_code code =
        daemon_begin_request(self, name, body, size, actor, &daemon_hearer, &conversation, err);
    *out = conversation;
    return code;
}

static void up_cancel(void *self, void *asked)
{
    (void)self;
    daemon_cancel_request(asked);
}

static struct api_access up_access_of(struct daemon *daemon)
{
    return (struct api_access){.find = up_find_token,
                               .is_ready = up_knows_tokens,
                               .is_required = up_requires_token,
                               .may_use = up_token_may_use,
                               .self = daemon,
                               .audit = daemon_audit_sink(daemon)};
}

/* Where the page is, for a browser on this machine. */
static void up_say_page(const struct up *up, const char *url)
{
    const char *host = api_server_host(up->api);
    if (strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0)
        printf("open %.*s://localhost:%u/ in a browser; on other machines, with this one's name\n",
               (int)strcspn(url, ":"), url, api_server_port(up->api));
    else
        printf("open %s/ in a browser\n", url);
}

static void up_write_metrics(void *self, struct metrics_page *page)
{
    daemon_write_metrics(self, page);
}

static enum error_code cmd_up_open_api(struct up *up, void *uv_loop, struct error *err)
{
    char url[128];
    if (!up->flags.api_options.address)
        return ERROR_NONE;
    up->models = up_models_new(up->daemon);
    if (!up->models)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the API");
    up->flags.api_options.models = up_models_of(up->models);
    up->flags.api_options.live = daemon_live_feed(up->daemon);
    up->flags.api_options.tls.state_folder = up->folder;
    up->flags.api_options.puller = this_program();
    up->flags.api_options.tls.node_name = daemon_own_name(up->daemon);
    up->flags.api_options.tls.source = daemon_api_source(up->daemon);
    up->flags.api_options.access = up_access_of(up->daemon);
    up->flags.api_options.node_id = daemon_own_id(up->daemon);
    up->flags.api_options.node_name = daemon_own_name(up->daemon);
    up->flags.api_options.bridge = (struct api_bridge){up_ask, up_cancel, up->daemon};
    up->flags.api_options.metrics = (struct api_metrics_source){up_write_metrics, up->daemon};
    up->flags.api_options.name = up->flags.node.name;
    up->flags.api_options.serves_page = !up->flags.no_page;
    enum error_code code = api_server_open(uv_loop, &up->flags.api_options, &up->api, err);
    if (code)
        return code;
    api_server_url(up->api, url, sizeof url);
    daemon_set_api(up->daemon, url);
    printf("listening on %s\n", url);
    if (!up->flags.no_page)
        up_say_page(up, url);
    fflush(stdout);
    return ERROR_NONE;
}

static enum error_code open_up(void *arg, void *uv_loop, struct error *err)
{
    struct up *up = arg;
    enum error_code code = daemon_open(uv_loop, &up->flags.node, &up->daemon, err);
    if (code)
        return code;
    code = cmd_up_open_api(up, uv_loop, err);
    if (code) {
        daemon_close_now(up->daemon);
        up_models_free(up->models);
    } else if (up->flags.model) {
        daemon_serve_file(up->daemon, up->model);
    }
    return code;
}

static void on_api_stopped(void *arg)
{
    struct up *up = arg;
    daemon_stop(up->daemon, up->stopped, up->stopped_arg);
}

static void stop_up(void *arg, void (*stopped)(void *node), void *node)
{
    struct up *up = arg;
    up->stopped = stopped;
    up->stopped_arg = node;
    if (up->api)
        api_server_stop(up->api, on_api_stopped, up);
    else
        on_api_stopped(up);
}

static void reload_up(void *arg)
{
    const struct up *up = arg;
    if (up->api)
        api_server_reload(up->api);
}

static void close_up(void *arg)
{
    struct up *up = arg;
    if (up->api)
        api_server_close(up->api);
}

static void free_up(void *arg)
{
    struct up *up = arg;
    api_server_free(up->api);
    up_models_free(up->models);
    daemon_free(up->daemon);
}

/* ---- running --------------------------------------------------------------------------------- */

static enum error_code open_children(struct up *up, const char *registry, struct error *err)
{
    char folder[PATH_MAX];
    struct error why;
    const bool has_folder =
        state_folder_file("drivers", folder, sizeof folder) && !durable_make_folder(folder, &why);
    const struct children_options options = {
        .gpu = up->gpu,
        .folder = has_folder ? folder : NULL,
        .no_sandbox = up->flags.no_sandbox,
        .backend = up->flags.gpu_options.backend,
        .sim_file = up->flags.gpu_options.sim_file,
        .registry = registry,
        .n_cpu_threads = up->flags.gpu_options.n_cpu_threads,
    };
    return children_open(&options, &up->children, err);
}

/* The leader hears it by what this node says of its devices (Now), and answers where the model's
 * owner allows it. */
static void up_on_precision(void *arg, struct device *device, bool lower)
{
    (void)arg;
    (void)device;
    (void)lower;
}

static enum error_code open_devices(struct up *up, struct error *err)
{
    char registry[PATH_MAX];
    struct notice notice;
    gpu_registry_path(registry, sizeof registry);
    up->flags.gpu_options.registry = registry;
    up->flags.gpu_options.prober = this_program();
    up->flags.gpu_options.prober_is_free = up->flags.no_sandbox;
    up->flags.gpu_options.skip_other = up->flags.gpu_options.sim_file;
    notice_begin(&notice, "looking at the devices …");
    enum error_code code = gpu_open(&up->flags.gpu_options, &up->gpu, err);
    const struct heat_options watching = {.watch_only = up->flags.no_governor,
                                          .on_precision = up_on_precision};
    if (!code)
        code = heat_open(up->gpu, &watching, &up->heat, err);
    notice_end(&notice);
    if (!code && !up->flags.in_process)
        code = open_children(up, registry, err);
    up->flags.node.gpu = up->gpu;
    up->flags.node.heat = up->heat;
    up->flags.node.children = up->children;
    return code;
}

/* Nothing would be unsafe: every request would be refused. But nobody wants that. A machine that
 * joins does not know the cluster's tokens yet. */
static enum error_code up_check_tokens(const struct up *up, const struct api_address *address,
                                       struct error *err)
{
    if (api_address_is_loopback(address->host) || up->flags.api_options.is_open ||
        up->flags.node.join_code || daemon_folder_has_had_tokens(up->folder))
        return ERROR_NONE;
    return error_set(
        err, ERROR_INVALID,
        "%s: other machines reach that address, and there is no token yet. Start "
        "with --api 127.0.0.1:8080, make one with `medley token create NAME`, and start "
        "again; or let everybody in with --open",
        up->flags.api_options.address);
}

static enum error_code cmd_up_serve(struct up *up, struct error *err)
{
    struct api_address address;
    enum error_code code = ERROR_NONE;
    if (!state_folder(up->folder, sizeof up->folder))
        return error_set(err, ERROR_INVALID,
                         "there is no folder to keep the node's state in; set MEDLEY_STATE_DIR");
    code = daemon_check_folder(up->folder, err);
    if (code)
        return code;
    if (up->flags.api_options.address &&
        (code = api_address_parse(up->flags.api_options.address, &address, err)) == ERROR_NONE)
        code = listen_check(&address, err);
    if (!code && up->flags.api_options.address)
        code = up_check_tokens(up, &address, err);
    if (code)
        return error_wrap(err, "--api");
    if (up->flags.model && (code = model_word_file(up->flags.model, up->model, err)))
        return error_wrap(err, "--model");
    code = open_devices(up, err);
    if (code)
        return code;
    up->flags.node.folder = up->folder;
    up->flags.node.say = cmd_up_say;
    up->flags.node.says_to_terminal = isatty(STDOUT_FILENO);
    up->flags.node.over = cmd_up_over;
    up->flags.node.self = up;
    struct node_service service = {"node", open_up, stop_up, close_up, free_up, up, reload_up};
    code = node_run(&service, 1, err);
    return !code && up->failed ? error_set(err, up->why.code, "%s", up->why.text) : code;
}

static int cmd_up_run(int argc, char **argv)
{
    struct up up = {.flags.node.port = DAEMON_PORT};
    struct error err;
    if (!cmd_up_parse(argc, argv, &up))
        return EXIT_USAGE;
    private_process_begin();
    gguf_trial_require(this_program(), 0);
    heap_return_large();
    enum error_code code = cmd_up_serve(&up, &err);
    children_close(up.children);
    heat_close(up.heat);
    if (up.gpu)
        gpu_close(up.gpu);
    return code ? command_fail(&command_up, &err) : EXIT_OK;
}

const struct command command_up = {.name = "up",
                                   .summary = "start this machine's node: the cluster and its API",
                                   .usage = usage,
                                   .options = up_sections,
                                   .usage_end = usage_end,
                                   .run = cmd_up_run};
