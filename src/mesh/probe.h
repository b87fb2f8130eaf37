/* What is known of one direction of a link, from here to there, from what the link sends anyway.
 * Pure; times are given.
 *
 *   latency    half of the median round trip of the last PROBE_PINGS pings, without the time the
 *              peer held them. Both directions are taken to be alike: one clock cannot tell them
 *              apart.
 *   jitter     of this direction alone: mean |D - mean D| over the same pings, D the change of
 *              (received there - sent here) from one ping to the next. RFC 3550's D needs no common
 *              clock; taking its mean away also takes away that the two clocks run at different
 *              speeds.
 *   loss       packets that TCP sent again, or QUIC lost, of all they sent, over the last
 *              PROBE_LOSS_PACKETS or so. Unknown until PROBE_LOSS_PACKETS_MIN were sent, and where
 *              the transport does not say. TCP also repeats packets that were only late, so there
 *              this is an upper bound; QUIC's are those that were never acknowledged.
 *   bandwidth  the median of the last PROBE_BURSTS bursts: the second half's bytes over its time at
 *              the receiver, since the first half may have been held back by a cold connection's
 *              window. Only whole bursts count.
 *   clock      how far the peer's is ahead: what the quickest of the last PROBE_CLOCKS answers
 * says, were both directions alike (RFC 5905, section 8). Few, since clocks drift apart by some 10
 * us in a second. overhead   0, and known: the pings go from program to program, so it is in the
 * latency.
 *
 * When a burst is due: the link has been idle, and since the last burst at least 99 times the time
 * that it took has passed (so bursts take at most 1 % of the link), and also PROBE_REST_BYTES_PER_S
 * has not been exceeded, so that a cluster at rest is quiet. The first PROBE_EAGER bursts only wait
 * for the first rule. */
#pragma once

#include "mesh/ping.h"
#include "topology/link.h"

enum {
    PROBE_PINGS = 64,
    PROBE_CLOCKS = 8,
    PROBE_BURSTS = 5,
    PROBE_EAGER = 3,
    PROBE_REST_BYTES_PER_S = 500,
    PROBE_LOSS_PACKETS = 20000,
    PROBE_LOSS_PACKETS_MIN = 100,
    PROBE_BURST_BYTES_FIRST = 64 * 1024,
    PROBE_BURST_US = 5000, /* how long a burst should take */
};

struct probe_ping {
    uint64_t round_trip_ns;
    uint64_t transit_ns; /* received there - sent here, of two clocks: wraps around */
};

/* Zeroed: nothing is known. */
struct link_probe {
    struct probe_ping pings[PROBE_PINGS]; /* a ring */
    uint32_t n_pings, next_ping;
    struct probe_ping clocks[PROBE_CLOCKS]; /* a ring of the last answers, whenever asked for */
    uint32_t n_clocks, next_clock;
    uint64_t bursts[PROBE_BURSTS]; /* bytes per second; a ring */
    uint32_t n_bursts, next_burst;
    uint64_t seen_sent, seen_lost;       /* the transport's counters when last looked at */
    uint64_t packets_sent, packets_lost; /* of late */
    bool packets_seen;
    uint32_t burst_number;  /* of the one under way, from 1 */
    uint64_t burst_bytes;   /* 0: none is under way */
    uint64_t burst_sent_ns; /* when it began */
    uint64_t next_due_ns;   /* by the rule of 1 % */
    uint64_t next_rest_ns;  /* by the bytes per second */
    uint32_t n_sent;
};

void link_probe_pong(struct link_probe *probe, const struct pong *pong, uint64_t now_ns);
void link_probe_hear_clock(struct link_probe *probe, const struct pong *pong, uint64_t now_ns);
bool link_probe_clock(const struct link_probe *probe, int64_t *ahead_ns); /* false: unknown */
void link_probe_packets(struct link_probe *probe, uint64_t sent,
                        uint64_t lost); /* the transport's counters now */

/* How many bytes the burst that is due now has; 0: none is due. */
uint64_t link_probe_due(const struct link_probe *probe, uint64_t now_ns);
/* It is sent now. Returns its number. */
uint32_t link_probe_began(struct link_probe *probe, uint64_t bytes, uint64_t now_ns);
void link_probe_report(struct link_probe *probe, const struct burst_report *report,
                       uint64_t now_ns);

/* Class, ends and `up` are left empty. */
struct topology_link link_probe_reading(const struct link_probe *probe);
