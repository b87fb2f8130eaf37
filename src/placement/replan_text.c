#include "base/size_text.h"
#include "placement/replan.h"

#include <math.h>

static const char *name_of(const struct placement_problem *problem, uint32_t device)
{
    return device == REPLAN_GONE ? "nowhere" : problem->devices[device].id;
}

static void say_move(const struct placement_problem *problem, const struct replan_move *move,
                     struct buffer *text)
{
    const char *to_node = problem->devices[move->to].node;
    buffer_printf(text, "  layers %u-%u  %s to %s of %s  ", move->first_layer,
                  move->first_layer + move->n_layers - 1, name_of(problem, move->from),
                  name_of(problem, move->to), to_node);
    buffer_text(text, size_text(move->weight_bytes).text);
    if (move->source == move->to)
        buffer_text(text, " from its disk");
    else
        buffer_printf(text, " from %s", name_of(problem, move->source));
    if (move->kv_bytes)
        buffer_printf(text, ", KV cache %s", size_text(move->kv_bytes).text);
    buffer_text(text, "\n");
}

static void say_plan(const struct placement_problem *problem,
                     const struct replan_decision *decision, struct buffer *text)
{
    const struct replan_plan *plan = &decision->plan;
    buffer_printf(text, "%.1f tok/s instead of %.1f; loading takes %.1f s %s, the pause %.2f s%s\n",
                  plan->decode_tokens_per_s, decision->current_tokens_per_s, plan->load_s,
                  plan->beside ? "beside the reply" : "in which nothing is decoded", plan->pause_s,
                  plan->replay ? " (tokens are replayed)" : "");
    for (uint32_t i = 0; i < plan->n_moves; i++)
        say_move(problem, &plan->moves[i], text);
}

void replan_text(const struct placement_problem *problem, const struct replan_decision *decision,
                 struct buffer *text)
{
    switch (decision->verdict) {
    case REPLAN_STAY:
        buffer_printf(text, "Stay: %.1f tok/s\n", decision->current_tokens_per_s);
        return;
    case REPLAN_NOWHERE:
        buffer_printf(text, "Nowhere to go: %s\n", decision->why);
        return;
    case REPLAN_WAIT:
        buffer_printf(text, "Wait %.0f s, then move if it still saves %.1f s: ", decision->wait_s,
                      decision->gain_s);
        say_plan(problem, decision, text);
        return;
    case REPLAN_MOVE:
        buffer_printf(text, "Move, which saves %.1f s: ", decision->gain_s);
        say_plan(problem, decision, text);
        return;
    case REPLAN_MUST:
        buffer_printf(text, "Move, because %s: ", decision->why);
        say_plan(problem, decision, text);
        return;
    }
}
