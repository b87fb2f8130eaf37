/* The alerts' machine against an oracle that looks at a whole trace at once; the table's sense; the
 * lines that people set. */
#include "alerts/alert_asks.h"
#include "alerts/alert_usual.h"
#include "base/random.h"
#include "trust/hmac.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct error err;
static struct alerts machine; /* large */

/* ---- the oracle ----
 * For each moment it looks back over all of the trace: no state but whether the alert is up. */

enum { MOMENTS_MAX = 400, TRACES = 10000 };

struct moment {
    uint64_t at_ms;
    enum alert_reading_state state;
    double value;
};

static bool oracle_beyond(const struct alert_rule *rule, const struct alert_lines *lines, bool up,
                          double value)
{
    const double sign = rule->falls ? -1 : 1;
    return up ? sign * value <= sign * lines->clear : sign * value >= sign * lines->raise;
}

/* How long the values up to `last` have been beyond the line, back to the turn at `turned`. */
static bool oracle_held(const struct alert_rule *rule, const struct alert_lines *lines,
                        const struct moment *trace, int last, int turned, bool up)
{
    int first = last, newest = last;
    for (int i = last; i > turned; i--) {
        if (trace[i].state != ALERT_KNOWN)
            continue;
        if (!oracle_beyond(rule, lines, up, trace[i].value) ||
            trace[newest].at_ms - trace[i].at_ms > LIMIT_ALERT_GAP_MS)
            break;
        first = newest = i;
    }
    return trace[last].at_ms - trace[first].at_ms >= (up ? lines->clear_ms : lines->raise_ms);
}

static enum alert_turn_kind oracle_turn(const struct alert_rule *rule,
                                        const struct alert_lines *lines, const struct moment *trace,
                                        int at, int *turned, bool *up)
{
    int known = at;
    while (known > *turned && trace[known].state != ALERT_KNOWN)
        known--;
    if (known < 0)
        known = 0;
    const bool goes = trace[at].state == ALERT_GONE ||
                      (trace[at].state == ALERT_UNKNOWN &&
                       trace[at].at_ms - trace[known].at_ms > LIMIT_ALERT_UNKNOWN_MS);
    if (goes) {
        const bool was_up = *up;
        *up = false;
        *turned = at;
        return was_up ? ALERT_CLEARED : ALERT_NO_TURN;
    }
    if (trace[at].state != ALERT_KNOWN || !oracle_beyond(rule, lines, *up, trace[at].value) ||
        !oracle_held(rule, lines, trace, at, *turned, *up))
        return ALERT_NO_TURN;
    *up = !*up;
    *turned = at;
    return *up ? ALERT_RAISED : ALERT_CLEARED;
}

/* ---- random traces ---- */

struct trace_draws {
    uint64_t seed, n;
};

static double trace_draw(struct trace_draws *draws)
{
    return (double)(random_at(draws->seed, draws->n++) >> 11) * 0x1p-53;
}

/* Plateaus of bad, good and between, spikes, silences short and long, now and then a going. */
static int draw_trace(struct trace_draws *draws, const struct alert_lines *lines,
                      struct moment *trace)
{
    static const double at[] = {0, 1, -0.5, 1.5, 0.5, 0.01, 0.99}; /* 0: clear, 1: raise */
    const int n = 50 + (int)(trace_draw(draws) * (MOMENTS_MAX - 50));
    double level = -0.5;
    uint64_t now = (uint64_t)(trace_draw(draws) * 1e6);
    enum alert_reading_state state = ALERT_KNOWN;
    for (int i = 0; i < n; i++) {
        const double kind = trace_draw(draws);
        const double pace = trace_draw(draws);
        now += pace < 0.9     ? (uint64_t)(trace_draw(draws) * 3000)
               : pace < 0.999 ? (uint64_t)(trace_draw(draws) * 2 * LIMIT_ALERT_GAP_MS)
                              : (uint64_t)(trace_draw(draws) * 2 * LIMIT_ALERT_UNKNOWN_MS);
        if (kind < 0.06)
            level = at[(int)(trace_draw(draws) * 7)];
        else if (kind < 0.08)
            state = state == ALERT_KNOWN ? ALERT_UNKNOWN : ALERT_KNOWN;
        const bool spike = trace_draw(draws) < 0.01;
        const double where = spike ? 1 - level : level;
        trace[i] = (struct moment){.at_ms = now,
                                   .state = kind > 0.998 ? ALERT_GONE : state,
                                   .value = lines->clear + where * (lines->raise - lines->clear)};
    }
    return n;
}

