/* Drafts: tokens that are guessed, computed beside a sequence's own row, and kept as far as the
 * sampler picks the same. By the baton's holder (driver_state.h).
 *
 * A draft stands in the slot behind its known tokens, and its rows go where theirs would. What
 * comes back is a token for each row, as far as the guesses were right, and one. Those are the
 * tokens of plain decoding: the sampler depends on what stands before a token alone
 * (engine/sampler.h), and a row has the same bits in any batch where all stages say so
 * (stage_has_stable_bits()); elsewhere nothing is drafted. Then the slot is cut back to what was
 * right, on every stage before its next row. A slot that is emptied or a sequence that ends
 * meanwhile needs nothing: what is in the cache is what the slot's tokens say, guessed or not. */
#include "pipeline/driver_state.h"

#include "base/clock.h"
#include "engine/batch_shape.h"
#include "pipeline/lookup.h"
#include "pipeline/settings.h"

#include <assert.h>

/* Of a request's time, that reading its prompt may take a draft model that nobody knows yet, while
 * all wait for it; or where it reads while a pipeline computes … */
static const double READING_SHARE = .02, READING_SHARE_BESIDE = .1;
enum {
    READING_TRIED = 10, /* … which somebody does from so many tokens on */
    ASKED_MAX = 15,     /* tokens of a draft model at once */
};

static uint32_t draft_smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Decoding alone, so that passes compare: rows of prompts wait for nobody. */
static bool draft_is_possible(const struct driver *driver, const struct schedule *schedule,
                              const uint32_t *slots)
{
    if (driver->options.speculate == SPECULATE_OFF || !driver->may_draft || schedule->embeddings ||
        !schedule->n_shares)
        return false;
    for (uint32_t i = 0; i < schedule->n_shares; i++) {
        const struct slot *slot = &driver->slots.slots[slots[schedule->shares[i].item]];
        if (!slot->sequence->generated || slot->n_known != slot->n_placed + 1 ||
            sequence_wants_rows(slot->sequence))
            return false;
    }
    return true;
}

/* The last one of the answer comes from a row before it. In a pool no further than the extent that
 * the sequence's own row is in, so a draft takes no cells from others. */
uint32_t step_draft_most(const struct driver *driver, const struct slot *slot, uint32_t own)
{
    const struct request *request = &slot->sequence->request;
    uint32_t most = draft_smaller(driver->options.context - 1 - slot->n_known,
                                  request->n_predict - 1 - slot->sequence->generated);
    if (slot_table_is_pool(&driver->slots))
        most = draft_smaller(most, KV_PADDING - 1 - own % KV_PADDING);
    return most;
}

uint32_t step_draft_write(const struct slot *slot, uint32_t at, const int32_t *guesses,
                          uint32_t most)
{
    uint32_t n = 0;
    for (; n < most; n++) {
        const int32_t token = guesses[n];
        if (sequence_is_stop(slot->sequence, token) || token >= PICTURE_TOKEN_FIRST)
            break;
        slot->tokens[at + n] = token;
    }
    return n;
}

/* Whether to draft of so many guesses, and how many. */
static uint32_t draft_length(const struct driver *driver, const struct slot *slot,
                             const struct speculation_pass *pass, uint32_t n_match, uint32_t most)
{
    if (driver->options.speculate == SPECULATE_ALWAYS)
        return most;
    return speculation_length(&slot->sequence->speculation, &driver->costs, pass, n_match, most);
}

static void draft_add(const struct slot *slot, struct speculation_pass *pass,
                      const struct step_draft *draft)
{
    pass->n_rows += draft->n_tokens;
    pass->n_tokens +=
        speculation_expected(&slot->sequence->speculation, draft->n_match, draft->n_tokens);
}

/* Tokens that an answer probably has yet. */
static uint32_t draft_left(const struct driver *driver, const struct sequence *sequence)
{
    return draft_smaller(sequence->request.n_predict - sequence->generated,
                         answers_median(&driver->answers));
}

