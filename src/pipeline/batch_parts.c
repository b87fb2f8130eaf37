#include "pipeline/batch_parts.h"

#include <assert.h>

/* Rows of the first of two parts; all, where it is not to be cut. */
static uint32_t parts_cut(const struct batch_parts *parts, const struct batch *batch)
{
    const struct batch_row *rows = batch->rows;
    uint32_t n = batch->n_rows / 2;
    if (!parts->whole)
        return n ? n : batch->n_rows;
    while (n && rows[n - 1].slot == rows[n].slot)
        n--;
    for (n += !n; n < batch->n_rows && rows[n - 1].slot == rows[n].slot;)
        n++;
    return n;
}

static enum error_code parts_run_one(const struct batch_parts *parts, const struct batch *batch,
                                     const float *in, float *out, bool *was_short,
                                     struct error *err)
{
    enum error_code code = parts->forward(parts->arg, batch, in, out, err);
    while (code == ERROR_NO_MEMORY && parts_cut(parts, batch) == batch->n_rows) {
        *was_short = true;
        if (!parts->wait(parts->arg))
            break;
        code = parts->forward(parts->arg, batch, in, out, err);
    }
    return code;
}

/* As deep as the logarithm of the rows. */
enum error_code batch_parts_run(const struct batch_parts *parts, const struct batch *batch,
                                const float *in, float *out, bool *was_short, struct error *err)
{
    assert(batch->n_rows);
    const uint32_t n_first = parts_cut(parts, batch);
    const bool is_tried =
        n_first == batch->n_rows || !parts->rows_max || batch->n_rows <= parts->rows_max;
    enum error_code code =
        is_tried ? parts_run_one(parts, batch, in, out, was_short, err) : ERROR_NO_MEMORY;
    if (code != ERROR_NO_MEMORY || n_first == batch->n_rows)
        return code;
    *was_short |= is_tried;
    struct batch first = *batch, rest = *batch;
    first.n_rows = n_first;
    rest.rows += first.n_rows;
    rest.n_rows -= first.n_rows;
    if (batch->places)
        rest.places += first.n_rows;
    if (batch->given)
        rest.given += (size_t)batch_given_count(&first) * parts->given_width;
    const size_t n_out = parts->outputs_only ? batch_output_count(&first) : first.n_rows;
    code = batch_parts_run(parts, &first, in, out, was_short, err);
    if (code)
        return code;
    return batch_parts_run(parts, &rest, in ? in + (size_t)first.n_rows * parts->in_width : NULL,
                           out ? out + n_out * parts->out_width : NULL, was_short, err);
}