static void check_trace(uint64_t seed, uint32_t counts[3])
{
    static struct moment trace[MOMENTS_MAX];
    struct trace_draws draws = {.seed = seed};
    const enum alert_kind kind = (enum alert_kind)(seed % ALERT_KINDS);
    const struct alert_rule *rule = alert_rule(kind);
    bool up = false;
    int turned = -1;
    uint64_t turned_ms = 0;
    alerts_init(&machine);
    struct alert_lines *lines = &machine.lines[kind];
    if (lines->raise_ms > 30000)
        lines->raise_ms = 30000;
    const int n = draw_trace(&draws, lines, trace);
    for (int i = 0; i < n; i++) {
        struct alert_turn turn = {0};
        const struct alert_reading reading = {kind, trace[i].state, "a/b", trace[i].value};
        const uint32_t got = alerts_step(&machine, &reading, 1, trace[i].at_ms, &turn, 1);
        const enum alert_turn_kind want = oracle_turn(rule, lines, trace, i, &turned, &up);
        if ((got ? turn.what : ALERT_NO_TURN) != want)
            fail_msg("seed %llu, %s, moment %d at %llu ms: %d, and the oracle says %d",
                     (unsigned long long)seed, rule->name, i, (unsigned long long)trace[i].at_ms,
                     got ? (int)turn.what : 0, (int)want);
        if (!got)
            continue;
        counts[turn.what]++;
        /* No flapping: what readings turn stays turned for the time to hold. */
        if (turn.why == ALERT_BY_READING && counts[0]++ && turned_ms)
            assert_true(trace[i].at_ms - turned_ms >=
                        (turn.what == ALERT_RAISED ? lines->raise_ms : lines->clear_ms));
        turned_ms = trace[i].at_ms;
        assert_string_equal(turn.subject, "a/b");
        const struct alert_track *track = alerts_find(&machine, kind, "a/b");
        assert_true((track && track->is_up) == (turn.what == ALERT_RAISED));
    }
    assert_true(machine.n <= 1);
}

static void test_traces_agree_with_the_oracle(void **unused)
{
    uint32_t counts[3] = {0};
    uint64_t first = 1, last = TRACES;
    const char *seeds = getenv("MEDLEY_SEEDS");
    if (seeds)
        sscanf(seeds, "%llu-%llu", (unsigned long long *)&first, (unsigned long long *)&last);
    for (uint64_t seed = first; seed <= last; seed++)
        check_trace(seed, counts);
    print_message("# %u raised, %u cleared\n", counts[ALERT_RAISED], counts[ALERT_CLEARED]);
    if (!seeds)
        assert_true(counts[ALERT_RAISED] > TRACES / 2 && counts[ALERT_CLEARED] > TRACES / 2);
}

/* ---- by hand ---- */

static uint32_t step_one(enum alert_kind kind, enum alert_reading_state state, double value,
                         uint64_t now_ms, struct alert_turn *turn)
{
    const struct alert_reading reading = {kind, state, "n", value};
    return alerts_step(&machine, &reading, 1, now_ms, turn, 1);
}

static void test_a_node_is_lost_at_once_and_back_after_a_while(void **unused)
{
    struct alert_turn turn;
    alerts_init(&machine);
    assert_int_equal(step_one(ALERT_NODE_LOST, ALERT_KNOWN, 0.9, 1000, &turn), 0);
    assert_int_equal(step_one(ALERT_NODE_LOST, ALERT_KNOWN, 1.2, 1500, &turn), 1);
    assert_int_equal(turn.what, ALERT_RAISED);
    assert_int_equal(step_one(ALERT_NODE_LOST, ALERT_KNOWN, 0, 2000, &turn), 0);
    assert_int_equal(step_one(ALERT_NODE_LOST, ALERT_KNOWN, 0, 6900, &turn), 0);
    assert_int_equal(step_one(ALERT_NODE_LOST, ALERT_KNOWN, 0, 7000, &turn), 1);
    assert_int_equal(turn.what, ALERT_CLEARED);
    assert_int_equal(machine.n, 0);
}

