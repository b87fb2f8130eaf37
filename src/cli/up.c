/* medley up: this machine's node of the cluster, and the HTTP API on it. */
#include "api/listen.h"
#include "api/server.h"
#include "base/buffer.h"
#include "base/heap.h"
#include "base/state_folder.h"
#include "cli/commands.h"
#include "cli/notice.h"
#include "cli/options.h"
#include "cli/up_models.h"
#include "gpu/gpu.h"
#include "heat/heat.h"
#include "mesh/host_port.h"
#include "node/daemon.h"
#include "node/node.h"
#include "pipeline/children.h"

#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "Usage: medley up [options]\n"
    "\n"
    "Starts this machine's node. The first time it looks for a cluster on the local networks: "
    "where it\n"
    "finds one it waits to be let in, by `medley join CODE` here (`medley invite` on a member "
    "shows the\n"
    "code), or by hand; where it finds none it founds one. After that it is a member whenever it "
    "runs.\n"
    "Every node serves OpenAI's API over all models of the cluster. Ctrl-C or SIGTERM ends it in "
    "order.\n"
    "\n"
    "  --api ADDRESS      HOST:PORT, :PORT (this machine only) or [::1]:PORT; port 0 takes a free "
    "one\n"
    "                     (default 127.0.0.1:8080), `none`: no API. There is no authentication "
    "yet\n"
    "  --cors ORIGIN      let web pages of that origin, or * for all, use the API\n"
    "  -m, --model FILE   give the cluster this model, and load it\n"
    "  --name NAME        what this machine is called (default: its host name)\n"
    "  --listen ADDRESS   HOST, HOST:PORT or :PORT for other nodes (default: every address, port "
    "7979)\n"
    "  --peer HOST[:PORT] a member to talk to, where discovery does not find it (may be repeated)\n"
    "  --join CODE        join with this code if the machine is in no cluster\n"
    "  --new              found a cluster at once if the machine is in none\n"
    "  --no-discovery     neither look for others on the local networks nor be found there\n"
    "  --transport NAME   tcp (default) or quic, the same on all nodes\n"
    "  --wire TYPE        hidden states between machines as f32 (default), f16 or q8. Fewer bytes, "
    "but an\n"
    "                     answer that goes on after a machine was lost may take another word\n"
    "  --patience SECONDS how long a request waits for its model, when it is being loaded or was "
    "lost with a\n"
    "                     machine (default 600)\n"
    "  --no-moves         while this node leads, models are moved for no gain (medley move --off: "
    "whoever\n"
    "                     leads)\n"
    "  --models-max GIB   disk space for models that are fetched (default: what is free)\n"
    "\n"
    "What it offers the cluster:\n"
    "  --backend NAME     only this backend and the CPU\n"
    "  --sim FILE         simulated devices alone (docs/simulated-devices.md)\n"
    "  -t, --threads N    threads of the CPU\n"
    "  --in-process       devices compute in the node's process, not in one of their own each: a "
    "driver that\n"
    "                     crashes or hangs then takes the node along, not its device for a moment\n"
    "  --no-governor      do not slow a device down before it gets too hot\n"
    "\n"
    "What the node knows and keeps lies in MEDLEY_STATE_DIR, else XDG_STATE_HOME/medley, else\n"
    "~/.local/state/medley. Several nodes on one machine need a folder and ports each.\n";

enum {
    OPTION_API = 256,
    OPTION_CORS,
    OPTION_NAME,
    OPTION_LISTEN,
    OPTION_PEER,
    OPTION_JOIN,
    OPTION_NEW,
    OPTION_NO_DISCOVERY,
    OPTION_TRANSPORT,
    OPTION_WIRE,
    OPTION_MODELS_MAX,
    OPTION_BACKEND,
    OPTION_SIM,
    OPTION_NO_GOVERNOR,
    OPTION_NO_MOVES,
    OPTION_PATIENCE,
    OPTION_IN_PROCESS,
};

