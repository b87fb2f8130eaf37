/* medley tokenize and medley detokenize: the model's tokenizer on standard input. */
#include "base/limits.h"
#include "cli/commands.h"
#include "cli/model_given.h"
#include "model/gguf_file.h"
#include "model/tokenizer.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <yyjson.h>

static const char tokenize_usage[] =
    "Usage: medley tokenize MODEL.gguf [--add-special] [--parse-special] < TEXT\n"
    "\n"
    "Prints the tokens of the text on standard input as one line of JSON: [1,15043,3186].\n"
    "Every byte counts, a newline at the end too.\n"
    "\n"
    "  --add-special     add BOS and EOS where the model wants them\n"
    "  --parse-special   \"<|im_start|>\" in the text is that token, not its characters\n";

static const char detokenize_usage[] =
    "Usage: medley detokenize MODEL.gguf [--special] [--pieces] < TOKENS\n"
    "\n"
    "Prints the text of the tokens on standard input, a JSON array such as [15043,3186],\n"
    "and nothing after it.\n"
    "\n"
    "  --special   show control tokens such as <|im_start|>; without it they give no text\n"
    "  --pieces    the bytes of each token as they are. Without it the text is tidied as\n"
    "              llama.cpp does: the space that the tokenizer put before the first word\n"
    "              goes, and for some models \" .\" becomes \".\"\n";

static enum error_code cmd_tokenize_read_input(struct buffer *out, size_t limit, struct error *err)
{
    char bytes[64 * 1024];
    size_t n;
    buffer_append(out, "", 0);
    while ((n = fread(bytes, 1, sizeof bytes, stdin)) > 0) {
        buffer_append(out, bytes, n);
        if (out->failed)
            return error_set(err, ERROR_NO_MEMORY, "out of memory");
        if (out->size > limit)
            return error_set(err, ERROR_INVALID, "standard input has more than %zu bytes", limit);
    }
    if (ferror(stdin))
        return error_set(err, ERROR_IO, "standard input: %s", strerror(errno));
    return ERROR_NONE;
}

static enum error_code write_output(const struct buffer *text, struct error *err)
{
    if (text->failed)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    if (fwrite(text->data, 1, text->size, stdout) != text->size || fflush(stdout))
        return error_set(err, ERROR_IO, "standard output: %s", strerror(errno));
    return ERROR_NONE;
}

/* What a command does with its input, once the tokenizer is open. */
typedef enum error_code (*work_fn)(const struct tokenizer *tokenizer, const struct buffer *input,
                                   const int *flags, struct buffer *output, struct error *err);

static enum error_code run_on(const char *path, size_t input_limit, work_fn work, const int *flags,
                              struct error *err)
{
    struct gguf_file *file = NULL;
    struct tokenizer *tokenizer = NULL;
    struct buffer input = {0}, output = {0};
    struct model_header header;
    enum error_code code = model_header_open(path, &header, err);
    if (!code)
        code = gguf_file_open(header.path, &file, err);
    if (!code)
        code = tokenizer_open(file, &tokenizer, err);
    if (!code)
        code = cmd_tokenize_read_input(&input, input_limit, err);
    if (!code)
        code = work(tokenizer, &input, flags, &output, err);
    if (!code)
        code = write_output(&output, err);
    buffer_deinit(&input);
    buffer_deinit(&output);
    tokenizer_close(tokenizer);
    gguf_file_close(file);
    model_header_close(&header);
    return code;
}