static void test_unknown_neither_raises_nor_clears(void **unused)
{
    struct alert_turn turn;
    alerts_init(&machine);
    assert_int_equal(step_one(ALERT_DEVICE_HOT, ALERT_KNOWN, 99, 0, &turn), 0);
    assert_int_equal(step_one(ALERT_DEVICE_HOT, ALERT_UNKNOWN, 0, 20000, &turn), 0);
    assert_int_equal(step_one(ALERT_DEVICE_HOT, ALERT_KNOWN, 99, 20001, &turn), 1);
    const uint64_t hour = LIMIT_ALERT_UNKNOWN_MS;
    assert_int_equal(step_one(ALERT_DEVICE_HOT, ALERT_UNKNOWN, 0, 20001 + hour, &turn), 0);
    assert_int_equal(step_one(ALERT_DEVICE_HOT, ALERT_UNKNOWN, 0, 20002 + hour, &turn), 1);
    assert_true(turn.what == ALERT_CLEARED && turn.why == ALERT_BY_SILENCE);
}

static void test_what_was_up_is_taken_over(void **unused)
{
    struct alert_turn turn;
    alerts_init(&machine);
    alerts_adopt(&machine, ALERT_NODE_LOST, "n", 1000);
    alerts_adopt(&machine, ALERT_NODE_LOST, "n", 1000);
    assert_int_equal(machine.n, 1);
    assert_int_equal(step_one(ALERT_NODE_LOST, ALERT_KNOWN, 9, 1000, &turn), 0);
    assert_int_equal(step_one(ALERT_NODE_LOST, ALERT_GONE, 0, 1001, &turn), 1);
    assert_true(turn.what == ALERT_CLEARED && turn.why == ALERT_BY_GOING);
}

static void test_there_are_never_too_many(void **unused)
{
    static struct alert_turn turns[8];
    char names[LIMIT_ALERT_TRACKS + 8][16];
    static struct alert_reading readings[LIMIT_ALERT_TRACKS + 8];
    alerts_init(&machine);
    for (int i = 0; i < LIMIT_ALERT_TRACKS + 8; i++) {
        snprintf(names[i], sizeof names[i], "n%d", i);
        readings[i] = (struct alert_reading){ALERT_DEVICE_HOT, ALERT_KNOWN, names[i], 100};
    }
    assert_int_equal(alerts_step(&machine, readings, LIMIT_ALERT_TRACKS + 8, 0, turns, 8), 0);
    assert_int_equal(machine.n, LIMIT_ALERT_TRACKS);
    assert_int_equal(machine.n_left_out, 8);
    /* Only as many turns as there is room for; the others follow. */
    uint32_t n = 0;
    for (uint64_t now = 10000; now < 10000 + LIMIT_ALERT_TRACKS; now++)
        n += alerts_step(&machine, readings, LIMIT_ALERT_TRACKS, now, turns, 8);
    assert_int_equal(n, LIMIT_ALERT_TRACKS);
}

/* ---- the table ---- */

static void test_every_rule_makes_sense(void **unused)
{
    char text[512];
    for (unsigned i = 0; i < ALERT_KINDS; i++) {
        const struct alert_rule *rule = alert_rule((enum alert_kind)i);
        const struct alert_lines *usual = &rule->usual;
        assert_true(rule->falls ? usual->clear > usual->raise : usual->clear < usual->raise);
        assert_true(usual->raise >= rule->min && usual->raise <= rule->max);
        assert_true(usual->clear >= rule->min && usual->clear <= rule->max);
        assert_true(usual->raise_ms <= LIMIT_ALERT_HOLD_S * 1000u);
        assert_int_equal(alert_kind_find(rule->name, strlen(rule->name)), i);
        assert_non_null(strstr(rule->text, "{subject}"));
        assert_int_equal(rule->mend[strlen(rule->mend) - 1], '.');
        alert_say(rule, "tower/gpu0", usual->raise, text, sizeof text);
        assert_null(strchr(text, '{'));
        assert_non_null(strstr(text, "tower/gpu0"));
    }
    assert_int_equal(alert_kind_find("device", 6), ALERT_KINDS);
    alert_say(alert_rule(ALERT_DEVICE_HOT), "tower/gpu0", 97.4, text, sizeof text);
    assert_string_equal(text, "tower/gpu0 has come 97 % of the way to the temperature at which its "
                              "work is paused");
    alert_say(alert_rule(ALERT_TOKEN_ENDING), "ci", 1.9, text, sizeof text);
    assert_string_equal(text, "the access token ci ends in 1 day");
    alert_say(alert_rule(ALERT_TOKEN_ENDING), "ci", 1.9, text, 8);
    assert_string_equal(text, "the acc");
}

