/* medley plan: what a model will do on these machines, before anything is loaded. */
#include "base/amount.h"
#include "base/clock.h"
#include "cli/commands.h"
#include "cli/inspect.h"
#include "cli/model_given.h"
#include "cli/options.h"
#include "cli/plan_cluster.h"
#include "cli/plan_draft.h"
#include "cli/plan_here.h"
#include "cli/rope_option.h"
#include "clusterfile/cluster_file.h"
#include "model/model_precision.h"
#include "placing/placing.h"
#include "plan/plan_devices.h"
#include "plan/plan_model.h"
#include "plan/plan_stream.h"
#include "report/report.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

static const char usage[] =
    "Usage: medley plan MODEL.gguf [--cluster FILE | --here] [-c N] [--streams N] [options]\n"
    "\n"
    "Says which devices should hold which layers of a model, how fast it will be, and why. Reads\n"
    "the model's headers and loads nothing. Searches until the best placement is proved, or until\n"
    "the time is over. docs/planning.md explains the file, the formulas and the output.\n"
    "\n"
    "  --cluster FILE   the machines and links of a cluster file (JSON). Default: those of the\n"
    "                   cluster if a node runs here (medley up), else this machine's devices\n"
    "  --here           this machine's devices, even if a node runs\n"
    "  --sim FILE       simulated devices instead of this machine's\n"
    "  -c, --context N  tokens of prompt and answer together (default: in a cluster that runs, "
    "what\n"
    "                   fits, as for medley place; else the model's, up to 4096)\n"
    "  --streams N      sequences at once (default 1)\n"
    "  --goal GOAL      latency: each token as soon as possible (the default for one stream);\n"
    "                   throughput: the most tokens of all streams (the default for several); or\n"
    "                   mix: the least wait for a token where often one stream is alone\n"
    "  --busy P         of the mix: the part of the time that all streams are busy, 0 to 1\n"
    "                   (default 0.5)\n"
    "  --kv TYPE        type of the KV cache: f16 (default), f32, q8_0 or q4_0\n"
    "  --precision TYPE weights of this type where it is smaller, as for medley place\n"
    "  --prompt N       prompt tokens whose prefill is forecast (default: half the context)\n"
    "  --without NODE   leave a machine out; may be repeated\n"
    "  --add SPEC       also say what one more device would give; may be repeated. By its\n"
    "                   datasheet, NODE:MEMORY,BANDWIDTH[,FLOPS]: tower:24GiB,936GB/s,35TFLOP/s.\n"
    "                   One more like it: NODE:DEVICE. A preset: NODE:PRESET, tower:rtx-3090.\n"
    "                   For this machine alone, leave out NODE:\n"
    "  --policy POLICY  compare with what others do: memory (exo, llama.cpp), flops (cake), equal\n"
    "                   (distributed-llama), score, or all; may be repeated\n"
    "  --score-weights LIST\n"
    "                   what counts in the order in which the search tries devices first; by\n"
    "                   default compute=40,memory=30,network=15,thermal=10,bandwidth=5\n"
    "  --draft SMALL    with a smaller model of the same tokens that guesses (as for medley run "
    "and\n"
    "                   place): its memory, its device, and what it brings to one stream\n"
    "  --draft-device DEVICE\n"
    "                   where that guesses, of this machine's devices (default: where it is best)\n"
    "  --weights-memory SIZE\n"
    "                   of each stage's weights, at most; layers beyond are streamed\n" ROPE_HELP
    "  --explain        more: the rates behind it, every device left out, the search\n"
    "  --json           for programs\n"
    "  --time-limit S   of the search, in seconds (default 5), and as much again for all other\n"
    "                   questions; then the best answer so far is given\n"
    "\n"
    "If the model fits nowhere, the exit status is 1, and the output says what would make it "
    "fit.\n";

