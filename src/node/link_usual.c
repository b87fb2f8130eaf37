#include "node/link_usual.h"

#include <math.h>

#define LATENCY_NS_MIN 5e6 /* what is usual of a link is at least this: below, nobody notices */

/* What is usual is followed also while it is not compared with yet. */
static bool link_usual_take(struct alert_usual *usual, const struct reading *now, uint64_t now_ms)
{
    const bool was_known = alert_usual_is_known(usual);
    if (!now->valid || !isfinite(now->value))
        return false;
    alert_usual_take(usual, now->value, now_ms);
    return was_known;
}

void link_usual_read(struct link_usual *usual, const struct topology_link *now, uint64_t now_ms,
                     struct link_worse out[static LINK_WORSE])
{
    const bool latency = link_usual_take(&usual->latency_ns, &now->latency_ns, now_ms);
    const bool loss = link_usual_take(&usual->loss_share, &now->loss_share, now_ms);
    const bool rate = link_usual_take(&usual->bytes_per_s, &now->bandwidth_bytes_per_s, now_ms) &&
                      usual->bytes_per_s.value > 0;
    out[0] =
        (struct link_worse){ALERT_LINK_SLOW, latency,
                            now->latency_ns.value / fmax(usual->latency_ns.value, LATENCY_NS_MIN)};
    out[1] = (struct link_worse){ALERT_LINK_LOSSY, loss,
                                 100 * (now->loss_share.value - usual->loss_share.value)};
    out[2] = (struct link_worse){ALERT_LINK_NARROW, rate,
                                 100 * now->bandwidth_bytes_per_s.value /
                                     fmax(usual->bytes_per_s.value, 1)};
}
