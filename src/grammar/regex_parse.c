#include "grammar/regex_parse.h"

#include "base/mem.h"
#include "grammar/dfa.h"
#include "grammar/grammar.h"

#include <string.h>

enum { REGEX_COUNT_MAX = 100000 };

struct regex_reader {
    const char *begin, *at, *end;
    struct regex_tree *tree;
    struct error *err;
    enum error_code code;
    unsigned depth;
};

void regex_tree_deinit(struct regex_tree *tree)
{
    mem_free(tree->nodes);
    mem_free(tree->ranges);
    *tree = (struct regex_tree){0};
}

static uint32_t regex_fail(struct regex_reader *in, enum error_code code, const char *why)
{
    if (!in->code)
        in->code = error_set(in->err, code, "at %zu: %s", (size_t)(in->at - in->begin), why);
    in->at = in->end;
    return 0;
}

static uint32_t regex_no_memory(struct regex_reader *in)
{
    return regex_fail(in, ERROR_NO_MEMORY, "not enough memory for the expression");
}

static uint32_t regex_node_add(struct regex_reader *in, struct regex_node node)
{
    struct regex_tree *tree = in->tree;
    if (tree->n_nodes == tree->nodes_room) {
        const uint32_t room = tree->nodes_room ? tree->nodes_room * 2 : 64;
        struct regex_node *nodes = mem_resize(tree->nodes, room, sizeof *nodes);
        if (!nodes)
            return regex_no_memory(in);
        tree->nodes = nodes;
        tree->nodes_room = room;
    }
    tree->nodes[tree->n_nodes] = node;
    return tree->n_nodes++;
}

static bool regex_take(struct regex_reader *in, char wanted)
{
    if (in->at == in->end || *in->at != wanted)
        return false;
    in->at++;
    return true;
}

/* ---- characters and classes ---- */

static uint32_t regex_hex(struct regex_reader *in, unsigned digits)
{
    uint32_t value = 0;
    for (unsigned i = 0; i < digits; i++) {
        const char c = in->at < in->end ? *in->at : 0;
        const char lower = (char)(c | 0x20);
        if (c >= '0' && c <= '9')
            value = value * 16 + (uint32_t)(c - '0');
        else if (lower >= 'a' && lower <= 'f')
            value = value * 16 + (uint32_t)(lower - 'a') + 10;
        else
            return regex_fail(in, ERROR_INVALID, "hexadecimal digits are missing");
        in->at++;
    }
    return value;
}

static uint32_t regex_unicode_escape(struct regex_reader *in)
{
    if (!regex_take(in, '{')) {
        const uint32_t high = regex_hex(in, 4);
        if (high < 0xd800 || high > 0xdbff || in->end - in->at < 6 || in->at[0] != '\\' ||
            in->at[1] != 'u')
            return high;
        in->at += 2;
        const uint32_t low = regex_hex(in, 4);
        if (low < 0xdc00 || low > 0xdfff)
            return regex_fail(in, ERROR_INVALID, "a surrogate without its other half");
        return 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
    }
    uint32_t value = 0;
    do {
        value = value * 16 + regex_hex(in, 1);
    } while (value < CODE_POINT_END && in->at < in->end && *in->at != '}');
    if (!regex_take(in, '}') || value >= CODE_POINT_END)
        return regex_fail(in, ERROR_INVALID, "no code point");
    return value;
}

/* Behind a backslash: one code point. */
static uint32_t regex_escape(struct regex_reader *in)
{
    const char c = *in->at++;
    switch (c) {
    case 't':
        return '\t';
    case 'n':
        return '\n';
    case 'r':
        return '\r';
    case 'f':
        return '\f';
    case 'v':
        return '\v';
    case '0':
        return 0;
    case 'x':
        return regex_hex(in, 2);
    case 'u':
        return regex_unicode_escape(in);
    case 'c':
        if (in->at < in->end && ((*in->at | 0x20) >= 'a' && (*in->at | 0x20) <= 'z'))
            return (uint32_t)*in->at++ & 0x1f;
        return regex_fail(in, ERROR_INVALID, "\\c needs a letter");
    }
    if ((c >= '1' && c <= '9') || c == 'k')
        return regex_fail(in, ERROR_UNSUPPORTED, "back references are not supported");
    if (c == 'p' || c == 'P')
        return regex_fail(in, ERROR_UNSUPPORTED, "\\p is not supported");
    if (c == 'b' || c == 'B')
        return regex_fail(in, ERROR_UNSUPPORTED, "\\b and \\B are not supported");
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c & 0x80)
        return regex_fail(in, ERROR_INVALID, "no such escape");
    return (uint32_t)c;
}

