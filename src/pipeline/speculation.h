/* How many tokens to draft: learnt from what passes of so many rows cost, and from how often drafts
 * were right. Pure: no clock, no memory, no other state.
 *
 * A pass of n + k rows, of which k are drafted, gives the tokens of n rows and as many more as are
 * accepted. With the share a of drafted tokens that turn out right, a draft of k tokens gives
 *
 *     a + a^2 + ... + a^k                  (Leviathan, Kalman, Matias 2023, equation 1)
 *
 * tokens more. The length is taken that gives most tokens a second, if that is clearly more than
 * without a draft.
 *
 * What is learnt of a costs nothing: where nothing is drafted, the token that would have been is
 * compared with the one that came. Matches of other lengths are trusted apart, and so is a draft
 * model. What that says where nobody asks it is not known: its acceptance goes back to what may be
 * expected of any, slowly, so that it is tried again. Whether it is asked is decided here; where it
 * ends, by how sure it is (speculation_confidence.h).
 *
 * A request that does not repeat must not pay. So it has an account, in passes of one row, which
 * begins with a small share of what the request will take: a draft pays in what it saved or takes
 * out what it cost beyond that, a pass without a draft pays in little, and no draft may be dearer
 * than what is there. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum {
    SPECULATION_ROWS_MAX = 96,   /* of a pass with drafts */
    SPECULATION_DRAFT_MAX = 31,  /* tokens of one draft */
    SPECULATION_CLASSES = 4,     /* of guesses: after short, middling, long matches; of a model */
    SPECULATION_CONFIDENCES = 6, /* classes of a model's own (speculation_confidence.h) */
};
/* Stands for n_match where a draft model guesses. */
#define SPECULATION_OF_MODEL UINT32_MAX

/* A driver's passes of 1 to SPECULATION_ROWS_MAX rows, each of them a token that is decoded. */
struct speculation_costs {
    uint64_t pass_ns[SPECULATION_ROWS_MAX + 1];  /* 0: not known */
    uint64_t noted_at[SPECULATION_ROWS_MAX + 1]; /* counts passes: what is old is forgotten */
    uint8_t n_noted[SPECULATION_ROWS_MAX + 1];   /* of late: the first few may tell too much */
    uint64_t n_passes;
};

void speculation_costs_note(struct speculation_costs *costs, uint32_t n_rows, uint64_t ns);
/* Between measured lengths and beyond them: on the line through the two nearest. 0: nothing is
 * known yet. */
double speculation_cost(const struct speculation_costs *costs, uint32_t n_rows);
/* What drafts are compared with was measured long ago: all passes since had some. */
bool speculation_cost_is_old(const struct speculation_costs *costs, uint32_t n_rows);

/* Of one request; zeroed: nothing is known of it. */
struct speculation {
    float n_right[SPECULATION_CLASSES], n_tried[SPECULATION_CLASSES]; /* of late */
    float account; /* passes that drafts may cost */
    /* A model's guesses, by how sure it was of them (speculation_confidence.h). */
    float n_sure_right[SPECULATION_CONFIDENCES], n_sure_tried[SPECULATION_CONFIDENCES];
};

/* The share of a draft's tokens that are expected to be right. */
double speculation_acceptance(const struct speculation *speculation, uint32_t n_match);

/* Of a request that will probably take as long as n_passes of one row, its prompt with it.
 * `of_late`: what drafts of a model have been in others; zeroed: nothing is known. */
void speculation_begin(struct speculation *speculation, const struct speculation *of_late,
                       double n_passes);

/* What stands in the pass already: rows, and tokens that are expected of them; and what all of it
 * waits for guesses: for each, and for all. */
struct speculation_pass {
    uint32_t n_rows; /* the request's own row among them */
    double n_tokens;
    double each_ns, all_ns;
};
/* How many tokens to draft after a match of n_match tokens, at most `most`; 0: none. */
uint32_t speculation_length(const struct speculation *speculation,
                            const struct speculation_costs *costs,
                            const struct speculation_pass *pass, uint32_t n_match, uint32_t most);
/* Tokens a nanosecond of a pass with a draft of n tokens. */
double speculation_rate(const struct speculation *speculation,
                        const struct speculation_costs *costs, const struct speculation_pass *pass,
                        uint32_t n_match, uint32_t n);
/* So many times as many tokens a second with a draft of n tokens. */
double speculation_gain(const struct speculation *speculation,
                        const struct speculation_costs *costs, const struct speculation_pass *pass,
                        uint32_t n_match, uint32_t n);
/* Tokens that a draft of that length is expected to give. */
double speculation_expected(const struct speculation *speculation, uint32_t n_match, uint32_t n);

/* A draft of n_drafted tokens (0: one was only compared, so n_accepted is 0 or 1) after such a
 * match, of which n_accepted were right. */
void speculation_note(struct speculation *speculation, uint32_t n_match, uint32_t n_drafted,
                      uint32_t n_accepted);
/* A token came without a draft: what is known of a model's fades, so that a few that were wrong do
 * not end it for good. speculation_pay() does it for the request's own. */
void speculation_fade_model(struct speculation *speculation);
/* The account: a pass that had `pass` beside the draft of n_drafted tokens; 0: there was none. */
void speculation_pay(struct speculation *speculation, const struct speculation_costs *costs,
                     const struct speculation_pass *pass, uint32_t n_drafted, uint32_t n_accepted);
/* So many passes of one row were saved. */
void speculation_earn(struct speculation *speculation, double passes);
/* What is there: passes that a draft may cost. */
double speculation_credit(const struct speculation *speculation);
