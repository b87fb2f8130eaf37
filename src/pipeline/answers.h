/* How long answers have been of late: their median, by which sequences are admitted that share
 * cache cells. Pure. A zeroed one has seen none. */
#pragma once

#include <stdint.h>

enum { ANSWERS_KEPT = 63, ANSWERS_FIRST = 256 /* before any has ended */ };

struct answers {
    uint32_t lengths[ANSWERS_KEPT]; /* a ring */
    uint32_t n, median;             /* ever; counted only so far as it matters */
};

void answers_note(struct answers *answers, uint32_t n_tokens);
uint32_t answers_median(const struct answers *answers);
