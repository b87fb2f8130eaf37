/* medley place: a model is placed in the cluster and loaded, before anybody asks for it. */
#include "base/amount.h"
#include "base/limits.h"
#include "cli/commands.h"
#include "cli/model_word.h"
#include "cli/options.h"
#include "cli/placing_watch.h"
#include "cli/rope_option.h"
#include "cli/stages.h"
#include "hub/hub_name.h"
#include "pipeline/driver.h"
#include "placement/score.h"
#include "plan/plan_model.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

static const char usage[] =
    "Usage: medley place MODEL [--context N] [--streams N] [--cells N] [--kv TYPE]\n"
    "                    [--goal GOAL] [--precision TYPE] [--allow-precision TYPE]\n"
    "                    [--speculate HOW] [--draft MODEL] [--idle S] [options] [--json]\n"
    "\n"
    "Places a model on the machines of the cluster, as medley plan forecasts it, loads it there,\n"
    "and says where it is. MODEL is a .gguf file, the name of a model that the cluster knows\n"
    "(medley status), or a hub's, such as hf:ORG/REPO:Q4_K_M: then each machine fetches the parts\n"
    "that it will hold, all at once (medley help pull lists the names). Without this command, the\n"
    "first request places a model, and it is unloaded when nobody has asked it for half an hour.\n"
    "\n"
    "A model that is there already keeps what was asked for before, until medley unload; options\n"
    "that differ place it anew.\n"
    "\n"
    "  -c, --context N  tokens of prompt and answer together (default: what fits, 512 at least,\n"
    "                   up to the model's)\n"
    "  --streams N      sequences at once (default 4; up to 16 in the memory of 4 where they "
    "share\n"
    "                   it)\n"
    "  --cells N        tokens of all sequences together, in memory that they share where the\n"
    "                   devices can (default: --streams times the context)\n"
    "  --kv TYPE        type of the KV cache: f16 (default), f32, q8_0 or q4_0\n"
    "  --goal GOAL      latency (each token as soon as possible), throughput (the most tokens of\n"
    "                   all streams; the default), or mix\n"
    "  --precision TYPE compute with weights of this type where it is smaller, such as q8_0 or\n"
    "                   q4_k; each machine converts its own layers (default: as the file has "
    "them)\n"
    "  --allow-precision TYPE\n"
    "                   weights may become of this type while a device of the model is hot, or\n"
    "                   short of memory\n"
    "  --speculate HOW  guess tokens from the text so far and check several at once, while that\n"
    "                   pays: lookup (default) or off; the answer is the same\n"
    "                   (docs/speculation.md)\n"
    "  --draft MODEL    a smaller model of the same tokens, which guesses where the text does not\n"
    "                   repeat itself: a file, or a name. It guesses on the machine with the\n"
    "                   first layers; one that is placed as a model of its own, from there\n"
    "  --draft-device DEVICE\n"
    "                   the device of that machine which has all of it, such as vulkan0 (default:\n"
    "                   the better one); where the machine has none of that name, as by default\n"
    "  --idle S         unload it when nobody has asked it for S seconds; 0: never\n"
    "  --weights-memory SIZE\n"
    "                   of each stage's weights, at most, such as 8GiB; layers beyond are read\n"
    "                   from the disk for every batch (docs/offload.md)\n"
    "  --score-weights LIST\n"
    "                   what counts in the order in which the leader's search tries devices,\n"
    "                   such as memory=60,compute=10 (docs/planning.md)\n"
    "  --time-limit S   of that search, in seconds, 60 at most (default 5, and a placement at\n"
    "                   most 2 % slower than the best can be ends it)\n" ROPE_HELP
    "  --json           for programs: the node's last answer, and before it a line for each look\n"
    "                   while a hub's model is fetched\n";

// clang-format off: one a line, so that two additions do not meet
enum {
    OPTION_STREAMS = 256,
    OPTION_CELLS,
    OPTION_KV,
    OPTION_GOAL,
    OPTION_PRECISION,
    OPTION_ALLOW,
    OPTION_SPECULATE,
    OPTION_DRAFT,
    OPTION_DRAFT_DEVICE,
    OPTION_IDLE,
    OPTION_JSON,
    OPTION_WEIGHTS_MEMORY,
    OPTION_SCORE_WEIGHTS,
    OPTION_TIME_LIMIT
};
// clang-format on

struct place_args {
    struct placing_request request;
    bool json;
};

static bool cmd_place_take_goal(const char *value, const char **goal)
{
    *goal = value;
    for (int known = PLACEMENT_LATENCY; known <= PLACEMENT_MIX; known++) {
        if (!strcmp(value, placement_goal_name((enum placement_goal)known)))
            return true;
    }
    command_misused(&command_place, "--goal takes latency, throughput or mix, not '%s'", value);
    return false;
}