static double draft_prompt_ns(const struct driver *driver, const struct sequence *sequence)
{
    return (double)driver->prompt_row_ns * sequence->request.n_prompt;
}

void step_draft_begin(const struct driver *driver, struct sequence *sequence)
{
    const double pass_ns = speculation_cost(&driver->costs, 1);
    double n_passes = draft_left(driver, sequence);
    if (pass_ns > 0)
        n_passes += draft_prompt_ns(driver, sequence) / pass_ns;
    speculation_begin(&sequence->speculation, &driver->drafts_of_late, n_passes);
}

/* ---- guesses of the text so far ---- */

/* What it foresees costs nothing to compare, whether it is drafted or not. */
static void draft_look_up(const struct driver *driver, struct slot *slot, uint32_t most,
                          const struct speculation_pass *pass, struct step_draft *out)
{
    const uint32_t from = most ? lookup_find(slot->tokens, slot->n_known, &out->foreseen_match) : 0;
    const uint32_t n = from ? step_draft_write(slot, slot->n_known, slot->tokens + from, most) : 0;
    out->n_match = out->foreseen_match;
    if (n)
        out->foreseen = slot->tokens[slot->n_known];
    if (n && pass->n_rows == 1 && step_ahead_is_possible(driver))
        out->n_tokens = step_ahead_begin(driver, slot, from, out->n_match, n);
    else
        out->n_tokens = n ? draft_length(driver, slot, pass, out->n_match, n) : 0;
}

/* ---- guesses of a draft model ---- */

/* How many of its guesses are checked. */
static uint32_t draft_checked(const struct driver *driver, const struct slot *slot,
                              const struct speculation_pass *pass, bool was_awaited, uint32_t most,
                              const struct drafter_guesses *guesses)
{
    const uint32_t n = draft_smaller(most, guesses->n);
    if (guesses->end)
        return speculation_worth(guesses->end, guesses->confidences, n);
    return was_awaited ? n : draft_length(driver, slot, pass, SPECULATION_OF_MODEL, n);
}

/* True: it has answered. Its guesses go before those of the text. What is left of an answer, and
 * too unsure, is none: it is asked again. */
static bool draft_take(struct driver *driver, uint32_t index, uint32_t most,
                       const struct speculation_pass *pass, bool was_awaited,
                       struct step_draft *out)
{
    const struct slot *slot = &driver->slots.slots[index];
    struct drafter_guesses guesses;
    if (!driver->drafter || !drafter_answer(driver->drafter, index, slot->sequence->id,
                                            slot->tokens, slot->n_known, &guesses))
        return false;
    out->took_ns = guesses.took_ns;
    uint32_t n = draft_checked(driver, slot, pass, was_awaited, most, &guesses);
    if (!n && guesses.is_rest && guesses.end)
        return false;
    n = step_draft_write(slot, slot->n_known, guesses.tokens, n);
    if (n) {
        slot->sequence->train = (struct draft_train){0};
        out->n_match = SPECULATION_OF_MODEL;
        out->n_tokens = n;
    }
    return true;
}

/* Reading a sequence for the first time pays later, if at all. It may take 2 % of the time that the
 * request takes (a tenth beside a pipeline), or half of what it is likely to save, where its
 * guesses are known. */
static bool draft_may_read(const struct driver *driver, const struct slot *slot,
                           const struct speculation_pass *pass, uint32_t n, double reading_ns)
{
    const struct sequence *sequence = slot->sequence;
    const double pass_ns = speculation_cost(&driver->costs, 1);
    const double rest_ns = pass_ns * draft_left(driver, sequence),
                 all_ns = rest_ns + draft_prompt_ns(driver, sequence);
    if (reading_ns <= all_ns * (sequence->train.is_of_model ? READING_SHARE_BESIDE : READING_SHARE))
        return true;
    const double gain =
        speculation_gain(&sequence->speculation, &driver->costs, pass, SPECULATION_OF_MODEL, n);
    return driver->drafts_of_late.n_tried[SPECULATION_CLASSES - 1] >= READING_TRIED &&
           reading_ns <= rest_ns * (1 - 1 / gain) / 2;
}

