#include "placing/placing.h"

#include <math.h>
#include <string.h>

static const Cluster__Link *placing_links_find(const struct state *state, const char *from,
                                               const char *to)
{
    const Cluster__State *root = state->root;
    for (size_t i = 0; root && i < root->n_links; i++) {
        if (!strcmp(root->links[i]->from, from) && !strcmp(root->links[i]->to, to))
            return root->links[i];
    }
    return NULL;
}

/* More than `percent` of what is known; the first reading always. */
static bool placing_links_moved(struct reading reading, bool known, uint64_t old, double percent,
                                double least)
{
    const double difference = fabs(reading.value - (double)old);
    return reading.valid &&
           (!known || (difference > least && difference > (double)old * percent / 100));
}

static bool worth_it(const Cluster__Link *old, const struct topology_link *new)
{
    const struct reading bandwidth = topology_link_bandwidth(new);
    if (!old)
        return new->latency_ns.valid || bandwidth.valid || new->class != TOPOLOGY_UNKNOWN;
    return placing_links_moved(new->latency_ns, old->has_latency_ns, old->latency_ns, 25, 50000) ||
           placing_links_moved(bandwidth, old->has_bytes_per_s, old->bytes_per_s, 20, 0) ||
           (new->jitter_ns.valid && !old->has_jitter_ns) ||
           (new->loss_share.valid && !old->has_loss_ppm) ||
           (new->class != TOPOLOGY_UNKNOWN && (uint32_t)new->class != old->class_);
}

/* The new reading, else the old. */
#define TAKE(field, now)                                                                           \
    do {                                                                                           \
        const struct reading value = (now);                                                        \
        out->has_##field = value.valid || (old && old->has_##field);                               \
        out->field = value.valid ? reading_whole(value) : old ? old->field : 0;                    \
    } while (0)

bool placing_link_changed(const struct state *state, const char *from, const char *to,
                          const struct topology_link *measured, Cluster__Link *out)
{
    const Cluster__Link *old = placing_links_find(state, from, to);
    const struct topology_link new = topology_link_clean(*measured);
    cluster__link__init(out);
    if (!worth_it(old, &new))
        return false;
    out->from = (char *)(uintptr_t)from;
    out->to = (char *)(uintptr_t)to;
    TAKE(latency_ns, new.latency_ns);
    TAKE(jitter_ns, new.jitter_ns);
    TAKE(bytes_per_s, topology_link_bandwidth(&new));
    const struct reading loss = new.loss_share;
    out->has_loss_ppm = loss.valid || (old && old->has_loss_ppm);
    out->loss_ppm = loss.valid ? (uint32_t)lround(loss.value * 1e6) : old ? old->loss_ppm : 0;
    out->has_class_ = true;
    out->class_ = new.class != TOPOLOGY_UNKNOWN || !old ? (uint32_t)new.class : old->class_;
    return true;
}
