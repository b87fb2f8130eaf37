/* `medley sim`: the cluster's own code under a made-up clock, network, disks and devices. */
#include "sim/sim.h"
#include "base/clock.h"
#include "base/mem.h"
#include "cli/commands.h"
#include "cli/options.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char usage[] =
    "Usage: medley sim [options] [FILE]\n"
    "\n"
    "Runs a made-up cluster and checks after every step what must be true. Consensus, the log,\n"
    "the leader's, workers' and planner's code, the failure detector and the thermal governor are\n"
    "the real ones; clock, network, disks, devices and requests are simulated. FILE is a scenario\n"
    "(docs/simulator.md). Without it, the seed draws one: machines, instances, streams, and a\n"
    "minute of faults. If a check fails, the exit status is 1, and the output ends with the seed\n"
    "and the command that repeats the run.\n"
    "\n"
    "  --seed S      the first seed (default 1; of a FILE, its own)\n"
    "  --seeds N     how many seeds, one after the other (default 1)\n"
    "  --nodes N     machines (default: 3 to 7, drawn)\n"
    "  --minutes M   of faults, in the cluster's time (default 1)\n"
    "  --bug NAME    plant a bug in the tested code: half-cache, no-layer, forgets-text,\n"
    "                hands-on-twice or believes-anybody\n"
    "  --hostile N   so many more machines are hostile members (at most 4)\n"
    "  --shrink      on a violation, print the smallest scenario found that still has one\n"
    "  --write       print the scenario as a file, and run nothing\n"
    "  -v            print a line for every event\n";

enum {
    OPTION_SEED = 256,
    OPTION_SEEDS,
    OPTION_NODES,
    OPTION_MINUTES,
    OPTION_BUG,
    OPTION_HOSTILE,
    OPTION_SHRINK,
    OPTION_WRITE,
    SHRINK_RUNS = 400
};

static const struct option long_options[] = {
    {"seed", required_argument, NULL, OPTION_SEED},
    {"seeds", required_argument, NULL, OPTION_SEEDS},
    {"nodes", required_argument, NULL, OPTION_NODES},
    {"minutes", required_argument, NULL, OPTION_MINUTES},
    {"bug", required_argument, NULL, OPTION_BUG},
    {"hostile", required_argument, NULL, OPTION_HOSTILE},
    {"shrink", no_argument, NULL, OPTION_SHRINK},
    {"write", no_argument, NULL, OPTION_WRITE},
    {0},
};

static const struct command *const self = &command_sim;

struct sim_args {
    uint64_t seed;
    uint32_t seeds, nodes, minutes, hostile;
    enum scenario_bug bug;
    bool has_seed, shrink, write, verbose;
    const char *file;
};

struct sums {
    uint64_t violated, events, entries, elections, foundings, placements, failovers, requests,
        answered, failed, tokens, replays, pause_ms, converged_ms, cluster_ms, moves, suspicions,
        false_alarms, hottest_mc, throttled_ms, handed_over, forged, refused;
};

static bool cmd_sim_take_bug(const char *name, enum scenario_bug *out)
{
    for (*out = SCENARIO_BUG_NONE; *out < SCENARIO_BUGS; ++*out) {
        if (strcmp(scenario_bug_name(*out), name) == 0)
            return true;
    }
    command_misused(self, "there is no bug '%s' to be planted", name);
    return false;
}

static bool cmd_sim_take_option(struct sim_args *args, int option, const char *value)
{
    switch (option) {
    case OPTION_SEED:
        args->has_seed = true;
        return option_u64(self, "--seed", value, &args->seed);
    case OPTION_SEEDS:
        return option_u32(self, "--seeds", value, 1, 100000000, &args->seeds);
    case OPTION_NODES:
        return option_u32(self, "--nodes", value, 1, SCENARIO_NODES, &args->nodes);
    case OPTION_MINUTES:
        return option_u32(self, "--minutes", value, 1, 24 * 60, &args->minutes);
    case OPTION_BUG:
        return cmd_sim_take_bug(value, &args->bug);
    case OPTION_HOSTILE:
        return option_u32(self, "--hostile", value, 1, 4, &args->hostile);
    case OPTION_SHRINK:
        return args->shrink = true;
    case OPTION_WRITE:
        return args->write = true;
    case 'v':
        return args->verbose = true;
    default:
        return false;
    }
}