static double draft_reading_ns(const struct driver *driver, const struct sequence *sequence,
                               uint32_t n_tokens)
{
    return drafter_reading_ns(driver->drafter, sequence->slot, sequence->id, n_tokens,
                              speculation_cost(&driver->costs, 1), (double)driver->prompt_row_ns);
}

/* Whether it may be asked for n tokens behind the first n_tokens, which takes it each_ns for one.
 */
static bool draft_may_ask(const struct driver *driver, const struct slot *slot, uint32_t n_tokens,
                          const struct speculation_pass *pass, uint32_t n)
{
    const double reading_ns = draft_reading_ns(driver, slot->sequence, n_tokens);
    return driver->options.speculate == SPECULATE_ALWAYS || reading_ns <= 0 ||
           draft_may_read(driver, slot, pass, n, reading_ns);
}

/* True: it was. `end`: what ends it; NULL: nothing does, and nobody waits for it. */
static bool draft_ask_about(const struct driver *driver, const struct slot *slot, uint32_t n_tokens,
                            uint32_t n, const struct speculation_end *end, bool streams)
{
    const struct sequence *sequence = slot->sequence;
    const double each_ns = step_draft_each_ns(driver, SPECULATION_OF_MODEL),
                 reading_ns = draft_reading_ns(driver, sequence, n_tokens);
    const struct drafter_question question = {.slot = sequence->slot,
                                              .sequence = sequence->id,
                                              .tokens = slot->tokens,
                                              .n_tokens = n_tokens,
                                              .n_wanted = n,
                                              .sampler = &sequence->request.sampler,
                                              .cache_key = sequence->request.cache_key,
                                              .expected_ns = reading_ns + n * each_ns,
                                              .streams = streams,
                                              .end = end};
    return drafter_ask(driver->drafter, &question);
}

/* The same, and how far is left to how sure it is; in tests so many. */
static bool draft_ask_until_unsure(const struct driver *driver, const struct slot *slot,
                                   const struct speculation_pass *pass, uint32_t n, uint32_t most)
{
    struct speculation_end end;
    if (driver->options.speculate == SPECULATE_ALWAYS)
        return draft_ask_about(driver, slot, slot->n_known, n, NULL, false);
    most = draft_smaller(most, SPECULATION_ROWS_MAX - pass->n_rows);
    speculation_end_fill(&end, &slot->sequence->speculation, &driver->costs, pass, n, most);
    return draft_ask_about(driver, slot, slot->n_known, end.most, &end, false);
}

static bool draft_knows_text(const struct driver *driver, const struct sequence *sequence)
{
    return driver->drafter && !sequence->request.n_pictures; /* it knows text alone */
}

/* Beside `text`, which the text foresees: it is asked where that is expected to give more. True: it
 * was. */
static bool draft_ask(struct driver *driver, uint32_t index, uint32_t most,
                      const struct speculation_pass *beside, const struct step_draft *text)
{
    const struct slot *slot = &driver->slots.slots[index];
    const struct speculation *speculation = &slot->sequence->speculation;
    struct speculation_pass pass = *beside;
    if (!most || !draft_knows_text(driver, slot->sequence))
        return false;
    const double pass_ns = speculation_cost(&driver->costs, 1);
    pass.each_ns = drafter_token_ns(driver->drafter, pass_ns);
    most = draft_smaller(most, ASKED_MAX);
    const uint32_t n = draft_length(driver, slot, &pass, SPECULATION_OF_MODEL, most);
    if (!n)
        drafter_doubt(driver->drafter, pass_ns);
    if (n && text->n_tokens &&
        speculation_gain(speculation, &driver->costs, &pass, SPECULATION_OF_MODEL, n) <=
            speculation_gain(speculation, &driver->costs, beside, text->n_match, text->n_tokens))
        return false;
    return n && draft_may_ask(driver, slot, slot->n_known, &pass, n) &&
           draft_ask_until_unsure(driver, slot, &pass, n, most);
}