static void test_lines_are_set_within_bounds(void **unused)
{
    const struct alert_rule *hot = alert_rule(ALERT_DEVICE_HOT);
    struct alert_lines lines = hot->usual;
    assert_int_equal(alert_lines_set(hot, &lines, "raise", 60, &err), ERROR_NONE);
    assert_true(lines.raise == 60 && lines.clear == 53);
    assert_int_equal(alert_lines_set(hot, &lines, "clear", 20, &err), ERROR_NONE);
    assert_true(lines.clear == 20);
    assert_int_equal(alert_lines_set(hot, &lines, "clear", 60, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "below"));
    assert_int_equal(alert_lines_set(hot, &lines, "raise", 101, &err), ERROR_INVALID);
    assert_int_equal(alert_lines_set(hot, &lines, "raise", NAN, &err), ERROR_INVALID);
    assert_int_equal(alert_lines_set(hot, &lines, "raise_after_s", 0.5, &err), ERROR_NONE);
    assert_int_equal(lines.raise_ms, 500);
    assert_int_equal(alert_lines_set(hot, &lines, "clear_after_s", 1e9, &err), ERROR_INVALID);
    assert_int_equal(alert_lines_set(hot, &lines, "colour", 1, &err), ERROR_INVALID);
    assert_true(lines.raise == 60 && lines.clear == 20);
    const struct alert_rule *narrow = alert_rule(ALERT_LINK_NARROW);
    lines = narrow->usual;
    assert_int_equal(alert_lines_set(narrow, &lines, "raise", 90, &err), ERROR_NONE);
    assert_true(lines.raise == 90 && lines.clear == 95);
}

/* ---- settings ---- */

static void test_settings_make_lines_and_mutes(void **unused)
{
    static struct alert_mutes mutes;
    const struct alert_setting list[] = {
        {"alerts/device_hot.clear", "10"},
        {"alerts/device_hot.raise", "60"},
        {"alerts/device_hot.raise", "nonsense"},
        {"alerts/no_such.raise", "60"},
        {"alerts/mute/node_lost@abc", "2000"},
        {"alerts/mute/disk_full", "2000"},
        {"alerts/mute/link_slow", "999"},
        {"alerts/mute/no_such", "2000"},
        {"drain/abc", "yes"},
    };
    alerts_init(&machine);
    alert_settings_all(&machine, &mutes, list, sizeof list / sizeof *list, 1000);
    assert_true(machine.lines[ALERT_DEVICE_HOT].raise == 60);
    assert_true(machine.lines[ALERT_DEVICE_HOT].clear == 10); /* though raise came later */
    assert_int_equal(mutes.n, 2);
    assert_true(alert_is_muted(&mutes, ALERT_NODE_LOST, "abc"));
    assert_false(alert_is_muted(&mutes, ALERT_NODE_LOST, "abd"));
    assert_true(alert_is_muted(&mutes, ALERT_DISK_FULL, "any"));
    assert_false(alert_is_muted(&mutes, ALERT_LINK_SLOW, "any"));
    const struct alert_setting all = {"alerts/mute/all", "2000"};
    alert_settings_all(&machine, &mutes, &all, 1, 1000);
    assert_true(alert_is_muted(&mutes, ALERT_LINK_SLOW, "any"));
    assert_true(machine.lines[ALERT_DEVICE_HOT].raise == 97);
    alert_settings_all(&machine, &mutes, &all, 1, 2000);
    assert_int_equal(mutes.n, 0);
}

