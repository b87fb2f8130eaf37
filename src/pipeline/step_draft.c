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

/* Tokens that the slot has room for: the last one of the answer comes from a row before it. In a
 * pool no further than the extent that the sequence's own row is in, so a draft takes no cells from
 * others. */
static uint32_t draft_most(const struct driver *driver, const struct slot *slot)
{
    const struct request *request = &slot->sequence->request;
    uint32_t most = draft_smaller(driver->options.context - 1 - slot->n_known,
                                  request->n_predict - 1 - slot->sequence->generated);
    if (slot_table_is_pool(&driver->slots))
        most = draft_smaller(most, KV_PADDING - 1 - slot->n_placed % KV_PADDING);
    return draft_smaller(most, SPECULATION_DRAFT_MAX);
}

/* Writes how the text went on before behind the slot's tokens; less where that ends an answer. */
static uint32_t draft_write(const struct slot *slot, uint32_t from, uint32_t most)
{
    uint32_t n = 0;
    for (; n < most; n++) {
        const int32_t token = slot->tokens[from + n]; /* its own, where that is all there is */
        if (sequence_is_stop(slot->sequence, token))
            break;
        slot->tokens[slot->n_known + n] = token;
    }
    return n;
}

static void draft_choose(struct driver *driver, const struct slot *slot, uint32_t room,
                         struct speculation_pass *pass, struct step_draft *out)
{
    const struct speculation *speculation = &slot->sequence->speculation;
    const uint32_t most = draft_most(driver, slot);
    const uint32_t from = most ? lookup_find(slot->tokens, slot->n_known, &out->n_match) : 0;
    const uint32_t n = from ? draft_write(slot, from, draft_smaller(most, room)) : 0;
    if (!n)
        return;
    out->n_tokens = driver->options.speculate == SPECULATE_ALWAYS
                        ? n
                        : speculation_length(speculation, &driver->costs, pass, out->n_match, n);
    if (!out->n_tokens)
        out->foreseen = slot->tokens[slot->n_known];
    pass->n_rows += out->n_tokens;
    pass->n_tokens += speculation_expected(speculation, out->n_match, out->n_tokens);
}

void step_draft(struct driver *driver, const struct schedule *schedule, const uint32_t *slots,
                uint32_t rows, struct step_draft *out)
{
    const bool is_possible = draft_is_possible(driver, schedule, slots);
    struct speculation_pass pass = {schedule->n_rows, schedule->n_rows};
    uint32_t room = draft_smaller(rows - draft_smaller(rows, schedule->n_rows), OUTPUT_ALL_ROWS);
    for (uint32_t i = 0; i < schedule->n_shares; i++) {
        out[i] = (struct step_draft){.foreseen = -1};
        if (is_possible)
            draft_choose(driver, &driver->slots.slots[slots[schedule->shares[i].item]], room, &pass,
                         &out[i]);
        room -= out[i].n_tokens;
    }
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
    if (!microbatch->was_short)
        speculation_costs_note(&driver->costs, n_rows, clock_now_ns() - microbatch->sent_ns);
}

/* What stands in the pass beside the share's draft. */
static struct speculation_pass draft_beside(const struct microbatch *microbatch,
                                            const struct share *share)
{
    struct speculation_pass pass = {0, microbatch->n_shares};
    for (uint32_t i = 0; i < microbatch->n_shares; i++)
        pass.n_rows += microbatch->shares[i].n_rows;
    pass.n_rows -= share->n_drafted;
    return pass;
}

void step_draft_settle(struct driver *driver, struct sequence *sequence,
                       const struct microbatch *microbatch, struct share *share)
{
    const struct slot *slot = &driver->slots.slots[share->slot];
    const struct pick *picks = &microbatch->picks[share->first_pick];
    const uint32_t first = share->position + share->n_rows - share->n_drafted;
    const struct speculation_pass pass = draft_beside(microbatch, share);
    uint32_t n_right = 0;
    assert(share->n_picks && share->n_picks <= 1 + share->n_drafted);
    while (n_right + 1 < share->n_picks && picks[n_right].token == slot->tokens[first + n_right])
        n_right++;
    share->n_picks = n_right + 1; /* a stage elsewhere may say more */
    const uint32_t n_accepted =
        share->n_drafted ? n_right : share->foreseen >= 0 && picks[0].token == share->foreseen;
    if (share->n_match && (share->n_drafted || share->foreseen >= 0))
        speculation_note(&sequence->speculation, share->n_match, share->n_drafted, n_accepted);
    speculation_pay(&sequence->speculation, &driver->costs, &pass, share->n_drafted, n_right);
    sequence->drafted += share->n_drafted;
    driver->gain.drafted_tokens += share->n_drafted;
    if (n_right == share->n_drafted)
        return;
    step_push_operation(driver,
                        (struct cache_operation){.slot = share->slot, .length = first + n_right});
    slot_table_cut(&driver->slots, share->slot, first + n_right);
}
