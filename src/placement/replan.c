#include "placement/replan.h"

#include "base/mem.h"
#include "placement/check.h"
#include "placement/cost.h"
#include "placement/replan_search.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct replan_options replan_options_default(void)
{
    struct replan_options options = {.solve = placement_options_default(),
                                     .margin = 0.1,
                                     .worth = 2,
                                     .switch_s = 0.05,
                                     .settle_s = 10,
                                     .cooldown_s_min = 60,
                                     .cooldown_s_max = 3600};
    options.solve.max_nodes = 20 * 1000;
    return options;
}

/* ---- layouts --------------------------------------------------------------------------- */

struct replan_layout replan_layout_of(const struct placement_problem *problem,
                                      const struct placement *placement)
{
    struct replan_layout layout = {.n_runs = placement->n_stages};
    for (uint32_t i = 0; i < placement->n_stages; i++) {
        const struct placement_stage *stage = &placement->stages[i];
        const struct placement_device *device = &problem->devices[stage->device];
        struct replan_run *run = &layout.runs[i];
        memcpy(run->node, device->node, sizeof run->node);
        memcpy(run->device, device->id, sizeof run->device);
        run->first_layer = stage->first_layer;
        run->n_layers = stage->n_layers;
    }
    return layout;
}

struct placement replan_find(const struct placement_problem *problem,
                             const struct replan_layout *layout)
{
    struct placement placement = {.n_stages = layout->n_runs < LIMIT_STAGES ? layout->n_runs
                                                                            : LIMIT_STAGES};
    for (uint32_t i = 0; i < placement.n_stages; i++) {
        const struct replan_run *run = &layout->runs[i];
        uint32_t device = REPLAN_GONE;
        for (uint32_t d = 0; d < problem->n_devices && device == REPLAN_GONE; d++) {
            if (!strncmp(problem->devices[d].id, run->device, PLACEMENT_NAME_MAX) &&
                !strncmp(problem->devices[d].node, run->node, PLACEMENT_NAME_MAX))
                device = d;
        }
        placement.stages[i] = (struct placement_stage){device, run->first_layer, run->n_layers};
    }
    return placement;
}

/* ---- is it valid ----------------------------------------------------------------------------- */

/* More weights than the demand lets a stage have in memory: part of them comes from a disk, and
 * need not if there is a layout within the limit. */
static bool replan_streams(const struct replan_context *context, char *why)
{
    const struct placement_problem *problem = context->input->problem;
    for (uint32_t i = 0; i < context->current.n_stages && problem->demand.weights_max; i++) {
        const struct placement_stage *stage = &context->current.stages[i];
        if (placement_shared_bytes(problem, stage, stage) <= problem->demand.weights_max)
            continue;
        snprintf(why, ERROR_TEXT_MAX, "its weights fit into memory within their limit");
        return true;
    }
    return false;
}

static bool must_move(const struct replan_context *context, char *why)
{
    const struct replan_layout *layout = context->input->current;
    struct error err;
    if (layout->n_runs == 0) {
        snprintf(why, ERROR_TEXT_MAX, "it is nowhere yet");
        return true;
    }
    for (uint32_t i = 0; i < context->current.n_stages; i++) {
        if (context->current.stages[i].device == REPLAN_GONE) {
            snprintf(why, ERROR_TEXT_MAX, "%.47s of %.47s is gone", layout->runs[i].device,
                     layout->runs[i].node);
            return true;
        }
    }
    if (placement_check(context->input->problem, &context->current, &err) == ERROR_NONE)
        return replan_streams(context, why);
    snprintf(why, ERROR_TEXT_MAX, "%s", err.text);
    return true;
}

/* ---- hysteresis ------------------------------------------------------------------------------ */

/* What lies in the future was a clock's that is not this one. */
static void replan_tidy(struct replan_state *state, const struct replan_options *options,
                        double now_s)
{
    state->moved_s = fmin(state->moved_s, now_s);
    state->pending_since_s = fmin(state->pending_since_s, now_s);
    if (!(state->cooldown_s >= options->cooldown_s_min) ||
        now_s - state->moved_s >= options->cooldown_s_max)
        state->cooldown_s = options->cooldown_s_min;
    state->cooldown_s = fmin(state->cooldown_s, options->cooldown_s_max);
}

static void replan_note_move(struct replan_state *state, const struct replan_options *options,
                             double now_s, bool optional)
{
    /* A forced move does not lengthen the hold, but begins it anew. */
    if (optional && state->has_moved)
        state->cooldown_s = fmin(2 * state->cooldown_s, options->cooldown_s_max);
    state->has_moved = true;
    state->moved_s = now_s;
    state->pending = (struct replan_layout){0};
}

