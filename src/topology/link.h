/* A directed link between two nodes, and what a message costs on it.
 *
 * The time of a message of m bytes:
 *
 *     T(m) = L + o + m / min(B, M) + E(n, p) R
 *
 *     L          latency, one way
 *     o          overhead: what both ends spend on any message, however small (system calls,
 *                framing, waking the receiver). L + o + m/B is the LogGP model's time (Alexandrov,
 *                Ionescu, Schauser, Scheiman: "LogGP", SPAA 1995, with their two o as one) and
 *                Hockney's (Parallel Computing 20, 1994): half of B is reached at m = (L + o) B,
 *                below that a message is small and latency rules. Whoever measures L between
 *                programs has o in it: then o is known to be 0.
 *     B          the peer-to-peer bandwidth (device memory to device memory) where it is known,
 *                else the bandwidth
 *     M          what TCP sustains at random loss p: M = S sqrt(3/2) / (2 L sqrt(p)), S = 1460
 *                bytes a packet (Mathis, Semke, Mahdavi, Ott: "The macroscopic behavior of the TCP
 *                congestion avoidance algorithm", CCR 27(3), 1997). A bandwidth measured under that
 *                loss is below it already and stays as it is.
 *     E(n, p)    retransmissions the message waits for: of its n = max(1, ceil(m / S)) packets each
 *                gets through with 1 - p in every round, and the slowest decides: E = sum over k >=
 *                1 of 1 - (1 - p^k)^n (Szpankowski, Rego: "Yet another application of a binomial
 *                recurrence: order statistics", Computing 43, 1990). One packet: p / (1 - p).
 *     R          seconds until a loss is noticed and mended: 2 L + 4 J, RFC 6298's timer (section
 *                2.3: the round trip and 4 mean deviations) without its floor of a second, which
 *                RFC 8985's probes make rare.
 *     J          jitter, the mean deviation of the one-way time (RFC 3550, section 6.4.1)
 *
 * The way back is taken to be like the way there. Not modelled: slow start (activations travel on
 * warm connections), queues behind other messages, and the sharing of one cable or radio by several
 * links.
 *
 * A reading that cannot be (base/reading.h), NaN among them, is unknown, and unknown is never zero:
 * without latency or without any bandwidth there is no estimate; without jitter, loss or overhead
 * it lacks their terms and says that it is a floor. Pure; any thread. */
#pragma once

#include "base/reading.h"

enum topology_class {
    TOPOLOGY_UNKNOWN = 0,
    TOPOLOGY_LOOPBACK,
    TOPOLOGY_SAME_HOST,
    TOPOLOGY_ETHERNET,
    TOPOLOGY_WIFI,
    TOPOLOGY_THUNDERBOLT,
    TOPOLOGY_RDMA,
    TOPOLOGY_CLASSES
};

const char *
    topology_class_name(enum topology_class class); /* "same host"; of no class: "unknown" */

struct topology_link {
    uint32_t from, to; /* indices of nodes; the same one twice is a loopback, which no path needs */
    enum topology_class class; /* for people: it does not change the estimate */
    bool up;
    struct reading latency_ns;
    struct reading jitter_ns;
    struct reading overhead_ns;
    struct reading loss_share;
    struct reading bandwidth_bytes_per_s;
    struct reading peer_bandwidth_bytes_per_s;
};

/* The same link, with every reading marked unknown that cannot be. */
struct topology_link topology_link_clean(struct topology_link link);

/* B of the formula. */
struct reading topology_link_bandwidth(const struct topology_link *link);

struct topology_time {
    double seconds; /* expected */
    double
        late_s; /* by then it has nearly always arrived: 4 J later (the same when J is unknown) */
    bool is_floor; /* a reading is missing: it takes at least this long */
    bool valid; /* the link is up, latency and bandwidth are known, and at most half of the packets
                   are lost */
};

/* Of a clean link. */
struct topology_time topology_link_time(const struct topology_link *link, uint64_t bytes);
