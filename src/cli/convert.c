/* medley convert: write a model's weights in smaller types. */
#include "cli/convert.h"

#include "base/durable_file.h"
#include "base/mem.h"
#include "base/size_text.h"
#include "base/this_process.h"
#include "cli/commands.h"
#include "cli/model_given.h"
#include "cli/notice.h"
#include "model/weight_type.h"
#include "precision/convert.h"
#include "precision/type_list.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char usage[] =
    "Usage: medley convert MODEL.gguf --to TYPE [-o OUT.gguf] [options]\n"
    "       medley convert MODEL.gguf --fit SIZE [--plan FILE] [-o OUT.gguf] [options]\n"
    "       medley convert MODEL.gguf --by FILE [-o OUT.gguf]\n"
    "\n"
    "Writes the model with its matrices in another type: f32, bf16, f16, q8_0, q6_k, q5_k, q5_1,\n"
    "q5_0, q4_k, q4_1, q4_0, iq4_nl, iq4_xs, mxfp4, q3_k or q2_k. Norms, biases and routers stay "
    "as they\n"
    "are, the head gets q6_k at least, and no matrix becomes larger.\n"
    "\n"
    "--fit measures what each matrix costs in each type, by running the model on a text, and "
    "chooses\n"
    "the types that lose least within SIZE. docs/precision.md tells more.\n"
    "\n";

static const struct option_row own_options[] = {
    {.name = "to", .value = "TYPE", .help = "such as q4_k", OPTION_TEXT(struct convert_flags, to)},
    {.name = "fit",
     .value = "SIZE",
     .help = "bytes that all weights may take, such as 11GiB; caches come beside them",
     OPTION_BYTES(struct convert_flags, fit_bytes)},
    {.name = "plan",
     .value = "FILE",
     .help = "write the types to FILE (- : print them) and convert nothing",
     OPTION_TEXT(struct convert_flags, plan)},
    {.name = "by",
     .value = "FILE",
     .help = "carry out such a FILE",
     OPTION_TEXT(struct convert_flags, by)},
    {.letter = 'o',
     .alias = "out",
     .value = "FILE",
     .help = "the new file (default: MODEL-TYPE.gguf beside the model); none is replaced",
     OPTION_TEXT(struct convert_flags, out)},
    {.name = "max-kl",
     .value = "X",
     .help = "write nothing where the mean KL divergence from the original is above X",
     OPTION_FLOAT(struct convert_flags, kl_max),
     .mark = offsetof(struct convert_flags, has_kl_max)},
    {.name = "pure",
     .help = "with --to: the head, too, gets the type",
     OPTION_TRUE(struct convert_flags, pure)},
};

static const struct option_section sections[] = {
    {OPTION_ROWS(own_options), .column = 19},
    {.rows = measure_options,
     .n_rows = MEASURE_OPTIONS,
     .offset = offsetof(struct convert_flags, measure),
     .column = 19,
     .end = "\n"},
    {.title = "For what is measured (--fit, --max-kl); --threads is also how many convert:\n",
     SESSION_SECTION(struct convert_flags, measure.session)},
    {0},
};

/* MODEL-TYPE.gguf beside the model's file; here, if the model was named and lies in some cache. */
static enum error_code convert_name(const char *model, const char *type, char out[PATH_MAX],
                                    struct error *err)
{
    const char *slash = access(model, F_OK) == 0 ? NULL : strrchr(model, '/');
    model = slash ? slash + 1 : model;
    const size_t size = strlen(model), ending = strlen(".gguf");
    const bool has_ending = size > ending && strcmp(model + size - ending, ".gguf") == 0;
    const int written = snprintf(out, PATH_MAX, "%.*s-%s.gguf",
                                 (int)(has_ending ? size - ending : size), model, type);
    return written >= PATH_MAX ? error_set(err, ERROR_INVALID, "the model's path is too long")
                               : ERROR_NONE;
}

/* ---- the new file ---------------------------------------------------------------------------- */