static int run_command(const struct command *command, int argc, char **argv,
                       const struct option *options, size_t input_limit, work_fn work,
                       const int *flags)
{
    int choice;
    optind = 1;
    while ((choice = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (choice != 0) /* getopt has said which word it does not know */
            return command_misused(command, "wrong options");
    }
    if (argc - optind != 1)
        return command_misused(command, "one model file is needed, not %d", argc - optind);
    struct error err = {0};
    return run_on(argv[optind], input_limit, work, flags, &err) ? command_fail(command, &err)
                                                                : EXIT_OK;
}

/* ---- tokenize ---- */

enum { ADD_SPECIAL, PARSE_SPECIAL };

static enum error_code cmd_tokenize_text(const struct tokenizer *tokenizer,
                                         const struct buffer *input, const int *flags,
                                         struct buffer *output, struct error *err)
{
    struct token_list ids = {0};
    const unsigned wanted = (flags[ADD_SPECIAL] ? TOKENIZE_ADD_SPECIAL : 0u) |
                            (flags[PARSE_SPECIAL] ? TOKENIZE_PARSE_SPECIAL : 0u);
    enum error_code code = tokenizer_encode(tokenizer, input->data, input->size, wanted, &ids, err);
    buffer_text(output, "[");
    for (size_t i = 0; i < ids.count && !code; i++)
        buffer_printf(output, i ? ",%d" : "%d", ids.ids[i]);
    buffer_text(output, "]\n");
    token_list_deinit(&ids);
    return code;
}

static int run_tokenize(int argc, char **argv);
const struct command command_tokenize = {
    .name = "tokenize",
    .summary = "print the tokens of a text",
    .usage = tokenize_usage,
    .run = run_tokenize,
};

static int run_tokenize(int argc, char **argv)
{
    int flags[2] = {0};
    const struct option options[] = {
        {"add-special", no_argument, &flags[ADD_SPECIAL], 1},
        {"parse-special", no_argument, &flags[PARSE_SPECIAL], 1},
        {0},
    };
    return run_command(&command_tokenize, argc, argv, options, LIMIT_TOKENIZE_BYTES,
                       cmd_tokenize_text, flags);
}

/* ---- detokenize ---- */

enum { SPECIAL, PIECES };
/* "1234567," and a space for each of as many tokens as a text of the limit could have. */
#define DETOKENIZE_INPUT_BYTES ((size_t)LIMIT_TOKENIZE_BYTES * 9)

static enum error_code cmd_tokenize_read_ids(const struct tokenizer *tokenizer,
                                             const struct buffer *input, struct token_list *ids,
                                             struct error *err)
{
    yyjson_read_err problem;
    yyjson_doc *doc = yyjson_read_opts(input->data, input->size, 0, NULL, &problem);
    if (!doc)
        return error_set(err, ERROR_INVALID, "standard input is not JSON: %s at byte %zu",
                         problem.msg, problem.pos);
    yyjson_val *array = yyjson_doc_get_root(doc), *value;
    enum error_code code = ERROR_NONE;
    size_t i, max;
    if (!yyjson_is_arr(array))
        code = error_set(err, ERROR_INVALID, "standard input is not a JSON array of tokens");
    yyjson_arr_foreach(array, i, max, value)
    {
        if (code)
            break;
        if (!yyjson_is_uint(value) || yyjson_get_uint(value) >= tokenizer_size(tokenizer))
            code = error_set(err, ERROR_INVALID,
                             "element %zu is not a token: it must be an integer from 0 to %u", i,
                             tokenizer_size(tokenizer) - 1);
        else
            code = token_list_push(ids, (int32_t)yyjson_get_uint(value), err);
    }
    yyjson_doc_free(doc);
    return code;
}

static enum error_code cmd_tokenize_detokenize(const struct tokenizer *tokenizer,
                                               const struct buffer *input, const int *flags,
                                               struct buffer *output, struct error *err)
{
    struct token_list ids = {0};
    enum error_code code = cmd_tokenize_read_ids(tokenizer, input, &ids, err);
    if (!flags[PIECES] && !code)
        tokenizer_decode(tokenizer, ids.ids, ids.count, false, flags[SPECIAL], output);
    for (size_t i = 0; flags[PIECES] && i < ids.count && !code; i++)
        tokenizer_piece(tokenizer, ids.ids[i], flags[SPECIAL], output);
    buffer_append(output, "", 0);
    token_list_deinit(&ids);
    return code;
}

static int run_detokenize(int argc, char **argv);
const struct command command_detokenize = {
    .name = "detokenize",
    .summary = "print the text of tokens",
    .usage = detokenize_usage,
    .run = run_detokenize,
};

static int run_detokenize(int argc, char **argv)
{
    int flags[2] = {0};
    const struct option options[] = {
        {"special", no_argument, &flags[SPECIAL], 1},
        {"pieces", no_argument, &flags[PIECES], 1},
        {0},
    };
    return run_command(&command_detokenize, argc, argv, options, DETOKENIZE_INPUT_BYTES,
                       cmd_tokenize_detokenize, flags);
}
