#include "pipeline/checkpoints.h"

#include <assert.h>

uint32_t checkpoint_longest(const struct checkpoint_table *table, uint32_t slot, uint32_t length)
{
    uint32_t best = CHECKPOINT_NONE;
    for (uint32_t i = 0; i < table->n; i++) {
        const struct checkpoint *at = &table->list[i];
        if (at->id && at->slot == slot && at->length <= length &&
            (best == CHECKPOINT_NONE || at->length > table->list[best].length))
            best = i;
    }
    return best;
}

static uint32_t checkpoint_least_useful(const struct checkpoint_table *table)
{
    uint32_t best = 0;
    for (uint32_t i = 0; i < table->n; i++) {
        if (!table->list[i].id)
            return i;
        if (table->list[i].used < table->list[best].used)
            best = i;
    }
    return best;
}

uint32_t checkpoint_add(struct checkpoint_table *table, uint32_t slot, uint32_t length,
                        uint64_t used)
{
    assert(table->n && table->n <= LIMIT_CHECKPOINTS && length);
    const uint32_t index = checkpoint_least_useful(table);
    table->last_id += table->last_id == UINT32_MAX ? 2 : 1; /* 0 is none */
    table->list[index] = (struct checkpoint){slot, length, table->last_id, used};
    return index;
}

void checkpoint_forget(struct checkpoint_table *table, uint32_t index)
{
    assert(index < table->n);
    table->list[index] = (struct checkpoint){0};
}

/* ---- places ---------------------------------------------------------------------------------- */

static uint32_t checkpoint_tail(const struct checkpoint_text *text)
{
    return text->n_prompt > CHECKPOINT_TAIL ? text->n_prompt - CHECKPOINT_TAIL : 0;
}

static uint32_t checkpoint_step(const struct checkpoint_text *text)
{
    const uint32_t quarter = (text->n_prompt / 4 + 255) / 256 * 256;
    return quarter > CHECKPOINT_STEP_MIN ? quarter : CHECKPOINT_STEP_MIN;
}

uint32_t checkpoint_next(const struct checkpoint_text *text, uint32_t length)
{
    const uint32_t tail = checkpoint_tail(text), step = checkpoint_step(text);
    const uint32_t multiple = (length / step + 1) * step;
    uint32_t next = tail > length ? tail : UINT32_MAX;
    if (multiple < next && multiple + CHECKPOINT_APART <= tail)
        next = multiple;
    if (text->branch > length && text->branch < next && text->branch < text->n_prompt)
        next = text->branch;
    return next < CHECKPOINT_APART ? checkpoint_next(text, next) : next;
}

bool checkpoint_is_due(const struct checkpoint_table *table, const struct checkpoint_text *text,
                       uint32_t slot, uint32_t length)
{
    if (!table->n || length < CHECKPOINT_APART)
        return false;
    const bool is_place = length == text->n_begun || checkpoint_next(text, length - 1) == length;
    const uint32_t before = checkpoint_longest(table, slot, length);
    return is_place &&
           (before == CHECKPOINT_NONE || length - table->list[before].length >= CHECKPOINT_APART);
}
