/* How good a device looks by itself: a weighted sum of shares of the best. The greedy answer takes
 * devices in this order; the search does not depend on it. Pure; any thread. */
#pragma once

#include "base/error.h"
#include "placement/problem.h"

static const struct placement_weights PLACEMENT_WEIGHTS_DEFAULT = {40, 30, 15, 10, 5};

/* "compute=10,memory=60": what is not named keeps its weight. ERROR_INVALID: no such weight, one
 * that is given twice, or no number from 0 to 1000; or all are 0. Then *weights is as it was. */
enum error_code placement_weights_read(const char *text, struct placement_weights *weights,
                                       struct error *err);

bool placement_weights_are_set(const struct placement_weights *weights); /* one is above 0 */

/* scores[n_devices], each 0 … 1 for weights that are not negative (those that are, or no number,
 * count as 0):
 * compute    mean FLOP/s of the types the model has      network    1 / mean hop to the others,
 *            without a link none
 * memory     free - reserve                              thermal    headroom x share
 * bandwidth  mean decode bandwidth
 * each relative to the best device's. Devices that are not to be used get 0. */
void placement_scores(const struct placement_problem *problem,
                      const struct placement_weights *weights, double *scores);
