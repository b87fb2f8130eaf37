/* What the picker knows of grammars (request/constraint.h): the model's tokens as a vocabulary, the
 * matchers of late, and how far each slot's answer has come.
 *
 * Nothing of that travels. The run of a slot is rebuilt from the tokens that stand in it, from the
 * answer's first on, whenever it is not where it should be: after a hand-over, after a new start,
 * at another driver. One thread at a time, but for constrain_open_vocabulary(). */
#pragma once

#include "request/constraint.h"

#include <stdint.h>

struct constrain;
struct model;

/* In the place of a token. REFUSED: the grammar could not be made ready here. */
enum { CONSTRAIN_ENDS = -1, CONSTRAIN_FAILS = -2, CONSTRAIN_REFUSED = -3 };

/* `model` is read when a grammar is met first, and outlives it. */
enum error_code constrain_new(const struct model *model, uint32_t n_slots, uint32_t n_vocab,
                              struct constrain **out, struct error *err);
void constrain_free(struct constrain *constrain); /* NULL is fine */

/* Reads the model's tokens, once; any thread. ERROR_UNSUPPORTED and the like: it has none that can
 * be read. */
enum error_code constrain_open_vocabulary(struct constrain *constrain, const struct model *model,
                                          struct error *err);

/* For that: the vocabulary is the constrain's from then on. */
bool constrain_has_vocabulary(const struct constrain *constrain);
void constrain_give_vocabulary(struct constrain *constrain, struct grammar_vocabulary *vocabulary);

/* The slot has another request now. */
void constrain_forget(struct constrain *constrain, uint32_t slot);
/* The answer's token `index` is another than it was: it had been guessed. */
void constrain_change(struct constrain *constrain, uint32_t slot, uint32_t index);

/* The logits with all that the grammar rules out at -inf, good until the next call: the answer so
 * far being the n tokens. NULL: *instead says why no token may come, and `why` why it was
 * REFUSED. */
const float *constrain_logits(struct constrain *constrain, struct constraint *constraint,
                              uint32_t slot, const int32_t *answer, uint32_t n, const float *logits,
                              int32_t *instead, struct error *why);
/* Whether the token may come where constrain_logits() was asked last. */
bool constrain_allows(const struct constrain *constrain, int32_t token);
/* The best of those that may. */
int32_t constrain_best(const struct constrain *constrain);
