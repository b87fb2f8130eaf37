#include "cli/session_draft.h"

#include "base/log.h"
#include "cli/model_given.h"
#include "gpu/gpu.h"
#include "model/draft_model.h"
#include "placement/draft_device.h"
#include "placement/forecast.h"
#include "plan/plan_draft_here.h"

#include <limits.h>

enum error_code session_open_draft(struct session *session, const struct session_flags *flags,
                                   struct error *err)
{
    char file[PATH_MAX];
    if (!flags->draft && flags->draft_device)
        return error_set(err, ERROR_INVALID, "--draft-device is where --draft guesses: give both");
    if (!flags->draft)
        return ERROR_NONE;
    if (flags->driver.speculate == SPECULATE_OFF)
        return error_set(err, ERROR_INVALID,
                         "nothing is to be guessed (--speculate off, medley bench): leave out "
                         "--draft");
    enum error_code code = model_given(flags->draft, file, err);
    if (!code)
        code = model_open(file, &session->draft, err);
    return code ? code : model_check_draft(session->draft, session->model, err);
}

enum error_code session_plan_draft(struct session *session, const struct session_flags *flags,
                                   const struct selection *selection, struct error *err)
{
    struct driver_options options = {.n_slots = flags->driver.n_slots,
                                     .context = flags->driver.context,
                                     .flash = flags->driver.flash,
                                     .no_repack = flags->driver.no_repack};
    const struct plan_draft_request request = {.gpu = session->gpu,
                                               .selection = selection,
                                               .device = flags->draft_device,
                                               .limit_s = flags->plan_limit_s,
                                               .options = &options};
    enum error_code code = driver_options_fill(&options, session->draft, &options, err);
    if (code)
        return error_wrap(err, "the draft model %s", model_name(session->draft));
    session->draft_context = options.context;
    return plan_draft_here(&session->draft_plan, session->draft, &request, err);
}

/* What the driver is to open beside the model. Its sequences share cells where the model's do, or
 * there are no more of them than were asked for. */
struct driver_draft session_draft(const struct session *session, const struct session_flags *flags,
                                  struct driver_options *driver)
{
    const struct plan *plan = &session->draft_plan;
    struct driver_draft draft = {.model = session->draft,
                                 .stages = plan->stages,
                                 .n_stages = plan->n_stages,
                                 .context = session->draft_context < driver->context
                                                ? session->draft_context
                                                : driver->context,
                                 .cells = driver->cells,
                                 .share = (double)model_weight_bytes(session->draft) /
                                          (double)model_weight_bytes(session->model)};
    for (uint32_t i = 0; i < plan->n_stages; i++) {
        if (!stage_has_pool(plan->stages[i].device, driver->flash))
            draft.cells = 0;
    }
    if (!draft.cells && driver->cells && flags->driver.n_slots < driver->n_slots)
        driver->n_slots = flags->driver.n_slots ? flags->driver.n_slots : 1;
    return draft;
}

/* The id of a device that does not promise what guesses need; NULL: all do. */
static const char *session_draft_obstacle(const struct session *session)
{
    for (uint32_t i = 0; i < session->plan.n_stages; i++) {
        const struct stage *stage = driver_stage(session->driver, i);
        if (stage && !stage_has_stable_bits(stage))
            return device_info(session->plan.stages[i].device)->id;
    }
    return NULL;
}

/* Said once: nothing else shows it. */
void session_say_draft(const struct session *session)
{
    const char *device = session->draft ? session_draft_obstacle(session) : NULL;
    if (device)
        log_line(LOG_WARN, "draft",
                 "%s guesses nothing: %s does not promise the same bits for one token and for "
                 "several (docs/speculation.md)",
                 model_name(session->draft), device);
}

/* How many times as fast one stream is forecast to be; 0: that cannot be told. */
static double session_draft_gain(const struct session *session)
{
    const struct plan *plan = &session->plan, *draft = &session->draft_plan;
    struct placement_forecast forecast;
    if (!plan->solution.placement.n_stages || !draft->solution.placement.n_stages)
        return 0;
    placement_forecast(&plan->problem, &plan->solution.placement, &forecast);
    placement_draft_given(&draft->problem, &draft->solution.placement, &plan->problem,
                          &plan->solution.placement, &forecast.guessed);
    return forecast.guessed.without > 0 ? forecast.guessed.drafted / forecast.guessed.without : 0;
}

void session_describe_draft(const struct session *session, struct buffer *out)
{
    if (!session->draft_plan.n_stages)
        return;
    for (uint32_t i = 0; i < session->draft_plan.n_stages; i++)
        buffer_printf(out, "%s%s", i ? ", " : "; a draft model on ",
                      device_info(session->draft_plan.stages[i].device)->id);
    const double gain = session_draft_obstacle(session) ? 0 : session_draft_gain(session);
    if (gain > 1)
        buffer_printf(out, " (%.1f times as fast if %.0f %% of its guesses are right)", gain,
                      100 * PLACEMENT_DRAFTED_SHARE);
}
