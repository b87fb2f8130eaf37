/* Where a draft model goes on this machine, before its model does: it is small, and its speed
 * counts as much. `medley run`, `serve` and `plan` ask here. */
#pragma once

#include "plan/plan.h"
#include "plan/selection.h"

struct plan_draft_request {
    const struct gpu *gpu;
    const struct selection *selection; /* the model's devices */
    const char *device; /* the id of the one that is to have all of it, maybe none of the model's;
                           NULL: where it is fastest among those, whole or split */
    uint32_t limit_s;   /* of the search; 0: as usual */
    const struct driver_options *options; /* the draft model's */
};

/* As plan_make(); what it found is for `beside` of the model's request. ERROR_NOT_FOUND: no room,
 * or no such device; the text says what there is. */
enum error_code plan_draft_here(struct plan *out, const struct model *draft,
                                const struct plan_draft_request *request, struct error *err);
