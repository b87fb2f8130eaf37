#include "pipeline/answers.h"

static uint32_t answers_middle(const struct answers *answers)
{
    uint32_t sorted[ANSWERS_KEPT];
    const uint32_t n = answers->n < ANSWERS_KEPT ? answers->n : ANSWERS_KEPT;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = i;
        for (; at && sorted[at - 1] > answers->lengths[i]; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = answers->lengths[i];
    }
    return sorted[n / 2];
}

void answers_note(struct answers *answers, uint32_t n_tokens)
{
    answers->lengths[answers->n % ANSWERS_KEPT] = n_tokens;
    answers->n = answers->n + 1 < 2 * ANSWERS_KEPT ? answers->n + 1 : ANSWERS_KEPT;
    answers->median = answers_middle(answers);
}

uint32_t answers_median(const struct answers *answers)
{
    return answers->n ? answers->median : ANSWERS_FIRST;
}
