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

static void topology_link_limit(struct topology_reading *reading, uint64_t max)
{
    if (reading->value > max)
        reading->valid = false;
}

static void limit_bandwidth(struct topology_reading *reading)
{
    topology_link_limit(reading, LIMIT_LINK_GB_PER_S * UINT64_C(1000000000));
    if (!reading->value)
        reading->valid = false;
}

struct topology_link topology_link_clean(struct topology_link link)
{
    const uint64_t delay_ns_max = LIMIT_LINK_DELAY_MS * UINT64_C(1000000);
    topology_link_limit(&link.latency_ns, delay_ns_max);
    topology_link_limit(&link.jitter_ns, delay_ns_max);
    topology_link_limit(&link.overhead_ns, delay_ns_max);
    topology_link_limit(&link.loss_ppm, 1000000);
    limit_bandwidth(&link.bandwidth_bytes_per_s);
    limit_bandwidth(&link.peer_bandwidth_bytes_per_s);
    if ((unsigned)link.class >= TOPOLOGY_CLASSES)
        link.class = TOPOLOGY_UNKNOWN;
    return link;
}

struct topology_reading topology_link_bandwidth(const struct topology_link *link)
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

static double seconds_of(struct topology_reading reading_ns)
{
    return reading_ns.valid ? (double)reading_ns.value * 1e-9
                            : 0; /* 0: no such term, and the estimate is a floor */
}

struct topology_time topology_link_time(const struct topology_link *link, uint64_t bytes)
{
    const struct topology_reading bandwidth = topology_link_bandwidth(link);
    const uint64_t loss_ppm = link->loss_ppm.valid ? link->loss_ppm.value : 0;
    if (!link->up || !link->latency_ns.valid || !bandwidth.valid || loss_ppm > LIMIT_LINK_LOSS_PPM)
        return (struct topology_time){0};
    const double latency_s = seconds_of(link->latency_ns), late_s = 4 * seconds_of(link->jitter_ns);
    double bytes_per_s = (double)bandwidth.value, lost_s = 0;
    if (loss_ppm) {
        const double loss = (double)loss_ppm * 1e-6;
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
        .is_floor = !link->jitter_ns.valid || !link->loss_ppm.valid || !link->overhead_ns.valid,
        .valid = true,
    };
}
