/* medley perplexity: how well a model predicts a text. */
#include "cli/commands.h"
#include "cli/measure.h"
#include "cli/notice.h"

#include <stdio.h>

static const char usage[] =
    "Usage: medley perplexity MODEL.gguf [--text FILE] [options]\n"
    "\n"
    "How well the model predicts a text: exp of the mean surprise, with an interval of 95 %. Only\n"
    "models with the same vocabulary compare. The text is cut into windows of --context tokens "
    "(512, or\n"
    "what the model has); the second half of each counts, as in llama.cpp.\n"
    "\n";

static const struct option_section sections[] = {
    {.rows = measure_options, .n_rows = MEASURE_OPTIONS, .column = 19, .end = "\n"},
    {SESSION_SECTION(struct measure_flags, session)},
    {0},
};

static enum error_code perplexity_of(const char *path, const struct measure_flags *flags,
                                     struct running_mean *surprise, struct score_text *text,
                                     struct error *err)
{
    struct buffer bytes = {0};
    struct measured_model measured = {0};
    struct notice notice;
    enum error_code code = measure_read_text(flags->text, &bytes, err);
    if (!code)
        code = measure_open(path, flags, &bytes, &measured, err);
    if (!code) {
        notice_begin(&notice, "reading the text …");
        code = score_perplexity(measured.session.generator, &measured.text, surprise, err);
        notice_end(&notice);
    }
    *text = measured.text;
    measure_close(&measured);
    buffer_deinit(&bytes);
    return code;
}

static bool perplexity_json(const struct running_mean *surprise, const struct score_text *text)
{
    yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *root = yyjson_mut_obj(doc);
    yyjson_mut_doc_set_root(doc, root);
    estimate_json(doc, root, "perplexity", running_mean_perplexity(surprise));
    yyjson_mut_obj_add_uint(doc, root, "tokens", text->n_tokens);
    yyjson_mut_obj_add_uint(doc, root, "window", text->n_window);
    yyjson_mut_obj_add_uint(doc, root, "positions", surprise->count);
    return measure_put_json(doc);
}

static int cmd_perplexity_run(int argc, char **argv)
{
    struct measure_flags flags = {0};
    struct running_mean surprise = {0};
    struct score_text text;
    const char *path;
    struct error err;
    if (!options_parse(&command_perplexity, argc, argv, &flags) ||
        !option_rest(&command_perplexity, argc, argv, "which model? give a .gguf file", &path))
        return EXIT_USAGE;
    if (perplexity_of(path, &flags, &surprise, &text, &err))
        return command_fail(&command_perplexity, &err);
    if (flags.json)
        return perplexity_json(&surprise, &text)
                   ? EXIT_OK
                   : command_fail(&command_perplexity,
                                  &(struct error){ERROR_NO_MEMORY, "out of memory"});
    printf("%llu tokens in windows of %u, %llu positions; in brackets, the interval of 95 %%\n",
           (unsigned long long)text.n_tokens, text.n_window, (unsigned long long)surprise.count);
    estimate_print("perplexity", running_mean_perplexity(&surprise), 4, "");
    return EXIT_OK;
}

const struct command command_perplexity = {
    .name = "perplexity",
    .summary = "how well a model predicts a text",
    .usage = usage,
    .options = sections,
    .run = cmd_perplexity_run,
};
