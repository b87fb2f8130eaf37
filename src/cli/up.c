/* medley up: this machine's node of the cluster, and the HTTP API on it. */
#include "api/listen.h"
#include "api/server.h"
#include "base/buffer.h"
#include "base/durable_file.h"
#include "base/heap.h"
#include "base/private_process.h"
#include "base/state_folder.h"
#include "cli/commands.h"
#include "cli/limit_option.h"
#include "cli/notice.h"
#include "cli/options.h"
#include "cli/tls_flags.h"
#include "cli/up_models.h"
#include "gpu/gpu.h"
#include "heat/heat.h"
#include "lending/lending.h"
#include "mesh/host_port.h"
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
    struct daemon_options node;
    struct gpu_options gpu_options;
    struct api_options api_options;
    const char *model;
    char folder[PATH_MAX], listen_host[256];
    bool no_governor, in_process, no_sandbox, no_page;
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

/* ---- options --------------------------------------------------------------------------------- */

static bool up_take_api(const struct command *command, const struct option_row *row,
                        const char *value, void *flags)
{
    (void)command, (void)row;
    ((struct up *)flags)->api_options.address = strcmp(value, "none") == 0 ? NULL : value;
    return true;
}

static bool up_take_transport(const struct command *command, const struct option_row *row,
                              const char *value, void *flags)
{
    struct up *up = flags;
    up->node.transport = strcmp(value, "quic") == 0 ? MESH_QUIC : MESH_TCP;
    if (up->node.transport == MESH_QUIC || strcmp(value, "tcp") == 0)
        return true;
    command_misused(command, "%s takes tcp or quic, not '%s'", option_name(row), value);
    return false;
}

static bool up_take_wire(const struct command *command, const struct option_row *row,
                         const char *value, void *flags)
{
    if (activation_type_parse(value, &((struct up *)flags)->node.wire))
        return true;
    command_misused(command, "%s takes f16, f32 or q8, not '%s'", option_name(row), value);
    return false;
}

static bool up_take_listen(const struct command *command, const struct option_row *row,
                           const char *value, void *flags)
{
    struct up *up = flags;
    struct error err;
    char text[300];
    const bool everywhere = value[0] == ':' && value[1] != ':'; /* "::1" is an address */
    snprintf(text, sizeof text, "%s%s", everywhere ? "everywhere" : "", value);
    if (host_port_parse(text, DAEMON_PORT, up->listen_host, &up->node.port, &err)) {
        command_misused(command, "%s: %s", option_name(row), err.text);
        return false;
    }
    up->node.host = everywhere ? NULL : up->listen_host;
    return true;
}

static bool up_take_models_max(const struct command *command, const struct option_row *row,
                               const char *value, void *flags)
{
    uint32_t gib = 0;
    if (!option_u32(command, option_name(row), value, 1, 1 << 20, &gib))
        return false;
    ((struct up *)flags)->node.models_max_bytes = (uint64_t)gib << 30;
    return true;
}

static bool up_take_patience(const struct command *command, const struct option_row *row,
                             const char *value, void *flags)
{
    uint32_t seconds = 0;
    if (!option_u32(command, option_name(row), value, 1, 24 * 3600, &seconds))
        return false;
    ((struct up *)flags)->node.patience_ms = UINT64_C(1000) * seconds;
    return true;
}

static bool up_take_peer(const struct command *command, const struct option_row *row,
                         const char *value, void *flags)
{
    struct up *up = flags;
    if (up->node.n_peers == DAEMON_PEERS_MAX) {
        command_misused(command, "at most %d times %s", DAEMON_PEERS_MAX, option_name(row));
        return false;
    }
    up->node.peers[up->node.n_peers++] = value;
    return true;
}

static bool up_take_host(const struct command *command, const struct option_row *row,
                         const char *value, void *flags)
{
    struct error err;
    if (!api_options_add_host(&((struct up *)flags)->api_options, value, &err))
        return true;
    command_misused(command, "%s: %s", option_name(row), err.text);
    return false;
}

