/* medley inspect: show what is in a model file, and what it costs to run. */
#include "cli/inspect.h"

#include "api/json_out.h"
#include "cli/commands.h"
#include "cli/model_given.h"

#include <assert.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "Usage: medley inspect MODEL.gguf [--json] [--tensors] [--keys]\n"
    "\n"
    "Shows what is in a model file: architecture, sizes, what each layer costs in memory and\n"
    "arithmetic, tokenizer and chat template. Reads no weights and loads nothing.\n"
    "\n"
    "  --tensors   every tensor: name, type, shape, size and offset in the file\n"
    "  --keys      every key and its value (long ones shortened)\n"
    "  --json      for programs\n"
    "\n"
    "A sound file that Medley cannot run is shown too, with the reason; the exit status is\n"
    "then 1.\n"
    "\n"
    "Sizes are in KiB, MiB and GiB (1024). FLOP counts multiplications and additions\n"
    "separately. A token at position N of its context costs FLOP/TOKEN plus N times\n"
    "FLOP/CONTEXT. KV is what each token of context keeps in the cache, as F16.\n";

static bool same_cost(const struct layer_cost *a, const struct layer_cost *b)
{
    return a->bytes == b->bytes && a->bytes_per_token == b->bytes_per_token &&
           a->flops_per_token == b->flops_per_token &&
           a->flops_per_token_per_context == b->flops_per_token_per_context &&
           a->kv_elements_per_token == b->kv_elements_per_token && a->state_bytes == b->state_bytes;
}

struct inspect_layers inspect_layers_from(const struct model *model, uint32_t first)
{
    const struct hyperparameters *h = model_hyperparameters(model);
    struct inspect_layers run = {.first = first,
                                 .last = first,
                                 .cost = model_layer_cost(model, first),
                                 .windowed = hyperparameters_layer_windowed(h, first)};
    while (run.last + 1 < h->n_layers) {
        struct layer_cost next = model_layer_cost(model, run.last + 1);
        if (!same_cost(&run.cost, &next) ||
            hyperparameters_layer_windowed(h, run.last + 1) != run.windowed)
            break;
        run.last++;
    }
    return run;
}

static void cmd_inspect_add_cost(struct layer_cost *sum, struct layer_cost cost)
{
    sum->bytes_per_token += cost.bytes_per_token;
    sum->flops_per_token += cost.flops_per_token;
    sum->flops_per_token_per_context += cost.flops_per_token_per_context;
    sum->kv_elements_per_token += cost.kv_elements_per_token;
    sum->state_bytes += cost.state_bytes;
}

struct layer_cost inspect_total_cost(const struct model *model)
{
    struct layer_cost sum = {.bytes = model_weight_bytes(model)};
    cmd_inspect_add_cost(&sum, model_input_cost(model));
    for (uint32_t i = 0; i < model_hyperparameters(model)->n_layers; i++)
        cmd_inspect_add_cost(&sum, model_layer_cost(model, i));
    cmd_inspect_add_cost(&sum, model_output_cost(model));
    return sum;
}

enum rope_scaling inspect_rope_scaling(const struct hyperparameters *hyperparameters)
{
    bool none = hyperparameters->rope_scaling == ROPE_SCALING_LINEAR &&
                hyperparameters->rope_frequency_scale == 1;
    return none ? ROPE_SCALING_NONE : hyperparameters->rope_scaling;
}

const char *inspect_rope_scaling_name(enum rope_scaling scaling)
{
    switch (scaling) {
    case ROPE_SCALING_NONE:
        return "none";
    case ROPE_SCALING_LINEAR:
        return "linear";
    case ROPE_SCALING_YARN:
        return "yarn";
    case ROPE_SCALING_LONGROPE:
        return "longrope";
    }
    return "";
}

