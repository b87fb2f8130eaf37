/* medley convert: write a model's weights in smaller types. */
#include "cli/convert.h"
#include "base/size_text.h"
#include "cli/commands.h"
#include "cli/measure.h"
#include "cli/notice.h"
#include "model/weight_type.h"
#include "precision/convert.h"

#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

static const char usage[] =
    "Usage: medley convert MODEL.gguf --to TYPE [-o OUT.gguf] [options]\n"
    "\n"
    "Writes the model with its matrices in another type: f32, bf16, f16, q8_0, q6_k, q5_k, q5_1,\n"
    "q5_0, q4_k, q4_1, q4_0, iq4_nl, iq4_xs, mxfp4, q3_k or q2_k. Norms, biases and routers stay "
    "as they\n"
    "are, the head gets q6_k at least, and no matrix becomes larger. docs/precision.md tells "
    "more.\n"
    "\n";

static const struct option_row own_options[] = {
    {.name = "to", .value = "TYPE", .help = "such as q4_k", OPTION_TEXT(struct convert_flags, to)},
    {.letter = 'o',
     .alias = "out",
     .value = "FILE",
     .help = "the new file (default: MODEL-TYPE.gguf beside the model); none is replaced",
     OPTION_TEXT(struct convert_flags, out)},
    {.name = "pure",
     .help = "the head, too, gets the type",
     OPTION_TRUE(struct convert_flags, pure)},
    {.name = "threads",
     .letter = 't',
     .value = "N",
     .help = "threads (default: one for each processor)",
     OPTION_U32(struct convert_flags, n_threads, 1, 256)},
    {.name = "json", .help = "print the result as JSON", OPTION_TRUE(struct convert_flags, json)},
};

static const struct option_section sections[] = {
    {OPTION_ROWS(own_options), .column = 19},
    {0},
};

/* MODEL-TYPE.gguf beside the model. */
static enum error_code convert_name(const char *model, const char *type, char out[PATH_MAX],
                                    struct error *err)
{
    const size_t size = strlen(model), ending = strlen(".gguf");
    const bool has_ending = size > ending && strcmp(model + size - ending, ".gguf") == 0;
    const int written = snprintf(out, PATH_MAX, "%.*s-%s.gguf",
                                 (int)(has_ending ? size - ending : size), model, type);
    return written >= PATH_MAX ? error_set(err, ERROR_INVALID, "the model's path is too long")
                               : ERROR_NONE;
}

static enum error_code cmd_convert_write(const struct convert_flags *flags,
                                         const struct model *model,
                                         const struct weight_choice *choice,
                                         struct convert_result *result, struct error *err)
{
    const struct gguf_file *file = model_file(model);
    struct gguf_header header;
    struct output_file out;
    enum error_code code = gguf_header_make(
        file, choice->types, weight_type_file_type(weight_choice_main_type(choice, model)), &header,
        err);
    if (code)
        return code;
    code = output_file_begin(&out, result->path, header.end, err);
    if (!code) {
        const struct convert_job job = {.file = file,
                                        .types = choice->types,
                                        .header = &header,
                                        .fd = out.fd,
                                        .n_threads = flags->n_threads};
        struct notice notice;
        notice_begin(&notice, "converting %s …", model_name(model));
        code = convert_write(&job, err);
        notice_end(&notice);
        if (code)
            output_file_abandon(&out);
        else
            code = output_file_finish(&out, err);
    }
    result->bytes = header.end;
    gguf_header_deinit(&header);
    return code;
}

static enum error_code cmd_convert_make(const struct convert_flags *flags,
                                        const struct model *model, struct convert_result *result,
                                        struct error *err)
{
    struct weight_choice choice;
    int type;
    enum error_code code = weight_type_find(flags->to, &type, err);
    if (!code && flags->out)
        snprintf(result->path, sizeof result->path, "%s", flags->out);
    else if (!code)
        code = convert_name(flags->model, weight_type_name(type), result->path, err);
    if (!code)
        code = weight_choice_init(&choice, model, err);
    if (code)
        return code;
    weight_choice_all(&choice, model, type, flags->pure);
    for (uint64_t i = 0; i < choice.n_tensors; i++) {
        const int old = gguf_file_tensor(model_file(model), i)->type;
        result->n_changed += choice.types[i] != old;
        result->n_again += choice.types[i] != old && !weight_type_is_float(old);
    }
    result->n_tensors = choice.n_tensors;
    result->bytes_before = gguf_file_size(model_file(model));
    if (!result->n_changed)
        code = error_set(err, ERROR_INVALID, "no matrix of %s becomes smaller as %s: nothing to do",
                         flags->model, weight_type_name(type));
    if (!code)
        code = cmd_convert_write(flags, model, &choice, result, err);
    weight_choice_deinit(&choice);
    return code;
}

static void cmd_convert_print(const struct convert_result *result)
{
    printf("%s: %s (%.1f %% of %s); %llu of %llu tensors converted\n", result->path,
           size_text(result->bytes).text,
           100.0 * (double)result->bytes / (double)result->bytes_before,
           size_text(result->bytes_before).text, (unsigned long long)result->n_changed,
           (unsigned long long)result->n_tensors);
    if (result->n_again)
        printf("%llu of them were quantised before: their loss is that of both. From an F16 or "
               "BF16 file it\nis less.\n",
               (unsigned long long)result->n_again);
}

static bool cmd_convert_print_json(const struct convert_result *result)
{
    yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *root = yyjson_mut_obj(doc);
    yyjson_mut_doc_set_root(doc, root);
    yyjson_mut_obj_add_str(doc, root, "file", result->path);
    yyjson_mut_obj_add_uint(doc, root, "bytes", result->bytes);
    yyjson_mut_obj_add_uint(doc, root, "bytes_before", result->bytes_before);
    yyjson_mut_obj_add_uint(doc, root, "tensors", result->n_tensors);
    yyjson_mut_obj_add_uint(doc, root, "converted", result->n_changed);
    yyjson_mut_obj_add_uint(doc, root, "converted_again", result->n_again);
    return measure_put_json(doc);
}

static int cmd_convert_run(int argc, char **argv)
{
    struct convert_flags flags = {0};
    struct convert_result result = {0};
    struct model *model;
    struct error err;
    if (!options_parse(&command_convert, argc, argv, &flags) ||
        !option_rest(&command_convert, argc, argv, "which model? give a .gguf file", &flags.model))
        return EXIT_USAGE;
    if (!flags.to)
        return command_misused(&command_convert, "to which type? give --to, such as --to q4_k");
    if (model_open(flags.model, &model, &err))
        return command_fail(&command_convert, &err);
    enum error_code code = cmd_convert_make(&flags, model, &result, &err);
    model_close(model);
    if (code)
        return command_fail(&command_convert, &err);
    if (!flags.json)
        cmd_convert_print(&result);
    else if (!cmd_convert_print_json(&result))
        return command_fail(&command_convert, &(struct error){ERROR_NO_MEMORY, "out of memory"});
    return EXIT_OK;
}

const struct command command_convert = {
    .name = "convert",
    .summary = "write a model's weights in smaller types",
    .usage = usage,
    .options = sections,
    .run = cmd_convert_run,
};
