/* Alerts about links, from what pings, packets and bursts measure (mesh/probe.h) over what is usual
 * (node/link_usual.h) to what is raised (alerts/alerts.h), on a clock of the test. */
#include "alerts/alerts.h"
#include "mesh/probe.h"
#include "node/link_usual.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const uint64_t MS = 1000000;

/* A link as it is for a while. */
struct link_weather {
    uint64_t for_s, latency_ms, lost_permille, mbytes_per_s;
};

struct link_trial {
    struct link_probe probe;
    struct link_usual usual;
    uint64_t now_ms, sent, lost;
    uint32_t n_raised[ALERT_KINDS], n_cleared[ALERT_KINDS];
};

static struct alerts machine; /* large */

static void measure(struct link_trial *trial, const struct link_weather *weather)
{
    const uint64_t now_ns = trial->now_ms * MS, way_ns = weather->latency_ms * MS;
    link_probe_pong(&trial->probe, &(struct pong){0, now_ns - 2 * way_ns, 7, 7}, now_ns);
    trial->sent += 1000;
    trial->lost += weather->lost_permille;
    link_probe_packets(&trial->probe, trial->sent, trial->lost);
    if (trial->now_ms % 10000)
        return;
    const uint64_t bytes = 1 << 20;
    const uint32_t number = link_probe_began(&trial->probe, bytes, now_ns);
    const uint64_t ns = bytes / 2 * 1000 / weather->mbytes_per_s;
    link_probe_report(&trial->probe, &(struct burst_report){number, bytes / 2, ns}, now_ns + ns);
}

static void look(struct link_trial *trial)
{
    const struct topology_link link = link_probe_reading(&trial->probe);
    struct link_worse worse[LINK_WORSE];
    struct alert_reading readings[LINK_WORSE];
    struct alert_turn turns[LINK_WORSE];
    link_usual_read(&trial->usual, &link, trial->now_ms, worse);
    for (int i = 0; i < LINK_WORSE; i++)
        readings[i] = (struct alert_reading){
            worse[i].kind, worse[i].known ? ALERT_KNOWN : ALERT_UNKNOWN, "a>b", worse[i].value};
    const uint32_t n =
        alerts_step(&machine, readings, LINK_WORSE, trial->now_ms, turns, LINK_WORSE);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t *counts = turns[i].what == ALERT_RAISED ? trial->n_raised : trial->n_cleared;
        counts[turns[i].kind]++;
    }
}

/* As a node does: pinged, measured and looked at every 2 s. */
static void live(struct link_trial *trial, const struct link_weather *weather)
{
    for (uint64_t s = 0; s < weather->for_s; s += 2) {
        trial->now_ms += 2000;
        measure(trial, weather);
        look(trial);
    }
}

/* Good for 10 min, `bad` for 10 min, good again: one alert of that kind, and no other. */
static void try_weather(struct link_weather bad, enum alert_kind kind)
{
    static struct link_trial trial;
    struct link_weather good = {600, 1, 1, 100};
    trial = (struct link_trial){.now_ms = 1000000};
    alerts_init(&machine);
    live(&trial, &good);
    for (int i = 0; i < ALERT_KINDS; i++)
        assert_int_equal(trial.n_raised[i], 0);
    bad.for_s = 600;
    live(&trial, &bad);
    for (int i = 0; i < ALERT_KINDS; i++) {
        assert_int_equal(trial.n_raised[i], i == (int)kind);
        assert_int_equal(trial.n_cleared[i], 0);
    }
    good.for_s = 1800;
    live(&trial, &good);
    for (int i = 0; i < ALERT_KINDS; i++) {
        assert_int_equal(trial.n_raised[i], i == (int)kind);
        assert_int_equal(trial.n_cleared[i], i == (int)kind);
    }
}

static void test_slow(void **state)
{
    try_weather((struct link_weather){0, 60, 1, 100}, ALERT_LINK_SLOW);
}

static void test_lossy(void **state)
{
    try_weather((struct link_weather){0, 1, 80, 100}, ALERT_LINK_LOSSY);
}

static void test_narrow(void **state)
{
    try_weather((struct link_weather){0, 1, 1, 10}, ALERT_LINK_NARROW);
}

/* A link that is slow from the beginning is as it usually is; so is one that is a little slower. */
static void test_what_is_usual(void **state)
{
    try_weather((struct link_weather){0, 4, 5, 60}, ALERT_KINDS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slow),
        cmocka_unit_test(test_lossy),
        cmocka_unit_test(test_narrow),
        cmocka_unit_test(test_what_is_usual),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