/* The pending move while it pays, unless another is better by more than the margin. NULL: none
 * pays. */
static const struct replan_plan *replan_choose(const struct replan_context *context,
                                               const struct replan_found *found,
                                               struct replan_state *state)
{
    const struct replan_plan *best = &found->plan, *pending = &found->pending;
    if (best->target.n_stages == 0) {
        state->pending = (struct replan_layout){0};
        return NULL;
    }
    if (pending->target.n_stages &&
        pending->total_s <= best->total_s * (1 + context->options->margin))
        return pending;
    state->pending = replan_layout_of(context->input->problem, &best->target);
    state->pending_since_s = context->input->now_s;
    return best;
}

static void replan_decide(const struct replan_context *context, const struct replan_found *found,
                          struct replan_state *state, struct replan_decision *out)
{
    const struct replan_options *options = context->options;
    const double now_s = context->input->now_s;
    const struct replan_plan *plan = replan_choose(context, found, state);
    if (!plan)
        return;
    out->plan = *plan;
    out->gain_s = out->stay_s - plan->total_s;
    out->wait_s = state->pending_since_s + options->settle_s - now_s;
    if (state->has_moved)
        out->wait_s = fmax(out->wait_s, state->moved_s + state->cooldown_s - now_s);
    out->wait_s = fmax(out->wait_s, 0);
    out->verdict = out->wait_s > 0 ? REPLAN_WAIT : REPLAN_MOVE;
    if (out->verdict == REPLAN_MOVE)
        replan_note_move(state, options, now_s, true);
}

static void decide_forced(const struct replan_context *context, const struct replan_found *found,
                          struct replan_state *state, struct replan_decision *out)
{
    out->verdict = REPLAN_MUST;
    out->plan = found->plan;
    if (found->plan.target.n_stages) {
        replan_note_move(state, context->options, context->input->now_s, false);
        return;
    }
    out->verdict = REPLAN_NOWHERE;
    snprintf(out->why, sizeof out->why, "%s", found->why);
    state->pending = (struct replan_layout){0};
}

enum error_code replan(const struct replan_input *input, const struct replan_options *options,
                       const struct replan_state *before, struct replan_state *after,
                       struct replan_decision *out, struct error *err)
{
    struct replan_context *context = mem_new(sizeof *context);
    struct replan_found *found = mem_new(sizeof *found);
    struct replan_state state = *before;
    enum error_code code = context && found
                               ? ERROR_NONE
                               : error_set(err, ERROR_NO_MEMORY, "replan: not enough memory");
    *out = (struct replan_decision){0};
    if (!code)
        code = replan_context_init(context, input, options, err);
    if (!code) {
        const struct placement pending = replan_find(input->problem, &state.pending);
        replan_tidy(&state, options, input->now_s);
        context->must_move = must_move(context, out->why);
        code = replan_search(context, pending.n_stages ? &pending : NULL, found, err);
    }
    if (!code) {
        out->running = context->running;
        out->current_tokens_per_s = context->tokens_per_s;
        out->stay_s = replan_stay_s(context);
        if (context->must_move)
            decide_forced(context, found, &state, out);
        else
            replan_decide(context, found, &state, out);
    }
    if (context)
        replan_context_deinit(context);
    mem_free(context);
    mem_free(found);
    *after = code ? *before : state;
    return code;
}

enum error_code replan_to(const struct replan_input *input, const struct replan_options *options,
                          const struct placement *target, struct replan_plan *out,
                          struct error *err)
{
    struct replan_context *context = mem_new(sizeof *context);
    *out = (struct replan_plan){0};
    if (!context)
        return error_set(err, ERROR_NO_MEMORY, "replan: not enough memory");
    enum error_code code = replan_context_init(context, input, options, err);
    if (!code)
        code = placement_check(input->problem, target, err);
    if (!code && !context->running) {
        const struct placement_cost cost = placement_decode_cost(input->problem, target);
        context->tokens += input->seconds * placement_decode_tokens_per_s(input->problem, &cost);
    }
    if (!code && !replan_cost(context, target, out))
        code = error_set(err, ERROR_NOT_FOUND,
                         "replan: no device that is linked has the model's weights");
    if (code)
        *out = (struct replan_plan){0};
    replan_context_deinit(context);
    mem_free(context);
    return code;
}
