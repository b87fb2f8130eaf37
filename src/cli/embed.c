/* medley embed: vectors of texts. */
#include "api/json_out.h"
#include "base/mem.h"
#include "cli/commands.h"
#include "cli/vectors.h"
#include "model/model.h"
#include "request/text_vector.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

static const char usage[] =
    "Usage: medley embed MODEL.gguf TEXT... [--file FILE] [options]\n"
    "\n"
    "Prints a vector of each text, a line of JSON each: [0.0123,-0.04,…]. It has length 1, and is\n"
    "taken as the model's file says (the mean of its hidden states where it says nothing). It is\n"
    "computed on this machine; a cluster answers /v1/embeddings.\n"
    "\n";

struct embed_flags {
    struct session_flags session;
    const char *file;
};

static const struct option_row own_options[] = {
    {.name = "file",
     .value = "FILE",
     .help = "a text a line as well; - is standard input",
     OPTION_TEXT(struct embed_flags, file)},
};

static const struct option_section sections[] = {
    {OPTION_ROWS(own_options), .column = 19, .end = "\n"},
    {SESSION_SECTION(struct embed_flags, session)},
    {0},
};

static enum error_code embed_encode(const struct session *session, const struct texts *texts,
                                    struct token_list *prompts, struct error *err)
{
    enum error_code code = text_vector_check(session->model, err);
    for (uint32_t i = 0; i < texts->count && !code; i++)
        code = text_vector_encode(session->model, session->tokenizer, texts->items[i],
                                  strlen(texts->items[i]), &prompts[i], err);
    return code;
}

static enum error_code embed_print(float *vector, uint32_t n, struct error *err)
{
    struct buffer line = {0};
    text_vector_scale(vector, n, vector);
    for (uint32_t i = 0; i < n; i++) {
        buffer_text(&line, i ? "," : "[");
        json_out_float(&line, vector[i]);
    }
    buffer_text(&line, "]\n");
    const bool ok = !line.failed && fwrite(line.data, 1, line.size, stdout) == line.size;
    buffer_deinit(&line);
    return ok ? ERROR_NONE : error_set(err, ERROR_IO, "cannot write the vectors");
}

static enum error_code embed_texts(const struct embed_flags *flags, const char *model,
                                   const struct texts *texts, struct error *err)
{
    struct session session;
    enum error_code code = session_open(model, &flags->session, &session, err);
    if (code)
        return code;
    const uint32_t n_embd = model_hyperparameters(session.model)->n_embd;
    struct token_list *prompts = mem_new_array(texts->count, sizeof *prompts);
    float *vectors = mem_new_array((size_t)texts->count * n_embd, sizeof *vectors);
    if (!prompts || !vectors)
        code = error_set(err, ERROR_NO_MEMORY, "not enough memory for %u texts", texts->count);
    if (!code)
        code = embed_encode(&session, texts, prompts, err);
    if (!code)
        code = vectors_compute(&session, prompts, texts->count, vectors, err);
    for (uint32_t i = 0; i < texts->count && !code; i++)
        code = embed_print(vectors + (size_t)i * n_embd, n_embd, err);
    for (uint32_t i = 0; prompts && i < texts->count; i++)
        token_list_deinit(&prompts[i]);
    mem_free(prompts);
    mem_free(vectors);
    session_close(&session);
    return code;
}

static int embed_run(int argc, char **argv)
{
    struct embed_flags flags = {0};
    struct texts texts = {0};
    struct error err = {0};
    enum error_code code = ERROR_NONE;
    if (!options_parse(&command_embed, argc, argv, &flags))
        return EXIT_USAGE;
    if (optind == argc)
        return command_misused(&command_embed, "a model is missing");
    const char *model = argv[optind];
    for (int i = optind + 1; i < argc && !code; i++)
        code = texts_add(&texts, argv[i], &err);
    if (!code && flags.file)
        code = texts_read(&texts, flags.file, &err);
    if (!code && !texts.count) {
        texts_deinit(&texts);
        return command_misused(&command_embed, "a text is missing (or --file)");
    }
    if (!code)
        code = embed_texts(&flags, model, &texts, &err);
    texts_deinit(&texts);
    return code ? command_fail(&command_embed, &err) : EXIT_OK;
}

const struct command command_embed = {
    .name = "embed",
    .summary = "print vectors of texts",
    .usage = usage,
    .options = sections,
    .run = embed_run,
};