double step_draft_each_ns(const struct driver *driver, uint32_t n_match)
{
    return n_match == SPECULATION_OF_MODEL && driver->drafter
               ? drafter_token_ns(driver->drafter, speculation_cost(&driver->costs, 1))
               : 0;
}

uint32_t step_draft_go_on(struct driver *driver, struct slot *slot, uint32_t n_wanted,
                          uint32_t most)
{
    struct sequence *sequence = slot->sequence;
    const struct speculation_pass pass = {
        .n_rows = 1, .n_tokens = 1, .each_ns = step_draft_each_ns(driver, SPECULATION_OF_MODEL)};
    struct drafter_guesses guesses;
    if (drafter_answer(driver->drafter, sequence->slot, sequence->id, slot->tokens, slot->n_placed,
                       &guesses))
        return step_draft_write(slot, slot->n_placed, guesses.tokens,
                                draft_smaller(most, guesses.n));
    const uint32_t n = draft_smaller(n_wanted, ASKED_MAX);
    if (!n || !draft_may_ask(driver, slot, slot->n_placed, &pass, n) ||
        !draft_ask_about(driver, slot, slot->n_placed, n, NULL, true))
        return 0;
    for (uint32_t i = 0; i < driver->n_microbatches; i++) /* the model may compute where they do */
        driver->microbatches[i].is_crowded = true;
    return 0;
}

bool step_draft_is_awaited(const struct driver *driver, uint32_t slot)
{
    const struct sequence *sequence = driver->slots.slots[slot].sequence;
    return driver->drafter && sequence && !sequence->train.is_of_model &&
           drafter_is_asked(driver->drafter, slot, sequence->id);
}

/* ---- both ---- */

static bool draft_asks_beside(const struct driver *driver, const struct slot *slot, uint32_t most)
{
    if (!step_beside_is_possible(driver))
        return false;
    if (driver->options.speculate == SPECULATE_ALWAYS)
        return slot->n_known % 3;
    return speculation_asks_beside(&slot->sequence->speculation, &driver->costs,
                                   draft_smaller(most, ASKED_MAX),
                                   step_draft_each_ns(driver, SPECULATION_OF_MODEL));
}

/* Where the text does not go on, and the sequence has several devices to itself, the model guesses
 * while the known token travels; or while the only device computes, if the model is elsewhere. */
static bool draft_begin_train(const struct driver *driver, const struct slot *slot, uint32_t most,
                              const struct speculation_pass *pass, struct step_draft *out)
{
    const bool is_of_text = out->n_tokens && out->n_match != SPECULATION_OF_MODEL;
    if (!most || pass->n_rows != 1 || slot->sequence->train.distance || is_of_text ||
        !draft_knows_text(driver, slot->sequence) ||
        !(step_ahead_is_possible(driver) || draft_asks_beside(driver, slot, most)))
        return false;
    out->n_match = SPECULATION_OF_MODEL;
    return true;
}

/* The text is asked first, for it costs nothing. True: the model was asked. */
static bool draft_choose(struct driver *driver, uint32_t index, uint32_t room,
                         struct speculation_pass *pass, struct step_draft *out)
{
    struct slot *slot = &driver->slots.slots[index];
    struct draft_train *train = &slot->sequence->train;
    const uint32_t most = draft_smaller(
        draft_smaller(step_draft_most(driver, slot, slot->n_placed), room), SPECULATION_DRAFT_MAX);
    const bool is_test = driver->options.speculate == SPECULATE_ALWAYS && driver->drafter,
               was_awaited = !train->is_of_model; /* else it has guessed beside passes */
    *train = (struct draft_train){0};
    if (!is_test || slot->sequence->generated % 2) /* in tests by turns */
        draft_look_up(driver, slot, most, pass, out);
    const bool has_answered = draft_take(driver, index, most, pass, was_awaited, out),
               is_of_text = out->n_tokens && out->n_match != SPECULATION_OF_MODEL;
    if (draft_begin_train(driver, slot, most, pass, out))
        train->is_of_model = true;
    else if (!has_answered && !train->distance && !(is_test && is_of_text) &&
             draft_ask(driver, index, most, pass, out))
        return true;
    if (out->n_match == out->foreseen_match && out->n_tokens)
        out->foreseen = -1; /* it is drafted */
    draft_add(slot, pass, out);
    return false;
}