static bool cmd_place_take_kv(const char *value, const char **kv)
{
    enum kv_type type;
    *kv = value;
    if (plan_kv_type_find(value, &type, NULL) == ERROR_NONE)
        return true;
    command_misused(&command_place, "--kv takes f16, f32, q8_0 or q4_0, not '%s'", value);
    return false;
}

static bool cmd_place_take_speculate(const char *value, const char **speculate)
{
    enum speculate how;
    *speculate = value;
    if (speculate_find(value, &how))
        return true;
    command_misused(&command_place, "--speculate takes lookup or off, not '%s'", value);
    return false;
}

static bool cmd_place_take_memory(const char *value, const char **memory)
{
    static const struct amount_rule rule = {.plain_bytes = 1, .max = PLACEMENT_BYTES_MAX};
    uint64_t bytes;
    struct error err;
    *memory = value;
    if (amount_read("--weights-memory", value, &rule, &bytes, &err) == ERROR_NONE)
        return true;
    command_misused(&command_place, "%s", err.text);
    return false;
}

static bool cmd_place_take_score(const char *value, const char **score)
{
    struct placement_weights weights = PLACEMENT_WEIGHTS_DEFAULT;
    struct error err;
    *score = value;
    if (placement_weights_read(value, &weights, &err) == ERROR_NONE)
        return true;
    command_misused(&command_place, "--score-weights: %s", err.text);
    return false;
}

static bool cmd_place_take_option(struct place_args *args, int option, const char *value)
{
    const struct command *command = &command_place;
    int type;
    switch (option) {
    case 'c':
        return option_u32(command, "--context", value, 1, LIMIT_CONTEXT, &args->request.context);
    case OPTION_STREAMS:
        return option_u32(command, "--streams", value, 1, LIMIT_SEQUENCES, &args->request.streams);
    case OPTION_CELLS:
        return option_u32(command, "--cells", value, 1, LIMIT_POOL_CELLS, &args->request.cells);
    case OPTION_KV:
        return cmd_place_take_kv(value, &args->request.kv);
    case OPTION_GOAL:
        return cmd_place_take_goal(value, &args->request.goal);
    case OPTION_PRECISION:
        args->request.precision = value;
        return option_precision(command, "--precision", value, &type);
    case OPTION_ALLOW:
        args->request.allow_precision = value;
        return option_precision(command, "--allow-precision", value, &type);
    case OPTION_SPECULATE:
        return cmd_place_take_speculate(value, &args->request.speculate);
    case OPTION_DRAFT:
        args->request.draft = value;
        return true;
    case OPTION_DRAFT_DEVICE:
        args->request.draft_device = value;
        return true;
    case OPTION_IDLE:
        return option_u32(command, "--idle", value, 0, UINT32_MAX - 1, &args->request.idle_s);
    case OPTION_WEIGHTS_MEMORY:
        return cmd_place_take_memory(value, &args->request.weights_memory);
    case OPTION_SCORE_WEIGHTS:
        return cmd_place_take_score(value, &args->request.score_weights);
    case OPTION_TIME_LIMIT:
        return option_u32(command, "--time-limit", value, 1, LIMIT_PLACING_SEARCH_S,
                          &args->request.limit_s);
    case OPTION_JSON:
        return args->json = true;
    default:
        return rope_option_take(command, option, value, &args->request.rope);
    }
}

static bool cmd_place_parse(int argc, char **argv, struct place_args *args)
{
    static const struct option options[] = {
        {"context", required_argument, NULL, 'c'},
        {"streams", required_argument, NULL, OPTION_STREAMS},
        {"cells", required_argument, NULL, OPTION_CELLS},
        {"kv", required_argument, NULL, OPTION_KV},
        {"goal", required_argument, NULL, OPTION_GOAL},
        {"precision", required_argument, NULL, OPTION_PRECISION},
        {"allow-precision", required_argument, NULL, OPTION_ALLOW},
        {"speculate", required_argument, NULL, OPTION_SPECULATE},
        {"draft", required_argument, NULL, OPTION_DRAFT},
        {"draft-device", required_argument, NULL, OPTION_DRAFT_DEVICE},
        {"idle", required_argument, NULL, OPTION_IDLE},
        {"weights-memory", required_argument, NULL, OPTION_WEIGHTS_MEMORY},
        {"score-weights", required_argument, NULL, OPTION_SCORE_WEIGHTS},
        {"time-limit", required_argument, NULL, OPTION_TIME_LIMIT},
        ROPE_LONG_OPTIONS,
        {"json", no_argument, NULL, OPTION_JSON},
        {0},
    };
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, "c:", options, NULL)) != -1;) {
        if (option == '?')
            return option_unknown(&command_place, argv);
        if (!cmd_place_take_option(args, option, optarg))
            return false;
    }
    return option_rest(&command_place, argc, argv,
                       "which model? give a .gguf file, or a name that medley status lists",
                       &args->request.model);
}

