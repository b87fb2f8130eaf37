/* For targets in which a hostile member speaks to a part that also works with honest ones. The
 * input is what the hostile one decides; when it is used up, it is silent. FUZZ_COUNTS=1 in the
 * environment prints how many messages it sent, how many were refused, and how many replies to
 * honest ones were checked, at the end. */
#pragma once

#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>

struct hostile_input {
    const uint8_t *at, *end;
};

static uint64_t hostile_sent, hostile_refused, honest_checked;

static inline unsigned hostile_draw(struct hostile_input *in)
{
    return in->at < in->end ? *in->at++ : 0;
}

/* Near a number, or far from all. */
static inline uint64_t hostile_near(struct hostile_input *in, uint64_t number)
{
    static const uint64_t far[] = {0, 1, UINT32_MAX, UINT64_C(1) << 32, UINT64_MAX};
    const unsigned how = hostile_draw(in);
    if (how < 224)
        return number + how % 7 < 3 ? 0 : number + how % 7 - 3;
    return far[how % (sizeof far / sizeof *far)];
}

/* Some bytes are replaced, seldom. */
static inline void hostile_bend(struct hostile_input *in, void *bytes, size_t size)
{
    for (unsigned bent = hostile_draw(in); bent > 232 && size; bent--) {
        const size_t at = hostile_draw(in) | (size_t)hostile_draw(in) << 8;
        ((uint8_t *)bytes)[at % size] = (uint8_t)hostile_draw(in);
    }
}

static inline void hostile_say_counts(void)
{
    if (getenv("FUZZ_COUNTS"))
        fprintf(stderr, "%llu hostile messages, %llu refused; %llu honest replies checked\n",
                (unsigned long long)hostile_sent, (unsigned long long)hostile_refused,
                (unsigned long long)honest_checked);
}

static inline void hostile_begin(void)
{
    static bool counts;
    if (!counts)
        atexit(hostile_say_counts), counts = true;
}
