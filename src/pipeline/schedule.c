#include "pipeline/schedule.h"

#include <assert.h>

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* Indices of the items that wait, longest waiting first; the lower index on a tie. Insertion
 * sort: the items of one micro-batch were served together and mostly stand in order already. */
static uint32_t schedule_sort_by_age(const struct schedule_item *items, uint32_t n_items,
                                     uint32_t *order)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_items; i++) {
        if (!items[i].waiting)
            continue;
        uint32_t at = n++;
        for (; at && items[order[at - 1]].served > items[i].served; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    return n;
}

/* Sequences that are decoding, also those whose token is under way. */
static uint32_t schedule_count_decoding(const struct schedule_item *items, uint32_t n_items)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_items; i++)
        n += items[i].decoding;
    return n;
}

/* Rows for prompts. */
static uint32_t schedule_prompt_budget(uint32_t n_decoding, const struct schedule_limits *limits,
                                       const struct schedule *out)
{
    assert(out->n_rows <= limits->rows);
    uint32_t budget = limits->rows - out->n_rows;
    if (n_decoding)
        budget = smaller(budget, limits->prefill_rows_mixed);
    if (out->embeddings)
        budget = smaller(budget, limits->embedding_rows);
    return limits->devices > 1 ? smaller(budget, limits->chunk_rows) : budget;
}

static void schedule_take(struct schedule *out, uint32_t item, uint32_t rows)
{
    assert(rows && out->n_shares < LIMIT_SEQUENCES);
    out->shares[out->n_shares++] = (struct schedule_share){item, rows};
    out->n_rows += rows;
}

/* Rule 2, and rule 4's reserve. Moves what is not a decode row to the front of `order` and returns
 * how many those are.
 */
static uint32_t schedule_take_decode_rows(const struct schedule_item *items, uint32_t *order,
                                          uint32_t n_order, uint32_t n_decoding,
                                          const struct schedule_limits *limits,
                                          struct schedule *out)
{
    uint32_t n_prompts = 0;
    for (uint32_t i = 0; i < n_order; i++)
        n_prompts += !items[order[i]].decoding;
    uint32_t reserve = 0;
    if (n_prompts)
        reserve = larger(limits->rows / 4, items[order[0]].decoding ? 0 : 1);
    assert(reserve <= limits->rows);
    uint32_t most =
        smaller((n_decoding + limits->devices - 1) / limits->devices, limits->rows - reserve);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n_order; i++) {
        if (!items[order[i]].decoding)
            order[kept++] = order[i];
        else if (out->n_shares < most)
            schedule_take(out, order[i], 1);
    }
    return kept;
}

/* Rule 3: first an even share each, then what is left over to the longest waiting. */
static void schedule_take_prompt_rows(const struct schedule_item *items, const uint32_t *order,
                                      uint32_t n_order, uint32_t budget, uint32_t output_all_budget,
                                      struct schedule *out)
{
    uint32_t first = out->n_shares;
    uint32_t share = n_order ? larger(SCHEDULE_QUANTUM, budget / n_order) : 0;
    for (int round = 0; round < 2; round++) {
        uint32_t at = first;
        for (uint32_t i = 0; i < n_order && budget; i++) {
            const struct schedule_item *item = &items[order[i]];
            bool has_share = at < out->n_shares && out->shares[at].item == order[i];
            uint32_t had = has_share ? out->shares[at].rows : 0;
            uint32_t rows = smaller(item->waiting - had, round ? budget : smaller(share, budget));
            if (item->output_all) {
                rows = smaller(rows, output_all_budget);
                output_all_budget -= rows;
            }
            budget -= rows;
            if (has_share) {
                out->shares[at++].rows += rows;
                out->n_rows += rows;
            } else if (rows && round == 0) {
                schedule_take(out, order[i], rows);
                at++;
            }
        }
    }
}

/* What is read at once: as many as fit, and the longest waiting in any case, which decode rows give
 * way to. */
static void schedule_take_whole(const struct schedule_item *items, const uint32_t *order,
                                uint32_t n_order, uint32_t budget,
                                const struct schedule_limits *limits, struct schedule *out)
{
    const uint32_t longest = items[order[0]].waiting;
    if (longest > budget && longest > limits->rows - out->n_rows)
        out->n_shares = out->n_rows = 0;
    budget = larger(budget, smaller(longest, limits->rows - out->n_rows));
    for (uint32_t i = 0; i < n_order; i++) {
        const uint32_t rows = items[order[i]].waiting;
        if (i && rows > budget)
            continue;
        schedule_take(out, order[i], rows);
        budget -= smaller(budget, rows);
    }
}

/* Those that are read at once, or those that are not: as the longest waiting is. How many. */
static uint32_t schedule_keep_like(const struct schedule_item *items, uint32_t *order,
                                   uint32_t n_order)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n_order; i++) {
        if (items[order[i]].whole == items[order[0]].whole)
            order[kept++] = order[i];
    }
    return kept;
}

void schedule_next(const struct schedule_item *items, uint32_t n_items,
                   const struct schedule_limits *limits, struct schedule *out)
{
    assert(n_items <= LIMIT_SEQUENCES);
    assert(limits->rows && limits->devices && limits->chunk_rows && limits->prefill_rows_mixed &&
           limits->output_all_rows && limits->embedding_rows);
    uint32_t order[LIMIT_SEQUENCES];
    uint32_t n_order = schedule_sort_by_age(items, n_items, order);
    out->n_shares = out->n_rows = 0;
    if (!n_order) {
        out->embeddings = false;
        return;
    }
    out->embeddings = items[order[0]].embeddings;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n_order; i++) {
        if (items[order[i]].embeddings == out->embeddings)
            order[kept++] = order[i];
    }
    uint32_t n_decoding = schedule_count_decoding(items, n_items);
    n_order = schedule_take_decode_rows(items, order, kept, n_decoding, limits, out);
    uint32_t budget = schedule_prompt_budget(n_decoding, limits, out);
    n_order = schedule_keep_like(items, order, n_order);
    if (n_order && items[order[0]].whole)
        schedule_take_whole(items, order, n_order, budget, limits, out);
    else
        schedule_take_prompt_rows(items, order, n_order, budget, limits->output_all_rows, out);
    assert((out->n_rows <= limits->rows || out->n_shares == 1) && out->n_shares <= n_items);
}