struct plan_args {
    const char *model, *cluster, *sim, *draft, *draft_device;
    struct driver_options driver;
    uint32_t prompt;
    bool has_goal, has_busy, explain, json, here;
    enum placement_goal goal;
    bool policies[REPORT_POLICIES];
    float limit_s, busy;
    struct placement_weights weights;
    struct rope_stretch rope;
    uint32_t n_without, n_adds;
    const char *without[REPORT_WITHOUT_MAX], *adds[REPORT_EXTRAS_MAX];
    bool not_here; /* only the model's headers are */
};

/* ---- words ----------------------------------------------------------------------------------- */

enum {
    OPTION_CLUSTER = 256,
    OPTION_HERE,
    OPTION_SIM,
    OPTION_STREAMS,
    OPTION_GOAL,
    OPTION_BUSY,
    OPTION_KV,
    OPTION_PRECISION,
    OPTION_PROMPT,
    OPTION_DRAFT,
    OPTION_DRAFT_DEVICE,
    OPTION_WITHOUT,
    OPTION_ADD,
    OPTION_POLICY,
    OPTION_EXPLAIN,
    OPTION_JSON,
    OPTION_LIMIT,
    OPTION_WEIGHTS,
    OPTION_WEIGHTS_MEMORY,
};

static const struct option long_options[] = {
    {"cluster", required_argument, NULL, OPTION_CLUSTER},
    {"here", no_argument, NULL, OPTION_HERE},
    {"sim", required_argument, NULL, OPTION_SIM},
    {"context", required_argument, NULL, 'c'},
    {"streams", required_argument, NULL, OPTION_STREAMS},
    {"goal", required_argument, NULL, OPTION_GOAL},
    {"busy", required_argument, NULL, OPTION_BUSY},
    {"kv", required_argument, NULL, OPTION_KV},
    {"precision", required_argument, NULL, OPTION_PRECISION},
    {"prompt", required_argument, NULL, OPTION_PROMPT},
    {"draft", required_argument, NULL, OPTION_DRAFT},
    {"draft-device", required_argument, NULL, OPTION_DRAFT_DEVICE},
    {"without", required_argument, NULL, OPTION_WITHOUT},
    {"add", required_argument, NULL, OPTION_ADD},
    {"policy", required_argument, NULL, OPTION_POLICY},
    {"explain", no_argument, NULL, OPTION_EXPLAIN},
    {"json", no_argument, NULL, OPTION_JSON},
    {"time-limit", required_argument, NULL, OPTION_LIMIT},
    {"score-weights", required_argument, NULL, OPTION_WEIGHTS},
    {"weights-memory", required_argument, NULL, OPTION_WEIGHTS_MEMORY},
    ROPE_LONG_OPTIONS,
    {0},
};

static const struct command *const self = &command_plan;

static bool cmd_plan_take_goal(struct plan_args *args, const char *value)
{
    args->has_goal = true;
    for (int goal = PLACEMENT_LATENCY; goal <= PLACEMENT_MIX; goal++) {
        args->goal = (enum placement_goal)goal;
        if (!strcmp(value, placement_goal_name(args->goal)))
            return true;
    }
    command_misused(self, "--goal takes latency, throughput or mix, not '%s'", value);
    return false;
}

static bool take_busy(struct plan_args *args, const char *value)
{
    args->has_busy = true;
    if (!option_float(self, "--busy", value, &args->busy))
        return false;
    if (args->busy >= 0 && args->busy <= 1)
        return true;
    command_misused(self, "--busy takes a part of the time, 0 to 1, not '%s'", value);
    return false;
}

static bool take_kv(struct plan_args *args, const char *value)
{
    if (plan_kv_type_find(value, &args->driver.kv_type, NULL) == ERROR_NONE)
        return true;
    command_misused(self, "--kv takes f16, f32, q8_0 or q4_0, not '%s'", value);
    return false;
}

