/* Arrays of a branch. Items behind the last that has a schema of its own are one loop with a
 * counter. Where `contains` counts some of them, the counts are nodes. */
#include "base/mem.h"
#include "grammar/schema.h"

#include <stdlib.h>

enum { ARRAY_GRID_MAX = 8192 };

struct array_view {
    const struct schema_branch *branch;
    uint32_t n_min, n_max, n_prefix; /* items below n_prefix have schemas of their own */
    const struct schema_fact *contains;
    uint32_t *literals; /* scratch */
};

static uint32_t array_prefix_of(const struct schema_fact *layer)
{
    return (uint32_t)yyjson_mut_arr_size(yyjson_mut_obj_get(layer->owner, "prefixItems"));
}

/* Whether what is counted also tells what was evaluated. */
static bool array_asks_rest(const struct schema_branch *branch)
{
    for (uint32_t i = 0; i < branch->n_facts; i++) {
        if (branch->facts[i].kind == FACT_REST_ITEMS)
            return true;
    }
    return false;
}

static bool array_read(struct schema *schema, struct array_view *view)
{
    const struct schema_branch *branch = view->branch;
    view->n_max = GRAMMAR_MANY;
    for (uint32_t i = 0; i < branch->n_facts; i++) {
        const struct schema_fact *fact = &branch->facts[i];
        uint32_t prefix = 0;
        if (fact->kind == FACT_ITEMS_MIN && fact->n > view->n_min)
            view->n_min = fact->n;
        if (fact->kind == FACT_ITEMS_MAX && fact->n < view->n_max)
            view->n_max = fact->n;
        if (fact->kind == FACT_ITEMS)
            prefix = array_prefix_of(fact);
        if (fact->kind == FACT_ITEM)
            prefix = fact->n + 1;
        if (prefix > view->n_prefix)
            view->n_prefix = prefix;
        if (fact->kind != FACT_CONTAINS ||
            (fact->n == 0 && fact->n_max == GRAMMAR_MANY && !array_asks_rest(branch)))
            continue;
        if (view->contains)
            schema_refuse(schema, ERROR_UNSUPPORTED, fact->owner, "contains",
                          "several such demands on one array are not supported");
        view->contains = fact;
    }
    view->literals = mem_new_array((size_t)branch->n_facts + 1, sizeof *view->literals);
    if (!view->literals)
        schema_no_memory(schema);
    return !schema->code;
}

/* Whether what holds in the asker's scope says something of the item at `index`. */
static bool array_evaluates(struct schema *schema, const struct array_view *view, uint32_t index,
                            const uint32_t *more, const struct schema_fact *asker)
{
    for (uint32_t i = 0; i < view->branch->n_facts; i++) {
        const struct schema_fact *fact = &view->branch->facts[i];
        const uint32_t wanted = asker->n;
        if (fact == asker || !schema_in_scope(schema, fact->scope, wanted))
            continue;
        if (fact->kind == FACT_ITEMS &&
            (index < array_prefix_of(fact) || yyjson_mut_obj_get(fact->owner, "items")))
            return true;
        if (fact->kind == FACT_REST_ITEMS && fact->scope != wanted)
            return true;
        if (fact->kind == FACT_CONTAINS && more && *more == fact->literal)
            return true; /* an item that is counted is evaluated */
    }
    return false;
}

/* The rule of the item at `index`, which also is under `more`, unless that is NULL. */
static uint32_t array_item(struct schema *schema, const struct array_view *view, uint32_t index,
                           const uint32_t *more)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < view->branch->n_facts && !schema->code; i++) {
        const struct schema_fact *fact = &view->branch->facts[i];
        yyjson_mut_val *value = NULL;
        if (fact->kind == FACT_ITEMS) {
            value = yyjson_mut_arr_get(yyjson_mut_obj_get(fact->owner, "prefixItems"), index);
            value = value ? value : yyjson_mut_obj_get(fact->owner, "items");
        }
        if (value)
            view->literals[n++] = schema_literal(schema, value, false);
        else if ((fact->kind == FACT_ITEM && fact->n == index) ||
                 (fact->kind == FACT_REST_ITEMS &&
                  !array_evaluates(schema, view, index, more, fact)))
            view->literals[n++] = fact->literal;
    }
    if (more)
        view->literals[n++] = *more;
    return schema->code ? 0 : schema_rule(schema, view->literals, n);
}

/* Behind item `n - 1`: the end, or a comma and the next. */
static uint32_t array_behind(struct schema *schema, const struct array_view *view, uint32_t n,
                             uint32_t close, uint32_t next)
{
    struct grammar *program = schema->program;
    uint32_t ways[2], n_ways = 0;
    if (n >= view->n_min)
        ways[n_ways++] = json_ws(schema, close);
    if (n < view->n_max)
        ways[n_ways++] = program_byte(program, ',', json_ws(schema, next));
    return program_split(program, ways, n_ways);
}

