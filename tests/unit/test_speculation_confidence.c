/* How far a draft model guesses: by how sure it is, where that tells who is right. Pure. */
#include "base/random.h"
#include "pipeline/speculation_confidence.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { ASKED = 15, UNSURE = 0, SURE = SPECULATION_CONFIDENCES - 1 };
static const double PASS_NS = 1e5, GUESS_NS = 12500;
static const struct speculation_pass one_row = {.n_rows = 1, .n_tokens = 1, .each_ns = GUESS_NS};

static void test_classes_are_by_probability(void **state)
{
    (void)state;
    uint32_t last = 0;
    assert_int_equal(speculation_confidence(0), UNSURE);
    assert_int_equal(speculation_confidence(1), SURE);
    assert_int_equal(speculation_confidence((double)NAN), UNSURE);
    for (uint32_t i = 0; i <= 100; i++) {
        const uint32_t confidence = speculation_confidence(i / 100.);
        assert_in_range(confidence, last, last + 1);
        last = confidence;
    }
}

/* A pass costs `row` of one of a single row more for each row, and `step` for the first of them. */
static void note_costs(struct speculation_costs *costs, double row, double step)
{
    for (uint32_t turn = 0; turn < 3; turn++) {
        for (uint32_t n = 0; n <= ASKED; n++)
            speculation_costs_note(costs, 1 + n,
                                   (uint64_t)(PASS_NS * (1 + row * n + (n ? step : 0))));
    }
}

/* Half of the guesses are sure, and of so many in a hundred of either kind right. */
static struct speculation learnt(uint32_t sure_right, uint32_t unsure_right)
{
    struct speculation speculation = {.account = 5};
    for (uint32_t i = 0; i < 400; i++) {
        const bool is_sure = i % 2,
                   is_right = i / 2 * 7 % 100 < (is_sure ? sure_right : unsure_right);
        speculation_note(&speculation, SPECULATION_OF_MODEL, 1, is_right);
        speculation_note_confidence(&speculation, is_sure ? SURE : UNSURE, is_right);
    }
    return speculation;
}

static void test_it_is_learnt_what_a_class_means(void **state)
{
    (void)state;
    const struct speculation tells = learnt(95, 10), nothing = learnt(60, 60), none = {0};
    assert_true(speculation_confidence_right(&tells, SURE) > .9);
    assert_true(speculation_confidence_right(&tells, UNSURE) < .2);
    const double other = speculation_confidence_right(&tells, 3); /* never met: as any */
    assert_true(other > .4 && other < .7);
    assert_true(fabs(speculation_confidence_right(&nothing, SURE) -
                     speculation_confidence_right(&nothing, UNSURE)) < .1);
    assert_true(fabs(speculation_confidence_right(&none, SURE) -
                     speculation_acceptance(&none, SPECULATION_OF_MODEL)) < 1e-9);
    struct speculation next;
    speculation_begin(&next, &tells, 100);
    assert_true(speculation_confidence_right(&next, SURE) > .85);
    assert_true(speculation_confidence_right(&next, UNSURE) < .2);
}

static struct speculation_end end_of(const struct speculation *speculation, double row, double step,
                                     double guess_ns)
{
    struct speculation_costs costs = {0};
    struct speculation_pass pass = one_row;
    struct speculation_end end;
    note_costs(&costs, row, step);
    pass.each_ns = guess_ns;
    speculation_end_fill(&end, speculation, &costs, &pass, 3, ASKED);
    return end;
}

static void test_a_draft_ends_where_it_is_unsure(void **state)
{
    (void)state;
    static const uint8_t sure[ASKED] = {SURE, SURE, SURE, SURE, SURE, SURE, SURE, SURE,
                                        SURE, SURE, SURE, SURE, SURE, SURE, SURE},
                         unsure[] = {SURE, SURE, UNSURE, SURE};
    const struct speculation tells = learnt(98, 10);
    const struct speculation_end end = end_of(&tells, .05, 0, GUESS_NS);
    assert_int_equal(end.most, ASKED);
    assert_true(speculation_goes_on(&end, sure, 1) && speculation_goes_on(&end, sure, 5));
    assert_false(speculation_goes_on(&end, sure, ASKED));
    assert_int_equal(speculation_worth(&end, sure, 6), 6);
    assert_true(speculation_goes_on(&end, unsure, 2));
    assert_false(speculation_goes_on(&end, unsure, 3));
    assert_int_equal(speculation_worth(&end, unsure, 3), 3); /* a row at 5 % pays for 10 % right */
    const struct speculation_end dear = end_of(&tells, .3, 0, GUESS_NS);
    assert_int_equal(speculation_worth(&dear, unsure, 3), 2);
    assert_int_equal(speculation_worth(&dear, unsure, 4), 2);
    assert_int_equal(speculation_worth(&dear, unsure + 2, 1), 0);
    const struct speculation_end slow = end_of(&tells, .05, 0, PASS_NS);
    assert_false(speculation_goes_on(&slow, sure, 1));
}