bool step_draft(struct driver *driver, const struct schedule *schedule, const uint32_t *slots,
                uint32_t rows, struct step_draft *out)
{
    const bool is_possible = draft_is_possible(driver, schedule, slots);
    struct speculation_pass pass = {.n_rows = schedule->n_rows, .n_tokens = schedule->n_rows};
    uint32_t room = draft_smaller(rows - draft_smaller(rows, schedule->n_rows), OUTPUT_ALL_ROWS);
    bool has_asked = false;
    for (uint32_t i = 0; i < schedule->n_shares; i++) {
        out[i] = (struct step_draft){.foreseen = -1};
        if (is_possible &&
            draft_choose(driver, slots[schedule->shares[i].item], room, &pass, &out[i]))
            has_asked = true;
        room -= out[i].n_tokens;
    }
    return !has_asked;
}

/* ---- what comes back ---- */

void step_draft_learn(struct driver *driver, const struct microbatch *microbatch)
{
    uint32_t n_rows = 0;
    if (microbatch->error.code || !microbatch->n_shares)
        return; /* it was not computed as usual, or by no stage */
    driver->may_draft = microbatch->has_stable_bits && !driver->slots.whole_only;
    for (uint32_t i = 0; i < microbatch->n_shares; i++) {
        const struct share *share = &microbatch->shares[i];
        if (!share->pick || share->n_rows != 1 + share->n_drafted || share_is_void(share))
            return;
        n_rows += share->n_rows;
    }
    uint64_t took_ns = clock_now_ns() - microbatch->sent_ns;
    if (microbatch->was_short || took_ns <= microbatch->held_up_ns)
        return;
    took_ns -= microbatch->held_up_ns;
    if (driver->pipe.n_devices)
        speculation_costs_note(&driver->pipe.slowest, n_rows, microbatch->slowest_ns);
    if (microbatch->is_ahead)
        return; /* it waited for those before it */
    if (driver->pipe.n_devices)
        speculation_pipe_note(&driver->pipe, &driver->costs, n_rows, took_ns,
                              microbatch->is_crowded);
    else
        speculation_costs_note(&driver->costs, n_rows, took_ns);
}

/* What stands in the pass beside the share's draft. */
static struct speculation_pass draft_beside(const struct microbatch *microbatch,
                                            const struct share *share)
{
    struct speculation_pass pass = {.n_tokens = microbatch->n_shares,
                                    .all_ns = (double)share->draft_ns};
    for (uint32_t i = 0; i < microbatch->n_shares; i++)
        pass.n_rows += microbatch->shares[i].n_rows;
    pass.n_rows -= share->n_drafted;
    return pass;
}

/* The last token that a share tells is a guess of what follows it, or nothing follows. */
static bool draft_goes_on(const struct slot *slot, const struct share *share,
                          const struct pick *picks)
{
    const uint32_t end = share->position + share->n_rows;
    return slot->n_placed == end || picks[share->n_drafted].token == slot->tokens[end];
}