/* The loop over items behind the prefix: its first item. */
static uint32_t array_tail(struct schema *schema, const struct array_view *view, uint32_t close)
{
    struct grammar *program = schema->program;
    const uint32_t prefix = view->n_prefix;
    const uint32_t n_min = view->n_min > prefix ? view->n_min - prefix : 0;
    const uint32_t n_max = view->n_max == GRAMMAR_MANY ? GRAMMAR_MANY
                           : view->n_max > prefix      ? view->n_max - prefix
                                                       : 0;
    const uint32_t rule = array_item(schema, view, prefix, NULL);
    const uint32_t loop = program_loop(program, n_min, n_max, json_ws(schema, close));
    const uint32_t head = program_loop_node(program, loop, NODE_LOOP);
    const uint32_t count = program_loop_node(program, loop, NODE_COUNT);
    const uint32_t item = program_call(program, rule, count);
    const uint32_t again = program_byte(program, ',', json_ws(schema, item));
    program_loop_end(program);
    if (program->code)
        return 0;
    program->loops[loop].again = again;
    program->loops[loop].head = head;
    return item;
}

/* What stands behind "[" and blanks. */
static uint32_t array_open(struct schema *schema, const struct array_view *view, uint32_t close,
                           uint32_t first)
{
    uint32_t ways[2], n_ways = 0;
    if (view->n_min == 0 && (!view->contains || view->contains->n == 0))
        ways[n_ways++] = close;
    if (view->n_max > 0)
        ways[n_ways++] = first;
    return program_split(schema->program, ways, n_ways);
}

static uint32_t array_plain(struct schema *schema, const struct array_view *view, uint32_t close)
{
    struct grammar *program = schema->program;
    uint32_t next = array_tail(schema, view, close);
    for (uint32_t i = view->n_prefix; i && !schema->code && !program->code; i--)
        next = program_call(program, array_item(schema, view, i - 1, NULL),
                            array_behind(schema, view, i, close, next));
    return array_open(schema, view, close, next);
}

/* ---- with `contains`: a node for each pair of (items, items that are counted), as far as they
 * matter ---- */

struct array_grid {
    uint32_t n_items, n_counted; /* beyond which more are alike */
    uint32_t *nodes;             /* before item i, k of those before it counted */
};

static uint32_t array_grid_at(const struct array_grid *grid, uint32_t i, uint32_t k)
{
    i = i < grid->n_items ? i : grid->n_items;
    k = k < grid->n_counted ? k : grid->n_counted;
    return grid->nodes[(size_t)i * (grid->n_counted + 1) + k];
}

static uint32_t array_grid_behind(struct schema *schema, const struct array_view *view,
                                  const struct array_grid *grid, uint32_t i, uint32_t k,
                                  uint32_t close)
{
    const struct array_view here = {.n_min = k >= view->contains->n ? view->n_min : GRAMMAR_MANY,
                                    .n_max = view->n_max};
    return array_behind(schema, &here, i, close, array_grid_at(grid, i, k));
}

static void array_grid_fill(struct schema *schema, const struct array_view *view,
                            const struct array_grid *grid, uint32_t i, uint32_t k, uint32_t close)
{
    struct grammar *program = schema->program;
    const uint32_t yes = view->contains->literal, no = yes ^ 1;
    uint32_t ways[2], n_ways = 0;
    if (k < view->contains->n_max)
        ways[n_ways++] = program_call(program, array_item(schema, view, i, &yes),
                                      array_grid_behind(schema, view, grid, i + 1, k + 1, close));
    ways[n_ways++] = program_call(program, array_item(schema, view, i, &no),
                                  array_grid_behind(schema, view, grid, i + 1, k, close));
    const uint32_t split = program_split(program, ways, n_ways);
    if (!program->code)
        program->nodes[array_grid_at(grid, i, k)] = program->nodes[split];
}

static uint32_t array_counted(struct schema *schema, const struct array_view *view, uint32_t close)
{
    const struct schema_fact *contains = view->contains;
    struct array_grid grid = {view->n_max, contains->n_max, NULL};
    if (view->n_max == GRAMMAR_MANY)
        grid.n_items = view->n_min > view->n_prefix ? view->n_min : view->n_prefix;
    if (contains->n_max == GRAMMAR_MANY)
        grid.n_counted = contains->n;
    const uint64_t n = ((uint64_t)grid.n_items + 1) * ((uint64_t)grid.n_counted + 1);
    if (n > ARRAY_GRID_MAX) {
        schema_refuse(schema, ERROR_BUSY, contains->owner, "contains",
                      "with such counts it needs too many states");
        return 0;
    }
    grid.nodes = mem_new_array((size_t)n, sizeof *grid.nodes);
    if (!grid.nodes)
        schema_no_memory(schema);
    for (uint32_t i = 0; !schema->code && i < n; i++)
        grid.nodes[i] = program_node(schema->program, NODE_SPLIT);
    for (uint32_t i = 0; i <= grid.n_items; i++) {
        for (uint32_t k = 0; k <= grid.n_counted && !schema->code; k++)
            array_grid_fill(schema, view, &grid, i, k, close);
    }
    const uint32_t first = schema->code ? 0 : array_grid_at(&grid, 0, 0);
    mem_free(grid.nodes);
    return array_open(schema, view, close, first);
}

uint32_t schema_write_array(struct schema *schema, const struct schema_branch *branch,
                            uint32_t then)
{
    struct array_view view = {.branch = branch};
    uint32_t entry = 0;
    if (array_read(schema, &view)) {
        const uint32_t close = program_byte(schema->program, ']', then);
        const uint32_t open =
            view.contains ? array_counted(schema, &view, close) : array_plain(schema, &view, close);
        entry = program_byte(schema->program, '[', json_ws(schema, open));
    }
    mem_free(view.literals);
    return entry;
}