/* Of the new file, before it has its name. ERROR_UNSUPPORTED: it is above --max-kl. */
static enum error_code cmd_convert_measure(const struct convert_flags *flags, int fd,
                                           struct convert_result *result, struct error *err)
{
    struct buffer text = {0};
    struct measured_model original = {0}, changed = {0};
    char path[DESCRIPTOR_PATH_BYTES];
    descriptor_path(path, fd);
    enum error_code code = measure_read_text(flags->measure.text, &text, err);
    if (!code)
        code = measure_open(flags->model, &flags->measure, &text, &original, err);
    if (!code)
        code = measure_open(path, &flags->measure, &text, &changed, err);
    if (!code)
        code = measure_compare(&original, &changed, &result->summary, err);
    measure_close(&original);
    measure_close(&changed);
    buffer_deinit(&text);
    result->is_measured = !code;
    if (!code && flags->has_kl_max && result->summary.kl_mean.value > (double)flags->kl_max)
        code = error_set(err, ERROR_UNSUPPORTED,
                         "the mean KL divergence would be %.6f, above the bound of %.6f: nothing "
                         "was written; give a larger type or --fit more",
                         result->summary.kl_mean.value, (double)flags->kl_max);
    return code;
}

static enum error_code cmd_convert_fill(const struct convert_flags *flags,
                                        const struct model *model, const int *types,
                                        const struct gguf_header *header,
                                        struct convert_result *result, struct error *err)
{
    struct output_file out;
    struct notice notice;
    enum error_code code = output_file_begin(&out, result->path, header->end, err);
    if (code)
        return code;
    const struct convert_job job = {.file = model_file(model),
                                    .types = types,
                                    .header = header,
                                    .fd = out.fd,
                                    .n_threads = flags->measure.session.n_threads};
    notice_begin(&notice, "converting %s …", model_name(model));
    code = convert_write(&job, err);
    if (!code && (flags->fit_bytes || flags->has_kl_max))
        code = cmd_convert_measure(flags, out.fd, result, err);
    notice_end(&notice);
    if (code)
        output_file_abandon(&out);
    else
        code = output_file_finish(&out, err);
    return code;
}

static enum error_code cmd_convert_write(const struct convert_flags *flags,
                                         const struct model *model,
                                         const struct weight_choice *choice,
                                         struct convert_result *result, struct error *err)
{
    struct gguf_header header;
    const int main_type = weight_choice_main_type(choice, model);
    enum error_code code = gguf_header_make(model_file(model), choice->types,
                                            weight_type_file_type(main_type), &header, err);
    if (code)
        return code;
    result->bytes = header.end;
    result->weight_bytes = weight_choice_bytes(choice, model);
    code = cmd_convert_fill(flags, model, choice->types, &header, result, err);
    gguf_header_deinit(&header);
    return code;
}

/* ---- the types ------------------------------------------------------------------------------- */

static enum error_code cmd_convert_by(const char *path, const struct model *model,
                                      struct weight_choice *choice, struct error *err)
{
    struct buffer text = {0};
    enum error_code code = durable_read(path, TYPE_LIST_BYTES_MAX, 0, &text, err);
    if (!code)
        code = type_list_read(&text, model, choice, err);
    buffer_deinit(&text);
    if (code)
        error_wrap(err, "%s", path);
    return code;
}

static enum error_code cmd_convert_choose(const struct convert_flags *flags,
                                          const struct model *model, const char *beside,
                                          struct weight_choice *choice, double *losses,
                                          struct error *err)
{
    int type;
    if (flags->by)
        return cmd_convert_by(flags->by, model, choice, err);
    if (flags->fit_bytes)
        return convert_fit(flags, model, beside, choice, losses, err);
    enum error_code code = weight_type_find(flags->to, &type, err);
    if (!code)
        weight_choice_all(choice, model, type, flags->pure);
    return code;
}

/* Counts what changes. ERROR_INVALID: nothing does. */
static enum error_code cmd_convert_count(const struct convert_flags *flags,
                                         const struct model *model,
                                         const struct weight_choice *choice,
                                         struct convert_result *result, struct error *err)
{
    for (uint64_t i = 0; i < choice->n_tensors; i++) {
        const int old = gguf_file_tensor(model_file(model), i)->type;
        result->n_changed += choice->types[i] != old;
        result->n_again += choice->types[i] != old && !weight_type_is_float(old);
    }
    result->n_tensors = choice->n_tensors;
    result->bytes_before = gguf_file_size(model_file(model));
    return result->n_changed
               ? ERROR_NONE
               : error_set(err, ERROR_INVALID, "no matrix of %s would change: nothing to do",
                           flags->model);
}

