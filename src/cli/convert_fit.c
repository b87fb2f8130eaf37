/* medley convert --fit: what each group of tensors costs in each type is measured by running the
 * model with that group alone converted, over the first windows of the text. */
#include "cli/convert.h"
#include "precision/fit.h"
#include "precision/trial_file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Windows that the groups are measured on, and what the original's logits of them may take. */
enum { FITTING_WINDOWS = 4, FITTING_BYTES_MAX = 512 << 20 };

struct fitting {
    const struct convert_flags *flags;
    struct buffer text;
    struct measured_model original;
    struct score_rows rows; /* of the original */
    struct trial_file trial;
    bool shows_progress;
};

static enum error_code fitting_begin(struct fitting *fitting, const struct model *model,
                                     const char *beside, struct error *err)
{
    enum error_code code = measure_read_text(fitting->flags->measure.text, &fitting->text, err);
    if (!code)
        code = measure_open(fitting->flags->model, &fitting->flags->measure, &fitting->text,
                            &fitting->original, err);
    if (code)
        return code;
    const struct score_text *text = &fitting->original.text;
    const uint64_t window_bytes =
        (uint64_t)score_window_positions(text) * text->n_vocab * sizeof(float);
    uint64_t n_windows = FITTING_BYTES_MAX / window_bytes;
    if (n_windows > FITTING_WINDOWS)
        n_windows = FITTING_WINDOWS;
    if (n_windows > score_windows(text))
        n_windows = score_windows(text);
    code = score_rows_make(fitting->original.session.generator, text, 0, n_windows ? n_windows : 1,
                           &fitting->rows, err);
    session_close(&fitting->original.session); /* its memory is the trials' */
    if (!code)
        code = trial_file_open(&fitting->trial, model_file(model), beside, err);
    return code;
}

static void fitting_end(struct fitting *fitting)
{
    trial_file_close(&fitting->trial);
    score_rows_deinit(&fitting->rows);
    measure_close(&fitting->original);
    buffer_deinit(&fitting->text);
}

static enum error_code fitting_compare(const struct fitting *fitting, double *loss,
                                       struct error *err)
{
    struct measured_model changed;
    struct divergence divergence = {0};
    enum error_code code =
        measure_open(fitting->trial.path, &fitting->flags->measure, &fitting->text, &changed, err);
    if (code)
        return code;
    code = measure_check_pair(&fitting->original, &changed, err);
    if (!code)
        code = score_rows_compare(&fitting->rows, 0, changed.session.generator, &changed.text,
                                  &divergence, err);
    *loss = divergence.kl.mean;
    divergence_deinit(&divergence);
    measure_close(&changed);
    return code;
}

static enum error_code fitting_measure(void *arg, const uint32_t *groups, uint32_t group,
                                       const int *types, uint32_t done, uint32_t total,
                                       double *loss, struct error *err)
{
    struct fitting *fitting = arg;
    if (fitting->shows_progress)
        fprintf(stderr, "\rmeasuring: %u of %u … ", done + 1, total);
    enum error_code code = trial_file_set(&fitting->trial, groups, group, types, err);
    return code ? code : fitting_compare(fitting, loss, err);
}

enum error_code convert_fit(const struct convert_flags *flags, const struct model *model,
                            const char *beside, struct weight_choice *choice, double *losses,
                            struct error *err)
{
    struct fitting fitting = {.flags = flags, .shows_progress = isatty(STDERR_FILENO)};
    const struct fit fit = {
        .bytes_max = flags->fit_bytes, .measure = fitting_measure, .arg = &fitting};
    struct fit_result result;
    if (weight_choice_bytes(choice, model) <= flags->fit_bytes)
        return ERROR_NONE; /* it fits as it is */
    enum error_code code = fitting_begin(&fitting, model, beside, err);
    if (!code)
        code = fit_choose(&fit, model, choice, losses, &result, err);
    if (fitting.shows_progress)
        fputs("\r\033[K", stderr);
    fitting_end(&fitting);
    return code;
}