/* Where the first row more is the dearest, one guess alone would not pay, and several do. */
static void test_a_dear_first_row_is_paid_by_many(void **state)
{
    (void)state;
    static const uint8_t confidences[] = {SURE};
    const struct speculation always = learnt(99, 99);
    const struct speculation_end end = end_of(&always, .02, 1.5, GUESS_NS);
    assert_int_equal(speculation_worth(&end, confidences, 1), 0);
    assert_true(speculation_goes_on(&end, confidences, 1));
}

static void test_a_draft_is_no_dearer_than_the_account(void **state)
{
    (void)state;
    struct speculation speculation = learnt(98, 98);
    speculation.account = .6f;
    const struct speculation_end end = end_of(&speculation, .1, 0, 0);
    assert_in_range(end.most, 5, 6);
    speculation.account = 0; /* who has allowed three has seen to it */
    assert_int_equal(end_of(&speculation, .1, 0, 0).most, 3);
}

/* ---- replays ---- */

enum telling {
    TELLS_NOTHING, /* right with the same chance, whatever the probability is */
    TELLS_ALL,     /* right with just that probability, from 0 to 1 */
    TELLS_TWO,     /* it is .95 or .1, and that is the chance */
};

struct guess {
    double probability;
    bool is_right;
};

static struct guess draw_guess(enum telling telling, double right, uint64_t seed, uint64_t *draws)
{
    const double u = random_unit_at(seed, (*draws)++), v = random_unit_at(seed, (*draws)++);
    double probability = right > 0 ? pow(u, (1 - right) / right) : 0; /* `right` in the mean */
    if (telling == TELLS_TWO)
        probability = u < (right - .1) / .85 ? .95 : .1;
    return (struct guess){probability, v < (telling == TELLS_NOTHING ? right : probability)};
}

struct replay {
    enum telling telling;
    double right, row, step; /* of note_costs() */
    bool has_end;            /* confidence ends drafts; else they are of a fixed length */
    uint64_t seed, draws;
    struct speculation speculation;
    struct speculation_costs costs;
};

struct drafted {
    struct guess guesses[ASKED];
    uint8_t confidences[ASKED];
    uint32_t n_made, n_checked, n_right;
};

static void replay_guess(struct replay *replay, uint32_t n, struct drafted *out)
{
    struct speculation_end end;
    speculation_end_fill(&end, &replay->speculation, &replay->costs, &one_row, n, ASKED);
    do {
        const struct guess guess =
            draw_guess(replay->telling, replay->right, replay->seed, &replay->draws);
        out->confidences[out->n_made] = (uint8_t)speculation_confidence(guess.probability);
        out->guesses[out->n_made++] = guess;
    } while (replay->has_end ? speculation_goes_on(&end, out->confidences, out->n_made)
                             : out->n_made < n);
    out->n_checked = out->n_made;
    if (replay->has_end)
        out->n_checked = speculation_worth(&end, out->confidences, out->n_made);
    while (out->n_right < out->n_checked && out->guesses[out->n_right].is_right)
        out->n_right++;
}

/* The pass tells one token more than were right. */
static void replay_learn(struct replay *replay, const struct drafted *drafted)
{
    uint32_t n = 0, n_right = 0;
    while (n < drafted->n_made && n <= drafted->n_right && n == n_right) {
        n_right += drafted->guesses[n].is_right;
        speculation_note_confidence(&replay->speculation, drafted->confidences[n],
                                    drafted->guesses[n].is_right);
        n++;
    }
    if (n)
        speculation_note(&replay->speculation, SPECULATION_OF_MODEL, n, n_right);
}

/* The time for a token, in passes of one row. */
static double replay_text(struct replay *replay, uint32_t n_tokens)
{
    double time_ns = 0;
    uint32_t n = 0;
    while (n < n_tokens) {
        struct drafted drafted = {0};
        const uint32_t length = n ? speculation_length(&replay->speculation, &replay->costs,
                                                       &one_row, SPECULATION_OF_MODEL, ASKED)
                                  : 0;
        if (length)
            replay_guess(replay, length, &drafted);
        replay_learn(replay, &drafted);
        const uint32_t k = drafted.n_checked;
        const double pass_ns = PASS_NS * (1 + replay->row * k + (k ? replay->step : 0)),
                     all_ns = GUESS_NS * drafted.n_made;
        speculation_costs_note(&replay->costs, 1 + k, (uint64_t)pass_ns);
        speculation_pay(&replay->speculation, &replay->costs,
                        &(struct speculation_pass){.n_rows = 1, .n_tokens = 1, .all_ns = all_ns}, k,
                        drafted.n_right);
        time_ns += pass_ns + all_ns;
        n += 1 + drafted.n_right;
    }
    return time_ns / n / PASS_NS;
}

