/* An instance's draft model: its memory, and the device on which it guesses. */
#include "placing/placing_impl.h"

#include "cluster/state.h"
#include "model/model.h"
#include "placement/draft_device.h"
#include "plan/plan_devices.h"

#include <stdio.h>
#include <string.h>

/* NULL: it has none, or its header is not here yet. */
static const struct model *placing_draft_of(const struct placing_view *view,
                                            const Cluster__Demand *of)
{
    const Cluster__Model *said = of->draft ? state_model(view->state, of->draft) : NULL;
    return said && of->speculate != SPECULATE_OFF ? view->model(view->self, said) : NULL;
}

static enum error_code placing_cost_of_draft(const Cluster__Demand *of, const struct model *draft,
                                             bool embedding_counts, struct placing_cost *out,
                                             struct error *err)
{
    Cluster__Demand demand = CLUSTER__DEMAND__INIT;
    demand.context_tokens = of->context_tokens;
    demand.streams = of->streams;
    demand.cells = of->cells;
    return placing_cost_of_model(&demand, draft, embedding_counts, out, err);
}

/* Where nothing has been placed yet its header is waited for; later a placement does without it, as
 * the instance does. What is an instance itself takes nothing here. */
enum error_code placing_add_draft(const struct placing_view *view,
                                  const Cluster__Instance *instance, bool embedding_counts,
                                  struct placing_cost *out, struct error *err)
{
    const Cluster__Demand *of = instance->demand;
    const struct model *draft = placing_draft_of(view, of);
    struct placing_cost cost = {0};
    if (state_draft_instance(view->state, instance))
        return ERROR_NONE;
    if (!draft && !instance->current && of->draft && of->speculate != SPECULATE_OFF &&
        state_model(view->state, of->draft))
        return error_set(err, ERROR_BUSY, "the header of %.64s, which drafts, is being fetched",
                         of->draft);
    if (!draft)
        return ERROR_NONE;
    const enum error_code code = placing_cost_of_draft(of, draft, embedding_counts, &cost, err);
    if (!code) {
        const struct placement_problem whole = {.model = cost.model.model, .demand = cost.demand};
        out->model.model.compute_input_bytes += placement_draft_bytes(&whole, 0);
    }
    plan_model_deinit(&cost.model);
    return code;
}

/* Some instance has layers there, or is to have some. */
static bool placing_draft_is_taken(const struct placing *p, uint32_t device)
{
    const Cluster__State *root = p->view.state->root;
    for (size_t i = 0; root && i < root->n_instances; i++) {
        const Cluster__Placement *const of[] = {root->instances[i]->current,
                                                root->instances[i]->next};
        for (size_t k = 0; k < 2; k++) {
            for (size_t s = 0; of[k] && s < of[k]->n_stages; s++) {
                if (!strcmp(of[k]->stages[s]->node, p->names[device].node) &&
                    !strcmp(of[k]->stages[s]->device, p->names[device].device))
                    return true;
            }
        }
    }
    return false;
}

/* On the first stage's device its memory is counted; of the others those of that node which are
 * nobody's. One that was asked for need not be better. */
static void placing_draft_choose(const struct placing *p, const char *asked,
                                 const struct placement_problem *of,
                                 const struct placement_problem *problem,
                                 const struct placement *placement, struct placement_guessed *out,
                                 char device[CLUSTER_ID_MAX])
{
    const struct cluster_device *devices = p->cluster.devices;
    const uint32_t first = placement->stages[0].device;
    uint32_t chosen = UINT32_MAX;
    bool may[LIMIT_PLACEMENT_DEVICES] = {false};
    for (uint32_t i = 0; i < p->cluster.n_devices; i++) {
        may[i] =
            devices[i].node == devices[first].node && (i == first || !placing_draft_is_taken(p, i));
        if (may[i] && asked && !strcmp(asked, p->names[i].device) &&
            placement_draft_on(of, problem, placement, i, out))
            chosen = i;
    }
    if (chosen == UINT32_MAX)
        chosen = placement_draft_device(of, problem, placement, may, out);
    if (chosen != UINT32_MAX)
        snprintf(device, CLUSTER_ID_MAX, "%s", p->names[chosen].device);
}

/* Of one that is an instance itself: as fast as it is forecast, and a question and its answer cross
 * the link between the two drivers. */
static void placing_forecast_asked(const struct placing *p, const Cluster__Instance *instance,
                                   const Cluster__Instance *drafts,
                                   const struct placement_problem *problem,
                                   const struct placement *placement, struct placement_guessed *out)
{
    struct placement_forecast own;
    const Cluster__Placement *at = drafts->current;
    const uint32_t from = placement->stages[0].device,
                   to = at && at->n_stages ? placing_stage_device(p, at->stages[0]) : UINT32_MAX;
    if (to >= p->cluster.n_devices || placing_forecast(&p->view, drafts, at, &own, NULL) ||
        own.guessed.without <= 0)
        return;
    const bool is_near = p->cluster.devices[to].node == p->cluster.devices[from].node;
    const struct placement_drafter drafter = {
        .guess_s = 1 / own.guessed.without,
        .ask_s = is_near ? 0
                         : placement_link(problem, from, to)->latency_s +
                               placement_link(problem, to, from)->latency_s,
        .has_own_device = to != from,
        .is_apart = state_are_apart(instance, drafts)};
    placement_drafted(problem, placement, &drafter, out);
}

void placing_forecast_draft(const struct placing *p, const Cluster__Instance *instance,
                            const struct placement_problem *problem,
                            const struct placement *placement, struct placement_guessed *out,
                            char device[CLUSTER_ID_MAX])
{
    const struct model *draft = placing_draft_of(&p->view, instance->demand);
    const Cluster__Instance *drafts = state_draft_instance(p->view.state, instance);
    struct cluster_problem posed = {0};
    struct placing_cost cost = {0};
    if (!draft || out->repeating <= out->without)
        return; /* what more rows take is not known, or nothing is guessed */
    if (drafts) {
        placing_forecast_asked(p, instance, drafts, problem, placement, out);
        return;
    }
    if (!placing_cost_of_draft(instance->demand, draft, plan_devices_count_embedding(&p->cluster),
                               &cost, NULL) &&
        !cluster_problem_init(&posed, &p->cluster, &cost.model.model, &cost.demand, NULL))
        placing_draft_choose(p, instance->demand->draft_device, &posed.problem, problem, placement,
                             out, device);
    cluster_problem_deinit(&posed);
    plan_model_deinit(&cost.model);
}
