/* Thompson's construction, and then sets of its places as states (explored in dfa.c). */
#include "grammar/regex.h"

#include "base/mem.h"
#include "grammar/grammar.h"
#include "grammar/regex_parse.h"

#include <stdlib.h>
#include <string.h>

enum place_kind { PLACE_SET, PLACE_SPLIT, PLACE_BEGIN, PLACE_END, PLACE_ACCEPT };
enum { REGEX_PLACES_MAX = 200 * 1000, REGEX_WORK_MAX = 1 << 26 };

struct regex_place {
    enum place_kind kind;
    uint32_t next, other; /* where it leads; a split to both */
    uint32_t node;        /* whose set */
};

struct regex_net {
    const struct regex_tree *tree;
    struct regex_place *places;
    uint32_t n_places, room;
    enum error_code code;
    uint32_t *bounds;
    uint32_t n_bounds;
    size_t n_words; /* of a set of places */
    uint32_t *pending;
    uint64_t work;
    bool search; /* places 0 to 2 are the end and the loop over any characters before it */
};

enum { REGEX_DONE = 7 };

/* Places are made from the end of the expression to its beginning: each knows where it leads. */
static uint32_t regex_place_add(struct regex_net *net, struct regex_place place)
{
    if (net->n_places == net->room) {
        const uint32_t room = net->room ? net->room * 2 : 128;
        struct regex_place *places =
            room > REGEX_PLACES_MAX * 2 ? NULL : mem_resize(net->places, room, sizeof *places);
        if (!places) {
            net->code = room > REGEX_PLACES_MAX * 2 ? ERROR_BUSY : ERROR_NO_MEMORY;
            net->n_places = 0;
            return 0;
        }
        net->places = places;
        net->room = room;
    }
    net->places[net->n_places] = place;
    return net->n_places++;
}

static uint32_t regex_build(struct regex_net *net, uint32_t node, uint32_t then);

static uint32_t regex_build_repeat(struct regex_net *net, const struct regex_node *node,
                                   uint32_t then)
{
    uint32_t at = then;
    if (node->n_max == REGEX_MANY) {
        at = regex_place_add(net, (struct regex_place){.kind = PLACE_SPLIT, .next = then});
        const uint32_t body = regex_build(net, node->left, at);
        if (!net->code)
            net->places[at].other = body;
    } else {
        for (uint32_t i = node->n_min; i < node->n_max && !net->code; i++) {
            const uint32_t body = regex_build(net, node->left, at);
            at = regex_place_add(
                net, (struct regex_place){.kind = PLACE_SPLIT, .next = then, .other = body});
        }
    }
    for (uint32_t i = 0; i < node->n_min && !net->code; i++)
        at = regex_build(net, node->left, at);
    return at;
}

static uint32_t regex_build(struct regex_net *net, uint32_t number, uint32_t then)
{
    const struct regex_node *node = &net->tree->nodes[number];
    if (net->code)
        return 0;
    switch (node->kind) {
    case REGEX_EMPTY:
        return then;
    case REGEX_SET:
        return regex_place_add(
            net, (struct regex_place){.kind = PLACE_SET, .next = then, .node = number});
    case REGEX_JOIN:
        return regex_build(net, node->left, regex_build(net, node->right, then));
    case REGEX_EITHER: {
        const uint32_t left = regex_build(net, node->left, then);
        const uint32_t right = regex_build(net, node->right, then);
        return regex_place_add(
            net, (struct regex_place){.kind = PLACE_SPLIT, .next = left, .other = right});
    }
    case REGEX_REPEAT:
        return regex_build_repeat(net, node, then);
    case REGEX_BEGIN:
        return regex_place_add(net, (struct regex_place){.kind = PLACE_BEGIN, .next = then});
    case REGEX_END:
        return regex_place_add(net, (struct regex_place){.kind = PLACE_END, .next = then});
    }
    return 0;
}

/* ---- sets of places ---- */