static bool regex_is_class(const struct regex_reader *in)
{
    return in->end - in->at >= 2 && in->at[0] == '\\' && strchr("dDwWsS", in->at[1]);
}

/* One end of a range in brackets. */
static uint32_t regex_class_char(struct regex_reader *in)
{
    if (in->at == in->end)
        return regex_fail(in, ERROR_INVALID, "']' is missing");
    if (*in->at != '\\')
        return dfa_read_code_point(&in->at, in->end);
    if (++in->at == in->end)
        return regex_fail(in, ERROR_INVALID, "nothing behind '\\'");
    if (*in->at == 'b') {
        in->at++;
        return '\b';
    }
    if (*in->at == '-') {
        in->at++;
        return '-';
    }
    return regex_escape(in);
}

static void regex_class_item(struct regex_reader *in)
{
    if (regex_is_class(in)) {
        if (!regex_class_add(in->tree, in->at[1]))
            regex_no_memory(in);
        in->at += 2;
        return;
    }
    const uint32_t low = regex_class_char(in);
    uint32_t high = low;
    if (in->end - in->at >= 2 && in->at[0] == '-' && in->at[1] != ']') {
        in->at++;
        if (regex_is_class(in)) {
            regex_fail(in, ERROR_INVALID, "a range may not end with a class");
            return;
        }
        high = regex_class_char(in);
        if (high < low) {
            regex_fail(in, ERROR_INVALID, "a range from high to low");
            return;
        }
    }
    if (!in->code && !regex_range_add(in->tree, low, high))
        regex_no_memory(in);
}

static uint32_t regex_set_node(struct regex_reader *in, uint32_t first, bool is_inverted)
{
    if (!in->code && !regex_set_finish(in->tree, first, is_inverted))
        return regex_no_memory(in);
    return regex_node_add(in, (struct regex_node){.kind = REGEX_SET,
                                                  .first = first,
                                                  .n_ranges = in->tree->n_ranges - first});
}

static uint32_t regex_brackets(struct regex_reader *in)
{
    const uint32_t first = in->tree->n_ranges;
    const bool is_inverted = regex_take(in, '^');
    while (!in->code && !regex_take(in, ']')) {
        if (in->at == in->end)
            return regex_fail(in, ERROR_INVALID, "']' is missing");
        regex_class_item(in);
    }
    return regex_set_node(in, first, is_inverted);
}

static uint32_t regex_one(struct regex_reader *in, uint32_t code_point)
{
    const uint32_t first = in->tree->n_ranges;
    if (!regex_range_add(in->tree, code_point, code_point))
        return regex_no_memory(in);
    return regex_set_node(in, first, false);
}

/* Any code point but the line terminators. */
static uint32_t regex_dot(struct regex_reader *in)
{
    const uint32_t first = in->tree->n_ranges;
    if (!regex_range_add(in->tree, '\n', '\n') || !regex_range_add(in->tree, '\r', '\r') ||
        !regex_range_add(in->tree, 0x2028, 0x2029))
        return regex_no_memory(in);
    return regex_set_node(in, first, true);
}

/* ---- groups, repetitions, alternatives ---- */

static uint32_t regex_alternatives(struct regex_reader *in);

static uint32_t regex_group(struct regex_reader *in)
{
    if (regex_take(in, '?')) {
        const char kind = in->at < in->end ? *in->at : 0;
        const char next = in->end - in->at > 1 ? in->at[1] : 0;
        if (kind == '=' || kind == '!' || (kind == '<' && (next == '=' || next == '!')))
            return regex_fail(in, ERROR_UNSUPPORTED, "look-around is not supported");
        if (kind == '<') {
            const char *close = memchr(in->at, '>', (size_t)(in->end - in->at));
            if (!close)
                return regex_fail(in, ERROR_INVALID, "a group's name has no '>'");
            in->at = close;
        } else if (kind != ':') {
            return regex_fail(in, ERROR_UNSUPPORTED, "this kind of group is not supported");
        }
        in->at++;
    }
    if (in->depth == LIMIT_GRAMMAR_DEPTH)
        return regex_fail(in, ERROR_BUSY, "groups are nested too deeply");
    in->depth++;
    const uint32_t inner = regex_alternatives(in);
    in->depth--;
    if (!in->code && !regex_take(in, ')'))
        return regex_fail(in, ERROR_INVALID, "')' is missing");
    return inner;
}