/* --plan: the list of types, and nothing else. */
static enum error_code cmd_convert_plan(const struct convert_flags *flags,
                                        const struct model *model,
                                        const struct weight_choice *choice, const double *losses,
                                        struct error *err)
{
    struct buffer text = {0};
    char remark[256];
    const bool is_printed = strcmp(flags->plan, "-") == 0;
    snprintf(remark, sizeof remark,
             "%s: weights of %s\nbehind each type: KL divergence that was "
             "measured for it alone\n",
             flags->fit_bytes ? "by medley convert --fit" : "by medley convert --to",
             size_text(weight_choice_bytes(choice, model)).text);
    type_list_write(choice, model, losses, remark, &text);
    FILE *file = is_printed ? stdout : fopen(flags->plan, "wx");
    enum error_code code = ERROR_NONE;
    if (text.failed)
        code = error_set(err, ERROR_NO_MEMORY, "out of memory");
    else if (!file || fwrite(text.data, 1, text.size, file) != text.size || fflush(file))
        code = error_set(err, ERROR_IO, "%s: %s", flags->plan, strerror(errno));
    if (file && !is_printed)
        fclose(file);
    buffer_deinit(&text);
    return code;
}

static enum error_code cmd_convert_make(const struct convert_flags *flags,
                                        const struct model *model, struct convert_result *result,
                                        struct error *err)
{
    struct weight_choice choice;
    enum error_code code = ERROR_NONE;
    if (flags->out)
        snprintf(result->path, sizeof result->path, "%s", flags->out);
    else
        code = convert_name(flags->model, flags->to ? flags->to : "mixed", result->path, err);
    if (!code && access(result->path, F_OK) == 0 && !flags->plan)
        code = output_file_refuse(result->path, err); /* before anything is measured */
    if (!code)
        code = weight_choice_init(&choice, model, err);
    if (code)
        return code;
    double *losses = mem_new_array(choice.n_tensors, sizeof *losses);
    if (!losses)
        code = error_set(err, ERROR_NO_MEMORY, "not enough memory for the list of tensors");
    if (!code)
        code = cmd_convert_choose(flags, model, result->path, &choice, losses, err);
    if (!code)
        code = cmd_convert_count(flags, model, &choice, result, err);
    if (!code)
        code = flags->plan ? cmd_convert_plan(flags, model, &choice, losses, err)
                           : cmd_convert_write(flags, model, &choice, result, err);
    mem_free(losses);
    weight_choice_deinit(&choice);
    return code;
}

/* ---- the command ----------------------------------------------------------------------------- */

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
    if (result->is_measured)
        measure_print(&result->summary);
}

static bool cmd_convert_print_json(const struct convert_result *result)
{
    yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *root = yyjson_mut_obj(doc);
    yyjson_mut_doc_set_root(doc, root);
    yyjson_mut_obj_add_str(doc, root, "file", result->path);
    yyjson_mut_obj_add_uint(doc, root, "bytes", result->bytes);
    yyjson_mut_obj_add_uint(doc, root, "bytes_before", result->bytes_before);
    yyjson_mut_obj_add_uint(doc, root, "weight_bytes", result->weight_bytes);
    yyjson_mut_obj_add_uint(doc, root, "tensors", result->n_tensors);
    yyjson_mut_obj_add_uint(doc, root, "converted", result->n_changed);
    yyjson_mut_obj_add_uint(doc, root, "converted_again", result->n_again);
    if (result->is_measured)
        measure_json(doc, root, &result->summary);
    return measure_put_json(doc);
}

static bool cmd_convert_parse(int argc, char **argv, struct convert_flags *flags)
{
    if (!options_parse(&command_convert, argc, argv, flags) ||
        !option_rest(&command_convert, argc, argv, "which model? give a .gguf file", &flags->model))
        return false;
    const int n_ways = (flags->to != NULL) + (flags->fit_bytes != 0) + (flags->by != NULL);
    if (n_ways == 0)
        command_misused(&command_convert,
                        "to what? give --to, such as --to q4_k, or --fit or --by");
    else if (n_ways > 1)
        command_misused(&command_convert, "give one of --to, --fit and --by");
    else if (flags->plan && flags->by)
        command_misused(&command_convert, "--by FILE is such a plan already");
    else if (flags->has_kl_max && flags->kl_max < 0)
        command_misused(&command_convert, "--max-kl takes 0 or more");
    else
        return true;
    return false;
}

static int cmd_convert_run(int argc, char **argv)
{
    struct convert_flags flags = {0};
    struct convert_result result = {0};
    struct model *model;
    struct error err;
    if (!cmd_convert_parse(argc, argv, &flags))
        return EXIT_USAGE;
    char file[PATH_MAX];
    if (model_given(flags.model, file, &err) || model_open(file, &model, &err))
        return command_fail(&command_convert, &err);
    enum error_code code = cmd_convert_make(&flags, model, &result, &err);
    model_close(model);
    if (code)
        return command_fail(&command_convert, &err);
    if (flags.plan)
        return EXIT_OK;
    if (!flags.measure.json)
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
