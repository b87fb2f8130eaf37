/* Whether layers in a smaller type come sooner from senders that convert them, or as stored, to be
 * converted here. Pure, but for version_own_rate(), which measures. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { VERSION_WEIGH_BYTES = 8 << 20 }; /* so many have come before it is said how fast they do */

/* Rates in bytes a second; of what is converted, of the smaller bytes. */
struct version_rates {
    uint64_t stored_bytes;  /* of the parts that are wanted, as stored */
    uint64_t smaller_bytes; /* of those that have not come yet in the smaller type */
    uint64_t made_bytes;    /* of all of them in the smaller type: what is to be converted here */
    double came;            /* in the smaller type, over link and sender */
    double link;            /* what the fastest link to who has them can do */
    double own;             /* of this machine's conversion, on all processors */
};

struct version_times {
    double smaller_s, stored_s;
    bool is_stored_sooner; /* by a fifth at least: what was begun is thrown away for it */
};

/* A rate that is not above 0 is unknown, and nothing is sooner then. */
struct version_times version_weigh(const struct version_rates *rates);

/* How fast all processors together convert to that type (enum ggml_type): one thread is measured
 * for some 20 ms. 0: it cannot be converted to. Any thread. */
double version_own_rate(int type);
