/* medley render: chat messages to a prompt, by the model's chat template. */
#include "base/buffer.h"
#include "base/limits.h"
#include "cli/commands.h"
#include "cli/model_given.h"
#include "model/chat_template.h"
#include "model/gguf_file.h"
#include "model/tokenizer.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yyjson.h>

static const char usage[] =
    "Usage: medley render MODEL.gguf [--add-generation-prompt] [--tools FILE] < MESSAGES\n"
    "       medley render --template FILE [...] < MESSAGES\n"
    "\n"
    "Prints the prompt that the model's chat template makes of the messages on standard input,\n"
    "and nothing after it. The input is a JSON array, [{\"role\": \"user\", \"content\": "
    "\"Hello\"}], or\n"
    "an object with such an array as \"messages\"; its other members are variables of the "
    "template.\n"
    "\n"
    "  --add-generation-prompt   end where the assistant's answer begins\n"
    "  --tools FILE              a JSON array of tools that the template may describe\n"
    "  --template FILE           a Jinja template instead of the model's; MODEL, if given, still\n"
    "                            supplies bos_token and eos_token\n";

struct words {
    const char *model, *tools, *template; /* paths; NULL: not given */
    bool add_generation_prompt;
};

static enum error_code cmd_render_read_stream(FILE *file, const char *name, size_t limit,
                                              struct buffer *out, struct error *err)
{
    char bytes[64 * 1024];
    size_t n;
    buffer_text(out, "");
    while ((n = fread(bytes, 1, sizeof bytes, file)) > 0) {
        buffer_append(out, bytes, n);
        if (out->failed)
            return error_set(err, ERROR_NO_MEMORY, "%s: out of memory", name);
        if (out->size > limit)
            return error_set(err, ERROR_INVALID, "%s: more than %zu bytes", name, limit);
    }
    if (ferror(file))
        return error_set(err, ERROR_IO, "%s: %s", name, strerror(errno));
    return ERROR_NONE;
}

static enum error_code cmd_render_read_path(const char *path, size_t limit, struct buffer *out,
                                            struct error *err)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return error_set(err, errno == ENOENT ? ERROR_NOT_FOUND : ERROR_IO, "%s: %s", path,
                         strerror(errno));
    enum error_code code = cmd_render_read_stream(file, path, limit, out, err);
    fclose(file);
    return code;
}

/* ---- the template ---- */

static enum error_code open_given(const struct words *words, const struct tokenizer *tokenizer,
                                  struct chat_template **out, struct error *err)
{
    struct buffer source = {0}, bos = {0}, eos = {0};
    enum error_code code =
        cmd_render_read_path(words->template, LIMIT_TEMPLATE_BYTES, &source, err);
    if (tokenizer) {
        tokenizer_piece(tokenizer, tokenizer_bos(tokenizer), true, &bos);
        tokenizer_piece(tokenizer, tokenizer_eos(tokenizer), true, &eos);
    }
    if (!code)
        code = chat_template_open(source.data, source.size, bos.data, eos.data, out, err);
    buffer_deinit(&source);
    buffer_deinit(&bos);
    buffer_deinit(&eos);
    return code;
}

static enum error_code open_template(const struct words *words, struct chat_template **out,
                                     struct error *err)
{
    struct gguf_file *file = NULL;
    struct tokenizer *tokenizer = NULL;
    struct model_header header = {0};
    enum error_code code =
        words->model ? model_header_open(words->model, &header, err) : ERROR_NONE;
    if (!code && words->model)
        code = gguf_file_open(header.path, &file, err);
    if (!code && file)
        code = tokenizer_open(file, &tokenizer, err);
    if (!code && words->template)
        code = open_given(words, tokenizer, out, err);
    else if (!code)
        code = chat_template_open_model(file, tokenizer, out, err);
    tokenizer_close(tokenizer);
    gguf_file_close(file);
    model_header_close(&header);
    return code;
}

/* ---- the input: standard input, --tools and --add-generation-prompt as one object ---- */

static enum error_code cmd_render_parse(const struct buffer *text, const char *name,
                                        yyjson_doc **out, struct error *err)
{
    yyjson_read_err problem;
    *out = yyjson_read_opts(text->data, text->size, 0, NULL, &problem);
    if (!*out)
        return error_set(err, ERROR_INVALID, "%s is not JSON: %s at byte %zu", name, problem.msg,
                         problem.pos);
    return ERROR_NONE;
}

