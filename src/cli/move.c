/* medley move: an instance is placed by hand. */
#include "base/limits.h"
#include "cli/ask.h"
#include "cli/commands.h"
#include "cli/options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "Usage: medley move INSTANCE --to NODE/DEVICE:LAYERS[,NODE/DEVICE:LAYERS...] [--json]\n"
    "       medley move --on | --off [--json]\n"
    "\n"
    "Places a running model (medley status lists them) where you say: its first LAYERS layers on\n"
    "the first device, the next on the next, and so on, until all its layers are placed. The new\n"
    "stages load beside the old ones, which answer until the new ones are ready. Requests under\n"
    "way go on with what is in their caches. If memory lacks for both, the old stages make room,\n"
    "and the model is silent while it loads. Nobody else moves what you placed by hand, unless it\n"
    "loses a machine. medley nodes lists machines and devices.\n"
    "\n"
    "  --to STAGES      where to, in order: --to tower/vulkan0:20,pi/cpu:12\n"
    "  --off, --on      whether the cluster moves models for gain (default: on)\n"
    "  --json           for programs\n";

struct move_args {
    bool json, on, off;
    const char *to, *instance;
};

static bool cmd_move_parse(int argc, char **argv, struct move_args *out)
{
    static const struct option options[] = {{"to", required_argument, NULL, 't'},
                                            {"on", no_argument, NULL, '1'},
                                            {"off", no_argument, NULL, '0'},
                                            {"json", no_argument, NULL, 'j'},
                                            {0}};
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (option == '?')
            return option_unknown(&command_move, argv);
        if (option == 't')
            out->to = optarg;
        else
            *(option == '1' ? &out->on : option == '0' ? &out->off : &out->json) = true;
    }
    const bool whole = out->on || out->off;
    if (out->on + out->off + (out->to != NULL) != 1) {
        command_misused(&command_move, "it takes one of --to, --on and --off");
        return false;
    }
    return option_rest(&command_move, argc, argv,
                       whole ? NULL : "which instance? medley status lists them", &out->instance);
}

/* "tower/vulkan0:20" */
static bool add_stage(yyjson_mut_doc *doc, yyjson_mut_val *list, const char *text, size_t size)
{
    char word[256], *end = NULL;
    snprintf(word, sizeof word, "%.*s", size < sizeof word ? (int)size : 0, text);
    char *colon = strrchr(word, ':'), *slash = colon ? strrchr(word, '/') : NULL;
    const unsigned long n_layers =
        colon && colon[1] >= '0' && colon[1] <= '9' ? strtoul(colon + 1, &end, 10) : 0;
    if (!slash || slash == word || slash + 1 >= colon || n_layers == 0 || n_layers > LIMIT_LAYERS ||
        *end) {
        command_misused(&command_move, "'%.*s' is not NODE/DEVICE:LAYERS", (int)size, text);
        return false;
    }
    *colon = *slash = 0;
    yyjson_mut_val *stage = yyjson_mut_arr_add_obj(doc, list);
    yyjson_mut_obj_add_strcpy(doc, stage, "node", word);
    yyjson_mut_obj_add_strcpy(doc, stage, "device", slash + 1);
    yyjson_mut_obj_add_uint(doc, stage, "n_layers", n_layers);
    return true;
}

static bool cmd_move_add_stages(yyjson_mut_doc *doc, const char *text)
{
    yyjson_mut_val *list = yyjson_mut_obj_add_arr(doc, yyjson_mut_doc_get_root(doc), "to");
    for (;;) {
        const size_t size = strcspn(text, ",");
        if (!add_stage(doc, list, text, size))
            return false;
        if (!text[size])
            return true;
        text += size + 1;
    }
}

static int cmd_move_run(int argc, char **argv)
{
    static const struct ask_done moved = {
        .key = "moved", .after = " runs where you said", .takes_long = true};
    static const struct ask_done moves = {
        .key = "moves", .before = "moves for gain are ", .after = "", .takes_long = true};
    struct move_args args = {0};
    if (!cmd_move_parse(argc, argv, &args))
        return EXIT_USAGE;
    yyjson_mut_doc *question = daemon_question(args.instance ? "move" : "moves");
    daemon_question_text(question, "instance", args.instance);
    if (question && args.instance && !cmd_move_add_stages(question, args.to)) {
        yyjson_mut_doc_free(question);
        return EXIT_USAGE;
    }
    if (question && !args.instance)
        yyjson_mut_obj_add_bool(question, yyjson_mut_doc_get_root(question), "on", args.on);
    return ask_do(&command_move, question, args.json, args.instance ? &moved : &moves);
}

const struct command command_move = {
    .name = "move",
    .summary = "move a running model to other devices, while it answers",
    .usage = usage,
    .run = cmd_move_run,
};