static void draft_pay(struct driver *driver, struct sequence *sequence,
                      const struct microbatch *microbatch, const struct share *share,
                      uint32_t n_right)
{
    const bool is_decoding = share->n_rows == 1 + share->n_drafted; /* the end of no prompt */
    if (driver->pipe.n_devices && is_decoding && (share->n_drafted || microbatch->is_crowded)) {
        speculation_pay_train(&sequence->speculation, &driver->costs, &driver->pipe, share->n_rows,
                              share->is_ahead, n_right + 1,
                              step_draft_each_ns(driver, share->n_match));
        return;
    }
    const struct speculation_pass pass = draft_beside(microbatch, share);
    speculation_pay(&sequence->speculation, &driver->costs, &pass, share->n_drafted, n_right);
    if (!share->n_drafted)
        speculation_fade_model(&driver->drafts_of_late);
}

/* What the model guessed, be it checked or not, against what has come: as far as that says. False:
 * there is nothing of it. */
static bool draft_compare(struct driver *driver, struct sequence *sequence, const struct slot *slot,
                          uint32_t first, const struct pick *picks, uint32_t n_picks)
{
    struct drafter_guesses guesses;
    uint32_t n = 0, n_right = 0;
    if (!driver->drafter || !drafter_recall(driver->drafter, sequence->slot, sequence->id,
                                            slot->tokens, first, &guesses))
        return false;
    while (n < guesses.n && n < n_picks && n_right == n) {
        const bool is_right = picks[n].token == guesses.tokens[n];
        speculation_note_confidence(&sequence->speculation, guesses.confidences[n], is_right);
        speculation_note_confidence(&driver->drafts_of_late, guesses.confidences[n], is_right);
        n_right += is_right;
        n++;
    }
    speculation_note(&sequence->speculation, SPECULATION_OF_MODEL, n, n_right);
    speculation_note(&driver->drafts_of_late, SPECULATION_OF_MODEL, n, n_right);
    return true;
}

void step_draft_settle(struct driver *driver, struct sequence *sequence,
                       const struct microbatch *microbatch, struct share *share)
{
    struct slot *slot = &driver->slots.slots[share->slot];
    const struct pick *picks = &microbatch->picks[share->first_pick];
    const uint32_t first = share->position + share->n_rows - share->n_drafted;
    uint32_t n_right = 0;
    assert(share->n_picks && share->n_picks <= 1 + share->n_drafted);
    while (n_right + 1 < share->n_picks && picks[n_right].token == slot->tokens[first + n_right])
        n_right++;
    share->n_picks = n_right + 1; /* a stage elsewhere may say more */
    const bool is_followed = slot->n_placed > first + share->n_drafted,
               goes_on = n_right == share->n_drafted && draft_goes_on(slot, share, picks);
    uint32_t n_guessed = share->n_drafted + is_followed, n_accepted = n_right;
    if (is_followed && goes_on) {
        n_accepted++;
        sequence->accepted++; /* the first of what follows */
        driver->gain.accepted_tokens++;
    }
    const uint32_t n_match = share->n_match;
    if (share->foreseen >= 0 && (!n_guessed || n_match != share->foreseen_match))
        speculation_note(&sequence->speculation, share->foreseen_match, 0,
                         picks[0].token == share->foreseen);
    const bool was_compared =
        !share->is_ahead && draft_compare(driver, sequence, slot, first, picks, share->n_picks);
    if (n_match && n_guessed && (n_match != SPECULATION_OF_MODEL || !was_compared))
        speculation_note(&sequence->speculation, n_match, n_guessed, n_accepted);
    if (n_match == SPECULATION_OF_MODEL && n_guessed && !was_compared)
        speculation_note(&driver->drafts_of_late, n_match, n_guessed, n_accepted);
    draft_pay(driver, sequence, microbatch, share, n_right);
    if (!share->is_ahead) {
        sequence->drafted += share->n_drafted;
        driver->gain.drafted_tokens += share->n_drafted;
    }
    if (goes_on)
        return;
    slot->n_cuts++;
    step_push_operation(driver,
                        (struct cache_operation){.slot = share->slot, .length = first + n_right});
    slot_table_cut(&driver->slots, share->slot, first + n_right);
}