/* Of this row, and what is meant by it. */
static bool up_take_lend(const struct command *command, const struct option_row *row,
                         const char *value, void *flags)
{
    static const char *const settings[][3] = {{"lend", "share", NULL},
                                              {"lend-memory", "memory", NULL},
                                              {"devices", "devices", NULL},
                                              {"lend-hours", "hours", NULL},
                                              {"not-on-battery", "battery", "no"},
                                              {"pause-when-used", "used", "no"}};
    struct up *up = flags;
    struct lending lending = {0};
    struct error err;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        if (strcmp(settings[i][0], row->name) != 0)
            continue;
        const struct daemon_lend lend = {settings[i][1], settings[i][2] ? settings[i][2] : value};
        if (up->node.n_lends == sizeof up->node.lends / sizeof *up->node.lends ||
            lending_set(&lending, lend.setting, lend.value, &err)) {
            command_misused(command, "%s: %s", option_name(row),
                            lending_set(&lending, lend.setting, lend.value, &err)
                                ? err.text
                                : "given too often");
            return false;
        }
        up->node.lends[up->node.n_lends++] = lend;
    }
    return true;
}

static const struct option_row node_options[] = {
    {.name = "api",
     .value = "ADDRESS",
     .standard = "127.0.0.1:8080",
     .help = "HOST:PORT, :PORT (this machine only) or [::1]:PORT; port 0 takes a free one\n"
             "(default %s), `none`: no API. Where other machines reach it, every request needs a\n"
             "token (medley token)",
     .take = up_take_api},
    {.name = "host",
     .value = "NAME",
     .help = "answer requests for this host, too (may be given several times); without it\n"
             "only for this machine's names and addresses",
     .take = up_take_host},
    {.name = "cors",
     .value = "ORIGIN",
     .help = "let web pages of that origin, or * for all, use the API",
     OPTION_TEXT(struct up, api_options.cors_origin)},
    {OPTION_LIMIT(struct up, api_options.limits)},
    {.name = "require-token",
     .help = "ask for a token on this machine, too, and before there is one",
     OPTION_TRUE(struct up, api_options.requires_token)},
    {.name = "share-prefixes",
     .help = "reuse the beginnings of prompts between tokens, too: faster where all of them begin\n"
             "alike, but a client learns what others have asked",
     OPTION_TRUE(struct up, api_options.shares_prefixes)},
    {.name = "no-page",
     .help = "serve the API alone, without the page for browsers",
     OPTION_TRUE(struct up, no_page)},
    {.name = "open",
     .help = "ask nobody for a token: whoever reaches the API may use it",
     OPTION_TRUE(struct up, api_options.is_open)},
    {.name = "traces",
     .value = "URL",
     .help = "send what each request took as OpenTelemetry spans to this address, such as\n"
             "http://127.0.0.1:4318/v1/traces (default: nowhere)",
     OPTION_TEXT(struct up, api_options.traces_url)},
    {.name = "model",
     .letter = 'm',
     .value = "FILE",
     .help = "register this model with the cluster, and load it",
     OPTION_TEXT(struct up, model)},
    {.name = "name",
     .value = "NAME",
     .help = "the machine's name (default: its host name)",
     OPTION_TEXT(struct up, node.name)},
    {.name = "listen",
     .value = "ADDRESS",
     .help = "HOST, HOST:PORT or :PORT for other nodes (default: every address, port 7979)",
     .take = up_take_listen},
    {.name = "peer",
     .value = "HOST[:PORT]",
     .help = "a member that discovery does not find (may be repeated)",
     .take = up_take_peer},
    {.name = "join",
     .value = "CODE",
     .help = "join with this code if the machine is in no cluster",
     OPTION_TEXT(struct up, node.join_code)},
    {.name = "new",
     .help = "found a cluster at once if the machine is in none",
     OPTION_TRUE(struct up, node.founds)},
    {.name = "no-discovery",
     .help = "neither look for others on the local networks nor be found there",
     OPTION_TRUE(struct up, node.no_discovery)},
    {.name = "transport",
     .value = "NAME",
     .standard = "tcp",
     .help = "%s (default) or quic, the same on all nodes",
     .take = up_take_transport},
    {.name = "wire",
     .value = "TYPE",
     .standard = "f32",
     .help = "hidden states between machines as %s (default), f16 or q8. Fewer bytes, but an\n"
             "answer that goes on after the loss of a machine may take another word",
     .take = up_take_wire},
    {.name = "patience",
     .value = "SECONDS",
     .standard = "600",
     .help = "how long a request waits for a model that is loading or was lost with a machine\n"
             "(default %s)",
     .take = up_take_patience},
    {.name = "alert-webhook",
     .value = "URL",
     .help =
         "tell alerts there, by a POST of JSON, while this node leads (docs/alerts.md). Who lists\n"
         "this machine's processes sees the URL; the next option and the variable\n"
         "MEDLEY_ALERT_WEBHOOK hide it",
     OPTION_TEXT(struct up, node.alert_webhook)},
    {.name = "alert-webhook-file",
     .value = "FILE",
     .help = "the first line of this file is that URL",
     OPTION_TEXT(struct up, node.alert_webhook_file)},
    {.name = "alert-webhook-secret-file",
     .value = "FILE",
     .help = "the first line of this file signs them (HMAC-SHA256)",
     OPTION_TEXT(struct up, node.alert_secret_file)},
    {.name = "no-moves",
     .help = "move no model for gain while this node leads (medley move --off: whoever leads)",
     OPTION_TRUE(struct up, node.no_moves)},
    {.name = "models-max",
     .value = "GIB",
     .help = "disk space for fetched models (default: what is free)",
     .take = up_take_models_max},
};

