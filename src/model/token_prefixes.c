#include "model/token_prefixes.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

static int token_prefixes_compare(const void *a, const void *b, void *arg)
{
    const struct text_table *texts = arg;
    size_t size_a, size_b;
    const char *text_a = text_table_at(texts, *(const uint32_t *)a, &size_a);
    const char *text_b = text_table_at(texts, *(const uint32_t *)b, &size_b);
    const int order = memcmp(text_a, text_b, size_a < size_b ? size_a : size_b);
    return order ? order : (size_a > size_b) - (size_a < size_b);
}

bool token_prefixes_init(struct token_prefixes *prefixes, const struct text_table *texts,
                         uint32_t n_tokens, const bool *wanted)
{
    *prefixes = (struct token_prefixes){.texts = texts};
    prefixes->by_text = mem_new_array(n_tokens, sizeof *prefixes->by_text);
    if (!prefixes->by_text)
        return false;
    for (uint32_t i = 0; i < n_tokens; i++) {
        if (!wanted || wanted[i])
            prefixes->by_text[prefixes->count++] = i;
    }
    qsort_r(prefixes->by_text, prefixes->count, sizeof *prefixes->by_text, token_prefixes_compare,
            (void *)(uintptr_t)texts);
    return true;
}

void token_prefixes_deinit(struct token_prefixes *prefixes)
{
    mem_free(prefixes->by_text);
    *prefixes = (struct token_prefixes){0};
}

struct prefix_walk token_prefixes_walk(const struct token_prefixes *prefixes)
{
    return (struct prefix_walk){.high = prefixes->count};
}

/* The first token of [low, high) whose byte at `depth` is at least `byte`; those that end there
 * come before all. */
static uint32_t token_prefixes_bound(const struct token_prefixes *prefixes, uint32_t low,
                                     uint32_t high, size_t depth, unsigned byte)
{
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        size_t size;
        const char *text = text_table_at(prefixes->texts, prefixes->by_text[middle], &size);
        if (size <= depth || (uint8_t)text[depth] < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool prefix_walk_step(const struct token_prefixes *prefixes, struct prefix_walk *walk, char byte,
                      int32_t *token)
{
    const unsigned wanted = (uint8_t)byte;
    *token = -1;
    walk->low = token_prefixes_bound(prefixes, walk->low, walk->high, walk->depth, wanted);
    walk->high = token_prefixes_bound(prefixes, walk->low, walk->high, walk->depth, wanted + 1);
    walk->depth++;
    if (walk->low == walk->high)
        return false;
    size_t size;
    text_table_at(prefixes->texts, prefixes->by_text[walk->low], &size);
    if (size == walk->depth)
        *token = (int32_t)prefixes->by_text[walk->low];
    return true;
}