static void cmd_place_say_context(struct answer *answer, yyjson_val *ready, struct buffer *line)
{
    uint64_t context, streams, cells;
    const char *apart = answer_text_if(answer, ready, "apart");
    if (!answer_count_if(answer, ready, "context", &context) ||
        !answer_count_if(answer, ready, "streams", &streams))
        return;
    buffer_printf(line, "\nIts context is %llu tokens for each of %llu streams",
                  (unsigned long long)context, (unsigned long long)streams);
    if (answer_count_if(answer, ready, "cells", &cells) && cells)
        buffer_printf(line, ", which share %llu (--context, --cells)", (unsigned long long)cells);
    else
        buffer_text(line, " (--context)");
    if (apart) {
        buffer_text(line, "; ");
        answer_clean(line, apart);
        buffer_text(line, " cannot share memory between streams");
    }
}

static enum error_code cmd_place_print(yyjson_doc *doc, bool says_context, struct error *err)
{
    struct answer answer = {0};
    struct buffer line = {0};
    yyjson_val *ready = answer_object(&answer, yyjson_doc_get_root(doc), "ready");
    answer_clean(&line, answer_text(&answer, ready, "instance"));
    buffer_text(&line, " is ready: ");
    stages_text(&answer, answer_list(&answer, ready, "stages"), false, &line);
    stages_say_precision(&answer, ready, &line);
    if (says_context || yyjson_obj_get(ready, "cells"))
        cmd_place_say_context(&answer, ready, &line);
    if (yyjson_obj_get(ready, "kept")) {
        buffer_text(&line, "\nKept, as asked for before: ");
        answer_clean(&line, answer_text(&answer, ready, "kept"));
    }
    enum error_code code = answer_failed(&answer, err);
    if (!code)
        printf("%s\n", line.data ? line.data : "");
    buffer_deinit(&line);
    return code;
}

/* The cluster fetches a hub's model together where it can; else this machine pulls it. */
static enum error_code cmd_place_ask(struct placing_request *request, char model[PATH_MAX],
                                     yyjson_doc **doc, struct error *err)
{
    const char *word = request->model;
    if (hub_name_is_one(word)) {
        const enum error_code code = placing_watch(request, doc, err);
        if (code != ERROR_UNSUPPORTED)
            return code;
        fprintf(stderr, "the cluster cannot fetch it together: %s; pulling it here\n", err->text);
    }
    const enum error_code code = model_word(word, model, err);
    request->model = model;
    return code ? code : placing_watch(request, doc, err);
}

/* The name that the cluster knows the draft model by; a file is added first. */
static enum error_code cmd_place_add_draft(const char *path, char name[PATH_MAX], struct error *err)
{
    struct daemon_client *client;
    enum error_code code = daemon_client_open(&client, err);
    if (code)
        return code;
    yyjson_mut_doc *question = daemon_question("add");
    daemon_question_text(question, "path", path);
    code = daemon_client_send(client, question, err);
    for (bool done = false; !code && !done;) {
        yyjson_doc *doc = NULL;
        code = daemon_client_receive(client, &doc, err);
        const char *said =
            code ? NULL : yyjson_get_str(yyjson_obj_get(yyjson_doc_get_root(doc), "model"));
        done = said != NULL;
        if (done)
            snprintf(name, PATH_MAX, "%s", said);
        yyjson_doc_free(doc);
    }
    daemon_client_close(client);
    return code;
}

static enum error_code cmd_place_name_draft(struct placing_request *request, char name[PATH_MAX],
                                            struct error *err)
{
    char word[PATH_MAX];
    if (!request->draft)
        return ERROR_NONE;
    enum error_code code = model_word(request->draft, word, err);
    snprintf(name, PATH_MAX, "%s", word);
    if (!code && word[0] == '/')
        code = cmd_place_add_draft(word, name, err);
    request->draft = name;
    return code ? error_wrap(err, "--draft") : ERROR_NONE;
}

static int cmd_place_run(int argc, char **argv)
{
    struct place_args args = {.request = {.context = UINT32_MAX,
                                          .streams = UINT32_MAX,
                                          .cells = UINT32_MAX,
                                          .idle_s = UINT32_MAX}};
    struct error err;
    char model[PATH_MAX], draft[PATH_MAX];
    yyjson_doc *doc = NULL;
    if (!cmd_place_parse(argc, argv, &args))
        return EXIT_USAGE;
    args.request.json = args.json;
    enum error_code code = cmd_place_name_draft(&args.request, draft, &err);
    if (!code)
        code = cmd_place_ask(&args.request, model, &doc, &err);
    if (!code)
        code = args.json ? answer_print_json(doc, false, &err)
                         : cmd_place_print(doc, args.request.context == UINT32_MAX, &err);
    yyjson_doc_free(doc);
    return code ? command_fail(&command_place, &err) : EXIT_OK;
}

const struct command command_place = {
    .name = "place",
    .summary = "place a model in the cluster and load it",
    .usage = usage,
    .run = cmd_place_run,
};
