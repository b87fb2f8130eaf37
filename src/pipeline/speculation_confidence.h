/* How far a draft model guesses for one pass: until what it has guessed is too unsure. Pure: no
 * clock, no memory, no other state.
 *
 * A guess has a class, by the probability that the draft model gave the token it picked. Of each
 * class c it is learnt which share a_c of its guesses is right where all before them were, so that
 * guesses of the classes c1, c2 … give
 *
 *     P_1 + P_2 + ... + P_n                with P_i = a_c1 a_c2 ... a_ci
 *
 * tokens more. Time is worth the tokens that come in it anyway: those of the best draft of a fixed
 * length (speculation.h). So n guesses that are checked are worth
 *
 *     V(n) = P_1 + ... + P_n - rate pass(n)
 *
 * and of those that were made as many are checked as make that largest. Another guess, of which
 * nobody knows the class before it is made, is expected to add
 *
 *     sum over classes of share_c max(0, V(n) + P_n a_c - rate (pass(n + 1) - pass(n)) - V(best))
 *
 * and is made while that is more than the rate times what a guess takes. What may follow it is
 * looked at likewise, one guess further.
 *
 * Guesses that were made and not checked are compared for nothing: where all that were checked are
 * right, the pass tells what the next token is. So a class that is never checked is learnt, too. */
#pragma once

#include "pipeline/speculation.h"

/* The class of a guess to which the draft model gave this probability. */
uint32_t speculation_confidence(double probability);
/* A guess of that class, before which all were right. */
void speculation_note_confidence(struct speculation *speculation, uint32_t confidence,
                                 bool is_right);
/* The share of such guesses that is expected to be right. */
double speculation_confidence_right(const struct speculation *speculation, uint32_t confidence);

/* What ends a draft: a copy, for whoever guesses on another thread. Everything in tokens. */
struct speculation_end {
    double right[SPECULATION_CONFIDENCES], share[SPECULATION_CONFIDENCES];
    double guess;                             /* the price of making one */
    double passes[SPECULATION_DRAFT_MAX + 1]; /* of a pass that checks so many, up to … */
    uint32_t most;                            /* … so many, at least 1 */
};
/* For a pass that has `pass` beside the draft, which is of n tokens where confidence says nothing
 * (speculation_length()); at most `most`, and no more than the account pays for. */
void speculation_end_fill(struct speculation_end *end, const struct speculation *speculation,
                          const struct speculation_costs *costs,
                          const struct speculation_pass *pass, uint32_t n, uint32_t most);
/* Behind n guesses of these classes: whether another is to be made. */
bool speculation_goes_on(const struct speculation_end *end, const uint8_t *confidences, uint32_t n);
/* How many of n guesses are worth being checked. */
uint32_t speculation_worth(const struct speculation_end *end, const uint8_t *confidences,
                           uint32_t n);