static bool take_policy(struct plan_args *args, const char *value)
{
    bool known = false;
    for (int policy = 0; policy < REPORT_POLICIES; policy++) {
        if (strcmp(value, "all") &&
            strcmp(value, placement_policy_name((enum placement_policy)policy)))
            continue;
        known = args->policies[policy] = true;
    }
    if (!known)
        command_misused(self, "--policy takes memory, flops, equal, score or all, not '%s'", value);
    return known;
}

static bool cmd_plan_take_word(const char *name, const char *value, const char **list, uint32_t *n,
                               uint32_t max)
{
    if (*n == max) {
        command_misused(self, "%s can be given at most %u times", name, max);
        return false;
    }
    list[(*n)++] = value;
    return true;
}

static bool take_limit(struct plan_args *args, const char *value)
{
    if (!option_float(self, "--time-limit", value, &args->limit_s))
        return false;
    if (args->limit_s > 0 && args->limit_s <= 86400)
        return true;
    command_misused(self, "--time-limit takes seconds above 0 and up to 86400, not '%s'", value);
    return false;
}

static bool take_weights(struct plan_args *args, const char *value)
{
    struct error err;
    args->weights = placement_options_default().weights;
    if (placement_weights_read(value, &args->weights, &err) == ERROR_NONE)
        return true;
    command_misused(self, "--score-weights: %s", err.text);
    return false;
}

static bool take_weights_memory(struct plan_args *args, const char *value)
{
    static const struct amount_rule rule = {.plain_bytes = 1, .max = PLACEMENT_BYTES_MAX};
    struct error err;
    if (!amount_read("--weights-memory", value, &rule, &args->driver.weights_max, &err))
        return true;
    command_misused(self, "%s", err.text);
    return false;
}

static bool cmd_plan_take_option(struct plan_args *args, int option, const char *value)
{
    switch (option) {
    case OPTION_CLUSTER:
        args->cluster = value;
        return true;
    case OPTION_HERE:
        return args->here = true;
    case OPTION_SIM:
        args->sim = value;
        return true;
    case 'c':
        return option_u32(self, "--context", value, 1, LIMIT_CONTEXT, &args->driver.context);
    case OPTION_STREAMS:
        return option_u32(self, "--streams", value, 1, LIMIT_SEQUENCES, &args->driver.n_slots);
    case OPTION_GOAL:
        return cmd_plan_take_goal(args, value);
    case OPTION_BUSY:
        return take_busy(args, value);
    case OPTION_KV:
        return take_kv(args, value);
    case OPTION_PRECISION:
        return option_precision(self, "--precision", value, &args->driver.precision);
    case OPTION_PROMPT:
        return option_u32(self, "--prompt", value, 1, LIMIT_CONTEXT, &args->prompt);
    case OPTION_DRAFT:
        args->draft = value;
        return true;
    case OPTION_DRAFT_DEVICE:
        args->draft_device = value;
        return true;
    case OPTION_WITHOUT:
        return cmd_plan_take_word("--without", value, args->without, &args->n_without,
                                  REPORT_WITHOUT_MAX);
    case OPTION_ADD:
        return cmd_plan_take_word("--add", value, args->adds, &args->n_adds, REPORT_EXTRAS_MAX);
    case OPTION_POLICY:
        return take_policy(args, value);
    case OPTION_EXPLAIN:
        return args->explain = true;
    case OPTION_JSON:
        return args->json = true;
    case OPTION_LIMIT:
        return take_limit(args, value);
    case OPTION_WEIGHTS:
        return take_weights(args, value);
    case OPTION_WEIGHTS_MEMORY:
        return take_weights_memory(args, value);
    default:
        return rope_option_take(self, option, value, &args->rope);
    }
}