static const struct option_row offer_options[] = {
    {.name = "backend",
     .value = "NAME",
     .help = "only this backend and the CPU",
     OPTION_TEXT(struct up, gpu_options.backend)},
    {.name = "sim",
     .value = "FILE",
     .help = "simulated devices alone (docs/simulated-devices.md)",
     OPTION_TEXT(struct up, gpu_options.sim_file)},
    {.name = "threads",
     .letter = 't',
     .value = "N",
     .help = "threads of the CPU",
     OPTION_U32(struct up, gpu_options.n_cpu_threads, 1, 1024)},
    {.name = "lend",
     .value = "PERCENT",
     .help = "at most this part of each memory, such as 50%; this and what follows is kept until\n"
             "it is said anew, here or with `medley lend` (docs/lending.md)",
     .take = up_take_lend},
    {.name = "lend-memory",
     .value = "SIZE",
     .help = "at most so much of each memory, such as 8GiB",
     .take = up_take_lend},
    {.name = "devices",
     .value = "LIST",
     .help = "only these devices, by their ids (medley devices), with commas",
     .take = up_take_lend},
    {.name = "lend-hours",
     .value = "A-B",
     .help = "only then, by the local clock, such as 22:00-07:00",
     .take = up_take_lend},
    {.name = "not-on-battery",
     .help = "nothing while the machine runs on its battery",
     .take = up_take_lend},
    {.name = "pause-when-used",
     .help = "nothing while others use more than half of its processors or of a card",
     .take = up_take_lend},
    {.name = "in-process",
     .help = "devices compute in the node's process, not in one of their own each: a driver that\n"
             "crashes or hangs then takes the node along, not its device for a moment",
     OPTION_TRUE(struct up, in_process)},
    {.name = "no-sandbox",
     .help =
         "devices' processes may open any file and talk to the network, for a driver that needs\n"
         "more than libraries, its device and the model",
     OPTION_TRUE(struct up, no_sandbox)},
    {.name = "no-calibrate",
     .help = "do not measure how fast devices are while the node is idle\n"
             "(`medley devices --calibrate` does it by hand)",
     OPTION_TRUE(struct up, node.no_calibrate)},
    {.name = "no-governor",
     .help = "do not slow a device down before it gets too hot",
     OPTION_TRUE(struct up, no_governor)},
};

static const struct option_section sections[] = {
    {OPTION_ROWS(node_options), .column = 21},
    {TLS_SECTION(struct up, api_options.tls)},
    {.title = "\nWhat it offers the cluster:\n", OPTION_ROWS(offer_options), .column = 21},
    {0},
};

