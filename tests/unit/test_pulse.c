/* The failure detector over random delays: how soon it sees that a peer is gone, and how often it
 * is wrong. */
#include "mesh/pulse.h"

#include "base/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { PING_MS = 200, LOOK_MS = 100 };

/* A line on which answers stay in order: one that is lost is sent again after a timeout that
 * doubles, as TCP's does where nothing helps it (RFC 6298), and those after it wait. */
struct line {
    double trip_ms, jitter_ms,
        loss;          /* there and back; jitter of each way, uniform; loss of a packet */
    double timeout_ms; /* 0: nothing is sent again */
    uint64_t seed, draws;
    double last_ms; /* when the last answer came */
};

static double draw(struct line *line)
{
    return random_unit_at(line->seed, line->draws++);
}

static double way_ms(struct line *line)
{
    double ms = line->trip_ms / 2 + line->jitter_ms * draw(line), timeout_ms = line->timeout_ms;
    for (; draw(line) < line->loss; timeout_ms *= 2) {
        if (timeout_ms <= 0)
            return INFINITY;
        ms += timeout_ms;
    }
    return ms;
}

/* When the answer to the ping of then comes; INFINITY: never. */
static double answer_ms(struct line *line, double asked_ms)
{
    const double ms = asked_ms + way_ms(line) + way_ms(line);
    if (ms == INFINITY)
        return ms;
    return line->last_ms = fmax(ms, line->last_ms);
}

static uint64_t ns(double ms)
{
    return (uint64_t)((ms + 1000) * 1e6);
}

struct outcome {
    uint32_t n_alarms; /* while it was there */
    double seen_ms;    /* after it went; INFINITY: never */
};

/* The peer answers until `gone_ms`. */
static struct outcome run(struct line *line, double gone_ms)
{
    struct pulse pulse = {0};
    struct outcome outcome = {.seen_ms = INFINITY};
    static double pending[4096];
    uint32_t first = 0, last = 0;
    uint64_t heard_ns = ns(0);
    bool suspects = false;
    for (double now = 0; now < gone_ms + 5000; now += (double)LOOK_MS) {
        for (; first != last && pending[first % 4096] <= now; first++) {
            const double came = pending[first % 4096];
            if (came - line->trip_ms / 2 > gone_ms)
                continue;
            heard_ns = ns(came);
            pulse_beat(&pulse, heard_ns);
        }
        if (fmod(now, (double)PING_MS) < (double)LOOK_MS) {
            const double came = answer_ms(line, now);
            if (came < INFINITY)
                pending[last++ % 4096] = came;
        }
        const bool was = suspects;
        suspects = pulse_suspects(&pulse, heard_ns, ns(now));
        if (suspects && !was && now < gone_ms)
            outcome.n_alarms++;
        if (suspects && now >= gone_ms && outcome.seen_ms == INFINITY)
            outcome.seen_ms = now - gone_ms;
    }
    return outcome;
}

static void on_a_lan(void **unused)
{
    double longest = 0, sum = 0;
    for (uint64_t seed = 0; seed < 500; seed++) {
        struct line line = {.trip_ms = 0.4, .jitter_ms = 0.5, .timeout_ms = 200, .seed = seed};
        const double gone_ms = 20000 + 1000 * random_unit_at(seed, UINT64_C(1) << 40);
        const struct outcome outcome = run(&line, gone_ms);
        assert_int_equal(outcome.n_alarms, 0);
        assert_true(outcome.seen_ms < 1000);
        longest = fmax(longest, outcome.seen_ms);
        sum += outcome.seen_ms;
    }
    print_message("# a LAN: seen after %.0f ms on average, %.0f ms at most\n", sum / 500, longest);
}

/* Hours of a bad line. A false alarm takes three losses in a row where each waits for a timeout: 2
 * x 1e-6 of a ping. */
static void count_alarms(const char *what, struct line line, uint32_t n_hours, uint32_t n_most)
{
    uint32_t n_alarms = 0;
    double longest = 0, sum = 0;
    for (uint32_t hour = 0; hour < n_hours; hour++) {
        line.seed = hour, line.draws = 0, line.last_ms = 0;
        const struct outcome outcome = run(&line, 3600e3);
        n_alarms += outcome.n_alarms;
        assert_true(outcome.seen_ms < 4000);
        longest = fmax(longest, outcome.seen_ms);
        sum += outcome.seen_ms;
    }
    print_message(
        "# %s: %u false alarms in %u hours; seen after %.0f ms on average, %.0f ms at most\n", what,
        n_alarms, n_hours, sum / n_hours, longest);
    assert_true(n_alarms <= n_most);
}

static void on_a_bad_line(void **unused)
{
    count_alarms("50 ms of jitter, each way",
                 (struct line){.trip_ms = 4, .jitter_ms = 50, .timeout_ms = 250}, 50, 0);
    count_alarms("1 % loss, 50 ms of jitter, sent again",
                 (struct line){.trip_ms = 4, .jitter_ms = 50, .loss = 0.01, .timeout_ms = 300}, 50,
                 6);
    count_alarms("1 % loss, 50 ms of jitter, never sent again",
                 (struct line){.trip_ms = 4, .jitter_ms = 50, .loss = 0.01}, 50, 0);
    count_alarms("3 % loss, 80 ms away",
                 (struct line){.trip_ms = 80, .jitter_ms = 30, .loss = 0.03, .timeout_ms = 300}, 50,
                 50);
}

/* A machine that slept, or was busy, does not take its own silence for others'. */
static void who_does_not_look(void **unused)
{
    struct pulse pulse = {0};
    uint64_t now_ns = ns(0);
    for (int i = 0; i < 100; i++, now_ns += 200 * UINT64_C(1000000)) {
        pulse_beat(&pulse, now_ns);
        assert_false(pulse_suspects(&pulse, now_ns, now_ns));
    }
    const uint64_t heard_ns = now_ns - 200 * UINT64_C(1000000);
    now_ns += 3600 * UINT64_C(1000000000);
    for (int i = 0; i < 7; i++, now_ns += 100 * UINT64_C(1000000))
        assert_false(pulse_suspects(&pulse, heard_ns, now_ns));
    now_ns += 100 * UINT64_C(1000000);
    assert_true(pulse_suspects(&pulse, heard_ns, now_ns));
    assert_false(pulse_suspects(&pulse, now_ns, now_ns)); /* heard again, whatever it was */
}

static void phi_is_what_it_says(void **unused)
{
    struct pulse pulse = {0};
    assert_true(pulse_phi(&pulse, 1000) == 0);
    for (uint32_t i = 0; i < PULSE_WINDOW + 10;
         i++) /* gaps of 150 and 250 ms: mean 200, deviation 50 */
        pulse_beat(&pulse, ns(200.0 * i + (i % 2 ? 25 : -25)));
    assert_true(fabs(pulse_phi(&pulse, 200) - log10(2)) < 0.01);
    assert_true(fabs(pulse_phi(&pulse, 250) + log10(0.158655)) < 0.02); /* one deviation above */
    assert_true(fabs(pulse_phi(&pulse, 350) + log10(0.00134990)) < 0.05);
    assert_true(pulse_phi(&pulse, 1e6) == INFINITY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_a_lan),
        cmocka_unit_test(on_a_bad_line),
        cmocka_unit_test(who_does_not_look),
        cmocka_unit_test(phi_is_what_it_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
