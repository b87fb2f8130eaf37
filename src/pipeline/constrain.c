#include "pipeline/constrain.h"

#include "base/mem.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

enum { CONSTRAIN_MATCHERS = 16 };

struct constrain_matcher {
    struct constraint *constraint;
    struct grammar_matcher *matcher;
    uint64_t used;
};

struct constrain_slot {
    struct grammar_run run;
    struct constraint *constraint; /* whose run it is */
    uint32_t n_taken;              /* tokens of the answer */
};

struct constrain {
    const struct model *model;
    uint32_t n_slots, n_vocab;
    _Atomic(struct grammar_vocabulary *) vocabulary;
    struct constrain_matcher matchers[CONSTRAIN_MATCHERS];
    uint64_t n_uses;
    struct constrain_slot *slots;
    float *logits;
    const uint64_t *mask; /* of the last that was asked */
};

enum error_code constrain_new(const struct model *model, uint32_t n_slots, uint32_t n_vocab,
                              struct constrain **out, struct error *err)
{
    struct constrain *constrain = mem_new(sizeof *constrain);
    if (!constrain)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for a picker's grammars");
    constrain->model = model;
    constrain->n_slots = n_slots;
    constrain->n_vocab = n_vocab;
    constrain->slots = mem_new_array(n_slots, sizeof *constrain->slots);
    if (!constrain->slots) {
        constrain_free(constrain);
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for a picker's grammars");
    }
    *out = constrain;
    return ERROR_NONE;
}

void constrain_forget(struct constrain *constrain, uint32_t slot)
{
    grammar_run_deinit(&constrain->slots[slot].run);
    constraint_replace(&constrain->slots[slot].constraint, NULL);
    constrain->slots[slot].n_taken = 0;
}

void constrain_change(struct constrain *constrain, uint32_t slot, uint32_t index)
{
    struct constrain_slot *at = &constrain->slots[slot];
    if (at->n_taken <= index)
        return;
    grammar_run_clear(&at->run);
    at->n_taken = 0;
}

static void constrain_drop(struct constrain_matcher *entry)
{
    grammar_matcher_free(entry->matcher);
    constraint_release(entry->constraint);
    *entry = (struct constrain_matcher){0};
}

void constrain_free(struct constrain *constrain)
{
    if (!constrain)
        return;
    for (uint32_t i = 0; constrain->slots && i < constrain->n_slots; i++)
        constrain_forget(constrain, i);
    for (int i = 0; i < CONSTRAIN_MATCHERS; i++)
        constrain_drop(&constrain->matchers[i]);
    grammar_vocabulary_free(atomic_load(&constrain->vocabulary));
    mem_free(constrain->slots);
    mem_free(constrain->logits);
    mem_free(constrain);
}

bool constrain_has_vocabulary(const struct constrain *constrain)
{
    return atomic_load(&constrain->vocabulary);
}

void constrain_give_vocabulary(struct constrain *constrain, struct grammar_vocabulary *vocabulary)
{
    atomic_store(&constrain->vocabulary, vocabulary);
}

/* ---- picking ---- */

/* A source that came from elsewhere is compiled, and the model's tokens are read, here. */
static enum error_code constrain_ready(struct constrain *constrain, struct constraint *constraint,
                                       struct error *err)
{
    const enum error_code code = constraint_compile(constraint, err);
    return code ? code : constrain_open_vocabulary(constrain, constrain->model, err);
}

static struct grammar_matcher *
constrain_matcher_of(struct constrain *constrain, struct constraint *constraint, struct error *err)
{
    struct constrain_matcher *oldest = &constrain->matchers[0];
    for (int i = 0; i < CONSTRAIN_MATCHERS; i++) {
        struct constrain_matcher *entry = &constrain->matchers[i];
        if (entry->constraint == constraint) {
            entry->used = ++constrain->n_uses;
            return entry->matcher;
        }
        if (entry->used < oldest->used)
            oldest = entry;
    }
    constrain_drop(oldest);
    if (constrain_ready(constrain, constraint, err) ||
        grammar_matcher_new(constraint_grammar(constraint), atomic_load(&constrain->vocabulary),
                            &oldest->matcher, err)) {
        if (err->code != ERROR_NO_MEMORY)
            err->code = ERROR_UNSUPPORTED; /* it would be so again */
        error_wrap(err, "the grammar, where tokens are picked");
        return NULL;
    }
    oldest->constraint = constraint_keep(constraint);
    oldest->used = ++constrain->n_uses;
    return oldest->matcher;
}

/* Brings the slot's run to the answer's end. Runs of a matcher that was dropped are begun anew by
 * its successor: their epoch is not its own. */
static bool constrain_follow(struct grammar_matcher *matcher, struct constraint *constraint,
                             struct constrain_slot *slot, const int32_t *answer, uint32_t n)
{
    struct error err;
    if (slot->constraint != constraint || slot->n_taken > n) {
        constraint_replace(&slot->constraint, constraint);
        grammar_run_clear(&slot->run);
        slot->n_taken = 0;
    }
    for (; slot->n_taken < n; slot->n_taken++) {
        if (grammar_take_token(matcher, &slot->run, answer[slot->n_taken], &err))
            return false;
    }
    return true;
}

const float *constrain_logits(struct constrain *constrain, struct constraint *constraint,
                              uint32_t slot, const int32_t *answer, uint32_t n, const float *logits,
                              int32_t *instead, struct error *why)
{
    struct grammar_matcher *matcher = constrain_matcher_of(constrain, constraint, why);
    struct constrain_slot *at = &constrain->slots[slot];
    struct error err;
    bool may_end = false, must_end = false, is_any = false;
    *instead = matcher ? CONSTRAIN_FAILS : CONSTRAIN_REFUSED;
    if (!constrain->logits)
        constrain->logits = mem_new_array(constrain->n_vocab, sizeof *logits);
    if (!matcher || !constrain->logits || !constrain_follow(matcher, constraint, at, answer, n) ||
        grammar_may_end(matcher, &at->run, &may_end, &must_end, &err) ||
        grammar_mask(matcher, &at->run, &constrain->mask, &err))
        return NULL;
    for (uint32_t word = 0; word < (constrain->n_vocab + 63) / 64; word++) {
        const uint64_t bits = constrain->mask[word];
        const uint32_t first = word * 64, end = first + 64;
        is_any |= bits != 0;
        for (uint32_t id = first; id < end && id < constrain->n_vocab; id++)
            constrain->logits[id] = bits >> (id - first) & 1 ? logits[id] : -INFINITY;
    }
    if (is_any)
        return constrain->logits;
    *instead = may_end ? CONSTRAIN_ENDS : CONSTRAIN_FAILS;
    return NULL;
}

bool constrain_allows(const struct constrain *constrain, int32_t token)
{
    return constrain->mask[token / 64] >> (token % 64) & 1;
}

int32_t constrain_best(const struct constrain *constrain)
{
    int32_t best = CONSTRAIN_FAILS;
    for (uint32_t id = 0; id < constrain->n_vocab; id++) {
        if (constrain_allows(constrain, (int32_t)id) &&
            (best < 0 || constrain->logits[id] > constrain->logits[best]))
            best = (int32_t)id;
    }
    return best;
}