static bool cmd_plan_parse(int argc, char **argv, struct plan_args *args)
{
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, "c:", long_options, NULL)) != -1;) {
        if (option == '?') {
            command_misused(self, "unknown or incomplete option '%s'", argv[optind - 1]);
            return false;
        }
        if (!cmd_plan_take_option(args, option, optarg))
            return false;
    }
    if (optind + 1 != argc) {
        if (optind == argc)
            command_misused(self, "which model? give a .gguf file");
        else
            command_misused(self, "unexpected argument '%s'", argv[optind + 1]);
        return false;
    }
    args->model = argv[optind];
    if (args->cluster && (args->sim || args->here)) {
        command_misused(self, "--cluster and %s exclude each other",
                        args->sim ? "--sim" : "--here");
        return false;
    }
    if (args->draft_device && !args->draft) {
        command_misused(self, "--draft-device is where --draft guesses: give both");
        return false;
    }
    if (args->has_busy && !(args->has_goal && args->goal == PLACEMENT_MIX)) {
        command_misused(self, "--busy is for --goal mix");
        return false;
    }
    return true;
}

/* ---- the cluster ----------------------------------------------------------------------------- */

/* The new device's id has a space, as no other has. */
static enum error_code read_add(const char *words, const struct cluster *cluster, bool here,
                                struct report_extra *out, struct error *err)
{
    const char *device = words;
    char name[CLUSTER_NODE_MAX] = "";
    *out = (struct report_extra){.words = words};
    if (!here) {
        const char *colon = strchr(words, ':');
        if (!colon || colon == words || (size_t)(colon - words) >= sizeof name)
            return error_set(err, ERROR_INVALID,
                             "--add %s: it takes NODE:DEVICE, such as tower:24GiB,936GB/s", words);
        memcpy(name, words, (size_t)(colon - words));
        out->node = cluster_find_node(cluster, name);
        if (out->node == UINT32_MAX)
            return error_set(err, ERROR_INVALID, "--add %s: there is no node '%s'", words, name);
        out->words = device = colon + 1;
    }
    const uint32_t like = cluster_find_device(cluster, out->node, device);
    if (like != UINT32_MAX) {
        out->device = cluster->devices[like];
        out->device.pci[0] = '\0'; /* another card */
    } else if (cluster_device_parse(device, &out->device, err)) {
        return error_wrap(err, "--add %s", words);
    }
    snprintf(out->device.id, sizeof out->device.id, "added device");
    return ERROR_NONE;
}

/* ---- the plan -------------------------------------------------------------------------------- */

static double seconds_now(void *unused)
{
    (void)unused;
    return (double)clock_now_ns() * 1e-9;
}

static void fill_demand(const struct plan_args *args, const struct driver_options *options,
                        struct placement_demand *out)
{
    *out = plan_demand(options);
    out->replicas = true;
    out->prompt_tokens = args->prompt;
    if (args->has_goal)
        out->goal = args->goal;
    if (out->goal == PLACEMENT_MIX)
        out->busy = (double)args->busy;
}

static enum error_code cmd_plan_print(const struct report *report, const struct plan_args *args,
                                      struct error *err)
{
    struct buffer text = {0};
    if (args->json)
        report_json(report, &text);
    else
        report_text(report, args->explain, &text);
    if (!text.failed)
        fputs(text.data ? text.data : "", stdout);
    const bool failed = text.failed;
    buffer_deinit(&text);
    return failed ? error_set(err, ERROR_NO_MEMORY, "not enough memory for the answer")
                  : ERROR_NONE;
}

static enum error_code fill_ask(const struct plan_args *args, const struct model *model,
                                const struct cluster *cluster, struct report_ask *ask,
                                struct error *err)
{
    ask->cluster = cluster;
    ask->here = args->here;
    ask->limit_s = (double)args->limit_s;
    ask->weights = args->weights;
    ask->now_s = seconds_now;
    ask->n_without = args->n_without;
    memcpy(ask->without, args->without, sizeof ask->without);
    memcpy(ask->policies, args->policies, sizeof ask->policies);
    ask->kv_types = plan_kv_types(model, args->driver.kv_type);
    enum error_code code = ERROR_NONE;
    for (uint32_t i = 0; i < args->n_adds && !code; i++, ask->n_extras++)
        code = read_add(args->adds[i], cluster, ask->here, &ask->extras[i], err);
    return code;
}