static bool regex_has(const uint32_t *set, uint32_t place)
{
    return set[place / 32] >> (place % 32) & 1;
}

/* Adds the place and all that is reached from it without a character. */
static void regex_close(struct regex_net *net, uint32_t *set, uint32_t place, bool at_begin,
                        bool at_end)
{
    uint32_t n = 0;
    net->pending[n++] = place;
    set[place / 32] |= 1u << (place % 32);
    while (n) {
        const struct regex_place *at = &net->places[net->pending[--n]];
        uint32_t targets[2], n_targets = 0;
        if (at->kind == PLACE_SPLIT || (at->kind == PLACE_BEGIN && at_begin) ||
            (at->kind == PLACE_END && at_end))
            targets[n_targets++] = at->next;
        if (at->kind == PLACE_SPLIT)
            targets[n_targets++] = at->other;
        for (uint32_t i = 0; i < n_targets; i++) {
            if (regex_has(set, targets[i]))
                continue;
            set[targets[i] / 32] |= 1u << (targets[i] % 32);
            net->pending[n++] = targets[i];
        }
    }
}

static bool regex_set_has(const struct regex_tree *tree, const struct regex_node *node,
                          uint32_t code_point)
{
    uint32_t low = node->first, high = node->first + node->n_ranges;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (tree->ranges[middle].high < code_point)
            low = middle + 1;
        else
            high = middle;
    }
    return low < node->first + node->n_ranges && tree->ranges[low].low <= code_point;
}

static bool regex_step(const void *context, const uint32_t *from, uint32_t range, uint32_t *to)
{
    struct regex_net *net = (struct regex_net *)context;
    const uint32_t code_point = net->bounds[range];
    bool is_any = false;
    memset(to, 0, net->n_words * sizeof *to);
    net->work += net->n_words;
    for (size_t word = 0; word < net->n_words; word++) {
        for (uint32_t bits = from[word]; bits; bits &= bits - 1) {
            const uint32_t place = (uint32_t)word * 32 + (uint32_t)__builtin_ctz(bits);
            const struct regex_place *at = &net->places[place];
            net->work++;
            if (at->kind != PLACE_SET || regex_has(to, at->next) ||
                !regex_set_has(net->tree, &net->tree->nodes[at->node], code_point))
                continue;
            regex_close(net, to, at->next, false, false);
            is_any = true;
        }
    }
    if (net->search && (to[0] & 2)) { /* it has matched: all that follows is alike */
        memset(to, 0, net->n_words * sizeof *to);
        to[0] = REGEX_DONE;
    }
    return is_any && net->work < REGEX_WORK_MAX;
}

/* Place 0 accepts. What stands behind a $ counts at the end alone. */
static uint32_t regex_label(const void *context, const uint32_t *state)
{
    struct regex_net *net = (struct regex_net *)context;
    if (regex_has(state, 0))
        return 1;
    uint32_t *set = mem_new_array(net->n_words, sizeof *set);
    if (!set) {
        net->code = ERROR_NO_MEMORY;
        return 0;
    }
    for (uint32_t place = 0; place < net->n_places; place++) {
        if (regex_has(state, place) && net->places[place].kind == PLACE_END)
            regex_close(net, set, place, false, true);
    }
    const uint32_t label = regex_has(set, 0);
    mem_free(set);
    return label;
}

static int regex_bound_compare(const void *a, const void *b)
{
    const uint32_t first = *(const uint32_t *)a, second = *(const uint32_t *)b;
    return (first > second) - (first < second);
}

static bool regex_alphabet(struct regex_net *net)
{
    const struct regex_tree *tree = net->tree;
    uint32_t n = 1;
    net->bounds = mem_new_array((size_t)tree->n_ranges * 2 + 1, sizeof *net->bounds);
    if (!net->bounds)
        return false;
    for (uint32_t i = 0; i < tree->n_ranges; i++) {
        net->bounds[n++] = tree->ranges[i].low;
        if (tree->ranges[i].high + 1 < CODE_POINT_END)
            net->bounds[n++] = tree->ranges[i].high + 1;
    }
    qsort(net->bounds, n, sizeof *net->bounds, regex_bound_compare);
    net->n_bounds = 1;
    for (uint32_t i = 1; i < n; i++) {
        if (net->bounds[i] != net->bounds[net->n_bounds - 1])
            net->bounds[net->n_bounds++] = net->bounds[i];
    }
    return true;
}

