#include "mesh/probe.h"

#include "base/limits.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SECOND_NS UINT64_C(1000000000)
#define ANSWER_NS_MAX (30 * SECOND_NS) /* a burst without a report by then has failed */

static int link_probe_compare(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Sorts them. */
static uint64_t link_probe_median(uint64_t *values, uint32_t n)
{
    qsort(values, n, sizeof *values, link_probe_compare);
    return n % 2 ? values[n / 2] : values[n / 2 - 1] / 2 + values[n / 2] / 2;
}

/* ---- pings --------------------------------------------------------------------------------- */

/* The peer says what it likes: a round trip that cannot be is not taken. */
static bool link_probe_ping(const struct pong *pong, uint64_t now_ns, struct probe_ping *out)
{
    const uint64_t held_ns = pong->answered_ns - pong->received_ns;
    if (pong->sent_ns > now_ns || pong->answered_ns < pong->received_ns ||
        held_ns > now_ns - pong->sent_ns)
        return false;
    *out = (struct probe_ping){
        .round_trip_ns = now_ns - pong->sent_ns - held_ns,
        .transit_ns = pong->received_ns - pong->sent_ns,
    };
    return true;
}

void link_probe_pong(struct link_probe *probe, const struct pong *pong, uint64_t now_ns)
{
    if (!link_probe_ping(pong, now_ns, &probe->pings[probe->next_ping]))
        return;
    probe->next_ping = (probe->next_ping + 1) % PROBE_PINGS;
    probe->n_pings += probe->n_pings < PROBE_PINGS;
}

void link_probe_hear_clock(struct link_probe *probe, const struct pong *pong, uint64_t now_ns)
{
    if (!link_probe_ping(pong, now_ns, &probe->clocks[probe->next_clock]))
        return;
    probe->next_clock = (probe->next_clock + 1) % PROBE_CLOCKS;
    probe->n_clocks += probe->n_clocks < PROBE_CLOCKS;
}

bool link_probe_clock(const struct link_probe *probe, int64_t *ahead_ns)
{
    const struct probe_ping *best = NULL;
    for (uint32_t i = 0; i < probe->n_clocks; i++) {
        if (!best || probe->clocks[i].round_trip_ns < best->round_trip_ns)
            best = &probe->clocks[i];
    }
    if (best)
        *ahead_ns = (int64_t)(best->transit_ns - best->round_trip_ns / 2);
    return best != NULL;
}

static struct reading latency_of(const struct link_probe *probe)
{
    uint64_t trips[PROBE_PINGS];
    if (probe->n_pings == 0)
        return (struct reading){0};
    for (uint32_t i = 0; i < probe->n_pings; i++)
        trips[i] = probe->pings[i].round_trip_ns;
    return reading_of(UNIT_DELAY_NS, (double)(link_probe_median(trips, probe->n_pings) / 2));
}

/* The i-th oldest. */
static uint64_t link_probe_transit(const struct link_probe *probe, uint32_t i)
{
    return probe->pings[(probe->next_ping + PROBE_PINGS - probe->n_pings + i) % PROBE_PINGS]
        .transit_ns;
}

static struct reading jitter_of(const struct link_probe *probe)
{
    if (probe->n_pings < 3)
        return (struct reading){0};
    const uint32_t n = probe->n_pings - 1;
    /* Differences of clocks wrap around; as signed numbers they are small. */
    const double mean =
        (double)(int64_t)(link_probe_transit(probe, n) - link_probe_transit(probe, 0)) / n;
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        const double change =
            (double)(int64_t)(link_probe_transit(probe, i + 1) - link_probe_transit(probe, i)) -
            mean;
        sum += change < 0 ? -change : change;
    }
    return reading_of(UNIT_DELAY_NS, floor(sum / n));
}

/* ---- packets ------------------------------------------------------------------------------- */

