#include "plan/plan_forecast.h"

#include "placement/forecast.h"
#include "placement/prefill.h"

void plan_forecast(const struct placement_problem *problem, const struct placement *placement,
                   const struct plan_work *work, struct plan_forecast *out)
{
    struct placement_problem one = *problem;
    const uint32_t before = work->n_cached + work->n_prompt;
    one.demand.goal = PLACEMENT_LATENCY;
    one.demand.streams = 1;
    one.demand.context_tokens = 2 * before + work->n_generated; /* half of it is behind a token */
    one.demand.prompt_tokens = work->n_prompt;
    struct placement_forecast forecast;
    placement_forecast(&one, placement, &forecast);
    *out = (struct plan_forecast){.decode_tokens_per_s = forecast.decode_tokens_per_s,
                                  .decode_spread = forecast.decode_spread,
                                  .measured = true};
    for (uint32_t i = 0; i < forecast.n_stages; i++)
        out->measured = out->measured && forecast.stages[i].measured;
    if (forecast.prefill_tokens_per_s <= 0)
        return;
    out->prefill_s = placement_prefill_s(&one, placement, work->n_cached, work->n_prompt);
    out->prefill_tokens_per_s = work->n_prompt / out->prefill_s;
}