static const struct option long_options[] = {
    {"api", required_argument, NULL, OPTION_API},
    {"cors", required_argument, NULL, OPTION_CORS},
    {"model", required_argument, NULL, 'm'},
    {"name", required_argument, NULL, OPTION_NAME},
    {"listen", required_argument, NULL, OPTION_LISTEN},
    {"peer", required_argument, NULL, OPTION_PEER},
    {"join", required_argument, NULL, OPTION_JOIN},
    {"new", no_argument, NULL, OPTION_NEW},
    {"no-discovery", no_argument, NULL, OPTION_NO_DISCOVERY},
    {"transport", required_argument, NULL, OPTION_TRANSPORT},
    {"wire", required_argument, NULL, OPTION_WIRE},
    {"models-max", required_argument, NULL, OPTION_MODELS_MAX},
    {"backend", required_argument, NULL, OPTION_BACKEND},
    {"sim", required_argument, NULL, OPTION_SIM},
    {"threads", required_argument, NULL, 't'},
    {"no-governor", no_argument, NULL, OPTION_NO_GOVERNOR},
    {"no-moves", no_argument, NULL, OPTION_NO_MOVES},
    {"patience", required_argument, NULL, OPTION_PATIENCE},
    {"in-process", no_argument, NULL, OPTION_IN_PROCESS},
    {0},
};