static bool cmd_sim_parse(int argc, char **argv, struct sim_args *args)
{
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, "v", long_options, NULL)) != -1;) {
        if (option == '?')
            return option_unknown(self, argv);
        if (!cmd_sim_take_option(args, option, optarg))
            return false;
    }
    if (optind + 1 < argc) {
        command_misused(self, "unexpected argument '%s'", argv[optind + 1]);
        return false;
    }
    args->file = argv[optind];
    if (args->file && (args->nodes || args->minutes || args->hostile)) {
        command_misused(self, "--nodes, --minutes and --hostile are for a scenario without a file");
        return false;
    }
    return true;
}

static enum error_code cmd_sim_read_file(const char *path, struct scenario *out, struct error *err)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return error_set(err, ERROR_NOT_FOUND, "%s: %s", path, strerror(errno));
    enum error_code code = ERROR_NO_MEMORY;
    char *text = mem_new(SCENARIO_FILE_BYTES + 2);
    if (!text)
        error_set(err, code, "no memory");
    else
        code = scenario_parse(text, fread(text, 1, SCENARIO_FILE_BYTES + 1, file), out, err);
    mem_free(text);
    fclose(file);
    return code && text ? error_wrap(err, "%s", path) : code;
}

static enum error_code get_scenario(const struct sim_args *args, uint64_t seed,
                                    struct scenario *out, struct error *err)
{
    if (!args->file)
        return scenario_random(&(struct scenario_wish){seed, args->nodes,
                                                       args->minutes * UINT64_C(60000),
                                                       args->hostile},
                               out, err);
    const enum error_code code = cmd_sim_read_file(args->file, out, err);
    if (!code && args->has_seed)
        out->seed = seed;
    return code;
}

static void cmd_sim_say(void *unused, uint64_t now_ms, const char *text)
{
    (void)unused;
    printf("%6" PRIu64 ".%03" PRIu64 " s  %s\n", now_ms / 1000, now_ms % 1000, text);
}

static void cmd_sim_add(struct sums *sums, const struct sim_result *r)
{
    sums->violated += r->violated;
    sums->events += r->events;
    sums->entries += r->entries;
    sums->elections += r->elections;
    sums->foundings += r->generations ? r->generations - 1 : 0;
    sums->placements += r->placements;
    sums->failovers += r->failovers;
    sums->requests += r->requests;
    sums->answered += r->answered;
    sums->failed += r->failed;
    sums->tokens += r->tokens;
    sums->replays += r->replays;
    sums->cluster_ms += r->at_ms;
    sums->moves += r->moves;
    sums->suspicions += r->suspicions;
    sums->false_alarms += r->false_alarms;
    sums->handed_over += r->handed_over;
    sums->forged += r->forged;
    sums->refused += r->refused;
    sums->throttled_ms += r->throttled_ms;
    sums->hottest_mc = r->hottest_mc > sums->hottest_mc ? r->hottest_mc : sums->hottest_mc;
    sums->pause_ms = r->longest_pause_ms > sums->pause_ms ? r->longest_pause_ms : sums->pause_ms;
    sums->converged_ms =
        r->converged_ms > sums->converged_ms ? r->converged_ms : sums->converged_ms;
}

static void cmd_sim_print_file(const struct scenario *scenario)
{
    struct buffer text = {0};
    scenario_write(scenario, &text);
    if (!text.failed)
        fputs(text.data ? text.data : "", stdout);
    buffer_deinit(&text);
}

