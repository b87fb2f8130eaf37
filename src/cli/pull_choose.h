/* Which of a repository's models to pull where the name says none: the one that the planner finds
 * fastest among those that fit well.
 *
 * Those are models of the usual types of 4 bits a weight or more that the planner places here, or
 * in the cluster of this machine's node; of two that are as fast within 2 %, the larger. Where none
 * fits, the largest of fewer bits that does. Only headers are read for that. */
#pragma once

#include "base/buffer.h"
#include "hub/hub.h"

/* why: one line that says what was chosen. ERROR_NOT_FOUND: none fits. */
enum error_code pull_choose(const struct hub_list *list, uint32_t *model, struct buffer *why,
                            struct error *err);
