/* A draft model: a smaller one of the same tokens, which says how a text probably goes on
 * (Leviathan, Kalman, Matias 2023; Chen et al. 2023).
 *
 * It is a driver of its own, on a device of its own or on one of the large model's. Each question
 * is a request: all tokens of a sequence so far, and how many more are wanted. What the caches of
 * the draft model have of them stays, what they have beyond (guesses that were wrong) is cut off,
 * as for any prompt that begins like another: so its cache is in step with the text without a word
 * about it. It picks with the sequence's own sampler and seed, so where both models see the same
 * probabilities both choose the same token, also at a high temperature.
 *
 * Its stages may be in the processes of their devices. What is lost there ends the question under
 * way without guesses, and it is asked again once the stages are back.
 *
 * Or it is no driver of its own but somebody else's, which is reached through the cluster, and has
 * questions of others to answer, too. That may be gone in the middle of a question. So an answer
 * that takes much longer than was expected is waited for no more, and after each question that
 * failed nobody asks for a while.
 *
 * Threading: everything but `ready` and drafter_mind() is the baton holder's of the driver that
 * asks. */
#pragma once

#include "pipeline/driver.h"
#include "pipeline/speculation_confidence.h"

struct drafter;
struct sampler_params;

/* `ready`: guesses are there, or none will come; from a thread of the draft model's, which it must
 * not hold up. */
enum error_code drafter_open(const struct driver_draft *draft, const struct model *model,
                             const struct driver_options *options, void (*ready)(void *arg),
                             void *arg, struct drafter **out, struct error *err);
void drafter_close(struct drafter *drafter); /* NULL is fine. `ready` may come until it returns */

bool drafter_is_apart(const struct drafter *drafter);  /* driver_draft.is_apart */
uint64_t drafter_bytes(const struct drafter *drafter); /* of its stages */

/* What it takes to guess one token more, and to read what it has not seen of a sequence of n tokens
 * in that slot; little of it is part of the former. `pass_ns`, `row_ns`: what one row takes the
 * model, and one of a prompt (0: not known), as long as nothing was measured here. */
double drafter_token_ns(const struct drafter *drafter, double pass_ns);
/* Nobody asks it at that price. What was measured is believed a little less each time, for it may
 * have been held up by others. */
void drafter_doubt(struct drafter *drafter, double pass_ns);
double drafter_reading_ns(const struct drafter *drafter, uint32_t slot, uint64_t sequence,
                          uint32_t n, double pass_ns, double row_ns);

/* Something was lost in a lane, or is there again (driver_draft.lanes); or, where it is elsewhere,
 * some time has passed. One thread at a time. */
void drafter_mind(struct drafter *drafter);

struct drafter_question {
    uint32_t slot;
    uint64_t sequence;
    const int32_t *tokens; /* copied */
    uint32_t n_tokens;
    uint32_t n_wanted; /* at most SPECULATION_DRAFT_MAX */
    const struct sampler_params *sampler;
    uint64_t cache_key;
    double expected_ns; /* until all of the answer is there */
    bool streams;       /* nobody waits for the answer: guesses may be taken one by one as they
                           come, and `ready` comes with each */
    /* What ends it before n_wanted guesses; NULL: nothing does. Copied. */
    const struct speculation_end *end;
};
/* False: not now. It is still busy with another sequence of that slot, has no room, is short of
 * memory, or has failed. */
bool drafter_ask(struct drafter *drafter, const struct drafter_question *question);
/* It was asked, and is waited for. */
bool drafter_is_asked(const struct drafter *drafter, uint32_t slot, uint64_t sequence);
struct drafter_guesses { /* valid until the slot is asked about again */
    const int32_t *tokens;
    uint32_t n;                        /* may be 0: it knows nothing */
    bool is_rest;                      /* others of the same answer stood before them */
    const struct speculation_end *end; /* the question's; NULL: it had none, and so: */
    const uint8_t *confidences;        /* [n] classes (speculation_confidence.h) */
    uint64_t took_ns;                  /* without the reading; of a rest 0 */
};
/* How these n tokens go on, by what it has answered about them, or about fewer of them if the rest
 * is as it guessed; false: it was not asked, or says no more, or not yet. A question that streams
 * ends early where the rest is another. */
bool drafter_answer(struct drafter *drafter, uint32_t slot, uint64_t sequence,
                    const int32_t *tokens, uint32_t n_tokens, struct drafter_guesses *out);
/* The same again, of an answer that has come to a question with an end: to learn from. */
bool drafter_recall(const struct drafter *drafter, uint32_t slot, uint64_t sequence,
                    const int32_t *tokens, uint32_t n_tokens, struct drafter_guesses *out);
