/* medley rerank: which texts answer a query best. */
#include "base/mem.h"
#include "cli/commands.h"
#include "cli/vectors.h"
#include "model/model.h"
#include "request/text_vector.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "Usage: medley rerank MODEL.gguf QUERY TEXT... [--file FILE] [options]\n"
    "\n"
    "Prints the texts, the one that answers the query best first, each after its score. The model\n"
    "must have a head that ranks; the score is what it gives, and may be negative. It is computed\n"
    "on this machine; a cluster answers /v1/rerank.\n"
    "\n";

struct rerank_flags {
    struct session_flags session;
    const char *file;
    uint32_t top_n;
};

static const struct option_row own_options[] = {
    {.name = "file",
     .value = "FILE",
     .help = "a text a line as well; - is standard input",
     OPTION_TEXT(struct rerank_flags, file)},
    {.name = "top",
     .value = "N",
     .help = "only the best N",
     OPTION_U32(struct rerank_flags, top_n, 1, UINT32_MAX)},
};

static const struct option_section sections[] = {
    {OPTION_ROWS(own_options), .column = 19, .end = "\n"},
    {SESSION_SECTION(struct rerank_flags, session)},
    {0},
};

struct ranked {
    const char *text;
    float score;
};

static int ranked_compare(const void *a, const void *b)
{
    const float left = ((const struct ranked *)a)->score, right = ((const struct ranked *)b)->score;
    return (left < right) - (left > right);
}

static enum error_code rerank_print(const struct rerank_flags *flags, const struct texts *texts,
                                    const float *vectors, uint32_t n_embd, struct error *err)
{
    struct ranked *all = mem_new_array(texts->count, sizeof *all);
    if (!all)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for %u texts", texts->count);
    for (uint32_t i = 0; i < texts->count; i++)
        all[i] = (struct ranked){texts->items[i], vectors[(size_t)i * n_embd]};
    qsort(all, texts->count, sizeof *all, ranked_compare);
    for (uint32_t i = 0; i < texts->count && (!flags->top_n || i < flags->top_n); i++)
        printf("%9.4f  %s\n", (double)all[i].score, all[i].text);
    mem_free(all);
    return ERROR_NONE;
}

static enum error_code rerank_compute(const struct session *session, const char *query,
                                      const struct texts *texts, struct token_list *prompts,
                                      float *vectors, struct error *err)
{
    enum error_code code = text_pair_check(session->model, err);
    for (uint32_t i = 0; i < texts->count && !code; i++)
        code = text_pair_encode(
            session->model, session->tokenizer, (struct text_piece){query, strlen(query)},
            (struct text_piece){texts->items[i], strlen(texts->items[i])}, &prompts[i], err);
    return code ? code : vectors_compute(session, prompts, texts->count, vectors, err);
}

static enum error_code rerank_texts(const struct rerank_flags *flags, const char *model,
                                    const char *query, const struct texts *texts, struct error *err)
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
        code = rerank_compute(&session, query, texts, prompts, vectors, err);
    if (!code)
        code = rerank_print(flags, texts, vectors, n_embd, err);
    for (uint32_t i = 0; prompts && i < texts->count; i++)
        token_list_deinit(&prompts[i]);
    mem_free(prompts);
    mem_free(vectors);
    session_close(&session);
    return code;
}

static int rerank_run(int argc, char **argv)
{
    struct rerank_flags flags = {0};
    struct texts texts = {0};
    struct error err = {0};
    enum error_code code = ERROR_NONE;
    if (!options_parse(&command_rerank, argc, argv, &flags))
        return EXIT_USAGE;
    if (argc - optind < 2)
        return command_misused(&command_rerank, "a model and a query are needed");
    const char *model = argv[optind], *query = argv[optind + 1];
    for (int i = optind + 2; i < argc && !code; i++)
        code = texts_add(&texts, argv[i], &err);
    if (!code && flags.file)
        code = texts_read(&texts, flags.file, &err);
    if (!code && !texts.count) {
        texts_deinit(&texts);
        return command_misused(&command_rerank, "a text is missing (or --file)");
    }
    if (!code)
        code = rerank_texts(&flags, model, query, &texts, &err);
    texts_deinit(&texts);
    return code ? command_fail(&command_rerank, &err) : EXIT_OK;
}

const struct command command_rerank = {
    .name = "rerank",
    .summary = "order texts by how well they answer a query",
    .usage = usage,
    .options = sections,
    .run = rerank_run,
};
