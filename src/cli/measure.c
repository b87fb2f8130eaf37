#include "cli/measure.h"
#include "cli/model_given.h"

#include "base/limits.h"
#include "model/model.h"
#include "precision/bundled_text.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct option_row measure_options[] = {
    {.name = "text",
     .value = "FILE",
     .help = "measure on this text (default: short stories that come with Medley)",
     OPTION_TEXT(struct measure_flags, text)},
    {.name = "json", .help = "print JSON", OPTION_TRUE(struct measure_flags, json)},
};
_Static_assert(sizeof measure_options / sizeof *measure_options == MEASURE_OPTIONS,
               "as the header says");

/* ---- the text -------------------------------------------------------------------------------- */

enum error_code measure_read_text(const char *path, struct buffer *out, struct error *err)
{
    char bytes[64 * 1024];
    size_t n;
    if (!path) {
        buffer_append(out, bundled_text, bundled_text_size);
        return out->failed ? error_set(err, ERROR_NO_MEMORY, "out of memory") : ERROR_NONE;
    }
    FILE *file = fopen(path, "rb");
    if (!file)
        return error_set(err, ERROR_NOT_FOUND, "%s: %s", path, strerror(errno));
    while (out->size <= LIMIT_TOKENIZE_BYTES && (n = fread(bytes, 1, sizeof bytes, file)) > 0)
        buffer_append(out, bytes, n);
    enum error_code code = ERROR_NONE;
    if (ferror(file))
        code = error_set(err, ERROR_IO, "%s: %s", path, strerror(errno));
    else if (out->failed)
        code = error_set(err, ERROR_NO_MEMORY, "%s: out of memory", path);
    else if (out->size > LIMIT_TOKENIZE_BYTES)
        code = error_set(err, ERROR_INVALID, "%s: a text may have %d MiB at most", path,
                         LIMIT_TOKENIZE_BYTES >> 20);
    fclose(file);
    return code;
}

static enum error_code measure_cut(struct measured_model *out, const struct buffer *text,
                                   uint32_t n_window, struct error *err)
{
    const struct tokenizer *tokenizer = out->session.tokenizer;
    const int32_t bos = tokenizer_adds_bos(tokenizer) ? tokenizer_bos(tokenizer) : TOKEN_NONE;
    enum error_code code = ERROR_NONE;
    if (bos != TOKEN_NONE)
        code = token_list_push(&out->tokens, bos, err);
    if (!code)
        code = tokenizer_encode(tokenizer, text->data ? text->data : "", text->size, 0,
                                &out->tokens, err);
    if (code)
        return code;
    const size_t n = out->tokens.count;
    if (n < SCORE_WINDOW_LEAST)
        return error_set(err, ERROR_INVALID,
                         "the text has %zu tokens, and needs %d at least: give a longer --text", n,
                         SCORE_WINDOW_LEAST);
    out->text = (struct score_text){
        .tokens = out->tokens.ids,
        .n_tokens = n,
        .n_window = n < n_window ? (uint32_t)n : n_window,
        .bos = bos != TOKEN_NONE ? bos : -1,
        .n_vocab = model_hyperparameters(out->session.model)->n_vocab,
    };
    return ERROR_NONE;
}

/* The window is a smaller context than the model's own: the KV cache is only as large. */
static enum error_code measure_window(const char *path, uint32_t asked, uint32_t *out,
                                      struct error *err)
{
    struct model *model;
    char file[PATH_MAX];
    enum error_code code = ERROR_NONE;
    *out = asked;
    if (!asked) {
        code = model_given(path, file, err);
        if (!code)
            code = model_open(file, &model, err);
        if (code)
            return code;
        const uint32_t trained = model_hyperparameters(model)->n_context_train;
        *out = trained && trained < SCORE_WINDOW_STANDARD ? trained : SCORE_WINDOW_STANDARD;
        model_close(model);
    }
    return *out >= SCORE_WINDOW_LEAST
               ? ERROR_NONE
               : error_set(err, ERROR_INVALID, "a window of %u tokens is too short: %d at least",
                           *out, SCORE_WINDOW_LEAST);
}

enum error_code measure_open(const char *path, const struct measure_flags *flags,
                             const struct buffer *text, struct measured_model *out,
                             struct error *err)
{
    struct session_flags session = flags->session;
    *out = (struct measured_model){0};
    session.is_measured = true;
    if (!session.driver.n_slots)
        session.driver.n_slots = 1;
    enum error_code code =
        measure_window(path, session.driver.context, &session.driver.context, err);
    if (!code)
        code = session_open(path, &session, &out->session, err);
    if (!code)
        code = measure_cut(out, text, session.driver.context, err);
    if (code)
        measure_close(out);
    return code;
}