struct up {
    struct daemon_options node;
    struct gpu_options gpu_options;
    struct api_options api_options;
    const char *model;
    char folder[PATH_MAX], listen_host[256];
    bool no_governor, in_process;
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

static bool take_transport(struct up *up, const char *value)
{
    up->node.transport = strcmp(value, "quic") == 0 ? MESH_QUIC : MESH_TCP;
    if (up->node.transport == MESH_QUIC || strcmp(value, "tcp") == 0)
        return true;
    command_misused(&command_up, "--transport takes tcp or quic, not '%s'", value);
    return false;
}

static bool take_wire(struct up *up, const char *value)
{
    if (activation_type_parse(value, &up->node.wire))
        return true;
    command_misused(&command_up, "--wire takes f16, f32 or q8, not '%s'", value);
    return false;
}

static bool take_listen(struct up *up, const char *value)
{
    struct error err;
    char text[300];
    const bool everywhere = value[0] == ':' && value[1] != ':'; /* "::1" is an address */
    snprintf(text, sizeof text, "%s%s", everywhere ? "everywhere" : "", value);
    if (host_port_parse(text, DAEMON_PORT, up->listen_host, &up->node.port, &err)) {
        command_misused(&command_up, "--listen: %s", err.text);
        return false;
    }
    up->node.host = everywhere ? NULL : up->listen_host;
    return true;
}

static bool take_models_max(struct up *up, const char *value)
{
    uint32_t gib = 0;
    if (!option_u32(&command_up, "--models-max", value, 1, 1 << 20, &gib))
        return false;
    up->node.models_max_bytes = (uint64_t)gib << 30;
    return true;
}

static bool take_patience(struct up *up, const char *value)
{
    uint32_t seconds = 0;
    if (!option_u32(&command_up, "--patience", value, 1, 24 * 3600, &seconds))
        return false;
    up->node.patience_ms = UINT64_C(1000) * seconds;
    return true;
}

static bool take_peer(struct up *up, const char *value)
{
    if (up->node.n_peers == DAEMON_PEERS_MAX) {
        command_misused(&command_up, "at most %d times --peer", DAEMON_PEERS_MAX);
        return false;
    }
    up->node.peers[up->node.n_peers++] = value;
    return true;
}

static bool cmd_up_take_option(struct up *up, int option, const char *value)
{
    switch (option) {
    case OPTION_API:
        up->api_options.address = strcmp(value, "none") == 0 ? NULL : value;
        return true;
    case OPTION_CORS:
        up->api_options.cors_origin = value;
        return true;
    case 'm':
        up->model = value;
        return true;
    case OPTION_NAME:
        up->node.name = value;
        return true;
    case OPTION_LISTEN:
        return take_listen(up, value);
    case OPTION_PEER:
        return take_peer(up, value);
    case OPTION_JOIN:
        up->node.join_code = value;
        return true;
    case OPTION_NEW:
        return up->node.founds = true;
    case OPTION_NO_DISCOVERY:
        return up->node.no_discovery = true;
    case OPTION_TRANSPORT:
        return take_transport(up, value);
    case OPTION_WIRE:
        return take_wire(up, value);
    case OPTION_MODELS_MAX:
        return take_models_max(up, value);
    case OPTION_NO_MOVES:
        return up->node.no_moves = true;
    case OPTION_PATIENCE:
        return take_patience(up, value);
    case OPTION_BACKEND:
        up->gpu_options.backend = value;
        return true;
    case OPTION_SIM:
        up->gpu_options.sim_file = value;
        return true;
    case OPTION_NO_GOVERNOR:
        return up->no_governor = true;
    case OPTION_IN_PROCESS:
        return up->in_process = true;
    case 't':
        return option_u32(&command_up, "--threads", value, 1, 1024, &up->gpu_options.n_cpu_threads);
    default:
        return false;
    }
}

static bool cmd_up_parse(int argc, char **argv, struct up *up)
{
    int option;
    opterr = 0;
    while ((option = getopt_long(argc, argv, "m:t:", long_options, NULL)) != -1) {
        if (option == '?') {
            command_misused(&command_up, "unknown or incomplete option '%s'", argv[optind - 1]);
            return false;
        }
        if (!cmd_up_take_option(up, option, optarg))
            return false;
    }
    if (optind < argc)
        command_misused(&command_up, "'%s' is one word too many", argv[optind]);
    return optind == argc;
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

static enum error_code cmd_up_open_api(struct up *up, void *uv_loop, struct error *err)
{
    char url[128];
    if (!up->api_options.address)
        return ERROR_NONE;
    up->models = up_models_new(up->daemon);
    if (!up->models)
        return error_set(err, ERROR_NO_MEMORY, "no memory for the API");
    up->api_options.models = up_models_of(up->models);
    enum error_code code = api_server_open(uv_loop, &up->api_options, &up->api, err);
    if (code)
        return code;
    const char *host = api_server_host(up->api);
    bool v6 = strchr(host, ':');
    snprintf(url, sizeof url, "http://%s%s%s:%u", v6 ? "[" : "", host, v6 ? "]" : "",
             api_server_port(up->api));
    daemon_set_api(up->daemon, url);
    printf("listening on %s\n", url);
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
    const struct children_options options = {
        .gpu = up->gpu,
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
    up->gpu_options.skip_other = up->gpu_options.sim_file;
    notice_begin(&notice, "looking at the devices …");
    enum error_code code = gpu_open(&up->gpu_options, &up->gpu, err);
    if (!code && !up->no_governor)
        code = heat_open(up->gpu, NULL, &up->heat, err);
    notice_end(&notice);
    if (!code && !up->in_process)
        code = open_children(up, registry, err);
    up->node.gpu = up->gpu;
    up->node.heat = up->heat;
    up->node.children = up->children;
    return code;
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
    if (code)
        return error_wrap(err, "--api");
    code = open_devices(up, err);
    if (code)
        return code;
    up->node.folder = up->folder;
    up->node.say = cmd_up_say;
    up->node.over = cmd_up_over;
    up->node.self = up;
    struct node_service service = {"node", open_up, stop_up, close_up, free_up, up};
    code = node_run(&service, 1, err);
    return !code && up->failed ? error_set(err, up->why.code, "%s", up->why.text) : code;
}

static int cmd_up_run(int argc, char **argv)
{
    struct up up = {.node = {.port = DAEMON_PORT, .wire = ACTIVATION_F32},
                    .api_options = {.address = "127.0.0.1:8080"}};
    struct error err;
    if (!cmd_up_parse(argc, argv, &up))
        return EXIT_USAGE;
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
                                   .run = cmd_up_run};
