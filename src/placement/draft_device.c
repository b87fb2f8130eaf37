#include "placement/draft_device.h"

#include "placement/cost.h"

#include <math.h>

static const double OWN_DEVICE_GAIN = 1.05;

/* 0: it cannot be there. */
static double draft_guess_s(const struct placement_problem *draft, uint32_t device)
{
    const struct placement_stage all = {device, 0, draft->model.n_layers};
    const struct placement_load load = {1, 1, placement_decode_load(draft).context_tokens};
    for (uint32_t layer = 0; layer < draft->model.n_layers; layer++) {
        if (!placement_layer_allowed(draft, device, layer))
            return 0;
    }
    const double guess_s = placement_stage_s(draft, &all, load);
    return isfinite(guess_s) ? guess_s : 0;
}

uint64_t placement_draft_bytes(const struct placement_problem *draft, uint32_t device)
{
    const struct placement_stage all = {device, 0, draft->model.n_layers};
    return placement_stage_bytes(draft, &all);
}

static bool draft_has_room(const struct placement_problem *draft, uint32_t device)
{
    return placement_device_usable(&draft->devices[device]) &&
           placement_draft_bytes(draft, device) <= placement_device_bytes(&draft->devices[device]);
}

bool placement_draft_on(const struct placement_problem *draft,
                        const struct placement_problem *problem, const struct placement *placement,
                        uint32_t device, struct placement_guessed *out)
{
    const bool is_other = device != placement->stages[0].device;
    const double guess_s = draft_guess_s(draft, device);
    if (guess_s <= 0 || (is_other && !draft_has_room(draft, device)))
        return false;
    placement_drafted(problem, placement, &(struct placement_drafter){guess_s, 0, is_other, false},
                      out);
    return true;
}

uint32_t placement_draft_device(const struct placement_problem *draft,
                                const struct placement_problem *problem,
                                const struct placement *placement, const bool *may,
                                struct placement_guessed *out)
{
    const uint32_t first = placement->stages[0].device;
    uint32_t best = placement_draft_on(draft, problem, placement, first, out) ? first : UINT32_MAX;
    for (uint32_t i = 0; i < draft->n_devices; i++) {
        struct placement_guessed guessed = *out;
        if (i == first || !may[i] || !placement_draft_on(draft, problem, placement, i, &guessed) ||
            guessed.drafted <= OWN_DEVICE_GAIN * out->drafted)
            continue;
        best = i;
        *out = guessed;
    }
    return best;
}

void placement_draft_given(const struct placement_problem *draft, const struct placement *at,
                           const struct placement_problem *problem,
                           const struct placement *placement, struct placement_guessed *out)
{
    struct placement_guessed own;
    placement_guessed(draft, at, &own);
    if (own.without <= 0 || out->repeating <= out->without)
        return;
    const struct placement_drafter drafter = {.guess_s = 1 / own.without,
                                              .has_own_device = at->stages[0].device !=
                                                                placement->stages[0].device};
    placement_drafted(problem, placement, &drafter, out);
}