static bool cmd_up_parse(int argc, char **argv, struct up *up)
{
    const char *no_word;
    return options_parse(&command_up, argc, argv, up) &&
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
    if (!up->api_options.address)
        return ERROR_NONE;
    up->models = up_models_new(up->daemon);
    if (!up->models)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the API");
    up->api_options.models = up_models_of(up->models);
    up->api_options.live = daemon_live_feed(up->daemon);
    up->api_options.tls.state_folder = up->folder;
    up->api_options.tls.node_name = daemon_own_name(up->daemon);
    up->api_options.tls.source = daemon_api_source(up->daemon);
    up->api_options.access = up_access_of(up->daemon);
    up->api_options.node_id = daemon_own_id(up->daemon);
    up->api_options.node_name = daemon_own_name(up->daemon);
    up->api_options.bridge = (struct api_bridge){up_ask, up_cancel, up->daemon};
    up->api_options.metrics = (struct api_metrics_source){up_write_metrics, up->daemon};
    up->api_options.name = up->node.name;
    up->api_options.serves_page = !up->no_page;
    enum error_code code = api_server_open(uv_loop, &up->api_options, &up->api, err);
    if (code)
        return code;
    api_server_url(up->api, url, sizeof url);
    daemon_set_api(up->daemon, url);
    printf("listening on %s\n", url);
    if (!up->no_page)
        up_say_page(up, url);
    fflush(stdout);
    return ERROR_NONE;
}

static enum error_code open_up(void *arg, void *uv_loop, struct error *err)
{
    struct up *up = arg;
    enum error_code code = daemon_open(uv_loop, &up->node, &up->daemon, err);
    if (code)
        return code;
    code = cmd_up_open_api(up, uv_loop, err);
    if (code) {
        daemon_close_now(up->daemon);
        up_models_free(up->models);
    } else if (up->model) {
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
        .no_sandbox = up->no_sandbox,
        .backend = up->gpu_options.backend,
        .sim_file = up->gpu_options.sim_file,
        .registry = registry,
        .n_cpu_threads = up->gpu_options.n_cpu_threads,
    };
    return children_open(&options, &up->children, err);
}

static enum error_code open_devices(struct up *up, struct error *err)
{
    char registry[PATH_MAX];
    struct notice notice;
    gpu_registry_path(registry, sizeof registry);
    up->gpu_options.registry = registry;
    up->gpu_options.prober = "/proc/self/exe";
    up->gpu_options.prober_is_free = up->no_sandbox;
    up->gpu_options.skip_other = up->gpu_options.sim_file;
    notice_begin(&notice, "looking at the devices …");
    enum error_code code = gpu_open(&up->gpu_options, &up->gpu, err);
    const struct heat_options watching = {.watch_only = up->no_governor};
    if (!code)
        code = heat_open(up->gpu, &watching, &up->heat, err);
    notice_end(&notice);
    if (!code && !up->in_process)
        code = open_children(up, registry, err);
    up->node.gpu = up->gpu;
    up->node.heat = up->heat;
    up->node.children = up->children;
    return code;
}

/* Nothing would be unsafe: every request would be refused. But nobody wants that. A machine that
 * joins does not know the cluster's tokens yet. */
static enum error_code up_check_tokens(const struct up *up, const struct api_address *address,
                                       struct error *err)
{
    if (api_address_is_loopback(address->host) || up->api_options.is_open || up->node.join_code ||
        daemon_folder_has_had_tokens(up->folder))
        return ERROR_NONE;
    return error_set(
        err, ERROR_INVALID,
        "%s: other machines reach that address, and there is no token yet. Start "
        "with --api 127.0.0.1:8080, make one with `medley token create NAME`, and start "
        "again; or let everybody in with --open",
        up->api_options.address);
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
    if (up->api_options.address &&
        (code = api_address_parse(up->api_options.address, &address, err)) == ERROR_NONE)
        code = listen_check(&address, err);
    if (!code && up->api_options.address)
        code = up_check_tokens(up, &address, err);
    if (code)
        return error_wrap(err, "--api");
    code = open_devices(up, err);
    if (code)
        return code;
    up->node.folder = up->folder;
    up->node.say = cmd_up_say;
    up->node.says_to_terminal = isatty(STDOUT_FILENO);
    up->node.over = cmd_up_over;
    up->node.self = up;
    struct node_service service = {"node", open_up, stop_up, close_up, free_up, up};
    code = node_run(&service, 1, err);
    return !code && up->failed ? error_set(err, up->why.code, "%s", up->why.text) : code;
}

static int cmd_up_run(int argc, char **argv)
{
    struct up up = {.node.port = DAEMON_PORT};
    struct error err;
    if (!cmd_up_parse(argc, argv, &up))
        return EXIT_USAGE;
    private_process_begin();
    gguf_trial_require("/proc/self/exe", 0);
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
                                   .options = sections,
                                   .usage_end = usage_end,
                                   .run = cmd_up_run};
