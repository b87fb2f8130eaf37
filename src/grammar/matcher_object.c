/* An object's register: which members were there. Its words: how many other keys, then a bit for
 * each label. Register 0 is that of no member. */
#include "grammar/matcher_state.h"

#include <string.h>

struct register_view {
    const struct grammar_object *object;
    const uint32_t *seen; /* NULL: nothing */
    uint32_t n_others, n_seen, n_missing;
};

static struct register_view matcher_register_view(const struct grammar_matcher *matcher,
                                                  uint32_t number, uint32_t reg)
{
    const struct grammar *program = matcher->grammar;
    struct register_view view = {.object = &program->objects[number]};
    size_t n;
    if (reg) {
        const uint32_t *words = word_table_get(&matcher->registers, reg - 1, &n);
        view.n_others = words[0];
        view.seen = words + 1;
    }
    for (uint32_t i = 0; i < view.object->n_words; i++) {
        const uint32_t seen = view.seen ? view.seen[i] : 0;
        view.n_seen += (uint32_t)__builtin_popcount(seen);
        view.n_missing +=
            (uint32_t)__builtin_popcount(program->words[view.object->required + i] & ~seen);
    }
    return view;
}

bool matcher_object_may_end(const struct grammar_matcher *matcher, uint32_t object, uint32_t reg)
{
    const struct register_view view = matcher_register_view(matcher, object, reg);
    return view.n_missing == 0 && view.n_seen + (view.n_others > 0) >= view.object->n_min;
}

/* Members that must still come are never left without room. */
static bool matcher_object_fits(const struct grammar *program, const struct register_view *view,
                                uint32_t label)
{
    const uint32_t bit = 1u << (label % 32), word = label / 32;
    const bool is_required = program->words[view->object->required + word] & bit;
    const uint64_t total = (uint64_t)view->n_seen + view->n_others + view->n_missing;
    return total + !is_required <= view->object->n_max;
}

bool matcher_object_takes(const struct grammar_matcher *matcher, uint32_t object, uint32_t reg,
                          uint32_t labels)
{
    const struct grammar *program = matcher->grammar;
    const struct register_view view = matcher_register_view(matcher, object, reg);
    for (uint32_t i = 0; i < view.object->n_words; i++) {
        uint32_t bits = program->words[labels + i] & program->words[view.object->live + i];
        if (view.seen)
            bits &= ~view.seen[i];
        for (; bits; bits &= bits - 1) {
            const uint32_t label = i * 32 + (uint32_t)__builtin_ctz(bits);
            if (matcher_object_fits(program, &view, label))
                return true;
        }
    }
    return false;
}

uint32_t matcher_object_add(struct grammar_matcher *matcher, uint32_t object, uint32_t reg,
                            uint32_t label)
{
    const struct grammar *program = matcher->grammar;
    const struct register_view view = matcher_register_view(matcher, object, reg);
    const uint32_t bit = 1u << (label % 32), word = label / 32, n = view.object->n_words;
    const bool is_live = program->words[view.object->live + word] & bit;
    if (!is_live || (view.seen && (view.seen[word] & bit)) ||
        !matcher_object_fits(program, &view, label))
        return WORD_TABLE_NONE;
    if (label >= view.object->n_members && view.n_others && view.object->n_max == GRAMMAR_MANY)
        return reg; /* one or many: nobody counts them */
    uint32_t *words = matcher_words(matcher, (size_t)n + 1);
    if (!words)
        return WORD_TABLE_NONE;
    words[0] = view.n_others;
    if (view.seen)
        memcpy(words + 1, view.seen, n * sizeof *words);
    else
        memset(words + 1, 0, n * sizeof *words);
    if (label < view.object->n_members)
        words[1 + word] |= bit;
    else
        words[0]++;
    const uint32_t number = word_table_add(&matcher->registers, words, (size_t)n + 1, 1u << 24);
    if (number == WORD_TABLE_NONE) {
        matcher_fail(matcher, ERROR_NO_MEMORY);
        return WORD_TABLE_NONE;
    }
    return number + 1;
}
