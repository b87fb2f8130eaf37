/* medley top: what the devices are doing now, until it is ended. */
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/top_cluster.h"
#include "cli/top_screen.h"
#include "cli/top_terminal.h"

#include "base/this_process.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char usage[] =
    "Usage: medley top [--once] [--json] [--interval MS] [--backend NAME] [--sim FILE]\n"
    "       medley top --cluster [--once] [--json]\n"
    "\n"
    "Shows each device's use, memory, temperature, power and clock, and the headroom that its\n"
    "heat leaves: how many more watts it could take, and when it would have to stop at this rate\n"
    "(known after some minutes of watching). Below each device stands what a governor would do\n"
    "about its heat now; only `medley run` and `medley serve` govern. q or Ctrl-C ends it.\n"
    "\n"
    "  --cluster        all devices of the cluster, as the node on this machine knows them\n"
    "  --once           show one sample and end; a pipe or file gets that anyway\n"
    "  --json           one JSON object for each sample, on one line; what is unknown is null\n"
    "  --interval MS    between samples, 100 to 60000 (default 500)\n"
    "  --backend NAME   only this backend and the CPU\n"
    "  --sim FILE       simulated devices too (docs/simulated-devices.md)\n";

struct top {
    struct gpu_options gpu;
    uint32_t interval_ms;
    bool once, json, cluster;
};

static bool cmd_top_parse(int argc, char **argv, struct top *top)
{
    enum { ONCE = 256, JSON, INTERVAL, BACKEND, SIM, CLUSTER };
    static const struct option options[] = {{"once", no_argument, NULL, ONCE},
                                            {"json", no_argument, NULL, JSON},
                                            {"interval", required_argument, NULL, INTERVAL},
                                            {"backend", required_argument, NULL, BACKEND},
                                            {"sim", required_argument, NULL, SIM},
                                            {"cluster", no_argument, NULL, CLUSTER},
                                            {NULL, 0, NULL, 0}};
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (option) {
        case ONCE:
            top->once = true;
            break;
        case JSON:
            top->json = true;
            break;
        case CLUSTER:
            top->cluster = true;
            break;
        case INTERVAL:
            if (!option_u32(&command_top, "--interval", optarg, 100, 60000, &top->interval_ms))
                return false;
            break;
        case BACKEND:
            top->gpu.backend = optarg;
            break;
        case SIM:
            top->gpu.sim_file = optarg;
            break;
        default:
            command_misused(&command_top, "unknown or incomplete option '%s'", argv[optind - 1]);
            return false;
        }
    }
    if (optind < argc) {
        command_misused(&command_top, "unexpected argument '%s'", argv[optind]);
        return false;
    }
    return true;
}

/* ---- showing -------------------------------------------------------------------------------- */

/* Power from an energy counter, and the machine's load, need two samples; but nobody waits for
 * long. False: it is to end. */
static bool wait_for_samples(struct heat *heat, struct heat_snapshot *snapshot)
{
    enum { STEP_MS = 20, LONGEST_MS = 2000 };
    uint64_t first = 0;
    for (uint32_t waited = 0; waited < LONGEST_MS; waited += STEP_MS) {
        heat_latest(heat, snapshot);
        if (first && snapshot->time_ns != first)
            break;
        first = first ? first : snapshot->time_ns;
        if (terminal_wait(STEP_MS) == TERMINAL_END)
            return false;
    }
    return true;
}

/* Lines as they are, or over what the terminal shows: each line erases what was there, the end what
 * is below. */
static bool cmd_top_put(const struct buffer *text, bool live)
{
    if (!live)
        return fwrite(text->data, 1, text->size, stdout) == text->size && fflush(stdout) == 0;
    fputs("\033[H\033[K", stdout);
    for (size_t at = 0; at < text->size; at++) {
        const bool is_last = at + 1 == text->size; /* a line end there would scroll a full screen */
        if (text->data[at] == '\n')
            fputs(is_last ? "" : "\n\033[K", stdout);
        else
            putchar(text->data[at]);
    }
    fputs("\033[J", stdout);
    return fflush(stdout) == 0;
}

static int cmd_top_show(const struct top *top, const struct heat_snapshot *snapshot, bool live)
{
    struct buffer text = {0};
    const struct terminal_size size =
        live ? terminal_size() : (struct terminal_size){.columns = 160};
    if (top->json)
        top_json(snapshot, &text);
    else
        top_screen(snapshot, size.columns, size.rows, &text);
    errno = 0;
    const bool shown = !text.failed && cmd_top_put(&text, live);
    if (!shown && errno != EPIPE) /* a reader that has seen enough is no failure to talk about */
        fprintf(stderr, "medley top: %s\n", text.failed ? "out of memory" : strerror(errno));
    buffer_deinit(&text);
    return shown ? EXIT_OK : EXIT_FAILED;
}

static int cmd_top_watch(const struct top *top, struct heat *heat)
{
    struct heat_snapshot *snapshot = calloc(1, sizeof *snapshot);
    if (!snapshot)
        return EXIT_FAILED;
    const bool live = !top->json && !top->once && isatty(STDOUT_FILENO);
    const bool single = top->once || (!top->json && !live);
    int status = EXIT_OK;
    if (wait_for_samples(heat, snapshot)) {
        if (live)
            terminal_enter();
        do {
            heat_latest(heat, snapshot);
            status = cmd_top_show(top, snapshot, live);
        } while (!single && status == EXIT_OK && terminal_wait(top->interval_ms) != TERMINAL_END);
        terminal_leave();
    }
    free(snapshot);
    return status;
}

static int cmd_top_run(int argc, char **argv)
{
    char registry[PATH_MAX];
    gpu_registry_path(registry, sizeof registry);
    struct top top = {.gpu = {.registry = registry, .prober = this_program()}, .interval_ms = 500};
    if (!cmd_top_parse(argc, argv, &top))
        return EXIT_USAGE;
    if (top.cluster)
        return top_cluster_run(top.once, top.json);
    struct error err;
    struct gpu *gpu;
    if (gpu_open(&top.gpu, &gpu, &err))
        return command_fail(&command_top, &err);
    signal(SIGPIPE, SIG_IGN); /* a reader that has gone shows as a failed write */
    struct heat_options options = {.period_ms = top.interval_ms, .watch_only = true};
    struct heat *heat;
    int status = EXIT_FAILED;
    if (!terminal_begin()) {
        error_set(&err, ERROR_IO, "no pipe for signals");
        command_fail(&command_top, &err);
    } else if (heat_open(gpu, &options, &heat, &err)) {
        command_fail(&command_top, &err);
    } else {
        status = cmd_top_watch(&top, heat);
        heat_close(heat);
    }
    gpu_close(gpu);
    return status;
}

const struct command command_top = {
    .name = "top",
    .summary = "show use, memory, temperature and headroom of every device, live",
    .usage = usage,
    .run = cmd_top_run,
};