static uint32_t regex_backslash(struct regex_reader *in)
{
    if (in->at == in->end)
        return regex_fail(in, ERROR_INVALID, "nothing behind '\\'");
    in->at--;
    if (regex_is_class(in)) {
        const uint32_t first = in->tree->n_ranges;
        if (!regex_class_add(in->tree, in->at[1]))
            return regex_no_memory(in);
        in->at += 2;
        return regex_set_node(in, first, false);
    }
    in->at++;
    return regex_one(in, regex_escape(in));
}

static uint32_t regex_atom(struct regex_reader *in)
{
    switch (*in->at) {
    case '(':
        in->at++;
        return regex_group(in);
    case '[':
        in->at++;
        return regex_brackets(in);
    case '.':
        in->at++;
        return regex_dot(in);
    case '^':
        in->at++;
        return regex_node_add(in, (struct regex_node){.kind = REGEX_BEGIN});
    case '$':
        in->at++;
        return regex_node_add(in, (struct regex_node){.kind = REGEX_END});
    case '\\':
        in->at++;
        return regex_backslash(in);
    case '*':
    case '+':
    case '?':
        return regex_fail(in, ERROR_INVALID, "nothing to repeat");
    case '{':
    case '}':
    case ']':
        return regex_fail(in, ERROR_INVALID, "a bracket that needs a '\\' before it");
    }
    return regex_one(in, dfa_read_code_point(&in->at, in->end));
}

static bool regex_number(struct regex_reader *in, uint32_t *value)
{
    const char *from = in->at;
    *value = 0;
    for (; in->at < in->end && *in->at >= '0' && *in->at <= '9'; in->at++) {
        if (*value <= REGEX_COUNT_MAX)
            *value = *value * 10 + (uint32_t)(*in->at - '0');
    }
    return in->at > from;
}

/* False: no quantifier is here. */
static bool regex_quantifier(struct regex_reader *in, uint32_t *n_min, uint32_t *n_max)
{
    *n_min = 0;
    *n_max = REGEX_MANY;
    if (regex_take(in, '*')) {
    } else if (regex_take(in, '+')) {
        *n_min = 1;
    } else if (regex_take(in, '?')) {
        *n_max = 1;
    } else if (regex_take(in, '{')) {
        if (!regex_number(in, n_min))
            return regex_fail(in, ERROR_INVALID, "a number is missing behind '{'");
        *n_max = *n_min;
        if (regex_take(in, ',') && !regex_number(in, n_max))
            *n_max = REGEX_MANY;
        if (!regex_take(in, '}'))
            return regex_fail(in, ERROR_INVALID, "'}' is missing");
        if (*n_max < *n_min)
            return regex_fail(in, ERROR_INVALID, "a count from high to low");
        if (*n_min > REGEX_COUNT_MAX || (*n_max != REGEX_MANY && *n_max > REGEX_COUNT_MAX))
            return regex_fail(in, ERROR_BUSY, "counts above 100000 need too many states");
    } else {
        return false;
    }
    regex_take(in, '?'); /* lazy: which of several ways it matches does not matter here */
    return true;
}

static uint32_t regex_sequence(struct regex_reader *in)
{
    uint32_t left = regex_node_add(in, (struct regex_node){.kind = REGEX_EMPTY});
    while (!in->code && in->at < in->end && *in->at != '|' && *in->at != ')') {
        uint32_t n_min, n_max, right = regex_atom(in);
        if (!in->code && regex_quantifier(in, &n_min, &n_max)) {
            const enum regex_kind kind = in->tree->nodes[right].kind;
            if (kind == REGEX_BEGIN || kind == REGEX_END)
                return regex_fail(in, ERROR_INVALID, "nothing to repeat");
            right = regex_node_add(
                in, (struct regex_node){
                        .kind = REGEX_REPEAT, .left = right, .n_min = n_min, .n_max = n_max});
        }
        left = regex_node_add(
            in, (struct regex_node){.kind = REGEX_JOIN, .left = left, .right = right});
    }
    return left;
}

static uint32_t regex_alternatives(struct regex_reader *in)
{
    uint32_t left = regex_sequence(in);
    while (!in->code && regex_take(in, '|')) {
        const uint32_t right = regex_sequence(in);
        left = regex_node_add(
            in, (struct regex_node){.kind = REGEX_EITHER, .left = left, .right = right});
    }
    return left;
}

enum error_code regex_parse(const char *text, size_t size, struct regex_tree *out,
                            struct error *err)
{
    struct regex_reader in = {text, text, text + size, out, err, ERROR_NONE, 0};
    out->root = regex_alternatives(&in);
    if (!in.code && in.at < in.end)
        regex_fail(&in, ERROR_INVALID, "a ')' too many");
    return in.code;
}
