/* The end of the pipeline: from the last stage's logits to tokens.
 *
 * Tokens are chosen where the last stage is, so that a token and not a vocabulary's worth of logits
 * travels back to the driver. The picker therefore remembers, for every slot, the sampler's
 * settings and the tokens that stand in the slot's cache; both come down the pipeline with the
 * micro-batches, in the order in which every stage sees them. What it picks depends on those alone
 * (engine/sampler.h), so the driver can move the end of the pipeline elsewhere and get the same
 * text.
 *
 * Threading: the last stage's device thread. No allocation after picker_new(), but for what a
 * grammar is met with first. */
#pragma once

#include "base/limits.h"
#include "engine/sampler.h"
#include "pipeline/constrain.h"

#include <stdbool.h>

/* How the tokens of a slot are to be chosen from now on. */
struct pick_setup {
    uint32_t slot;
    bool logprobs;
    uint32_t n_top; /* most probable tokens to be told with each, at most LIMIT_TOP_LOGPROBS */
    struct sampler_params params; /* `biases` is not used: they follow */
    struct logit_bias biases[LIMIT_LOGIT_BIAS];
    struct constraint *constraint; /* kept; NULL: none */
    uint32_t answer;               /* the position of the answer's first token */
};

/* Gives back what it keeps. */
void pick_setup_deinit(struct pick_setup *setup);
/* `n_biases` and what else the sampler checks must have passed sampler_check(). */
void pick_setup_fill(struct pick_setup *setup, uint32_t slot, const struct sampler_params *params,
                     bool logprobs, uint32_t n_top);
void pick_setup_copy(struct pick_setup *to,
                     const struct pick_setup *from); /* only the biases that there are */

struct pick {
    int32_t token; /* or CONSTRAIN_ENDS, …_FAILS, …_REFUSED */
    float logprob; /* when asked for */
    uint32_t n_top;
    struct token_logprob top[LIMIT_TOP_LOGPROBS];
};

struct picker;
/* `model`: whose tokens they are; outlives it. */
enum error_code picker_new(const struct model *model, uint32_t n_vocab, uint32_t n_slots,
                           uint32_t context, struct picker **out, struct error *err);
void picker_free(struct picker *picker); /* NULL is fine */

/* For grammars. */
struct constrain *picker_constrain(const struct picker *picker);

void picker_setup(struct picker *picker, const struct pick_setup *setup);
void picker_note(struct picker *picker, uint32_t slot, uint32_t position, int32_t token);
int32_t picker_token(const struct picker *picker, uint32_t slot, uint32_t position); /* as noted */
void picker_copy(struct picker *picker, uint32_t from, uint32_t to, uint32_t length);

/* The token that will stand at `position` of the slot, all before it having been noted. `why`:
 * where it is CONSTRAIN_REFUSED. */
void picker_pick(struct picker *picker, uint32_t slot, uint32_t position, const float *logits,
                 struct pick *out, struct error *why);
