#include "pipeline/picker.h"

#include "base/mem.h"

#include <assert.h>
#include <string.h>

struct picker {
    uint32_t n_slots;
    uint32_t context;
    struct sampler *sampler;
    struct pick_setup *setups; /* [n_slots] */
    int32_t *tokens;           /* [n_slots x context] */
    struct constrain *constrain;
};

void pick_setup_copy(struct pick_setup *to, const struct pick_setup *from)
{
    assert(from->params.n_biases <= LIMIT_LOGIT_BIAS);
    to->slot = from->slot;
    to->logprobs = from->logprobs;
    to->n_top = from->n_top;
    to->params = from->params;
    to->params.biases = to->biases;
    memcpy(to->biases, from->biases, from->params.n_biases * sizeof *to->biases);
    constraint_replace(&to->constraint, from->constraint);
    to->answer = from->answer;
}

void pick_setup_deinit(struct pick_setup *setup)
{
    constraint_replace(&setup->constraint, NULL);
}

void pick_setup_fill(struct pick_setup *setup, uint32_t slot, const struct sampler_params *params,
                     bool logprobs, uint32_t n_top)
{
    assert(params->n_biases <= LIMIT_LOGIT_BIAS && n_top <= LIMIT_TOP_LOGPROBS);
    setup->slot = slot;
    setup->logprobs = logprobs;
    setup->n_top = n_top;
    setup->params = *params;
    setup->params.biases = setup->biases;
    if (params->n_biases)
        memcpy(setup->biases, params->biases, params->n_biases * sizeof *setup->biases);
}

enum error_code picker_new(const struct model *model, uint32_t n_vocab, uint32_t n_slots,
                           uint32_t context, struct picker **out, struct error *err)
{
    struct picker *picker = mem_new(sizeof *picker);
    if (!picker)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for a picker");
    picker->n_slots = n_slots;
    picker->context = context;
    picker->setups = mem_new_array(n_slots, sizeof *picker->setups);
    picker->tokens = mem_new_array((size_t)n_slots * context, sizeof *picker->tokens);
    enum error_code code = ERROR_NONE;
    if (!picker->setups || !picker->tokens)
        code = error_set(err, ERROR_NO_MEMORY, "not enough memory for %u slots of %u tokens",
                         n_slots, context);
    if (!code)
        code = sampler_new(n_vocab, &picker->sampler, err);
    if (!code)
        code = constrain_new(model, n_slots, n_vocab, &picker->constrain, err);
    if (code) {
        picker_free(picker);
        return code;
    }
    *out = picker;
    return ERROR_NONE;
}

void picker_free(struct picker *picker)
{
    if (!picker)
        return;
    for (uint32_t i = 0; picker->setups && i < picker->n_slots; i++)
        pick_setup_deinit(&picker->setups[i]);
    constrain_free(picker->constrain);
    sampler_free(picker->sampler);
    mem_free(picker->setups);
    mem_free(picker->tokens);
    mem_free(picker);
}

static int32_t *tokens_of(const struct picker *picker, uint32_t slot)
{
    assert(slot < picker->n_slots);
    return picker->tokens + (size_t)slot * picker->context;
}

void picker_setup(struct picker *picker, const struct pick_setup *setup)
{
    assert(setup->slot < picker->n_slots);
    pick_setup_copy(&picker->setups[setup->slot], setup);
    constrain_forget(picker->constrain, setup->slot);
}

struct constrain *picker_constrain(const struct picker *picker)
{
    return picker->constrain;
}

void picker_note(struct picker *picker, uint32_t slot, uint32_t position, int32_t token)
{
    assert(position < picker->context);
    int32_t *at = &tokens_of(picker, slot)[position];
    const uint32_t answer = picker->setups[slot].answer;
    if (*at != token && position >= answer) /* another was guessed */
        constrain_change(picker->constrain, slot, position - answer);
    *at = token;
}

int32_t picker_token(const struct picker *picker, uint32_t slot, uint32_t position)
{
    assert(position < picker->context);
    return tokens_of(picker, slot)[position];
}

void picker_copy(struct picker *picker, uint32_t from, uint32_t to, uint32_t length)
{
    assert(length <= picker->context && from != to);
    memcpy(tokens_of(picker, to), tokens_of(picker, from), length * sizeof *picker->tokens);
}

/* What the sampler chooses of what the grammar allows. A bias may force another token: the best of
 * those that may come is taken then. */
static int32_t picker_pick_constrained(struct picker *picker, const struct pick_setup *setup,
                                       uint32_t position, const float *logits, struct error *why)
{
    const int32_t *tokens = tokens_of(picker, setup->slot);
    int32_t token;
    if (position < setup->answer) /* a driver elsewhere is wrong */
        return CONSTRAIN_FAILS;
    const float *allowed =
        constrain_logits(picker->constrain, setup->constraint, setup->slot, tokens + setup->answer,
                         position - setup->answer, logits, &token, why);
    if (!allowed)
        return token;
    token = sampler_pick(picker->sampler, &setup->params, allowed, tokens, position, position);
    return constrain_allows(picker->constrain, token) ? token : constrain_best(picker->constrain);
}

void picker_pick(struct picker *picker, uint32_t slot, uint32_t position, const float *logits,
                 struct pick *out, struct error *why)
{
    const int32_t *tokens = tokens_of(picker, slot);
    assert(position <= picker->context);
    const struct pick_setup *setup = &picker->setups[slot];
    out->token = setup->constraint ? picker_pick_constrained(picker, setup, position, logits, why)
                                   : sampler_pick(picker->sampler, &setup->params, logits, tokens,
                                                  position, position);
    out->n_top = setup->n_top;
    out->logprob = 0;
    if (out->token < 0) {
        out->n_top = 0;
        return;
    }
    if (setup->logprobs || setup->n_top)
        out->logprob = sampler_logprobs(picker->sampler, logits, out->token, out->top, out->n_top);
}
