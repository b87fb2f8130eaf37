/* A copy of a problem that may be changed, to ask what would then be. Private to this room. */
#pragma once

#include "placement/problem.h"

struct changed {
    struct placement_problem
        problem; /* devices and layers are the copies below; links are the original's */
    struct placement_device *devices; /* with room for one more */
    struct placement_layer *layers;
    struct placement_link *links; /* NULL before changed_add() */
};

/* ERROR_NO_MEMORY alone; then it is empty. The original must outlive it. */
enum error_code changed_init(struct changed *changed, const struct placement_problem *problem,
                             struct error *err);
void changed_deinit(struct changed *changed);

/* One more device, as the last; once only. To and from every other it has the links of `like`; to
 * `like` itself, and to all of like's node when its own is another one, `beside`, both ways.
 * ERROR_NO_MEMORY alone. */
enum error_code changed_add(struct changed *changed, const struct placement_device *device,
                            uint32_t like, struct placement_link beside, struct error *err);