/* The start is what is reached before the first character: there ^ holds, and for the empty string
 * $, too. */
static enum error_code regex_explore(struct regex_net *net, uint32_t first, struct dfa **out,
                                     struct error *err)
{
    net->n_words = (net->n_places + 31) / 32;
    uint32_t *start = mem_new_array(net->n_words, sizeof *start);
    uint32_t *empty = mem_new_array(net->n_words, sizeof *empty);
    net->pending = mem_new_array(net->n_places, sizeof *net->pending);
    enum error_code code = ERROR_NO_MEMORY;
    if (start && empty && net->pending && regex_alphabet(net)) {
        regex_close(net, start, first, true, false);
        regex_close(net, empty, first, true, true);
        if (regex_has(empty, 0)) /* harmless elsewhere: no character leads on from place 0 */
            start[0] |= 1;
        const struct dfa_source source = {net,   net->bounds, net->n_bounds, net->n_words,
                                          start, regex_step,  regex_label};
        code = dfa_explore(&source, LIMIT_GRAMMAR_DFA_STATES, out, err);
        if (!code && (net->code || net->work >= REGEX_WORK_MAX)) {
            dfa_free(*out);
            *out = NULL;
            code = error_set(err, net->code ? net->code : ERROR_BUSY,
                             "the expression needs too many states");
        }
    } else {
        error_set(err, ERROR_NO_MEMORY, "not enough memory for the expression");
    }
    mem_free(start);
    mem_free(empty);
    return code;
}

/* Any characters, before the expression or behind it. */
static uint32_t regex_build_any(struct regex_net *net, uint32_t any, uint32_t then)
{
    const uint32_t split =
        regex_place_add(net, (struct regex_place){.kind = PLACE_SPLIT, .next = then});
    const uint32_t set =
        regex_place_add(net, (struct regex_place){.kind = PLACE_SET, .next = split, .node = any});
    if (!net->code)
        net->places[split].other = set;
    return split;
}

static bool regex_add_any(struct regex_tree *tree, uint32_t *any)
{
    struct regex_node *nodes = mem_resize(tree->nodes, (size_t)tree->n_nodes + 1, sizeof *nodes);
    if (!nodes)
        return false;
    tree->nodes = nodes;
    if (!regex_range_add(tree, 0, CODE_POINT_END - 1))
        return false;
    *any = tree->n_nodes++;
    nodes[*any] =
        (struct regex_node){.kind = REGEX_SET, .first = tree->n_ranges - 1, .n_ranges = 1};
    return true;
}

enum error_code regex_compile(const char *text, size_t size, bool search, struct dfa **out,
                              struct error *err)
{
    struct regex_tree tree = {0};
    struct regex_net net = {.tree = &tree, .search = search};
    uint32_t any = 0;
    enum error_code code = regex_parse(text, size, &tree, err);
    if (!code && !regex_add_any(&tree, &any))
        code = error_set(err, ERROR_NO_MEMORY, "not enough memory for the expression");
    if (!code) {
        uint32_t at = regex_place_add(&net, (struct regex_place){.kind = PLACE_ACCEPT});
        if (search)
            at = regex_build_any(&net, any, at);
        at = regex_build(&net, tree.root, at);
        if (search)
            at = regex_build_any(&net, any, at);
        code = net.code ? error_set(err, net.code, "the expression is too large")
                        : regex_explore(&net, at, out, err);
    }
    mem_free(net.places);
    mem_free(net.bounds);
    mem_free(net.pending);
    regex_tree_deinit(&tree);
    return code;
}