void measure_close(struct measured_model *measured)
{
    token_list_deinit(&measured->tokens);
    session_close(&measured->session);
    measured->text = (struct score_text){0};
}

/* ---- two models ------------------------------------------------------------------------------ */

enum error_code measure_check_pair(const struct measured_model *a, const struct measured_model *b,
                                   struct error *err)
{
    const char *differs = NULL;
    if (a->text.n_vocab != b->text.n_vocab || a->text.n_tokens != b->text.n_tokens ||
        memcmp(a->text.tokens, b->text.tokens, a->text.n_tokens * sizeof *a->text.tokens) != 0)
        differs = "they make other tokens of the text: only models with one vocabulary can be "
                  "compared";
    else if (a->text.n_window != b->text.n_window || a->text.bos != b->text.bos)
        differs = "they were made for other contexts: give --context";
    return differs ? error_set(err, ERROR_INVALID, "%s", differs) : ERROR_NONE;
}

enum error_code measure_compare(const struct measured_model *a, const struct measured_model *b,
                                struct divergence_summary *out, struct error *err)
{
    struct divergence divergence = {0};
    enum error_code code = measure_check_pair(a, b, err);
    for (uint64_t i = 0; !code && i < score_windows(&a->text); i++) {
        struct score_rows rows;
        code = score_rows_make(a->session.generator, &a->text, i, 1, &rows, err);
        if (!code) {
            code = score_rows_compare(&rows, i, b->session.generator, &b->text, &divergence, err);
            score_rows_deinit(&rows);
        }
    }
    if (!code)
        divergence_summarise(&divergence, out);
    divergence_deinit(&divergence);
    return code;
}

/* ---- what is printed ------------------------------------------------------------------------- */

void estimate_print(const char *label, struct estimate estimate, int digits, const char *end)
{
    printf("  %-24s%.*f  (%.*f to %.*f)%s\n", label, digits, estimate.value, digits, estimate.low,
           digits, estimate.high, end);
}

static void estimate_bound_json(yyjson_mut_doc *doc, yyjson_mut_val *object, const char *name,
                                double value)
{
    if (isfinite(value))
        yyjson_mut_obj_add_real(doc, object, name, value);
    else
        yyjson_mut_obj_add_null(doc, object, name);
}

void estimate_json(yyjson_mut_doc *doc, yyjson_mut_val *root, const char *name,
                   struct estimate estimate)
{
    yyjson_mut_val *object = yyjson_mut_obj_add_obj(doc, root, name);
    estimate_bound_json(doc, object, "value", estimate.value);
    estimate_bound_json(doc, object, "low", estimate.low);
    estimate_bound_json(doc, object, "high", estimate.high);
}

void measure_json(yyjson_mut_doc *doc, yyjson_mut_val *root,
                  const struct divergence_summary *summary)
{
    yyjson_mut_obj_add_uint(doc, root, "positions", summary->n_positions);
    estimate_json(doc, root, "kl_mean", summary->kl_mean);
    estimate_json(doc, root, "kl_median", summary->kl_median);
    estimate_json(doc, root, "kl_p99", summary->kl_p99);
    estimate_json(doc, root, "same_top", summary->same_top);
    estimate_json(doc, root, "perplexity_a", summary->perplexity_a);
    estimate_json(doc, root, "perplexity_b", summary->perplexity_b);
    yyjson_mut_obj_add_real(doc, root, "logit_error_rms", summary->logit_error_rms);
    yyjson_mut_obj_add_real(doc, root, "logit_error_max", summary->logit_error_max);
}

static struct estimate in_percent(struct estimate share)
{
    return (struct estimate){100 * share.value, 100 * share.low, 100 * share.high};
}

void measure_print(const struct divergence_summary *summary)
{
    printf("%llu positions; in brackets, intervals of 95 %%\n",
           (unsigned long long)summary->n_positions);
    estimate_print("KL divergence, mean", summary->kl_mean, 6, " nats");
    estimate_print("KL divergence, median", summary->kl_median, 6, "");
    estimate_print("KL divergence, p99", summary->kl_p99, 6, "");
    estimate_print("same likeliest token", in_percent(summary->same_top), 1, " %");
    estimate_print("perplexity of the first", summary->perplexity_a, 4, "");
    estimate_print("of the second", summary->perplexity_b, 4, "");
    printf("  %-24s%.4f rms, %.4f at most\n", "error of logits", summary->logit_error_rms,
           summary->logit_error_max);
}

bool measure_put_json(yyjson_mut_doc *doc)
{
    char *text = yyjson_mut_write(doc, 0, NULL);
    const bool ok = text != NULL;
    if (ok)
        puts(text);
    free(text);
    yyjson_mut_doc_free(doc);
    return ok;
}
