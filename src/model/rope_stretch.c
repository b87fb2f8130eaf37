#include "model/rope_stretch.h"

#include "base/limits.h"
#include "model/architecture.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static const float STRETCH_MOST = 1024;

static const char *const stretch_names[] = {
    [ROPE_CHOOSE_NONE] = "none", [ROPE_CHOOSE_LINEAR] = "linear", [ROPE_CHOOSE_YARN] = "yarn"};

bool rope_stretch_is_set(const struct rope_stretch *stretch)
{
    return stretch->type || stretch->factor != 0 || stretch->base != 0 || stretch->n_original;
}

const char *rope_choice_name(enum rope_choice choice)
{
    assert(choice > ROPE_AS_FILE && choice <= ROPE_CHOOSE_YARN);
    return stretch_names[choice];
}

enum error_code rope_choice_find(const char *name, enum rope_choice *out, struct error *err)
{
    for (int i = ROPE_CHOOSE_NONE; i <= ROPE_CHOOSE_YARN; i++) {
        if (strcmp(name, stretch_names[i]) == 0) {
            *out = (enum rope_choice)i;
            return ERROR_NONE;
        }
    }
    return error_set(err, ERROR_INVALID, "rope scaling is none, linear or yarn, not '%.32s'", name);
}

enum error_code rope_stretch_check(const struct rope_stretch *stretch, struct error *err)
{
    if ((unsigned)stretch->type > ROPE_CHOOSE_YARN || stretch->n_original > LIMIT_CONTEXT)
        return error_set(err, ERROR_INVALID, "no such rotation, or of more than %d tokens",
                         LIMIT_CONTEXT);
    if (stretch->factor != 0 && !(stretch->factor >= 1 && stretch->factor <= STRETCH_MOST))
        return error_set(err, ERROR_INVALID, "--rope-scale takes 1 to %.0f, not %g",
                         (double)STRETCH_MOST, (double)stretch->factor);
    if (stretch->base != 0 && !(stretch->base >= 1 && stretch->base <= 1e12F))
        return error_set(err, ERROR_INVALID, "--rope-freq-base takes 1 to 1e12, not %g",
                         (double)stretch->base);
    if (stretch->type == ROPE_CHOOSE_NONE && stretch->factor > 1)
        return error_set(err, ERROR_INVALID,
                         "--rope-scaling none has no --rope-scale; say linear or yarn");
    return ERROR_NONE;
}

static enum error_code stretch_fits(const struct rope_stretch *stretch,
                                    const struct architecture *architecture,
                                    const struct hyperparameters *h, struct error *err)
{
    const bool is_yarn = stretch->type == ROPE_CHOOSE_YARN ||
                         (stretch->type == ROPE_AS_FILE && h->rope_scaling == ROPE_SCALING_YARN);
    if (!h->n_rot)
        return error_set(err, ERROR_UNSUPPORTED,
                         "the family %s rotates nothing that could be scaled", architecture->name);
    if (architecture->has_summaries)
        return error_set(
            err, ERROR_UNSUPPORTED,
            "the family %s turns tokens and their summaries otherwise: it is scaled as "
            "its file says",
            architecture->name);
    if (h->rope_scaling == ROPE_SCALING_LONGROPE)
        return error_set(err, ERROR_UNSUPPORTED,
                         "the model has a factor of its own for each rotation, which its file says "
                         "when to use");
    if (architecture->yarn_log_unit != 0 && (is_yarn || h->yarn_ext_factor != 0))
        return error_set(err, ERROR_UNSUPPORTED,
                         "the family %s ties YaRN to its attention's scores: it is scaled as its "
                         "file says",
                         architecture->name);
    if (stretch->n_original && !is_yarn)
        return error_set(err, ERROR_INVALID, "--yarn-orig-ctx goes with --rope-scaling yarn");
    return ERROR_NONE;
}

static uint32_t stretch_tokens(double tokens, const struct hyperparameters *h)
{
    const double most = h->n_context_max ? h->n_context_max : LIMIT_CONTEXT;
    return tokens < most ? (uint32_t)tokens : (uint32_t)most;
}

/* The slowest rotation of n_rot dimensions turns base^((d - 2) / d) times slower than the first. */
static double stretch_by_base(const struct rope_stretch *stretch, const struct hyperparameters *h)
{
    if (stretch->base <= h->rope_base)
        return 1;
    return pow((double)stretch->base / (double)h->rope_base,
               (double)(h->n_rot - 2) / (double)h->n_rot);
}

enum error_code rope_stretch_apply(const struct rope_stretch *stretch,
                                   const struct architecture *architecture,
                                   struct hyperparameters *h, struct error *err)
{
    static const enum rope_scaling types[] = {ROPE_SCALING_LINEAR, ROPE_SCALING_NONE,
                                              ROPE_SCALING_LINEAR, ROPE_SCALING_YARN};
    if (!rope_stretch_is_set(stretch))
        return ERROR_NONE;
    enum error_code code = rope_stretch_check(stretch, err);
    if (!code)
        code = stretch_fits(stretch, architecture, h, err);
    if (code)
        return code;
    const bool was_scaled = h->rope_frequency_scale < 1;
    const uint32_t before = was_scaled && h->rope_scaling == ROPE_SCALING_LINEAR
                                ? (uint32_t)((float)h->n_context_train * h->rope_frequency_scale)
                                : h->n_context_original;
    if (stretch->type) {
        h->rope_scaling = types[stretch->type];
        h->yarn_ext_factor = stretch->type == ROPE_CHOOSE_YARN ? 1.0f : 0.0f;
    }
    if (stretch->n_original)
        h->n_context_original = stretch->n_original;
    if (stretch->type == ROPE_CHOOSE_NONE)
        h->rope_frequency_scale = 1.0f;
    else if (stretch->factor != 0)
        h->rope_frequency_scale = 1.0f / stretch->factor;
    if (stretch->type || stretch->factor != 0 || stretch->n_original)
        h->n_context_train =
            stretch_tokens((double)(stretch->n_original ? stretch->n_original : before) *
                               (stretch->type != ROPE_CHOOSE_NONE && stretch->factor != 0
                                    ? (double)stretch->factor
                                    : 1 / (double)h->rope_frequency_scale),
                           h);
    if (stretch->base != 0) {
        h->n_context_train =
            stretch_tokens((double)h->n_context_train * stretch_by_base(stretch, h), h);
        h->rope_base = stretch->base; /* windowed layers with a base of their own keep it */
    }
    return ERROR_NONE;
}