/* What `medley place` would choose in this cluster. */
static enum error_code choose_context(const struct plan_args *args, const struct model *model,
                                      struct cluster *cluster, struct driver_options *options,
                                      struct error *err)
{
    struct driver_options given = args->driver;
    struct placement_demand asked;
    Cluster__Demand demand = CLUSTER__DEMAND__INIT;
    fill_demand(args, options, &asked);
    demand.has_goal = true;
    demand.goal = asked.goal;
    demand.streams = options->n_slots;
    demand.kv_type = (uint32_t)options->kv_type;
    demand.precision = (uint32_t)options->precision;
    given.context = args->draft ? placing_context_usual(model)
                                : placing_context(cluster, ACTIVATION_F32, model, &demand, 0);
    return driver_options_fill(&given, model, options, err);
}

/* The devices, and what the engine or an estimate says of the buffers on them. Where a node runs
 * here, its cluster's, with the context that fits there; then args->here stays false. */
static enum error_code read_devices(struct plan_args *args, const struct model *model,
                                    struct driver_options *options, const struct plan_draft *draft,
                                    struct plan_here *out, struct error *err)
{
    const struct plan_here_draft beside = {draft->model, args->draft_device, &draft->options};
    *out = (struct plan_here){0};
    bool found = false;
    enum error_code code = ERROR_NONE;
    if (!args->cluster && !args->sim && !args->here)
        code = plan_cluster_ask(&out->cluster, &found, err);
    else if (args->cluster)
        code = cluster_read(args->cluster, &out->cluster, err);
    args->here = !args->cluster && !found;
    if (!code && !args->here && args->draft_device)
        code = error_set(err, ERROR_INVALID,
                         "--draft-device names a device of this machine: add --here, or leave it "
                         "out");
    if (args->here)
        return plan_here_init(out, args->sim, model, options, draft->model ? &beside : NULL, err);
    if (!code && found && !args->driver.context)
        code = choose_context(args, model, &out->cluster, options, err);
    plan_compute_estimate(model, options, &out->compute);
    return code;
}

/* Without the spare devices first, as plan/plan.h does. */
static enum error_code report_sparing(const struct report_ask *ask, struct plan_here *devices,
                                      struct report *out, struct error *err)
{
    const bool spared = plan_devices_spare(&devices->cluster, devices->n_spare, ask->model);
    enum error_code code = report_init(out, ask, err);
    if (code || out->outcome != ERROR_NOT_FOUND || !spared)
        return code;
    plan_devices_call_in(&devices->cluster);
    report_deinit(out);
    return report_init(out, ask, err);
}

/* What `medley place` does with a model that fits on no machines of the cluster. */
static void cmd_plan_say_stream_placed(const struct report *report, const struct cluster *cluster)
{
    const struct placement_problem *problem = &report->cluster_problem.problem;
    struct plan_stream_placement stream;
    struct buffer text = {0};
    if (!placing_stream_of(cluster, problem, NULL, &stream))
        return;
    plan_stream_place_text(problem, &stream, &text);
    printf("`medley place`: %s\n", text.data ? text.data : "");
    buffer_deinit(&text);
}

/* What `medley run` does on this machine with a model that does not fit. */
static void cmd_plan_say_stream(const struct report *report, const struct model *model)
{
    const struct placement_problem *problem = &report->cluster_problem.problem;
    struct plan_stream_placement several = {0};
    struct plan_stream stream;
    struct buffer text = {0};
    struct error err;
    struct placement_options options = placement_options_default();
    uint64_t disk_bps;
    options.max_nodes = PLAN_STREAM_NODES;
    if (plan_stream_disk(model, &disk_bps, &err))
        return;
    if (plan_stream_place_here(problem, disk_bps, &options, &several) &&
        several.placement.n_stages > 1)
        plan_stream_here_text(problem, &several, disk_bps, &text);
    else if (plan_stream_choose(problem, problem->demand.weights_max, disk_bps, &stream))
        plan_stream_text(&stream, problem->devices[stream.device].id, &text);
    if (text.size)
        printf("`medley run` here: %s\n", text.data ? text.data : "");
    buffer_deinit(&text);
}

