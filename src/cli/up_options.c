#include "cli/up_options.h"

#include "api/listen.h"
#include "base/amount.h"
#include "cli/commands.h"
#include "cli/limit_option.h"
#include "cli/tls_flags.h"
#include "lending/lending.h"
#include "mesh/host_port.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool up_take_api(const struct command *command, const struct option_row *row,
                        const char *value, void *flags)
{
    (void)command, (void)row;
    ((struct up_flags *)flags)->api_options.address = strcmp(value, "none") == 0 ? NULL : value;
    return true;
}

static bool up_take_transport(const struct command *command, const struct option_row *row,
                              const char *value, void *flags)
{
    struct up_flags *up = flags;
    up->node.transport = strcmp(value, "quic") == 0 ? MESH_QUIC : MESH_TCP;
    if (up->node.transport == MESH_QUIC || strcmp(value, "tcp") == 0)
        return true;
    command_misused(command, "%s takes tcp or quic, not '%s'", option_name(row), value);
    return false;
}

static bool up_take_wire(const struct command *command, const struct option_row *row,
                         const char *value, void *flags)
{
    if (activation_type_parse(value, &((struct up_flags *)flags)->node.wire))
        return true;
    command_misused(command, "%s takes f16, f32 or q8, not '%s'", option_name(row), value);
    return false;
}

static bool up_take_listen(const struct command *command, const struct option_row *row,
                           const char *value, void *flags)
{
    struct up_flags *up = flags;
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

/* A plain number is GiB. */
static bool up_take_models_max(const struct command *command, const struct option_row *row,
                               const char *value, void *flags)
{
    static const struct amount_rule rule = {.plain_bytes = 1 << 30, .min = 1 << 30};
    struct error err;
    if (!amount_read(option_name(row), value, &rule,
                     &((struct up_flags *)flags)->node.models_max_bytes, &err))
        return true;
    command_misused(command, "%s", err.text);
    return false;
}

static bool up_take_patience(const struct command *command, const struct option_row *row,
                             const char *value, void *flags)
{
    uint32_t seconds = 0;
    if (!option_u32(command, option_name(row), value, 1, 24 * 3600, &seconds))
        return false;
    ((struct up_flags *)flags)->node.patience_ms = UINT64_C(1000) * seconds;
    return true;
}

static bool up_take_peer(const struct command *command, const struct option_row *row,
                         const char *value, void *flags)
{
    struct up_flags *up = flags;
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
    if (!api_options_add_host(&((struct up_flags *)flags)->api_options, value, &err))
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
    struct up_flags *up = flags;
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
     OPTION_TEXT(struct up_flags, api_options.cors_origin)},
    {OPTION_LIMIT(struct up_flags, api_options.limits)},
    {.name = "require-token",
     .help = "ask for a token on this machine, too, and before there is one",
     OPTION_TRUE(struct up_flags, api_options.requires_token)},
    {.name = "share-prefixes",
     .help = "reuse the beginnings of prompts between tokens, too: faster where all of them begin\n"
             "alike, but a client learns what others have asked",
     OPTION_TRUE(struct up_flags, api_options.shares_prefixes)},
    {.name = "no-page",
     .help = "serve the API alone, without the page for browsers",
     OPTION_TRUE(struct up_flags, no_page)},
    {.name = "open",
     .help = "ask nobody for a token: whoever reaches the API may use it",
     OPTION_TRUE(struct up_flags, api_options.is_open)},
    {.name = "traces",
     .value = "URL",
     .help = "send what each request took as OpenTelemetry spans to this address, such as\n"
             "http://127.0.0.1:4318/v1/traces (default: nowhere)",
     OPTION_TEXT(struct up_flags, api_options.traces_url)},
    {.name = "model",
     .letter = 'm',
     .value = "FILE",
     .help = "register this model with the cluster, and load it",
     OPTION_TEXT(struct up_flags, model)},
    {.name = "name",
     .value = "NAME",
     .help = "the machine's name (default: its host name)",
     OPTION_TEXT(struct up_flags, node.name)},
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
     OPTION_TEXT(struct up_flags, node.join_code)},
    {.name = "new",
     .help = "found a cluster at once if the machine is in none",
     OPTION_TRUE(struct up_flags, node.founds)},
    {.name = "no-discovery",
     .help = "neither look for others on the local networks nor be found there",
     OPTION_TRUE(struct up_flags, node.no_discovery)},
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
     OPTION_TEXT(struct up_flags, node.alert_webhook)},
    {.name = "alert-webhook-file",
     .value = "FILE",
     .help = "the first line of this file is that URL",
     OPTION_TEXT(struct up_flags, node.alert_webhook_file)},
    {.name = "alert-webhook-secret-file",
     .value = "FILE",
     .help = "the first line of this file signs them (HMAC-SHA256)",
     OPTION_TEXT(struct up_flags, node.alert_secret_file)},
    {.name = "no-moves",
     .help = "move no model for gain while this node leads (medley move --off: whoever leads)",
     OPTION_TRUE(struct up_flags, node.no_moves)},
    {.name = "models-max",
     .alias = "models-space",
     .value = "SIZE",
     .help = "disk space for models fetched from other machines, such as 200GiB; without a\n"
             "unit GiB (default: what is free)",
     .take = up_take_models_max},
};

static const struct option_row offer_options[] = {
    {.name = "backend",
     .value = "NAME",
     .help = "only this backend and the CPU",
     OPTION_TEXT(struct up_flags, gpu_options.backend)},
    {.name = "sim",
     .value = "FILE",
     .help = "simulated devices alone (docs/simulated-devices.md)",
     OPTION_TEXT(struct up_flags, gpu_options.sim_file)},
    {.name = "threads",
     .letter = 't',
     .value = "N",
     .help = "threads of the CPU",
     OPTION_U32(struct up_flags, gpu_options.n_cpu_threads, 1, 1024)},
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
     OPTION_TRUE(struct up_flags, in_process)},
    {.name = "no-sandbox",
     .help =
         "devices' processes may open any file and talk to the network, for a driver that needs\n"
         "more than libraries, its device and the model",
     OPTION_TRUE(struct up_flags, no_sandbox)},
    {.name = "no-calibrate",
     .help = "do not measure how fast devices are while the node is idle\n"
             "(`medley devices --calibrate` does it by hand)",
     OPTION_TRUE(struct up_flags, node.no_calibrate)},
    {.name = "no-governor",
     .help = "do not slow a device down before it gets too hot",
     OPTION_TRUE(struct up_flags, no_governor)},
};

const struct option_section up_sections[] = {
    {OPTION_ROWS(node_options), .column = 21},
    {TLS_SECTION(struct up_flags, api_options.tls)},
    {.title = "\nWhat it offers the cluster:\n", OPTION_ROWS(offer_options), .column = 21},
    {0},
};
