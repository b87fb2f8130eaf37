#include "engine/batch_shape.h"

#include "engine/kv_map.h"

#include <assert.h>
#include <string.h>

uint32_t batch_output_count(const struct batch *batch)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < batch->n_rows; i++)
        count += batch->rows[i].output;
    return count;
}

enum error_code batch_shape_read_places(const struct batch *batch, struct batch_shape *shape,
                                        struct error *err)
{
    for (uint32_t i = 0; batch->places && i < batch->n_rows; i++) {
        const struct row_place *place = &batch->places[i];
        const struct batch_row *row = &batch->rows[i];
        if (place->ahead &&
            (place->ahead >= batch->n_rows - i || row[place->ahead].slot != row->slot ||
             place[place->ahead].ahead || place[1].ahead + 1 != place->ahead))
            return error_set(err, ERROR_INVALID,
                             "row %u sees %u rows behind it, which are not there", i, place->ahead);
        for (int axis = 0; axis < 3; axis++) {
            if (place->behind[axis] > row->position)
                return error_set(err, ERROR_INVALID, "row %u at position %u is turned by %u less",
                                 i, row->position, place->behind[axis]);
            shape->has_axes |= place->behind[axis] != 0;
        }
        shape->sees_ahead |= place->ahead != 0;
    }
    return ERROR_NONE;
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
           a->embeddings == b->embeddings && a->n_given == b->n_given &&
           a->sees_ahead == b->sees_ahead && a->has_axes == b->has_axes &&
           a->n_groups == b->n_groups &&
           memcmp(a->groups, b->groups, a->n_groups * sizeof a->groups[0]) == 0;
}

/* ---- a pool -------------------------------------------------------------------------------- */

/* Whether each slot's cells stand together, and evenly behind those of the slot before. */
static bool shape_stands_evenly(const struct kv_map *map, struct batch_group *group,
                                uint32_t n_extents)
{
    const uint32_t *first = &map->extents[(size_t)group->first_slot * map->n_each];
    const uint32_t step = group->n_slots > 1 ? first[map->n_each] - first[0] : 0;
    for (uint32_t i = 0; i < group->n_slots; i++) {
        const uint32_t slot = group->first_slot + i, at = first[(size_t)i * map->n_each];
        assert(map->n_held[slot]);
        if (!kv_map_is_run(map, slot, n_extents) || at + n_extents > map->n_extents ||
            at < first[0] || at - first[0] != i * step)
            return false;
    }
    group->first_extent = first[0];
    group->extent_step = step;
    return true;
}

/* The group, in parts of no more extents than the pool has. */
static void shape_gather(struct batch_shape *shape, struct batch_group group, uint32_t n_extents,
                         uint32_t n_pool)
{
    const uint32_t n_most = n_pool / n_extents;
    for (uint32_t left = group.n_slots; left; left -= group.n_slots) {
        group.n_slots = left < n_most ? left : n_most;
        group.first_gathered = shape->n_gathered;
        group.n_gathered = group.n_slots * n_extents;
        shape->n_gathered += group.n_gathered;
        shape->groups[shape->n_groups++] = group;
        group.first_slot += group.n_slots;
        group.first_row += group.n_slots * group.rows_per_slot;
    }
}

void batch_shape_lay_out(struct batch_shape *shape, const struct kv_map *map, uint32_t n_pool)
{
    const struct batch_shape whole = *shape;
    const uint32_t n_extents = shape->n_kv / KV_PADDING;
    memset(shape->groups, 0, sizeof shape->groups);
    shape->n_groups = shape->n_gathered = 0;
    for (uint32_t i = 0; i < whole.n_groups; i++) {
        struct batch_group group = whole.groups[i];
        if (shape_stands_evenly(map, &group, n_extents))
            shape->groups[shape->n_groups++] = group;
        else
            shape_gather(shape, group, n_extents, n_pool);
    }
}

/* ---- the largest ---------------------------------------------------------------------------- */

static void shape_gather_all(struct batch_shape *shape)
{
    for (uint32_t i = 0; i < shape->n_groups; i++) {
        struct batch_group *group = &shape->groups[i];
        group->first_gathered = shape->n_gathered;
        group->n_gathered = group->n_slots * (shape->n_kv / KV_PADDING);
        shape->n_gathered += group->n_gathered;
    }
}

void batch_shape_worst(const struct stage_options *options, uint32_t n_groups, bool gathers,
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
    if (gathers)
        shape_gather_all(out);
}

void batch_shape_widest(const struct stage_options *options, bool gathers, struct batch_shape *out)
{
    const uint32_t n_kv = kv_cells(options->context),
                   n_full = gathers ? kv_cells(options->cells) / n_kv : options->n_slots,
                   n_most = n_full < options->n_slots ? n_full : options->n_slots,
                   n_slots = n_most < options->rows_max ? n_most : options->rows_max;
    memset(out, 0, sizeof *out);
    out->n_kv = n_kv;
    for (uint32_t i = 0; i < n_slots; i++) {
        add_run(out, i, out->n_rows, options->rows_max / n_slots);
        out->n_rows += options->rows_max / n_slots;
    }
    out->n_outputs = out->n_rows;
    if (gathers)
        shape_gather_all(out);
}