static enum error_code cmd_plan_answer(const struct plan_args *args, const struct model *model,
                                       const struct driver_options *options,
                                       struct plan_draft *draft, struct plan_here *devices,
                                       int *status, struct error *err)
{
    const bool embedding_counts = plan_devices_count_embedding(&devices->cluster);
    struct plan_model cost = {0};
    struct report report = {0};
    struct report_ask ask = {0};
    struct buffer name = {0};
    enum error_code code = fill_ask(args, model, &devices->cluster, &ask, err);
    if (!code)
        code = plan_model_init(&cost, model, options, &devices->compute, embedding_counts, err);
    if (!code && !args->here)
        code = plan_draft_count(draft, options, embedding_counts, &cost, err);
    if (!code)
        code = model_at_precision(model, options->precision, &model, err);
    if (code) {
        plan_model_deinit(&cost);
        return code;
    }
    ask.model = &cost.model;
    inspect_clean_text(&name, model_name(model), strlen(model_name(model)), true);
    ask.model_name = name.data ? name.data : "";
    ask.weight_bytes = model_weight_bytes(model);
    fill_demand(args, options, &ask.demand);
    code = report_sparing(&ask, devices, &report, err);
    if (!code)
        code = plan_draft_report(draft, devices, &report, err);
    if (!code)
        code = cmd_plan_print(&report, args, err);
    const bool fits_not = !code && report.outcome == ERROR_NOT_FOUND;
    const bool may_stream = fits_not && (!cost.is_converted || !options->precision_allowed);
    if (may_stream && args->here && !args->sim && !args->json &&
        !args->not_here) /* no disk has its layers yet */
        cmd_plan_say_stream(&report, model);
    else if (may_stream && !args->here && !args->json)
        cmd_plan_say_stream_placed(&report, &devices->cluster);
    *status = !code && report.outcome ? EXIT_FAILED : EXIT_OK;
    report_deinit(&report);
    buffer_deinit(&name);
    plan_model_deinit(&cost);
    return code;
}

static int cmd_plan_run(int argc, char **argv)
{
    struct plan_args args = {.limit_s = 5, .busy = 0.5F};
    struct plan_here devices = {0};
    struct plan_draft draft = {0};
    struct model *model = NULL;
    struct driver_options options;
    struct error err;
    int status = EXIT_OK;
    if (!cmd_plan_parse(argc, argv, &args))
        return EXIT_USAGE;
    struct model_header header;
    enum error_code code = model_header_open(args.model, &header, &err);
    if (!code)
        code = model_open(header.path, &model, &err);
    args.not_here = header.headers.folder[0];
    if (!code)
        code = model_stretch(model, &args.rope, &err);
    if (!code)
        code = driver_options_fill(&args.driver, model, &options, &err);
    if (!code)
        code = plan_draft_open(&draft, args.draft, model, &args.driver, &err);
    if (!code)
        code = read_devices(&args, model, &options, &draft, &devices, &err);
    if (!code)
        code = cmd_plan_answer(&args, model, &options, &draft, &devices, &status, &err);
    plan_here_deinit(&devices);
    plan_draft_deinit(&draft);
    model_close(model);
    model_header_close(&header);
    return code ? command_fail(self, &err) : status;
}

const struct command command_plan = {
    .name = "plan",
    .summary = "forecast which devices should hold which layers, and how fast",
    .usage = usage,
    .run = cmd_plan_run,
};