static double replay_of(enum telling telling, double right, double row, double step, bool has_end,
                        uint32_t n_tokens, uint64_t seed)
{
    static const struct speculation nothing;
    struct replay replay = {.telling = telling,
                            .right = right,
                            .row = row,
                            .step = step,
                            .has_end = has_end,
                            .seed = seed};
    speculation_begin(&replay.speculation, &nothing, n_tokens);
    if (n_tokens < 100) /* short ones seldom are a driver's first */
        note_costs(&replay.costs, row, step);
    return replay_text(&replay, n_tokens);
}

/* So many times as many tokens a second as with drafts of a fixed length. */
static double gain_over_fixed(enum telling telling, double right, double row, double step)
{
    double fixed = 0, ended = 0;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        fixed += replay_of(telling, right, row, step, false, 400, seed);
        ended += replay_of(telling, right, row, step, true, 400, seed);
    }
    return fixed / ended;
}

static void test_confidence_that_tells_beats_a_fixed_length(void **state)
{
    (void)state;
    static const double rows[] = {.02, .1, .2}, steps[] = {0, .2};
    double all = 0, two = 0;
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < 2; k++) {
            const double with_all = gain_over_fixed(TELLS_ALL, .7, rows[i], steps[k]),
                         with_two = gain_over_fixed(TELLS_TWO, .7, rows[i], steps[k]);
            assert_true(with_all > .99 && with_two > 1);
            all += with_all / 6;
            two += with_two / 6;
        }
    }
    assert_true(all > 1.02 && two > 1.12);
}

static void test_confidence_that_tells_nothing_loses_nothing(void **state)
{
    (void)state;
    static const double rows[] = {.02, .1, .2, .4}, steps[] = {0, .2};
    double sum = 0;
    uint32_t n = 0;
    for (int i = 0; i < 4; i++) {
        for (int k = 0; k < 2; k++) {
            for (uint32_t percent = 0; percent <= 100; percent += 10) {
                const double gain =
                    gain_over_fixed(TELLS_NOTHING, percent / 100., rows[i], steps[k]);
                assert_true(gain > .96); /* among 88, by chance */
                sum += gain;
                n++;
            }
        }
    }
    assert_true(sum / n > .998);
}

static void test_no_request_takes_longer_than_without_a_draft_model(void **state)
{
    (void)state;
    static const uint32_t lengths[] = {20, 50, 400};
    for (uint32_t row = 0; row <= 120; row += 20) {
        for (uint32_t percent = 0; percent <= 100; percent += 10) {
            for (int telling = TELLS_NOTHING; telling <= TELLS_TWO; telling++) {
                for (uint64_t i = 0; i < 18; i++)
                    assert_true(replay_of((enum telling)telling, percent / 100., row / 100., 0,
                                          true, lengths[i % 3], 1 + i / 3) < 1 / .97);
            }
        }
    }
}

/* What is not checked is compared: guesses that nobody is sure of become right in the middle. */
static void test_what_is_never_checked_is_learnt(void **state)
{
    (void)state;
    static const struct speculation nothing;
    struct replay replay = {.telling = TELLS_TWO, .right = .55, .row = .3, .has_end = true};
    speculation_begin(&replay.speculation, &nothing, 400);
    replay_text(&replay, 400);
    assert_true(speculation_confidence_right(&replay.speculation, UNSURE) < .25);
    replay.telling = TELLS_NOTHING;
    replay.right = .9;
    for (uint32_t i = 0; i < 40; i++) { /* unsure at first, and not checked */
        struct drafted drafted = {.n_made = 1, .guesses = {{0, true}}};
        replay_learn(&replay, &drafted);
    }
    assert_true(speculation_confidence_right(&replay.speculation, UNSURE) > .5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_classes_are_by_probability),
        cmocka_unit_test(test_it_is_learnt_what_a_class_means),
        cmocka_unit_test(test_a_draft_ends_where_it_is_unsure),
        cmocka_unit_test(test_a_dear_first_row_is_paid_by_many),
        cmocka_unit_test(test_a_draft_is_no_dearer_than_the_account),
        cmocka_unit_test(test_confidence_that_tells_beats_a_fixed_length),
        cmocka_unit_test(test_confidence_that_tells_nothing_loses_nothing),
        cmocka_unit_test(test_no_request_takes_longer_than_without_a_draft_model),
        cmocka_unit_test(test_what_is_never_checked_is_learnt),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