static enum error_code add_tools(const char *path, yyjson_mut_doc *input, yyjson_mut_val *root,
                                 struct error *err)
{
    struct buffer text = {0};
    yyjson_doc *tools = NULL;
    enum error_code code = cmd_render_read_path(path, LIMIT_BODY_BYTES, &text, err);
    if (!code)
        code = cmd_render_parse(&text, path, &tools, err);
    if (!code && !yyjson_is_arr(yyjson_doc_get_root(tools)))
        code = error_set(err, ERROR_INVALID, "%s is not a JSON array of tools", path);
    if (!code) {
        yyjson_mut_obj_remove_key(root, "tools");
        yyjson_mut_obj_add_val(input, root, "tools",
                               yyjson_val_mut_copy(input, yyjson_doc_get_root(tools)));
    }
    yyjson_doc_free(tools);
    buffer_deinit(&text);
    return code;
}

static enum error_code make_input(const struct words *words, yyjson_doc *messages,
                                  yyjson_mut_doc *input, struct error *err)
{
    yyjson_mut_val *given = yyjson_val_mut_copy(input, yyjson_doc_get_root(messages)),
                   *root = given;
    if (yyjson_mut_is_arr(given)) {
        root = yyjson_mut_obj(input);
        yyjson_mut_obj_add_val(input, root, "messages", given);
    }
    if (!yyjson_mut_is_obj(root))
        return error_set(err, ERROR_INVALID,
                         "standard input is neither a JSON array of messages nor an object");
    yyjson_mut_doc_set_root(input, root);
    if (words->add_generation_prompt) {
        yyjson_mut_obj_remove_key(root, "add_generation_prompt");
        yyjson_mut_obj_add_bool(input, root, "add_generation_prompt", true);
    }
    return words->tools ? add_tools(words->tools, input, root, err) : ERROR_NONE;
}

static enum error_code cmd_render_read_input(const struct words *words, char **out, size_t *size,
                                             struct error *err)
{
    struct buffer text = {0};
    yyjson_doc *messages = NULL;
    yyjson_mut_doc *input = yyjson_mut_doc_new(NULL);
    enum error_code code =
        cmd_render_read_stream(stdin, "standard input", LIMIT_BODY_BYTES, &text, err);
    if (!code)
        code = cmd_render_parse(&text, "standard input", &messages, err);
    if (!code)
        code = make_input(words, messages, input, err);
    if (!code && !(*out = yyjson_mut_write(input, 0, size)))
        code = error_set(err, ERROR_NO_MEMORY, "out of memory");
    yyjson_mut_doc_free(input);
    yyjson_doc_free(messages);
    buffer_deinit(&text);
    return code;
}

/* ---- the command ---- */

static enum error_code cmd_render_messages(const struct words *words, struct error *err)
{
    struct chat_template *chat_template = NULL;
    struct buffer text = {0};
    char *input = NULL;
    size_t size = 0;
    enum error_code code = open_template(words, &chat_template, err);
    if (!code)
        code = cmd_render_read_input(words, &input, &size, err);
    if (!code)
        code = chat_template_render(chat_template, input, size, &text, err);
    if (!code &&
        ((text.size && fwrite(text.data, 1, text.size, stdout) != text.size) || fflush(stdout)))
        code = error_set(err, ERROR_IO, "standard output: %s", strerror(errno));
    free(input);
    buffer_deinit(&text);
    chat_template_close(chat_template);
    return code;
}

static int run_render(int argc, char **argv);
const struct command command_render = {
    .name = "render",
    .summary = "print the prompt that a chat template makes of messages",
    .usage = usage,
    .run = run_render,
};

static int run_render(int argc, char **argv)
{
    static const struct option options[] = {
        {"add-generation-prompt", no_argument, NULL, 'g'},
        {"tools", required_argument, NULL, 't'},
        {"template", required_argument, NULL, 'j'},
        {0},
    };
    struct words words = {0};
    int choice;
    optind = 1;
    while ((choice = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (choice == 'g')
            words.add_generation_prompt = true;
        else if (choice == 't')
            words.tools = optarg;
        else if (choice == 'j')
            words.template = optarg;
        else /* getopt has said which word it does not know */
            return command_misused(&command_render, "wrong options");
    }
    if (argc - optind > 1 || (argc == optind && !words.template))
        return command_misused(&command_render, "one model file is needed, or --template FILE");
    words.model = argc > optind ? argv[optind] : NULL;
    struct error err = {0};
    return cmd_render_messages(&words, &err) ? command_fail(&command_render, &err) : EXIT_OK;
}
