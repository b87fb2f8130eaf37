/* medley compare: how far a model's predictions are from another's. */
#include "cli/commands.h"
#include "cli/measure.h"
#include "cli/notice.h"
#include "plan/plan_model.h"

#include <getopt.h>
#include <stddef.h>
#include <stdio.h>

static const char usage[] =
    "Usage: medley compare A.gguf B.gguf [--text FILE] [--max-kl X] [options]\n"
    "\n"
    "How far B's predictions of a text are from A's: what a conversion costs, where A is the "
    "original.\n"
    "KL divergence is in nats: 0 is the same. Both are loaded, and must have one vocabulary.\n"
    "\n";

struct compare_flags {
    struct measure_flags measure;
    float kl_max;
    bool has_kl_max;
    bool has_other_kv;
    enum kv_type other_kv;
};

static bool compare_take_kv(const struct command *command, const struct option_row *row,
                            const char *value, void *flags)
{
    struct compare_flags *to = flags;
    to->has_other_kv = true;
    if (plan_kv_type_find(value, &to->other_kv, NULL) == ERROR_NONE)
        return true;
    command_misused(command, "%s takes f16, f32, q8_0 or q4_0, not '%s'", option_name(row), value);
    return false;
}

static const struct option_row own_options[] = {
    {.name = "max-kl",
     .value = "X",
     .help = "fail where the mean KL divergence is above X",
     OPTION_FLOAT(struct compare_flags, kl_max),
     .mark = offsetof(struct compare_flags, has_kl_max)},
    {.name = "other-kv",
     .value = "TYPE",
     .help = "type of B's KV cache (default: that of --kv)",
     .take = compare_take_kv},
};

static const struct option_section sections[] = {
    {OPTION_ROWS(own_options), .column = 19},
    {.rows = measure_options,
     .n_rows = MEASURE_OPTIONS,
     .offset = offsetof(struct compare_flags, measure),
     .column = 19,
     .end = "\n"},
    {SESSION_SECTION(struct compare_flags, measure.session)},
    {0},
};

static enum error_code compare_models(char *const paths[2], const struct compare_flags *flags,
                                      struct divergence_summary *out, struct error *err)
{
    struct measure_flags each[2] = {flags->measure, flags->measure};
    struct buffer text = {0};
    struct measured_model both[2] = {0};
    struct notice notice;
    if (flags->has_other_kv)
        each[1].session.driver.kv_type = flags->other_kv;
    enum error_code code = measure_read_text(flags->measure.text, &text, err);
    for (int i = 0; i < 2 && !code; i++)
        code = measure_open(paths[i], &each[i], &text, &both[i], err);
    if (!code) {
        notice_begin(&notice, "comparing …");
        code = measure_compare(&both[0], &both[1], out, err);
        notice_end(&notice);
    }
    measure_close(&both[0]);
    measure_close(&both[1]);
    buffer_deinit(&text);
    return code;
}

static bool compare_put_json(const struct divergence_summary *summary)
{
    yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *root = yyjson_mut_obj(doc);
    yyjson_mut_doc_set_root(doc, root);
    measure_json(doc, root, summary);
    return measure_put_json(doc);
}

static int cmd_compare_run(int argc, char **argv)
{
    struct compare_flags flags = {0};
    struct divergence_summary summary;
    struct error err;
    if (!options_parse(&command_compare, argc, argv, &flags))
        return EXIT_USAGE;
    if (argc - optind != 2)
        return command_misused(&command_compare, "give two models: the original, and the other");
    if (flags.has_kl_max && flags.kl_max < 0)
        return command_misused(&command_compare, "--max-kl takes 0 or more");
    if (compare_models(argv + optind, &flags, &summary, &err))
        return command_fail(&command_compare, &err);
    if (!flags.measure.json)
        measure_print(&summary);
    else if (!compare_put_json(&summary))
        return command_fail(&command_compare, &(struct error){ERROR_NO_MEMORY, "out of memory"});
    if (!flags.has_kl_max || summary.kl_mean.value <= (double)flags.kl_max)
        return EXIT_OK;
    error_set(&err, ERROR_UNSUPPORTED, "the mean KL divergence is %.6f, above the bound of %.6f",
              summary.kl_mean.value, (double)flags.kl_max);
    return command_fail(&command_compare, &err);
}

const struct command command_compare = {
    .name = "compare",
    .summary = "how far a model's predictions are from another's",
    .usage = usage,
    .options = sections,
    .run = cmd_compare_run,
};
