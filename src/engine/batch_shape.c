#include "engine/batch_shape.h"

#include <string.h>

uint32_t batch_output_count(const struct batch *batch)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < batch->n_rows; i++)
        count += batch->rows[i].output;
    return count;
}

/* Rows from `first` on that belong to the same slot; checks that they continue it. */
static enum error_code shape_read_run(const struct batch *batch, uint32_t first,
                                      const struct stage_options *options, const uint32_t *lengths,
                                      uint32_t *n_out, struct error *err)
{
    const struct batch_row *rows = batch->rows;
    uint32_t slot = rows[first].slot, n = 0;
    if (slot >= options->n_slots)
        return error_set(err, ERROR_INVALID, "row %u: slot %u; the stage has %u", first, slot,
                         options->n_slots);
    for (; first + n < batch->n_rows && rows[first + n].slot == slot; n++) {
        if (rows[first + n].position != lengths[slot] + n)
            return error_set(err, ERROR_INVALID, "row %u: slot %u continues at position %u, not %u",
                             first + n, slot, lengths[slot] + n, rows[first + n].position);
    }
    if (lengths[slot] + n > options->context)
        return error_set(err, ERROR_INVALID, "slot %u: %u tokens do not fit the context of %u",
                         slot, lengths[slot] + n, options->context);
    *n_out = n;
    return ERROR_NONE;
}

static void add_run(struct batch_shape *shape, uint32_t slot, uint32_t first_row, uint32_t n_rows)
{
    struct batch_group *last = shape->n_groups ? &shape->groups[shape->n_groups - 1] : NULL;
    if (last && last->first_slot + last->n_slots == slot && last->rows_per_slot == n_rows)
        last->n_slots++;
    else
        shape->groups[shape->n_groups++] = (struct batch_group){
            .first_slot = slot, .n_slots = 1, .first_row = first_row, .rows_per_slot = n_rows};
}

enum error_code batch_shape_read(const struct batch *batch, const struct stage_options *options,
                                 const uint32_t *lengths, struct batch_shape *out,
                                 struct error *err)
{
    if (batch->n_rows < 1 || batch->n_rows > options->rows_max)
        return error_set(err, ERROR_INVALID, "a batch of %u rows; the stage takes 1 to %u",
                         batch->n_rows, options->rows_max);
    bool seen[LIMIT_SEQUENCES] = {false};
    uint32_t longest = 0;
    memset(out, 0, sizeof *out);
    out->n_rows = batch->n_rows;
    out->n_outputs = batch_output_count(batch);
    out->embeddings = batch->embeddings;
    for (uint32_t row = 0, n = 0; row < batch->n_rows; row += n) {
        uint32_t slot = batch->rows[row].slot;
        enum error_code code = shape_read_run(batch, row, options, lengths, &n, err);
        if (code)
            return code;
        if (seen[slot])
            return error_set(err, ERROR_INVALID, "row %u: the rows of slot %u are not contiguous",
                             row, slot);
        seen[slot] = true;
        add_run(out, slot, row, n);
        if (lengths[slot] + n > longest)
            longest = lengths[slot] + n;
    }
    out->n_kv = kv_cells(longest);
    return ERROR_NONE;
}

bool batch_shape_equal(const struct batch_shape *a, const struct batch_shape *b)
{
    return a->n_rows == b->n_rows && a->n_outputs == b->n_outputs && a->n_kv == b->n_kv &&
           a->embeddings == b->embeddings && a->n_groups == b->n_groups &&
           memcmp(a->groups, b->groups, a->n_groups * sizeof a->groups[0]) == 0;
}

void batch_shape_worst(const struct stage_options *options, uint32_t n_groups,
                       struct batch_shape *out)
{
    memset(out, 0, sizeof *out);
    out->n_kv = kv_cells(options->context);
    for (uint32_t i = 0; i < n_groups && out->n_rows < options->rows_max; i++) {
        /* alternating counts keep the groups apart, as the worst batch has them */
        uint32_t rows = i + 1 == n_groups ? options->rows_max - out->n_rows : 1 + i % 2;
        add_run(out, i, out->n_rows, rows);
        out->n_rows += rows;
    }
    out->n_outputs = out->n_rows;
}
