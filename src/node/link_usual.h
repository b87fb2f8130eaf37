/* What is usual of a link, and what of it is worse than that now: the readings of the alerts about
 * links (alerts/alert_rules.h). Pure; zeroed: nothing is known. */
#pragma once

#include "alerts/alert_rules.h"
#include "alerts/alert_usual.h"
#include "topology/link.h"

struct link_usual {
    struct alert_usual latency_ns, loss_share, bytes_per_s;
};

struct link_worse {
    enum alert_kind kind;
    bool known; /* and value is in the kind's unit */
    double value;
};

enum { LINK_WORSE = 3 };

/* What was measured is taken into what is usual, after it was compared with it: unknown until that
 * has been followed for long enough. Time does not go back. */
void link_usual_read(struct link_usual *usual, const struct topology_link *now, uint64_t now_ms,
                     struct link_worse out[static LINK_WORSE]);