static void test_the_usual_is_followed(void **unused)
{
    struct alert_usual usual = {0};
    uint64_t now = 1;
    for (; now < 100000; now += 2000)
        alert_usual_take(&usual, 10, now);
    assert_false(alert_usual_is_known(&usual));
    for (; now < 10 * 3600000u; now += 2000)
        alert_usual_take(&usual, 10, now);
    assert_true(alert_usual_is_known(&usual) && fabs(usual.value - 10) < 1e-9);
    for (; now < 11 * 3600000u; now += 2000)
        alert_usual_take(&usual, 100, now); /* an hour otherwise moves it by a part … */
    assert_true(usual.value > 15 && usual.value < 30);
    for (; now < 40 * 3600000u; now += 2000)
        alert_usual_take(&usual, 100, now); /* … and a day becomes the usual */
    assert_true(usual.value > 95);
}

/* ---- what is proposed ---- */

struct asks_world {
    struct alert_asks asks;
    struct alert_mutes mutes;
    struct alert_agreed agreed[LIMIT_ALERTS];
    char subjects[LIMIT_ALERTS][16];
    uint32_t n_agreed, n_raised, n_cleared;
    bool loses; /* what is proposed is lost */
};
static struct asks_world asking;

static void asks_apply(const struct alert_ask *ask)
{
    uint32_t at = 0;
    while (at < asking.n_agreed && strcmp(asking.subjects[at], ask->subject) != 0)
        at++;
    assert_true((at < asking.n_agreed) == !ask->raises); /* never twice */
    if (ask->raises) {
        snprintf(asking.subjects[at], sizeof asking.subjects[at], "%s", ask->subject);
        asking.agreed[at] = (struct alert_agreed){ask->kind, asking.subjects[at]};
        asking.n_agreed++, asking.n_raised++;
    } else {
        asking.n_agreed--, asking.n_cleared++;
        memcpy(asking.subjects[at], asking.subjects[asking.n_agreed], 16);
        asking.agreed[at].kind = asking.agreed[asking.n_agreed].kind;
    }
}

static uint32_t asks_at(uint64_t now_ms)
{
    static struct alert_ask out[16];
    const uint32_t n = alert_asks_step(&asking.asks, &machine, &asking.mutes, asking.agreed,
                                       asking.n_agreed, NULL, 0, now_ms, out, 16);
    for (uint32_t i = 0; i < n && !asking.loses; i++)
        asks_apply(&out[i]);
    return n;
}

static void make_up(enum alert_kind kind, int n)
{
    char subject[16];
    for (int i = 0; i < n; i++) {
        snprintf(subject, sizeof subject, "%c%d", kind == ALERT_NODE_LOST ? 'n' : 'd', i);
        alerts_adopt(&machine, kind, subject, 0);
    }
}

static void test_the_log_is_not_flooded(void **unused)
{
    asking = (struct asks_world){0};
    alerts_init(&machine);
    make_up(ALERT_DEVICE_HOT, 100);
    make_up(ALERT_NODE_LOST, 10);
    uint32_t at_once = 0;
    for (uint64_t now = 0; now < LIMIT_ALERT_REFILL_MS; now += 100) {
        at_once += asks_at(now);
        for (uint32_t i = 0; now == 0 && i < 10; i++)
            assert_int_equal(asking.agreed[i].kind, ALERT_NODE_LOST); /* critical ones first */
    }
    assert_int_equal(at_once, LIMIT_ALERT_BURST);
    for (uint64_t now = LIMIT_ALERT_REFILL_MS; asking.n_raised < 110; now += 500) {
        asks_at(now);
        assert_true(asking.n_raised <= LIMIT_ALERT_BURST + now / LIMIT_ALERT_REFILL_MS);
        assert_true(now < 200 * LIMIT_ALERT_REFILL_MS);
    }
    alerts_init(&machine); /* all is well */
    for (uint64_t now = 1000000; asking.n_cleared < 110; now += 500)
        asks_at(now);
    assert_int_equal(asking.n_agreed, 0);
}

static void test_what_is_lost_is_asked_again_and_no_sooner(void **unused)
{
    asking = (struct asks_world){.loses = true};
    alerts_init(&machine);
    make_up(ALERT_NODE_LOST, 1);
    uint32_t n = 0;
    for (uint64_t now = 0; now < 4 * ALERT_ASK_AGAIN_MS; now += 100)
        n += asks_at(now);
    assert_int_equal(n, 4);
    asking.loses = false;
    assert_int_equal(asks_at(4 * ALERT_ASK_AGAIN_MS), 1);
    assert_int_equal(asking.n_raised, 1);
    /* Another leads now, and finds it up: nothing is asked for. */
    asking.asks = (struct alert_asks){0};
    assert_int_equal(asks_at(100000), 0);
    /* Muted, it is cleared; then it is back. */
    asking.mutes = (struct alert_mutes){.list = {{ALERT_NODE_LOST, NULL, 1}}, .n = 1};
    assert_int_equal(asks_at(110000), 1);
    asking.mutes.n = 0;
    assert_int_equal(asks_at(110001), 1);
    assert_true(asking.n_agreed == 1 && asking.n_raised == 2 && asking.n_cleared == 1);
}

