/* How many tokens to draft where the stages are on several devices, for one stream alone. Pure: no
 * clock, no memory, no other state.
 *
 * A micro-batch is away for as long as all stages and the links between them take. Meanwhile others
 * can follow it with nothing but guesses, one behind the other: a train. The first has the last
 * known token and maybe guesses, n rows; each of those that follow has n rows, all guesses. While
 * all is right, they come back one by one, as far apart as the slowest stage or the number under
 * way says:
 *
 *     gap = max(slowest(n), pass(n) / under way)
 *
 * With the share a of guesses that turn out right, the first wrong one comes after 1 / (1 - a)
 * tokens, and a^n / (1 - a^n) micro-batches behind the first. So a train gives
 *
 *     1 / (1 - a) tokens in pass(n) + gap a^n / (1 - a^n)
 *
 * and a draft that nothing follows (1 - a^n) / (1 - a) in pass(n). What is behind a wrong guess is
 * computed in vain, before the right token comes by: that costs nothing but where stages share a
 * processor, or links are short. `crowding` is what it was measured to cost. Where nothing crowds,
 *
 *     pass(n) = pass(1) + stages (slowest(n) - slowest(1))
 *
 * for links carry n rows as fast as one.
 *
 * A draft model guesses while the first micro-batch, of the known token alone, is under way. Of
 * each that follows all n guesses take n each_ns, so
 *
 *     gap = max(slowest(n), pass(n) / under way, n each_ns)
 *
 * and, since the first wrong guess is in the micro-batch i behind the first with a^(1 + (i - 1) n),
 * a train gives
 *
 *     1 / (1 - a) tokens in pass(1) + a (pass(n) - pass(1)) + gap a / (1 - a^n) */
#pragma once

#include "pipeline/speculation.h"

/* Of a driver, beside its speculation_costs. Zeroed: nothing is known. */
struct speculation_pipe {
    struct speculation_costs slowest; /* what the slowest stage computes, for so many rows */
    double crowding;                 /* a pass with guesses under way takes so many times as long */
    uint32_t n_crowded;              /* such passes since the last one of one row that was alone */
    uint32_t n_devices, n_under_way; /* micro-batches at most; constant */
};

struct speculation_train {
    uint32_t n_drafted;   /* in the first, beside its known token */
    uint32_t n_ahead;     /* rows of each that follows; 0: none does */
    uint32_t n_under_way; /* at most so many micro-batches: more would only wait for each other */
};

/* After a match of n_match tokens, of which the text says at most `most` more; or for a draft model
 * that takes each_ns for a guess (0 with a match). */
struct speculation_train speculation_train(const struct speculation *speculation,
                                           const struct speculation_costs *costs,
                                           const struct speculation_pipe *pipe, uint32_t n_match,
                                           uint32_t most, double each_ns);

/* With one device there are no trains. But a draft model on a machine of its own can guess while
 * that computes: what follows the known token, which goes alone, and then what follows the guesses
 * that are checked. With n rows as many as it guesses in a pass,
 *
 *     1 / (1 - a) tokens in pass(1) + pass(n) a / (1 - a^n)
 *
 * since all guesses of a pass are right, and the next one is, with a^n. Whether that is better than
 * to wait for guesses before each pass; `most` rows, and a guess takes each_ns. */
bool speculation_asks_beside(const struct speculation *speculation,
                             const struct speculation_costs *costs, uint32_t most, double each_ns);

/* What a pass took that was behind no other; `is_crowded`: beside guesses that were under way. */
void speculation_pipe_note(struct speculation_pipe *pipe, struct speculation_costs *costs,
                           uint32_t n_rows, uint64_t ns, bool is_crowded);

/* The account: a micro-batch of n_rows brought n_tokens, and each of its guesses took each_ns. By
 * what passes usually take, for one may have been held up by others. */
void speculation_pay_train(struct speculation *speculation, const struct speculation_costs *costs,
                           const struct speculation_pipe *pipe, uint32_t n_rows, bool is_ahead,
                           uint32_t n_tokens, double each_ns);
