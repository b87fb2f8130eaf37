/* Where a model's draft model guesses (docs/speculation.md): whole on the device of the model's
 * first stage, whose memory is counted for both, or on another device of that machine which nobody
 * uses, if more is expected of that by a twentieth. Pure. */
#pragma once

#include "placement/guessed.h"

/* `draft`: the problem of the draft model alone, with the devices of `problem`. may[device]: that
 * may be another device than the first stage's. *out is what placement_guessed() has filled; what
 * the draft model brings is added. UINT32_MAX: it can be nowhere, and *out is as it was. */
uint32_t placement_draft_device(const struct placement_problem *draft,
                                const struct placement_problem *problem,
                                const struct placement *placement, const bool *may,
                                struct placement_guessed *out);
/* The same on this device, asked for by its owner; false: it cannot be there, and *out is as it
 * was. */
bool placement_draft_on(const struct placement_problem *draft,
                        const struct placement_problem *problem, const struct placement *placement,
                        uint32_t device, struct placement_guessed *out);
/* The same of a draft model that has its own placement already, `at`. *out stays as it was where
 * its speed is not known, or nothing is guessed. */
void placement_draft_given(const struct placement_problem *draft, const struct placement *at,
                           const struct placement_problem *problem,
                           const struct placement *placement, struct placement_guessed *out);
/* What all layers of the draft model take on its device. */
uint64_t placement_draft_bytes(const struct placement_problem *draft, uint32_t device);
