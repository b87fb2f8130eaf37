#include "topology/link.h"

#include "base/limits.h"

#include <math.h>

#define PACKET_BYTES 1460.0 /* Ethernet's 1500 less IPv4's and TCP's headers */

static const char *const class_names[TOPOLOGY_CLASSES] = {
    "unknown", "loopback", "same host", "ethernet", "wifi", "thunderbolt", "rdma"};

const char *topology_class_name(enum topology_class class)
{
    return class_names[(unsigned)class < TOPOLOGY_CLASSES ? class : TOPOLOGY_UNKNOWN];
}

struct topology_link topology_link_clean(struct topology_link link)
{
    link.latency_ns = reading_checked(UNIT_DELAY_NS, link.latency_ns);
    link.jitter_ns = reading_checked(UNIT_DELAY_NS, link.jitter_ns);
    link.overhead_ns = reading_checked(UNIT_DELAY_NS, link.overhead_ns);
    link.loss_share = reading_checked(UNIT_SHARE, link.loss_share);
    link.bandwidth_bytes_per_s = reading_checked(UNIT_BYTES_PER_S, link.bandwidth_bytes_per_s);
    link.peer_bandwidth_bytes_per_s =
        reading_checked(UNIT_BYTES_PER_S, link.peer_bandwidth_bytes_per_s);
    if ((unsigned)link.class >= TOPOLOGY_CLASSES)
        link.class = TOPOLOGY_UNKNOWN;
    return link;
}

struct reading topology_link_bandwidth(const struct topology_link *link)
{
    return link->peer_bandwidth_bytes_per_s.valid ? link->peer_bandwidth_bytes_per_s
                                                  : link->bandwidth_bytes_per_s;
}

/* E(n, p) for p <= 1/2: then a term is less than half of the one before as soon as they are
 * small. */
static double topology_link_retransmissions(double n_packets, double loss)
{
    double sum = 0, term = 1, lost = loss;
    for (; term > 1e-18; lost *= loss) {
        term = -expm1(n_packets * log1p(-lost));
        sum += term;
    }
    return sum;
}

static double seconds_of(struct reading reading_ns)
{
    return reading_ns.valid ? reading_ns.value * 1e-9
                            : 0; /* 0: no such term, and the estimate is a floor */
}

struct topology_time topology_link_time(const struct topology_link *link, uint64_t bytes)
{
    const struct reading bandwidth = topology_link_bandwidth(link);
    const double loss = link->loss_share.valid ? link->loss_share.value : 0;
    if (!link->up || !link->latency_ns.valid || !bandwidth.valid || loss > LIMIT_LINK_LOSS_SHARE)
        return (struct topology_time){0};
    const double latency_s = seconds_of(link->latency_ns), late_s = 4 * seconds_of(link->jitter_ns);
    double bytes_per_s = bandwidth.value, lost_s = 0;
    if (loss > 0) {
        if (latency_s > 0)
            bytes_per_s =
                fmin(bytes_per_s, PACKET_BYTES * sqrt(1.5) / (2 * latency_s * sqrt(loss)));
        lost_s = topology_link_retransmissions(fmax(1, ceil((double)bytes / PACKET_BYTES)), loss) *
                 (2 * latency_s + late_s);
    }
    const double seconds =
        latency_s + seconds_of(link->overhead_ns) + (double)bytes / bytes_per_s + lost_s;
    return (struct topology_time){
        .seconds = seconds,
        .late_s = seconds + late_s,
        .is_floor = !link->jitter_ns.valid || !link->loss_share.valid || !link->overhead_ns.valid,
        .valid = true,
    };
}