const char *inspect_file_name(const struct gguf_file *file)
{
    const char *path = gguf_file_path(file), *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

const char *inspect_reason(const struct gguf_file *file, const struct error *err)
{
    size_t length = strlen(gguf_file_path(file));
    bool named = strncmp(err->text, gguf_file_path(file), length) == 0 &&
                 strncmp(err->text + length, ": ", 2) == 0;
    return err->text + (named ? length + 2 : 0);
}

static int compare_types(const void *a, const void *b)
{
    const struct inspect_type *x = a, *y = b;
    return x->bytes > y->bytes ? -1 : x->bytes < y->bytes;
}

uint32_t inspect_types(const struct gguf_file *file, struct inspect_type types[INSPECT_TYPES_MAX])
{
    memset(types, 0, INSPECT_TYPES_MAX * sizeof *types);
    for (uint64_t i = 0; i < gguf_file_tensor_count(file); i++) {
        const struct gguf_tensor *tensor = gguf_file_tensor(file, i);
        assert(tensor->type >= 0 && tensor->type < INSPECT_TYPES_MAX);
        struct inspect_type *type = &types[tensor->type];
        type->name = gguf_tensor_type_name(tensor);
        type->bytes += tensor->size;
        type->n_tensors++;
    }
    qsort(types, INSPECT_TYPES_MAX, sizeof *types, compare_types);
    uint32_t count = 0;
    while (count < INSPECT_TYPES_MAX && types[count].n_tensors)
        count++;
    return count;
}

void inspect_clean_text(struct buffer *out, const char *text, size_t size, bool printable)
{
    static const char replacement[] = "\xef\xbf\xbd";
    for (size_t i = 0; i < size;) {
        size_t bad = 0, length = utf8_length(text + i, size - i, &bad);
        /* U+0080 to U+009F are control characters too; \xc2 leads them. */
        bool control = length == 1 ? (unsigned char)text[i] < ' ' || text[i] == 0x7f
                                   : length == 2 && (unsigned char)text[i] == 0xc2 &&
                                         (unsigned char)text[i + 1] < 0xa0;
        if (length == 0)
            buffer_text(out, replacement);
        else if (printable && control)
            buffer_text(out, "?");
        else
            buffer_append(out, text + i, length);
        i += length ? length : bad;
    }
}

struct inspect_args {
    const char *path;
    bool json, tensors, keys;
};

static int read_words(int argc, char **argv, struct inspect_args *args)
{
    static const struct option options[] = {{"json", no_argument, NULL, 'j'},
                                            {"tensors", no_argument, NULL, 't'},
                                            {"keys", no_argument, NULL, 'k'},
                                            {NULL, 0, NULL, 0}};
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (option == 'j')
            args->json = true;
        else if (option == 't')
            args->tensors = true;
        else if (option == 'k')
            args->keys = true;
        else
            return command_misused(&command_inspect, "unknown option '%s'", argv[optind - 1]);
    }
    if (optind == argc)
        return command_misused(&command_inspect, "which model? give a .gguf file");
    if (optind + 1 < argc)
        return command_misused(&command_inspect, "unexpected argument '%s'", argv[optind + 1]);
    args->path = argv[optind];
    return EXIT_OK;
}

static int cmd_inspect_run(int argc, char **argv)
{
    struct inspect_args args = {0};
    int status = read_words(argc, argv, &args);
    if (status != EXIT_OK)
        return status;
    /* Opened twice, since a model takes its file and closes it when it cannot be run. */
    struct gguf_file *file = NULL;
    struct model *model = NULL;
    struct tokenizer *tokenizer = NULL;
    struct error err = {0};
    struct model_header header;
    if (model_header_open(args.path, &header, &err) || gguf_file_open(header.path, &file, &err)) {
        model_header_close(&header);
        return command_fail(&command_inspect, &err);
    }
    struct inspection inspection = {
        .file = file, .show_tensors = args.tensors, .show_keys = args.keys};
    if (model_open(header.path, &model, &inspection.model_error) == ERROR_NONE)
        inspection.model = model;
    if (tokenizer_open(file, &tokenizer, &inspection.tokenizer_error) == ERROR_NONE)
        inspection.tokenizer = tokenizer;
    if (!args.json)
        inspect_print(&inspection);
    else if (!inspect_print_json(&inspection))
        status = command_fail(&command_inspect, &(struct error){ERROR_NO_MEMORY, "out of memory"});
    if (status == EXIT_OK && (!inspection.model || !inspection.tokenizer))
        status = EXIT_FAILED;
    tokenizer_close(tokenizer);
    model_close(model);
    gguf_file_close(file);
    model_header_close(&header);
    return status;
}

const struct command command_inspect = {
    .name = "inspect",
    .summary = "show what is in a model file, and what it costs to run",
    .usage = usage,
    .run = cmd_inspect_run,
};
