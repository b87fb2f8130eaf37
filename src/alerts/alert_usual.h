/* What is usual of a reading, so that what it is now can be compared with it: the mean of the time
 * that it has been known, and of about the last LIMIT_ALERT_USUAL_MS when that is longer. What
 * stays otherwise for hours becomes the usual. Pure; zeroed: nothing is known. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct alert_usual {
    double value;
    uint64_t known_ms; /* for so long together */
    uint64_t at_ms;    /* the last value; times without any do not count */
};

void alert_usual_take(struct alert_usual *usual, double value, uint64_t now_ms);
/* It has been known for LIMIT_ALERT_USUAL_MIN_MS: good enough to compare with. */
bool alert_usual_is_known(const struct alert_usual *usual);
