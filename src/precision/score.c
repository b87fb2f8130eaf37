#include "precision/score.h"

#include "base/mem.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

uint64_t score_windows(const struct score_text *text)
{
    return text->n_tokens / text->n_window;
}

/* The last token of a window is predicted, and predicts nothing that is known. */
uint32_t score_window_positions(const struct score_text *text)
{
    return text->n_window - 1 - text->n_window / 2;
}

/* ---- one window ------------------------------------------------------------------------------ */

struct score_run {
    const struct score_text *text;
    const int32_t *tokens; /* of the window */
    score_fn each;
    void *arg;
    uint32_t n_given;
    enum error_code code; /* of `each` */
    struct error error;

    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool done;
    enum finish_reason reason;
    struct error failure;
};

static bool score_on_token(void *arg, const struct token_event *event)
{
    (void)arg;
    (void)event;
    return false;
}

static void score_on_row(void *arg, uint32_t position, const float *values, uint32_t n_values)
{
    struct score_run *run = arg;
    const uint32_t first = run->text->n_window / 2;
    if (run->code || position < first || position + 1 >= run->text->n_window)
        return;
    if (n_values != run->text->n_vocab) {
        run->code = error_set(&run->error, ERROR_INTERNAL, "a row of %u logits, not %u", n_values,
                              run->text->n_vocab);
        return;
    }
    run->n_given++;
    run->code = run->each(run->arg, position - first, values, (uint32_t)run->tokens[position + 1],
                          &run->error);
}

static void score_on_done(void *arg, enum finish_reason reason, const struct request_usage *usage,
                          const struct error *err)
{
    (void)usage;
    struct score_run *run = arg;
    pthread_mutex_lock(&run->lock);
    run->done = true;
    run->reason = reason;
    if (err)
        run->failure = *err;
    pthread_cond_signal(&run->ended);
    pthread_mutex_unlock(&run->lock);
}

static enum error_code score_submit(struct generator *generator, struct score_run *run,
                                    const int32_t *prompt, struct error *err)
{
    struct request request = {
        .prompt = prompt,
        .n_prompt = run->text->n_window,
        .sampler = sampler_defaults(),
        .want_all_logits = true,
        .handlers = {.token = score_on_token, .row = score_on_row, .done = score_on_done},
        .arg = run,
    };
    request.sampler.temperature = 0;
    enum error_code code = generator_submit(generator, &request, NULL, err);
    if (code)
        return code;
    pthread_mutex_lock(&run->lock);
    while (!run->done)
        pthread_cond_wait(&run->ended, &run->lock);
    pthread_mutex_unlock(&run->lock);
    if (run->reason == FINISH_ERROR)
        return error_set(err, run->failure.code, "%s", run->failure.text);
    if (run->code)
        return error_set(err, run->code, "%s", run->error.text);
    if (run->n_given != score_window_positions(run->text))
        return error_set(err, ERROR_INTERNAL, "%u of %u rows came", run->n_given,
                         score_window_positions(run->text));
    return ERROR_NONE;
}

enum error_code score_window(struct generator *generator, const struct score_text *text,
                             uint64_t window, score_fn each, void *arg, struct error *err)
{
    assert(text->n_window >= SCORE_WINDOW_LEAST && window < score_windows(text));
    struct score_run run = {
        .text = text,
        .tokens = text->tokens + window * text->n_window,
        .each = each,
        .arg = arg,
    };
    int32_t *prompt = mem_new_array(text->n_window, sizeof *prompt);
    if (!prompt)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for a window of the text");
    memcpy(prompt, run.tokens, text->n_window * sizeof *prompt);
    if (text->bos >= 0)
        prompt[0] = text->bos;
    pthread_mutex_init(&run.lock, NULL);
    pthread_cond_init(&run.ended, NULL);
    enum error_code code = score_submit(generator, &run, prompt, err);
    pthread_cond_destroy(&run.ended);
    pthread_mutex_destroy(&run.lock);
    mem_free(prompt);
    return code;
}

/* ---- perplexity ------------------------------------------------------------------------------ */

struct surprise_run {
    uint32_t n_vocab;
    struct running_mean *mean;
};

static enum error_code score_add_surprise(void *arg, uint32_t index, const float *row,
                                          uint32_t token, struct error *err)
{
    (void)index;
    struct surprise_run *run = arg;
    const double surprise = row_surprise(row, run->n_vocab, token);
    if (!(surprise >= 0 && surprise < 1e30))
        return error_set(err, ERROR_INVALID, "a logit is infinite or not a number");
    running_mean_add(run->mean, surprise);
    return ERROR_NONE;
}

enum error_code score_perplexity(struct generator *generator, const struct score_text *text,
                                 struct running_mean *out, struct error *err)
{
    struct surprise_run run = {text->n_vocab, out};
    enum error_code code = ERROR_NONE;
    for (uint64_t i = 0; i < score_windows(text) && !code; i++)
        code = score_window(generator, text, i, score_add_surprise, &run, err);
    return code;
}

/* ---- two models ------------------------------------------------------------------------------ */

struct rows_run {
    float *values; /* of the window */
    uint32_t n_vocab;
    struct divergence *divergence; /* NULL: the rows are kept */
};

static enum error_code score_keep_row(void *arg, uint32_t index, const float *row, uint32_t token,
                                      struct error *err)
{
    (void)token;
    (void)err;
    struct rows_run *run = arg;
    memcpy(run->values + (size_t)index * run->n_vocab, row, run->n_vocab * sizeof *row);
    return ERROR_NONE;
}

static enum error_code score_compare_row(void *arg, uint32_t index, const float *row,
                                         uint32_t token, struct error *err)
{
    struct rows_run *run = arg;
    return divergence_add(run->divergence, run->values + (size_t)index * run->n_vocab, row,
                          run->n_vocab, token, err);
}

static size_t score_window_values(const struct score_text *text)
{
    return (size_t)score_window_positions(text) * text->n_vocab;
}

enum error_code score_rows_make(struct generator *generator, const struct score_text *text,
                                uint64_t first, uint64_t n_windows, struct score_rows *out,
                                struct error *err)
{
    const size_t n_values = score_window_values(text);
    *out = (struct score_rows){.n_windows = n_windows};
    out->values = mem_new_array(n_values * n_windows, sizeof *out->values);
    if (!out->values)
        return error_set(err, ERROR_NO_MEMORY,
                         "not enough memory for the logits of %llu windows: give a smaller "
                         "--context",
                         (unsigned long long)n_windows);
    enum error_code code = ERROR_NONE;
    for (uint64_t i = 0; i < n_windows && !code; i++) {
        struct rows_run run = {.values = out->values + i * n_values, .n_vocab = text->n_vocab};
        code = score_window(generator, text, first + i, score_keep_row, &run, err);
    }
    if (code)
        score_rows_deinit(out);
    return code;
}

void score_rows_deinit(struct score_rows *rows)
{
    mem_free(rows->values);
    *rows = (struct score_rows){0};
}

enum error_code score_rows_compare(const struct score_rows *rows, uint64_t first,
                                   struct generator *other, const struct score_text *text,
                                   struct divergence *out, struct error *err)
{
    enum error_code code = ERROR_NONE;
    for (uint64_t i = 0; i < rows->n_windows && !code; i++) {
        struct rows_run run = {.values = rows->values + i * score_window_values(text),
                               .n_vocab = text->n_vocab,
                               .divergence = out};
        code = score_window(other, text, first + i, score_compare_row, &run, err);
    }
    return code;
}
