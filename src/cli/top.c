/* medley top: what the devices are doing now, until it is ended. */
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/top_screen.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

static const char usage[] =
    "Usage: medley top [--once] [--json] [--interval MS] [--backend NAME] [--sim FILE]\n"
    "\n"
    "Shows each device's use, memory, temperature, power and clock, and how much headroom its\n"
    "heat leaves: how many watts more it could take, and when it would have to stop as it goes\n"
    "on now (known after some minutes of watching). Below a device stands what a governor would\n"
    "do about its heat now; only `medley run` and `medley up` govern. q or Ctrl-C ends it.\n"
    "\n"
    "  --once           show one sample and end; what a pipe or file gets anyway\n"
    "  --json           one JSON object for each sample, on one line; what is not known is null\n"
    "  --interval MS    between samples, 100 to 60000 (default 500)\n"
    "  --backend NAME   only this backend and the CPU\n"
    "  --sim FILE       simulated devices too (docs/simulated-devices.md)\n";

struct top {
    struct gpu_options gpu;
    uint32_t interval_ms;
    bool once, json;
};

static volatile sig_atomic_t ended;

static void end(int signal)
{
    (void)signal;
    ended = 1;
}

static bool parse(int argc, char **argv, struct top *top)
{
    enum { ONCE = 256, JSON, INTERVAL, BACKEND, SIM };
    static const struct option options[] = {{"once", no_argument, NULL, ONCE},
                                            {"json", no_argument, NULL, JSON},
                                            {"interval", required_argument, NULL, INTERVAL},
                                            {"backend", required_argument, NULL, BACKEND},
                                            {"sim", required_argument, NULL, SIM},
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
        command_misused(&command_top, "'%s' is one word too many", argv[optind]);
        return false;
    }
    return true;
}

/* ---- the terminal --------------------------------------------------------------------------- */

struct terminal {
    struct termios before;
    bool keys; /* stdin is a terminal: keys come one by one */
};

static void terminal_enter(struct terminal *terminal)
{
    terminal->keys = tcgetattr(STDIN_FILENO, &terminal->before) == 0;
    if (terminal->keys) {
        struct termios raw = terminal->before;
        raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    }
    fputs("\033[?1049h\033[?25l", stdout); /* the other screen, no cursor */
}

static void terminal_leave(const struct terminal *terminal)
{
    fputs("\033[?25h\033[?1049l", stdout);
    fflush(stdout);
    if (terminal->keys)
        tcsetattr(STDIN_FILENO, TCSANOW, &terminal->before);
}

static uint32_t terminal_width(void)
{
    struct winsize size;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 40 ? size.ws_col : 120;
}

/* True when somebody pressed q. */
static bool wait_for_key(bool keys, uint32_t ms)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    if (poll(&input, keys ? 1 : 0, (int)ms) <= 0 || !(input.revents & POLLIN))
        return false;
    char key = 0;
    return read(STDIN_FILENO, &key, 1) == 1 && (key == 'q' || key == 'Q');
}

/* ---- showing -------------------------------------------------------------------------------- */

/* Power from an energy counter, and the machine's load, need two samples. */
static void wait_for_samples(struct heat *heat, uint32_t interval_ms, struct heat_snapshot *snapshot)
{
    uint64_t first = 0;
    for (uint32_t waited = 0; waited < 2000 + 2 * interval_ms && !ended; waited += 20) {
        heat_latest(heat, snapshot);
        if (first && snapshot->time_ns != first)
            return;
        first = first ? first : snapshot->time_ns;
        wait_for_key(false, 20);
    }
}

static int show(const struct top *top, const struct heat_snapshot *snapshot, uint32_t width, bool live)
{
    struct buffer text = {0};
    if (top->json)
        top_json(snapshot, &text);
    else
        top_screen(snapshot, width, &text);
    bool failed = text.failed;
    if (!failed) {
        if (live) /* from the top left; each line erases what was behind it, the end what was below */
            fputs("\033[H", stdout);
        for (size_t at = 0, length; at < text.size; at += length) {
            const char *newline = memchr(text.data + at, '\n', text.size - at);
            length = newline ? (size_t)(newline - text.data) + 1 - at : text.size - at;
            fwrite(text.data + at, 1, length - (newline != NULL), stdout);
            fputs(live ? "\033[K\n" : "\n", stdout);
        }
        if (live)
            fputs("\033[J", stdout);
        failed = fflush(stdout) != 0;
    }
    buffer_deinit(&text);
    return failed ? EXIT_FAILED : EXIT_OK;
}

static int watch(const struct top *top, struct heat *heat)
{
    struct heat_snapshot *snapshot = calloc(1, sizeof *snapshot);
    if (!snapshot)
        return EXIT_FAILED;
    bool live = !top->json && !top->once && isatty(STDOUT_FILENO);
    bool single = top->once || (!top->json && !live);
    struct terminal terminal = {0};
    wait_for_samples(heat, top->interval_ms, snapshot);
    if (live)
        terminal_enter(&terminal);
    int status = EXIT_OK;
    while (!ended && status == EXIT_OK) {
        heat_latest(heat, snapshot);
        status = show(top, snapshot, live ? terminal_width() : 160, live);
        if (single || wait_for_key(live && terminal.keys, top->interval_ms))
            break;
    }
    if (live)
        terminal_leave(&terminal);
    free(snapshot);
    return status;
}

static int run(int argc, char **argv)
{
    char registry[PATH_MAX];
    gpu_registry_path(registry, sizeof registry);
    struct top top = {.gpu = {.registry = registry, .prober = "/proc/self/exe"}, .interval_ms = 500};
    if (!parse(argc, argv, &top))
        return EXIT_USAGE;
    struct error err;
    struct gpu *gpu;
    if (gpu_open(&top.gpu, &gpu, &err))
        return command_fail(&command_top, &err);
    struct sigaction action = {.sa_handler = end};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    signal(SIGPIPE, SIG_IGN); /* a reader that has gone shows as a failed write */
    struct heat_options options = {.period_ms = top.interval_ms, .watch_only = true};
    struct heat *heat;
    int status = EXIT_FAILED;
    if (heat_open(gpu, &options, &heat, &err)) {
        command_fail(&command_top, &err);
    } else {
        status = watch(&top, heat);
        heat_close(heat);
    }
    gpu_close(gpu);
    return status;
}

const struct command command_top = {
    .name = "top",
    .summary = "use, memory, temperature and headroom of every device, live",
    .usage = usage,
    .run = run,
};
