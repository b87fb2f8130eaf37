#include "cli/pull_choose.h"

#include "base/clock.h"
#include "base/size_text.h"
#include "cli/plan_cluster.h"
#include "cli/plan_here.h"
#include "model/model.h"
#include "plan/plan_devices.h"
#include "plan/plan_model.h"
#include "report/report.h"

#include <stdio.h>
#include <string.h>

enum { PULL_CHOOSE_LIMIT_S = 1 };
#define PULL_CHOOSE_ALIKE 0.98

/* What people use, the best first for each number of bits. Others are pulled by name. */
static const char *const pull_usual[] = {
    "Q4_K_M", "Q4_K_S", "IQ4_XS", "Q4_0",   "Q5_K_M",  "Q5_K_S", "Q6_K",    "Q8_0",
    "BF16",   "F16",    "Q3_K_M", "Q3_K_S", "IQ3_XXS", "Q2_K",   "IQ2_XXS",
};
enum { PULL_USUAL_4 = 10, PULL_USUAL = sizeof pull_usual / sizeof *pull_usual };

static double pull_choose_now_s(void *unused)
{
    (void)unused;
    return (double)clock_now_ns() * 1e-9;
}

static enum error_code pull_choose_devices(const struct model *model,
                                           const struct driver_options *options,
                                           struct plan_here *out, bool *here, struct error *err)
{
    bool found = false;
    *out = (struct plan_here){0};
    const enum error_code code = plan_cluster_ask(&out->cluster, &found, err);
    *here = !found;
    if (*here)
        return plan_here_init(out, NULL, model, options, NULL, err);
    plan_compute_estimate(model, options, &out->compute);
    return code;
}

static enum error_code pull_choose_report(const struct model *model,
                                          const struct driver_options *options,
                                          struct plan_here *devices, bool here,
                                          double *tokens_per_s, struct error *err)
{
    struct plan_model cost = {0};
    struct report report = {0};
    enum error_code code = plan_model_init(&cost, model, options, &devices->compute,
                                           plan_devices_count_embedding(&devices->cluster), err);
    if (code)
        return code;
    const struct report_ask ask = {.cluster = &devices->cluster,
                                   .model = &cost.model,
                                   .here = here,
                                   .demand = plan_demand(options),
                                   .kv_types = plan_kv_types(model, options->kv_type),
                                   .limit_s = PULL_CHOOSE_LIMIT_S,
                                   .now_s = pull_choose_now_s};
    code = report_init(&report, &ask, err);
    *tokens_per_s = !code && !report.outcome ? report.forecast.decode_tokens_per_s : 0;
    report_deinit(&report);
    plan_model_deinit(&cost);
    return code;
}

/* 0: it does not fit, or cannot be run here. */
static enum error_code pull_choose_forecast(const char *path, double *tokens_per_s,
                                            struct error *err)
{
    struct model *model = NULL;
    struct plan_here devices = {0};
    const struct driver_options given = {0};
    struct driver_options options;
    bool here = false;
    *tokens_per_s = 0;
    enum error_code code = model_open(path, &model, err);
    if (!code)
        code = driver_options_fill(&given, model, &options, err);
    if (!code)
        code = pull_choose_devices(model, &options, &devices, &here, err);
    if (!code)
        code = pull_choose_report(model, &options, &devices, here, tokens_per_s, err);
    plan_here_deinit(&devices);
    model_close(model);
    return code;
}

static enum error_code pull_choose_look(const struct hub_list *list, uint32_t model,
                                        double *tokens_per_s, struct error *err)
{
    struct hub_headers headers;
    enum error_code code = hub_headers_open(list, model, &headers, err);
    if (!code)
        code = pull_choose_forecast(headers.path, tokens_per_s, err);
    hub_headers_close(&headers);
    return code;
}

static uint32_t pull_choose_find(const struct hub_list *list, const char *quant)
{
    for (uint32_t i = 0; i < list->n_models; i++) {
        if (strcmp(list->models[i].quant, quant) == 0)
            return i;
    }
    return UINT32_MAX;
}

struct pull_chosen {
    uint32_t model; /* UINT32_MAX: none */
    uint32_t n_fit;
    double tokens_per_s;
};

/* One that is as fast and larger is the better one. */
static void pull_choose_weigh(const struct hub_list *list, uint32_t model, double tokens_per_s,
                              struct pull_chosen *best)
{
    const bool is_first = best->model == UINT32_MAX;
    best->n_fit++;
    if (!is_first && (tokens_per_s < best->tokens_per_s * PULL_CHOOSE_ALIKE ||
                      (tokens_per_s <= best->tokens_per_s &&
                       list->models[model].bytes <= list->models[best->model].bytes)))
        return;
    best->model = model;
    best->tokens_per_s = tokens_per_s;
}

static void pull_choose_say(const struct hub_list *list, const struct pull_chosen *best,
                            bool is_last, struct buffer *why)
{
    const struct hub_model_entry *entry = &list->models[best->model];
    buffer_printf(why, "%s (%s): %.1f tokens/s by forecast, ", entry->quant,
                  size_text(entry->bytes).text, best->tokens_per_s);
    if (is_last)
        buffer_text(why, "the largest that fits; none with 4 bits a weight or more does");
    else
        buffer_printf(why, "the fastest of %u usual types of 4 bits or more that fit", best->n_fit);
}

static enum error_code pull_choose_usual(const struct hub_list *list, struct pull_chosen *best,
                                         bool *is_last, struct error *err)
{
    bool any = false;
    enum error_code code = ERROR_NONE;
    for (size_t i = 0; i < PULL_USUAL && !code; i++) {
        double tokens_per_s = 0;
        const uint32_t model = pull_choose_find(list, pull_usual[i]);
        *is_last = i >= PULL_USUAL_4;
        if (*is_last && best->model != UINT32_MAX) {
            *is_last = false;
            break;
        }
        if (model == UINT32_MAX)
            continue;
        any = true;
        code = pull_choose_look(list, model, &tokens_per_s, err);
        if (!code && tokens_per_s > 0)
            pull_choose_weigh(list, model, tokens_per_s, best);
    }
    if (code || best->model != UINT32_MAX)
        return code;
    return error_set(err, ERROR_NOT_FOUND,
                     any ? "no usual type of this model fits these devices; name one: %s:%s/%s:%s"
                         : "none of its models has a usual type; name one: %s:%s/%s:%s",
                     "hf", list->name.owner, list->name.model, list->models[0].quant);
}

enum error_code pull_choose(const struct hub_list *list, uint32_t *model, struct buffer *why,
                            struct error *err)
{
    struct pull_chosen best = {.model = UINT32_MAX};
    bool is_last = false;
    *model = 0;
    if (list->n_models == 1)
        return ERROR_NONE;
    const enum error_code code = pull_choose_usual(list, &best, &is_last, err);
    if (code)
        return code;
    *model = best.model;
    pull_choose_say(list, &best, is_last, why);
    return ERROR_NONE;
}