/* ---- the webhook's signature ---- */

/* RFC 4231, test cases 2 and 6 (a key that is longer than a block). */
static void test_signatures_are_hmac_sha256(void **unused)
{
    char text[HMAC_TEXT];
    uint8_t key[131];
    static const char what[] = "what do ya want for nothing?";
    static const char large[] = "Test Using Larger Than Block-Size Key - Hash Key First";
    memset(key, 0xaa, sizeof key);
    hmac_text("Jefe", 4, what, sizeof what - 1, text);
    assert_string_equal(text, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    hmac_text(key, sizeof key, large, sizeof large - 1, text);
    assert_string_equal(text, "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

/* ---- docs/alerts.md ---- */

static void put_line(const struct alert_rule *rule, double value, uint64_t hold_ms, char *out,
                     size_t size)
{
    char hold[32] = "at once";
    const char *unit = alert_unit_name(rule->unit);
    if (hold_ms >= 60000)
        snprintf(hold, sizeof hold, "after %u min", (unsigned)(hold_ms / 60000));
    else if (hold_ms)
        snprintf(hold, sizeof hold, "after %u s", (unsigned)(hold_ms / 1000));
    snprintf(out, size, "%g%s%s, %s", value, *unit ? " " : "", unit, hold);
}

static char *read_all(const char *path)
{
    FILE *file = fopen(path, "r");
    char *text = calloc(1, 1 << 20);
    assert_non_null(file);
    assert_true(text && fread(text, 1, (1 << 20) - 1, file) > 0);
    fclose(file);
    return text;
}

static void test_the_page_has_the_table(void **unused)
{
    char path[4096], row[2048], raise[64], clear[64];
    snprintf(path, sizeof path, "%s/docs/alerts.md", getenv("MEDLEY_ROOT"));
    char *page = read_all(path);
    int missing = 0, rows = 0;
    for (const char *at = page; (at = strstr(at, "\n| `")) != NULL; at++)
        rows++;
    for (unsigned i = 0; i < ALERT_KINDS; i++) {
        const struct alert_rule *rule = alert_rule((enum alert_kind)i);
        put_line(rule, rule->usual.raise, rule->usual.raise_ms, raise, sizeof raise);
        put_line(rule, rule->usual.clear, rule->usual.clear_ms, clear, sizeof clear);
        snprintf(row, sizeof row, "| `%s` | %s | %s | %s | %s | %s | %s | %s |\n", rule->name,
                 alert_about_name(rule->about), rule->reads, raise, clear,
                 alert_severity_name(rule->severity), rule->by_node ? "the node" : "the leader",
                 rule->mend);
        if (!strstr(page, row)) {
            print_message("# docs/alerts.md lacks the row\n%s", row);
            missing++;
        }
    }
    free(page);
    assert_int_equal(missing, 0);
    assert_int_equal(rows, ALERT_KINDS); /* and no others */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_traces_agree_with_the_oracle),
        cmocka_unit_test(test_a_node_is_lost_at_once_and_back_after_a_while),
        cmocka_unit_test(test_unknown_neither_raises_nor_clears),
        cmocka_unit_test(test_what_was_up_is_taken_over),
        cmocka_unit_test(test_there_are_never_too_many),
        cmocka_unit_test(test_every_rule_makes_sense),
        cmocka_unit_test(test_lines_are_set_within_bounds),
        cmocka_unit_test(test_settings_make_lines_and_mutes),
        cmocka_unit_test(test_the_usual_is_followed),
        cmocka_unit_test(test_the_log_is_not_flooded),
        cmocka_unit_test(test_what_is_lost_is_asked_again_and_no_sooner),
        cmocka_unit_test(test_signatures_are_hmac_sha256),
        cmocka_unit_test(test_the_page_has_the_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