void link_probe_packets(struct link_probe *probe, uint64_t sent, uint64_t lost)
{
    if (probe->packets_seen && sent >= probe->seen_sent && lost >= probe->seen_lost) {
        probe->packets_sent += sent - probe->seen_sent;
        probe->packets_lost += lost - probe->seen_lost;
    }
    while (probe->packets_sent > PROBE_LOSS_PACKETS) {
        probe->packets_sent /= 2;
        probe->packets_lost /= 2;
    }
    probe->packets_seen = true;
    probe->seen_sent = sent;
    probe->seen_lost = lost;
}

static struct reading loss_of(const struct link_probe *probe)
{
    if (probe->packets_sent < PROBE_LOSS_PACKETS_MIN)
        return (struct reading){0};
    const uint64_t lost =
        probe->packets_lost < probe->packets_sent ? probe->packets_lost : probe->packets_sent;
    return reading_of(UNIT_SHARE, (double)lost / (double)probe->packets_sent);
}

/* ---- bursts -------------------------------------------------------------------------------- */

static struct reading bandwidth_of(const struct link_probe *probe)
{
    uint64_t rates[PROBE_BURSTS];
    if (probe->n_bursts == 0)
        return (struct reading){0};
    memcpy(rates, probe->bursts, sizeof rates);
    return reading_of(UNIT_BYTES_PER_S, (double)link_probe_median(rates, probe->n_bursts));
}

static uint64_t burst_bytes(const struct link_probe *probe)
{
    const struct reading rate = bandwidth_of(probe);
    if (!rate.valid)
        return PROBE_BURST_BYTES_FIRST;
    const uint64_t wanted = reading_whole(rate) / (1000000 / PROBE_BURST_US);
    if (wanted < PROBE_BURST_BYTES_FIRST)
        return PROBE_BURST_BYTES_FIRST;
    return wanted < LIMIT_BURST_BYTES ? wanted : LIMIT_BURST_BYTES;
}

uint64_t link_probe_due(const struct link_probe *probe, uint64_t now_ns)
{
    if (probe->burst_bytes && now_ns - probe->burst_sent_ns < ANSWER_NS_MAX)
        return 0;
    if (now_ns < probe->next_due_ns)
        return 0;
    if (probe->n_sent >= PROBE_EAGER && now_ns < probe->next_rest_ns)
        return 0;
    return burst_bytes(probe);
}

uint32_t link_probe_began(struct link_probe *probe, uint64_t bytes, uint64_t now_ns)
{
    probe->burst_bytes = bytes;
    probe->burst_sent_ns = now_ns;
    probe->next_due_ns = now_ns + 100 * ANSWER_NS_MAX; /* until the report says how long it took */
    probe->next_rest_ns = now_ns + bytes * SECOND_NS / PROBE_REST_BYTES_PER_S;
    probe->n_sent++;
    return ++probe->burst_number;
}

void link_probe_report(struct link_probe *probe, const struct burst_report *report, uint64_t now_ns)
{
    if (!probe->burst_bytes || report->number != probe->burst_number ||
        now_ns < probe->burst_sent_ns)
        return;
    /* From the first byte sent to the report's arrival: longer than the burst took, so the rule is
     * kept. */
    const uint64_t took_ns = now_ns - probe->burst_sent_ns;
    probe->next_due_ns = now_ns + 99 * took_ns;
    const uint64_t bytes = probe->burst_bytes;
    probe->burst_bytes = 0;
    if (report->ns == 0 || report->ns > took_ns || report->bytes == 0 || report->bytes > bytes)
        return;
    const double rate = (double)report->bytes / (double)report->ns * 1e9;
    if (!unit_is_plausible(UNIT_BYTES_PER_S, rate))
        return;
    probe->bursts[probe->next_burst] = (uint64_t)rate;
    probe->next_burst = (probe->next_burst + 1) % PROBE_BURSTS;
    probe->n_bursts += probe->n_bursts < PROBE_BURSTS;
}

struct topology_link link_probe_reading(const struct link_probe *probe)
{
    return (struct topology_link){
        .latency_ns = latency_of(probe),
        .jitter_ns = jitter_of(probe),
        .overhead_ns = {.valid = probe->n_pings > 0},
        .loss_share = loss_of(probe),
        .bandwidth_bytes_per_s = bandwidth_of(probe),
    };
}