static enum error_code print_violation(const struct sim_args *args, struct scenario *scenario,
                                       uint64_t seed, const char *why, struct error *err)
{
    struct sim_result result;
    printf("seed %" PRIu64 ": %s\n", seed, why);
    printf("  again: medley sim --seed %" PRIu64, seed);
    if (args->nodes)
        printf(" --nodes %u", args->nodes);
    if (args->hostile)
        printf(" --hostile %u", args->hostile);
    if (args->bug)
        printf(" --bug %s", scenario_bug_name(args->bug));
    if (args->minutes)
        printf(" --minutes %u", args->minutes);
    printf(" -v%s%s\n", args->file ? " " : "", args->file ? args->file : "");
    if (!args->shrink)
        return ERROR_NONE;
    const enum error_code code = sim_shrink(scenario, SHRINK_RUNS, &result, err);
    if (!code) {
        printf("# %s\n", result.what);
        cmd_sim_print_file(scenario);
    }
    return code;
}

static void print_sums(const struct sim_args *args, const struct sums *s, double seconds)
{
    printf("%u seeds, %" PRIu64 " with violations; %.1f minutes of cluster time in %.2f s (%.0f "
           "seeds a minute, %.2f million "
           "steps a second)\n",
           args->seeds, s->violated, (double)s->cluster_ms / 60000, seconds,
           args->seeds * 60 / seconds, (double)s->events / seconds / 1e6);
    printf("log: %" PRIu64 " entries, %" PRIu64 " elections, %" PRIu64 " foundings anew\n",
           s->entries, s->elections, s->foundings);
    printf("placements: %" PRIu64 ", %" PRIu64 " of them of what worked; drivers lost: %" PRIu64
           "; nodes suspected: %" PRIu64 ", %" PRIu64 " of them wrongly",
           s->placements, s->moves, s->failovers, s->suspicions, s->false_alarms);
    if (s->hottest_mc)
        printf("; hottest device: %.1f C, %.1f s at less than full duty",
               (double)s->hottest_mc / 1000, (double)s->throttled_ms / 1000);
    printf("\n");
    printf("requests: %" PRIu64 ", %" PRIu64 " answered, %" PRIu64
           " ended with the node that was asked or for lack of patience; %" PRIu64
           " tokens, %" PRIu64 " replays, %" PRIu64
           " with caches that went along, longest pause %.1f s\n",
           s->requests, s->answered, s->failed, s->tokens, s->replays, s->handed_over,
           (double)s->pause_ms / 1000);
    if (s->forged)
        printf("hostile members: %" PRIu64 " messages; %" PRIu64 " times one was refused aloud\n",
               s->forged, s->refused);
    printf("everything was in order at most %.1f s after the last fault\n",
           (double)s->converged_ms / 1000);
}

static enum error_code run_seed(const struct sim_args *args, uint64_t seed, struct sums *sums,
                                struct error *err)
{
    const struct sim_options options = {args->verbose ? cmd_sim_say : NULL, NULL};
    struct scenario scenario;
    struct sim_result result;
    char why[ERROR_TEXT_MAX];
    enum error_code code = get_scenario(args, seed, &scenario, err);
    if (code)
        return code;
    if (args->bug)
        scenario.bug = args->bug;
    if (args->write) {
        cmd_sim_print_file(&scenario);
    } else {
        code = sim_run(&scenario, &options, &result, err);
        if (!code) {
            const bool good = sim_as_expected(&scenario, &result, why, sizeof why);
            cmd_sim_add(sums, &result);
            sums->violated += !good && !result.violated;
            if (!good)
                code = print_violation(args, &scenario, scenario.seed, why, err);
        }
    }
    scenario_deinit(&scenario);
    return code;
}

static int cmd_sim_run(int argc, char **argv)
{
    struct sim_args args = {.seed = 1, .seeds = 1};
    struct sums sums = {0};
    struct error err;
    enum error_code code = ERROR_NONE;
    if (!cmd_sim_parse(argc, argv, &args))
        return EXIT_USAGE;
    const uint64_t began_ns = clock_now_ns();
    for (uint32_t i = 0; i < args.seeds && !code; i++)
        code = run_seed(&args, args.seed + i, &sums, &err);
    if (code)
        return command_fail(self, &err);
    if (!args.write)
        print_sums(&args, &sums, (double)(clock_now_ns() - began_ns) * 1e-9);
    return sums.violated ? EXIT_FAILED : EXIT_OK;
}

const struct command command_sim = {
    .name = "sim",
    .summary = "run a made-up cluster through faults, and check it",
    .usage = usage,
    .run = cmd_sim_run,
};
